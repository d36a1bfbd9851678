"""Schedules under the names users look for: a page of what stands in nn/schedule.py and beside it.

In:    an optimizer
Out:   schedules of its learning rate
Next:  picograd/nn/schedule.py
"""

from picograd.nn.cycles import CyclicLR as CyclicLR
from picograd.nn.cycles import OneCycleLR as OneCycleLR
from picograd.nn.schedule import ChainedScheduler as ChainedScheduler
from picograd.nn.schedule import LambdaLR as LambdaLR
from picograd.nn.schedule import LRScheduler as LRScheduler
from picograd.nn.schedule import MultiplicativeLR as MultiplicativeLR
from picograd.nn.schedule import SequentialLR as SequentialLR
from picograd.nn.schedules import ConstantLR as ConstantLR
from picograd.nn.schedules import CosineAnnealingLR as CosineAnnealingLR
from picograd.nn.schedules import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from picograd.nn.schedules import ExponentialLR as ExponentialLR
from picograd.nn.schedules import LinearLR as LinearLR
from picograd.nn.schedules import MultiStepLR as MultiStepLR
from picograd.nn.schedules import PolynomialLR as PolynomialLR
from picograd.nn.schedules import ReduceLROnPlateau as ReduceLROnPlateau
from picograd.nn.schedules import StepLR as StepLR
