"""Launches and bytes of a step of training on a Hopper GPU, by kernel: counted from the text of its kernels, with no GPU.

    python -m bench.gpu_counts --case "step: GPT-2"        what moves most first; --top chooses

In:    a case of bench.gpu
Out:   a row for each kind of launch: bytes, launches, its name, what it reads and stores

A launch counts once what each of its parameters holds, or of what is copied by maps of tiles what these hold: so a gather
counts all of its table, and nothing counts caches.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from bench.gpu_cases import Case, all_cases

ARCH, SHARED_NBYTES, MULTIPROCESSORS = "sm_90a", 227 << 10, 132  # of an H100
NAME = "H100_COUNTED"
UNITS = {"in": "reads", "out": "stores", "inout": "updates", "scratch": "between phases", "report": "reports"}


@dataclass
class Launched:
    """Launches that are alike.

    moved:  (what is done with it, bytes) of each parameter that a launch names
    """

    name: str
    moved: tuple[tuple[str, int], ...]
    count: int = 0

    @property
    def nbytes(self) -> int:
        return self.count * sum(nbytes for _, nbytes in self.moved)


@dataclass
class Counted:
    """The launches of a step, by name and bytes."""

    launched: dict[Any, Launched] = field(default_factory=dict)

    @property
    def launches(self) -> int:
        return sum(each.count for each in self.launched.values())

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.launched.values())

    def add(self, source: Any) -> None:
        """Counts the launches of a kernel."""
        for name, moved in moved_by(source):
            self.launched.setdefault((name, moved), Launched(name, moved)).count += 1


def moved_by(source: Any) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """Gives the name of each launch of a kernel, and the bytes of the parameters that its text names."""
    for launch in source.launches:
        text = source.text[source.text.index(f" {launch.symbol}(") :].split('extern "C"')[0]
        held: dict[int, int] = defaultdict(int)
        for tiles in launch.tile_maps:
            param = source.params[tiles.param]
            held[tiles.param] = min(param.nbytes, held[tiles.param] + prod(tiles.shape) * param.dtype.itemsize)
        for slot in {int(number) for number in re.findall(r"\bp(\d+)\b", text[text.index("{") :])}:
            held[slot] = source.params[slot].nbytes
        yield launch.symbol, tuple(sorted((source.params[slot].role, nbytes) for slot, nbytes in held.items()))


def count(case: Case) -> Counted:
    """Returns what the step of a case launches once it is a plan."""
    import picograd as pg
    from picograd.device import Target
    from picograd.devices.cuda.render import render
    from picograd.devices.null.backend import NullDevice
    from picograd.engine import devices
    from picograd.engine.compiler import Backend, Compiler

    plans: list[Sequence[int]] = []  # of each the numbers of its kernels' sources
    sources: list[Any] = []

    class Device(NullDevice):
        def load(self, binary: Any) -> Any:
            return binary.executable((None,) * len(binary.launches), int(binary.data))

        def make_runner(self, schedule: Any, executables: Any) -> Any:
            plans.append([each.owner for each in executables])
            return super().make_runner(schedule, executables)

    def compile_source(source: Any, _: Any) -> Any:
        sources.append(source)
        return source.binary(str(len(sources) - 1).encode())

    target = Target(
        "CUDA", "cuda", ARCH, vector_bytes=16, block_threads=256, shared_bytes=SHARED_NBYTES, has_mma=True,
        has_async_copies=True, has_warpgroups=True, multiprocessors=MULTIPROCESSORS,
    )  # fmt: skip
    device = Device(target)
    device.name = NAME
    backend = Backend(lambda program, _: render(program, target), compile_source)
    devices.FACTORIES[NAME], devices._compilers[NAME] = "picograd.devices.null.backend", Compiler(device, backend)
    os.environ["PICOGRAD_DEVICE"], os.environ["PICOGRAD_CACHE"] = NAME, "off"  # that it is there is known now
    assert case.make is not None, "steps alone are counted"
    pg.set_float32_matmul_precision("high" if case.takes_tf32 else "highest")
    pg.jit(case.make(pg))()
    found = Counted()
    for number in max(plans, key=len):
        found.add(sources[number])
    return found


def lines(found: Counted, top: int) -> list[str]:
    """Returns a row for each kind of launch, those that move most first."""
    rows = [f"{found.launches} launches, {found.nbytes / 1e9:.3f} GB"]
    for each in sorted(found.launched.values(), key=lambda each: -each.nbytes)[:top]:
        moved = ", ".join(f"{UNITS[role]} {nbytes / 1e6:.1f}" for role, nbytes in each.moved if nbytes >= 1e5)
        rows.append(f"{each.nbytes / 1e6:9.1f} MB in {each.count:3} of {each.name}: {moved}")
    return rows


def main(words: Sequence[str] | None = None) -> None:
    """Prints the table of a case."""
    parser = argparse.ArgumentParser("python -m bench.gpu_counts", description="Counts the launches and bytes of a step.")
    parser.add_argument("--case", default="step: GPT-2", help="a case of bench.gpu, by the beginning of its name")
    parser.add_argument("--small", action="store_true", help="use the small form of the case")
    parser.add_argument("--top", type=int, default=40, help="number of rows to print")
    arguments = parser.parse_args(words)
    cases = all_cases(arguments.small)
    name = next(name for name, case in cases.items() if name.startswith(arguments.case) and case.make is not None)
    print(name, *lines(count(cases[name]), arguments.top), sep="\n")


if __name__ == "__main__":
    main()
