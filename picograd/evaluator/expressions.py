"""Turns the expressions of a Program into functions of what a thread knows.

In:    expressions of scalars and lanes, memory
Out:   `ValueMaker`: expression -> function from a Frame to its value
Called by: evaluator/program.py.    Next: picograd/evaluator/program.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from picograd.errors import VerifyError
from picograd.evaluator.arrays import BOOL_UFUNCS, UFUNCS
from picograd.evaluator.elementwise import ELEMENTWISE_RULES, Array, check, rounded, widened
from picograd.evaluator.frame import Frame, Memory
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import to_op

VALUES = frozenset({OpCode.RANGE, OpCode.VAR, OpCode.VARIABLE, OpCode.PARAM, OpCode.ALLOC})


class ValueMaker:
    """Turns expressions into functions.

    name:  of the program, for errors
    """

    def __init__(self, name: str):
        self.name = name

    # ---- expressions ----
    def expression(self, root: Op) -> Callable[[Frame], Any]:
        """Returns a function from a Frame to the value of `root`: a scalar, or an array of lanes."""
        if root.code in VALUES:
            return lambda frame: self._value(root, frame)
        order = toposort([root], stop=_Leaves())
        place = {op: i for i, op in enumerate(order)}
        sources = {op: [] if op.code in VALUES else [place[s] for s in op.src] for op in order}
        steps = [(self._operation(op), sources[op]) for op in order]

        def run(frame: Frame) -> Any:
            results: list[Any] = []
            for operation, places in steps:
                results.append(operation(frame, [results[i] for i in places]))
            return results[-1]

        return run

    def _operation(self, op: Op) -> Callable[[Frame, list[Any]], Any]:
        """Returns what one Op of an expression computes from the values of its sources."""
        if op.code in VALUES:
            return lambda frame, args: self._value(op, frame)
        if op.code is OpCode.CONST:
            constant = rounded(op.arg, op.dtype)[()]
            return lambda frame, args: constant
        if op.code is OpCode.LOAD:
            return self._load_expression(op)
        if op.code is OpCode.CHECK:
            length = self.expression(to_op(op.arg[1]))
            return lambda frame, args: check(op, args, int(length(frame)))[()]
        elementwise = ELEMENTWISE_RULES.get(op.code)
        if elementwise is not None:
            rule = elementwise
            return lambda frame, args: rounded(rule(op, args), op.dtype)[()]
        vector = VECTOR_RULES.get(op.code)
        if vector is None:
            raise VerifyError(f"program {self.name}: {op} is no expression of a program.")
        found = vector
        return lambda frame, args: found(op, args)

    def _value(self, op: Op, frame: Frame) -> Any:
        value = frame.values.get(op)
        if value is None:
            raise VerifyError(f"program {self.name}: {op} is read before it has a value.")
        return value

    def _load_expression(self, op: Op) -> Callable[[Frame, list[Any]], Any]:
        def run(frame: Frame, args: list[Any]) -> Any:
            return self.read(op.src[0], args[0], args[1], args[2] if len(args) > 2 else True, 1)

        return run

    # ---- memory ----
    def reader(self, op: Op, index: Op, valid: Op | None, lanes: int) -> Callable[[Frame], Any]:
        memory, at = self.expression(op), self.expression(index)
        mask = self.expression(valid) if valid is not None else None
        return lambda frame: self.read(op, memory(frame), at(frame), True if mask is None else mask(frame), lanes)

    def read(self, op: Op, memory: Memory, index: Any, valid: Any, lanes: int) -> Any:
        at, mask = lanes_of_access(index, lanes, valid)
        self.check_bounds("load from", op, memory, at[mask])
        if memory.stored is not None and not memory.stored[at[mask]].all():
            first = int(at[mask][~memory.stored[at[mask]]][0])
            raise VerifyError(f"program {self.name}: load from {op} at index {first}, where nothing has been stored.")
        result = np.zeros(at.shape, memory.array.dtype)
        result[mask] = memory.array[at[mask]]
        return result if result.size > 1 else result[0]

    def check_bounds(self, what: str, op: Op, memory: Memory, index: Array) -> None:
        outside = (index < 0) | (index >= memory.array.size)
        if outside.any():
            raise VerifyError(
                f"program {self.name}: {what} {op} at index {int(index[outside][0])}, "
                f"outside its {memory.array.size} elements."
            )


class _Leaves:
    """The Ops `toposort` does not look below: values, whose sources (a RANGE's extent) are read elsewhere."""

    def __contains__(self, op: Op) -> bool:
        return op.code in VALUES


def lanes_of_access(index: Any, lanes: int, valid: Any) -> tuple[Array, Array]:
    """Returns one index and one bool for each lane; a scalar index with several lanes is the first of that many."""
    at = np.atleast_1d(np.asarray(index))
    if at.size == 1 and lanes > 1:
        at = at[0] + np.arange(lanes)
    return at, np.broadcast_to(np.asarray(valid, np.bool_), at.shape)


# ---- lanes ----
def _spread(op: Op, args: Sequence[Any]) -> Any:
    return np.full(op.arg, args[0], op.dtype.numpy)


def _lane_numbers(op: Op, args: Sequence[Any]) -> Any:
    return np.arange(op.arg).astype(op.dtype.numpy)


def _combine_lanes(op: Op, args: Sequence[Any]) -> Any:
    """Combines lane i with lane i + n/2, then n/4, ... each step rounded to the dtype."""
    code = op.arg[0]
    values = np.atleast_1d(args[0])
    lanes = values.size
    ufunc = (BOOL_UFUNCS if op.dtype.kind == "b" else UFUNCS)[code]
    while lanes > 1:
        lanes //= 2
        low, high = (widened(half, op.dtype) for half in (values[:lanes], values[lanes : 2 * lanes]))
        values = rounded(ufunc(low, high), op.dtype)
    return values[0]


VECTOR_RULES: dict[OpCode, Callable[[Op, Sequence[Any]], Any]] = {
    OpCode.EXPAND: _spread,
    OpCode.LANES: _lane_numbers,
    OpCode.REDUCE: _combine_lanes,
}
