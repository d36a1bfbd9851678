"""Optimizers and schedules under the names users look for.

In:    parameters with gradients
Out:   `SGD`, `Adam`, `AdamW` and the others; `lr_scheduler`
Next:  picograd/optim/optimizer.py
"""

from picograd.optim import lr_scheduler as lr_scheduler
from picograd.optim import swa_utils as swa_utils
from picograd.optim.adam import LAMB as LAMB
from picograd.optim.adam import Adam as Adam
from picograd.optim.adam import Adamax as Adamax
from picograd.optim.adam import AdamW as AdamW
from picograd.optim.adam import NAdam as NAdam
from picograd.optim.adam import RAdam as RAdam
from picograd.optim.adaptive import Adadelta as Adadelta
from picograd.optim.adaptive import Adagrad as Adagrad
from picograd.optim.adaptive import RMSprop as RMSprop
from picograd.optim.descent import ASGD as ASGD
from picograd.optim.descent import SGD as SGD
from picograd.optim.descent import Lion as Lion
from picograd.optim.descent import Rprop as Rprop
from picograd.optim.matrix_steps import Adafactor as Adafactor
from picograd.optim.matrix_steps import Muon as Muon
from picograd.optim.optimizer import Optimizer as Optimizer
from picograd.optim.quasi_newton import LBFGS as LBFGS
