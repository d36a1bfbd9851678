"""Losses with a margin: what is right by more than it counts for nothing.

In:    scores or vectors, and targets
Out:   a loss, or one for each row
Next:  picograd/nn/functions/ctc.py

N rows, C classes, D features.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import scatter
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.nn.functions.activations import logsigmoid
from picograd.nn.functions.class_losses import class_numbers
from picograd.nn.functions.distances import pairwise_distance
from picograd.nn.functions.losses import check_pair, reduced
from picograd.nn.functions.precision import widened
from picograd.tensor.build import cast, need_float
from picograd.tensor.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip


# ---- pairs ----
@widened
def hinge_embedding_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    margin: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Returns input where target is 1, max(0, margin - input) where it is -1; `reduction`: "mean", "sum" or "none".

    Raises:
      DTypeError:    neither input nor target is a float.
      ArgumentError: another reduction.

    >>> hinge_embedding_loss(Tensor([0.5, 0.25]), Tensor([1.0, -1.0]), reduction="none")
    Tensor([0.5 , 0.75])
    """
    check_pair("hinge_embedding_loss", input, target, warn=False)
    far = Tensor.choose(target != 1, (margin - input).clamp(min=0.0), 0.0)
    return reduced("hinge_embedding_loss", far + Tensor.choose(target != -1, input, 0.0), reduction)


@widened
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Returns max(0, margin - target * (input1 - input2)): target 1 wants input1 greater, -1 input2.

    `reduction`: "mean", "sum" or "none".

    Raises:
      ShapeError:    they have different numbers of axes.
      ArgumentError: another reduction.

    >>> margin_ranking_loss(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2.)
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            f"margin_ranking_loss: input1 {input1.shape}, input2 {input2.shape} and target {target.shape} must have as"
            " many axes."
        )
    return reduced("margin_ranking_loss", (-target * (input1 - input2) + margin).clamp(min=0.0), reduction)


@widened
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Returns 1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1.

    Args:
      input1, input2:  (N, D) or (D,)
      target:          (N,) or ()
      margin:          from -1 to 1
      reduction:       "mean", "sum" or "none"

    Raises:
      ShapeError:    target does not fit the inputs.
      ArgumentError: another reduction.

    >>> cosine_embedding_loss(Tensor([1.0, 0.0]), Tensor([0.0, 1.0]), Tensor(1.0))
    Tensor(1.)
    """
    if target.ndim not in (0, 1) or {input1.ndim, input2.ndim} != {target.ndim + 1}:
        raise ShapeError(
            f"cosine_embedding_loss: target {target.shape} must be (N,) for inputs (N, D), or () for (D,), got"
            f" {input1.shape} and {input2.shape}."
        )
    squares = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    apart = Tensor.choose(target == -1, (cosine - margin).clamp(min=0.0), 0.0)
    return reduced("cosine_embedding_loss", Tensor.choose(target == 1, 1 - cosine, 0.0) + apart, reduction)


# ---- triples ----
@widened
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Returns max(0, margin + |anchor - positive| - |anchor - negative|), norms of order p along the last axis.

    `eps` is added to each difference. `swap` takes |positive - negative| where that is smaller than the last norm
    (Balntas et al. 2016). `reduction`: "mean", "sum" or "none".

    Raises:
      ShapeError:    anchor, positive and negative have different numbers of axes.
      ArgumentError: margin is not positive, or another reduction.

    >>> triplet_margin_loss(Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]]), eps=0.0)
    Tensor(3.)
    """

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet("triplet_margin_loss", (anchor, positive, negative), distance, margin, swap, reduction)


@widened
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Returns max(0, margin + d(anchor, positive) - d(anchor, negative)) with d = distance_function.

    d is pairwise_distance unless given; `swap` and `reduction` are those of triplet_margin_loss.

    Raises:
      ShapeError:    anchor, positive and negative have different numbers of axes.
      ArgumentError: margin is not positive, or another reduction.

    >>> far = lambda a, b: (a - b).abs().sum(-1)
    >>> a, p, n = Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]])
    >>> triplet_margin_with_distance_loss(a, p, n, distance_function=far)
    Tensor(3.)
    """
    distance = distance_function or pairwise_distance
    return _triplet("triplet_margin_with_distance_loss", (anchor, positive, negative), distance, margin, swap, reduction)


def _triplet(
    function: str,
    triple: tuple[Tensor, Tensor, Tensor],
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    """Returns max(0, near - far + margin): how far anchors are from positives, and how far from negatives."""
    anchor, positive, negative = triple
    if not margin > 0:
        raise ArgumentError(f"{function}: margin must be positive, got {margin}.")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"{function}: anchor {anchor.shape}, positive {positive.shape} and negative {negative.shape} must have as"
            " many axes."
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced(function, (near - far + margin).clamp(min=0.0), reduction)


# ---- classes ----
@widened
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
      target:     (N,), or for one example () or (1,)  integer classes
      p:          1 or 2
      margin:     by how much the right class is to win
      weight:     (C,) factor of each class, or None
      reduction:  "mean", "sum" or "none"

    Raises:
      ShapeError:    target does not fit input, or weight is not (C,).
      DTypeError:    input is no float, or target holds no integers.
      ArgumentError: p is neither 1 nor 2, or another reduction.
      IndexingError: when it is computed: a class is negative or not below C.

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
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
    """Returns the sum over right classes j and wrong ones i of max(0, 1 - x[j] + x[i]) / C.

    Args:
      input:      (N, C), (C,) or ()  float
      target:     the shape of input  integers: the right classes up to the first -1
      reduction:  "mean", "sum" or "none"

    Raises:
      ShapeError:    target has another shape than input.
      DTypeError:    input is no float, or target holds no integers.
      ArgumentError: another reduction.
      IndexingError: when it is computed: a class is not below C.

    >>> multilabel_margin_loss(Tensor([[0.5, 0.25, 1.0]]), Tensor([[2, -1, 0]]))
    Tensor(0.25)
    """
    if not input.ndim and not target.ndim:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    _check_classes("multilabel_margin_loss", input, target, input.shape)
    x_NC = input if input.ndim == 2 else input.unsqueeze(0)
    labels_NK = (target if target.ndim == 2 else target.unsqueeze(0)).long()
    listed_NK = (labels_NK < 0).long().cumsum(-1) == 0  # up to the first -1
    classes_NK = Tensor.choose(listed_NK, labels_NK, 0)
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
def multilabel_soft_margin_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the mean over classes of -t log(s) - (1 - t) log(1 - s) with s = sigmoid(input) and t = target.

    Args:
      input:      (N, C) or (C,)  float
      target:     the shape of input: 1 for a class that holds, else 0
      weight:     (C,) factor of each class, or None
      reduction:  "mean", "sum" or "none"

    Raises:
      DTypeError:    input is no float.
      ArgumentError: another reduction.

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
