"""Proof that an installation computes right on its machine; ``roipool verify`` runs it.

It needs nothing but the installed package. A `Case` is a call of one operation; `call.run` makes
it, and `check.check` compares its results with the oracle's and with those of related calls: of
awkward ones (`catalogue`) and random ones (`generate`). `released` has what released programs
answered. `tolerance` says how close is close enough. The tests of the source tree share all of it
and go much further.
"""
