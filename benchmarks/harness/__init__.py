"""The benchmark harness: everything that is measured for benchmarks/README.md.

It uses roipool as any program may, and shares with ``roipool bench`` the libraries' operators, the
clock and the verdict on results (`roipool.cli.bench`). roipool never imports it.
"""
