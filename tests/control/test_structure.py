"""Containers of Tensors: taken apart in order, named as the user writes them, and put together again."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from picograd import Tensor
from picograd.control.structure import PLACE, mapped, put, shown, take


class Pair(NamedTuple):
    """Two parts."""

    first: Any
    second: Any


@dataclass(frozen=True)
class State:
    """Two parts that cannot be replaced."""

    h: Any
    step: Any

    def __post_init__(self) -> None:
        assert isinstance(self.h, Tensor)


CONTAINERS = {
    "list": lambda a, b: [a, (b, None)],
    "dict": lambda a, b: {"a": a, 1: {"b": b}},
    "named tuple": lambda a, b: Pair(a, [b]),
    "dataclass": lambda a, b: State(a, b),
    "ordered dict": lambda a, b: OrderedDict(z=a, a=b),
    "default dict": lambda a, b: defaultdict(list, {"a": a, "b": b}),
}
NAMES = {
    "list": ("x[0]", "x[1][0]"), "dict": ("x['a']", "x[1]['b']"), "named tuple": ("x.first", "x.second[0]"),
    "dataclass": ("x.h", "x.step"), "ordered dict": ("x['z']", "x['a']"), "default dict": ("x['a']", "x['b']"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTAINERS)
def test_tensors_come_out_in_order_with_their_names_and_others_go_in(kind: str) -> None:
    a, b, c, d = (Tensor(float(i)) for i in range(4))
    container = CONTAINERS[kind](a, b)
    taken = take(container, "x")
    assert taken.tensors == (a, b) and taken.names == NAMES[kind]
    changed = put(container, [c, d])
    assert type(changed) is type(container)
    again = take(changed, "x")
    assert all(x is y for x, y in zip(again.tensors, (c, d))) and again.form == taken.form
    assert all(x is y for x, y in zip(take(container, "x").tensors, (a, b))), "the first one is as it was"


def test_a_default_dict_keeps_its_default() -> None:
    assert put(CONTAINERS["default dict"](Tensor(0), Tensor(1)), [Tensor(2), Tensor(3)])["new"] == []


def test_what_is_no_tensor_is_named() -> None:
    assert take([1, {"lr": "fast"}, None], "x").others == (("x[0]", 1), ("x[1]['lr']", "fast"))


def test_forms_differ_by_containers_and_by_what_else_they_hold() -> None:
    t = Tensor(0.0)
    forms = [take(value, "x").form for value in ([t], (t,), {"a": t}, {"b": t}, [t, t], [t, None], [t, 2], t, [])]
    assert len(set(forms)) == len(forms)
    assert [shown(form) for form in forms[:4]] == ["[*]", "(*,)", "{'a': *}", "{'b': *}"]


def test_places_can_be_filled_later() -> None:
    skeleton = mapped({"loss": Tensor(1.0), "steps": 3}, lambda tensor: None)
    assert skeleton == {"loss": PLACE, "steps": 3}
    assert mapped(skeleton, lambda place: "here") == {"loss": "here", "steps": 3}


def test_taking_a_container_apart_leaves_no_cycle_that_keeps_its_tensors() -> None:
    kept = Tensor([1.0]) + 1
    gc.collect()
    gc.disable()
    try:
        cell = weakref.ref(kept.cell)
        assert take([kept, {"a": (kept,)}], "carry").names == ("carry[0]", "carry[1]['a'][0]")
        del kept
        assert cell() is None
    finally:
        gc.enable()
