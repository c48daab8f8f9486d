; The thread pool behind parallel loops. It is compiled for whatever triple a library is made for.
;
;   i32 __tw_pool_launch(ptr body, ptr env, i64 begin, i64 end)
;
; runs body(b, e, env) on disjoint ranges that make up [begin, end), in this thread and in the workers, and
; gives the first error. One launch at a time uses the workers; a launch from inside another, or beside it,
; runs in its own thread alone. Work is shared: whoever is free takes the next chunk, this thread from the front
; and workers from the back. So, with two threads, each finds in its cache what it wrote in the launch before.
;
; A worker joins a job by raising %active and then looking at %open; the launcher closes the job and then
; waits for %active to fall to zero. So a worker that wakes late never holds a launch up.
;
;   i32 __tw_pool_limit(i64 thread, i64 limit)
;
; sets how many threads the launches of one thread (as pthread_self names it) may use, 0 for as many as others;
; it gives 1 when too many threads have limits of their own. Calls must not overlap.
;
;   ptr __tw_pool_take(i64 size)        void __tw_pool_give(ptr block)
;
; memory for temporaries, which is kept for the next call when it is given back: fresh pages from the system cost
; more than many a kernel. Any thread may call these at any time.
;
;   i64 __tw_quota
;
; how many CPUs the control groups of the process get at a time; 0 is not known yet, and read from the files of a
; container's group when the pool starts. Python, which knows groups inside of groups, writes it before.
;
; Lines that begin with ;@x86, ;@arm64, ;@linux or ;@other are for those targets only.

@__tw_parallel_launch = global ptr @__tw_pool_launch
@__tw_memory = global { ptr, ptr } { ptr @__tw_pool_take, ptr @__tw_pool_give }

@tw.mutex = internal global [128 x i8] zeroinitializer, align 64
@tw.wake = internal global [128 x i8] zeroinitializer, align 64
@tw.started = internal global i32 0, align 64     ; 0 no, 1 being started, 2 yes
@tw.threads = internal global i64 1               ; there are so many, this one included
@tw.usual = internal global i64 1                 ; a launch without a limit of its own uses so many of them
@tw.limited = internal global i64 0               ; how many threads have limits
@tw.limits = internal global [64 x { i64, i64 }] zeroinitializer, align 64
@tw.seats = internal global i64 0, align 64       ; so many workers may still join the job
@tw.process = internal global i32 0               ; whose workers they are: a fork leaves them behind
@tw.busy = internal global i32 0, align 64
@tw.generation = internal global i32 0, align 64  ; counts launches; workers wait for it to change
@tw.sleeping = internal global i32 0, align 64
@tw.open = internal global i32 0, align 64
@tw.active = internal global i32 0, align 64
@tw.left = internal global i64 0, align 64        ; what nobody has taken: the first iteration, the end (upper half)
@tw.body = internal global ptr null, align 64
@tw.env = internal global ptr null
@tw.begin = internal global i64 0                 ; what iterations are counted from
@tw.share = internal global i64 2                 ; a chunk is what is left, divided by this
@tw.error = internal global i32 0
@tw.allowed = internal global [16 x i64] zeroinitializer, align 64
@tw.handles = internal global [257 x ptr] zeroinitializer, align 64
@tw.crowded = internal global i32 0               ; more threads than CPUs
@tw.home = internal global i32 -1                 ; the CPU that the workers were sent away from
@tw.kept = internal global [16 x ptr] zeroinitializer, align 64  ; blocks that nobody uses
@tw.held = internal global i64 0, align 64        ; bytes of these
@__tw_quota = global i64 0
@tw.variable = internal constant [23 x i8] c"TILEWRIGHT_NUM_THREADS\00"
;@linux @tw.max = internal constant [23 x i8] c"/sys/fs/cgroup/cpu.max\00"
;@linux @tw.share_of_cpu = internal constant [36 x i8] c"/sys/fs/cgroup/cpu/cpu.cfs_quota_us\00"
;@linux @tw.period = internal constant [37 x i8] c"/sys/fs/cgroup/cpu/cpu.cfs_period_us\00"

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare ptr @pthread_self()
declare i32 @getpid()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare ptr @getenv(ptr)
declare i64 @strtol(ptr, ptr, i32)
declare noalias ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
;@linux declare i32 @sched_getaffinity(i32, i64, ptr)
;@linux declare i32 @sched_getcpu()
;@linux declare i32 @open(ptr, i32, ...)
;@linux declare i64 @read(i32, ptr, i64)
;@linux declare i32 @close(i32)
;@linux declare i32 @pthread_setaffinity_np(ptr, i64, ptr)
;@other declare i64 @sysconf(i32)
;@x86 declare void @llvm.x86.sse2.pause()
;@arm64 declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.ctpop.i64(i64)

define internal void @tw.relax() alwaysinline nounwind {
;@x86   call void @llvm.x86.sse2.pause()
;@arm64   call void @llvm.aarch64.hint(i32 1)
  ret void
}

; How many CPUs this process may use; on Linux also which.
define internal i64 @tw.cpus() nounwind {
entry:
;@linux   %rc = call i32 @sched_getaffinity(i32 0, i64 128, ptr @tw.allowed)
;@linux   br label %sum
;@linux sum:
;@linux   %i = phi i64 [ 0, %entry ], [ %i1, %sum ]
;@linux   %n = phi i64 [ 0, %entry ], [ %n1, %sum ]
;@linux   %slot = getelementptr inbounds i64, ptr @tw.allowed, i64 %i
;@linux   %word = load i64, ptr %slot
;@linux   %bits = call i64 @llvm.ctpop.i64(i64 %word)
;@linux   %n1 = add i64 %n, %bits
;@linux   %i1 = add i64 %i, 1
;@linux   %more = icmp slt i64 %i1, 16
;@linux   br i1 %more, label %sum, label %told
;@linux told:
;@other   %n1 = call i64 @sysconf(i32 58)
  %some = icmp sgt i64 %n1, 0
  %cpus = select i1 %some, i64 %n1, i64 1
  ret i64 %cpus
}

;@linux ; The text of a small file, which ends with 0; empty if there is no such file.
;@linux define internal void @tw.text(ptr %path, ptr %text) nounwind {
;@linux entry:
;@linux   store i8 0, ptr %text
;@linux   %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 0)
;@linux   %none = icmp slt i32 %file, 0
;@linux   br i1 %none, label %done, label %look
;@linux look:
;@linux   %n = call i64 @read(i32 %file, ptr %text, i64 63)
;@linux   %c = call i32 @close(i32 %file)
;@linux   %some = icmp sgt i64 %n, 0
;@linux   %size = select i1 %some, i64 %n, i64 0
;@linux   %end = getelementptr inbounds i8, ptr %text, i64 %size
;@linux   store i8 0, ptr %end
;@linux   br label %done
;@linux done:
;@linux   ret void
;@linux }

; How many CPUs the process gets at a time, rounded up; 256 without a limit.
define internal i64 @tw.quota() nounwind {
entry:
  %told = load i64, ptr @__tw_quota
  %known = icmp sgt i64 %told, 0
  br i1 %known, label %use, label %ask
use:
  ret i64 %told
ask:
;@linux   %text = alloca [64 x i8], align 8
;@linux   %rest = alloca ptr, align 8
;@linux   call void @tw.text(ptr @tw.max, ptr %text)
;@linux   %first = load i8, ptr %text
;@linux   %older = icmp eq i8 %first, 0
;@linux   br i1 %older, label %groups, label %both
;@linux both:
;@linux   %share2 = call i64 @strtol(ptr %text, ptr %rest, i32 10)
;@linux   %second = load ptr, ptr %rest
;@linux   %period2 = call i64 @strtol(ptr %second, ptr null, i32 10)
;@linux   br label %divide
;@linux groups:
;@linux   call void @tw.text(ptr @tw.share_of_cpu, ptr %text)
;@linux   %share1 = call i64 @strtol(ptr %text, ptr null, i32 10)
;@linux   call void @tw.text(ptr @tw.period, ptr %text)
;@linux   %period1 = call i64 @strtol(ptr %text, ptr null, i32 10)
;@linux   br label %divide
;@linux divide:
;@linux   %share = phi i64 [ %share2, %both ], [ %share1, %groups ]
;@linux   %period = phi i64 [ %period2, %both ], [ %period1, %groups ]
;@linux   %limited = icmp sgt i64 %share, 0
;@linux   %timed = icmp sgt i64 %period, 0
;@linux   %is_limit = and i1 %limited, %timed
;@linux   br i1 %is_limit, label %limit, label %free
;@linux limit:
;@linux   %less = sub i64 %share, 1
;@linux   %whole = udiv i64 %less, %period
;@linux   %up = add i64 %whole, 1
;@linux   ret i64 %up
;@other   br label %free
free:
  ret i64 256
}

; How many threads: the environment's word, else one for each CPU that the process gets at a time.
define internal i64 @tw.count(i64 %cpus) nounwind {
entry:
  %text = call ptr @getenv(ptr @tw.variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %ask, label %parse
parse:
  %said = call i64 @strtol(ptr %text, ptr null, i32 10)
  %sane = icmp sgt i64 %said, 0
  br i1 %sane, label %use, label %ask
use:
  %few = icmp slt i64 %said, 256
  %limited = select i1 %few, i64 %said, i64 256
  ret i64 %limited
ask:
  %quota = call i64 @tw.quota()
  %fewer = icmp slt i64 %quota, %cpus
  %both = select i1 %fewer, i64 %quota, i64 %cpus
  ret i64 %both
}

; A sleeping worker is often woken on the CPU of the one who wakes it, which is busy, and stays there for
; milliseconds. So workers are sent to the other CPUs, again when the launching thread comes to be on another one
; than before. Where there are more threads than CPUs nothing is said.
define internal void @tw.spread() nounwind {
entry:
;@linux   %crowded = load i32, ptr @tw.crowded
;@linux   %skip = icmp ne i32 %crowded, 0
;@linux   br i1 %skip, label %done, label %look
;@linux look:
;@linux   %cpu = call i32 @sched_getcpu()
;@linux   %home = load i32, ptr @tw.home
;@linux   %moved = icmp ne i32 %cpu, %home
;@linux   %known = icmp ult i32 %cpu, 1024
;@linux   %send_them = and i1 %moved, %known
;@linux   br i1 %send_them, label %build, label %done
;@linux build:
;@linux   store i32 %cpu, ptr @tw.home
;@linux   %mask = alloca [16 x i64], align 8
;@linux   %whole = load [16 x i64], ptr @tw.allowed
;@linux   store [16 x i64] %whole, ptr %mask
;@linux   %wide = zext i32 %cpu to i64
;@linux   %at = lshr i64 %wide, 6
;@linux   %bit = and i64 %wide, 63
;@linux   %one = shl i64 1, %bit
;@linux   %keep = xor i64 %one, -1
;@linux   %slot = getelementptr inbounds i64, ptr %mask, i64 %at
;@linux   %word = load i64, ptr %slot
;@linux   %less = and i64 %word, %keep
;@linux   store i64 %less, ptr %slot
;@linux   %threads = load i64, ptr @tw.threads
;@linux   br label %each
;@linux each:
;@linux   %i = phi i64 [ 1, %build ], [ %i1, %send ]
;@linux   %more = icmp slt i64 %i, %threads
;@linux   br i1 %more, label %send, label %done
;@linux send:
;@linux   %place = getelementptr inbounds ptr, ptr @tw.handles, i64 %i
;@linux   %thread = load ptr, ptr %place
;@linux   %rc = call i32 @pthread_setaffinity_np(ptr %thread, i64 128, ptr %mask)
;@linux   %i1 = add i64 %i, 1
;@linux   br label %each
;@other   br label %done
done:
  ret void
}

; In the child of a fork no worker lives on: begin anew.
define internal void @tw.forked() nounwind {
  store atomic i32 0, ptr @tw.open seq_cst, align 4
  store atomic i32 0, ptr @tw.active seq_cst, align 4
  store atomic i32 0, ptr @tw.sleeping seq_cst, align 4
  store atomic i32 0, ptr @tw.busy seq_cst, align 4
  store atomic i32 0, ptr @tw.started seq_cst, align 4
  ret void
}

; Take chunks until there are none, from the front or from the back: large ones first, single iterations at the end, so
; that a thread which is slow or interrupted holds up little.
define internal void @tw.work(i1 %front) nounwind {
entry:
  %body = load ptr, ptr @tw.body
  %env = load ptr, ptr @tw.env
  %begin = load i64, ptr @tw.begin
  %share = load i64, ptr @tw.share
  %first = load atomic i64, ptr @tw.left seq_cst, align 8
  br label %take
take:
  %left = phi i64 [ %first, %entry ], [ %now, %retry ], [ %later, %more ]
  %from = and i64 %left, 4294967295
  %to = lshr i64 %left, 32
  %any = icmp ult i64 %from, %to
  br i1 %any, label %claim, label %done
claim:
  %rest = sub i64 %to, %from
  %part = udiv i64 %rest, %share
  %tiny = icmp ult i64 %part, 1
  %chunk = select i1 %tiny, i64 1, i64 %part
  %up = add i64 %from, %chunk
  %down = sub i64 %to, %chunk
  %low = select i1 %front, i64 %from, i64 %down
  %high = select i1 %front, i64 %up, i64 %to
  %from1 = select i1 %front, i64 %up, i64 %from
  %to1 = select i1 %front, i64 %to, i64 %down
  %upper = shl i64 %to1, 32
  %new = or i64 %upper, %from1
  %pair = cmpxchg ptr @tw.left, i64 %left, i64 %new seq_cst seq_cst
  %now = extractvalue { i64, i1 } %pair, 0
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %run, label %retry
retry:
  br label %take
run:
  %b = add i64 %begin, %low
  %e = add i64 %begin, %high
  %code = call i32 %body(i64 %b, i64 %e, ptr %env)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %stop, label %more
more:
  %later = load atomic i64, ptr @tw.left seq_cst, align 8
  br label %take
stop:
  %old = cmpxchg ptr @tw.error, i32 0, i32 %code seq_cst seq_cst
  store atomic i64 0, ptr @tw.left seq_cst, align 8
  br label %done
done:
  ret void
}

define internal ptr @tw.worker(ptr %unused) nounwind {
entry:
  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %now, %leave ], [ %now, %late ]
  br label %spin
spin:
  %turns = phi i32 [ 0, %wait ], [ %turns1, %again ]
  %g = load atomic i32, ptr @tw.generation acquire, align 4
  %changed = icmp ne i32 %g, %seen
  br i1 %changed, label %join, label %idle
idle:
  %turns1 = add i32 %turns, 1
  %patient = icmp slt i32 %turns1, 3000
  br i1 %patient, label %again, label %sleep
again:
  call void @tw.relax()
  br label %spin
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @tw.mutex)
  %s0 = atomicrmw add ptr @tw.sleeping, i32 1 seq_cst
  br label %check
check:
  %g2 = load atomic i32, ptr @tw.generation seq_cst, align 4
  %changed2 = icmp ne i32 %g2, %seen
  br i1 %changed2, label %awake, label %doze
doze:
  %w = call i32 @pthread_cond_wait(ptr @tw.wake, ptr @tw.mutex)
  br label %check
awake:
  %s1 = atomicrmw sub ptr @tw.sleeping, i32 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @tw.mutex)
  br label %join
join:
  %now = phi i32 [ %g, %spin ], [ %g2, %awake ]
  %a0 = atomicrmw add ptr @tw.active, i32 1 seq_cst
  %o = load atomic i32, ptr @tw.open seq_cst, align 4
  %is_open = icmp ne i32 %o, 0
  br i1 %is_open, label %seat, label %late
seat:
  %before = atomicrmw sub ptr @tw.seats, i64 1 seq_cst
  %free = icmp sgt i64 %before, 0
  br i1 %free, label %leave, label %late
leave:
  call void @tw.work(i1 false)
  %a1 = atomicrmw sub ptr @tw.active, i32 1 seq_cst
  br label %wait
late:
  %a2 = atomicrmw sub ptr @tw.active, i32 1 seq_cst
  br label %wait
}

; Make workers until there are `want` threads, or as many as the system gives.
define internal void @tw.grow(i64 %want) nounwind noinline {
entry:
  %few = icmp slt i64 %want, 256
  %most = select i1 %few, i64 %want, i64 256
  %cpus = call i64 @tw.cpus()
  %over = icmp sgt i64 %most, %cpus
  %crowded = zext i1 %over to i32
  store i32 %crowded, ptr @tw.crowded
  %start = load i64, ptr @tw.threads
  br label %each
each:
  %have = phi i64 [ %start, %entry ], [ %have1, %made ]
  %more = icmp slt i64 %have, %most
  br i1 %more, label %create, label %done
create:
  %handle = getelementptr inbounds ptr, ptr @tw.handles, i64 %have
  %rc = call i32 @pthread_create(ptr %handle, ptr null, ptr @tw.worker, ptr null)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %made, label %done
made:
  %thread = load ptr, ptr %handle
  %d = call i32 @pthread_detach(ptr %thread)
  %have1 = add i64 %have, 1
  br label %each
done:
  store i64 %have, ptr @tw.threads
  store i32 -1, ptr @tw.home
  ret void
}

define internal void @tw.start() nounwind noinline {
entry:
  %old = cmpxchg ptr @tw.started, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %old, 1
  br i1 %mine, label %init, label %done
init:
  %m = call i32 @pthread_mutex_init(ptr @tw.mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @tw.wake, ptr null)
  store atomic i32 0, ptr @tw.generation seq_cst, align 4
  %process = call i32 @getpid()
  store i32 %process, ptr @tw.process
  store i64 1, ptr @tw.threads
  %cpus = call i64 @tw.cpus()
  %want = call i64 @tw.count(i64 %cpus)
  call void @tw.grow(i64 %want)
  %have = load i64, ptr @tw.threads
  store i64 %have, ptr @tw.usual
  store atomic i32 2, ptr @tw.started seq_cst, align 4
  br label %done
done:
  ret void
}

; How many threads a launch of this thread uses.
define internal i64 @tw.wanted() nounwind {
entry:
  %usual = load i64, ptr @tw.usual
  %limited = load atomic i64, ptr @tw.limited acquire, align 8
  %none = icmp eq i64 %limited, 0
  br i1 %none, label %plain, label %search
plain:
  ret i64 %usual
search:
  %self = call ptr @pthread_self()
  %me = ptrtoint ptr %self to i64
  br label %each
each:
  %i = phi i64 [ 0, %search ], [ %i1, %next ]
  %slot = getelementptr inbounds { i64, i64 }, ptr @tw.limits, i64 %i
  %who = load atomic i64, ptr %slot acquire, align 8
  %found = icmp eq i64 %who, %me
  br i1 %found, label %mine, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 64
  br i1 %more, label %each, label %plain
mine:
  %place = getelementptr inbounds { i64, i64 }, ptr %slot, i64 0, i32 1
  %limit = load atomic i64, ptr %place monotonic, align 8
  ret i64 %limit
}

define i32 @__tw_pool_limit(i64 %thread, i64 %limit) nounwind {
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %empty = phi ptr [ null, %entry ], [ %empty1, %next ]
  %slot = getelementptr inbounds { i64, i64 }, ptr @tw.limits, i64 %i
  %who = load i64, ptr %slot
  %found = icmp eq i64 %who, %thread
  br i1 %found, label %change, label %next
next:
  %free = icmp eq i64 %who, 0
  %empty1 = select i1 %free, ptr %slot, ptr %empty
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 64
  br i1 %more, label %each, label %unknown
unknown:
  %nothing = icmp eq i64 %limit, 0
  br i1 %nothing, label %good, label %add
add:
  %full = icmp eq ptr %empty1, null
  br i1 %full, label %refuse, label %enter
enter:
  %place = getelementptr inbounds { i64, i64 }, ptr %empty1, i64 0, i32 1
  store atomic i64 %limit, ptr %place monotonic, align 8
  store atomic i64 %thread, ptr %empty1 release, align 8
  %n0 = atomicrmw add ptr @tw.limited, i64 1 seq_cst
  br label %good
change:
  %held = getelementptr inbounds { i64, i64 }, ptr %slot, i64 0, i32 1
  %remove = icmp eq i64 %limit, 0
  br i1 %remove, label %clear, label %set
set:
  store atomic i64 %limit, ptr %held monotonic, align 8
  br label %good
clear:
  store atomic i64 0, ptr %slot release, align 8
  %n1 = atomicrmw sub ptr @tw.limited, i64 1 seq_cst
  br label %good
good:
  ret i32 0
refuse:
  ret i32 1
}

define i32 @__tw_pool_launch(ptr %body, ptr %env, i64 %begin, i64 %end) nounwind {
entry:
  %n = sub i64 %end, %begin
  %empty = icmp slt i64 %n, 1
  br i1 %empty, label %nothing, label %count
nothing:
  ret i32 0
count:
  %one = icmp eq i64 %n, 1
  %huge = icmp ugt i64 %n, 4294967295
  %no = or i1 %one, %huge
  br i1 %no, label %alone, label %look
look:
  %st = load atomic i32, ptr @tw.started acquire, align 4
  %cold = icmp eq i32 %st, 0
  br i1 %cold, label %warm, label %whose
whose:
  %here = call i32 @getpid()
  %owner = load i32, ptr @tw.process
  %same = icmp eq i32 %here, %owner
  br i1 %same, label %seize, label %child
child:
  call void @tw.forked()
  br label %warm
warm:
  call void @tw.start()
  br label %seize
seize:
  %st2 = load atomic i32, ptr @tw.started acquire, align 4
  %ready = icmp eq i32 %st2, 2
  br i1 %ready, label %many, label %alone
many:
  %wanted = call i64 @tw.wanted()
  %single = icmp slt i64 %wanted, 2
  br i1 %single, label %alone, label %claim
claim:
  %got = cmpxchg ptr @tw.busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %share, label %alone
alone:
  %r = call i32 %body(i64 %begin, i64 %end, ptr %env)
  ret i32 %r
share:
  %had = load i64, ptr @tw.threads
  %lack = icmp sgt i64 %wanted, %had
  br i1 %lack, label %grow, label %open
grow:
  call void @tw.grow(i64 %wanted)
  br label %open
open:
  call void @tw.spread()
  %threads = load i64, ptr @tw.threads
  ; A worker that was late for the job before may take two seats, so they are counted only where it matters.
  %most = icmp sge i64 %wanted, %threads
  %chosen = sub i64 %wanted, 1
  %seats = select i1 %most, i64 1073741824, i64 %chosen
  store i64 %seats, ptr @tw.seats
  store ptr %body, ptr @tw.body
  store ptr %env, ptr @tw.env
  store i64 %begin, ptr @tw.begin
  %parts = mul i64 %wanted, 2
  store i64 %parts, ptr @tw.share
  store i32 0, ptr @tw.error
  %whole = shl i64 %n, 32
  store atomic i64 %whole, ptr @tw.left seq_cst, align 8
  store atomic i32 1, ptr @tw.open seq_cst, align 4
  %g = atomicrmw add ptr @tw.generation, i32 1 seq_cst
  %asleep = load atomic i32, ptr @tw.sleeping seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %help
wake:
  %l = call i32 @pthread_mutex_lock(ptr @tw.mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @tw.wake)
  %u = call i32 @pthread_mutex_unlock(ptr @tw.mutex)
  br label %help
help:
  call void @tw.work(i1 true)
  store atomic i32 0, ptr @tw.open seq_cst, align 4
  br label %wait
wait:
  %turns = phi i32 [ 0, %help ], [ %turns1, %again ], [ %turns1, %yield ]
  %a = load atomic i32, ptr @tw.active seq_cst, align 4
  %idle = icmp eq i32 %a, 0
  br i1 %idle, label %finish, label %more
more:
  %turns1 = add i32 %turns, 1
  %patient = icmp slt i32 %turns1, 20000
  br i1 %patient, label %again, label %yield
again:
  call void @tw.relax()
  br label %wait
yield:
  %y = call i32 @sched_yield()
  br label %wait
finish:
  %error = load i32, ptr @tw.error
  store atomic i32 0, ptr @tw.busy seq_cst, align 4
  ret i32 %error
}

; A block begins with its size, in 64 bytes before what is given out. One that is much too large is left to others.
define ptr @__tw_pool_take(i64 %size) nounwind {
entry:
  %fourfold = shl i64 %size, 2
  %most = add i64 %fourfold, 65536
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr inbounds ptr, ptr @tw.kept, i64 %i
  %peek = load atomic ptr, ptr %slot monotonic, align 8
  %none = icmp eq ptr %peek, null
  br i1 %none, label %next, label %try
try:
  %block = atomicrmw xchg ptr %slot, ptr null acq_rel
  %lost = icmp eq ptr %block, null
  br i1 %lost, label %next, label %look
look:
  %head = getelementptr inbounds i8, ptr %block, i64 -64
  %room = load i64, ptr %head
  %enough = icmp sge i64 %room, %size
  %modest = icmp sle i64 %room, %most
  %fits = and i1 %enough, %modest
  br i1 %fits, label %use, label %back
use:
  %h0 = atomicrmw sub ptr @tw.held, i64 %room monotonic
  ret ptr %block
back:
  %pair = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %returned = extractvalue { ptr, i1 } %pair, 1
  br i1 %returned, label %next, label %drop
drop:
  %h1 = atomicrmw sub ptr @tw.held, i64 %room monotonic
  call void @free(ptr %head)
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 16
  br i1 %more, label %each, label %fresh
fresh:
  %padded = add i64 %size, 127
  %whole = and i64 %padded, -64
  %raw = call ptr @aligned_alloc(i64 64, i64 %whole)
  %no = icmp eq ptr %raw, null
  br i1 %no, label %out, label %made
made:
  store i64 %size, ptr %raw
  %given = getelementptr inbounds i8, ptr %raw, i64 64
  ret ptr %given
out:
  ret ptr null
}

; No more than 256 MB are kept.
define void @__tw_pool_give(ptr %block) nounwind {
entry:
  %head = getelementptr inbounds i8, ptr %block, i64 -64
  %room = load i64, ptr %head
  %before = atomicrmw add ptr @tw.held, i64 %room monotonic
  %now = add i64 %before, %room
  %little = icmp sle i64 %now, 268435456
  br i1 %little, label %each, label %full
each:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr inbounds ptr, ptr @tw.kept, i64 %i
  %pair = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %kept = extractvalue { ptr, i1 } %pair, 1
  br i1 %kept, label %done, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 16
  br i1 %more, label %each, label %full
full:
  %h = atomicrmw sub ptr @tw.held, i64 %room monotonic
  call void @free(ptr %head)
  br label %done
done:
  ret void
}
