"""Losses of classes: cross-entropy and negative log-likelihood.

In:    scores of classes and targets
Out:   a loss, or one for each row
Next:  picograd/nn/functions/linear_loss.py

N rows, C classes, D any further axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import compare, reduce, where
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.nn.functions.losses import check_reduction
from picograd.nn.functions.precision import widened
from picograd.tensor.build import broadcast_to, cast, need_float, static
from picograd.tensor.formulas import by_formula
from picograd.tensor.indexing.brackets import gather_op, same_as_iota
from picograd.tensor.reductions.moments import mean_op
from picograd.tensor.reductions.reduce import logsumexp_op
from picograd.tensor.tensor import Tensor

__all__ = ["cross_entropy", "nll_loss"]


@widened
def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns -log softmax(input)[target], the mean over rows.

    loss of a row = logsumexp(x) - x[target];  with smoothing s: (1 - s) of that + s (logsumexp(x) - mean(x))

    Args:
      input:            (N, C), (N, C, D...) or (C,)  float: scores, not probabilities
      target:           (N,), (N, D...) or ()         integer classes; or probabilities of the shape of input
      weight:           (C,) factor of each class, or None
      ignore_index:     rows with this class count neither in sum nor in mean; None: every row counts
      reduction:        "mean", "sum" or "none"
      label_smoothing:  in [0, 1]

    Returns:   (), or the shape of target for "none". The mean is NaN where the weights of all counted rows are 0

    Raises:
      ShapeError:    target does not fit input.
      DTypeError:    input is no float, or target is bool.
      ArgumentError: another reduction, smoothing outside [0, 1], or an ignore_index from 0 on for probabilities.
      IndexingError: when it is computed: a class is negative or not below C, and not ignore_index.

    >>> round(cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """
    check_reduction("cross_entropy", reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}.")
    need_float("cross_entropy", input.op, "input")
    if target.dtype.is_float:
        if ignore_index is not None and ignore_index >= 0:
            raise ArgumentError(f"cross_entropy: ignore_index={ignore_index} leaves out classes, not probabilities.")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    return _of_classes("cross_entropy", _cross_entropy, input, target, weight, ignore_index, reduction, label_smoothing)


Options = tuple[int | None, str, float]  # ignore_index, reduction, label_smoothing


def _of_classes(
    function: str,
    formula: Callable[..., Sequence[Op]],
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int | None,
    reduction: str,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns a loss of classes by its formula, which takes Options, scores, labels, classes and maybe weights of these."""
    x, labels = _classes_last(function, input, target).read(), target.read()
    classes = class_numbers(function, labels, x, ignore_index)
    if weight is not None:
        _check_class_weight(function, weight, x.shape[-1])
    operands = [x, labels, classes, *([] if weight is None else [weight.read()])]
    shape = labels.shape if reduction == "none" else ()
    (loss,) = by_formula(formula, (ignore_index, reduction, label_smoothing), operands, ((input.dtype, shape),))
    return Tensor.from_op(loss, input.other_device(function, target))


def _cross_entropy(options: Options, x: Op, labels: Op, classes: Op, *weight: Op) -> list[Op]:
    wide, last, smoothing = cast(x, x.dtype.compute_dtype), len(x.shape) - 1, options[2]
    total = logsumexp_op(wide, (last,))
    rows = total - reduce(where(same_as_iota(classes, wide.shape), wide, 0.0), OpCode.ADD, (last,))
    factor = _class_factor(wide, classes, *weight)
    rows = rows if factor is None else rows * factor
    if smoothing:
        smooth = _weighted_rest(wide, total, *weight) if weight else total - mean_op(wide, (last,))
        rows = rows * (1.0 - smoothing) + smooth * smoothing
    return [cast(_reduced_rows(options, rows, labels, factor), x.dtype)]


def class_numbers(function: str, labels: Op, x: Op, ignore_index: int | None) -> Op:
    """Returns the class of each row as int64; class 0 for rows to be ignored, which count for nothing."""
    count = static(x.shape[-1])
    hint = f"classes are 0 to {count - 1}"
    if ignore_index is not None:
        # NOTE: an unsigned label is never a negative ignore_index; as int64 it is compared by its value.
        labels = cast(labels, dtypes.int64)
        labels = where(compare(OpCode.CMPNE, labels, ignore_index), labels, 0)
        hint += f"; rows of class {ignore_index} (ignore_index) are left out"
    return checked(labels, count, Site(f"{function}: target {{}} is not one of the {count} classes.", hint + "."))


def _class_factor(x: Op, classes: Op, weight: Op | None = None) -> Op | None:
    """Returns the factor of each row's class."""
    return None if weight is None else gather_op(cast(weight, x.dtype), classes, 0)


def _check_class_weight(function: str, weight: Tensor, count: Dim) -> None:
    if weight.op.shape != (count,):
        raise ShapeError(f"{function}: weight must be ({count},), a factor for each class, got {weight.shape}.")


def _weighted_rest(x: Op, total: Op, weight: Op) -> Op:
    """Returns the mean over classes of weight * -log softmax."""
    factors = broadcast_to(cast(weight, x.dtype), x.shape)
    spread = broadcast_to(Op(OpCode.RESHAPE, total.dtype, (total,), (*total.shape, 1)), x.shape)
    return mean_op((spread - x) * factors, (len(x.shape) - 1,))


def _reduced_rows(options: Options, rows: Op, labels: Op, factor: Op | None) -> Op:
    """Returns the loss of all rows, those with the class to ignore left out."""
    ignore_index, reduction, _ = options
    axes = tuple(range(len(rows.shape)))
    count: Op | None = None if factor is None else factor
    if ignore_index is not None:
        counted = compare(OpCode.CMPNE, labels, ignore_index)
        rows = where(counted, rows, 0.0)
        count = where(counted, factor, 0.0) if factor is not None else cast(counted, rows.dtype)
    if reduction == "none":
        return rows
    total = reduce(rows, OpCode.ADD, axes)
    if reduction == "mean":
        if count is None:
            return mean_op(rows, axes)
        shares = reduce(count, OpCode.ADD, axes)
        if factor is not None:  # weights that are 0 together make NaN, with smoothing too, which leaves something above 0
            shares = where(compare(OpCode.CMPEQ, shares, 0.0), math.nan, shares)
        return total / shares  # NaN of no rows
    return total


def _soft_cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """Returns -sum(target * log softmax(input)) over classes, for targets that are probabilities."""
    if target.shape != input.shape:
        raise ShapeError(
            f"cross_entropy: a target of floats holds probabilities, so {target.shape} must have the shape of input"
            f" {input.shape}.",
            hint="target.long(), if these are classes.",
        )
    dim = 1 if input.ndim > 1 else 0
    target = target * (1.0 - label_smoothing) + label_smoothing / input.shape[dim]
    parts = target * input.log_softmax(dim)
    if weight is not None:
        _check_class_weight("cross_entropy", weight, input.shape[dim])
        parts = parts * weight.reshape(-1, *(1,) * (input.ndim - dim - 1))
    rows = -parts.sum(dim)
    return rows if reduction == "none" else (rows.sum() if reduction == "sum" else rows.mean())


@widened
def nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """Returns -input[target] for log-probabilities (N, C) or (N, C, D...), the mean over rows.

    `weight`, `ignore_index` and `reduction` are those of cross_entropy.

    Raises:
      ShapeError: target does not fit input.
      IndexingError: when it is computed: a class is negative or not below C, and not ignore_index.

    >>> nll_loss(Tensor([[-0.5, -1.0]]), Tensor([1]))
    Tensor(1.)
    """
    check_reduction("nll_loss", reduction)
    return _of_classes("nll_loss", _nll, input, target, weight, ignore_index, reduction)


def _nll(options: Options, x: Op, labels: Op, classes: Op, *weight: Op) -> list[Op]:
    rows = -reduce(where(same_as_iota(classes, x.shape), x, 0.0), OpCode.ADD, (len(x.shape) - 1,))
    factor = _class_factor(x, classes, *weight)
    return [_reduced_rows(options, rows if factor is None else rows * factor, labels, factor)]


def _classes_last(function: str, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
    """Returns input with its class axis moved behind the others."""
    dim = 1 if input.ndim > 1 else 0
    rows = input.shape[:dim] + input.shape[dim + 1 :]
    if not input.ndim or target.shape != rows:
        hint = "classes are axis 1 of input; for (B, T, C) scores use input.flatten(0, 1) and target.flatten()."
        if target.shape == input.shape:
            hint = f"target.argmax({dim}), if it is one-hot; target.float(), if it holds probabilities."
        raise ShapeError(f"{function}: target {target.shape} does not fit input {input.shape}: it must be {rows}.", hint)
    if not target.dtype.is_int:
        raise DTypeError(
            f"{function}: target must hold integer classes, got {target.dtype} of shape {target.shape}.", "target.long()"
        )
    return input.movedim(dim, -1) if dim != input.ndim - 1 else input
