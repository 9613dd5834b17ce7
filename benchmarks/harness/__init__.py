"""The benchmark harness: every measurement of benchmarks/README.md.

It calls roipool as any program may, and takes the operators of other libraries and the clock from
`roipool.tools.libraries`. roipool never imports it.
"""
