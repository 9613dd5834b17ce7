"""Whether somebody else's implementation computes what an operation is defined to be.

`calls` says what it is called with, `implementations` calls it (through `worker`, perhaps in
another process), `examining` compares its answers with the oracle's, and `diagnosis` finds which of
the `rules` the wrong ones follow. `roipool.testing` and ``roipool verify --implementation`` show
the `reports`.
"""
