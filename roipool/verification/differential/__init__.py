"""Random differential testing: public functions against the oracle, and against themselves.

Calls are drawn from the whole space of arguments (`drawing`) for a table of operations
(`operations`), made (`calling`), and compared with the oracle (`oracle`) and with other calls that
must give the same (`relations`). A failure is reduced to a small one and printed as a line of
Python that repeats it (`shrinking`). ::

    python -m roipool.verification.differential --calls 20000 --seed 1

`case`, `operations`, `drawing`, `calling` and `digest` import nothing but NumPy and each other, so
that `digest` also runs beside another release of roipool; that is why imports are relative there.
"""
