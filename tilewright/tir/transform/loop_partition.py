"""Loop partitioning: full tiles without predicates, and a tail."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer, detect_linear_equation, eval_set
from ...homes import home_of
from ...ir.equal import structural_equal
from ...ir.expr import GE, GT, LE, LT, Call, IntImm, IterVar, Let, PrimExpr, Range, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, renew_defs_in, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import (
    add,
    conjuncts,
    floordiv,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    max_of,
    min_of,
    mul,
    neg,
    sub,
)
from ...ir.stmt import AttrStmt, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from ..analysis.analyzed import AnalyzedMutator
from ..analysis.effects import can_trap
from . import transpose_lanes

_LIKELY, _IF = Op.get("tir.likely"), Op.get("tir.if_then_else")
# A partitioned program may be this many nodes larger than the original one.
_GROWTH = 30_000
# There are no versions of a tile for fewer vectors or rows if less than one of so many parts of it depends on them.
_SMALL_PART = 4


def loop_partition(func: PrimFunc, *, partition_const_loop: bool = True) -> PrimFunc:
    """Partition loops where a condition inside becomes provable, so that full tiles have no predicate.

        for io in range(8):                       for io in range(7):
            for ii in range(4):                       for ii in range(4):
                if io * 4 + ii < 30:       ->             A[io * 4 + ii] = 0
                    A[io * 4 + ii] = 0            for ii in range(2):
                                                      A[28 + ii] = 0

    A parallel loop is not partitioned; its body branches once instead. With `partition_const_loop=False`, loops of
    constant extent keep their conditions.
    Needs: flat loops. Gives: conditions only where they may fail.
    """
    masks = _has_masks(func.attrs.get("target"))
    return _Partition(_unconditional(func.body), partition_const_loop, masks).run(func)


def _has_masks(target: Any) -> bool:
    """Whether a vector under a mask is loaded and stored as fast as a whole one."""
    kind = home_of("targets").Target
    chosen = kind.current() if target is None else kind(target)
    return chosen is not None and chosen.is_cpu and (chosen.has("avx512f") or chosen.has_scalable_vectors)


@dataclass(slots=True)
class _Bound:
    """`condition` holds for all loop values below `high` (or from `low` on), for any iteration of inner loops."""

    condition: PrimExpr
    low: PrimExpr | None
    high: PrimExpr | None
    exact: bool  # it fails everywhere else


class _Partition(AnalyzedMutator):
    def __init__(self, plain: Set[For], constant: bool, masks: bool) -> None:
        super().__init__()
        self.masks = masks  # whether vectors of dynamic size are masked instead of partitioned
        self.plain = plain  # loops in which nothing depends on a condition
        self.constant = constant  # whether loops of constant extent are partitioned
        self.budget = _GROWTH
        self.threads: dict[Var, Range] = {}
        self.loops: set[Var] = set()

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        held = self.threads
        if isinstance(n.node, IterVar) and n.node.thread_tag.startswith("threadIdx"):
            axis = n.node.var
            self.threads = {**held, axis: Range.from_min_extent(const(0, axis.dtype), n.value)}
        made = super().visit_AttrStmt(n)
        self.threads = held
        return made

    def visit_leaf(self, n: Stmt) -> Stmt:
        return n  # there is no loop in an expression

    visit_BufferStore = visit_Evaluate = visit_leaf

    def visit_For(self, n: For) -> Stmt:
        self.loops.add(n.loop_var)
        if n in self.plain:
            return n
        # A vector stays whole: its last lanes are masked.
        whole = n.kind is ForKind.VECTORIZED or transpose_lanes.KEY in n.annotations
        whole = whole or not (self.constant or const_value(n.extent) is None)
        n = n if whole else self.trimmed(n)
        bounds = [] if whole else self.bounds(n)
        if bounds and self.masks and const_value(n.extent) is None:
            bounds = _unmasked(n.body, bounds)
        if bounds:
            made = self.partitioned(n, bounds)
            if made is not None:
                return made
        return super().visit_For(n)

    # -- finding ---------------------------------------------------------------------------
    def bounds(self, n: For) -> list[_Bound]:
        conditions, inner, defined = _conditions(n.body)
        out = []
        for condition in conditions:
            if n.loop_var in vars_used(condition):
                # All threads need the same trip count, or they could not meet at barriers.
                bound = _solve(condition, n.loop_var, {**self.threads, **inner}, defined)
                # An operand without bounds (infinity is a handle) gives no bound.
                if bound is not None and all(
                    e is None or e.dtype != "handle" for e in (bound.low, bound.high)
                ):
                    out.append(bound)
        return out

    def trimmed(self, n: For) -> For:
        """A loop that does nothing behind some dynamic iteration ends there.

        for i in range(64):                for i in range(min(64, m - j * 64)):
            if j * 64 + i < m:      ->         S(i)
                S(i)
        """
        at, inner = n.body, {n.loop_var}
        while isinstance(at, For):
            inner.add(at.loop_var)
            at = at.body
        if n.kind is not ForKind.SERIAL or not isinstance(at, IfThenElse) or at.else_case is not None:
            return n
        for c in conjuncts(_unlikely(at.condition)):
            used = vars_used(c)
            if (
                not isinstance(c, (LT, LE, GT, GE))
                or used & inner != {n.loop_var}
                or used & set(self.threads)
            ):
                continue
            bound = _solve(c, n.loop_var, {}, set())
            if bound is None or bound.high is None or const_value(self.ana.simplify(bound.high)) is not None:
                continue
            zero, behind = const(0, n.extent.dtype), sub(bound.high, n.min)
            if not self.ana.can_prove(greater_equal(behind, n.extent)):
                shorter = self.ana.simplify(max_of(min_of(n.extent, behind), zero))
                return n.replace(extent=shorter, body=_Assume({c: True}).visit(n.body))
        return n

    def certain(self, n: For, bounds: list[_Bound]) -> tuple[PrimExpr, PrimExpr] | None:
        """The part of a loop where all of the conditions hold, if there is one."""
        ana, end = self.ana, add(n.min, n.extent)
        low, high = n.min, end
        for b in bounds:
            low = low if b.low is None else max_of(low, b.low)
            high = high if b.high is None else min_of(high, b.high)
        if low is not n.min and ana.can_prove(less_equal(low, n.min)):
            low = n.min  # nothing comes before
        # Loops are never entered backwards: the parts must be in order.
        low = n.min if low is n.min else ana.simplify(min_of(low, end))
        high = ana.simplify(max_of(high, low))
        size = ana.simplify(sub(high, low))
        if const_value(size) == 0 or ana.can_prove(less(sub(high, low), const(1, low.dtype))):
            return None
        return low, high

    def agreeing(self, n: For, bounds: list[_Bound]) -> tuple[list[_Bound], tuple[PrimExpr, PrimExpr] | None]:
        """A largest set of conditions that hold together somewhere, preferring those that guard the most work.

        Example: of two tiles over an image of eight rows the first has the padding above it, the second is not full.
        Partitioning between them makes both extents constant.
        """
        work = _guarded_work(n.body)
        kept: list[_Bound] = []
        found = None
        for b in sorted(bounds, key=lambda b: -work.get(b.condition, 0)):
            more = self.certain(n, [*kept, b])
            if more is not None:
                kept, found = [*kept, b], more
        return kept, found

    # -- splitting -------------------------------------------------------------------------
    def partitioned(self, n: For, bounds: list[_Bound]) -> Stmt | None:
        found = self.certain(n, bounds)
        if found is None and len(bounds) > 1:
            bounds, found = self.agreeing(n, bounds)
        if found is None:
            return None
        (low, high), end = found, add(n.min, n.extent)
        if n.kind is ForKind.UNROLLED and self.dynamic((n.min, low), (low, high), (high, end)):
            return None  # copies with predicates stay in registers; loops of dynamic extent would not
        cost = sum(1 for _ in pre_order(n.body))
        if cost * 2 > self.budget:
            return None
        self.budget -= cost * 2
        certain = {b.condition: True for b in bounds}
        # Outside an exact bound the condition fails; of several it is not known which one does.
        only = bounds[0] if len(bounds) == 1 and bounds[0].exact else None
        below = {only.condition: False} if only is not None and only.low is not None else {}
        above = {only.condition: False} if only is not None and only.high is not None else {}
        if n.kind in (ForKind.PARALLEL, ForKind.THREAD_BINDING):
            return self.branched(n, [(low, below), (high, certain), (end, above)])
        parts = [
            self.part(n, n.min, low, below),
            self.part(n, low, high, certain),
            self.part(n, high, end, above),
        ]
        return seq(*[p for p in parts if p is not None])

    def dynamic(self, *parts: tuple[PrimExpr, PrimExpr]) -> bool:
        """Whether the size of some part depends on a dynamic size, and not only on loops."""
        sizes = [self.ana.simplify(sub(end, begin)) for begin, end in parts]
        return any(v not in self.loops for size in sizes for v in vars_used(size))

    def part(self, n: For, begin: PrimExpr, end: PrimExpr, known: Mapping[PrimExpr, bool]) -> Stmt | None:
        size = self.ana.simplify(sub(end, begin))
        if const_value(size) is not None and int(const_value(size) or 0) <= 0:
            return None
        kind = n.kind
        if kind in (ForKind.VECTORIZED, ForKind.UNROLLED) and const_value(size) is None:
            kind = ForKind.SERIAL
        body = _Assume(known).visit(n.body) if known else n.body
        if kind is ForKind.SERIAL and any(v not in self.loops for v in vars_used(size)):
            body, step = _by_width(n.loop_var, body)
            # Of vectors, the masks tell later passes more while they are in terms of the loop.
            if step == 1 and not n.annotations and self.ana.const_int_bound(size).max_value <= 1:
                return self.last(substitute(body, {n.loop_var: begin}), size)
        moved = renew_defs_in(For(n.loop_var, begin, size, kind, body, None, n.annotations, span=n.span))
        self.loops.add(moved.loop_var)
        # Each loop is partitioned once: the parts are visited but not partitioned again.
        made = super().visit_For(moved)
        return None if _nothing(made) else made

    def last(self, body: Stmt, size: PrimExpr) -> Stmt | None:
        """A part of at most one iteration as a condition, which decides those of the body.

        for i in range(n // 4, (n + 3) // 4):            if n % 4 > 0:
            if i * 4 < n:                        ->          S(n // 4)
                S(i)
        """
        runs = self.ana.simplify(greater(size, const(0, size.dtype)))
        with self.ana.constraint_scope(runs):
            made = self.visit(renew_defs_in(body))
        return None if _nothing(made) else IfThenElse(runs, made)

    def branched(self, n: For, parts: list[tuple[PrimExpr, Mapping[PrimExpr, bool]]]) -> Stmt:
        """An unpartitioned loop with a branch for each part, selected by the end of the part."""
        begin, branches = n.min, []
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, n.min, n.extent)
            for end, known in parts:
                size = const_value(self.ana.simplify(sub(end, begin)))
                if size is None or size > 0:
                    branches.append(
                        (self.ana.simplify(less(n.loop_var, end)), self.branch(n, begin, end, known))
                    )
                    begin = end
        body = branches[-1][1]
        for condition, made in reversed(branches[:-1]):
            body = made if _decided(condition) else IfThenElse(condition, made, body)
        self.budget //= 2
        return n.replace(body=body)

    def branch(self, n: For, begin: PrimExpr, end: PrimExpr, known: Mapping[PrimExpr, bool]) -> Stmt:
        """The body of a loop for the values from `begin` to before `end`."""
        body = renew_defs_in(_Assume(known).visit(n.body) if known else n.body)
        if const_value(self.ana.simplify(sub(end, begin))) == 1:
            return self.visit(substitute(body, {n.loop_var: begin}))
        inside = logical_and(greater_equal(n.loop_var, begin), less(n.loop_var, end))
        with self.ana.constraint_scope(self.ana.simplify(inside)):
            return self.visit(body)


@dataclass(slots=True)
class _Vectors:
    """The unrolled loops over the vectors (or rows) of a tile."""

    loops: Mapping[For, Any]
    count: int
    step: int  # elements of a vector
    room: PrimExpr  # elements from the beginning of the tile on

    def narrowed(self, body: Stmt, count: int) -> Stmt:
        """The body of the tile with fewer vectors."""
        return renew_defs_in(_Narrow(self.loops, count).visit(body))


def _vectors(tile: Var, body: Stmt) -> _Vectors | None:
    """The vectors of a tile, if all statements in the unrolled loops over them are guarded by their end."""
    widths: dict[For, tuple[int, PrimExpr, PrimExpr]] = {}
    for m in pre_order(body):
        if isinstance(m, For) and m.kind is ForKind.UNROLLED and const_value(m.min) == 0:
            found = _room(tile, m)
            if found is not None:
                widths[m] = found
    if not widths:
        return None
    work = _guarded_work(body)
    if sum(work[guard] for guard in {w[2] for w in widths.values()}) * _SMALL_PART < work[None]:
        return None  # whole tiles are computed, and only a part is stored
    (count, (step, room, _)), *others = ((int(const_value(u.extent) or 0), w) for u, w in widths.items())
    if any(c != count or w[0] != step or not structural_equal(w[1], room) for c, w in others):
        return None
    return _Vectors(widths, count, step, room)


def _by_width(tile: Var, body: Stmt) -> tuple[Stmt, int]:
    """The body of a partial tile of dynamic size, with a branch for each number of vectors (or rows) that it may need,
    and the elements of each of these; 0 if there are none.

    for v in unroll(4):                                  if n - tile * 64 <= 16: …      (one vector)
        if tile * 64 + v * 16 + lane < n:        ->      elif n - tile * 64 <= 32: …    (two)
            …                                            else: …                        (four)
    """
    found = _vectors(tile, body)
    if found is None:
        return body, 0
    made, count, ana = body, found.count, Analyzer()
    room = ana.simplify(found.room)
    while count > 1:
        count = count - 2 if count > 4 else (count + 1) // 2
        fits = less_equal(room, const(count * found.step, room.dtype))
        made = IfThenElse(fits, found.narrowed(body, count), made)
    return made, found.step


def _unmasked(body: Stmt, bounds: list[_Bound]) -> list[_Bound]:
    """The conditions of a loop of dynamic extent without those that only mask vectors: of a copy, and of whole tiles of
    which a part is stored. There, one version under masks is as fast as a version without them and one for the end."""
    loops = [m for m in pre_order(body) if isinstance(m, For)]
    lanes = {m.loop_var for m in loops if m.kind is ForKind.VECTORIZED}
    masks = {b.condition for b in bounds if vars_used(b.condition) & lanes}
    if len(lanes) < len(loops) and masks:
        work = _guarded_work(body)
        if sum(work[c] for c in masks) * _SMALL_PART >= work[None]:
            return bounds
    return [b for b in bounds if b.condition not in masks]


def _room(tile: Var, u: For) -> tuple[int, PrimExpr, PrimExpr] | None:
    """The elements of a vector in an unrolled loop over the vectors of a tile, the elements from the beginning of the
    tile on, and the condition that they are enough; None if some statement in the loop is not guarded by it."""
    at: Stmt = u.body
    lanes: dict[Var, PrimExpr] = {}
    while isinstance(at, For):
        lanes[at.loop_var] = at.min
        at = at.body
    if not isinstance(at, IfThenElse) or at.else_case is not None:
        return None
    for c in conjuncts(_unlikely(at.condition)):
        if not isinstance(c, LT):
            continue
        linear = detect_linear_equation(sub(c.a, c.b), [tile, u.loop_var])
        if not linear:
            continue
        whole, step, extent = const_value(linear[0]), const_value(linear[1]), const_value(u.extent)
        if not whole or not step or not extent or whole != step * extent or extent < 2:
            continue
        room = sub(neg(substitute(linear[2], lanes)), mul(tile, const(int(whole), tile.dtype)))
        return int(step), room, c
    return None


class _Narrow(Mutator):
    """Unrolled loops with fewer iterations."""

    def __init__(self, loops: Mapping[For, Any], count: int) -> None:
        self.loops, self.count = loops, count

    def visit_For(self, n: For) -> Stmt:
        made = n.map_children(self.visit)
        return made.replace(extent=const(self.count, n.extent.dtype)) if n in self.loops else made


class _Assume(Mutator):
    """Replaces known conditions by their values."""

    def __init__(self, known: Mapping[PrimExpr, bool]) -> None:
        self.known = known

    def visit(self, n: Any) -> Any:
        if isinstance(n, (LT, LE, GT, GE)):
            value = self.known.get(n)
            if value is not None:
                return const(value, "bool")
        return super().visit(n)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        condition = self.visit(n.condition)
        known = _decided(condition)
        if known is True:
            return self.visit(n.then_case)
        if known is False:
            return seq() if n.else_case is None else self.visit(n.else_case)
        then_case = self.visit(n.then_case)
        else_case = None if n.else_case is None else self.visit(n.else_case)
        return IfThenElse(condition, then_case, else_case)

    def visit_And(self, n: Any) -> PrimExpr:
        return logical_and(self.visit(n.a), self.visit(n.b))

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _LIKELY:
            inner = self.visit(n.args[0])
            return inner if isinstance(inner, IntImm) else Call(n.dtype, n.op, (inner,))
        if n.op is _IF:
            condition = self.visit(n.args[0])
            known = _decided(condition)
            if known is not None:
                return self.visit(n.args[1 if known else 2])
            return Call(n.dtype, n.op, (condition, self.visit(n.args[1]), self.visit(n.args[2])))
        return n.map_children(self.visit)


def _nothing(s: Stmt) -> bool:
    """Whether nothing is left to do in a loop nest."""
    while isinstance(s, For):
        s = s.body
    return isinstance(s, Evaluate) and isinstance(s.value, IntImm)


def _decided(condition: PrimExpr) -> bool | None:
    return bool(condition.value) if isinstance(condition, IntImm) else None


def _unconditional(body: Stmt) -> set[For]:
    """The loops in which there is no condition."""
    out: set[For] = set()

    def look(n: Any) -> bool:
        found = n.__class__ is IfThenElse or (n.__class__ is Call and n.op is _IF)
        for c in n.children():
            found = look(c) or found
        if n.__class__ is For and not found:
            out.add(n)
        return found

    look(body)
    return out


def _conditions(body: Stmt) -> tuple[list[PrimExpr], dict[Var, Range], set[Var]]:
    """The comparisons that guard statements and values inside, the inner loops with their ranges, and the variables
    that are defined inside."""
    found: dict[PrimExpr, None] = {}
    loops: dict[Var, Range] = {}
    defined: set[Var] = set()
    for m in pre_order(body):
        if isinstance(m, For):
            loops[m.loop_var] = Range.from_min_extent(m.min, m.extent)
            continue
        if isinstance(m, AttrStmt) and isinstance(m.node, IterVar):
            loops[m.node.var] = Range.from_min_extent(const(0, m.node.var.dtype), m.value)
            continue
        if isinstance(m, (LetStmt, Let)):
            defined.add(m.var)
            continue
        if isinstance(m, IfThenElse):
            condition = m.condition
        elif isinstance(m, Call) and m.op is _IF:
            condition = m.args[0]
        else:
            continue
        for c in conjuncts(_unlikely(condition)):
            if isinstance(c, (LT, LE, GT, GE)) and c.a.dtype.is_int and c.a.dtype.lanes == 1:
                found[c] = None
    return list(found), loops, defined | set(loops)


def _guarded_work(body: Stmt) -> dict[PrimExpr | None, int]:
    """The work that each comparison guards, and all work (None): nodes of the program, times the trip counts of the
    loops around them."""
    out: dict[PrimExpr | None, int] = {}

    def walk(n: Any, times: int) -> int:
        if isinstance(n, For):
            extent = const_value(n.extent)
            return walk(n.body, times * (1 if extent is None else int(extent)))
        inside = times + sum(walk(c, times) for c in n.children() if isinstance(c, (Stmt, PrimExpr)))
        condition = (
            n.condition if isinstance(n, IfThenElse) else n.args[0] if getattr(n, "op", None) is _IF else None
        )
        if condition is not None:
            for c in conjuncts(_unlikely(condition)):
                out[c] = out.get(c, 0) + inside
        return inside

    out[None] = walk(body, 1)
    return out


def _unlikely(condition: PrimExpr) -> PrimExpr:
    while isinstance(condition, Call) and condition.op is _LIKELY:
        condition = condition.args[0]
    return condition


def _solve(condition: Any, var: Var, inner: Mapping[Var, Range], defined: set[Var]) -> _Bound | None:
    """The values of `var` for which the comparison provably holds."""
    a, b = (condition.a, condition.b) if isinstance(condition, (LT, LE)) else (condition.b, condition.a)
    # f = coef * var + rest; the condition is f <= 0
    f = sub(a, b) if isinstance(condition, (LE, GE)) else add(sub(a, b), const(1, a.dtype))
    linear = detect_linear_equation(f, [var])
    if not linear:
        return None
    coef, rest = const_value(linear[0]), linear[1]
    if not coef:
        return None
    used = {v: r for v, r in inner.items() if v in vars_used(rest)}
    worst = rest
    if used:
        worst = eval_set(rest, inner).max_value
        if worst is None or not isinstance(worst, PrimExpr):
            return None
    # The bound is evaluated once, before the loop.
    if var in vars_used(worst) or vars_used(worst) & defined or can_trap(worst):
        return None
    kind = worst.dtype
    c = int(coef)
    if c > 0:  # var <= floor(-worst / c)
        return _Bound(condition, None, add(floordiv(neg(worst), const(c, kind)), const(1, kind)), not used)
    # var >= ceil(worst / -c)
    low = floordiv(add(worst, const(-c - 1, kind)), const(-c, kind))
    return _Bound(condition, low, None, not used)
