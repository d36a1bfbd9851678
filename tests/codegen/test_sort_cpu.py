"""Order on a CPU: that of NumPy's stable argsort for every length, type and special value; its elements of ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import sort_cpu
from picograd.codegen.sort_cpu import Network, has_network
from picograd.dtype import DType
from picograd.evaluator import evaluate, evaluate_program
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Nest
from picograd.ir.symbolic import to_op
from picograd.road import create_schedule, lower
from tests.codegen.test_sort import sort
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

Make = Callable[[np.random.Generator, tuple[int, ...], DType], np.ndarray]


def positions_of(root: Op, values: np.ndarray, nbytes: int = 32) -> np.ndarray:
    """Results of the Program for a vector width."""
    (item,) = create_schedule([root]).items
    program = lower(item.kernel, next(target for target in CPU_TARGETS if target.vector_bytes == nbytes))
    assert program.num_guards == 0
    found = np.zeros(root.shape, np.int64)
    rest = [np.zeros(int(param.numel), param.dtype.numpy) for param in program.params[2:]]
    evaluate_program(program, [values.reshape(-1).copy(), found.reshape(-1), *rest])
    return found


def special(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Few values, so that many are equal; of floats also both zeros, infinities and both NaNs."""
    if dtype.is_float:
        few = np.array([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, -np.nan, 3.5]).astype(np.float64)
        return rng.choice(few, shape).astype(dtype.numpy)
    low, high = (0, 1) if dtype is dtypes.bool_ else (int(dtype.min), int(dtype.max))
    wide = np.uint64 if dtype is dtypes.uint64 else np.int64
    return rng.choice(np.array([low, low + 1, high, high - 1, 0, 1], wide), shape).astype(dtype.numpy)


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
    monkeypatch.setattr(sort_cpu, "BLOCK_BYTES", 16 * nbytes)  # 16 places, so that blocks are merged
    values = np.random.default_rng(length).integers(0, 50, (5, length)).astype(np.float32)
    np.testing.assert_array_equal(positions_of(sort(5, length), values, nbytes), np.argsort(values, -1, kind="stable"))


@pytest.mark.parametrize("root", [sort(6, 9, axis=0), sort(2, 9, 3, axis=1), sort(1, 20), sort(33), sort(4, 1)], ids=str)
def test_any_axis_means_the_same_at_every_level(root: Op) -> None:
    values = np.random.default_rng(0).integers(0, 5, root.shape).astype(np.float32)
    check_same_meaning([root], {root.src[0]: values})


def nest_of(root: Op) -> Nest:
    (item,) = create_schedule([root]).items
    return item.kernel.phases[0][0]


def test_several_short_rows_of_narrow_keys_have_a_network() -> None:
    rows = Op(OpCode.VARIABLE, dtypes.int64, (), ("rows", 1, 9))
    assert has_network(nest_of(sort(4, 9)), CPU_TARGETS[0])
    assert has_network(nest_of(sort(4, 1024)), CPU_TARGETS[0])
    assert not has_network(nest_of(sort(4, 1025)), CPU_TARGETS[0])
    assert not has_network(nest_of(sort(1, 9)), CPU_TARGETS[0])
    assert not has_network(nest_of(sort(4, 9)), GPU_TARGET)
    assert not has_network(nest_of(sort(4, 9, dtype=dtypes.float64)), CPU_TARGETS[0])
    assert not has_network(nest_of(sort(4, to_op(rows))), CPU_TARGETS[0])


@pytest.mark.parametrize("length", [2, 3, 7, 8, 16, 33])
def test_a_network_sorts_all_zeros_and_ones(length: int) -> None:
    """A network that sorts every row of zeros and ones sorts every row (Knuth, volume 3, 5.3.4, theorem Z)."""
    ones = np.random.default_rng(0).integers(0, 2, (30, length)).astype(np.float32)
    if length <= 8:
        ones = ((np.arange(1 << length)[:, None] >> np.arange(length)) & 1).astype(np.float32)
    found = positions_of(sort(*ones.shape), ones)
    assert (np.diff(np.take_along_axis(ones, found, -1), axis=-1) >= 0).all()


def test_a_block_fits_the_cache_and_a_short_row_has_no_more_than_it_needs() -> None:
    assert Network(1000, 8).block * 8 * 8 == sort_cpu.BLOCK_BYTES
    assert (Network(1000, 8).whole, Network(1000, 4).whole) == (1024, 1024)
    assert (Network(5, 8).block, Network(5, 8).whole) == (8, 8)


# ---- a row for itself ----
@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short digits and few parts: the evaluator counts a thousand of them for each row."""
    for name, value in {"DIGIT_BITS": 4, "DIGIT_VALUES": 16, "PARTS_BITS": 4, "FEW_PARTS_BITS": 3}.items():
        monkeypatch.setattr(sort_cpu, name, value)


WIDE = [dtypes.float64, dtypes.int64, dtypes.uint64]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Values of which no two are near each other: all digits of their keys differ."""
    if dtype.is_float:
        return (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)).astype(dtype.numpy)
    low, high = (0, 2) if dtype is dtypes.bool_ else (int(dtype.min), int(dtype.max))
    return rng.integers(low, high, shape, np.int64 if dtype is dtypes.bool_ else dtype.numpy).astype(dtype.numpy)


def ascending(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Values in order already: neighbours are first places together."""
    return np.sort(drawn(rng, shape, dtype), -1)


@pytest.mark.usefixtures("few_parts")
@pytest.mark.variants(every=8)
@pytest.mark.parametrize("make", [special, drawn])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [*KINDS, *WIDE], ids=str)
@pytest.mark.parametrize("length", [1, 2, 9, 40, 100])
def test_one_row_is_sorted_by_ranks_or_by_digits(
    length: int, dtype: DType, descending: bool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_cpu, "COUNTED_ELEMENTS_MAX", 20)
    root = sort(1, length, descending=descending, dtype=dtype)
    values = make(np.random.default_rng(length), (1, length), dtype)
    expected = evaluate([root], {root.src[0]: values})[0]
    np.testing.assert_array_equal(positions_of(root, values), expected)


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_tables_are_in_memory_where_the_stack_has_no_room(dtype: DType, axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_cpu, "STACK_BYTES_MAX", 100)
    monkeypatch.setattr(sort_cpu, "COUNTED_ELEMENTS_MAX", 8)
    monkeypatch.setattr(sort_cpu, "NETWORK_ELEMENTS_MAX", 8)
    root = sort(6, 31, axis=axis, dtype=dtype)
    values = special(np.random.default_rng(0), (6, 31), dtype)
    np.testing.assert_array_equal(positions_of(root, values), evaluate([root], {root.src[0]: values})[0])


def test_a_digit_that_all_keys_share_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys count from the least one: of 200 neighbours the last byte differs alone, whatever they are."""
    monkeypatch.setattr(sort_cpu, "STACK_BYTES_MAX", 0)
    (item,) = create_schedule([sort(1, 200, dtype=dtypes.int64)]).items
    program = lower(item.kernel, CPU_TARGETS[-1])
    for greatest, passes in ((0, 0), (255, 1), (60000, 2)):
        values = np.linspace(greatest, 0, 200).astype(np.int64) - 1000
        tables = [np.zeros(400, np.int64), np.full(400, -1, np.int32)]
        evaluate_program(program, [values, np.zeros(200, np.int64), *tables])
        first, second = tables[1].reshape(2, 200)
        order = np.argsort(values, kind="stable")
        assert ((second == -1).all(), (first == np.arange(200)).all()) == (passes == 0, passes < 2)
        np.testing.assert_array_equal((first, second)[passes % 2], order)


# ---- elements of ranks ----
def ranked(
    shape: tuple[int, ...], ranks: Op, axis: int = -1, descending: bool = False, dtype: DType = dtypes.float32
) -> Op:
    x = Op(OpCode.PARAM, dtype, (), (0, shape))
    return Op(OpCode.SORT, dtypes.int64, (x, ranks), (axis % len(shape), descending))


@pytest.mark.usefixtures("few_parts")
@pytest.mark.variants(every=8)
@pytest.mark.parametrize("make", [special, drawn])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [*KINDS, *WIDE], ids=str)
@pytest.mark.parametrize(("length", "count"), [(1, 1), (2, 1), (33, 3), (100, 1), (40, 6)])
def test_elements_of_ranks_are_those_of_the_order(
    length: int, count: int, dtype: DType, descending: bool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short rows have all ranks found, long ones few selected. A rank outside is the nearest that is inside."""
    monkeypatch.setattr(sort_cpu, "COUNTED_ELEMENTS_MAX", 20)
    monkeypatch.setattr(sort_cpu, "NETWORK_ELEMENTS_MAX", 60)
    root = ranked((2, length), Op(OpCode.PARAM, dtypes.int64, (), (1, (2, count))), descending=descending, dtype=dtype)
    rng = np.random.default_rng(length)
    values = {root.src[0]: make(rng, (2, length), dtype), root.src[1]: rng.integers(-2, length + 2, (2, count))}
    order = evaluate([sort(2, length, descending=descending, dtype=dtype)], {root.src[0]: values[root.src[0]]})[0]
    expected = np.take_along_axis(order, np.clip(values[root.src[1]], 0, length - 1), -1)
    np.testing.assert_array_equal(evaluate([root], values)[0], expected)
    check_same_meaning([root], values)


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_ranks_along_any_axis(axis: int) -> None:
    shape = tuple(12 if i == axis else 3 for i in range(3))
    ranks = Op(OpCode.PARAM, dtypes.int64, (), (1, tuple(2 if i == axis else 3 for i in range(3))))
    root, rng = ranked(shape, ranks, axis), np.random.default_rng(0)
    check_same_meaning(
        [root], {root.src[0]: rng.integers(0, 5, shape).astype(np.float32), ranks: rng.integers(0, 12, ranks.shape)}
    )


@pytest.mark.usefixtures("few_parts")
def test_a_long_row_is_cut_in_more_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts of few and of many parts find the same, also of values that are all one, and of both ends of the integers."""
    ranks = Op(OpCode.PARAM, dtypes.int64, (), (1, (1, 1)))
    for most in (10, 1 << 14):
        monkeypatch.setattr(sort_cpu, "FEW_ELEMENTS_MAX", most)
        root = ranked((1, 60), ranks, dtype=dtypes.int64)
        for values in (np.full((1, 60), 7), np.array([[-(1 << 63), (1 << 63) - 1, 0] * 20])):
            order = np.argsort(values, -1, kind="stable")
            for rank in (0, 20, 59):
                found = np.zeros(1, np.int64)
                (item,) = create_schedule([root]).items
                program = lower(item.kernel, CPU_TARGETS[-1])
                evaluate_program(program, [values.reshape(-1), np.array([rank]), found])
                assert found == order[0, rank], (values[0, :3], rank)


@pytest.mark.usefixtures("few_parts")
# ---- few first places ----
@pytest.mark.variants(every=6)
@pytest.mark.parametrize("make", [special, drawn, ascending])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.float64, dtypes.uint64], ids=str)
@pytest.mark.parametrize(("count", "length"), [(1, 40), (3, 200), (5, 21), (30, 200)])
def test_few_first_places_are_found_by_groups_or_by_the_last_of_them(
    count: int, length: int, dtype: DType, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_cpu, "COUNTED_ELEMENTS_MAX", 16)
    x = Op(OpCode.PARAM, dtype, (), (0, (2, length)))
    for descending in (False, True):
        root = Op(OpCode.SORT, dtypes.int64, (x,), (1, descending, count))
        values = make(np.random.default_rng(length), (2, length), dtype)
        np.testing.assert_array_equal(positions_of(root, values), evaluate([root], {x: values})[0])
