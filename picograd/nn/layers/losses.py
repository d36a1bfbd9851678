"""Losses and distances as modules.

In:    predictions and targets
Out:   losses
Next:  picograd/nn/layers/adaptive_softmax.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY

import picograd.nn.functional as functional
from picograd.nn.layers.layer import Layer, layer
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PairwiseDistance",
    "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


@layer(shown="")
class Loss(Layer):
    """Base of losses of a prediction and a target."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """input and target as the function of nn.functional takes them -> the loss, reduced."""
        return self._call(input, target)


@layer(shown="")
class PairLoss(Layer):
    """Base of losses of two predictions and a target."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """input1, input2 and target as the function of nn.functional takes them -> the loss, reduced."""
        return self._call(input1, input2, target)


@layer(shown="")
class TripletLoss(Layer):
    """Base of losses of three embeddings."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """anchor, positive and negative (..., D) -> the loss, reduced."""
        return self._call(anchor, positive, negative)


# ---- of elements ----
@layer(functional.mse_loss)
class MSELoss(Loss):
    """(input - target) ** 2; `reduction`: "mean", "sum" or "none".

    >>> MSELoss()(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(2.)
    """

    reduction: str = "mean"


@layer(functional.l1_loss)
class L1Loss(Loss):
    """|input - target|; `reduction`: "mean", "sum" or "none".

    >>> L1Loss()(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(1.)
    """

    reduction: str = "mean"


@layer(functional.smooth_l1_loss)
class SmoothL1Loss(Loss):
    """Squared below `beta`, straight above; `reduction`: "mean", "sum" or "none".

    >>> SmoothL1Loss()(Tensor([3.0]), Tensor([0.0]))
    Tensor(2.5)
    """

    reduction: str = "mean"
    beta: float = 1.0


@layer(functional.huber_loss)
class HuberLoss(Loss):
    """Squared up to `delta`, straight above; `reduction`: "mean", "sum" or "none".

    >>> HuberLoss(delta=2.0)(Tensor([3.0]), Tensor([0.0]))
    Tensor(4.)
    """

    reduction: str = "mean"
    delta: float = 1.0


@layer(functional.binary_cross_entropy)
class BCELoss(Loss):
    """Cross-entropy of probabilities of yes, each times `weight`; `reduction`: "mean", "sum" or "none".

    >>> BCELoss()(Tensor([0.5]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    weight: Tensor | None = None
    reduction: str = "mean"


@layer(functional.binary_cross_entropy_with_logits)
class BCEWithLogitsLoss(Loss):
    """Cross-entropy of sigmoid(input), each times `weight`, those of yes times `pos_weight`; `reduction` as ever.

    >>> BCEWithLogitsLoss()(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


@layer(functional.kl_div)
class KLDivLoss(Loss):
    """target (log target - input); `reduction` and `log_target` as in functional.kl_div.

    >>> KLDivLoss("batchmean", True)(Tensor([[-1.0]]), Tensor([[0.0]]))
    Tensor(1.)
    """

    reduction: str = "mean"
    log_target: bool = False


@layer(functional.poisson_nll_loss)
class PoissonNLLLoss(Loss):
    """rate - target log(rate); `log_input`, `full`, `eps` and `reduction` as in functional.poisson_nll_loss.

    >>> PoissonNLLLoss()(Tensor([0.0]), Tensor([3.0]))
    Tensor(1.)
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8
    reduction: str = "mean"


@layer(functional.gaussian_nll_loss, shown="")
class GaussianNLLLoss(Layer):
    """(log var + (input - target)^2 / var) / 2; `full`, `eps`, `reduction` as in functional.gaussian_nll_loss.

    >>> GaussianNLLLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2.)
    """

    _: KW_ONLY
    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """input, target and var of one shape -> the loss, reduced."""
        return self._call(input, target, var)


@layer(functional.soft_margin_loss)
class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)); `reduction`: "mean", "sum" or "none".

    >>> SoftMarginLoss()(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    reduction: str = "mean"


# ---- of classes, margins and sequences ----
@layer(functional.cross_entropy)
class CrossEntropyLoss(Loss):
    """Cross-entropy of scores; `weight`, `ignore_index`, `reduction`, `label_smoothing` as in functional.cross_entropy.

    >>> CrossEntropyLoss()(Tensor([[0.0, 0.0]]), Tensor([1]))
    Tensor(0.6931472)
    """

    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0


@layer(functional.nll_loss)
class NLLLoss(Loss):
    """-input[target]; `weight`, `ignore_index` and `reduction` as in functional.cross_entropy.

    >>> NLLLoss()(Tensor([[-0.5, -1.0]]), Tensor([1]))
    Tensor(1.)
    """

    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"


@layer(functional.hinge_embedding_loss)
class HingeEmbeddingLoss(Loss):
    """input, or max(0, `margin` - input) where target is -1; `reduction`: "mean", "sum" or "none".

    >>> HingeEmbeddingLoss()(Tensor([0.25]), Tensor([-1.0]))
    Tensor(0.75)
    """

    margin: float = 1.0
    reduction: str = "mean"


@layer(functional.margin_ranking_loss)
class MarginRankingLoss(PairLoss):
    """max(0, `margin` - target (input1 - input2)); `reduction`: "mean", "sum" or "none".

    >>> MarginRankingLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2.)
    """

    margin: float = 0.0
    reduction: str = "mean"


@layer(functional.cosine_embedding_loss)
class CosineEmbeddingLoss(PairLoss):
    """1 - cos, or max(0, cos - `margin`) where target is -1; `reduction`: "mean", "sum" or "none".

    >>> CosineEmbeddingLoss()(Tensor([1.0, 0.0]), Tensor([0.0, 1.0]), Tensor(1.0))
    Tensor(1.)
    """

    margin: float = 0.0
    reduction: str = "mean"


@layer(functional.triplet_margin_loss)
class TripletMarginLoss(TripletLoss):
    """max(0, `margin` + near - far); `p`, `eps`, `swap` and `reduction` as in functional.triplet_margin_loss.

    >>> TripletMarginLoss(eps=0.0)(Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]]))
    Tensor(3.)
    """

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: str = "mean"


@layer(functional.triplet_margin_with_distance_loss)
class TripletMarginWithDistanceLoss(TripletLoss):
    """max(0, `margin` + near - far) by `distance_function`; `swap` and `reduction` as in TripletMarginLoss.

    >>> TripletMarginWithDistanceLoss()(Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]]))
    Tensor(3.)
    """

    _: KW_ONLY
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"


@layer(functional.multi_margin_loss)
class MultiMarginLoss(Loss):
    """max(0, margin - x[y] + x[j]) ** p; `p`, `margin`, `weight`, `reduction` as in functional.multi_margin_loss.

    >>> MultiMarginLoss()(Tensor([[1.0, 0.5]]), Tensor([0]))
    Tensor(0.25)
    """

    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    reduction: str = "mean"


@layer(functional.multilabel_margin_loss)
class MultiLabelMarginLoss(Loss):
    """max(0, 1 - x[j] + x[i]), j right and i wrong; `reduction`: "mean", "sum" or "none".

    >>> MultiLabelMarginLoss()(Tensor([[0.5, 0.25, 1.0]]), Tensor([[2, -1, 0]]))
    Tensor(0.25)
    """

    reduction: str = "mean"


@layer(functional.multilabel_soft_margin_loss)
class MultiLabelSoftMarginLoss(Loss):
    """Mean cross-entropy of sigmoid(input) over classes, each times `weight`; `reduction`: "mean", "sum" or "none".

    >>> MultiLabelSoftMarginLoss()(Tensor([[0.0]]), Tensor([[1.0]]))
    Tensor(0.6931472)
    """

    weight: Tensor | None = None
    reduction: str = "mean"


@layer(functional.ctc_loss, shown="")
class CTCLoss(Layer):
    """Likelihood of labels whose places are not known; `blank`, `reduction`, `zero_infinity` as in functional.ctc_loss.

    >>> log_probs = Tensor.zeros(2, 1, 2).log_softmax(-1)
    >>> CTCLoss()(log_probs, Tensor([[1]]), [2], [1]).item()
    0.2876820...
    """

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        """log_probs, targets, input_lengths and target_lengths as functional.ctc_loss takes them -> the loss, reduced."""
        return self._call(log_probs, targets, input_lengths, target_lengths)


# ---- distances ----
@layer(functional.cosine_similarity, shown="")
class CosineSimilarity(Layer):
    """x1 . x2 / (|x1| |x2|) along axis `dim`, lengths held above `eps`.

    >>> CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[3.0, 4.0]]))
    Tensor([0.6])
    """

    dim: int = 1
    eps: float = 1e-8

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """x1 and x2 (..., D, ...) -> (...)."""
        return self._call(x1, x2)


class PairwiseDistance(Module):
    """Norm of order `p` of x1 - x2 + `eps` along the last axis, which stays with length 1 if `keepdim`.

    >>> PairwiseDistance(eps=0.0)(Tensor([[1.0, 2.0]]), Tensor([[4.0, 6.0]]))
    Tensor([5.])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """x1 and x2 (..., D) -> (...)."""
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
