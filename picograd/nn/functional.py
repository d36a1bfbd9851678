"""Functions of networks by name: a page of what stands in the files beside it.

In:    tensors
Out:   what `picograd.nn.functional` offers
Next:  picograd/nn/attention.py
"""
# ruff: noqa: F403

from picograd.nn.functions.activations import *
from picograd.nn.functions.attention import *
from picograd.nn.functions.class_losses import *
from picograd.nn.functions.convolution import *
from picograd.nn.functions.ctc import *
from picograd.nn.functions.distances import *
from picograd.nn.functions.dropout import *
from picograd.nn.functions.embedding import *
from picograd.nn.functions.fractional import *
from picograd.nn.functions.grids import *
from picograd.nn.functions.linear import *
from picograd.nn.functions.linear_loss import *
from picograd.nn.functions.losses import *
from picograd.nn.functions.margin_losses import *
from picograd.nn.functions.maxima import *
from picograd.nn.functions.means import *
from picograd.nn.functions.multihead import *
from picograd.nn.functions.normalization import *
from picograd.nn.functions.rectifiers import *
from picograd.nn.functions.resize import *
from picograd.nn.functions.slide import *
from picograd.nn.functions.stored import *
