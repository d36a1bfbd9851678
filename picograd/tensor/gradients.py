"""Gradients that are returned, and touch no `.grad`: in reverse, and forward along tangents.

In:    results, and the tensors that they are differentiated by
Out:   `grad`, `jvp`
Next:  picograd/tensor/gradient_flow.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from picograd.autodiff.gradient import jvp as forward_gradient
from picograd.autodiff.gradient import written_out
from picograd.errors import ArgumentError, GradientError, ShapeError
from picograd.ir.op import Buffer, Op, filled, greatest_numel
from picograd.ir.opcode import OpCode
from picograd.rewrites.vmap import Examples, for_all
from picograd.tensor.anomaly import Anomaly
from picograd.tensor.arguments import listed
from picograd.tensor.build import cast, detached
from picograd.tensor.cell import trace
from picograd.tensor.compute import compute_together, look_at_gradients
from picograd.tensor.core import TensorCore
from picograd.tensor.gradient_flow import Several, gradients_at, leaf_inputs, reached, seeds_of, weights_of

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


def grad(
    outputs: Several,
    inputs: Several,
    grad_outputs: Several | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Returns the gradient of `outputs` by each of `inputs`, and touches no `.grad`.

    A result is known by its graph: two results of one computation on the same operands are one input. A reshaped or
    permuted tensor that is also used in another form needs a retain_grad() before it is used.

    Args:
      outputs:            scalars, or with grad_outputs any shapes; the gradient is that of their sum
      inputs:             leaves, or results on the way to the outputs
      grad_outputs:       for each output a tensor of its shape, its weights
      retain_graph:       changes nothing: a graph is never used up
      create_graph:       the gradients can be differentiated themselves
      only_inputs:        True: no `.grad` is touched, here as in PyTorch the only way
      allow_unused:       None is the gradient of an input that the outputs do not depend on, not an error
      is_grads_batched:   grad_outputs have an axis more in front, and so have the gradients: one for each row of weights
      materialize_grads:  zeros are the gradient of such an input

    Returns:   a tensor of the shape of each input

    Raises:
      GradientError: an output has no weights and is no scalar, an input needs no gradient, or the outputs do not depend
                     on it.
      ShapeError:    weights have another shape than their output.
      ArgumentError: the number of weights is not that of the outputs, only_inputs=False, or allow_unused=False beside
                     materialize_grads.

    >>> x = Tensor(2.0, requires_grad=True)
    >>> (first,) = grad(x**3, x, create_graph=True)
    >>> grad(first, [x])[0].item()
    12.0
    """
    if materialize_grads and allow_unused is False:
        raise ArgumentError("grad: materialize_grads=True makes zeros for unused inputs, which allow_unused=False forbids.")
    if not only_inputs:
        raise ArgumentError("grad: only_inputs must be True.", hint="backward() adds to the `.grad` of every leaf.")
    roots, given = listed(outputs), listed(inputs)
    leaves = _inputs_on_the_way(roots, given)
    found = _with_zeros(_asked(roots, leaves, grad_outputs, is_grads_batched), roots, leaves, materialize_grads)
    unused = [leaf for leaf in leaves if leaf not in found]
    if unused and not allow_unused:
        raise GradientError(
            f"grad: the outputs do not depend on an input of shape {unused[0].shape}.",
            hint="allow_unused=True gives None for it, materialize_grads=True zeros.",
        )
    results: list[Any] = []
    for tensor, leaf in zip(given, leaves):
        op = found.get(leaf)
        kept = op if op is None or create_graph else detached(op)
        results.append(None if kept is None else type(tensor).from_op(kept, tensor.cell.device))
    compute_together(result.cell for result in results if result is not None)
    if Anomaly.is_on and trace.get() is None:
        look_at_gradients([root.op for root in roots], [op for op in found.values() if op is not None])
    return tuple(results)


def _inputs_on_the_way(roots: Sequence[TensorCore], inputs: Sequence[TensorCore]) -> list[Op]:
    """Returns the Ops of inputs of grad(), each of which must stand for one tensor.

    Two reshapes become one when they are built, and so do two orders of axes: what was made of such a result may lead
    past its Op. So nothing else but it may use what it shows.
    """
    ops = [tensor.op for tensor in inputs]
    moved = {op for op in ops if op.code in (OpCode.RESHAPE, OpCode.PERMUTE)}
    on_the_way = reached([tensor.op for tensor in roots if tensor.op.needs_grad]) if moved else []
    shown = {op.src[0]: op for op in moved}
    unclear = {shown[source] for op in on_the_way if op not in moved for source in op.src if source in shown}
    unclear |= {op for op in moved if shown[op.src[0]] is not op or any(op.src[0] is root.op for root in roots)}
    for tensor, op in zip(inputs, ops):
        if not op.needs_grad:
            raise GradientError(
                f"grad: an input of shape {tensor.shape} needs no gradient.", hint="requires_grad_() before it is used."
            )
        if op in unclear:
            raise GradientError(
                f"grad: an input of shape {tensor.shape} shows a tensor that is also used in another form.",
                hint="retain_grad() before it is used.",
            )
    return ops


def _asked(roots: Sequence[TensorCore], leaves: Sequence[Op], weights: Any, is_batched: bool) -> dict[Op, Op]:
    """Returns the gradients of leaves, for each row of the weights where they are batched."""
    given = weights_of("grad", roots, weights)
    if is_batched:
        return _asked_by_rows(roots, leaves, given)
    return _where_needed(seeds_of("grad", roots, given, hint="grad(loss.mean(), inputs)"), leaves)


def _asked_by_rows(roots: Sequence[TensorCore], leaves: Sequence[Op], weights: Sequence[TensorCore | None]) -> dict[Op, Op]:
    """Returns the gradients of leaves for each row of the weights: one graph over a stand-in for a row, for all of them."""
    rows: dict[Op, Op] = {}
    seeds: dict[Op, Op] = {}
    for root, weight in zip(roots, weights):
        if weight is None or not weight.shape or weight.shape[1:] != root.shape:
            shown = None if weight is None else weight.shape
            raise ShapeError(f"grad: weights of shape {shown} are no rows of {root.shape}, the shape of the output.")
        stand = Op(OpCode.BUFFER, root.dtype, (), (Buffer(root.device, root.dtype, greatest_numel(root.shape)), root.shape))
        rows[stand] = cast(weight.read(), root.dtype)
        seeds[root.op] = seeds[root.op] + stand if root.op in seeds else stand
    counts = {row.shape[0] for row in rows.values()}
    if len(counts) != 1:
        raise ShapeError(f"grad: weights have different numbers of rows: {', '.join(map(str, counts))}.")
    found = _where_needed(seeds, leaves)
    examples = Examples(counts.pop())
    every = for_all(list(found.values()), examples, rows)
    return {leaf: operand.each(examples) for leaf, operand in zip(found, every)}


def _where_needed(seeds: Mapping[Op, Op], leaves: Sequence[Op]) -> dict[Op, Op]:
    return gradients_at({op: seed for op, seed in seeds.items() if op.needs_grad}, leaves)


def _with_zeros(found: dict[Op, Op], roots: Sequence[TensorCore], leaves: Sequence[Op], everywhere: bool) -> dict[Op, Op]:
    """Returns gradients, with zeros where only flat functions, such as floor, lead to a leaf; or `everywhere` else."""
    missing = [leaf for leaf in leaves if leaf not in found]
    if missing and not everywhere:
        flat = set(reached([tensor.op for tensor in roots if tensor.op.needs_grad]))
        missing = [leaf for leaf in missing if leaf in flat]
    return found | {leaf: leaf.filled(0) for leaf in missing}


def jvp(outputs: Tensor, inputs: Several, tangents: Several) -> Any:
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
      ArgumentError: there are not as many tangents as inputs.

    >>> x = Tensor([2.0, 3.0], requires_grad=True)
    >>> jvp(x * x, [x], [Tensor([1.0, 0.0])])
    Tensor([4., 0.], requires_grad=True)
    """
    given, moved_along = listed(inputs), listed(tangents)
    if len(given) != len(moved_along):
        raise ArgumentError(f"jvp: {len(moved_along)} tangents were given for {len(given)} inputs.")
    moves: dict[Op, Op] = {}
    for tensor, tangent, leaf in zip(given, moved_along, leaf_inputs("jvp", given)):
        if tangent.shape != tensor.shape:
            raise ShapeError(f"jvp: a tangent of shape {tangent.shape} does not fit an input of shape {tensor.shape}.")
        moves[leaf] = cast(tangent.read(), tensor.dtype)
    root, *every = written_out([outputs.op, *moves, *moves.values()])
    (moved,) = forward_gradient([root], dict(zip(every[: len(moves)], every[len(moves) :])))
    moved = filled(0, outputs.dtype, outputs.op.shape) if moved is None else moved
    return type(outputs).from_op(moved, outputs.cell.device)
