"""Normalization as functions: over features, groups, images and batches.

Letters: N batch, C channels. 16-bit floats are normalized in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, reshape
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.nn.functions import widened
from picograd.tensor import pointwise
from picograd.tensor.arguments import at_least
from picograd.tensor.build import broadcast_to, common_dtype, detached, need_float, static, whole
from picograd.tensor.formulas import by_formula, of_tensors
from picograd.tensor.reductions import mean_op, nearest_mean, variance_op
from picograd.tensor.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


# ---- over the last axes ----
@widened
def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes the last axes to mean 0 and variance 1, then scales and shifts.

    out = (x - mean) / sqrt(var + eps) * weight + bias        (var divides by the count, not the count - 1)

    If squares overflow, beyond 1e19 in float32, the values are divided by infinity and become 0; PyTorch's are NaN.

    Args:
      input:             (..., *normalized_shape)  float; 16-bit floats are normalized in float32
      normalized_shape:  the trailing axes that are normalized together
      weight, bias:      (*normalized_shape) or None

    Raises:
      ShapeError: input does not end in normalized_shape, or the shape of weight or bias differs.

    Source:    Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 3 and 4.

    >>> layer_norm(Tensor([[1.0, 3.0]]), (2,)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(f"layer_norm: input {input.shape} does not end in {shape}.", "LayerNorm(input.shape[-1])")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"layer_norm: {name} has shape {tensor.shape}; it must be {shape}.")
    need_float("layer_norm", input.op)
    return _normalized(_over_axes, tuple(range(input.ndim - len(shape), input.ndim)), input, (), weight, bias, eps, shape)


@widened
def rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divides the last axes by their root mean square, then scales.

    out = x / sqrt(mean(x^2) + eps) * weight

    If squares overflow, beyond 1e19 in float32, the values are divided by infinity and become 0, as in PyTorch.

    Args:
      input:             (..., *normalized_shape)  float
      normalized_shape:  the trailing axes that are normalized together
      weight:            (*normalized_shape) or None
      eps:               by default 2^-23, the distance from 1 to the next float32 (2^-52 for float64)

    Raises:
      ShapeError: input does not end in normalized_shape, or the shape of weight differs.
      DTypeError: input is not a float.

    Source:    Zhang, Sennrich 2019, arXiv:1910.07467, eq. 4.

    >>> rms_norm(Tensor([[3.0, 4.0]]), (2,)).round(3)
    Tensor([[0.849, 1.131]])
    """
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(f"rms_norm: input {input.shape} does not end in {shape}.")
    if weight is not None and weight.shape != shape:
        raise ShapeError(f"rms_norm: weight has shape {weight.shape}; it must be {shape}.")
    op = cast(need_float("rms_norm", input.read()), input.dtype.compute_dtype)
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    least = (2.0**-52 if op.dtype is dtypes.float64 else 2.0**-23) if eps is None else eps
    scale = pointwise.rsqrt(mean_op(op * op, axes, keepdim=True) + least)
    found, dtype, device = op * broadcast_to(scale, op.shape), input.dtype, input.cell.device
    if weight is not None:
        factor, device = weight.read(), input.other_device("rms_norm", weight)
        dtype = common_dtype([input.read(), factor])
        found = cast(found, dtype.compute_dtype) * broadcast_to(cast(factor, dtype.compute_dtype), op.shape)
    return Tensor.from_op(cast(found, dtype), device)


# ---- over channels ----
@widened
def group_norm(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each group of consecutive channels of each example, then scales and shifts each channel.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      input:         (N, C, ...)  float
      num_groups:    a divisor of C
      weight, bias:  (C,) or None
      eps:           in units of var

    Raises:
      ArgumentError: num_groups is not an integer.
      ShapeError:    input has fewer than two axes, num_groups does not divide C, or weight or bias is not (C,).
      DTypeError:    input is not a float.

    Source:    Wu, He 2018, arXiv:1803.08494, eq. 1, 2 and 7.

    >>> group_norm(Tensor([[1.0, 3.0, 10.0, 30.0]]), 2).round(3)
    Tensor([[-1.,  1., -1.,  1.]])
    """
    _check_channels("group_norm", 2, input, weight, bias)
    channels = input.shape[1]
    num_groups = whole("group_norm", "num_groups", num_groups)
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels of input {input.shape} do not split into {num_groups} groups.")
    return _normalized(_by_group, (num_groups,), input, (), weight, bias, eps, _beside(input))


@widened
def batch_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel, then scales and shifts it.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      input:                     (N, C, ...)  float
      running_mean, running_var: (C,) or None. In training the batch's update them: running += momentum (new - running),
                                 with the variance divided by count - 1; else they are mean and var of the formula
      weight, bias:              (C,) or None
      training:                  mean and var (divided by count) are the batch's
      momentum:                  a number, or a scalar tensor
      eps:                       in units of var

    Raises:
      ShapeError:    input has fewer than two axes, another tensor is not (C,), or in training a channel has a single value.
      DTypeError:    input is not a float.
      ArgumentError: not training, and no running statistics.

    Source:    Ioffe, Szegedy 2015, arXiv:1502.03167, algorithm 1.

    >>> batch_norm(Tensor([[1.0], [3.0]]), None, None, training=True).round(3)
    Tensor([[-1.],
            [ 1.]])
    """
    _check_channels("batch_norm", 2, input, weight, bias, running_mean, running_var)
    axes = (0, *range(2, input.ndim))
    if not training:
        running = _running("batch_norm: without training", running_mean, running_var)
        return _normalized(_by_running, (), input, running, weight, bias, eps, _beside(input))
    if 0 in input.op.shape:  # an empty batch does not change the statistics
        return _normalized(_as_it_is, (), input, (), weight, bias, eps, _beside(input))
    if all(dim == 1 for i, dim in enumerate(input.op.shape) if i != 1):
        fact = f"batch_norm: in training a channel needs at least two values, got input {input.shape}."
        raise ShapeError(fact, "pass two examples or more (drop_last=True of the DataLoader), or call model.eval().")
    result = standardized(input, axes, weight, bias, eps)
    _take_in("batch_norm", running_mean, _batch_mean, (axes,), input, momentum)
    _take_in("batch_norm", running_var, _batch_variance, (axes,), input, momentum)
    return result


@widened
def instance_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel of each example, then scales and shifts each channel.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      input:                     (N, C, ...)  float
      running_mean, running_var: (C,) or None; with use_input_stats they are updated by the means over examples
      weight, bias:              (C,) or None
      use_input_stats:           mean and var are the example's; else the running ones
      momentum:                  running += momentum (new - running)
      eps:                       in units of var

    Raises:
      ShapeError:    input has fewer than three axes, another tensor is not (C,), or a channel has a single value.
      DTypeError:    input is not a float.
      ArgumentError: no use_input_stats, and no running statistics.

    Source:    Ulyanov et al. 2016, arXiv:1607.08022, eq. 2.

    >>> instance_norm(Tensor([[[1.0, 3.0], [10.0, 30.0]]])).round(3)
    Tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """
    _check_channels("instance_norm", 3, input, weight, bias, running_mean, running_var)
    axes = tuple(range(2, input.ndim))
    if not use_input_stats:
        running = _running("instance_norm: without use_input_stats", running_mean, running_var)
        return _normalized(_by_running, (), input, running, weight, bias, eps, _beside(input))
    if all(dim == 1 for dim in input.op.shape[2:]):
        raise ShapeError(f"instance_norm: a channel needs at least two values, got input {input.shape}.")
    result = standardized(input, axes, weight, bias, eps)
    _take_in("instance_norm", running_mean, _batch_mean, (axes, (0,)), input, momentum)
    _take_in("instance_norm", running_var, _batch_variance, (axes, (0,)), input, momentum)
    return result


@widened
@of_tensors
def local_response_norm(
    input: Tensor,  # noqa: A002
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
) -> Tensor:
    """Divides each channel by a power of its neighbours: x / (k + alpha * mean of x^2 over `size` channels) ** beta.

    Raises:
      ShapeError:    input has fewer than three axes.
      DTypeError:    input is not a float.
      ArgumentError: size is below 1.

    Source:    Krizhevsky et al. 2012, section 3.3; alpha is divided by size.

    >>> local_response_norm(Tensor([[[2.0], [0.0]]]), 2, alpha=1.0, beta=1.0).round(3)
    Tensor([[[0.667],
             [0.   ]]])
    """
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: input must be (N, C, ...) with three axes at least, got {input.shape}.")
    need_float("local_response_norm", input.op)
    at_least("local_response_norm", "size", size, 1)
    return divided_by_neighbours(input, size, size // 2, alpha, beta, k)


def divided_by_neighbours(x: Tensor, count: int, before: int, alpha: float, beta: float, k: float) -> Tensor:
    """Returns x / (k + alpha * mean of x^2 over `count` channels) ** beta; the window begins `before` channels earlier.

    Window sums are built from sums of 1, 2, 4, ... channels, so a wide window takes few additions; channels outside are
    left out.
    """
    channels = x.shape[1]
    before, after = (min(n, max(channels - 1, 0)) for n in (before, count - 1 - before))
    sums, width, place, total = x.square().pad([0, 0] * (x.ndim - 2) + [before, after]), 1, 0, None
    for bit in bin(before + 1 + after)[:1:-1]:
        if bit == "1":
            part = sums.narrow(1, place, channels)
            total, place = part if total is None else total + part, place + width
        left = max(sums.shape[1] - width, 0)
        sums, width = sums.narrow(1, 0, left) + sums.narrow(1, sums.shape[1] - left, left), 2 * width
    assert total is not None
    return x / (total * (alpha / count) + k) ** beta


# ---- shared by all norms ----
def standardized(x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Returns (x - mean) / sqrt(var + eps) * weight + bias over some axes of (N, C, ...)."""
    return _normalized(_over_axes, axes, x, (), weight, bias, eps, _beside(x))


def _beside(x: Tensor) -> tuple[Dim, ...]:
    """Returns the shape that broadcasts one number per channel to (N, C, ...)."""
    return (x.op.shape[1], *(1,) * (x.ndim - 2))


def _normalized(
    standard: Callable[..., Op], options: tuple[int, ...], x: Tensor, statistics: Sequence[Tensor],
    weight: Tensor | None, bias: Tensor | None, eps: float, shape: tuple[Dim, ...],
) -> Tensor:  # fmt: skip
    """Returns standard(options, eps, x, *statistics) * weight + bias; weight and bias get `shape` to broadcast."""
    factors = [tensor for tensor in (weight, bias) if tensor is not None]
    op, others = x.read(), [tensor.read() for tensor in factors]
    before = [tensor.read() for tensor in statistics]
    kind = (common_dtype([op, *others]), op.shape)
    parts = standard, options, len(before), shape, weight is not None, bias is not None
    (result,) = by_formula(_scaled, parts, [eps, op, *before, *others], (kind,))
    return Tensor.from_op(result, x.other_device("norm", *statistics, *factors))


def _scaled(
    parts: tuple[Callable[..., Op], tuple[int, ...], int, tuple[Dim, ...], bool, bool], eps: float, x: Op, *others: Op
) -> list[Op]:
    """Returns the value of `_normalized`; 16-bit floats are rounded once."""
    standard, options, num_statistics, shape, has_weight, has_bias = parts
    dtype = common_dtype([x, *others[num_statistics:]])
    wide, rest = dtype.compute_dtype, iter(others[num_statistics:])
    found = cast(standard(options, eps, cast(x, x.dtype.compute_dtype), *others[:num_statistics]), wide)
    for code, is_there in ((OpCode.MUL, has_weight), (OpCode.ADD, has_bias)):
        if is_there:
            found = Op(code, wide, (found, broadcast_to(reshape(cast(next(rest), wide), shape), found.shape)))
    return [cast(found, dtype)]


# ---- of a dtype to compute in ----
def _over_axes(axes: tuple[int, ...], eps: float, x: Op) -> Op:
    return _standardized(x, axes, eps)


def _by_group(options: tuple[int], eps: float, x: Op) -> Op:
    """Standardizes each group of channels of x."""
    examples, channels, *rest = x.shape
    grouped = reshape(x, (examples, options[0], static(channels) // options[0], *rest))
    return reshape(_over_axes(tuple(range(2, len(grouped.shape))), eps, grouped), x.shape)


def _by_running(options: tuple[()], eps: float, x: Op, mean: Op, var: Op) -> Op:
    """Returns (x - mean) / sqrt(var + eps), channel by channel."""
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    scale = pointwise.rsqrt(cast(reshape(var, shape), x.dtype) + eps)
    middle = broadcast_to(cast(reshape(mean, shape), x.dtype), x.shape)
    return (x - middle) * broadcast_to(scale, x.shape)


def _as_it_is(options: tuple[()], eps: float, x: Op) -> Op:
    return x


def _standardized(op: Op, axes: tuple[int, ...], eps: float) -> Op:
    """Standardizes x over some axes: (x - mean) / sqrt(var + eps)."""
    deviation = op - broadcast_to(nearest_mean(op, axes), op.shape)
    scale = pointwise.rsqrt(variance_op(op, axes, 0, keepdim=True) + eps)
    return deviation * broadcast_to(scale, op.shape)


def _take_in(
    function: str, running: Tensor | None, statistic: Callable[..., Sequence[Op]], axes: tuple[tuple[int, ...], ...],
    x: Tensor, momentum: float | Tensor,
) -> None:  # fmt: skip
    """Updates running statistics by those of a batch, in place.

    Args:
      axes:  axes of the statistic, and axes over which the statistics are averaged, if any
    """
    if running is not None:
        before, factor = detached(running.read()), momentum.read() if isinstance(momentum, Tensor) else momentum
        kinds = ((x.dtype.compute_dtype, before.shape),)
        (after,) = by_formula(statistic, axes, [before, detached(x.read()), factor], kinds)
        running.detach().write(function, after)


def _batch_mean(axes: tuple[tuple[int, ...], ...], before: Op, x: Op, factor: Op | float) -> list[Op]:
    wide = cast(x, x.dtype.compute_dtype)
    return _moved(before, mean_op(wide, axes[0]), axes[1:], factor)


def _batch_variance(axes: tuple[tuple[int, ...], ...], before: Op, x: Op, factor: Op | float) -> list[Op]:
    wide = cast(x, x.dtype.compute_dtype)
    return _moved(before, variance_op(wide, axes[0], 1), axes[1:], factor)


def _moved(before: Op, new: Op, more: Sequence[tuple[int, ...]], factor: Op | float) -> list[Op]:
    """Returns running statistics, updated by new ones averaged over further axes."""
    for axes in more:
        new = mean_op(new, axes)
    before = cast(before, new.dtype)
    share = broadcast_to(cast(factor, new.dtype), new.shape) if isinstance(factor, Op) else factor
    return [before + (new - before) * share]


def _running(situation: str, mean: Tensor | None, var: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the running statistics; raises ArgumentError if one is None; `situation` begins its text."""
    if mean is None or var is None:
        raise ArgumentError(f"{situation} running_mean and running_var are needed, got None.")
    return mean, var


def _check_channels(function: str, least_rank: int, input: Tensor, *others: Tensor | None) -> None:  # noqa: A002
    """Raises an error unless input is a float (N, C, ...) of enough axes, and all other tensors are (C,)."""
    if input.ndim < least_rank:
        raise ShapeError(f"{function}: input must be (N, C, ...), got {input.shape}.")
    need_float(function, input.op)
    for tensor in others:
        if tensor is not None and tensor.shape != (input.shape[1],):
            raise ShapeError(f"{function}: weight, bias and statistics must be ({input.shape[1]},), got {tensor.shape}.")
