"""Gradients of tensors: backward(), grad(), jvp(), hooks.

In:    tensors whose graphs reach leaves
Out:   `Autograd`, `backward`, `grad`, `jvp`
Next:  picograd/tensor/collected.py

A gradient is a graph like any other: nothing is computed until someone reads it. So a graph is never used up, and
`retain_graph`, which says that it shall not be, is taken for the sake of PyTorch's programs and changes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Self

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.jvp import jvp as forward_gradient
from picograd.autodiff.reverse import reverse
from picograd.errors import ArgumentError, GradientError, ShapeError
from picograd.ir.custom import custom_gradient
from picograd.ir.op import Buffer, Op, filled, greatest_numel
from picograd.ir.opcode import OpCode
from picograd.rewrites.batch import Examples
from picograd.rewrites.vmap import for_all
from picograd.tensor.arguments import listed
from picograd.tensor.build import cast, detached
from picograd.tensor.cell import Cell
from picograd.tensor.change import last_change
from picograd.tensor.collected import store_grad
from picograd.tensor.compute import compute_together
from picograd.tensor.core import TensorCore, leaf_tensors
from picograd.tensor.growth import expect
from picograd.tensor.hooks import LeafNumber, RemovableHandle, add_after_hook, add_hook, hooks_among

stale_leaves: weakref.WeakSet[Op] = weakref.WeakSet()  # results whose graph a step() dropped; see optim/readers.py
Several = TensorCore | Sequence[TensorCore]


class Autograd(TensorCore):
    """grad, backward(), register_hook()."""

    __slots__ = ()
    # attrgetter is no call of Python's: a step of an optimizer asks for every parameter's gradient.
    grad = property(attrgetter("_grad"), store_grad, doc="The gradient that backward() has collected, or None; may be set.")

    def backward(
        self,
        gradient: TensorCore | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Several | None = None,
    ) -> None:
        """Adds the gradient of this scalar to `.grad` of every leaf it depends on; computes nothing yet.

        Args:
          gradient:      (the shape of self) weight of each element; needed unless self is a scalar
          retain_graph:  changes nothing: backward() can always be called again
          create_graph:  the gradients can be differentiated themselves
          inputs:        the only leaves whose `.grad` changes; None: all of them

        Raises:
          GradientError: no leaf requires grad, self is no scalar and `gradient` is not given, or an input is no leaf.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad.item()
        6.0
        """
        backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
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

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
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
                f"register_post_accumulate_grad_hook: a tensor of shape {self.shape} is no leaf that requires grad.",
                hint="register_hook(hook) sees the gradient of any tensor.",
            )
        return add_after_hook(self.op.arg, hook)

    # ---- what it is to gradients ----
    @property
    def grad_fn(self) -> Op | None:
        """The Op that made it, where gradients flow through that; None for a leaf."""
        op = self.op
        while op.code is OpCode.LEAF and op.needs_grad and op.src[0].needs_grad:  # of retain_grad() or a hook
            op = op.src[0]
        return None if self.is_leaf else op

    @property
    def retains_grad(self) -> bool:
        """True for a result whose gradient backward() collects, since retain_grad() was called."""
        op = self.op
        return op.code is OpCode.LEAF and op.src[0].needs_grad and isinstance(op.arg, LeafNumber) and op.arg.collects

    def detach_(self) -> Self:
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
    grad_tensors: Several | Sequence[TensorCore | None] | None = None,
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
            raise GradientError(
                f"backward: {_shown(tensor.op)} depends on no tensor that requires grad.",
                hint="Tensor(data, requires_grad=True)",
            )
    seeds = _seeds("backward", roots, _weights("backward", roots, grad_tensors), hint="loss.mean().backward()")
    leaves = _leaves([tensor.op for tensor in roots])
    chosen = None if inputs is None else _leaf_inputs("backward", inputs)
    grads = _gradients(seeds, leaves)
    together = [tensor.cell for tensor in roots if not tensor.op.shape]
    for leaf in leaves if chosen is None else [leaf for leaf in leaves if leaf in chosen]:
        owner = leaf_tensors.get(leaf.arg)
        if owner is not None and leaf.arg.collects:
            found = grads[leaf] if leaf in grads else leaf.filled(0)  # floor and the like are flat
            together.append(_accumulate(owner, found if create_graph else detached(found)))
            for hook in list(leaf.arg.after.values()):
                hook(owner)
    compute_together(together, [tensor.cell for tensor in roots])


def _accumulate(tensor: TensorCore, grad: Op) -> Cell:
    if tensor._grad is None:
        tensor._grad = type(tensor).from_op(grad, tensor.cell.device, settles=False)
        expect(tensor._grad.cell)
    else:
        tensor._grad.write("backward", tensor._grad.read() + grad)
    return tensor._grad.cell


# ---- arguments ----
def _weights(function: str, roots: Sequence[TensorCore], given: Any) -> list[TensorCore | None]:
    """Returns the weights of each root, None where none were given."""
    if given is None:
        return [None] * len(roots)
    weights = [given] if isinstance(given, TensorCore) else list(given)
    if len(weights) != len(roots):
        raise ArgumentError(f"{function}: {len(weights)} gradients were given for {len(roots)} tensors.")
    return weights


def _seeds(
    function: str, roots: Sequence[TensorCore], weights: Sequence[TensorCore | None], hint: str
) -> dict[Op, Op]:
    """Returns the gradient that arrives at each root."""
    seeds: dict[Op, Op] = {}
    for root, weight in zip(roots, weights):
        seed, op = _seed(function, root, weight, hint), root.op
        seeds[op] = seeds[op] + seed if op in seeds else seed
    return seeds


def _seed(function: str, root: TensorCore, weight: TensorCore | None, hint: str) -> Op:
    if weight is None:
        if root.numel() != 1:
            raise GradientError(f"{function}: the loss must be a scalar, got shape {root.shape}.", hint=hint)
        return filled(1, root.dtype, root.op.shape)
    if weight.shape != root.shape:
        raise ShapeError(f"{function}: gradient has shape {weight.shape}, the result it belongs to {root.shape}.")
    root.other_device(function, weight)
    return cast(weight.read(), root.dtype)


def _leaf_inputs(function: str, inputs: Several) -> list[Op]:
    """Returns the LEAFs of inputs; GradientError where one is none."""
    found: list[Op] = []
    for tensor in listed(inputs):
        if tensor.op.code is not OpCode.LEAF:
            raise GradientError(
                f"{function}: an input of shape {tensor.shape} is no leaf.",
                hint="requires_grad_() or retain_grad() it first.",
            )
        found.append(tensor.op)
    return found


def _inputs_on_the_way(roots: Sequence[TensorCore], inputs: Sequence[TensorCore]) -> list[Op]:
    """Returns the Ops of inputs of grad(), each of which must stand for one tensor.

    Two reshapes become one when they are built, and so do two orders of axes: what was made of such a result may lead
    past its Op. So nothing else but it may use what it shows.
    """
    ops = [tensor.op for tensor in inputs]
    moved = {op for op in ops if op.code in (OpCode.RESHAPE, OpCode.PERMUTE)}
    reached = _reached([tensor.op for tensor in roots if tensor.op.needs_grad]) if moved else []
    shown = {op.src[0]: op for op in moved}
    unclear = {shown[source] for op in reached if op not in moved for source in op.src if source in shown}
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


# ---- on graphs ----
def _reached(roots: Sequence[Op]) -> list[Op]:
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


def _leaves(roots: Sequence[Op]) -> list[Op]:
    """Returns the LEAFs that gradients reach from roots, each once.

    Raises:
      GradientError: one of them stands for a value whose graph is gone.
    """
    found = [op for op in _reached(roots) if op.code is OpCode.LEAF]
    for op in found:
        if op in stale_leaves:
            raise GradientError(
                f"backward: a result of shape {op.shape} was computed before optimizer.step() replaced the"
                " parameters it depends on.",
                hint="call backward() before step(), or compute the result again.",
            )
    return found


def _gradients(seeds: Mapping[Op, Op], leaves: Sequence[Op]) -> dict[Op, Op]:
    hooked = hooks_among(_leaves(list(seeds))) if LeafNumber.hooked else {}
    return reverse(seeds, set(leaves), chain_rules, changes=hooked)


# ---- gradients asked for ----
def grad(
    outputs: Several,
    inputs: Several,
    grad_outputs: Several | Sequence[TensorCore | None] | None = None,
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
    given = listed(inputs)
    leaves = _inputs_on_the_way(listed(outputs), given)
    found = _asked(listed(outputs), leaves, grad_outputs, is_grads_batched)
    missing = [leaf for leaf in leaves if leaf not in found]
    flat = set(_reached([tensor.op for tensor in listed(outputs) if tensor.op.needs_grad])) if missing else set()
    found.update((leaf, leaf.filled(0)) for leaf in missing if leaf in flat)  # by way of floor and such
    unused = [leaf for leaf in missing if leaf not in flat]
    if unused and not (allow_unused or materialize_grads):
        raise GradientError(
            f"grad: the outputs do not depend on an input of shape {unused[0].shape}.",
            hint="allow_unused=True gives None for it, materialize_grads=True zeros.",
        )
    results: list[Any] = []
    for tensor, leaf in zip(given, leaves):
        op = found.get(leaf)
        if op is None and materialize_grads:
            op = leaf.filled(0)
        kept = None if op is None else (op if create_graph else detached(op))
        results.append(None if kept is None else type(tensor).from_op(kept, tensor.cell.device))
    compute_together(result.cell for result in results if result is not None)
    return tuple(results)


def _asked(roots: Sequence[TensorCore], leaves: Sequence[Op], weights: Any, is_batched: bool) -> dict[Op, Op]:
    """Returns the gradients of leaves, for each row of the weights where they are batched."""
    given = _weights("grad", roots, weights)
    if not is_batched:
        seeds = _seeds("grad", roots, given, hint="grad(loss.mean(), inputs)")
        return _gradients({op: seed for op, seed in seeds.items() if op.needs_grad}, leaves)
    rows: dict[Op, Op] = {}
    seeds = {}
    for root, weight in zip(roots, given):
        if weight is None or not weight.shape or weight.shape[1:] != root.shape:
            shown = None if weight is None else weight.shape
            raise ShapeError(f"grad: weights of shape {shown} are no rows of {root.shape}, the shape of the output.")
        stand = Op(OpCode.BUFFER, root.dtype, (), (Buffer(root.device, root.dtype, greatest_numel(root.shape)), root.shape))
        rows[stand] = cast(weight.read(), root.dtype)
        seeds[root.op] = seeds[root.op] + stand if root.op in seeds else stand
    counts = {row.shape[0] for row in rows.values()}
    if len(counts) != 1:
        raise ShapeError(f"grad: weights have different numbers of rows: {', '.join(map(str, counts))}.")
    found = _gradients({op: seed for op, seed in seeds.items() if op.needs_grad}, leaves)
    examples = Examples(counts.pop())
    every = for_all(list(found.values()), examples, rows)
    return {leaf: operand.each(examples) for leaf, operand in zip(found, every)}


def jvp(outputs: TensorCore, inputs: Several, tangents: Several) -> Any:
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
    for tensor, tangent, leaf in zip(given, moved_along, _leaf_inputs("jvp", given)):
        if tangent.shape != tensor.shape:
            raise ShapeError(f"jvp: a tangent of shape {tangent.shape} does not fit an input of shape {tensor.shape}.")
        moves[leaf] = cast(tangent.read(), tensor.dtype)
    (moved,) = forward_gradient([outputs.op], moves)
    moved = filled(0, outputs.dtype, outputs.op.shape) if moved is None else moved
    return type(outputs).from_op(moved, outputs.cell.device)


def _shown(op: Op) -> str:
    return f"a {op.dtype} of shape {op.shape}"
