"""Tensors from nothing: constants, ranges, random numbers, window functions."""
