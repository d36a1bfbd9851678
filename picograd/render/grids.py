"""How a phase is launched: how many iterations its GRID loops have, and about how much work one of them is.

In:    statements of one phase, in the linear form
Out:   Launch; `grid_loops`
Called by: render/llvm.py, devices/c/render.py.    Next: picograd/render/llvm_values.py

The grid is an expression of the program's variables, so that one binary serves every length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import Launch
from picograd.ir.statements import For, If, Let, Load, Statement, Store, Transpose, lanes_of
from picograd.ir.symbolic import INDEX_ARITHMETIC, add, bounds, floordiv, from_op, mod, subtract, to_op, with_values

ATOMS = frozenset({OpCode.RANGE, OpCode.VARIABLE})  # of index expressions
MOST_WORK = 1 << 40  # more counts as no more than that: of loops whose extents only a run tells, there may be several


def launch_of(symbol: str, statements: Sequence[Statement]) -> Launch:
    """Returns what the runtime needs to know of a phase."""
    named: dict[Op, Op] = {}
    work = _work(statements, named)
    loops = grid_loops(statements)
    grid: Dim = 0 if loops else 1
    for loop in loops:
        grid = add(grid, _extent(loop, named))
    return Launch(symbol, grid, 1, max(1, work // max(1, _trips(grid))))


def grid_loops(statements: Sequence[Statement]) -> list[For]:
    """Returns the loops whose iterations are shared among threads."""
    return [s for s in statements if isinstance(s, For) and s.range.arg[1] is AxisKind.GRID]


def _extent(loop: For, named: dict[Op, Op]) -> Dim:
    """Returns the extent of a loop as an expression of variables, in normal form."""
    extent = loop.range.src[0]
    return from_op(extent) if extent.code is OpCode.CONST else _index_value(extent, named)


def _work(statements: Sequence[Statement], named: dict[Op, Op]) -> int:
    """Returns about how many elements are loaded, computed and stored; fills `named` with what Lets name, and
    with loops' RANGEs whose extents are expressions of variables and of other loops."""
    total = 0
    for statement in statements:
        if isinstance(statement, Let):
            total += statement.var.arg[1]
            if statement.var.dtype is dtypes.int64 and statement.var.arg[1] == 1:
                named[statement.var] = statement.value
        elif isinstance(statement, Load):
            total += statement.var.arg[1]
        elif isinstance(statement, Store):
            total += lanes_of(statement.value)
        elif isinstance(statement, For):
            extent = _extent(statement, named)
            named[statement.range] = statement.range.replace(src=(to_op(extent),))
            total += min(max(_trips(extent), 0), MOST_WORK) * _work(statement.body, named)
        elif isinstance(statement, If):
            total += _work(statement.body, named)
        elif isinstance(statement, Transpose):
            total += 2 * statement.lanes**2
    return min(total, MOST_WORK)


def _trips(extent: Dim) -> int:
    """Returns how many iterations a loop has at most; about as many as it has in the middle, where lengths are symbolic.

    That is half-way through the loops around it, at the geometric mean of the least and the greatest length: of those from
    64 to 4095 most are short, and of what is left of one after blocks of 128 the bounds are far apart.
    """
    atoms = [] if isinstance(extent, int) else [op for op in toposort([extent]) if op.code in ATOMS]
    if any(op.code is OpCode.VARIABLE for op in atoms):
        middle: dict[Op, Dim] = {}
        for op in atoms:
            middle[op] = _middle(op, middle)
        value = with_values(extent, middle)
        if isinstance(value, int):
            return value
    return bounds(extent)[1]


def _middle(atom: Op, middle: Mapping[Op, Dim]) -> Dim:
    """Returns what stands for a symbolic integer or the position in a loop, given those of the loops around it."""
    if atom.code is OpCode.VARIABLE:
        least, greatest = bounds(atom)
        return isqrt(max(least, 1) * greatest)
    return floordiv(with_values(from_op(atom.src[0]), middle), 2)


def _index_value(value: Op, named: dict[Op, Op]) -> Dim:
    """Returns an integer with what Lets name put in, in normal form, and known extents of the loops around it."""
    value = named.get(value, value)
    if value.code is OpCode.SHR and value.src[1].code is OpCode.CONST:  # a quotient, made cheap
        return floordiv(_index_value(value.src[0], named), 1 << int(value.src[1].arg))
    if value.code is OpCode.AND and value.src[1].code is OpCode.CONST and (value.src[1].arg + 1).bit_count() == 1:
        return mod(_index_value(value.src[0], named), int(value.src[1].arg) + 1)
    combine = subtract if value.code is OpCode.SUB else INDEX_ARITHMETIC.get(value.code)
    return from_op(value) if combine is None else combine(*(_index_value(s, named) for s in value.src))
