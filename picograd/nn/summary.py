"""A table of a network's layers: shapes in and out, parameters, operations, bytes.

FLOPs count the graph that a layer's forward builds (ir/shape.py), before simplification and fusion.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from picograd.autodiff.gradient import written_out
from picograd.errors import ArgumentTypeError
from picograd.ir.op import Op, toposort
from picograd.ir.shape import flops_of
from picograd.record import Record
from picograd.tensor.compute import all_or_nothing
from picograd.tensor.generator import resumed
from picograd.tensor.modes import no_grad
from picograd.tensor.printing import table
from picograd.tensor.tensor import Tensor

HEADS = ("layer", "in", "out", "parameters", "FLOPs", "bytes")


class Row(Record):
    """A layer of the table.

    name:        its path and class
    inputs:      shapes of its input tensors
    outputs:     shapes of its output tensors
    parameters:  number of trained elements
    flops:       floating-point operations of a forward
    nbytes:      bytes of its parameters and buffers
    """

    name: str
    inputs: str
    outputs: str
    parameters: int
    flops: int
    nbytes: int


class Summary(Record):
    """The layers of a network in execution order; shared parameters count once in the total.

    A module with child layers and parameters of its own has a row for its own part, after the rows of the children.

    >>> nn.Linear(2, 3).summary((4, 2)).total.parameters
    9
    """

    rows: tuple[Row, ...]
    total: Row

    def __str__(self) -> str:
        cells = [HEADS, *(_cells(row) for row in self.rows), _cells(self.total)]
        widths = [max(max(len(row[i]) for row in cells), 15 if i == 0 else 0) for i in range(len(HEADS))]
        lines = []
        for row in cells:
            texts = [row[i].rjust(widths[i]) if i > 2 else row[i].ljust(widths[i]) for i in range(len(HEADS))]
            lines.append("  ".join(texts).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the table as HTML for notebooks."""
        return table(HEADS, [_cells(row) for row in (*self.rows, self.total)])


def _cells(row: Row) -> tuple[str, ...]:
    return row.name, row.inputs, row.outputs, f"{row.parameters:,}", f"{row.flops:,}", f"{row.nbytes:,}"


def summarized(module: Any, inputs: tuple[Any, ...]) -> Summary:
    """Runs a module's forward without computing values, and returns a row for each call of a layer.

    Parameters, buffers and the default generator are restored afterwards, though forward has written to them.

    Raises:
      ArgumentTypeError: a required argument of forward is missing.
    """
    if not inputs:
        name = type(module).__name__
        raise ArgumentTypeError(f"summary: {name} needs the shape of its input.", f"{name.lower()}.summary((64, 784))")
    given = [value if not _is_shape(value) else Tensor.zeros(*value) for value in inputs]
    names = {id(m): (path, m) for path, m in module.named_modules()}
    shown = [m for _, m in names.values() if _own_tensors(m) or not any(True for _ in m.children())]
    state = [*module.parameters(), *module.buffers()]
    own = [tensor.op for tensor in state]  # before forward writes running averages
    rows: list[Row] = []
    first: list[int] = []  # for each layer in progress, the number of rows before it
    handles = []

    def noted(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        path = names[id(layer)][0]
        label = f"{path} {type(layer).__name__}" if path else type(layer).__name__
        ins, outs = list(_tensors([args, kwargs])), list(_tensors(output))
        parameters = sum(p.numel() for p in layer.parameters(recurse=False))
        flops = _flops(outs, ins, own) - sum(row.flops for row in rows[first.pop() :])
        nbytes = sum(tensor.nbytes for tensor in _own_tensors(layer))
        rows.append(Row(label, _shapes(ins), _shapes(outs), parameters, max(flops, 0), nbytes))

    try:
        for layer in shown:
            handles.append(layer.register_forward_pre_hook(lambda layer, args: first.append(len(rows))))
            handles.append(layer.register_forward_hook(noted, with_kwargs=True))
        with no_grad(), resumed(), suppress(_Done), all_or_nothing([tensor.cell for tensor in state]):
            output = module(*given)
            flops = _flops(list(_tensors(output)), list(_tensors(given)), own)
            raise _Done  # discards the writes to running averages
    finally:
        for handle in handles:
            handle.remove()
    parameters = sum(p.numel() for p in module.parameters())
    return Summary(tuple(rows), Row("total", "", "", parameters, flops, _nbytes(module)))


class _Done(Exception):
    """Ends a block whose writes are discarded."""


def _own_tensors(module: Any) -> list[Tensor]:
    """Returns the parameters and buffers that belong to a module, but not to a layer within it."""
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(dim, int) for dim in value)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(str(tensor.shape) for tensor in tensors)


def _nbytes(module: Any) -> int:
    return sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])


def _flops(outputs: list[Tensor], inputs: list[Tensor], own: list[Op]) -> int:
    """Returns the operations that the outputs need, without those of the inputs and of the model's own tensors.

    An input that was moved may not itself be in the graph of the outputs, but the Ops that compute it are.
    """
    ops = written_out([*(tensor.op for tensor in [*outputs, *inputs]), *own])
    before = set(toposort(ops[len(outputs) :]))
    return sum(flops_of(op) for op in toposort(ops[: len(outputs)]) if op not in before)
