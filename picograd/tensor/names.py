"""PyTorch's functions by their names: torch.NAME is picograd.NAME.

A file's `__all__` names its functions that are also free functions; methods of the class and the core are named here.
"""
# ruff: noqa: F403

from picograd.tensor.conversions import *
from picograd.tensor.diagonals import *
from picograd.tensor.elementwise import *
from picograd.tensor.free_functions import *
from picograd.tensor.generator import *
from picograd.tensor.gradients import *
from picograd.tensor.indexing import *
from picograd.tensor.joining import *
from picograd.tensor.linear_algebra import *
from picograd.tensor.operators import *
from picograd.tensor.order import *
from picograd.tensor.pairs import *
from picograd.tensor.printing import *
from picograd.tensor.products import *
from picograd.tensor.random import *
from picograd.tensor.reductions import *
from picograd.tensor.scattering import *
from picograd.tensor.settings import *
from picograd.tensor.statistics import *
from picograd.tensor.storage import *
from picograd.tensor.tensor import Tensor
from picograd.tensor.views import *

# ---- new tensors ----
arange, empty, empty_like, eye, full = Tensor.arange, Tensor.empty, Tensor.empty_like, Tensor.eye, Tensor.full
full_like, linspace, logspace, ones = Tensor.full_like, Tensor.linspace, Tensor.logspace, Tensor.ones
ones_like, zeros, zeros_like, from_dlpack = Tensor.ones_like, Tensor.zeros, Tensor.zeros_like, Tensor.from_dlpack

# ---- random numbers ----
rand, rand_like, randint, randint_like = Tensor.rand, Tensor.rand_like, Tensor.randint, Tensor.randint_like
randn, randn_like, randperm = Tensor.randn, Tensor.randn_like, Tensor.randperm

# ---- several tensors ----
cat, stack, broadcast_shapes, atleast_1d = Tensor.cat, Tensor.stack, Tensor.broadcast_shapes, Tensor.atleast_1d
atleast_2d, atleast_3d, block_diag = Tensor.atleast_2d, Tensor.atleast_3d, Tensor.block_diag
broadcast_tensors, cartesian_prod, column_stack = Tensor.broadcast_tensors, Tensor.cartesian_prod, Tensor.column_stack
concat, concatenate, dstack, hstack, meshgrid = cat, cat, Tensor.dstack, Tensor.hstack, Tensor.meshgrid
row_stack, vstack = Tensor.row_stack, Tensor.vstack

# ---- other names, and methods of the core ----
less, less_equal, greater, greater_equal = Tensor.lt, Tensor.le, Tensor.gt, Tensor.ge
clone, detach, numel = Tensor.clone, Tensor.detach, Tensor.numel
ger, inner, kron, trace, vdot = Tensor.ger, Tensor.inner, Tensor.kron, Tensor.trace, Tensor.vdot
