"""The Tensor users hold: all families of operations in one class.

In:    tensor/core.py and the families that extend it
Out:   `Tensor`
Next:  picograd/tensor/resized.py

Many methods are functions in the file of their subject, and named in the class below. The others are families of methods,
one line of classes, each built on the one before it, so that a method finds below what it is made of: TensorCore, Views ..
Stacking, Operators, Info, Casts .. Choices, Reduce, Products, Brackets, Constants, Ranges, Random, Interop, Resized.
Whether something is a tensor is asked of TensorCore, or of a class that the file itself defines or needs, never of one in
between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from picograd.absent import missing
from picograd.errors import GradientError
from picograd.tensor.autograd import Autograd
from picograd.tensor.cell import grad_mode
from picograd.tensor.core import TensorCore
from picograd.tensor.creation import distributions
from picograd.tensor.elements import pairs, special_functions
from picograd.tensor.exchange import copies, ufuncs
from picograd.tensor.indexing import scattering, selection, slices
from picograd.tensor.inplace import stored
from picograd.tensor.movement import patterns
from picograd.tensor.order import ranks, searching, sets, sorting
from picograd.tensor.products import added, factored, linalg
from picograd.tensor.reductions import counts, measures, statistics
from picograd.tensor.resized import Resized


class Tensor(Resized, Autograd):
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

    def take_result(self, function: str, result: TensorCore) -> Self:
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
