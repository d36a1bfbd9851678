"""The accelerator of docs/accelerator.md: found by its entry point, and right on operations, training and loops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import devices
from picograd.errors import CompileError, DeviceError, OutOfMemoryError
from picograd.ir.stages import Source
from picograd_lab.doctor import examine_devices
from tests.conftest import DEVICES
from tests.device_checks import Check, checks
from tests.on_devices import check_interrupt, check_threads
from tests.operations.table import Operation
from tests.operations.test_operations import OPERATIONS, compare_values

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "accelerator"
ROWS = OPERATIONS if "LOOM" in DEVICES else OPERATIONS[::17]  # TEST_DEVICES=LOOM asks for all of them


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Puts on the path what `pip install` would: the module, and a note of its entry point."""
    notes = tmp_path_factory.mktemp("site") / "loom-1.0.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: loom\nVersion: 1.0\n")
    (notes / "entry_points.txt").write_text("[picograd.devices]\nLOOM = loom:make_compiler\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        patch.syspath_prepend(notes.parent)
        patch.setenv("PICOGRAD_CACHE", "off")
        yield
    devices._compilers.pop("LOOM", None)
    sys.modules.pop("loom", None)


@pytest.mark.req("G7")
def test_it_is_found_by_its_entry_point() -> None:
    devices.check_exists("LOOM")
    assert Tensor([1.0, 2.0], device="loom").device == "LOOM"
    assert devices.compiler_for("LOOM").device.target.language == "loom"
    with pytest.raises(DeviceError, match="SPINDLE: this is not a device; the devices are CPU, .*, NUMPY, LOOM"):
        Tensor([1.0], device="SPINDLE").realize()


def test_it_is_among_the_usable_devices_and_in_the_doctors_report() -> None:
    assert devices.usable()["LOOM"] is None
    assert "LOOM" in pg.Device.usable
    assert any(finding.topic == "device LOOM" and finding.ok for finding in examine_devices(devices.usable()))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("looom:make_compiler", "No module named 'looom'"),
        ("loom:compiler", "has no attribute 'compiler'"),
        ("broken:make_compiler", "libspindle.so is missing"),
    ],
)
def test_an_entry_point_that_names_nothing_is_told(
    value: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("raise OSError('libspindle.so is missing')\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("SPINDLE", value, "picograd.devices")
    monkeypatch.setattr(devices, "_plugins", lambda: {"SPINDLE": point})
    with pytest.raises(DeviceError) as caught:
        Tensor([1.0], device="SPINDLE").realize()
    assert caught.value.fact.startswith(f"SPINDLE: the entry point '{value}' of picograd.devices cannot be loaded (")
    assert reason in caught.value.fact
    assert devices.usable()["SPINDLE"] == caught.value.fact


@pytest.mark.variants(every=11)
@pytest.mark.req("G7")
@pytest.mark.parametrize("check", checks(without=("attention", "decoding", "tf32")))  # long ones, and what it does not have
def test_it_computes_what_the_evaluator_does(
    check: Check, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    check("LOOM", rng, monkeypatch)


@pytest.mark.variants
@pytest.mark.req("G7")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_operations_give_what_pytorch_gives(
    row: Operation, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "LOOM")
    compare_values(row, rng)


@pytest.mark.req("G7")
def test_a_loop_of_a_symbolic_number_of_steps() -> None:
    x, start = Tensor(np.eye(4, dtype=np.float32), device="LOOM"), Tensor(np.zeros(4, np.float32), device="LOOM")
    run = pg.jit(lambda n: pg.scan(lambda h, row: (h * 2 + row, h), start, x[:n])[0])
    n = pg.Variable("n", 0, 4)
    assert [run(n.bind(steps)).tolist() for steps in (2, 0, 3)] == [[2, 1, 0, 0], [0, 0, 0, 0], [4, 2, 1, 0]]


def test_threads_that_run_one_plan_do_not_see_each_other() -> None:
    check_threads("LOOM")


def test_an_interrupt_waits_until_state_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    devices.compiler_for("LOOM")
    check_interrupt("LOOM", sys.modules["loom"], "_launch", monkeypatch)


def test_memory_is_used_again_and_has_an_end() -> None:
    device = devices.compiler_for("LOOM").device
    first = device.allocate(1000)
    address, before = first.address, device.memory.in_use
    del first
    assert device.memory.in_use == before - 1000
    assert device.allocate(1000).address == address
    held = Tensor(np.zeros(3000, np.float32), device="LOOM").realize()
    with pytest.raises(OutOfMemoryError, match=r"1.0 GiB: .* of 256.0 MiB are given out; [^:]*:\n +11.7 KiB float32 "):
        device.allocate(1 << 30)
    assert not held.numpy().any()


def test_a_line_that_is_no_instruction_is_rejected() -> None:
    compiler = devices.compiler_for("LOOM")
    source = Source("wrong", "loom", "kernel wrong_0\nweave -> float32 1 v1 v2\nend\n", (), (), ())
    with pytest.raises(CompileError) as caught:
        compiler.backend.compile(source, compiler.device.target)
    assert caught.value.fact == "loom rejected kernel wrong.\n  line 2: weave -> float32 1 v1 v2"


def test_the_text_of_a_kernel_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PICOGRAD_SHOW", "source")
    (Tensor(np.zeros(3, np.float32), device="LOOM") * 2 + 1).realize()
    assert "mul -> float32 1 " in "".join(capsys.readouterr())
