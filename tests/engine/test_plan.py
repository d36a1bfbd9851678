"""Plans are made once for each form of graph, and found again whatever memory the graph reads (G8)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.config import STAGES
from picograd.engine.plan import parametrize, template
from picograd.look import Counts, watch
from tests.helpers import forgotten

pytestmark = pytest.mark.req("G8")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def counted(tensor: Tensor) -> Counts:
    with watch() as counts:
        tensor.realize()
    return counts


def numbers(*shape: int) -> Tensor:
    return Tensor(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape))


def key(tensor: Tensor) -> object:
    return template([tensor.op]).key


def test_a_second_graph_of_the_same_form_schedules_and_compiles_nothing() -> None:
    def form(x: Tensor, y: Tensor) -> Tensor:
        return ((x * 3 + y).exp().sum(1) * 1.25).tanh()

    form(numbers(3, 11), numbers(3, 11)).realize()
    counts = counted(form(numbers(3, 11) + 1, numbers(3, 11).realize()).detach())
    assert counts.kernels >= 1
    again = counted(form(numbers(3, 11), numbers(3, 11)))
    assert (again.scheduled, again.lowered, again.compiled, again.plans) == (0, 0, 0, 1)


def test_a_plan_is_of_the_form_and_not_of_the_memory() -> None:
    a, b = numbers(4), numbers(4)
    assert key(a + b) == key(b + a)
    assert key(a + a) != key(a + b)  # one buffer read twice is another form
    assert key(a + 1) != key(a + 2)
    assert key(a * 0.0) != key(a * -0.0)
    assert key(a.cast(pg.int32)) != key(a.cast(pg.int64))


def test_another_shape_or_dtype_is_another_form() -> None:
    assert key(numbers(4) + 1) != key(numbers(5) + 1)
    assert key(numbers(4) + 1) != key(numbers(2, 2) + 1)
    assert key(numbers(4) + 1) != key(numbers(4).cast(pg.float64).realize() + 1)


def test_a_form_keeps_no_memory_alive() -> None:
    x = numbers(4)
    graph = (x * 2).op
    form = template([graph])
    assert all(op.code.name != "BUFFER" for op in parametrize([graph], form))
    assert form.bare().buffers == ()


def test_values_computed_once_are_not_computed_again() -> None:
    x = (numbers(7) * 2).exp()
    assert counted(x).kernels == 1
    assert counted(x).kernels == 0
    with watch() as counts:
        (x + 1).realize()
    assert counts.kernels == 1
    assert counts.names == ["elementwise_7"]


def test_tensors_realized_together_are_one_plan() -> None:
    x = numbers(5)
    wanted = [x + 1, (x * 2).sum(), x @ numbers(5, 3)]
    with watch() as counts:
        pg.realize(wanted)
    assert counts.plans == 1
    with watch() as counts:
        pg.realize(wanted)
    assert counts.plans == 0


@pytest.mark.req("G12")
@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("graph", ["= MUL ", "return %"]),
        ("schedule", ["schedule of 1 kernels", "run "]),
        ("kernel", ["kernel ", "elementwise"]),
        ("choice", ["choice none"]),
        ("program", ["program ", "for r", "in grid("]),
        ("source", ["define ", "ret void"]),
    ],
)
def test_a_stage_is_shown_by_name(
    stage: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PICOGRAD_SHOW", stage)
    axes = 10 + STAGES.index(stage)  # of a form nobody has asked for before
    (numbers(100, *[1] * axes) * 3 + 0.5).realize()
    shown = capsys.readouterr().out
    for part in expected:
        assert part in shown
    assert ("define " if stage != "source" else "in grid(") not in shown


@pytest.mark.req("G12")
def test_debug_shows_one_stage_more_with_each_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for level in range(1 + len(STAGES)):
        monkeypatch.setenv("DEBUG", str(level))
        (numbers(110, *[1] * level) * 3 + 0.5).realize()  # a form nobody has asked for before
        shown.append(capsys.readouterr().out)
    assert shown[0] == ""
    begins = ("= MUL ", "schedule of", "\nkernel elementwise", "\nchoice ", "in grid(", "define ", "plan of")
    for level, text in enumerate(shown):
        assert [part in f"\n{text}" for part in begins] == [i < level for i in range(len(begins))]


@pytest.mark.req("G12")
def test_a_plan_is_shown_when_it_is_made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    forgotten()
    monkeypatch.setenv("PICOGRAD_SHOW", "plan")
    (numbers(13, 12) @ numbers(12, 11)).realize()
    assert capsys.readouterr().out.startswith("plan of 1 kernels, 1 launches")  # who reads a panel packs it
    (numbers(13, 4000) @ numbers(4000, 11)).realize()
    lines = [re.sub("grid [0-9]+", "grid N", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [  # how many pieces depends on the width of this machine's vectors
        "plan of 1 kernels, 2 launches",
        "  matmul_13_11_0  grid N  on buffers 0, 1, 2",
        "  matmul_13_11_1  grid N  on buffers 0, 1, 2",
    ]
    (numbers(13, 12) @ numbers(12, 11)).realize()
    assert capsys.readouterr().out == ""
