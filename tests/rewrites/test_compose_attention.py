"""What attention is composed of, against the evaluator on ATTENTION and ATTENTION_GRAD themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd import dtype as dtypes
from picograd.autodiff.gradient import gradient, jvp
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.attention import outputs
from picograd.ir.bodies import bodies_in
from picograd.ir.op import Dim, Op, filled, toposort
from picograd.ir.opcode import ATTENTIONS, OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.spec import verify_graph
from picograd.rewrites.contract import compose_attention

f64 = dtypes.float64
ARGS = [
    AttentionArg(0.5),
    AttentionArg(0.35, causal=True),
    AttentionArg(0.35, causal=True, window=2),
    AttentionArg(1.0, window=3),
    AttentionArg(0.5, causal=True, soft_cap=1.5),
    AttentionArg(0.5, window=2, soft_cap=1.5),
    AttentionArg(0.5, causal=True, dropout=0.4),
]
# Both sides compute narrow floats in float32 or better and round once: a last bit, and sums of at most 14 terms of size 1.
CLOSE = {dtypes.float64: 1e-12, dtypes.float32: 2e-6, dtypes.float16: 2e-3, dtypes.bfloat16: 1.6e-2}


def sources(H: int, G: int, T: Dim, S: Dim, dtype: DType = f64, B: Dim = 2) -> list[Op]:
    """q, k, v, the gradient of the output, for each row logsumexp and delta, for each head a seed and a number."""
    shapes: list[tuple[Dim, ...]] = [(B, H, T, 4), (B, G, S, 4), (B, G, S, 6), (B, H, T, 6), (B, H, T), (B, H, T)]
    shapes += [(B, H)] * 2
    kinds = [dtype] * 4 + [dtype.compute_dtype] * 2 + [dtypes.uint64, dtypes.int64]
    return [Op(OpCode.PARAM, kind, (), (i, s)) for i, (kind, s) in enumerate(zip(kinds, shapes))]


def results(src: Sequence[Op], arg: AttentionArg) -> list[Op]:
    """The results of ATTENTION, and those of ATTENTION_GRAD with its logsumexp."""
    draws = src[6:] if arg.dropout else ()
    found = outputs(Op(OpCode.ATTENTION, src[0].dtype, (*src[:3], *draws), arg))
    made = Op(OpCode.ATTENTION_GRAD, src[0].dtype, (*src[:4], found[1], src[5], *draws), arg)
    return [*found, *outputs(made)]


def values_of(src: Sequence[Op], sizes: dict[str, int] | None = None) -> dict[Op, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    known = sizes or {}
    shapes = [[dim if isinstance(dim, int) else known[dim.arg[0]] for dim in s.shape] for s in src]
    floats = {s: rng.standard_normal(shape).astype(s.dtype.numpy) for s, shape in zip(src, shapes) if s.dtype.is_float}
    draws = {s: rng.integers(2**40, size=shape) for s, shape in zip(src, shapes) if s not in floats}
    return floats | {s: array.astype(s.dtype.numpy) for s, array in draws.items()}


def composed(roots: Sequence[Op]) -> list[Op]:
    made = compose_attention(roots)
    verify_graph(made, after="compose_attention")
    assert ATTENTIONS.isdisjoint(op.code for op in toposort(made))
    assert [(op.dtype, op.shape) for op in made] == [(op.dtype, op.shape) for op in roots]
    return made


@pytest.mark.parametrize("dtype", CLOSE, ids=repr)
@pytest.mark.parametrize("H, G, T, S", [(4, 4, 5, 7), (4, 2, 6, 6), (4, 1, 7, 3), (2, 1, 1, 5), (2, 2, 3, 0)])
@pytest.mark.parametrize("arg", ARGS, ids=str)
def test_the_composition_is_attention(arg: AttentionArg, H: int, G: int, T: int, S: int, dtype: DType) -> None:
    """Seven queries over three keys: with causal, the first four see nothing; over no keys, none sees anything."""
    src = sources(H, G, T, S, dtype)
    roots, values = results(src, arg), values_of(src)
    for made, wanted in zip(evaluate(composed(roots), values), evaluate(roots, values), strict=True):
        found = made.astype(np.float64)
        assert not np.isnan(found).any()
        np.testing.assert_allclose(found, wanted.astype(np.float64), rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.float16, f64], ids=str)
@pytest.mark.parametrize("arg", ARGS[:-1], ids=str)
def test_the_composition_has_the_mask(arg: AttentionArg, dtype: DType) -> None:
    src = sources(4, 2, 3, 5)[:3]
    mask = Op(OpCode.PARAM, dtype, (), (3, (2, 4, 3, 5)))
    is_open = np.random.default_rng(1).random(mask.shape) < 0.5
    is_open[0] = False
    roots = outputs(Op(OpCode.ATTENTION, f64, (*src, mask), arg))
    for array in (is_open, np.where(is_open, 0.5, -np.inf), np.where(is_open, 0.5, -6e4)):
        values = {**values_of(src), mask: array.astype(dtype.numpy)}
        for found, wanted in zip(evaluate(composed(roots), values), evaluate(roots, values), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("arg", ARGS, ids=str)
@pytest.mark.parametrize("T, S", [(5, 7), (7, 3)])
def test_the_composition_is_attention_at_symbolic_lengths(T: int, S: int, arg: AttentionArg) -> None:
    variables = [Op(OpCode.VARIABLE, dtypes.int64, (), (name, 1, 9)) for name in "bts"]
    sizes = {"b": 3, "t": T, "s": S}
    src = sources(4, 2, *variables[1:], B=variables[0])
    roots, values = results(src, arg), values_of(src, sizes)
    expected = evaluate(roots, values, sizes)
    for found, wanted in zip(evaluate(composed(roots), values, sizes), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_row_that_sees_nothing_gives_no_nan_to_derivatives() -> None:
    src = sources(2, 1, 3, 1)
    leaves = [Op(OpCode.LEAF, f64, (s,), i) for i, s in enumerate(src[:3])]
    whole = outputs(Op(OpCode.ATTENTION, f64, tuple(leaves), AttentionArg(0.5, causal=True)))
    for root in (*whole, *compose_attention(whole)):
        grads = gradient(root, filled(1.0, f64, root.shape), leaves)
        (tangent,) = jvp([root], {leaf: filled(1.0, f64, leaf.shape) for leaf in leaves})
        assert tangent is not None
        for array in evaluate([tangent, *grads.values()], values_of(src)):
            assert np.isfinite(array).all()


def test_attentions_in_bodies_are_composed() -> None:
    src = sources(4, 2, 5, 5)
    arg = AttentionArg(0.5, causal=True)
    called = Op(OpCode.CALL, f64, tuple(src), Op(OpCode.SINK, f64, tuple(results(src, arg))))
    x = src[0]  # PARAM 0: the carry
    step = Op(OpCode.SINK, f64, (outputs(Op(OpCode.ATTENTION, f64, (x, x, x), arg))[0],))
    looped = Op(OpCode.LOOP, f64, (x,), (step, 1, 3))
    roots = [*(Op(OpCode.OUTPUT, f64, (called,), i) for i in range(5)), Op(OpCode.OUTPUT, f64, (looped,), 0)]
    made = compose_attention(roots)
    bodies = bodies_in(toposort(made))
    assert len(bodies) == 2 and ATTENTIONS.isdisjoint(op.code for body in bodies for op in toposort(body.src))
    values = values_of(src)
    for found, wanted in zip(evaluate(made, values), evaluate(roots, values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_graphs_without_attention_stay_as_they_are() -> None:
    x = Op(OpCode.PARAM, f64, (), (0, (2, 3)))
    assert compose_attention([x + x]) == [x + x]


def test_results_share_their_scores() -> None:
    """Two products for both results of ATTENTION, five for the gradients, of which the first is there already."""
    src = sources(4, 2, 5, 7)
    roots = results(src, ARGS[2])
    count = [sum(op.code is OpCode.MATMUL for op in toposort(composed(part))) for part in (roots[:2], roots)]
    assert count == [2, 6]


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("arg", ARGS, ids=str)
def test_the_composition_runs(arg: AttentionArg, device: str) -> None:
    """On each device, over a symbolic number of keys: one plan for all of them."""
    src = sources(4, 2, 5, 9, dtypes.float32)
    arrays = list(values_of(src).values())
    n = pg.Variable("n", 1, 9)
    for length in (3, 9):
        seen = [a[:, :, :length] if i in (1, 2) else a for i, a in enumerate(arrays)]
        places = sources(4, 2, 5, length, dtypes.float32)
        expected = evaluate(results(places, arg), dict(zip(places, seen)))
        given = [Tensor(a, device=device).realize() for a in arrays]
        cut = [t[:, :, : n.bind(length)].op if i in (1, 2) else t.op for i, t in enumerate(given)]
        for found, wanted in zip(compose_attention(results(cut, arg)), expected, strict=True):
            np.testing.assert_allclose(Tensor.from_op(found, device).numpy(), wanted, rtol=1e-5, atol=1e-5)
