"""vmap's rules: one case for each, whichever of the operands have examples, against one example after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.gradient import gradient
from picograd.errors import UnsupportedOp
from picograd.evaluator import evaluate
from picograd.ir import build
from picograd.ir.checks import Site, checked
from picograd.ir.host import host_call
from picograd.ir.op import Op, filled, toposort
from picograd.ir.opcode import ELEMENTWISE, SEVERAL_RESULTS, OpCode
from picograd.ir.shape import AttentionArg, ConvArg
from picograd.rewrites.vmap import RULES, Examples, for_all, spread

f64, i64 = dtypes.float64, dtypes.int64
COUNT = 3
Make = Callable[..., Op]


def op(code: OpCode, arg: Any = None, dtype: Any = f64) -> Make:
    """Returns what makes an Op of its operands."""
    return lambda *src: Op(code, dtype, src, arg)


def output(make: Make, number: int, dtype: Any = f64) -> Make:
    return lambda *src: Op(OpCode.OUTPUT, dtype, (make(*src),), number)


def call(a: Op, b: Op) -> Op:
    x, y = (Op(OpCode.PARAM, f64, (), (i, s.shape)) for i, s in enumerate((a, b)))
    body = Op(OpCode.SINK, f64, (x * y, y + 1.0))
    made = Op(OpCode.CALL, f64, (a, b), body)
    return Op(OpCode.OUTPUT, f64, (made,), 0) + Op(OpCode.OUTPUT, f64, (made,), 1)


def loop(carry: Op, fixed: Op, rows: Op) -> Op:
    """carry = carry * fixed + row; gives the carry before, and a row that never changes."""
    c, w, row = (Op(OpCode.PARAM, f64, (), (i, s)) for i, s in enumerate((carry.shape, fixed.shape, rows.shape[1:])))
    body = Op(OpCode.SINK, f64, (c * w + row, w, c, w))
    made = Op(OpCode.LOOP, f64, (carry, fixed, rows), (body, 2, rows.shape[0]))
    last, row, same = (Op(OpCode.OUTPUT, f64, (made,), i) for i in (0, 2, 3))
    return build.repeat_axes(last, (0,), row.shape) + row + same


def conv(stride: int, dilation: int, apart: int, groups: int) -> Make:
    return op(OpCode.CONV, ConvArg((stride, 1), ((1, 0), (0, 2)), (dilation, 1), (apart, 1), groups))


def with_draws(make: Make) -> Make:
    """Returns it with the last operand but one, the seeds of draws, as uint64."""
    return lambda *src: make(*src[:-2], build.cast(src[-2], dtypes.uint64), src[-1])


INTEGERS = -1  # stands before the shape of an index
ATTENTION = op(OpCode.ATTENTION, AttentionArg(0.5, causal=True))
ATTENTION_GRAD = op(OpCode.ATTENTION_GRAD, AttentionArg(0.5, causal=True))
DROPPING = op(OpCode.ATTENTION, AttentionArg(0.5, causal=True, dropout=0.5))
DROPPING_GRAD = op(OpCode.ATTENTION_GRAD, AttentionArg(0.5, causal=True, dropout=0.5))
DRAWS = (INTEGERS, 2, 4), (INTEGERS, 2, 4)
QKV = (2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3)
OF_GRAD = *QKV, (2, 4, 3, 3), (2, 4, 3), (2, 4, 3)
A, B4, C = (2, 4), (4, 2), (2, 3, 4)
CASES: dict[str, tuple[Make, Sequence[tuple[int, ...]]]] = {
    "ADD": (op(OpCode.ADD), (A, A)),
    "WHERE": (lambda c, a, b: build.where(build.compare(OpCode.CMPLT, c, 0.0), a, b), (A, A, A)),
    "THREEFRY": (lambda n, k: bits(n, k), ((INTEGERS, 3), (INTEGERS, 3))),
    "CHECK": (lambda i: build.cast(checked(i, 4, Site("{}")), f64), ((INTEGERS, 3),)),
    "CONTIGUOUS": (op(OpCode.CONTIGUOUS), (A,)),
    "DETACH": (op(OpCode.DETACH), (A,)),
    "LEAF": (op(OpCode.LEAF, 7), (A,)),
    "COPY": (op(OpCode.COPY, "CPU"), (A,)),
    "RESHAPE": (op(OpCode.RESHAPE, (4, 2)), (A,)),
    "PERMUTE": (op(OpCode.PERMUTE, (2, 0, 1)), (C,)),
    "EXPAND": (op(OpCode.EXPAND, (2, 5)), ((2, 1),)),
    "EXPAND of a scalar": (op(OpCode.EXPAND, (2, 5)), ((),)),
    "PAD": (op(OpCode.PAD, ((1, 0), (0, 2))), (A,)),
    "SHRINK": (op(OpCode.SHRINK, ((1, 2), (0, 3))), (A,)),
    "FLIP": (op(OpCode.FLIP, (1,)), (A,)),
    "REDUCE": (op(OpCode.REDUCE, (OpCode.ADD, (0, 2))), (C,)),
    "SCAN": (op(OpCode.SCAN, (OpCode.ADD, 1)), (A,)),
    "SORT": (lambda x: build.cast(Op(OpCode.SORT, i64, (x,), (1, True)), f64), (A,)),
    "GATHER": (lambda x, i: build.gather(x, i, 1, 0), (C, (INTEGERS, 2, 5))),
    "GATHER in batches": (lambda x, i: build.gather(x, i, 2, 1), ((2, 3, 4, 2), (INTEGERS, 2, 5))),
    "GATHER of batches alone": (lambda x, i: build.gather(x, i, 2, 2), ((2, 3, 4), (INTEGERS, 2, 3, 1))),
    "SCATTER": (lambda b, i, u: build.scatter(b, i, u, OpCode.ADD, 1, 0), ((2, 4, 3), (INTEGERS, 5), (2, 5, 3))),
    "SCATTER in batches": (lambda b, i, u: build.scatter(b, i, u, None, 1, 1), ((2, 4, 3), (INTEGERS, 2, 5), (2, 5, 3))),
    "UPDATE": (op(OpCode.UPDATE, ((0, 1), (1, 3))), (A, (1, 2))),
    "MATMUL": (op(OpCode.MATMUL), (A, B4)),
    "MATMUL in batches": (op(OpCode.MATMUL), ((3, *A), (3, *B4))),
    "CONV": (conv(1, 1, 1, 1), ((2, 4, 5, 6), (6, 4, 2, 3))),
    "CONV in groups": (conv(2, 2, 2, 2), ((2, 4, 5, 6), (6, 2, 2, 3))),
    "ATTENTION": (output(ATTENTION, 0), QKV),
    "ATTENTION logsumexp": (output(ATTENTION, 1), QKV),
    "ATTENTION_GRAD of q": (output(ATTENTION_GRAD, 0), OF_GRAD),
    "ATTENTION_GRAD of k": (output(ATTENTION_GRAD, 1), OF_GRAD),
    "ATTENTION_GRAD of v": (output(ATTENTION_GRAD, 2), OF_GRAD),
    "ATTENTION with dropout": (with_draws(output(DROPPING, 0)), (*QKV, *DRAWS)),
    "ATTENTION_GRAD of q with dropout": (with_draws(output(DROPPING_GRAD, 0)), (*OF_GRAD, *DRAWS)),
    "ATTENTION_GRAD of v with dropout": (with_draws(output(DROPPING_GRAD, 2)), (*OF_GRAD, *DRAWS)),
    "CUSTOM": (lambda a, b: host_call("solve", f64, (a, b)), ((3, 3), (3, 2))),
    "CUSTOM in batches": (lambda a: host_call("qr", f64, (a,)), ((2, 4, 3),)),
    "CUSTOM fft": (lambda a: host_call("fft", f64, (a,), (-1, -2, -1)), ((3, 4, 2),)),
    "CALL": (call, (A, A)),
    "LOOP": (loop, ((2,), (2,), (4, 2))),
}
# Those that no trace makes; and a kernel of a user, which is refused (tests/kernels).
WITHOUT = {OpCode.COLLECTIVE, OpCode.GRADIENT, OpCode.FORMULA, OpCode.KERNEL}


def bits(number: Op, key: Op) -> Op:
    sources = build.cast(number, dtypes.uint64), build.cast(key, dtypes.uint64)
    return build.cast(Op(OpCode.THREEFRY, dtypes.uint64, sources), f64)


def operands_of(shapes: Sequence[tuple[int, ...]]) -> list[tuple[Any, tuple[int, ...]]]:
    """Returns dtype and shape of each operand."""
    return [(i64, s[1:]) if s[:1] == (INTEGERS,) else (f64, s) for s in shapes]


def drawn(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.integers(0, 4, shape) if dtype is i64 else rng.standard_normal(shape)


@pytest.mark.parametrize("name", CASES)
def test_all_examples_at_once_are_each_of_them(name: str) -> None:
    make, shapes = CASES[name]
    operands = operands_of(shapes)
    places = [Op(OpCode.PARAM, dtype, (), (i, shape)) for i, (dtype, shape) in enumerate(operands)]
    root = make(*places)
    rng, examples = np.random.default_rng(0), Examples(COUNT)
    for batched in itertools.product((False, True), repeat=len(places)):
        if not any(batched):
            continue
        arrays = [
            drawn(dtype, (COUNT, *shape) if each else shape, rng) for (dtype, shape), each in zip(operands, batched)
        ]
        stacked = [Op(OpCode.PARAM, p.dtype, (), (i, array.shape)) for i, (p, array) in enumerate(zip(places, arrays))]
        values = {p: s for p, s, each in zip(places, stacked, batched) if each}
        (found,) = for_all([root], examples, values)
        assert found.batched and found.op.shape == (COUNT, *root.shape) and found.op.dtype is root.dtype
        (result,) = evaluate([found.op], dict(zip(stacked, arrays)))
        one_by_one = [
            evaluate([root], {p: array[i] if each else array for p, array, each in zip(places, arrays, batched)})[0]
            for i in range(COUNT)
        ]
        np.testing.assert_allclose(result, np.stack(one_by_one), rtol=1e-12, atol=1e-12)


def test_every_opcode_of_a_graph_has_a_case_or_no_rule() -> None:
    """Elementwise Ops share a rule; sources have none, as they depend on nothing."""
    named = {OpCode[name.split()[0]] for name in CASES}
    assert set(RULES) - ELEMENTWISE <= named
    several = SEVERAL_RESULTS
    assert several - WITHOUT <= named
    sources = {OpCode.BUFFER, OpCode.CONST, OpCode.VARIABLE, OpCode.BIND, OpCode.IOTA}
    inner = {"PARAM", "RANGE", "LOAD", "ALLOC", "VAR", "LANES"}
    every = {code for code in OpCode if code.name not in inner}
    assert every - set(RULES) - (several - WITHOUT) - sources - {OpCode.OUTPUT, OpCode.SINK} == WITHOUT


def test_an_opcode_without_a_rule_is_named() -> None:
    x = Op(OpCode.PARAM, f64, (), (0, (2,)))
    with pytest.raises(UnsupportedOp, match="vmap: COLLECTIVE has no rule for several examples"):
        for_all([Op(OpCode.COLLECTIVE, f64, (x,), ("sum", 0))], Examples(2), {x: filled(0.0, f64, (2, 2))})


@pytest.mark.req("A9")
@pytest.mark.parametrize("name", CASES)
def test_the_number_of_ops_does_not_depend_on_that_of_examples(name: str) -> None:
    make, shapes = CASES[name]
    places = [Op(OpCode.PARAM, dtype, (), (i, shape)) for i, (dtype, shape) in enumerate(operands_of(shapes))]
    counts = []
    for count in (2, 200):
        values = {p: Op(OpCode.PARAM, p.dtype, (), (i, (count, *p.shape))) for i, p in enumerate(places)}
        counts.append(len(toposort([for_all([make(*places)], Examples(count), values)[0].op])))
    assert counts[0] == counts[1]


def test_what_no_example_reaches_stays_as_it_is() -> None:
    x, w = (Op(OpCode.PARAM, f64, (), (i, A)) for i in (0, 1))
    same = build.unary(OpCode.EXP, w)
    found = for_all([x + same, same], Examples(5), {x: Op(OpCode.PARAM, f64, (), (0, (5, *A)))})
    assert found[1].op is same and not found[1].batched


def test_a_product_with_a_shared_operand_is_one_product() -> None:
    """x @ w of all examples reads w once: their rows are rows of one matrix."""
    x, w = Op(OpCode.PARAM, f64, (), (0, A)), Op(OpCode.PARAM, f64, (), (1, B4))
    (found,) = for_all([Op(OpCode.MATMUL, f64, (x, w))], Examples(5), {x: Op(OpCode.PARAM, f64, (), (0, (5, *A)))})
    (product,) = (op for op in toposort([found.op]) if op.code is OpCode.MATMUL)
    assert product.shape == (10, 2) and product.src[1] is w


def test_a_body_that_is_shared_stays_shared() -> None:
    x = Op(OpCode.PARAM, f64, (), (0, A))
    root = call(call(x, x), x)
    (found,) = for_all([root], Examples(5), {x: Op(OpCode.PARAM, f64, (), (0, (5, *A)))})
    assert len({op.arg for op in toposort([found.op]) if op.code is OpCode.CALL}) == 1


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("CHECK", "SORT", "THREEFRY", "DETACH", "COPY")])
def test_gradients_pass_the_rewrite(name: str) -> None:
    """The gradient of the rewritten graph is the rewritten gradient."""
    make, shapes = CASES[name]
    rng, examples = np.random.default_rng(0), Examples(COUNT)
    operands = operands_of(shapes)
    places = [Op(OpCode.PARAM, dtype, (), (i, shape)) for i, (dtype, shape) in enumerate(operands)]
    leaves = [Op(OpCode.LEAF, p.dtype, (p,), i) if p.dtype is f64 else p for i, p in enumerate(places)]
    root = make(*leaves)
    stacked = [Op(OpCode.PARAM, p.dtype, (), (i, (COUNT, *p.shape))) for i, p in enumerate(places)]
    big = [Op(OpCode.LEAF, p.dtype, (p,), 100 + i) if p.dtype is f64 else p for i, p in enumerate(stacked)]
    arrays = [drawn(p.dtype, p.shape, rng) for p in stacked]
    seed = Op(OpCode.PARAM, f64, (), (90, (COUNT, *root.shape)))
    weights = {seed: rng.standard_normal(seed.shape)}
    (whole,) = for_all([root], examples, dict(zip(leaves, big)))
    by_whole = gradient(whole.op, seed, big)
    small_seed = Op(OpCode.PARAM, f64, (), (91, root.shape))
    by_one = gradient(root, small_seed, leaves)
    for leaf, large in zip(leaves, big):
        if leaf.dtype is not f64 or leaf not in by_one:
            continue
        (rewritten,) = for_all([by_one[leaf]], examples, {**dict(zip(leaves, big)), small_seed: seed})
        found = evaluate([by_whole[large], rewritten.each(examples)], {**dict(zip(stacked, arrays)), **weights})
        np.testing.assert_allclose(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_a_constant_repeated_is_a_constant() -> None:
    assert spread(filled(2.0, f64, (3,)), 4) is filled(2.0, f64, (4, 3))
