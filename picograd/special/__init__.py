"""Special functions by torch.special's names."""
# ruff: noqa: F403

from typing import TYPE_CHECKING

from picograd.public import publish
from picograd.special import functions
from picograd.special.functions import *
from picograd.tensor.free_functions import polygamma as polygamma
from picograd.tensor.free_functions import xlogy as xlogy

if not TYPE_CHECKING:  # a type checker follows the stars
    __all__ = [*functions.__all__, "polygamma", "xlogy"]

publish(globals())
