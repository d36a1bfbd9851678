"""Functions of networks by name: a page of the files in functions/."""
# ruff: noqa: F403

from picograd.nn.functions.activations import *
from picograd.nn.functions.class_losses import *
from picograd.nn.functions.convolution import *
from picograd.nn.functions.dot_product_attention import *
from picograd.nn.functions.dropout import *
from picograd.nn.functions.interpolation import *
from picograd.nn.functions.linear import *
from picograd.nn.functions.losses import *
from picograd.nn.functions.normalization import *
from picograd.nn.functions.pooling import *
from picograd.nn.functions.windows import *
