"""PyTorch's functions by their names: torch.NAME is picograd.NAME.

In:    Tensor's methods, and the functions that stand beside tensor/free_functions.py
Out:   the names that `picograd` re-exports

Most are methods under another roof: what a method takes as self comes first.
"""
# ruff: noqa: F403

from picograd.tensor.elementwise import *
from picograd.tensor.free_functions import *
from picograd.tensor.generator import *
from picograd.tensor.linear_algebra import *
from picograd.tensor.order import *
from picograd.tensor.pairs import *
from picograd.tensor.printing import *
from picograd.tensor.products import *
from picograd.tensor.sampled import *
from picograd.tensor.scattering import *
from picograd.tensor.settings import *
from picograd.tensor.statistics import *
from picograd.tensor.tensor import Tensor

# ---- new tensors ----
arange, empty, empty_like, eye, full = Tensor.arange, Tensor.empty, Tensor.empty_like, Tensor.eye, Tensor.full
full_like, linspace, logspace, ones = Tensor.full_like, Tensor.linspace, Tensor.logspace, Tensor.ones
ones_like, zeros, zeros_like, from_dlpack = Tensor.ones_like, Tensor.zeros, Tensor.zeros_like, Tensor.from_dlpack

# ---- random numbers ----
bernoulli, multinomial, rand, rand_like = Tensor.bernoulli, Tensor.multinomial, Tensor.rand, Tensor.rand_like
randint, randint_like, randn, randn_like = Tensor.randint, Tensor.randint_like, Tensor.randn, Tensor.randn_like
randperm = Tensor.randperm

# ---- views ----
broadcast_to, chunk, flatten, movedim = Tensor.broadcast_to, Tensor.chunk, Tensor.flatten, Tensor.movedim
narrow, permute, reshape = Tensor.narrow, Tensor.permute, Tensor.reshape
split, squeeze, transpose, unbind = Tensor.split, Tensor.squeeze, Tensor.transpose, Tensor.unbind
unflatten, unsqueeze = Tensor.unflatten, Tensor.unsqueeze
adjoint, diagonal, moveaxis, narrow_copy = Tensor.adjoint, Tensor.diagonal, Tensor.moveaxis, Tensor.narrow_copy
ravel, select, swapaxes, swapdims, t = Tensor.ravel, Tensor.select, Tensor.swapaxes, Tensor.swapdims, Tensor.t

as_strided, resize_as_ = Tensor.as_strided, Tensor.resize_as_

# ---- joins ----
cat, flip, roll, stack = Tensor.cat, Tensor.flip, Tensor.roll, Tensor.stack

# ---- arithmetic, comparisons, bits ----
add, sub, subtract, mul, multiply = Tensor.add, Tensor.sub, Tensor.sub, Tensor.mul, Tensor.mul
div, divide, true_divide, floor_divide = Tensor.div, Tensor.div, Tensor.div, Tensor.floor_divide
eq, ne, not_equal, bitwise_not = Tensor.eq, Tensor.ne, Tensor.ne, Tensor.__invert__
lt, le, gt, ge = Tensor.lt, Tensor.le, Tensor.gt, Tensor.ge
less, less_equal, greater, greater_equal = lt, le, gt, ge
logical_and, logical_not, logical_or = Tensor.logical_and, Tensor.logical_not, Tensor.logical_or

# ---- questions ----
is_conj, is_neg = Tensor.is_conj, Tensor.is_neg
clone, detach, get_device, is_complex = Tensor.clone, Tensor.detach, Tensor.get_device, Tensor.is_complex
is_floating_point, is_nonzero, is_signed = Tensor.is_floating_point, Tensor.is_nonzero, Tensor.is_signed
numel = Tensor.numel

# ---- functions of each element ----
abs, absolute, acos, acosh, angle, arccos = Tensor.abs, Tensor.abs, Tensor.acos, Tensor.acosh, Tensor.angle, Tensor.acos
arccosh, arcsin, arcsinh, arctan, arctanh = Tensor.acosh, Tensor.asin, Tensor.asinh, Tensor.atan, Tensor.atanh
asin, asinh, atan, atanh, ceil, clamp = Tensor.asin, Tensor.asinh, Tensor.atan, Tensor.atanh, Tensor.ceil, Tensor.clamp
clamp_max, clamp_min, clip, conj, cos = Tensor.clamp_max, Tensor.clamp_min, Tensor.clamp, Tensor.conj, Tensor.cos
cosh, deg2rad = Tensor.cosh, Tensor.deg2rad
exp, exp2, expm1, fix, floor = Tensor.exp, Tensor.exp2, Tensor.expm1, Tensor.trunc, Tensor.floor
frac, frexp, hardshrink, isfinite = Tensor.frac, Tensor.frexp, Tensor.hardshrink, Tensor.isfinite
isinf, isnan, isneginf, isposinf, isreal = Tensor.isinf, Tensor.isnan, Tensor.isneginf, Tensor.isposinf, Tensor.isreal
lerp, log, log10, log1p, log2 = Tensor.lerp, Tensor.log, Tensor.log10, Tensor.log1p, Tensor.log2
masked_fill, maximum, minimum = Tensor.masked_fill, Tensor.maximum, Tensor.minimum
nan_to_num, neg, negative, positive = Tensor.nan_to_num, Tensor.neg, Tensor.neg, Tensor.positive
rad2deg, reciprocal, relu, round, rsqrt = Tensor.rad2deg, Tensor.reciprocal, Tensor.relu, Tensor.round, Tensor.rsqrt
sgn, sigmoid, sign, signbit, sin = Tensor.sgn, Tensor.sigmoid, Tensor.sign, Tensor.signbit, Tensor.sin
sinh, sqrt, square, tan, tanh, trunc = Tensor.sinh, Tensor.sqrt, Tensor.square, Tensor.tan, Tensor.tanh, Tensor.trunc
conj_physical, resolve_conj, resolve_neg = Tensor.conj, Tensor.conj, Tensor.conj

# ---- functions of two ----
arctan2 = Tensor.atan2

# ---- along axes ----
all, amax, amin, any = Tensor.all, Tensor.amax, Tensor.amin, Tensor.any
argmax, argmin = Tensor.argmax, Tensor.argmin
cumprod, cumsum = Tensor.cumprod, Tensor.cumsum
log_softmax, logsumexp = Tensor.log_softmax, Tensor.logsumexp
max, mean, min = Tensor.max, Tensor.mean, Tensor.min
prod, softmax, std = Tensor.prod, Tensor.softmax, Tensor.std
sum, var = Tensor.sum, Tensor.var

# ---- in place ----
abs_, acos_, acosh_, arccos_, arccosh_ = Tensor.abs_, Tensor.acos_, Tensor.acosh_, Tensor.acos_, Tensor.acosh_
arcsin_, arcsinh_, arctan_, arctanh_, asin_ = Tensor.asin_, Tensor.asinh_, Tensor.atan_, Tensor.atanh_, Tensor.asin_
asinh_, atan_, atanh_, ceil_, clamp_ = Tensor.asinh_, Tensor.atan_, Tensor.atanh_, Tensor.ceil_, Tensor.clamp_
clamp_max_, clamp_min_, clip_, cos_, cosh_ = Tensor.clamp_max_, Tensor.clamp_min_, Tensor.clamp_, Tensor.cos_, Tensor.cosh_
deg2rad_, erf_, erfc_, exp2_, exp_ = Tensor.deg2rad_, Tensor.erf_, Tensor.erfc_, Tensor.exp2_, Tensor.exp_
expm1_, fill_, fix_, floor_, frac_ = Tensor.expm1_, Tensor.fill_, Tensor.trunc_, Tensor.floor_, Tensor.frac_
gcd_, i0_, lcm_, ldexp_, log10_, log1p_ = Tensor.gcd_, Tensor.i0_, Tensor.lcm_, Tensor.ldexp_, Tensor.log10_, Tensor.log1p_
log2_, log_, logit_, nan_to_num_, neg_ = Tensor.log2_, Tensor.log_, Tensor.logit_, Tensor.nan_to_num_, Tensor.neg_
negative_, rad2deg_, reciprocal_, relu_ = Tensor.neg_, Tensor.rad2deg_, Tensor.reciprocal_, Tensor.relu_
round_, rsqrt_, sigmoid_, sin_, sinc_ = Tensor.round_, Tensor.rsqrt_, Tensor.sigmoid_, Tensor.sin_, Tensor.sinc_
sinh_, sqrt_, square_, tan_, tanh_ = Tensor.sinh_, Tensor.sqrt_, Tensor.square_, Tensor.tan_, Tensor.tanh_
trunc_, xlogy_, zero_ = Tensor.trunc_, Tensor.xlogy_, Tensor.zero_
addmv_, detach_ = Tensor.addmv_, Tensor.detach_

# ---- products ----
bmm, dot, matmul, mm, mv, outer = Tensor.bmm, Tensor.dot, Tensor.matmul, Tensor.mm, Tensor.mv, Tensor.outer
tril, triu = Tensor.tril, Tensor.triu

# ---- by index ----
gather, index_select = Tensor.gather, Tensor.index_select
take_along_dim = Tensor.take_along_dim

# ---- pieces ----
dsplit, hsplit, split_with_sizes, tensor_split = Tensor.dsplit, Tensor.hsplit, Tensor.split_with_sizes, Tensor.tensor_split
vsplit = Tensor.vsplit

# ---- several tensors ----
broadcast_shapes = Tensor.broadcast_shapes
atleast_1d, atleast_2d, atleast_3d, block_diag = Tensor.atleast_1d, Tensor.atleast_2d, Tensor.atleast_3d, Tensor.block_diag
broadcast_tensors, cartesian_prod, column_stack = Tensor.broadcast_tensors, Tensor.cartesian_prod, Tensor.column_stack
combinations, concat, concatenate, dstack = Tensor.combinations, cat, cat, Tensor.dstack
hstack, meshgrid, row_stack, vstack = Tensor.hstack, Tensor.meshgrid, Tensor.row_stack, Tensor.vstack

# ---- order and ranks ----
fliplr, flipud = Tensor.fliplr, Tensor.flipud
rot90, tile = Tensor.rot90, Tensor.tile

# ---- searches, counts, sets ----

# ---- diagonals, and writing by index ----
diag, diag_embed, diagflat, diagonal_scatter = Tensor.diag, Tensor.diag_embed, Tensor.diagflat, Tensor.diagonal_scatter
index_put = Tensor.index_put
index_put_ = Tensor.index_put_
select_scatter, slice_scatter, take = Tensor.select_scatter, Tensor.slice_scatter, Tensor.take
