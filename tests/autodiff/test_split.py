"""What the forward part of a body keeps for the backward part."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.autodiff.bodies import keep, stored_base
from picograd.ir.build import cast, permute, reshape, unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

X = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 3)))
GRAD = Op(OpCode.PARAM, dtypes.float32, (), (1, (2, 3)))


def test_what_is_cheap_is_computed_again() -> None:
    kept = keep([GRAD * (X * 2.0 + 1.0)], {GRAD}, {X})
    assert (kept.saved, kept.reads) == ((), (X,))


def test_what_is_dear_is_kept_and_nothing_below_it_is_read() -> None:
    tanh = unary(OpCode.TANH, X * 2.0)
    kept = keep([GRAD * tanh], {GRAD}, {X})
    assert (kept.saved, kept.reads) == ((tanh,), (tanh,))


def test_a_result_that_is_there_anyway_is_not_kept_again() -> None:
    tanh = unary(OpCode.TANH, X)
    kept = keep([GRAD * tanh], {GRAD}, {X, tanh})
    assert (kept.saved, kept.reads) == ((), (tanh,))


def test_of_a_view_what_it_shows_is_kept() -> None:
    tanh = unary(OpCode.TANH, X)
    grad = permute(GRAD, (1, 0))
    kept = keep([grad * permute(tanh, (1, 0))], {GRAD}, {X})
    assert kept.saved == (tanh,)


def test_the_base_of_a_value_is_below_its_views_and_never_wider() -> None:
    assert stored_base(reshape(permute(X, (1, 0)), (6,))) is X
    assert stored_base(cast(X, dtypes.float64)) is stored_base(cast(X, dtypes.int32)) is X
    narrow = cast(X, dtypes.float16)
    assert stored_base(narrow) is narrow
