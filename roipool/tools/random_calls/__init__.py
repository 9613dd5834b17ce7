"""Random differential testing: public functions against the oracle, and against themselves.

Calls are drawn from the whole space of arguments (`verification.generate`) for the table of
systems (`roipool.systems`), made (`verification.call`), and compared with the oracle
(`verification.oracle`) and with other calls that must give the same (`verification.relations`). A
failure is reduced to a small one and printed as a line of Python that repeats it (`shrink`). ::

    python -m roipool.tools.random_calls --calls 20000 --seed 1
"""
