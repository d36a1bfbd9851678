"""Optimizers under the name users look for; they live beside the layers in nn/optim.py.

In:    parameters with gradients
Out:   `SGD`, `Adam`, `AdamW`
Next:  picograd/nn/optimizer.py
"""

from picograd.nn.optim import SGD as SGD
from picograd.nn.optim import Adam as Adam
from picograd.nn.optim import AdamW as AdamW
from picograd.nn.optimizer import Optimizer as Optimizer
