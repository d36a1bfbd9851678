"""Masks of weights by torch.nn.utils.prune's names: picograd_training.prune."""

from picograd.public import publish
from picograd_training.prune import *  # noqa: F403
from picograd_training.prune import __all__ as __all__

publish(globals())
