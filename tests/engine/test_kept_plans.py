"""Schedules on disk: a second process schedules nothing, and what cannot be read is made again (G8)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.engine.cache import form_text, load_schedule, plan_entry, store_schedule
from picograd.engine.compiler import Compiler
from picograd.engine.devices import compiler_for
from picograd.engine.plan import parametrize, template
from picograd.interrupts import Latest
from picograd.ir.stages import Executable, Kernel, LoopItem, Schedule
from picograd.ir.text_program import format_schedule
from picograd.record import replace
from picograd.road import schedule_graphs

pytestmark = pytest.mark.req("G8")
ROOT = Path(__file__).resolve().parents[2]
STEP = """
import json
import picograd as pg
from picograd.look import watch
with watch() as counts:
    pg.manual_seed(0)
    model = pg.nn.MLP(6, [5, 3])
    optimizer = pg.optim.Adam(model.parameters(), lr=0.1)
    @pg.jit
    def step(x, targets):
        loss = pg.nn.functional.cross_entropy(model(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    x, targets = pg.Tensor.ones(4, 6), pg.Tensor([0, 1, 2, 0])
    results = [step(x, targets).item() for _ in range(3)]
print(json.dumps([results, counts.scheduled, counts.lowered]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no checks, with which every stage would run."""
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    return tmp_path


def another_compiler() -> Compiler:
    """A Compiler that knows nothing yet, as that of another process."""
    own = compiler_for("CPU")
    return Compiler(own.device, own.backend)


def scheduled(*tensors: Tensor) -> tuple[str, Schedule, list[Executable], Compiler]:
    """The name of the entry for some graphs, their schedule, its kernels made, and the compiler that has made them."""
    roots, compiler = written_out([tensor.op for tensor in tensors]), another_compiler()
    form = template(roots)
    name = plan_entry(form.key, compiler.device.target, False)
    assert name is not None
    schedule = schedule_graphs(parametrize(roots, form))
    return name, schedule, compiler.executables([item.kernel for item in schedule.kernel_items()]), compiler


def without_graphs(schedule: Schedule) -> Schedule:
    """What an entry holds of a schedule."""

    def item_without(item: object) -> object:
        if isinstance(item, LoopItem):
            return replace(item, body=without_graphs(item.body))
        return replace(item, kernel=Kernel(item.kernel.name, item.kernel.params, item.kernel.variables, ()))  # type: ignore[attr-defined,type-var]

    return replace(schedule, items=tuple(map(item_without, schedule.items)))  # type: ignore[arg-type]


def floats(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape, dtype=np.float32)).realize()


def computed(tensors: list[Tensor]) -> list[np.ndarray[Any, Any]]:
    """The values of tensors, computed by one plan."""
    pg.realize(tensors)
    return [tensor.numpy() for tensor in tensors]


def _product() -> list[Tensor]:
    x, w = floats(8, 16), floats(16, 4)
    return [(x @ w).softmax(-1), (x @ w).sum(0)]


def _checked() -> list[Tensor]:
    table, labels = floats(9, 4), Tensor([1, 8, 3]).realize()
    return [table[labels] @ floats(4, 4), table[labels + 0].sum(), table.sum(0)]


def _looped() -> list[Tensor]:
    w = floats(4, 4)

    def body(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        carry = (carry @ w).tanh() + row
        return carry, carry.sum()

    carry, stacked = pg.scan(body, floats(2, 4), floats(5, 2, 4))
    return [carry, stacked]


def _symbolic() -> list[Tensor]:
    n = pg.Variable("n", 1, 8).bind(3)
    return [floats(8, 4)[:n] @ floats(4, 4), floats(8, 4)[:n].sum(0)]


CASES = [_product, _checked, _looped, _symbolic]


# ---- processes ----
def step(folder: Path) -> tuple[list[float], int, int]:
    """Returns what a jitted training step computes in a process of its own, and how often two stages ran."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PICOGRAD_")}
    environment = {**kept, "PICOGRAD_CACHE": str(folder), "PICOGRAD_DEVICE": "CPU", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, check=True)
    results, num_scheduled, lowered = json.loads(done.stdout)
    return results, num_scheduled, lowered


def test_a_second_process_schedules_nothing_and_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    results, num_scheduled, lowered = step(tmp_path)
    assert num_scheduled > 0 and lowered > 0
    entries = sorted((tmp_path / "plans").glob("*/*"))
    assert 0 < len(entries) <= num_scheduled
    alone = num_scheduled - len(entries)  # plans of one kernel
    assert step(tmp_path) == (results, alone, 0)
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-1])
    assert step(tmp_path) == (results, num_scheduled, 0)
    assert step(tmp_path) == (results, alone, 0)
    for kernel in (tmp_path / "kernels").glob("*/*"):
        kernel.unlink()
    assert step(tmp_path) == (results, num_scheduled, lowered)


# ---- entries ----
@pytest.mark.parametrize("case", CASES)
def test_a_schedule_comes_back_as_it_was_but_for_graphs(case: Callable[[], list[Tensor]], folder: Path) -> None:
    name, schedule, executables, compiler = scheduled(*case())
    assert store_schedule(name, schedule, executables, compiler.entries)
    found = load_schedule(name, another_compiler().from_disk)
    assert found is not None
    kept, loaded = found
    assert kept == without_graphs(schedule)
    assert [e.launches for e in loaded] == [e.launches for e in executables]
    assert format_schedule(kept).splitlines()[0] == format_schedule(schedule).splitlines()[0]


@pytest.mark.parametrize("case", CASES)
def test_a_plan_from_disk_computes_the_same(
    case: Callable[[], list[Tensor]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = computed(case())
    monkeypatch.setattr("picograd.engine.realize._plans", Latest(1024))
    monkeypatch.setattr("picograd.engine.compiler.schedule_graphs", lambda *_: pytest.fail("scheduled again"))
    for value, expected in zip(computed(case()), first):
        np.testing.assert_array_equal(value, expected)


def test_a_binary_that_is_gone_makes_its_plan_anew(folder: Path) -> None:
    name, schedule, executables, compiler = scheduled(*_product())
    assert store_schedule(name, schedule, executables, compiler.entries)
    entry = next(iter(compiler.entries.values()))
    (folder / "kernels" / entry[0] / entry).unlink()
    assert load_schedule(name, another_compiler().from_disk) is None


def test_a_kernel_alone_is_not_worth_an_entry(folder: Path) -> None:
    name, schedule, executables, compiler = scheduled(floats(4) * 2)
    assert not store_schedule(name, schedule, executables, compiler.entries)
    assert load_schedule(name, compiler.from_disk) is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PICOGRAD_SHOW", "schedule"), ("PICOGRAD_DUMP", "dumps"), ("PICOGRAD_VERIFY", "1"), ("PICOGRAD_CACHE", "off"),
    ],
)  # fmt: skip
def test_where_somebody_looks_on_or_nothing_is_cached_no_entry_is_asked_for(
    variable: str, value: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, target = template([(floats(4) * 2).op]).key, compiler_for("CPU").device.target
    assert plan_entry(key, target, False) is not None
    monkeypatch.setenv(variable, value)
    assert plan_entry(key, target, False) is None


# ---- forms as text ----
def test_forms_have_one_text_where_they_are_equal_and_two_where_they_differ() -> None:
    a, b = floats(4), floats(4)
    i = Tensor([0, 1]).realize()
    n, longer = (pg.Variable("n", 1, most).bind(2) for most in (4, 3))
    differ = [
        [a + b], [a + a], [a + b, a], [a, a + b], [a - b], [a * 0.0], [a * -0.0], [a * 2], [a * 3], [a.reshape(2, 2) + 1],
        [a + 1], [a.cast(pg.int32)], [a.cast(pg.int64)], [a[i]], [a.gather(0, i)], [a[:n] + 1], [a[:longer] + 1],
        [a.sum()], [a.max()], [a.sort()[0]], [a.sort(descending=True)[0]], *map(list, (_looped(), _product())),
    ]  # fmt: skip
    forms = [template(written_out([tensor.op for tensor in tensors])).key for tensors in differ]
    texts = [form_text(key) for key in forms]
    assert None not in texts and len(set(texts)) == len(set(forms)) == len(differ)
    assert form_text(template([(b + a).op]).key) == texts[0]


def test_code_of_the_users_in_a_form_has_no_text() -> None:
    assert form_text((("CUSTOM", test_code_of_the_users_in_a_form_has_no_text),)) is None


def test_a_kernel_made_while_somebody_looked_on_makes_no_entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    roots, compiler = [tensor.op for tensor in _product()], another_compiler()
    schedule = schedule_graphs(parametrize(roots, template(roots)))
    kernels = [item.kernel for item in schedule.kernel_items()]
    monkeypatch.setenv("PICOGRAD_SHOW", "source")
    compiler.executables(kernels)
    capsys.readouterr()
    monkeypatch.delenv("PICOGRAD_SHOW")
    assert not store_schedule("plan", schedule, compiler.executables(kernels), compiler.entries)
