"""Smooth activations, gates and the softmax family.

In:    tensors
Out:   tensors
Next:  picograd/nn/functions/distances.py
"""

from __future__ import annotations

from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.nn.functions.precision import widened
from picograd.nn.functions.rectifiers import of_each
from picograd.tensor.build import axis_of, need_float
from picograd.tensor.creation.generator import Generator
from picograd.tensor.creation.random import gumbel_op, random_bits
from picograd.tensor.elements import pointwise
from picograd.tensor.inplace import stored
from picograd.tensor.tensor import Tensor

__all__ = [
    "gelu", "glu", "gumbel_softmax", "log_softmax", "logsigmoid", "mish", "sigmoid", "silu", "softmax", "softmin",
    "softplus", "softsign", "tanh", "tanhshrink",
]  # fmt: skip

# Where log(1 + exp(x)) is x to all 53 bits.
SOFTPLUS_EXACT = 40.0


# ---- smooth ----
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
    """Returns input * Phi(input); `approximate` as in Tensor.gelu.

    >>> gelu(Tensor([0.0, 2.0]))
    Tensor([0.       , 1.9544997])
    """
    return input.gelu(approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input * sigmoid(input); `inplace` stores it there.

    >>> silu(Tensor([0.0, 2.0]))
    Tensor([0.      , 1.761594])
    """
    return stored("silu", input, input.silu()) if inplace else input.silu()


def mish(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """Returns input * tanh(softplus(input)); `inplace` stores it there (Misra 2019, arXiv:1908.08681).

    Raises:
      DTypeError: input is no float.

    >>> mish(Tensor([0.0, 2.0])).round(4)
    Tensor([0.   , 1.944])
    """
    return of_each("mish", input, pointwise.mish, inplace)


@widened
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:  # noqa: A002
    """Returns log(1 + exp(beta * input)) / beta, and input where beta * input is above the threshold.

    >>> softplus(Tensor([0.0, 30.0]))
    Tensor([ 0.6931472, 30.       ])
    """
    return of_each("softplus", input, lambda x: pointwise.softplus(x, beta, threshold), kinds="F")


def logsigmoid(input: Tensor) -> Tensor:  # noqa: A002
    """Returns log(sigmoid(input)) = -log(1 + exp(-input)).

    Raises:
      DTypeError: input is no float.

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
def glu(input: Tensor, dim: int = -1) -> Tensor:  # noqa: A002
    """Returns a * sigmoid(b), a and b the halves of input along one axis (Dauphin et al. 2016, arXiv:1612.08083).

    Raises:
      ShapeError: the axis is of odd length, or input has no axes.
      DTypeError: input is no float.

    >>> glu(Tensor([1.0, 0.0]))
    Tensor([0.5])
    """
    need_float("glu", input.op)
    if not input.ndim or input.shape[axis_of("glu", input.shape, dim)] % 2:
        raise ShapeError(f"glu: axis {dim} of shape {input.shape} must be of even length to be halved.")
    half = input.shape[dim] // 2
    return input.narrow(dim, 0, half) * input.narrow(dim, half, half).sigmoid()


def _chosen(function: str, input: Tensor, dim: int | None) -> int:  # noqa: A002
    if dim is None:
        raise ArgumentError(f"{function}: dim must say which axis of {input.shape} to sum over.", hint="dim=-1, the last")
    return dim


@widened
def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns exp(input) / sum(exp(input)) along one axis.

    Raises:
      ArgumentError: `dim` is not given; PyTorch warns, and takes 0 or 1.

    >>> softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([0.5, 0.5])
    """
    return input.softmax(_chosen("softmax", input, dim), dtype)


@widened
def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns input - log(sum(exp(input))) along one axis.

    Raises:
      ArgumentError: `dim` is not given; PyTorch warns, and takes 0 or 1.

    >>> log_softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([-0.6931472, -0.6931472])
    """
    return input.log_softmax(_chosen("log_softmax", input, dim), dtype)


@widened
def softmin(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns softmax(-input) along one axis.

    Raises:
      ArgumentError: `dim` is not given; PyTorch warns, and takes 0 or 1.

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
    """Returns softmax((logits + g) / tau), g drawn from Gumbel's distribution: a sample of classes with gradients.

    `hard`: the sample itself, one 1 and zeros, with the gradient of the soft one. `eps` has no effect, as in PyTorch.

    Raises:
      ArgumentError: tau is not positive.
      DTypeError:    logits are no floats.

    Source:    Jang et al. 2016, arXiv:1611.01144, eq. 2.

    >>> gumbel_softmax(Tensor([0.0, 0.0, 0.0]), hard=True).sum()
    Tensor(1.)
    """
    if not tau > 0:
        raise ArgumentError(f"gumbel_softmax: tau must be positive, got {tau}.")
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
