"""Batches for training by torch.utils.data's names: the package picograd_loader."""

from picograd.public import publish
from picograd_loader import *  # noqa: F403
from picograd_loader import __all__ as __all__

publish(globals())
