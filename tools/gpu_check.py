"""Runs what needs a GPU and writes what came out to a folder: gpu_check.json, the logs, gpu_bench.json.

    python -m tools.gpu_check DIR

In:    a folder
Out:   gpu_check.json: the machine and one result a test; NAME.log of each part; gpu_bench.json: bench.gpu's samples
Called by: tools/gpu_check.sh

First the tests that are about a GPU alone, beside the table of operations on CUDA in as many processes as there are
processors to spare; then, alone, the bench. Each part ends when its time is over; what it had found until then stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as tree
from collections import Counter
from pathlib import Path
from typing import Any

from picograd.compile import nvrtc
from picograd.errors import CompileError
from picograd.runtime import cuda_driver
from picograd.runtime.cuda import CudaDevice

TEST_SECONDS, BENCH_SECONDS = 240, 220
MOST_PARTS = 12
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs")


def start(folder: Path, name: str, command: list[str], **variables: str) -> tuple[str, subprocess.Popen[bytes]]:
    """Starts a part whose output goes to `name`.log."""
    with open(folder / f"{name}.log", "wb") as log:
        return name, subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | variables)


def wait(parts: list[tuple[str, subprocess.Popen[bytes]]], seconds: float) -> dict[str, int | str]:
    """Returns the exit status of each part; one that does not end in time is ended."""
    found: dict[str, int | str] = {}
    for name, process in parts:
        try:
            found[name] = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            found[name] = f"not done after {seconds} s"
    return found


def start_tests(folder: Path) -> list[tuple[str, subprocess.Popen[bytes]]]:
    """Starts the tests marked gpu, and the values of the table of operations in several parts."""
    count = max(1, min(MOST_PARTS, (os.cpu_count() or 1) - 2))
    parts = [start(folder, "gpu", [*PYTEST, "-m", "gpu", f"--junitxml={folder}/gpu.xml", "tests"])]
    for part in range(count):
        name = f"operations_{part}"
        command = [*PYTEST, "-k", "test_values", f"--junitxml={folder}/{name}.xml", "tests/operations/test_operations.py"]
        parts.append(start(folder, name, command, TEST_DEVICES="CUDA", TEST_PART=f"{part}/{count}"))
    return parts


def results_of(folder: Path) -> list[dict[str, Any]]:
    """Returns name, result and seconds of each test that has ended."""
    found: list[dict[str, Any]] = []
    for junit in sorted(folder.glob("*.xml")):
        for case in tree.parse(junit).getroot().iter("testcase"):
            tags = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            name = f"{case.get('classname')}.{case.get('name')}"
            found.append({"name": name, "result": tags[0] if tags else "passed", "time_s": float(case.get("time", 0))})
        junit.unlink()
    return found


def describe() -> dict[str, Any]:
    """Returns what there is: the GPU or why there is none, NVRTC's version, the driver's."""
    reason = cuda_driver.available()
    try:
        version: str = ".".join(map(str, nvrtc.version()))
    except CompileError as error:
        version = error.fact
    report: dict[str, Any] = {"no_gpu": reason, "nvrtc": version}
    if reason is None:
        report["arch"] = CudaDevice().target.arch
        report["driver"] = cuda_driver.call("cuDriverGetVersion")
        report["device"] = cuda_driver.call("cuDeviceGetName", 128, 0).decode().rstrip("\0 ")
    return report


def main(folder: Path) -> int:
    """Runs everything; returns 0 where all that could run has passed."""
    folder.mkdir(parents=True, exist_ok=True)
    report = describe()
    status = wait(start_tests(folder) if report["no_gpu"] is None else [], TEST_SECONDS)
    if report["no_gpu"] is None:
        minutes = f"{BENCH_SECONDS / 60 - 0.5:.1f}"
        command = [sys.executable, "-m", "bench.gpu", "--minutes", minutes, "--json", f"{folder}/gpu_bench.json"]
        status |= wait([start(folder, "bench", command)], BENCH_SECONDS)
    tests = results_of(folder)
    report |= {"exit_status": status, "counts": dict(Counter(test["result"] for test in tests)), "tests": tests}
    (folder / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
    print(report.get("device", report["no_gpu"]), report["counts"], status)
    for test in tests:
        if test["result"] in ("failure", "error"):
            print(test["result"], test["name"])
    return int(any(value != 0 for value in status.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
