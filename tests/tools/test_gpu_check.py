"""tools/gpu_check.py: what it finds stays whatever ends it, with no GPU here."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import in_full
from tools import gpu_check

SLOW = """
import subprocess, sys, time
def test_first(): pass
def test_second():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])
"""


@in_full
def test_parts_end_together_and_what_they_had_found_stays(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text(SLOW)
    command = [*gpu_check.PYTEST, "-q", "-c", os.devnull, f"--rootdir={tmp_path}", f"{tmp_path}/test_slow.py"]
    parts = [gpu_check.start(tmp_path, f"part_{i}", [*command, f"--junitxml={tmp_path}/{i}.xml"]) for i in range(2)]
    parts.append(gpu_check.start(tmp_path, "quick", [sys.executable, "-c", "raise SystemExit(3)"]))
    begin = time.monotonic()
    status = gpu_check.wait(parts, 8)
    assert time.monotonic() - begin < 8 + 2 * gpu_check.LAST_SECONDS
    assert status == {"part_0": "not done after 8 s", "part_1": "not done after 8 s", "quick": 3}
    found = [(test["name"], test["result"]) for test in gpu_check.results_of(tmp_path)]
    assert found == [("test_slow.test_first", "passed")] * 2
    assert all(process.poll() is not None for _, process in parts)


def test_who_does_not_hear_ctrl_c_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "LAST_SECONDS", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    parts = [gpu_check.start(tmp_path, "deaf", [sys.executable, "-c", deaf])]
    while not (tmp_path / "deaf.log").read_text():
        time.sleep(0.05)
    assert gpu_check.wait(parts, 0) == {"deaf": "not done after 0 s"}
    assert parts[0][1].poll() is not None


def test_results_that_were_cut_short_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "gpu.xml").write_text('<testsuite><testcase classname="a" name="b">')
    (found,) = gpu_check.results_of(tmp_path)
    assert (found["name"], found["result"]) == ("gpu", "error")


def test_what_sanitizers_say_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "compute-sanitizer"
    said = ["========= COMPUTE-SANITIZER", "1 passed in 2.00s", "=========", "========= ERROR SUMMARY: 1 error"]
    lines = "\n".join(f"echo '{line}'" for line in said)
    tool.write_text(f'#!/bin/sh\n{lines}\ntest "$2" = racecheck && exit $4\nexit 0\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpu_check.sanitizer() == str(tool)
    status = gpu_check.wait(gpu_check.start_sanitizers(tmp_path, str(tool)), 10)
    assert status == {"memcheck": 0, "racecheck": gpu_check.FOUND, "initcheck": 0, "synccheck": 0}
    expected = {"said": ["COMPUTE-SANITIZER", "ERROR SUMMARY: 1 error"], "tests": ["1 passed in 2.00s"]}
    assert gpu_check.said_by_sanitizers(tmp_path, status)["racecheck"] == {"status": gpu_check.FOUND, **expected}


def test_files_with_gpu_tests_are_found() -> None:
    files = gpu_check.files_with_gpu_tests()
    assert {"tests/devices/cuda/test_device.py", "tests/engine/test_ptx_device.py", *gpu_check.SANITIZED} <= set(files)
    assert "tests/devices/c/test_render.py" not in files  # it asks for other devices


def test_each_file_is_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "PYTEST", (sys.executable, "-c", ""))
    parts = gpu_check.start_tests(tmp_path)
    names = [name for name, _ in parts if name.startswith("gpu_")]
    assert len(set(names)) == len(names) == len(gpu_check.files_with_gpu_tests()) and "gpu_devices_cuda_device" in names
    assert set(gpu_check.wait(parts, 60).values()) == {0}
