"""Data sets by name: picograd_programs.data under the name that users know."""

from picograd_programs.data import *  # noqa: F403
from picograd_programs.data import __all__ as __all__
