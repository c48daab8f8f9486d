"""Barriers between threads that access the same memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ...arith import Analyzer
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import (
    EQ,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    IntImm,
    IterVar,
    Mul,
    PrimExpr,
    Ramp,
    Range,
    StringImm,
    Sub,
    Var,
    const,
    const_value,
)
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, statements, substitute, written_out
from ...ir.op import Op
from ...ir.ops import add, conjuncts, greater, logical_not, mul, sub
from ...ir.stmt import (
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ..analysis.measure import scope_of
from .thread_grid import Between, ThreadGrid

_LIKELY = Op.get("tir.likely")
_SYNC, _ACCESS_PTR = Op.get("tir.tvm_storage_sync"), Op.get("tir.tvm_access_ptr")
_COPY, _XOR = Op.get("tir.ptx_cp_async"), Op.get("tir.bitwise_xor")
CLUSTER = "shared.cluster"
_FEW = 64


def thread_sync(func: PrimFunc, storage_scope: str = "shared", *more: str) -> PrimFunc:
    """Insert a barrier wherever a thread may read an element that another one wrote, or overwrite one that it still
    reads.

        for k in range(n):                       for k in range(n):
            s[tx] = A[k*32 + tx]                     storage_sync("shared")    # s is read until here
            B[tx] += s[31 - tx]          ->          s[tx] = A[k*32 + tx]
                                                     storage_sync("shared")    # s is written until here
                                                     B[tx] += s[31 - tx]

    Accesses do not conflict if their indices differ for any two threads. A barrier goes in front of the outermost
    statement that needs it, and never into divergent control flow.

    Memory that the blocks of a cluster share (`shared.cluster`) is handled by a separate run before the others: its
    barriers synchronize all threads of the cluster.

    Needs: flat buffers, `verify_ssa`, hardware axes as `thread_extent`. Gives: kernels without races between statements
    in memory of `storage_scope` (and of the scopes `more`: one barrier then serves all).
    """
    if not any(isinstance(m, AttrStmt) and m.attr_key == "thread_extent" for m in statements(func.body)):
        return func
    sync = _Sync((storage_scope, *more))
    return func.updated(body=sync.go(func.body, ()).stmt)


@dataclass(slots=True, eq=False)
class _Access:
    """A read or write of shared memory. `index` is None if unknown."""

    pointer: Var
    index: PrimExpr | None
    writes: bool
    conditions: tuple[PrimExpr, ...]
    # 1: later reads of its iteration use the other half; 2: earlier ones too; 3: and no element is written twice
    double_buffered: int


@dataclass(slots=True)
class _Part:
    """A statement with its barriers; the accesses that are reachable from its start, and those from which its end is
    reachable, without a barrier between; and whether every path through it passes a barrier."""

    stmt: Stmt
    entry: list[_Access] = field(default_factory=list)
    exit: list[_Access] = field(default_factory=list)
    passes: bool = False


class _Sync:
    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.scopes = scopes
        self.sharers = ("threadIdx", "clusterCtaIdx") if scopes[0] == CLUSTER else ("threadIdx",)
        self.ana = Analyzer()
        self.threads: dict[Var, int | None] = {}
        self.grid = ThreadGrid(self.threads)
        self.ranges: dict[Var, Range] = {}
        self.active: dict[
            Var, None
        ] = {}  # enclosing loops, whose variables have the same value in both accesses
        self.blocks: set[Var] = set()
        self.lets: dict[Var, PrimExpr] = {}
        self.divergent: set[Var] = set()
        self.conditions: tuple[PrimExpr, ...] = ()
        self.in_kernel = False
        self.double_buffered = 0

    # -- statements ------------------------------------------------------------------------
    def go(self, n: Stmt, pending: Iterable[_Access]) -> _Part:
        """The statement after the accesses in `pending`, which are of an earlier iteration of a loop."""
        before = list(pending)
        if isinstance(n, SeqStmt):
            return self.sequence(n, before)
        if isinstance(n, LetStmt):
            return self.let(n, before)
        if isinstance(n, AttrStmt):
            return self.attr(n, before)
        if isinstance(n, For):
            part = self.loop(n)
        elif isinstance(n, IfThenElse):
            part = self.branch(n)
        elif isinstance(n, While):
            part = self.under(n, [(n.condition, n.body)])
        elif isinstance(n, Evaluate) and self.is_barrier(n.value):
            return _Part(n, passes=True)
        else:
            inner = [c for c in n.children() if isinstance(c, Stmt)]
            if len(inner) == 1:  # a definition that encloses its body
                return self.wrapped(n, inner[0], before)
            found = self.accesses(n)
            part = _Part(n, found, found)
        return self.after(before, part)

    def after(self, before: list[_Access], part: _Part) -> _Part:
        """The part with a barrier in front of it, if `before` needs that."""
        if before and (where := self.meet(before, part.entry)):
            return _Part(seq(self.barrier(where), part.stmt), [], part.exit, True)
        return part

    def sequence(self, n: SeqStmt, before: list[_Access]) -> _Part:
        entry: list[_Access] = []
        pending, passed = before, False
        out: list[Stmt] = []
        for s in n.seq:
            part = self.go(s, ())
            if pending and (where := self.meet(pending, part.entry)):
                out.append(self.barrier(where))
                pending, passed = [], True
            if not passed:
                entry += part.entry
            out.append(part.stmt)
            pending = part.exit if part.passes else pending + part.exit
            passed = passed or part.passes
        same = len(out) == len(n.seq) and all(a is b for a, b in zip(out, n.seq))
        return _Part(n if same else seq(*out), entry, pending, passed)

    def wrapped(self, n: Any, body: Stmt, before: list[_Access]) -> _Part:
        part = self.go(body, before)
        found = [a for c in n.children() if isinstance(c, PrimExpr) for a in self.accesses(c)]
        made = n if part.stmt is body else n.replace(body=part.stmt)
        part = _Part(made, found + part.entry, part.exit, part.passes)
        return self.after(before, part) if found else part

    def let(self, n: LetStmt, before: list[_Access]) -> _Part:
        self.lets[n.var] = n.value
        if self.diverges(n.value):
            self.divergent.add(n.var)
        return self.wrapped(n, n.body, before)

    def attr(self, n: AttrStmt, before: list[_Access]) -> _Part:
        if n.attr_key == "double_buffer_write":
            held, self.double_buffered = self.double_buffered, int(const_value(n.value) or 1)
            part = self.wrapped(n, n.body, before)
            self.double_buffered = held
            return part
        if n.attr_key != "thread_extent" or not isinstance(n.node, IterVar):
            return self.wrapped(n, n.body, before)
        var, outermost = n.node.var, not self.in_kernel
        size = const_value(n.value)
        self.ranges.pop(var, None)  # its extent may differ in another kernel
        self.bind(var, const(0, var.dtype), n.value)
        if n.node.thread_tag.startswith(self.sharers) and size != 1:
            self.threads[var] = None if size is None else int(size)
            self.grid.clear()
            self.divergent.add(var)
        else:
            self.active[var] = None  # all threads that share the memory are in one block
            self.blocks.add(var)
        self.in_kernel = True
        part = self.go(n.body, before)
        made = n.updated(body=part.stmt)
        if not outermost:
            return _Part(made, part.entry, part.exit, part.passes)
        self.in_kernel = False
        self.threads.clear()
        self.grid.clear()
        return _Part(made, passes=True)  # kernels run in sequence

    def bind(self, var: Var, low: PrimExpr, extent: PrimExpr) -> None:
        if var not in self.ranges:
            self.ranges[var] = Range.from_min_extent(low, extent)
            self.ana.bind_loop(var, low, extent)

    def loop(self, n: For) -> _Part:
        header = self.accesses(n.min) + self.accesses(n.extent)
        self.bind(n.loop_var, n.min, n.extent)
        if self.diverges(n.min) or self.diverges(n.extent) or n.kind is ForKind.VECTORIZED:
            self.divergent.add(n.loop_var)
            part = self.under(n, [(greater(n.extent, 0), n.body)], n.loop_var)
        else:
            part = self.turns(n, n.body, n.loop_var)
            part.passes = part.passes and bool(const_value(n.extent))
        part.entry = header + part.entry
        return part

    def turns(self, n: Any, body: Stmt, var: Var | None) -> _Part:
        """A loop around `body`, whose first accesses may conflict with the last ones of the previous iteration."""
        if var is not None:
            self.active[var] = None
        part = self.go(body, ())
        once = isinstance(n, For) and isinstance(n.extent, IntImm) and n.extent.value <= 1
        carried = [] if once else [self.earlier(a, var) for a in part.exit]
        if self.meet(carried, part.entry):
            part = self.go(body, carried)
        if var is not None:
            del self.active[var]
        made = n if part.stmt is body else n.replace(body=part.stmt)
        return _Part(made, part.entry, part.exit, part.passes)

    def earlier(self, a: _Access, var: Var | None) -> _Access:
        """The access in another iteration of the loop over `var`."""
        index = a.index
        if index is not None and var is not None:
            index = substitute(index, {var: self.twin(var)})
        return replace(a, index=index, double_buffered=0)

    def branch(self, n: IfThenElse) -> _Part:
        if self.diverges(n.condition):
            cases = [(n.condition, n.then_case), (logical_not(n.condition), n.else_case)]
            return self.under(n, [(c, s) for c, s in cases if s is not None])
        header = self.accesses(n.condition)
        a = self.go(n.then_case, ())
        b = None if n.else_case is None else self.go(n.else_case, ())
        other = None if b is None else b.stmt
        made = n
        if a.stmt is not n.then_case or other is not n.else_case:
            made = n.replace(then_case=a.stmt, else_case=other)
        entry, out = header + a.entry, header + a.exit
        if b is not None:
            entry, out = entry + b.entry, out + b.exit
        return _Part(made, entry, out, b is not None and a.passes and b.passes)

    def under(self, n: Stmt, cases: list[tuple[PrimExpr, Stmt]], var: Var | None = None) -> _Part:
        """A statement with divergent parts: barriers cannot go inside."""
        held = self.conditions
        found: list[_Access] = []
        for condition, body in cases:
            found += self.accesses(condition)
            self.conditions = (*held, *_parts(self.expanded(condition)))
            part = self.go(body, ()) if isinstance(n, IfThenElse) else self.turns(n, body, var)
            if part.stmt is not body and part.stmt is not n:
                raise LoweringError(
                    f"thread_sync: {self.scopes[0]} memory is shared between threads inside `{condition}`, which "
                    "not all threads of a block enter, so a barrier there would deadlock; "
                    "move the exchange out of the condition, or give each iteration the same threads"
                )
            found += part.entry + [a for a in part.exit if a not in part.entry]
        self.conditions = held
        return _Part(n, found, found)

    # -- accesses --------------------------------------------------------------------------
    def is_barrier(self, e: PrimExpr) -> bool:
        if not isinstance(e, Call) or e.op is not _SYNC or not e.args:
            return False
        what = e.args[0]
        held = what.value if isinstance(what, StringImm) else ""
        if self.scopes[0] == CLUSTER:  # a barrier of one block does not synchronize the others there
            return held == CLUSTER
        return held in self.scopes or held.split(".")[0] == self.scopes[0].split(".")[0] == "shared"

    def barrier(self, scope: str) -> Stmt:
        return Evaluate(Call("int32", _SYNC, (StringImm(scope),)))

    def diverges(self, e: PrimExpr) -> bool:
        """Whether the value may differ between the threads of a block (divergence)."""
        for m in pre_order(e):
            if isinstance(m, Var) and m in self.divergent:
                return True
            if isinstance(m, BufferLoad) and m.buffer.scope_name not in ("global", "shared", "shared.dyn"):
                return True
        return False

    def accesses(self, n: Any) -> list[_Access]:
        """The accesses to memory of the scope, reads before writes, in a statement or expression itself."""
        if not self.in_kernel or not self.threads:
            return []
        out: list[_Access] = []
        stack = [n]
        while stack:
            e = stack.pop()
            if isinstance(e, (BufferLoad, BufferStore)):
                if scope_of(e.buffer.data) in self.scopes:
                    out.append(self.access(e.buffer.data, e.indices[0], isinstance(e, BufferStore)))
            elif e.__class__ is Call and e.op is _ACCESS_PTR and isinstance(e.args[1], Var):
                if scope_of(e.args[1]) in self.scopes:
                    out += self.through_pointer(e)
                stack.extend(e.args[2:])
                continue
            elif e.__class__ is Call and e.op is _COPY and isinstance(e.args[0], Var):
                if scope_of(e.args[0]) in self.scopes:
                    count = const(
                        max(1, int(const_value(e.args[4]) or 16) // e.dtype.nbytes), e.args[1].dtype
                    )
                    out.append(self.access(e.args[0], add(e.args[1], self.any_below(count, e.args[1])), True))
                stack.extend(e.args[1:2] + e.args[3:])
                continue
            elif isinstance(e, Var) and e.dtype.is_handle and scope_of(e) in self.scopes:
                out.append(self.access(e, None, True))
            stack.extend(e.children())
        return sorted(out, key=lambda a: a.writes)

    def through_pointer(self, e: Call) -> list[_Access]:
        offset, extent = e.args[2], e.args[3]
        mask = int(const_value(e.args[4]) or 3)
        index = add(offset, self.any_below(extent, offset))
        pointer: Any = e.args[1]
        return [self.access(pointer, index, writes) for bit, writes in ((1, False), (2, True)) if mask & bit]

    def any_below(self, extent: PrimExpr, like: PrimExpr) -> Var:
        v = Var("any", like.dtype)
        self.bind(v, const(0, like.dtype), extent)
        return v

    def access(self, pointer: Var, index: PrimExpr | None, writes: bool) -> _Access:
        if isinstance(index, Ramp):
            lane = self.any_below(const(index.lanes, index.base.dtype), index.base)
            index = add(index.base, mul(index.stride, lane))
        if index is not None:
            index = self.ana.simplify(self.expanded(index))
            if index.dtype.is_vector or any(
                isinstance(m, BufferLoad) or (isinstance(m, Call) and m.op is not _XOR)
                for m in pre_order(index)
            ):
                index = None
        return _Access(pointer, index, writes, self.conditions, self.double_buffered)

    def expanded(self, e: PrimExpr) -> PrimExpr:
        """The expression with let bindings substituted."""
        return written_out(e, self.lets)

    # -- conflicts of accesses -------------------------------------------------------------
    def meet(self, first: list[_Access], second: list[_Access]) -> str:
        """The scope of memory in which accesses of different threads may conflict; empty if none do."""
        for a in first:
            for b in second:
                if a.pointer is b.pointer and (a.writes or b.writes) and self.conflict(a, b):
                    return scope_of(a.pointer)
        return ""

    def conflict(self, a: _Access, b: _Access) -> bool:
        """Whether two different threads may access one element, `a` before `b`."""
        if (a.double_buffered and not b.writes) or (b.double_buffered >= 2 and not a.writes):
            return False  # in one iteration, the half that is written is not the one that is read
        if a.double_buffered == b.double_buffered == 3:
            return False
        if a.index is None or b.index is None:
            return True
        if a.writes and not b.writes and self.reads_own(a, b):
            return False
        fresh = self.renamed(a.index, threads=True)
        low, high = self.bound(sub(b.index, fresh))
        if low > 0 or high < 0:
            return False
        if self.grid.tell_apart(a, b, lambda x, y: self.steps(sub(y, self.renamed(x, threads=False)))):
            return False
        return not (self.keep_apart(a, b, ()) or self.keep_apart(a, b, self.ranges))

    def keep_apart(self, a: _Access, b: _Access, loops: Iterable[Var]) -> bool:
        """Whether both indices are the same linear combination of the thread axes (and of `loops`, which may be in
        different iterations), up to less than the distance between the elements of two points."""
        axes = {*self.threads, *(v for v in loops if v not in self.blocks)}
        assert a.index is not None and b.index is not None
        x, y = _linear(a.index, axes), _linear(b.index, axes)
        if x is None or y is None or any(x[0].get(v) != y[0].get(v) for v in self.threads):
            return False
        steps = [(abs(x[0].get(v, 0)), self.count(v, a, b)) for v in self.threads]
        left, right = self.turns_of(x), self.turns_of(y)
        if left is None or right is None or [c for c, _, _ in left] != [c for c, _, _ in right]:
            return False
        steps += [(abs(c), max(m, n)) for (c, _, m), (_, _, n) in zip(left, right)]
        between = sub(y[1], self.renamed(x[1], threads=False))
        if not left and self.in_steps(between, steps):
            return True
        low, high = self.bound(between)
        shift = sum(c * (f - e) for (c, e, _), (_, f, _) in zip(left, right))
        return max(abs(low + shift), abs(high + shift)) < _gap(steps)

    def in_steps(self, between: PrimExpr, steps: list[tuple[int, int | None]]) -> bool:
        """Whether indices are equal, or differ by more than the span of the elements of all threads."""
        if any(n is None for _, n in steps) or not _gap(steps):
            return False
        known = self.ana.modular_set(self.ana.simplify(between))
        return known.base == 0 and known.coeff > sum(c * ((n or 1) - 1) for c, n in steps)

    def count(self, v: Var, *accesses: _Access) -> int | None:
        """An upper bound on the number of threads of an axis, from the first on, that execute one of the accesses."""
        size, most = self.threads[v], 0
        for a in accesses:
            least = size
            for c in a.conditions:
                limit = const_value(c.b) if isinstance(c, (LT, LE, EQ)) and c.a is v else None
                if limit is not None:
                    end = int(limit) + (0 if isinstance(c, LT) else 1)
                    least = end if least is None else min(least, end)
            if least is None:
                return None
            most = max(most, least)
        return most

    def turns_of(self, parts: tuple[dict[Var, int], PrimExpr]) -> list[tuple[int, int, int]] | None:
        """For each loop in a linear index: its coefficient, its first value, and its trip count."""
        out = []
        for v, c in parts[0].items():
            if v in self.threads:
                continue
            low, size = const_value(self.ranges[v].min), const_value(self.ranges[v].extent)
            if low is None or size is None:
                return None
            out.append((c, int(low), int(size)))
        return sorted(out)

    def reads_own(self, a: _Access, b: _Access) -> bool:
        """Whether each thread that reads the element has just written it itself."""
        fixed = all(v in self.active or v in self.threads or v not in self.ranges for v in _vars(a.index))
        if not fixed or not structural_equal(a.index, b.index):
            return False
        return all(any(structural_equal(c, d) for d in b.conditions) for c in a.conditions)

    def renamed(self, index: PrimExpr, threads: bool) -> PrimExpr:
        """The index for another thread, or in another iteration of the loops that are not common."""
        table: dict[Var, Var] = {}
        for v in _vars(index):
            if v in self.ranges and v not in table and v not in self.active:
                if threads or v not in self.threads:
                    table[v] = self.twin(v)
        return substitute(index, table)

    def twin(self, v: Var) -> Var:
        """Another variable of the same range."""
        made, r = Var(v.name, v.dtype), self.ranges[v]
        self.bind(made, r.min, r.extent)
        return made

    def steps(self, e: PrimExpr) -> Between:
        """The bounds of a difference, and its possible values between them: loops have large strides, and lanes cover a
        few elements."""
        e = self.ana.simplify(e)
        low, high = self.bound(e)
        coefficients, rest = _linear(e, self.ranges) or ({}, e)
        for least in sorted({abs(c) for c in coefficients.values()} - {1}, reverse=True):
            few: PrimExpr = rest
            for v, c in coefficients.items():
                few = add(few, mul(v, const(c, v.dtype))) if abs(c) < least else few
            first, last = self.bound(few)
            if last - first < min(least, _FEW):
                step = math.gcd(*(c for c in coefficients.values() if abs(c) >= least))
                return low, high, step, range(int(first), int(last) + 1)
        return low, high, 1, range(1)

    def bound(self, e: PrimExpr) -> tuple[float, float]:
        found = self.ana.const_int_bound(self.ana.simplify(e))
        return float(found.min_value), float(found.max_value)


def _gap(steps: list[tuple[int, int | None]]) -> float:
    """The least distance between two points of a grid with these strides and sizes; 0 if they may coincide."""
    reach, least = 0, float("inf")
    for c, n in sorted(steps, key=lambda s: s[0]):
        if n is None:
            return 0
        if n > 1:
            least = min(least, c - reach)
        reach += c * (n - 1)
    return max(least, 0)


def _parts(condition: PrimExpr) -> list[PrimExpr]:
    """The conditions that must all hold."""
    if isinstance(condition, Call) and condition.op is _LIKELY:
        return _parts(condition.args[0])
    parts = conjuncts(condition)
    return parts if len(parts) == 1 else [c for p in parts for c in _parts(p)]


def _vars(e: Any) -> list[Var]:
    return [m for m in pre_order(e) if isinstance(m, Var)]


def _linear(e: PrimExpr, names: Any) -> tuple[dict[Var, int], PrimExpr] | None:
    """`e` as a sum of multiples of the variables in `names` and an expression without them."""
    if isinstance(e, Var) and e in names:
        return {e: 1}, const(0, e.dtype)
    if not any(v in names for v in _vars(e)):
        return {}, e
    if isinstance(e, (Add, Sub)):
        a, b = _linear(e.a, names), _linear(e.b, names)
        if a is None or b is None:
            return None
        sign = 1 if isinstance(e, Add) else -1
        total = dict(a[0])
        for v, c in b[0].items():
            total[v] = total.get(v, 0) + sign * c
        return {v: c for v, c in total.items() if c}, (add if sign > 0 else sub)(a[1], b[1])
    if isinstance(e, Mul):
        for x, y in ((e.a, e.b), (e.b, e.a)):
            if isinstance(y, IntImm):
                a = _linear(x, names)
                if a is None:
                    return None
                return {v: c * y.value for v, c in a[0].items() if c * y.value}, mul(a[1], y)
    return None
