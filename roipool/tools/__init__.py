"""The tools behind the command line: comparison, conformance checks, random calls.

Only the command line, `roipool.testing` and the pytest plugin import this package; pooling calls do
not need it.
"""
