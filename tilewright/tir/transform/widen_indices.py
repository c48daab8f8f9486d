"""Index arithmetic in 64 bits where 32 may overflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import INT32, DataType
from ...ir.expr import (
    Add,
    BinaryOp,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    Select,
    StringImm,
    Sub,
    Var,
    const_value,
)
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.op import Op
from ...ir.ops import LARGEST_VSCALE, cast, less_equal, product
from ...ir.stmt import Allocate, AssertStmt, AttrStmt, BufferStore, For, ForKind, LetStmt, Stmt
from ...runtime.limits import LARGEST_SIZE
from ..renew import folded
from .retype import Retyper

_INT64 = DataType("int64")
_LOW, _HIGH = int(INT32.low), int(INT32.high)
_IF_THEN_ELSE, _LIKELY = Op.get("tir.if_then_else"), Op.get("tir.likely")
_ACCESS_PTR, _VSCALE = Op.get("tir.tvm_access_ptr"), Op.get("tir.vscale")
Interval = tuple[int, int]


def widen_indices(func: PrimFunc, *, check_sizes: bool = False) -> PrimFunc:
    """Compute in 64 bits where 32 may overflow: counts of elements, fused loops, and expressions of them.

        for ij in range(T.Mul(46341, 46341)):              for ij in range(T.int64(2147488281)):
            B[ij] = A[ij // 46341 % 7]             ->          B[ij] = A[ij // T.int64(46341) % T.int64(7)]

    Where everything fits, nothing changes. Values that are loaded from memory keep their type and wrap around, as data
    does. Sums and products that only form an address, or the size of an allocation, are unchanged where a size is
    symbolic: every backend computes those in 64 bits. With `check_sizes` a product of symbolic sizes that is
    the number of elements of a parameter is taken to fit, and a test at the head of the function refuses larger
    arrays: 64-bit divisions are slow on a GPU.

    Needs: flat buffers, no vectors. Gives: no index arithmetic that overflows.
    """
    ranges = _Ranges(func)
    wide = ranges.overflowing(func.body)
    checked: list[Buffer] = []
    if wide is not None and check_sizes:
        ranges = _Ranges(func, counted := _symbolic(func))
        wide, checked = ranges.overflowing(func.body), counted
    if wide is None and not checked:
        return func
    body = func.body if wide is None else _Widen(ranges, wide).visit(func.body)
    for b in checked:
        constant, names = _factors(product(b.shape))
        count = product(
            [*(cast(_INT64, v) for v in (names or Counter()).elements()), IntImm(_INT64, constant)]
        )
        message = (
            f"{b.name} has 2^31 elements or more, which this code for dynamic shapes does not support; "
            "compile the program for fixed sizes"
        )
        body = AssertStmt(less_equal(count, IntImm(_INT64, LARGEST_SIZE)), StringImm(message), body)
    return func.replace(body=body)


def _symbolic(func: PrimFunc) -> list[Buffer]:
    """The parameters whose number of elements is a product of symbolic sizes; one for each such product."""
    found: dict[Any, Buffer] = {}
    for b in func.buffer_params():
        _, names = _factors(product(b.shape))
        if names is not None and sum(names.values()) > 1:
            found.setdefault(frozenset(names.items()), b)
    return list(found.values())


def _factors(e: PrimExpr) -> tuple[int, Counter[Var] | None]:
    """A product as its constant and its variables; None if it has other factors."""
    if isinstance(e, IntImm):
        return e.value, Counter()
    if isinstance(e, Var):
        return 1, Counter([e])
    if isinstance(e, Mul):
        (a, x), (b, y) = _factors(e.a), _factors(e.b)
        return a * b, None if x is None or y is None else x + y
    return 1, None


class _Ranges:
    """The intervals of index expressions, computed bottom up from those of loops and sizes.

    None is the interval of a value that is not an index: a load from memory, a float.
    """

    def __init__(self, func: PrimFunc, checked: Sequence[Buffer] = ()) -> None:
        self.vars: dict[Var, Interval | None] = {}
        self.loops: set[Var] = set()
        self.vectorized: set[Var] = set()
        self.memo: dict[PrimExpr, Interval | None] = {}
        self.counts = [f for b in checked for f in [_factors(product(b.shape))] if f[1] is not None]
        for p in func.params:
            self.vars[p] = (-LARGEST_SIZE, LARGEST_SIZE) if p.dtype is INT32 else None
        for n in pre_order(func.body):  # enclosing statements come before a definition
            if isinstance(n, For):
                self.define(n.loop_var, self.loop(n.min, n.extent))
                self.loops.add(n.loop_var)
                if n.kind is ForKind.VECTORIZED:
                    self.vectorized.add(n.loop_var)
            elif isinstance(n, (LetStmt, Let)):
                self.define(n.var, self.of(n.value))
            elif isinstance(n, AttrStmt) and isinstance(n.node, IterVar):
                self.define(n.node.var, self.loop(IntImm(INT32, 0), n.value))

    def define(self, v: Var, values: Interval | None) -> None:
        old = self.vars.get(v, values)
        if old is None or values is None:
            self.vars[v] = None
        else:
            self.vars[v] = (min(old[0], values[0]), max(old[1], values[1]))
        if old != self.vars[v]:
            self.memo = {}

    def loop(self, low: PrimExpr, extent: PrimExpr) -> Interval | None:
        first, count = self.of(low), self.of(extent)
        if first is None or count is None:
            return None if low.dtype is not INT32 else (-LARGEST_SIZE, LARGEST_SIZE)
        return first[0], max(first[1] + count[1] - 1, first[0])

    def of(self, e: PrimExpr) -> Interval | None:
        """The least and the greatest value of an integer expression."""
        if e not in self.memo:
            self.memo[e] = self._of(e)
        return self.memo[e]

    def _of(self, e: PrimExpr) -> Interval | None:
        if isinstance(e, IntImm):
            return e.value, e.value
        if isinstance(e, Var):
            if e in self.vars:
                return self.vars[e]
            return (0, LARGEST_SIZE) if e.__class__.__name__ == "SizeVar" else (-LARGEST_SIZE, LARGEST_SIZE)
        if not e.dtype.is_int or e.dtype.is_vector:
            return None
        if isinstance(e, (Select, Call)):
            return self._either(e)
        if isinstance(e, Let):
            return self.of(e.body)
        if isinstance(e, Cast):
            x = self.of(e.value)
            return x if x is not None and e.dtype.low <= x[0] and x[1] <= e.dtype.high else None
        if not isinstance(e, BinaryOp):
            return None
        x, y = self.of(e.a), self.of(e.b)
        if x is None or y is None:
            if isinstance(e, FloorMod) and y is not None and y[0] > 0:
                return 0, y[1] - 1
            return None
        made = _COMBINED[e.__class__](x, y)
        return self._counted(e, made) if isinstance(e, Mul) and made[1] > _HIGH else made

    def _either(self, e: Any) -> Interval | None:
        if isinstance(e, Call):
            if e.op is _LIKELY:
                return self.of(e.args[0])
            if e.op is _VSCALE:
                return 1, LARGEST_VSCALE
            if e.op is not _IF_THEN_ELSE:
                return None
        _, a, b = e.args if isinstance(e, Call) else (None, e.true_value, e.false_value)
        x, y = self.of(a), self.of(b)
        return None if x is None or y is None else (min(x[0], y[0]), max(x[1], y[1]))

    def _counted(self, e: Mul, made: Interval) -> Interval:
        """The bounds of a product of sizes that is a part of a number of elements that is checked."""
        constant, names = _factors(e)
        for scale, whole in self.counts:
            if names is not None and whole is not None and names <= whole:
                return max(made[0], 0), min(made[1], LARGEST_SIZE // scale * constant)
        return made

    # -- overflow --------------------------------------------------------------------------------
    def overflows(self, e: PrimExpr) -> bool:
        """Whether the value of this node may need more than 32 bits; its operands are checked separately."""
        if e.dtype is not INT32 or isinstance(e, IntImm):
            return False
        x = self.of(e)
        return x is not None and (x[0] < _LOW or x[1] > _HIGH)

    def uncertain(self, e: PrimExpr) -> bool:
        """As `overflows`, for a part of an address, in which data does not wrap around."""
        return self.overflows(e) or (
            self.of(e) is None and isinstance(e, (Add, Sub, Mul)) and e.dtype is INT32
        )

    def overflowing(self, body: Stmt) -> set[Var] | None:
        """The loop variables of expressions that may overflow; None if none may."""
        wide: set[Var] = set()
        found = False
        for root, address in self._roots(body):
            parts = list(_operands(root))
            if any((self.uncertain if address else self.overflows)(m) for m in parts):
                found = True
                wide |= {m for m in parts if isinstance(m, Var) and m.dtype is INT32 and m in self.loops}
        return wide if found else None

    def _roots(self, body: Stmt) -> Iterator[tuple[PrimExpr, bool]]:
        """The maximal integer expressions that must be exact, and whether each is an address."""
        for n in pre_order(body):
            inside: Iterable[Any] = ()
            if isinstance(n, (BufferLoad, BufferStore)):
                for i in n.indices:
                    if self.large(n.buffer, i):
                        yield i, True
                    else:
                        yield from ((leaf, False) for leaf in _leaves(i))
                inside = (n.predicate, n.value if isinstance(n, BufferStore) else None)
            elif isinstance(n, For):
                inside = (n.loop_var, n.extent)
            elif isinstance(n, Call) and n.op is _ACCESS_PTR:
                inside = _leaves(n.args[2])
            elif isinstance(n, Allocate):
                inside = [leaf for e in n.extents for leaf in _leaves(e)]
            elif isinstance(n, (CmpOp, Call, Cast, Select)):
                inside = n.children()
            elif isinstance(n, (LetStmt, Let)):
                inside = (n.value,)
            for e in inside:
                yield from ((m, False) for m in _indices_in(e))

    def large(self, buffer: Buffer, index: PrimExpr) -> bool:
        """Whether an address needs 64 bits: the number of elements of the buffer exceeds 32 bits, or may do so and the
        address is a vector computed from data."""
        sizes = [const_value(d) for d in buffer.shape]
        if None not in sizes:
            return prod(int(s) for s in sizes if s is not None) > _HIGH
        loads = [m for m in pre_order(index) if isinstance(m, BufferLoad)]
        return any(v in self.vectorized for m in loads for v in pre_order(m))


def _operands(e: PrimExpr) -> Iterator[PrimExpr]:
    """The nodes of one computation; memory accesses, casts and calls begin others and are not entered."""
    stack = [e]
    while stack:
        n = stack.pop()
        yield n
        if isinstance(n, (BinaryOp, Select)) or (isinstance(n, Call) and n.op in (_IF_THEN_ELSE, _LIKELY)):
            stack += n.children()


def _leaves(e: PrimExpr) -> Iterator[PrimExpr]:
    """The leaves of the sums and products of an address."""
    if isinstance(e, (Add, Sub, Mul)):
        yield from _leaves(e.a)
        yield from _leaves(e.b)
    else:
        yield e


def _indices_in(e: Any) -> Iterator[PrimExpr]:
    """The largest integer expressions within a value; those inside memory accesses are listed separately."""
    if isinstance(e, PrimExpr):
        if isinstance(e, (BinaryOp, Var)) and e.dtype is INT32:
            yield e
        elif isinstance(e, BinaryOp):
            yield from _indices_in(e.a)
            yield from _indices_in(e.b)


def _sum(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def _product(x: Interval, y: Interval) -> Interval:
    ends = [a * b for a in x for b in y]
    return min(ends), max(ends)


def _quotient(x: Interval, y: Interval) -> Interval:
    """The interval of a quotient, for either division, from the quotients of the end points."""
    divisors = [d for d in (*y, 1, -1) if d and y[0] <= d <= y[1]] or [1]
    return min(a // d for a in x for d in divisors), max(-(-a // d) for a in x for d in divisors)


def _remainder(x: Interval, y: Interval) -> Interval:
    most = max(abs(y[0]), abs(y[1]), 1) - 1
    low = 0 if x[0] >= 0 and y[0] >= 0 else -most
    return low, min(most, x[1]) if x[0] >= 0 and y[0] >= 0 else most


_COMBINED: dict[type, Any] = {
    Add: _sum,
    Sub: lambda x, y: (x[0] - y[1], x[1] - y[0]),
    Mul: _product,
    Div: _quotient,
    FloorDiv: _quotient,
    Mod: _remainder,
    FloorMod: _remainder,
    Min: lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    Max: lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
}


class _Widen(Retyper):
    """Rewrites bottom up: an int32 expression comes back as int64 if it, or a part of it, may not fit."""

    def __init__(self, ranges: _Ranges, wide: set[Var]) -> None:
        super().__init__()
        self.ranges, self.wide = ranges, wide

    def same(self, e: PrimExpr) -> PrimExpr:
        return cast(e.dtype, self.visit(e))

    # -- expressions -----------------------------------------------------------------------------
    def binary(self, n: Any) -> PrimExpr:
        if n.dtype is not INT32 or self.ranges.of(n) is None:  # data wraps around in its own type
            return n.map_children(self.same)  # type: ignore[no-any-return]
        return self.pair(n, self.visit(n.a), self.visit(n.b), self.ranges.overflows(n))

    def compared(self, n: Any) -> PrimExpr:
        return self.pair(n, self.visit(n.a), self.visit(n.b))

    def pair(self, n: Any, a: PrimExpr, b: PrimExpr, wide: bool = False) -> PrimExpr:
        """The operator of two rewritten operands, in 64 bits if it, or one of them, is wide."""
        if wide or a.dtype is not b.dtype:
            a, b = cast(_INT64, a), cast(_INT64, b)
        return n if a is n.a and b is n.b else folded(n.__class__(a, b))  # type: ignore[no-any-return]

    def address(self, e: PrimExpr, large: bool = False) -> PrimExpr:
        """An index. The sums and products of which it is made are written in 64 bits only in a `large` buffer."""
        if isinstance(e, (Add, Sub, Mul)) and e.dtype is INT32:
            wide = large and self.ranges.uncertain(e)
            return self.pair(e, self.address(e.a, large), self.address(e.b, large), wide)
        return self.visit(e)  # type: ignore[no-any-return]

    def visit_Select(self, n: Select) -> PrimExpr:
        condition, a, b = self.either(n.condition, n.true_value, n.false_value)
        if condition is n.condition and a is n.true_value and b is n.false_value:
            return n
        return Select(condition, a, b)

    def either(self, *parts: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        condition, a, b = (self.visit(x) for x in parts)
        if a.dtype is not b.dtype:
            a, b = cast(_INT64, a), cast(_INT64, b)
        return condition, a, b

    def visit_Cast(self, n: Cast) -> PrimExpr:
        value = self.visit(n.value)
        return n if value is n.value else cast(n.dtype, value)

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _IF_THEN_ELSE:
            args: tuple[Any, ...] = self.either(*n.args)
            return n if all(x is y for x, y in zip(args, n.args)) else Call(args[1].dtype, n.op, args)
        if n.op is _ACCESS_PTR:
            kind, data, offset, extent, *rest = n.args
            made = (kind, data, self.address(offset), self.address(extent), *rest)
            return n if all(x is y for x, y in zip(made, n.args)) else Call(n.dtype, n.op, made)
        return n.map_children(lambda c: self.same(c) if isinstance(c, PrimExpr) else c)

    def visit_BufferLoad(self, n: BufferLoad) -> BufferLoad:
        return self.accessed(n)  # type: ignore[no-any-return]

    def accessed(self, n: Any, **changed: Any) -> Any:
        buffer = self.buffer(n.buffer)
        indices = tuple([self.address(i, self.ranges.large(n.buffer, i)) for i in n.indices])
        predicate = None if n.predicate is None else self.visit(n.predicate)
        new = {"buffer": buffer, "indices": indices, "predicate": predicate, **changed}
        kept = all(x is y for x, y in zip(indices, n.indices))
        if kept and all(v is getattr(n, k) for k, v in new.items() if k != "indices"):
            return n
        return n.replace(**new)

    # -- definitions -----------------------------------------------------------------------------
    def bound(self, n: Let | LetStmt) -> tuple[PrimExpr, Var]:
        value = self.visit(n.value)
        return value, self.define(n.var, value.dtype)

    def visit_For(self, n: For) -> For:
        low, extent, var = self.visit(n.min), self.visit(n.extent), n.loop_var
        if var in self.wide:
            var = self.define(var, _INT64)
        low, extent = cast(var.dtype, low), cast(var.dtype, extent)
        body = self.visit(n.body)
        return n.updated(loop_var=var, min=low, extent=extent, body=body)

    def visit_AttrStmt(self, n: AttrStmt) -> AttrStmt:
        node = self.table.get(n.node, n.node) if isinstance(n.node, Var) else n.node
        value = self.same(n.value) if isinstance(n.value, PrimExpr) else n.value
        body = self.visit(n.body)
        return n.updated(node=node, value=value, body=body)

    # -- other statements ------------------------------------------------------------------------
    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        return self.accessed(n, value=self.same(n.value))  # type: ignore[no-any-return]

    def visit_Allocate(self, n: Allocate) -> Allocate:
        extents, body = tuple([self.address(e) for e in n.extents]), self.visit(n.body)
        return n.updated(extents=extents, body=body)
