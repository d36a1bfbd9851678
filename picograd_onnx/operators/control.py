"""Branches and loops, whose attributes are graphs; sequences, which are lists, and optionals, which may be None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from picograd.control.flow import scan
from picograd.errors import ArgumentError, DataError, IndexingError, ShapeError
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_onnx.operators.movement import concat
from picograd_onnx.record import Call, Declared, Graph, Operator, Runner, of_joined, row
from picograd_onnx.values import Array, Value, as_array, fixed, numpy_of

TRIPS_MAX = 10_000  # trips of a loop whose steps run one by one


def branch(
    condition: Value, *, then_branch: Graph, else_branch: Graph, run: Runner, outer: Mapping[str, Value]
) -> tuple[Value, ...]:
    """Returns the outputs of the chosen graph; an unknown condition is computed first, which jit refuses."""
    chosen = then_branch if _truth(condition) else else_branch
    return tuple(run.graph(chosen, (), outer))


def _truth(value: Value) -> bool:
    return bool(_number(value))


def _number(value: Value) -> int:
    """Returns the only element of a value, as an integer."""
    shape = tuple(getattr(value, "shape", (0,)))
    if math.prod(shape) != 1:
        raise ShapeError(f"a condition and a trip count must have one element, got shape {shape}.")
    return int(as_array(value).reshape(()))


# ---- Loop ----
def loop(
    trips: Value = None, condition: Value = None, *carried: Value, body: Graph, run: Runner, outer: Mapping[str, Value]
) -> tuple[Value, ...]:
    """Runs a body at most `trips` times, while its condition holds; returns the carried values and the stacked results."""
    most = None if trips is None else _number(trips)
    state, rows = [*carried], [[] for _ in body.outputs[1 + len(carried) :]]  # type: list[Value], list[list[Value]]
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) < 1 + len(carried):
        raise DataError(f"Loop: a body that carries {len(carried)} values has {len(body.inputs)} inputs.")
    decides = _depends(body, body.outputs[0].name, {body.inputs[0].name, *(entry.name for entry in body.inputs[2:])})
    going, count = condition is None or _truth(condition), 0
    while going and (most is None or count < most):
        results = run.graph(body, [np.array(count, np.int64), np.array(True), *state], outer)
        state = results[1 : 1 + len(state)]
        for kept, result in zip(rows, results[1 + len(state) :]):
            kept.append(result)
        going, count = _goes_on(results[0], state), count + 1
        if going and (count >= TRIPS_MAX or not decides) and (most is None or most > TRIPS_MAX):
            asked = "without a trip count" if most is None else f"of {most} trips"
            raise DataError(f"Loop: {asked}, its condition still holds after {count}; up to {TRIPS_MAX} trips are run.")
    stacked = (_stacked(kept, entry) for kept, entry in zip(rows, body.outputs[1 + len(state) :]))
    return (*state, *stacked)


def _depends(body: Graph, name: str, changing: set[str]) -> bool:
    """Returns whether a value of a body depends on the values that change from step to step, or on random numbers."""
    changing = {*changing}
    for step in body.steps:
        graphs = any(isinstance(value, Graph) for value in step.attributes.values())  # such a step may read any value
        random = isinstance(step.does, Operator) and step.does.random
        if graphs or random or isinstance(step.does, Call) or not changing.isdisjoint(step.inputs):
            changing.update(step.outputs)
    return name in changing


def _goes_on(condition: Value, state: Sequence[Value]) -> bool:
    """Returns whether a loop continues; the carried values are computed together with the condition, once a step."""
    if isinstance(condition, Tensor):
        realize([condition, *(value for value in state if isinstance(value, Tensor))])
    return _truth(condition)


def _stacked(rows: Sequence[Value], entry: Declared) -> Value:
    if not rows:
        shape = tuple(n if isinstance(n, int) else 0 for n in entry.shape or ())
        return np.zeros((0, *shape), numpy_of(entry.elem_type or 1))
    if all(isinstance(value, np.ndarray) for value in rows):
        return np.stack(rows)
    return Tensor.stack([value if isinstance(value, Tensor) else fixed(value) for value in rows])


# ---- Scan ----
def scan_over(
    *inputs: Value,
    body: Graph,
    num_scan_inputs: int,
    run: Runner,
    outer: Mapping[str, Value],
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """Runs a body along axes of its inputs as one LOOP; returns the last state and the results, stacked along axes."""
    tensors = [run.tensor(value) for value in inputs]
    split = len(tensors) - num_scan_inputs
    if num_scan_inputs < 1 or split < 0 or len(body.inputs) != len(tensors) or len(body.outputs) < split:
        raise DataError(f"Scan: {num_scan_inputs} of {len(tensors)} inputs for a body with {len(body.inputs)}.")
    state, rows = tensors[:split], tensors[split:]
    rows = [row.movedim(axis, 0) for row, axis in zip(rows, scan_input_axes or [0] * len(rows))]
    rows = [row.flip(0) if back else row for row, back in zip(rows, scan_input_directions or [0] * len(rows))]

    def step(carry: list[Tensor], xs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        results = [run.tensor(value) for value in run.graph(body, [*carry, *xs], outer)]
        return results[:split], results[split:]

    last, made = scan(step, state, rows)
    count = len(made)
    made = [y.flip(0) if back else y for y, back in zip(made, scan_output_directions or [0] * count)]
    made = [y.movedim(0, axis) for y, axis in zip(made, scan_output_axes or [0] * count)]
    return (*last, *made)


def scan_batches(
    lengths: Value,
    *inputs: Value,
    body: Graph,
    num_scan_inputs: int,
    run: Runner,
    outer: Mapping[str, Value],
    directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """Runs scan_over for each batch along axis 0 (version 8)."""
    if lengths is not None:
        raise DataError("Scan: sequence_lens of version 8 are not supported.")
    tensors = [run.tensor(value) for value in inputs]
    count = tensors[0].shape[0] if tensors and tensors[0].ndim else 0
    if not 0 < count <= TRIPS_MAX:
        raise DataError(f"Scan: needs 1 to {TRIPS_MAX} batches, got {count}.")
    parts = [
        scan_over(
            *(tensor[number] for tensor in tensors), body=body, num_scan_inputs=num_scan_inputs, run=run, outer=outer,
            scan_input_directions=directions,
        )
        for number in range(count)
    ]  # fmt: skip
    return tuple(Tensor.stack([*column]) for column in zip(*parts))


OPERATORS = [
    row("If", 1, branch), row("Loop", 1, loop), row("Scan", 8, scan_batches), row("Scan", 9, scan_over),
]  # fmt: skip


# ---- sequences and optionals ----
PIECES_MAX = 1 << 16  # pieces that one tensor may be split into


def construct(*values: Any) -> list[Any]:
    """Returns a sequence of the given values."""
    return [*values]


def empty(*, dtype: int = 1) -> list[Any]:
    """Returns an empty sequence."""
    numpy_of(dtype)  # raises for an unknown type
    return []


def _place(sequence: list[Any], position: int, most: int) -> int:
    if not -len(sequence) <= position <= most:
        raise IndexingError(f"position {position} is outside a sequence of {len(sequence)}.")
    return position + len(sequence) if position < 0 else position


def insert(sequence: list[Any], value: Any, position: int | None = None) -> list[Any]:
    """Returns a sequence with one more value, by default at the end."""
    place = len(sequence) if position is None else _place(sequence, position, len(sequence))
    return [*sequence[:place], value, *sequence[place:]]


def erase(sequence: list[Any], position: int = -1) -> list[Any]:
    """Returns a sequence without one value, by default the last."""
    place = _place(sequence, position, len(sequence) - 1)
    return [*sequence[:place], *sequence[place + 1 :]]


def at(sequence: list[Any], position: int) -> Any:
    """Returns the value at a position of a sequence."""
    return sequence[_place(sequence, position, len(sequence) - 1)]


def length(sequence: list[Any]) -> Array:
    """Returns the number of values."""
    return np.array(len(sequence), np.int64)


def concat_from(sequence: list[Any], *, axis: int, new_axis: int = 0) -> Any:
    """Concatenates the values along an axis, or stacks them along a new one."""
    if not sequence:
        raise ArgumentError("ConcatFromSequence: the sequence is empty.")
    if new_axis:
        sequence = [value.reshape((*value.shape[:axis], 1, *value.shape[axis:])) for value in sequence]
    return concat(*sequence, axis=axis)


def split_to(x: Tensor, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    """Splits along an axis into pieces of length 1, of length `split`, or of several lengths."""
    if split is not None and split.ndim:
        return [*x.split(split.tolist(), axis)]
    each = 1 if split is None else int(split)
    if each < 1 or x.shape[axis] > each * PIECES_MAX:
        raise ArgumentError(f"SplitToSequence: {x.shape[axis]} elements by {each} must be 1 to {PIECES_MAX} pieces.")
    pieces = x.split(each, axis)
    return [*pieces] if keepdims or split is not None else [piece.squeeze(axis) for piece in pieces]


def optional(value: Any = None, *, type: Any = None) -> Any:  # noqa: A002
    """Returns an optional: a value, or None if only a type is given."""
    if value is None and type is None:
        raise ArgumentError("Optional: needs an input or a type.")
    return value


def has_element(value: Any = None) -> Array:
    """Returns whether an optional has a value."""
    return np.array(value is not None)


def get_element(value: Any) -> Any:
    """Returns the value of an optional.

    Raises:
      ArgumentError: the optional is empty.
    """
    if value is None:
        raise ArgumentError("OptionalGetElement: the optional is empty.")
    return value


OPERATORS += [
    row("SequenceConstruct", 11, construct, hosts=True), row("SequenceEmpty", 11, empty),
    row("SequenceInsert", 11, insert, "x x one", hosts=True), row("SequenceErase", 11, erase, "x one", hosts=True),
    row("SequenceAt", 11, at, "x one", hosts=True), row("SequenceLength", 11, length, hosts=True),
    row("ConcatFromSequence", 11, concat_from, span=of_joined, hosts=True),
    row("SplitToSequence", 11, split_to, "x 0-1!"),
    row("Optional", 15, optional, hosts=True), row("OptionalHasElement", 15, has_element, hosts=True),
    row("OptionalGetElement", 15, get_element, hosts=True),
]  # fmt: skip
