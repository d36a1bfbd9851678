"""Activations: piecewise ones, smooth ones, gates and the softmax family; and in-place twins.

Where two pieces meet, the gradient is PyTorch's. A piece that could overflow outside its range gets a safe input there.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError, warn_user
from picograd.ir.build import cast, less, less_equal, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.nn.functions import widened
from picograd.tensor import pointwise, reductions
from picograd.tensor.arguments import check_nonnegative, check_positive
from picograd.tensor.build import axis_of, computed_in, need_float, to_float
from picograd.tensor.formulas import of_tensors
from picograd.tensor.generator import Generator
from picograd.tensor.inplace import stored
from picograd.tensor.intake import fitting
from picograd.tensor.random import gumbel_op, random_bits, uniform_op
from picograd.tensor.tensor import Tensor

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6",
    "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink",
    "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip


# ---- rectifiers ----
def of_each(
    function: str,
    input: Tensor,  # noqa: A002
    formula: Callable[[Op], Op],
    inplace: bool = False,
    kinds: str = "f",
) -> Tensor:
    """Applies `formula` to each element, in float32 if the elements have 16 bits.

    kinds: letters of accepted dtypes: "f", "fiu", ...; "F": integers become floats

    Raises:
      DTypeError: the dtype is not among kinds.
    """
    if kinds != "F" and input.dtype.kind not in kinds:
        needed = "a float" if kinds == "f" else "numbers"
        raise DTypeError(f"{function}: needs {needed}, got {input.dtype} of shape {input.shape}.", hint="x.float()")
    op = to_float(input.read()) if kinds == "F" else input.read()
    tensor = Tensor.from_op(computed_in(op.dtype.compute_dtype, formula, (op,)), input.cell.device)
    return stored(function, input, tensor) if inplace else tensor


# Klambauer et al. 2017, arXiv:1706.02515, eq. 14, with more digits.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def relu(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns 0 where input <= 0, else input; `inplace` stores the result in input.

    >>> relu(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """
    return stored("relu", input, input.relu()) if inplace else input.relu()


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input clamped to [min_val, max_val]; its gradient is 0 at both; `inplace` stores the result in input.

    Raises:
      ArgumentError: min_val is above max_val.
      DTypeError:    input is bool.

    >>> hardtanh(Tensor([-2.0, 0.5, 2.0]))
    Tensor([-1. ,  0.5,  1. ])
    """
    if min_val > max_val:
        raise ArgumentError(f"hardtanh: min_val must be at most max_val, got {min_val} and {max_val}.")

    def formula(x: Op) -> Op:
        low, high = (fitting("hardtanh", _as(x, bound), x.dtype) for bound in (min_val, max_val))
        return _between(x, low, high, x)

    return of_each("hardtanh", input, formula, inplace, "fiu")


def relu6(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input clamped to [0, 6]; `inplace` stores the result in input.

    Raises:
      DTypeError: input is bool.

    >>> relu6(Tensor([-2.0, 3.0, 8.0]))
    Tensor([0., 3., 6.])
    """
    return of_each("relu6", input, lambda x: _between(x, 0, 6, x), inplace, "fiu")


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input / 6 + 1/2, clamped to [0, 1]; `inplace` stores the result in input.

    Raises:
      DTypeError: input is not a float.

    >>> hardsigmoid(Tensor([-4.0, 0.0, 4.0]))
    Tensor([0. , 0.5, 1. ])
    """

    def formula(x: Op) -> Op:
        upper = where(less_equal(3.0, x), 1.0, x * (1 / 6) + 0.5)
        return where(less_equal(x, -3.0), 0.0, upper)

    return of_each("hardsigmoid", input, formula, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input * hardsigmoid(input); `inplace` stores the result in input.

    Raises:
      DTypeError: input is not a float.

    >>> hardswish(Tensor([-4.0, 3.0, 4.0]))
    Tensor([0., 3., 4.])
    """

    def formula(x: Op) -> Op:
        inner = _between(x, -3.0, 3.0, x)
        upper = where(less(x, 3.0), inner * (inner + 3.0) * (1 / 6), x)
        return where(less_equal(x, -3.0), 0.0, upper)

    return of_each("hardswish", input, formula, inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:  # noqa: A002
    """Returns 0 where |input| <= lambd, else input.

    Raises:
      DTypeError: input is not a float.

    >>> hardshrink(Tensor([-1.0, 0.25, 1.0]))
    Tensor([-1.,  0.,  1.])
    """
    return input.hardshrink(lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:  # noqa: A002
    """Returns input moved towards 0 by lambd; 0 if |input| <= lambd.

    Raises:
      ArgumentError: lambd is negative.
      DTypeError:    input is not a float.

    >>> softshrink(Tensor([-1.0, 0.25, 1.0]))
    Tensor([-0.5,  0. ,  0.5])
    """
    check_nonnegative("softshrink", "lambd", lambd)

    def formula(x: Op) -> Op:
        outside = where(less(x, 0.0), x + lambd, x - lambd)
        return where(less_equal(pointwise.absolute(x), lambd), 0.0, outside)

    return of_each("softshrink", input, formula)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input if it is above `threshold`, else `value`; `inplace` stores the result in input.

    Raises:
      DTypeError: input is bool.

    >>> threshold(Tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.])
    """
    return _threshold(input, threshold, value, inplace)


def _threshold(x: Tensor, bound: float, value: float, inplace: bool) -> Tensor:
    def formula(x: Op) -> Op:
        return where(less_equal(x, _as(x, bound)), _as(x, value), x)

    return of_each("threshold", x, formula, inplace, "fiu")


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input if it is positive, else input * negative_slope; `inplace` stores the result in input.

    Raises:
      DTypeError: input is not a float.

    >>> leaky_relu(Tensor([-1.0, 2.0]), 0.5)
    Tensor([-0.5,  2. ])
    """
    return of_each("leaky_relu", input, lambda x: _sloped(x, x * negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:  # noqa: A002
    """Returns input if it is positive, else input * weight.

    Args:
      input:   (N, C, ...), (C,) or ()  float
      weight:  (1,) or (), or (C,): a slope per channel

    Raises:
      ShapeError: weight is neither a single number nor (C,).
      DTypeError: the dtypes differ, or are not floats.

    Source:    He et al. 2015, arXiv:1502.01852, eq. 1.

    >>> prelu(Tensor([-1.0, 2.0]), Tensor([0.5]))
    Tensor([-0.5,  2. ])
    """
    return input.prelu(weight)


def rrelu(
    input: Tensor,  # noqa: A002
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Returns input if it is positive, else input * a; in training each a is uniform in [lower, upper).

    Outside `training` a = (lower + upper) / 2. `inplace`: in input. Source: Xu et al. 2015, arXiv:1505.00853.

    Raises:
      ArgumentError: lower is above upper.
      DTypeError:    input is not a float.

    >>> rrelu(Tensor([-3.0, 2.0]), 0.25, 0.75)
    Tensor([-1.5,  2. ])
    """
    if lower > upper:
        raise ArgumentError(f"rrelu: lower must be at most upper, got {lower} and {upper}.")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)

    def formula(x: Op) -> Op:
        slopes = uniform_op(random_bits(x.shape, generator, input.device), dtypes.float32) * (upper - lower) + lower
        return _sloped(x, x * cast(slopes, x.dtype))

    return of_each("rrelu", input, formula, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input if it is positive, else alpha * (exp(input) - 1); `inplace` stores the result in input.

    Derivatives at 0 are those of the left piece, as is the value: the second one is alpha; PyTorch's is 0.

    Raises:
      DTypeError: input is not a float.

    Source:    Clevert et al. 2015, arXiv:1511.07289, eq. 15.

    >>> elu(Tensor([-1.0, 2.0])).round(4)
    Tensor([-0.6321,  2.    ])
    """
    return of_each("elu", input, lambda x: _sloped(x, _exponential(x, 1.0) * alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns 1.0507 * elu(input, 1.6733), which preserves mean 0 and variance 1; `inplace` stores the result in input.

    Raises:
      DTypeError: input is not a float.

    Source:    Klambauer et al. 2017, arXiv:1706.02515, eq. 2 and 14.

    >>> selu(Tensor([-1.0, 2.0])).round(4)
    Tensor([-1.1113,  2.1014])
    """

    def formula(x: Op) -> Op:
        return _sloped(x, _exponential(x, 1.0) * SELU_ALPHA) * SELU_SCALE

    return of_each("selu", input, formula, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input if it is positive, else alpha * (exp(input / alpha) - 1); `inplace` stores the result in input.

    Raises:
      ArgumentError: alpha is 0.
      DTypeError:    input is not a float.

    Source:    Barron 2017, arXiv:1704.07483, eq. 2.

    >>> celu(Tensor([-1.0, 2.0]), 2.0).round(4)
    Tensor([-0.7869,  2.    ])
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0.")
    return of_each("celu", input, lambda x: _sloped(x, _exponential(x, 1.0 / alpha) * alpha), inplace)


# ---- rectifiers of Ops ----


def _between(x: Op, low: Scalar, high: Scalar, middle: Op) -> Op:
    """low if x <= low, high if x >= high, else `middle`; NaN for NaN."""
    upper = where(less_equal(high, x), x.filled(high), middle)
    return where(less_equal(x, low), x.filled(low), upper)


def _sloped(x: Op, below: Op) -> Op:
    """x if it is positive, else `below`."""
    return where(less(0.0, x), x, below)


def _exponential(x: Op, factor: float) -> Op:
    """exp(factor x) - 1 if x is not positive, else 0."""
    return pointwise.expm1(where(less(0.0, x), 0.0, x) * factor)


def _as(x: Op, value: float) -> Scalar:
    return value if x.dtype.is_float else int(value)


# ---- smooth ----
SOFTPLUS_EXACT = 40.0  # above it log(1 + exp(x)) equals x to all 53 bits


def sigmoid(input: Tensor) -> Tensor:  # noqa: A002
    """Returns 1 / (1 + exp(-input)).

    >>> sigmoid(Tensor([0.0]))
    Tensor([0.5])
    """
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the hyperbolic tangent of input.

    >>> tanh(Tensor([0.0]))
    Tensor([0.])
    """
    return input.tanh()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002
    """Returns input * Phi(input); `approximate` is that of Tensor.gelu.

    >>> gelu(Tensor([0.0, 2.0]))
    Tensor([0.       , 1.9544997])
    """
    return input.gelu(approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input * sigmoid(input); `inplace` stores the result in input.

    >>> silu(Tensor([0.0, 2.0]))
    Tensor([0.      , 1.761594])
    """
    return stored("silu", input, input.silu()) if inplace else input.silu()


def mish(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input * tanh(softplus(input)); `inplace` stores the result in input (Misra 2019, arXiv:1908.08681).

    Raises:
      DTypeError: input is not a float.

    >>> mish(Tensor([0.0, 2.0])).round(4)
    Tensor([0.   , 1.944])
    """
    return of_each("mish", input, pointwise.mish, inplace)


@widened
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:  # noqa: A002
    """Returns log(1 + exp(beta * input)) / beta; input itself if beta * input is above the threshold.

    >>> softplus(Tensor([0.0, 30.0]))
    Tensor([ 0.6931472, 30.       ])
    """
    return of_each("softplus", input, lambda x: pointwise.softplus(x, beta, threshold), kinds="F")


def logsigmoid(input: Tensor) -> Tensor:  # noqa: A002
    """Returns log(sigmoid(input)) = -log(1 + exp(-input)).

    Raises:
      DTypeError: input is not a float.

    >>> logsigmoid(Tensor([0.0]))
    Tensor([-0.6931472])
    """
    return of_each("logsigmoid", input, lambda x: -_softplus(-x))


def softsign(input: Tensor) -> Tensor:  # noqa: A002
    """Returns input / (1 + |input|).

    >>> softsign(Tensor([-1.0, 3.0]))
    Tensor([-0.5 ,  0.75])
    """
    return of_each("softsign", input, lambda x: x / (pointwise.absolute(x) + 1.0), kinds="F")


def tanhshrink(input: Tensor) -> Tensor:  # noqa: A002
    """Returns input - tanh(input).

    >>> tanhshrink(Tensor([1.0])).round(4)
    Tensor([0.2384])
    """
    return of_each("tanhshrink", input, lambda x: x - unary(OpCode.TANH, x), kinds="F")


def _softplus(x: Op) -> Op:
    return pointwise.softplus(x, 1.0, SOFTPLUS_EXACT)


# ---- along an axis ----
@of_tensors
def glu(input: Tensor, dim: int = -1) -> Tensor:  # noqa: A002
    """Returns a * sigmoid(b), a and b the halves of input along one axis (Dauphin et al. 2016, arXiv:1612.08083).

    Raises:
      ShapeError: the axis is of odd length, or input has no axes.
      DTypeError: input is not a float.

    >>> glu(Tensor([1.0, 0.0]))
    Tensor([0.5])
    """
    need_float("glu", input.op)
    if not input.ndim or input.shape[axis_of("glu", input.shape, dim)] % 2:
        raise ShapeError(f"glu: axis {dim} of shape {input.shape} must be of even length to be halved.")
    half = input.shape[dim] // 2
    return input.narrow(dim, 0, half) * input.narrow(dim, half, half).sigmoid()


def _chosen(function: str, input: Tensor, dim: int | None) -> int:  # noqa: A002
    """Returns `dim`; if it is None, PyTorch's default: 0 for tensors of zero, one or three axes, else 1.

    The summed axis decides every value, so a program that omits it must mean the same here; a warning says so.
    """
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
        warn_user(f"{function}: dim is missing for shape {input.shape}; the sum is along axis {dim}, as in PyTorch.")
    return dim


@widened
def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns exp(input) / sum(exp(input)) along one axis.

    Without `dim` it warns, and takes PyTorch's default: 0 for at most one axis or for three, else 1.

    >>> softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([0.5, 0.5])
    """
    return reductions.softmax(input, _chosen("softmax", input, dim), dtype)


@widened
def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns input - log(sum(exp(input))) along one axis.

    Without `dim` it warns, and takes PyTorch's default: 0 for at most one axis or for three, else 1.

    >>> log_softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([-0.6931472, -0.6931472])
    """
    return reductions.log_softmax(input, _chosen("log_softmax", input, dim), dtype)


@widened
def softmin(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns softmax(-input) along one axis.

    Without `dim` it warns, and takes PyTorch's default: 0 for at most one axis or for three, else 1.

    >>> softmin(Tensor([0.0, 0.0]), dim=0)
    Tensor([0.5, 0.5])
    """
    return (-input).softmax(_chosen("softmin", input, dim), dtype)


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    generator: Generator | None = None,
) -> Tensor:
    """Returns softmax((logits + g) / tau), g from the Gumbel distribution: a differentiable sample of classes.

    `hard`: returns a one-hot sample, with the gradient of the soft one. `eps` has no effect, as in PyTorch.

    Raises:
      ArgumentError: tau is not positive.
      DTypeError:    logits are not floats.

    Source:    Jang et al. 2016, arXiv:1611.01144, eq. 2.

    >>> gumbel_softmax(Tensor([0.0, 0.0, 0.0]), hard=True).sum()
    Tensor(1.)
    """
    check_positive("gumbel_softmax", "tau", tau)
    need_float("gumbel_softmax", logits.op, "logits")
    gumbels = gumbel_op(random_bits(logits.op.shape, generator, logits.device), logits.dtype)
    scores = (logits + Tensor.from_op(gumbels, logits.cell.device)) / tau
    soft = scores.softmax(dim)
    if not hard:
        return soft
    place = scores.detach().argmax(dim, keepdim=True)
    line = Tensor.arange(soft.shape[dim], device=logits.device)
    sizes = [1] * logits.ndim
    sizes[dim] = -1
    sharp = (line.reshape(sizes) == place).to(soft.dtype)
    return sharp + (soft - soft.detach())


# ---- in place: relu_(x) is relu(x, inplace=True) ----
def relu_(input: Tensor) -> Tensor:  # noqa: A002
    """Stores relu(input) in input, and returns it.

    >>> relu_(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """
    return relu(input, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:  # noqa: A002
    """Stores elu(input, alpha) in input, and returns it.

    >>> elu_(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """
    return elu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:  # noqa: A002
    """Stores selu(input) in input, and returns it.

    >>> selu_(Tensor([0.0, 2.0])).round(4)
    Tensor([0.    , 2.1014])
    """
    return selu(input, inplace=True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:  # noqa: A002
    """Stores celu(input, alpha) in input, and returns it.

    >>> celu_(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """
    return celu(input, alpha, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:  # noqa: A002
    """Stores leaky_relu(input, negative_slope) in input, and returns it.

    >>> leaky_relu_(Tensor([-1.0, 2.0]), 0.5)
    Tensor([-0.5,  2. ])
    """
    return leaky_relu(input, negative_slope, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:  # noqa: A002
    """Stores hardtanh(input, min_val, max_val) in input, and returns it.

    >>> hardtanh_(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5])
    """
    return hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:  # noqa: A002
    """Stores threshold(input, threshold, value) in input, and returns it.

    >>> threshold_(Tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.])
    """
    return _threshold(input, threshold, value, True)


def rrelu_(
    input: Tensor,  # noqa: A002
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Stores rrelu(input, lower, upper, training) in input, and returns it.

    >>> rrelu_(Tensor([-3.0, 2.0]), 0.25, 0.75)
    Tensor([-1.5,  2. ])
    """
    return rrelu(input, lower, upper, training, inplace=True, generator=generator)
