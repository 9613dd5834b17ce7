"""Whether somebody else's implementation computes what an operation is defined to be.

`cases` says what it is called with, `implementations` calls it, perhaps in another process
(`roipool.tools.libraries`), `examine` compares its answers with the oracle, and `diagnosis` finds
the `rules` that the wrong ones follow. `roipool.testing` and ``roipool verify --implementation``
show the `reports`.
"""
