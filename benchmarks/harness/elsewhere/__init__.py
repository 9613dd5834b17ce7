"""Libraries in processes of their own, often of another environment.

This package is also a program: ``python elsewhere NAME THREADS`` serves one library to another
process. It therefore needs nothing but NumPy and that library, and keeps to what Python 3.8
understands; so do the two files of roipool that it runs, the clock and the table of libraries.
"""

from .task import load, save

__all__ = ["load", "save"]
