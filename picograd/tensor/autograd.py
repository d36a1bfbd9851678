"""Gradients that leaves collect: `.grad`, backward(), hooks.

In:    tensors whose graphs reach leaves
Out:   `Autograd`, `backward`
Next:  picograd/tensor/stored_data.py

A gradient is a graph like any other: nothing is computed until someone reads it. So a graph is never used up, and
`retain_graph`, which says that it shall not be, is taken for the sake of PyTorch's programs and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from picograd.errors import GradientError
from picograd.ir.lines import line_of
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.anomaly import Anomaly
from picograd.tensor.arguments import listed
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, trace
from picograd.tensor.change import last_change
from picograd.tensor.collected import UsedUp
from picograd.tensor.compute import compute_first, compute_together, look_at_gradients
from picograd.tensor.core import T, TensorCore, leaf_tensors
from picograd.tensor.gradient_flow import (
    Several,
    check_graphs,
    gradients_at,
    gradients_for_later,
    leaf_inputs,
    leaves_among,
    reached,
    seeds_of,
    weights_of,
)
from picograd.tensor.growth import expect
from picograd.tensor.hooks import LeafNumber, RemovableHandle, add_after_hook, add_hook

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


REDUCTIONS = {OpCode.ADD: "sum", OpCode.MUL: "prod"}


class GradFn:
    """The operation that made a result, as gradients see it: two of one operation are equal.

    next_functions:  those that made its operands, each with a 0, as PyTorch has them
    """

    __slots__ = ("_op",)

    def __init__(self, op: Op):
        self._op = op

    def name(self) -> str:
        """Returns the name of the operation: "MulBackward".

        >>> (Tensor([1.0], requires_grad=True) * 2).grad_fn.name()
        'MulBackward'
        """
        op = self._op.src[0] if self._op.code is OpCode.OUTPUT else self._op
        if op.code is OpCode.FORMULA:
            written = op.arg.name.strip("_").removesuffix("_op")
        elif op.code in (OpCode.REDUCE, OpCode.SCAN):
            written = ("cum" if op.code is OpCode.SCAN else "") + REDUCTIONS.get(op.arg[0], op.arg[0].name.lower())
        else:
            written = op.code.name
        return "".join([part.capitalize() for part in written.split("_")]) + "Backward"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        return tuple([(GradFn(source) if source.needs_grad else None, 0) for source in self._op.src])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other._op is self._op

    def __hash__(self) -> int:
        return hash(self._op)

    def __repr__(self) -> str:
        line = line_of(self._op)
        return f"<{self.name()}>" if line is None else f"<{self.name()} at {os.path.basename(line.file)}:{line.number}>"


def register_hook(self: T, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Lets a function see, and replace, the gradient of this tensor whenever backward() or grad() finds it.

    A result must be given its hooks before it is used. The function gets the gradient as a graph; nothing is computed
    unless it reads it.

    Args:
      hook: gradient -> another one of its shape and dtype, or None to leave it as it is

    Returns:   a handle whose remove() takes the function away again

    Raises:
      GradientError: no gradient flows here.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 10)
    >>> (x * x).backward()
    >>> x.grad.item()
    60.0
    """
    if not self.op.needs_grad:
        raise GradientError(f"register_hook: a tensor of shape {self.shape} that needs no grad has none to hook into.")
    if not self._has_leaf_of_its_own():
        self._become_leaf(collects=False)
    return add_hook(self.op.arg, hook)


def register_post_accumulate_grad_hook(self: T, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Lets a function see this leaf whenever backward() has added to its `.grad`.

    Args:
      hook: a function of the tensor; it may use up the gradient and set it to None

    Returns:   a handle whose remove() takes the function away again

    Raises:
      GradientError: the tensor is no leaf that requires grad.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad.item()))
    >>> (x * x).backward()
    6.0
    """
    if not (self.is_leaf and self.op.needs_grad):
        raise GradientError(
            f"register_post_accumulate_grad_hook: a tensor of shape {self.shape} is not a leaf that requires grad.",
            hint="register_hook(hook) sees the gradient of any tensor.",
        )
    return add_after_hook(self.op.arg, hook)


# ---- what a tensor is to gradients ----
def made_by(self: Tensor) -> GradFn | None:
    """Returns the operation that made a tensor, where gradients flow through that; None for a leaf."""
    op = self.op
    while op.code is OpCode.LEAF and op.needs_grad and op.src[0].needs_grad:  # of retain_grad() or a hook
        op = op.src[0]
    return None if self.is_leaf else GradFn(op)


def retains_grad(self: Tensor) -> bool:
    """True for a result whose gradient backward() collects, since retain_grad() was called."""
    op = self.op
    return op.code is OpCode.LEAF and op.src[0].needs_grad and isinstance(op.arg, LeafNumber) and op.arg.collects


def detach_(self: T) -> T:
    """Lets no gradient flow here any more; returns self.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> y = (x * 2).detach_()
    >>> y.requires_grad, y.is_leaf
    (False, True)
    """
    last_change.note()
    self.steps, self._shown = self.detach().steps, None
    return self


def backward(
    tensors: Several,
    grad_tensors: Several | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Several | None = None,
) -> None:
    """Adds the gradients of several tensors to `.grad` of every leaf they depend on; computes nothing yet.

    Args:
      tensors:       scalars, or with grad_tensors of any shape
      grad_tensors:  for each of them its weights, or None for a scalar
      retain_graph:  changes nothing: backward() can always be called again
      create_graph:  the gradients can be differentiated themselves
      inputs:        the only leaves whose `.grad` changes; None: all of them

    Raises:
      GradientError: a tensor depends on no leaf that requires grad, one without weights is no scalar, or an input is no
                     leaf.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> backward([x * x, x * 2])
    >>> x.grad.item()
    8.0
    """
    roots = listed(tensors)
    for tensor in roots:
        if not tensor.op.needs_grad:
            check_graphs("backward", roots)
            raise GradientError(
                f"backward: a {tensor.op.dtype} of shape {tensor.op.shape} depends on no tensor that requires grad.",
                hint="give what it is made of requires_grad=True, and make it outside of no_grad and without detach.",
            )
    seeds = seeds_of("backward", roots, weights_of("backward", roots, grad_tensors), hint="loss.mean().backward()")
    on_the_way = reached(list(seeds))
    leaves = leaves_among(on_the_way)
    if inputs is not None:
        chosen = leaf_inputs("backward", inputs)
        leaves = [leaf for leaf in leaves if leaf in chosen]
    at_once = create_graph or Anomaly.is_on
    grads = gradients_at(seeds, leaves) if at_once else gradients_for_later(seeds, leaves, on_the_way)
    together = [tensor.cell for tensor in roots if not tensor.op.shape]
    for leaf in leaves:
        owner = leaf_tensors.get(leaf.arg)
        if owner is not None and leaf.arg.collects:
            found = grads[leaf] if leaf in grads else leaf.filled(0)  # floor and the like are flat
            together.append(_accumulate(owner, found if create_graph else detached(found)))
            for hook in list(leaf.arg.after.values()):
                hook(owner)
    compute_together(together, [tensor.cell for tensor in roots])
    if Anomaly.is_on and trace.get() is None:
        look_at_gradients(seeds, grads.values())
    if trace.get() is None:
        compute_first(leaf.src[0] for leaf in leaves if leaf.arg.collects and not leaf.src[0].needs_grad)


def _accumulate(tensor: TensorCore, grad: Op) -> Cell:
    if isinstance(tensor._grad, UsedUp):
        raise tensor._grad.error()
    if tensor._grad is None:
        tensor._grad = type(tensor).from_op(grad, tensor.cell.device, settles=False)
        expect(tensor._grad.cell)
    else:
        tensor._grad.write("backward", tensor._grad.read() + grad)
    return tensor._grad.cell
