"""Start values of parameters, written in place."""

from __future__ import annotations

import math

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.generator import Generator
from picograd.tensor.modes import no_grad
from picograd.tensor.random import fill_truncated as _fill_truncated
from picograd.tensor.tensor import Tensor

GAINS = {
    "linear": 1.0, "sigmoid": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0,
    "conv_transpose1d": 1.0, "conv_transpose2d": 1.0, "conv_transpose3d": 1.0,
    "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the gain: the factor that preserves the variance of values through a nonlinearity.

    `param` is the negative slope of "leaky_relu", 0.01 by default.

    Raises:
      ArgumentError: the nonlinearity is unknown.

    >>> calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        raise ArgumentError(f"calculate_gain: {nonlinearity!r} is not one of {', '.join([*GAINS, 'leaky_relu'])}.")
    return GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Returns (fan in, fan out) of `tensor`: for shape (out, in, *kernel) in * kernel elements and out * kernel elements.

    Raises:
      ShapeError: fewer than two axes.

    >>> fans(Tensor.zeros(8, 3, 5, 5))
    (75, 200)
    """
    if tensor.ndim < 2:
        raise ShapeError(f"init: fan in and fan out need two axes, got shape {tensor.shape}.")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f'init: mode must be "fan_in" or "fan_out", got {mode!r}.')
    return max(1, fans(tensor)[mode == "fan_out"])  # an empty tensor has no elements to store


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills `tensor` with uniform numbers in [a, b), and returns it.

    >>> uniform_(Tensor.zeros(2), 3.0, 3.0)
    Tensor([3., 3.])
    """
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills `tensor` with normal numbers of the given `mean` and standard deviation `std`, and returns it.

    >>> normal_(Tensor.zeros(2), 3.0, 0.0)
    Tensor([3., 3.])
    """
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fills `tensor` with normal numbers (mean, std) truncated to [a, b].

    mean + std x with Phi(x) = p, p uniform between Phi((a - mean) / std) and Phi((b - mean) / std).

    Raises:
      ArgumentError: std is not positive, or a is above b.
      DTypeError:    tensor is not a float.

    >>> bool((trunc_normal_(Tensor.zeros(1000)).abs() <= 2).all())
    True
    """
    return _fill_truncated(tensor, mean, std, a, b, generator)


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills `tensor` with `val`, and returns it.

    >>> constant_(Tensor.zeros(2), 3.0)
    Tensor([3., 3.])
    """
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills `tensor` with 0, and returns it.

    >>> zeros_(Tensor.ones(2))
    Tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fills `tensor` with 1, and returns it.

    >>> ones_(Tensor.zeros(2))
    Tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fills `tensor` with uniform numbers in +-gain sqrt(3 / fan) (He et al. 2015, arXiv:1502.01852).

    gain = calculate_gain(nonlinearity, a);  fan: the fan in, or with mode="fan_out" the fan out

    >>> bool((kaiming_uniform_(Tensor.zeros(4, 6)).abs() <= 1).all())
    True
    """
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fills `tensor` with normal numbers of standard deviation gain / sqrt(fan) (He et al. 2015, arXiv:1502.01852).

    gain = calculate_gain(nonlinearity, a);  fan: the fan in, or with mode="fan_out" the fan out

    >>> kaiming_normal_(Tensor.zeros(4, 6)).shape
    (4, 6)
    """
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills `tensor` with uniform numbers in +-gain sqrt(6 / (fan in + fan out)) (Glorot, Bengio 2010).

    >>> bool((xavier_uniform_(Tensor.zeros(2, 4)).abs() <= 1).all())
    True
    """
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills `tensor` with normal numbers, standard deviation gain sqrt(2 / (fan in + fan out)) (Glorot, Bengio 2010).

    >>> xavier_normal_(Tensor.zeros(2, 4)).shape
    (2, 4)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


# ---- matrices ----
@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Makes the matrix `tensor` the identity: 1 on the diagonal, 0 elsewhere.

    Raises:
      ShapeError: it does not have two axes.

    >>> eye_(Tensor.zeros(2, 3))
    Tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: tensor must have two axes, got {tensor.shape}.")
    return tensor.copy_(Tensor.eye(*tensor.shape, device=tensor.device))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Makes `tensor` (out, in, *kernel) the filter of an identity convolution, in each of `groups`.

    Raises:
      ShapeError: it does not have three to five axes, or groups do not divide the first one.

    >>> dirac_(Tensor.zeros(2, 2, 3))[1]
    Tensor([[0., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError(f"dirac_: tensor must have three to five axes, got {tensor.shape}.")
    if groups < 1 or tensor.shape[0] % groups:
        raise ShapeError(f"dirac_: {groups} groups do not divide the first axis of {tensor.shape}.")
    values = np.zeros(tensor.shape)
    per_group = tensor.shape[0] // groups
    for number in range(groups):
        for channel in range(min(per_group, tensor.shape[1])):
            values[(number * per_group + channel, channel, *(n // 2 for n in tensor.shape[2:]))] = 1
    return tensor.copy_(Tensor(values, tensor.dtype, tensor.device))


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills `tensor` (rows, ...) with a random matrix of orthogonal rows or columns, times `gain`.

    Source: Saxe et al. 2013, arXiv:1312.6120; Q of normal numbers' QR, with the diagonal of R made positive.

    Raises:
      ShapeError: it has fewer than two axes.

    >>> w = orthogonal_(Tensor.zeros(3, 2))
    >>> (w.T @ w).round(3).abs()
    Tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: tensor must have two axes at least, got {tensor.shape}.")
    if not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    wide = dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32
    drawn = Tensor.randn(max(rows, columns), min(rows, columns), generator=generator, dtype=wide, device=tensor.device)
    q, r = drawn.qr()
    q = q * r.diagonal().sign()
    q = q.T if rows < columns else q
    return tensor.copy_(q.reshape(*tensor.shape) * gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fills the matrix `tensor` with normal numbers of standard deviation `std`; a part `sparsity` of each column is 0.

    Source: Martens 2010, "Deep learning via Hessian-free optimization", section 5.

    Raises:
      ShapeError:    it does not have two axes.
      ArgumentError: sparsity is not in [0, 1].

    >>> (sparse_(Tensor.zeros(10, 3), 0.25) == 0).sum(0)
    Tensor([3, 3, 3])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: tensor must have two axes, got {tensor.shape}.")
    if not 0.0 <= sparsity <= 1.0:
        raise ArgumentError(f"sparse_: sparsity must be in [0, 1], got {sparsity}.")
    zeros = math.ceil(sparsity * tensor.shape[0])
    order = Tensor.rand(*tensor.shape, generator=generator, device=tensor.device).argsort(0).argsort(0)
    drawn = Tensor.randn(*tensor.shape, generator=generator, device=tensor.device) * std
    return tensor.copy_(Tensor.choose(order < zeros, 0.0, drawn))


# ---- old names ----
_calculate_fan_in_and_fan_out, _calculate_correct_fan = fans, _fan
constant, dirac, eye, kaiming_normal, kaiming_uniform = constant_, dirac_, eye_, kaiming_normal_, kaiming_uniform_
normal, orthogonal, sparse, uniform = normal_, orthogonal_, sparse_, uniform_
xavier_normal, xavier_uniform = xavier_normal_, xavier_uniform_
