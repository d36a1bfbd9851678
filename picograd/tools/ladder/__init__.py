"""`picograd ladder gemm`: a matrix product, one idea faster from file to file; what each idea brings is measured.

The rungs are Programs that a short emitter each writes, in the statements that every kernel is made of: naive.py, blocked.py
(with vectors), registers.py, packed.py, threads.py, and fused.py, where the compiler does all of it. rungs.py lists them.
"""
