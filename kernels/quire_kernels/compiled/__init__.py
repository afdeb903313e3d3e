"""Compiled kernels, made ahead of time (`absent`) and carried to where they run (`packs`)."""
