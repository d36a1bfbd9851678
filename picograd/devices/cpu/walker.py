"""The plan walker: native code that runs the entries of a plan, with no Python between kernels.

In:    nothing
Out:   `walker_source()`: LLVM IR of `void @walk(ptr state, ptr crew)`, with the first helper's line or 0; of
       `void @serve(ptr line)`, the life of a helper, and `void @dismiss(ptr line)`, its end; and of a kernel `gate` that
       sets `stop` where one of (1) words from (0) is not 0, with (2) the address of `stop`
       `Walker`: all that, loaded. The layout of a plan's state and of a helper's line

The leader offers the plan to helpers and walks it; helpers walk along for as long as they are there. A chunk of an entry's
iterations belongs to the thread that moves the entry's `next` over it first, so a helper that comes late, or never, delays
nobody. Before an entry a thread waits until every iteration of the entries up to `after` is done. Which thread runs an
iteration does not change its result. A helper begins where the leader is: what is before has all been begun.

A loop is an entry without a function, followed by its body. Every thread walks the body once for each step, and waits
before a step until all of the step before is done. Nothing is set back between steps: `next` and `done` go on counting,
so that in turn t an entry of n iterations owns the numbers t n to (t + 1) n. Each thread finds the memory that a step
reads and writes in a table of its own, by the loop's patches.

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

A helper waits at a line of its own. Its first word, the job, is
    IDLE    the helper looks at the line again and again, or is about to
    ASLEEP  it waits for its lock; the thread that changes this word releases the lock, once
    a plan: the address of a plan's state, given by its leader; with the last bit set, the helper is at work on it
Every change but the helper's last (at work -> IDLE) is a compare-and-exchange, so a plan is either taken by the helper
or taken back by the leader. A leader that is done takes back what nobody took and waits for those at work: after that
nobody reads its plan. It never waits for a helper that has not come. With several leaders a helper is whose plan comes
first.

line, in 64-bit words:     0 job   1 address of the next helper's line, or 0
                           8 ends: the helper shall return   9 its lock   10 waits for a lock   11 releases a lock
                           12 reads a clock, or 0   13 which clock   14 nanoseconds to look for a plan before it sleeps
                           15 address of sched_yield, or 0   16 times it went to sleep   17 plans it was at work on
"""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable
from functools import cache

from picograd.ir.stages import Executable, Launch, Source
from picograd.record import Record

# ---- words ----
# The text below names words as the constants here do; `walker_source` puts in their numbers. `%x = word i64 %p[NAME]` reads
# one, with an order behind it atomically, and `%x.at` is its address from there on.
STATE_WORDS = 24
ENTRIES, FIRST, STOP, YIELD, HELPED, TABLE, COPIED, ARGUMENTS_MAX, HELPERS, WAKES, LED, ALL_DONE = *range(10), 16, 17
ENTRY_WORDS = 16  # two cache lines: words that are read, and words that all threads write
FUNCTION, PLACES, COUNT, CHUNK, AFTER, ARGUMENTS, BODY, NEXT, DONE = 0, 1, 2, 3, 4, 5, 6, 8, 9
PATCHES, STEPS, TURN = PLACES, COUNT, DONE  # a loop's
PATCH_WORDS = 5
KIND, SET, BASE, OTHER, STRIDE = range(PATCH_WORDS)
ROW, REVERSED, CARRIED, TURNS = range(4)  # kinds of patches
LINE_WORDS = 24  # three cache lines: words that leaders write, words that are read, counts of the helper
JOB, NEXT_LINE, ENDS, LOCK, ACQUIRE, RELEASE, CLOCK, CLOCK_ID, SPIN_NS, LINE_YIELD, SLEEPS, PLANS = 0, 1, *range(8, 18)
IDLE, ASLEEP = 0, 1  # jobs
CLOCK_LOOKS = 64  # between two looks at the clock, some 4 us
WORDS = {name: str(number) for name, number in vars().items() if name.isupper()}

SYMBOLS = ("walk", "gate", "serve", "dismiss")
PAUSE = {  # tells the processor that this loop only waits
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}

# ---- how a leader and its helpers meet ----
HELPERS_OF_A_PLAN = r"""
define internal void @wake(ptr %line) {
entry:
  %lock = word ptr %line[LOCK]
  %release = word ptr %line[RELEASE]
  call void %release(ptr %lock)
  ret void
}

; gives a plan to as many helpers as it wants and are free; returns the line after the last it looked at
define internal ptr @post(ptr %state, ptr %crew) {
entry:
  %wanted = word i64 %state[HELPERS]
  %wakes = word i64 %state[WAKES]
  %plan = ptrtoint ptr %state to i64
  br label %head
head:
  %line = phi ptr [ %crew, %entry ], [ %next, %passed ]
  %count = phi i64 [ 0, %entry ], [ %count.next, %passed ]
  %woken = phi i64 [ 0, %entry ], [ %woken.next, %passed ]
  %is.line = icmp ne ptr %line, null
  %too.few = icmp slt i64 %count, %wanted
  %goes = and i1 %is.line, %too.few
  br i1 %goes, label %look, label %done
look:
  %job = load atomic i64, ptr %line monotonic, align 8
  %is.idle = icmp eq i64 %job, IDLE
  %is.asleep = icmp eq i64 %job, ASLEEP
  %is.worth.it = icmp slt i64 %woken, %wakes
  %may.wake = and i1 %is.asleep, %is.worth.it
  %may.give = or i1 %is.idle, %may.wake
  br i1 %may.give, label %give, label %passed
give:
  %pair = cmpxchg ptr %line, i64 %job, i64 %plan seq_cst monotonic, align 8
  %given = extractvalue { i64, i1 } %pair, 1
  %slept = and i1 %given, %is.asleep
  br i1 %slept, label %rouse, label %passed
rouse:
  call void @wake(ptr %line)
  br label %passed
passed:
  %one = phi i1 [ false, %look ], [ %given, %give ], [ true, %rouse ]
  %one.woken = phi i1 [ false, %look ], [ false, %give ], [ true, %rouse ]
  %more = zext i1 %one to i64
  %count.next = add i64 %count, %more
  %more.woken = zext i1 %one.woken to i64
  %woken.next = add i64 %woken, %more.woken
  %next = word ptr %line[NEXT_LINE] acquire
  br label %head
done:
  ret ptr %line
}

; after this no helper reads the plan, now or later
define internal void @take_back(ptr %state, ptr %crew, ptr %end) {
entry:
  %plan = ptrtoint ptr %state to i64
  %at.work = or i64 %plan, 1
  br label %head
head:
  %line = phi ptr [ %crew, %entry ], [ %next, %free ]
  %is.end = icmp eq ptr %line, %end
  br i1 %is.end, label %done, label %take
take:
  %pair = cmpxchg ptr %line, i64 %plan, i64 IDLE seq_cst acquire, align 8
  br label %look
look:
  %spins = phi i64 [ 0, %take ], [ %more, %wait ]
  %job = load atomic i64, ptr %line acquire, align 8
  %works = icmp eq i64 %job, %at.work
  br i1 %works, label %wait, label %free
wait:
  %more = add i64 %spins, 1
  call void @pause(ptr %state, i64 %spins)
  br label %look
free:
  %next = word ptr %line[NEXT_LINE] acquire
  br label %head
done:
  ret void
}

define internal i64 @now(ptr %clock, i64 %which, ptr %time) {
entry:
  %id = trunc i64 %which to i32
  %result = call i32 %clock(i32 %id, ptr %time)
  %s = load i64, ptr %time, align 8
  %ns = word i64 %time[1]
  %all = mul i64 %s, 1000000000
  %sum = add i64 %all, %ns
  ret i64 %sum
}

; looks at a line until there is a plan, or for as long as the line says; returns what was there last
define internal i64 @look_for_a_plan(ptr %line, ptr %time) {
entry:
  %ends.at = getelementptr i64, ptr %line, i64 ENDS
  %clock = word ptr %line[CLOCK]
  %which = word i64 %line[CLOCK_ID]
  %spin.at = getelementptr i64, ptr %line, i64 SPIN_NS
  %yield = word ptr %line[LINE_YIELD]
  %has.yield = icmp ne ptr %yield, null
  %has.clock = icmp ne ptr %clock, null
  %spin.ns = load atomic i64, ptr %spin.at monotonic, align 8
  %has.time = icmp sgt i64 %spin.ns, 0
  %spins = and i1 %has.clock, %has.time
  br i1 %spins, label %start, label %once
once:
  %job.once = load atomic i64, ptr %line monotonic, align 8
  ret i64 %job.once
start:
  %begin = call i64 @now(ptr %clock, i64 %which, ptr %time)
  %limit = add i64 %begin, %spin.ns
  br label %head
head:
  %count = phi i64 [ 0, %start ], [ %more, %wait ], [ 0, %early ]
  %job = load atomic i64, ptr %line monotonic, align 8
  %is.idle = icmp eq i64 %job, IDLE
  br i1 %is.idle, label %again, label %done
again:
  %more = add i64 %count, 1
  %is.long = icmp sge i64 %more, CLOCK_LOOKS
  br i1 %is.long, label %rest, label %wait
wait:
  PAUSE
  br label %head
rest:
  br i1 %has.yield, label %let, label %check
let:
  %result = call i32 %yield()
  br label %check
check:
  %ends = load atomic i64, ptr %ends.at monotonic, align 8
  %is.end = icmp ne i64 %ends, 0
  %time.now = call i64 @now(ptr %clock, i64 %which, ptr %time)
  %is.late = icmp sge i64 %time.now, %limit
  %stops = or i1 %is.end, %is.late
  br i1 %stops, label %done, label %early
early:
  br label %head
done:
  %last = phi i64 [ %job, %head ], [ IDLE, %check ]
  ret i64 %last
}

define internal void @count(ptr %line, i64 %word) {
entry:
  %at = getelementptr i64, ptr %line, i64 %word
  %before = load atomic i64, ptr %at monotonic, align 8
  %after = add i64 %before, 1
  store atomic i64 %after, ptr %at monotonic, align 8
  ret void
}

define void @serve(ptr %line) {
entry:
  %time = alloca [2 x i64], align 16
  %ends.at = getelementptr i64, ptr %line, i64 ENDS
  br label %head
head:
  %ends = load atomic i64, ptr %ends.at seq_cst, align 8
  %is.end = icmp ne i64 %ends, 0
  br i1 %is.end, label %done, label %look
look:
  %job = call i64 @look_for_a_plan(ptr %line, ptr %time)
  %is.idle = icmp eq i64 %job, IDLE
  br i1 %is.idle, label %lie.down, label %take
take:
  %at.work = or i64 %job, 1
  %pair = cmpxchg ptr %line, i64 %job, i64 %at.work seq_cst monotonic, align 8
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %work, label %head
work:
  call void @count(ptr %line, i64 PLANS)
  %state = inttoptr i64 %job to ptr
  call void @help(ptr %state)
  store atomic i64 IDLE, ptr %line release, align 8
  br label %head
lie.down:
  %down = cmpxchg ptr %line, i64 IDLE, i64 ASLEEP seq_cst monotonic, align 8
  %is.down = extractvalue { i64, i1 } %down, 1
  br i1 %is.down, label %check, label %head
check:
  %now.ends = load atomic i64, ptr %ends.at seq_cst, align 8
  %is.now.end = icmp ne i64 %now.ends, 0
  br i1 %is.now.end, label %get.up, label %sleep
get.up:
  %up = cmpxchg ptr %line, i64 ASLEEP, i64 IDLE seq_cst monotonic, align 8
  %is.up = extractvalue { i64, i1 } %up, 1
  br i1 %is.up, label %done, label %sleep
sleep:
  call void @count(ptr %line, i64 SLEEPS)
  %lock = word ptr %line[LOCK]
  %acquire = word ptr %line[ACQUIRE]
  %got = call i32 %acquire(ptr %lock, i32 1)
  br label %head
done:
  ret void
}

define void @dismiss(ptr %line) {
entry:
  %ends.at = getelementptr i64, ptr %line, i64 ENDS
  store atomic i64 1, ptr %ends.at seq_cst, align 8
  %pair = cmpxchg ptr %line, i64 ASLEEP, i64 IDLE seq_cst monotonic, align 8
  %slept = extractvalue { i64, i1 } %pair, 1
  br i1 %slept, label %rouse, label %done
rouse:
  call void @wake(ptr %line)
  br label %done
done:
  ret void
}
"""


# ---- what a thread does at an entry ----
ENTRIES_OF_A_PLAN = r"""
define internal void @pause(ptr %state, i64 %spins) noinline {
entry:
  %often = and i64 %spins, 1023
  %now = icmp eq i64 %often, 1023
  br i1 %now, label %yield, label %wait
yield:
  %function = word ptr %state[YIELD]
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
  %ready = icmp sge i64 %now, %value
  br i1 %ready, label %done, label %again
again:
  %more = add i64 %spins, 1
  call void @pause(ptr %state, i64 %spins)
  br label %loop
done:
  ret void
}

define internal ptr @entry_at(ptr %state, i64 %i) {
entry:
  %first = word ptr %state[FIRST]
  %at = mul i64 %i, ENTRY_WORDS
  %e = getelementptr i64, ptr %first, i64 %at
  ret ptr %e
}

; waits until the entries from `from` to `to` have done all of a turn
define internal void @wait_for_entries(ptr %state, i64 %from, i64 %to, i64 %turn) {
entry:
  br label %head
head:
  %i = phi i64 [ %from, %entry ], [ %next.kernel, %kernel ], [ %next.loop, %loop ]
  %some = icmp slt i64 %i, %to
  br i1 %some, label %body, label %done
body:
  %e = call ptr @entry_at(ptr %state, i64 %i)
  %count = word i64 %e[COUNT]
  %function = load ptr, ptr %e, align 8
  %is.loop = icmp eq ptr %function, null
  br i1 %is.loop, label %loop, label %kernel
kernel:
  %turns = add i64 %turn, 1
  %all = mul i64 %turns, %count
  %done.at = getelementptr i64, ptr %e, i64 DONE
  call void @wait_until(ptr %state, ptr %done.at, i64 %all)
  %next.kernel = add i64 %i, 1
  br label %head
loop:
  %begun = mul i64 %turn, %count
  %ended = add i64 %begun, %count
  %last = sub i64 %ended, 1
  %entries = word i64 %e[BODY]
  %inner = add i64 %i, 1
  %next.loop = add i64 %inner, %entries
  call void @wait_for_entries(ptr %state, i64 %inner, i64 %next.loop, i64 %last)
  br label %head
done:
  ret void
}

; writes into the table what step r of n reads and writes
define internal void @patch(ptr %table, ptr %patches, i64 %count, i64 %r, i64 %n) {
entry:
  %last = sub i64 %n, 1
  %left = sub i64 %last, %r
  %odd = and i64 %left, 1
  %is.first = icmp eq i64 %r, 0
  %is.odd = icmp ne i64 %odd, 0
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %count
  br i1 %some, label %body, label %done
body:
  %at = mul i64 %i, PATCH_WORDS
  %kind = word i64 %patches[%at]
  %set = word i64 %kind.at[SET]
  %base.place = word i64 %kind.at[BASE]
  %other.place = word i64 %kind.at[OTHER]
  %stride = word i64 %kind.at[STRIDE]
  %base = word i64 %table[%base.place]
  %other = word i64 %table[%other.place]
  %is.reversed = icmp eq i64 %kind, REVERSED
  %step = select i1 %is.reversed, i64 %left, i64 %r
  %offset = mul i64 %step, %stride
  %row = add i64 %base, %offset
  %carried = select i1 %is.first, i64 %base, i64 %other
  %turned = select i1 %is.odd, i64 %other, i64 %base
  %is.carried = icmp eq i64 %kind, CARRIED
  %is.turned = icmp eq i64 %kind, TURNS
  %one = select i1 %is.carried, i64 %carried, i64 %row
  %value = select i1 %is.turned, i64 %turned, i64 %one
  %set.in = getelementptr i64, ptr %table, i64 %set
  store i64 %value, ptr %set.in, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @gather(ptr %e, ptr %table, ptr %arguments) {
entry:
  %places = word ptr %e[PLACES]
  %count = word i64 %e[ARGUMENTS]
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %count
  br i1 %some, label %body, label %done
body:
  %place = word i64 %places[%i]
  %value = word i64 %table[%place]
  %argument = getelementptr i64, ptr %arguments, i64 %i
  store i64 %value, ptr %argument, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @run_kernel(ptr %state, ptr %e, ptr %table, ptr %arguments, i64 %turn, i64 %is_leader) {
entry:
  %count = word i64 %e[COUNT]
  %chunk = word i64 %e[CHUNK]
  %shared = icmp slt i64 %chunk, %count
  %leads = icmp ne i64 %is_leader, 0
  %takes.part = or i1 %shared, %leads
  %next.at = getelementptr i64, ptr %e, i64 NEXT
  %done.at = getelementptr i64, ptr %e, i64 DONE
  %base = mul i64 %turn, %count
  %limit = add i64 %base, %count
  %now.first = load atomic i64, ptr %next.at monotonic, align 8
  %some.first = icmp slt i64 %now.first, %limit
  %goes = and i1 %takes.part, %some.first
  br i1 %goes, label %prepare, label %done
prepare:
  %function = load ptr, ptr %e, align 8
  %stop.at = getelementptr i64, ptr %state, i64 STOP
  call void @gather(ptr %e, ptr %table, ptr %arguments)
  br label %take
take:
  %ran = phi i64 [ 0, %prepare ], [ %ran, %contest ], [ %ran.now, %finish ]
  %now = load atomic i64, ptr %next.at monotonic, align 8
  %some = icmp slt i64 %now, %limit
  br i1 %some, label %claim, label %tally
claim:
  %whole = add i64 %now, %chunk
  %inside = icmp slt i64 %whole, %limit
  %end = select i1 %inside, i64 %whole, i64 %limit
  br i1 %shared, label %contest, label %own
own:
  store atomic i64 %end, ptr %next.at monotonic, align 8
  br label %check
contest:
  %pair = cmpxchg ptr %next.at, i64 %now, i64 %end monotonic monotonic, align 8
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %check, label %take
check:
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %finish, label %run
run:
  %from = sub i64 %now, %base
  %to = sub i64 %end, %base
  call void %function(ptr %arguments, i64 %from, i64 %to)
  br label %finish
finish:
  %length = sub i64 %end, %now
  %ran.now = add i64 %ran, %length
  br label %take
tally:
  br i1 %shared, label %tally.shared, label %tally.own
tally.shared:
  %before = atomicrmw add ptr %done.at, i64 %ran release, align 8
  br label %done
tally.own:
  %own.before = load atomic i64, ptr %done.at monotonic, align 8
  %own.done = add i64 %own.before, %ran
  store atomic i64 %own.done, ptr %done.at release, align 8
  br label %done
done:
  ret void
}

define internal void @run_loop(ptr %state, i64 %i, ptr %table, ptr %arguments, i64 %turn, i64 %is_leader) {
entry:
  %e = call ptr @entry_at(ptr %state, i64 %i)
  %patches = word ptr %e[PATCHES]
  %steps = word i64 %e[STEPS]
  %count = word i64 %e[ARGUMENTS]
  %entries = word i64 %e[BODY]
  %turn.at = getelementptr i64, ptr %e, i64 TURN
  %from = add i64 %i, 1
  %to = add i64 %from, %entries
  %first = mul i64 %turn, %steps
  %leads = icmp ne i64 %is_leader, 0
  br label %head
head:
  %r = phi i64 [ 0, %entry ], [ %next, %step ]
  %some = icmp slt i64 %r, %steps
  br i1 %some, label %begin, label %done
begin:
  %now = add i64 %first, %r
  br i1 %leads, label %lead, label %follow
lead:
  store atomic i64 %now, ptr %turn.at release, align 8
  br label %step
follow:
  %led = load atomic i64, ptr %turn.at acquire, align 8
  %led.step = sub i64 %led, %first
  %ahead = icmp sgt i64 %led.step, %r
  br i1 %ahead, label %skip, label %step
skip:
  %beyond = icmp sge i64 %led.step, %steps
  br i1 %beyond, label %done, label %catch.up
catch.up:
  %before.led = sub i64 %led.step, 1
  call void @patch(ptr %table, ptr %patches, i64 %count, i64 %before.led, i64 %steps)
  br label %step
step:
  %this = phi i64 [ %r, %lead ], [ %r, %follow ], [ %led.step, %catch.up ]
  %this.turn = add i64 %first, %this
  %turn.before = sub i64 %this.turn, 1
  call void @wait_for_entries(ptr %state, i64 %from, i64 %to, i64 %turn.before)
  call void @patch(ptr %table, ptr %patches, i64 %count, i64 %this, i64 %steps)
  call void @run_entries(ptr %state, i64 %from, i64 %from, i64 %to, ptr %table, ptr %arguments, i64 %this.turn,
                         i64 %is_leader, ptr null)
  %next = add i64 %this, 1
  br label %head
done:
  ret void
}

; entries before `all.done` need not be waited for; where this thread is goes to `place`, unless that is null
define internal void @run_entries(ptr %state, i64 %from, i64 %all.done, i64 %to, ptr %table, ptr %arguments, i64 %turn,
                                  i64 %is_leader, ptr %place) {
entry:
  %is.told = icmp ne ptr %place, null
  %all.done.place = getelementptr i64, ptr %place, i64 1
  br label %head
head:
  %i = phi i64 [ %from, %entry ], [ %next.kernel, %kernel ], [ %next.loop, %loop ]
  %waited = phi i64 [ %all.done, %entry ], [ %waited.next, %kernel ], [ %waited.next, %loop ]
  %some = icmp slt i64 %i, %to
  br i1 %some, label %body, label %done
body:
  %e = call ptr @entry_at(ptr %state, i64 %i)
  %after = word i64 %e[AFTER]
  call void @wait_for_entries(ptr %state, i64 %waited, i64 %after, i64 %turn)
  %further = icmp sgt i64 %after, %waited
  %waited.next = select i1 %further, i64 %after, i64 %waited
  br i1 %is.told, label %tell, label %run
tell:
  store atomic i64 %i, ptr %place release, align 8
  store atomic i64 %waited.next, ptr %all.done.place release, align 8
  br label %run
run:
  %function = load ptr, ptr %e, align 8
  %is.loop = icmp eq ptr %function, null
  br i1 %is.loop, label %loop, label %kernel
kernel:
  call void @run_kernel(ptr %state, ptr %e, ptr %table, ptr %arguments, i64 %turn, i64 %is_leader)
  %next.kernel = add i64 %i, 1
  br label %head
loop:
  call void @run_loop(ptr %state, i64 %i, ptr %table, ptr %arguments, i64 %turn, i64 %is_leader)
  %entries = word i64 %e[BODY]
  %inner = add i64 %i, 1
  %next.loop = add i64 %inner, %entries
  br label %head
done:
  ret void
}
"""


# ---- the walk ----
WALK_OF_A_PLAN = r"""
define internal void @reset(ptr %state) {
entry:
  %entries = load i64, ptr %state, align 8
  %first = word ptr %state[FIRST]
  %led.at = getelementptr i64, ptr %state, i64 LED
  store i64 0, ptr %led.at, align 8
  %all.done.at = getelementptr i64, ptr %state, i64 ALL_DONE
  store i64 0, ptr %all.done.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %entries
  br i1 %some, label %body, label %done
body:
  %at = mul i64 %i, ENTRY_WORDS
  %e = getelementptr i64, ptr %first, i64 %at
  %next.at = getelementptr i64, ptr %e, i64 NEXT
  store i64 0, ptr %next.at, align 8
  %done.at = getelementptr i64, ptr %e, i64 DONE
  store i64 0, ptr %done.at, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal ptr @own_table(ptr %state, ptr %room) {
entry:
  %table = word ptr %state[TABLE]
  %words = word i64 %state[COPIED]
  %copies = icmp ne i64 %words, 0
  br i1 %copies, label %head, label %shared
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %words
  br i1 %some, label %body, label %copied
body:
  %value = word i64 %table[%i]
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
  %most = word i64 %state[ARGUMENTS_MAX]
  %arguments = alloca i64, i64 %most, align 64
  %words = word i64 %state[COPIED]
  %room = alloca i64, i64 %words, align 64
  %table = call ptr @own_table(ptr %state, ptr %room)
  %led = word i64 %state[LED] acquire
  %all.done = word i64 %state[ALL_DONE] acquire
  %leads = icmp ne i64 %is_leader, 0
  %place = select i1 %leads, ptr %led.at, ptr null
  call void @run_entries(ptr %state, i64 %led, i64 %all.done, i64 %entries, ptr %table, ptr %arguments, i64 0,
                         i64 %is_leader, ptr %place)
  ret void
}

define void @gate(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %words = load ptr, ptr %arguments, align 8
  %count = word i64 %arguments[1]
  %stop = word ptr %arguments[2]
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %zero ]
  %some = icmp slt i64 %i, %count
  br i1 %some, label %look, label %done
look:
  %word = word i64 %words[%i]
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
  %helped = word i64 %state[HELPED]
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


# ---- the code ----
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


def _word(line: re.Match[str]) -> str:
    """Returns the two lines of LLVM IR that read a word: its address, and its value."""
    name, kind, base, index, order = line.groups()
    load = f"load atomic {kind}, ptr %{name}.at {order}" if order else f"load {kind}, ptr %{name}.at"
    return f"%{name}.at = getelementptr i64, ptr {base}, i64 {index}\n  %{name} = {load}, align 8"


def walker_source(triple: str = "") -> Source:
    """Returns the walker as text for `compile_source`, for machines of a kind as LLVM names it: by default this one's."""
    hint = PAUSE.get(triple.partition("-")[0] or platform.machine().lower(), "")
    text = ENTRIES_OF_A_PLAN + HELPERS_OF_A_PLAN + WALK_OF_A_PLAN
    text = re.sub(r"%(\S+) = word (\w+) (%\S+)\[(.+)\] ?(\w*)", _word, text)
    text = re.sub(r"\b[A-Z][A-Z_]+\b", lambda word: WORDS.get(word[0], hint), text)
    return Source("plan_walker", "llvm", text, (), (), tuple(Launch(symbol, 1, 1, 1) for symbol in SYMBOLS))
