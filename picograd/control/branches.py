"""Control flow that depends on values: cond and while_loop, by PyTorch's names.

In:    a condition, functions of Tensors
Out:   the result of the branch, or of the last step
Next:  picograd/control/checkpoint.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd.control.structure import put, shown, take
from picograd.errors import ArgumentError, JitError, ShapeError
from picograd.tensor.cell import trace
from picograd.tensor.free_functions import where
from picograd.tensor.tensor import Tensor


def cond(
    pred: Tensor | bool,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """Returns true_fn(*operands) where `pred` holds, else false_fn(*operands).

    Of a Tensor both branches are computed and one result is chosen, so that it works inside jit and vmap, by one plan.
    The branch that is not chosen hands no gradient to the operands, also where its derivative is infinite; to a tensor that
    a function reads and that is no operand it hands 0 times its derivative.

    Args:
      pred:      a bool, which calls one function, or a Tensor of one bool
      true_fn:   a function that writes nothing in place
      false_fn:  one that returns Tensors in containers of the same form, shapes and dtypes
      operands:  arguments of both

    Raises:
      ArgumentError: pred is not one bool.
      ShapeError:    the branches return different forms.

    >>> cond(Tensor(3.0) > 2, lambda x: x + 1, lambda x: x - 1, (Tensor([1.0]),))
    Tensor([2.])
    """
    if isinstance(pred, bool):
        return (true_fn if pred else false_fn)(*operands)
    if not isinstance(pred, Tensor) or pred.numel() != 1 or pred.dtype.kind != "b":
        kind = f"a Tensor of {pred.dtype} of shape {pred.shape}" if isinstance(pred, Tensor) else type(pred).__name__
        raise ArgumentError(f"cond: pred must be a bool or a Tensor of one bool, got {kind}.", hint="x.sum() > 0")
    holds = pred.reshape(())
    given = [_open_where(is_chosen, operands) for is_chosen in (holds, ~holds)]
    taken, other = (take(function(*each), "result") for function, each in zip((true_fn, false_fn), given))
    kinds = [[(tensor.shape, tensor.dtype) for tensor in each.tensors] for each in (taken, other)]
    if taken.form != other.form or kinds[0] != kinds[1]:
        forms = (f"{shown(each.form)} of {kind}" for each, kind in zip((taken, other), kinds))
        raise ShapeError("cond: true_fn returns {}, false_fn {}.".format(*forms))
    chosen = [where(holds, yes, no) for yes, no in zip(taken.tensors, other.tensors)]
    return put(taken.container, chosen)


def _open_where(is_chosen: Tensor, operands: Sequence[Any]) -> Sequence[Any]:
    """Returns operands through which a gradient flows back only where a branch is chosen."""
    found = take(tuple(operands), "operand")
    gates = [where(is_chosen, each, each.detach()) if each.requires_grad else each for each in found.tensors]
    result: Sequence[Any] = put(found.container, gates)
    return result


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Calls body_fn on what it returned before, at first on carried_inputs, as long as cond_fn of the same holds.

    The condition is read on the host at each step, so this does not work inside jit; pg.scan is a loop that does.

    Args:
      cond_fn:         cond_fn(*carried) -> a bool, or a Tensor of one bool
      body_fn:         body_fn(*carried) -> the next ones, as many
      carried_inputs:  Tensors or numbers

    Returns:   the last ones, a tuple

    Raises:
      ArgumentError: body_fn does not return as many values as it takes.
      JitError:      inside jit.

    >>> while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (Tensor(0), Tensor(1.0)))
    (Tensor(3), Tensor(8.))
    """
    if trace.get() is not None:
        raise JitError(
            "while_loop: only a value tells how many steps there are, and nothing is computed inside jit.",
            hint="pg.scan(function, init, length=most), with pg.where for steps that are over.",
        )
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        after = body_fn(*carried)
        after = tuple(after) if isinstance(after, (tuple, list)) else (after,)
        if len(after) != len(carried):
            raise ArgumentError(f"while_loop: body_fn takes {len(carried)} values and returns {len(after)}.")
        carried = after
    return carried
