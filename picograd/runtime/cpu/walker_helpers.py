"""How a leader and its helpers meet: plans are handed over in native code, by an exchange of one word.

In:    nothing
Out:   `HELPERS_OF_A_PLAN`: LLVM IR of `void @serve(ptr line)`, the life of a helper, of `void @dismiss(ptr line)`, its end,
       and of `post` and `take_back`, what a leader does before and after a plan; the layout of a line
Called by: runtime/cpu/walker.py; runtime/cpu/pool.py writes lines and has them served.
Next:  picograd/runtime/cpu/pool.py

A helper waits at a line of its own. Its first word, the job, is
    IDLE    the helper looks at the line again and again, or is about to
    ASLEEP  it waits for its lock; who changes this word releases the lock, once
    a plan: the address of a plan's state, given by its leader; with the last bit set, the helper is at work on it
Every change but the helper's last (at work -> IDLE) is a compare-and-exchange, so a plan is either taken by the helper or
taken back by the leader. A leader that is done takes back what nobody took and waits for who is at work: after that nobody
reads its plan. It never waits for a helper that has not come. With several leaders a helper is whose plan comes first.

line, in 64-bit words:     0 job   1 address of the next helper's line, or 0
                           8 ends: the helper shall return   9 its lock   10 waits for a lock   11 releases a lock
                           12 reads a clock, or 0   13 which clock   14 nanoseconds to look for a plan before it sleeps
                           15 address of sched_yield, or 0   16 times it went to sleep   17 plans it was at work on
"""

LINE_WORDS = 24  # three cache lines: what leaders write, what is read, what the helper counts
JOB, NEXT_LINE, ENDS, LOCK, ACQUIRE, RELEASE, CLOCK, CLOCK_ID, SPIN_NS, LINE_YIELD, SLEEPS, PLANS = 0, 1, *range(8, 18)
IDLE, ASLEEP = 0, 1
LOOKS = 64  # between two looks at the clock, some 4 us

HELPERS_OF_A_PLAN = r"""
define internal void @wake(ptr %line) {
entry:
  %lock.at = getelementptr i64, ptr %line, i64 9
  %lock = load ptr, ptr %lock.at, align 8
  %release.at = getelementptr i64, ptr %line, i64 11
  %release = load ptr, ptr %release.at, align 8
  call void %release(ptr %lock)
  ret void
}

; gives a plan to as many helpers as it wants and are free; returns the line after the last it looked at
define internal ptr @post(ptr %state, ptr %crew) {
entry:
  %wanted.at = getelementptr i64, ptr %state, i64 8
  %wanted = load i64, ptr %wanted.at, align 8
  %wakes.at = getelementptr i64, ptr %state, i64 9
  %wakes = load i64, ptr %wakes.at, align 8
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
  %is.idle = icmp eq i64 %job, 0
  %is.asleep = icmp eq i64 %job, 1
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
  %next.at = getelementptr i64, ptr %line, i64 1
  %next = load atomic ptr, ptr %next.at acquire, align 8
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
  %pair = cmpxchg ptr %line, i64 %plan, i64 0 seq_cst acquire, align 8
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
  %next.at = getelementptr i64, ptr %line, i64 1
  %next = load atomic ptr, ptr %next.at acquire, align 8
  br label %head
done:
  ret void
}

define internal i64 @now(ptr %clock, i64 %which, ptr %time) {
entry:
  %id = trunc i64 %which to i32
  %result = call i32 %clock(i32 %id, ptr %time)
  %s = load i64, ptr %time, align 8
  %ns.at = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %ns.at, align 8
  %all = mul i64 %s, 1000000000
  %sum = add i64 %all, %ns
  ret i64 %sum
}

; looks at a line until there is a plan, or for as long as the line says; returns what was there last
define internal i64 @look_for_a_plan(ptr %line, ptr %time) {
entry:
  %ends.at = getelementptr i64, ptr %line, i64 8
  %clock.at = getelementptr i64, ptr %line, i64 12
  %clock = load ptr, ptr %clock.at, align 8
  %which.at = getelementptr i64, ptr %line, i64 13
  %which = load i64, ptr %which.at, align 8
  %spin.at = getelementptr i64, ptr %line, i64 14
  %yield.at = getelementptr i64, ptr %line, i64 15
  %yield = load ptr, ptr %yield.at, align 8
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
  %is.idle = icmp eq i64 %job, 0
  br i1 %is.idle, label %again, label %done
again:
  %more = add i64 %count, 1
  %is.long = icmp sge i64 %more, LOOKS
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
  %last = phi i64 [ %job, %head ], [ 0, %check ]
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
  %ends.at = getelementptr i64, ptr %line, i64 8
  br label %head
head:
  %ends = load atomic i64, ptr %ends.at seq_cst, align 8
  %is.end = icmp ne i64 %ends, 0
  br i1 %is.end, label %done, label %look
look:
  %job = call i64 @look_for_a_plan(ptr %line, ptr %time)
  %is.idle = icmp eq i64 %job, 0
  br i1 %is.idle, label %lie.down, label %take
take:
  %at.work = or i64 %job, 1
  %pair = cmpxchg ptr %line, i64 %job, i64 %at.work seq_cst monotonic, align 8
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %work, label %head
work:
  call void @count(ptr %line, i64 17)
  %state = inttoptr i64 %job to ptr
  call void @help(ptr %state)
  store atomic i64 0, ptr %line release, align 8
  br label %head
lie.down:
  %down = cmpxchg ptr %line, i64 0, i64 1 seq_cst monotonic, align 8
  %is.down = extractvalue { i64, i1 } %down, 1
  br i1 %is.down, label %check, label %head
check:
  %now.ends = load atomic i64, ptr %ends.at seq_cst, align 8
  %is.now.end = icmp ne i64 %now.ends, 0
  br i1 %is.now.end, label %get.up, label %sleep
get.up:
  %up = cmpxchg ptr %line, i64 1, i64 0 seq_cst monotonic, align 8
  %is.up = extractvalue { i64, i1 } %up, 1
  br i1 %is.up, label %done, label %sleep
sleep:
  call void @count(ptr %line, i64 16)
  %lock.at = getelementptr i64, ptr %line, i64 9
  %lock = load ptr, ptr %lock.at, align 8
  %acquire.at = getelementptr i64, ptr %line, i64 10
  %acquire = load ptr, ptr %acquire.at, align 8
  %got = call i32 %acquire(ptr %lock, i32 1)
  br label %head
done:
  ret void
}

define void @dismiss(ptr %line) {
entry:
  %ends.at = getelementptr i64, ptr %line, i64 8
  store atomic i64 1, ptr %ends.at seq_cst, align 8
  %pair = cmpxchg ptr %line, i64 1, i64 0 seq_cst monotonic, align 8
  %slept = extractvalue { i64, i1 } %pair, 1
  br i1 %slept, label %rouse, label %done
rouse:
  call void @wake(ptr %line)
  br label %done
done:
  ret void
}
""".replace("LOOKS", str(LOOKS))
