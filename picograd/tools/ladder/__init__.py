"""`picograd ladder gemm`: a matrix product, one idea faster from file to file; what each idea brings is measured.

Each rung is a Program that a short emitter writes, in the statements that every kernel is made of: naive.py, blocked.py
(and vectors), registers.py, packed.py, threads.py; of fused.py the compiler writes all of it. rungs.py lists them.
"""
