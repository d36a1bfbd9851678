"""Kernels written by hand, and the primitives that generated CUDA calls."""
