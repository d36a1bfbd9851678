"""Tensors and the rest of the world: Python numbers, NumPy, DLPack, einops, memory shared with others."""
