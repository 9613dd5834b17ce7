"""Random differential testing: public functions against the oracle, and against related calls.

Calls are generated over all arguments (`verification.generate`) for the table of systems
(`roipool.systems`), made (`verification.call`), and compared with the oracle
(`verification.oracle`) and with related calls (`verification.relations`). A failing call is shrunk
and printed as a line of Python that reproduces it (`shrink`). ::

    python -m roipool.tools.random_calls --calls 20000 --seed 1
"""
