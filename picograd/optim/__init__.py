"""Optimizers and schedules under the names users look for."""
# ruff: noqa: F403

from typing import TYPE_CHECKING

from picograd.optim.adam import *
from picograd.optim.descent import *
from picograd.optim.matrix_steps import *
from picograd.optim.optimizer import Optimizer as Optimizer
from picograd.optim.quasi_newton import LBFGS as LBFGS
from picograd.public import publish_late as _publish_late

if TYPE_CHECKING:
    from picograd.optim import lr_scheduler as lr_scheduler
    from picograd.optim import swa_utils as swa_utils

_publish_late(globals(), ["picograd.optim.lr_scheduler", "picograd.optim.swa_utils"])
