"""Loads and stores of whole vectors: which pass by the cache, which are masked, and which are permuted in registers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.compile_llvm import assembly, processor_target
from picograd.devices.cpu.render import STREAMED_NBYTES, render, streamed_stores
from picograd.dtype import DType
from picograd.engine.plan import parametrize, template
from picograd.ir.build import cast, expand, flip, pad, permute, reduce, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.nn import functional
from picograd.road import create_schedule, lower, schedule_graphs
from tests.same_meaning import CPU_TARGETS

SIDE = 4096
LARGE = STREAMED_NBYTES // 4  # elements of float32


def param(slot: int, *shape: int, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def streams(root: Op, target: Target = CPU_TARGETS[2]) -> int:
    """Returns how many stores of a graph's one kernel pass by the cache."""
    (item,) = create_schedule([root]).items
    return len(streamed_stores(lower(item.kernel, target), target))


def normalized(x: Op) -> Op:
    total = reshape(reduce(x, OpCode.ADD, (1,)), (x.shape[0], 1))
    return x * expand(total, x.shape)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (param(0, LARGE) * 2, 1),
        (param(0, LARGE - 1) * 2, 0),  # the next kernel finds it in the cache
        (normalized(param(0, SIDE, SIDE)), 1),
        (normalized(param(0, SIDE, SIDE + 1)), 0),  # rows that do not begin at a multiple of a vector
        (permute(param(0, SIDE, SIDE), (1, 0)) * 2, 1),
        (reduce(param(0, SIDE, SIDE), OpCode.ADD, (1,)), 0),
    ],
    ids=["elementwise", "small", "rows", "odd rows", "turned", "sums"],
)
def test_whole_vectors_of_large_results_pass_by_the_cache(root: Op, expected: int) -> None:
    assert min(streams(root), 1) == expected


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: str(target.vector_bytes))
def test_vectors_of_every_width_do(target: Target) -> None:
    assert streams(param(0, LARGE) * 2, target)


def test_what_the_kernel_reads_again_stays() -> None:
    """Packed panels and partial sums are read in the next phase; so is an UPDATE's base."""
    a, b = param(0, SIDE, SIDE), param(1, SIDE, SIDE)
    (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (a * 2, b))]).items
    program = lower(item.kernel, CPU_TARGETS[2])
    roles = {program.params[slot].role for slot in streamed_stores(program, CPU_TARGETS[2]).values()}
    assert any(p.role == "scratch" for p in program.params) and roles <= {"out"}


@pytest.mark.parametrize(
    ("arch", "features", "instruction"),
    [
        ("x86-64-v4", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma", "vmovntps\t%zmm"),
        ("x86-64-v3", "+avx2,+fma,-avx512f", "vmovntps\t%ymm"),
        ("x86-64-v2", "-avx,-fma", "movntps\t%xmm"),
    ],
)
def test_processors_have_an_instruction_for_it(arch: str, features: str, instruction: str) -> None:
    target = processor_target("x86_64-unknown-linux-gnu", arch, features)
    (item,) = create_schedule([param(0, LARGE) * 2]).items
    source = render(lower(item.kernel, target), target)
    assert "fence seq_cst" in source.text and instruction in assembly(source, target)


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("offset", [0, 1, 4, 15])
@pytest.mark.parametrize("compute", [lambda x: x * 2, lambda x: x.reshape(-1, 64).T.reshape(-1)], ids=["row", "turned"])
def test_memory_may_lie_anywhere(offset: int, compute: Callable[[pg.Tensor], pg.Tensor]) -> None:
    """Memory of other libraries, at an address that is no multiple of a vector, is written through the cache."""
    memory = np.zeros(LARGE + 16, np.float32)
    shared = memory[offset : offset + LARGE]
    x = pg.Tensor(np.arange(LARGE, dtype=np.float32))
    pg.from_dlpack(shared).copy_(compute(x)).realize()
    np.testing.assert_array_equal(shared, compute(x).numpy())
    assert not memory[:offset].any() and not memory[offset + LARGE :].any()


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (pad(param(0, 1 << 15), ((0, 1 << 15),)), True),  # half of all vectors begin behind the memory
        (pad(param(0, 2, 700), ((3, 0), (1, 0))), False),  # rows before it: not that far
        (pad(param(0, 8, 300), ((1, 1), (1, 1))), False),  # a row: not that far
    ],
)
def test_masked_loads_do_not_begin_in_a_page_far_from_their_memory(root: Op, expected: bool) -> None:
    """Such a page may not be there, which the processor finds out anew for each vector, though it wants no lane of it."""
    (item,) = create_schedule([root + 1.0]).items
    text = render(lower(item.kernel, CPU_TARGETS[2]), CPU_TARGETS[2]).text
    assert "@llvm.masked.load" in text
    assert ("@llvm.vector.reduce.or" in text) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_of_floats_are_exact_in_vectors(dtype: type, rng: np.random.Generator) -> None:
    """Quotients of any size, subnormal numbers, whole multiples, zeros of both signs, infinities and NaN."""
    a, b = (rng.standard_normal((6, 64)) for _ in range(2))
    a[1], b[1] = (x * np.exp2(rng.integers(-90, 30, 64)) for x in (a[1], b[1]))
    a[2], b[2] = a[2] * 2.0**-130, b[2] * 2.0**-135
    a[3], b[3] = rng.integers(-99, 99, 64), rng.integers(1, 9, 64)
    a[4], b[4] = a[4] * 2.0**21, rng.choice([-1.0, 1.0], 64)
    a[5, :8] = (0.0, -0.0, np.inf, np.nan, 1.0, -1.0, 1.0, 5.0)
    b[5, :8] = (1.0, 1.0, 1.0, 1.0, np.inf, -np.inf, 0.0, np.nan)
    lhs, rhs = a.astype(dtype), b.astype(dtype)
    found = pg.tensor(lhs).fmod(pg.tensor(rhs)).numpy()
    with np.errstate(invalid="ignore"):
        expected = np.fmod(lhs, rhs)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


def test_a_remainder_of_floats_calls_no_function_for_each_lane() -> None:
    root = Op(OpCode.MOD, dtypes.float32, (param(0, 64), param(1, 64)))
    (item,) = create_schedule([root]).items
    loop, function = render(lower(item.kernel, CPU_TARGETS[2]), CPU_TARGETS[2]).text.split("define internal")
    assert "call <16 x float> @remainder.v16f32" in loop and "frem" not in loop
    assert "frem" in function.split("large:")[1] and "frem" not in function.split("large:")[0]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_floats_become_integers_in_vectors(name: str, bits: int) -> None:
    """Floats beyond the limits become the nearer one, NaN 0."""
    limits = np.iinfo(name)
    near = [float(edge) + step for edge in (limits.min, limits.max) for step in (-1.5, -0.5, 0.0, 0.5, 1.5)]
    near += [0.999999 * value for value in near]
    values = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -0.5, 2.9, *near], f"float{bits}")
    exact = [0 if x != x else max(limits.min, min(limits.max, x)) for x in values.tolist()]
    root = cast(Op(OpCode.PARAM, dtypes.float32 if bits == 32 else dtypes.float64, (), (0, (64,))), getattr(dtypes, name))
    (item,) = create_schedule([root]).items
    text = render(lower(item.kernel, CPU_TARGETS[2]), CPU_TARGETS[2]).text
    assert ".sat." not in text and "to <" in text
    assert pg.tensor(np.tile(values, 8)).to(getattr(pg, name)).tolist() == 8 * list(map(int, exact))


BACKWARDS = {
    "a row": flip(param(0, 1000), (0,)),
    "rows": flip(param(0, 30, 70), (1,)),
    "all of it": flip(param(0, 30, 70), (0, 1)),
    "bytes": flip(param(0, 30, 70, dtype=dtypes.int8), (1,)),
    "with an edge": pad(flip(param(0, 30, 70), (1,)), ((1, 2), (3, 4))),
    "and forwards": flip(param(0, 30, 70), (1,)) * param(1, 30, 70),
}


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: str(target.vector_bytes))
@pytest.mark.parametrize("name", BACKWARDS)
def test_elements_in_falling_order_are_loaded_as_they_lie_and_reversed(name: str, target: Target) -> None:
    (item,) = create_schedule([BACKWARDS[name] + 0]).items
    text = render(lower(item.kernel, target), target).text
    lanes = target.vector_bytes // 4
    order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
    assert f"<{lanes} x i32> <{order}>" in text
    assert "gather" not in text and not re.search(r"insertelement <\d+ x (float|i8)>", text), "lane by lane"


PAIRS: dict[str, Callable[[pg.Tensor, pg.Tensor, pg.Tensor], pg.Tensor]] = {
    "stacked": lambda x, y, z: pg.stack([x[:, 0], x[:, 1]], -1),
    "turned": lambda x, y, z: pg.stack([-x[:, 1], x[:, 0]], -1),
    "complex product": lambda x, y, z: pg.stack(
        [x[:, 0] * y[:, 0] - x[:, 1] * y[:, 1], x[:, 0] * y[:, 1] + x[:, 1] * y[:, 0]], -1
    ),
    "a number a row": lambda x, y, z: x * z[:, None],
    "padded": lambda x, y, z: functional.pad(x, (1, 1)),
    "flipped": lambda x, y, z: x.flip(1) + y,
    "rolled": lambda x, y, z: x.roll(1, 1) * y,
    "chosen": lambda x, y, z: pg.where(x > 0, y, z[:, None]),
    "exchanged": lambda x, y, z: x.reshape(-1, 2, 2).transpose(1, 2) + 1.0,
    "every second": lambda x, y, z: x.flatten()[::2] + x.flatten()[1::2],
}


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: str(target.vector_bytes))
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_loaded_as_they_lie_and_permuted(name: str, target: Target) -> None:
    given = [pg.Tensor.zeros(1000, 2), pg.Tensor.zeros(1000, 2), pg.Tensor.zeros(1000)]
    graphs = parametrize(roots := [PAIRS[name](*[x.realize() for x in given]).op], template(roots))
    (item,) = schedule_graphs(graphs, target).kernel_items()
    text = render(lower(item.kernel, target), target).text
    assert "gather" not in text and "insertelement <16 x float>" not in text, "lane by lane"
    assert re.search(rf"store <{target.vector_bytes // 4} x float>", text), "whole vectors"


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_have_their_values(name: str, rng: np.random.Generator) -> None:
    for rows in (1, 7, 8, 211):
        x, y, z = (rng.standard_normal(shape).astype("float32") for shape in ((rows, 2), (rows, 2), (rows,)))
        if name == "exchanged" and rows % 2:
            continue
        given = [pg.Tensor(x), pg.Tensor(y), pg.Tensor(z)]
        with pg.device("NUMPY"):
            expected = PAIRS[name](*[pg.Tensor(a) for a in (x, y, z)]).numpy()
        np.testing.assert_array_equal(PAIRS[name](*given).numpy(), expected)


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int32", "float32", "int64", "float64"])
@pytest.mark.parametrize("columns", [2, 3, 4, 8, 16])
def test_short_rows_have_their_values(dtype: str, columns: int, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (211, columns)).astype(dtype)
    row = rng.integers(-9, 9, (211, 1)).astype(dtype)
    tensor, other = pg.Tensor(x), pg.Tensor(row)
    np.testing.assert_array_equal(tensor.flip(1).contiguous().numpy(), x[:, ::-1])
    np.testing.assert_array_equal(functional.pad(tensor, (1, 1)).numpy(), np.pad(x, ((0, 0), (1, 1))))
    np.testing.assert_array_equal(tensor.roll(1, 1).contiguous().numpy(), np.roll(x, 1, 1))
    np.testing.assert_array_equal(pg.where(tensor == other, tensor, other).numpy(), np.where(x == row, x, row))


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int32", "float32", "int64", "float64"])
def test_elements_in_falling_order_have_their_values(dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (211, 173)).astype(dtype)
    tensor = pg.Tensor(x)
    np.testing.assert_array_equal(tensor.flip(1).contiguous().numpy(), x[:, ::-1])
    np.testing.assert_array_equal(tensor.flip(0, 1).contiguous().numpy(), x[::-1, ::-1])
    np.testing.assert_array_equal(
        functional.pad(tensor.flip(1), (3, 4, 1, 2)).numpy(), np.pad(x[:, ::-1], ((1, 2), (3, 4)))
    )
    for turns in range(4):
        np.testing.assert_array_equal(pg.rot90(tensor, turns).contiguous().numpy(), np.rot90(x, turns))
