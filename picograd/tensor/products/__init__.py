"""Sums of products: matrices, einsum, and the linear algebra that the host computes."""
