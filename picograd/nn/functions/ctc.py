"""Connectionist temporal classification: the likelihood of labels whose places in a sequence are not known.

In:    log-probabilities of classes at each step, and labels
Out:   a loss, or one for each sequence
Next:  picograd/nn/functions/placement.py

T steps, N sequences, C classes, S labels of a sequence at most, P = 2 S + 1 places: a blank before each label and one
behind the last. One `scan` runs over the steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd.control.flow import scan
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.nn.functions.losses import check_reduction
from picograd.nn.functions.precision import widened
from picograd.tensor.build import need_float
from picograd.tensor.tensor import Tensor

__all__ = ["ctc_loss"]

NEVER = -1e30  # logarithm of the probability of what cannot be: a number, so that sums of it have gradients


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
    """Returns -log of the probability of all ways to read `targets`, with blanks and repetitions between.

    Args:
      log_probs:       (T, N, C), or (T, C)  float: log_softmax of scores
      targets:         (N, S) padded, (S,), or all labels of all sequences in one axis  integers, none of them blank
      input_lengths:   (N,) steps of each sequence, at most T
      target_lengths:  (N,) labels of each sequence
      blank:           the class that says nothing
      reduction:       "mean" over sequences of the loss divided by the number of labels, "sum" or "none"
      zero_infinity:   0 in place of the infinite loss of labels that do not fit in the steps; the gradient is 0 anyway,
                       where PyTorch's is NaN without zero_infinity

    Raises:
      ShapeError:    the shapes do not fit each other.
      DTypeError:    log_probs is no float, or targets holds no integers.
      ArgumentError: blank is no class, or another reduction.
      IndexingError: when it is computed: a label is no class.

    Labels in one axis: target_lengths are computed, to know the longest.

    Source:    Graves et al. 2006, "Connectionist temporal classification", eq. 6 to 8.

    >>> log_probs = Tensor.zeros(2, 1, 2).log_softmax(-1)
    >>> ctc_loss(log_probs, Tensor([[1]]), [2], [1]).item()     # -log(3 / 4): of four ways only blank, blank is wrong
    0.2876820...
    """
    check_reduction("ctc_loss", reduction)
    _check(log_probs, targets, blank)
    probs_TNC = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    steps_N, labels_N = (_lengths(name, lengths, probs_TNC) for name, lengths in
                         (("input_lengths", input_lengths), ("target_lengths", target_lengths)))  # fmt: skip
    targets_NS = _padded(targets, labels_N, probs_TNC.shape[1])
    known_NS = Tensor.arange(targets_NS.shape[1], device=log_probs.device) < labels_N.unsqueeze(1)
    targets_NS = Tensor.choose(known_NS, targets_NS.long(), blank)
    losses_N = -_log_likelihood(probs_TNC, targets_NS, steps_N, labels_N, blank)
    impossible = losses_N > -NEVER / 2
    losses_N = Tensor.choose(impossible, 0.0 if zero_infinity else math.inf, losses_N)
    if reduction == "mean":
        return (losses_N / labels_N.clamp(min=1).to(losses_N.dtype)).mean()
    if reduction == "sum":
        return losses_N.sum()
    return losses_N if log_probs.ndim == 3 else losses_N[0]


def _log_likelihood(
    probs_TNC: Tensor, targets_NS: Tensor, steps_N: Tensor, labels_N: Tensor, blank: int
) -> Tensor:
    """Returns the logarithm of the probability of each row of labels, (N,); NEVER or less where it is 0."""
    count, batch = targets_NS.shape[1], targets_NS.shape[0]
    blanks = Tensor.full((batch, count, 1), blank, dtype=targets_NS.dtype, device=targets_NS.device)
    pairs = Tensor.cat([blanks, targets_NS.unsqueeze(2)], 2).flatten(1)
    classes_NP = Tensor.cat([pairs, blanks[:, :1, 0] if count else _one_blank(targets_NS, blank)], 1)
    emitted_TNP = probs_TNC.gather(2, classes_NP.unsqueeze(0).expand(probs_TNC.shape[0], -1, -1))
    places = Tensor.arange(2 * count + 1, device=targets_NS.device)
    # A label may follow another one at once, but not the same one.
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
    ends = [2 * labels_N, (2 * labels_N - 1).clamp(min=0)]  # the blank behind the last label, and that label
    final, label = (last_NP.gather(1, end.unsqueeze(1)).squeeze(1) for end in ends)
    label = Tensor.choose(labels_N > 0, label, NEVER)
    return Tensor.choose(steps_N > 0, Tensor.stack([final, label]).logsumexp(0), NEVER)


def _one_blank(targets_NS: Tensor, blank: int) -> Tensor:
    return Tensor.full((targets_NS.shape[0], 1), blank, dtype=targets_NS.dtype, device=targets_NS.device)


def _check(log_probs: Tensor, targets: Tensor, blank: int) -> None:
    if log_probs.ndim not in (2, 3) or not log_probs.shape[0]:
        raise ShapeError(f"ctc_loss: log_probs must be (T, N, C) or (T, C) with a step at least, got {log_probs.shape}.")
    need_float("ctc_loss", log_probs.op, "log_probs")
    if not targets.dtype.is_int:
        raise DTypeError(f"ctc_loss: targets must be integers, got {targets.dtype} of shape {targets.shape}.")
    if not 0 <= blank < log_probs.shape[-1]:
        raise ArgumentError(f"ctc_loss: blank must be one of the {log_probs.shape[-1]} classes, got {blank}.")


def _lengths(name: str, lengths: Tensor | Sequence[int], probs_TNC: Tensor) -> Tensor:
    """Returns lengths as (N,) int64."""
    batch = probs_TNC.shape[1]
    values = lengths.long() if isinstance(lengths, Tensor) else Tensor(list(lengths), device=probs_TNC.device).long()
    values = values if values.ndim else values.unsqueeze(0)
    if values.shape != (batch,):
        raise ShapeError(f"ctc_loss: {name} must be ({batch},), got {values.shape}.")
    return values


def _padded(targets: Tensor, labels_N: Tensor, batch: int) -> Tensor:
    """Returns targets as (N, S)."""
    if targets.ndim == 2:
        if targets.shape[0] != batch:
            raise ShapeError(f"ctc_loss: targets {targets.shape} must have a row for each of {batch} sequences.")
        return targets
    if targets.ndim != 1:
        raise ShapeError(f"ctc_loss: targets must be (N, S) or have one axis, got {targets.shape}.")
    counts = [int(count) for count in labels_N.tolist()]
    if sum(counts) > targets.shape[0]:
        raise ShapeError(f"ctc_loss: targets {targets.shape} are fewer than the {sum(counts)} of target_lengths.")
    rows, start = [], 0
    for count in counts:
        rows.append(targets[start : start + count].pad((0, max(counts) - count)))
        start += count
    return Tensor.stack(rows)
