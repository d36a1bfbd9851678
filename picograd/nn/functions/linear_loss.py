"""Cross-entropy with the linear layer before it, which does not keep the scores of all rows where these are large.

In:    rows, the layer's weight and classes
Out:   a loss, or one for each row
Next:  picograd/nn/functions/margin_losses.py

N rows, D features, C classes. GPT-2 has C = 50257: the scores of 1024 rows are 206 MB, and so are their gradients.
"""

from __future__ import annotations

from typing import Any

from picograd.control.custom import Function
from picograd.control.flow import scan
from picograd.nn.functions.class_losses import cross_entropy
from picograd.nn.functions.linear import linear
from picograd.nn.functions.losses import check_reduction
from picograd.nn.functions.precision import widened
from picograd.tensor.tensor import Tensor

__all__ = ["linear_cross_entropy"]

CHUNK_NBYTES = 32 << 20  # of the scores of the rows that are looked at together
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

    Where the scores of all rows would take more than 128 MiB, and one number is asked for of rows with a class each,
    they are computed some rows at a time, and so are the gradients, in the same pass.

    Args:
      input:            (N, D), or whatever linear and cross_entropy take  float
      linear_weight:    (C, D)
      target:           (N,)    integer classes; or probabilities (N, C)
      linear_bias:      (C,) or None
      weight:           (C,) factor of each class, or None
      reduction:        "mean", "sum" or "none"
      ignore_index:     rows with this class count neither in sum nor in mean; None: -100
      label_smoothing:  in [0, 1]

    Returns:   (), or (N,) for "none"

    Raises:
      ShapeError:    input does not fit linear_weight, or target does not fit the scores.
      DTypeError:    input is no float, or target is bool.
      ArgumentError: another reduction, smoothing outside [0, 1], or an ignore_index from 0 on for probabilities.
      IndexingError: when it is computed: a class is negative or not below C, and not ignore_index.

    Cost:      6 N C D FLOPs with the gradients, as one after the other. Some rows at a time: 32 MiB of scores instead of
               all and their gradients, and two more of the size of linear_weight.
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
    """Returns whether the scores are worth more than one pass: of rows with a class each, all of known lengths."""
    if (rows.ndim, layer.ndim, target.ndim) != (2, 2, 1) or target.dtype.is_float or rows.shape[:1] != target.shape:
        return False
    if not all(isinstance(length, int) for length in (*rows.shape, *layer.shape)):
        return False
    return rows.shape[0] * layer.shape[0] * rows.dtype.itemsize > 4 * CHUNK_NBYTES


def _count(target: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    """Returns by what the mean divides: the rows that count, or the factors of their classes."""
    counted = target != ignored
    return counted.sum() if weight is None else (weight[target.where(counted, 0)] * counted).sum()


def _slope(
    scores: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, label_smoothing: float
) -> Tensor:
    """Returns the gradient of the sum of cross_entropy's rows, (1 - s) f (p - 1[target]) + s (mean(w) p - w / C).

    p is softmax(scores), w the factors of the classes and f that of the row's; rows that are ignored have none.
    """
    counted = target != ignore_index
    classes = target.where(counted, 0)
    chances, hit = scores.softmax(1), classes.one_hot(scores.shape[1])
    factors = Tensor.ones(scores.shape[1:], dtype=scores.dtype) if weight is None else weight
    exact = factors[classes][:, None] * (chances - hit)
    smooth = factors.mean() * chances - factors / scores.shape[1]
    return counted[:, None] * ((1.0 - label_smoothing) * exact + label_smoothing * smooth)


class _Chunked(Function):
    """The sum of the losses, a chunk of rows at a time, with the gradients of the sum."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, layer: Tensor, bias: Tensor | None, target: Tensor, options: dict[str, Any]
    ) -> Tensor:
        num_rows, length = rows.shape[0], max(1, CHUNK_NBYTES // (layer.shape[0] * rows.dtype.itemsize))
        num_chunks = -(-num_rows // length)
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
        loss: Tensor = total
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_rows, of_layer, *of_bias = (gradient * part for part in ctx.saved_tensors)
        return of_rows, of_layer, of_bias[0] if ctx.has_bias else None, None, None
