"""Attention over more than a few positions: one kernel forward and one backward, which keep no scores."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.engine.plan import parametrize, template
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import NestKind, Schedule
from picograd.nn import functional as F
from picograd.nn.functions.dot_product_attention import attention_weights
from picograd.road import schedule_graphs
from tests.helpers import same_as_torch

SHAPES = [(20, 8), (3, 20, 8), (2, 4, 20, 8), (2, 1, 3, 20, 8)]


def operands(rng: np.random.Generator, queries: tuple[int, ...], keys: tuple[int, ...], values: int) -> list[Any]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in (queries, keys, (*keys[:-1], values))]


def schedule_of(*tensors: Tensor) -> Schedule:
    roots = [tensor.op for tensor in tensors]
    return schedule_graphs(parametrize(roots, template(roots)))


def kinds_of(*tensors: Tensor) -> list[NestKind]:
    return [item.kernel.phases[0][0].kind for item in schedule_of(*tensors).kernel_items()]


def gradients(length: int, **options: Any) -> list[Tensor]:
    """Returns the gradients of q, k and v (1, 4, length, 16), of which nothing is computed yet."""
    leaves = [Tensor.zeros(1, 4, length, 16).realize().requires_grad_() for _ in range(3)]
    F.scaled_dot_product_attention(*leaves, **options).backward(Tensor.zeros(1, 4, length, 16).realize())
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.variants(every=4)
@pytest.mark.req("C6")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_number_of_batch_axes(shape: tuple[int, ...], is_causal: bool, device: str, rng: np.random.Generator) -> None:
    same_as_torch(
        partial(F.scaled_dot_product_attention, is_causal=is_causal),
        *operands(rng, shape, shape, 5),
        reference=partial(torch.nn.functional.scaled_dot_product_attention, is_causal=is_causal),
    )


@pytest.mark.variants(every=4)
@pytest.mark.req("C6")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(8, 40), (40, 9), (130, 130), (70, 200)])
def test_other_numbers_of_keys_than_of_queries(
    queries: int, keys: int, is_causal: bool, device: str, rng: np.random.Generator
) -> None:
    same_as_torch(
        partial(F.scaled_dot_product_attention, is_causal=is_causal, scale=0.3),
        *operands(rng, (1, 2, queries, 6), (1, 2, keys, 6), 3),
        reference=partial(torch.nn.functional.scaled_dot_product_attention, is_causal=is_causal, scale=0.3),
    )


@pytest.mark.req("C6")
def test_heads_that_share_keys_repeat_nothing(device: str, rng: np.random.Generator) -> None:
    arrays = operands(rng, (2, 6, 20, 4), (2, 2, 20, 4), 4)
    options: dict[str, Any] = {"is_causal": True, "enable_gqa": True}
    same_as_torch(
        partial(F.scaled_dot_product_attention, **options),
        *arrays,
        reference=partial(torch.nn.functional.scaled_dot_product_attention, **options),
    )
    out = F.scaled_dot_product_attention(*map(Tensor, arrays), **options)
    assert kinds_of(out) == [NestKind.ATTENTION]


def with_window_and_cap(q: Any, k: Any, v: Any, window: int, cap: float) -> Any:
    """The formula in PyTorch: a cap on scores, then a mask of what is after a query or before its window."""
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * 0.7
    scores = cap * torch.tanh(scores / cap) if cap else scores
    places, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    hidden = (keys > places) | (keys <= places - window if window else torch.tensor(False))
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num()
    return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


@pytest.mark.variants(every=3)
@pytest.mark.req("H2")
@pytest.mark.parametrize(("window", "cap"), [(1, 0.0), (7, 0.0), (100, 0.0), (0, 2.0), (5, 1.5)])
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (20, 20), (33, 20), (20, 40)])
def test_windows_and_soft_caps_are_their_formula(
    queries: int, keys: int, window: int, cap: float, device: str, rng: np.random.Generator
) -> None:
    options: dict[str, Any] = {"window": window, "soft_cap": cap, "scale": 0.7, "enable_gqa": True, "is_causal": True}
    same_as_torch(
        partial(F.scaled_dot_product_attention, **options),
        *operands(rng, (2, 4, queries, 6), (2, 2, keys, 6), 5),
        reference=partial(with_window_and_cap, window=window, cap=cap),
    )


def test_a_window_keeps_no_scores_and_wrong_ones_are_refused() -> None:
    kinds = kinds_of(*gradients(64, is_causal=True, window=8, soft_cap=20.0))
    assert kinds.count(NestKind.ATTENTION) == 2
    x = Tensor.ones(1, 1, 4, 4)
    for options, said in [
        ({"window": 2}, "window needs is_causal=True, got 2."),
        ({"window": -1, "is_causal": True}, "window must not be negative, got -1."),
        ({"soft_cap": -1.0}, "soft_cap must be a finite number, 0 or more, got -1.0."),
    ]:
        with pytest.raises(pg.errors.ArgumentError) as caught:
            F.scaled_dot_product_attention(x, x, x, **options)
        assert said in caught.value.fact


def test_forward_and_backward_are_a_kernel_each() -> None:
    kinds = kinds_of(*gradients(64, is_causal=True))
    assert kinds.count(NestKind.ATTENTION) == 2 and len(kinds) == 3  # and the sums of grad * out


@pytest.mark.req("E2")
def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    short, long = (schedule_of(*gradients(length)).arena_nbytes for length in (4096, 8192))
    assert long <= 2.1 * short


@pytest.mark.req("C6")
@pytest.mark.parametrize("shape", [(3, 20), (2, 1, 1, 20), (2, 6, 3, 20), (6, 1, 1)], ids=str)
def test_few_queries_with_a_mask_that_has_a_gradient(
    shape: tuple[int, ...], device: str, rng: np.random.Generator
) -> None:
    mask = np.asarray(rng.standard_normal(shape), np.float32)
    mask[rng.random(shape) < 0.2] = -np.inf
    arrays = [*operands(rng, (2, 6, 3, 4), (2, 2, 20, 4), 5), mask]
    same_as_torch(
        partial(F.scaled_dot_product_attention, enable_gqa=True),
        *arrays,
        reference=partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True),
    )


def test_gradients_of_few_queries_with_a_mask_share_its_scores() -> None:
    """Where all is composed, on a CPU: two products forward, four backward."""
    leaves = [Tensor.zeros(2, 4, length, 16).realize().requires_grad_() for length in (5, 40, 40)]
    out = F.scaled_dot_product_attention(*leaves, Tensor.zeros(2, 1, 1, 40).realize() == 1)
    grads = pg.autograd.grad(out, leaves, Tensor.ones(2, 4, 5, 16).realize())
    assert kinds_of(out, *grads).count(NestKind.MATMUL) == 6


def test_what_the_kernel_does_not_know_is_composed() -> None:
    """A mask of many queries, or with dropout, and causal queries behind all keys: their scores are values as others."""
    q, k = Tensor.zeros(1, 2, 20, 4), Tensor.zeros(1, 2, 12, 4)
    composed = [
        F.scaled_dot_product_attention(q, k, k, Tensor.ones(20, 12)),
        F.scaled_dot_product_attention(q[:, :, :1], k, k, Tensor.ones(1, 12), dropout_p=0.5),
        F.scaled_dot_product_attention(q, k, k, is_causal=True),
        F.scaled_dot_product_attention(q[:, :, :1], k, k),
        F.scaled_dot_product_attention(q, k[:1].expand(1, 2, 12, 4), k.double().float().half().float()),
    ]
    graphs = [toposort(written_out([x.op])) for x in composed]
    assert [OpCode.ATTENTION in {op.code for op in graph} for graph in graphs] == [False] * 3 + [True] * 2


# ---- dropout ----
def unfused(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool) -> Tensor:
    """Returns dropout of the weights, which are in memory."""
    share = query.shape[1] // key.shape[1]
    key, value = (x[:, :, : query.shape[2]] if is_causal else x for x in (key, value))
    weights = attention_weights(query, key.repeat_interleave(share, 1), None, is_causal)
    return F.dropout(weights, dropout_p) @ value.repeat_interleave(share, 1)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (20, 20), (70, 130)])
def test_it_drops_the_weights_that_dropout_would(
    queries: int, keys: int, is_causal: bool, device: str, rng: np.random.Generator
) -> None:
    """Forward and backward, of as many queries as a kernel takes and of fewer."""
    arrays = operands(rng, (2, 4, queries, 6), (2, 2, keys, 6), 6)
    found = []
    for function in (partial(F.scaled_dot_product_attention, enable_gqa=True), unfused):
        pg.manual_seed(5)
        leaves = [Tensor(array).requires_grad_() for array in arrays]
        out = function(*leaves, dropout_p=0.3, is_causal=is_causal)
        found.append([x.detach().numpy() for x in (out, *pg.autograd.grad((out * out).sum(), leaves))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_dropped_weights_are_one_kernel_forward_and_one_backward() -> None:
    leaves = [Tensor.zeros(1, 4, 200, 16).realize().requires_grad_() for _ in range(3)]
    out = F.scaled_dot_product_attention(*leaves, dropout_p=0.2, is_causal=True)
    grads = pg.autograd.grad(out, leaves, Tensor.ones(1, 4, 200, 16).realize())
    schedule = schedule_of(out, *grads)
    kinds = [item.kernel.phases[0][0].kind for item in schedule.kernel_items()]
    assert kinds.count(NestKind.ATTENTION) == 2 and NestKind.MATMUL not in kinds
    assert schedule.arena_nbytes < 4 * 200 * 200  # not as much as a byte for each weight of every head


def test_each_call_of_a_jitted_step_drops_other_weights() -> None:
    q = Tensor.ones(1, 2, 20, 8)
    step = pg.jit(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    pg.manual_seed(3)
    found = [step(q).numpy() for _ in range(4)]
    pg.manual_seed(3)
    for one in found:
        np.testing.assert_allclose(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).numpy(), one, rtol=1e-5)
    assert not any(np.array_equal(a, b) for a, b in zip(found, found[1:]))


def test_examples_drop_other_weights_or_the_same() -> None:
    x = Tensor.ones(3, 2, 20, 8)

    def attend(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    different = pg.vmap(attend, randomness="different")(x).numpy()
    same = pg.vmap(attend, randomness="same")(x).numpy()
    assert (same == same[0]).all() and not (different == different[0]).all()
    with pytest.raises(pg.ArgumentError, match="draws random numbers"):
        pg.vmap(attend)(x)


def test_all_weights_may_be_dropped() -> None:
    x = Tensor.ones(1, 1, 20, 8)
    assert not F.scaled_dot_product_attention(x, x, x, dropout_p=1.0).numpy().any()
    almost = F.scaled_dot_product_attention(x, x, x, dropout_p=1.0 - 2.0**-40)  # 1 as a float32
    assert not almost.numpy().any()


@pytest.mark.parametrize("dtype", [pg.float16, pg.bfloat16], ids=str)
def test_narrow_floats_are_computed_in_float32_and_rounded_once(
    dtype: pg.DType, device: str, rng: np.random.Generator
) -> None:
    arrays = operands(rng, (1, 2, 40, 8), (1, 2, 40, 8), 8)
    narrow = [Tensor(array).to(dtype) for array in arrays]
    found = F.scaled_dot_product_attention(*narrow, is_causal=True)
    expected = F.scaled_dot_product_attention(*(x.float() for x in narrow), is_causal=True)
    assert found.dtype is dtype
    step = {pg.float16: 2.0**-11, pg.bfloat16: 2.0**-8}[dtype]
    np.testing.assert_allclose(found.float().numpy(), expected.numpy(), rtol=2 * step, atol=step * 2**-6)


def test_second_derivatives_and_tangents_are_those_of_the_composition(rng: np.random.Generator) -> None:
    """The kernels are for the first order; what is above it is made of products."""
    q, k, v = (Tensor(array) for array in operands(rng, (1, 1, 9, 3), (1, 1, 9, 3), 2))
    tangent = Tensor(rng.standard_normal((1, 1, 9, 3)).astype(np.float32))

    def fused(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def plain(q: Tensor) -> Tensor:
        scores = (q @ k.mT / 3**0.5).masked_fill(Tensor.ones(9, 9).triu(1).bool(), -np.inf)
        return scores.softmax(-1) @ v

    for make in (
        lambda f: pg.func.jvp(f, (q,), (tangent,))[1],
        lambda f: pg.func.grad(lambda x: (pg.func.grad(lambda y: (f(y) ** 2).sum())(x) ** 2).sum())(q),
    ):
        np.testing.assert_allclose(make(fused).numpy(), make(plain).numpy(), rtol=1e-4, atol=1e-5)
