"""Losses of elements, and distances, as modules.

In:    predictions and targets
Out:   losses
Next:  picograd/nn/layers/class_losses.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class MSELoss(Module):
    """(input - target) ** 2; `reduction`: "mean", "sum" or "none".

    >>> MSELoss()(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(2.)
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.mse_loss of input, target."""
        return functional.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Module):
    """|input - target|; `reduction`: "mean", "sum" or "none".

    >>> L1Loss()(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(1.)
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.l1_loss of input, target."""
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Module):
    """Squared below `beta`, straight above; `reduction`: "mean", "sum" or "none".

    >>> SmoothL1Loss()(Tensor([3.0]), Tensor([0.0]))
    Tensor(2.5)
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        self.reduction, self.beta = reduction, beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.smooth_l1_loss of input, target."""
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Module):
    """Squared up to `delta`, straight above; `reduction`: "mean", "sum" or "none".

    >>> HuberLoss(delta=2.0)(Tensor([3.0]), Tensor([0.0]))
    Tensor(4.)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        self.reduction, self.delta = reduction, delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.huber_loss of input, target."""
        return functional.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class BCELoss(Module):
    """Cross-entropy of probabilities of yes, each times `weight`; `reduction`: "mean", "sum" or "none".

    >>> BCELoss()(Tensor([0.5]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.binary_cross_entropy of input, target."""
        return functional.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """Cross-entropy of sigmoid(input), each times `weight`, those of yes times `pos_weight`; `reduction` as ever.

    >>> BCEWithLogitsLoss()(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None):
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.binary_cross_entropy_with_logits of input, target."""
        return functional.binary_cross_entropy_with_logits(
            input,
            target,
            weight=self.weight,
            reduction=self.reduction,
            pos_weight=self.pos_weight,
        )


class KLDivLoss(Module):
    """target (log target - input); `reduction` and `log_target` as in functional.kl_div.

    >>> KLDivLoss("batchmean", True)(Tensor([[-1.0]]), Tensor([[0.0]]))
    Tensor(1.)
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False):
        self.reduction, self.log_target = reduction, log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.kl_div of input, target."""
        return functional.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(Module):
    """rate - target log(rate); `log_input`, `full`, `eps` and `reduction` as in functional.poisson_nll_loss.

    >>> PoissonNLLLoss()(Tensor([0.0]), Tensor([3.0]))
    Tensor(1.)
    """

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"):
        self.log_input, self.full, self.eps, self.reduction = log_input, full, eps, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.poisson_nll_loss of input, target."""
        return functional.poisson_nll_loss(
            input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(Module):
    """(log var + (input - target)^2 / var) / 2; `full`, `eps`, `reduction` as in functional.gaussian_nll_loss.

    >>> GaussianNLLLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2.)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        self.full, self.eps, self.reduction = full, eps, reduction

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.gaussian_nll_loss of input, target, var."""
        return functional.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class SoftMarginLoss(Module):
    """log(1 + exp(-target * input)); `reduction`: "mean", "sum" or "none".

    >>> SoftMarginLoss()(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931472)
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Returns functional.soft_margin_loss of input, target."""
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class CosineSimilarity(Module):
    """x1 . x2 / (|x1| |x2|) along axis `dim`, lengths held above `eps`.

    >>> CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[3.0, 4.0]]))
    Tensor([0.6])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """x1 and x2 (..., D, ...) -> (...)."""
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


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
