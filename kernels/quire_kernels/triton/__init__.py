"""Kernels alone: no checks, no allocation. Launch them through `quire_kernels.ops`."""
