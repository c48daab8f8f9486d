"""Schedules: random steps on random programs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from fuzz import fuzzer, odd_programs
from tilewright import tir
from tilewright.ir.errors import LoweringError
from tilewright.script import from_source
from tilewright.tir.interpret import InterpreterError
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation

sys.path.append(str(Path(__file__).parent.parent / "tir" / "schedule"))

import random_schedules
from random_schedules import NUMBERS, SCOPES, Chooser, recipe_of, step

STEPS = 10  # offered in one attempt


def _program(rng: random.Random) -> tuple[Any, Any]:
    """A program and its arguments."""
    if rng.random() < 0.1:
        func = random_schedules.program_of(recipe_of(rng.randrange(1 << 30)))
        return func, random_schedules.arrays_of(func, rng.randrange(1 << 30))
    while True:
        func = from_source(odd_programs.source_of(rng))
        arrays = odd_programs.arrays_of(func, rng.randrange(1 << 30))
        try:
            _interpreted(func, arrays)
        except InterpreterError:
            continue  # it reads what nobody wrote
        return func, arrays


def _interpreted(func: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    made = [a.copy() for a in arrays]
    tir.interpret(plan_buffer_allocation(func), *made, check_regions=True)
    return made


def _difference(want: list[np.ndarray], func: Any, run: Callable[[], list[np.ndarray]]) -> str:
    """What is not as it should be; nothing if all is."""
    try:
        got = run()
    except InterpreterError as why:
        return str(why)
    for b, x, y in zip(func.buffer_params(), want, got, strict=True):
        if not (np.array_equal(x, y) if x.dtype.kind == "i" else np.allclose(x, y, 1e-4, 1e-4)):
            return f"{b.name} is\n{y}\nand should be\n{x}"
    return ""


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
        maps = random_schedules.MAPS[len(region.buffer.shape) - 1]
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
    "blockize_both": lambda c, n: c.sch.blockize([c.block(n[0]), c.block(n[0] + 1)]),
    "launch_around": lambda c, n: c.sch.launch_around(c.loop(n[0], n[1]), "threadIdx.x", 2 + n[2] % 3),
}
random_schedules.STEPS.update(MORE)
WORDS = {
    gpu: [*random_schedules.words(gpu), *MORE, "split_exactly", "cache_write_for", "reorder"]
    for gpu in (False, True)
}


@fuzzer("schedule", seconds=30, short=150)
def schedule(rng: random.Random) -> str:
    """Steps are refused, or the program computes what it did, also as machine code."""
    func, arrays = _program(rng)
    want = _interpreted(func, arrays)
    gpu = rng.random() < 0.2
    sch = Schedule(func, seed=rng.randrange(1 << 30))
    told = []
    for _ in range(STEPS):
        word = rng.choice(WORDS[gpu])
        told.append(f"{word}: {step(sch, word, tuple(rng.randrange(1 << 12) for _ in range(NUMBERS)))}")
    taken = sum(line.endswith(": done") for line in told)
    now = sch.mod["main"]
    if taken:
        wrong = _difference(want, func, lambda: _interpreted(now, arrays))
        if wrong:
            raise AssertionError(_report(sch, want, arrays, wrong))
    if gpu or rng.random() < 0.9:
        return f"{taken} of {STEPS} steps"
    try:
        built = tvm.build(sch.mod, target="llvm")
    except LoweringError:
        return f"{taken} of {STEPS} steps, not built"
    wrong = _difference(want, func, lambda: _called(built, arrays))
    assert not wrong, f"machine code: {wrong}\n{sch.trace}\n{func.script()}\n{now.script()}"
    return f"{taken} of {STEPS} steps, built"


def _called(built: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    made = [a.copy() for a in arrays]
    built(*made)
    return made


def _report(sch: Schedule, want: list[np.ndarray], arrays: list[np.ndarray], wrong: str) -> str:
    """The first step that changed the result, with the program before and after."""
    before = sch.origin["main"]
    for i, line in enumerate(sch.trace.as_python()):
        after = sch.trace.insts[i].after
        if after is None:
            continue
        now = after["main"]
        difference = _difference(want, now, lambda now=now: _interpreted(now, arrays))  # type: ignore[misc]
        if now is not before and difference:
            return f"{line}\n{difference}\n\nbefore:\n{before.script()}\nafter:\n{now.script()}"
        before = now
    return wrong
