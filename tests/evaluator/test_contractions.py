"""MATMUL, CONV, ATTENTION and its gradient against NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.evaluator.graph import visible
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg, ConvArg
from picograd.tensor.generator import threefry

# Both sides compute in float64; what is left is the order of at most 10**3 additions.
TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def params(*arrays: np.ndarray[Any, Any]) -> tuple[Op, ...]:
    return tuple(
        Op(OpCode.PARAM, dtypes.from_numpy(a.dtype), (), (i, a.shape)) for i, a in enumerate(arrays)
    )  # fmt: skip


def run(code: OpCode, *arrays: np.ndarray[Any, Any], arg: Any = None, dtype: DType | None = None) -> Any:
    src = params(*arrays)
    return evaluate([Op(code, dtype or src[0].dtype, src, arg)], dict(zip(src, arrays)))[0]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


# ---- matmul ----
def test_matmul_of_batches(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(2, 3, 5, 6))
    np.testing.assert_allclose(run(OpCode.MATMUL, a, b), a @ b, **TIGHT)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=repr)
def test_matmul_is_exact_and_rounded_once(dtype: DType, rng: np.random.Generator) -> None:
    a, b = (rng.normal(size=shape).astype(dtype.numpy) for shape in ((7, 300), (300, 5)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(run(OpCode.MATMUL, a, b), exact.astype(dtype.numpy))


def test_matmul_of_16_bits_may_widen(rng: np.random.Generator) -> None:
    a, b = (rng.normal(size=(4, 4)).astype(dtypes.bfloat16.numpy) for _ in range(2))
    wide = run(OpCode.MATMUL, a, b, dtype=dtypes.float32)
    np.testing.assert_array_equal(wide, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32))


def test_matmul_of_integers_wraps() -> None:
    a = np.full((1, 3), 100, np.int8)
    assert run(OpCode.MATMUL, a, a.T).tolist() == [[dtypes.int8.scalar(30_000)]]
    large = np.full((2, 2), 2**62, np.int64)
    assert run(OpCode.MATMUL, large, np.full((2, 2), 4, np.int64)).tolist() == [[0, 0], [0, 0]]


def test_matmul_over_nothing_is_zero() -> None:
    assert run(OpCode.MATMUL, np.zeros((2, 0)), np.zeros((0, 3))).tolist() == [[0.0] * 3] * 2


# ---- convolution ----
CONVS = [
    ("one axis", (2, 3, 9), (4, 3, 3), ConvArg((1,), ((0, 0),), (1,), (1,))),
    ("strides", (2, 3, 9, 8), (4, 3, 3, 2), ConvArg((2, 3), ((1, 1), (0, 0)), (1, 1), (1, 1))),
    ("dilation", (2, 3, 9, 8), (4, 3, 3, 2), ConvArg((1, 1), ((2, 2), (1, 1)), (2, 3), (1, 1))),
    ("groups", (2, 6, 5, 5), (4, 3, 3, 3), ConvArg((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 2)),
    ("one channel a group", (2, 6, 5, 5), (12, 1, 3, 3), ConvArg((1, 2), ((0, 0), (0, 0)), (1, 1), (1, 1), 6)),
    ("three axes", (1, 2, 5, 6, 4), (3, 2, 2, 3, 2), ConvArg((1, 2, 1), ((1, 1),) * 3, (2, 1, 1), (1, 1, 1))),
]


@pytest.mark.parametrize("case", CONVS, ids=[c[0] for c in CONVS])
def test_conv_is_torchs(case: tuple[str, Any, Any, ConvArg], rng: np.random.Generator) -> None:
    _, x_shape, w_shape, arg = case
    x, w = rng.normal(size=x_shape), rng.normal(size=w_shape)
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[len(x_shape) - 3]
    before = tuple(pair[0] for pair in arg.padding)
    expected = function(torch.tensor(x), torch.tensor(w), None, arg.stride, before, arg.dilation, arg.groups)
    np.testing.assert_allclose(run(OpCode.CONV, x, w, arg=arg), expected.numpy(), **TIGHT)


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 2), (0, 3)), ((2, 0), (1, 1))])
def test_padding_may_differ_on_both_sides(padding: Any, rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 3, 6, 5)), rng.normal(size=(4, 3, 3, 2))
    padded = torch.nn.functional.pad(torch.tensor(x), (*padding[1], *padding[0]))
    expected = torch.conv2d(padded, torch.tensor(w))
    result = run(OpCode.CONV, x, w, arg=ConvArg((1, 1), padding, (1, 1), (1, 1)))
    np.testing.assert_allclose(result, expected.numpy(), **TIGHT)


@pytest.mark.parametrize("stride, padding, groups", [(2, 0, 1), (3, 1, 1), (2, 2, 2)])
def test_input_dilation_is_a_transposed_convolution(
    stride: int, padding: int, groups: int, rng: np.random.Generator
) -> None:
    x, w = rng.normal(size=(2, 4, 5, 6)), rng.normal(size=(4, 3, 3, 4))  # w: (C, O / groups, *kernel), as in torch
    expected = torch.conv_transpose2d(torch.tensor(x), torch.tensor(w), None, stride, padding, 0, groups)
    turned = w.reshape(groups, 4 // groups, 3, 3, 4).swapaxes(1, 2)[..., ::-1, ::-1]
    turned = turned.reshape(3 * groups, 4 // groups, 3, 4)
    edges = tuple((length - 1 - padding,) * 2 for length in (3, 4))
    result = run(
        OpCode.CONV, x, np.ascontiguousarray(turned), arg=ConvArg((1, 1), edges, (1, 1), (stride, stride), groups)
    )
    np.testing.assert_allclose(result, expected.numpy(), **TIGHT)


def test_conv_of_integers_wraps() -> None:
    x, w = np.full((1, 1, 3), 100, np.int8), np.full((1, 1, 3), 1, np.int8)
    assert run(OpCode.CONV, x, w, arg=ConvArg((1,), ((0, 0),), (1,), (1,))).tolist() == [[[dtypes.int8.scalar(300)]]]


def test_conv_in_16_bits_is_rounded_once(rng: np.random.Generator) -> None:
    x, w = (rng.normal(size=shape).astype(np.float16) for shape in ((2, 3, 9), (4, 3, 3)))
    arg = ConvArg((1,), ((1, 1),), (1,), (1,))
    exact = run(OpCode.CONV, x.astype(np.float64), w.astype(np.float64), arg=arg)
    np.testing.assert_array_equal(run(OpCode.CONV, x, w, arg=arg), exact.astype(np.float16))


# ---- attention ----
def attention(q: Any, k: Any, v: Any, arg: AttentionArg, *masks: Any) -> tuple[Any, Any]:
    src = params(q, k, v, *masks)
    op = Op(OpCode.ATTENTION, src[0].dtype, src, arg)
    statistic = dtypes.float64 if src[0].dtype is dtypes.float64 else dtypes.float32
    outputs = [Op(OpCode.OUTPUT, src[0].dtype, (op,), 0), Op(OpCode.OUTPUT, statistic, (op,), 1)]
    out, logsumexp = evaluate(outputs, dict(zip(src, (q, k, v, *masks))))
    return out, logsumexp


def scores_of(q: Any, k: Any, arg: AttentionArg) -> torch.Tensor:
    q, k = (torch.as_tensor(x) for x in (q, k))
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * arg.scale
    if arg.soft_cap:
        scores = arg.soft_cap * torch.tanh(scores / arg.soft_cap)
    seen = torch.tensor(visible(q.shape[2], k.shape[2], arg.causal, arg.window))
    return scores.masked_fill(~seen, -torch.inf)


ATTENTIONS = [
    AttentionArg(0.5),
    AttentionArg(0.35, causal=True),
    AttentionArg(0.35, causal=True, window=2),
    AttentionArg(1.0, window=3),
    AttentionArg(0.5, causal=True, soft_cap=1.5),
]


@pytest.mark.parametrize("heads, groups", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("arg", ATTENTIONS, ids=str)
def test_attention_and_its_logsumexp(arg: AttentionArg, heads: int, groups: int, rng: np.random.Generator) -> None:
    q, k, v = (rng.normal(size=s) for s in ((2, heads, 5, 8), (2, groups, 7, 8), (2, groups, 7, 6)))
    out, logsumexp = attention(q, k, v, arg)
    scores = scores_of(q, k, arg)
    expected = torch.softmax(scores, -1) @ torch.tensor(v).repeat_interleave(heads // groups, 1)
    np.testing.assert_allclose(out, expected.numpy(), **TIGHT)
    np.testing.assert_allclose(logsumexp, torch.logsumexp(scores, -1).numpy(), **TIGHT)


def test_attention_is_torchs(rng: np.random.Generator) -> None:
    q, k, v = (rng.normal(size=(2, 3, 6, 8)) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(
        torch.tensor(q), torch.tensor(k), torch.tensor(v), is_causal=True
    )
    np.testing.assert_allclose(attention(q, k, v, AttentionArg(8**-0.5, True))[0], expected.numpy(), **TIGHT)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_masked_attention_is_torchs(kind: str, rng: np.random.Generator) -> None:
    """A query that no key is open to has zeros."""
    q, k, v = rng.normal(size=(2, 3, 4, 8)), rng.normal(size=(2, 3, 6, 8)), rng.normal(size=(2, 3, 6, 5))
    is_open = rng.random((2, 3, 4, 6)) < 0.5
    is_open[1, 2, 1] = False
    mask = is_open if kind == "bool" else np.where(is_open, rng.normal(size=is_open.shape), -np.inf)
    expected = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v, mask)))
    out, logsumexp = attention(q, k, v, AttentionArg(8**-0.5), mask)
    np.testing.assert_allclose(out, expected.numpy(), **TIGHT)
    assert logsumexp[1, 2, 1] == -np.inf and np.isfinite(logsumexp[is_open.any(-1)]).all()


def test_a_position_sees_its_window_and_nothing_after_itself() -> None:
    assert visible(3, 3, True, 0).tolist() == np.tri(3, dtype=bool).tolist()
    assert visible(3, 3, True, 1).tolist() == np.eye(3, dtype=bool).tolist()
    assert visible(2, 4, True, 2).tolist() == [[False, True, True, False], [False, False, True, True]]
    assert visible(3, 3, False, 2).tolist() == [[True, True, True], [True, True, True], [False, True, True]]


def test_a_row_that_sees_nothing_is_zero(rng: np.random.Generator) -> None:
    """Three queries over one key: the first two stand before it."""
    q, k, v = rng.normal(size=(1, 1, 3, 4)), rng.normal(size=(1, 1, 1, 4)), rng.normal(size=(1, 1, 1, 4))
    out, logsumexp = attention(q, k, v, AttentionArg(1.0, causal=True))
    assert out[0, 0, :2].tolist() == [[0.0] * 4] * 2
    assert logsumexp[0, 0, :2].tolist() == [-np.inf] * 2 and np.isfinite(logsumexp[0, 0, 2])


def attention_grad(q: Any, k: Any, v: Any, grad: Any, towards: Any, arg: AttentionArg) -> list[Any]:
    """Returns the gradients of q, k and v from those of the output, `grad`, and of the logsumexp, `towards`."""
    out, logsumexp = attention(q, k, v, arg)
    arrays = (q, k, v, grad, logsumexp, (grad * out).sum(-1) - towards)
    src = params(*arrays)
    op = Op(OpCode.ATTENTION_GRAD, src[0].dtype, src, arg)
    return evaluate([Op(OpCode.OUTPUT, src[0].dtype, (op,), i) for i in range(3)], dict(zip(src, arrays)))


def torchs_gradients(q: Any, k: Any, v: Any, grad: Any, towards: Any, arg: AttentionArg) -> list[Any]:
    """Returns the gradients by torch; a row that sees nothing is 0, and nothing comes from its logsumexp."""
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    heads = q.shape[1] // k.shape[1]
    scores = leaves[0] @ leaves[1].repeat_interleave(heads, 1).mT * arg.scale
    if arg.soft_cap:
        scores = arg.soft_cap * torch.tanh(scores / arg.soft_cap)
    seen = torch.tensor(visible(q.shape[2], k.shape[2], arg.causal, arg.window))
    some = seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen, -torch.inf).masked_fill(~some, 0.0)
    out = torch.softmax(scores, -1) * some @ leaves[2].repeat_interleave(heads, 1)
    logsumexp = torch.logsumexp(scores, -1) * some[:, 0]
    total = (out * torch.tensor(grad)).sum() + (logsumexp * torch.tensor(towards)).sum()
    return [x.numpy() for x in torch.autograd.grad(total, leaves)]


@pytest.mark.parametrize("queries, keys", [(5, 7), (6, 6), (7, 3)])
@pytest.mark.parametrize("heads, groups", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("arg", ATTENTIONS, ids=str)
def test_the_gradients_of_attention_are_torchs(
    arg: AttentionArg, heads: int, groups: int, queries: int, keys: int, rng: np.random.Generator
) -> None:
    """Seven queries over three keys: with causal, the first four see nothing."""
    shapes = (2, heads, queries, 8), (2, groups, keys, 8), (2, groups, keys, 6), (2, heads, queries, 6), (2, heads, queries)
    arrays = [rng.normal(size=shape) for shape in shapes]
    for found, expected in zip(attention_grad(*arrays, arg), torchs_gradients(*arrays, arg), strict=True):
        np.testing.assert_allclose(found, expected, **TIGHT)


@pytest.mark.parametrize("probability", [0.3, 0.999, 1e-9])
def test_dropout_draws_each_weight_by_its_place(probability: float, rng: np.random.Generator) -> None:
    """The mask is that of threefry, worked out apart; the gradients are torch's of weights times that mask."""
    arg, T, S = AttentionArg(0.35, causal=True, dropout=probability), 5, 7
    q, k, v, grad = (rng.normal(size=shape) for shape in ((2, 4, T, 8), (2, 2, S, 8), (2, 2, S, 6), (2, 4, T, 6)))
    seeds = rng.integers(2**64, size=(2, 4), dtype=np.uint64)
    numbers = rng.permutation(8).reshape(2, 4)
    kept = np.array([
        int(threefry((int(n) * T + t) * S + s, int(seed))) / 2**64 >= np.float32(probability)
        for seed, n in zip(seeds.ravel(), numbers.ravel()) for t in range(T) for s in range(S)
    ]).reshape(2, 4, T, S)  # fmt: skip
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    weights = torch.softmax(scores_of(leaves[0], leaves[1], arg), -1) * torch.tensor(kept / (1 - probability))
    expected = weights @ leaves[2].repeat_interleave(2, 1)
    wanted = torch.autograd.grad((expected * torch.tensor(grad)).sum(), leaves)
    out, logsumexp = attention(q, k, v, arg, seeds, numbers)
    np.testing.assert_allclose(out, expected.detach().numpy(), **TIGHT)
    arrays = (q, k, v, grad, logsumexp, (grad * out).sum(-1), seeds, numbers)
    src = params(*arrays)
    op = Op(OpCode.ATTENTION_GRAD, src[0].dtype, src, arg)
    found = evaluate([Op(OpCode.OUTPUT, src[0].dtype, (op,), i) for i in range(3)], dict(zip(src, arrays)))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), **TIGHT)


def test_gradients_of_no_keys_are_zero_or_nothing(rng: np.random.Generator) -> None:
    q, k, v = rng.normal(size=(1, 4, 3, 2)), np.zeros((1, 2, 0, 2)), np.zeros((1, 2, 0, 5))
    found = attention_grad(q, k, v, rng.normal(size=(1, 4, 3, 5)), np.ones((1, 4, 3)), AttentionArg(1.0))
    assert [x.shape for x in found] == [q.shape, k.shape, v.shape] and not found[0].any()


def test_large_scores_do_not_overflow() -> None:
    q = k = np.full((1, 1, 2, 1), 1000.0, np.float32)
    out, logsumexp = attention(q, k, q, AttentionArg(1.0))
    assert out.tolist() == q.tolist() and np.isfinite(logsumexp).all()
    assert out.dtype == np.float32 and logsumexp.dtype == np.float32
