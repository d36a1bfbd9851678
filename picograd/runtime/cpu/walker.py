"""The plan walker: native code that runs the entries of a plan, so that no Python stands between kernels.

In:    nothing
Out:   `walker_source()`: LLVM IR of `void @walk(ptr state, ptr crew)`, with the first helper's line or 0; of `serve` and
       `dismiss` (walker_helpers.py); and of a kernel `gate` that sets `stop` where one of (1) words from (0) is not 0,
       with (2) the address of `stop`. `Walker`: all that, loaded. The layout of a plan's state
Called by: engine/backends/cpu.py compiles it; runtime/cpu/device.py loads it, runtime/cpu/runner.py calls it.
Next:  picograd/runtime/cpu/walker_entries.py

The leader offers the plan to helpers and walks it; helpers walk beside it for as long as they are there. A chunk of an
entry's iterations belongs to whoever moves the entry's `next` over it first, so a helper that comes late, or never, delays
nobody.
Before an entry a thread waits until every iteration of the entries up to `after` is done. Which thread runs an
iteration does not change its result. A helper begins where the leader is: what is before has all been begun.

A loop is an entry without a function, followed by its body. Every thread walks the body once for each step, and waits
before a step until all of the step before is done. Nothing is set back between steps: `next` and `done` go on counting,
so that in turn t an entry of n iterations owns the numbers t n to (t + 1) n. What a step reads and writes is worked out
by each thread in a table of its own, by the loop's patches.

state, in 64-bit words:    0 entries   1 address of the first   2 stop   3 address of sched_yield, or 0
                           4 entries that helpers walk   5 address of the table   6 words of it to copy, 0: it never changes
                           7 most arguments of a kernel   8 helpers wanted   9 how many may be woken
                           16 the entry the leader is at, outside loops   17 entries of which it knows that all is done
entry, in 64-bit words:    0 function  1 address of the places of its arguments in the table  2 count  3 chunk  4 after
                           5 arguments   8 next  9 done
  a loop's:                0 nothing   1 address of its patches   2 steps   4 after   5 patches   6 entries of its body
                           9 the turn the leader is in
patch, in 64-bit words:    0 kind  1 place that is set  2 base  3 other  4 stride; in step r of n that place is
                           ROW base + r stride      REVERSED base + (n - 1 - r) stride
                           CARRIED at first base, then other      TURNS base and other in turn, base in the last step
An entry whose chunk is its count is the leader's alone. While `stop` is not 0 entries are counted but not run.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache

from picograd.ir.stages import Executable, Launch, Source
from picograd.record import Record
from picograd.runtime.cpu.walker_entries import ENTRIES_OF_A_PLAN
from picograd.runtime.cpu.walker_helpers import HELPERS_OF_A_PLAN

STATE_WORDS = 24
ENTRIES, FIRST, STOP, YIELD, HELPED, TABLE, COPIED, MOST_ARGUMENTS, HELPERS, WAKES = range(10)
ENTRY_WORDS = 16  # two cache lines: what is read, and what all threads write
FUNCTION, PLACES, COUNT, CHUNK, AFTER, ARGUMENTS, BODY, NEXT, DONE = 0, 1, 2, 3, 4, 5, 6, 8, 9
PATCH_WORDS, STRIDE = 5, 4
ROW, REVERSED, CARRIED, TURNS = 0, 1, 2, 3
SYMBOLS = ("walk", "gate", "serve", "dismiss")


class Walker(Record):
    """The walker's code in this process.

    walk:     (state, crew): runs a plan
    gate:     address of the kernel
    serve:    (line): a helper's life
    dismiss:  (line): ends it
    owner:    keeps the code loaded
    """

    walk: Callable[[int, int], None]
    gate: int
    serve: Callable[[int], None]
    dismiss: Callable[[int], None]
    owner: Executable


def bind_walker(loaded: Executable) -> Walker:
    """Returns the functions of the loaded walker; calls of them let other threads of Python go on."""
    address = dict(zip([launch.symbol for launch in loaded.launches], loaded.functions))
    one, two = (ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count) for count in (1, 2))
    return Walker(two(address["walk"]), address["gate"], one(address["serve"]), one(address["dismiss"]), loaded)


@cache
def libc_address(name: str) -> int:
    """Returns the address of a function of the C library, or 0 where there is none of this name."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def walker_source(triple: str = "") -> Source:
    """Returns the walker as text for `compile_source`, for machines of a kind as LLVM names it: by default this one's."""
    hint = PAUSE.get(triple.partition("-")[0] or platform.machine().lower(), "")
    text = (ENTRIES_OF_A_PLAN + HELPERS_OF_A_PLAN + WALK_OF_A_PLAN).replace("PAUSE", hint)
    return Source("plan_walker", "llvm", text, (), (), tuple(Launch(symbol, 1, 1, 1) for symbol in SYMBOLS))


PAUSE = {  # tells the processor that this loop only waits
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}

WALK_OF_A_PLAN = r"""
define internal void @reset(ptr %state) {
entry:
  %entries = load i64, ptr %state, align 8
  %first.at = getelementptr i64, ptr %state, i64 1
  %first = load ptr, ptr %first.at, align 8
  %led.at = getelementptr i64, ptr %state, i64 16
  store i64 0, ptr %led.at, align 8
  %all.done.at = getelementptr i64, ptr %state, i64 17
  store i64 0, ptr %all.done.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %entries
  br i1 %some, label %body, label %done
body:
  %at = mul i64 %i, 16
  %e = getelementptr i64, ptr %first, i64 %at
  %next.at = getelementptr i64, ptr %e, i64 8
  store i64 0, ptr %next.at, align 8
  %done.at = getelementptr i64, ptr %e, i64 9
  store i64 0, ptr %done.at, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal ptr @own_table(ptr %state, ptr %room) {
entry:
  %table.at = getelementptr i64, ptr %state, i64 5
  %table = load ptr, ptr %table.at, align 8
  %words.at = getelementptr i64, ptr %state, i64 6
  %words = load i64, ptr %words.at, align 8
  %copies = icmp ne i64 %words, 0
  br i1 %copies, label %head, label %shared
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %words
  br i1 %some, label %body, label %copied
body:
  %from = getelementptr i64, ptr %table, i64 %i
  %value = load i64, ptr %from, align 8
  %to = getelementptr i64, ptr %room, i64 %i
  store i64 %value, ptr %to, align 8
  %next = add i64 %i, 1
  br label %head
copied:
  ret ptr %room
shared:
  ret ptr %table
}

define internal void @run_plan(ptr %state, i64 %entries, i64 %is_leader) {
entry:
  %most.at = getelementptr i64, ptr %state, i64 7
  %most = load i64, ptr %most.at, align 8
  %arguments = alloca i64, i64 %most, align 64
  %words.at = getelementptr i64, ptr %state, i64 6
  %words = load i64, ptr %words.at, align 8
  %room = alloca i64, i64 %words, align 64
  %table = call ptr @own_table(ptr %state, ptr %room)
  %led.at = getelementptr i64, ptr %state, i64 16
  %led = load atomic i64, ptr %led.at acquire, align 8
  %all.done.at = getelementptr i64, ptr %state, i64 17
  %all.done = load atomic i64, ptr %all.done.at acquire, align 8
  %leads = icmp ne i64 %is_leader, 0
  %place = select i1 %leads, ptr %led.at, ptr null
  call void @run_entries(ptr %state, i64 %led, i64 %all.done, i64 %entries, ptr %table, ptr %arguments, i64 0,
                         i64 %is_leader, ptr %place)
  ret void
}

define void @gate(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %words = load ptr, ptr %arguments, align 8
  %count.at = getelementptr i64, ptr %arguments, i64 1
  %count = load i64, ptr %count.at, align 8
  %stop.at = getelementptr i64, ptr %arguments, i64 2
  %stop = load ptr, ptr %stop.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %zero ]
  %some = icmp slt i64 %i, %count
  br i1 %some, label %look, label %done
look:
  %at = getelementptr i64, ptr %words, i64 %i
  %word = load i64, ptr %at, align 8
  %is.zero = icmp eq i64 %word, 0
  br i1 %is.zero, label %zero, label %found
zero:
  %next = add i64 %i, 1
  br label %head
found:
  store atomic i64 1, ptr %stop monotonic, align 8
  br label %done
done:
  ret void
}

define internal void @help(ptr %state) {
entry:
  %helped.at = getelementptr i64, ptr %state, i64 4
  %helped = load i64, ptr %helped.at, align 8
  call void @run_plan(ptr %state, i64 %helped, i64 0)
  ret void
}

define void @walk(ptr %state, ptr %crew) {
entry:
  call void @reset(ptr %state)
  %end = call ptr @post(ptr %state, ptr %crew)
  %entries = load i64, ptr %state, align 8
  call void @run_plan(ptr %state, i64 %entries, i64 1)
  call void @wait_for_entries(ptr %state, i64 0, i64 %entries, i64 0)
  call void @take_back(ptr %state, ptr %crew, ptr %end)
  ret void
}
"""
