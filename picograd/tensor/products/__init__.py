"""Sums of products: matrices and einsum; and the linear algebra that torch.Tensor has as methods.

What is asked of the host, as Ops with their gradients, stands here once (host_calls.py, and functions that end in _ops or
_op); picograd/linalg/ has torch.linalg's names and arguments and calls it.
"""
