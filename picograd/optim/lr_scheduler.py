"""Schedules under the names users look for: a page of what stands in optim/schedules/base.py and beside it.

In:    an optimizer
Out:   schedules of its learning rate
Next:  picograd/optim/schedules/base.py
"""
# ruff: noqa: F403

from picograd.optim.schedules.base import *
from picograd.optim.schedules.base import LRScheduler as _LRScheduler  # noqa: F401  # PyTorch's older name
from picograd.optim.schedules.combined import *
from picograd.optim.schedules.cycles import *
from picograd.optim.schedules.shapes import *
