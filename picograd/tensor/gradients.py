"""Gradients: returned by grad and jvp, or accumulated in `.grad` by backward().

A gradient is a lazy graph, computed when it is read. Graphs are never freed by backward(), so `retain_graph` is accepted
for PyTorch's programs and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Union

from picograd.annotations import shown
from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import built, gradients_later, is_wanted, reached, written_out
from picograd.autodiff.gradient import jvp as forward_gradient
from picograd.autodiff.modes import arriving, reverse, varying
from picograd.errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError, GradientError, JitError, ShapeError
from picograd.interrupts import LivingSet
from picograd.ir.bodies import formula_results
from picograd.ir.build import cast
from picograd.ir.op import Buffer, Op, filled, greatest_numel, memory_op, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.origin import graphless_in, line_of
from picograd.rewrites.vmap import for_rows
from picograd.tensor.anomaly import Anomaly
from picograd.tensor.arguments import listed
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, grad_mode, last_change, read_through, trace
from picograd.tensor.compute import compute_together, expect, look_at_gradients
from picograd.tensor.core import T, TensorCore
from picograd.tensor.first_values import compute_first
from picograd.tensor.hooks import LeafNumber, RemovableHandle, add_after_hook, add_hook, hooks_among, hooks_of
from picograd.tensor.modes import Mode
from picograd.tensor.unasked import leaf_tensors, take_prepared, wait_for

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

__all__ = [
    "detach_",
]  # fmt: skip


# ---- gradients that are kept ----
class UsedUp:
    """Placeholder of a gradient that a jitted function made and consumed; it was never stored.

    function:    its name
    leaf:        the user's expression for the tensor
    is_of_steps: the gradient is from the last of several steps
    """

    def __init__(self, function: str, leaf: str, is_of_steps: bool = False):
        self.function, self.leaf, self.is_of_steps = function, leaf, is_of_steps

    def error(self) -> JitError:
        """Returns the error for a reader of the gradient."""
        why = "makes several steps at a time" if self.is_of_steps else f"writes to {self.leaf} after backward()"
        return JitError(
            f"jit: the gradient of {self.leaf} was used up in {self.function}, which {why}.",
            f"return it from {self.function}; or call zero_grad() before the next backward().",
        )


def read_grad(tensor: Tensor) -> Any:
    """Returns the gradient of a tensor; a trace records the read."""
    active = trace.get()
    if active is not None:
        active.on_look(tensor)
    grad: Any = tensor._grad
    if type(grad) is UsedUp:
        raise grad.error()
    return grad


def store_grad(tensor: Tensor, value: Any) -> None:
    """Stores `value` as the gradient of a tensor.

    Raises:
      ArgumentTypeError: it is neither a tensor nor None.
      ArgumentError:     it is the tensor itself.
      ShapeError:        its shape differs.
      DTypeError:        its dtype differs.
      DeviceError:       it is on a different device.
    """
    if value is not None:
        if not isinstance(value, TensorCore):
            raise ArgumentTypeError(f"grad: must be a tensor or None, got {shown(value)}.")
        if value is tensor:
            raise ArgumentError("grad: a tensor cannot be its own gradient.", hint="x.grad = x.detach().clone()")
        if value.op.shape != tensor.op.shape:
            raise ShapeError(f"grad: a gradient of shape {value.shape} does not fit a tensor of shape {tensor.shape}.")
        if value.dtype is not tensor.dtype:
            raise DTypeError(f"grad: a gradient of {value.dtype} does not fit a tensor of {tensor.dtype}.")
        if value.device != tensor.device:
            raise DeviceError(f"grad: a gradient on {value.device} does not fit a tensor on {tensor.device}.")
    active = trace.get()
    if active is not None:
        active.on_forget(tensor)
    tensor._grad = value


def zero_grads(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Drops the gradients of tensors; set_to_none=False sets them to 0 instead."""
    active = trace.get()
    for tensor in tensors:
        if set_to_none:
            if active is not None:
                active.on_forget(tensor)
            tensor._grad = None
        elif isinstance(tensor._grad, UsedUp):
            tensor._grad = type(tensor).from_op(tensor.op.filled(0), tensor.cell.device)
        elif (grad := read_grad(tensor)) is not None:
            grad.write("zero_grad", grad.op.filled(0))


# ---- from results to leaves ----
stale_leaves: LivingSet[Op] = LivingSet()  # results whose graph a step() dropped; see optim/updates.py
Several = Union["Tensor", Sequence["Tensor"]]  # noqa: UP007  # Tensor is made of these functions, after them


# ---- arguments ----
def weights_of(function: str, roots: Sequence[TensorCore], given: Any) -> list[TensorCore | None]:
    """Returns the weights of each root, None for roots without weights."""
    if given is None:
        return [None] * len(roots)
    weights = [given] if isinstance(given, TensorCore) else list(given)
    if len(weights) != len(roots):
        raise ArgumentError(f"{function}: {len(weights)} gradients were given for {len(roots)} tensors.")
    return weights


def seeds_of(function: str, roots: Sequence[TensorCore], weights: Sequence[TensorCore | None], hint: str) -> dict[Op, Op]:
    """Returns the incoming gradient of each root.

    Raises:
      GradientError: a root has no weights and is not a scalar.
      ShapeError:    the shapes of weights and root differ.
      JitError:      a root depends on a result of a jitted function, which does not have a graph.
    """
    check_graphs(function, roots)
    return arriving([(root.op, _seed(function, root, weight, hint)) for root, weight in zip(roots, weights)])


def check_graphs(function: str, roots: Sequence[TensorCore]) -> None:
    """Raises JitError if a root depends on a value whose graph a jitted function has dropped."""
    lost = graphless_in(root.op for root in roots)
    if lost is not None:
        name = lost.function
        raise JitError(
            f"jit: {function} comes to a result of {name}, from which no graph leads on: what requires grad in {name} would"
            " get no gradient.",
            f"call backward() inside {name}, or jit the whole step; detach() the result if no gradient is wanted.",
        )


def _seed(function: str, root: TensorCore, weight: TensorCore | None, hint: str) -> Op:
    if weight is None:
        if root.numel() != 1:
            raise GradientError(f"{function}: the loss must be a scalar, got shape {root.shape}.", hint=hint)
        return filled(1, root.dtype, root.op.shape)
    if weight.shape != root.shape:
        raise ShapeError(f"{function}: a gradient of shape {weight.shape} was given for a result of shape {root.shape}.")
    root.other_device(function, weight)
    return cast(weight.read(), root.dtype)


# ---- on graphs ----
FORMS = frozenset({OpCode.RESHAPE, OpCode.PERMUTE})  # two of a kind become one when they are built
UNCLEAR = FORMS | {OpCode.LEAF}  # a result of these may share its source with other tensors


def leaves_among(ops: Sequence[Op]) -> list[Op]:
    """Returns the LEAFs among Ops that gradients reach.

    Raises:
      GradientError: one of them stands for a value whose graph is gone.
    """
    found = [op for op in ops if op.code is OpCode.LEAF]
    for op in found:
        if stale_leaves.has(op):
            raise GradientError(
                f"backward: a result of shape {op.shape} was computed before optimizer.step() replaced the"
                " parameters it depends on.",
                hint="call backward() before step(), or compute the result again.",
            )
    return found


def as_used(leaves: Iterable[Op], on_the_way: Sequence[Op]) -> dict[Op, list[Op]]:
    """Returns, for each Op, the keys that identify it in graphs; a LEAF of a leaf tensor is identified by its number.

    A tensor that was computed or written after a graph was built has a different LEAF than in that graph. A result whose
    hook was added after its use has no LEAF in the graph; its source is there.
    """
    by_place: dict[Op | tuple[int, Op | None], list[Op]] = {}
    for op in on_the_way:
        if op.code is OpCode.LEAF:
            by_place.setdefault(_place(op), []).append(op)
    places = {op: _place(op) for op in leaves}
    sources = {op: op.src[0] for op in places if op.code is OpCode.LEAF and op.src[0].code not in UNCLEAR}
    sources = {op: source for op, source in sources.items() if op.arg in LeafNumber.results or not source.needs_grad}
    among = {*on_the_way} if sources else ()
    seen = {op.arg for op in among if op.code is OpCode.LEAF}
    read = _as_read([source for op, source in sources.items() if op.arg not in seen], among)
    late = {op: [read[source]] for op, source in sources.items() if op.arg not in seen and source in read}
    late |= {leaf: [source] for source, leaf in (_used_before_and_after(on_the_way) if sources else {}).items()}
    return {op: late.get(op) or by_place.get(place, [op]) for op, place in places.items()}


def _place(op: Op) -> Op | tuple[int, Op | None]:
    """Returns the identity of an Op: of a LEAF its number, and for a result the value, whose other LEAFs may be newer."""
    return (op.arg, _value_of(op) if op.src[0].needs_grad else None) if op.code is OpCode.LEAF else op


def _value_of(op: Op) -> Op:
    """Returns the value of a result without the LEAFs that it, and what it is a view of, have."""
    if op.code is OpCode.LEAF and op.src[0].needs_grad:
        return _value_of(op.src[0])
    value = _value_of(op.src[0]) if op.code in MOVEMENT else op
    return op if op.code not in MOVEMENT or value is op.src[0] else built(op, (value,))


def used_before(on_the_way: Collection[Op]) -> dict[Op, LeafNumber]:
    """Returns numbers of results that were used before they got a hook or retained their gradient, by the Op that was read.

    Their LEAF is read later or not at all on the path; for a clone of a leaf, that Op is the leaf's.
    """
    tensors = [tensor for number in sorted(LeafNumber.results) if (tensor := leaf_tensors.get(number)) is not None]
    among = {*on_the_way} if tensors else ()
    seen = {op.arg for op in among if op.code is OpCode.LEAF}
    unseen = [tensor for tensor in tensors if tensor.op.code is OpCode.LEAF and tensor.op.arg not in seen]
    late = {op: tensor.op.arg for tensor in unseen for op in _without_leaves(tensor)}
    before = {op: late[source] for source, op in _as_read([*late], among).items() if op.code is not OpCode.LEAF}
    return before | {source: leaf.arg for source, leaf in _used_before_and_after(on_the_way).items()}


def _used_before_and_after(on_the_way: Collection[Op]) -> dict[Op, Op]:
    """Returns LEAFs of results, by their sources, if other Ops on the path read the source: uses before the LEAF.

    A view or a clone shares its source with other tensors; its own uses read its LEAF.
    """
    leaves: dict[Op, Op] = {}
    for op in on_the_way:
        if op.code is OpCode.LEAF and op.arg in LeafNumber.results and op.src[0].code is not OpCode.LEAF:
            owner = leaf_tensors.get(op.arg)
            if owner is not None and (not owner.steps or owner.op.arg == op.arg):  # else a view that was written since
                leaves[op.src[0]] = op
    read = {source for op in on_the_way if leaves for source in op.src if leaves.get(source, op) is not op}
    return {source: leaf for source, leaf in leaves.items() if source in read}


def _without_leaves(tensor: TensorCore) -> list[Op]:
    """Returns the Ops that uses of a result read before it, or the tensor it is a view of, became a LEAF."""
    found = [tensor.cell.op]
    while found[-1].code is OpCode.LEAF and found[-1].src[0].needs_grad:
        found.append(found[-1].src[0])
    return [read_through(op, tensor.steps[:-1]) for op in found]


def _as_read(results: Sequence[Op], among: Collection[Op]) -> dict[Op, Op]:
    """Returns the results among these Ops; a formula may be replaced by its graph, as in gradients of gradients."""
    others = [op for op in results if op not in among]
    forms = zip(others, written_out(others, constants_stay=True))
    return {op: op for op in results if op in among} | {op: form for op, form in forms if form in among}


def retaining(on_the_way: Sequence[Op], asked: Collection[Op] | None = None) -> dict[Op, TensorCore]:
    """Returns the results on the path that retain their gradient, by the Ops that they were when it was used.

    Args:
      asked:  only results that depend on one of these Ops; None: all
    """
    late = used_before(on_the_way) if LeafNumber.results else {}
    owners = [(op, leaf_tensors.get(number)) for op, number in late.items() if number.collects]
    found = [(op, op, owner) for op, owner in owners if owner is not None and owner.op.code is OpCode.LEAF]
    for op in on_the_way:
        if op.code is OpCode.LEAF and op.src[0].needs_grad and isinstance(op.arg, LeafNumber) and op.arg.collects:
            owner = leaf_tensors.get(op.arg)
            if owner is not None and not (late.get(op.src[0]) is op.arg and owner.op is op):
                found.append((op, op if _value_of(op) is _value_of(owner.op) else owner.op, owner))
    return {last: owner for op, last, owner in found if asked is None or not {*asked}.isdisjoint(reached([op]))}


def gradients_at(seeds: Mapping[Op, Op], leaves: Sequence[Op], create_graph: bool) -> dict[Op, Op]:
    """Returns the gradients of leaves; gradients of leaves with hooks pass through these."""
    late = used_before(reached(list(seeds))) if LeafNumber.hooked and LeafNumber.results else {}
    every = written_out([*seeds, *seeds.values(), *leaves, *late], constants_stay=True)
    roots, weights, wanted = every[: len(seeds)], every[len(seeds) : 2 * len(seeds)], every[2 * len(seeds) :]
    moving = varying(roots, {*wanted[: len(leaves)]}) if LeafNumber.hooked else set()
    hooked = hooks_among(op for op in leaves_among(reached(roots)) if op in moving) if LeafNumber.hooked else {}
    hooked = {leaf: hook for leaf, hook in hooked.items() if leaf.arg not in late.values()}
    uses: dict[LeafNumber, list[Op]] = {op.arg: [] for op in hooked if not op.src[0].needs_grad}
    for op in hooked:
        uses.get(op.arg, []).append(op)
    several = [same for same in uses.values() if len(same) > 1]  # of leaves that were written between their uses
    hooked = {op: hook for op, hook in hooked.items() if not any(op in same for same in several)}
    hooked |= {op: hooks_of(number) for op, number in zip(wanted[len(leaves) :], late.values()) if op in moving}
    with Mode(grad_mode, create_graph) if hooked else nullcontext():
        among = {*wanted, *[op for same in several for op in same]}
        found = reverse(arriving(zip(roots, weights)), among, chain_rules, changes=hooked)
    for same in several:  # hooks see one gradient
        if given := [op for op in same if op in found]:
            total = arriving([(given[0], found.pop(op)) for op in given])[given[0]]
            with Mode(grad_mode, create_graph):
                found[given[0]] = hooks_of(given[0].arg)(total)
    of_leaves: dict[Op, Op] = {}  # forms of one LEAF may be joined when graphs are expanded; the first one has the gradient
    for leaf, op in zip(leaves, wanted):
        if leaf.code is OpCode.LEAF:
            of_leaves.setdefault(op, leaf)
    return {leaf: found[op] for leaf, op in zip(leaves, wanted) if op in found and of_leaves.get(op, leaf) is leaf}


def gradients_for_later(
    seeds: Mapping[Op, Op], leaves: Sequence[Op], on_the_way: Sequence[Op], may_be_prepared: bool = False
) -> dict[Op, Op]:
    """Returns the gradients of leaves as graphs that may be built only when a plan needs them.

    Args:
      may_be_prepared:  for backward(): the gradients may have been computed with the loss already
    """
    is_hooked = bool(LeafNumber.hooked) and bool(hooks_among(leaves_among(on_the_way)) or used_before(on_the_way))
    is_hooked |= any(leaf.code is not OpCode.LEAF for leaf in leaves)
    active = trace.get()
    if is_hooked or (active is not None and not active.waits):
        return gradients_at(seeds, leaves, False)
    for root, seed in seeds.items() if may_be_prepared and len(seeds) == 1 and active is None else ():
        made = take_prepared(root, on_the_way) if not root.shape and seed is root.filled(1) else {}
        if made.keys() >= {*leaves}:
            return made
    found = gradients_later(seeds, leaves, on_the_way)
    return gradients_at(seeds, leaves, False) if found is None else found


def may_be_written_out(leaf: Op) -> bool:
    """True for a result: in a gradient's gradient, a formula off the path may appear as its graph."""
    return leaf.code is not OpCode.LEAF or leaf.src[0].needs_grad


# ---- gradients that are returned ----
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
    """Returns the gradient of `outputs` with respect to each of `inputs`; also fills retain_grad() results on the way.

    A result is identified by its graph: two results of the same computation count as one input. A reshaped or permuted
    tensor that is also used in another form needs retain_grad() before that use. A second-order gradient with respect to an
    intermediate result depends on which values formulas read: exp's gradient may be grad * y or grad * exp(x).

    Args:
      outputs:            scalars, or with grad_outputs any shapes; the gradient is that of their (weighted) sum
      inputs:             leaves, or intermediate results
      grad_outputs:       for each output its weights, of its shape
      retain_graph:       changes nothing: graphs are never freed
      create_graph:       make the gradients differentiable
      only_inputs:        must be True, as in PyTorch: no `.grad` is changed
      allow_unused:       return None for inputs that the outputs do not depend on, instead of an error
      is_grads_batched:   grad_outputs have an additional first axis, and so have the gradients
      materialize_grads:  return zeros for such inputs

    Returns:   a tensor of the shape of each input

    Raises:
      GradientError: an output has no weights and is not a scalar, an input does not require grad, or the outputs do not
                     depend on it.
      ShapeError:    the shapes of weights and output differ.
      ArgumentError: the number of weights differs from that of the outputs, only_inputs=False, or allow_unused=False with
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
    on_the_way = reached([tensor.op for tensor in roots if tensor.op.needs_grad])
    leaves = _inputs_on_the_way("grad", on_the_way, roots, given)
    used = as_used(leaves, on_the_way)
    asked = [op for ops in used.values() for op in ops]
    kept: dict[Op, TensorCore] = {}
    if is_grads_batched:
        parts = _asked_by_rows(roots, asked, weights_of("grad", roots, grad_outputs))
    else:
        seeds = seeds_of("grad", roots, weights_of("grad", roots, grad_outputs), hint="grad(loss.mean(), inputs)")
        kept = retaining(on_the_way, asked)
        parts = _asked(seeds, [*asked, *kept], on_the_way, create_graph)
    found = arriving([(leaf, parts[op]) for leaf, ops in used.items() for op in ops if op in parts])
    found = _with_zeros(found, on_the_way, leaves, materialize_grads)
    if not allow_unused:
        _check_used(leaves, found)
    ready: Callable[[Op], Op] = _unchanged if create_graph else detached
    results = [
        type(tensor).from_op(ready(found[leaf]), tensor.cell.device) if leaf in found else None
        for tensor, leaf in zip(given, leaves)
    ]
    together = [result.cell for result in results if result is not None]
    together += [_accumulate(owner, ready(parts[op])) for op, owner in kept.items() if op in parts]
    compute_together(together)
    if Anomaly.is_on and trace.get() is None:
        look_at_gradients([root.op for root in roots], found.values())
    return tuple(results)


def _check_used(leaves: Iterable[Op], found: Mapping[Op, Op]) -> None:
    """Raises GradientError if a leaf has no gradient."""
    for leaf in leaves:
        if leaf not in found:
            raise GradientError(
                f"grad: the outputs do not depend on an input of shape {leaf.shape}.",
                hint="allow_unused=True gives None for it, materialize_grads=True zeros.",
            )


def _unchanged(op: Op) -> Op:
    return op


def _inputs_on_the_way(
    function: str, on_the_way: Sequence[Op], roots: Sequence[TensorCore], inputs: Sequence[TensorCore]
) -> list[Op]:
    """Returns the Ops of inputs of grad() or backward(), after a check that each belongs to one tensor.

    Two consecutive reshapes become one Op when they are built, as do two permutes, so a path from such a result may bypass
    its Op, also within a formula that is written out later. Therefore the Op that such a result shows must have no other
    reader on the path.
    """
    if not inputs:
        raise ArgumentError(f"{function}: inputs must not be empty.")
    ops = [tensor.op for tensor in inputs]
    moved = {op for op in ops if op.code in FORMS}
    shown = {op.src[0]: op for op in moved}
    users = list(on_the_way) if moved else []
    for op in users:  # and formulas that are met within formulas
        if op.code is OpCode.FORMULA and not moved.isdisjoint(op.src):
            users += toposort(formula_results(op.arg, op.src, op.lines), stop=op.src)
    unclear = {shown[source] for op in users if op not in moved for source in op.src if source in shown}
    unclear |= {op for op in moved if shown[op.src[0]] is not op or any(op.src[0] is root.op for root in roots)}
    for tensor, op in zip(inputs, ops):
        if not op.needs_grad:
            raise GradientError(
                f"{function}: an input of shape {tensor.shape} needs no gradient.",
                hint="requires_grad_() before it is used.",
            )
        if op in unclear:
            raise GradientError(
                f"{function}: an input of shape {tensor.shape} is a view of a tensor that is also used directly.",
                hint="retain_grad() before it is used.",
            )
    return ops


def _asked(seeds: Mapping[Op, Op], leaves: Sequence[Op], on_the_way: Sequence[Op], create_graph: bool) -> dict[Op, Op]:
    """Returns the gradients of leaves; graphs are built late unless they are to be differentiated."""
    among = {*on_the_way}
    if create_graph or Anomaly.is_on or any(leaf not in among and may_be_written_out(leaf) for leaf in leaves):
        return _where_needed(seeds, leaves, create_graph)
    reaching = {op: seed for op, seed in seeds.items() if op.needs_grad}
    return gradients_for_later(reaching, [leaf for leaf in leaves if leaf in among], on_the_way)


def _asked_by_rows(roots: Sequence[TensorCore], leaves: Sequence[Op], weights: Sequence[TensorCore | None]) -> dict[Op, Op]:
    """Returns the gradients of leaves for each row of weights."""
    rows: dict[Op, Op] = {}
    for root, weight in zip(roots, weights):
        if weight is None or not weight.shape or weight.shape[1:] != root.shape:
            shown = None if weight is None else weight.shape
            raise ShapeError(f"grad: weights of shape {shown} are not rows of {root.shape}, the shape of the output.")
        stand = memory_op(Buffer(root.device, root.dtype, greatest_numel(root.shape)), root.shape)
        rows[stand] = cast(weight.read(), root.dtype)
    counts = {row.shape[0] for row in rows.values()}
    if len(counts) != 1:
        raise ShapeError(f"grad: weights have different numbers of rows: {', '.join(map(str, counts))}.")
    found: dict[Op, Op] = {}

    def of_row(values: Sequence[Op]) -> list[Op]:
        found.update(_where_needed(arriving(zip([root.op for root in roots], values)), leaves, True))
        return list(found.values())

    on_the_way = reached([root.op for root in roots])
    apart = bool(LeafNumber.hooked and hooks_among(on_the_way))  # hooks may read values
    every = for_rows(of_row, rows, counts.pop(), on_the_way, apart)
    return dict(zip(found, every))


def _where_needed(seeds: Mapping[Op, Op], leaves: Sequence[Op], create_graph: bool) -> dict[Op, Op]:
    return gradients_at({op: seed for op, seed in seeds.items() if op.needs_grad}, leaves, create_graph)


def _with_zeros(found: dict[Op, Op], on_the_way: Sequence[Op], leaves: Sequence[Op], everywhere: bool) -> dict[Op, Op]:
    """Returns gradients, with zeros for leaves reached only through flat functions such as floor, or if `everywhere`."""
    missing = [leaf for leaf in leaves if leaf not in found]
    if missing and not everywhere:
        missing = [leaf for leaf, ops in as_used(missing, on_the_way).items() if not set(ops).isdisjoint(on_the_way)]
    return found | {leaf: leaf.filled(0) for leaf in missing}


def jvp(outputs: Tensor, inputs: Several, tangents: Several) -> Any:
    """Returns the directional derivative of `outputs` along the inputs' tangents: forward mode.

    J v, with J the Jacobian of outputs with respect to inputs, and v the tangents.

    Args:
      outputs:   any shape
      inputs:    leaves
      tangents:  for each input a tensor of its shape

    Returns:   a tensor of the shape of outputs

    Raises:
      GradientError: an input is not a leaf.
      ShapeError:    the shapes of tangent and input differ.
      ArgumentError: the numbers of tangents and inputs differ.

    >>> x = Tensor([2.0, 3.0], requires_grad=True)
    >>> jvp(x * x, [x], [Tensor([1.0, 0.0])])
    Tensor([4., 0.], requires_grad=True)
    """
    given, moved_along = listed(inputs), listed(tangents)
    if len(given) != len(moved_along):
        raise ArgumentError(f"jvp: {len(moved_along)} tangents were given for {len(given)} inputs.")
    moves: dict[Op, Op] = {}
    on_the_way = reached([outputs.op])
    for tensor, tangent in zip(given, moved_along):
        leaf, hint = tensor.op, "requires_grad_() or retain_grad() it first."
        if leaf.code is not OpCode.LEAF:
            raise GradientError(f"jvp: an input of shape {tensor.shape} is not a leaf.", hint)
        if tangent.shape != tensor.shape:
            raise ShapeError(f"jvp: a tangent of shape {tangent.shape} does not fit an input of shape {tensor.shape}.")
        for op in as_used([leaf], on_the_way)[leaf]:
            moves[op] = cast(tangent.read(), tensor.dtype)
    root, *every = written_out([outputs.op, *moves, *moves.values()])
    (moved,) = forward_gradient([root], dict(zip(every[: len(moves)], every[len(moves) :])))
    moved = filled(0, outputs.dtype, outputs.op.shape) if moved is None else moved
    return type(outputs).from_op(moved, outputs.cell.device)


# ---- gradients that leaves collect ----
REDUCTIONS = {OpCode.ADD: "sum", OpCode.MUL: "prod"}


class GradFn:
    """The operation that made a result, for autograd; objects of the same operation are equal.

    next_functions:  pairs of the operations that made its operands and 0, as in PyTorch
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
    """Calls a function with this tensor's gradient whenever backward() or grad() finds it; it may replace the gradient.

    If a result is written in place later, the hook stays at its old value. The function gets the gradient as a graph, which
    is computed only if the function reads it.

    Args:
      hook: gradient -> a replacement of the same shape and dtype, or None to keep it

    Returns:   a handle whose remove() removes the hook

    Raises:
      GradientError: no gradient flows here.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 10)
    >>> (x * x).backward()
    >>> x.grad.item()
    60.0
    """
    if not self.op.needs_grad:
        raise GradientError(f"register_hook: a tensor of shape {self.shape} without requires_grad gets no gradient.")
    if not self._has_leaf_of_its_own():
        self._become_leaf(collects=False)
    return add_hook(self.op.arg, hook)


def register_post_accumulate_grad_hook(self: T, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Calls a function with this leaf whenever backward() has added to its `.grad`.

    Args:
      hook: a function of the tensor; it may consume the gradient and set it to None

    Returns:   a handle whose remove() removes the hook

    Raises:
      GradientError: the tensor is not a leaf that requires grad.

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
    """Returns the operation that made a tensor, if gradients flow through it; None for a leaf."""
    return None if self.is_leaf else GradFn(_value_of(self.op))


def retains_grad(self: Tensor) -> bool:
    """True for a result whose gradient backward() collects, after retain_grad()."""
    op = self.op
    return op.code is OpCode.LEAF and op.src[0].needs_grad and isinstance(op.arg, LeafNumber) and op.arg.collects


def detach_(self: T) -> T:
    """Stops gradients from flowing through this tensor; returns self.

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
    """Adds the gradients of tensors to `.grad` of each leaf that they depend on; computes nothing yet.

    Args:
      tensors:       scalars, or with grad_tensors any shapes
      grad_tensors:  for each tensor its weights, or None for a scalar
      retain_graph:  changes nothing: graphs are never freed
      create_graph:  make the gradients differentiable
      inputs:        the only tensors whose `.grad` changes, leaves or results; None: all leaves

    Raises:
      GradientError: a tensor depends on no leaf that requires grad, one without weights is not a scalar, or an input does
                     not require grad.
      ArgumentError: inputs is empty.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> backward([x * x, x * 2])
    >>> x.grad.item()
    8.0
    """
    roots, active = listed(tensors), trace.get()
    if active is not None:
        active.on_backward()
    _check_differentiable(roots)
    seeds = seeds_of("backward", roots, weights_of("backward", roots, grad_tensors), hint="loss.mean().backward()")
    on_the_way = reached(list(seeds))
    collecting, leaves = _collecting(on_the_way, roots, inputs)
    among = {*on_the_way}
    at_once = create_graph or Anomaly.is_on or not among.issuperset(leaves)
    grads = gradients_at(seeds, leaves, create_graph) if at_once else gradients_for_later(seeds, leaves, on_the_way, True)
    together = [tensor.cell for tensor in roots if not tensor.op.shape]
    hooked: dict[LeafNumber, TensorCore] = {}  # these may read one gradient, and then all are computed
    for leaf in leaves:
        if (owner := collecting.get(leaf)) is None or (leaf not in grads and leaf not in among):
            continue
        found = grads[leaf] if leaf in grads else leaf.filled(0)  # floor and other flat functions have none
        if not isinstance(owner._grad, UsedUp):  # it stays one, whatever is added
            together.append(_accumulate(owner, found if create_graph else detached(found)))
        if isinstance(leaf.arg, LeafNumber) and leaf.arg.after:
            hooked[leaf.arg] = owner
    compute_together(together, [tensor.cell for tensor in roots])
    if Anomaly.is_on and active is None:
        look_at_gradients(seeds, grads.values())
    elif active is None:
        wait_for(seeds, together)
        owners = [(leaf, collecting[leaf]) for leaf in leaves if leaf.code is OpCode.LEAF and leaf in collecting]
        compute_first((leaf.src[0], owner.cell.device) for leaf, owner in owners if not leaf.src[0].needs_grad)
    for tensor in () if inputs is None else listed(inputs):
        if not tensor.is_leaf:
            tensor.retain_grad()
    for number, owner in hooked.items():
        with Mode(grad_mode, create_graph):
            for hook in list(number.after.values()):
                hook(owner)


def _check_differentiable(roots: Sequence[Tensor]) -> None:
    """Raises GradientError if a tensor depends on no leaf that requires grad."""
    for tensor in roots:
        if not tensor.op.needs_grad:
            check_graphs("backward", roots)
            raise GradientError(
                f"backward: a {tensor.op.dtype} of shape {tensor.op.shape} depends on no tensor that requires grad.",
                hint="set requires_grad=True on a tensor it is made of, and make it outside no_grad and without detach.",
            )


def _collecting(
    on_the_way: Sequence[Op], roots: Sequence[Tensor], inputs: Several | None
) -> tuple[dict[Op, TensorCore], list[Op]]:
    """Returns the tensors whose `.grad` backward() adds to, and the Ops whose gradients are computed.

    A tensor is found by the Op whose gradient it collects: for a result its last value. The tensor of a leaf may have been
    freed; hooks on the path to it are called all the same.
    """
    if inputs is None:
        leaves = leaves_among(on_the_way)
        found = retaining(on_the_way)
        for leaf in leaves:
            owner = leaf_tensors.get(leaf.arg)
            if owner is None or not owner.steps or owner.steps[-1][0] is not OpCode.LEAF:
                continue  # it is gone, or frozen since
            if leaf.arg.collects and not leaf.src[0].needs_grad:
                found[leaf] = owner
        return found, [*dict.fromkeys([*found, *[op for op in leaves if not op.src[0].needs_grad or is_wanted(op)]])]
    given, among = listed(inputs), {*on_the_way}
    asked = dict(zip(_inputs_on_the_way("backward", on_the_way, roots, given), given))
    used = {op: asked[leaf] for leaf, ops in as_used(asked, on_the_way).items() for op in ops}
    found = {op: owner for op, owner in used.items() if op in among or may_be_written_out(op)}
    found |= retaining(on_the_way, found)
    return found, [*found]


def _accumulate(tensor: TensorCore, grad: Op) -> Cell:
    if tensor._grad is None:
        tensor._grad = type(tensor).from_op(grad, tensor.cell.device, settles=False)
        expect(tensor._grad.cell)
    else:
        tensor._grad.write("backward", tensor._grad.read() + grad)
    return tensor._grad.cell
