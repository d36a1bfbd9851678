"""Gradients of tensors: backward(), grad(), jvp(), and where they are not recorded.

In:    tensors whose graphs reach leaves
Out:   `Autograd`, `grad`, `jvp`, `no_grad`, `enable_grad`
Next:  picograd/tensor/compute.py

A gradient is a graph like any other: nothing is computed until someone reads it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, ParamSpec, TypeVar

from picograd.autodiff.gradient import gradient as reverse_gradient
from picograd.autodiff.jvp import jvp as forward_gradient
from picograd.errors import GradientError, ShapeError
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, grad_mode
from picograd.tensor.compute import gradients_of
from picograd.tensor.core import TensorCore, leaf_tensors
from picograd.tensor.growth import expect

P = ParamSpec("P")
R = TypeVar("R")

stale_leaves: weakref.WeakSet[Op] = weakref.WeakSet()  # results whose graph a step() dropped; see nn/readers.py


class Autograd(TensorCore):
    """backward()."""

    __slots__ = ()

    def backward(self, gradient: TensorCore | None = None, create_graph: bool = False) -> None:
        """Adds the gradient of this scalar to `.grad` of every leaf it depends on; computes nothing yet.

        Args:
          gradient:      (the shape of self) weight of each element; needed unless self is a scalar
          create_graph:  the gradients can be differentiated themselves

        Raises:
          GradientError: no leaf requires grad, or self is no scalar and `gradient` is not given.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad.item()
        6.0
        """
        root = self.op
        if not root.needs_grad:
            raise GradientError(
                f"backward: {_shown(root)} depends on no tensor that requires grad.",
                hint="Tensor(data, requires_grad=True)",
            )
        seed = _seed("backward", self, gradient, hint="loss.mean().backward()")
        leaves = _leaves(root)
        grads = _gradients(root, seed, leaves)
        made: list[weakref.ref[Cell]] = []
        for leaf in leaves:
            tensor = leaf_tensors.get(leaf.arg)
            if tensor is not None:
                found = grads.get(leaf, filled(0, leaf.dtype, leaf.shape))  # floor and the like are flat
                cell = _accumulate(tensor, found if create_graph else detached(found))
                made.append(weakref.ref(cell))
        gradients_of[self.cell] = made


def _accumulate(tensor: TensorCore, grad: Op) -> Cell:
    if tensor.grad is None:
        tensor.grad = type(tensor).from_op(grad, tensor.cell.device, settles=False)
        expect(tensor.grad.cell)
    else:
        tensor.grad.write("backward", tensor.grad.read() + grad)
    return tensor.grad.cell


def _seed(function: str, root: TensorCore, weight: TensorCore | None, hint: str) -> Op:
    if weight is None:
        if root.numel() != 1:
            raise GradientError(f"{function}: the loss must be a scalar, got shape {root.shape}.", hint=hint)
        return filled(1, root.dtype, root.op.shape)
    if weight.shape != root.shape:
        raise ShapeError(f"{function}: gradient has shape {weight.shape}, the result it belongs to {root.shape}.")
    op = weight.read()
    return op if op.dtype is root.dtype else Op(OpCode.CAST, root.dtype, (op,))


def _leaves(root: Op) -> list[Op]:
    """Returns the LEAFs that gradients reach from `root`, each once.

    Raises:
      GradientError: one of them stands for a value whose graph is gone.
    """
    found: list[Op] = []
    seen = {root}
    stack = [root]
    while stack:
        op = stack.pop()
        if op.code is OpCode.LEAF:
            found.append(op)
            if op in stale_leaves:
                raise GradientError(
                    f"backward: a result of shape {op.shape} was computed before optimizer.step() replaced the"
                    " parameters it depends on.",
                    hint="call backward() before step(), or compute the result again.",
                )
        for source in op.src:
            if source.needs_grad and source not in seen:
                seen.add(source)
                stack.append(source)
    return found


def _gradients(root: Op, seed: Op, leaves: Sequence[Op]) -> dict[Op, Op]:
    return reverse_gradient(root, seed, leaves)


def grad(
    outputs: TensorCore,
    inputs: Sequence[TensorCore],
    grad_outputs: TensorCore | None = None,
    create_graph: bool = False,
) -> tuple[Any, ...]:
    """Returns the gradient of `outputs` by each of `inputs`, and touches no `.grad`.

    Args:
      outputs:       a scalar, or with grad_outputs any shape
      inputs:        leaves, or results on which retain_grad() was called before they were used
      grad_outputs:  (the shape of outputs) weights
      create_graph:  the gradients can be differentiated themselves

    Returns:   a tensor of the shape of each input, None where the outputs do not depend on it

    Raises:
      GradientError: outputs is no scalar, or an input is no leaf.

    >>> x = Tensor(2.0, requires_grad=True)
    >>> (first,) = grad(x**3, [x], create_graph=True)
    >>> grad(first, [x])[0].item()
    12.0
    """
    for tensor in inputs:
        if tensor.op.code is not OpCode.LEAF:
            raise GradientError(
                f"grad: an input of shape {tensor.shape} is no leaf.",
                hint="requires_grad_() or retain_grad() it first.",
            )
    seed = _seed("grad", outputs, grad_outputs, hint="grad(loss.mean(), inputs)")
    leaves = [tensor.op for tensor in inputs]
    grads = _gradients(outputs.op, seed, leaves) if outputs.op.needs_grad else {}
    results: list[Any] = []
    for tensor, leaf in zip(inputs, leaves):
        op = grads.get(leaf)
        kept = None if op is None else (op if create_graph else detached(op))
        results.append(None if kept is None else type(tensor).from_op(kept, tensor.cell.device))
    return tuple(results)


def jvp(outputs: TensorCore, inputs: Sequence[TensorCore], tangents: Sequence[TensorCore]) -> Any:
    """Returns the derivative of `outputs` when each input moves along its tangent: forward mode.

    J v, with J the derivatives of outputs by inputs and v the tangents.

    Args:
      outputs:   any shape
      inputs:    leaves
      tangents:  for each input a tensor of its shape

    Returns:   a tensor of the shape of outputs

    Raises:
      GradientError: an input is no leaf.
      ShapeError:    a tangent has not its input's shape.

    >>> x = Tensor([2.0, 3.0], requires_grad=True)
    >>> jvp(x * x, [x], [Tensor([1.0, 0.0])])
    Tensor([4., 0.], requires_grad=True)
    """
    moves: dict[Op, Op] = {}
    for tensor, tangent in zip(inputs, tangents, strict=True):
        if tensor.op.code is not OpCode.LEAF:
            raise GradientError(f"jvp: an input of shape {tensor.shape} is no leaf.", hint="requires_grad_() it first.")
        if tangent.shape != tensor.shape:
            raise ShapeError(f"jvp: a tangent of shape {tangent.shape} does not fit an input of shape {tensor.shape}.")
        moves[tensor.op] = tangent.read()
    (moved,) = forward_gradient([outputs.op], moves)
    moved = filled(0, outputs.dtype, outputs.op.shape) if moved is None else moved
    return type(outputs).from_op(moved, outputs.cell.device)


def _shown(op: Op) -> str:
    return f"a {op.dtype} of shape {op.shape}"


# ---- modes ----
class GradMode:
    """Turns the recording of gradients on or off, as a `with` block or as a decorator."""

    def __init__(self, record: bool):
        self.record = record
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        self._tokens.append(grad_mode.set(self.record))

    def __exit__(self, *error: object) -> None:
        grad_mode.reset(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with GradMode(self.record):
                return function(*args, **kwargs)

        return wrapped


def no_grad() -> GradMode:
    """Returns a context, or decorator, in which results need no gradients and leaves can be changed in place.

    >>> x = Tensor(1.0, requires_grad=True)
    >>> with no_grad():
    ...     (x * 2).requires_grad
    False
    """
    return GradMode(False)


def enable_grad() -> GradMode:
    """Returns a context, or decorator, in which gradients are recorded again inside no_grad().

    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """
    return GradMode(True)


def is_grad_enabled() -> bool:
    """Returns True where gradients are recorded.

    >>> is_grad_enabled()
    True
    """
    return grad_mode.get()
