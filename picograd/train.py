"""Training: picograd_programs.train under the name that users know."""

from picograd_programs.train import *  # noqa: F403
from picograd_programs.train import __all__ as __all__
