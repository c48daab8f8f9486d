"""Schedules: random steps on random programs."""

from __future__ import annotations

import collections
import gc
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from fuzz import fuzzer, odd_programs
from tilewright import tir
from tilewright.arith import Analyzer
from tilewright.ir.errors import LoweringError
from tilewright.script import from_source
from tilewright.tir.interpret import InterpreterError
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation

sys.path.append(str(Path(__file__).parent.parent / "tir" / "schedule"))

import random_schedules
from random_schedules import NUMBERS, SCOPES, Chooser, recipe_of, step

SCHEDULES = 20  # of one program, which one attempt tries
STEPS = 10  # offered in one schedule
EXACT = 1 << 20  # what grows beyond it may be rounded, or wrap around, in another order of the same steps
LONGEST = 1e6  # iterations, which take a second or so
BUILT = 0.02  # of the schedules become machine code, which takes as long as some twenty others


@dataclass
class Known:
    """A program, its arguments, and what it computes."""

    func: Any
    arrays: list[np.ndarray]
    want: list[np.ndarray]

    def difference(self, run: Callable[[], list[np.ndarray]]) -> str:
        """What another program does not compute as it should; nothing if all is."""
        try:
            got = run()
        except InterpreterError as why:
            return str(why)
        for b, x, y in zip(self.func.buffer_params(), self.want, got, strict=True):
            if not (np.array_equal(x, y) if x.dtype.kind == "i" else np.allclose(x, y, 1e-4, 1e-4)):
                return f"{b.name} is\n{y}\nand should be\n{x}"
        return ""


def _program(rng: random.Random) -> Known:
    if rng.random() < 0.1:
        func = random_schedules.program_of(recipe_of(rng.randrange(1 << 30)))
        arrays = random_schedules.arrays_of(func, rng.randrange(1 << 30))
        return Known(func, arrays, _interpreted(func, arrays))
    while True:
        func = from_source(odd_programs.source_of(rng))
        arrays = odd_programs.arrays_of(func, rng.randrange(1 << 30))
        try:
            want = _interpreted(func, arrays)
        except InterpreterError:
            continue  # it reads what nobody wrote
        if all(np.abs(x.astype("float64")).max() < EXACT for x in want):
            return Known(func, arrays, want)


def _interpreted(func: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    made = [a.copy() for a in arrays]
    tir.interpret(plan_buffer_allocation(func), *made, check_regions=True)
    return made


# ---------------------------------------------------------------------------- steps
Numbers = tuple[int, ...]


def _split_exactly(c: Chooser, n: Numbers) -> None:
    c.sch.split(c.loop(n[0], n[1]), [None, 1 + n[2] % 5], disable_predication=True)


def _split_given(c: Chooser, n: Numbers) -> None:
    c.sch.split(c.loop(n[0], n[1]), [1 + n[2] % 4, 1 + n[3] % 4], disable_predication=n[4] % 2 == 0)


def _tile(c: Chooser, n: Numbers) -> None:
    c.sch.tile(c.loop(n[0], n[1]), c.loop(n[0], n[2]), 2 + n[3] % 2, 2 + n[4] % 2)


def _cache_read(c: Chooser, n: Numbers) -> None:
    me = c.block(n[0])
    readers = [c.block(n[3] >> i) for i in range(n[2] % 3)]
    c.sch.cache_read(me, n[1] % max(1, len(c.sch.get(me).reads)), SCOPES[n[4] % 3], readers or None)


def _cache_write(c: Chooser, n: Numbers) -> None:
    me = c.block(n[0])
    readers = [c.block(n[3] >> i) for i in range(n[2] % 3)]
    c.sch.cache_write(me, n[1] % max(1, len(c.sch.get(me).writes)), SCOPES[n[4] % 3], readers or None)


def _layout(c: Chooser, n: Numbers) -> None:
    """Another layout for memory of the program; parameters keep theirs."""
    inside = {b for r in c.sch.state.index.order for b in r.block.alloc_buffers}
    block = c.sch.get(c.block(n[0]))
    choices = [("read", i, r) for i, r in enumerate(block.reads) if r.buffer in inside]
    choices += [("write", i, w) for i, w in enumerate(block.writes) if w.buffer in inside]
    if choices:
        side, at, region = choices[n[1] % len(choices)]
        rank = len(region.buffer.shape)
        maps = random_schedules.MAPS[rank - 1] if rank <= len(random_schedules.MAPS) else ()
        if not maps:
            return
        c.sch.transform_layout(c.block(n[0]), (side, at), maps[n[2] % len(maps)], (None, 0)[n[3] % 2])


MORE: dict[str, Callable[[Chooser, Numbers], Any]] = {
    "split_exactly": _split_exactly,
    "split_given": _split_given,
    "tile": _tile,
    "cache_read_for": _cache_read,
    "cache_write_for": _cache_write,
    "layout": _layout,
    "merge_reduction": lambda c, n: c.sch.merge_reduction(c.block(n[0]), c.block(n[1])),
    "rebase": lambda c, n: c.sch.rebase(c.block(n[0]), c.block(n[1])),
    "stream": lambda c, n: c.sch.stream(c.block(n[0]), c.loop(n[1], n[2])),
    "split_attention": lambda c, n: c.sch.split_attention(c.block(n[0]), 1 + n[1] % 8),
    "blockize_both": lambda c, n: c.sch.blockize([c.block(n[0]), c.block(n[0] + 1)]),
    "launch_around": lambda c, n: c.sch.launch_around(c.loop(n[0], n[1]), "threadIdx.x", 2 + n[2] % 3),
}
random_schedules.STEPS.update(MORE)
WORDS = {
    gpu: [*random_schedules.words(gpu), *MORE, "split_exactly", "cache_write_for", "reorder"]
    for gpu in (False, True)
}


@fuzzer("schedule", seconds=60, short=10, share=4)
def schedule(rng: random.Random) -> collections.Counter[str]:
    """Steps are refused, or the program computes what it did, also as machine code."""
    known = _program(rng)
    counts: collections.Counter[str] = collections.Counter()
    gc.disable()  # collecting takes as long as the steps do
    try:
        for _ in range(SCHEDULES):
            counts += _one(rng, known)
    finally:
        gc.enable()
    return counts


def _one(rng: random.Random, known: Known) -> collections.Counter[str]:
    """One schedule: how many of its steps were taken, and how many were refused."""
    gpu = rng.random() < 0.2
    sch = Schedule(known.func, seed=rng.randrange(1 << 30))
    taken = 0
    for _ in range(STEPS):
        numbers = tuple(rng.randrange(1 << 12) for _ in range(NUMBERS))
        taken += step(sch, rng.choice(WORDS[gpu]), numbers) == "done"
    now = sch.mod["main"]
    counts = collections.Counter({"steps taken": taken, "steps refused": STEPS - taken})
    if _iterations(now.body) > LONGEST:
        return counts + collections.Counter(["too long to run"])
    if now is not known.func:
        counts["schedules"] = 1
        wrong = known.difference(lambda: _interpreted(now, known.arrays))
        assert not wrong, _report(sch, known, wrong)
    if gpu or rng.random() >= BUILT:
        return counts
    try:
        built = tvm.build(sch.mod, target="llvm")
    except LoweringError:
        return counts + collections.Counter(["refused by build"])
    wrong = known.difference(lambda: _called(built, known.arrays))
    assert not wrong, f"machine code: {wrong}\n{sch.trace}\n{known.func.script()}\n{now.script()}"
    return counts + collections.Counter(["built"])


def _iterations(body: Any) -> float:
    """How often the loops of a program turn at most: splits that do not divide, one in the other, make billions."""
    ana, most = Analyzer(), 0.0
    stack = [(body, 1.0)]
    while stack:
        n, times = stack.pop()
        if isinstance(n, tir.For):
            times *= ana.const_int_bound(n.extent).max_value
            most = max(most, times)
            ana.bind_loop(n.loop_var, n.min, n.extent)
        stack += [(m, times) for m in n.children() if isinstance(m, (tir.Stmt, tir.Block))]
    return most


def _called(built: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    made = [a.copy() for a in arrays]
    built(*made)
    return made


def _report(sch: Schedule, known: Known, wrong: str) -> str:
    """The first step that changed the result, with the program before and after."""
    before = sch.origin["main"]
    for i, line in enumerate(sch.trace.as_python()):
        after = sch.trace.insts[i].after
        if after is None:
            continue
        now = after["main"]
        if now is before:
            continue
        difference = known.difference(lambda now=now: _interpreted(now, known.arrays))  # type: ignore[misc]
        if difference:
            return f"{line}\n{difference}\n\nbefore:\n{before.script()}\nafter:\n{now.script()}"
        before = now
    return wrong
