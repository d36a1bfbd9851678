"""Where gradients begin, which Ops they reach, and what arrives at the leaves.

In:    results with their weights
Out:   `seeds_of`, what arrives at each result; `reached`, `leaves_among`: what gradients flow to;
       `gradients_at` leaves
Called by: tensor/autograd.py, tensor/gradients.py.    Next: picograd/tensor/collected.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import gradients_later, written_out
from picograd.autodiff.modes import reverse
from picograd.errors import ArgumentError, GradientError, JitError, ShapeError
from picograd.ir.bodies import custom_gradient
from picograd.ir.graphless import graphless_in
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.living import LivingSet
from picograd.tensor.arguments import listed
from picograd.tensor.build import cast
from picograd.tensor.cell import trace
from picograd.tensor.core import TensorCore
from picograd.tensor.hooks import LeafNumber, hooks_among

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor

stale_leaves: LivingSet[Op] = LivingSet()  # results whose graph a step() dropped; see optim/updates.py
Several = Union["Tensor", Sequence["Tensor"]]  # noqa: UP007  # Tensor is made of these functions, after them


# ---- arguments ----
def weights_of(function: str, roots: Sequence[TensorCore], given: Any) -> list[TensorCore | None]:
    """Returns the weights of each root, None where none were given."""
    if given is None:
        return [None] * len(roots)
    weights = [given] if isinstance(given, TensorCore) else list(given)
    if len(weights) != len(roots):
        raise ArgumentError(f"{function}: {len(weights)} gradients were given for {len(roots)} tensors.")
    return weights


def seeds_of(function: str, roots: Sequence[TensorCore], weights: Sequence[TensorCore | None], hint: str) -> dict[Op, Op]:
    """Returns the gradient that arrives at each root.

    Raises:
      GradientError: a root has no weights and is no scalar.
      ShapeError:    weights have another shape than their root.
      JitError:      a root comes from a result of a jitted function, which has no graph.
    """
    check_graphs(function, roots)
    seeds: dict[Op, Op] = {}
    for root, weight in zip(roots, weights):
        seed, op = _seed(function, root, weight, hint), root.op
        seeds[op] = seeds[op] + seed if op in seeds else seed
    return seeds


def check_graphs(function: str, roots: Sequence[TensorCore]) -> None:
    """Raises JitError where what a root was computed from has lost its graph in a jitted function."""
    lost = graphless_in(root.op for root in roots)
    if lost is not None:
        name = lost.function
        raise JitError(
            f"jit: {function} comes to a result of {name}, from which no graph leads on: what requires grad in {name} would"
            " get no gradient.",
            f"call backward() inside {name}, or jit the whole step; detach() the result where no gradient is wanted.",
        )


def _seed(function: str, root: TensorCore, weight: TensorCore | None, hint: str) -> Op:
    if weight is None:
        if root.numel() != 1:
            raise GradientError(f"{function}: the loss must be a scalar, got shape {root.shape}.", hint=hint)
        return filled(1, root.dtype, root.op.shape)
    if weight.shape != root.shape:
        raise ShapeError(f"{function}: gradient has shape {weight.shape}, the result it belongs to {root.shape}.")
    root.other_device(function, weight)
    return cast(weight.read(), root.dtype)


def leaf_inputs(function: str, inputs: Several) -> list[Op]:
    """Returns the LEAFs of inputs; GradientError where one is none."""
    found: list[Op] = []
    for tensor in listed(inputs):
        if tensor.op.code is not OpCode.LEAF:
            raise GradientError(
                f"{function}: an input of shape {tensor.shape} is not a leaf.",
                hint="requires_grad_() or retain_grad() it first.",
            )
        found.append(tensor.op)
    return found


# ---- on graphs ----
def reached(roots: Sequence[Op]) -> list[Op]:
    """Returns the Ops that gradients reach from roots, each once."""
    found: list[Op] = []
    seen = set(roots)
    stack = list(dict.fromkeys(roots))
    while stack:
        op = stack.pop()
        found.append(op)
        for source in op.src if op.code is not OpCode.CALL else _arguments_with_gradients(op):
            if source.needs_grad and source not in seen:
                seen.add(source)
                stack.append(source)
    return found


def _arguments_with_gradients(call: Op) -> list[Op]:
    """Returns the arguments of a CALL, but for those to which a user's own gradient gives None."""
    made = custom_gradient(call.arg)
    places = [0] * len(call.src) if made is None else made.places
    return [source for source, place in zip(call.src, places) if place is not None]


def leaves_among(ops: Sequence[Op]) -> list[Op]:
    """Returns the LEAFs among the Ops that gradients reach.

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


def gradients_at(seeds: Mapping[Op, Op], leaves: Sequence[Op]) -> dict[Op, Op]:
    """Returns the gradients that arrive at leaves, those with hooks on the way by way of them."""
    every = written_out([*seeds, *seeds.values(), *leaves])
    roots, weights, wanted = every[: len(seeds)], every[len(seeds) : 2 * len(seeds)], every[2 * len(seeds) :]
    hooked = hooks_among(leaves_among(reached(roots))) if LeafNumber.hooked else {}
    arriving: dict[Op, Op] = {}
    for root, weight in zip(roots, weights):
        arriving[root] = arriving[root] + weight if root in arriving else weight
    found = reverse(arriving, set(wanted), chain_rules, changes=hooked)
    return {leaf: found[op] for leaf, op in zip(leaves, wanted) if op in found}


def gradients_for_later(seeds: Mapping[Op, Op], leaves: Sequence[Op], on_the_way: Sequence[Op]) -> dict[Op, Op]:
    """The same for leaves that are reached, for whom looks at no graph of a gradient: there may be none yet."""
    is_hooked = bool(LeafNumber.hooked) and bool(hooks_among(leaves_among(on_the_way)))
    found = None if is_hooked or trace.get() is not None else gradients_later(seeds, leaves, on_the_way)
    return gradients_at(seeds, leaves) if found is None else found
