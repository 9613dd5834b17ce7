"""CUDA: ``engine`` computes, ``launch`` says how kernels are launched, ``source`` makes their text.

Only ``engine`` imports CuPy.
"""
