"""The meaning of every graph, Kernel and Program, by calling NumPy directly: the reference all devices are held to.

In:    Ops, Kernels, Programs and arrays
Out:   arrays
"""

from picograd.evaluator.graph import evaluate as evaluate
from picograd.evaluator.graph import evaluate_kernel as evaluate_kernel
from picograd.evaluator.program import evaluate_program as evaluate_program
