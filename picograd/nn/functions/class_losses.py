"""Losses of classes: cross-entropy, also fused with the linear layer before it; margins between classes; CTC.

Letters: N rows or sequences, C classes, D features or further axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.control.custom import Function
from picograd.control.flow import scan
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, differs, equal, gather, reduce, reshape, scatter, where
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import ceildiv
from picograd.nn.functions import widened
from picograd.nn.functions.activations import logsigmoid
from picograd.nn.functions.linear import linear
from picograd.nn.functions.losses import check_pair, check_reduction, reduced
from picograd.tensor.build import broadcast_to, need_float, same_as_iota, static
from picograd.tensor.formulas import formula, of_tensors
from picograd.tensor.reductions import logsumexp_op, mean_op
from picograd.tensor.tensor import Tensor

__all__ = [
    "cross_entropy", "ctc_loss", "linear_cross_entropy", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss",
]  # fmt: skip


# ---- cross-entropy ----
@widened
def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns -log softmax(input)[target], averaged over rows.

    loss of a row = logsumexp(x) - x[target];  with smoothing s: (1 - s) of that + s (logsumexp(x) - mean(x))

    Args:
      input:            (N, C), (N, C, D...) or (C,)  float: scores, not probabilities
      target:           (N,), (N, D...) or ()         integer classes; or probabilities of the shape of input
      weight:           (C,) factor of each class, or None
      ignore_index:     rows with this class are left out of the sum and of the count; None: every row counts
      reduction:        "mean", "sum" or "none"
      label_smoothing:  in [0, 1]

    Returns:   (), or the shape of target for "none". The mean is NaN if the weights of all counted rows are 0

    Raises:
      ShapeError:    target does not fit input.
      DTypeError:    input is not a float, or target is bool.
      ArgumentError: an unknown reduction, smoothing outside [0, 1], or an ignore_index >= 0 for probabilities.
      IndexingError: when the result is computed: a class is outside [0, C) and not ignore_index.

    >>> round(cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """
    check_reduction("cross_entropy", reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}.")
    need_float("cross_entropy", input.op, "input")
    if target.dtype.is_float:
        if ignore_index is not None and ignore_index >= 0:
            raise ArgumentError(f"cross_entropy: ignore_index={ignore_index} is for classes; target holds probabilities.")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    options = {"ignore_index": ignore_index, "reduction": reduction, "smoothing": float(label_smoothing)}
    return _of_classes("cross_entropy", _cross_entropy, input, target, weight, options)


def _of_classes(
    function: str,
    loss: Callable[..., Op],
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None,
    options: Mapping[str, Any],
) -> Tensor:
    """Applies a loss formula to scores, labels and optional class weights; `options` are arguments of the formula."""
    x, labels = _classes_last(function, input, target).read(), target.read()
    if weight is not None:
        _check_class_weight(function, weight, x.shape[-1])
    op = loss(x, labels, **options) if weight is None else loss(x, labels, weight.read(), **options)
    return Tensor.from_op(op, input.other_device(function, target))


@formula
def _cross_entropy(x: Op, labels: Op, *weight: Op, ignore_index: int | None, reduction: str, smoothing: float) -> Op:
    classes = class_numbers("cross_entropy", labels, x, ignore_index)
    wide, last = cast(x, x.dtype.compute_dtype), len(x.shape) - 1
    total = logsumexp_op(wide, (last,))
    rows = total - reduce(where(same_as_iota(classes, wide.shape), wide, 0.0), OpCode.ADD, (last,))
    factor = _class_factor(wide, classes, *weight)
    rows = rows if factor is None else rows * factor
    if smoothing:
        smooth = _weighted_rest(wide, total, *weight) if weight else total - mean_op(wide, (last,))
        rows = rows * (1.0 - smoothing) + smooth * smoothing
    return cast(_reduced_rows(rows, labels, factor, ignore_index, reduction), x.dtype)


def class_numbers(function: str, labels: Op, x: Op, ignore_index: int | None) -> Op:
    """Returns the class of each row as int64; ignored rows get class 0, and are masked later."""
    count = static(x.shape[-1])
    hint = f"classes are 0 to {count - 1}"
    if ignore_index is not None:
        # NOTE: int64 keeps the value of an unsigned label, so it never equals a negative ignore_index.
        labels = cast(labels, dtypes.int64)
        labels = where(differs(labels, ignore_index), labels, 0)
        hint += f"; rows of class {ignore_index} (ignore_index) are left out"
    return checked(labels, count, Site(f"{function}: target {{}} is not one of the {count} classes.", hint + "."))


def _class_factor(x: Op, classes: Op, weight: Op | None = None) -> Op | None:
    """Returns the weight of each row's class."""
    return None if weight is None else gather(cast(weight, x.dtype), classes, 0)


def _check_class_weight(function: str, weight: Tensor, count: Dim) -> None:
    if weight.op.shape != (count,):
        raise ShapeError(f"{function}: weight must be ({count},), a factor for each class, got {weight.shape}.")


def _weighted_rest(x: Op, total: Op, weight: Op) -> Op:
    """Returns the mean over classes of weight * -log softmax."""
    factors = broadcast_to(cast(weight, x.dtype), x.shape)
    spread = broadcast_to(reshape(total, (*total.shape, 1)), x.shape)
    return mean_op((spread - x) * factors, (len(x.shape) - 1,))


def _reduced_rows(rows: Op, labels: Op, factor: Op | None, ignore_index: int | None, reduction: str) -> Op:
    """Reduces the losses of all rows without the ignored ones."""
    axes = tuple(range(len(rows.shape)))
    count: Op | None = None if factor is None else factor
    if ignore_index is not None:
        counted = differs(labels, ignore_index)
        rows = where(counted, rows, 0.0)
        count = where(counted, factor, 0.0) if factor is not None else cast(counted, rows.dtype)
    if reduction == "none":
        return rows
    total = reduce(rows, OpCode.ADD, axes)
    if reduction == "mean":
        if count is None:
            return mean_op(rows, axes)
        shares = reduce(count, OpCode.ADD, axes)
        if factor is not None:  # weights that sum to 0 make NaN, also with smoothing, whose part is above 0
            shares = where(equal(shares, 0.0), math.nan, shares)
        return total / shares  # NaN for zero rows
    return total


@of_tensors
def _soft_cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """Returns -sum(target * log softmax(input)) over classes; targets are probabilities."""
    if target.shape != input.shape:
        raise ShapeError(
            f"cross_entropy: a target of floats holds probabilities, so {target.shape} must have the shape of input"
            f" {input.shape}.",
            hint="target.long(), if it holds classes.",
        )
    dim = 1 if input.ndim > 1 else 0
    if not input.shape[dim]:
        rows = input.sum(dim)
        return rows if reduction == "none" else rows.sum() * (math.nan if reduction == "mean" else 0.0)
    target = target * (1.0 - label_smoothing) + label_smoothing / static(input.shape[dim])
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
    """Returns -input[target] for log-probabilities (N, C) or (N, C, D...), averaged over rows.

    `weight`, `ignore_index` and `reduction` are those of cross_entropy.

    Raises:
      ShapeError: target does not fit input.
      IndexingError: when the result is computed: a class is outside [0, C) and not ignore_index.

    >>> nll_loss(Tensor([[-0.5, -1.0]]), Tensor([1]))
    Tensor(1.)
    """
    check_reduction("nll_loss", reduction)
    options = {"ignore_index": ignore_index, "reduction": reduction}
    return _of_classes("nll_loss", _nll_loss, input, target, weight, options)


@formula
def _nll_loss(x: Op, labels: Op, *weight: Op, ignore_index: int | None, reduction: str) -> Op:
    classes = class_numbers("nll_loss", labels, x, ignore_index)
    rows = -reduce(where(same_as_iota(classes, x.shape), x, 0.0), OpCode.ADD, (len(x.shape) - 1,))
    factor = _class_factor(x, classes, *weight)
    return _reduced_rows(rows if factor is None else rows * factor, labels, factor, ignore_index, reduction)


def _classes_last(function: str, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
    """Returns input with the class axis last."""
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


# ---- the linear layer with it ----
CHUNK_NBYTES = 32 << 20  # bytes of the scores of one chunk of rows
IGNORED = -100


@widened
def linear_cross_entropy(
    input: Tensor,  # noqa: A002
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns cross_entropy(linear(input, linear_weight, linear_bias), target, ...).

    If the scores of all rows would take more than 128 MiB, and the result is a single number for integer classes, scores
    and gradients are computed in chunks of rows, in one pass.

    Args:
      input:            (N, D), or any shape that linear and cross_entropy take  float
      linear_weight:    (C, D)
      target:           (N,)    integer classes; or probabilities (N, C)
      linear_bias:      (C,) or None
      weight:           (C,) factor of each class, or None
      reduction:        "mean", "sum" or "none"
      ignore_index:     rows with this class are left out of the sum and of the count; None: -100
      label_smoothing:  in [0, 1]

    Returns:   (), or (N,) for "none"

    Raises:
      ShapeError:    input does not fit linear_weight, or target does not fit the scores.
      DTypeError:    input is not a float, or target is bool.
      ArgumentError: an unknown reduction, smoothing outside [0, 1], or an ignore_index >= 0 for probabilities.
      IndexingError: when the result is computed: a class is outside [0, C) and not ignore_index.

    Cost:      6 N C D FLOPs with the gradients, as for the separate functions. In chunks: 32 MiB of scores instead of all
               scores and their gradients, and two more tensors of the size of linear_weight.
    Source:    Wijmans et al. 2024, "Cut your losses in large-vocabulary language models" (arXiv:2411.09009).

    >>> x, w = Tensor([[1.0, 2.0]]), Tensor([[0.5, 0.0], [0.0, 0.25]])
    >>> round(linear_cross_entropy(x, w, Tensor([1])).item(), 4)
    0.6931
    """
    check_reduction("linear_cross_entropy", reduction)
    ignored = IGNORED if ignore_index is None else ignore_index
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignored, "label_smoothing": label_smoothing}
    if not _is_large(input, linear_weight, target) or reduction == "none":
        return cross_entropy(linear(input, linear_weight, linear_bias), target, reduction=reduction, **options)
    total: Tensor = _Chunked.apply(input, linear_weight, linear_bias, target, options)
    return total if reduction == "sum" else total / _count(target, weight, ignored).to(total.dtype)


def _is_large(rows: Tensor, layer: Tensor, target: Tensor) -> bool:
    """Returns whether scores of integer classes are large enough for chunks; their lengths must be known."""
    if (rows.ndim, layer.ndim, target.ndim) != (2, 2, 1) or target.dtype.is_float or rows.shape[:1] != target.shape:
        return False
    if not all(isinstance(length, int) for length in (*rows.shape, *layer.shape)):
        return False
    return rows.shape[0] * layer.shape[0] * rows.dtype.itemsize > 4 * CHUNK_NBYTES


def _count(target: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    """Returns the divisor of the mean: the number of counted rows, or the sum of their classes' weights."""
    counted = target != ignored
    return counted.sum() if weight is None else (weight[target.where(counted, 0)] * counted).sum()


def _slope(scores: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, label_smoothing: float) -> Tensor:
    """Returns the gradient of the summed rows of cross_entropy, (1 - s) f (p - 1[target]) + s (mean(w) p - w / C).

    p is softmax(scores), w the class weights, f the weight of the row's class; ignored rows have gradient 0.
    """
    counted = target != ignore_index
    classes = target.where(counted, 0)
    chances, hit = scores.softmax(1), classes.one_hot(scores.shape[1])
    factors = Tensor.ones(scores.shape[1:], dtype=scores.dtype) if weight is None else weight
    exact = factors[classes][:, None] * (chances - hit)
    smooth = factors.mean() * chances - factors / scores.shape[1]
    return counted[:, None] * ((1.0 - label_smoothing) * exact + label_smoothing * smooth)


class _Chunked(Function):
    """Function: the sum of the losses and its gradients, computed a chunk of rows at a time."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, layer: Tensor, bias: Tensor | None, target: Tensor, options: dict[str, Any]
    ) -> Tensor:
        num_rows, length = rows.shape[0], max(1, CHUNK_NBYTES // (layer.shape[0] * rows.dtype.itemsize))
        num_chunks = ceildiv(num_rows, length)
        missing = num_chunks * length - num_rows
        rows = rows.pad((0, 0, 0, missing)).reshape(num_chunks, length, -1)
        target = target.pad((0, missing), value=options["ignore_index"]).reshape(num_chunks, length)
        parts = [layer] if bias is None else [layer, bias]

        def step(carry: Any, chunk: Any) -> Any:
            total, sums = carry
            scores = linear(chunk[0], *parts)
            loss = cross_entropy(scores, chunk[1], reduction="sum", **options)
            slope = _slope(scores, chunk[1], **options)
            of_parts = [slope.T @ chunk[0], slope.sum(0)][: len(parts)]
            return (total + loss, [a + b for a, b in zip(sums, of_parts)]), slope @ layer

        start = Tensor.zeros((), dtype=rows.dtype), [part * 0 for part in parts]
        (total, sums), of_rows = scan(step, start, (rows, target))
        ctx.save_for_backward(of_rows.reshape(num_chunks * length, -1)[:num_rows], *sums)
        ctx.has_bias = bias is not None
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_rows, of_layer, *of_bias = (gradient * part for part in ctx.saved_tensors)
        return of_rows, of_layer, of_bias[0] if ctx.has_bias else None, None, None


# ---- margins ----
@widened
@of_tensors
def multi_margin_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the sum over classes j other than y = target of max(0, margin - x[y] + x[j]) ** p / C.

    Args:
      input:      (N, C), (C,) or ()  float
      target:     (N,), or for a single example () or (1,)  integer classes
      p:          1 or 2
      margin:     required distance between the scores of the right class and of each other class
      weight:     (C,) factor of each class, or None
      reduction:  "mean", "sum" or "none"

    Raises:
      ShapeError:    target does not fit input, or weight is not (C,).
      DTypeError:    input is not a float, or target is not an integer tensor.
      ArgumentError: p is neither 1 nor 2, or an unknown reduction.
      IndexingError: when the result is computed: a class is outside [0, C).

    >>> multi_margin_loss(Tensor([[1.0, 0.5]]), Tensor([0]))
    Tensor(0.25)
    """
    input = input if input.ndim else input.unsqueeze(0)
    target = target.squeeze(0) if input.ndim == 1 and target.shape == (1,) else target
    _check_classes("multi_margin_loss", input, target, input.shape[:-1])
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: p must be 1 or 2, got {p}.")
    count = input.shape[-1]
    if weight is not None and weight.shape != (count,):
        raise ShapeError(f"multi_margin_loss: weight {weight.shape} must be ({count},).")
    numbers = class_numbers("multi_margin_loss", target.read(), input.op, None)
    classes = Tensor.from_op(numbers, target.cell.device).unsqueeze(-1)
    right = input.gather(-1, classes)
    losses = (input - right + margin).relu()
    losses = losses * losses if p == 2 else losses
    if weight is not None:
        losses = losses * weight.index_select(0, classes.flatten()).reshape(classes.shape)
    others = Tensor.arange(count, device=input.device) != classes
    return reduced("multi_margin_loss", Tensor.choose(others, losses, 0.0).sum(-1) / count, reduction)


@widened
@of_tensors
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
    """Returns the sum over right classes j and wrong ones i of max(0, 1 - x[j] + x[i]) / C.

    Args:
      input:      (N, C), (C,) or ()  float
      target:     the shape of input  integers: right classes, ended by the first -1
      reduction:  "mean", "sum" or "none"

    Raises:
      ShapeError:    the shapes of target and input differ.
      DTypeError:    input is not a float, or target is not an integer tensor.
      ArgumentError: an unknown reduction.
      IndexingError: when the result is computed: a class is outside [-1, C).

    >>> multilabel_margin_loss(Tensor([[0.5, 0.25, 1.0]]), Tensor([[2, -1, 0]]))
    Tensor(0.25)
    """
    if not input.ndim and not target.ndim:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    _check_classes("multilabel_margin_loss", input, target, input.shape)
    x_NC = input if input.ndim == 2 else input.unsqueeze(0)
    labels_NK = (target if target.ndim == 2 else target.unsqueeze(0)).long()
    listed_NK = (labels_NK < 0).long().cumsum(-1) == 0  # before the first -1
    classes_NK = Tensor.choose(labels_NK == -1, 0, labels_NK)
    numbers = class_numbers("multilabel_margin_loss", classes_NK.read(), x_NC.op, None)
    right_NK = x_NC.gather(1, Tensor.from_op(numbers, target.cell.device))
    base = filled(0, dtypes.int64, x_NC.op.shape)
    counts = scatter(base, numbers, cast(listed_NK.read(), dtypes.int64), OpCode.ADD, 1, 1)
    is_wrong_NC = Tensor.from_op(counts, target.cell.device) == 0
    losses_NKC = (x_NC.unsqueeze(1) - right_NK.unsqueeze(2) + 1).relu()
    counted = listed_NK.unsqueeze(2) & is_wrong_NC.unsqueeze(1)
    losses = Tensor.choose(counted, losses_NKC, 0.0).sum((1, 2)) / x_NC.shape[1]
    return reduced("multilabel_margin_loss", losses if input.ndim == 2 else losses[0], reduction)


@widened
@of_tensors
def multilabel_soft_margin_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the mean over classes of -t log(s) - (1 - t) log(1 - s) with s = sigmoid(input) and t = target.

    Args:
      input:      (N, C) or (C,)  float
      target:     the shape of input: 1 if the example is of the class, else 0
      weight:     (C,) factor of each class, or None
      reduction:  "mean", "sum" or "none"

    Raises:
      DTypeError:    input is not a float.
      ArgumentError: an unknown reduction.

    >>> multilabel_soft_margin_loss(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]]))
    Tensor(0.6931472)
    """
    check_pair("multilabel_soft_margin_loss", input, target, warn=False)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    losses = losses if weight is None else losses * weight
    return reduced("multilabel_soft_margin_loss", losses.mean(-1), reduction)


def _check_classes(function: str, input: Tensor, target: Tensor, shape: tuple[int, ...]) -> None:  # noqa: A002
    need_float(function, input.op, "input")
    if not target.dtype.is_int:
        raise DTypeError(
            f"{function}: target must hold integer classes, got {target.dtype} of shape {target.shape}.", "target.long()"
        )
    if input.ndim not in (1, 2) or target.shape != shape:
        raise ShapeError(f"{function}: target {target.shape} must be {shape} for input (N, C) or (C,), got {input.shape}.")


# ---- labels whose places in a sequence are not known ----
NEVER = -1e30  # log of probability 0: finite, so that sums of it have gradients


@widened
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Returns -log of the total probability of all alignments of `targets`, with blanks and repetitions between labels.

    Args:
      log_probs:       (T, N, C), or (T, C)  float: log_softmax of scores
      targets:         (N, S) padded, (S,), or all labels of all sequences in one axis  other than blank, of any dtype
      input_lengths:   (N,) number of steps of each sequence, at most T
      target_lengths:  (N,) number of labels of each sequence
      blank:           class that stands between labels
      reduction:       "mean" over sequences of loss / number of labels, "sum" or "none"
      zero_infinity:   the loss of labels that do not fit into the steps is 0 instead of infinity; its gradient is 0 in both
                       cases, where PyTorch's is NaN without zero_infinity

    Raises:
      ShapeError:    the shapes do not match.
      DTypeError:    log_probs is not a float.
      ArgumentError: blank is not a class, or an unknown reduction.
      IndexingError: when the result is computed: a label is not a class, or a length exceeds T or S.

    If targets has one axis, target_lengths are computed at once, since the longest must be known.

    Source:    Graves et al. 2006, "Connectionist temporal classification", eq. 6 to 8.

    >>> log_probs = Tensor.zeros(2, 1, 2).log_softmax(-1)
    >>> ctc_loss(log_probs, Tensor([[1]]), [2], [1]).item()     # -log(3 / 4): of four ways only blank, blank is wrong
    0.2876820...
    """
    check_reduction("ctc_loss", reduction)
    _check_ctc(log_probs, targets, blank)
    probs_TNC = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    steps_N = _ctc_lengths("input_lengths", input_lengths, probs_TNC, probs_TNC.shape[0])
    labels_N = _ctc_lengths("target_lengths", target_lengths, probs_TNC, targets.shape[-1])
    targets_NS = _padded_targets(targets, labels_N, probs_TNC.shape[1])
    losses_N = _ctc(probs_TNC, targets_NS, steps_N, labels_N, blank, reduction, zero_infinity)
    return losses_N if log_probs.ndim == 3 or reduction != "none" else losses_N[0]


@of_tensors
def _ctc(
    probs_TNC: Tensor,
    targets_NS: Tensor,
    steps_N: Tensor,
    labels_N: Tensor,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> Tensor:
    """Returns the reduced losses of sequences whose lengths are known."""
    known_NS = Tensor.arange(targets_NS.shape[1], device=probs_TNC.device) < labels_N.unsqueeze(1)
    targets_NS = Tensor.choose(known_NS, targets_NS.long(), blank)
    losses_N = -_log_likelihood(probs_TNC, targets_NS, steps_N, labels_N, blank)
    impossible = losses_N > -NEVER / 2
    losses_N = Tensor.choose(impossible, 0.0 if zero_infinity else math.inf, losses_N)
    if reduction == "mean":
        return (losses_N / labels_N.clamp(min=1).to(losses_N.dtype)).mean()
    return losses_N.sum() if reduction == "sum" else losses_N


def _log_likelihood(probs_TNC: Tensor, targets_NS: Tensor, steps_N: Tensor, labels_N: Tensor, blank: int) -> Tensor:
    """Returns the log-likelihood of each row of labels, (N,); NEVER or less for probability 0."""
    count, batch = targets_NS.shape[1], targets_NS.shape[0]
    blanks = Tensor.full((batch, count, 1), blank, dtype=targets_NS.dtype, device=targets_NS.device)
    pairs = Tensor.cat([blanks, targets_NS.unsqueeze(2)], 2).flatten(1)
    classes_NP = Tensor.cat([pairs, blanks[:, :1, 0] if count else _one_blank(targets_NS, blank)], 1)
    emitted_TNP = probs_TNC.gather(2, classes_NP.unsqueeze(0).expand(probs_TNC.shape[0], -1, -1))
    places = Tensor.arange(2 * count + 1, device=targets_NS.device)
    # A different label may follow at once; a repeated one needs a blank between.
    two_back = classes_NP.roll(2, 1)
    jumps_NP = (classes_NP != blank) & (classes_NP != two_back) & (places >= 2)
    start_NP = Tensor.choose(places < 2, emitted_TNP[0], NEVER)

    def step(before_NP: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        number, emitted_NP = inputs
        padded = before_NP.pad((2, 0), value=NEVER)
        ways = [before_NP, padded[:, 1:-1], Tensor.choose(jumps_NP, padded[:, :-2], NEVER)]
        after_NP = Tensor.stack(ways).logsumexp(0) + emitted_NP
        return Tensor.choose((number < steps_N).unsqueeze(1), after_NP.clamp(min=NEVER), before_NP), None

    numbers = Tensor.arange(1, probs_TNC.shape[0], device=probs_TNC.device)
    last_NP, _ = scan(step, start_NP, (numbers, emitted_TNP[1:]))
    ends = [2 * labels_N, (2 * labels_N - 1).clamp(min=0)]  # the blank after the last label, and that label
    final, label = (last_NP.gather(1, end.unsqueeze(1)).squeeze(1) for end in ends)
    label = Tensor.choose(labels_N > 0, label, NEVER)
    return Tensor.choose(steps_N > 0, Tensor.stack([final, label]).logsumexp(0), NEVER)


def _one_blank(targets_NS: Tensor, blank: int) -> Tensor:
    return Tensor.full((targets_NS.shape[0], 1), blank, dtype=targets_NS.dtype, device=targets_NS.device)


def _check_ctc(log_probs: Tensor, targets: Tensor, blank: int) -> None:
    if log_probs.ndim not in (2, 3) or not log_probs.shape[0]:
        raise ShapeError(f"ctc_loss: log_probs must be (T, N, C) or (T, C) with at least one step, got {log_probs.shape}.")
    need_float("ctc_loss", log_probs.op, "log_probs")
    if not 0 <= blank < log_probs.shape[-1]:
        raise ArgumentError(f"ctc_loss: blank must be one of the {log_probs.shape[-1]} classes, got {blank}.")


def _ctc_lengths(name: str, lengths: Tensor | Sequence[int], probs_TNC: Tensor, most: int) -> Tensor:
    """Returns lengths as (N,) int64; computing them raises an error if one is outside [0, `most`]."""
    batch = probs_TNC.shape[1]
    values = lengths.long() if isinstance(lengths, Tensor) else Tensor(list(lengths), device=probs_TNC.device).long()
    values = values if values.ndim else values.unsqueeze(0)
    if values.shape != (batch,):
        raise ShapeError(f"ctc_loss: {name} must be ({batch},), got {values.shape}.")
    site = Site(f"ctc_loss: {name} has an element {{}}.", f"each must be from 0 to {most}.")
    return Tensor.from_op(checked(values.read(), most + 1, site), values.device)


def _padded_targets(targets: Tensor, labels_N: Tensor, batch: int) -> Tensor:
    """Returns targets as a padded (N, S)."""
    if targets.ndim == 2:
        if targets.shape[0] != batch:
            raise ShapeError(f"ctc_loss: targets {targets.shape} must have a row for each of {batch} sequences.")
        return targets
    if targets.ndim != 1:
        raise ShapeError(f"ctc_loss: targets must be (N, S) or have one axis, got {targets.shape}.")
    counts = [int(count) for count in labels_N.tolist()]
    if sum(counts) > targets.shape[0]:
        raise ShapeError(f"ctc_loss: targets {targets.shape} must have the {sum(counts)} of target_lengths.")
    rows, start = [], 0
    for count in counts:
        rows.append(targets[start : start + count].pad((0, max(counts) - count)))
        start += count
    return Tensor.stack(rows)
