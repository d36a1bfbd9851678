"""`picograd fuzz` finds what is wrong, makes it small, and prints it as a script that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd.errors import ArgumentError, DeviceError
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd_lab.fuzz import check
from picograd_lab.fuzz.failures import literal, script, shrink
from picograd_lab.fuzz.graphs import any_graph, smooth_graph
from picograd_lab.fuzz.run import KINDS, FuzzConfig, fuzz, try_seed


def test_a_minute_of_seeds_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = fuzz(FuzzConfig(minutes=0.01, seed=3, folder=tmp_path / "failures"))
    assert status == 0 and "seeds from 3 on" in capsys.readouterr().out
    assert not (tmp_path / "failures").exists()


@pytest.mark.parametrize("config, fact", [
    (FuzzConfig(kinds=("shapes",)), "fuzz: kinds are values, gradients, writes, opts, programs; got shapes."),
    (FuzzConfig(kinds=()), "fuzz: kinds are values, gradients, writes, opts, programs; got none."),
    (FuzzConfig(minutes=0.0), "fuzz: minutes must be above 0, got 0.0."),
])  # fmt: skip
def test_a_wrong_setting_is_refused(config: FuzzConfig, fact: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        fuzz(config)
    assert caught.value.fact == fact


def seed_with(code: OpCode, kind: str) -> int:
    """The first seed whose graph has an Op of this code."""
    make = any_graph if kind == "values" else smooth_graph
    return next(seed for seed in range(4, 4000, 8) if code in {op.code for op in toposort(make(seed).roots)})


def test_a_wrong_kernel_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """A device on which every graph with a SCAN comes out 1 too large."""
    right = check.run_on

    def wrong(device: str, roots: Any, arrays: Any) -> Any:
        found = right(device, roots, arrays)
        return [x + 1 if OpCode.SCAN in {op.code for op in toposort([op])} else x for x, op in zip(found, roots)]

    monkeypatch.setattr(check, "run_on", wrong)
    seed = seed_with(OpCode.SCAN, "values")
    failure, _ = try_seed("values", seed, "CPU")
    assert failure is not None and failure.kind == "values" and "differ by more than" in failure.error
    lines = [line for line in failure.source.splitlines() if line.startswith("%")]
    assert len(lines) <= 3 and any(" SCAN " in line for line in lines)
    assert fuzz(FuzzConfig(minutes=1e-9, seed=len(KINDS) * seed, folder=tmp_path)) == 1
    assert f"values_{seed}.py" in capsys.readouterr().out
    assert (tmp_path / f"values_{seed}.py").read_text().startswith("# picograd fuzz: values, seed")


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose gradients are a thousandth too large."""
    right = check.gradient

    def wrong(root: Any, seed: Any, leaves: Any) -> Any:
        grads = right(root, seed, leaves)
        return {leaf: grad * 1.001 for leaf, grad in grads.items()}

    monkeypatch.setattr(check, "gradient", wrong)
    failures = [try_seed("gradients", seed, "NUMPY")[0] for seed in range(8)]
    assert any(failure is not None and "along a direction, the slope is" in failure.error for failure in failures)


def test_the_script_fails_when_it_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here it is right, so it passes; with a device that computes nothing it says what differs."""
    graph = any_graph(seed_with(OpCode.SCAN, "values"))
    small = shrink(graph, lambda g: (_ for _ in ()).throw(ValueError) if _has_scan(g) else None)
    source = script(small, "check_values", "'CPU'", "seed 1", "two\nlines")
    path = tmp_path / "failing.py"
    path.write_text(source)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    broken = "from picograd_lab.fuzz import check\ncheck.run_on = lambda *a: [np.zeros(9)]\ncheck_values("
    path.write_text(source.replace("check_values(", broken))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 1 and "Wrong: root 0 on CPU" in done.stderr


def _has_scan(graph: Any) -> bool:
    return OpCode.SCAN in {op.code for op in toposort(graph.roots)}


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "uint64"])
def test_arrays_are_written_with_all_their_bits(dtype: str, rng: np.random.Generator) -> None:
    array = (rng.uniform(0, 100, (2, 0 if dtype == "bool" else 3))).astype(dtype)
    array = array << np.uint64(56) if dtype == "uint64" else array
    found = eval(literal(array), {"np": np})
    assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)


def test_a_device_that_is_not_here_is_told_before_the_first_seed(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="this is not a device"):
        fuzz(FuzzConfig(device="abacus", folder=tmp_path))
    assert not list(tmp_path.iterdir())
