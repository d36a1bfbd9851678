"""Sorting by exchanges: the order of NumPy's stable argsort for every length, type and special value."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import sort as sort_kernels
from picograd.codegen.sort import Network, has_network
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import ORDERS, CudaSimDevice
from picograd.devices.cudasim.device import TARGET as CUDASIM
from picograd.dtype import DType
from picograd.evaluator import evaluate, evaluate_program
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Nest
from picograd.ir.symbolic import to_op
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.gpu_programs import run
from tests.host_compilers import needs_compiler
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning


def sort(*shape: Dim, axis: int = -1, descending: bool = False, dtype: DType = dtypes.float32) -> Op:
    x = Op(OpCode.PARAM, dtype, (), (0, shape))
    return Op(OpCode.SORT, dtypes.int64, (x,), (axis % len(shape), descending))


def positions_of(root: Op, values: np.ndarray, nbytes: int = 32) -> np.ndarray:
    """What the Program for a vector width gives."""
    (item,) = create_schedule([root]).items
    program = lower(item.kernel, next(target for target in CPU_TARGETS if target.vector_bytes == nbytes))
    assert program.num_guards == 0
    found = np.zeros(values.size, np.int64)
    rest = [np.zeros(int(param.numel), param.dtype.numpy) for param in program.params[2:]]
    evaluate_program(program, [values.reshape(-1).copy(), found, *rest])
    return found.reshape(values.shape)


def special(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Few values, so that many are equal; of floats also both zeros, infinities and both NaNs."""
    if dtype.is_float:
        few = np.array([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, -np.nan, 3.5]).astype(np.float64)
        return rng.choice(few, shape).astype(dtype.numpy)
    low, high = (0, 1) if dtype is dtypes.bool_ else (int(dtype.min), int(dtype.max))
    return rng.choice(np.array([low, low + 1, high, high - 1, 0, 1], np.int64), shape).astype(dtype.numpy)


KINDS = [
    dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.uint32, dtypes.int16, dtypes.uint8, dtypes.bool_,
]  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_special_values_stand_where_numpy_puts_them_and_equal_ones_keep_their_order(dtype: DType, descending: bool) -> None:
    values = special(np.random.default_rng(0), (7, 30), dtype)
    wide = values.astype(np.float64)
    expected = np.argsort(-wide if descending else wide, -1, kind="stable")
    if descending and dtype.is_float:  # NaN is the greatest value, and comes first
        finite = np.clip(-wide, -1e300, 1e300)
        expected = np.argsort(np.where(np.isnan(wide), -np.inf, finite), -1, kind="stable")
    np.testing.assert_array_equal(positions_of(sort(7, 30, descending=descending, dtype=dtype), values), expected)


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("length", [2, 3, 4, 5, 8, 15, 16, 17, 31, 64, 65, 100])
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_length_and_vector(length: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_kernels, "BLOCK_BYTES", 16 * nbytes)  # 16 places, so that blocks are merged
    values = np.random.default_rng(length).integers(0, 50, (5, length)).astype(np.float32)
    np.testing.assert_array_equal(positions_of(sort(5, length), values, nbytes), np.argsort(values, -1, kind="stable"))


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("length", [40, 64, 65, 200])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_long_row_is_sorted_in_pieces_that_are_merged(length: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_kernels, "PIECE_ELEMENTS", 8)
    monkeypatch.setattr(sort_kernels, "STACK_BYTES_MAX", 8 * 8 * 4)
    values = np.random.default_rng(length).integers(0, 20, (rows, length)).astype(np.float32)
    np.testing.assert_array_equal(positions_of(sort(rows, length), values), np.argsort(values, -1, kind="stable"))


@pytest.mark.parametrize("root", [sort(6, 9, axis=0), sort(2, 9, 3, axis=1), sort(1, 20), sort(33), sort(4, 1)], ids=str)
def test_any_axis_means_the_same_at_every_level(root: Op) -> None:
    values = np.random.default_rng(0).integers(0, 5, root.shape).astype(np.float32)
    check_same_meaning([root], {root.src[0]: values})


def test_what_has_no_network_is_merged() -> None:
    rows = Op(OpCode.VARIABLE, dtypes.int64, (), ("rows", 1, 9))

    def nest(root: Op) -> Nest:
        (item,) = create_schedule([root]).items
        return item.kernel.phases[0][0]

    assert has_network(nest(sort(4, 9)), CPU_TARGETS[0])
    assert not has_network(nest(sort(4, 9)), GPU_TARGET)
    assert not has_network(nest(sort(4, 9, dtype=dtypes.float64)), CPU_TARGETS[0])
    assert not has_network(nest(sort(4, to_op(rows))), CPU_TARGETS[0])


@pytest.mark.parametrize("length", [2, 3, 7, 8, 16, 33])
def test_a_network_sorts_all_zeros_and_ones(length: int) -> None:
    """A network that sorts every row of zeros and ones sorts every row (Knuth, volume 3, 5.3.4, theorem Z)."""
    ones = np.random.default_rng(0).integers(0, 2, (30, length)).astype(np.float32)
    if length <= 8:
        ones = ((np.arange(1 << length)[:, None] >> np.arange(length)) & 1).astype(np.float32)
    found = positions_of(sort(*ones.shape), ones)
    assert (np.diff(np.take_along_axis(ones, found, -1), axis=-1) >= 0).all()


def test_a_block_fits_the_cache_and_a_short_row_has_no_more_than_it_needs() -> None:
    assert Network(1000, 8).block * 8 * 8 == sort_kernels.BLOCK_BYTES
    assert (Network(1000, 8).whole, Network(1000, 4).whole) == (1024, 1024)
    assert (Network(5, 8).block, Network(5, 8).whole) == (8, 8)


def test_a_gpu_sorts_a_row_of_2048_in_one_phase() -> None:
    """Its tables fill the shared memory that a function may declare: no run of it goes through memory."""
    target = replace(CUDASIM, device="CUDA", arch="sm_80")
    (item,), (longer,) = (create_schedule([sort(3, length)]).items for length in (2048, 2049))
    source = render(lower(item.kernel, target), target)
    (launch,) = source.launches
    assert (launch.grid, launch.block) == (3, 256)
    (usage,) = nvrtc.resource_usage(source, target).values()
    assert usage.shared_nbytes == DECLARED_SHARED_BYTES and usage.spill_nbytes == 0
    assert [one.grid for one in render(lower(longer.kernel, target), target).launches] == [6, 25]


# ---- few first places ----
def first(count: int, *shape: int, axis: int = -1, descending: bool = False, dtype: DType = dtypes.float32) -> Op:
    x = Op(OpCode.PARAM, dtype, (), (0, shape))
    return Op(OpCode.SORT, dtypes.int64, (x,), (axis % len(shape), descending, count))


def phases_of(root: Op, target: Target = GPU_TARGET) -> int:
    (item,) = create_schedule([root]).items
    return len(lower(item.kernel, target).phases)


# The GPU of these tests has blocks of 32 threads: tiles of 512 elements at most.
@pytest.mark.variants(every=8)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [*KINDS, dtypes.float64], ids=str)
@pytest.mark.parametrize(("count", "length"), [(1, 9), (4, 33), (5, 20)])
def test_first_places_are_those_of_the_order(count: int, length: int, dtype: DType, descending: bool) -> None:
    """Those that are few on a GPU, others, and keys that fit no integer with their position; many elements are equal."""
    root = first(count, 2, length, descending=descending, dtype=dtype)
    x = root.src[0]
    values = special(np.random.default_rng(length), (2, length), dtype)
    whole = evaluate([sort(2, length, descending=descending, dtype=dtype)], {x: values})[0]
    np.testing.assert_array_equal(evaluate([root], {x: values})[0], whole[:, :count])
    check_same_meaning([root], {x: values})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_first_places_along_any_axis(axis: int) -> None:
    root = first(3, *[40 if i == axis else 3 for i in range(3)], axis=axis, descending=True)
    x = root.src[0]
    check_same_meaning([root], {x: np.random.default_rng(0).integers(0, 5, x.shape).astype(np.float32)})


def test_of_a_row_of_several_tiles_few_are_left_to_sort() -> None:
    wanted = {(4, 512): 1, (4, 513): 2, (4, 64000): 2, (4, 70000): 3, (17, 2000): 4}  # count, length: phases
    assert {case: phases_of(first(case[0], 2, case[1])) for case in wanted} == wanted


def test_a_row_of_fewer_elements_than_places_there_are_is_whole() -> None:
    """All threads but some have no element: those are no candidates."""
    for length in (8, 31):
        root = first(1, 2, length)
        check_same_meaning([root], {root.src[0]: np.random.default_rng(1).random(root.src[0].shape).astype(np.float32)})
    none = first(0, 3, 20)
    assert evaluate([none], {none.src[0]: np.zeros((3, 20), np.float32)})[0].shape == (3, 0)


@pytest.mark.variants(every=3)
@needs_compiler
@pytest.mark.parametrize(
    ("count", "length"), [(32, 2048), (3, 130), (100, 5000), (128, 4097), (200, 3000), (1, 40), (1, 1)]
)
def test_first_places_on_the_simulator_in_every_order_of_threads(count: int, length: int) -> None:
    root = first(count, 2, length, descending=True)
    values = special(np.random.default_rng(3), (2, length), dtypes.float32)
    expected = evaluate([root], {root.src[0]: values})[0]
    (item,) = create_schedule([root]).items
    program = lower(item.kernel, CUDASIM)
    binary = simulated.compile_source(render(program, CUDASIM), CUDASIM)
    for order in ORDERS:
        device, found = CudaSimDevice(order, seed=1), np.zeros(expected.size, np.int64)
        run(device, device.load(binary), [values, found])
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)
