"""Runs a function at a point, so that its results can be differentiated by chosen arguments, and by nothing else.

In:    a Python function, its arguments, and which of them move
Out:   `Point`: the graphs of its results over LEAFs of its own, and the gradients and tangents of those
Called by: transforms/gradients.py, transforms/tangents.py, transforms/jacobians.py.
Next: picograd/transforms/vmap.py

Each Tensor that moves is a LEAF while the function runs, so that the same Tensor read as a closure stays where it is. In
what is returned the LEAFs are gone: a gradient is a graph like any other, of whose making nothing is left, so transforms
nest in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import jvp
from picograd.autodiff.modes import reverse, varying
from picograd.control.closure import described, name_of
from picograd.control.structure import Taken, put, take
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.bodies import at_once, substitute
from picograd.ir.lines import record
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import cast, detached
from picograd.tensor.compute import compute_together
from picograd.tensor.core import leaf_ids
from picograd.tensor.modes import Mode, enable_grad, is_grad_enabled
from picograd.tensor.tensor import Tensor
from picograd.transforms.examples import check_function


class Point:
    """A function at a point.

    transform:  what the user called, for errors
    function:   name of the user's function, for errors
    moving:     the arguments that move, each with its Tensors
    leaves:     what stands for each of these Tensors, in order
    result:     what the function returned, without what it returned beside (aux)
    roots:      the graphs of the Tensors in it, over the leaves
    """

    def __init__(
        self, transform: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
        numbers: Sequence[int], has_aux: bool = False,
    ):  # fmt: skip
        """Runs the function, with the arguments of these numbers moving."""
        check_function(transform, function)
        self.transform, self.function = transform, name_of(function)
        self.moving = [take(args[number], f"args[{number}]") for number in numbers]
        starts = [tensor.read() for taken in self.moving for tensor in taken.tensors]
        self._check_floats(starts)
        self.leaves = [Op(OpCode.LEAF, op.dtype, (op,), next(leaf_ids)) for op in starts]
        with Mode(at_once, True):
            self._run(function, args, kwargs, numbers, has_aux)

    def _run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], numbers: Sequence[int],
        has_aux: bool,
    ) -> None:  # fmt: skip
        """Calls the function with its leaves in the place of what it is differentiated by, and takes its results."""
        with enable_grad():
            own = list(args)
            rest = iter(self.leaves)
            for number, taken in zip(numbers, self.moving):
                own[number] = put(
                    taken.container, [Tensor.from_op(next(rest), tensor.cell.device) for tensor in taken.tensors]
                )
            returned = function(*own, **kwargs)
            if has_aux:
                returned, self._aux = self._pair(returned)
            self.result = take(returned, "result")
            self.roots = [tensor.read() for tensor in self.result.tensors]

    def _check_floats(self, starts: Sequence[Op]) -> None:
        """Raises where there is nothing to differentiate by, or something that has no derivative."""
        names = [name for taken in self.moving for name in taken.names]
        if not names:
            raise ArgumentError(
                f"{self.transform}: there is no Tensor in what {self.function} is differentiated by.",
                "argnums says which arguments those are.",
            )
        for name, op in zip(names, starts):
            if not op.dtype.is_float:
                raise DTypeError(
                    f"{self.transform}: {name} of {self.function} is {described(op)}; only floats have derivatives.",
                    "name other arguments with argnums, or let the function read it as a closure.",
                )

    def _pair(self, returned: Any) -> tuple[Any, Any]:
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ArgumentError(
                f"{self.transform}: with has_aux {self.function} must return (result, aux), got {type(returned).__name__}."
            )
        return returned

    # ---- what it returned ----
    def scalar(self) -> Op:
        """Returns the one result, which must be a float of shape ().

        Raises:
          ArgumentError: the result is no Tensor.
          ShapeError:    it has axes.
          DTypeError:    it is no float.
        """
        if not isinstance(self.result.container, Tensor):
            kind = type(self.result.container).__name__
            raise ArgumentError(
                f"{self.transform}: {self.function} must return one Tensor, got {kind}.",
                "return loss, aux    and has_aux=True, where more than the loss is wanted.",
            )
        (root,) = self.roots
        if root.shape:
            raise ShapeError(
                f"{self.transform}: {self.function} must return a scalar, got shape {root.shape}.",
                "loss.mean(), or jacrev(f) for the derivative of each element.",
            )
        if not root.dtype.is_float:
            raise DTypeError(f"{self.transform}: {self.function} must return a float, got {root.dtype}.")
        return root

    def check_tensors(self) -> None:
        """Raises ArgumentError where the function returned something else than Tensors."""
        if self.result.others or not self.roots:
            name, value = self.result.others[0] if self.result.others else ("result", self.result.container)
            raise ArgumentError(
                f"{self.transform}: {self.function} returned {value!r} as {name}, which is not a Tensor.",
                "return Tensors, alone or in lists, tuples, dicts and dataclasses.",
            )

    def value(self) -> Any:
        """Returns the result without the leaves."""
        return self._freed(self.result)

    def aux(self) -> Any:
        """Returns what the function returned beside its result, without the leaves."""
        return self._freed(take(self._aux, "aux"))

    def _freed(self, taken: Taken) -> Any:
        ops = [tensor.read() for tensor in taken.tensors]
        tensors = [
            tensor if op is before else Tensor.from_op(op, tensor.cell.device)
            for tensor, before, op in zip(taken.tensors, ops, self.free(ops))
        ]
        return put(taken.container, tensors)

    # ---- derivatives ----
    def gradients(self, seeds: Mapping[Op, Op]) -> list[Op]:
        """Returns the gradient of each leaf, over the leaves, from those that arrive at roots; zeros where none does."""
        found = reverse(seeds, set(self.leaves), chain_rules)
        return [found.get(leaf, filled(0, leaf.dtype, leaf.shape)) for leaf in self.leaves]

    def tangents(self, moves: Sequence[Op]) -> list[Op]:
        """Returns the tangent of each root, over the leaves, from those of the leaves; zeros where it does not move."""
        found = jvp(self.roots, dict(zip(self.leaves, moves)))
        return [filled(0, root.dtype, root.shape) if op is None else op for root, op in zip(self.roots, found)]

    def still(self) -> list[str]:
        """Returns the names of the results that do not depend on the leaves."""
        moving = varying(self.roots, set(self.leaves))
        return [name for name, root in zip(self.result.names, self.roots) if root not in moving]

    def free(self, ops: Sequence[Op]) -> list[Op]:
        """Returns graphs with what the leaves stand for in their place; under no_grad they need no gradients."""
        found = substitute(ops, {leaf: leaf.src[0] for leaf in self.leaves})
        return found if is_grad_enabled() else [detached(op) for op in found]

    def like_arguments(self, ops: Sequence[Op]) -> list[Any]:
        """Returns for each argument that moves a container of its form, with these values for the leaves."""
        devices = [tensor.cell.device for taken in self.moving for tensor in taken.tensors]
        values = list(map(_tensor, self.free(ops), devices))
        compute_together(value.cell for value in values)
        rest = iter(values)
        return [put(taken.container, list(islice(rest, len(taken.tensors)))) for taken in self.moving]

    def like_result(self, ops: Sequence[Op]) -> Any:
        """Returns a container of the form of the result, with these values."""
        devices = [tensor.cell.device for tensor in self.result.tensors]
        return put(self.result.container, map(_tensor, self.free(ops), devices))

    def seeds(self, cotangents: Any) -> dict[Op, Op]:
        """Returns what arrives at each root; what arrives at integers goes nowhere."""
        ops = fitting(self.transform, take(cotangents, "cotangents"), self.result, self.roots, "the result")
        arriving: dict[Op, Op] = {}
        for root, op in zip(self.roots, ops):
            if root.dtype.is_float:
                arriving[root] = arriving[root] + op if root in arriving else op
        return arriving


def _tensor(op: Op, device: str | None) -> Tensor:
    record(op)
    return Tensor.from_op(op, device)


def fitting(transform: str, given: Taken, wanted: Taken, ops: Sequence[Op], what: str) -> list[Op]:
    """Returns the values of tangents or cotangents in the dtypes of what they belong to.

    Raises:
      ArgumentError: they have another form.
      ShapeError:    one has another shape.
    """
    if len(given.tensors) != len(ops) or given.others:
        raise ArgumentError(
            f"{transform}: {given.names[0] if given.names else 'the argument'} and what comes with it has"
            f" {len(given.tensors)} Tensors, {what} has {len(ops)}.",
            f"give a Tensor for each Tensor of {what}, in a container of its form.",
        )
    values: list[Op] = []
    for tensor, name, op, path in zip(given.tensors, given.names, ops, wanted.names):
        value = tensor.read()
        if value.shape != op.shape:
            raise ShapeError(f"{transform}: {name} has shape {value.shape}, {path} that it belongs to has {op.shape}.")
        values.append(cast(value, op.dtype))
    return values


def argument_numbers(transform: str, argnums: Any, count: int, name: str) -> tuple[int, ...]:
    """Returns the numbers of the arguments that move, counted from the front.

    Raises:
      ArgumentError: argnums is neither a number nor a tuple of different ones, or there is no such argument.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums) if isinstance(argnums, tuple | list) else ()
    if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise ArgumentError(f"{transform}: argnums must be the number of an argument or a tuple of them, got {argnums!r}.")
    for number in numbers:
        if not -count <= number < count:
            raise ArgumentError(
                f"{transform}: argnums says argument {number} of {name}, which got {count} positional ones."
            )
    found = tuple(number % count for number in numbers)
    if len(set(found)) != len(found):
        raise ArgumentError(f"{transform}: argnums={argnums!r} names an argument twice.")
    return found
