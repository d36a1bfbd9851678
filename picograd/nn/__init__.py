"""Networks: modules, layers, losses, start values and saved state.

In:    tensors
Out:   what `picograd.nn` offers
Next:  picograd/nn/module.py
"""
# ruff: noqa: F403

from picograd.nn import attention as attention
from picograd.nn import functional as functional
from picograd.nn import init as init
from picograd.nn import utils as utils
from picograd.nn.containers import *
from picograd.nn.layers.activations import *
from picograd.nn.layers.adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from picograd.nn.layers.batch_norm import *
from picograd.nn.layers.convolution import *
from picograd.nn.layers.dropout import *
from picograd.nn.layers.features import *
from picograd.nn.layers.lazy import *
from picograd.nn.layers.losses import *
from picograd.nn.layers.multihead import MultiheadAttention as MultiheadAttention
from picograd.nn.layers.norms import *
from picograd.nn.layers.padding import *
from picograd.nn.layers.pooling import *
from picograd.nn.layers.recurrent import *
from picograd.nn.layers.recurrent_cells import *
from picograd.nn.layers.resample import *
from picograd.nn.layers.transformer import *
from picograd.nn.module import Module as Module
from picograd.nn.parameter import *
