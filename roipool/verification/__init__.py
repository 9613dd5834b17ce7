"""Proof that an installation computes right on its machine; ``roipool verify`` runs it.

It needs nothing but the installed package. Results are compared with what released programs
answered (`released`), with the oracle and with their own transposes on random trials (`trials`),
and with themselves, computed again. `tolerance` says how close is close enough. The tests of the
source tree share all of it and go much further.
"""
