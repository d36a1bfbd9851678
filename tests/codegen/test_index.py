"""Elements of graphs as expressions: what several roots share is built once."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import index
from picograd.ir.build import gather, iota, maximum, minimum, reshape, where
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import affine, placeholder
from tests.same_meaning import check_same_meaning

SHAPE = (8, 8)


def kept_steps(length: int) -> list[Op]:
    """A chain of which every step is an output."""
    steps = [Op(OpCode.PARAM, dtypes.float32, (), (0, SHAPE))]
    for _ in range(length):
        steps.append(Op(OpCode.SIN, dtypes.float32, (steps[-1],)))
    return steps[1:]


def work(monkeypatch: pytest.MonkeyPatch, length: int) -> int:
    made = 0
    value = index._value

    def counted(*args: object) -> Op:
        nonlocal made
        made += 1
        return value(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(index, "_value", counted)
        index.elements_within(kept_steps(length), (placeholder(2, 8), placeholder(3, 8)))
    return made


def test_the_work_for_kept_steps_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [work(monkeypatch, length) for length in (1, 10, 100)] == [2, 11, 101]


def test_several_roots_have_the_values_they_have_alone() -> None:
    roots = kept_steps(3)
    coords = (placeholder(2, 8), placeholder(3, 8))
    assert index.elements(roots, coords) == [index.element(root, coords) for root in roots]
    assert index.elements_within(roots, coords) == [index.element_within(root, coords) for root in roots]


def test_a_gather_outside_is_zero_whatever_it_reads() -> None:
    """Memory that is not touched counts as 0, of which x + 1 makes 1 and 1 / x infinity."""
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (4,)))
    chosen = Op(OpCode.PARAM, dtypes.int64, (), (1, (6,)))
    inverse = Op(OpCode.RECIPROCAL, dtypes.float32, (x,))
    odd = where(Op(OpCode.CMPLT, dtypes.bool_, (x, x.filled(3.0))), x, 7.0)
    inner = gather(x + 2.0, chosen, 0, 0)
    grid = reshape(inner, (2, 3))
    roots = [gather(value, chosen, 0, 0) for value in (x, x + 1.0, inverse, odd)]
    roots += [gather(grid, chosen, 0, 0), Op(OpCode.REDUCE, dtypes.float32, (roots[1],), (OpCode.ADD, (0,)))]
    arrays = {x: np.array([1, 2, 4, 8], np.float32), chosen: np.array([-1, 0, 3, 4, 9, 1], np.int64)}
    check_same_meaning(roots, arrays)


def test_a_place_that_is_read_is_within_its_axis_where_shapes_are_split() -> None:
    """An index into row c of (4, 12), seen as (4, 3, 4), gives an element of row c: nothing divides."""
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (4, 3, 4)))
    scale = Op(OpCode.PARAM, dtypes.float32, (), (1, (4, 1, 1)))
    chosen = Op(OpCode.PARAM, dtypes.int64, (), (2, (4, 5)))
    read = gather(reshape(x * Op(OpCode.EXPAND, dtypes.float32, (scale,), x.shape), (4, 12)), chosen, 1, 1)
    twice = gather(reshape(read, (4, 5)) + 1.0, chosen, 1, 1)
    for root in (read, twice):
        assert {OpCode.IDIV, OpCode.MOD}.isdisjoint(op.code for op in toposort([index.element_anywhere(root)]))
    arrays = {x: np.arange(48, dtype=np.float32).reshape(x.shape), scale: np.float32([1, 2, 3, 4]).reshape(scale.shape)}
    check_same_meaning([read, twice], {**arrays, chosen: np.random.default_rng(0).integers(-3, 15, (4, 5))})


def test_places_of_places_along_two_axes_have_names_of_their_own() -> None:
    """Two axes are mirrored and then read by an index: of four places two depend on the others."""
    x, chosen = Op(OpCode.PARAM, dtypes.float32, (), (0, (3, 3))), Op(OpCode.PARAM, dtypes.int64, (), (1, (5,)))
    place = maximum(iota(5), -iota(5))
    mirrored = minimum(place, -place + 4)
    inner = gather(gather(x, mirrored, 1, 0), mirrored, 0, 0)
    outer = gather(gather(inner, chosen, 0, 0), chosen, 1, 0)
    (read,) = [op for op in toposort([index.element_anywhere(outer)]) if op.code is OpCode.LOAD and op.dtype is x.dtype]
    assert sorted(affine(read.src[1])[0].values()) == [1, 3]
    check_same_meaning([outer], {x: np.arange(9, dtype=np.float32).reshape(3, 3), chosen: np.array([3, 0, 4, 1, 2])})
