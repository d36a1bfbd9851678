"""What expressions become in each copy of an unrolled body."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.passes.linearize import Copies, Split
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.symbolic import add, floordiv, mul, to_op

TWO = const(2, dtypes.int64)
STEP = Op(OpCode.RANGE, dtypes.int64, (const(8, dtypes.int64),), (0, AxisKind.LOOP))
COPY = Op(OpCode.RANGE, dtypes.int64, (TWO,), (1, AxisKind.UNROLL))
INDEX = to_op(add(add(mul(STEP, 2), mul(COPY, 3)), 5))  # STEP * 2 + COPY * 3 + 5


def in_each_copy(copies: Copies, op: Op) -> list[Op]:
    found = []
    for value in range(2):
        copies.constants[COPY] = value
        found.append(copies.resolve(op))
    return found


def test_an_index_differs_from_copy_to_copy_by_a_constant() -> None:
    copies = Copies()
    assert in_each_copy(copies, INDEX) == [to_op(add(mul(STEP, 2), number)) for number in (5, 8)]
    assert copies.split(INDEX) == Split(mul(STEP, 2), 5, [(COPY, 3)])


def test_an_index_inside_another_term_has_its_value_put_in() -> None:
    copies, quotient = Copies(), to_op(floordiv(add(STEP, COPY), 4))
    assert in_each_copy(copies, quotient) == [to_op(floordiv(add(STEP, number), 4)) for number in (0, 1)]
    assert copies.split(quotient) is None


def test_values_are_those_that_this_copy_named() -> None:
    copies = Copies()
    free, first, second = (Op(OpCode.VAR, dtypes.float32, (), (name, 1)) for name in ("a", "v1", "v2"))
    root = Op(OpCode.SIN, dtypes.float32, (free,))
    copies.constants[COPY] = 0
    for name in (first, second):
        copies.names[free] = name
        assert copies.resolve(root) == Op(OpCode.SIN, dtypes.float32, (name,))


def test_what_does_not_vary_stays_the_same_object() -> None:
    copies = Copies()
    copies.constants[COPY] = 1
    assert copies.resolve(STEP) is STEP
    assert copies.atoms_in(INDEX) == {STEP, COPY}
