"""Values from which no graph leads back, though a gradient would flow on without jit."""

from __future__ import annotations

import pytest

from picograd import float32
from picograd.ir.build import unary
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.ir.origin import Graphless, graphless_in, like_its_sources


def op_of(buffer: Buffer) -> Op:
    return Op(OpCode.BUFFER, float32, (), (buffer, ()))


def test_it_is_found_where_a_gradient_would_flow() -> None:
    plain, lost = Buffer("CPU", float32, 1), Graphless.of(Buffer("CPU", float32, 1, "memory"), "f")
    assert (lost.device, lost.dtype, lost.numel, lost.memory, lost.function) == ("CPU", float32, 1, "memory", "f")
    value = op_of(lost)
    assert graphless_in([op_of(plain)]) is None
    assert graphless_in([op_of(plain), op_of(plain) + value * 2]) is lost
    assert graphless_in([unary(OpCode.DETACH, value) + 1]) is None
    assert graphless_in([unary(OpCode.DETACH, value) + value]) is lost


@pytest.mark.parametrize("is_detached", [False, True])
def test_what_is_computed_from_it_is_like_it(is_detached: bool) -> None:
    made, lost = Buffer("CPU", float32, 1, "memory"), Graphless.of(Buffer("CPU", float32, 1), "f")
    value = unary(OpCode.DETACH, op_of(lost)) if is_detached else op_of(lost)
    found = like_its_sources(made, value + 1, [Buffer("CPU", float32, 1), lost])
    assert found is made if is_detached else isinstance(found, Graphless) and found.memory == "memory"
    assert like_its_sources(made, value + 1, [Buffer("CPU", float32, 1)]) is made
