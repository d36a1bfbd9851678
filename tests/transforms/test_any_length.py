"""A jitted function whose arguments have ever new lengths: traced for all of some bounds, and never silently different."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.look import watch
from picograd.nn import functional as F

LENGTHS = (70, 90, 70, 65, 100, 80, 77, 300, 33, 40, 50, 64)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def drawn(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def counted(function: Callable[..., Any]) -> tuple[Callable[..., Any], Mock]:
    """Returns the jitted function, and what is called in each trace of it."""
    traced = Mock()

    def f(*args: Any) -> Any:
        traced()
        return function(*args)

    return pg.jit(f), traced


def policy() -> tuple[nn.Module, Callable[..., Tensor]]:
    pg.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    def step(states: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
        advantages = (returns - returns.mean()) / (returns.std() + 1e-6)
        taken = F.log_softmax(model(states), dim=1)[pg.arange(len(actions)), actions]
        loss = -(taken * advantages).sum() / states.shape[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_a_step_of_a_new_length_runs_no_python_of_the_function() -> None:
    """examples/reinforce.py: an episode is as long as the pole stands."""
    (plain, eager), (model, step) = policy(), policy()
    jitted, traced = counted(step)
    traces, planned = [], []
    for n in LENGTHS:
        episode = drawn(n, 4), Tensor(np.arange(n) % 2), drawn(n)
        with watch() as counts:
            loss = jitted(*episode)
        np.testing.assert_allclose(loss.item(), eager(*episode).item(), rtol=1e-4, atol=1e-6)  # sums of 300 terms
        for a, b in zip(plain.parameters(), model.parameters()):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)
        traces.append(traced.call_count)
        planned.append(counts.scheduled)
    # Two lengths of their own, 70 checked; then all from 64 on, twice, and all from 32 to 63, twice.
    assert traces == [1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 7, 7]
    assert sum(planned) == 4


def test_results_have_numbers_for_lengths_and_the_bits_of_eager_ones() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x * 2, pg.cat([x, y]), (x + y).sum(1), x[1:] + 0, y.flip(0) * 1, y.sum()]

    jitted, traced = counted(f)
    for n in LENGTHS:
        x, y = drawn(n, 3), drawn(n, 3)
        for found, right in zip(jitted(x, y), f(x, y)):
            assert all(type(dim) is int for dim in found.shape) and found.shape == right.shape
            np.testing.assert_array_equal(found.numpy(), right.numpy())
    assert traced.call_count == 7


def test_lengths_that_vary_by_themselves_are_two() -> None:
    jitted, traced = counted(lambda x, y: x @ y.t())
    for n, m in ((70, 70), (90, 90), (70, 70), (80, 80), (80, 90), (99, 88), (77, 66), (500, 70)):
        x, y = drawn(n, 3), drawn(m, 3)
        np.testing.assert_allclose(jitted(x, y).numpy(), x.numpy() @ y.numpy().T, atol=1e-5)
    assert traced.call_count == 6  # (80, 80) as one length, (80, 90) and (99, 88) as two


def python_loop(x: Tensor) -> Tensor:
    for i in range(len(x)):
        x = x + i
    return x


def caught(x: Tensor) -> Tensor:
    try:
        return x * (len(x) % 3)
    except Exception:
        return x * 5


DEPENDING: dict[str, Callable[[Tensor], Tensor]] = {
    "loop": python_loop,
    "remainder": lambda x: x * (len(x) % 2),
    "branch": lambda x: x * 2 if x.shape[0] > 75 else x,
    "equality": lambda x: x * (x.size(0) == 80),
    "shape": lambda x: x * (x.shape == (80, 3)),
    "member": lambda x: x * (len(x) in (80, 90)),
    "table": lambda x: x * {80: 2.0}.get(len(x), 3.0),
    "text": lambda x: x * (f"{len(x)}" == "80"),
    "text of a shape": lambda x: x * (f"{x.shape}" == "(80, 3)"),
    "type": lambda x: x if isinstance(len(x), int) else -x,
    "error": caught,
    "root": lambda x: x * len(x) ** 0.5,
    "list": lambda x: x * sum([1.0] * len(x)),
    "view": lambda x: x[:, :2],
}


@pytest.mark.parametrize("name", DEPENDING)
def test_a_function_that_needs_the_number_is_traced_for_each_length(name: str) -> None:
    function = DEPENDING[name]
    jitted, traced = counted(function)
    for n in (70, 90, 70, 80, 60, 100, 80, 90, 60, 75, 76):
        np.testing.assert_array_equal(jitted(drawn(n, 3)).numpy(), function(drawn(n, 3)).numpy())
    assert traced.call_count > 9


def test_a_comparison_that_is_the_same_for_all_lengths_is_decided() -> None:
    jitted, traced = counted(lambda x: x * 2 if len(x) > 10 and x.shape != (5, 3) and len(x) else x)
    for n in LENGTHS:
        assert jitted(drawn(n, 3)).numpy().tolist() == (drawn(n, 3) * 2).numpy().tolist()
    assert traced.call_count == 7


def test_a_view_of_an_argument_shares_its_storage_at_any_length() -> None:
    jitted = pg.jit(lambda x: x.view(-1))
    for n in (70, 90, 70, 80, 100, 77, 80):
        x = drawn(n, 3).realize()
        jitted(x).zero_()
        assert x.abs().sum().item() == 0


def test_what_a_function_changes_of_python_is_changed_once() -> None:
    kept: list[int] = []

    @pg.jit
    def f(x: Tensor) -> Tensor:
        kept.append(1)
        return x * 2 if len(x) > 75 else x

    for count, n in enumerate((70, 90, 80, 60, 100), 1):
        f(drawn(n))
        assert len(kept) == count
    with pytest.raises(pg.JitError, match="changes what it reads"):
        f(drawn(70))


def test_len_is_pythons_own_after_a_trace() -> None:
    jitted = pg.jit(lambda x: x / len(x))
    for n in (70, 90, 70, 80, 100):
        jitted(drawn(n))
        assert "len" not in globals()
    assert drawn(5, 2).shape == (5, 2) and len(drawn(5)) == 5


def test_an_index_outside_says_the_length_of_the_call_and_changes_nothing() -> None:
    total = pg.zeros(1, 3)

    @pg.jit
    def f(x: Tensor, i: Tensor) -> Tensor:
        total.add_(x[i])
        return total * 1

    for n in (70, 90, 70, 80, 100, 77):
        f(drawn(n, 3), Tensor([n - 1]))
    before = total.tolist()
    with pytest.raises(pg.IndexingError, match="85 is out of range for axis 0 of length 85 in shape \\(85, 3\\)"):
        f(drawn(85, 3), Tensor([85]))
    assert total.tolist() == before
