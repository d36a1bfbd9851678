"""A function of one example becomes a function of many: traced once, then rewritten so that each Op computes all of them.

In:    a function of one example, in_dims or out_dims as users write them
Out:   a function of stacked examples, whose graph has the same number of Ops however many there are;  `ExampleTrace`:
       a context in which nothing is computed;  `dims_of`: an axis for each Tensor;  `check_function`
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from picograd.control.closure import FunctionTrace, name_of, stand_in, store
from picograd.control.structure import Taken, parts_of, put, take
from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.ir.op import Dim, Op
from picograd.ir.origin import line_of, record
from picograd.record import Record
from picograd.rewrites.vmap import Examples, Operand, draws, for_all, move_axis
from picograd.tensor.arguments import check_one_of
from picograd.tensor.cell import Cell, Trace, trace
from picograd.tensor.generator import Word
from picograd.tensor.tensor import Tensor


# ---- one example ----
class ExampleTrace(FunctionTrace):
    """A context in which a function builds the graph of one example; cells made before have their values again afterwards.

    `changed` says what it left in those that it wrote.
    """

    def __init__(self, function: str):
        super().__init__("vmap", function)
        self.outer: Trace | None = trace.get()

    def enter(self, cell: Cell) -> None:
        """Lets an outer trace know of a cell that is read."""
        if self.outer is not None:
            self.outer.on_read(cell)
        self.before[cell] = cell.op

    def changed(self) -> dict[Cell, Op]:
        """Returns the cells made before that the function wrote to, and their values after it."""
        return {cell: op for cell, op in self.written.items() if op is not self.before[cell]}


# ---- axes as users write them ----
def dims_of(name: str, dims: Any, value: Any, path: str) -> Iterator[int | None]:
    """Yields for each Tensor of a container, in order, what `dims` says of it.

    Args:
      name:   "in_dims" or "out_dims", for errors
      dims:   an axis or None for all of them, or a container of the form of value
      value:  Tensors, alone or in lists, tuples, dicts and dataclasses
      path:   what the user calls value

    Raises:
      ArgumentError: dims has another form than value, or names an axis of something that is not a Tensor.

    >>> list(dims_of("in_dims", (0, {"a": None}), (Tensor([1.0]), {"a": Tensor(2.0)}), "args"))
    [0, None]
    """
    if isinstance(value, Tensor):
        if name == "out_dims" and isinstance(dims, tuple) and len(dims) == 1:  # of one result, as in PyTorch
            (dims,) = dims
        if dims is not None and (not isinstance(dims, int) or isinstance(dims, bool)):
            raise ArgumentError(f"vmap: {name} gives {dims!r} for {path}, which is one Tensor.", "an axis, or None.")
        yield dims
        return
    parts = list(parts_of(value, path))
    if not parts:
        if isinstance(dims, int) and not isinstance(value, list | tuple | dict) and value is not None:
            raise ArgumentError(
                f"vmap: {name} gives axis {dims} for {path}, which is {value!r}, not a Tensor.",
                f"{name}=None for it: all examples share it.",
            )
        return
    if dims is None or isinstance(dims, int):
        for _, longer, part in parts:
            yield from dims_of(name, dims, part, longer)
        return
    inner = {key: part for key, _, part in parts_of(dims, name)}
    if not _same_kind(dims, value) or set(inner) != {key for key, _, _ in parts}:
        raise ArgumentError(
            f"vmap: {name} is {dims!r}, whose structure differs from {path}.",
            f"one axis, or None, for each part of {path}: in a {type(value).__name__} of {len(parts)}.",
        )
    for key, longer, part in parts:
        yield from dims_of(name, inner[key], part, longer)


def _same_kind(dims: Any, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return isinstance(dims, list | tuple)
    return isinstance(dims, dict) == isinstance(value, dict)


def check_function(transform: str, function: Any) -> None:
    """Raises ArgumentError where a transform was given something else than a function."""
    if not callable(function):
        shown = f"a Tensor of shape {function.op.shape}" if isinstance(function, Tensor) else repr(function)
        raise ArgumentError(f"{transform}: needs a function, got {shown}.")


def axis_in(dim: int, rank: int, name: str, path: str, shape: object) -> int:
    """Returns an axis counted from the front.

    Raises:
      IndexingError: there is no such axis.
    """
    if not -rank <= dim < rank:
        raise IndexingError(f"vmap: {name} gives axis {dim} for {path}, whose shape is {shape}.")
    return dim % rank


# ---- many examples ----
RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Returns a function that applies `func` to each of many examples, as one graph.

    vmap(f)(xs)[i] = f(xs[i])

    f is traced once, with the shapes of one example; then each Op of its graph gets the axis of examples. So the graph
    has as many Ops for 2 examples as for 200, and what does not depend on an example is computed once. It nests, in any
    order, with grad, jvp, jit and the others. Tensors that f writes in place must be the same for all examples, or
    arguments with an axis of them.

    Args:
      func:        of Tensors, alone or in lists, tuples, dicts and dataclasses, and of anything else; gives Tensors
      in_dims:     the axis of examples of every positional argument, None where it is the same for all; or one for each
                   argument, or in its form. Keyword arguments are the same for all.
      out_dims:    where the axis of examples goes in the results: one place, or one for each, or in their form
      randomness:  of random draws inside: "error", "different" bits for each example, or the "same" for all
      chunk_size:  examples computed at once; None: all of them

    Returns:   a function of the same arguments

    Raises:
      ArgumentError: in_dims or out_dims does not fit, or f draws random numbers and randomness is "error".
      ShapeError:    arguments have different numbers of examples.
      JitError:      f asks for a value, as item() does, and nonzero() and others whose result's shape depends on values.

    >>> dot = vmap(lambda x, y: (x * y).sum(), in_dims=(0, None))
    >>> dot(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0]))
    Tensor([21., 43.])
    """
    check_function("vmap", func)
    check_one_of("vmap", "randomness", randomness, RANDOMNESS)
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ArgumentError(f"vmap: chunk_size must be a number of examples, got {chunk_size!r}.")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        given = _given(in_dims, args)
        call = _Call(func, kwargs, out_dims, randomness)
        count = given.count
        if chunk_size is None or not isinstance(count, int) or count <= chunk_size:
            return call.run(given)
        chunks = [given.cut(start, min(start + chunk_size, count)) for start in range(0, count, chunk_size)]
        whole = randomness == "different"  # of the same draws the last chunk moves the generators on, for all
        return _joined([call.run(chunk, whole or chunk is chunks[-1]) for chunk in chunks], out_dims)

    return functools.update_wrapper(mapped, func) if hasattr(func, "__name__") else mapped


class _Given(Record):
    """Arguments with their examples.

    taken:  the Tensors of the positional arguments
    axes:   for each the axis of examples, or None
    count:  how many examples there are
    """

    taken: Taken
    axes: tuple[int | None, ...]
    count: Dim

    def cut(self, start: int, stop: int) -> _Given:
        """Returns some of the examples."""
        parts = [
            tensor if axis is None else tensor.narrow(axis, start, stop - start)
            for tensor, axis in zip(self.taken.tensors, self.axes)
        ]
        return _Given(take(put(self.taken.container, parts), "args"), self.axes, stop - start)


def _given(in_dims: Any, args: tuple[Any, ...]) -> _Given:
    """Finds the examples among arguments.

    Raises:
      ArgumentError: none of them has examples.
      ShapeError:    two have different numbers of them.
    """
    taken = take(args, "args")
    dims = list(dims_of("in_dims", in_dims, args, "args"))
    axes: list[int | None] = []
    count: Dim | None = None
    first = ""
    for tensor, name, dim in zip(taken.tensors, taken.names, dims):
        shape = tensor.op.shape
        axes.append(None if dim is None else axis_in(dim, len(shape), "in_dims", name, shape))
        if dim is None:
            continue
        own = shape[axes[-1]]  # type: ignore[index]
        if count is None:
            count, first = own, name
        elif own != count:
            raise ShapeError(
                f"vmap: {first} has {count} examples, {name} of shape {shape} has {own} along axis {dim}.",
                f"in_dims=None for {name}, if all examples share it.",
            )
    if count is None:
        raise ArgumentError(f"vmap: in_dims={in_dims!r} names no axis of examples.", "in_dims=0 for at least one argument.")
    return _Given(taken, tuple(axes), count)


class _Call(Record):
    """A call of a function for many examples.

    function:    of one example
    kwargs:      the same for all
    out_dims:    as the user wrote them
    randomness:  see vmap
    """

    function: Callable[..., Any]
    kwargs: dict[str, Any]
    out_dims: Any
    randomness: str

    def run(self, given: _Given, moves_on: bool = True) -> Any:
        """Traces one example and returns the results of all; not `moves_on`: the next call draws the same numbers."""
        tensors = given.taken.tensors
        start = [tensor.read() for tensor in tensors]
        values: dict[Op, Op] = {}
        with ExampleTrace(name_of(self.function)) as watch:
            inside: list[Tensor] = []
            for tensor, op, axis in zip(tensors, start, given.axes):
                stand = op if axis is None else self._stand(tensor, op, axis, values)
                inside.append(Tensor.from_cell(Cell(stand, tensor.cell.device)))
            begin = [tensor.cell.op for tensor in inside]
            returned = take(watch.call(self.function, *put(given.taken.container, inside), **self.kwargs), "result")
            roots = [tensor.read() for tensor in returned.tensors]
        self._check_returned(returned)
        watch.check_kept([*returned.tensors, *inside], "it is that of one example.", "return it.")
        changed = watch.changed()
        stored = {i: tensor.cell.op for i, tensor in enumerate(inside) if tensor.cell.op is not begin[i]}
        known = {*watch.before.values(), *start} - {*values}
        every = [*roots, *changed.values(), *stored.values()]
        self._check_draws(every, known, watch.function)
        examples = Examples(given.count, self.randomness == "different")
        found = for_all(every, examples, values, known)
        results, left = found[: len(roots)], found[len(roots) :]
        self._store_outside([*changed], left, watch, moves_on)
        for (i, _), operand in zip(stored.items(), left[len(changed) :]):
            self._store_argument(given, i, operand, examples)
        return self._results(returned, results, examples)

    def _stand(self, tensor: Tensor, op: Op, axis: int, values: dict[Op, Op]) -> Op:
        """Returns a stand-in for one example of an argument, and adds the argument's examples to `values`."""
        shape = tuple(dim for i, dim in enumerate(op.shape) if i != axis)
        stand = stand_in(op.dtype, shape, tensor.cell.device, op.needs_grad)
        values[stand] = move_axis(op, axis, 0)
        return stand

    def _check_returned(self, returned: Taken) -> None:
        if returned.others:
            name, value = returned.others[0]
            raise ArgumentError(
                f"vmap: {name_of(self.function)} returned {value!r} as {name}, which is not a Tensor.",
                "return Tensors, alone or in lists, tuples, dicts and dataclasses.",
            )

    def _check_draws(self, roots: Sequence[Op], known: set[Op], function: str) -> None:
        draw = draws(roots, known) if self.randomness == "error" else None
        if draw is not None:
            raise ArgumentError(
                f"vmap: {function} draws random numbers; randomness must say whether examples share them.",
                'vmap(f, randomness="different"), or "same".',
                line=line_of(draw),
            )

    # ---- what the function wrote in place ----
    def _store_outside(self, cells: Sequence[Cell], left: Sequence[Operand], watch: ExampleTrace, moves_on: bool) -> None:
        for cell, operand in zip(cells, left):
            if operand.batched:
                raise ArgumentError(
                    f"vmap: {watch.function} writes a different value per example to a tensor of shape {cell.op.shape}"
                    " made before.",
                    "return the value, or pass the tensor as an argument with an axis of examples.",
                )
        for cell, operand in zip(cells, left):
            if moves_on or not isinstance(cell, Word):
                store(cell, operand.op)

    def _store_argument(self, given: _Given, number: int, operand: Operand, examples: Examples) -> None:
        tensor, axis, name = given.taken.tensors[number], given.axes[number], given.taken.names[number]
        if axis is None and operand.batched:
            raise ArgumentError(
                f"vmap: {name_of(self.function)} writes a different value per example to {name}, which all"
                " examples share.",
                "return the value, or give the argument an axis of examples.",
            )
        value = operand.op if axis is None else move_axis(operand.each(examples), 0, axis)
        tensor.write("vmap", value)

    # ---- results ----
    def _results(self, returned: Taken, found: Sequence[Operand], examples: Examples) -> Any:
        """Returns the function's results for all examples, their axis where out_dims says."""
        dims = list(dims_of("out_dims", self.out_dims, returned.container, "result"))
        results: list[Tensor] = []
        for tensor, name, dim, operand in zip(returned.tensors, returned.names, dims, found):
            if dim is None:
                if operand.batched:
                    raise ArgumentError(f"vmap: out_dims=None declares {name} equal for all examples; it is not.")
                op = operand.op
            else:
                op = operand.each(examples)
                op = move_axis(op, 0, axis_in(dim, len(op.shape), "out_dims", name, tensor.op.shape))
            record(op)
            results.append(Tensor.from_op(op, tensor.cell.device))
        return put(returned.container, results)


def _joined(chunks: Sequence[Any], out_dims: Any) -> Any:
    """Returns the results of all chunks along their axes of examples."""
    taken = [take(chunk, "result") for chunk in chunks]
    dims = list(dims_of("out_dims", out_dims, chunks[0], "result"))
    joined = [
        parts[0] if dim is None else Tensor.cat(list(parts), dim)
        for dim, parts in zip(dims, zip(*(part.tensors for part in taken)))
    ]
    return put(chunks[0], joined)
