"""PyTorch's functions by their names: torch.NAME is picograd.NAME.

In:    Tensor's methods, and the functions that stand beside tensor/free_functions.py
Out:   the names in `__all__`, which `picograd` re-exports
Next:  picograd/tensor/core.py

Most are methods under another roof: what a method takes as self comes first.
"""

from __future__ import annotations

from picograd.tensor.creation.generator import get_rng_state, initial_seed, seed, set_rng_state
from picograd.tensor.creation.old_types import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)  # fmt: skip
from picograd.tensor.creation.window_functions import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    kaiser_window,
)
from picograd.tensor.curves import cumulative_trapezoid, gradient, trapezoid, trapz
from picograd.tensor.draws import binomial, poisson
from picograd.tensor.exchange.printing import set_printoptions
from picograd.tensor.free_functions import (
    as_tensor,
    asarray,
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    fill,
    float_power,
    from_numpy,
    is_tensor,
    normal,
    polygamma,
    pow,
    real,
    remainder,
    rsub,
    scalar_tensor,
    tensor,
    to_dlpack,
    tril_indices,
    triu_indices,
    unravel_index,
    where,
    xlogy,
)  # fmt: skip
from picograd.tensor.histograms import histogramdd
from picograd.tensor.promotion import can_cast, promote_types, result_type
from picograd.tensor.segments import segment_reduce
from picograd.tensor.settings import (
    are_deterministic_algorithms_enabled,
    get_default_dtype,
    get_num_threads,
    set_default_dtype,
    set_num_threads,
    use_deterministic_algorithms,
)
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
narrow, permute, repeat_interleave, reshape = Tensor.narrow, Tensor.permute, Tensor.repeat_interleave, Tensor.reshape
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
conj_physical, resolve_conj, resolve_neg = Tensor.conj, Tensor.conj, Tensor.conj
abs, absolute, acos, acosh, angle, arccos = Tensor.abs, Tensor.abs, Tensor.acos, Tensor.acosh, Tensor.angle, Tensor.acos
arccosh, arcsin, arcsinh, arctan, arctanh = Tensor.acosh, Tensor.asin, Tensor.asinh, Tensor.atan, Tensor.atanh
asin, asinh, atan, atanh, ceil, clamp = Tensor.asin, Tensor.asinh, Tensor.atan, Tensor.atanh, Tensor.ceil, Tensor.clamp
clamp_max, clamp_min, clip, conj, cos = Tensor.clamp_max, Tensor.clamp_min, Tensor.clamp, Tensor.conj, Tensor.cos
cosh, deg2rad, digamma, erf, erfc = Tensor.cosh, Tensor.deg2rad, Tensor.digamma, Tensor.erf, Tensor.erfc
erfinv, exp, exp2, expm1, fix, floor = Tensor.erfinv, Tensor.exp, Tensor.exp2, Tensor.expm1, Tensor.trunc, Tensor.floor
frac, frexp, hardshrink, i0, isfinite = Tensor.frac, Tensor.frexp, Tensor.hardshrink, Tensor.i0, Tensor.isfinite
isinf, isnan, isneginf, isposinf, isreal = Tensor.isinf, Tensor.isnan, Tensor.isneginf, Tensor.isposinf, Tensor.isreal
lerp, lgamma, log, log10, log1p, log2 = Tensor.lerp, Tensor.lgamma, Tensor.log, Tensor.log10, Tensor.log1p, Tensor.log2
logit, masked_fill, maximum, minimum = Tensor.logit, Tensor.masked_fill, Tensor.maximum, Tensor.minimum
mvlgamma, nan_to_num, neg, negative, positive = Tensor.mvlgamma, Tensor.nan_to_num, Tensor.neg, Tensor.neg, Tensor.positive
rad2deg, reciprocal, relu, round, rsqrt = Tensor.rad2deg, Tensor.reciprocal, Tensor.relu, Tensor.round, Tensor.rsqrt
sgn, sigmoid, sign, signbit, sin, sinc = Tensor.sgn, Tensor.sigmoid, Tensor.sign, Tensor.signbit, Tensor.sin, Tensor.sinc
sinh, sqrt, square, tan, tanh, trunc = Tensor.sinh, Tensor.sqrt, Tensor.square, Tensor.tan, Tensor.tanh, Tensor.trunc

# ---- functions of two ----
addcdiv, addcmul, arctan2, atan2, copysign = Tensor.addcdiv, Tensor.addcmul, Tensor.atan2, Tensor.atan2, Tensor.copysign
fmax, fmin, fmod, gcd, heaviside, hypot = Tensor.fmax, Tensor.fmin, Tensor.fmod, Tensor.gcd, Tensor.heaviside, Tensor.hypot
igamma, igammac = Tensor.igamma, Tensor.igammac
is_same_size, isclose, lcm, ldexp = Tensor.is_same_size, Tensor.isclose, Tensor.lcm, Tensor.ldexp
logaddexp, logaddexp2, logical_xor, nextafter = Tensor.logaddexp, Tensor.logaddexp2, Tensor.logical_xor, Tensor.nextafter

# ---- along axes ----
all, allclose, amax, amin, aminmax, any = Tensor.all, Tensor.allclose, Tensor.amax, Tensor.amin, Tensor.aminmax, Tensor.any
argmax, argmin, count_nonzero, cummax = Tensor.argmax, Tensor.argmin, Tensor.count_nonzero, Tensor.cummax
cummin, cumprod, cumsum, diff, dist = Tensor.cummin, Tensor.cumprod, Tensor.cumsum, Tensor.diff, Tensor.dist
equal, log_softmax, logcumsumexp, logsumexp = Tensor.equal, Tensor.log_softmax, Tensor.logcumsumexp, Tensor.logsumexp
max, mean, min, nanmean, nansum, norm = Tensor.max, Tensor.mean, Tensor.min, Tensor.nanmean, Tensor.nansum, Tensor.norm
prod, renorm, softmax, std, std_mean = Tensor.prod, Tensor.renorm, Tensor.softmax, Tensor.std, Tensor.std_mean
sum, var, var_mean = Tensor.sum, Tensor.var, Tensor.var_mean

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
argsort, gather, index_select, masked_select = Tensor.argsort, Tensor.gather, Tensor.index_select, Tensor.masked_select
nonzero, sort, take_along_dim, topk = Tensor.nonzero, Tensor.sort, Tensor.take_along_dim, Tensor.topk

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
fliplr, flipud, kthvalue, median, mode = Tensor.fliplr, Tensor.flipud, Tensor.kthvalue, Tensor.median, Tensor.mode
msort, nanmedian, nanquantile, quantile = Tensor.msort, Tensor.nanmedian, Tensor.nanquantile, Tensor.quantile
rot90, tile = Tensor.rot90, Tensor.tile

# ---- searches, counts, sets ----
argwhere, bincount, bucketize, histc = Tensor.argwhere, Tensor.bincount, Tensor.bucketize, Tensor.histc
histogram, isin, searchsorted, unique = Tensor.histogram, Tensor.isin, Tensor.searchsorted, Tensor.unique
unique_consecutive = Tensor.unique_consecutive

# ---- diagonals, and writing by index ----
diag, diag_embed, diagflat, diagonal_scatter = Tensor.diag, Tensor.diag_embed, Tensor.diagflat, Tensor.diagonal_scatter
index_add, index_copy, index_fill, index_put = Tensor.index_add, Tensor.index_copy, Tensor.index_fill, Tensor.index_put
index_put_, index_reduce, masked_scatter, put = Tensor.index_put_, Tensor.index_reduce, Tensor.masked_scatter, Tensor.put
scatter, scatter_add, scatter_reduce = Tensor.scatter, Tensor.scatter_add, Tensor.scatter_reduce
select_scatter, slice_scatter, take = Tensor.select_scatter, Tensor.slice_scatter, Tensor.take

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor", "abs", "abs_", "absolute", "acos", "acos_", "acosh", "acosh_", "add",
    "addcdiv", "addcmul", "addmv_", "adjoint", "all", "allclose", "amax", "amin", "aminmax", "angle", "any", "arange",
    "arccos", "arccos_", "arccosh", "arccosh_", "arcsin", "arcsin_", "arcsinh", "arcsinh_", "arctan", "arctan2",
    "arctan_", "arctanh", "arctanh_", "are_deterministic_algorithms_enabled", "argmax", "argmin", "argsort",
    "argwhere", "as_strided", "as_tensor", "asarray", "asin", "asin_", "asinh", "asinh_", "atan", "atan2", "atan_",
    "atanh", "atanh_", "atleast_1d", "atleast_2d", "atleast_3d", "bartlett_window", "bernoulli", "bincount",
    "binomial", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "blackman_window", "block_diag", "bmm", "broadcast_shapes", "broadcast_tensors", "broadcast_to", "bucketize",
    "can_cast", "cartesian_prod", "cat", "ceil", "ceil_", "chunk", "clamp", "clamp_", "clamp_max", "clamp_max_",
    "clamp_min", "clamp_min_", "clip", "clip_", "clone", "column_stack", "combinations", "concat", "concatenate",
    "conj", "conj_physical", "copysign", "cos", "cos_", "cosh", "cosh_", "count_nonzero", "cummax", "cummin",
    "cumprod", "cumsum", "cumulative_trapezoid", "deg2rad", "deg2rad_", "detach", "detach_", "diag", "diag_embed",
    "diagflat", "diagonal", "diagonal_scatter", "diff", "digamma", "dist", "div", "divide", "dot", "dsplit", "dstack",
    "empty", "empty_like", "eq", "equal", "erf", "erf_", "erfc", "erfc_", "erfinv", "exp", "exp2", "exp2_", "exp_",
    "expm1", "expm1_", "eye", "fill", "fill_", "fix", "fix_", "flatten", "flip", "fliplr", "flipud", "float_power",
    "floor", "floor_", "floor_divide", "fmax", "fmin", "fmod", "frac", "frac_", "frexp", "from_dlpack", "from_numpy",
    "full", "full_like", "gather", "gcd", "gcd_", "ge", "get_default_dtype", "get_device", "get_num_threads",
    "get_rng_state", "gradient", "greater", "greater_equal", "gt", "hamming_window", "hann_window", "hardshrink",
    "heaviside", "histc", "histogram", "histogramdd", "hsplit", "hstack", "hypot", "i0", "i0_", "igamma", "igammac",
    "index_add", "index_copy", "index_fill", "index_put", "index_put_", "index_reduce", "index_select", "initial_seed",
    "is_complex", "is_conj", "is_floating_point", "is_neg", "is_nonzero", "is_same_size", "is_signed", "is_tensor",
    "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "kaiser_window", "kthvalue",
    "lcm", "lcm_", "ldexp", "ldexp_", "le", "lerp", "less", "less_equal", "lgamma", "linspace", "log", "log10",
    "log10_", "log1p", "log1p_", "log2", "log2_", "log_", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logit_", "logspace", "logsumexp", "lt",
    "masked_fill", "masked_scatter", "masked_select", "matmul", "max", "maximum", "mean", "median", "meshgrid", "min",
    "minimum", "mm", "mode", "moveaxis", "movedim", "msort", "mul", "multinomial", "multiply", "mv", "mvlgamma",
    "nan_to_num", "nan_to_num_", "nanmean", "nanmedian", "nanquantile", "nansum", "narrow", "narrow_copy", "ne", "neg",
    "neg_", "negative", "negative_", "nextafter", "nonzero", "norm", "normal", "not_equal", "numel", "ones",
    "ones_like", "outer", "permute", "poisson", "polygamma", "positive", "pow", "prod", "promote_types", "put",
    "quantile", "rad2deg", "rad2deg_", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "ravel", "real", "reciprocal", "reciprocal_", "relu", "relu_", "remainder", "renorm",
    "repeat_interleave", "reshape", "resize_as_", "resolve_conj", "resolve_neg", "result_type", "roll", "rot90",
    "round", "round_", "row_stack", "rsqrt", "rsqrt_", "rsub", "scalar_tensor", "scatter", "scatter_add",
    "scatter_reduce", "searchsorted", "seed", "segment_reduce", "select", "select_scatter", "set_default_dtype",
    "set_num_threads", "set_printoptions", "set_rng_state", "sgn", "sigmoid", "sigmoid_", "sign", "signbit", "sin",
    "sin_", "sinc", "sinc_", "sinh", "sinh_", "slice_scatter", "softmax", "sort", "split", "split_with_sizes", "sqrt",
    "sqrt_", "square", "square_", "squeeze", "stack", "std", "std_mean", "sub", "subtract", "sum", "swapaxes",
    "swapdims", "t", "take", "take_along_dim", "tan", "tan_", "tanh", "tanh_", "tensor", "tensor_split", "tile",
    "to_dlpack", "topk", "transpose", "trapezoid", "trapz", "tril", "tril_indices", "triu", "triu_indices",
    "true_divide", "trunc", "trunc_", "unbind", "unflatten", "unique", "unique_consecutive", "unravel_index",
    "unsqueeze", "use_deterministic_algorithms", "var", "var_mean", "vsplit", "vstack", "where", "xlogy", "xlogy_",
    "zero_", "zeros", "zeros_like",
]  # fmt: skip
