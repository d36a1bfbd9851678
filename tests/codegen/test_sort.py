"""Order on a GPU: that of NumPy's stable argsort; few first places of it."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import ORDERS, CudaSimDevice
from picograd.devices.cudasim.device import TARGET as CUDASIM
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.gpu_programs import run
from tests.host_compilers import needs_compiler
from tests.same_meaning import GPU_TARGET, check_same_meaning


def sort(*shape: Dim, axis: int = -1, descending: bool = False, dtype: DType = dtypes.float32) -> Op:
    x = Op(OpCode.PARAM, dtype, (), (0, shape))
    return Op(OpCode.SORT, dtypes.int64, (x,), (axis % len(shape), descending))


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
