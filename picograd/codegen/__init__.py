"""Lowering of a Kernel to a Program: an emitter for each kind of nest, then one list of passes."""
