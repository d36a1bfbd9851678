"""The Tensor users hold: all families of operations in one class.

In:    the storage and identity of tensor/core.py, the functions of all other files
Out:   `Tensor`

A method is a plain function in the file of its subject, `def exp(self: T) -> T`, and the class below names it; properties
are written here. Methods call each other by the class, self.exp(), so a subclass that changes one changes what is made of
it.
Files whose functions are methods are imported by this one: they know the class by name for types alone, and ask
TensorCore whether something is a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from picograd.absent import missing
from picograd.errors import GradientError, ShapeError
from picograd.ir.opcode import OpCode
from picograd.tensor import autograd, info, resized, stored_data
from picograd.tensor.cell import grad_mode
from picograd.tensor.collected import read_grad, store_grad
from picograd.tensor.core import TensorCore, of_class, several_of_class
from picograd.tensor.creation import constants, distributions, random, ranges
from picograd.tensor.elements import casts, choices, functions, operators, pairs, parts, special_functions
from picograd.tensor.exchange import copies, interop, ufuncs
from picograd.tensor.gradient_flow import Several
from picograd.tensor.indexing import brackets, scattering, selection, slices
from picograd.tensor.inplace import stored
from picograd.tensor.movement import diagonals, joining, patterns, pieces, stacking, views
from picograd.tensor.order import ranks, searching, sets, sorting
from picograd.tensor.products import added, factored, linalg
from picograd.tensor.products import matmul as products
from picograd.tensor.reductions import counts, measures, statistics
from picograd.tensor.reductions import reduce as reductions


class Tensor(TensorCore):
    """An n-dimensional array whose operations build a graph, computed when a value is read.

    Tensor(data, dtype=None, device=None, requires_grad=False) copies host data. Names, argument order and defaults
    of methods are PyTorch's. A tensor is a view of a storage cell: views share it, and a write through one is seen
    by all, while graphs built earlier keep the old value.

    A method whose name ends in _ is the one without it, stored in place: x.exp_() writes what x.exp() returns where x is
    stored, in its dtype, and returns x. It raises DTypeError or ShapeError where the result does not fit, and
    GradientError where x collects gradients that are recorded.

    Arguments that mean the same in every method:
      other:              a tensor or a number; both are broadcast to one shape and brought to one dtype
      dim, axis:          two names of an axis, or of several; negative ones count from the end, None is all of them
      keepdim, keepdims:  two names; the axes reduced stay, with length 1
      dtype:              of the result
      device:             name of the device of the result; None: the one of the operands, or PICOGRAD_DEVICE
      requires_grad:      the result is a leaf whose gradient backward() collects
      out:                a tensor, or as many as are returned, in which the result is stored and which is returned;
                          it keeps its dtype, which must hold such numbers; an empty one takes the result's shape
      generator:          where random bits come from; None: the default one, which pg.manual_seed starts

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """

    __slots__ = ()
    __hash__ = object.__hash__
    is_sparse = is_quantized = is_meta = is_mkldnn = False
    if TYPE_CHECKING:

        @property
        def grad(self) -> Self | None: ...

        @grad.setter
        def grad(self, value: Tensor | None) -> None: ...

    else:
        grad = property(read_grad, store_grad, doc="The gradient that backward() has collected, or None; may be set.")

    @property
    def grad_fn(self) -> autograd.GradFn | None:
        """The operation that made it, where gradients flow through that; None for a leaf.

        >>> (Tensor([1.0], requires_grad=True) * 2).grad_fn.name()
        'MulBackward'
        """
        return autograd.made_by(self)

    @property
    def retains_grad(self) -> bool:
        """True for a result whose gradient backward() collects, since retain_grad() was called."""
        return autograd.retains_grad(self)

    @property
    def data(self) -> Self:
        """The same storage with no gradient; what is assigned takes the storage's place, of any shape and dtype.

        Assigning leaves what `.data` gave before as it was: values can be put aside and brought back.

        >>> weight = Tensor([1.0, 2.0], requires_grad=True)
        >>> kept = weight.data
        >>> weight.data = Tensor([3.0, 4.0])
        >>> kept
        Tensor([1., 2.])
        """
        return stored_data.shared_data(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        stored_data.replace_data(self, value)

    @property
    def T(self) -> Self:
        """View with all axes in reverse order."""
        return self.viewed(OpCode.PERMUTE, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Self:
        """View with the last two axes exchanged."""
        return views.matrices(self, "mT")

    @property
    def H(self) -> Self:
        """View of a matrix with its axes exchanged: real numbers are their own conjugates."""
        if self.ndim not in (0, 2):
            raise ShapeError(f"H: needs two axes, got shape {self.shape}.", hint="use x.mH for a batch of matrices.")
        return self.T

    @property
    def mH(self) -> Self:
        """View with the last two axes exchanged: real numbers are their own conjugates."""
        return views.matrices(self, "mH")

    @property
    def real(self) -> Self:
        """The tensor itself: there are no complex numbers."""
        return self

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def is_cpu(self) -> bool:
        """True where the device is the host's processor."""
        return not self.is_cuda

    @property
    def is_cuda(self) -> bool:
        """True where the device is an NVIDIA GPU."""
        return self.device == "CUDA"

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Several | None = None,
    ) -> None:
        """Adds the gradient of this scalar to `.grad` of every leaf it depends on; computes nothing yet.

        Args:
          gradient:      (the shape of self) weight of each element; needed unless self is a scalar
          retain_graph:  changes nothing: backward() can always be called again
          create_graph:  the gradients can be differentiated themselves
          inputs:        the only leaves whose `.grad` changes; None: all of them

        Raises:
          GradientError: no leaf requires grad, self is no scalar and `gradient` is not given, or an input is no leaf.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad.item()
        6.0
        """
        autograd.backward(self, gradient, retain_graph, create_graph, inputs)

    # ---- operators ----
    _operands, add, sub, mul, div = operators._operands, operators.add, operators.sub, operators.mul, operators.div
    floor_divide, _floor_divided, remainder = operators.floor_divide, operators._floor_divided, operators.remainder
    pow, __rpow__, __add__, __sub__ = operators.pow, operators.__rpow__, operators.__add__, operators.__sub__
    __mul__, __truediv__, __floordiv__ = operators.__mul__, operators.__truediv__, operators.__floordiv__
    __mod__, __pow__, __radd__, __rsub__ = operators.__mod__, operators.__pow__, operators.__radd__, operators.__rsub__
    __rmul__, __rtruediv__, __rfloordiv__ = operators.__rmul__, operators.__rtruediv__, operators.__rfloordiv__
    __rmod__, __neg__, __pos__, lt = operators.__rmod__, operators.__neg__, operators.__pos__, operators.lt
    le, gt, ge, eq, ne, __lt__ = operators.le, operators.gt, operators.ge, operators.eq, operators.ne, operators.__lt__
    __le__, __gt__, __ge__ = operators.__le__, operators.__gt__, operators.__ge__
    __eq__, __ne__ = operators.__eq__, operators.__ne__  # type: ignore[assignment]  # of each element
    __and__, __or__, __xor__ = operators.__and__, operators.__or__, operators.__xor__
    __lshift__, __rshift__, __rlshift__ = operators.__lshift__, operators.__rshift__, operators.__rlshift__
    __rrshift__, __invert__, __rand__ = operators.__rrshift__, operators.__invert__, operators.__rand__
    __ror__, __rxor__, bitwise_and = operators.__ror__, operators.__rxor__, operators.bitwise_and
    bitwise_or, bitwise_xor, bitwise_not = operators.bitwise_or, operators.bitwise_xor, operators.bitwise_not
    bitwise_left_shift, bitwise_right_shift = operators.bitwise_left_shift, operators.bitwise_right_shift
    logical_not, logical_and, logical_or = operators.logical_not, operators.logical_and, operators.logical_or
    subtract, multiply, divide = operators.subtract, operators.multiply, operators.divide
    true_divide, greater, greater_equal = operators.true_divide, operators.greater, operators.greater_equal
    less, less_equal, not_equal, add_ = operators.less, operators.less_equal, operators.not_equal, operators.add_
    sub_, mul_, div_, pow_ = operators.sub_, operators.mul_, operators.div_, operators.pow_
    floor_divide_, remainder_, lt_, le_ = operators.floor_divide_, operators.remainder_, operators.lt_, operators.le_
    gt_, ge_, eq_, ne_ = operators.gt_, operators.ge_, operators.eq_, operators.ne_
    logical_not_, logical_and_, logical_or_ = operators.logical_not_, operators.logical_and_, operators.logical_or_
    bitwise_and_, bitwise_or_, bitwise_xor_ = operators.bitwise_and_, operators.bitwise_or_, operators.bitwise_xor_
    bitwise_not_, bitwise_left_shift_ = operators.bitwise_not_, operators.bitwise_left_shift_
    bitwise_right_shift_, subtract_ = operators.bitwise_right_shift_, operators.subtract_
    multiply_, divide_, true_divide_ = operators.multiply_, operators.divide_, operators.true_divide_
    greater_, greater_equal_, less_ = operators.greater_, operators.greater_equal_, operators.less_
    less_equal_, not_equal_, __iadd__ = operators.less_equal_, operators.not_equal_, operators.__iadd__
    __isub__, __imul__, __itruediv__ = operators.__isub__, operators.__imul__, operators.__itruediv__
    __ipow__, __ifloordiv__, __imod__ = operators.__ipow__, operators.__ifloordiv__, operators.__imod__
    __iand__, __ior__, __ixor__ = operators.__iand__, operators.__ior__, operators.__ixor__
    __ilshift__, __irshift__ = operators.__ilshift__, operators.__irshift__

    # ---- functions of each element ----
    exp, exp_, exp2, exp2_, expm1 = functions.exp, functions.exp_, functions.exp2, functions.exp2_, functions.expm1
    expm1_, log, log_, log2, log2_ = functions.expm1_, functions.log, functions.log_, functions.log2, functions.log2_
    log10, log10_, log1p, log1p_ = functions.log10, functions.log10_, functions.log1p, functions.log1p_
    sqrt, sqrt_, rsqrt, rsqrt_ = functions.sqrt, functions.sqrt_, functions.rsqrt, functions.rsqrt_
    square, square_, reciprocal = functions.square, functions.square_, functions.reciprocal
    reciprocal_, sin, sin_, cos = functions.reciprocal_, functions.sin, functions.sin_, functions.cos
    cos_, tan, tan_, sinh, sinh_ = functions.cos_, functions.tan, functions.tan_, functions.sinh, functions.sinh_
    cosh, cosh_, tanh, tanh_, acos = functions.cosh, functions.cosh_, functions.tanh, functions.tanh_, functions.acos
    acos_, asin, asin_, atan, atan_ = functions.acos_, functions.asin, functions.asin_, functions.atan, functions.atan_
    acosh, acosh_, asinh, asinh_ = functions.acosh, functions.acosh_, functions.asinh, functions.asinh_
    atanh, atanh_, arccos, arcsin = functions.atanh, functions.atanh_, functions.arccos, functions.arcsin
    arctan, arccosh, arcsinh, arctanh = functions.arctan, functions.arccosh, functions.arcsinh, functions.arctanh
    arccos_, arcsin_, arctan_, arccosh_ = functions.arccos_, functions.arcsin_, functions.arctan_, functions.arccosh_
    arcsinh_, arctanh_, deg2rad = functions.arcsinh_, functions.arctanh_, functions.deg2rad
    deg2rad_, rad2deg, rad2deg_, relu = functions.deg2rad_, functions.rad2deg, functions.rad2deg_, functions.relu
    relu_, sigmoid, sigmoid_, silu = functions.relu_, functions.sigmoid, functions.sigmoid_, functions.silu
    gelu, softplus, hardshrink = functions.gelu, functions.softplus, functions.hardshrink

    # ---- signs, roundings, parts of numbers ----
    abs, abs_, neg, neg_, sign, sign_ = parts.abs, parts.abs_, parts.neg, parts.neg_, parts.sign, parts.sign_
    floor, floor_, ceil, ceil_, trunc = parts.floor, parts.floor_, parts.ceil, parts.ceil_, parts.trunc
    trunc_, round, round_, frac, frac_ = parts.trunc_, parts.round, parts.round_, parts.frac, parts.frac_
    frexp, sgn, sgn_, signbit, __abs__ = parts.frexp, parts.sgn, parts.sgn_, parts.signbit, parts.__abs__
    absolute, negative, fix, absolute_ = parts.absolute, parts.negative, parts.fix, parts.absolute_
    negative_, fix_, isnan, isinf, isfinite = parts.negative_, parts.fix_, parts.isnan, parts.isinf, parts.isfinite
    isposinf, isneginf, isreal, nan_to_num = parts.isposinf, parts.isneginf, parts.isreal, parts.nan_to_num
    nan_to_num_, angle, conj, conj_physical = parts.nan_to_num_, parts.angle, parts.conj, parts.conj_physical
    resolve_conj, resolve_neg, positive = parts.resolve_conj, parts.resolve_neg, parts.positive

    # ---- choices ----
    maximum, minimum, clamp, clamp_ = choices.maximum, choices.minimum, choices.clamp, choices.clamp_
    clamp_min, clamp_min_, clamp_max = choices.clamp_min, choices.clamp_min_, choices.clamp_max
    clamp_max_, clip, clip_, where = choices.clamp_max_, choices.clip, choices.clip_, choices.where
    prelu, masked_fill, lerp, lerp_ = choices.prelu, choices.masked_fill, choices.lerp, choices.lerp_
    choose = of_class(choices.choose)

    # ---- conversions ----
    cast, bitcast, to, cpu, cuda, type = casts.cast, casts.bitcast, casts.to, casts.cpu, casts.cuda, casts.type
    type_as, float, double, half, bfloat16 = casts.type_as, casts.float, casts.double, casts.half, casts.bfloat16
    int, short, char, byte, long, bool = casts.int, casts.short, casts.char, casts.byte, casts.long, casts.bool

    # ---- questions ----
    is_floating_point, is_complex, is_conj, is_neg = info.is_floating_point, info.is_complex, info.is_conj, info.is_neg
    is_signed, is_nonzero, nelement, ndimension = info.is_signed, info.is_nonzero, info.nelement, info.ndimension
    stride, is_contiguous, storage_offset = info.stride, info.is_contiguous, info.storage_offset
    is_pinned, pin_memory, get_device = info.is_pinned, info.pin_memory, info.get_device

    # ---- views ----
    reshape, view, reshape_as, ravel, view_as = views.reshape, views.view, views.reshape_as, views.ravel, views.view_as
    flatten, unflatten, squeeze, squeeze_ = views.flatten, views.unflatten, views.squeeze, views.squeeze_
    unsqueeze, unsqueeze_, permute, transpose = views.unsqueeze, views.unsqueeze_, views.permute, views.transpose
    transpose_, swapaxes, swapaxes_, swapdims = views.transpose_, views.swapaxes, views.swapaxes_, views.swapdims
    swapdims_, t, t_, adjoint, movedim = views.swapdims_, views.t, views.t_, views.adjoint, views.movedim
    moveaxis, expand, expand_as, broadcast_to = views.moveaxis, views.expand, views.expand_as, views.broadcast_to

    # ---- pieces ----
    narrow, narrow_copy, select, split = pieces.narrow, pieces.narrow_copy, pieces.select, pieces.split
    split_with_sizes, chunk, tensor_split = pieces.split_with_sizes, pieces.chunk, pieces.tensor_split
    hsplit, vsplit, dsplit, unbind = pieces.hsplit, pieces.vsplit, pieces.dsplit, pieces.unbind

    # ---- diagonals and windows ----
    unfold, diagonal, diag, diagflat = diagonals.unfold, diagonals.diagonal, diagonals.diag, diagonals.diagflat
    diag_embed, select_scatter, slice_scatter = diagonals.diag_embed, diagonals.select_scatter, diagonals.slice_scatter
    diagonal_scatter, fill_diagonal_ = diagonals.diagonal_scatter, diagonals.fill_diagonal_

    # ---- joins, repetitions, margins ----
    repeat, tile, flip, fliplr, flipud = joining.repeat, joining.tile, joining.flip, joining.fliplr, joining.flipud
    rot90, pad, roll = joining.rot90, joining.pad, joining.roll
    cat, stack = of_class(joining.cat), of_class(joining.stack)
    concat = concatenate = cat

    # ---- several tensors ----
    combinations = stacking.combinations
    atleast_1d, atleast_2d = classmethod(stacking.atleast_1d), classmethod(stacking.atleast_2d)
    atleast_3d, hstack, vstack = classmethod(stacking.atleast_3d), of_class(stacking.hstack), of_class(stacking.vstack)
    row_stack, dstack = of_class(stacking.row_stack), of_class(stacking.dstack)
    column_stack, broadcast_tensors = of_class(stacking.column_stack), several_of_class(stacking.broadcast_tensors)
    meshgrid, block_diag = several_of_class(stacking.meshgrid), of_class(stacking.block_diag)
    cartesian_prod = of_class(stacking.cartesian_prod)
    broadcast_shapes = staticmethod(stacking.broadcast_shapes)

    # ---- reductions and scans ----
    sum, prod, mean = reductions.sum, reductions.prod, reductions.mean
    var, std, amax = reductions.var, reductions.std, reductions.amax
    amin, max, min = reductions.amin, reductions.max, reductions.min
    argmax, argmin, any = reductions.argmax, reductions.argmin, reductions.any
    all, logsumexp = reductions.all, reductions.logsumexp
    softmax, log_softmax = reductions.softmax, reductions.log_softmax
    cumsum, cumsum_, cumprod, cumprod_ = reductions.cumsum, reductions.cumsum_, reductions.cumprod, reductions.cumprod_

    # ---- products ----
    matmul, __matmul__, __rmatmul__, mm = products.matmul, products.__matmul__, products.__rmatmul__, products.mm
    bmm, mv, dot = products.bmm, products.mv, products.dot
    vdot, inner, outer = products.vdot, products.inner, products.outer
    ger, kron, trace = products.ger, products.kron, products.trace
    tril, tril_, triu = products.tril, products.tril_, products.triu
    triu_ = products.triu_

    # ---- places: read and written ----
    __getitem__, __setitem__, index_put = brackets.__getitem__, brackets.__setitem__, brackets.index_put
    index_put_, gather, take = brackets.index_put_, brackets.gather, brackets.take
    take_along_dim, index_select = brackets.take_along_dim, brackets.index_select

    # ---- new tensors of one number ----
    new_full, new_zeros, new_ones = constants.new_full, constants.new_zeros, constants.new_ones
    new_empty, new_tensor = constants.new_empty, constants.new_tensor
    full, zeros, ones = of_class(constants.full), of_class(constants.zeros), of_class(constants.ones)
    empty, eye, full_like = of_class(constants.empty), of_class(constants.eye), of_class(constants.full_like)
    zeros_like, ones_like = of_class(constants.zeros_like), of_class(constants.ones_like)
    empty_like = of_class(constants.empty_like)

    # ---- ranges of numbers ----
    arange, linspace, logspace = of_class(ranges.arange), of_class(ranges.linspace), of_class(ranges.logspace)

    # ---- random numbers ----
    bernoulli, multinomial, uniform_, normal_ = random.bernoulli, random.multinomial, random.uniform_, random.normal_
    rand, randn, randint = of_class(random.rand), of_class(random.randn), of_class(random.randint)
    randperm, rand_like, randn_like = of_class(random.randperm), of_class(random.rand_like), of_class(random.randn_like)
    randint_like = of_class(random.randint_like)

    # ---- what Python and other libraries ask ----
    numpy, __array__, __dlpack__ = interop.numpy, interop.__array__, interop.__dlpack__
    __dlpack_device__, data_ptr = interop.__dlpack_device__, interop.data_ptr
    __array_namespace__, to_device, item = interop.__array_namespace__, interop.to_device, interop.item
    tolist, __bool__, __float__, __int__ = interop.tolist, interop.__bool__, interop.__float__, interop.__int__
    __index__, __complex__, __len__ = interop.__index__, interop.__complex__, interop.__len__
    __iter__, __contains__, __format__ = interop.__iter__, interop.__contains__, interop.__format__
    __repr__, _repr_html_ = interop.__repr__, interop._repr_html_
    from_dlpack = of_class(interop.from_dlpack)

    # ---- values in storage ----
    copy_, fill_, zero_ = stored_data.copy_, stored_data.fill_, stored_data.zero_

    # ---- other sizes ----
    as_strided, sum_to_size, resize_ = resized.as_strided, resized.sum_to_size, resized.resize_
    resize_as_, apply_, is_inference = resized.resize_as_, resized.apply_, resized.is_inference
    to_dense = resized.to_dense

    # ---- gradients ----
    register_hook = autograd.register_hook
    register_post_accumulate_grad_hook, detach_ = autograd.register_post_accumulate_grad_hook, autograd.detach_
    # ---- functions of two ----
    atan2, arctan2, hypot, copysign = pairs.atan2, pairs.arctan2, pairs.hypot, pairs.copysign
    nextafter, logaddexp, logaddexp2 = pairs.nextafter, pairs.logaddexp, pairs.logaddexp2
    igamma, igammac, xlogy, float_power = pairs.igamma, pairs.igammac, pairs.xlogy, pairs.float_power
    ldexp = pairs.ldexp
    fmod, fmax, fmin, heaviside, gcd, lcm = pairs.fmod, pairs.fmax, pairs.fmin, pairs.heaviside, pairs.gcd, pairs.lcm
    isclose = pairs.isclose
    logical_xor, addcmul, addcdiv, is_same_size = pairs.logical_xor, pairs.addcmul, pairs.addcdiv, pairs.is_same_size
    atan2_, arctan2_, hypot_, copysign_ = pairs.atan2_, pairs.arctan2_, pairs.hypot_, pairs.copysign_
    nextafter_, igamma_, igammac_ = pairs.nextafter_, pairs.igamma_, pairs.igammac_
    xlogy_, float_power_, ldexp_, fmod_ = pairs.xlogy_, pairs.float_power_, pairs.ldexp_, pairs.fmod_
    heaviside_, gcd_, lcm_ = pairs.heaviside_, pairs.gcd_, pairs.lcm_
    logical_xor_, addcmul_, addcdiv_ = pairs.logical_xor_, pairs.addcmul_, pairs.addcdiv_

    # ---- special functions ----
    erf, erfc, erfinv = special_functions.erf, special_functions.erfc, special_functions.erfinv
    lgamma, digamma = special_functions.lgamma, special_functions.digamma
    polygamma, mvlgamma, i0 = special_functions.polygamma, special_functions.mvlgamma, special_functions.i0
    sinc, logit = special_functions.sinc, special_functions.logit
    erf_, erfc_, erfinv_ = special_functions.erf_, special_functions.erfc_, special_functions.erfinv_
    lgamma_, digamma_ = special_functions.lgamma_, special_functions.digamma_
    polygamma_, mvlgamma_, i0_ = special_functions.polygamma_, special_functions.mvlgamma_, special_functions.i0_
    sinc_, logit_ = special_functions.sinc_, special_functions.logit_

    # ---- along axes ----
    aminmax, nansum, nanmean = statistics.aminmax, statistics.nansum, statistics.nanmean
    count_nonzero, var_mean, std_mean = statistics.count_nonzero, statistics.var_mean, statistics.std_mean
    cummax, cummin, logcumsumexp = statistics.cummax, statistics.cummin, statistics.logcumsumexp
    diff, norm = statistics.diff, statistics.norm
    renorm, renorm_, dist, equal = statistics.renorm, statistics.renorm_, statistics.dist, statistics.equal
    allclose = statistics.allclose

    # ---- products, factors and solutions of matrices ----
    addmm, addmv, addr, addbmm, baddbmm = added.addmm, added.addmv, added.addr, added.addbmm, added.baddbmm
    addmm_, addmv_, addr_, addbmm_, baddbmm_ = added.addmm_, added.addmv_, added.addr_, added.addbmm_, added.baddbmm_
    cross, cov, corrcoef = measures.cross, measures.cov, measures.corrcoef
    inverse, det, slogdet, logdet = linalg.inverse, linalg.det, linalg.slogdet, linalg.logdet
    pinverse = linalg.pinverse
    matrix_power, matrix_exp, qr, svd = linalg.matrix_power, linalg.matrix_exp, linalg.qr, linalg.svd
    cholesky, cholesky_solve, cholesky_inverse = linalg.cholesky, linalg.cholesky_solve, linalg.cholesky_inverse
    lu, lu_solve, triangular_solve = factored.lu, factored.lu_solve, factored.triangular_solve

    # ---- places: written, chosen ----
    scatter, scatter_add, scatter_reduce = scattering.scatter, scattering.scatter_add, scattering.scatter_reduce
    scatter_, scatter_add_, scatter_reduce_ = scattering.scatter_, scattering.scatter_add_, scattering.scatter_reduce_
    put, put_, masked_scatter = scattering.put, scattering.put_, scattering.masked_scatter
    masked_scatter_ = scattering.masked_scatter_
    index_add, index_copy, index_fill = slices.index_add, slices.index_copy, slices.index_fill
    index_reduce = slices.index_reduce
    index_add_, index_copy_, index_fill_ = slices.index_add_, slices.index_copy_, slices.index_fill_
    index_reduce_ = slices.index_reduce_
    masked_select, masked_fill_, nonzero = selection.masked_select, selection.masked_fill_, selection.nonzero
    argwhere = selection.argwhere
    one_hot, repeat_interleave = selection.one_hot, selection.repeat_interleave

    # ---- order ----
    argsort, msort, sort, topk = sorting.argsort, sorting.msort, sorting.sort, sorting.topk
    kthvalue, median, nanmedian, mode = ranks.kthvalue, ranks.median, ranks.nanmedian, ranks.mode
    quantile, nanquantile = ranks.quantile, ranks.nanquantile
    searchsorted, bucketize, isin = searching.searchsorted, searching.bucketize, searching.isin
    unique, unique_consecutive = sets.unique, sets.unique_consecutive
    bincount, histc, histogram = counts.bincount, counts.histc, counts.histogram

    # ---- random numbers, stored here ----
    bernoulli_, exponential_ = distributions.bernoulli_, distributions.exponential_
    geometric_ = distributions.geometric_
    log_normal_, cauchy_, random_ = distributions.log_normal_, distributions.cauchy_, distributions.random_

    # ---- what Python and NumPy call ----
    __copy__, __deepcopy__, __reduce__ = copies.copied, copies.deep_copied, copies.reduced
    __array_ufunc__ = ufuncs.array_ufunc

    # ---- axes by name ----
    rearrange, reduce = patterns.rearrange, patterns.reduce

    def take_result(self, function: str, result: Tensor) -> Self:
        """Stores what `function` returned, which was given this tensor as out=; returns self.

        An empty tensor of another shape becomes one of the result's. A float result does not fit an integer tensor, as for
        any operation in place.

        Raises:
          GradientError: the result or this tensor needs gradients, which do not flow through out=.
          DTypeError, ShapeError, DeviceError: the result does not fit.
        """
        if grad_mode.get() and (result.requires_grad or self.requires_grad):
            needing = "the result" if result.requires_grad else "out"
            raise GradientError(
                f"{function}: no gradient flows through out=, and {needing} of shape {result.shape} needs one.",
                hint=f"y = {function}(...), or with pg.no_grad(): around the call.",
            )
        if self.op.shape != result.op.shape and not self.numel():
            self.data = self.new_empty(result.shape)
        return stored(function, self, result)

    def __dir__(self) -> list[str]:  # Python suggests a name for a misspelt one where there are no more than 750
        return [name for name in super().__dir__() if name[:1] != "_" or name[:2] == "__"]

    if not TYPE_CHECKING:  # else every name would be one of Any

        def __getattr__(self, name: str) -> Any:  # called for what is no attribute, or where a property raises
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)
            raise missing(name, "picograd.Tensor", self)
