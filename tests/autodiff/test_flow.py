"""What changes with what: through floats, not through integers or DETACH, and from step to step of a LOOP."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.autodiff.modes import active_slots, is_differentiable, varying
from picograd.ir.build import cast, compare, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode

f32 = dtypes.float32


def param(slot: int, dtype: dtypes.DType = f32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, (3,)))


def test_only_what_depends_on_the_start_varies() -> None:
    a, b, fixed = param(0), param(1), filled(2, f32, (3,))
    product, apart, both = a * fixed, b * fixed, a * b
    assert varying([product, apart, both], {a}) == {a, product, both}
    assert varying([product, apart, both], {1}) == {b, apart, both}
    assert varying([product, apart, both], {0, 1}) == {a, b, product, apart, both}
    assert varying([apart], {a}) == set()


def test_nothing_varies_through_integers_conditions_and_detach() -> None:
    a, b = param(0), param(1)
    whole, small, held = cast(a, dtypes.int32), compare(OpCode.CMPLT, a, b), Op(OpCode.DETACH, f32, (a,))
    chosen = where(small, b, held)
    assert [is_differentiable(op) for op in (a, whole, small, held, chosen)] == [True, False, False, False, True]
    assert varying([whole, chosen, cast(whole, f32)], {a}) == {a}
    assert varying([chosen], {b}) == {b, chosen}
    assert varying([held + a], {held}) == {held, held + a}, "where to start is for the caller to say"


def test_what_a_step_changes_changes_the_next() -> None:
    """The chain 3 -> 2 -> 1 takes two steps; slot 0 hangs on nothing."""
    carry = [param(slot) for slot in range(4)]
    body = Op(OpCode.SINK, f32, (carry[0] * 2, carry[2] + 1, carry[3] * carry[0], carry[3] * 1, carry[1] * 5))
    assert active_slots(body, 4, {3}) == {1, 2, 3}
    assert active_slots(body, 4, {0}) == {0, 1, 2}
    assert active_slots(body, 4, {1}) == {1}
    assert active_slots(body, 4, set()) == set()
