"""Optimizers and schedules under the names users look for.

In:    parameters with gradients
Out:   `SGD`, `Adam`, `AdamW` and the others; `lr_scheduler`
Next:  picograd/optim/optimizer.py
"""
# ruff: noqa: F403

from picograd.optim import lr_scheduler as lr_scheduler
from picograd.optim import swa_utils as swa_utils
from picograd.optim.adam import *
from picograd.optim.adaptive import *
from picograd.optim.descent import *
from picograd.optim.matrix_steps import *
from picograd.optim.optimizer import Optimizer as Optimizer
from picograd.optim.quasi_newton import LBFGS as LBFGS
