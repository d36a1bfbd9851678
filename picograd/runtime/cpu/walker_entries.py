"""The inner part of the plan walker: what a thread does at an entry, be it a kernel or a loop.

In:    nothing
Out:   `ENTRIES_OF_A_PLAN`: LLVM IR of `run_entries`, which runs some entries in one turn, `wait_for_entries` and `pause`
Called by: runtime/cpu/walker.py, where the words of states, entries and patches are explained.
Next:  picograd/runtime/cpu/walker_helpers.py
"""

ENTRIES_OF_A_PLAN = r"""
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
  %first.at = getelementptr i64, ptr %state, i64 1
  %first = load ptr, ptr %first.at, align 8
  %at = mul i64 %i, 16
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
  %count.at = getelementptr i64, ptr %e, i64 2
  %count = load i64, ptr %count.at, align 8
  %function = load ptr, ptr %e, align 8
  %is.loop = icmp eq ptr %function, null
  br i1 %is.loop, label %loop, label %kernel
kernel:
  %turns = add i64 %turn, 1
  %all = mul i64 %turns, %count
  %done.at = getelementptr i64, ptr %e, i64 9
  call void @wait_until(ptr %state, ptr %done.at, i64 %all)
  %next.kernel = add i64 %i, 1
  br label %head
loop:
  %begun = mul i64 %turn, %count
  %ended = add i64 %begun, %count
  %last = sub i64 %ended, 1
  %body.at = getelementptr i64, ptr %e, i64 6
  %entries = load i64, ptr %body.at, align 8
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
  %at = mul i64 %i, 5
  %kind.at = getelementptr i64, ptr %patches, i64 %at
  %kind = load i64, ptr %kind.at, align 8
  %set.at = getelementptr i64, ptr %kind.at, i64 1
  %set = load i64, ptr %set.at, align 8
  %base.at = getelementptr i64, ptr %kind.at, i64 2
  %base.place = load i64, ptr %base.at, align 8
  %other.at = getelementptr i64, ptr %kind.at, i64 3
  %other.place = load i64, ptr %other.at, align 8
  %stride.at = getelementptr i64, ptr %kind.at, i64 4
  %stride = load i64, ptr %stride.at, align 8
  %base.in = getelementptr i64, ptr %table, i64 %base.place
  %base = load i64, ptr %base.in, align 8
  %other.in = getelementptr i64, ptr %table, i64 %other.place
  %other = load i64, ptr %other.in, align 8
  %is.reversed = icmp eq i64 %kind, 1
  %step = select i1 %is.reversed, i64 %left, i64 %r
  %offset = mul i64 %step, %stride
  %row = add i64 %base, %offset
  %carried = select i1 %is.first, i64 %base, i64 %other
  %turned = select i1 %is.odd, i64 %other, i64 %base
  %is.carried = icmp eq i64 %kind, 2
  %is.turned = icmp eq i64 %kind, 3
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
  %places.at = getelementptr i64, ptr %e, i64 1
  %places = load ptr, ptr %places.at, align 8
  %count.at = getelementptr i64, ptr %e, i64 5
  %count = load i64, ptr %count.at, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %i, %count
  br i1 %some, label %body, label %done
body:
  %place.at = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %place.at, align 8
  %value.at = getelementptr i64, ptr %table, i64 %place
  %value = load i64, ptr %value.at, align 8
  %argument = getelementptr i64, ptr %arguments, i64 %i
  store i64 %value, ptr %argument, align 8
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @run_kernel(ptr %state, ptr %e, ptr %table, ptr %arguments, i64 %turn, i64 %is_leader) {
entry:
  %count.at = getelementptr i64, ptr %e, i64 2
  %count = load i64, ptr %count.at, align 8
  %chunk.at = getelementptr i64, ptr %e, i64 3
  %chunk = load i64, ptr %chunk.at, align 8
  %shared = icmp slt i64 %chunk, %count
  %leads = icmp ne i64 %is_leader, 0
  %takes.part = or i1 %shared, %leads
  %next.at = getelementptr i64, ptr %e, i64 8
  %done.at = getelementptr i64, ptr %e, i64 9
  %base = mul i64 %turn, %count
  %limit = add i64 %base, %count
  %now.first = load atomic i64, ptr %next.at monotonic, align 8
  %some.first = icmp slt i64 %now.first, %limit
  %goes = and i1 %takes.part, %some.first
  br i1 %goes, label %prepare, label %done
prepare:
  %function = load ptr, ptr %e, align 8
  %stop.at = getelementptr i64, ptr %state, i64 2
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
  %patches.at = getelementptr i64, ptr %e, i64 1
  %patches = load ptr, ptr %patches.at, align 8
  %steps.at = getelementptr i64, ptr %e, i64 2
  %steps = load i64, ptr %steps.at, align 8
  %count.at = getelementptr i64, ptr %e, i64 5
  %count = load i64, ptr %count.at, align 8
  %body.at = getelementptr i64, ptr %e, i64 6
  %entries = load i64, ptr %body.at, align 8
  %turn.at = getelementptr i64, ptr %e, i64 9
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
  %after.at = getelementptr i64, ptr %e, i64 4
  %after = load i64, ptr %after.at, align 8
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
  %body.at = getelementptr i64, ptr %e, i64 6
  %entries = load i64, ptr %body.at, align 8
  %inner = add i64 %i, 1
  %next.loop = add i64 %inner, %entries
  br label %head
done:
  ret void
}
"""
