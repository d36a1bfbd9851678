"""`picograd ladder gemm`: a matrix product that gains one idea from rung to rung; the gain of each idea is measured.

Each rung is a Program of a short emitter, in the statements of every kernel; the last rung is the compiler's own kernel.
rungs.py has them from first to last.
"""
