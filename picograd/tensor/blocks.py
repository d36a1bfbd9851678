"""Views with what they cut in front: the block of the storage that a view of a view shows.

In:    the shape of some storage, and a view of it
Out:   `cut_first`
Called by: tensor/cell.py.    Next: picograd/tensor/exchange/host.py

A write through `cache[layer][n]` is a write to one block of the cache: a row is stored, not a layer. Cuts change places
with what only orders, turns round or renames axes, and become one where they meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from picograd.ir.op import Dim, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, subtract

Step = tuple[OpCode, Any]
Cuts = tuple[tuple[Dim, Dim], ...]


def cut_first(shape: Shape, view: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps of an equal view in which each SHRINK stands as far in front as it can.

    Example: SHRINK 1:2, 0:9; RESHAPE (9,); SHRINK 3:4  ->  SHRINK 1:2, 3:4; RESHAPE (1,)
    """
    found: list[tuple[Shape, Step]] = []  # with the shape before each step
    for step in view:
        if step[0] is OpCode.SHRINK:
            found = _with_cut(found, shape, step[1])
        else:
            found.append((shape, step))
        shape = _shape_after(shape, step)
    return tuple(step for _, step in found)


def _with_cut(steps: list[tuple[Shape, Step]], shape: Shape, cuts: Cuts) -> list[tuple[Shape, Step]]:
    """Returns `steps`, which lead to `shape`, and a cut, as far in front as it can stand."""
    behind: list[Step] = []
    for done in range(len(steps), 0, -1):
        before, (code, arg) = steps[done - 1]
        if code is OpCode.SHRINK:
            merged = tuple((add(a, start), add(a, stop)) for (a, _), (start, stop) in zip(arg, cuts))
            return _joined([*steps[: done - 1], (before, (code, merged))], behind)
        moved = _before(code, arg, before, cuts)
        if moved is None:
            return _joined([*steps[:done], (shape, (OpCode.SHRINK, cuts))], behind)
        behind.append((code, _lengths(cuts) if code is OpCode.RESHAPE else arg))
        shape, cuts = before, moved
    return _joined([(shape, (OpCode.SHRINK, cuts))], behind)


def _joined(steps: list[tuple[Shape, Step]], behind: list[Step]) -> list[tuple[Shape, Step]]:
    """Returns the steps with those that now stand behind the cut, the last of which comes first."""
    shape, last = steps[-1]
    shape = _shape_after(shape, last)
    for step in reversed(behind):
        steps.append((shape, step))
        shape = _shape_after(shape, step)
    return steps


def _before(code: OpCode, arg: Any, before: Shape, cuts: Cuts) -> Cuts | None:
    """Returns the cuts that do before a step what `cuts` do behind it, or None."""
    if code is OpCode.PERMUTE:
        return tuple(cuts[arg.index(axis)] for axis in range(len(arg)))
    if code is OpCode.FLIP:
        return tuple(
            (subtract(dim, stop), subtract(dim, start)) if axis in arg else (start, stop)
            for axis, (dim, (start, stop)) in enumerate(zip(before, cuts))
        )
    if code is not OpCode.RESHAPE or [d for d in before if d != 1] != [d for d in arg if d != 1]:
        return None
    if any(dim == 1 and cut != (0, 1) for dim, cut in zip(arg, cuts)):
        return None
    rest = iter([cut for dim, cut in zip(arg, cuts) if dim != 1])
    return tuple((0, 1) if dim == 1 else next(rest) for dim in before)


def _lengths(cuts: Cuts) -> Shape:
    return tuple(subtract(stop, start) for start, stop in cuts)


def _shape_after(shape: Shape, step: Step) -> Shape:
    """Returns the shape of what a step makes of a tensor of this shape."""
    code, arg = step
    if code in (OpCode.RESHAPE, OpCode.EXPAND):
        return tuple(arg)
    if code is OpCode.PERMUTE:
        return tuple(shape[axis] for axis in arg)
    if code is OpCode.SHRINK:
        return _lengths(arg)
    if code is OpCode.PAD:
        return tuple(add(dim, add(left, right)) for dim, (left, right) in zip(shape, arg))
    return shape
