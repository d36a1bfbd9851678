"""Dropout as functions: of elements, of whole channels, and alpha dropout, which preserves mean and variance."""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.errors import ShapeError, warn_user
from picograd.ir.build import less_equal, where
from picograd.ir.op import Op, filled
from picograd.nn.functions.activations import SELU_ALPHA, SELU_SCALE
from picograd.tensor.build import broadcast_to, need_float
from picograd.tensor.generator import Generator
from picograd.tensor.inplace import stored
from picograd.tensor.random import probability, random_bits, uniform_op
from picograd.tensor.tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Zeroes each element with probability p and divides the others by 1 - p; outside `training` returns input.

    `inplace` stores the result in input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> dropout(Tensor([1.0, 2.0]), training=False)
    Tensor([1., 2.])
    """
    return _dropped("dropout", input, p, training, inplace, generator, input.ndim, _zeros)


def dropout1d(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Zeroes each channel of each example of (N, C, L), or (C, L), with probability p; `inplace`: in input.

    Kept elements are divided by 1 - p. Outside `training` the result is the input itself.

    Raises:
      ArgumentError: p is not in [0, 1].
      ShapeError:    input has neither two axes nor three.

    >>> dropout1d(Tensor.ones(1, 2, 2), training=False).shape
    (1, 2, 2)
    """
    _check_rank("dropout1d", input, "(N, C, L) or (C, L)", (2, 3))
    return _dropped("dropout1d", input, p, training, inplace, generator, input.ndim - 1, _zeros)


def dropout2d(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Zeroes each channel of each example of (N, C, H, W), or (N, C, L), with probability p.

    Kept elements are divided by 1 - p. Outside `training` the result is the input itself. `inplace`: in input. In (N, C)
    each element is a channel, as in `dropout`, which a warning says, as PyTorch's does.

    Raises:
      ArgumentError: p is not in [0, 1].
      ShapeError:    input has neither two axes nor three or four.

    >>> dropout2d(Tensor.ones(1, 2, 2, 2), training=False).shape
    (1, 2, 2, 2)
    """
    _check_rank("dropout2d", input, "(N, C, H, W) or (N, C, L)", (2, 3, 4))
    if input.ndim == 2:
        warn_user(f"dropout2d: {input.shape} has no channels to drop; use dropout.")
    return _dropped("dropout2d", input, p, training, inplace, generator, 2, _zeros)


def dropout3d(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Zeroes each channel of each example of (N, C, D, H, W), or (C, D, H, W), with probability p.

    Kept elements are divided by 1 - p. Outside `training` the result is the input itself. `inplace`: in input.

    Raises:
      ArgumentError: p is not in [0, 1].
      ShapeError:    input has neither four axes nor five.

    >>> dropout3d(Tensor.ones(1, 2, 2, 2, 2), training=False).shape
    (1, 2, 2, 2, 2)
    """
    _check_rank("dropout3d", input, "(N, C, D, H, W) or (C, D, H, W)", (4, 5))
    return _dropped("dropout3d", input, p, training, inplace, generator, input.ndim - 3, _zeros)


def alpha_dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Replaces each element with probability p by selu's minimum, then scales and shifts to mean 0 and variance 1.

    Outside `training` it returns the input. `inplace` stores the result in input.

    Raises:
      ArgumentError: p is not in [0, 1].

    Source:    Klambauer et al. 2017, arXiv:1706.02515, section 3.

    >>> alpha_dropout(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """
    return _dropped("alpha_dropout", input, p, training, inplace, generator, input.ndim, _least_of_selu)


def feature_alpha_dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Applies alpha_dropout to whole channels of each example of (N, C, ...); `training`, `inplace`: as there.

    Raises:
      ArgumentError: p is not in [0, 1].
      ShapeError:    input has fewer than two axes, and p is above 0 in training.

    >>> feature_alpha_dropout(Tensor.ones(1, 2, 2)).shape
    (1, 2, 2)
    """
    if training and p:
        _check_rank("feature_alpha_dropout", input, "(N, C, ...)", tuple(range(2, max(input.ndim, 2) + 1)))
    return _dropped("feature_alpha_dropout", input, p, training, inplace, generator, 2, _least_of_selu)


# ---- shared by all kinds ----
def _dropped(
    function: str,
    input: Tensor,  # noqa: A002
    p: float,
    training: bool,
    inplace: bool,
    generator: Generator | None,
    axes: int,
    formula: Callable[[Op, Op, float], Op],
) -> Tensor:
    """Returns formula(x, mask, p), with one draw for elements that share their first `axes` indices."""
    probability(function, "p", p)
    if not training or p == 0.0:
        return input
    need_float(function, input.op)
    if p == 1.0:
        result = input * 0.0
    else:
        result = Tensor.from_op(formula(input.read(), _kept(input, p, generator, axes), p), input.cell.device)
    return stored(function, input, result) if inplace else result


def _zeros(op: Op, kept: Op, p: float) -> Op:
    """x / (1 - p) if kept, else 0: preserves the mean."""
    return where(kept, op * (1.0 / (1.0 - p)), 0.0)


def _least_of_selu(op: Op, kept: Op, p: float) -> Op:
    """x if kept, else the minimum of selu, scaled and shifted to preserve mean and variance."""
    least: Scalar = -SELU_ALPHA * SELU_SCALE
    scale = ((1.0 - p) * (1.0 + p * least * least)) ** -0.5
    chosen = where(kept, op, op.filled(least))
    return chosen * scale - scale * p * least


def _kept(input: Tensor, p: float, generator: Generator | None, axes: int) -> Op:  # noqa: A002
    """Returns the mask of kept elements: drawn for the first `axes` axes, broadcast along the others."""
    shape = input.op.shape[:axes] + (1,) * (input.ndim - axes)
    uniform = uniform_op(random_bits(shape, generator, input.device), dtypes.float32)
    return broadcast_to(less_equal(filled(p, dtypes.float32, shape), uniform), input.op.shape)


def _check_rank(function: str, input: Tensor, shapes: str, ranks: tuple[int, ...]) -> None:  # noqa: A002
    if input.ndim not in ranks:
        raise ShapeError(f"{function}: input must be {shapes}, got {input.shape}.")
