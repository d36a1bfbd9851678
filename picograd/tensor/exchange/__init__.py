"""Tensors and the rest of the world: Python numbers, NumPy, DLPack, memory shared with either."""
