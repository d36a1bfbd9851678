"""Kernels that a user writes in CUDA C or in C: as functions of Tensors, compared with their meaning, timed."""
