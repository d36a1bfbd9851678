"""Attention with several heads and transformers: values, weights, gradients and state like PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from tests.helpers import same_value

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:.*nested tensors.*:UserWarning")


def pair(name, *args, **kwargs):
    """Returns a module of either library with one state, drawn anew so that no weight is 0."""
    mine, other = getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_(0, 0.3)
    assert list(mine.state_dict()) == list(other.state_dict())
    mine.load_state_dict(other.state_dict())
    return mine, other


def numbers(rng, *shapes):
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


MASKS = {
    "none": {},
    "bool": {"attn_mask": np.triu(np.ones((4, 5), bool), 2)},
    "float": {"attn_mask": np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)},
    "heads": {"attn_mask": np.linspace(-1, 1, 120, dtype=np.float32).reshape(6, 4, 5)},
    "padding": {"key_padding_mask": np.array([[False] * 3 + [True] * 2, [False] * 5, [True] + [False] * 4])},
    "both": {"attn_mask": np.triu(np.ones((4, 5), bool), 3),
             "key_padding_mask": np.array([[False] * 4 + [True], [False] * 5, [False] * 3 + [True] * 2])},
}  # fmt: skip


@pytest.mark.variants(every=4)
@pytest.mark.req("C7")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_masks(mask, need_weights, rng):
    mine, other = pair("MultiheadAttention", 8, 2)
    arrays = numbers(rng, (4, 3, 8), (5, 3, 8), (5, 3, 8))
    found = []
    for module, tensor in ((mine, Tensor), (other, torch.tensor)):
        inputs = [tensor(array, requires_grad=True) for array in arrays]
        masks = {name: tensor(array) for name, array in MASKS[mask].items()}
        out, weights = module(*inputs, need_weights=need_weights, **masks)
        (out * tensor(arrays[0])).sum().backward()
        found.append((out, weights, [x.grad for x in [*inputs, *module.parameters()]]))
    (out, weights, grads), (expected, reference, theirs) = found
    same_value(out, expected, rtol=1e-4, atol=1e-5)
    assert (weights is None) == (reference is None)
    if weights is not None:
        same_value(weights, reference, rtol=1e-4, atol=1e-6)
    for a, b in zip(grads, theirs, strict=True):
        same_value(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.req("C7")
@pytest.mark.parametrize(
    "settings",
    [{"batch_first": True}, {"bias": False}, {"kdim": 3, "vdim": 5}, {"add_bias_kv": True}, {"add_zero_attn": True},
     {"kdim": 3, "vdim": 5, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True}],
)  # fmt: skip
@pytest.mark.parametrize("average", [True, False])
def test_kinds(settings, average, rng):
    mine, other = pair("MultiheadAttention", 8, 4, **settings)
    shapes = [(4, 2, 8), (5, 2, mine.kdim), (5, 2, mine.vdim)]
    shapes = [(b, a, c) for a, b, c in shapes] if settings.get("batch_first") else shapes
    arrays = numbers(rng, *shapes)
    ours, theirs = mine(*map(Tensor, arrays), average_attn_weights=average), other(
        *map(torch.tensor, arrays), average_attn_weights=average
    )
    same_value(ours, theirs, rtol=1e-4, atol=1e-5)


def test_without_a_batch_and_to_itself(rng):
    mine, other = pair("MultiheadAttention", 8, 2)
    (array,) = numbers(rng, (4, 8))
    x, y = Tensor(array), torch.tensor(array)
    same_value(mine(x, x, x), other(y, y, y), rtol=1e-4, atol=1e-5)
    mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    same_value(mine(x, x, x, is_causal=True)[0], other(y, y, y, attn_mask=mask)[0], rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_no_key_finds_zeros():
    layer = nn.MultiheadAttention(4, 2, bias=False)
    x = Tensor.ones(2, 1, 4)
    for need_weights in (True, False):
        out, _ = layer(x, x, x, attn_mask=Tensor([[True, True], [False, False]]), need_weights=need_weights)
        assert out[0].tolist() == [[0.0] * 4] and np.isfinite(out.detach().numpy()).all()


# ---- transformers ----
LAYERS = [
    {}, {"norm_first": True}, {"activation": "gelu", "batch_first": True}, {"bias": False, "layer_norm_eps": 1e-2},
]  # fmt: skip


@pytest.mark.req("C7")
@pytest.mark.parametrize("settings", LAYERS)
def test_encoder(settings, rng):
    mine, other = pair("TransformerEncoderLayer", 8, 2, 16, 0.0, **settings)
    pairs = ((nn, mine), (torch.nn, other))
    stacks = [library.TransformerEncoder(layer, 2, library.LayerNorm(8)) for library, layer in pairs]
    assert list(stacks[0].state_dict()) == list(stacks[1].state_dict())
    (array,) = numbers(rng, (4, 3, 8))
    ours, theirs = stacks[0](Tensor(array)), stacks[1](torch.tensor(array))
    same_value(ours, theirs, rtol=1e-4, atol=1e-5)
    length = 3 if settings.get("batch_first") else 4
    mask = np.triu(np.ones((length, length), bool), 1)
    ours, theirs = stacks[0](Tensor(array), Tensor(mask)), stacks[1](torch.tensor(array), torch.tensor(mask))
    same_value(ours, theirs, rtol=1e-4, atol=1e-5)
    same_value(stacks[0](Tensor(array), is_causal=True), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.req("C7")
@pytest.mark.parametrize("settings", LAYERS)
def test_encoder_and_decoder(settings, rng):
    mine, other = pair("Transformer", 8, 2, 1, 2, 16, 0.0, **settings)
    source, target = numbers(rng, (4, 3, 8), (4, 3, 8))
    length = 3 if settings.get("batch_first") else 4
    masks = [tensor.generate_square_subsequent_mask(length) for tensor in (nn.Transformer, torch.nn.Transformer)]
    ours = mine(Tensor(source), Tensor(target), tgt_mask=masks[0])
    theirs = other(torch.tensor(source), torch.tensor(target), tgt_mask=masks[1])
    same_value(ours, theirs, rtol=1e-4, atol=1e-5)


def test_dropout_is_part_of_training():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    x = Tensor.rand(3, 2, 8)
    assert layer(x).tolist() != layer(x).tolist()
    layer.eval()
    assert layer(x).tolist() == layer(x).tolist()


ERRORS = [
    (lambda: nn.MultiheadAttention(8, 3), "MultiheadAttention: 3 heads do not divide embed_dim 8."),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation="tanh"),
     'TransformerEncoderLayer: activation must be "relu", "gelu" or a function, got \'tanh\'.'),
    (lambda: nn.MultiheadAttention(8, 2)(*[Tensor.ones(3, 2, 4)] * 3),
     "MultiheadAttention: query (3, 2, 4), key (3, 2, 4), value (3, 2, 4) must have 8, 8 and 8 features."),
    (lambda: nn.MultiheadAttention(8, 2)(*[Tensor.ones(3, 2, 8)] * 3, attn_mask=Tensor.ones(2, 2)),
     "MultiheadAttention: attn_mask (2, 2) must be (3, 3) or (4, 3, 3)."),
    (lambda: nn.Transformer(8, 2, 1, 1, 8)(Tensor.ones(3, 2, 8), Tensor.ones(3, 1, 8)),
     "Transformer: src (3, 2, 8) and tgt (3, 1, 8) differ in batch or features."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), ERRORS)
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__
