"""Kernels that a user writes in CUDA C: as functions of Tensors, compared with their meaning, timed."""
