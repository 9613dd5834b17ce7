"""The benchmark harness: every measurement of benchmarks/README.md.

It calls roipool like any program, and uses the adapters of other libraries and the clock of
`roipool.tools.libraries`. roipool never imports it.
"""
