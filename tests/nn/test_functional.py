"""Functions of networks against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as reference

import picograd.nn.functional as functional
from picograd import Tensor, dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from tests.helpers import same_as_torch, same_value


@pytest.mark.req("C6")
def test_linear(device, rng):
    for shape in ((4,), (3, 4), (2, 3, 4)):
        x, w, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, (5, 4), (5,)))
        same_as_torch(functional.linear, x, w, b, reference=reference.linear)
        same_as_torch(functional.linear, x, w, reference=reference.linear)


@pytest.mark.req("C6")
@pytest.mark.parametrize("shape", [(4,), (3, 4)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape, affine, device, rng):
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 4), shape, shape))
    arrays = (x, w, b) if affine else (x,)
    same_as_torch(
        lambda t, *wb: functional.layer_norm(t, shape, *wb),
        *arrays,
        reference=lambda t, *wb: reference.layer_norm(t, shape, *wb),
    )


@pytest.mark.req("C9")
def test_layer_norm_of_bfloat16_is_computed_in_float32(device, rng):
    x = rng.standard_normal((4, 512)).astype(np.float32) + 100
    ours = functional.layer_norm(Tensor(x, dtypes.bfloat16), (512,))
    theirs = reference.layer_norm(torch.tensor(x).bfloat16(), (512,))
    assert ours.dtype is dtypes.bfloat16
    # one unit in the last place of bfloat16 is 2^-8 of the value
    np.testing.assert_allclose(ours.float().numpy(), theirs.float().numpy(), rtol=2**-7, atol=2**-7)


@pytest.mark.req("C5")
def test_embedding(device, rng):
    weight, rows = rng.standard_normal((5, 3)).astype(np.float32), np.array([[0, 4], [4, 1]])
    same_as_torch(functional.embedding, rows, weight, reference=reference.embedding)


@pytest.mark.req("C7")
def test_dropout(device):
    x = Tensor.ones(10000, requires_grad=True)
    y = functional.dropout(x, 0.3)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {np.float32(0.0), np.float32(1 / 0.7)}
    assert abs((values == 0).mean() - 0.3) < 0.025
    y.sum().backward()
    same_value(x.grad, y.detach())
    assert functional.dropout(x, 0.3, training=False) is x
    assert functional.dropout(x, 1.0).sum().item() == 0.0


def test_activations_as_functions(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for name in ("relu", "gelu", "silu"):
        same_as_torch(getattr(functional, name), x, reference=getattr(reference, name))
    for name in ("softmax", "log_softmax"):
        same_as_torch(
            lambda t: getattr(functional, name)(t, 1),  # noqa: B023
            x,
            reference=lambda t: getattr(reference, name)(t, dim=1),  # noqa: B023
        )


# ---- attention ----
def attention_operands(rng, queries=5, keys=7, heads=(4, 4)):
    shapes = (2, heads[0], queries, 3), (2, heads[1], keys, 3), (2, heads[1], keys, 2)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.variants
@pytest.mark.req("C6")
@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"scale": 0.3}, {"is_causal": True, "scale": 2.0}])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (5, 7), (7, 5)])
def test_attention(settings, queries, keys, device, rng):
    same_as_torch(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **settings),
        *attention_operands(rng, queries, keys),
        reference=lambda q, k, v: reference.scaled_dot_product_attention(q, k, v, **settings),
    )


@pytest.mark.req("C6")
@pytest.mark.parametrize("shape", [(5, 7), (2, 4, 5, 7), (2, 1, 1, 7)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_with_a_mask_and_a_query_no_key_is_open_to(shape, kind, device, rng):
    is_open = rng.random(shape) < 0.6
    is_open[..., 0, :] = False
    numbers = np.where(is_open, rng.standard_normal(shape), -np.inf).astype(np.float32)
    mask = is_open if kind == "bool" else numbers
    same_as_torch(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, Tensor(mask)),
        *attention_operands(rng),
        reference=lambda q, k, v: reference.scaled_dot_product_attention(q, k, v, torch.tensor(mask)),
    )


@pytest.mark.req("C6")
def test_attention_with_grouped_heads(device, rng):
    same_as_torch(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        *attention_operands(rng, heads=(4, 2)),
        reference=lambda q, k, v: reference.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        ),
    )


@pytest.mark.req("C6")
def test_attention_drops_weights_and_keeps_their_mean(device):
    q, k, v = Tensor.zeros(1, 64, 4), Tensor.zeros(1, 64, 4), Tensor.ones(1, 64, 1)
    out = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5).numpy().ravel()
    assert len(np.unique(out)) > 5
    assert out.mean() == pytest.approx(1.0, abs=0.08)  # 4096 coins of deviation 1: 5 standard errors


@pytest.mark.req("C6")
def test_attention_of_tensors_that_do_not_fit_is_refused():
    q, k = Tensor.ones(2, 5, 3), Tensor.ones(2, 7, 4)
    with pytest.raises(ShapeError, match=r"query \(2, 5, 3\), key \(2, 7, 4\), value \(2, 7, 4\) do not fit"):
        functional.scaled_dot_product_attention(q, k, k)
    with pytest.raises(ShapeError, match="must be a multiple"):
        functional.scaled_dot_product_attention(Tensor.ones(3, 5, 4), k, k, enable_gqa=True)
    with pytest.raises(ArgumentError, match="give one of attn_mask and is_causal"):
        functional.scaled_dot_product_attention(k, k, k, Tensor.ones(7, 7), is_causal=True)
    with pytest.raises(DTypeError, match="query must be a float"):
        functional.scaled_dot_product_attention(k.int(), k, k)
