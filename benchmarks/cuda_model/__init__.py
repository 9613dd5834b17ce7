"""What the CUDA kernels do, counted on the simulator: see ``benchmarks/cuda_traffic.py``."""
