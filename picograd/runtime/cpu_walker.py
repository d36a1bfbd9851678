"""The plan walker: native code that runs the entries of a plan, so that no Python stands between kernels.

In:    nothing
Out:   `walker_source()`: LLVM IR of `void @walk(ptr state, i64 is_leader)`, and of a kernel `gate` that sets `stop` where
       one of (1) words from (0) is not 0, with (2) the address of `stop`; the layout of a plan's state
Called by: engine/backends/cpu.py compiles it; picograd/runtime/cpu_runner.py calls it.
Next:  picograd/runtime/cpu_walker_entries.py

The leader opens the plan and walks it; helpers walk beside it for as long as they are there. A chunk of an entry's
iterations belongs to whoever moves the entry's `next` over it first, so a helper that wakes late, or never, delays nobody.
Before an entry a thread waits until every iteration of the entries up to `after` is done. Which thread runs an
iteration does not change its result.

A loop is an entry without a function, followed by its body. Every thread walks the body once for each step, and waits
before a step until all of the step before is done. Nothing is set back between steps: `next` and `done` go on counting,
so that in turn t an entry of n iterations owns the numbers t n to (t + 1) n. What a step reads and writes is worked out
by each thread in a table of its own, by the loop's patches.

state, in 64-bit words:    0 entries   1 address of the first   2 stop   3 address of sched_yield, or 0
                           4 entries that helpers walk   5 address of the table   6 words of it to copy, 0: it never changes
                           7 most arguments of a kernel   8 open: helpers may come in   16 helpers inside
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

import platform

from picograd.ir.stages import Launch, Source
from picograd.runtime.cpu_walker_entries import ENTRIES_OF_A_PLAN

STATE_WORDS = 32
ENTRIES, FIRST, STOP, YIELD, HELPED, TABLE, COPIED, MOST_ARGUMENTS, OPEN, INSIDE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 16
ENTRY_WORDS = 16  # two cache lines: what is read, and what all threads write
FUNCTION, PLACES, COUNT, CHUNK, AFTER, ARGUMENTS, BODY, NEXT, DONE = 0, 1, 2, 3, 4, 5, 6, 8, 9
PATCH_WORDS, STRIDE = 5, 4
ROW, REVERSED, CARRIED, TURNS = 0, 1, 2, 3
SYMBOL, GATE = "walk", "gate"


def walker_source() -> Source:
    """Returns the walker as text for `compile_source`."""
    hint = PAUSE.get(platform.machine().lower(), "")
    launches = (Launch(SYMBOL, 1, 1, 1), Launch(GATE, 1, 1, 1))
    return Source("plan_walker", "llvm", (ENTRIES_OF_A_PLAN + PLANS).replace("PAUSE", hint), (), (), launches)


PAUSE = {  # tells the processor that this loop only waits
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}

PLANS = r"""
define internal void @reset(ptr %state) {
entry:
  %entries = load i64, ptr %state, align 8
  %first.at = getelementptr i64, ptr %state, i64 1
  %first = load ptr, ptr %first.at, align 8
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
  call void @run_entries(ptr %state, i64 0, i64 %entries, ptr %table, ptr %arguments, i64 0, i64 %is_leader)
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

define void @walk(ptr %state, i64 %is_leader) {
entry:
  %open.at = getelementptr i64, ptr %state, i64 8
  %inside.at = getelementptr i64, ptr %state, i64 16
  %leads = icmp ne i64 %is_leader, 0
  br i1 %leads, label %lead, label %help
lead:
  call void @reset(ptr %state)
  store atomic i64 1, ptr %open.at seq_cst, align 8
  %entries = load i64, ptr %state, align 8
  call void @run_plan(ptr %state, i64 %entries, i64 1)
  call void @wait_for_entries(ptr %state, i64 0, i64 %entries, i64 0)
  store atomic i64 0, ptr %open.at seq_cst, align 8
  br label %empty
empty:
  %spins = phi i64 [ 0, %lead ], [ %more, %wait ]
  %inside = load atomic i64, ptr %inside.at acquire, align 8
  %left.all = icmp eq i64 %inside, 0
  br i1 %left.all, label %done, label %wait
wait:
  %more = add i64 %spins, 1
  call void @pause(ptr %state, i64 %spins)
  br label %empty
done:
  ret void
help:
  %before = atomicrmw add ptr %inside.at, i64 1 seq_cst, align 8
  %open = load atomic i64, ptr %open.at seq_cst, align 8
  %is_open = icmp ne i64 %open, 0
  br i1 %is_open, label %walk, label %leave
walk:
  %helped.at = getelementptr i64, ptr %state, i64 4
  %helped = load i64, ptr %helped.at, align 8
  call void @run_plan(ptr %state, i64 %helped, i64 0)
  br label %leave
leave:
  %left = atomicrmw sub ptr %inside.at, i64 1 seq_cst, align 8
  ret void
}
"""
