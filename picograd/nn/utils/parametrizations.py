"""Weights computed from others by torch.nn.utils.parametrizations' names: picograd_training.parametrizations."""

from picograd.public import publish
from picograd_training.parametrizations import *  # noqa: F403
from picograd_training.parametrizations import __all__ as __all__

publish(globals())
