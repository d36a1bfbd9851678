"""Runs what needs a GPU and writes what came out to a folder: gpu_check.json, the logs, gpu_bench.json.

    python -m tools.gpu_check DIR

In:    a folder
Out:   gpu_check.json: the machine, one result a test, what the sanitizers found; NAME.log of each part;
       gpu_bench.json: bench.gpu's samples

First the tests that are about a GPU alone, beside the table of operations on CUDA in as many processes as there are
processors to spare; then some of these tests under each tool of compute-sanitizer; then, alone, the bench. Each part ends
when its time is over; what it had found until then stays. Packages that a test needs and this machine lacks cost that test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as tree
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tyro

from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda import driver as cuda_driver
from picograd.devices.cuda.backend import make_device
from picograd.engine.devices import reason_of
from picograd.errors import CompileError

TEST_SECONDS, SANITIZER_SECONDS, BENCH_SECONDS, LAST_SECONDS = 165, 55, 205, 8
MOST_PARTS = 10
TESTS = Path("tests")
MARKS = re.compile(r'mark\.gpu|\b(device_params|on)\([^)]*"(CUDA|PTX)"')  # in files with tests that need a GPU
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "--continue-on-collection-errors")
# compute-sanitizer's tools, and the tests that run under each: every kind of kernel, few launches of each.
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SANITIZED = ("tests/engine/test_cuda_devices.py", "tests/devices/cuda/test_async_copies.py")
FOUND = 99  # the status compute-sanitizer is asked to exit with where it has found something
Part = tuple[str, "subprocess.Popen[bytes]"]


# ---- parts ----
def start(folder: Path, name: str, command: Sequence[str], **variables: str) -> Part:
    """Starts a part, in a group of processes of its own; its output goes to `name`.log."""
    with open(folder / f"{name}.log", "wb") as log:
        environment = os.environ | variables
        return name, subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def wait(parts: Sequence[Part], seconds: float) -> dict[str, int | str]:
    """Returns the exit status of each part; those that are not done when the time is over are ended."""
    until, found = time.monotonic() + seconds, dict[str, int | str]()
    for name, process in parts:
        try:
            found[name] = process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            found[name] = f"not done after {seconds} s"
    end([process for _, process in parts if process.poll() is None])
    return found


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends processes as Ctrl-C does, for pytest to write what it has; then, if they go on, with all that they started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        until = time.monotonic() + LAST_SECONDS
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        processes = [process for process in processes if process.poll() is None]


# ---- tests ----
def files_with_gpu_tests() -> list[str]:
    """Returns the files of tests that need a GPU: to collect all others takes time, and packages."""
    return sorted(str(path) for path in TESTS.rglob("test_*.py") if MARKS.search(path.read_text()))


def start_tests(folder: Path) -> list[Part]:
    """Starts the tests marked gpu, and the values of the table of operations in several parts.

    Each file has a process of its own: after a kernel that touches what it must not, no other runs in its process.
    """
    count = max(1, min(MOST_PARTS, (os.cpu_count() or 1) - 2))
    parts = []
    for file in files_with_gpu_tests():
        name = "gpu_" + file.removeprefix("tests/").removesuffix(".py").replace("test_", "").replace("/", "_")
        parts.append(start(folder, name, [*PYTEST, "-m", "gpu", "--full", f"--junitxml={folder}/{name}.xml", file]))
    for part in range(count):
        name = f"operations_{part}"
        values = "tests/operations/test_operations.py::test_values_on_a_device"  # all samples, as it is named
        command = [*PYTEST, f"--junitxml={folder}/{name}.xml", values]
        parts.append(start(folder, name, command, TEST_DEVICES="CUDA", TEST_PART=f"{part}/{count}"))
    return parts


def results_of(folder: Path) -> list[dict[str, Any]]:
    """Returns name, result, seconds of each test that has ended, and the first lines of what went wrong."""
    found: list[dict[str, Any]] = []
    for junit in sorted(folder.glob("*.xml")):
        try:
            root = tree.parse(junit).getroot()
        except tree.ParseError as error:  # its process was ended while it wrote
            found.append({"name": junit.stem, "result": "error", "time_s": 0.0, "message": f"{junit.name}: {error}"})
            continue
        for case in root.iter("testcase"):
            if case.get("name") is None:  # it was under way when its process was ended
                continue
            wrong = [child for child in case if child.tag in ("failure", "error", "skipped")]
            name = f"{case.get('classname')}.{case.get('name')}"
            result = {"name": name, "result": wrong[0].tag if wrong else "passed", "time_s": float(case.get("time", 0))}
            if wrong:
                result["message"] = (wrong[0].get("message") or "")[:500]
            found.append(result)
        junit.unlink()
    return found


# ---- compute-sanitizer ----
def sanitizer() -> str | None:
    """Returns the path of compute-sanitizer: of PATH, or of a CUDA toolkit in its usual place."""
    places = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    places += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    folders = [place / folder for place in places for folder in ("bin", "compute-sanitizer")]
    found = (shutil.which("compute-sanitizer", path=str(folder)) for folder in folders)
    return shutil.which("compute-sanitizer") or next(filter(None, found), None)


def start_sanitizers(folder: Path, path: str) -> list[Part]:
    """Starts some tests under each tool; the status is FOUND where it has something to say."""
    tests = [*PYTEST, "-m", "gpu", "--full", *SANITIZED]
    options = ["--error-exitcode", str(FOUND), "--print-limit", "20"]
    return [start(folder, tool, [path, "--tool", tool, *options, *tests]) for tool in TOOLS]


def said_by_sanitizers(folder: Path, status: dict[str, int | str]) -> dict[str, Any]:
    """Returns each tool's exit status, and its own lines: what it found, and their sum."""
    found = {}
    for tool in TOOLS:
        lines = (folder / f"{tool}.log").read_text(errors="replace").splitlines()
        own = [line.strip("= ") for line in lines if line.startswith("=========") and line.strip("= ")]
        tests = [line for line in lines if re.match(r"\d+ (passed|failed)", line)]
        found[tool] = {"status": status[tool], "said": own[:60] + own[60:][-1:], "tests": tests}
    return found


# ---- all of it ----
def describe() -> dict[str, Any]:
    """Returns what there is: the GPU or why there is none, NVRTC's version, the driver's."""
    reason = reason_of(cuda_driver.capability)
    try:
        version: str = ".".join(map(str, nvrtc.version()))
    except CompileError as error:
        version = error.fact
    report: dict[str, Any] = {"no_gpu": reason, "nvrtc": version}
    if reason is None:
        report["arch"] = make_device().target.arch
        report["driver"] = cuda_driver.call("cuDriverGetVersion")
        report["device"] = cuda_driver.call("cuDeviceGetName", 128, 0).decode().rstrip("\0 ")
    return report


def run_all(folder: Path) -> dict[str, Any]:
    """Runs every part; returns their status, and what sanitizers and tests have found."""
    status = wait(start_tests(folder), TEST_SECONDS)
    path = sanitizer()
    said: Any = "compute-sanitizer is neither on PATH nor in a CUDA toolkit: nothing ran under it"
    if path is not None:
        by_tool = wait(start_sanitizers(folder, path), SANITIZER_SECONDS)
        said, status = said_by_sanitizers(folder, by_tool), status | by_tool
    minutes = f"{BENCH_SECONDS / 60 - 0.5:.1f}"
    command = [sys.executable, "-m", "bench.gpu", "--minutes", minutes, "--json", f"{folder}/gpu_bench.json"]
    status |= wait([start(folder, "bench", command)], BENCH_SECONDS)
    tests = results_of(folder)
    counts = dict(Counter(test["result"] for test in tests))
    return {"exit_status": status, "sanitizers": said, "counts": counts, "tests": tests}


def main(folder: tyro.conf.Positional[Path]) -> int:
    """Runs what needs a GPU; returns 0 if everything that could run has passed.

    Args:
      folder: folder to write to
    """
    folder.mkdir(parents=True, exist_ok=True)
    report = describe()
    if report["no_gpu"] is None:
        report |= run_all(folder)
    (folder / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
    if report["no_gpu"] is not None:
        print(report["no_gpu"])
        return 0
    print(report["device"], report["counts"], report["exit_status"])
    if isinstance(report["sanitizers"], str):
        print(report["sanitizers"])
    for test in report["tests"]:
        if test["result"] in ("failure", "error"):
            print(test["result"], test["name"], test["message"].splitlines()[:1])
    return int(any(value != 0 for value in report["exit_status"].values()))


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m tools.gpu_check"))
