"""Whole Jacobians and Hessians, and products with a Hessian: jacrev, jacfwd, hessian, hvp, vhp.

In:    a function of Tensors
Out:   functions that give its first or second derivatives by every element; its value, and the product with a vector

A Jacobian is one graph of a row or a column, which vmap makes the graph of all of them; a product needs no Hessian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from picograd.autodiff.gradient import reached
from picograd.control.closure import name_of, stand_in
from picograd.control.structure import mapped
from picograd.errors import ArgumentError, DTypeError
from picograd.ir.build import cast, equal, expand, iota, move_last, reshape
from picograd.ir.op import Dim, Op
from picograd.ir.shape import numel
from picograd.rewrites.vmap import Examples, for_all, for_rows
from picograd.tensor.hooks import LeafNumber, hooks_among
from picograd.tensor.tensor import Tensor
from picograd.transforms.derivatives import Argnums, Point, argument_numbers, jvp, renamed, value_and_grad, vjp
from picograd.transforms.vmap import check_function


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Returns the function that computes the Jacobian of a function, row by row: reverse mode.

    jacrev(f)(x)[i, j] = df(x)[i] / dx[j]

    Each Tensor of the result becomes, in its place, the derivatives by each argument, of shape (*of the result, *of the
    argument). There is one graph of a row, rewritten for all rows: cheaper than jacfwd where f has fewer results.

    Args:
      func:        returns float Tensors, alone or in lists, tuples, dicts and dataclasses
      argnums:     which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:     func returns (result, aux), and the new function (Jacobian, aux)
      chunk_size:  rows computed at once; None: all of them

    Returns:   a function of the arguments of func

    Raises:
      ArgumentError: argnums names no argument, func returns something else than Tensors, or chunk_size is not a count.
      DTypeError:    an argument it is differentiated by, or a result, is not a float.

    >>> jacrev(lambda x: x * x)(Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]])
    """
    check_function("jacrev", func)
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ArgumentError(f"jacrev: chunk_size must be a number of rows, got {chunk_size!r}.")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        point = _at("jacrev", func, args, kwargs, argnums, has_aux)
        rows = [_rows(point, number, chunk_size) for number in range(len(point.roots))]
        return _arranged(point, rows, argnums, has_aux)

    return renamed(jacobian, func)


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Returns the function that computes the Jacobian of a function, column by column: forward mode.

    jacfwd(f)(x)[i, j] = df(x)[i] / dx[j]

    The same as jacrev, cheaper where f has fewer arguments than results.

    Args:
      func:        returns float Tensors, alone or in lists, tuples, dicts and dataclasses
      argnums:     which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:     func returns (result, aux), and the new function (Jacobian, aux)
      randomness:  accepted, without effect; func runs once, so all columns see the same random numbers

    Returns:   a function of the arguments of func

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than Tensors.
      DTypeError:    an argument it is differentiated by, or a result, is not a float.

    >>> jacfwd(lambda x: x * x)(Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]])
    """
    check_function("jacfwd", func)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        point = _at("jacfwd", func, args, kwargs, argnums, has_aux)
        columns = [_columns(point, number) for number in range(len(point.leaves))]
        return _arranged(point, [list(row) for row in zip(*columns)], argnums, has_aux)

    return renamed(jacobian, func)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Returns the function that computes the second derivatives of a function: forward over reverse mode.

    hessian(f)(x)[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:     returns a float scalar (or Tensors, all of which then have second derivatives)
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them

    Returns:   a function of the arguments of func that gives (*of the argument, *of the argument), in the form of the
               arguments within the form of the arguments

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than Tensors.
      DTypeError:    an argument it is differentiated by, or a result, is not a float.

    >>> hessian(lambda x: (x**3).sum())(Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


# ---- rows and columns ----
def _at(transform: str, func: Callable[..., Any], args: Any, kwargs: Any, argnums: Argnums, has_aux: bool) -> Point:
    numbers = argument_numbers(transform, argnums, len(args), name_of(func))
    point = Point(transform, func, args, kwargs, numbers, has_aux)
    point.check_tensors()
    for root, name in zip(point.roots, point.result.names):
        if not root.dtype.is_float:
            raise DTypeError(f"{transform}: {name} of {point.function} is {root.dtype}; only floats have derivatives.")
    return point


def _rows(point: Point, number: int, chunk_size: int | None) -> list[Op]:
    """Returns, for each leaf, the derivatives of one root by it: (*of the root, *of the leaf)."""
    root = point.roots[number]
    stand = stand_in(root.dtype, root.shape, point.result.tensors[number].cell.device, False)
    parts: list[list[Op]] = []
    on_the_way = reached([root])
    apart = bool(LeafNumber.hooked and hooks_among(on_the_way))  # hooks may read values
    for start, count in _pieces(numel(root.shape), chunk_size):
        basis = {stand: _unit_vectors(stand, start, count)}
        parts.append(for_rows(lambda values: point.gradients({root: values[0]}), basis, count, on_the_way, apart))
    whole = [_joined(pieces) for pieces in zip(*parts)]
    return [reshape(op, (*root.shape, *leaf.shape)) for op, leaf in zip(whole, point.leaves)]


def _columns(point: Point, number: int) -> list[Op]:
    """Returns, for each root, its derivatives by one leaf: (*of the root, *of the leaf)."""
    leaf = point.leaves[number]
    devices = [tensor.cell.device for taken in point.moving for tensor in taken.tensors]
    stand = stand_in(leaf.dtype, leaf.shape, devices[number], False)
    count, tangents = numel(leaf.shape), point.tangents({leaf: stand})
    examples = Examples(count)
    whole = [op.each(examples) for op in for_all(tangents, examples, {stand: _unit_vectors(stand, 0, count)})]
    return [reshape(move_last(op, 0), (*root.shape, *leaf.shape)) for op, root in zip(whole, point.roots)]


def _unit_vectors(stand: Op, start: int, count: Dim) -> Op:
    """Returns `count` unit vectors of the shape of `stand`, from the one numbered `start` on."""
    length = numel(stand.shape)
    vector = expand(reshape(iota(count) + start if start else iota(count), (count, 1)), (count, length))
    element = expand(reshape(iota(length), (1, length)), (count, length))
    return reshape(cast(equal(vector, element), stand.dtype), (count, *stand.shape))


def _pieces(count: Dim, chunk_size: int | None) -> Iterator[tuple[int, Dim]]:
    """Yields the first number and the length of each chunk."""
    if chunk_size is None or not isinstance(count, int) or count <= chunk_size:
        yield 0, count
        return
    for start in range(0, count, chunk_size):
        yield start, min(chunk_size, count - start)


def _joined(pieces: Sequence[Op]) -> Op:
    if len(pieces) == 1:
        return pieces[0]
    return Tensor.cat([Tensor.from_op(piece) for piece in pieces]).read()


def _arranged(point: Point, rows: Sequence[list[Op]], argnums: Argnums, has_aux: bool) -> Any:
    """Returns derivatives in the form of the result, and within it in that of the arguments."""
    entries: list[Any] = []
    for row in rows:
        parts = point.like_arguments(row)
        entries.append(parts[0] if isinstance(argnums, int) else tuple(parts))
    rest = iter(entries)
    found = mapped(point.result.container, lambda _: next(rest))
    return (found, point.aux()) if has_aux else found


# ---- products with a Hessian ----
def hvp(
    func: Callable[..., Any], inputs: Tensor | Sequence[Tensor], v: Tensor | Sequence[Tensor] | None = None
) -> tuple[Any, Any]:
    """Returns the value of a scalar function, and its Hessian times a vector: forward over reverse mode.

    H v        H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:    of the inputs; returns a float scalar
      inputs:  a Tensor, or a tuple of them
      v:       the vector, in the form of inputs; may be left out where the one input has one element

    Returns:   the value, and the product in the form of inputs

    Raises:
      ArgumentError: v is missing or has another form, or func returns something else than one Tensor.
      ShapeError:    v has another shape than inputs, or func returns no scalar.

    Cost:      some three times that of a gradient.

    >>> hvp(lambda x: (x**3).sum(), Tensor([1.0, 2.0]), Tensor([1.0, 1.0]))
    (Tensor(9.), Tensor([ 6., 12.]))
    """
    gradient, primals, vector = _prepared("hvp", func, inputs, v)
    _, product, value = jvp(gradient, primals, vector, has_aux=True)
    return value, _like(inputs, product)


def vhp(
    func: Callable[..., Any], inputs: Tensor | Sequence[Tensor], v: Tensor | Sequence[Tensor] | None = None
) -> tuple[Any, Any]:
    """Returns the value of a scalar function, and a vector times its Hessian: reverse over reverse mode.

    v^T H        H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:    of the inputs; returns a float scalar
      inputs:  a Tensor, or a tuple of them
      v:       the vector, in the form of inputs; may be left out where the one input has one element

    Returns:   the value, and the product in the form of inputs

    Raises:
      ArgumentError: v is missing or has another form, or func returns something else than one Tensor.
      ShapeError:    v has another shape than inputs, or func returns no scalar.

    >>> vhp(lambda x, y: (x * x * y).sum(), (Tensor([1.0]), Tensor([3.0])), (Tensor([1.0]), Tensor([0.0])))
    (Tensor(3.), (Tensor([6.]), Tensor([2.])))
    """
    gradient, primals, vector = _prepared("vhp", func, inputs, v)
    _, pull, value = vjp(gradient, *primals, has_aux=True)
    return value, _like(inputs, pull(vector))


def _prepared(
    transform: str, func: Callable[..., Any], inputs: Any, v: Any
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """Returns the gradient and the value, its arguments, and the vector in their form."""
    primals = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if v is None:
        if len(primals) != 1 or primals[0].numel() != 1:
            raise ArgumentError(f"{transform}: v may be left out only where the one input has one element.")
        v = Tensor.ones_like(primals[0])
        v = v if isinstance(inputs, Tensor) else (v,)
    vector = (v,) if isinstance(v, Tensor) else tuple(v)
    if len(vector) != len(primals):
        raise ArgumentError(f"{transform}: v has {len(vector)} Tensors, inputs have {len(primals)}.")
    both = value_and_grad(func, tuple(range(len(primals))))

    def gradient(*args: Any) -> tuple[Any, Any]:
        value, found = both(*args)
        return found, value

    return gradient, primals, vector


def _like(inputs: Any, found: tuple[Any, ...]) -> Any:
    return found[0] if isinstance(inputs, Tensor) else tuple(found)
