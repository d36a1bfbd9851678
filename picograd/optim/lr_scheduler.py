"""Schedules by torch.optim.lr_scheduler's names: picograd_training.schedules."""

from picograd.public import publish
from picograd_training.schedules import *  # noqa: F403
from picograd_training.schedules import __all__ as __all__
from picograd_training.schedules import _LRScheduler as _LRScheduler  # PyTorch's older name

publish(globals())
