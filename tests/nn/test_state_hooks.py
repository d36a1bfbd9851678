"""Hooks around state_dict and load_state_dict: when they are called and with what, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import picograd as pg
from picograd import nn
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


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_a_module_that_loads_its_own_tensors_renames_and_forgives(library: Any) -> None:
    class Renamed(library.Linear):
        def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, messages):
            if prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, messages)
            if prefix + "bias" in missing:
                missing.remove(prefix + "bias")
            with (torch if library is torch.nn else pg).no_grad():
                self.weight.mul_(2.0)

    net = library.Sequential(library.Linear(2, 1), Renamed(1, 1))
    given = {"0.weight": net[0].weight.detach() * 0 + 3.0, "1.w": net[1].weight.detach() * 0 + 5.0}
    with pytest.raises((pg.ArgumentError, RuntimeError), match="0.bias"):
        net.load_state_dict(given)
    assert [*given] == ["0.weight", "1.w"]
    found = net.load_state_dict(given | {"0.bias": net[0].bias.detach()})
    assert list(found.missing_keys) == [] and list(found.unexpected_keys) == []
    assert net[0].weight.tolist() == [[3.0, 3.0]] and net[1].weight.tolist() == [[10.0]]
    found = net.load_state_dict({"1.w": given["1.w"], "2": given["1.w"]}, strict=False, assign=True)
    assert list(found.missing_keys) == ["0.weight", "0.bias"] and list(found.unexpected_keys) == ["2"]
    assert net[1].weight.tolist() == [[10.0]] and isinstance(net[1].weight, library.Parameter)


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_an_old_hook_before_a_state_is_loaded_has_no_module(library: Any) -> None:
    net, seen = library.Linear(1, 1, bias=False), []
    hooked = net._register_load_state_dict_pre_hook
    hooked(lambda state, prefix, *facts: seen.append((list(state), prefix, len(facts))))
    hooked(lambda module, *facts: seen.append((module is net, len(facts))), with_module=True)
    net.load_state_dict(net.state_dict())
    assert seen == [(["weight"], "", 5), (True, 7)]
