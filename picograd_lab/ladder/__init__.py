"""`picograd ladder gemm`: a matrix product, one idea faster from rung to rung; what each idea brings is measured.

Each rung is a Program that a short emitter writes, in the statements that every kernel is made of; the compiler writes all
of the last one. rungs.py has them from top to bottom.
"""
