"""Checks whether another implementation computes an operation as defined.

`cases` selects the calls, `implementations` makes them, possibly in another process
(`roipool.tools.libraries`), `examine` compares the results with the oracle, and `diagnosis` finds
the `rules` that wrong results follow. `roipool.testing` and ``roipool verify --implementation``
show the `reports`.
"""
