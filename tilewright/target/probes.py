"""Small loops that measure this machine: multiply-adds, loads, stores, copies, chains of loads.

They are written as LLVM IR, and can run in many threads at once. Each answers with the
seconds that it took; `measure` turns them into figures, and benchmarks into roofs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..cpus import affinity, usable_cpus
from ..ir.errors import UnsupportedError
from .target import Target

if TYPE_CHECKING:
    from ..runtime.jit import JitLibrary

_ACCUMULATORS: Final = 12  # hides four cycles of latency on three pipes, and fits sixteen registers
_STRIDE: Final = 16  # vectors that one turn of a memory loop touches


def _loop(head: str, carried: dict[str, tuple[str, str]], step: int, body: Iterable[str], leave: str) -> str:
    """A function that counts %i from 0 to %n by `step`, with values carried from turn to turn.

    Where `body` makes %x.next, the next turn has it as %x.
    """
    phis = [
        f"  %{name} = phi {kind} [ {start}, %entry ], [ %{name}.next, %loop ]"
        for name, (kind, start) in carried.items()
    ]
    lines = [
        f"define {head} {{",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
        *phis,
        *(f"  {line}" for line in body),
        f"  %i.next = add i64 %i, {step}",
        "  %more = icmp slt i64 %i.next, %n",
        "  br i1 %more, label %loop, label %done",
        "done:",
        f"  {leave}",
        "}",
    ]
    return "\n".join(lines)


def _splat(lanes: int, value: float) -> str:
    return "<" + ", ".join([f"float {value}"] * lanes) + ">"


def _clock_text() -> str:
    """64 operations of one cycle each, every one waiting for the one before."""
    body, last = [], "%x"
    for k in range(32):
        body += [f"%a{k} = xor i64 {last}, %p", f"%b{k} = add i64 %a{k}, %q"]
        last = f"%b{k}"
    body.append(f"%x.next = add i64 {last}, 0")
    head = "i64 @clock(i64 %n, i64 %p, i64 %q)"
    return _loop(head, {"x": ("i64", "%p")}, 1, body, "ret i64 %x.next")


def _multiply_text(lanes: int, fused: bool, chains: int) -> str:
    """`chains` accumulators, each multiplied and added to four times in a turn."""
    kind, body = f"<{lanes} x float>", []
    for turn in range(4):
        for k in range(chains):
            old = f"%x{k}" if turn == 0 else f"%x{k}.{turn}"
            new = f"%x{k}.{turn + 1}" if turn < 3 else f"%x{k}.next"
            by, plus = _splat(lanes, 0.5), _splat(lanes, 1.0)
            if fused:
                body.append(
                    f"{new} = call {kind} @llvm.fma.v{lanes}f32({kind} {old}, {kind} {by}, {kind} {plus})"
                )
            else:
                body += [
                    f"%m{k}.{turn} = fmul {kind} {old}, {by}",
                    f"{new} = fadd {kind} %m{k}.{turn}, {plus}",
                ]
    carried = {f"x{k}": (kind, _splat(lanes, float(k + 1))) for k in range(chains)}
    keep = "\n  ".join(f"store volatile {kind} %x{k}.next, ptr %out, align 4" for k in range(chains))
    name = "multiply" if chains > 1 else "chain"
    return _loop(f"void @{name}{lanes}(i64 %n, ptr %out)", carried, 1, body, f"{keep}\n  ret void")


def _memory_text(name: str, lanes: int, lines: Callable[[int], list[str]]) -> str:
    """A pass over memory, wrapped by a mask so that a small piece is traversed again and again."""
    body = ["%at = and i64 %i, %mask"]
    for k in range(_STRIDE):
        body += [f"%o{k} = add i64 %at, {k * lanes * 4}", *lines(k)]
    head = f"void @{name}{lanes}(i64 %n, i64 %mask, ptr %a, ptr %b, ptr %c)"
    return _loop(head, {}, _STRIDE * lanes * 4, body, "fence seq_cst\n  ret void")


def _memory_texts(lanes: int) -> list[str]:
    kind, align = f"<{lanes} x float>", f"align {lanes * 4}"

    def pointer(k: int, base: str) -> str:
        return f"%{base}{k} = getelementptr i8, ptr %{base}, i64 %o{k}"

    def load(k: int) -> list[str]:
        return [pointer(k, "a"), f"%v{k} = load volatile {kind}, ptr %a{k}, {align}"]

    def store(k: int) -> list[str]:
        return [pointer(k, "a"), f"store volatile {kind} {_splat(lanes, 1.0)}, ptr %a{k}, {align}"]

    def copy(k: int, hint: str = "") -> list[str]:
        return [
            pointer(k, "a"),
            pointer(k, "b"),
            f"%v{k} = load {kind}, ptr %a{k}, {align}",
            f"store {kind} %v{k}, ptr %b{k}, {align}{hint}",
        ]

    def triad(k: int, hint: str = "") -> list[str]:
        return [
            *(pointer(k, base) for base in "abc"),
            f"%v{k} = load {kind}, ptr %a{k}, {align}",
            f"%w{k} = load {kind}, ptr %b{k}, {align}",
            f"%m{k} = fmul contract {kind} %v{k}, {_splat(lanes, 3.0)}",
            f"%t{k} = fadd contract {kind} %m{k}, %w{k}",
            f"store {kind} %t{k}, ptr %c{k}, {align}{hint}",
        ]

    past = ", !nontemporal !0"
    forms: dict[str, Callable[[int], list[str]]] = {
        "load": load,
        "store": store,
        "copy": copy,
        "copy_past": lambda k: copy(k, past),
        "triad": triad,
        "triad_past": lambda k: triad(k, past),
    }
    return [_memory_text(name, lanes, lines) for name, lines in forms.items()]


def _chase_text() -> str:
    """16 loads, every one from where the one before pointed to."""
    names = ["%x", *(f"%p{k}" for k in range(15)), "%x.next"]
    body = [f"{new} = load ptr, ptr {old}, align 8" for old, new in zip(names, names[1:])]
    return _loop("ptr @chase(i64 %n, ptr %a)", {"x": ("ptr", "%a")}, 1, body, "ret ptr %x.next")


def _launch_text() -> str:
    """Parallel loops whose iterations take 64 * env cycles each."""
    body = ["%code = call i32 %launch(ptr @busy, ptr %env, i64 0, i64 %wide)"]
    busy = """define i32 @busy(i64 %begin, i64 %end, ptr %env) {
  %each = ptrtoint ptr %env to i64
  %many = sub i64 %end, %begin
  %turns = mul i64 %many, %each
  %x = call i64 @clock(i64 %turns, i64 21845, i64 19088743)
  ret i32 0
}"""
    head = "void @launches(i64 %n, ptr %launch, i64 %wide, ptr %env)"
    return busy + "\n" + _loop(head, {}, 1, body, "ret void")


def _meet_text() -> str:
    """A barrier for threads: they leave it closer together than the locks of Python allow."""
    return """define void @meet(ptr %count, i64 %all) {
entry:
  %before = atomicrmw add ptr %count, i64 1 seq_cst
  br label %look
look:
  %now = load atomic i64, ptr %count seq_cst, align 8
  %there = icmp sge i64 %now, %all
  br i1 %there, label %done, label %look
done:
  ret void
}"""


class Memory:
    """A piece of memory, written once so that its pages exist, large ones if possible."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, size + (2 << 20))
        if hasattr(self._map, "madvise") and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._whole = (ctypes.c_char * (size + (2 << 20))).from_buffer(self._map)
        start = ctypes.addressof(self._whole)
        self.address = (start + (2 << 20) - 1) & -(2 << 20)
        ctypes.memset(start, 0, size + (2 << 20))

    def chain(self, size: int, apart: int) -> int:
        """Lay a ring of pointers in random order over the first `size` bytes, and return its start."""
        import numpy as np

        count = size // apart
        order = np.random.default_rng(0).permutation(count).astype(np.uint64)
        cells = (ctypes.c_uint64 * (size // 8)).from_address(self.address)
        view = np.ctypeslib.as_array(cells)
        view[order * np.uint64(apart // 8)] = np.uint64(self.address) + np.roll(order, -1) * np.uint64(apart)
        return self.address + int(order[0]) * apart


_ALIKE = 0.03  # how far apart results are that confirm each other, as a fraction
_MORE = 12  # the most further tries for a result that no other one confirms


def best(run: Callable[[], float], rounds: int) -> float:
    """The least of several results: other programs may slow a loop down, and none speeds it up. If no other result is
    close to the least one, there are more tries."""
    found = sorted(run() for _ in range(rounds))
    for _ in range(_MORE):
        if len(found) > 1 and found[1] <= (1 + _ALIKE) * found[0]:
            break
        found = sorted([*found, run()])
    return found[0]


class Probes:
    """The loops, compiled for this machine. Each method gives the seconds of one run."""

    def __init__(self) -> None:
        from ..codegen.llvm.engine import Machine
        from ..runtime.jit import JitLibrary

        target = Target("llvm")
        cpu, said = target.cpu, target.llvm
        self.fused = cpu.fma
        self.widths = [bits for bits in (128, 256, 512) if bits <= max(128, cpu.vector_bits)]
        self.cores = affinity()[: usable_cpus()]
        texts = [_clock_text(), _chase_text(), _launch_text(), _meet_text()]
        names = ["clock", "chase", "launches", "meet"]
        for bits in self.widths:
            lanes = bits // 32
            texts += [
                "declare {0} @llvm.fma.v{1}f32({0}, {0}, {0})".format(f"<{lanes} x float>", lanes),
                _multiply_text(lanes, self.fused, _ACCUMULATORS),
                _multiply_text(lanes, self.fused, 1),
                *_memory_texts(lanes),
            ]
            forms = ("multiply", "chain", "load", "store", "copy", "copy_past", "triad", "triad_past")
            names += [f"{form}{lanes}" for form in forms]
        machine = Machine(said.triple, said.cpu, said.features)
        module = machine.parse("\n".join([*texts, "!0 = !{i32 1}"]))
        self._library = JitLibrary(machine.object_code(module), exports=tuple(names))
        self._out = ctypes.create_string_buffer(256)
        self._workers: JitLibrary | None = None

    def _seconds(self, name: str, *arguments: int) -> float:
        kinds = [ctypes.c_int64] * len(arguments)
        call = ctypes.CFUNCTYPE(None, *kinds)(self._library.address(name))
        start = time.perf_counter()
        call(*arguments)
        return time.perf_counter() - start

    def clock(self, turns: int) -> float:
        """`64 * turns` cycles."""
        return self._seconds("clock", turns, 0x5555, 0x1234567)

    def multiply(self, bits: int, turns: int, threads: int = 1) -> float:
        """48 independent multiply-adds of vectors of `bits` in each turn, by each thread."""
        out = ctypes.addressof(self._out)
        return self.together(lambda k: self._seconds(f"multiply{bits // 32}", turns, out), threads)

    def chained(self, bits: int, turns: int) -> float:
        """Four multiply-adds in each turn, every one waiting for the one before."""
        return self._seconds(f"chain{bits // 32}", turns, ctypes.addressof(self._out))

    def memory(
        self,
        form: str,
        bits: int,
        pieces: list[Memory],
        size: int,
        total: int,
        threads: int = 1,
        offset: int = 0,
    ) -> float:
        """`load`, `store`, `copy` or `triad` of `total` bytes of each piece, `size` of them again and again.

        `size` and the number of threads are powers of two. Threads take a part each.
        """
        share, goes = size // threads, total // threads

        def part(k: int) -> float:
            where = [piece.address + offset + k * share for piece in pieces]
            where += [where[-1]] * (3 - len(where))
            return self._seconds(f"{form}{bits // 32}", goes, share - 1, *where)

        return self.together(part, threads)

    def chase(self, start: int, turns: int) -> tuple[float, int]:
        """16 loads in each turn, every one from where the one before pointed to; and where that led."""
        address = self._library.address("chase")
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
        begin = time.perf_counter()
        last = call(turns, start)
        return time.perf_counter() - begin, int(last)

    def together(self, part: Callable[[int], Any], threads: int) -> float:
        """Run `part(k)` in threads on cores of their own; seconds from the first start to the last end."""
        if threads <= 1:
            start = time.perf_counter()
            part(0)
            return time.perf_counter() - start
        spans: list[tuple[float, float]] = []
        count = ctypes.c_int64(0)

        def work(k: int) -> None:
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, {self.cores[k % len(self.cores)]})  # 0 is this thread
            self._seconds("meet", ctypes.addressof(count), threads)
            start = time.perf_counter()
            part(k)
            spans.append((start, time.perf_counter()))

        workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return max(end for _, end in spans) - min(start for start, _ in spans)

    def launches(self, turns: int, wide: int, each: int) -> float:
        """Parallel loops of `wide` iterations of `64 * each` cycles, one loop in each turn."""
        launch = ctypes.c_uint64.from_address(self._pool().address("__tw_parallel_launch")).value
        return self._seconds("launches", turns, launch, wide, each)

    def _pool(self) -> JitLibrary:
        """A thread pool for the probes alone; its workers sleep while there is no work."""
        from ..codegen.llvm.engine import Machine, pool_text
        from ..runtime.jit import JitLibrary

        if self._workers is None:
            said = Target("llvm").llvm
            machine = Machine(said.triple, "", "", 2)
            module = machine.parse(pool_text(said.triple))
            machine.optimize(module)
            self._workers = JitLibrary(machine.object_code(module), exports=("__tw_parallel_launch",))
        return self._workers


@cache
def probes() -> Probes:
    """The loops, compiled on first use."""
    try:
        return Probes()
    except RuntimeError as error:
        raise UnsupportedError(f"this machine cannot be measured: {error}") from error
