"""Software pipelining: the iterations of a loop overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.buffer import Buffer
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, IntImm, PrimExpr, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, renew_defs_in, substitute
from ...ir.op import Op
from ...ir.ops import add, floormod, greater_equal, less, logical_and, max_of, mul, sub
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    seq,
    stmt_list,
)
from ..analysis.measure import scope_of
from .pass_registers import through_registers

STAGE, ORDER = "software_pipeline_stage", "software_pipeline_order"
ASYNC = "software_pipeline_async_stages"
BY_REGISTERS = "software_pipeline_by_registers"
GUARDED = "software_pipeline_guarded"  # on the same loop: predicates instead of an epilogue
_ACCESS_PTR = Op.get("tir.tvm_access_ptr")


def inject_software_pipeline(func: PrimFunc) -> PrimFunc:
    """Run the first statements of an iteration together with the last ones of an earlier iteration.

        for i in range(n):                        B = allocate(2 * size)
            # stages [0, 1]                       load(B[0], 0)
            B = allocate(size)          ->        for i in range(n - 1):
            load(B, i)                                load(B[(i + 1) % 2], i + 1)
            use(B, i)                                 use(B[i % 2], i)
                                                  use(B[(n - 1) % 2], n - 1)

    `software_pipeline_stage` is the number of iterations by which each statement of the body is delayed, and
    `software_pipeline_order` the order of the statements in the new body. A buffer of the body gets as many versions as
    there are iterations in which it is live at the same time. With `software_pipeline_async_stages: [0]` the copies of
    the first stage are asynchronous: those of an iteration are a group, and stages that read them wait for their group.
    `software_pipeline_by_registers: [0, 1]` splits these statements in two, each with a stage and a place in the order:
    the first loads into registers what the second stores (`S[t] = A[i, t]` -> `r = A[i, t]; S[t] = r`).
    With `software_pipeline_guarded: 1` there is no epilogue: a condition in the loop skips finished statements
    (`if i + 1 < n: load(B[(i + 1) % 2], i + 1)`), so that a large body is emitted once.
    Pipelines may be nested. Registers that instructions name (fragments of tensor cores) have versions of different
    names: the loop is unrolled, and its statements may have stages in the pipeline around it, if that lists one for
    each.
    Needs: flat loops. Gives: no pipeline annotations.
    """
    return _Pipelines().run(func)


@dataclass(slots=True)
class _Step:
    stmt: Stmt
    stage: int
    order: int
    reads: set[Var]
    writes: set[Var]


class _Pipelines(Mutator):
    def visit_For(self, n: For) -> Stmt:
        made = n.updated(body=self.visit(n.body))
        if STAGE not in n.annotations:
            return made
        keep = {k: v for k, v in n.annotations.items() if not k.startswith("software_pipeline")}
        return _pipeline(made.replace(annotations=keep), n.annotations)


def _pipeline(loop: For, notes: dict[str, Any]) -> Stmt:
    allocations: list[Allocate] = []
    views: list[Buffer] = []
    parts = stmt_list(opened(loop.body, allocations, views))
    if len(notes[STAGE]) > len(parts) + len(
        notes.get(BY_REGISTERS, ())
    ):  # it counts the statements of an unrolled inner pipeline
        parts = [s for p in parts for s in stmt_list(opened(p, allocations, views))]
    if notes.get(BY_REGISTERS):
        parts = _split(loop, parts, {int(i) for i in notes[BY_REGISTERS]}, allocations, views)
    steps = pipeline_steps(loop, parts, notes)
    last = max(s.stage for s in steps)
    if last == 0 and all(s.order == i for i, s in enumerate(steps)):
        return loop
    versions = {a.buffer_var: versions_of(a.buffer_var, steps) for a in allocations}
    copies = Versions(versions, allocations, _named(steps))
    if copies.named and (loop.kind is not ForKind.UNROLLED or const_value(loop.extent) is None):
        raise LoweringError(
            f"the pipeline of loop `{loop.loop_var.name}` needs {len(next(iter(copies.named.values())))} versions of "
            f"{next(iter(copies.named)).name}, registers that instructions name: unroll the loop, or order the "
            "statement "
            "that fills them after those that use them"
        )
    guards = bool(notes.get(GUARDED, 0)) and not copies.named
    made = _overlapped(loop, steps, last, copies, _is_async(loop, notes), guards)
    for buffer in reversed(views):
        for held in reversed(copies.buffers(buffer)):
            made = DeclBuffer(held, made)
    for a in reversed(allocations):
        for var in reversed(copies.named.get(a.buffer_var, [])):
            made = a.replace(buffer_var=var, body=made)
        if a.buffer_var not in copies.named:
            count = const(versions[a.buffer_var], a.extents[0].dtype)
            made = a.replace(extents=(mul(a.extents[0], count),), body=made)
    return made


def _split(
    loop: For, parts: Sequence[Stmt], which: set[int], allocations: list[Allocate], views: list[Buffer]
) -> list[Stmt]:
    """The statements, those at some positions as loads to registers and stores of these."""
    out: list[Stmt] = []
    for i, part in enumerate(parts):
        made = through_registers(part) if i in which else None
        if isinstance(made, str):
            raise LoweringError(
                f"statement {i} of the pipeline of loop `{loop.loop_var.name}` cannot pass registers: it must be {made}"
            )
        if made is None:
            out.append(part)
            continue
        *both, held = made
        out += both
        views.append(held)
        allocations.append(Allocate(held.data, held.dtype, held.shape, const(True), part))
    return out


def opened(body: Stmt, allocations: list[Allocate], views: list[Buffer]) -> Stmt:
    """The statement inside its allocations, which are collected."""
    while isinstance(body, (Allocate, DeclBuffer)):
        if isinstance(body, Allocate):
            allocations.append(body)
        else:
            views.append(body.buffer)
        body = body.body
    return body


def _is_async(loop: For, notes: dict[str, Any]) -> bool:
    """Whether the first stage copies asynchronously."""
    stages = [int(s) for s in notes.get(ASYNC, ())]
    if stages not in ([], [0]):
        raise LoweringError(
            f"the pipeline of loop `{loop.loop_var.name}` has asynchronous stages {stages}: only stage 0 can be one"
        )
    return bool(stages)


def pipeline_steps(loop: For, parts: Sequence[Stmt], notes: dict[str, Any]) -> list[_Step]:
    stages = [int(s) for s in notes[STAGE]]
    orders = [int(o) for o in notes.get(ORDER, range(len(parts)))]
    name = loop.loop_var.name
    if len(stages) != len(parts) or sorted(orders) != list(range(len(parts))):
        raise LoweringError(
            f"the pipeline of loop `{name}` has {len(parts)} statements, stages {stages} and order {orders}: "
            "there must be a stage for each, and the order must be a permutation"
        )
    if loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
        raise LoweringError(f"the pipeline of loop `{name}` needs a serial or an unrolled loop")
    steps = [_Step(p, s, o, *_touched(p)) for p, s, o in zip(parts, stages, orders, strict=True)]
    for i, a in enumerate(steps):
        for b in steps[i + 1 :]:
            both = (a.writes & (b.reads | b.writes)) | (a.reads & b.writes)
            if both and (b.stage, b.order) < (a.stage, a.order):
                raise LoweringError(
                    f"the pipeline of loop `{name}` runs a statement before the one that it depends on "
                    f"through {min(b.name for b in both)}: give it a later stage or order"
                )
    return steps


def _touched(n: Stmt) -> tuple[set[Var], set[Var]]:
    reads: set[Var] = set()
    writes: set[Var] = set()
    for m in pre_order(n):
        if isinstance(m, BufferLoad):
            reads.add(m.buffer.data)
        elif isinstance(m, BufferStore):
            writes.add(m.buffer.data)
        elif isinstance(m, Call):
            held = {a for a in m.args if isinstance(a, Var) and a.dtype.is_handle}
            mask = int(const_value(m.args[4]) or 3) if m.op is _ACCESS_PTR else 3
            reads |= held if mask & 1 else set()
            writes |= held if mask & 2 else set()
    return reads, writes


def versions_of(var: Var, steps: Sequence[_Step]) -> int:
    """The number of iterations in which the buffer is live at the same time."""
    made = [s for s in steps if var in s.writes]
    used = [s for s in steps if var in s.reads | s.writes]
    if not made:
        return 1
    first, last = min(made, key=lambda s: (s.stage, s.order)), max(s.stage for s in used)
    count = last - first.stage + 1
    # Memory private to a thread may be refilled in the iteration of its last use, if that use comes first.
    after = all(s.order < first.order for s in used if s.stage == last)
    return count - 1 if after and count > 1 and not scope_of(var).startswith("shared") else count


def _named(steps: Sequence[_Step]) -> set[Var]:
    """The memory that instructions name, so that versions cannot be offsets into one allocation."""
    calls = [m for s in steps for m in pre_order(s.stmt) if isinstance(m, Call) and m.op is not _ACCESS_PTR]
    return {a for c in calls for a in c.args if isinstance(a, Var) and a.dtype.is_handle}


class Versions(Mutator):
    """Redirects accesses to the version of a given iteration: an offset in a larger allocation or, where instructions
    name the memory, an allocation of its own."""

    def __init__(self, counts: dict[Var, int], allocations: Sequence[Allocate], named: set[Var]) -> None:
        several = {v: c for v, c in counts.items() if c > 1}
        self.counts = {v: c for v, c in several.items() if v not in named}
        self.named = {
            v: [v.copy_with_suffix(f"_{i}" if i else "") for i in range(c)]
            for v, c in several.items()
            if v in named
        }
        self.sizes = {a.buffer_var: a.extents[0] for a in allocations}
        self.made: dict[Buffer, list[Buffer]] = {}
        self.iteration: PrimExpr = const(0)

    def buffers(self, b: Buffer) -> list[Buffer]:
        """A buffer over all versions, or one for each."""
        count = self.counts.get(b.data)
        if count is None and b.data not in self.named:
            return [b]
        if b not in self.made:
            size = self.sizes[b.data]  # padded rows may end before it does
            self.made[b] = (
                [b.replace(data=v) for v in self.named[b.data]]
                if count is None
                else [b.replace(shape=(mul(size, const(count, size.dtype)),))]
            )
        return self.made[b]

    def which(self, var: Var) -> int:
        return int(const_value(self.iteration) or 0) % len(self.named[var])

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if made.buffer.data in self.named:
            return made.replace(buffer=self.buffers(made.buffer)[self.which(made.buffer.data)])
        count = self.counts.get(made.buffer.data)
        if count is None:
            return made
        turn = floormod(self.iteration, const(count, self.iteration.dtype))
        start = mul(turn, self.sizes[made.buffer.data])
        return made.replace(buffer=self.buffers(made.buffer)[0], indices=(add(start, made.indices[0]),))

    visit_BufferLoad = visit_BufferStore = access

    def visit_Var(self, n: Var) -> PrimExpr:
        return self.named[n][self.which(n)] if n in self.named else n

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        if n.op is not _ACCESS_PTR or n.args[1] not in self.counts:
            return made
        turn = floormod(self.iteration, const(self.counts[n.args[1]], self.iteration.dtype))  # type: ignore[index]
        at = add(mul(turn, self.sizes[n.args[1]]), made.args[2])  # type: ignore[index]
        return made.replace(args=(*made.args[:2], at, *made.args[3:]))


def _call(name: str, *args: PrimExpr) -> Stmt:
    return Evaluate(Call("int32", f"tir.{name}", args))


def _asynchronous_turn(ordered: Sequence[_Step], parts: Sequence[Stmt | None]) -> list[Stmt]:
    """The statements of an iteration; the wait comes first, so that one barrier after it serves all of them."""
    out = []
    fetched = {v for s in ordered if s.stage == 0 for v in s.writes if scope_of(v).startswith("shared")}
    later = [s for s, p in zip(ordered, parts, strict=True) if s.stage > 0 and p is not None]
    waiting = [s.stage for s in later if fetched & s.reads]
    if waiting:
        out.append(_call("ptx_wait_group", const(min(waiting) - 1)))
    if later:
        # A thread waits for its own copies. After the barrier all have waited, and have read the data overwritten next.
        out.append(_call("tvm_storage_sync", StringImm("shared")))
    ends = max(i for i, s in enumerate(ordered) if s.stage == 0)
    for i, (s, p) in enumerate(zip(ordered, parts, strict=True)):
        if p is not None and _writes_ahead(s, ordered):
            marked = AttrStmt(const(0), "async_scope", const(1), p) if s.stage == 0 else p
            # After the barrier no thread reads the data of earlier iterations. The stores of a later stage are one copy
            # of a tile, which was unrolled.
            how = 3 if s.stage else 2 if later else 1
            out.append(AttrStmt(const(0), "double_buffer_write", const(how), marked))
        elif p is not None:
            out.append(p)
        if i == ends and fetched:  # without copies too, so that each iteration has a group
            out.append(_call("ptx_commit_group"))
    return out


def _writes_ahead(step: _Step, steps: Sequence[_Step]) -> bool:
    """Whether a step writes into versions that no other step of the iteration uses: those of the first stage, and
    those that bring registers to shared memory for steps of later stages."""
    if step.stage == 0:
        return True
    shared = {v for v in step.writes if scope_of(v).startswith("shared")}
    users = [s for s in steps if s is not step and shared & (s.reads | s.writes)]
    return bool(shared) and all(s.stage > step.stage for s in users)


def _overlapped(
    loop: For, steps: Sequence[_Step], last: int, copies: Versions, asynchronous: bool, guards: bool
) -> Stmt:
    kind = loop.loop_var.dtype
    begin, size = loop.min, loop.extent
    ordered = sorted(steps, key=lambda s: s.order)
    count = const_value(size)

    def at(step: _Step, turn: PrimExpr) -> Stmt:
        """A statement in its current iteration, counted from zero."""
        mine = sub(turn, const(step.stage, kind))
        copies.iteration = mine
        return renew_defs_in(substitute(copies.visit(step.stmt), {loop.loop_var: add(begin, mine)}))

    def guarded(step: _Step, turn: PrimExpr) -> Stmt | None:
        mine = sub(turn, const(step.stage, kind))
        inside = logical_and(greater_equal(mine, const(0, kind)), less(mine, size))
        if isinstance(inside, IntImm):
            return at(step, turn) if inside.value else None
        return IfThenElse(inside, at(step, turn))

    def together(parts: Sequence[Stmt | None]) -> list[Stmt]:
        if asynchronous:
            return _asynchronous_turn(ordered, parts)
        return [p for p in parts if p is not None]

    if copies.named:  # each iteration uses memory of other names
        turns = range(int(count or 0) + last)
        return seq(*(s for t in turns for s in together([guarded(s, const(t, kind)) for s in ordered])))
    head = [s for t in range(last) for s in together([guarded(s, const(t, kind)) for s in ordered])]
    var = loop.loop_var.copy_with_suffix("")
    turn = add(var, const(last, kind))
    if guards:

        def unless_done(step: _Step) -> Stmt:
            made = at(step, turn)
            if step.stage < last:
                made = IfThenElse(less(sub(turn, const(step.stage, kind)), size), made)
            return made

        steady = together([unless_done(s) for s in ordered])
        return seq(*head, For(var, const(0, kind), size, loop.kind, seq(*steady), None, loop.annotations))
    steady = together([at(s, turn) for s in ordered])
    full = max_of(sub(size, const(last, kind)), const(0, kind))
    main = For(var, const(0, kind), full, loop.kind, seq(*steady), None, loop.annotations)
    # Epilogue: each delayed statement catches up. Short loops start here too.
    first_left = size if count is None else const(max(int(count), last), kind)
    if count is None:
        first_left = max_of(size, const(last, kind))
    left = [add(first_left, const(t, kind)) for t in range(last)]
    tail = [s for t in left for s in together([guarded(s, t) for s in ordered])]
    return seq(*head, main, *tail)
