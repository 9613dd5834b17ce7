"""CUDA: ``engine`` computes, ``launch`` says how kernels are launched, ``source`` makes their text.

``arguments`` is what kernels are told, ``partition`` how work is divided among blocks and threads.

Only ``engine`` imports CuPy.
"""
