"""GPT against the same model in PyTorch, its start weights, and drawn text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, int64
from picograd.errors import ArgumentError, ShapeError
from picograd.look import watch
from picograd.nn.utils import clip_grad_norm_
from picograd_programs.models.gpt import GPT, GPTConfig, generate, optimizer_of
from tests.helpers import same_value
from tests.models.twins import TorchGPT, torch_optimizer, with_weights_of

SMALL = GPTConfig(vocabulary=11, block=8, layers=2, heads=2, width=16)


def batch(rng: np.random.Generator, config: GPTConfig = SMALL, num: int = 3) -> tuple[np.ndarray, np.ndarray]:
    text = rng.integers(0, config.vocabulary, (num, config.block + 1))
    return text[:, :-1].copy(), text[:, 1:].copy()


@pytest.mark.variants(every=2)
@pytest.mark.req("D7")
@pytest.mark.parametrize("bias", [True, False])
def test_logits_loss_and_gradients_are_pytorchs(bias, device, rng):
    config = GPTConfig(**{**vars(SMALL), "bias": bias})
    theirs = TorchGPT(config)
    ours = with_weights_of(GPT(config), theirs)
    x, y = batch(rng, config)
    y[0, :3] = -1  # does not count
    logits, loss = ours(Tensor(x), Tensor(y))
    expected_logits, expected = theirs(torch.tensor(x), torch.tensor(y))
    same_value(logits, expected_logits, 1e-4, 1e-5)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    expected.backward()
    for name, parameter in theirs.named_parameters():
        # Sums over 24 positions and 2 layers of float32 in another order.
        same_value(dict(ours.named_parameters())[name].grad, parameter.grad, 1e-3, 1e-5)


NANOGPT_CPU = GPTConfig(vocabulary=65, block=64, layers=4, heads=4, width=128, bias=False)


@pytest.mark.variants(every=2)
@pytest.mark.req("D7")
@pytest.mark.parametrize(("config", "num", "steps"), [(SMALL, 3, 25), (NANOGPT_CPU, 12, 3)], ids=["small", "nanogpt"])
def test_training_under_jit_follows_pytorch(config, num, steps, rng):
    theirs = TorchGPT(config)
    ours = GPT(config)
    theirs.load_state_dict({name: torch.tensor(value.numpy()) for name, value in ours.state_dict().items()})
    optimizer, reference = optimizer_of(ours, 1e-3), torch_optimizer(theirs, 1e-3)

    @pg.jit
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        _, loss = ours(x, y)
        loss.backward()
        norm = clip_grad_norm_(ours.parameters(), 1.0)
        optimizer.step()
        return loss, norm

    for number in range(steps):
        optimizer.lr = reference.param_groups[0]["lr"] = reference.param_groups[1]["lr"] = 1e-3 * (number + 1) / 25
        x, y = batch(rng, config, num)
        loss, norm = step(Tensor(x), Tensor(y))
        reference.zero_grad()
        _, expected = theirs(torch.tensor(x), torch.tensor(y))
        expected.backward()
        expected_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        reference.step()
        # Adam divides by the root of tiny squares, so rounding of some 1e-7 grows with the steps.
        assert loss.item() == pytest.approx(expected.item(), rel=2e-5), number
        assert norm.item() == pytest.approx(expected_norm.item(), rel=1e-3), number


@pytest.mark.req("D7")
def test_start_weights_are_gpt2s():
    model = GPT(GPTConfig(vocabulary=50, block=32, layers=3, heads=4, width=64))
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if values.ndim == 2:
            std = 0.02 / math.sqrt(6) if name.endswith("c_proj.weight") else 0.02
            assert values.std() == pytest.approx(std, rel=0.05), name  # 2048 numbers or more: 1.6 % a standard error
        else:
            assert (values == (1.0 if name.endswith("weight") else 0.0)).all(), name


def test_parameters_are_as_many_as_nanogpts():
    model = GPT(GPTConfig(vocabulary=65, block=64, layers=4, heads=4, width=128, bias=False))
    # nanoGPT says 0.80M without the positions.
    assert sum(p.numel() for p in model.parameters()) - 64 * 128 == 795_904


def test_only_matrices_decay():
    groups = optimizer_of(GPT(SMALL), 1e-3, weight_decay=0.1).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert {p.ndim for p in groups[0]["params"]} == {2} and {p.ndim for p in groups[1]["params"]} == {1}


@pytest.mark.parametrize("length", [1, 5, 8, 12])
def test_greedy_text_is_the_likeliest_after_the_last_block(length, rng):
    theirs = TorchGPT(SMALL)
    ours = with_weights_of(GPT(SMALL), theirs)
    start = rng.integers(0, SMALL.vocabulary, (2, length))
    drawn = torch.tensor(start)
    for _ in range(6):
        logits, _ = theirs(drawn[:, -SMALL.block :], drawn[:, -SMALL.block :])
        drawn = torch.cat([drawn, logits[:, -1].argmax(-1, keepdim=True)], 1)
    assert generate(ours, Tensor(start), 6, temperature=0.0).tolist() == drawn.tolist()


def test_a_seed_decides_the_text_and_dropout_takes_no_part():
    model = GPT(GPTConfig(**{**vars(SMALL), "dropout": 0.5}))
    texts = [generate(model, Tensor([[1]]), 20, generator=pg.Generator(seed)).tolist() for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert model.training
    assert generate(model, Tensor([[1, 2]]), 0).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num": -1}, "num must not be negative, got -1"),
        ({"temperature": -1.0}, "temperature must be a finite number, 0 or more, got -1.0"),
        ({"temperature": math.nan}, "got nan"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
    ],
)
def test_settings_of_generate_out_of_range_are_refused(changes, said):
    with pytest.raises(ArgumentError, match=said):
        generate(GPT(SMALL), Tensor([[1]]), **{"num": 1, **changes})


def test_text_that_does_not_fit_is_refused():
    model = GPT(SMALL)
    with pytest.raises(ShapeError, match=r"T from 1 to 8, got \(1, 9\)"):
        model(Tensor([[0] * 9]))
    with pytest.raises(ShapeError, match="T at least 1"):
        generate(model, Tensor([1]), 1)
    with pytest.raises(ShapeError, match=r"B and T at least 1, got \(0, 3\)"):
        generate(model, Tensor.zeros(0, 3, dtype=int64), 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heads": 3}, "heads must divide width, got 3 heads and width 16"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"dropout": 1.5}, "dropout must be a probability, got 1.5"),
    ],
)
def test_settings_of_a_model_out_of_range_are_refused(changes, said):
    with pytest.raises(ArgumentError, match=said):
        GPTConfig(**{**vars(SMALL), **changes})


# ---- reading on beside a cache ----
@pytest.mark.req("G4")
@pytest.mark.parametrize("is_jitted", [True, False])
def test_reading_token_by_token_equals_reading_all_at_once(is_jitted, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    model = GPT(SMALL).eval()
    cache, place = model.cache(batch=2), pg.Variable("position", 0, SMALL.block - 1)
    tokens = np.random.default_rng(0).integers(0, SMALL.vocabulary, (2, SMALL.block))
    with pg.no_grad():
        expected = model.hidden(Tensor(tokens)).numpy()
        read_on = pg.jit(lambda token, position: model.read_on(token, cache, position)) if is_jitted else None
        first = max(1, SMALL.block // 3)
        np.testing.assert_allclose(model.read_on(Tensor(tokens[:, :first]), cache).numpy(), expected[:, :first], atol=1e-5)
        made = []
        for at in range(first, SMALL.block):
            token, position = Tensor(tokens[:, at : at + 1]), place.bind(at)
            with watch() as counts:
                hidden = read_on(token, position) if read_on else model.read_on(token, cache, position)
                # float32 through two blocks, sums in another order: some 1e-6 of values of size 1.
                np.testing.assert_allclose(hidden.numpy()[:, 0], expected[:, at], atol=1e-5)
            made.append((counts.scheduled, counts.lowered))
    assert not any(lowered for _, lowered in made[1:])
    assert not any(scheduled for scheduled, _ in made[2:])


@pytest.mark.req("G4")
def test_a_step_with_a_cache_writes_its_rows_alone(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    model = GPT(SMALL).eval()
    cache, place = model.cache(batch=1), pg.Variable("position", 0, SMALL.block - 1)
    step = pg.jit(lambda token, position: model.read_on(token, cache, position))
    with pg.no_grad():
        for at in range(3):
            step(Tensor([[1]]), place.bind(at))
    (plan,) = (capture.planned.plan for form in step.forms.values() for capture in form.captures.values())
    kept = [use for use in plan.outputs if use.keeps]
    assert len(kept) == 2 * SMALL.layers and len(plan.outputs) == len(kept) + 1


@pytest.mark.req("G4")
def test_a_cache_may_be_shorter_than_the_block():
    model, tokens = GPT(SMALL).eval(), Tensor([[1, 2, 3, 4, 5]])
    cache = model.cache(batch=1, length=5)
    assert {part.shape for part in (*cache.keys, *cache.values)} == {(1, SMALL.heads, 5, SMALL.width // SMALL.heads)}
    with pg.no_grad():
        expected = model.hidden(tokens).numpy()
        np.testing.assert_allclose(model.read_on(tokens[:, :4], cache).numpy(), expected[:, :4], atol=1e-5)
        np.testing.assert_allclose(model.read_on(tokens[:, 4:], cache, 4).numpy(), expected[:, 4:], atol=1e-5)
        for position in (-1, 5, np.int64(5)):
            with pytest.raises(ShapeError, match=rf"end by its 5 positions, got \(1, 1\) at {position}\."):
                model.read_on(tokens[:, :1], cache, position)
        with pytest.raises(ShapeError, match=r"end by its 5 positions, got \(1, 6\) at 0"):
            model.read_on(Tensor([[1, 2, 3, 4, 5, 6]]), cache)
        with pytest.raises(ShapeError, match=r"the cache's B=1 and .* got \(2, 1\)"):
            model.read_on(Tensor([[1], [2]]), cache)
        with pytest.raises(ShapeError, match=r"the cache's B=2 and .* got \(1, 1\)"):
            model.read_on(Tensor([[1]]), model.cache(batch=2))
    for length in (0, SMALL.block + 1):
        with pytest.raises(ArgumentError, match=f"^GPT.cache: length must be from 1 to {SMALL.block}, got {length}"):
            model.cache(1, length)


@pytest.mark.req("G8")
def test_a_step_with_a_cache_needs_no_memory_beyond_a_layers_widest_moment(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    config = GPTConfig(vocabulary=500, block=32, layers=3, heads=4, width=64)
    model = GPT(config).eval()
    cache, place = model.cache(batch=1), pg.Variable("position", 0, config.block - 1)
    step = pg.jit(lambda token, position: model.logits(model.read_on(token, cache, position)))
    with pg.no_grad(), watch() as counts:
        for at in range(3):
            step(Tensor([[1]]), place.bind(at)).realize()
    row, line = 4 * config.width, 64
    # Queries, keys and values beside the residual stream; a maximum and a sum for each head. Scores and the hidden units
    # of the feed-forward layer lie where the logits are written in the last phase of the last kernel.
    assert counts.arena_nbytes <= 3 * row + row + 2 * line


@pytest.mark.req("G4")
def test_several_tokens_are_read_on_anywhere_with_one_plan():
    model = GPT(SMALL).eval()
    tokens = np.random.default_rng(0).integers(0, SMALL.vocabulary, (2, SMALL.block))
    cache, place = model.cache(batch=2), pg.Variable("position", 0, SMALL.block - 3)
    read = pg.jit(lambda piece, position: model.read_on(piece, cache, position))
    with pg.no_grad():
        expected = model.hidden(Tensor(tokens)).numpy()
        for at in (0, 3, 5):
            found = read(Tensor(tokens[:, at : at + 3]), place.bind(at)).numpy()
            np.testing.assert_allclose(found, expected[:, at : at + 3], atol=1e-5)
        found = model.read_on(Tensor(tokens[:, 2:7]), cache, 2).numpy()  # again, at a place that is no Variable
    np.testing.assert_allclose(found, expected[:, 2:7], atol=1e-5)
    assert read.num_captures == 1


@pytest.mark.req("G4")
def test_texts_longer_than_the_block_are_drawn_as_without_a_cache():
    model = GPT(SMALL).eval()
    start = [[1, 2, 3]]
    text = generate(model, Tensor(start), SMALL.block + 2, temperature=0.0).tolist()[0]
    with pg.no_grad():
        for at in range(3, len(text)):
            window = text[max(0, at - SMALL.block) : at]
            assert int(model(Tensor([window]))[0][0, -1].argmax().item()) == text[at]
