"""Whether somebody else's implementation computes what an operation is defined to be.

`calls` says what it is called with, `implementations` calls it, perhaps in another process
(`roipool.libraries`), `examining` compares its answers with the oracle's, and `diagnosis` finds
which of the `rules` the wrong ones follow. `roipool.testing` and ``roipool verify
--implementation`` show the `reports`.
"""
