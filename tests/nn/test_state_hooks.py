"""Hooks around state_dict and load_state_dict: when they are called and with what, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import picograd as pg
from picograd.errors import ArgumentError

PLACES = ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")


def calls_of(library: Any) -> list[Any]:
    """Returns what the hooks of a nested module are called with, in order."""
    seen: list[Any] = []

    def noted(place: str, path: str) -> Any:
        def hook(module: Any, *args: Any) -> None:
            shown = [sorted(arg) if isinstance(arg, dict) and "version" not in arg else arg for arg in args]
            seen.append((place, path, [str(list(part) if isinstance(part, tuple) else part) for part in shown]))

        return hook

    net = library.nn.Sequential(library.nn.Linear(2, 2), library.nn.Sequential(library.nn.Tanh(), library.nn.Linear(2, 1)))
    for path, module in net.named_modules():
        for place in PLACES:
            getattr(module, f"register_{place}_hook")(noted(place, path))
    net.load_state_dict(net.state_dict())
    return [(place, path) for place, path, _ in seen] + [args for place, _, args in seen if place == "state_dict_pre"]


def test_hooks_are_called_where_pytorch_calls_them() -> None:
    assert sorted(map(str, calls_of(pg))) == sorted(map(str, calls_of(torch)))


def test_a_hook_before_loading_renames_keys_and_reports() -> None:
    def renamed(module: Any, state: Any, prefix: str, facts: Any, strict: bool, *lists: list[str]) -> None:
        missing, unknown, messages = lists
        state[prefix + "weight"] = state.pop(prefix + "w")
        assert strict and facts == {"version": 1} and not missing and not unknown
        messages.append("wrong version.")

    net = pg.nn.Linear(1, 1, bias=False)
    handle = net.register_load_state_dict_pre_hook(renamed)
    given = {"w": pg.Tensor([[3.0]])}
    with pytest.raises(ArgumentError) as caught:
        net.load_state_dict(given)
    assert caught.value.fact == "load_state_dict: wrong version." and list(given) == ["w"]
    handle.remove()
    with pytest.raises(ArgumentError) as caught:
        net.load_state_dict(given)
    assert caught.value.fact == "load_state_dict: missing: weight; unknown: w."


def test_a_hook_after_loading_may_forgive_what_is_missing() -> None:
    net = pg.nn.Sequential(pg.nn.Linear(1, 1))
    handle = net[0].register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    assert not any(net.load_state_dict({"0.weight": pg.Tensor([[3.0]])}))
    handle.remove()
    with pytest.raises(ArgumentError, match="missing: 0.bias"):
        net.load_state_dict({"0.weight": pg.Tensor([[3.0]])})


def test_hooks_are_not_called_for_the_state_that_loading_compares_with() -> None:
    net, calls = pg.nn.Linear(1, 1), []
    state = net.state_dict()
    net.register_state_dict_pre_hook(lambda *args: calls.append(args))
    net.load_state_dict(state)
    assert not calls
