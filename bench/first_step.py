"""Times the way from a fresh process to the end of the first step, and the memory it took.

In:    python -m bench.first_step VARIANT WORKLOAD; the caches are where the environment says
Out:   one line of JSON, the figures that `first_step` returns
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy  # noqa: F401  every framework needs it: its import is nobody's cost

from bench.language import Language
from bench.peers import load
from bench.runner import make_runner
from bench.workloads import WORKLOADS, make_data

NUM_STEPS = 5
NUM_DEEP_STEPS = 2  # of the networks that are only there to be compiled


def peak_resident_nbytes() -> int:
    """The most resident memory this process has had.

    NOTE: on Linux ru_maxrss is at least the parent's at the time it started this process; VmHWM is this process's own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> None:
    """Makes the peak start from what is resident now, where the system can (Linux, proc(5), clear_refs 5)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def first_step(variant: str, name: str) -> dict[str, float | int | None]:
    """Returns the figures of one fresh process.

    import_s, first_s:   importing the framework; making tensors and network, and the first step, until it is done
    start_nbytes:        resident memory before the import, the data included
    resident_nbytes:     peak resident memory after five steps, two for the deep networks
    tensor_nbytes:       peak bytes of tensors, as the framework counts them; None when it does not
    scratch_nbytes:      how much higher that peak is with what kernels work in; None when the framework does not tell
    kernels, binaries:   run in a later step; compiled or loaded until the end of the first. None: not counted
    """
    workload = WORKLOADS[name]
    data = make_data(workload)
    forget_peak()
    start_nbytes = peak_resident_nbytes()
    start = time.perf_counter()
    peer = load(variant)
    imported = time.perf_counter()
    runner = make_runner(peer, workload, variant, data)
    binaries = peer.count(lambda: runner.step(runner.granularity))["binaries"]
    done = time.perf_counter()
    is_deep = isinstance(workload, Language) and workload.group == "depth"
    for _ in range((NUM_DEEP_STEPS if is_deep else NUM_STEPS) - 2):
        runner.step(runner.granularity)
    kernels = peer.count(lambda: runner.step(runner.granularity))["kernels"]
    figures: dict[str, float | int | None] = {
        "import_s": imported - start,
        "first_s": done - imported,
        "start_nbytes": start_nbytes,
        "resident_nbytes": peak_resident_nbytes(),
        "kernels": kernels,
        "binaries": binaries,
    }
    figures["tensor_nbytes"] = None if is_deep else peer.tensor_nbytes(runner)
    figures["scratch_nbytes"] = None if is_deep else peer.scratch_nbytes()
    return figures


def main() -> None:
    """Prints the figures; what the framework prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(first_step(sys.argv[1], sys.argv[2])), file=answers, flush=True)


if __name__ == "__main__":
    main()
