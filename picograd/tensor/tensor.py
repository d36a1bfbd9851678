"""The user's Tensor: the functions of all subjects in one class.

A method is a plain function in the file of its subject, `def exp(self: T) -> T`, and the class below names it; properties
are defined here. Methods call each other through the class, self.exp(), so a subclass that overrides one changes those that
call it. This file imports the files of methods, so they import Tensor for types only, and test for tensors by TensorCore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from picograd.errors import GradientError, ShapeError, missing
from picograd.ir.opcode import OpCode
from picograd.tensor import (
    conversions,
    creation,
    diagonals,
    elementwise,
    exchange,
    gradients,
    indexing,
    joining,
    linear_algebra,
    operators,
    order,
    pairs,
    patterns,
    products,
    random,
    reductions,
    scattering,
    statistics,
    storage,
    views,
)
from picograd.tensor.cell import grad_mode
from picograd.tensor.core import TensorCore, of_class, several_of_class
from picograd.tensor.gradients import Several, read_grad, store_grad
from picograd.tensor.inplace import stored


class Tensor(TensorCore):
    """An n-dimensional array whose operations build a graph, computed when a value is read.

    Tensor(data, dtype=None, device=None, requires_grad=False) copies host data. Names, argument order and defaults of
    methods are PyTorch's. A tensor is a view of a storage cell: views share it, and all of them see a write through one,
    while graphs built earlier keep the old value.

    A method whose name ends in _ stores its result in place: x.exp_() writes x.exp() to x's storage, in its dtype, and
    returns x. It raises DTypeError or ShapeError if the result does not fit, and GradientError if gradients of x are
    recorded and x is a leaf.

    Arguments with the same meaning in all methods:
      other:              a tensor or a number; both operands are broadcast and cast to a common dtype
      dim, axis:          two names of an axis, or of several; negative ones count from the end, None means all
      keepdim, keepdims:  two names; reduced axes are kept, with length 1
      dtype:              dtype of the result
      device:             device of the result; None: that of the operands, or PICOGRAD_DEVICE
      requires_grad:      the result is a leaf whose gradient backward() collects
      out:                a tensor, or as many as are returned, in which the result is stored and which is returned; it
                          keeps its dtype, which must hold such numbers; an empty one takes the result's shape
      generator:          source of random bits; None: the default one, which pg.manual_seed starts

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """

    __slots__ = ("__dict__",)  # programs mark parameters: weight.no_decay = True
    __hash__ = object.__hash__
    is_sparse = is_quantized = is_nested = is_meta = is_mkldnn = is_mps = is_xpu = False
    if TYPE_CHECKING:

        @property
        def grad(self) -> Self | None: ...

        @grad.setter
        def grad(self, value: Tensor | None) -> None: ...

    else:
        grad = property(
            read_grad,
            store_grad,
            lambda tensor: store_grad(tensor, None),
            "The gradient that backward() has collected, or None; may be set, and deleted.",
        )

    @property
    def grad_fn(self) -> gradients.GradFn | None:
        """The operation that made it, if gradients flow through it; None for a leaf.

        >>> (Tensor([1.0], requires_grad=True) * 2).grad_fn.name()
        'MulBackward'
        """
        return gradients.made_by(self)

    @property
    def retains_grad(self) -> bool:
        """True for a result whose gradient backward() collects, since retain_grad() was called."""
        return gradients.retains_grad(self)

    @property
    def data(self) -> Self:
        """The storage without gradient; assigning a tensor of any shape and dtype replaces the value.

        Assigning does not change what `.data` returned before, so values can be saved and restored.

        >>> weight = Tensor([1.0, 2.0], requires_grad=True)
        >>> kept = weight.data
        >>> weight.data = Tensor([3.0, 4.0])
        >>> kept
        Tensor([1., 2.])
        """
        return storage.shared_data(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        storage.replace_data(self, value)

    @property
    def T(self) -> Self:
        """View with all axes reversed."""
        return self.viewed(OpCode.PERMUTE, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Self:
        """View with the last two axes exchanged."""
        return views.matrices(self, "mT")

    @property
    def H(self) -> Self:
        """View of a matrix with its axes exchanged: the conjugate of a real number is itself."""
        if self.ndim not in (0, 2):
            raise ShapeError(f"H: needs two axes, got shape {self.shape}.", hint="use x.mH for a batch of matrices.")
        return self.T

    @property
    def mH(self) -> Self:
        """View with the last two axes exchanged: the conjugate of a real number is itself."""
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
        """True on the host's processor."""
        return not self.is_cuda

    @property
    def is_cuda(self) -> bool:
        """True on an NVIDIA GPU."""
        return self.device == "CUDA"

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Several | None = None,
    ) -> None:
        """Adds the gradient of this scalar to `.grad` of each leaf that it depends on; computes nothing yet.

        Args:
          gradient:      weight of each element, of self's shape; required unless self is a scalar
          retain_graph:  changes nothing: graphs are never freed
          create_graph:  make the gradients differentiable
          inputs:        the only leaves whose `.grad` changes; None: all of them

        Raises:
          GradientError: no leaf requires grad, self is not a scalar and has no `gradient`, or an input is not a leaf.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad.item()
        6.0
        """
        gradients.backward(self, gradient, retain_graph, create_graph, inputs)

    # ---- arithmetic, comparisons, bits ----
    _operands, add, sub, mul, div = operators._operands, operators.add, operators.sub, operators.mul, operators.div
    floor_divide, remainder, _rounded = operators.floor_divide, operators.remainder, operators._rounded
    pow, __rpow__, __add__, __sub__ = operators.pow, operators.__rpow__, operators.__add__, operators.__sub__
    __mul__, __truediv__, __floordiv__ = operators.__mul__, operators.__truediv__, operators.__floordiv__
    __mod__, __pow__, __radd__, __rsub__ = operators.__mod__, operators.__pow__, operators.__radd__, operators.__rsub__
    __rmul__, __rtruediv__, __rfloordiv__ = operators.__rmul__, operators.__rtruediv__, operators.__rfloordiv__
    __rmod__, __neg__, __pos__, lt = operators.__rmod__, operators.__neg__, operators.__pos__, operators.lt
    le, gt, ge, eq, ne, __lt__ = operators.le, operators.gt, operators.ge, operators.eq, operators.ne, operators.__lt__
    __le__, __gt__, __ge__, __and__ = operators.__le__, operators.__gt__, operators.__ge__, operators.__and__
    __or__, __xor__, __lshift__ = operators.__or__, operators.__xor__, operators.__lshift__
    __rshift__, __rlshift__, __rrshift__ = operators.__rshift__, operators.__rlshift__, operators.__rrshift__
    __invert__, __rand__, __ror__ = operators.__invert__, operators.__rand__, operators.__ror__
    __rxor__, bitwise_and, bitwise_or = operators.__rxor__, operators.bitwise_and, operators.bitwise_or
    bitwise_xor, bitwise_not = operators.bitwise_xor, operators.bitwise_not
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
    __eq__, __ne__ = operators.__eq__, operators.__ne__  # type: ignore[assignment]  # of each element

    # ---- functions of each element ----
    exp, exp_, exp2, exp2_ = elementwise.exp, elementwise.exp_, elementwise.exp2, elementwise.exp2_
    expm1, expm1_, log, log_ = elementwise.expm1, elementwise.expm1_, elementwise.log, elementwise.log_
    log2, log2_, log10, log10_ = elementwise.log2, elementwise.log2_, elementwise.log10, elementwise.log10_
    log1p, log1p_, sqrt, sqrt_ = elementwise.log1p, elementwise.log1p_, elementwise.sqrt, elementwise.sqrt_
    rsqrt, rsqrt_, square, square_ = elementwise.rsqrt, elementwise.rsqrt_, elementwise.square, elementwise.square_
    reciprocal, reciprocal_, sin = elementwise.reciprocal, elementwise.reciprocal_, elementwise.sin
    sin_, cos, cos_, tan, tan_ = elementwise.sin_, elementwise.cos, elementwise.cos_, elementwise.tan, elementwise.tan_
    sinh, sinh_, cosh, cosh_ = elementwise.sinh, elementwise.sinh_, elementwise.cosh, elementwise.cosh_
    tanh, tanh_, acos, acos_ = elementwise.tanh, elementwise.tanh_, elementwise.acos, elementwise.acos_
    asin, asin_, atan, atan_ = elementwise.asin, elementwise.asin_, elementwise.atan, elementwise.atan_
    acosh, acosh_, asinh, asinh_ = elementwise.acosh, elementwise.acosh_, elementwise.asinh, elementwise.asinh_
    atanh, atanh_, arccos, arcsin = elementwise.atanh, elementwise.atanh_, elementwise.arccos, elementwise.arcsin
    arctan, arccosh, arcsinh = elementwise.arctan, elementwise.arccosh, elementwise.arcsinh
    arctanh, arccos_, arcsin_ = elementwise.arctanh, elementwise.arccos_, elementwise.arcsin_
    arctan_, arccosh_, arcsinh_ = elementwise.arctan_, elementwise.arccosh_, elementwise.arcsinh_
    arctanh_, deg2rad, deg2rad_ = elementwise.arctanh_, elementwise.deg2rad, elementwise.deg2rad_
    rad2deg, rad2deg_, relu, relu_ = elementwise.rad2deg, elementwise.rad2deg_, elementwise.relu, elementwise.relu_
    sigmoid, sigmoid_, silu, gelu = elementwise.sigmoid, elementwise.sigmoid_, elementwise.silu, elementwise.gelu
    softplus, hardshrink, abs, abs_ = elementwise.softplus, elementwise.hardshrink, elementwise.abs, elementwise.abs_
    neg, neg_, sign, sign_ = elementwise.neg, elementwise.neg_, elementwise.sign, elementwise.sign_
    floor, floor_, ceil, ceil_ = elementwise.floor, elementwise.floor_, elementwise.ceil, elementwise.ceil_
    trunc, trunc_, round, round_ = elementwise.trunc, elementwise.trunc_, elementwise.round, elementwise.round_
    frac, frac_, frexp, sgn = elementwise.frac, elementwise.frac_, elementwise.frexp, elementwise.sgn
    sgn_, signbit, __abs__, absolute = elementwise.sgn_, elementwise.signbit, elementwise.__abs__, elementwise.absolute
    negative, fix, absolute_ = elementwise.negative, elementwise.fix, elementwise.absolute_
    negative_, fix_, isnan, isinf = elementwise.negative_, elementwise.fix_, elementwise.isnan, elementwise.isinf
    isfinite, isposinf, isneginf = elementwise.isfinite, elementwise.isposinf, elementwise.isneginf
    isreal, nan_to_num, nan_to_num_ = elementwise.isreal, elementwise.nan_to_num, elementwise.nan_to_num_
    angle, conj, conj_physical = elementwise.angle, elementwise.conj, elementwise.conj_physical
    resolve_conj, resolve_neg, positive = elementwise.resolve_conj, elementwise.resolve_neg, elementwise.positive
    erf, erfc, erfinv, lgamma = elementwise.erf, elementwise.erfc, elementwise.erfinv, elementwise.lgamma
    digamma, polygamma, mvlgamma, i0 = elementwise.digamma, elementwise.polygamma, elementwise.mvlgamma, elementwise.i0
    sinc, logit, erf_, erfc_ = elementwise.sinc, elementwise.logit, elementwise.erf_, elementwise.erfc_
    erfinv_, lgamma_, digamma_ = elementwise.erfinv_, elementwise.lgamma_, elementwise.digamma_
    polygamma_, mvlgamma_, i0_ = elementwise.polygamma_, elementwise.mvlgamma_, elementwise.i0_
    sinc_, logit_ = elementwise.sinc_, elementwise.logit_

    # ---- functions of two ----
    maximum, minimum, clamp, clamp_ = pairs.maximum, pairs.minimum, pairs.clamp, pairs.clamp_
    clamp_min, clamp_min_, clamp_max, clamp_max_ = pairs.clamp_min, pairs.clamp_min_, pairs.clamp_max, pairs.clamp_max_
    clip, clip_, where, prelu, masked_fill = pairs.clip, pairs.clip_, pairs.where, pairs.prelu, pairs.masked_fill
    lerp, lerp_, atan2, arctan2, hypot = pairs.lerp, pairs.lerp_, pairs.atan2, pairs.arctan2, pairs.hypot
    copysign, nextafter, logaddexp, logaddexp2 = pairs.copysign, pairs.nextafter, pairs.logaddexp, pairs.logaddexp2
    igamma, igammac, xlogy, float_power = pairs.igamma, pairs.igammac, pairs.xlogy, pairs.float_power
    ldexp, fmod, fmax, fmin, heaviside = pairs.ldexp, pairs.fmod, pairs.fmax, pairs.fmin, pairs.heaviside
    gcd, lcm, isclose, logical_xor, addcmul = pairs.gcd, pairs.lcm, pairs.isclose, pairs.logical_xor, pairs.addcmul
    addcdiv, is_same_size, atan2_, arctan2_ = pairs.addcdiv, pairs.is_same_size, pairs.atan2_, pairs.arctan2_
    hypot_, copysign_, nextafter_, igamma_ = pairs.hypot_, pairs.copysign_, pairs.nextafter_, pairs.igamma_
    igammac_, xlogy_, float_power_, ldexp_ = pairs.igammac_, pairs.xlogy_, pairs.float_power_, pairs.ldexp_
    fmod_, heaviside_, gcd_, lcm_ = pairs.fmod_, pairs.heaviside_, pairs.gcd_, pairs.lcm_
    logical_xor_, addcmul_, addcdiv_ = pairs.logical_xor_, pairs.addcmul_, pairs.addcdiv_
    choose = of_class(pairs.choose)

    # ---- dtypes and devices ----
    cast, bitcast, to, cpu = conversions.cast, conversions.bitcast, conversions.to, conversions.cpu
    cuda, type, type_as, float = conversions.cuda, conversions.type, conversions.type_as, conversions.float
    double, half, bfloat16, int = conversions.double, conversions.half, conversions.bfloat16, conversions.int
    short, char, byte, long = conversions.short, conversions.char, conversions.byte, conversions.long
    bool, is_floating_point, is_complex = conversions.bool, conversions.is_floating_point, conversions.is_complex
    is_conj, is_neg, is_signed = conversions.is_conj, conversions.is_neg, conversions.is_signed
    is_nonzero, nelement, ndimension = conversions.is_nonzero, conversions.nelement, conversions.ndimension
    stride, is_contiguous, storage_offset = conversions.stride, conversions.is_contiguous, conversions.storage_offset
    is_pinned, pin_memory, get_device = conversions.is_pinned, conversions.pin_memory, conversions.get_device

    # ---- views and pieces ----
    reshape, view, reshape_as, ravel, view_as = views.reshape, views.view, views.reshape_as, views.ravel, views.view_as
    flatten, unflatten, squeeze, squeeze_ = views.flatten, views.unflatten, views.squeeze, views.squeeze_
    unsqueeze, unsqueeze_, permute, transpose = views.unsqueeze, views.unsqueeze_, views.permute, views.transpose
    transpose_, swapaxes, swapaxes_, swapdims = views.transpose_, views.swapaxes, views.swapaxes_, views.swapdims
    swapdims_, t, t_, adjoint, movedim = views.swapdims_, views.t, views.t_, views.adjoint, views.movedim
    moveaxis, expand, expand_as, broadcast_to = views.moveaxis, views.expand, views.expand_as, views.broadcast_to
    narrow, narrow_copy, select, split = views.narrow, views.narrow_copy, views.select, views.split
    split_with_sizes, chunk, tensor_split = views.split_with_sizes, views.chunk, views.tensor_split
    hsplit, vsplit, dsplit, unbind = views.hsplit, views.vsplit, views.dsplit, views.unbind

    # ---- windows and diagonals ----
    unfold, diagonal, diag, diagflat = diagonals.unfold, diagonals.diagonal, diagonals.diag, diagonals.diagflat
    diag_embed, select_scatter, slice_scatter = diagonals.diag_embed, diagonals.select_scatter, diagonals.slice_scatter
    diagonal_scatter, fill_diagonal_ = diagonals.diagonal_scatter, diagonals.fill_diagonal_

    # ---- several tensors, repetitions, margins ----
    repeat, tile, flip, fliplr, flipud = joining.repeat, joining.tile, joining.flip, joining.fliplr, joining.flipud
    rot90, pad, roll, combinations = joining.rot90, joining.pad, joining.roll, joining.combinations
    cat, stack, atleast_1d = of_class(joining.cat), of_class(joining.stack), classmethod(joining.atleast_1d)
    atleast_2d, atleast_3d = classmethod(joining.atleast_2d), classmethod(joining.atleast_3d)
    hstack, vstack, row_stack = of_class(joining.hstack), of_class(joining.vstack), of_class(joining.row_stack)
    dstack, column_stack = of_class(joining.dstack), of_class(joining.column_stack)
    broadcast_tensors, meshgrid = several_of_class(joining.broadcast_tensors), several_of_class(joining.meshgrid)
    block_diag, cartesian_prod = of_class(joining.block_diag), of_class(joining.cartesian_prod)
    broadcast_shapes = staticmethod(joining.broadcast_shapes)
    concat = concatenate = cat

    # ---- axes by name ----
    rearrange, reduce = patterns.rearrange, patterns.reduce

    # ---- reductions and scans ----
    sum, prod, mean, var, std = reductions.sum, reductions.prod, reductions.mean, reductions.var, reductions.std
    amax, amin, max, min, argmax = reductions.amax, reductions.amin, reductions.max, reductions.min, reductions.argmax
    argmin, any, all, logsumexp = reductions.argmin, reductions.any, reductions.all, reductions.logsumexp
    softmax, log_softmax, cumsum = reductions.softmax, reductions.log_softmax, reductions.cumsum
    cumsum_, cumprod, cumprod_ = reductions.cumsum_, reductions.cumprod, reductions.cumprod_

    # ---- statistics ----
    aminmax, nansum, nanmean = statistics.aminmax, statistics.nansum, statistics.nanmean
    count_nonzero, var_mean, std_mean = statistics.count_nonzero, statistics.var_mean, statistics.std_mean
    cummax, cummin, logcumsumexp, diff = statistics.cummax, statistics.cummin, statistics.logcumsumexp, statistics.diff
    norm, renorm, renorm_, dist = statistics.norm, statistics.renorm, statistics.renorm_, statistics.dist
    equal, allclose, cross, cov = statistics.equal, statistics.allclose, statistics.cross, statistics.cov
    corrcoef, bincount, histc = statistics.corrcoef, statistics.bincount, statistics.histc
    histogram = statistics.histogram

    # ---- products ----
    matmul, __matmul__, __rmatmul__, mm = products.matmul, products.__matmul__, products.__rmatmul__, products.mm
    bmm, mv, dot, vdot, inner = products.bmm, products.mv, products.dot, products.vdot, products.inner
    outer, ger, kron, trace, tril = products.outer, products.ger, products.kron, products.trace, products.tril
    tril_, triu, triu_, addmm, addmv = products.tril_, products.triu, products.triu_, products.addmm, products.addmv
    addr, addbmm, baddbmm, addmm_ = products.addr, products.addbmm, products.baddbmm, products.addmm_
    addmv_, addr_, addbmm_, baddbmm_ = products.addmv_, products.addr_, products.addbmm_, products.baddbmm_

    # ---- factors and solutions of matrices ----
    inverse, det, slogdet = linear_algebra.inverse, linear_algebra.det, linear_algebra.slogdet
    logdet, pinverse, matrix_power = linear_algebra.logdet, linear_algebra.pinverse, linear_algebra.matrix_power
    matrix_exp, qr, svd = linear_algebra.matrix_exp, linear_algebra.qr, linear_algebra.svd
    cholesky, cholesky_solve = linear_algebra.cholesky, linear_algebra.cholesky_solve
    cholesky_inverse, lu, lu_solve = linear_algebra.cholesky_inverse, linear_algebra.lu, linear_algebra.lu_solve
    triangular_solve = linear_algebra.triangular_solve

    # ---- places: read and written ----
    __getitem__, __setitem__, index_put = indexing.__getitem__, indexing.__setitem__, indexing.index_put
    index_put_, gather, take = indexing.index_put_, indexing.gather, indexing.take
    take_along_dim, index_select = indexing.take_along_dim, indexing.index_select

    # ---- places: written by index, chosen ----
    scatter, scatter_add, scatter_reduce = scattering.scatter, scattering.scatter_add, scattering.scatter_reduce
    scatter_, scatter_add_, scatter_reduce_ = scattering.scatter_, scattering.scatter_add_, scattering.scatter_reduce_
    put, put_, masked_scatter = scattering.put, scattering.put_, scattering.masked_scatter
    masked_scatter_, index_add, index_copy = scattering.masked_scatter_, scattering.index_add, scattering.index_copy
    index_fill, index_reduce, index_add_ = scattering.index_fill, scattering.index_reduce, scattering.index_add_
    index_copy_, index_fill_, index_reduce_ = scattering.index_copy_, scattering.index_fill_, scattering.index_reduce_
    masked_select, masked_fill_, nonzero = scattering.masked_select, scattering.masked_fill_, scattering.nonzero
    nonzero_static = scattering.nonzero_static
    argwhere, one_hot, repeat_interleave = scattering.argwhere, scattering.one_hot, scattering.repeat_interleave

    # ---- order ----
    argsort, msort, sort, topk, kthvalue = order.argsort, order.msort, order.sort, order.topk, order.kthvalue
    median, nanmedian, mode, quantile = order.median, order.nanmedian, order.mode, order.quantile
    nanquantile, searchsorted, bucketize, isin = order.nanquantile, order.searchsorted, order.bucketize, order.isin
    unique, unique_consecutive = order.unique, order.unique_consecutive

    # ---- new tensors ----
    new_full, new_zeros, new_ones = creation.new_full, creation.new_zeros, creation.new_ones
    new_empty, new_tensor = creation.new_empty, creation.new_tensor
    full, zeros, ones = of_class(creation.full), of_class(creation.zeros), of_class(creation.ones)
    empty, eye, full_like = of_class(creation.empty), of_class(creation.eye), of_class(creation.full_like)
    zeros_like, ones_like = of_class(creation.zeros_like), of_class(creation.ones_like)
    empty_like, arange, linspace = of_class(creation.empty_like), of_class(creation.arange), of_class(creation.linspace)
    logspace = of_class(creation.logspace)

    # ---- random numbers ----
    bernoulli, multinomial, uniform_, normal_ = random.bernoulli, random.multinomial, random.uniform_, random.normal_
    bernoulli_, exponential_, geometric_ = random.bernoulli_, random.exponential_, random.geometric_
    log_normal_, cauchy_, random_ = random.log_normal_, random.cauchy_, random.random_
    rand, randn, randint = of_class(random.rand), of_class(random.randn), of_class(random.randint)
    randperm, rand_like, randn_like = of_class(random.randperm), of_class(random.rand_like), of_class(random.randn_like)
    randint_like = of_class(random.randint_like)

    # ---- what Python and other libraries call ----
    numpy, __array__, __dlpack__ = exchange.numpy, exchange.__array__, exchange.__dlpack__
    __dlpack_device__, data_ptr = exchange.__dlpack_device__, exchange.data_ptr
    __array_namespace__, to_device, item = exchange.__array_namespace__, exchange.to_device, exchange.item
    tolist, __bool__, __float__, __int__ = exchange.tolist, exchange.__bool__, exchange.__float__, exchange.__int__
    __index__, __complex__, __len__ = exchange.__index__, exchange.__complex__, exchange.__len__
    __iter__, __reversed__, __contains__ = exchange.__iter__, exchange.__reversed__, exchange.__contains__
    __format__ = exchange.__format__
    __repr__, _repr_html_, __copy__ = exchange.__repr__, exchange._repr_html_, exchange.copied
    __deepcopy__, __reduce__, __array_ufunc__ = exchange.deep_copied, exchange.reduced, exchange.array_ufunc
    from_dlpack = of_class(exchange.from_dlpack)

    # ---- values in storage ----
    copy_, fill_, zero_, as_strided = storage.copy_, storage.fill_, storage.zero_, storage.as_strided
    sum_to_size, resize_, resize_as_, apply_ = storage.sum_to_size, storage.resize_, storage.resize_as_, storage.apply_
    is_inference, to_dense = conversions.is_inference, storage.to_dense

    # ---- gradients ----
    register_hook = gradients.register_hook
    register_post_accumulate_grad_hook, detach_ = gradients.register_post_accumulate_grad_hook, gradients.detach_

    def take_result(self, function: str, result: Tensor) -> Self:
        """Stores the result of `function`, which was called with this tensor as out=; returns self.

        An empty tensor takes the result's shape. A float result cannot be stored in an integer tensor, as for in-place
        operations.

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

    def __dir__(self) -> list[str]:  # at most 750 names, so that Python suggests one for a misspelt name
        return [name for name in super().__dir__() if name[:1] != "_" or name[:2] == "__"]

    if not TYPE_CHECKING:  # else every name would have the type Any

        def __getattr__(self, name: str) -> Any:  # called for missing attributes, or if a property raises
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)
            raise missing(name, "picograd.Tensor", self)
