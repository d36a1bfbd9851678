"""Losses of numbers and vectors: differences, likelihoods, distances, margins.

Every loss begins with `check_pair` and ends with `weighted` or `reduced`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from picograd.errors import ArgumentError, DTypeError, ShapeError, warn_user
from picograd.ir.op import Op
from picograd.nn.functions import widened
from picograd.nn.functions.activations import logsigmoid
from picograd.tensor.arguments import check_nonnegative, check_one_of, check_positive
from picograd.tensor.build import broadcast_shapes, broadcast_to, need_float, not_negative, static_numel
from picograd.tensor.formulas import of_tensors
from picograd.tensor.random import probabilities
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
    "normalize", "pairwise_distance", "pdist", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip

REDUCTIONS = ("mean", "sum", "none")


# ---- pairs and reductions ----
def check_reduction(function: str, reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """Raises ArgumentError for an unknown reduction."""
    check_one_of(function, "reduction", reduction, allowed)


def reduced(function: str, losses: Tensor, reduction: str) -> Tensor:
    """Returns the mean or the sum of losses, or the losses themselves.

    Raises:
      ArgumentError: an unknown reduction.
    """
    check_reduction(function, reduction)
    return losses if reduction == "none" else (losses.mean() if reduction == "mean" else losses.sum())


def check_pair(function: str, input: Tensor, target: Tensor, warn: bool = True) -> None:  # noqa: A002
    """Checks the operands of a loss; warns and broadcasts if their shapes differ.

    Raises:
      DTypeError: neither operand is a float.
    """
    for name, tensor in (("input", input), ("target", target)):
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"{function}: {name} must be a Tensor, got {type(tensor).__name__}.", hint="Tensor(value)")
    if not input.dtype.is_float and not target.dtype.is_float:
        raise DTypeError(f"{function}: needs floats, got {input.dtype} and {target.dtype}.", hint="input.float()")
    shapes = input.op.shape, target.op.shape
    if warn and shapes[0] != shapes[1] and all(isinstance(dim, int) for shape in shapes for dim in shape):
        warn_user(f"{function}: input {input.shape} and target {target.shape} differ in shape and are broadcast.")


def weighted(function: str, losses: Tensor, weight: Tensor | None, input: Tensor, reduction: str) -> Tensor:  # noqa: A002
    """Returns losses times weights, reduced; the mean is divided by the sum of the weights.

    Raises:
      ShapeError:    the shape of weight differs from input's.
      ArgumentError: an unknown reduction.
    """
    if weight is None:
        return reduced(function, losses, reduction)
    if weight.shape != input.shape:
        raise ShapeError(f"{function}: weight {weight.shape} must have the shape of input {input.shape}.")
    if reduction == "mean":
        return (losses * weight).sum() / weight.sum()
    return reduced(function, losses * weight, reduction)


# ---- differences ----
@widened
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:  # noqa: A002
    """Returns (input - target) ** 2; `reduction`: "mean", "sum" or "none".

    `weight`: a factor per element, of the shape of input; the mean is then divided by the sum of the weights.

    Raises:
      DTypeError:    neither input nor target is a float.
      ShapeError:    the shape of weight differs from input's.
      ArgumentError: an unknown reduction.

    >>> mse_loss(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(2.)
    """
    check_pair("mse_loss", input, target)
    return _mse(input, target, reduction, weight)


@of_tensors
def _mse(x: Tensor, target: Tensor, reduction: str, weight: Tensor | None) -> Tensor:
    return weighted("mse_loss", (x - target).square(), weight, x, reduction)


@widened
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:  # noqa: A002
    """Returns |input - target|; `reduction`: "mean", "sum" or "none"; `weight` as in mse_loss.

    Raises:
      DTypeError:    neither input nor target is a float.
      ShapeError:    the shape of weight differs from input's.
      ArgumentError: an unknown reduction.

    >>> l1_loss(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(1.)
    """
    check_pair("l1_loss", input, target)
    return _l1(input, target, reduction, weight)


@of_tensors
def _l1(x: Tensor, target: Tensor, reduction: str, weight: Tensor | None) -> Tensor:
    return weighted("l1_loss", (x - target).abs(), weight, x, reduction)


@widened
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:  # noqa: A002
    """Returns d^2 / (2 beta) if d = |input - target| is below beta, else d - beta / 2.

    `reduction`: "mean", "sum" or "none".

    Raises:
      DTypeError:    neither input nor target is a float.
      ArgumentError: beta is negative, or an unknown reduction.

    Source:    Girshick 2015, arXiv:1504.08083, eq. 3 (beta = 1).

    >>> smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none")
    Tensor([0.125, 2.5  ])
    """
    check_pair("smooth_l1_loss", input, target)
    check_nonnegative("smooth_l1_loss", "beta", beta)
    return _smooth_l1(input, target, reduction, beta)


@of_tensors
def _smooth_l1(x: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor:
    d = x - target
    distance = d.abs()
    if beta == 0:
        return reduced("smooth_l1_loss", distance, reduction)
    far = distance >= beta
    small = Tensor.choose(far, 0.0, d)  # the slope of an infinite square, times 0, would be NaN
    losses = Tensor.choose(far, distance - 0.5 * beta, small * small * (0.5 / beta))
    return reduced("smooth_l1_loss", losses, reduction)


@widened
def huber_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Returns d^2 / 2 if d = |input - target| is at most delta, else delta * (d - delta / 2).

    `reduction`: "mean", "sum" or "none"; `weight`: a factor per element, of the shape of input.

    Raises:
      DTypeError:    neither input nor target is a float.
      ShapeError:    the shape of weight differs from input's.
      ArgumentError: delta is not positive, or an unknown reduction.

    Source:    Huber 1964, "Robust estimation of a location parameter".

    >>> huber_loss(Tensor([1.0, 3.0]), Tensor([0.0, 0.0]), reduction="none", delta=2.0)
    Tensor([0.5, 4. ])
    """
    check_pair("huber_loss", input, target)
    check_positive("huber_loss", "delta", delta)
    return _huber(input, target, reduction, delta, weight)


@of_tensors
def _huber(x: Tensor, target: Tensor, reduction: str, delta: float, weight: Tensor | None) -> Tensor:
    d = x - target
    distance = d.abs()
    far = distance > delta
    small = Tensor.choose(far, 0.0, d)
    losses = Tensor.choose(far, (distance - 0.5 * delta) * delta, small * small * 0.5)
    if weight is not None and weight.shape != x.shape:
        raise ShapeError(f"huber_loss: weight {weight.shape} must have the shape of input {x.shape}.")
    return reduced("huber_loss", losses if weight is None else losses * weight, reduction)


# ---- likelihoods of yes and no ----
@widened
@of_tensors
def binary_cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns -t log(p) - (1 - t) log(1 - p) with p = input and t = target.

    As in PyTorch, logarithms are at least -100 and their slopes at most 1e12, so p may be 0 or 1.

    Args:
      input:      probabilities  float
      target:     of the shape of input  float
      weight:     a factor per element; broadcasts to input
      reduction:  "mean", "sum" or "none"

    Raises:
      ShapeError:    the shapes of target and input differ.
      DTypeError:    neither is a float.
      ArgumentError: an unknown reduction; when the result is computed: an element of input or target is outside [0, 1].

    >>> binary_cross_entropy(Tensor([0.5]), Tensor([1.0]))
    Tensor(0.6931472)
    """
    _check_equal("binary_cross_entropy", input, target)
    checked = probabilities("binary_cross_entropy", input.read(), "binary_cross_entropy_with_logits takes scores.")
    input = input.from_op(checked, input.cell.device)  # noqa: A001
    target = target.from_op(probabilities("binary_cross_entropy", target.read()), target.cell.device)
    losses = -(target * _bounded_log(input) + (1 - target) * _bounded_log(1 - input))
    return reduced("binary_cross_entropy", losses if weight is None else losses * weight, reduction)


def _bounded_log(p: Tensor) -> Tensor:
    """Returns max(log p, -100), with the slope 1 / max(p, 1e-12)."""
    slope = (p + (p.clamp(min=1e-12) - p).detach()).log()
    return slope + (p.log().clamp(min=-100.0) - slope).detach()


@widened
@of_tensors
def binary_cross_entropy_with_logits(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Returns -t log(s) - (1 - t) log(1 - s) with s = sigmoid(input) and t = target, without overflow.

    Args:
      input:       scores  float
      target:      of the shape of input  float
      weight:      a factor per element; broadcasts to input
      reduction:   "mean", "sum" or "none"
      pos_weight:  factor of t log(s); broadcasts to input

    Raises:
      ShapeError:    the shapes of target and input differ.
      DTypeError:    neither is a float.
      ArgumentError: an unknown reduction.

    >>> binary_cross_entropy_with_logits(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931472)
    """
    _check_equal("binary_cross_entropy_with_logits", input, target)
    if pos_weight is None:
        losses = -logsigmoid(-input) - input * target
    else:
        losses = (1 - target) * input - ((pos_weight - 1) * target + 1) * logsigmoid(input)
    return reduced("binary_cross_entropy_with_logits", losses if weight is None else losses * weight, reduction)


def _check_equal(function: str, input: Tensor, target: Tensor) -> None:  # noqa: A002
    check_pair(function, input, target, warn=False)
    if input.op.shape != target.op.shape:
        hint = "target.reshape(input.shape)" if static_numel(input.op.shape) == static_numel(target.op.shape) else None
        raise ShapeError(f"{function}: target {target.shape} must have the shape of input {input.shape}.", hint)


# ---- other likelihoods ----
@widened
@of_tensors
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:  # noqa: A002
    """Returns t (log t - input) with t = target: the Kullback-Leibler divergence of log-probabilities from probabilities.

    Args:
      input:       log-probabilities
      target:      probabilities or, with log_target, log-probabilities
      reduction:   "mean" over all elements, "batchmean" (sum / length of the first axis), "sum" or "none"
      log_target:  target has log-probabilities

    Raises:
      DTypeError:    neither input nor target is a float.
      ArgumentError: an unknown reduction.

    >>> kl_div(Tensor([[-1.0, -1.0]]), Tensor([[-1.0, 0.0]]), reduction="batchmean", log_target=True)
    Tensor(1.)
    """
    check_pair("kl_div", input, target, warn=False)
    check_reduction("kl_div", reduction, ("mean", "batchmean", "sum", "none"))
    if log_target:
        losses = target.exp() * (target - input)
    else:
        zero = target == 0
        held, steep = Tensor.choose(zero, 1.0, target), -Tensor.choose(zero, target, 1.0).sqrt()
        losses = Tensor.choose(zero, steep, held * held.log()) - target * input  # 0 log 0 is 0, with slope -inf
    if reduction == "batchmean":
        return losses.sum() / input.shape[0] if input.ndim else losses.sum()
    return reduced("kl_div", losses, reduction)


@widened
@of_tensors
def poisson_nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Returns rate - target * log(rate): the negative log-likelihood of counts, without log(target!).

    Args:
      input:      log(rate) or, without log_input, the rate
      target:     counts
      log_input:  input is log(rate)
      full:       add Stirling's target log(target) - target + log(2 pi target) / 2 for targets above 1
      eps:        added to the rate in log(rate)
      reduction:  "mean", "sum" or "none"

    Raises:
      DTypeError:    neither input nor target is a float.
      ArgumentError: an unknown reduction.

    >>> poisson_nll_loss(Tensor([0.0]), Tensor([3.0]))
    Tensor(1.)
    """
    check_pair("poisson_nll_loss", input, target, warn=False)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = target > 1
        t = Tensor.choose(large, target, 2.0)
        losses = losses + Tensor.choose(large, t * t.log() - t + (t * (2 * math.pi)).log() * 0.5, 0.0)
    return reduced("poisson_nll_loss", losses, reduction)


@widened
@of_tensors
def gaussian_nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Returns (log(var) + (input - target)^2 / var) / 2: the negative log-likelihood of normal distributions.

    Args:
      input:      means
      target:     observed numbers
      var:        variances: of the shape of input, or with the last axis missing or of length 1, or a number; values below
                  eps count as eps, except for the gradient
      full:       add log(2 pi) / 2
      eps:        lower bound of the variance
      reduction:  "mean", "sum" or "none"

    Raises:
      DTypeError:    neither input nor target is a float.
      ShapeError:    var has another shape.
      ArgumentError: var is negative (a tensor: when the result is computed), or an unknown reduction.

    >>> gaussian_nll_loss(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2.)
    """
    check_pair("gaussian_nll_loss", input, target, warn=False)
    if not isinstance(var, Tensor):
        if var < 0:
            raise ArgumentError(f"gaussian_nll_loss: var must not be negative, got {var}.")
        var = Tensor.full_like(input, var)
    else:
        var = var.from_op(not_negative("gaussian_nll_loss", "var", var.read()), var.cell.device)
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or [n for m, n in zip(input.shape, var.shape) if m != n] != [1]:
            raise ShapeError(f"gaussian_nll_loss: var {var.shape} does not fit input {input.shape}.")
    var = var + (var.clamp(min=eps) - var).detach()
    losses = (var.log() + (input - target).square() / var) * 0.5
    return reduced("gaussian_nll_loss", losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


@widened
@of_tensors
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
    """Returns log(1 + exp(-target * input)), target 1 or -1; `reduction`: "mean", "sum" or "none".

    Raises:
      DTypeError:    neither input nor target is a float.
      ArgumentError: an unknown reduction.

    >>> soft_margin_loss(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931472)
    """
    check_pair("soft_margin_loss", input, target, warn=False)
    return reduced("soft_margin_loss", -logsigmoid(target * input), reduction)


# ---- distances and angles ----
@widened
@of_tensors
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:  # noqa: A002
    """Returns input / max(norm, eps), with the norm of order `p` along axis `dim`.

    Raises:
      DTypeError: input is not a float.

    >>> normalize(Tensor([[3.0, 4.0]]))
    Tensor([[0.6, 0.8]])
    """
    need_float("normalize", input.op)
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


@widened
@of_tensors
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Returns x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along axis `dim`; shapes are broadcast.

    If squares overflow, beyond 1e19 in float32, the result is NaN; PyTorch's is 0.

    Raises:
      DTypeError: neither x1 nor x2 is a float.

    >>> cosine_similarity(Tensor([[1.0, 0.0]]), Tensor([[3.0, 4.0]]))
    Tensor([0.6])
    """
    for name, x in (("x1", x1), ("x2", x2)):
        need_float("cosine_similarity", x.op, name)
    shape = broadcast_shapes("cosine_similarity", x1.op.shape, x2.op.shape)
    parts = []
    for x in (x1, x2):
        whole = Tensor.from_op(broadcast_to(x.read(), shape), x.cell.device)
        norm = whole.norm(2.0, dim, keepdim=True)
        parts.append(whole / (norm + (norm.clamp(min=eps) - norm).detach()))  # as in PyTorch
    return (parts[0] * parts[1]).sum(dim)


@widened
@of_tensors
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Returns the norm of order `p` of x1 - x2 + eps along the last axis; shapes are broadcast.

    >>> pairwise_distance(Tensor([[1.0, 2.0]]), Tensor([[4.0, 6.0]]), eps=0.0)
    Tensor([5.])
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim)


@widened
def pdist(input: Tensor, p: float = 2.0) -> Tensor:  # noqa: A002
    """Returns the distances of order `p` between all pairs of rows i < j of input (N, D): (N (N - 1) / 2,).

    Raises:
      ShapeError: input does not have two axes.
      DTypeError: input is not a float.

    >>> pdist(Tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).round(4)
    Tensor([5.    , 1.    , 4.2426])
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist: input must be (N, D), got {input.shape}.")
    need_float("pdist", input.op)
    count, device = known("pdist", input.shape, 0), str(input.device)
    places = (_kept_pairs if count <= KEPT_PAIRS_ROWS_MAX else _pairs)(count, device)
    first, second = (input.index_select(0, Tensor.from_op(place, device)) for place in places)
    return (first - second).norm(p, -1)


KEPT_PAIRS_ROWS_MAX = 1024  # rows whose pairs are cached, 4 MB


def _pairs(count: int, device: str) -> list[Op]:
    """Returns the indices i and j of all pairs i < j."""
    return [Tensor(rows.astype(np.int32), device=device).read() for rows in np.triu_indices(count, 1)]


_kept_pairs = lru_cache(maxsize=4)(_pairs)


# ---- margins ----
@widened
@of_tensors
def hinge_embedding_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    margin: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Returns input if target is 1, max(0, margin - input) if it is -1; `reduction`: "mean", "sum" or "none".

    Raises:
      DTypeError:    neither input nor target is a float.
      ArgumentError: an unknown reduction.

    >>> hinge_embedding_loss(Tensor([0.5, 0.25]), Tensor([1.0, -1.0]), reduction="none")
    Tensor([0.5 , 0.75])
    """
    check_pair("hinge_embedding_loss", input, target, warn=False)
    far = Tensor.choose(target != 1, (margin - input).clamp(min=0.0), 0.0)
    return reduced("hinge_embedding_loss", far + Tensor.choose(target != -1, input, 0.0), reduction)


@widened
@of_tensors
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Returns max(0, margin - target * (input1 - input2)); target 1: input1 should be greater, -1: input2.

    `reduction`: "mean", "sum" or "none".

    Raises:
      ShapeError:    the inputs and target differ in their number of axes.
      ArgumentError: an unknown reduction.

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
@of_tensors
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Returns 1 - cos(input1, input2) if target is 1, max(0, cos - margin) if it is -1.

    Args:
      input1, input2:  (N, D) or (D,)
      target:          (N,) or ()
      margin:          in [-1, 1]
      reduction:       "mean", "sum" or "none"

    Raises:
      ShapeError:    the shape of target does not match the inputs.
      ArgumentError: an unknown reduction.

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


@widened
@of_tensors
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

    `eps` is added to each difference. `swap` uses |positive - negative| if that is smaller than the last norm (Balntas et
    al. 2016). `reduction`: "mean", "sum" or "none".

    Raises:
      ShapeError:    anchor, positive and negative have different numbers of axes.
      ArgumentError: margin is not positive, or an unknown reduction.

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

    By default d is pairwise_distance; `swap` and `reduction` are those of triplet_margin_loss.

    Raises:
      ShapeError:    anchor, positive and negative have different numbers of axes.
      ArgumentError: margin is not positive, or an unknown reduction.

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
    """Returns max(0, near - far + margin), from the distances of anchors to positives and to negatives."""
    anchor, positive, negative = triple
    check_positive(function, "margin", margin)
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"{function}: anchor {anchor.shape}, positive {positive.shape} and negative {negative.shape} must have as"
            " many axes."
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced(function, (near - far + margin).clamp(min=0.0), reduction)
