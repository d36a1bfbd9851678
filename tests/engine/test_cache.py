"""The cache on disk: a second process compiles nothing, and nothing about the folder can break a run (G8)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.compile_llvm import host_target
from picograd.engine import cache
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Binary, Launch, Param
from tests.forks import imported

pytestmark = pytest.mark.req("G8")
ROOT = Path(__file__).resolve().parents[2]
STEP = """
import json
import numpy as np
import picograd as pg
from picograd.look import watch
with watch() as counts:
    pg.manual_seed(0)
    model = pg.nn.MLP(6, [5, 3])
    optimizer = pg.optim.Adam(model.parameters(), lr=0.1)
    x = pg.Tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6))
    loss = pg.nn.functional.cross_entropy(model(x), pg.Tensor([0, 1, 2, 0]))
    loss.backward()
    optimizer.step()
    length = pg.Variable("n", 1, 4).bind(3)
    results = [loss.item(), x[:length].sum(0).tolist()]
print(json.dumps([results, counts.lowered, counts.rendered, counts.compiled, counts.disk_hits]))
"""
TARGET = Target("CPU", "llvm", "any")
RUNNER = 1  # the code that walks a plan is kept in the same folder


def process(folder: object) -> subprocess.Popen[str]:
    """Starts a training step in a process of its own, with its cache in `folder`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PICOGRAD_") or k == "PICOGRAD_CPU"}
    environment = {**kept, "PICOGRAD_CACHE": str(folder), "PICOGRAD_DEVICE": "CPU", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", STEP], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def step(folder: object) -> tuple[list[object], int, int, int, int]:
    """Returns what a training step computes, and how often each stage ran."""
    done = imported().run(STEP, {"PICOGRAD_CACHE": str(folder), "PICOGRAD_DEVICE": "CPU"})
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def finish(running: subprocess.Popen[str]) -> tuple[list[object], int, int, int, int]:
    out, err = running.communicate(timeout=600)
    assert running.returncode == 0, err
    return read(out)


def read(out: str) -> tuple[list[object], int, int, int, int]:
    results, lowered, rendered, compiled, hits = json.loads(out)
    return results, lowered, rendered, compiled, hits


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object], int]:
    """A cache folder that one process has filled, with what that process computed and compiled."""
    folder = tmp_path_factory.mktemp("cache")
    results, lowered, rendered, compiled, hits = step(folder)
    assert lowered == rendered == compiled > 0
    assert hits == 0
    return folder, results, compiled


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "kernels"


def binary(data: bytes = b"machine code") -> Binary:
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))
    twice = Op(OpCode.MUL, dtypes.int64, (n, const(2, dtypes.int64)))
    params = (Param(dtypes.float32, twice, "in"), Param(dtypes.bfloat16, 4, "out"))
    return Binary("k", data, params, (n,), (Launch("k_0", twice, 1, 5), Launch("k_1", 3, 32, 1)))


# ---- processes ----
def test_a_second_process_compiles_nothing(filled: tuple[Path, list[object], int]) -> None:
    folder, results, compiled = filled
    assert step(folder) == (results, 0, 0, 0, compiled + RUNNER)


def test_entries_that_are_cut_short_or_changed_are_compiled_again(filled: tuple[Path, list[object], int]) -> None:
    folder, results, compiled = filled
    runner = cache.entry_name("plan_walker", host_target())
    first, second, third, *_ = sorted(p for p in (folder / "kernels").glob("*/*.bin") if p.name != runner)
    first.write_bytes(first.read_bytes()[:-7])
    second.write_bytes(b"")
    changed = bytearray(third.read_bytes())
    changed[-1] ^= 1
    third.write_bytes(changed)
    assert step(folder) == (results, 3, 3, 3, compiled - 3 + RUNNER)
    assert step(folder) == (results, 0, 0, 0, compiled + RUNNER)


def test_processes_may_fill_one_folder_at_once(filled: tuple[Path, list[object], int], tmp_path: Path) -> None:
    _, results, compiled = filled
    running = [process(tmp_path / "new") for _ in range(4)]
    for found in [finish(one) for one in running]:
        assert found[0] == results
        assert found[3] + found[4] in (compiled, compiled + RUNNER)  # whether another was first with the runner
    names = [path.name for path in (tmp_path / "new" / "kernels").glob("*/*")]
    assert len(names) == compiled + RUNNER
    assert all(name.endswith(".bin") for name in names)
    assert step(tmp_path / "new") == (results, 0, 0, 0, compiled + RUNNER)


def test_a_file_in_the_place_of_the_folder_is_done_without(filled: tuple[Path, list[object], int], tmp_path: Path) -> None:
    _, results, compiled = filled
    (tmp_path / "taken").write_text("not a folder")
    assert step(tmp_path / "taken") == (results, compiled, compiled, compiled, 0)
    assert (tmp_path / "taken").read_text() == "not a folder"


def test_off_keeps_nothing(filled: tuple[Path, list[object], int]) -> None:
    _, results, compiled = filled
    assert step("off") == (results, compiled, compiled, compiled, 0)


# ---- one entry ----
def test_an_entry_comes_back_as_it_was(own_folder: Path) -> None:
    assert cache.store_binary("a.bin", binary())
    assert cache.load_binary("a.bin") == binary()
    assert cache.load_binary("b.bin") is None


def test_the_key_depends_on_text_target_and_the_compilers_source(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {cache.entry_name("kernel", TARGET), cache.entry_name("kernel 2", TARGET)}
    names.add(cache.entry_name("kernel", Target("CPU", "llvm", "any", vector_bytes=32)))
    assert cache.entry_name("kernel", TARGET) in names
    monkeypatch.setattr(cache, "compiler_digest", lambda: "another compiler")
    names.add(cache.entry_name("kernel", TARGET))
    assert len(names) == 4


def test_the_digest_covers_every_file_that_decides_what_a_binary_is() -> None:
    package = Path(cache.__file__).parent.parent
    covered = {part.removesuffix(".py").split("/")[0] for part in cache.STAGES}
    folders = {path.name for path in package.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}
    for stage in ("road", "ir", "schedule", "codegen", "dtype", "device", "devices"):
        assert stage in covered
        assert stage in folders or f"{stage}.py" in folders or (package / stage).is_dir()


def test_a_changed_source_file_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("engine", "ir"):
        (tmp_path / name).mkdir()
    (tmp_path / "engine" / "cache.py").write_text("1")
    (tmp_path / "ir" / "op.py").write_text("1")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "engine" / "cache.py"))
    digests = {cache.compiler_digest.__wrapped__()}
    (tmp_path / "ir" / "op.py").write_text("2")
    digests.add(cache.compiler_digest.__wrapped__())
    (tmp_path / "ir" / "note.txt").write_text("no source")
    digests.add(cache.compiler_digest.__wrapped__())
    assert len(digests) == 2
