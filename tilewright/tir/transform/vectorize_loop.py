"""Vectorization of loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from ...arith import Analyzer
from ...homes import home_of
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    const,
    const_value,
    vscale_factor,
)
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, renew_defs_in, substitute, uses_var, vars_used
from ...ir.llvm_names import elementwise
from ...ir.op import Op
from ...ir.ops import BINARY, add, cast, conjuncts, logical_not, logical_or, mul, sub
from ...ir.ops import all as all_of
from ...ir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    seq,
    stmt_list,
)
from ...ir.words import PER_WORD
from ..analysis.effects import can_trap, has_effect
from . import transpose_lanes

# A serial loop with this annotation reduces over lanes, and may combine them in any order.
LANES = "reduce_lanes"
_COMBINES = (Add, Mul, Min, Max)
_LONGEST = 64  # lanes that are enumerated
_DOTS = 4  # the fewest lanes of an instruction for products of words
_IF, _LIKELY = Op.get("tir.if_then_else"), Op.get("tir.likely")
_LLVM, _DP4A = Op.get("tir.call_llvm_pure_intrin"), Op.get("tir.dp4a")
_WORDS = tuple(Op.get(f"tir.{name}") for name in PER_WORD)
_CHECKED, _ACTIVE = Op.get("tir.checked"), Op.get("tir.get_active_lane_mask")


def vectorize_loop(func: PrimFunc, *, enable: bool = True, predicates: bool | None = None) -> PrimFunc:
    """Replace a vectorized loop by vector operations.

        for i in vectorized(4):
            A[j * 4 + i] = B[i]       ->     A[j * 4:j * 4 + 4] = B[0:4]

    Under a condition that differs between lanes, such as the end of the last tile, loads and stores get it as
    their predicate. Statements that cannot be vectors (a call with an effect, a sum over lanes) stay a loop.
    With `enable=False` the loops become serial ones.

    A loop of `T.vscale() * 4` iterations becomes scalable vectors, on targets that have them (SVE, RISC-V). There, the
    predicate of `base + lane < limit` is `T.get_active_lane_mask(base, limit)`, one instruction. With
    `predicates=True` all predicates have this form, with `predicates=False` there are none; what would need another
    one stays a loop.
    Needs: flat loops. Gives: no loop of kind VECTORIZED.
    """
    return _Vectorize(enable, predicates, func.attrs.get("target"), _sums_of_words(func)).run(func)


def _sums_of_words(func: PrimFunc) -> frozenset[Var]:
    """The memory of sums of products of words."""
    return frozenset(
        m.buffer.data
        for m in pre_order(func.body)
        if isinstance(m, BufferStore)
        and any(isinstance(e, Call) and e.op in _WORDS for e in pre_order(m.value))
    )


def _wanted_lanes(
    n: For, body: Stmt, lanes: int, known: Mapping[Var, PrimExpr], sums: Set[Var]
) -> tuple[Stmt, int]:
    """The body and the lanes of a vectorized loop; without the condition if it holds in the first lanes only, and these
    make a vector. (LLVM cannot select instructions for some vectors with one stored lane.) The `sums` of products of
    words stay in vectors that have instructions for them."""
    if not isinstance(body, IfThenElse) or body.else_case is not None or not 0 <= lanes <= _LONGEST:
        return body, lanes
    condition = body.condition
    while isinstance(condition, Call) and condition.op is _LIKELY:
        condition = condition.args[0]
    condition = substitute(condition, {v: known[v] for v in vars_used(condition) if v in known})
    if vars_used(condition) != {n.loop_var}:
        return body, lanes
    places = [add(n.min, const(i, n.min.dtype)) for i in range(lanes)]
    held = [const_value(Analyzer().simplify(substitute(condition, {n.loop_var: at}))) for at in places]
    count = held.count(1)
    if held != [1] * count + [0] * (lanes - count) or count & (count - 1):
        return body, lanes
    if 0 < count < _DOTS and isinstance(body.then_case, BufferStore) and body.then_case.buffer.data in sums:
        return body, min(lanes, _DOTS)
    return body.then_case, count


class _Vectorize(Mutator):
    def __init__(self, enable: bool, predicates: bool | None, target: Any, sums: Set[Var]) -> None:
        self.enable, self.predicates, self.sums = enable, predicates, sums
        self.target = target  # of the function or the region, if they name one
        self.known: dict[Var, PrimExpr] = {}  # values of loops of one iteration

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        held = self.target
        if n.attr_key == "target":
            self.target = n.node
        made = n.updated(body=self.visit(n.body))
        self.target = held
        return made

    def target_here(self) -> Any:
        """The target of the region, the function or the context, or None."""
        kind = home_of("targets").Target
        return kind.current() if self.target is None else kind(self.target)

    def lanes_of(self, n: For) -> int:
        """The lanes of a loop as data types count them: below 0 for multiples of `T.vscale()`."""
        count, factor = const_value(n.extent), vscale_factor(n.extent)
        if count is not None:
            return max(int(count), 0)
        if factor is None or factor < 1:
            raise LoweringError(
                f"vectorised loop `{n.loop_var}` has the extent `{n.extent}`, which is not constant: "
                "split it by a constant factor and vectorise the inner part"
            )
        target = self.target_here()
        if target is None or not target.has_scalable_vectors:
            where = "no target is known" if target is None else f"the target `{target}` has none"
            raise LoweringError(
                f"vectorised loop `{n.loop_var}` has the extent `{n.extent}`, which makes scalable vectors, and "
                f"{where}: name one with SVE, such as `llvm -mtriple=aarch64-linux-gnu -mattr=+sve`, or split by a "
                "constant factor"
            )
        return -factor

    def by_lane_masks(self, lanes: int) -> bool:
        """Whether predicates of the form `base + lane < limit` are calls of `get_active_lane_mask`."""
        if self.predicates is None:
            target = self.target_here()
            return lanes < 0 or (target is not None and target.has_scalable_vectors)
        return self.predicates

    def visit_For(self, n: For) -> Stmt:
        if const_value(n.extent) == 1:
            self.known[n.loop_var] = n.min
        if transpose_lanes.KEY in n.annotations:
            made = transpose_lanes.transposed(n) if self.enable else None
            if made is not None:
                return made
            n = n.replace(annotations={k: v for k, v in n.annotations.items() if k != transpose_lanes.KEY})
        body = self.visit(n.body)
        if n.kind is not ForKind.VECTORIZED:
            if LANES in n.annotations:
                return self.over_lanes(n, body)
            return n.updated(body=body)
        if not self.enable:
            return n.replace(kind=ForKind.SERIAL, body=body)
        body, lanes = _wanted_lanes(n, body, self.lanes_of(n), self.known, self.sums)
        if lanes == 0:
            return seq()
        if lanes == 1:
            return substitute(body, {n.loop_var: n.min})
        vector = _Lanes(n.loop_var, n.min, lanes)
        vector.predicates, vector.by_lane_masks = self.predicates, self.by_lane_masks(lanes)
        return vector.statement(body)

    def over_lanes(self, n: For, body: Stmt) -> Stmt:
        """A horizontal reduction, which may be reassociated: halves of a vector are combined until one lane is left."""
        notes = {k: v for k, v in n.annotations.items() if k != LANES}
        plain = n.replace(body=body, annotations=notes)
        lanes = const_value(n.extent)
        if not self.enable or lanes is None or lanes < 2 or not isinstance(body, BufferStore):
            return plain
        value, place = body.value, body.indices
        if not isinstance(value, _COMBINES) or any(uses_var(i, lambda v: v is n.loop_var) for i in place):
            return plain
        held, each = value.a, value.b
        if not (isinstance(held, BufferLoad) and structural_equal(held, BufferLoad(body.buffer, place))):
            return plain
        if any(isinstance(m, BufferLoad) and m.buffer.data is body.buffer.data for m in pre_order(each)):
            return plain  # the operand depends on the accumulator
        vector = _Lanes(n.loop_var, n.min, int(lanes))
        try:
            wide = vector.widen(vector.visit(each), int(lanes))
        except _Scalar:
            return plain
        combine = BINARY[value.__class__]
        steps: list[tuple[Var, PrimExpr]] = []
        while wide.dtype.lanes > 1:
            size = wide.dtype.lanes
            name = Var(f"lanes_{size}", wide.dtype)
            steps.append((name, wide))
            half = size // 2
            low = _picked(name, range(half))
            wide = combine(low, _picked(name, range(half, 2 * half)))
            if size % 2:
                wide = _with_last(wide, _picked(name, range(size - 1, size)), combine)
        made: Stmt = BufferStore(body.buffer, combine(held, wide), place, span=body.span)
        for name, expr in reversed(steps):
            made = LetStmt(name, expr, made)
        return made


def _picked(vector: PrimExpr, lanes: range) -> PrimExpr:
    return Shuffle((vector,), tuple([const(i, "int32") for i in lanes]))


def _with_last(wide: PrimExpr, last: PrimExpr, combine: Callable[[Any, Any], PrimExpr]) -> PrimExpr:
    """Combine the odd last lane with the first one."""
    if wide.dtype.lanes == 1:
        return combine(wide, last)
    name = Var("odd", wide.dtype)
    first = combine(_picked(name, range(1)), last)
    lanes = [_picked(name, range(i, i + 1)) for i in range(1, wide.dtype.lanes)]
    order = tuple([const(i, "int32") for i in range(wide.dtype.lanes)])
    return Let(name, wide, Shuffle((first, *lanes), order))


class _Scalar(Exception):
    """This statement cannot be vectorised."""


def _lanes(*values: PrimExpr) -> int:
    """The lanes of an operation on these values, of which scalars become vectors."""
    return max((v.dtype.lanes for v in values), key=abs)


class _Lanes(Mutator):
    """Rewrites the body of one vectorised loop; statements are vectorised one by one.

    `lanes` counts as data types do: below 0 for a scalable vector.
    """

    predicates: bool | None = (
        None  # of loads and stores: True for calls of `get_active_lane_mask` only, False for none
    )
    by_lane_masks = False  # those calls are used where they express the condition

    def __init__(self, var: Var, low: PrimExpr, lanes: int) -> None:
        self.var, self.low, self.lanes = var, low, lanes
        self.ramp = Ramp(low, const(1, low.dtype), lanes)
        self.extent = cast(low.dtype, self.ramp.lanes) if lanes < 0 else const(lanes, low.dtype)
        self.lets: dict[Var, Var] = {}
        self.mask: PrimExpr | None = None
        self.sure: tuple[BufferLoad, ...] = ()  # loads of the statement that no condition guards
        self.ana = Analyzer()

    # -- statements ------------------------------------------------------------------------
    def statement(self, s: Stmt) -> Stmt:
        if not self.varies(s):
            if self.mask is not None:
                raise _Scalar  # whether any lane executes it is not known
            return s if _idempotent(s) else self.scalar_loop(s)
        parts = stmt_list(s)
        if len(parts) > 1:
            if self.shared_between(parts):
                return self.scalar_loop(s)
            # Statement by statement is equivalent to lane by lane if lanes are independent, as a vectorized loop
            # promises.
            return seq(*[self.statement(p) for p in parts])
        saved, mask, sure = dict(self.lets), self.mask, self.sure
        try:
            return self.visit(s)
        except _Scalar:
            self.lets, self.mask = saved, mask
            return self.scalar_loop(s)
        finally:
            self.sure = sure

    def shared_between(self, parts: list[Stmt]) -> bool:
        """Whether one statement reads an element that another one writes in all lanes."""
        for writer in parts:
            fixed = {
                m.buffer
                for m in pre_order(writer)
                if isinstance(m, BufferStore) and not any(self.varies(i) for i in m.indices)
            }
            if fixed and any(
                isinstance(m, BufferLoad) and m.buffer in fixed
                for reader in parts
                if reader is not writer
                for m in pre_order(reader)
            ):
                return True
        return False

    def scalar_loop(self, s: Stmt) -> Stmt:
        if self.mask is not None or any(
            v in self.lets for v in (m for m in pre_order(s) if isinstance(m, Var))
        ):
            raise _Scalar
        loop = For(self.var, self.low, self.extent, ForKind.SERIAL, s)
        return renew_defs_in(loop)

    def varies(self, n: Any) -> bool:
        return uses_var(n, lambda v: v is self.var or v in self.lets)

    def visit_SeqStmt(self, n: Any) -> Stmt:
        return self.statement(n)

    def visit_For(self, n: For) -> Stmt:
        if self.varies(n.min) or self.varies(n.extent) or n.kind is ForKind.PARALLEL:
            raise _Scalar
        return n.updated(body=self.statement(n.body))

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        if self.varies(n.condition):
            return self.masked(n)
        else_case = None if n.else_case is None else self.statement(n.else_case)
        return IfThenElse(n.condition, self.statement(n.then_case), else_case)

    def masked(self, n: IfThenElse) -> Stmt:
        """A condition that differs between lanes: the statements under it access memory only in lanes where it holds.

        Scalar loads (the rows of a tile with partial columns) are executed if the condition holds in the first or the
        last lane, whichever is active when any lane is.
        """
        parts = conjuncts(_without_likely(n.condition))
        same = [c for c in parts if not self.varies(c)]
        differ = [c for c in parts if self.varies(c)]
        if n.else_case is not None or len(differ) != 1:
            raise _Scalar
        if any(isinstance(m, BufferLoad) for m in pre_order(n.condition)):
            raise _Scalar
        if any(
            isinstance(m, BufferStore) and can_trap(m.value, lambda _: True) for m in pre_order(n.then_case)
        ):
            raise _Scalar
        if not same and self.by_lane_masks:
            made = self.under_lane_mask(differ[0], n.then_case)
            if made is not None:
                return made
        some = self.some_lane(differ[0])
        held, self.mask = self.mask, self.narrowed(self.visit(differ[0]))
        then = self.statement(n.then_case)
        self.mask = held
        return IfThenElse(self.ana.simplify(all_of(*same, some)), then)

    def under_lane_mask(self, condition: PrimExpr, body: Stmt) -> Stmt | None:
        """The statements under `base + lane < limit`, which are executed even if it holds in no lane.

            if base + i < limit:           mask = T.get_active_lane_mask(base, limit)
                A[base + i] = 2      ->    A.vstore([T.Ramp(base, 1, 4)], T.Broadcast(2, 4), predicate=mask)

        None for other conditions, and if some load is not a vector.
        """
        wide = self.visit(condition)
        if not (isinstance(wide, LT) and isinstance(wide.a, Ramp) and isinstance(wide.b, Broadcast)):
            return None
        if const_value(wide.a.stride) != 1 or wide.dtype.lanes != self.lanes:
            return None
        mask = Call(wide.dtype, _ACTIVE, (wide.a.base, wide.b.value))
        held, self.mask = self.mask, self.narrowed(mask)
        try:
            made = self.statement(body)
        finally:
            self.mask = held
        whole = all(m.predicate is not None for m in pre_order(made) if isinstance(m, BufferLoad))
        return made if whole else None

    def narrowed(self, condition: PrimExpr) -> PrimExpr:
        """The current mask and `condition`."""
        masks_lanes = isinstance(condition, Call) and condition.op is _ACTIVE
        if self.predicates is not None and not (self.predicates and masks_lanes):
            raise _Scalar
        return condition if self.mask is None else all_of(self.mask, condition)

    def some_lane(self, condition: PrimExpr) -> PrimExpr:
        """A condition that holds if and only if `condition`, a comparison, does in some lane."""
        if not isinstance(condition, (LT, LE, GT, GE)):
            raise _Scalar
        room = self.visit(sub(condition.b, condition.a))
        step = const_value(room.stride) if isinstance(room, Ramp) else None
        if step is None:
            raise _Scalar
        falls = (step < 0) == isinstance(condition, (LT, LE))
        lane = self.low if falls else self.ana.simplify(sub(add(self.low, self.extent), 1))
        return substitute(condition, {self.var: lane})

    def settled(self, condition: PrimExpr) -> PrimExpr:
        """A condition in which uniform comparisons are replaced by those of the first lane.

        8 * i + lane < 8 * n     ->     8 * i < 8 * n
        """
        parts = conjuncts(_without_likely(condition))
        made = [self.of_first_lane(c) for c in parts]
        return condition if all(a is b for a, b in zip(parts, made, strict=True)) else all_of(*made)

    def of_first_lane(self, c: PrimExpr) -> PrimExpr:
        if self.lanes < 0 or not isinstance(c, (LT, LE, GT, GE)) or not self.varies(c):
            return c
        room = self.visit(sub(c.b, c.a))
        step = const_value(room.stride) if isinstance(room, Ramp) else None
        if step not in (1, -1):
            return c
        # The slack of the first lane must be between multiples of the lanes, so that no lane differs.
        place = (
            (0 if isinstance(c, (LT, GE)) else -1) if step == -1 else (1 if isinstance(c, (LT, GE)) else 0)
        )
        known = self.ana.modular_set(room.base)
        if known.coeff % self.lanes or (known.base - place) % self.lanes:
            return c
        return self.ana.simplify(substitute(c, {self.var: self.low}))  # type: ignore[no-any-return]

    def visit_While(self, n: While) -> Stmt:
        raise _Scalar

    def visit_AssertStmt(self, n: AssertStmt) -> Stmt:
        if self.varies(n.condition) or self.varies(n.message):
            raise _Scalar
        return n.replace(body=self.statement(n.body))

    def visit_Allocate(self, n: Allocate) -> Stmt:
        # Memory allocated inside the loop is private to an iteration.
        raise _Scalar

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if self.varies(n.value):
            raise _Scalar
        return n.replace(body=self.statement(n.body))

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        return n.replace(body=self.statement(n.body))

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        self.sure += tuple(_surely_loaded(n.value))
        value = self.visit(n.value)
        if value is n.value:
            return n.replace(body=self.statement(n.body))
        var = Var(n.var.name, value.dtype)
        self.lets[n.var] = var
        body = self.statement(n.body)
        del self.lets[n.var]
        return LetStmt(var, value, body)

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        if len(n.indices) != 1:
            raise _Scalar  # not flat
        if not self.varies(n.indices[0]) and n.indices[0].dtype.lanes == 1:
            # All lanes store to one element: only a loop defines which one is last.
            raise _Scalar
        self.sure += tuple(_surely_loaded(n.value))
        index, value = self.visit(n.indices[0]), self.visit(n.value)
        apart = isinstance(index, Ramp) and const_value(index.stride)
        if n.predicate is not None:
            raise _Scalar
        if not apart and any(isinstance(m, BufferLoad) and m.buffer is n.buffer for m in pre_order(n.value)):
            raise _Scalar  # lanes may update the same element
        each = n.buffer.dtype.lanes  # of an element
        if each < 0 or (each > 1 and self.lanes < 0):
            raise _Scalar
        lanes = _lanes(index, value) if each == 1 else index.dtype.lanes
        mask = None if self.mask is None else self.widen(self.mask, lanes * each)
        wide = self.widen(value, lanes * each)
        return BufferStore(n.buffer, wide, (self.widen(index, lanes),), mask, span=n.span)

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        value = n.value
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.is_pure:
            return Evaluate(self.visit(value))
        raise _Scalar

    # -- expressions -----------------------------------------------------------------------
    def widen(self, e: PrimExpr, lanes: int) -> PrimExpr:
        have = e.dtype.lanes
        if have == lanes:
            return e
        if have == 1:
            return Broadcast(e, lanes)
        if isinstance(e, Broadcast) and 1 < have < lanes and lanes % have == 0:
            return Broadcast(e.value, lanes)
        raise _Scalar

    def visit_Var(self, n: Var) -> PrimExpr:
        if n is self.var:
            return self.ramp
        return self.lets.get(n, n)

    def binary(self, n: Any) -> PrimExpr:
        a, b = self.visit(n.a), self.visit(n.b)
        if a is n.a and b is n.b:
            return n
        linear = _linear(n.__class__.__name__, a, b)
        if linear is not None:
            return linear
        lanes = _lanes(a, b)
        # A node of floats that can only be written, such as `T.Mod`, stays what it is.
        make = BINARY[n.__class__] if a.dtype.is_integral else n.__class__
        made = make(self.widen(a, lanes), self.widen(b, lanes))
        if n.__class__.__name__ in ("FloorDiv", "FloorMod") and made.dtype.is_integral:
            return self.ana.simplify(made)
        return made

    visit_Add = visit_Sub = visit_Mul = visit_Div = visit_Mod = visit_FloorDiv = visit_FloorMod = binary
    visit_Min = visit_Max = visit_EQ = visit_NE = visit_LT = visit_LE = visit_GT = visit_GE = binary

    def visit_And(self, n: Any) -> PrimExpr:
        if self.varies(n) and can_trap(n.b, self.loaded_anyway):
            raise _Scalar  # the left operand may guard the right one
        return self.binary(n)

    def loaded_anyway(self, load: BufferLoad) -> bool:
        """Whether the same element is also loaded where nothing guards it."""
        return any(structural_equal(load, m) for m in self.sure if m.buffer is load.buffer)

    visit_Or = visit_And

    def visit_Not(self, n: Any) -> PrimExpr:
        return n.map_children(self.visit)

    def visit_Cast(self, n: Cast) -> PrimExpr:
        value = self.visit(n.value)
        return n if value is n.value else Cast(n.dtype.with_lanes(value.dtype.lanes), value)

    def select(self, condition: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        lanes = _lanes(condition, a, b)
        return Select(self.widen(condition, lanes), self.widen(a, lanes), self.widen(b, lanes))

    def visit_Select(self, n: Select) -> PrimExpr:
        parts = [self.visit(c) for c in (n.condition, n.true_value, n.false_value)]
        if all(a is b for a, b in zip(parts, n.children(), strict=True)):
            return n
        return self.select(*parts)

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        if len(n.indices) != 1:
            if self.varies(n):
                raise _Scalar
            return n
        index = self.visit(n.indices[0])
        if index is n.indices[0]:
            return n
        if n.indices[0].dtype.lanes != 1 or n.predicate is not None:
            raise _Scalar
        mask = None if self.mask is None else self.widen(self.mask, index.dtype.lanes * n.buffer.dtype.lanes)
        return n.replace(indices=(index,), predicate=mask)

    def visit_Ramp(self, n: Ramp) -> PrimExpr:
        if self.varies(n):
            raise _Scalar
        return n

    visit_Broadcast = visit_Ramp
    visit_Shuffle = visit_Ramp

    def visit_Let(self, n: Let) -> PrimExpr:
        value = self.visit(n.value)
        if value is n.value:
            body = self.visit(n.body)
            return n if body is n.body else Let(n.var, value, body)
        var = Var(n.var.name, value.dtype)
        self.lets[n.var] = var
        body = self.visit(n.body)
        del self.lets[n.var]
        return Let(var, value, body)

    def visit_Call(self, n: Call) -> PrimExpr:
        if not self.varies(n):
            return n
        op = n.op
        if op is _IF:
            condition = self.visit(self.settled(n.args[0]))
            if condition.dtype.lanes == 1:
                a, b = self.visit(n.args[1]), self.visit(n.args[2])
                lanes = _lanes(a, b)
                a, b = self.widen(a, lanes), self.widen(b, lanes)
                return Call(a.dtype, op, (condition, a, b))
            if any(can_trap(side, lambda load: self.varies(load.indices[0])) for side in n.args[1:]):
                raise _Scalar
            held, sides = self.mask, []
            for side_taken, side in ((condition, n.args[1]), (logical_not(condition), n.args[2])):
                self.mask = self.narrowed(side_taken)
                sides.append(self.visit(side))
                self.mask = held
            return self.select(condition, *sides)
        if op is _LIKELY:
            inner = self.visit(n.args[0])
            return inner if inner.dtype.lanes != 1 else Call(inner.dtype, op, (inner,))
        if op is _CHECKED:
            return self.checked(n)
        if op is _LLVM:
            return self.llvm(n)
        if not (isinstance(op, Op) and op.vectorizable):
            raise _Scalar
        if op is _DP4A and any(a.dtype.bits == 8 for a in n.args):
            raise _Scalar  # a word is a vector itself
        args = [self.visit(a) for a in n.args]
        lanes = _lanes(*args)
        wide = [self.widen(a, lanes) for a in args]
        return Call(n.dtype.with_lanes(lanes), op, wide)

    def llvm(self, n: Call) -> PrimExpr:
        """An intrinsic of LLVM, of vectors if it works on each lane alone and only its vectors differ between lanes."""
        name, *rest = n.args
        known = elementwise(name.value) if isinstance(name, StringImm) else None
        if known is None:
            raise _Scalar
        count = known[1]
        # The classic form gives the number of arguments that take part in overloading first.
        at = int(bool(rest) and isinstance(rest[0], IntImm) and rest[0].dtype == "uint32")
        vectors, scalars = rest[at : at + count], rest[at + count :]
        if len(vectors) != count or any(map(self.varies, scalars)):
            raise _Scalar
        args = [self.visit(a) for a in vectors]
        lanes = _lanes(*args)
        wide = [self.widen(a, lanes) for a in args]
        named = StringImm(known[0])  # without the type of one lane, which the name may end with
        return Call(n.dtype.with_lanes(lanes), _LLVM, (named, *rest[:at], *wide, *scalars))

    def checked(self, n: Call) -> PrimExpr:
        """A check of each active lane; the others may have any value."""
        value, good, kind, message, *numbers = n.args
        parts = [self.visit(p) for p in (value, good, *numbers)]
        lanes = _lanes(*parts)
        if self.mask is not None:
            lanes = _lanes(*parts, self.mask)
            mask = self.widen(self.mask, lanes)
            parts[1] = logical_or(self.widen(parts[1], lanes), logical_not(mask))
        wide = [self.widen(p, lanes) for p in parts]
        return Call(wide[0].dtype, _CHECKED, (*wide[:2], kind, message, *wide[2:]))


def _surely_loaded(e: PrimExpr) -> Iterator[BufferLoad]:
    """The loads of an expression that are carried out whatever its conditions are."""
    if isinstance(e, BufferLoad):
        yield e
    children = e.children()
    if isinstance(e, (And, Or)) or (isinstance(e, Call) and e.op is _IF):
        children = children[:1]
    for c in children:
        if isinstance(c, PrimExpr):
            yield from _surely_loaded(c)


def _idempotent(s: Stmt) -> bool:
    """Whether the statement is idempotent."""
    stored = {m.buffer for m in pre_order(s) if isinstance(m, BufferStore)}
    for m in pre_order(s):
        if isinstance(m, BufferLoad) and m.buffer in stored:
            return False
        if isinstance(m, Call) and has_effect(m):
            return False
    return True


def _linear(kind: str, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """Sums and products of ramps and scalars are ramps."""
    if isinstance(a, Ramp) and b.dtype.lanes == 1 and a.base.dtype.lanes == 1 and b.dtype is a.base.dtype:
        if kind == "Add":
            return Ramp(add(a.base, b), a.stride, a.lanes)
        if kind == "Sub":
            return Ramp(sub(a.base, b), a.stride, a.lanes)
        if kind == "Mul":
            return Ramp(mul(a.base, b), mul(a.stride, b), a.lanes)
    if isinstance(b, Ramp) and a.dtype.lanes == 1 and b.base.dtype.lanes == 1 and a.dtype is b.base.dtype:
        if kind == "Add":
            return Ramp(add(a, b.base), b.stride, b.lanes)
        if kind == "Mul":
            return Ramp(mul(a, b.base), mul(a, b.stride), b.lanes)
        if kind == "Sub":
            return Ramp(sub(a, b.base), sub(const(0, b.stride.dtype), b.stride), b.lanes)
    if isinstance(a, Ramp) and isinstance(b, Ramp) and a.lanes == b.lanes and a.base.dtype.lanes == 1:
        if kind in ("Add", "Sub"):
            f = add if kind == "Add" else sub
            return Ramp(f(a.base, b.base), f(a.stride, b.stride), a.lanes)
    return None


def _without_likely(e: PrimExpr) -> PrimExpr:
    if isinstance(e, Call) and e.op is _LIKELY:
        return _without_likely(e.args[0])
    return e.map_children(_without_likely) if isinstance(e, And) else e
