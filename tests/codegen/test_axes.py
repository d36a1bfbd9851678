"""How many elements fill a vector, or an access of a GPU: as many as of the widest, not of what only counts."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.codegen.loops import access_lanes, vector_lanes
from picograd.devices.cudasim.device import TARGET
from picograd.dtype import DType
from picograd.ir.build import cast, where
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


def test_a_thread_of_a_gpu_reads_as_many_as_the_widest_memory_that_it_walks_allows() -> None:
    """Logits of two bytes beside a label of eight, which is compared with the numbers of the classes."""
    logit, other = element(dtypes.bfloat16), loop_range(1, 100)
    label = Op(OpCode.LOAD, dtypes.int64, (Op(OpCode.PARAM, dtypes.int64, (), (1, (100,))), other))
    is_class = Op(OpCode.CMPEQ, dtypes.bool_, (label, INDEX))
    gradient = where(is_class, cast(logit, dtypes.float32), const(0.0, dtypes.float32))
    assert access_lanes([gradient], [dtypes.bfloat16], {INDEX}, TARGET) == 8
    assert access_lanes([gradient], [dtypes.float32], {INDEX}, TARGET) == 4
    assert access_lanes([gradient], [dtypes.bfloat16], {INDEX, other}, TARGET) == 2
    assert access_lanes([element(dtypes.bool_)], [dtypes.bool_], {INDEX}, TARGET) == 8
    place = element(dtypes.int64)  # a walked index is an access as well
    gathered = Op(OpCode.LOAD, dtypes.float32, (Op(OpCode.PARAM, dtypes.float32, (), (2, (100,))), place))
    assert access_lanes([gathered], [dtypes.float32], {INDEX}, TARGET) == 2
