"""The meaning of every graph, Kernel and Program in NumPy: the reference that all devices are compared with.

In:    Ops, Kernels, Programs and arrays
Out:   arrays
"""

from picograd.evaluator.graph import evaluate as evaluate
from picograd.evaluator.graph import evaluate_kernel as evaluate_kernel
from picograd.evaluator.program import evaluate_program as evaluate_program
