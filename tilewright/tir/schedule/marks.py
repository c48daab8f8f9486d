"""Primitives that say how a loop is run: parallel, vectorize, unroll, bind; and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.equal import structural_equal
from ...ir.expr import IterVar, Var, const, const_value, convert
from ...ir.functor import pre_order, vars_used
from ...ir.ops import less
from ...ir.stmt import BlockRealize, For, ForKind, Stmt
from ..analysis.carried import Use, reads_are_covered, uses_under
from .dependence import check_concurrent, lives_inside
from .points import check_fixed_element, check_init_runs
from .primitive import BlockRV, LoopRV, Refusal, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

_THREADS = ("blockIdx", "threadIdx", "clusterCtaIdx", "vthread", "cthread")


def _mark(sch: Schedule, loop: LoopRV, kind: ForKind, word: str, thread: str = "") -> None:
    n = sch.loop(loop)
    # An unrolled loop runs in order, which is right whatever the loop was marked.
    if n.kind is not ForKind.SERIAL and n.kind is not kind and kind is not ForKind.UNROLLED:
        old = {1: "parallel", 2: "vectorize", 3: "unroll", 4: "bind"}[int(n.kind)]
        refuse(f"loop `{n.loop_var.name}` is already marked {old}", at=n, hint="a loop is run in one manner")
    if kind is not ForKind.UNROLLED and const_value(n.extent) != 1:
        try:
            _check_runs_at_once(sch, n, word, thread)
        except Refusal as refusal:
            if refusal.hint == _serial(n):
                refusal.hint += _instead(sch, n, word, thread)
            raise
    axis = None
    if kind is ForKind.THREAD_BINDING:
        axis = IterVar(None, thread, IterVar.ThreadIndex, thread)
        _check_thread(sch, n, thread)
    sch.state.replace(n, n.replace(kind=kind, thread_binding=axis))


def _serial(n: For) -> str:
    return f"leave loop `{n.loop_var.name}` serial"


def _check_runs_at_once(sch: Schedule, n: For, word: str, thread: str) -> None:
    for realize in sch.state.index.blocks_under(n):
        check_independent(sch, n, realize, word, thread)
    check_concurrent(sch, n, _serial(n))


def _instead(sch: Schedule, n: For, word: str, thread: str) -> str:
    """A loop around the same block that may be marked so, as the end of a hint."""
    for x in sch.state.index.loops_of(sch.state.index.blocks_under(n)[0]):
        if x is n or x.kind is not ForKind.SERIAL or const_value(x.extent) == 1:
            continue
        try:
            _check_runs_at_once(sch, x, word, thread)
        except Refusal:
            continue
        return f", or {word}({x.loop_var.name})"
    return ""


def check_independent(sch: Schedule, n: For, realize: BlockRealize, word: str, thread: str) -> None:
    """Refuse unless each iteration writes elements of its own: only then may iterations run at once."""
    block = realize.block
    spatial = False
    for iv, value in realize.bindings:
        if n.loop_var not in vars_used(value):
            continue
        if iv.iter_type == IterVar.DataPar:
            spatial = True
        elif iv.is_reduction:
            if thread.startswith(("threadIdx", "clusterCtaIdx")):
                spatial = True
                continue
            free = _spatial_loops(sch, realize)
            other = f", or {word}({free[0]})" if free else ""
            refuse(
                f"loop `{n.loop_var.name}` carries the reduction of block {block.name_hint}",
                at=n,
                hint=f"use rfactor({n.loop_var.name}) first{other}",
            )
        else:
            refuse(
                f"iterator `{iv.var.name}` of block {block.name_hint} must run in order",
                at=n,
                hint=_serial(n),
            )
    # A split loop may have lost its part in the binding where the predicate lets one iteration through.
    guarded = n.loop_var in vars_used(realize.predicate)
    shared = [w.buffer for w in block.writes if not lives_inside(sch, w.buffer, n)]
    if not spatial and not guarded and shared:
        refuse(
            f"loop `{n.loop_var.name}` drives no iterator of block {block.name_hint}, "
            "so all its iterations write the same place",
            at=n,
            hint=_serial(n),
        )


def thread_of(loop: For) -> str:
    """The thread axis that a loop is bound to, if any."""
    return "" if loop.thread_binding is None else loop.thread_binding.thread_tag


def _spatial_loops(sch: Schedule, realize: BlockRealize) -> list[str]:
    out = []
    for loop in sch.state.index.loops_of(realize):
        used = [iv.iter_type for iv, value in realize.bindings if loop.loop_var in vars_used(value)]
        if used and all(t == IterVar.DataPar for t in used):
            out.append(loop.loop_var.name)
    return out


def _check_axis(n: For, thread: str) -> None:
    name, _, dim = thread.partition(".")
    dims = {"blockIdx": "xyz", "threadIdx": "xyz", "clusterCtaIdx": "x"}.get(name)
    if name not in _THREADS or (dims is not None and (len(dim) != 1 or dim not in dims)):
        refuse(
            f"there is no thread axis {thread!r}",
            at=n,
            hint="use blockIdx.x/y/z, threadIdx.x/y/z, clusterCtaIdx.x, or vthread, vthread.x/y/z",
        )


def _check_thread(sch: Schedule, n: For, thread: str) -> None:
    _check_axis(n, thread)
    name = thread.partition(".")[0]
    if name not in ("blockIdx", "threadIdx", "clusterCtaIdx"):
        return
    around = [(up, "around") for up in sch.state.index.ancestors(n)]
    for other, where in [*around, *((m, "inside") for m in pre_order(n.body))]:
        if not isinstance(other, For) or other.thread_binding is None:
            continue
        if other.thread_binding.thread_tag == thread:
            if _is_shared_work(*((other, n) if where == "around" else (n, other)), name):
                continue
            refuse(
                f"loop `{other.loop_var.name}` {where} it is bound to {thread} already",
                at=other,
                hint=_hint(*((other, n) if where == "around" else (n, other)), name),
            )


def _hint(outer: For, inner: For, threads: str) -> str:
    """What to do about two loops of one axis: where only the number of threads is in the way, make it the same."""
    fitting = inner.replace(min=outer.min, extent=outer.extent)
    if structural_equal(outer.extent, inner.extent) or not _is_shared_work(outer, fitting, threads):
        return "bind this one to another axis"
    return (
        f"threads share out a loop inside theirs that has as many iterations as there are of them, {outer.extent} and "
        f"not {inner.extent}: split it, and bind the part"
    )


def _is_shared_work(outer: For, inner: For, threads: str) -> bool:
    """Whether the threads of a loop can share out the iterations of one inside it, which each would do all of.

    So they fill shared memory together: it must be the same for all, and memory that all of them see.
    """
    if not structural_equal(outer.extent, inner.extent) or not structural_equal(outer.min, inner.min):
        return False
    seen = ("shared", "global") if threads == "threadIdx" else ("global",)
    for m in pre_order(inner.body):
        if m is outer.loop_var:
            return False
        if isinstance(m, BlockRealize) and not all(w.buffer.scope().startswith(seen) for w in m.block.writes):
            return False
    return True


@primitive
def parallel(sch: Schedule, loop: LoopRV) -> None:
    """Run the iterations of a loop on several cores.

    for i in range(n):        ->        for i in parallel(n):
    """
    _mark(sch, loop, ForKind.PARALLEL, "parallel")


@primitive
def vectorize(sch: Schedule, loop: LoopRV) -> None:
    """Run the iterations of a loop as the lanes of vectors.

    for i in range(8):        ->        for i in vectorized(8):
    """
    _mark(sch, loop, ForKind.VECTORIZED, "vectorize")


@primitive
def unroll(sch: Schedule, loop: LoopRV) -> None:
    """Unroll a loop: repeat its body for each iteration. Another mark of the loop is replaced.

    for i in range(4):        ->        for i in unroll(4):
    """
    _mark(sch, loop, ForKind.UNROLLED, "unroll")


@primitive
def bind(sch: Schedule, loop: LoopRV, thread_axis: Any) -> None:
    """Bind the iterations of a loop to the threads of a GPU axis.

    for i in range(n):        ->        for i in thread_binding(n, thread="threadIdx.x"):

    `thread_axis` is a name (`blockIdx.x`, `threadIdx.y`, `vthread`, …) or a `te.thread_axis`.
    """
    thread = thread_axis if isinstance(thread_axis, str) else thread_axis.thread_tag
    _mark(sch, loop, ForKind.THREAD_BINDING, "bind", thread)


@primitive
def launch_around(sch: Schedule, loop: LoopRV, thread_axis: Any, extent: Any = None) -> LoopRV:
    """Launch threads once around all steps of a scan; the blocks of the steps bind loops to them.

    for t in range(1, m):                                  for tx in thread_binding(n, "threadIdx.x"):
        for i in thread_binding(n, "threadIdx.x"):   ->        for t in range(1, m):
            X[t, i] = X[t - 1, i] + …                              for i in thread_binding(n, "threadIdx.x"):
                                                                       X[t, i] = X[t - 1, i] + …
    """
    n = sch.loop(loop)
    thread = thread_axis if isinstance(thread_axis, str) else thread_axis.thread_tag
    _check_axis(n, thread)
    for up in sch.state.index.ancestors(n):
        if isinstance(up, For) and thread_of(up) == thread:
            refuse(
                f"loop `{up.loop_var.name}` around it is bound to {thread} already",
                at=up,
                hint="its threads are there already: nothing is to be launched",
            )
    inner = [m for m in pre_order(n.body) if isinstance(m, For) and thread_of(m) == thread]
    if extent is None and not inner:
        refuse(
            f"no loop inside is bound to {thread}, so the number of threads is not known",
            at=n,
            hint="say it with extent=",
        )
    size = convert(extent) if extent is not None else inner[0].extent
    for realize in sch.state.index.blocks_under(n):
        _check_written_once(n, realize)
    for realize in (m for m in pre_order(n.body) if isinstance(m, BlockRealize)):
        check_init_runs(sch, realize, "launching threads around it")
        for w in realize.block.writes if realize.block.init is not None else ():
            check_fixed_element(realize, w)
    _check_same_again(sch, n)
    for m in inner:
        if not structural_equal(m.extent, size):
            refuse(
                f"loop `{m.loop_var.name}` has {m.extent} iterations for the {size} threads of {thread}",
                at=m,
                hint=f"launch {m.extent} threads around, or split it by {size}",
            )
    var = Var(thread.replace(".", "_"), n.loop_var.dtype)
    axis = IterVar(None, thread, IterVar.ThreadIndex, thread)
    made = For(var, const(0, var.dtype), size, ForKind.THREAD_BINDING, n, axis)
    sch.state.replace(n, made)
    return LoopRV(var)


def _check_written_once(n: For, realize: BlockRealize) -> None:
    """Refuse unless each step writes elements of its own: only then may each thread run all steps."""
    block = realize.block
    driven = [iv.var for iv, value in realize.bindings if value is n.loop_var]
    for w in block.writes:
        if not any(r.min is v and const_value(r.extent) == 1 for r in w.region for v in driven):
            refuse(
                f"block {block.name_hint} writes elements of {w.buffer.name} in more than one step of loop "
                f"`{n.loop_var.name}`",
                at=realize,
                hint="threads can live around the steps of a scan, each of which writes elements of its own",
            )


def _check_same_again(sch: Schedule, n: For) -> None:
    """Refuse a step that reads elements of later steps: each thread runs all steps."""
    ana = sch.state.analyzer_at(n)
    for buffer, uses in uses_under(n).items():
        if uses is None or not any(u.write for u in uses):
            continue
        left = [u for u in uses if u.write or not _of_earlier(n, u, uses, ana)]
        if not reads_are_covered(n, left, ana):
            who = next(u for u in left if not u.write) if any(not u.write for u in left) else left[0]
            refuse(
                f"block {who.block.name_hint} may read elements of {buffer.name} that it or a later block overwrites, "
                "and the steps are taken once for each thread",
                at=who.realize,
                hint="threads can live around the steps of a scan, each of which reads what earlier ones wrote",
            )


def _of_earlier(n: For, read: Use, uses: Sequence[Use], ana: Analyzer) -> bool:
    """Whether elements belong to an earlier step than all elements that this step writes."""
    boxes = [(u, u.box()) for u in uses if u.write]
    mine = read.box()
    if mine is None or any(b is None for _, b in boxes):
        return False
    with ana.scope():
        ana.bind_loop(n.loop_var, n.min, n.extent)
        for d, (_, high) in enumerate(mine):
            if all(
                b is not None and b[d][0] is n.loop_var and ana.can_prove(less(high, n.loop_var))
                for _, b in boxes
            ):
                return True
    return False


@primitive
def annotate(sch: Schedule, block_or_loop: BlockRV | LoopRV | str, ann_key: str, ann_val: Any) -> None:
    """Attach the annotation `ann_key: ann_val` to a block or loop, for lowering and code generation to read."""
    n, held = _annotated(sch, block_or_loop)
    if ann_key in held:
        refuse(f"there is an annotation {ann_key!r} already", at=n, hint="unannotate it first")
    _set_annotations(sch, block_or_loop, {**held, ann_key: ann_val})


@primitive
def unannotate(sch: Schedule, block_or_loop: BlockRV | LoopRV | str, ann_key: str) -> None:
    """Remove an annotation."""
    n, held = _annotated(sch, block_or_loop)
    if ann_key not in held:
        known = ", ".join(held) or "none"
        refuse(f"there is no annotation {ann_key!r}; there are: {known}", at=n)
    _set_annotations(sch, block_or_loop, {k: v for k, v in held.items() if k != ann_key})


def _annotated(sch: Schedule, where: BlockRV | LoopRV | str) -> tuple[Stmt, dict[str, Any]]:
    if isinstance(where, LoopRV):
        loop = sch.loop(where)
        return loop, loop.annotations
    realize = sch.realize(where)
    return realize, realize.block.annotations


def _set_annotations(sch: Schedule, where: BlockRV | LoopRV | str, held: dict[str, Any]) -> None:
    if isinstance(where, LoopRV):
        loop = sch.loop(where)
        sch.state.replace(loop, loop.replace(annotations=held))
    else:
        realize = sch.realize(where)
        sch.state.replace(realize.block, realize.block.replace(annotations=held))
