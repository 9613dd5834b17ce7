"""CUDA: ``engine`` computes, ``launch`` says how kernels are launched, ``source`` makes their text.

``arguments`` holds the arguments of kernels, ``partition`` divides work among blocks and threads.

Only ``engine`` imports CuPy.
"""
