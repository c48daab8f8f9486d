"""Primitives that reshape loops: split, fuse, reorder, unit loops."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...arith.scalable import for_each_vscale, has_vscale
from ...homes import home_of
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, FloorMod, IterVar, PrimExpr, Var, const, const_value, convert
from ...ir.functor import Mutator, pre_order, substitute, vars_used
from ...ir.ops import (
    LARGEST_VSCALE,
    add,
    ceildiv,
    conjunction,
    conjuncts,
    floordiv,
    floormod,
    is_one,
    is_zero,
    less,
    logical_and,
    mul,
    product,
)
from ...ir.stmt import Block, BlockRealize, For, ForKind, IfThenElse, Stmt
from ..analysis.reductions import reduction_loops
from .dependence import check_any_order, recheck
from .flow import driven_kinds, loops_around, runs_once
from .primitive import BlockRV, LoopRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule


_SVE_VSCALE = 16  # vectors of 2048 bits


class _Rebind(Mutator):
    """A rewriter that replaces loop variables in bindings and bounds."""

    def __init__(
        self, table: dict[Var, PrimExpr], ana: Analyzer, outer: set[Var], condition: PrimExpr | None = None
    ) -> None:
        self.table, self.ana, self.condition = table, ana, condition
        self.counters = {*outer, *table}  # the variables of loops around
        self.made = {v for e in table.values() for v in vars_used(e)}
        # `i_0 * (vscale * 4) + i_1`: the product is the length of a vector, and is kept as such.
        self.scalable = any(map(has_vscale, table.values()))

    def visit_Var(self, n: Var) -> PrimExpr:
        return self.table.get(n, n)

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        with self.ana.scope():
            # A loop over nothing does not say that its points are none: a reduction over nothing is its start.
            if not (vars_used(n.min) | vars_used(n.extent)) & self.counters:
                self.ana.bind_loop(n.loop_var, low, size)
            self.counters.add(n.loop_var)
            body = self.visit(n.body)
        return n.updated(min=low, extent=size, body=body)

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        values = [self.moved(v) for v in n.iter_values]
        predicate = self.each_moved(n.predicate)
        if self.condition is not None:
            # A predicate that loads data is evaluated only where the bounds condition holds.
            reads = any(isinstance(m, BufferLoad) for m in pre_order(predicate))
            both = (self.condition, predicate) if reads else (predicate, self.condition)
            predicate = logical_and(*both)
        # A block is isolated from loops, but its domains, and a script's carelessness, may name one.
        block = n.block
        if any(isinstance(m, Var) and m in self.table for m in pre_order(block)):
            block = substitute(block, self.table)
        same = all(a is b for a, b in zip(values, n.iter_values, strict=True)) and block is n.block
        return n if same and predicate is n.predicate else BlockRealize(values, predicate, block, span=n.span)

    def outside(self, n: Stmt) -> Stmt:
        """A statement outside of blocks: it has no predicate of its own and is guarded as a whole."""
        condition, self.condition = self.condition, None
        made = n.map_children(self.visit)
        self.condition = condition
        return made if condition is None else IfThenElse(condition, made)

    visit_BufferStore = visit_Evaluate = visit_IfThenElse = visit_LetStmt = visit_While = outside
    visit_AssertStmt = visit_Allocate = outside

    def each_moved(self, predicate: PrimExpr) -> PrimExpr:
        """The conditions of a predicate, each by itself: those on other loops stay as they are."""
        parts = conjuncts(predicate)
        made = [self.moved(c, fewer=True) for c in parts]
        return predicate if all(map(operator.is_, made, parts)) else reduce(logical_and, made)

    def moved(self, e: PrimExpr, fewer: bool = False) -> PrimExpr:
        """An expression with the new loops in it, simpler; with `fewer`, above all without them if they say nothing."""
        made = self.visit(e)
        if made is e or self.scalable:
            return made
        plain = self.ana.simplify(made)
        # `(o*32 + i) % 10` says that one position is taken apart, `(o*2 + i) % 10` does not any more.
        if fewer and vars_used(made) & self.made and not vars_used(plain) & self.made:
            return plain
        return made if _loses_position(made, plain) else plain


def _loses_position(made: PrimExpr, plain: PrimExpr) -> bool:
    """Whether simplification has changed what a remainder is taken of."""
    of = [m.a for m in pre_order(made) if isinstance(m, FloorMod)]
    return any(
        isinstance(m, FloorMod) and not any(structural_equal(m.a, a) for a in of) for m in pre_order(plain)
    )


def _plain(sch: Schedule, loop: LoopRV, what: str) -> For:
    """The loop; refused if it has a mark or an annotation that the step would lose."""
    n = sch.loop(loop)
    if n.kind is not ForKind.SERIAL:
        mark = {1: "parallel", 2: "vectorize", 3: "unroll", 4: "bind"}[int(n.kind)]
        refuse(
            f"loop `{n.loop_var.name}` is already marked {mark}",
            at=n,
            hint=f"{what} first, then {mark} the part you want",
        )
    if n.annotations:
        refuse(
            f"loop `{n.loop_var.name}` has annotations ({', '.join(n.annotations)}), which would be lost",
            at=n,
            hint=f"{what} first, then annotate",
        )
    return n


@primitive
def split(
    sch: Schedule,
    loop: LoopRV,
    factors: Sequence[Any],
    preserve_unit_iters: bool = False,
    disable_predication: bool = False,
    names: Sequence[str] | None = None,
) -> list[LoopRV]:
    """Split a loop into a nest.

    for i in range(n):            for i_0 in range(ceildiv(n, f)):
        S(i)               ->         for i_1 in range(f):
                                          if i_0*f + i_1 < n:      # only if it may fail
                                              S(i_0*f + i_1)

    `factors` are the extents of the new loops, outermost first; one of them may be None and is inferred. `names` are
    the names of the new loops. With `disable_predication` the factors must be known to divide the loop: the step is
    refused where a predicate would be needed. New loops of extent 1 are always made; with `preserve_unit_iters` their
    variables stay in the bindings of blocks too.
    """
    n = _plain(sch, loop, "split")
    given = [None if f is None else convert(f.var if isinstance(f, LoopRV) else f) for f in factors]
    _check_factors(n, given)
    kind = n.loop_var.dtype
    given = [_as_kind(f, kind) for f in given]
    ana = sch.state.analyzer_at(n)
    known = [f for f in given if f is not None]
    inferred = ana.simplify(ceildiv(n.extent, product(known))) if len(known) < len(given) else None
    sizes = [_size(f, inferred, kind) for f in given]
    sizes = [ana.simplify(s) if has_vscale(s) else s for s in sizes]  # `4 * vscale` in its one form
    whole = product(sizes)
    if inferred is None and not ana.can_prove(less(n.extent, add(whole, const(1, whole.dtype)))):
        refuse(
            f"the factors make {whole} iterations and loop `{n.loop_var.name}` has {n.extent}",
            at=n,
            hint="leave one factor None to have it inferred",
        )
    chosen = names or [f"{n.loop_var.name}_{i}" for i in range(len(sizes))]
    variables = [Var(name, kind) for name in chosen]
    position = _horner(variables, sizes, kind)
    exact = ana.can_prove_equal(whole, n.extent)
    if disable_predication and has_vscale(whole):
        exact = for_each_vscale(whole.equal(n.extent), ana.can_prove, _largest_vscale())
    if disable_predication and not exact:
        refuse(
            f"the factors make {ana.simplify(whole)} iterations and loop `{n.loop_var.name}` has {n.extent}: without a "
            "predicate those beyond its end may run too",
            at=n,
            hint="choose factors that divide it, or omit disable_predication: no predicate is made where they "
            "divide it",
        )
    if not exact:
        _check_steps_choose(sch, n)
    # Without `preserve_unit_iters` a part that runs once is seen neither in the condition nor in the bindings.
    once = {v: const(0, kind) for v, s in zip(variables, sizes, strict=True) if is_one(s)}
    counted = _nested(variables, sizes, kind)
    if once and not preserve_unit_iters:
        counted = ana.simplify(substitute(counted, once))
    condition = None if exact else less(counted, n.extent)
    if not is_zero(n.min):
        position = add(n.min, position)
    preserved = set(once) if preserve_unit_iters else set()  # simplification knows nothing of these
    with ana.scope():
        for v, s in zip(variables, sizes, strict=True):
            if v not in preserved:
                ana.bind_loop(v, const(0, kind), s)
        outer = {x.loop_var for x in loops_around(sch, n)}
        body = _Rebind({n.loop_var: position}, ana, outer, condition).visit(n.body)
        for v in preserved:
            ana.bind_loop(v, const(0, kind), const(1, kind))
        _check_parted(sch, n, body, ana)
    made: Stmt = body
    for v, s in reversed(list(zip(variables, sizes, strict=True))):
        made = For(v, const(0, kind), s, ForKind.SERIAL, made, span=n.span)
    sch.state.replace(n, made)
    sch.forget(n.loop_var, f"split({n.loop_var.name}, …)")
    return [LoopRV(v) for v in variables]


def _check_steps_choose(sch: Schedule, n: For) -> None:
    """Refuse if the steps of a reduction determine the number of points: under a condition there would be others, at
    which there are no steps, and a reduction over nothing is its start."""
    used = vars_used(n.extent)
    for realize in sch.state.index.blocks_under(n) if used else ():
        if realize.block.init is None or IterVar.DataPar not in driven_kinds(realize, n):
            continue
        for x in reduction_loops(realize, sch.state.index.loops_of(realize)):
            if x.loop_var in used:
                refuse(
                    f"the number of iterations of loop `{n.loop_var.name}` depends on loop `{x.loop_var.name}`, which "
                    f"carries the reduction of block {realize.block.name_hint}, and the init would run beyond its end",
                    at=n,
                    hint="choose factors that divide it",
                )


def _check_parted(sch: Schedule, n: For, body: Stmt, ana: Analyzer) -> None:
    """Refuse if parts of a loop that drives both spatial and reduction iterators drive but one kind each, and the
    predicate may leave out all steps of a point: then the init, which ran with the first step, would run by itself."""
    before = sch.state.index.blocks_under(n)
    both = {IterVar.DataPar, IterVar.CommReduce}
    held = {r.block.key for r in before if r.block.init is not None and driven_kinds(r, n) == both}
    for realize in (m for m in pre_order(body) if isinstance(m, BlockRealize)) if held else ():
        if realize.block.key not in held:
            continue
        pairs = realize.bindings
        used = {v for iv, e in pairs if iv.is_reduction for v in vars_used(e)}
        if any(vars_used(e) & used for iv, e in pairs if not iv.is_reduction):
            continue
        first = {v: const(int(ana.const_int_bound(v).min_value), v.dtype) for v in used}
        # Points outside of the domains are none.
        inside = conjunction(
            less(e, add(iv.dom.min, iv.dom.extent)) for iv, e in pairs if not iv.is_reduction
        )
        for c in conjuncts(realize.predicate):
            with ana.constraint_scope(inside):
                steps = not vars_used(c) & used or ana.can_prove(substitute(c, first))
            if not steps:
                refuse(
                    f"loop `{n.loop_var.name}` drives spatial and reduction iterators of block "
                    f"{realize.block.name_hint}, whose predicate `{c}` may leave out all steps of a point: its parts "
                    "would drive one kind each, and the init run there too",
                    at=n,
                    hint="choose other factors, or take the init out first with decompose_reduction",
                )


def _as_kind(factor: PrimExpr | None, kind: str) -> PrimExpr | None:
    """A factor that is a number in the type of a loop variable, unless it does not fit."""
    value = None if factor is None else const_value(factor)
    return factor if value is None or value >= 1 << 31 else const(int(value), kind)


def _size(factor: PrimExpr | None, inferred: PrimExpr | None, kind: str) -> PrimExpr:
    """A factor, converted to the type of the loop variable."""
    size = inferred if factor is None else factor
    assert size is not None
    value = const_value(size)
    return size if value is None else const(int(value), kind)


def _largest_vscale() -> int:
    """The greatest length factor of scalable vectors on the current target."""
    target = home_of("targets").Target.current()
    return _SVE_VSCALE if target is not None and target.arch == "aarch64" else LARGEST_VSCALE


def _horner(variables: Sequence[Var], sizes: Sequence[PrimExpr], kind: str) -> PrimExpr:
    """The position as a sum of loop variables times their strides: `i_0*8 + i_1*2 + i_2`."""
    total: PrimExpr = const(0, kind)
    for i, v in enumerate(variables):
        total = add(total, mul(v, product(sizes[i + 1 :]) if sizes[i + 1 :] else const(1, kind)))
    return total


def _nested(variables: Sequence[Var], sizes: Sequence[PrimExpr], kind: str) -> PrimExpr:
    """The position as nested products, the form of predicates: `(i_0*4 + i_1)*2 + i_2`."""
    return reduce(
        lambda at, part: add(mul(at, part[1]), part[0]), zip(variables, sizes, strict=True), const(0, kind)
    )


def _check_factors(n: For, factors: Sequence[PrimExpr | None]) -> None:
    if len(factors) < 1:
        refuse("there are no factors to split by", at=n)
    if sum(f is None for f in factors) > 1:
        refuse(
            "more than one factor is None, so they cannot be inferred", at=n, hint="leave at most one open"
        )
    for f in factors:
        if f is not None and not (f.dtype.is_int or f.dtype.is_uint):
            refuse(f"a factor is `{f}`, which is not an integer", at=n)
        value = None if f is None else const_value(f)
        if value is not None and value < 1:
            refuse(f"a factor is {value}; factors are at least 1", at=n)


@primitive
def fuse(sch: Schedule, *loops: LoopRV, preserve_unit_iters: bool = False, name: str | None = None) -> LoopRV:
    """Fuse directly nested loops, given outermost first, into one.

    for i in range(n):                for f in range(n * m):
        for j in range(m):      ->        S(f // m, f % m)
            S(i, j)

    `name` is the name of the new loop. With `preserve_unit_iters` the bindings of blocks name the new loop even if its
    extent is 1.
    """
    if len(loops) < 1:
        refuse("there is nothing to fuse")
    nest = [_plain(sch, loop, "fuse") for loop in loops]
    for outer, inner in zip(nest, nest[1:], strict=False):
        if outer.body is not inner:
            refuse(
                f"loop `{inner.loop_var.name}` is not directly inside `{outer.loop_var.name}`",
                at=inner,
                hint="reorder them to be adjacent, outermost first, with nothing else between",
            )
        if (vars_used(inner.min) | vars_used(inner.extent)) & {x.loop_var for x in nest}:
            refuse(
                f"the bounds of loop `{inner.loop_var.name}` depend on a loop it is fused with",
                at=inner,
                hint="fuse loops whose bounds do not change",
            )
    if len(nest) == 1:
        return loops[0]
    ana = sch.state.analyzer_at(nest[0])
    _check_starts(sch, nest, ana)
    kind = nest[0].loop_var.dtype
    fused = Var(name or "_".join(x.loop_var.name for x in nest) + "_fused", kind)
    total = ana.simplify(product(x.extent for x in nest))
    if is_zero(total):  # it never runs, and there is no dividing by its extents
        table = {x.loop_var: x.min for x in nest}
    else:
        parts = _parts(fused, [x.extent for x in nest])
        table = {x.loop_var: p if is_zero(x.min) else add(x.min, p) for x, p in zip(nest, parts, strict=True)}
    with ana.scope():
        if not (preserve_unit_iters and is_one(total)):
            ana.bind_loop(fused, const(0, kind), total)
        around = {x.loop_var for x in loops_around(sch, nest[0])}
        body = _Rebind(table, ana, around).visit(nest[-1].body)
    sch.state.replace(nest[0], For(fused, const(0, kind), total, ForKind.SERIAL, body, span=nest[0].span))
    for loop in loops:
        sch.forget(loop.var, f"fuse({', '.join(x.loop_var.name for x in nest)})")
    return LoopRV(fused)


def _parts(fused: Var, extents: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The positions in the loops of a nest at a position of the loop that they are fused to."""
    made: list[PrimExpr] = []
    rest: PrimExpr = fused
    for i, extent in reversed(list(enumerate(extents))):
        made.append(rest if i == 0 else floormod(rest, extent))
        rest = floordiv(rest, extent)
    return made[::-1]


def _check_starts(sch: Schedule, nest: list[For], ana: Analyzer) -> None:
    """Refuse if a reduction over nothing would no longer be what it starts from.

    Inside of a loop that drives both kinds of iterators the init runs in the first step of the reduction, so
    there must be one.
    """
    for realize in sch.state.index.blocks_under(nest[0]):
        if realize.block.init is None:
            continue
        kinds = [driven_kinds(realize, x) for x in nest]
        for x, own in zip(nest, kinds, strict=True):
            if (
                not own
                and x.loop_var in vars_used(realize.predicate)
                and any(IterVar.CommReduce in k for k in kinds)
            ):
                refuse(
                    f"loop `{x.loop_var.name}` binds no iterator of block {realize.block.name_hint}, whose condition "
                    "uses it: in a loop that is fused from it and a loop of the reduction, the init would not run for "
                    "the same points",
                    at=x,
                    hint=f"take the init out first with decompose_reduction({realize.block.name_hint}, "
                    f"{nest[0].loop_var.name}), or fuse other loops",
                )
        if not (any(IterVar.CommReduce in k for k in kinds) and any(IterVar.DataPar in k for k in kinds)):
            continue
        for x in sch.state.index.loops_of(realize):
            if driven_kinds(realize, x) != {IterVar.CommReduce}:
                continue  # of loops fused before that is known
            if not ana.can_prove(less(const(0, x.extent.dtype), x.extent)):
                name, loop = realize.block.name_hint, x.loop_var.name
                many = "has no iterations" if is_zero(x.extent) else f"has {x.extent} iterations, maybe none"
                refuse(
                    f"loop `{loop}`, which carries the reduction of block {name}, {many}: in a loop that is fused "
                    "from it and others the init would not run either",
                    at=x,
                    hint=f"take the init out first with decompose_reduction({name}, {nest[0].loop_var.name}), or fuse "
                    "the loops of the reduction by themselves",
                )


@primitive
def reorder(sch: Schedule, *loops: LoopRV) -> None:
    """Put loops of one nest into the given order, outermost first; loops not named keep their places.

    for i in range(n):                for j in range(m):
        for j in range(m):      ->        for i in range(n):
            S(i, j)                           S(i, j)
    """
    wanted = [sch.loop(loop) for loop in loops]
    if len(set(wanted)) != len(wanted):
        twice = next(w for i, w in enumerate(wanted) if w in wanted[:i])
        refuse(f"loop `{twice.loop_var.name}` is named twice", at=twice, hint="name each loop once")
    if len(wanted) < 2:
        return
    nest = _nest_of(sch, wanted)
    places = [i for i, x in enumerate(nest) if x in wanted]
    new = list(nest)
    for place, x in zip(places, wanted, strict=True):
        new[place] = x
    _check_order(sch, nest, new)
    body: Stmt = nest[-1].body
    for x in reversed(new):
        body = x.replace(body=body)
    sch.state.replace(nest[0], body)
    # Iterations that run at once see more of the others now.
    at_once = [x for x in nest if x.kind in (ForKind.PARALLEL, ForKind.VECTORIZED)]
    recheck(sch, [x.loop_var for x in at_once] if new != nest else ())


def _nest_of(sch: Schedule, wanted: list[For]) -> list[For]:
    """The perfect nest from the outermost to the innermost of some loops."""
    index = sch.state.index
    depth = {x: sum(isinstance(a, For) for a in index.ancestors(x)) for x in wanted}
    outer, inner = min(wanted, key=lambda x: depth[x]), max(wanted, key=lambda x: depth[x])
    nest = [outer]
    while nest[-1] is not inner:
        below = nest[-1].body
        if not isinstance(below, For):
            apart = next((x for x in wanted if x not in nest), inner)
            refuse(
                f"loops `{outer.loop_var.name}` and `{apart.loop_var.name}` are not in one perfect nest: "
                f"`{nest[-1].loop_var.name}` holds more than a loop",
                at=nest[-1],
                hint="move what else it holds away with compute_at or reverse_compute_at",
            )
        nest.append(below)
    missing = [x for x in wanted if x not in nest]
    if missing:
        refuse(
            f"loop `{missing[0].loop_var.name}` is not in the nest of the others",
            at=missing[0],
            hint="reorder loops of one nest, each standing directly in the one before",
        )
    return nest


def _check_order(sch: Schedule, old: list[For], new: list[For]) -> None:
    for i, x in enumerate(new):
        bounds = vars_used(x.min) | vars_used(x.extent)
        inner = next((y.loop_var for y in new[i + 1 :] if y.loop_var in bounds), None)
        if inner is not None:
            refuse(
                f"the bounds of loop `{x.loop_var.name}` depend on `{inner.name}`, which would be inside it",
                at=x,
                hint=f"keep `{inner.name}` outside of `{x.loop_var.name}`",
            )
    moved = {x.loop_var for i, x in enumerate(old) if new[i] is not x}
    for realize in sch.state.index.blocks_under(old[0]):
        block: Block = realize.block
        for iv, value in realize.bindings:
            if iv.iter_type in (IterVar.DataPar, IterVar.CommReduce):
                continue
            if vars_used(value) & moved:
                refuse(
                    f"iterator `{iv.var.name}` of block {block.name_hint} is neither spatial nor a "
                    "reduction, so its order must stay",
                    at=realize,
                    hint="leave the loops that drive it where they are",
                )
        if block.init is not None:
            _check_init(sch, realize, old, new)
    check_any_order(sch, old, new)


def _check_init(sch: Schedule, realize: BlockRealize, old: list[For], new: list[For]) -> None:
    """Refuse if the step that initialises an element would no longer be the first one to come to it."""
    name = realize.block.name_hint
    around = sch.state.index.loops_of(realize)
    kinds = {x: driven_kinds(realize, x) for x in old if x in around and not runs_once(sch, realize, x)}
    reducing = [x for x in kinds if IterVar.CommReduce in kinds[x]]
    for x in reducing:
        for y in kinds:
            if (old.index(x) < old.index(y)) == (new.index(x) < new.index(y)):
                continue
            both = next((z for z in (x, y) if len(kinds[z]) > 1), None)
            if both is not None:
                refuse(
                    f"loop `{both.loop_var.name}` drives spatial and reduction iterators of block {name} alike, "
                    "so its order must stay",
                    at=both,
                    hint="decompose_reduction first, or do not fuse the reduction with other loops",
                )
            if not kinds[y] and old.index(y) < old.index(x):
                refuse(
                    f"loop `{y.loop_var.name}` computes block {name} anew in each iteration, and inside of "
                    f"`{x.loop_var.name}` it would take each step of the reduction several times",
                    at=y,
                    hint=f"keep `{y.loop_var.name}` outside of `{x.loop_var.name}`",
                )


@primitive
def add_unit_loop(sch: Schedule, block_or_loop: BlockRV | LoopRV | str) -> LoopRV:
    """Put a loop that runs once around a block or loop.

    S        ->        for u in range(1):
                           S
    """
    var = Var("u", "int32")
    n: Stmt = sch.loop(block_or_loop) if isinstance(block_or_loop, LoopRV) else sch.realize(block_or_loop)
    if sch.state.index.parents[n] is None:
        refuse("the root block stands for the whole function and has no loops around it")
    sch.state.replace(n, For(var, 0, 1, ForKind.SERIAL, n))
    return LoopRV(var)


def tile(
    sch: Schedule, x: LoopRV, y: LoopRV, x_factor: Any, y_factor: Any
) -> tuple[LoopRV, LoopRV, LoopRV, LoopRV]:
    """Split two loops by their factors and reorder the four to x_outer, y_outer, x_inner, y_inner."""
    with sch.all_or_nothing():
        x_outer, x_inner = sch.split(x, [None, x_factor])
        y_outer, y_inner = sch.split(y, [None, y_factor])
        sch.reorder(x_outer, y_outer, x_inner, y_inner)
    return x_outer, y_outer, x_inner, y_inner
