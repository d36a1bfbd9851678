"""Linear algebra, with the names, arguments and defaults of torch.linalg.

Matrices are stacks (..., m, n) of float32 or float64. Functions here have torch.linalg's arguments and results; their Ops,
which methods of Tensor share, are in picograd/tensor/linear_algebra.py and host_calls.py.

LAPACK computes factorizations on the host, within the plan (ir/host.py). An error that only values decide, such as a
singular matrix, is a LinAlgError on the line that asked, when the value is computed.
"""
# ruff: noqa: F403

from typing import TYPE_CHECKING

from picograd.errors import LinAlgError as LinAlgError
from picograd_math.linalg import decompositions, norms, products, solving
from picograd_math.linalg.decompositions import *
from picograd_math.linalg.norms import *
from picograd_math.linalg.products import *
from picograd_math.linalg.solving import *

if not TYPE_CHECKING:  # a type checker follows the stars
    __all__ = ["LinAlgError", *decompositions.__all__, *norms.__all__, *products.__all__, *solving.__all__]
