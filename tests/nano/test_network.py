"""The network of nano against the same one in PyTorch, its parts against formulas in NumPy, its cache against itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as TF

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.variable import Variable
from picograd_programs.models.rotary import Rotation, angles, turned
from picograd_programs.nano.network import BASE, Nano, NanoConfig, dialled, mean_loss, norm, optimizers_of
from tests.models.torch_nano import Muon, TorchNano
from tests.models.twins import with_weights_of

V, B, T, STEPS = 29, 3, 12, 10
CONFIG = NanoConfig(V, 16, layers=2, heads=2, shared_heads=1)


# ---- the same network in PyTorch ----
@pytest.mark.variants(every=2)
@pytest.mark.req("H2", "H3")
def test_logits_loss_gradients_and_ten_steps_are_pytorchs(device: str, rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    theirs = TorchNano(CONFIG)
    ours = with_weights_of(Nano(CONFIG), theirs)
    optimizers = optimizers_of(ours, rate=0.1)
    scale = 0.1 * (CONFIG.width / 768) ** -0.5
    tables = [
        {"params": [theirs.embedding.weight], "lr": 0.2 * scale},
        {"params": [theirs.head.weight], "lr": 0.004 * scale},
    ]
    adam = torch.optim.AdamW(tables, betas=(0.8, 0.95), eps=1e-10, weight_decay=0.0)
    muon = Muon([{"params": list(theirs.blocks.parameters()), "lr": 0.002, "momentum": 0.95}])

    @pg.jit
    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = mean_loss(ours, tokens, targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    for number in range(STEPS if device == "CPU" else 2):  # on the evaluator a step takes half a second
        tokens, targets = rng.integers(0, V, (2, B, T))
        targets[0, :5] = -1
        expected_logits = theirs(torch.tensor(tokens))
        expected = TF.cross_entropy(expected_logits.flatten(0, 1), torch.tensor(targets).flatten(), ignore_index=-1)
        theirs.zero_grad()
        expected.backward()
        if number == 0:
            np.testing.assert_allclose(ours(Tensor(tokens)).detach().numpy(), expected_logits.detach(), atol=1e-4)
            mean_loss(ours, Tensor(tokens), Tensor(targets)).backward()
            found = {name: p.grad.numpy() for name, p in ours.named_parameters() if p.grad is not None}
            for name, parameter in theirs.named_parameters():
                np.testing.assert_allclose(found[name], parameter.grad, rtol=1e-3, atol=2e-6, err_msg=name)
        muon.step()
        adam.step()
        assert step(Tensor(tokens), Tensor(targets)).item() == pytest.approx(expected.item(), rel=5e-4), number


# ---- parts ----
@pytest.mark.req("H2")
def test_products_of_rotated_features_see_distances_alone(rng: np.random.Generator) -> None:
    q, k = rng.standard_normal((2, 8)).astype(np.float32)
    cos, sin = angles(Rotation(8, BASE), 20)
    for halves in (True, False):
        rows = [turned(Tensor(np.tile(x, (1, 1, 20, 1))), cos, sin, halves).numpy()[0, 0] for x in (q, k)]
        products = rows[0] @ rows[1].T
        for distance in range(5):
            np.testing.assert_allclose(np.diagonal(products, distance), products[0, distance], rtol=2e-5, atol=1e-5)


@pytest.mark.req("H2")
def test_the_norm_and_the_cap_are_their_formulas(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 7)).astype(np.float32) * 5
    np.testing.assert_allclose(norm(Tensor(x)).numpy(), x / np.sqrt((x * x).mean(-1, keepdims=True)), rtol=1e-5)
    model = Nano(CONFIG)
    hidden = rng.standard_normal((4, CONFIG.width)).astype(np.float32) * 9
    weight = rng.standard_normal((V, CONFIG.width)).astype(np.float32)
    model.head.load_state_dict({"weight": Tensor(weight)})
    plain, found = hidden @ weight.T, model.logits(Tensor(hidden)).detach().numpy()
    np.testing.assert_allclose(found, 15 * np.tanh(plain / 15), rtol=1e-4, atol=1e-4)
    assert np.abs(plain).max() > 15 >= np.abs(found).max()


def test_at_first_every_token_is_equally_likely() -> None:
    model = Nano(dialled(1, V, 8))
    tokens = Tensor([[1, 2, 3]])
    assert mean_loss(model, tokens, tokens).item() == pytest.approx(np.log(V))


# ---- the cache ----
@pytest.mark.req("H3", "D9")
def test_reading_on_beside_a_cache_is_reading_all(rng: np.random.Generator) -> None:
    model = with_weights_of(Nano(CONFIG), TorchNano(CONFIG))
    tokens = rng.integers(0, V, (2, 16))
    expected = model.requires_grad_(False).hidden(Tensor(tokens)).numpy()
    cache, place = model.cache(2), Variable("position", 0, 15)
    found = [model.read_on(Tensor(tokens[:, :5]), cache).numpy(), model.read_on(Tensor(tokens[:, 5:9]), cache, 5).numpy()]
    one = pg.jit(lambda token, position: model.read_on(token, cache, position))
    found += [one(Tensor(tokens[:, i : i + 1]), place.bind(i)).numpy() for i in range(9, 16)]
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=2e-5)


# ---- what is refused ----
def test_wrong_shapes_are_named() -> None:
    model = Nano(CONFIG)
    with pytest.raises(ShapeError, match=r"Nano: tokens must be \(B, T\) with T from 1 to 16, got \(1, 17\)."):
        model(Tensor.zeros(1, 17, dtype=pg.int32))
    with pytest.raises(ShapeError, match=r"end by its 16 positions, got \(1, 9\) at 8"):
        model.read_on(Tensor.zeros(1, 9, dtype=pg.int32), model.cache(), 8)
    for wrong, said in [
        (lambda: dialled(0, V, 8), "--depth: got 0, it must be at least 1."),
        (lambda: NanoConfig(V, 8, 1, 3, 2), "3 heads must be a multiple of 2 shared ones"),
        (lambda: NanoConfig(0, 8, 1, 1, 1), "vocabulary must be at least 1, got 0"),
        (lambda: model.cache(1, 17), "length must be from 1 to 16, got 17"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            wrong()
        assert said in caught.value.fact
