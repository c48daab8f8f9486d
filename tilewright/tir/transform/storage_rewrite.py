"""Memory reuse: allocations with disjoint live ranges share memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import BufferLoad, Call, IntImm, IterVar, PrimExpr, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Visitor, uses_var
from ...ir.op import Op
from ...ir.stmt import (
    SLACK,
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    LetStmt,
    Stmt,
    While,
)
from ..analysis.measure import bytes_of
from ..renew import Substituter
from .convert_ssa import convert_ssa

_SHAREABLE = ("global", "local", "shared", "warp")
_SCOPE_ATTRS = ("virtual_thread", "compute_scope", "extern_scope", "device_id", "device_type", "device_scope")
_STORES_POINTERS = (Op.get("tir.tvm_struct_set"), Op.get("tir.tvm_static_handle"))
_WRAPPERS = (LetStmt, AssertStmt, AttrStmt, DeclBuffer, Allocate, AllocateConst)
_NEVER = 1 << 60
# Allocations up to this many bytes are not shared. Local memory may become registers, unless it is used with two
# types. Reusing shared memory needs a barrier.
SMALL = {"local": 4096, "shared": 256}


def storage_rewrite(func: PrimFunc, *, share_dtypes: bool = True) -> PrimFunc:
    """Move allocations out of loops, and let allocations with disjoint live ranges share memory.

        for i in range(n):                        A = allocate(64)
            A = allocate(64)                      for i in range(n):
            fill(A); use(A)             ->            fill(A); use(A)
            B = allocate(32)                          fill(A); use(A)
            fill(B); use(B)

    Live ranges follow the order of the statements; memory that is allocated outside a loop and used inside is live in
    the whole loop. An allocation moves to the top of the function, or of the parallel loop or kernel that it is in,
    where each thread needs its own. With `share_dtypes`, types of
    the same width share too, each through its own buffer over the one pointer.

    Needs: flat buffers; loops vectorized and unrolled. Gives: no allocation inside a serial loop, unless
    its size depends on the loop.
    """
    whole = convert_ssa(func)
    scan = _Scan()
    scan.visit(whole.body)
    plan = _plan(scan, share_dtypes)
    if not plan.drop:
        return func
    return plan.apply(whole)


# ---------------------------------------------------------------------------- live ranges
@dataclass(slots=True, eq=False)
class _Scope:
    """A region that has memory of its own: the function, a parallel loop's body, a kernel, its threads."""

    start: Stmt | None


@dataclass(slots=True, eq=False)
class _Loop:
    begin: int
    touched: dict[_Memory, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Memory:
    """An allocation as written, and its live range."""

    stmt: Allocate
    scope: _Scope
    loops: int
    in_place: bool
    movable: bool
    shareable: bool
    first: int = _NEVER
    last: int = -1

    @property
    def nbytes(self) -> int:
        return bytes_of(self.stmt.dtype, self.stmt.extents) or 0


class _Scan(Visitor):
    """One walk in program order: each statement advances the time.

    `leading` holds until the scope's first statement that is more than a definition; up to there
    an allocation is where it belongs. `inner` has the variables bound after that.
    """

    def __init__(self) -> None:
        self.memories: dict[Var, _Memory] = {}
        self.loops: list[_Loop] = []
        self.time = 0
        self.root = _Scope(None)
        self.kernel: _Scope | None = None
        self.own = self.root
        self.leading = True
        self.inner: set[Var] = set()
        self.named_early: set[Var] = set()

    # -- uses ------------------------------------------------------------------------------
    def touch(self, v: Var) -> None:
        m = self.memories.get(v)
        if m is None:
            return
        if len(self.loops) > m.loops:
            loop = self.loops[m.loops]
            loop.touched[m] = None
            m.first = min(m.first, loop.begin)
        m.first, m.last = min(m.first, self.time), max(m.last, self.time)

    def visit_Var(self, n: Var) -> None:
        self.touch(n)

    def visit_BufferLoad(self, n: BufferLoad) -> None:
        self.touch(n.buffer.data)
        self.visit_children(n)

    def visit_BufferStore(self, n: BufferStore) -> None:
        self.enter()
        self.touch(n.buffer.data)
        self.visit_children(n)

    def visit_Call(self, n: Call) -> None:
        if n.op in _STORES_POINTERS:
            self.escape(n)
        self.visit_children(n)

    def escape(self, n: Any) -> None:
        """Pointers in `n` escape: they may be used later under another name."""
        for v, m in self.memories.items():
            if uses_var(n, v) or _loads_from(n, v):
                m.shareable = False

    # -- structure -------------------------------------------------------------------------
    def enter(self) -> None:
        """A statement that is more than a definition begins."""
        self.leading = False
        self.time += 1

    def visit_SeqStmt(self, n: Any) -> None:
        self.enter()
        self.visit_children(n)

    visit_Evaluate = visit_IfThenElse = visit_Prefetch = visit_SeqStmt

    def visit_LetStmt(self, n: LetStmt) -> None:
        self.time += 1
        if n.value.dtype.is_handle:
            self.escape(n.value)
        self.visit(n.value)
        if not self.leading:
            self.inner.add(n.var)
        self.visit(n.body)

    def visit_Allocate(self, n: Allocate) -> None:
        for e in n.extents:
            self.visit(e)
        kind = Buffer(n.buffer_var, n.dtype, n.extents, (), const(0), "").scope_name
        scope = self.kernel if self.kernel is not None and kind.startswith("shared") else self.own
        assert scope is not None
        always = isinstance(n.condition, IntImm) and bool(n.condition.value)
        movable = always and not any(uses_var(e, lambda v: v in self.inner) for e in n.extents)
        known = n.buffer_var not in self.named_early
        self.memories[n.buffer_var] = _Memory(
            n,
            scope,
            len(self.loops),
            self.leading and scope is self.own,
            movable and known,
            movable
            and known
            and kind in _SHAREABLE
            and not n.annotations
            and (bytes_of(n.dtype, n.extents) or 0) > 4,
        )
        self.visit(n.body)

    def visit_AttrStmt(self, n: AttrStmt) -> None:
        self.time += 1
        self.visit(n.value)
        name = n.node.data if isinstance(n.node, Buffer) else n.node
        if isinstance(name, Var):
            if name in self.memories:
                self.memories[name].shareable = False
            self.named_early.add(name)
        if n.attr_key.startswith("async_"):
            self.escape(n.body)
        if n.attr_key == "thread_extent" and isinstance(n.node, IterVar):
            self.kernel_scope(n)
        elif n.attr_key in _SCOPE_ATTRS:
            self.in_scope(n, _Scope(n), self.kernel)
        else:
            self.visit(n.body)

    def kernel_scope(self, n: AttrStmt | For) -> None:
        if self.kernel is None:
            scope = _Scope(n)
            # Memory from outside is live until the last thread ends.
            loop = self.begin_loop()
            self.in_scope(n, scope, scope)
            self.end_loop(loop)
        elif self.leading:
            self.visit(n.body)  # one more axis of the same kernel
        else:
            self.in_scope(n, _Scope(n), self.kernel)

    def in_scope(self, n: Any, scope: _Scope, kernel: _Scope | None) -> None:
        held = self.own, self.kernel, self.leading, self.inner
        self.own, self.kernel, self.leading, self.inner = scope, kernel, True, set()
        self.visit(n.body)
        self.own, self.kernel, self.leading, self.inner = held
        self.enter()

    def visit_For(self, n: For) -> None:
        if n.kind is not ForKind.THREAD_BINDING:
            self.enter()
        self.visit(n.min)
        self.visit(n.extent)
        if n.kind is ForKind.THREAD_BINDING:
            self.kernel_scope(n)
            return
        with_loop = self.begin_loop()
        if n.kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
            self.in_scope(n, _Scope(n), self.kernel)
        else:
            self.inner.add(n.loop_var)
            self.visit(n.body)
        self.end_loop(with_loop)

    def visit_While(self, n: While) -> None:
        self.enter()
        loop = self.begin_loop()
        self.visit(n.condition)
        self.visit(n.body)
        self.end_loop(loop)

    def begin_loop(self) -> _Loop:
        self.loops.append(_Loop(self.time))
        return self.loops[-1]

    def end_loop(self, loop: _Loop) -> None:
        self.time += 1
        self.loops.pop()
        for m in loop.touched:
            m.last = max(m.last, self.time)


def _loads_from(n: Any, v: Var) -> bool:
    stack = [n]
    while stack:
        e = stack.pop()
        if isinstance(e, (BufferLoad, BufferStore)) and e.buffer.data is v:
            return True
        stack.extend(e.children())
    return False


# ---------------------------------------------------------------------------- sharing
@dataclass(slots=True, eq=False)
class _Entry:
    """Memory that several allocations use in turn."""

    members: list[_Memory]
    nbytes: int
    last: int

    @property
    def leader(self) -> Allocate:
        return self.members[0].stmt

    def fits(self, m: _Memory, share_dtypes: bool) -> bool:
        if self.last >= m.first:
            return False
        have, want = self.leader, m.stmt
        if have.buffer_var.type_annotation == want.buffer_var.type_annotation:
            return have.dtype is want.dtype
        return share_dtypes and _same_width(have.dtype, want.dtype)

    def extents(self) -> tuple[PrimExpr, ...]:
        """The extents of the first allocation, if it is the largest; else as many of its elements as the largest
        needs."""
        kept = self.leader.extents
        if self.members[0].nbytes == self.nbytes or len(self.members) == 1:
            return kept
        kind = kept[0].dtype if kept else DataType("int32")
        return (const(-(-self.nbytes // self.leader.dtype.nbytes), kind),)


def _same_width(a: DataType, b: DataType) -> bool:
    if a.is_bool or b.is_bool or a.is_handle or b.is_handle:
        return False
    return a.bits == b.bits and a.lanes == b.lanes


def _plan(scan: _Scan, share_dtypes: bool) -> _Rewrite:
    plan = _Rewrite()
    pools: dict[tuple[_Scope, str], list[_Entry]] = {}
    used = [m for m in scan.memories.values() if m.movable and m.last >= 0]
    for m in sorted(used, key=lambda m: m.first):
        kind = str(getattr(m.stmt.buffer_var.type_annotation, "storage_scope", ""))
        pool = pools.setdefault((m.scope, kind), [])
        small = SMALL.get(kind)
        shares = m.shareable and (small is None or m.nbytes > small)
        free = [e for e in pool if e.fits(m, share_dtypes)] if shares else []
        if not free:
            pool.append(_Entry([m], m.nbytes, m.last if shares else _NEVER))
            continue
        # Best fit, else the largest, which grows.
        entry = min(free, key=lambda e: (e.nbytes < m.nbytes, abs(e.nbytes - m.nbytes)))
        entry.members.append(m)
        entry.nbytes, entry.last = max(entry.nbytes, m.nbytes), m.last
    for (scope, _), pool in pools.items():
        for entry in pool:
            if len(entry.members) == 1 and entry.members[0].in_place:
                continue
            plan.add(scope, entry)
    return plan


class _Rewrite(Substituter):
    """Removes the planned allocations and puts the merged ones at the top of their scopes."""

    def __init__(self) -> None:
        super().__init__({})
        self.drop: set[Var] = set()
        self.tops: dict[Stmt | None, list[_Entry]] = {}

    def add(self, scope: _Scope, entry: _Entry) -> None:
        self.tops.setdefault(scope.start, []).append(entry)
        leader = entry.leader.buffer_var
        for m in entry.members:
            self.drop.add(m.stmt.buffer_var)
            if m.stmt.buffer_var is not leader:
                self.table[m.stmt.buffer_var] = leader

    def apply(self, func: PrimFunc) -> PrimFunc:
        return func.replace(body=self.with_allocations(None, self.visit(func.body)))

    def visit_Allocate(self, n: Allocate) -> Stmt:
        if n.buffer_var in self.drop:
            return self.visit(n.body)  # type: ignore[no-any-return]
        return self.visit_children(n)

    def visit_For(self, n: For) -> Stmt:
        made = self.visit_children(n)
        return made.replace(body=self.with_allocations(n, made.body)) if n in self.tops else made

    def visit_AttrStmt(self, n: AttrStmt) -> AttrStmt:
        made = super().visit_AttrStmt(n)
        return made.replace(body=self.with_allocations(n, made.body)) if n in self.tops else made

    def with_allocations(self, start: Stmt | None, body: Stmt) -> Stmt:
        """The allocations of the scope that begins at `start`, below the definitions that open `body`."""
        entries = self.tops.get(start)
        if not entries:
            return body
        opening: list[Stmt] = []
        in_kernel = start is not None and _is_axis(start)
        own = {e.leader.buffer_var for e in entries}
        while (isinstance(body, _WRAPPERS) and not _opens_scope(body)) or (in_kernel and _is_axis(body)):
            if isinstance(body, DeclBuffer) and body.buffer.data in own:
                break  # a view of what is allocated here
            opening.append(body)
            body = body.body  # type: ignore[attr-defined]
        for e in sorted(entries, key=lambda e: e.members[0].first, reverse=True):
            notes = _shared_notes(e.leader, [m.stmt for m in e.members])
            body = e.leader.replace(extents=e.extents(), body=body, annotations=notes)
        for s in reversed(opening):
            body = s.replace(body=body)
        return body


def _shared_notes(leader: Allocate, members: list[Allocate]) -> dict[str, Any]:
    """The annotations of memory that several allocations share: loads reach beyond its end only if those of all may."""
    if SLACK not in leader.annotations and not any(SLACK in m.annotations for m in members):
        return leader.annotations
    notes = {k: v for k, v in leader.annotations.items() if k != SLACK}
    if all(SLACK in m.annotations for m in members):
        notes[SLACK] = max(int(m.annotations[SLACK]) for m in members)
    return notes


def _is_axis(n: Stmt) -> bool:
    """Whether the statement binds an axis of a kernel."""
    if isinstance(n, For):
        return n.kind is ForKind.THREAD_BINDING
    return isinstance(n, AttrStmt) and n.attr_key == "thread_extent"


def _opens_scope(n: Stmt) -> bool:
    return isinstance(n, AttrStmt) and (n.attr_key in _SCOPE_ATTRS or _is_axis(n))
