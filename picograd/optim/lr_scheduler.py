"""Schedules under the names users look for: a page of what stands in optim/schedules/base.py and beside it.

In:    an optimizer
Out:   schedules of its learning rate
Next:  picograd/optim/schedules/base.py
"""

from picograd.optim.schedules.base import LambdaLR as LambdaLR
from picograd.optim.schedules.base import LRScheduler as LRScheduler
from picograd.optim.schedules.base import LRScheduler as _LRScheduler  # noqa: F401  # PyTorch's older name
from picograd.optim.schedules.base import MultiplicativeLR as MultiplicativeLR
from picograd.optim.schedules.combined import ChainedScheduler as ChainedScheduler
from picograd.optim.schedules.combined import SequentialLR as SequentialLR
from picograd.optim.schedules.cycles import CyclicLR as CyclicLR
from picograd.optim.schedules.cycles import OneCycleLR as OneCycleLR
from picograd.optim.schedules.shapes import ConstantLR as ConstantLR
from picograd.optim.schedules.shapes import CosineAnnealingLR as CosineAnnealingLR
from picograd.optim.schedules.shapes import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from picograd.optim.schedules.shapes import ExponentialLR as ExponentialLR
from picograd.optim.schedules.shapes import LinearLR as LinearLR
from picograd.optim.schedules.shapes import MultiStepLR as MultiStepLR
from picograd.optim.schedules.shapes import PolynomialLR as PolynomialLR
from picograd.optim.schedules.shapes import ReduceLROnPlateau as ReduceLROnPlateau
from picograd.optim.schedules.shapes import StepLR as StepLR
