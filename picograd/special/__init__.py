"""Special functions by torch.special's names.

In:    tensors
Out:   what stands in the files beside this one
Next:  picograd/special/functions.py
"""
# ruff: noqa: F403

from typing import TYPE_CHECKING

from picograd.public import publish
from picograd.special import cylinder, functions, polynomials
from picograd.special.cylinder import *
from picograd.special.functions import *
from picograd.special.polynomials import *
from picograd.tensor.free_functions import polygamma as polygamma
from picograd.tensor.free_functions import xlogy as xlogy

if not TYPE_CHECKING:  # a type checker follows the stars
    __all__ = [*cylinder.__all__, *functions.__all__, *polynomials.__all__, "polygamma", "xlogy"]

publish(globals())
