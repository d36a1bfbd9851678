"""Kernels and whole steps on a GPU: picograd beside PyTorch, eager and compiled, in one process.

    python -m bench.gpu --json bench/results/NAME.json
    python -m bench.gpu --only matmul,softmax

In:    nothing
Out:   a row for each case; the raw samples of all as JSON

Times are of the device, between two events of the stream that does the work; without a GPU (`--device CPU`, which tries the
program itself) they are of the clock. Each sample repeats a case until it takes TIMED seconds; all variants of a case take
turns, SAMPLES times, after a warm-up that compiles. Inputs are standard normal numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.gpu_cases import Case, all_cases
from bench.machine import describe_commit, describe_machine, describe_versions

SAMPLES, TIMED, MOST_REPEATS = 7, 0.05, 2000
FAR = 1e-2  # between results of bfloat16; of float32 they are 1e-5 apart
MOST_COMPARED = 1 << 20  # elements of a result
Step = Callable[[], Any]
Timer = Callable[[Step], float]  # what is done -> the seconds it takes, all of it


@dataclass(frozen=True)
class Arguments:
    """What is measured.

    only:      comma list of first words of names; all if empty
    variants:  comma list of picograd, tuned (`jit(tune=True)`, with cuBLASLt for a candidate), torch, compiled
    device:    "CUDA", or "CPU" to try the program
    small:     sizes that a CPU can do
    json:      file that receives everything
    minutes:   after which no new case begins
    kernels:   number of kernels of picograd that are told below a case, the longest first
    """

    only: str = ""
    variants: str = "picograd,torch,compiled"
    device: str = "CUDA"
    small: bool = False
    json: Path | None = None
    minutes: float = 10.0
    kernels: int = 0


def parse(words: list[str] | None = None) -> Arguments:
    """Reads the command line. NOTE: argparse, which every Python has: this runs where little else is installed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Measures a GPU.")
    parser.add_argument("--only", default="", help="comma list of words with which names begin; all if empty")
    parser.add_argument("--variants", default=Arguments.variants, help="comma list of picograd, tuned, torch, compiled")
    parser.add_argument("--device", default="CUDA", help='"CUDA", or "CPU" for a trial of the program')
    parser.add_argument("--small", action="store_true", help="sizes small enough for a CPU")
    parser.add_argument("--json", type=Path, help="file that receives all samples")
    parser.add_argument("--minutes", type=float, default=Arguments.minutes, help="minutes after which no new case begins")
    parser.add_argument("--kernels", type=int, default=0, help="number of longest kernels to print below each case")
    return Arguments(**vars(parser.parse_args(words)))


@dataclass(frozen=True)
class Framework:
    """One way to run a case.

    make:       Case -> a step that submits its work, and returns a tensor, or some
    host:       a tensor -> float32 values
    timed:      runs something and returns its seconds on the device
    peak:       bytes of device memory, the most since it was asked before
    precision:  sets how exact products of float32 are: "highest", or "high" for TF32
    """

    make: Callable[[Case], Step]
    host: Callable[[Any], np.ndarray[Any, Any]]
    timed: Timer
    peak: Callable[[], int]
    precision: Callable[[str], None]


# ---- frameworks ----
def by_clock(work: Step) -> float:
    """Returns how long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def picograd_on(device: str, tune: bool) -> Framework:
    """Returns picograd, whose cases are one jitted function each, tuned or not."""
    os.environ["PICOGRAD_DEVICE"] = device
    import picograd as pg
    from picograd.engine.devices import compiler_for

    timed: Timer = compiler_for(device).device.timed if device == "CUDA" else by_clock  # type: ignore[attr-defined]

    def make(case: Case) -> Step:
        if case.make is not None:
            return pg.jit(case.make(pg), tune=tune)
        operands = [pg.Tensor(array).cast(getattr(pg, case.dtype)).realize() for array in case.operands()]
        if case.is_pull:
            *primals, cotangent = operands
            gradients = pg.jit(
                lambda *args: pg.vjp(lambda *x: case.compute(pg, pg.nn.functional, *x), *args[:-1])[1](args[-1]),
                tune=tune,
            )
            return lambda: gradients(*primals, cotangent)
        compute = pg.jit(lambda *args: case.compute(pg, pg.nn.functional, *args), tune=tune)
        return lambda: compute(*operands)

    def peak() -> int:
        memory = compiler_for(device).device.memory
        found = memory.peak
        memory.reset_peak()
        return int(found)

    return Framework(make, lambda tensor: tensor.float().numpy(), timed, peak, pg.set_float32_matmul_precision)


def torch_on(device: str, is_compiled: bool) -> Framework:
    """Returns PyTorch; compiled, each case is one function of torch.compile."""
    import torch

    torch.set_default_device(device.lower())
    torch.set_float32_matmul_precision("highest")

    def by_events(work: Step) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def make(case: Case) -> Step:
        mode = "reduce-overhead" if case.replays else "default"
        if is_compiled:
            torch._dynamo.reset()
        if case.make is not None:
            step = case.make(torch)
            return torch.compile(step, mode=mode) if is_compiled else step
        operands = [torch.tensor(array).to(getattr(torch, case.dtype)) for array in case.operands()]

        def forward(*x: Any) -> Any:
            return case.compute(torch, torch.nn.functional, *x)

        compute = torch.compile(forward, mode=mode) if is_compiled else forward
        if not case.is_pull:
            return lambda: compute(*operands)
        *primals, cotangent = operands
        for primal in primals:
            primal.requires_grad_()
        return lambda: torch.autograd.grad(compute(*primals), primals, cotangent)

    def peak() -> int:
        if device != "CUDA":
            return 0
        found = int(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        return found

    def host(tensor: Any) -> np.ndarray[Any, Any]:
        return np.asarray(tensor.detach().float().cpu().numpy())

    timed: Timer = by_events if device == "CUDA" else by_clock
    return Framework(make, host, timed, peak, torch.set_float32_matmul_precision)


# ---- measuring ----
def copy_bandwidth(device: str, timed: Timer, nbytes: int) -> list[float]:
    """Returns samples of the bytes a second that the driver's own copy within the device reads and writes."""
    from picograd.engine.devices import compiler_for

    memory = compiler_for(device).device
    source, target = memory.allocate(nbytes), memory.allocate(nbytes)
    repeats = max(1, (8 << 30) // nbytes) if device == "CUDA" else 1

    def copies() -> None:
        for _ in range(repeats):
            memory.copy(target, source, nbytes)

    timed(copies)
    return [2.0 * repeats * nbytes / timed(copies) for _ in range(SAMPLES)]


@contextmanager
def precision_of(case: Case, frameworks: dict[str, Framework]) -> Iterator[None]:
    """Lets products be as exact as a case asks for, in every framework."""
    for framework in frameworks.values():
        framework.precision("high" if case.takes_tf32 else "highest")
    try:
        yield
    finally:
        for framework in frameworks.values():
            framework.precision("highest")


def repeats_of(framework: Framework, step: Step) -> int:
    """Returns how often a sample repeats a step, which is warm afterwards."""
    for _ in range(3):
        framework.timed(step)
    return min(MOST_REPEATS, max(1, int(TIMED / max(framework.timed(step), 1e-7))))


def measure(case: Case, frameworks: dict[str, Framework], with_kernels: bool = False) -> dict[str, Any]:
    """Returns each framework's samples in seconds, or the error that it ended with.

    Beside the samples are the seconds of its first call, with all compilation, and its peak memory.

    Args:
      with_kernels:  adds the calls and the seconds of each kernel of picograd by name
    """
    found: dict[str, Any] = {name: {} for name in frameworks}
    steps: dict[str, tuple[Step, int]] = {}
    for name, framework in frameworks.items():
        try:
            framework.peak()
            step = framework.make(case)
            first = by_clock(lambda framework=framework, step=step: framework.timed(step))  # type: ignore[misc]
            steps[name] = step, repeats_of(framework, step)
            peak = framework.peak()
            found[name] = {"samples": [], "peak_nbytes": peak, "repeats": steps[name][1], "first_s": first}
        except Exception as error:  # one that fails must not cost the figures of the others; what failed is shown
            found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    if case.make is None:
        for name, distance in distances({name: each[0] for name, each in steps.items()}, frameworks).items():
            found[name]["distance"] = distance
    for _ in range(SAMPLES):
        for name, (step, count) in steps.items():
            seconds = frameworks[name].timed(partial(repeat, step, count))
            found[name]["samples"].append(seconds / count)
    if with_kernels and "picograd" in steps:
        found["picograd"]["kernels"] = times_by_kernel(steps["picograd"][0])
    return found


def times_by_kernel(step: Step) -> dict[str, tuple[int, float]]:
    """Returns the calls and the seconds of each kernel that a step has the GPU run, the longest first."""
    from picograd.cuda import kernel_times

    found: dict[str, tuple[int, float]] = {}
    for name, seconds in kernel_times(step):
        calls, sum_s = found.get(name, (0, 0.0))
        found[name] = calls + 1, sum_s + seconds
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def repeat(step: Step, count: int) -> None:
    """Runs a step `count` times; no result outlives the next step, so memory does not grow with the count."""
    for _ in range(count):
        step()


def distances(steps: dict[str, Step], frameworks: dict[str, Framework]) -> dict[str, float]:
    """Returns how far each one's results are from the first one's, |a - b| / |b|: the greatest of all tensors."""
    results = {}
    for name, step in steps.items():
        result = step()
        tensors = result if isinstance(result, (tuple, list)) else [result]
        results[name] = [some_of(frameworks[name].host(tensor)) for tensor in tensors]
    first = next(iter(results.values()), [])
    return {
        name: max(float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)) for a, b in zip(own, first, strict=True))
        for name, own in results.items()
    }


def some_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns elements of an array in even steps, as float64: of large ones not all, of all rows and columns some."""
    flat = values.reshape(-1)
    return flat[:: max(1, flat.size // MOST_COMPARED) | 1].astype(np.float64)


def line_of(name: str, case: Case, found: dict[str, Any], copied: float) -> str:
    """Returns the row of a case: each one's time, rate, and the others' times over picograd's.

    Args:
      copied:  bytes a second of a copy
    """
    times = {variant: median(each["samples"]) for variant, each in found.items() if each.get("samples")}
    texts = []
    for variant, each in found.items():
        if variant not in times:
            texts.append(f"{variant} {each['error']}")
            continue
        ratio = f" {times[variant] / times['picograd']:5.2f}x" if "picograd" in times and variant != "picograd" else ""
        far = f" DIFFERS by {each['distance']:.1e}" if each.get("distance", 0) > FAR else ""
        share = f" ({case.work / times[variant] / copied:.0%} of a copy)" if case.unit == "B" else ""
        texts.append(f"{variant} {times[variant] * 1e6:10.1f} us {case.rate(times[variant])}{share}{ratio}{far}")
    return f"{name:44} {'   '.join(texts)}"


def describe_gpu() -> dict[str, str]:
    """Returns what nvidia-smi says of the first GPU: name, driver, clocks in MHz, power limit in W, memory in MiB."""
    fields = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,memory.total"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        values = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    except (OSError, subprocess.CalledProcessError) as error:
        return {"nvidia-smi": str(error)}
    return dict(zip(fields.split(","), values))


def describe_library() -> str:
    """Returns the version of cuBLASLt, a candidate for what is tuned, or the reason why there is no such candidate."""
    from picograd.devices.cuda.cublaslt import library_name, why_no_library

    return why_no_library() or library_name()


def selected(arguments: Arguments) -> Iterator[tuple[str, Case, list[str]]]:
    """Gives name, case and variants: all without torch.compile, then those of which it makes something else."""
    words = tuple(word for word in arguments.only.split(",") if word)
    chosen = {name: case for name, case in all_cases(arguments.small).items() if not words or name.startswith(words)}
    variants = [name for name in arguments.variants.split(",") if name]
    plain = [name for name in variants if name != "compiled"]
    for name, case in chosen.items():
        if plain:
            yield name, case, plain
    for name, case in chosen.items():
        if case.is_compiled and "compiled" in variants:
            yield f"{name}, compiled", case, [each for each in variants if each not in ("torch", "tuned")]


def main(arguments: Arguments) -> None:
    """Prints a row for each case and keeps all samples."""
    makers: dict[str, Callable[[], Framework]] = {
        "picograd": lambda: picograd_on(arguments.device, False),
        "tuned": lambda: picograd_on(arguments.device, True),
        "torch": lambda: torch_on(arguments.device, False),
        "compiled": lambda: torch_on(arguments.device, True),
    }
    begin = time.perf_counter()
    frameworks = {name: makers[name]() for name in dict.fromkeys(["picograd", *arguments.variants.split(",")])}
    copies = copy_bandwidth(arguments.device, frameworks["picograd"].timed, 4 << 20 if arguments.small else 1 << 30)
    report: dict[str, Any] = {
        "arguments": {name: str(value) for name, value in asdict(arguments).items() if name != "json"},
        **describe_commit(),
        "machine": describe_machine(),
        "gpu": describe_gpu(),
        "library": describe_library(),
        "versions": describe_versions(),
        "copy_bytes_per_s": copies,
        "cases": {},
    }
    print(f"a copy within {arguments.device} reads and writes {median(copies) / 1e9:.1f} GB/s", flush=True)
    for name, case, variants in selected(arguments):
        if time.perf_counter() - begin > 60 * arguments.minutes:
            print(f"{name}: left out, {arguments.minutes} minutes are over", flush=True)
            report["cases"][name] = {"left_out": "no time"}
            continue
        own = {variant: frameworks[variant] for variant in variants}
        with precision_of(case, own):
            found = measure(case, own, bool(arguments.kernels) and arguments.device == "CUDA")
        report["cases"][name] = {"work": case.work, "unit": case.unit, **found}
        report["gpu_at_the_end"] = describe_gpu()
        print(line_of(name, case, found, median(copies)), flush=True)
        for kernel, (calls, seconds) in list(found.get("picograd", {}).get("kernels", {}).items())[: arguments.kernels]:
            print(f"  {seconds * 1e6:10.1f} us in {calls:4} calls of {kernel}", flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(parse())
