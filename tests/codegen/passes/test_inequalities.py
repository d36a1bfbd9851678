"""What is proved of integers is true: random ones against all of their values, and never more than that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.passes.inequalities import Known, added
from picograd.ir.build import cast
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode

I64, U64, BOOL = dtypes.int64, dtypes.uint64, dtypes.bool_


class Integers:
    """Random operations on the indices of loops, with every value that they take.

    named:   VAR -> the operation it names
    values:  Op -> its value in each iteration of all loops
    """

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.named: dict[Op, Op] = {}
        self.variable = Op(OpCode.VARIABLE, I64, (), ("n", 1, 6))
        self.values: dict[Op, Any] = {self.variable: np.arange(1, 7)}
        for number in range(int(self.rng.integers(1, 4))):
            self.add_loop(number)
        for _ in range(int(self.rng.integers(3, 9))):
            self.add_value()

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integers(self) -> list[Op]:
        return [op for op in self.values if op.dtype is I64]

    def add_loop(self, number: int) -> None:
        """Opens a loop of a constant length, or of one that depends on what is around it."""
        extent: Op = const(int(self.rng.integers(1, 7)), I64)
        if self.rng.random() < 0.6:
            extent = self.name(OpCode.MIN, self.name(OpCode.ADD, self.scaled(-1), extent), const(4, I64))
            extent = self.pick([extent, self.variable])
        axis = Op(OpCode.RANGE, I64, (extent,), (number, AxisKind.LOOP))
        lengths = self.value_of(extent)
        times = np.maximum(lengths, 0)
        self.values = {op: np.repeat(value, times) for op, value in self.values.items()}
        self.values[axis] = np.concatenate([np.arange(count) for count in times] or [np.zeros(0, np.int64)])

    def value_of(self, op: Op) -> Any:
        if op.code is OpCode.CONST:
            return np.full(len(self.values[self.variable]), op.arg)
        return self.values[op]

    def name(self, code: OpCode, *src: Op, dtype: Any = I64) -> Op:
        """Names an operation, and works out its values."""
        var = Op(OpCode.VAR, dtype, (), (f"v{len(self.named)}", 1))
        self.named[var] = Op(code, dtype, src)
        self.values[var] = OPERATIONS[code](*map(self.value_of, src))
        return var

    def scaled(self, factor: int) -> Op:
        return self.name(OpCode.MUL, self.pick(self.integers()), const(factor, I64))

    def add_value(self) -> None:
        """Names one more integer."""
        a, b = self.pick(self.integers()), self.pick(self.integers())
        number = const(int(self.rng.integers(1, 5)), I64)
        code = self.pick([OpCode.ADD, OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.IDIV, OpCode.MOD, OpCode.MIN, OpCode.MAX,
                          OpCode.WHERE, OpCode.SHR, OpCode.AND])  # fmt: skip
        if code is OpCode.WHERE:
            self.name(code, self.condition(), a, b)
        elif code in (OpCode.IDIV, OpCode.MOD):
            self.name(code, a, self.pick([number, number, self.variable]))
        elif code is OpCode.MUL:
            self.name(code, a, self.pick([number, self.variable, b]))
        elif code is OpCode.SHR:
            self.name(code, a, const(1, I64))
        elif code is OpCode.AND:
            self.name(code, a, const(3, I64))
        else:
            self.name(code, a, self.pick([b, number]))

    def condition(self) -> Op:
        """Names a condition."""
        a, b = self.pick(self.integers()), self.pick([*self.integers(), const(int(self.rng.integers(-1, 6)), I64)])
        kind = int(self.rng.integers(5))
        if kind == 0:
            return self.name(OpCode.AND, self.condition(), self.condition(), dtype=BOOL)
        if kind == 1:
            return self.name(OpCode.CMPEQ, a, b, dtype=BOOL)
        if kind == 2:
            return self.name(OpCode.CMPNE, self.condition(), const(True, BOOL), dtype=BOOL)
        if kind == 3:
            a = self.name(OpCode.BITCAST, a, dtype=U64)
            return self.name(OpCode.CMPLT, a, const(int(self.rng.integers(1, 6)), U64), dtype=BOOL)
        return self.name(OpCode.CMPLT, a, b, dtype=BOOL)


OPERATIONS: dict[OpCode, Any] = {
    OpCode.ADD: np.add, OpCode.SUB: np.subtract, OpCode.MUL: np.multiply, OpCode.IDIV: np.floor_divide,
    OpCode.MOD: np.mod, OpCode.MIN: np.minimum, OpCode.MAX: np.maximum, OpCode.WHERE: np.where,
    OpCode.SHR: np.right_shift, OpCode.AND: lambda a, b: a & b, OpCode.CMPLT: np.less, OpCode.CMPEQ: np.equal,
    OpCode.CMPNE: np.not_equal, OpCode.BITCAST: lambda a: a.astype(np.uint64),
}  # fmt: skip


def questions(seed: int) -> Iterator[tuple[bool, bool]]:
    """Yields for ends of random integers whether they were proved, and whether one more was, which is wrong."""
    integers = Integers(seed)
    conditions = tuple((integers.condition(), bool(integers.rng.random() < 0.8)) for _ in range(seed % 3))
    here = np.ones(len(integers.values[integers.variable]), np.bool_)
    for condition, holds in conditions:
        here &= integers.values[condition] == holds
    if not here.any():
        return
    known = Known(integers.named, (integers.variable,), conditions)
    for op in integers.integers():
        values, terms = integers.values[op][here], known.sum_of(op).terms
        assert known.sum_of(op).low <= values.min() and values.max() <= known.sum_of(op).high, op
        for sign, end in ((1, int(values.min())), (-1, -int(values.max()))):
            beyond = [known.is_never_negative(added({(): -end - more}, terms, sign)) for more in (0, 1)]
            yield beyond[0], beyond[1]


@pytest.mark.parametrize("block", range(10))
def test_nothing_is_proved_that_is_not_so(block: int) -> None:
    answers = [answer for seed in range(block * 60, block * 60 + 60) for answer in questions(seed)]
    assert not any(wrong for _, wrong in answers)
    assert sum(right for right, _ in answers) > 0.7 * len(answers)


@pytest.mark.parametrize("code", [OpCode.MIN, OpCode.MAX, OpCode.IDIV, OpCode.MOD])
def test_equal_operations_are_one_integer(code: OpCode) -> None:
    """A remainder of int32 is that of int64 where both hold it: what is proved of one is so of the other."""
    n, m = (Op(OpCode.VARIABLE, I64, (), (name, 64, 4095)) for name in "nm")
    wide = Op(code, I64, (n, m))
    narrow = Op(code, dtypes.int32, (cast(n, dtypes.int32), cast(m, dtypes.int32)))
    known = Known({}, (n, m))
    assert wide is not narrow and known.sum_of(wide).terms == known.sum_of(cast(narrow, I64)).terms
