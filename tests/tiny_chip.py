"""A small chip with decoupled engines, programs for it, and the removal of tokens from a lowered program.

Its elements have 4 lanes and its memories some hundred bytes, so that the interpreter runs whole programs quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.backends import Backend, register
from tilewright.backends._accelerator import PIPELINE
from tilewright.ir.expr import BufferLoad, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import Mutator
from tilewright.ir.ops import not_equal
from tilewright.ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, Stmt, seq
from tilewright.target import Target
from tilewright.target.accelerator import DRAM, Accelerator, Engine, Scope, Transfer, VectorUnit
from tilewright.tir.analysis.commands import Site, sites, token_of
from tilewright.tir.interpret import InterpreterError, interpret
from tilewright.tir.transform.dma_commands import command

LANES = 4
INP, WGT, ACC = "local.tiny_inp", "local.tiny_wgt", "local.tiny_acc"
LOAD, COMPUTE, STORE = 1, 2, 3
TINY = Accelerator(
    name="tiny",
    scopes=(
        Scope(INP, "inp", 256, "int8", LANES),
        Scope(WGT, "wgt", 512, "int8", LANES * LANES),
        Scope(ACC, "acc", 1024, "int32", LANES),
    ),
    engines=(Engine("load", LOAD), Engine("compute", COMPUTE), Engine("store", STORE)),
    tokens=frozenset({(LOAD, COMPUTE), (COMPUTE, LOAD), (COMPUTE, STORE), (STORE, COMPUTE)}),
    transfers=(
        Transfer("load", LOAD, DRAM, INP, pads=True),
        Transfer("load", LOAD, DRAM, WGT),
        Transfer("load", COMPUTE, DRAM, ACC, pads=True),
        Transfer("store", STORE, ACC, DRAM, narrows=("int8",)),
    ),
    vector_units=(
        VectorUnit(
            "alu",
            COMPUTE,
            ACC,
            {"add": "add", "mul": "mul", "min": "min", "max": "max", "shift_right": "shr"},
            immediate=16,
            addresses=2,
        ),
    ),
)
# Vectors arrive by the load engine, so that a chain without products uses all three engines.
STREAMING = replace(
    TINY,
    name="streaming",
    transfers=(*TINY.transfers[:2], Transfer("load", LOAD, DRAM, ACC, pads=True), TINY.transfers[3]),
)
_chips = {c.name: c for c in (TINY, STREAMING)}
for _chip in _chips.values():
    register(
        Backend(
            name=f"test_{_chip.name}",
            device_type=12,
            family="accelerator",
            pipeline=PIPELINE,
            chip=lambda target: _chips[str(target.kind.name).removeprefix("test_")],
        )
    )


def lowered(program: Any, args: Any = None, chip: Accelerator = TINY) -> PrimFunc:
    """A program after the whole pipeline of accelerators."""
    with Target(f"test_{chip.name}"):
        return tvm.lower(program, args)["main"]


def gemm() -> Any:
    """The product of a vector of 4 and a matrix of 4 x 4, added to an accumulator: one instruction, repeated by uops."""
    n = LANES
    wgt = te.placeholder((n, n), dtype="int8", name="wgt")
    inp = te.placeholder((1, n), dtype="int8", name="inp")
    k = te.reduce_axis((0, n), "k")
    out = te.compute(
        (1, n),
        lambda i, j: te.sum(inp[i, k].astype("int32") * wgt[j, k].astype("int32"), axis=[k]),
        name="out",
    )
    binds = {
        t: tir.decl_buffer(t.shape, t.dtype, t.op.name, scope=scope, offset_factor=factor)
        for t, scope, factor in ((wgt, WGT, n * n), (inp, INP, n), (out, ACC, n))
    }

    def statements(ins: Any, outs: Any) -> tuple[Stmt, Stmt, Stmt]:
        a, w = ins
        c = outs[0]

        def made(reset: bool) -> Stmt:
            i, j, k = (Var(x, "int32") for x in "ijk")
            if reset:
                operands = [const(1), c.access_ptr("w"), const(0), const(0)]
                body: Stmt = BufferStore(c, const(0, "int32"), (i, j))
            else:
                operands = [const(0), c.access_ptr("rw"), a.access_ptr("r"), w.access_ptr("r")]
                product = BufferLoad(a, (i, k)).astype("int32") * BufferLoad(w, (j, k)).astype("int32")
                body = BufferStore(c, BufferLoad(c, (i, j)) + product, (i, j))
                body = For(k, 0, n, ForKind.SERIAL, body)
            body = For(i, 0, 1, ForKind.SERIAL, For(j, 0, n, ForKind.SERIAL, body))
            one: Any = command(COMPUTE, "gemm", operands, body)
            return one.replace(body=AttrStmt(const(0), "coproc_uop_scope", const(1), one.body))

        return seq(made(True), made(False)), made(True), made(False)

    return te.decl_tensor_intrin(out.op, statements, name="GEMM4", binds=binds)


# ---------------------------------------------------------------------------- programs
Program = tuple[Any, list[Any]]  # a te schedule and its arguments


def _copy(t: Any, name: str) -> Any:
    return te.compute(t.shape, lambda *i: t(*i), name)


def _loads(s: Any, t: Any, scope: str, at: tuple[Any, Any] | None) -> None:
    s[t].set_scope(scope)
    if at is not None:
        s[t].compute_at(s[at[0]], at[1])
    s[t].pragma(s[t].op.axis[0], "dma_copy")


def _threads(s: Any, t: Any, outer: Any, count: int, first: Any) -> None:
    """Split virtual threads from a loop and put them outside of all others."""
    if count > 1:
        _, inner = s[t].split(outer, factor=count)
        s[t].reorder(inner, *first)
        s[t].bind(inner, te.thread_axis("cthread"))


def vector_add(n: int = 8, tile: int = 2, threads: int = 1, double: bool = False) -> Program:
    """int8(A + B), tile by tile."""
    shape = (n, LANES)
    a, b = (te.placeholder(shape, dtype="int32", name=x) for x in "AB")
    a_buf, b_buf = _copy(a, "A_buf"), _copy(b, "B_buf")
    c_buf = te.compute(shape, lambda *i: a_buf(*i) + b_buf(*i), "C_buf")
    c = te.compute(shape, lambda *i: c_buf(*i).astype("int8"), "C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].op.axis[0], factor=tile)
    s[c].pragma(inner, "dma_copy")
    s[c_buf].compute_at(s[c], outer)
    s[c_buf].set_scope(ACC)
    s[c_buf].pragma(s[c_buf].op.axis[0], "alu")
    for t in (a_buf, b_buf):
        _loads(s, t, ACC, (c, outer))
        if double:
            s[t].double_buffer()
    if threads > 1:
        rest, thread = s[c].split(outer, factor=threads)
        s[c].reorder(thread, rest)
        s[c].bind(thread, te.thread_axis("cthread"))
        for t in (c_buf, a_buf, b_buf):
            s[t].compute_at(s[c], rest)
    return s, [a, b, c]


def matmul(
    m: int = 2,
    k: int = 2,
    n: int = 2,
    tiles: tuple[int, int] = (1, 1),
    threads: int = 1,
    residual: bool = False,
    double: bool = False,
    at_reduction: bool = True,
    thread_axis: str = "y",
    order: str = "kxy",
) -> Program:
    """clip((A W [+ R]) >> 4) of m x 4k by 4k x 4n, packed in elements."""
    lanes = LANES
    a = te.placeholder((m, k, 1, lanes), dtype="int8", name="A")
    w = te.placeholder((n, k, lanes, lanes), dtype="int8", name="W")
    r = te.placeholder((m, n, 1, lanes), dtype="int32", name="R")
    a_buf, w_buf, r_buf = _copy(a, "A_buf"), _copy(w, "W_buf"), _copy(r, "R_buf")
    ko, ki = te.reduce_axis((0, k), "ko"), te.reduce_axis((0, lanes), "ki")
    shape = (m, n, 1, lanes)
    product = te.compute(
        shape,
        lambda x, y, i, j: te.sum(
            a_buf[x, ko, i, ki].astype("int32") * w_buf[y, ko, j, ki].astype("int32"), axis=[ko, ki]
        ),
        "product",
    )
    chain = [product]
    if residual:
        chain.append(te.compute(shape, lambda *i: product(*i) + r_buf(*i), "summed"))
    last = chain[-1]
    chain.append(te.compute(shape, lambda *i: last(*i) >> 4, "shifted"))
    shifted = chain[-1]
    chain.append(te.compute(shape, lambda *i: te.max(te.min(shifted(*i), 127), 0), "clipped"))
    out = te.compute(shape, lambda *i: chain[-1](*i).astype("int8"), "out")
    s = te.create_schedule(out.op)
    x, y, i, j = s[out].op.axis
    xo, xi = s[out].split(x, factor=tiles[0])
    yo, yi = s[out].split(y, factor=tiles[1])
    s[out].reorder(xo, yo, xi, yi, i, j)
    s[out].pragma(xi, "dma_copy")
    at = yo
    if threads > 1:
        outer, thread = s[out].split({"x": xo, "y": yo}[thread_axis], factor=threads)
        xo, yo = (outer, yo) if thread_axis == "x" else (xo, outer)
        s[out].reorder(thread, xo, yo)
        s[out].bind(thread, te.thread_axis("cthread"))
        at = yo
    for t in chain:
        s[t].set_scope(ACC)
        s[t].compute_at(s[out], at)
    for t in chain[1:]:
        s[t].pragma(s[t].op.axis[0], "alu")
    px, py, pi, pj = s[product].op.axis
    s[product].reorder(*({"k": ko, "x": px, "y": py}[name] for name in order), pi, pj, ki)
    s[product].tensorize(pi, gemm())
    where = (product, ko) if at_reduction else (out, at)
    for t, scope in ((a_buf, INP), (w_buf, WGT)):
        _loads(s, t, scope, where)
        if double:
            s[t].double_buffer()
    if residual:
        _loads(s, r_buf, ACC, (out, at))
    return s, [a, w, *([r] if residual else []), out]


def convolution(
    size: int = 3,
    channels: int = 1,
    tile: int = 1,
    threads: int = 1,
    kernel: int = 3,
    thread_axis: str = "y",
    load_at: str = "ko",
) -> Program:
    """A convolution with a border of zeros, 4 * channels in and out, rows in tiles."""
    lanes, pad = LANES, kernel // 2
    a = te.placeholder((channels, size, size, 1, lanes), dtype="int8", name="A")
    w = te.placeholder((channels, channels, kernel, kernel, lanes, lanes), dtype="int8", name="W")
    a_buf = topi.nn.pad(a, [0, pad, pad, 0, 0], name="A_buf")
    w_buf = _copy(w, "W_buf")
    dy, dx = te.reduce_axis((0, kernel), "dy"), te.reduce_axis((0, kernel), "dx")
    ko, ki = te.reduce_axis((0, channels), "ko"), te.reduce_axis((0, lanes), "ki")
    shape = (channels, size, size, 1, lanes)
    conv = te.compute(
        shape,
        lambda c, y, x, i, j: te.sum(
            a_buf[ko, y + dy, x + dx, i, ki].astype("int32") * w_buf[c, ko, dy, dx, j, ki].astype("int32"),
            axis=[ko, dy, dx, ki],
        ),
        "conv",
    )
    shifted = te.compute(shape, lambda *i: conv(*i) >> 4, "shifted")
    out = te.compute(shape, lambda *i: shifted(*i).astype("int8"), "out")
    s = te.create_schedule(out.op)
    c, y, x, i, j = s[out].op.axis
    yo, yi = s[out].split(y, factor=tile)
    s[out].reorder(c, yo, yi, x, i, j)
    at = yo
    if threads > 1:
        outer, thread = s[out].split({"c": c, "y": yo}[thread_axis], factor=threads)
        c, yo = (outer, yo) if thread_axis == "c" else (c, outer)
        s[out].reorder(thread, c, yo)
        s[out].bind(thread, te.thread_axis("cthread"))
        at = yo
    s[out].pragma(yi, "dma_copy")
    for t in (conv, shifted):
        s[t].set_scope(ACC)
        s[t].compute_at(s[out], at)
    s[shifted].pragma(s[shifted].op.axis[0], "alu")
    cc, cy, cx, ci, cj = s[conv].op.axis
    s[conv].reorder(ko, cc, cy, dy, dx, cx, ci, cj, ki)
    s[conv].tensorize(ci, gemm())
    where = {"out": (out, at), "ko": (conv, ko), "dy": (conv, dy), "dx": (conv, dx)}[load_at]
    _loads(s, a_buf, INP, where)
    _loads(s, w_buf, WGT, where)
    return s, [a, w, out]


def max_pool(size: int = 4, tile: int = 1, threads: int = 1) -> Program:
    """Max pooling by 2 x 2 windows at stride 2, rows in tiles."""
    half = size // 2
    a = te.placeholder((size, size, LANES), dtype="int32", name="A")
    a_buf = _copy(a, "A_buf")
    dy, dx = te.reduce_axis((0, 2), "dy"), te.reduce_axis((0, 2), "dx")
    greatest = te.comm_reducer(lambda x, y: te.max(x, y), lambda t: const(-1000, t), name="greatest")
    shape = (half, half, LANES)
    pool = te.compute(
        shape, lambda y, x, i: greatest(a_buf[2 * y + dy, 2 * x + dx, i], axis=[dy, dx]), "pool"
    )
    out = te.compute(shape, lambda *i: pool(*i).astype("int8"), "out")
    s = te.create_schedule(out.op)
    y, x, i = s[out].op.axis
    yo, yi = s[out].split(y, factor=tile)
    if threads > 1:
        yo, thread = s[out].split(yo, factor=threads)
        s[out].reorder(thread, yo)
        s[out].bind(thread, te.thread_axis("cthread"))
    s[out].pragma(yi, "dma_copy")
    s[pool].set_scope(ACC)
    s[pool].compute_at(s[out], yo)
    py, px, pi = s[pool].op.axis
    s[pool].reorder(py, px, dy, dx, pi)
    s[pool].pragma(py, "alu")
    _loads(s, a_buf, ACC, (out, yo))
    return s, [a, out]


# ---------------------------------------------------------------------------- running, and removing tokens
def arrays_for(args: list[Any], seed: int = 0) -> list[np.ndarray]:
    """Random inputs, and an output that the program must fill."""
    rng = np.random.default_rng(seed)
    made = []
    for t in args:
        shape = tuple(int(d) for d in t.shape)
        made.append(rng.integers(-100, 100, shape).astype(str(t.dtype)))
    return made


def reference(args: list[Any], arrays: list[np.ndarray]) -> np.ndarray:
    """The output of the unscheduled program."""
    held = [np.copy(a) for a in arrays]
    interpret(te.create_prim_func(args), *held)
    return held[-1]


def outcome(func: PrimFunc, arrays: list[np.ndarray]) -> str | np.ndarray:
    """The output of a lowered program with concurrent engines, or the kind of its fault."""
    held = [np.copy(a) for a in arrays]
    try:
        interpret(func, *held, detect_races=True)
    except InterpreterError as error:
        return error.kind
    return held[-1]


class _Without(Mutator):
    """Removes some statements, each of them always or in chosen iterations."""

    def __init__(self, removed: dict[Stmt, Any]) -> None:
        self.removed = removed

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        if n not in self.removed:
            return n
        when = self.removed[n]
        return Evaluate(const(0)) if when is None else IfThenElse(when, n)


def without(func: PrimFunc, removed: dict[Stmt, Any]) -> PrimFunc:
    """A program without some statements, or with a condition for each."""
    return _Without(removed).run(func)


def not_at(site: Site, time: int) -> Any:
    """The condition that excludes one of the times that a site is reached."""
    made: Any = None
    for x in site.loops:
        one = not_equal(x.loop_var, int(site.values[x.loop_var][time]))
        made = one if made is None else tir.any(made, one)
    return made


def weakened(func: PrimFunc, instances: int = 4) -> Iterator[tuple[str, PrimFunc]]:
    """Programs that lack a push, a pop, or a pair of both, as statements and as single times."""
    found = [s for s in sites(func.body) if token_of(s.statement) is not None]
    for s in found:
        yield f"without {s.statement}", without(func, {s.statement: None})
    pairs: dict[tuple[int, int], list[list[tuple[int, Site, int]]]] = {}
    for s in found:
        token = token_of(s.statement)
        assert token is not None
        sides = pairs.setdefault((token.source, token.target), [[], []])
        sides[0 if token.pushes else 1] += [(int(n), s, t) for t, n in enumerate(s.order)]
    whole: set[tuple[Stmt, Stmt]] = set()
    for pushes, pops in pairs.values():
        matched = list(zip(sorted(pushes, key=_first), sorted(pops, key=_first), strict=True))
        step = max(1, len(matched) // instances)
        for number, ((_, a, at), (_, b, bt)) in enumerate(matched):
            if a.times == b.times == 1:
                yield (
                    f"without {a.statement} and {b.statement}",
                    without(func, {a.statement: None, b.statement: None}),
                )
            elif number % step == 0 or number == len(matched) - 1:
                removed = {a.statement: not_at(a, at), b.statement: not_at(b, bt)}
                yield (
                    f"without time {at} of {a.statement} and time {bt} of {b.statement}",
                    without(func, removed),
                )
            whole.add((a.statement, b.statement))


def _first(x: tuple[int, Site, int]) -> int:
    return x[0]


def tokens(func: PrimFunc) -> int:
    """The number of pushes that a program executes."""
    return sum(s.times for s in sites(func.body) if (t := token_of(s.statement)) is not None and t.pushes)
