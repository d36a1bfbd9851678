"""The plan walker: native code that runs the entries of a plan, so that no Python stands between kernels.

In:    nothing
Out:   `walker_source()`: LLVM IR of `void @walk(ptr state, i64 is_leader)`; the layout of a plan's state
Called by: engine/backends/cpu.py compiles it; picograd/runtime/cpu_runner.py calls it.
Next:  picograd/runtime/cpu_pool.py

The leader opens the plan and walks it; helpers walk beside it for as long as they are there. A chunk of an entry's
iterations belongs to whoever adds to the entry's `next` first, so a helper that wakes late, or never, delays nobody.
Before an entry a thread waits until every iteration of the entries up to `after` is done. Which thread runs an
iteration does not change its result.

state, in 64-bit words:    0 entries   1 address of the first   2 stop   3 address of sched_yield, or 0
                           4 entries that helpers walk   8 open: helpers may come in   16 helpers inside
entry, in 64-bit words:    0 function  1 arguments  2 count  3 chunk  4 after   8 next  9 done
An entry whose chunk is its count is the leader's alone. While `stop` is not 0 entries are counted but not run.
"""

from __future__ import annotations

import platform

from picograd.ir.stages import Launch, Source

STATE_WORDS = 32
ENTRIES, FIRST, STOP, YIELD, HELPED, OPEN, INSIDE = 0, 1, 2, 3, 4, 8, 16
ENTRY_WORDS = 16  # two cache lines: what is read, and what all threads write
FUNCTION, ARGUMENTS, COUNT, CHUNK, AFTER, NEXT, DONE = 0, 1, 2, 3, 4, 8, 9
SYMBOL = "walk"


def walker_source() -> Source:
    """Returns the walker as text for `compile_source`."""
    hint = PAUSE.get(platform.machine().lower(), "")
    return Source("plan_walker", "llvm", WALKER.replace("PAUSE", hint), (), (), (Launch(SYMBOL, 1, 1, 1),))


PAUSE = {  # tells the processor that this loop only waits
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}

WALKER = r"""
define internal void @pause(ptr %state, i64 %spins) noinline {
entry:
  %often = and i64 %spins, 1023
  %now = icmp eq i64 %often, 1023
  br i1 %now, label %yield, label %wait
yield:
  %at = getelementptr i64, ptr %state, i64 3
  %function = load ptr, ptr %at, align 8
  %has = icmp ne ptr %function, null
  br i1 %has, label %call, label %wait
call:
  %result = call i32 %function()
  ret void
wait:
  PAUSE
  ret void
}

define internal void @wait_until(ptr %state, ptr %word, i64 %value) {
entry:
  br label %loop
loop:
  %spins = phi i64 [ 0, %entry ], [ %more, %again ]
  %now = load atomic i64, ptr %word acquire, align 8
  %ready = icmp eq i64 %now, %value
  br i1 %ready, label %done, label %again
again:
  %more = add i64 %spins, 1
  call void @pause(ptr %state, i64 %spins)
  br label %loop
done:
  ret void
}

define internal void @wait_for_entries(ptr %state, ptr %first, i64 %from, i64 %to) {
entry:
  br label %head
head:
  %i = phi i64 [ %from, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %to
  br i1 %some, label %body, label %done
body:
  %at = mul i64 %i, 16
  %entry.at = getelementptr i64, ptr %first, i64 %at
  %count.at = getelementptr i64, ptr %entry.at, i64 2
  %count = load i64, ptr %count.at, align 8
  %done.at = getelementptr i64, ptr %entry.at, i64 9
  call void @wait_until(ptr %state, ptr %done.at, i64 %count)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @run_entry(ptr %state, ptr %e, i64 %is_leader) {
entry:
  %count.at = getelementptr i64, ptr %e, i64 2
  %count = load i64, ptr %count.at, align 8
  %chunk.at = getelementptr i64, ptr %e, i64 3
  %chunk = load i64, ptr %chunk.at, align 8
  %shared = icmp slt i64 %chunk, %count
  %leads = icmp ne i64 %is_leader, 0
  %takes_part = or i1 %shared, %leads
  br i1 %takes_part, label %prepare, label %done
prepare:
  %function = load ptr, ptr %e, align 8
  %arguments.at = getelementptr i64, ptr %e, i64 1
  %arguments = load ptr, ptr %arguments.at, align 8
  %stop.at = getelementptr i64, ptr %state, i64 2
  %next.at = getelementptr i64, ptr %e, i64 8
  %done.at = getelementptr i64, ptr %e, i64 9
  br label %take
take:
  %begin = atomicrmw add ptr %next.at, i64 %chunk monotonic, align 8
  %some = icmp slt i64 %begin, %count
  br i1 %some, label %check, label %done
check:
  %whole = add i64 %begin, %chunk
  %inside = icmp slt i64 %whole, %count
  %end = select i1 %inside, i64 %whole, i64 %count
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %finish, label %run
run:
  call void %function(ptr %arguments, i64 %begin, i64 %end)
  br label %finish
finish:
  %length = sub i64 %end, %begin
  %before = atomicrmw add ptr %done.at, i64 %length release, align 8
  br label %take
done:
  ret void
}

define internal void @run_entries(ptr %state, i64 %entries, i64 %is_leader) {
entry:
  %first.at = getelementptr i64, ptr %state, i64 1
  %first = load ptr, ptr %first.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %waited = phi i64 [ 0, %entry ], [ %waited.next, %body ]
  %some = icmp slt i64 %i, %entries
  br i1 %some, label %body, label %done
body:
  %at = mul i64 %i, 16
  %e = getelementptr i64, ptr %first, i64 %at
  %after.at = getelementptr i64, ptr %e, i64 4
  %after = load i64, ptr %after.at, align 8
  call void @wait_for_entries(ptr %state, ptr %first, i64 %waited, i64 %after)
  %further = icmp sgt i64 %after, %waited
  %waited.next = select i1 %further, i64 %after, i64 %waited
  call void @run_entry(ptr %state, ptr %e, i64 %is_leader)
  %next = add i64 %i, 1
  br label %head
done:
  %leads = icmp ne i64 %is_leader, 0
  br i1 %leads, label %join, label %leave
join:
  call void @wait_for_entries(ptr %state, ptr %first, i64 %waited, i64 %entries)
  ret void
leave:
  ret void
}

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
  call void @run_entries(ptr %state, i64 %entries, i64 1)
  store atomic i64 0, ptr %open.at seq_cst, align 8
  call void @wait_until(ptr %state, ptr %inside.at, i64 0)
  ret void
help:
  %before = atomicrmw add ptr %inside.at, i64 1 seq_cst, align 8
  %open = load atomic i64, ptr %open.at seq_cst, align 8
  %is_open = icmp ne i64 %open, 0
  br i1 %is_open, label %walk, label %leave
walk:
  %helped.at = getelementptr i64, ptr %state, i64 4
  %helped = load i64, ptr %helped.at, align 8
  call void @run_entries(ptr %state, i64 %helped, i64 0)
  br label %leave
leave:
  %left = atomicrmw sub ptr %inside.at, i64 1 seq_cst, align 8
  ret void
}
"""
