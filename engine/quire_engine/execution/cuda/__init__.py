"""The executor of NVIDIA GPUs: Triton kernels, cuBLAS, decode steps in CUDA graphs."""
