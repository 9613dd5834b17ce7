"""The model of the CUDA kernels, based on the simulator: see ``benchmarks/cuda_traffic.py``."""
