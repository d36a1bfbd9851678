"""Start values of parameters, written in place.

In:    a tensor, usually a parameter
Out:   the same tensor with new values
Next:  picograd/nn/optimizer.py
"""

from __future__ import annotations

import math

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.autograd import no_grad
from picograd.tensor.random import Generator
from picograd.tensor.tensor import Tensor

GAINS = {
    "linear": 1.0, "sigmoid": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0,
    "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the factor that keeps the variance of what goes through a nonlinearity.

    `param` is the slope of "leaky_relu" below 0, 0.01 unless given.

    Raises:
      ArgumentError: the nonlinearity is not known.

    >>> calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        raise ArgumentError(f"calculate_gain: {nonlinearity!r} is none of {', '.join([*GAINS, 'leaky_relu'])}.")
    return GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Returns (inputs, outputs) of one unit of `tensor`: (out, in, *kernel) has in * kernel and out * kernel.

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
    return fans(tensor)[mode == "fan_out"]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Stores numbers evenly from [a, b) in `tensor`, and returns it.

    >>> uniform_(Tensor.zeros(2), 3.0, 3.0)
    Tensor([3., 3.])
    """
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Stores numbers of the normal distribution with `mean` and deviation `std` in `tensor`, and returns it.

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
    """Stores numbers of the normal distribution (mean, std) that lie between a and b in `tensor`.

    mean + sqrt(2) std erfinv(2 u - 1), with u even between the values of the distribution function at a and b.

    >>> bool((trunc_normal_(Tensor.zeros(1000)).abs() <= 2).all())
    True
    """
    low, high = (0.5 * (1 + math.erf((bound - mean) / std / math.sqrt(2))) for bound in (a, b))
    levels = Tensor.rand_like(tensor, generator=generator) * (2 * (high - low)) + (2 * low - 1)
    return tensor.copy_((_inverse_erf(levels) * (std * math.sqrt(2)) + mean).clamp(a, b))


def _inverse_erf(y: Tensor) -> Tensor:
    """Returns x with erf(x) = y: Giles 2012, "Approximating the erfinv function", table 5 (float32)."""
    near = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
            -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
    far = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
           0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
    w = -((1 - y) * (1 + y)).log()
    central = _polynomial(near, w - 2.5)
    tail = _polynomial(far, w.clamp(min=0.0).sqrt() - 3.0)
    return Tensor.choose(w < 5.0, central, tail) * y


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = Tensor.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


@no_grad()
def constant_(tensor: Tensor, value: float) -> Tensor:
    """Stores `value` in `tensor`, and returns it.

    >>> constant_(Tensor.zeros(2), 3.0)
    Tensor([3., 3.])
    """
    return tensor.fill_(value)


def zeros_(tensor: Tensor) -> Tensor:
    """Stores 0 in `tensor`, and returns it.

    >>> zeros_(Tensor.ones(2))
    Tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Stores 1 in `tensor`, and returns it.

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
    """Stores numbers evenly from +-gain sqrt(3 / fan) in `tensor` (He et al. 2015, arXiv:1502.01852).

    gain = calculate_gain(nonlinearity, a);  fan: the inputs or, with mode="fan_out", the outputs of a unit.

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
    """Stores normal numbers with deviation gain / sqrt(fan) in `tensor` (He et al. 2015, arXiv:1502.01852).

    gain = calculate_gain(nonlinearity, a);  fan: the inputs or, with mode="fan_out", the outputs of a unit.

    >>> kaiming_normal_(Tensor.zeros(4, 6)).shape
    (4, 6)
    """
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Stores numbers evenly from +-gain sqrt(6 / (fan in + fan out)) in `tensor` (Glorot, Bengio 2010).

    >>> bool((xavier_uniform_(Tensor.zeros(2, 4)).abs() <= 1).all())
    True
    """
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Stores normal numbers with deviation gain sqrt(2 / (fan in + fan out)) in `tensor` (Glorot, Bengio 2010).

    >>> xavier_normal_(Tensor.zeros(2, 4)).shape
    (2, 4)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)
