"""Kernels: phases of graphs over PARAMs."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.errors import VerifyError
from picograd.evaluator import evaluate_kernel
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.ir.symbolic import mul

N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))


def param(slot: int, *shape: Dim) -> Op:
    return Op(OpCode.PARAM, dtypes.float32, (), (slot, shape))


def params(*roles: str, numel: Dim = 3) -> tuple[Param, ...]:
    return tuple(Param(dtypes.float32, numel, role) for role in roles)


def nest(*outputs: tuple[int, Op]) -> Nest:
    return Nest(NestKind.ELEMENTWISE, outputs[0][1].shape, (), None, outputs)


X, Y = param(0, 3), param(1, 3)
VALUE = np.array([1.0, 2.0, 3.0], np.float32)


def test_outputs_are_written_in_place() -> None:
    out = np.zeros(3, np.float32)
    evaluate_kernel(Kernel("square", params("in", "out"), (), ((nest((1, X * X)),),)), [VALUE, out])
    assert out.tolist() == [1.0, 4.0, 9.0]


def test_a_later_phase_reads_what_an_earlier_one_stored() -> None:
    kernel = Kernel("two", params("in", "scratch", "out"), (), ((nest((1, X * X)),), (nest((2, X + Y)),)))
    out = np.zeros(3, np.float32)
    evaluate_kernel(kernel, [VALUE, None, out])
    assert out.tolist() == [2.0, 6.0, 12.0]


def test_within_a_phase_everything_is_read_first() -> None:
    """Two slots on the same memory: the update of an optimizer."""
    memory = VALUE.copy()
    kernel = Kernel("update", params("in", "out", "out"), (), ((nest((1, X + X)), nest((2, X * X))),))
    out = np.zeros(3, np.float32)
    evaluate_kernel(kernel, [memory, memory, out])
    assert memory.tolist() == [2.0, 4.0, 6.0] and out.tolist() == [1.0, 4.0, 9.0]


def test_memory_may_be_larger_than_what_is_used_of_it() -> None:
    x = param(0, N, 2)
    kernel = Kernel("square", params("in", "out", numel=mul(N, 2)), (N,), ((nest((1, x * x)),),))
    memory, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    evaluate_kernel(kernel, [memory, out], {"n": 2})
    assert out.tolist() == [0.0, 1.0, 4.0, 9.0] + [0.0] * 12


@pytest.mark.parametrize(
    "given, found",
    [(None, "nothing"), (np.zeros(3), "float64 (3,)"), (np.zeros(2, np.float32), "float32 (2,)")],
)
def test_memory_that_does_not_fit_is_refused(given: np.ndarray | None, found: str) -> None:
    kernel = Kernel("square", params("in", "out"), (), ((nest((1, X * X)),),))
    with pytest.raises(VerifyError) as raised:
        evaluate_kernel(kernel, [VALUE, given])
    assert f"slot 1 needs a contiguous float32 array of 3 elements, got {found}." in raised.value.fact


def test_inputs_are_not_written() -> None:
    with pytest.raises(VerifyError, match="kernel bad writes slot 0, which is an input"):
        evaluate_kernel(Kernel("bad", params("in"), (), ((nest((0, X * X)),),)), [VALUE])
