"""Averages of parameters by torch.optim.swa_utils' names: picograd_training.averages."""

from picograd.public import publish
from picograd_training.averages import *  # noqa: F403
from picograd_training.averages import __all__ as __all__

publish(globals())
