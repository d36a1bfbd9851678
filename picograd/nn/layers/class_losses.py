"""Losses of classes, of margins and of sequences as modules.

In:    predictions and targets
Out:   losses
Next:  picograd/nn/layers/adaptive_softmax.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import picograd.nn.functional as functional
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class CrossEntropyLoss(Module):
    """Cross-entropy of scores; `weight`, `ignore_index`, `reduction`, `label_smoothing` as in functional.cross_entropy.

    >>> CrossEntropyLoss()(Tensor([[0.0, 0.0]]), Tensor([1]))
    Tensor(0.6931472)
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.cross_entropy of input, target."""
        return functional.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Module):
    """-input[target]; `weight`, `ignore_index` and `reduction` as in functional.cross_entropy.

    >>> NLLLoss()(Tensor([[-0.5, -1.0]]), Tensor([1]))
    Tensor(1.)
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"):
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.nll_loss of input, target."""
        return functional.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class HingeEmbeddingLoss(Module):
    """input, or max(0, `margin` - input) where target is -1; `reduction`: "mean", "sum" or "none".

    >>> HingeEmbeddingLoss()(Tensor([0.25]), Tensor([-1.0]))
    Tensor(0.75)
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        self.margin, self.reduction = margin, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.hinge_embedding_loss of input, target."""
        return functional.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(Module):
    """max(0, `margin` - target (input1 - input2)); `reduction`: "mean", "sum" or "none".

    >>> MarginRankingLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2.)
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self.margin, self.reduction = margin, reduction

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Returns functional.margin_ranking_loss of input1, input2, target."""
        return functional.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Module):
    """1 - cos, or max(0, cos - `margin`) where target is -1; `reduction`: "mean", "sum" or "none".

    >>> CosineEmbeddingLoss()(Tensor([1.0, 0.0]), Tensor([0.0, 1.0]), Tensor(1.0))
    Tensor(1.)
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self.margin, self.reduction = margin, reduction

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Returns functional.cosine_embedding_loss of input1, input2, target."""
        return functional.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(Module):
    """max(0, `margin` + near - far); `p`, `eps`, `swap` and `reduction` as in functional.triplet_margin_loss.

    >>> TripletMarginLoss(eps=0.0)(Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]]))
    Tensor(3.)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ):
        self.margin, self.p, self.eps, self.swap, self.reduction = margin, p, eps, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Returns functional.triplet_margin_loss of anchor, positive, negative."""
        return functional.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(Module):
    """max(0, `margin` + near - far) by `distance_function`; `swap` and `reduction` as in TripletMarginLoss.

    >>> TripletMarginWithDistanceLoss()(Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]]))
    Tensor(3.)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ):
        self.distance_function, self.margin, self.swap, self.reduction = distance_function, margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Returns functional.triplet_margin_with_distance_loss of anchor, positive, negative."""
        return functional.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class MultiMarginLoss(Module):
    """max(0, margin - x[y] + x[j]) ** p; `p`, `margin`, `weight`, `reduction` as in functional.multi_margin_loss.

    >>> MultiMarginLoss()(Tensor([[1.0, 0.5]]), Tensor([0]))
    Tensor(0.25)
    """

    weight: Tensor | None

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"):
        self.register_buffer("weight", weight)
        self.p, self.margin, self.reduction = p, margin, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.multi_margin_loss of input, target."""
        return functional.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class MultiLabelMarginLoss(Module):
    """max(0, 1 - x[j] + x[i]), j right and i wrong; `reduction`: "mean", "sum" or "none".

    >>> MultiLabelMarginLoss()(Tensor([[0.5, 0.25, 1.0]]), Tensor([[2, -1, 0]]))
    Tensor(0.25)
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.multilabel_margin_loss of input, target."""
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(Module):
    """Mean cross-entropy of sigmoid(input) over classes, each times `weight`; `reduction`: "mean", "sum" or "none".

    >>> MultiLabelSoftMarginLoss()(Tensor([[0.0]]), Tensor([[1.0]]))
    Tensor(0.6931472)
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.multilabel_soft_margin_loss of input, target."""
        return functional.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CTCLoss(Module):
    """Likelihood of labels whose places are not known; `blank`, `reduction`, `zero_infinity` as in functional.ctc_loss.

    >>> log_probs = Tensor.zeros(2, 1, 2).log_softmax(-1)
    >>> CTCLoss()(log_probs, Tensor([[1]]), [2], [1]).item()
    0.2876820...
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        """Returns functional.ctc_loss of log_probs, targets, input_lengths and target_lengths."""
        lengths = (input_lengths, target_lengths)
        return functional.ctc_loss(log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity)
