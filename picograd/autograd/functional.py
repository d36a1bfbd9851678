"""Derivatives at a point by torch.autograd.functional's names: picograd_torch.autograd_functional."""

from picograd.public import publish
from picograd_torch.autograd_functional import *  # noqa: F403
from picograd_torch.autograd_functional import __all__ as __all__

publish(globals())
