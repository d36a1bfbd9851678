"""Times what the CPU's plan walker and its threads add to the work of kernels. picograd only.

    python -m bench.plans                   two threads; a few seconds
    python -m bench.plans --threads 4

In:    the number of threads
Out:   lines on the screen: time per kernel that is not its work, for kernels of one thread and for shared ones; how long
       after the leader a helper begins, where it still looks for a plan and where it sleeps; from which size on kernels
       that only read and write are better shared
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro

from picograd import dtype as dtypes
from picograd.devices.compile_llvm import compile_source, host_target
from picograd.devices.cpu.device import CPUDevice
from picograd.devices.cpu.plan import SHARE_WORK
from picograd.devices.cpu.walker import libc_address, walker_source
from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse, Kernel, Launch, Param, Schedule, ScheduleItem, Source

NUM_KERNELS = 200  # a plan of them is shorter than the time slices of a busy machine
PIECES = 8  # iterations of a shared kernel: what two threads get four chunks each of
LONG_PIECES = 128
PAUSE_S = 0.002  # ten times as long as a helper looks for a plan
ROW = 8  # words that a piece writes: a cache line
WORDS = ROW * LONG_PIECES
# A piece multiplies for a while; it leaves when it began, in seconds and nanoseconds, and where its thread has its stack.
KERNEL = """
define void @NAME(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %here = alloca [2 x i64], align 16
  %stack = ptrtoint ptr %here to i64
  %out = load ptr, ptr %arguments, align 8
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %store ]
  %some = icmp slt i64 %i, %end
  br i1 %some, label %start, label %done
start:
  %at = mul i64 %i, ROW
  %row = getelementptr i64, ptr %out, i64 %at
  STAMP
  br label %work
work:
  %k = phi i64 [ 0, %start ], [ %k.next, %work ]
  %x = phi i64 [ %i, %start ], [ %x.next, %work ]
  %scaled = mul i64 %x, 6364136223846793005
  %x.next = add i64 %scaled, 1442695040888963407
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, LENGTH
  br i1 %again, label %work, label %store
store:
  %result.at = getelementptr i64, ptr %row, i64 3
  store i64 %x, ptr %result.at, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""
STAMP = """
  %clock = inttoptr i64 CLOCK to ptr
  %status = call i32 %clock(i32 WHICH, ptr %row)
  %stack.at = getelementptr i64, ptr %row, i64 2
  store i64 %stack, ptr %stack.at, align 8
"""
BLOCK = 256  # elements of an iteration of a kernel that reads and writes
SIZES = tuple(1 << bits for bits in range(12, 20))
SCALE = """
define void @NAME(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %in = load ptr, ptr %arguments, align 8
  %out.at = getelementptr i64, ptr %arguments, i64 1
  %out = load ptr, ptr %out.at, align 8
  %first = mul i64 %begin, BLOCK
  %last = mul i64 %end, BLOCK
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %work ]
  %some = icmp slt i64 %i, %last
  br i1 %some, label %work, label %done
work:
  %x.at = getelementptr float, ptr %in, i64 %i
  %x = load <16 x float>, ptr %x.at, align 64
  %y = fmul <16 x float> %x, %x
  %y.at = getelementptr float, ptr %out, i64 %i
  store <16 x float> %y, ptr %y.at, align 64
  %next = add i64 %i, 16
  br label %head
done:
  ret void
}
"""


@dataclass(frozen=True)
class Arguments:
    """Measures the overhead of plans."""

    # Threads of the plans.
    threads: int = 2
    # Dependent multiplications in a piece of a kernel; 600 take about a microsecond.
    length: int = 600
    # Runs of each plan.
    repeats: int = 1000


class Bench:
    """A device, and plans of kernels that compute without reading memory."""

    def __init__(self, length: int):
        target = host_target()
        self.device, self.length = CPUDevice(target, compile_source(walker_source(), target)), length
        self.out = Buffer("CPU", dtypes.int64, WORDS, self.device.allocate(8 * WORDS))
        self.pair = [Buffer("CPU", dtypes.float32, SIZES[-1], self.device.allocate(4 * SIZES[-1])) for _ in range(2)]
        for buffer in self.pair:
            self.device.copy_in(buffer.memory, np.ones(SIZES[-1], np.float32))

    def plan(self, num_kernels: int, pieces: int, work: int, num_threads: int, stamps: bool = False) -> Callable[[], None]:
        """Returns what runs kernels one after the other, each of `pieces` iterations that count as `work`."""
        os.environ["PICOGRAD_THREADS"] = str(num_threads)
        params, name = (Param(dtypes.int64, WORDS, "out"),), f"busy_{pieces}"
        stamp = STAMP.replace("CLOCK", str(libc_address("clock_gettime"))).replace("WHICH", str(time.CLOCK_MONOTONIC))
        text = KERNEL.replace("NAME", name).replace("LENGTH", str(self.length if work > 1 else 1))
        text = text.replace("STAMP", stamp if stamps else "").replace("ROW", str(ROW))
        source = Source(name, "llvm", text, params, (), (Launch(name, pieces, 1, work),))
        executable = self.device.load(compile_source(source, self.device.target))
        items = (ScheduleItem(Kernel(name, params, (), ()), (0,)),) * num_kernels
        schedule = Schedule(items, (BufferUse(dtypes.int64, WORDS, "output", 0),), (), (0,), 0)
        runner = self.device.make_runner(schedule, [executable] * num_kernels)
        return lambda: runner([], [self.out], {})

    def chain(self, numel: int, num_threads: int) -> Callable[[], None]:
        """Returns what runs kernels that read one buffer and write the other, and back; all threads share them."""
        os.environ["PICOGRAD_THREADS"] = str(num_threads)
        name, params = "scale", tuple(Param(dtypes.float32, numel, role) for role in ("in", "out"))
        launch = Launch(name, numel // BLOCK, 1, SHARE_WORK * BLOCK // numel)
        source = Source(name, "llvm", SCALE.replace("NAME", name).replace("BLOCK", str(BLOCK)), params, (), (launch,))
        executable = self.device.load(compile_source(source, self.device.target))
        items = tuple(ScheduleItem(Kernel(name, params, (), ()), (k % 2, 1 - k % 2)) for k in range(NUM_KERNELS))
        schedule = Schedule(items, tuple(BufferUse(dtypes.float32, numel, "output", k) for k in range(2)), (), (0, 1), 0)
        runner = self.device.make_runner(schedule, [executable] * NUM_KERNELS)
        return lambda: runner([], self.pair, {})

    def stamps(self) -> Any:
        """Returns for each piece of the last plan when it began, in seconds, and its thread's stack."""
        words = np.empty(WORDS, np.int64)
        self.device.copy_out(self.out.memory, words)
        rows = words.reshape(-1, ROW)
        return rows[:, 0] + 1e-9 * rows[:, 1], rows[:, 2]


def seconds(runs: list[Callable[[], None]], repeats: int) -> Any:
    """Returns the times of plans that take turns: a row for each plan."""
    samples = np.empty((len(runs), repeats))
    for turn in range(repeats):
        for number, run in enumerate(runs):
            start = time.perf_counter()
            run()
            samples[number, turn] = time.perf_counter() - start
    return samples


def beginnings(bench: Bench, run: Callable[[], None], repeats: int, pause_s: float) -> Any:
    """Returns how long after a call the leader began, and how long after it the first helper, if one came: two rows."""
    found = []
    for _ in range(repeats):
        time.sleep(pause_s)
        called = time.clock_gettime(time.CLOCK_MONOTONIC)
        run()
        began, stack = bench.stamps()
        others = began[stack != stack[0]]
        found.append((began[0] - called, others.min() - began[0] if len(others) else math.inf))
    return np.array(found).T


def show(what: str, samples_s: Any, less_s: Any = 0.0) -> None:
    """Prints the tenth that is fastest, which others on the machine disturb least, and the median, less those of others."""
    samples, less = (np.quantile(s, [0.1, 0.5], method="lower") for s in (samples_s, less_s))
    best, middle = 1e6 * (samples - less)
    print(f"{what:57} {best:9.3f} {middle:9.3f}")


def main(arguments: Arguments) -> None:
    """Prints what was measured."""
    bench, threads, repeats = Bench(arguments.length), arguments.threads, arguments.repeats
    work = -(-SHARE_WORK // PIECES)
    print(f"{'us':57} {'best 10 %':>9} {'median':>9}")
    runs = [bench.plan(n, 1, 1, 1) for n in (1, NUM_KERNELS)]
    call, tiny = seconds(runs, repeats)
    show("a plan of one tiny kernel, called from Python", call)
    show("a kernel of one thread", tiny / NUM_KERNELS, call / NUM_KERNELS)
    alone, together = seconds([bench.plan(NUM_KERNELS, PIECES, work, n) for n in (1, threads)], repeats)
    show("a kernel just long enough to be shared, by one thread", alone / NUM_KERNELS)
    show("the same, shared", together / NUM_KERNELS)
    show("the same, over its part of the work", together / NUM_KERNELS, alone / threads / NUM_KERNELS)
    long = bench.plan(1, LONG_PIECES, work, threads, stamps=True)
    for name, pause_s in (("looks for a plan", 0.0), ("sleeps", PAUSE_S)):
        leader, helper = beginnings(bench, long, repeats, pause_s)
        show(f"where a helper {name}, the leader begins after", leader)
        show("    and the helper after the leader by", helper)
        print(f"    plans that were over before: {np.isinf(helper).mean():.0%}")
    for numel in SIZES:
        alone, together = seconds([bench.chain(numel, n) for n in (1, threads)], -(-repeats * SIZES[0] // numel))
        show(f"a kernel that squares {numel:6} floats, by one thread", alone / NUM_KERNELS)
        show(f"                      {numel:6}         shared", together / NUM_KERNELS)


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.plans"))
