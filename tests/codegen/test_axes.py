"""How many elements fill a vector: as many as of the widest that is computed, not of what only counts."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.codegen.index import vector_lanes
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from tests.cpu_programs import loop_range
from tests.same_meaning import CPU_TARGETS

INDEX = loop_range(0, 100)


def element(dtype: DType) -> Op:
    return Op(OpCode.LOAD, dtype, (Op(OpCode.PARAM, dtype, (), (0, (100,))), INDEX * 2 + 1))


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_lanes_of_the_widest_element(target) -> None:
    words = target.vector_bytes // 4
    f32, f64 = element(dtypes.float32), element(dtypes.float64)
    bits = Op(OpCode.XOR, dtypes.int64, (element(dtypes.int64), const(1, dtypes.int64)))
    assert vector_lanes([f32], target) == vector_lanes([element(dtypes.uint8), f32], target) == words
    assert vector_lanes([element(dtypes.float16)], target) == vector_lanes([element(dtypes.bool_)], target) == words
    assert vector_lanes([f64], target) == vector_lanes([cast(f64, dtypes.float32)], target) == words // 2
    assert vector_lanes([f32, f64], target) == vector_lanes([element(dtypes.int64)], target) == words // 2
    assert vector_lanes([cast(bits, dtypes.float32)], target) == words // 2
    assert vector_lanes([cast(INDEX + const(5, dtypes.int64), dtypes.float32)], target) == words
    assert vector_lanes([const(5, dtypes.int64), f32], target) == words
