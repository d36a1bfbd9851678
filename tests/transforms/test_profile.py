"""Kernels are timed one by one with the results of a run without that, and known by line and by module."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.engine import realize
from picograd.errors import ArgumentError, IndexingError
from picograd_lab.recorder import PLANNING
from tests.helpers import forgotten

F = nn.functional


def trained(model: nn.Module, *inputs: Tensor, jitted: bool) -> list[np.ndarray[Any, Any]]:
    """Returns parameters after three steps."""
    optimizer = pg.optim.Adam(model.parameters(), lr=0.01)

    def step(*inputs: Tensor) -> Tensor:
        optimizer.zero_grad()
        output = model(*inputs)
        loss = (output if isinstance(output, Tensor) else output[0]).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = pg.jit(step) if jitted else step
    losses = [run(*inputs).item() for _ in range(3)]
    return [np.array(losses), *(parameter.detach().numpy() for parameter in model.parameters())]


def perceptron(jitted: bool) -> Any:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
    return trained(model, pg.randn(5, 6), jitted=jitted)


def recurrent(jitted: bool) -> Any:
    return trained(nn.LSTM(3, 4), pg.randn(6, 2, 3), jitted=jitted)


def attention(jitted: bool) -> Any:
    return trained(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), pg.randn(2, 5, 8), jitted=jitted)


def convolutions(jitted: bool) -> Any:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2))
    return trained(model, pg.randn(3, 1, 8, 8), jitted=jitted)


def written_in_place(jitted: bool) -> Any:
    cache = Tensor.zeros(6, 4)

    def step(row: Tensor, at: Tensor) -> Tensor:
        cache[at] = row
        return cache.cumsum(0).sort(0)[0] + cache

    run = pg.jit(step) if jitted else step
    return [run(pg.randn(4), Tensor(i % 6)).numpy() for i in range(3)] + [cache.numpy()]


PROGRAMS: list[Callable[[bool], Any]] = [perceptron, recurrent, attention, convolutions, written_in_place]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_has_the_same_bits_while_it_is_profiled(program: Callable[[bool], Any], jitted: bool) -> None:
    pg.manual_seed(1)
    expected = program(jitted)
    pg.manual_seed(1)
    with pg.profile() as profile:
        found = program(jitted)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
    assert profile.kernels and all(span.seconds > 0 and span.nbytes > 0 for span in profile.kernels)


def test_kernels_are_known_by_line_and_by_module_with_their_gradients() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x = pg.randn(5, 6).realize()
    step = pg.jit(lambda x: model(x).square().mean())
    with pg.profile(model) as profile:
        for _ in range(2):
            step(x).item()
        model(x).sum().backward()
        [parameter.grad.numpy() for parameter in model.parameters()]  # type: ignore[union-attr]
    lines = profile.by_line()
    assert "model(x).sum().backward()" in lines and "model(x).square().mean()" in lines
    modules = [line.split("  ")[0] for line in profile.by_module().splitlines()[1:]]
    assert {"0 Linear", "2 Linear"} <= set(modules)
    assert sum(span.flops for span in profile.kernels if span.name.startswith("matmul_5_8")) >= 3 * 2 * 5 * 6 * 8
    assert "GFLOP/s" in str(profile) and "ms; Python and the rest" in str(profile)
    assert profile._repr_html_().startswith("<table><caption>")


def test_a_trace_has_an_event_for_each_kernel_and_each_plan(tmp_path: Path) -> None:
    with pg.profile() as profile:
        (pg.randn(30, 7) @ pg.randn(7, 20)).sum().item()
    profile.save(tmp_path / "trace.json")
    first, second, *events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in (first, second)] == ["kernel", "planning"]
    assert {event["cat"] for event in events} == {"planning", "kernel"}
    assert all(event["ph"] == "X" and event["ts"] >= 0 and event["dur"] > 0 for event in events)
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert any("test_profile.py" in line for event in kernels for line in event["args"]["lines"])


def test_the_evaluator_is_timed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    with pg.profile() as profile:
        (Tensor([1.0, 2.0]) + 1).realize()
    assert [span.name for span in profile.kernels] == ["plan"]


@pytest.mark.parametrize("writes", [False, True])
def test_every_call_of_a_jitted_function_is_timed(writes: bool) -> None:
    total = Tensor([0.0, 0.0])

    @pg.jit
    def step(x: Tensor) -> Tensor:
        if writes:
            total.add_(x)
        return x * 2 + 1

    x = Tensor([1.0, 2.0])
    for _ in range(4):
        step(x)
    with pg.profile() as profile:
        for _ in range(5):
            step(x)
    assert len(profile.kernels) == 5
    assert step(x).tolist() == [3.0, 5.0]


def test_an_error_is_the_same_and_ends_the_profile() -> None:
    with pytest.raises(IndexingError, match="5 is out of range"), pg.profile():
        Tensor([1.0, 2.0])[Tensor([5])].realize()
    with pg.profile(), pytest.raises(ArgumentError, match="they do not nest"), pg.profile():
        pass
    with pg.profile() as profile:
        pass
    assert profile.kernels == [] and str(profile).splitlines()[0].split() == [
        "kernel", "calls", "ms", "%", "GFLOP/s", "GB/s", "line",
    ]  # fmt: skip


def test_what_is_no_module_is_told() -> None:
    with pytest.raises(pg.ArgumentTypeError, match="model must be a Module, got int"), pg.profile(5):  # type: ignore[arg-type]
        pass


def test_a_profile_runs_the_plan_for_many_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a new length runs its shared plan while it is timed, too, and is not planned for its own length."""
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    forgotten()
    layer = nn.Linear(6, 5)

    def step(length: int) -> None:
        layer.zero_grad()
        layer(Tensor.ones(length, 6).contiguous().realize()).tanh().square().mean().backward()
        layer.weight.grad.numpy()

    for length in (17, 23, 19):
        step(length)
    with pg.profile() as timed:
        step(21)
    assert timed.kernels and not [span for span in timed.spans if span.name == PLANNING]
