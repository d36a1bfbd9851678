"""Networks: modules, layers, losses, start values and saved state."""
# ruff: noqa: F403

from picograd.nn import attention as attention
from picograd.nn import functional as functional
from picograd.nn import init as init
from picograd.nn import utils as utils
from picograd.nn.containers import *
from picograd.nn.layers.criteria import *
from picograd.nn.layers.features import *
from picograd.nn.layers.lazy import *
from picograd.nn.layers.norms import *
from picograd.nn.layers.pointwise import *
from picograd.nn.layers.recurrent import *
from picograd.nn.layers.spatial import *
from picograd.nn.layers.transformer import *
from picograd.nn.module import Module as Module
from picograd.nn.parameter import *
