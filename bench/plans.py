"""Times what the CPU's plan walker and its threads add to the work of kernels. picograd only.

    python -m bench.plans                   two threads; seconds in all
    python -m bench.plans --threads 4

In:    the number of threads
Out:   lines on the screen: time per kernel that is not its work, for kernels of one thread and for shared ones; how long
       after the start of a plan a helper begins, where it still spins and where it sleeps
Called by: people; docs/log.md has what came out.    Next: bench/kernels.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import tyro

from picograd import dtype as dtypes
from picograd.compile.llvm import compile_source, host_target
from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse, Kernel, Launch, Param, Schedule, ScheduleItem, Source
from picograd.runtime.cpu import CPUDevice
from picograd.runtime.cpu_plan import SHARE_WORK
from picograd.runtime.cpu_walker import walker_source

NUM_KERNELS = 1000
PIECES = 8  # iterations of a shared kernel: what two threads get four chunks each of
LONG_PIECES = 128
PAUSE_S = 0.002  # ten times as long as a helper spins
WORDS = 8 * LONG_PIECES
KERNEL = """
define void @NAME(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %arguments, align 8
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %store ]
  %some = icmp slt i64 %i, %end
  br i1 %some, label %work, label %done
work:
  %k = phi i64 [ 0, %head ], [ %k.next, %work ]
  %x = phi i64 [ %i, %head ], [ %x.next, %work ]
  %scaled = mul i64 %x, 6364136223846793005
  %x.next = add i64 %scaled, 1442695040888963407
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, LENGTH
  br i1 %again, label %work, label %store
store:
  %at = mul i64 %i, 8
  %word = getelementptr i64, ptr %out, i64 %at
  store i64 %x, ptr %word, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""


@dataclass(frozen=True)
class Arguments:
    """Measures the overhead of plans.

    threads:  of the plans
    length:   multiplications one after the other in a piece of a kernel; 600 take about a microsecond
    repeats:  runs of each plan; the median counts
    """

    threads: int = 2
    length: int = 600
    repeats: int = 101


class Bench:
    """A device, and plans of kernels that compute without touching memory."""

    def __init__(self, length: int):
        target = host_target()
        self.device, self.length = CPUDevice(target, compile_source(walker_source(), target)), length
        self.out = Buffer("CPU", dtypes.int64, WORDS, self.device.allocate(8 * WORDS))

    def plan(self, num_kernels: int, pieces: int, work: int, num_threads: int) -> Callable[[], None]:
        """Returns what runs kernels one after the other, each of `pieces` iterations that count as `work`."""
        os.environ["PICOGRAD_THREADS"] = str(num_threads)
        params, name = (Param(dtypes.int64, WORDS, "out"),), f"busy_{pieces}"
        length = str(self.length if work > 1 else 1)
        text = KERNEL.replace("NAME", name).replace("LENGTH", length)
        source = Source(name, "llvm", text, params, (), (Launch(name, pieces, 1, work),))
        executable = self.device.load(compile_source(source, self.device.target))
        items = (ScheduleItem(Kernel(name, params, (), ()), (0,)),) * num_kernels
        schedule = Schedule(items, (BufferUse(dtypes.int64, WORDS, "output", 0),), (), (0,), 0)
        runner = self.device.make_runner(schedule, [executable] * num_kernels)
        return lambda: runner([], [self.out], {})


def seconds(run: Callable[[], None], repeats: int, pause_s: float = 0.0) -> float:
    """Returns the median time of a run."""
    samples = []
    for _ in range(repeats):
        time.sleep(pause_s)
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return median(samples)


def main(arguments: Arguments) -> None:
    """Prints what was measured."""
    bench, threads, repeats = Bench(arguments.length), arguments.threads, arguments.repeats
    call = seconds(bench.plan(1, 1, 1, 1), repeats)
    tiny = (seconds(bench.plan(NUM_KERNELS, 1, 1, 1), repeats) - call) / NUM_KERNELS
    print(f"a plan of one kernel, called from Python      {1e6 * call:7.2f} us")
    print(f"a kernel of one thread                        {1e6 * tiny:7.3f} us")
    work = -(-SHARE_WORK // PIECES)
    alone = seconds(bench.plan(NUM_KERNELS, PIECES, work, 1), repeats) / NUM_KERNELS
    together = seconds(bench.plan(NUM_KERNELS, PIECES, work, threads), repeats) / NUM_KERNELS
    over = together - alone / threads
    print(f"a shared kernel of {1e6 * alone:5.2f} us of work: {1e6 * together:5.2f} us, over its part {1e6 * over:7.3f} us")
    long_alone, long_shared = (bench.plan(1, LONG_PIECES, work, n) for n in (1, threads))
    for name, pause_s in (("spins", 0.0), ("sleeps", PAUSE_S)):
        alone, together = (seconds(run, repeats, pause_s) for run in (long_alone, long_shared))
        # helpers that begin after a time t leave the leader (work + (threads - 1) t) / threads to do
        late = (threads * together - alone) / (threads - 1)
        print(f"a helper that {name:6} begins after            {1e6 * late:7.2f} us   ({1e6 * alone:.1f} us of work)")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
