"""The numbers that lengths come to."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.errors import UnsupportedOp, VerifyError
from picograd.ir.arithmetic import ARITHMETIC
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, dim_value, floordiv, mul

N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))
BOUND = Op(OpCode.BIND, dtypes.int64, (N, const(5, dtypes.int64)))


def test_numbers_sums_products_and_quotients() -> None:
    assert dim_value(7, {}) == 7
    assert dim_value(add(mul(N, 3), 4), {"n": 2}) == 10
    assert [dim_value(floordiv(add(N, 13), 16), {"n": n}) for n in (1, 8)] == [0, 1]


@pytest.mark.parametrize("code", ARITHMETIC)
def test_every_operation_has_its_meaning(code: OpCode) -> None:
    expected = {"ADD": 10, "SUB": 4, "MUL": 21, "IDIV": 2, "MOD": 1, "MIN": 3, "MAX": 7}[code.name]
    assert dim_value(Op(code, dtypes.int64, (N, const(3, dtypes.int64))), {"n": 7}) == expected


def test_a_bound_integer_has_its_own_value_unless_another_is_given() -> None:
    assert dim_value(add(BOUND, 1), {}) == 6 and dim_value(add(BOUND, 1), {"n": 2}) == 3


def test_what_has_no_value_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="the symbolic integer n has no value here"):
        dim_value(mul(N, 2), {"m": 3})
    with pytest.raises(VerifyError, match="is in a length"):
        dim_value(Op(OpCode.CAST, dtypes.int64, (const(1.0, dtypes.float32),)), {})
