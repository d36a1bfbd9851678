"""Linear algebra, with the names, arguments and defaults of torch.linalg.

In:    stacks of matrices (..., m, n), of float32 or float64
Out:   tensors, or named tuples of them
Next:  picograd/linalg/solving.py

Here are names, arguments and results as torch.linalg has them. The Ops they are made of, which methods of Tensor share,
stand in picograd/tensor/products/.

What needs a factorization is computed by LAPACK on the host, within the plan (ir/host.py). What only values decide, such
as a singular matrix, raises LinAlgError on the line that asked, when the value is computed.
"""
# ruff: noqa: F403

from typing import TYPE_CHECKING

from picograd.errors import LinAlgError as LinAlgError
from picograd.linalg import factors, norms, products, solving, spectra
from picograd.linalg.factors import *
from picograd.linalg.norms import *
from picograd.linalg.products import *
from picograd.linalg.solving import *
from picograd.linalg.spectra import *

if not TYPE_CHECKING:  # a type checker follows the stars
    __all__ = ["LinAlgError", *factors.__all__, *norms.__all__, *products.__all__, *solving.__all__, *spectra.__all__]
