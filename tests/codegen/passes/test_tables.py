"""Values that a small integer chooses: looked up in a register that is filled before the loop, where that is right."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, read
from picograd.codegen.passes.tables import in_tables
from picograd.device import Target
from picograd.ir.build import cast, expand, reshape, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.statements import Alloc, For, Load, Statement, lanes_of, walk
from picograd.ir.symbolic import add, mul
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

N, K = 32, 512
BYTES = Op(OpCode.PARAM, dtypes.uint8, (), (0, (N, K)))
SCALES = Op(OpCode.PARAM, dtypes.float32, (), (1, (N, 1)))
GROUPS = Op(OpCode.PARAM, dtypes.float32, (), (1, (N, 8)))
X = Op(OpCode.PARAM, dtypes.float32, (), (2, (1, K)))
WIDE = CPU_TARGETS[2]


def low_bits(x: Op, count: int = 4) -> Op:
    return Op(OpCode.AND, x.dtype, (x, expand(const((1 << count) - 1, x.dtype), x.shape)))


def centred(x: Op) -> Op:
    return cast(x, dtypes.float32) - 8.0


def product(matrix: Op) -> Op:
    return Op(OpCode.MATMUL, dtypes.float32, (X, swap_last(matrix)))


def tables_of(statements: tuple[Statement, ...]) -> list[Op]:
    found = [one.memory for one in walk(statements) if isinstance(one, Alloc)]
    return [memory for memory in found if memory.arg[0].startswith("t")]


def lookups(root: Op, target: Target = WIDE) -> tuple[int, int]:
    """How many tables the kernel of a product has, and how many vectors are read from them."""
    program = lower(create_schedule([root]).items[-1].kernel, target)
    tables = [table for phase in program.phases for table in tables_of(phase)]
    loads = [one for phase in program.phases for one in walk(phase) if isinstance(one, Load) and one.memory in tables]
    assert all(lanes_of(one.index) == 16 for one in loads) and program.num_guards == 0
    return len(tables), len(loads)


def check(root: Op) -> None:
    rng = np.random.default_rng(0)
    arrays = {BYTES: rng.integers(0, 256, BYTES.shape).astype(np.uint8)}
    arrays |= {p: rng.integers(-4, 5, p.shape).astype(np.float32) for p in (SCALES, GROUPS, X)}
    check_same_meaning([root], arrays, targets=(WIDE,))  # whole numbers: every sum is exact


SCALED = product(centred(low_bits(BYTES)) * expand(SCALES, (N, K)))


def test_what_all_lanes_choose_alike_is_no_lookup() -> None:
    """One row of a weight, lanes over several of x: each of its elements is one number for all lanes."""
    weight, x = (Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, (dtype, shape) in enumerate(
        [(dtypes.uint8, (1, 8)), (dtypes.float32, (40, 8))]
    ))  # fmt: skip
    root = Op(OpCode.MATMUL, dtypes.float32, (x, swap_last(centred(low_bits(weight)))))
    assert lookups(root) == (0, 0)
    rng = np.random.default_rng(0)
    given = {weight: rng.integers(0, 256, (1, 8)).astype(np.uint8), x: rng.integers(-4, 5, (40, 8)).astype(np.float32)}
    check_same_meaning([root], given)


def test_four_bits_are_looked_up_with_the_scale_of_their_row() -> None:
    """Four rows together, four vectors each; the scale is in the table."""
    assert lookups(SCALED) == (4, 16)
    check(SCALED)


@pytest.mark.parametrize("target", [*CPU_TARGETS[:2], GPU_TARGET], ids=lambda t: f"{t.device} {t.vector_bytes}")
def test_no_other_processor_has_tables(target: Target) -> None:
    assert lookups(SCALED, target) == (0, 0)


def test_both_halves_of_a_byte_have_one_table() -> None:
    high = Op(OpCode.SHR, BYTES.dtype, (BYTES, expand(const(4, BYTES.dtype), BYTES.shape)))
    both = product(centred(low_bits(BYTES)) * centred(high))
    assert lookups(both) == (1, 32)
    check(both)


def test_the_scale_of_a_group_is_in_a_table_that_each_group_fills() -> None:
    weight = reshape(centred(low_bits(BYTES)), (N, 8, 64))
    grouped = product(reshape(weight * expand(reshape(GROUPS, (N, 8, 1)), weight.shape), (N, K)))
    assert lookups(grouped) == (4, 16)
    check(grouped)


@pytest.mark.parametrize("name", ["five bits", "one step", "of two integers", "not float32"])
def test_what_is_not_looked_up(name: str) -> None:
    other = Op(OpCode.PARAM, dtypes.uint8, (), (3, (N, K)))
    value = {
        "five bits": centred(low_bits(BYTES, 5)),
        "one step": cast(low_bits(BYTES), dtypes.float32),
        "of two integers": cast(low_bits(BYTES) * low_bits(other), dtypes.float32),
        "not float32": cast(cast(low_bits(BYTES), dtypes.float64) - 8.0, dtypes.float32),
    }[name]
    assert lookups(product(value)) == (0, 0)


def test_a_table_reads_no_memory_beyond_the_values_of_its_integer() -> None:
    """A row of four elements for every row: lane % 4 chooses, and places from 4 on would be outside."""
    row, bits = (Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, (dtype, shape) in enumerate(
        [(dtypes.float32, (1, 4)), (dtypes.uint8, (8, 4))]
    ))  # fmt: skip
    rows = expand(row, (8, 4)) * 0.5 - 1.0
    root = Op(OpCode.CONTIGUOUS, dtypes.float32, (rows,))
    rng = np.random.default_rng(0)
    given = {row: rng.integers(-4, 5, (1, 4)).astype(np.float32), bits: rng.integers(0, 256, (8, 4)).astype(np.uint8)}
    roots = [root, centred(low_bits(bits))]
    program = lower(create_schedule(roots).items[-1].kernel, WIDE)
    assert any(tables_of(phase) for phase in program.phases)
    check_same_meaning(roots, given, targets=(WIDE,))


# ---- loops ----
def loop_over(of_lane: str) -> tuple[Statement, ...]:
    """y[k] = (float(p[k] & 15) - 8) * s for 16 lanes of k, with s from somewhere."""
    p, y, s = (Op(OpCode.PARAM, d, (), (i, (64,))) for i, d in enumerate((dtypes.uint8, dtypes.float32, dtypes.float32)))
    build = Builder()
    shared = build.alloc(dtypes.float32, 64, MemorySpace.SHARED)
    build.store(shared, 0, const(2.0, dtypes.float32))

    def value(k: Dim, scale: Op) -> Op:
        return centred(Op(OpCode.AND, p.dtype, (read(p, k), const(15, p.dtype)))) * scale

    with build.loop(4, AxisKind.LOOP) as block:
        if of_lane == "a VAR loaded in the loop":
            loaded = build.load(shared, 0)
        with build.loop(16, AxisKind.VECTOR) as lane:
            k = add(mul(block, 16), lane)
            scale = {
                "the same": lambda: read(s, 0), "of the lane": lambda: read(s, k),
                "of memory that is stored to": lambda: read(shared, 0), "a VAR loaded in the loop": lambda: loaded,
            }[of_lane]()  # fmt: skip
            build.store(y, k, value(k, scale))
        build.store(shared, 0, const(3.0, dtypes.float32))
    return build.finish()


@pytest.mark.parametrize("of_lane", ["the same", "of the lane", "of memory that is stored to", "a VAR loaded in the loop"])
def test_only_what_stays_the_same_is_in_a_table(of_lane: str) -> None:
    """Else the table is of what does not need it."""
    before, after = loop_over(of_lane), in_tables(loop_over(of_lane))
    (table,) = tables_of(after)
    (filled,) = [one for one in after if isinstance(one, For) and one.range.arg[1] is AxisKind.VECTOR]
    (store,) = filled.body
    assert len(after) == len(before) + 2
    assert (store.value.code is OpCode.MUL) == (of_lane == "the same")  # type: ignore[union-attr]
