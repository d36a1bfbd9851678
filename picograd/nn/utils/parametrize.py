"""Parametrized modules by torch.nn.utils.parametrize's names: picograd_training.parametrize."""

from picograd.public import publish
from picograd_training.parametrize import *  # noqa: F403
from picograd_training.parametrize import __all__ as __all__

publish(globals())
