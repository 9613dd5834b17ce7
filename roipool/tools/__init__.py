"""The programs behind the command line: comparison, conformance, random calls.

Only the command line, `roipool.testing` and the pytest plugin import this package: no pooling call
needs it.
"""
