"""Derivatives of functions: grad, value_and_grad, vjp by reverse mode; jvp, linearize by forward mode.

In:    a function of Tensors, its arguments, and which of them move, or how
Out:   functions that give its gradient; its value, and how that moves;  `Point`: the graphs of its results over LEAFs
       of its own

Each Tensor that moves is a LEAF while the function runs, so that the same Tensor read as a closure stays where it is.
In what is returned the LEAFs are gone: a gradient is a graph like any other, and keeps nothing of how it was made, so
transforms nest in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, overload

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import jvp as jvp_of_graph
from picograd.autodiff.gradient import reached
from picograd.autodiff.modes import arriving, reverse, varying
from picograd.control.closure import described, name_of
from picograd.control.structure import Taken, put, take
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.bodies import at_once, substitute
from picograd.ir.build import cast
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.tensor import gradients
from picograd.tensor.build import detached
from picograd.tensor.compute import compute_together
from picograd.tensor.core import leaf_ids
from picograd.tensor.hooks import LeafNumber, hooks_among
from picograd.tensor.modes import Mode, enable_grad, is_grad_enabled
from picograd.tensor.tensor import Tensor
from picograd.transforms.vmap import check_function


# ---- a point ----
class Point:
    """A function at a point.

    transform:  what the user called, for errors
    function:   name of the user's function, for errors
    moving:     the arguments that move, each with its Tensors
    leaves:     the stand-ins of these Tensors, in order
    result:     the function's result, without its second one (aux)
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
        """Calls the function with its leaves in place of the arguments it is differentiated by, and takes its results."""
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
                f"{self.transform}: the differentiated arguments of {self.function} hold no Tensor.",
                "argnums selects other arguments.",
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

    # ---- its result ----
    def scalar(self) -> Op:
        """Returns the one result, which must be a float of shape ().

        Raises:
          ArgumentError: the result is not a Tensor.
          ShapeError:    it has axes.
          DTypeError:    it is not a float.
        """
        if not isinstance(self.result.container, Tensor):
            kind = type(self.result.container).__name__
            raise ArgumentError(
                f"{self.transform}: {self.function} must return one Tensor, got {kind}.",
                "return loss, aux    and has_aux=True, to return more than the loss.",
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
        """Returns the function's second result, without the leaves."""
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
        hooked = hooks_among(reached(list(seeds))) if LeafNumber.hooked else {}
        found = reverse(seeds, set(self.leaves), chain_rules, changes=hooked)
        return [found.get(leaf, filled(0, leaf.dtype, leaf.shape)) for leaf in self.leaves]

    def tangents(self, moves: Mapping[Op, Op]) -> list[Op]:
        """Returns the tangent of each root, over the leaves, from those of leaves; zeros where it does not move."""
        found = jvp_of_graph(self.roots, moves)
        return [filled(0, root.dtype, root.shape) if op is None else op for root, op in zip(self.roots, found)]

    def still(self) -> list[str]:
        """Returns the names of the results that do not depend on the leaves."""
        moving = varying(self.roots, set(self.leaves))
        return [name for name, root in zip(self.result.names, self.roots) if root not in moving]

    def free(self, ops: Sequence[Op]) -> list[Op]:
        """Returns graphs with the leaves' own values in their place; under no_grad they need no gradients."""
        found = substitute(ops, {leaf: leaf.src[0] for leaf in self.leaves})
        while places := list(filter(_was_result, reached([op for op in found if op.needs_grad]))):
            found = substitute(found, {place: place.src[0] for place in places})
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
        """Returns the cotangent of each root; those of integers are dropped."""
        ops = fitting(self.transform, take(cotangents, "cotangents"), self.result, self.roots, "the result")
        return arriving([(root, op) for root, op in zip(self.roots, ops) if root.dtype.is_float])


def _was_result(op: Op) -> bool:
    """True for the LEAF of a result through which no gradient flows any longer."""
    return op.code is OpCode.LEAF and not getattr(op.arg, "collects", True) and not op.src[0].needs_grad


def _tensor(op: Op, device: str | None) -> Tensor:
    record(op)
    return Tensor.from_op(op, device)


def fitting(transform: str, given: Taken, wanted: Taken, ops: Sequence[Op], what: str) -> list[Op]:
    """Returns the values of tangents or cotangents in the dtypes of their primals.

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
                f"{transform}: argnums names argument {number} of {name}, which got {count} positional arguments."
            )
    found = tuple(number % count for number in numbers)
    if len(set(found)) != len(found):
        raise ArgumentError(f"{transform}: argnums={argnums!r} names an argument twice.")
    return found


# ---- reverse mode ----
Argnums = int | tuple[int, ...]


@overload
def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]: ...


@overload
def grad(
    outputs: Tensor | list[Tensor] | tuple[Tensor, ...],
    inputs: Tensor | list[Tensor] | tuple[Tensor, ...],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]: ...


def grad(*args: Any, **kwargs: Any) -> Any:
    """Returns the function that computes the gradient of a function; or the gradient of tensors by tensors.

    grad(f)(x) = df(x) / dx

    The first of `args` and `kwargs` decides which of the two it is:

      grad(func, argnums=0, has_aux=False)
        func:     returns a float scalar; its arguments are Tensors, alone or in lists, tuples, dicts and dataclasses, and
                  anything else
        argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
        has_aux:  func returns (scalar, aux), and so does the new function: (gradient, aux)

      grad(outputs, inputs, grad_outputs=None, ...)
        torch.autograd.grad: see picograd.autograd.grad

    Returns:   a function of the arguments of func that gives the gradient in the form of the argument, or a tuple of
               gradients for a tuple of argnums; it is zero where func does not depend on the argument

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than one Tensor.
      ShapeError:    func returns no scalar.
      DTypeError:    an argument it is differentiated by, or the result, is not a float.

    >>> cube = lambda x: x**3
    >>> grad(cube)(Tensor(2.0)), grad(grad(cube))(Tensor(2.0))
    (Tensor(12.), Tensor(12.))
    >>> grad(lambda p, x: (p["w"] * x + p["b"]).sum())({"w": Tensor([2.0]), "b": Tensor([1.0])}, Tensor([3.0]))
    {'w': Tensor([3.]), 'b': Tensor([1.])}
    """
    if "func" in kwargs or (args and not isinstance(args[0], Tensor | list | tuple)):
        return grad_of(*args, **kwargs)
    return gradients.grad(*args, **kwargs)


def grad_of(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns the function that computes the gradient of a function: `grad` of a function alone.

    grad_of(f)(x) = df(x) / dx

    Args:
      func:     returns a float scalar; see grad
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:  func returns (scalar, aux), and the new function (gradient, aux)

    Returns:   a function of the arguments of func

    >>> grad_of(lambda x: x**3)(Tensor(2.0))
    Tensor(12.)
    """
    check_function("grad", func)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        point, gradients = _at("grad", func, args, kwargs, argnums, has_aux)
        return (gradients, point.aux()) if has_aux else gradients

    return renamed(gradient, func)


def value_and_grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns the function that computes a function's value and its gradient.

    value_and_grad(f)(x) = f(x), df(x) / dx

    Args:
      func:     returns a float scalar; see grad
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:  func returns (scalar, aux), and the new function ((scalar, aux), gradient)

    Returns:   a function of the arguments of func

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than one Tensor.
      ShapeError:    func returns no scalar.
      DTypeError:    an argument it is differentiated by, or the result, is not a float.

    >>> value_and_grad(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    (Tensor(5.), Tensor([2., 4.]))
    """
    check_function("value_and_grad", func)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        point, gradients = _at("value_and_grad", func, args, kwargs, argnums, has_aux)
        return ((point.value(), point.aux()) if has_aux else point.value()), gradients

    return renamed(value_and_gradient, func)


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns the function that computes a function's gradient and its value: value_and_grad in PyTorch's order.

    grad_and_value(f)(x) = df(x) / dx, f(x)

    Args:
      func:     returns a float scalar; see grad
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:  func returns (scalar, aux), and the new function (gradient, (scalar, aux))

    Returns:   a function of the arguments of func

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than one Tensor.
      ShapeError:    func returns no scalar.
      DTypeError:    an argument it is differentiated by, or the result, is not a float.

    >>> grad_and_value(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    (Tensor([2., 4.]), Tensor(5.))
    """
    check_function("grad_and_value", func)

    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        point, gradients = _at("grad_and_value", func, args, kwargs, argnums, has_aux)
        return gradients, (point.value(), point.aux()) if has_aux else point.value()

    return renamed(gradient_and_value, func)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Returns the value of a function, and the function that multiplies its Jacobian by a vector from the left.

    out, pull = vjp(f, x);  pull(v) = (v^T J,)        J = df(x) / dx

    Args:
      func:     of the primals; returns Tensors, alone or in lists, tuples, dicts and dataclasses
      primals:  arguments of func, each of them differentiated: Tensors, or containers of them
      has_aux:  func returns (result, aux)

    Returns:   the result of func; a function of cotangents in its form that gives a tuple, one gradient for each primal;
               with has_aux also aux

    Raises:
      ArgumentError: func returns something else than Tensors.
      DTypeError:    a primal is not a float.

    >>> out, pull = vjp(lambda x: x * x, Tensor([1.0, 2.0]))
    >>> out, pull(Tensor([10.0, 1.0]))
    (Tensor([1., 4.]), (Tensor([20.,  4.]),))
    """
    point = Point("vjp", func, primals, {}, range(len(primals)), has_aux)
    point.check_tensors()

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return tuple(point.like_arguments(point.gradients(point.seeds(given))))

    return (point.value(), pull, point.aux()) if has_aux else (point.value(), pull)


# ---- shared ----
def _at(
    transform: str, func: Callable[..., Any], args: Any, kwargs: Any, argnums: Argnums, has_aux: bool
) -> tuple[Point, Any]:
    """Returns a function at a point, and its gradient there."""
    numbers = argument_numbers(transform, argnums, len(args), name_of(func))
    point = Point(transform, func, args, kwargs, numbers, has_aux)
    root = point.scalar()
    gradients = point.like_arguments(point.gradients({root: _one(root)}))
    return point, gradients[0] if isinstance(argnums, int) else tuple(gradients)


def _one(root: Op) -> Op:
    return filled(1, root.dtype, ())


def renamed(function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function under the name and with the description of another one."""
    return functools.update_wrapper(function, like) if hasattr(like, "__name__") else function


# ---- forward mode ----
@overload
def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]: ...  # fmt: skip


@overload
def jvp(outputs: Tensor, inputs: list[Tensor], tangents: list[Tensor]) -> Tensor: ...


def jvp(*args: Any, **kwargs: Any) -> Any:
    """Returns the value of a function and how it changes along tangents; or how tensors change with others.

    jvp(f, (x,), (v,)) = f(x), J v        J = df(x) / dx

    The first of `args` and `kwargs` decides which of the two it is:

      jvp(func, primals, tangents, *, strict=False, has_aux=False)
        func:      returns Tensors, alone or in lists, tuples, dicts and dataclasses
        primals:   tuple of its arguments: Tensors, or containers of them
        tangents:  tuple of the same form: how each of them moves
        strict:    a result that does not depend on the primals is an error, not a zero
        has_aux:   func returns (result, aux)

      jvp(outputs, inputs, tangents)
        outputs:   a Tensor
        inputs:    the leaves that move, each along one of `tangents`; returned is J v alone

    Returns:   the result of func and its tangent; with has_aux also aux

    Raises:
      ArgumentError: primals and tangents do not fit, func returns something else than Tensors, or strict.
      ShapeError:    a tangent has another shape than its primal.
      DTypeError:    a primal is not a float.

    >>> jvp(lambda x: x * x, (Tensor([2.0, 3.0]),), (Tensor([1.0, 0.0]),))
    (Tensor([4., 9.]), Tensor([4., 0.]))
    """
    if "func" in kwargs or (args and not isinstance(args[0], Tensor)):
        return jvp_of(*args, **kwargs)
    return gradients.jvp(*args, **kwargs)


def jvp_of(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Returns the value of a function and how it changes along tangents: `jvp` of a function alone.

    f(x), J v        J = df(x) / dx

    Args:
      func:      returns Tensors, alone or in lists, tuples, dicts and dataclasses
      primals:   tuple of its arguments: Tensors, or containers of them
      tangents:  tuple of the same form: how each of them moves
      strict:    a result that does not depend on the primals is an error, not a zero
      has_aux:   func returns (result, aux)

    Returns:   the result of func and its tangent; with has_aux also aux

    Raises:
      ArgumentError: primals and tangents do not fit, func returns something else than Tensors, or strict.

    >>> jvp_of(lambda x: x * x, (Tensor([2.0, 3.0]),), (Tensor([1.0, 0.0]),))
    (Tensor([4., 9.]), Tensor([4., 0.]))
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list) or len(primals) != len(tangents):
        raise ArgumentError(
            "jvp: primals and tangents must be tuples of one length, a tangent for each primal.", "jvp(f, (x,), (v,))"
        )
    point = Point("jvp", func, tuple(primals), {}, range(len(primals)), has_aux)
    point.check_tensors()
    moved = point.tangents(_moves(point, tuple(tangents)))
    if strict:
        _check_moves(point)
    found = point.value(), point.like_result(moved)
    return (*found, point.aux()) if has_aux else found


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Returns the value of a function, and the linear function that is its derivative there.

    out, push = linearize(f, x);  push(v) = J v        J = df(x) / dx

    func runs once; each call of the linear function only adds what depends on the tangents.

    Args:
      func:     returns Tensors, alone or in lists, tuples, dicts and dataclasses
      primals:  its arguments: Tensors, or containers of them

    Returns:   the result of func, and a function of as many tangents that gives the tangent of the result

    Raises:
      ArgumentError: func returns something else than Tensors.
      DTypeError:    a primal is not a float.

    >>> out, push = linearize(lambda x: x * x, Tensor([2.0, 3.0]))
    >>> push(Tensor([1.0, 0.0])), push(Tensor([0.0, 1.0]))
    (Tensor([4., 0.]), Tensor([0., 6.]))
    """
    point = Point("linearize", func, primals, {}, range(len(primals)))
    point.check_tensors()

    def push(*tangents: Any) -> Any:
        return point.like_result(point.tangents(_moves(point, tangents)))

    return point.value(), push


def _moves(point: Point, tangents: tuple[Any, ...]) -> dict[Op, Op]:
    """Returns the tangent of each leaf."""
    if len(tangents) != len(point.moving):
        raise ArgumentError(f"{point.transform}: {len(tangents)} tangents were given for {len(point.moving)} primals.")
    moves: list[Op] = []
    rest = iter(point.leaves)
    for number, (taken, tangent) in enumerate(zip(point.moving, tangents)):
        leaves = [next(rest) for _ in taken.tensors]
        moves += fitting(point.transform, take(tangent, f"tangents[{number}]"), taken, leaves, f"args[{number}]")
    return dict(zip(point.leaves, moves))


def _check_moves(point: Point) -> None:
    """Raises ArgumentError where a result does not depend on the primals."""
    for name in point.still():
        raise ArgumentError(
            f"jvp: {name} of {point.function} does not depend on the primals, and strict=True.",
            "strict=False uses zeros as its tangent.",
        )
