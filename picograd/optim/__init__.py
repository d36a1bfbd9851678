"""Optimizers and schedules under the names users look for; they live beside the layers.

In:    parameters with gradients
Out:   `SGD`, `Adam`, `AdamW` and the others; `lr_scheduler`
Next:  picograd/nn/optimizer.py
"""

from picograd.nn.adaptive import Adadelta as Adadelta
from picograd.nn.adaptive import Adagrad as Adagrad
from picograd.nn.adaptive import Adamax as Adamax
from picograd.nn.adaptive import NAdam as NAdam
from picograd.nn.adaptive import RAdam as RAdam
from picograd.nn.adaptive import RMSprop as RMSprop
from picograd.nn.directions import ASGD as ASGD
from picograd.nn.directions import LAMB as LAMB
from picograd.nn.directions import Lion as Lion
from picograd.nn.directions import Rprop as Rprop
from picograd.nn.matrix_steps import Adafactor as Adafactor
from picograd.nn.matrix_steps import Muon as Muon
from picograd.nn.optim import SGD as SGD
from picograd.nn.optim import Adam as Adam
from picograd.nn.optim import AdamW as AdamW
from picograd.nn.optimizer import Optimizer as Optimizer
from picograd.optim import lr_scheduler as lr_scheduler
