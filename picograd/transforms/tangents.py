"""Forward mode of functions: jvp, linearize.

In:    a function of Tensors, and how its arguments move
Out:   its value, and how that moves
Next:  picograd/transforms/jacobians.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from picograd.control.structure import take
from picograd.errors import ArgumentError
from picograd.ir.op import Op
from picograd.tensor import gradients
from picograd.tensor.tensor import Tensor
from picograd.transforms.point import Point, fitting


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
        strict:    a result that does not depend on the primals is an error, and not one that stands still
        has_aux:   func returns (result, aux)

      jvp(outputs, inputs, tangents)
        outputs:   a Tensor
        inputs:    the leaves that move, each along one of `tangents`; returned is J v alone

    Returns:   the result of func and its tangent; with has_aux also aux

    Raises:
      ArgumentError: primals and tangents do not fit, func returns something else than Tensors, or strict.
      ShapeError:    a tangent has another shape than its primal.
      DTypeError:    a primal is no float.

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
      strict:    a result that does not depend on the primals is an error, and not one that stands still
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
      DTypeError:    a primal is no float.

    >>> out, push = linearize(lambda x: x * x, Tensor([2.0, 3.0]))
    >>> push(Tensor([1.0, 0.0])), push(Tensor([0.0, 1.0]))
    (Tensor([4., 0.]), Tensor([0., 6.]))
    """
    point = Point("linearize", func, primals, {}, range(len(primals)))
    point.check_tensors()

    def push(*tangents: Any) -> Any:
        return point.like_result(point.tangents(_moves(point, tangents)))

    return point.value(), push


def _moves(point: Point, tangents: tuple[Any, ...]) -> list[Op]:
    """Returns the tangent of each leaf."""
    if len(tangents) != len(point.moving):
        raise ArgumentError(
            f"{point.transform}: {len(tangents)} tangents were given for {len(point.moving)} primals."
        )
    moves: list[Op] = []
    rest = iter(point.leaves)
    for number, (taken, tangent) in enumerate(zip(point.moving, tangents)):
        leaves = [next(rest) for _ in taken.tensors]
        moves += fitting(point.transform, take(tangent, f"tangents[{number}]"), taken, leaves, f"args[{number}]")
    return moves


def _check_moves(point: Point) -> None:
    """Raises ArgumentError where a result does not depend on the primals."""
    for name in point.still():
        raise ArgumentError(
            f"jvp: {name} of {point.function} does not depend on the primals, and strict=True.",
            "strict=False takes its tangent as zeros.",
        )
