"""Losses and distances as modules, and the adaptive softmax, a loss with its own layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import NamedTuple

import picograd.nn.functional as functional
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.containers import ModuleList, Sequential
from picograd.nn.layers.features import Linear
from picograd.nn.layers.layer import Layer, layer
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

__all__ = [
    "AdaptiveLogSoftmaxWithLoss", "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity",
    "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "PairwiseDistance", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


@layer(shown="")
class Loss(Layer):
    """Base of losses of a prediction and a target."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Returns the loss, reduced; input and target are those of the function in nn.functional."""
        return self._call(input, target)


@layer(shown="")
class PairLoss(Layer):
    """Base of losses of two predictions and a target."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Returns the loss, reduced; input1, input2 and target are those of the function in nn.functional."""
        return self._call(input1, input2, target)


@layer(shown="")
class TripletLoss(Layer):
    """Base of losses of three embeddings."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Returns the loss, reduced; anchor, positive and negative are (..., D)."""
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
    """d^2 / 2 / `beta` below `beta`, linear above, d = |input - target|; `reduction`: "mean", "sum" or "none".

    >>> SmoothL1Loss()(Tensor([3.0]), Tensor([0.0]))
    Tensor(2.5)
    """

    reduction: str = "mean"
    beta: float = 1.0


@layer(functional.huber_loss)
class HuberLoss(Loss):
    """d^2 / 2 up to `delta`, linear above, d = |input - target|; `reduction`: "mean", "sum" or "none".

    >>> HuberLoss(delta=2.0)(Tensor([3.0]), Tensor([0.0]))
    Tensor(4.)
    """

    reduction: str = "mean"
    delta: float = 1.0


@layer(functional.binary_cross_entropy)
class BCELoss(Loss):
    """Binary cross-entropy of probabilities, each times `weight`; `reduction`: "mean", "sum" or "none".

    >>> BCELoss()(Tensor([0.5]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    weight: Tensor | None = None
    reduction: str = "mean"


@layer(functional.binary_cross_entropy_with_logits)
class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of sigmoid(input), times `weight`, for target 1 times `pos_weight`; `reduction` as in BCELoss.

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
        """Returns the loss, reduced; input, target and var have one shape."""
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
    """input if target is 1, max(0, `margin` - input) if it is -1; `reduction`: "mean", "sum" or "none".

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
    """1 - cos if target is 1, max(0, cos - `margin`) if it is -1; `reduction`: "mean", "sum" or "none".

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
    """max(0, `margin` + near - far) with `distance_function`; `swap` and `reduction` as in TripletMarginLoss.

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
    """max(0, 1 - x[j] + x[i]), j a right class and i a wrong one; `reduction`: "mean", "sum" or "none".

    >>> MultiLabelMarginLoss()(Tensor([[0.5, 0.25, 1.0]]), Tensor([[2, -1, 0]]))
    Tensor(0.25)
    """

    reduction: str = "mean"


@layer(functional.multilabel_soft_margin_loss)
class MultiLabelSoftMarginLoss(Loss):
    """Mean binary cross-entropy of sigmoid(input) over classes, times `weight`; `reduction`: "mean", "sum" or "none".

    >>> MultiLabelSoftMarginLoss()(Tensor([[0.0]]), Tensor([[1.0]]))
    Tensor(0.6931472)
    """

    weight: Tensor | None = None
    reduction: str = "mean"


@layer(functional.ctc_loss, shown="")
class CTCLoss(Layer):
    """-log likelihood of unaligned labels; `blank`, `reduction`, `zero_infinity` as in functional.ctc_loss.

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
        """Returns the loss, reduced; log_probs, targets, input_lengths, target_lengths are those of functional.ctc_loss."""
        return self._call(log_probs, targets, input_lengths, target_lengths)


# ---- distances ----
@layer(functional.cosine_similarity, shown="")
class CosineSimilarity(Layer):
    """x1 . x2 / (|x1| |x2|) along axis `dim`, each norm at least `eps`.

    >>> CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[3.0, 4.0]]))
    Tensor([0.6])
    """

    dim: int = 1
    eps: float = 1e-8

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """x1 and x2 (..., D, ...) -> (...)."""
        return self._call(x1, x2)


class PairwiseDistance(Module):
    """Norm of order `p` of x1 - x2 + `eps` along the last axis, kept with length 1 if `keepdim`.

    >>> PairwiseDistance(eps=0.0)(Tensor([[1.0, 2.0]]), Tensor([[4.0, 6.0]]))
    Tensor([5.])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """x1 and x2 (..., D) -> (...)."""
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


# ---- many classes, the rare ones in clusters ----
class ASMoutput(NamedTuple):
    """Log-probabilities of the targets (N,), and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Adaptive softmax: a loss of classes sorted by frequency, most frequent first, in clusters that end at `cutoffs`.

    log p(class) = log p(cluster) + log p(class in cluster); cluster i projects to in_features / div_value^i features

    Args:
      in_features:  C
      n_classes:    V
      cutoffs:      increasing numbers in 1..V-1: the ends of clusters
      div_value:    ratio of the features of consecutive clusters
      head_bias:    give the first cluster a bias

    Raises:
      ArgumentError: cutoffs do not increase within 1..V-1, or div_value is not above 0.

    Cost:      all clusters are computed for each row.

    >>> layer = AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6])
    >>> layer(Tensor.ones(3, 4), Tensor([0, 5, 9])).output.shape
    (3,)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        ends = [*cutoffs, n_classes]
        if not cutoffs or not ends[0] > 0 or sorted(set(ends)) != ends:
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must rise within 1..{n_classes - 1}, got {list(cutoffs)}."
            )
        if not div_value > 0:
            raise ArgumentError(f"AdaptiveLogSoftmaxWithLoss: div_value must be above 0, got {div_value}.")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, ends
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner = int(in_features // div_value ** (i + 1))
            down = Linear(in_features, inner, False, device, dtype)
            self.tail.append(Sequential(down, Linear(inner, ends[i + 1] - ends[i], False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draws the weights of all clusters again."""
        for part in self.modules():
            if isinstance(part, Linear):
                part.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        """Returns (output, loss): input (N, C), target (N,) -> (N,) and (); a single row without N.

        Raises:
          ShapeError: input has neither one axis nor two, or target has a different number of rows.
        """
        if input.ndim not in (1, 2) or target.shape != input.shape[:-1]:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: needs input (N, C) and target (N,), got {input.shape} and {target.shape}."
            )
        output = self._rows(input).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """Returns the log-probability of each class: input (N, C) -> (N, V).

        >>> AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6]).log_prob(Tensor.ones(3, 4)).shape
        (3, 10)
        """
        return self._rows(input)

    def predict(self, input: Tensor) -> Tensor:
        """Returns the most probable class of each row: input (N, C) -> (N,).

        >>> AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6]).predict(Tensor.ones(3, 4)).shape
        (3,)
        """
        return self._rows(input).argmax(-1)

    def _rows(self, x: Tensor) -> Tensor:
        head = self.head(x).log_softmax(-1)
        parts = [head[..., : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            place = self.shortlist_size + i
            parts.append(cluster(x).log_softmax(-1) + head[..., place : place + 1])
        return Tensor.cat(parts, -1)
