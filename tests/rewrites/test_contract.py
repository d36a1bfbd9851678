"""Operands that are computed once, before the products that read them, and those that each product packs by itself."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.build import compare, expand, pad, permute, positions, reduce, reshape, swap_last, unary, where
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg, ConvArg
from picograd.rewrites.contract import COSTLY_STEPS_MIN, contract, is_joined, shared_by_convolutions, shared_by_products
from tests.calls import calls
from tests.devices.cuda.test_render_hopper import HOPPER
from tests.same_meaning import GPU_TARGET, check_same_meaning


def param(slot: int, *shape: int) -> Op:
    return Op(OpCode.PARAM, dtypes.float32, (), (slot, shape))


def matmul(a: Op, b: Op) -> Op:
    return Op(OpCode.MATMUL, a.dtype, (a, b))


def stored(roots: list[Op]) -> list[OpCode]:
    """What the graphs store because it is asked for, by its operation."""
    return [op.src[0].code for op in toposort(contract(roots)) if op.code is OpCode.CONTIGUOUS]


def values_for(roots: list[Op]) -> dict[Op, np.ndarray]:
    rng = np.random.default_rng(0)
    return {op: rng.standard_normal(op.shape).astype(np.float32) for op in toposort(roots) if op.code is OpCode.PARAM}


LEFT, RIGHT = param(0, 6, 8), param(1, 6, 8)
JOINED = pad(LEFT, ((0, 0), (0, 8))) + pad(RIGHT, ((0, 0), (8, 0)))  # (6, 16)
W, V = param(2, 16, 5), param(3, 6, 7)


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (JOINED, True),
        (swap_last(JOINED), True),
        (reshape(permute(reshape(JOINED, (6, 2, 8)), (1, 0, 2)), (12, 8)), True),
        (JOINED + pad(LEFT, ((0, 0), (4, 4))), True),
        (pad(LEFT, ((0, 0), (0, 8))), False),
        (LEFT + RIGHT, False),
        (pad(LEFT, ((0, 0), (0, 8))) + param(4, 6, 16), False),
        (LEFT, False),
    ],
)
def test_what_is_joined(operand: Op, expected: bool) -> None:
    assert is_joined(operand) == expected


def test_a_joined_operand_is_stored_once_for_both_its_products() -> None:
    roots = [matmul(JOINED, W), matmul(swap_last(JOINED), V)]
    assert stored(roots) == [OpCode.ADD]
    check_same_meaning(roots, values_for(roots), tolerance=1e-5)


def test_a_joined_operand_is_stored_for_all_that_read_it() -> None:
    """As the gradient of a bias beside those of the product that it was added to."""
    roots = [matmul(swap_last(JOINED), V), reduce(JOINED, OpCode.ADD, (0,))]
    for root in contract(roots):
        assert [op.code for op in toposort([root]) if JOINED in op.src] == [OpCode.CONTIGUOUS]
    check_same_meaning(roots, values_for(roots), tolerance=1e-5)


def test_it_is_stored_as_it_was_joined_and_viewed() -> None:
    turned = reshape(permute(reshape(JOINED, (6, 2, 8)), (1, 0, 2)), (12, 8))
    assert stored([matmul(turned, param(4, 8, 3))]) == [OpCode.PERMUTE]


def test_a_product_with_a_vector_reads_it_as_it_is() -> None:
    assert stored([matmul(JOINED, param(4, 16, 1))]) == []


def test_a_sum_is_looked_through_once_however_often_it_reads_itself() -> None:
    twice = param(0, 6, 6)
    for _ in range(60):
        twice = twice + twice  # 2 ** 60 ways lead to the parameter
    assert not is_joined(twice)
    pads = JOINED
    for _ in range(60):
        pads = pads + pads
    assert is_joined(pads)


SCORES, VALUES = param(0, 4, 6, 6), param(1, 4, 6, 3)
POWERS = unary(OpCode.EXP, SCORES - expand(reduce(SCORES, OpCode.MAX, (2,), keepdim=True), SCORES.shape))


def test_an_exponential_of_a_softmax_that_two_products_read_is_stored() -> None:
    roots = [matmul(POWERS * 2.0, VALUES), matmul(swap_last(POWERS), VALUES)]
    assert shared_by_products(toposort(roots)) == {POWERS}
    assert stored(roots) == [OpCode.EXP]
    check_same_meaning(roots, values_for(roots), tolerance=1e-4)


def test_looking_for_shared_exponentials_takes_work_in_proportion_to_the_graph() -> None:
    def residual(num_layers: int) -> list[Op]:
        x = VALUES
        for layer in range(num_layers):
            x = matmul(x, param(2 + layer, 4, 3, 3)) + x
        return toposort([x])

    few, many = residual(100), residual(400)
    assert calls(lambda: shared_by_products(many)) <= 4.6 * calls(lambda: shared_by_products(few))


def test_one_product_computes_it_itself() -> None:
    assert stored([matmul(POWERS, VALUES), POWERS * 3.0]) == []


def test_what_no_reduction_stands_in_is_left_to_its_own_product() -> None:
    """exp(a @ b) is stored with a @ b anyway."""
    first = unary(OpCode.EXP, matmul(VALUES, swap_last(VALUES)))
    assert stored([matmul(first, VALUES), matmul(swap_last(first), VALUES)]) == []


def test_those_of_a_classifier_are_left_to_its_products() -> None:
    logits = param(0, 6, 6)
    powers = unary(OpCode.EXP, logits - expand(reduce(logits, OpCode.MAX, (1,), keepdim=True), (6, 6)))
    assert stored([matmul(powers, param(1, 6, 3)), matmul(swap_last(powers), param(2, 6, 4))]) == []


def test_of_an_exponential_of_an_exponential_the_outer_one_is_stored() -> None:
    twice = unary(OpCode.EXP, POWERS * 0.5)
    roots = [matmul(twice, VALUES), matmul(swap_last(twice), VALUES)]
    assert shared_by_products(toposort(roots)) == {twice}


def conv(x: Op, w: Op) -> Op:
    return Op(OpCode.CONV, x.dtype, (x, w), ConvArg((1, 1), ((0, 0),) * 2, (1, 1), (1, 1), 1))


IMAGES, OTHERS, TAPS = param(0, 2, 3, 5, 6), param(1, 2, 3, 5, 6), param(2, 4, 3, 2, 2)


def test_what_two_convolutions_would_compute_from_two_large_values_is_stored() -> None:
    both = IMAGES * OTHERS + 1.0
    turned = permute(both, (1, 0, 2, 3))
    roots = [conv(both, TAPS), conv(turned, param(3, 4, 2, 2, 2))]
    assert shared_by_convolutions(toposort(roots)) == {both}
    assert stored(roots) == [OpCode.ADD]
    check_same_meaning(roots, values_for(roots), tolerance=1e-4)
    assert stored(roots[:1]) == [], "one computes it itself"


def test_what_is_computed_from_one_large_value_is_left_to_the_convolutions() -> None:
    one = IMAGES * expand(param(3, 1, 3, 1, 1), IMAGES.shape)
    assert stored([conv(one, TAPS), conv(one, TAPS * 2.0)]) == []


def test_what_takes_a_great_many_steps_is_stored_too() -> None:
    many = IMAGES
    for _ in range(COSTLY_STEPS_MIN):
        many = many * 1.5 + 0.5
    assert shared_by_convolutions(toposort([conv(many, TAPS), conv(many, TAPS * 2.0)])) == {many}


def test_looking_for_shared_images_takes_work_in_proportion_to_the_graph() -> None:
    def residual(num_layers: int) -> list[Op]:
        x, weight = IMAGES, param(3, 3, 3, 1, 1)
        for _ in range(num_layers):
            x = conv(x, weight) + conv(x * 2.0, weight) + x
        return toposort([x])

    few, many = residual(100), residual(400)
    assert calls(lambda: shared_by_convolutions(many)) <= 4.6 * calls(lambda: shared_by_convolutions(few))


def test_few_first_places_of_a_long_row_are_those_of_blocks_on_a_gpu() -> None:
    for count, longest in ((10, 4096), (100, 25600)):
        x = Op(OpCode.PARAM, dtypes.int64, (), (0, (1 << 20,)))
        first = Op(OpCode.SORT, dtypes.int64, (x,), (0, True, count))
        assert contract([first]) == [first]
        sorts = [op for op in toposort(contract([first], GPU_TARGET)) if op.code is OpCode.SORT]
        assert sum(op.src[0].numel for op in sorts) < 2 * (1 << 20)
        assert max(op.src[0].shape[-1] for op in sorts) < longest and all(op.shape[-1] == count for op in sorts)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.uint8], ids=str)
def test_first_places_of_blocks_are_those_of_the_row(dtype: DType, descending: bool) -> None:
    """Rows have a last block cut off and equal elements in many blocks, those of floats NaN and infinities."""
    x = Op(OpCode.PARAM, dtype, (), (0, (2, 4133)))
    first = Op(OpCode.SORT, dtypes.int64, (x,), (1, descending, 3))
    values = np.random.default_rng(0).integers(0, 50, (2, 4133)).astype(dtype.numpy)
    if dtype.is_float:
        values[0, [5, 4132, 4130, 70]] = np.nan, -np.inf, np.nan, np.inf
    cut = contract([first], GPU_TARGET)
    assert cut != [first]
    np.testing.assert_array_equal(evaluate(cut, {x: values})[0], evaluate([first], {x: values})[0])


# ---- one element of each row ----
def of_each_row(x: Op, index: Op) -> Op:
    number = expand(reshape(index, (*index.shape, 1)), x.shape)
    places = positions(x.shape, len(x.shape) - 1, index.dtype)
    return reduce(where(compare(OpCode.CMPEQ, number, places), x, 0.0), OpCode.ADD, (len(x.shape) - 1,))


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.int32])
@pytest.mark.parametrize("shape", [(100,), (5, 100), (2, 3, 100)])
def test_an_element_of_a_row_in_memory_is_read_alone(shape: tuple[int, ...], dtype: DType) -> None:
    x, index = param(0, *shape), Op(OpCode.PARAM, dtype, (), (1, shape[:-1]))
    root = of_each_row(x, index)
    (new,) = contract([root])
    assert [op.code for op in toposort([new])].count(OpCode.REDUCE) == 0
    rng = np.random.default_rng(0)
    values = {x: rng.standard_normal(shape).astype(np.float32), index: rng.integers(-2, 102, shape[:-1]).astype(dtype.name)}
    np.testing.assert_array_equal(evaluate([new], values)[0], evaluate([root], values)[0])


def test_rows_that_are_short_or_computed_or_read_elsewhere_are_walked() -> None:
    index = Op(OpCode.PARAM, dtypes.int64, (), (1, (5,)))
    x, short = param(0, 5, 100), param(2, 5, 10)
    read_twice = [of_each_row(x, index), reduce(x, OpCode.MAX, (1,))]
    for roots in ([of_each_row(x * 2.0, index)], [of_each_row(short, index)], read_twice):
        assert OpCode.GATHER not in [op.code for op in toposort(contract(roots))]


@pytest.mark.parametrize(
    ("target", "rows", "is_stored"), [(HOPPER, 128, True), (HOPPER, None, False), (GPU_TARGET, 128, False)]
)
def test_averages_read_by_rows_are_stored_so_for_warpgroups(target: Target, rows: int | None, is_stored: bool) -> None:
    """A product of a shape of numbers copies tiles."""
    length = rows or Op(OpCode.VARIABLE, dtypes.int64, (), ("rows", 1, 128))
    q, k, v = (Op(OpCode.PARAM, dtypes.bfloat16, (), (slot, (2, 4, length, 64))) for slot in range(3))
    seen = Op(OpCode.OUTPUT, dtypes.bfloat16, (Op(OpCode.ATTENTION, dtypes.bfloat16, (q, k, v), AttentionArg(0.125)),), 0)
    by_rows = reshape(permute(seen, (0, 2, 1, 3)), (2, length, 256))
    (found,) = contract([by_rows], target)
    assert (OpCode.CONTIGUOUS in (op.code for op in toposort([found]))) == is_stored
    (alone,) = contract([seen], target)
    assert alone.code is OpCode.OUTPUT
