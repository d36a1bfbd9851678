"""Weights with several elements in a byte: K is taken apart as they take it apart, and bytes are read as they lie."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.ir.build import cast, expand, gather, pad, permute, reshape, swap_last
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.statements import For, Load, Prefetch, Transpose
from picograd.rewrites.contract import contract
from picograd.rewrites.products import _extents, is_of_bytes
from picograd.road import create_schedule, lower
from tests.codegen.test_reduce_cpu import all_of
from tests.same_meaning import CPU_TARGETS, check_same_meaning

N, K = 16, 96  # of the narrowest target, N is four vectors: few rows have squares of it turned
BYTES = Op(OpCode.PARAM, dtypes.uint8, (), (0, (N, K // 2)))
CRUMBS = Op(OpCode.PARAM, dtypes.uint8, (), (0, (N, K // 4)))
SIGNED = Op(OpCode.PARAM, dtypes.int8, (), (0, (N, K)))
SCALES = Op(OpCode.PARAM, dtypes.float32, (), (1, (N, K // 16)))
BOOK = Op(OpCode.PARAM, dtypes.float32, (), (3, (16,)))
X = Op(OpCode.PARAM, dtypes.float32, (), (2, (1, K)))


def bits(x: Op, first: int, count: int) -> Op:
    """`count` bits of each byte, from the `first` on."""
    every = [expand(Op(OpCode.CONST, x.dtype, (), v), x.shape) for v in (first, (1 << count) - 1)]
    return Op(OpCode.AND, x.dtype, (Op(OpCode.SHR, x.dtype, (x, every[0])), every[1]))


def beside(parts: list[Op]) -> Op:
    """(N, K / 2) each  ->  (N, K): the first elements of all, then the second ones."""
    n = len(parts)
    placed = [pad(reshape(p, (*p.shape, 1)), ((0, 0), (0, 0), (i, n - 1 - i))) for i, p in enumerate(parts)]
    total = placed[0]
    for part in placed[1:]:
        total = total + part
    return reshape(total, (N, K))


def behind(first: Op, second: Op) -> Op:
    return pad(first, ((0, 0), (0, K // 2))) + pad(second, ((0, 0), (K // 2, 0)))


def apart_in_groups(first: Op, second: Op) -> Op:
    low, high = (reshape(part, (N, K // 16, 1, 8)) for part in (first, second))
    none = (0, 0)
    return reshape(pad(low, (none, none, (0, 1), none)) + pad(high, (none, none, (1, 0), none)), (N, K))


def chosen(number: Op) -> Op:
    return gather(BOOK, cast(number, dtypes.int64), 0, 0)


def scaled(weight: Op) -> Op:
    """With a scale for each group of 16."""
    groups = reshape(cast(weight, dtypes.float32), (N, K // 16, 16))
    return reshape(groups * expand(reshape(SCALES, (N, K // 16, 1)), groups.shape), (N, K))


WEIGHTS = {
    "side by side": beside([bits(BYTES, 0, 4), bits(BYTES, 4, 4)]),
    "half a row apart": behind(bits(BYTES, 0, 4), bits(BYTES, 4, 4)),
    "half a group apart": apart_in_groups(bits(BYTES, 0, 4), bits(BYTES, 4, 4)),
    "in groups": scaled(beside([bits(BYTES, 0, 4), bits(BYTES, 4, 4)])),
    "of a byte, in groups": scaled(SIGNED),
    "of two bits": beside([bits(CRUMBS, i, 2) for i in range(0, 8, 2)]),
    "of a byte": SIGNED,
    "from a code book": chosen(beside([bits(BYTES, 0, 4), bits(BYTES, 4, 4)])),
}
EXTENTS = {
    "side by side": (48,), "half a row apart": (48,), "half a group apart": (6, 8), "in groups": (6, 8),
    "of a byte, in groups": (6, 16), "of two bits": (24,), "of a byte": (96,), "from a code book": (48,),
}  # fmt: skip


def product(name: str, is_column: bool) -> Op:
    weight = cast(WEIGHTS[name], dtypes.float32)
    return Op(OpCode.MATMUL, X.dtype, (weight, swap_last(X)) if is_column else (X, swap_last(weight)))


def values() -> dict[Op, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[Op, np.ndarray] = {p: rng.integers(0, 256, p.shape).astype(np.uint8) for p in (BYTES, CRUMBS)}
    found[SIGNED] = rng.integers(-128, 128, SIGNED.shape).astype(np.int8)
    return found | {p: rng.integers(-4, 5, p.shape).astype(np.float32) for p in (SCALES, X, BOOK)}


@pytest.mark.parametrize("is_column", [False, True], ids=["row", "column"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_product_is_added_up_along_the_axes_a_weight_is_packed_in(name: str, is_column: bool) -> None:
    root = product(name, is_column)
    (sum_,) = [op for op in toposort(contract([root])) if op.code is OpCode.REDUCE]
    assert sum_.src[0].shape[-len(sum_.arg[1]) :] == EXTENTS[name]
    params = {op for op in toposort([root]) if op.code is OpCode.PARAM}
    check_same_meaning([root], {p: v for p, v in values().items() if p in params})  # whole numbers: every sum is exact


PARTS = {
    "side by side": 2, "half a row apart": 2, "half a group apart": 2, "in groups": 2, "of a byte, in groups": 1,
    "of two bits": 4, "of a byte": 1, "from a code book": 2,
}  # fmt: skip


@pytest.mark.variants
@pytest.mark.parametrize("name", WEIGHTS)
def test_several_rows_are_multiplied_with_each_part_of_a_byte(name: str) -> None:
    rows = Op(OpCode.PARAM, dtypes.float32, (), (4, (3, K)))
    root = Op(OpCode.MATMUL, dtypes.float32, (rows, swap_last(cast(WEIGHTS[name], dtypes.float32))))
    assert sum(op.code is OpCode.MATMUL for op in toposort(contract([root]))) == PARTS[name]
    given = {**values(), rows: np.random.default_rng(1).integers(-4, 5, (3, K)).astype(np.float32)}
    params = {op for op in toposort([root]) if op.code is OpCode.PARAM}
    check_same_meaning([root], {p: v for p, v in given.items() if p in params}, tolerance=1e-5)


@pytest.mark.parametrize("name", WEIGHTS)
def test_bytes_of_several_rows_are_turned_as_bytes(name: str) -> None:
    rows = Op(OpCode.PARAM, dtypes.float32, (), (4, (3, K)))
    root = Op(OpCode.MATMUL, dtypes.float32, (rows, swap_last(cast(WEIGHTS[name], dtypes.float32))))
    found = [
        one
        for item in create_schedule([root]).items
        for phase in lower(item.kernel, CPU_TARGETS[0]).phases
        for one in all_of(phase)
    ]
    squares = [one for one in found if isinstance(one, Transpose)]
    assert len(squares) >= PARTS[name] and {one.memory.dtype.itemsize for one in squares} == {1}


@pytest.mark.parametrize("name", WEIGHTS)
def test_bytes_are_read_as_vectors_once_for_each_row(name: str) -> None:
    """No gather; and a byte that two elements share is read once."""
    item = create_schedule([product(name, False)]).items[-1]
    slot = next(i for i, p in enumerate(item.kernel.params) if p.dtype.itemsize == 1)
    program = lower(item.kernel, CPU_TARGETS[0])
    loads = [one for phase in program.phases for one in all_of(phase) if isinstance(one, Load)]
    of_bytes = [one for one in loads if one.memory.code is OpCode.PARAM and one.memory.arg[0] == slot]
    assert of_bytes and all(one.index.dtype is dtypes.int64 for one in of_bytes)
    assert all(one.index.code is not OpCode.VAR or one.index.arg[1] == 1 for one in of_bytes), "a gather"
    places = [one.index for one in of_bytes if one.var.arg[1] > 1]
    assert len(places) == len(set(places)), "a byte is read for each of its elements"


def test_a_weight_of_floats_is_not_of_bytes() -> None:
    mask = Op(OpCode.PARAM, dtypes.bool_, (), (4, (N, K)))
    chosen = Op(OpCode.WHERE, dtypes.float32, (mask, cast(SIGNED, dtypes.float32), expand(X, (N, K))))
    assert is_of_bytes(chosen) and not is_of_bytes(expand(X, (N, K)))
    assert not is_of_bytes(Op(OpCode.WHERE, dtypes.float32, (mask, expand(X, (N, K)), expand(X * 2, (N, K)))))


# ---- several rows at once ----
@pytest.mark.variants(first=1)
def test_rows_that_are_multiplied_with_one_vector_read_it_once_and_ask_for_the_next_ones() -> None:
    shapes = ((34, 2048), (2048, 1))
    w, x = (Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate(shapes))
    root = Op(OpCode.MATMUL, dtypes.float32, (w, x))
    item = create_schedule([root]).items[-1]
    for target, at_once in zip(CPU_TARGETS, (2, 2, 4)):
        found = [one for phase in lower(item.kernel, target).phases for one in all_of(phase)]
        vectors = [one for one in found if isinstance(one, Load) and one.memory.code is OpCode.PARAM and one.var.arg[1] > 1]
        of_weight, of_x = ([one for one in vectors if one.memory.arg[0] == slot] for slot in (0, 1))
        assert len(of_weight) == 4 * at_once + 4 and len(of_x) == 4 + 4  # of rows together, and of one alone
        asked = [one for one in found if isinstance(one, Prefetch)]
        assert {one.memory.arg[0] for one in asked} == {0} and len(asked) == (at_once + 1) * (target.vector_bytes // 16)
    rng = np.random.default_rng(0)
    check_same_meaning([root], {p: rng.integers(-4, 5, p.shape).astype(np.float32) for p in (w, x)})


def test_few_rows_are_a_threads_each() -> None:
    w, x = (Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate(((8, 8192), (8192, 1))))
    item = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (w, x))]).items[-1]
    (phase,) = lower(item.kernel, CPU_TARGETS[2]).phases
    (grid,) = [one for one in phase if isinstance(one, For)]
    assert grid.range.src[0].arg == 8


def test_the_terms_of_a_sum_that_doubles_itself_are_not_counted_one_by_one() -> None:
    """2^60 of them."""
    x, y = (Op(OpCode.PARAM, dtypes.float32, (), (slot, (4, 8))) for slot in range(2))
    value = x * y
    for _ in range(60):
        value = value + value
    root = Op(OpCode.REDUCE, dtypes.float32, (value,), (OpCode.ADD, (1,)))
    check_same_meaning([root], {p: np.full(p.shape, 2.0**-30, np.float32) for p in (x, y)})


def test_a_weight_of_a_great_many_short_axes_is_not_written_out() -> None:
    shape = (N, 12, *(2,) * 3)
    turned = permute(reshape(SIGNED, shape), (0, 1, 4, 3, 2))
    assert len(_extents(reshape(turned, (N, K)), of_groups=True)) == 4
    wide = Op(OpCode.PARAM, dtypes.int8, (), (0, (N, 8 * 2**6)))
    wide_turned = permute(reshape(wide, (N, 8, *(2,) * 6)), (0, 1, *range(7, 1, -1)))
    assert _extents(reshape(wide_turned, wide.shape), of_groups=True) == ()
