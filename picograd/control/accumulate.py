"""The gradient of a large batch from small ones, one after the other in one LOOP.

In:    a loss function, and small batches stacked along a first axis
Out:   gradients in `.grad`, and the mean loss
Next:  picograd/control/scan.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.control.closure import name_of
from picograd.control.scan import Scan
from picograd.control.structure import take
from picograd.errors import ArgumentError, GradientError
from picograd.tensor.tensor import Tensor


def accumulate(loss_function: Callable[..., Tensor], *batches: Any) -> Tensor:
    """Adds the gradient of the mean loss over small batches to `.grad`, with the memory of one small batch.

    loss = mean over t of loss_function(*(batch[t] for batch in batches));  .grad += d loss

    Args:
      loss_function:  of one small batch; returns a scalar
      batches:        Tensors, or lists, tuples, dicts and dataclasses of them, each (steps, ...)

    Returns:   the mean loss, a scalar without gradient

    Raises:
      ArgumentError: there are no steps, or the lengths differ.
      GradientError: the loss is no scalar, or depends on no tensor that requires grad.

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> accumulate(lambda x: (w * x).sum(), Tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor(5.)
    >>> w.grad
    Tensor([2., 3.])
    """
    taken = take(batches, name_of(loss_function))
    if not taken.tensors or not taken.tensors[0].shape or taken.tensors[0].shape[0] == 0:
        raise ArgumentError("accumulate: needs small batches stacked along a first axis, at least one.")
    count = taken.tensors[0].shape[0]

    def step(carry: None, parts: Any) -> tuple[None, Tensor]:
        loss = loss_function(*parts)
        if not isinstance(loss, Tensor):
            raise GradientError(
                f"accumulate: {name_of(loss_function)} must return its loss, a scalar Tensor, got {type(loss).__name__}."
            )
        (loss / count).backward()
        return None, loss.detach()

    _, losses = Scan("accumulate", step, take(None, "carry"), taken).run(count, reverse=False)
    return losses.mean()  # type: ignore[no-any-return]
