"""Every symbolic function against brute-force integers; equal expressions are one Op."""

from __future__ import annotations

from functools import reduce
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.symbolic import (
    add,
    affine,
    both,
    bounds,
    flatten,
    floordiv,
    forget_sums,
    from_op,
    less,
    minimum,
    mod,
    mul,
    reshape_coords,
    subtract,
    to_op,
    unflatten,
    with_values,
)

LIMITED = settings(max_examples=120, deadline=None, derandomize=True)
N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 4))


def loop(number: int, extent: Dim) -> Op:
    return Op(OpCode.RANGE, dtypes.int64, (to_op(extent),), (number, AxisKind.LOOP))


R, J, K = loop(0, 5), loop(1, 3), loop(2, N)
VALUES = [
    {N: n, R: i, J: j, K: k} for n in range(1, 5) for i, j in product(range(5), range(3)) for k in range(n)
]  # fmt: skip
PYTHON = {
    OpCode.ADD: lambda a, b: a + b,
    OpCode.MUL: lambda a, b: a * b,
    OpCode.IDIV: lambda a, b: a // b if b else 0,
    OpCode.MOD: lambda a, b: a % b if b else 0,
    OpCode.MIN: min,
    OpCode.CMPLT: lambda a, b: a < b,
    OpCode.AND: lambda a, b: a and b,
}


def number(value: Dim | bool, given: dict[Op, int]) -> int:
    """The value of an expression by Python's integers, Op by Op."""
    if not isinstance(value, Op):
        return value
    if value in given:
        return given[value]
    if value.code is OpCode.CONST:
        return value.arg
    return PYTHON[value.code](*(number(s, given) for s in value.src))


def same(value: Dim | bool, expected) -> None:
    """`expected(values)` is the meaning of an expression, wherever its loops stand."""
    for values in VALUES:
        assert number(value, values) == expected(values), f"{value} at {values}"


def leaves():
    atoms = st.sampled_from([(op, lambda values, op=op: values[op]) for op in (N, R, J, K)])
    return atoms | st.integers(-9, 9).map(lambda n: (n, lambda values, n=n: n))


def combine(children):
    """Pairs of (symbolic expression, its meaning): each function of symbolic.py beside Python's."""
    divisors = st.integers(-8, 8) | st.just(N)

    def binary(function, meaning):
        def join(pair):
            (a, ma), (b, mb) = pair
            return function(a, b), lambda values: meaning(ma(values), mb(values))

        return st.tuples(children, children).map(join)

    def divided(function, meaning):
        def join(pair):
            (a, ma), d = pair
            return function(a, d), lambda values: meaning(ma(values), values[d] if isinstance(d, Op) else d)

        return st.tuples(children, divisors).map(join)

    return (
        binary(add, lambda a, b: a + b)
        | binary(subtract, lambda a, b: a - b)
        | binary(mul, lambda a, b: a * b)
        | binary(minimum, min)
        | divided(floordiv, lambda a, b: a // b if b else 0)
        | divided(mod, lambda a, b: a % b if b else 0)
    )


expressions = st.recursive(leaves(), combine, max_leaves=8)


@LIMITED
@given(expressions)
def test_every_function_means_what_integers_mean(pair) -> None:
    same(*pair)


@LIMITED
@given(expressions)
def test_bounds_hold_every_value(pair) -> None:
    value, meaning = pair
    low, high = bounds(value)
    assert all(low <= meaning(values) <= high for values in VALUES)


@LIMITED
@given(expressions, expressions)
def test_less_is_the_comparison(left, right) -> None:
    same(less(left[0], right[0]), lambda values: left[1](values) < right[1](values))


@LIMITED
@given(expressions)
def test_substitute_puts_in_values(pair) -> None:
    value, meaning = pair
    for values in VALUES[::7]:
        assert with_values(value, values) == meaning(values)


@LIMITED
@given(expressions, expressions)
def test_substitute_puts_in_expressions(pair, inner) -> None:
    within = mod(inner[0], 5)  # what replaces a RANGE is one of its values
    moved = with_values(pair[0], {R: within})
    for values in VALUES[::5]:
        assert number(moved, values) == pair[1]({**values, R: inner[1](values) % 5})


@LIMITED
@given(st.lists(expressions, min_size=2, max_size=4))
def test_the_order_of_a_sum_does_not_matter(pairs) -> None:
    sums = set()
    for order in permutations(pairs):
        total: Dim = 0
        for value, _ in order:
            total = add(total, value)
        sums.add(total)
    assert len(sums) == 1


@LIMITED
@given(expressions, expressions, expressions)
def test_multiplication_commutes_and_distributes(a, b, c) -> None:
    assert mul(a[0], b[0]) == mul(b[0], a[0])
    assert mul(a[0], add(b[0], c[0])) == add(mul(a[0], b[0]), mul(a[0], c[0]))


@LIMITED
@given(expressions)
def test_building_an_expression_again_gives_the_same_op(pair) -> None:
    assert with_values(pair[0], {Op(OpCode.VARIABLE, dtypes.int64, (), ("other", 0, 1)): 0}) is pair[0] or isinstance(
        pair[0], int
    )


@LIMITED
@given(expressions)
def test_subtracting_an_expression_from_itself_is_zero(pair) -> None:
    assert subtract(pair[0], pair[0]) == 0


@LIMITED
@given(expressions)
def test_affine_takes_apart_what_add_and_mul_put_together(pair) -> None:
    terms, constant = affine(pair[0])
    total: Dim = constant
    for atom, coefficient in terms.items():
        total = add(total, mul(atom, coefficient))
    assert total is pair[0] or total == pair[0]


@pytest.mark.parametrize("rows, columns", [(5, 3), (3, 5), (2, 4)])
def test_flattening_and_unflattening_cancel(rows: int, columns: int) -> None:
    i, j = loop(0, rows), loop(1, columns)
    flat = add(mul(i, columns), j)
    assert floordiv(flat, columns) is i
    assert mod(flat, columns) is j


def test_a_loop_of_one_iteration_is_zero() -> None:
    assert add(mul(loop(0, 1), 4), 3) == 3


def test_a_product_of_several_lengths_is_one_op_in_any_order_and_each_part_divides_it() -> None:
    lengths = [N, *(Op(OpCode.VARIABLE, dtypes.int64, (), (name, 2, 9)) for name in "abc")]
    whole = reduce(mul, [R, *lengths])
    for order in permutations(lengths):
        front, back = reduce(mul, order[:2]), mul(reduce(mul, order[2:]), R)
        assert reduce(mul, [*order, R]) is mul(front, back) is whole
        assert floordiv(add(whole, mul(front, 3)), front) is add(back, 3) and mod(whole, front) == 0


def test_symbolic_rows_cancel() -> None:
    flat = add(mul(R, N), K)
    assert floordiv(flat, N) is R
    assert mod(flat, N) is K


def test_quotient_and_remainder_join_again() -> None:
    position = loop(3, 60)
    assert add(mul(floordiv(position, 12), 12), mod(position, 12)) is position
    assert add(mod(position, 12), mul(floordiv(position, 12), 12)) is position


def test_division_takes_out_what_divides() -> None:
    assert floordiv(add(mul(R, 8), 7), 4) is add(mul(R, 2), 1)
    assert mod(add(mul(R, 8), 7), 4) == 3
    assert floordiv(floordiv(loop(3, 1000), 10), 10) is floordiv(loop(3, 1000), 100)


def test_a_sum_of_lengths_divides_what_it_is_a_factor_of() -> None:
    """Rows of 4 n - 3 elements, or of n + m: the position in a matrix is a row and a column."""
    n, m = (Op(OpCode.VARIABLE, dtypes.int64, (), (name, 2, 9)) for name in "nm")
    for length in (subtract(mul(n, 4), 3), add(n, m), add(mul(n, n), m)):
        row, column = loop(3, 6), loop(4, length)
        position = add(mul(row, length), column)
        assert (floordiv(position, length), mod(position, length)) == (row, column)
    assert floordiv(subtract(mul(n, 3), 1), n) == 2


def test_a_loop_of_several_lengths_is_divided_by_one_of_them_less_often_than_there_are() -> None:
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 16, 31))
    assert bounds(floordiv(loop(3, mul(n, 3)), n)) == (0, 2)


def test_a_vector_that_fills_part_of_a_row_is_in_one_row() -> None:
    vector, lane = loop(3, 64), loop(4, 16)
    place = add(mul(vector, 16), lane)
    assert floordiv(place, 32) is floordiv(vector, 2)
    assert mod(place, 32) is add(mul(mod(vector, 2), 16), lane)
    assert add(mul(floordiv(place, 32), 32), mod(place, 32)) is place
    across = floordiv(add(place, 1), 32)  # the last lane may be in the next row
    assert across.code is OpCode.IDIV and across.src[0] is add(place, 1)


def test_less_is_decided_where_bounds_allow() -> None:
    assert less(R, 5) is True
    assert less(4, R) is False
    assert isinstance(less(R, 4), Op)
    assert less(K, N) is True or isinstance(less(K, N), Op)


H, W = (Op(OpCode.VARIABLE, dtypes.int64, (), (name, 8, 63)) for name in "hw")


def test_less_knows_where_an_index_ends_whose_extent_is_a_length() -> None:
    row, column = loop(3, H), loop(4, W)
    assert less(add(mul(row, W), column), mul(H, W)) is True
    window = loop(5, floordiv(subtract(W, 1), 2))  # of three elements, two apart
    assert less(add(mul(window, 2), 2), W) is True
    assert isinstance(less(add(mul(window, 2), 3), W), Op)
    longer = add(W, minimum(subtract(H, W), 0))
    assert less(loop(6, longer), W) is True and less(loop(6, longer), H) is True, "either side of a minimum"


def test_quotients_of_one_length_are_compared() -> None:
    assert minimum(floordiv(W, 2), floordiv(add(W, 1), 2)) is floordiv(W, 2)
    assert minimum(floordiv(add(W, 4), 4), floordiv(add(W, 1), 2)) is floordiv(add(W, 4), 4)
    assert minimum(floordiv(W, 2), floordiv(add(W, 9), 3)).code is OpCode.MIN, "W // 2 is less up to 17"


def test_only_axes_that_split_or_merge_are_divided() -> None:
    rows, columns = add(H, -1), floordiv(add(W, 1), 2)
    at = (loop(3, 2), loop(4, 3), loop(5, rows), loop(6, columns))
    together = reshape_coords(at, (2, 3, rows, columns), (2, 3, mul(rows, columns)))
    assert together[:2] == at[:2] and together[2] is add(mul(at[2], columns), at[3])
    assert reshape_coords(at, (2, 3, rows, columns), (6, rows, 1, columns)) == (add(mul(at[0], 3), at[1]), at[2], 0, at[3])
    assert reshape_coords((0, 0), (0, 5), (0, 7)) == (0, 0)


@pytest.mark.parametrize("last", [mul(H, W), mul(add(mul(H, 2), 1), add(W, -1))], ids=["a product", "sums"])
def test_coordinates_of_three_axes_join_again(last: Dim) -> None:
    place = loop(3, mul(last, 12))
    assert flatten(unflatten(place, (4, 3, last)), (4, 3, last)) is place


def test_both_drops_what_is_certain() -> None:
    condition = less(R, 4)
    assert both(True, condition) is condition
    assert both(condition, False) is False
    assert both(condition, condition) is condition


def test_a_constant_and_an_int_are_one() -> None:
    assert from_op(to_op(7)) == 7
    assert to_op(7) is const(7, dtypes.int64)
    assert from_op(R) is R


def test_a_constant_below_a_cast_keeps_its_dtype() -> None:
    real = Op(OpCode.CAST, dtypes.float32, (R,)) * 0.5
    whole = Op(OpCode.CAST, dtypes.int64, (real,))
    halved = with_values(add(whole, J), {R: mul(K, 2), J: 1})
    expected = Op(OpCode.CAST, dtypes.int64, (Op(OpCode.CAST, dtypes.float32, (to_op(mul(K, 2)),)) * 0.5,))
    assert halved is add(expected, 1)
    small = Op(OpCode.CAST, dtypes.int32, (R,)) + 3
    assert with_values(small, {R: J}) is Op(OpCode.CAST, dtypes.int32, (J,)) + 3


def test_bounds_of_loops_and_variables() -> None:
    assert bounds(N) == (1, 4)
    assert bounds(K) == (0, 3)
    assert bounds(add(mul(R, 3), J)) == (0, 14)
    assert bounds(subtract(3, R)) == (-1, 3)


def test_results_are_kept_until_they_are_forgotten():
    before = add.cache_info().hits
    assert add(R, J) is add(R, J)
    assert add.cache_info().hits > before
    forget_sums()
    assert [function.cache_info().currsize for function in (add, mul, bounds, floordiv, mod)] == [0] * 5
    assert bounds(add(R, J)) == (0, 6)
