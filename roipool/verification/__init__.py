"""Checks that an installation computes correctly on its machine; run by ``roipool verify``.

They need only the installed package. A `Case` describes a call of one operation. `call.run` makes
the call; `check.check` compares its results with the oracle's and with those of related calls.
Cases come from a `catalogue` of edge cases and from a generator of random calls (`generate`).
`released` compares with stored answers of other libraries' releases, and `tolerance` sets the
allowed errors. The tests of the source tree use the same modules and go much further.
"""
