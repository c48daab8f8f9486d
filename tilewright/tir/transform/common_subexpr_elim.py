"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from ...ir.buffer import Buffer
from ...ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    ProducerLoad,
    Ramp,
    Reduce,
    Select,
    SizeVar,
    Sub,
    Var,
    const_value,
)
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.op import CallEffectKind, Op
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from ..analysis.effects import is_division
from ..analysis.lca import common_place

_ADDRESS_OF, _LIKELY = Op.get("tir.address_of"), Op.get("tir.likely")
_IF_THEN_ELSE = Op.get("tir.if_then_else")
_COMMUTATIVE = (Add, Mul, Min, Max)
_CHEAP_CALLS = frozenset(
    Op.get(f"tir.{n}")
    for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right")
) | {_IF_THEN_ELSE, _LIKELY, Op.get("tir.fabs"), Op.get("tir.reinterpret")}
# Operators that are defined for all operands, and never trap.
_PLAIN = frozenset(
    (Add, Sub, Mul, Min, Max, EQ, NE, LT, LE, GT, GE, And, Or, Not, Select, Cast, Ramp, Broadcast)
)
_CONDITIONAL = (For, While, IfThenElse, AssertStmt)
_WORTH = 3  # operations from which a binding pays


def common_subexpr_elim(
    func: PrimFunc, enable_cse_tir: bool = True, identify_equiv_terms: bool = False
) -> PrimFunc:
    """Bind an expression that occurs more than once, at the smallest statement around its occurrences.

        A[i*64 + j*8 + k] = 0                     cse = i*64 + j*8 + k
        B[i] = C[i*64 + j*8 + k]         ->       A[cse] = 0
                                                  B[i] = C[cse]

    It must be worth a name: three operations, a division, or a call of a mathematical function.
    What might trap (a load, a division by something unknown) is bound only where it would be
    evaluated anyway, and a load only if nothing in the function writes to that memory. With
    `identify_equiv_terms`, operands of commutative operators may stand in any order; without
    `enable_cse_tir` nothing is done.

    Needs: flat buffers, `verify_ssa`. Gives: no more than one evaluation of each such expression in
    a scope.
    """
    return _Eliminate(func, identify_equiv_terms).run() if enable_cse_tir else func


class _Frame:
    """A statement that a binding can enclose. `region` is the frame from which this one is reached unconditionally."""

    __slots__ = ("bindings", "depth", "parent", "region")

    def __init__(self, parent: _Frame | None, same_region: bool) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.region: _Frame = parent.region if parent is not None and same_region else self
        self.bindings: list[_Term] = []


class _Term:
    """All occurrences of one expression: its operands, their number and their frames.

    `bound` is the innermost frame that binds one of its variables, or None if it can have no name; a term
    is `safe` if it can be evaluated anywhere.
    """

    __slots__ = ("bound", "built", "count", "expr", "frame", "heavy", "operands", "ops", "safe", "var")

    def __init__(self, expr: Any, operands: tuple[_Term, ...], bound: _Frame | None, safe: bool) -> None:
        self.expr, self.operands, self.bound, self.safe = expr, operands, bound, safe
        self.count, self.ops, self.heavy = 0, 0, False
        self.frame: _Frame | None = None
        self.var: Var | None = None
        self.built: Any = None

    def nameable(self) -> bool:
        """Whether binding it to a name is allowed, and pays."""
        e = self.expr
        if self.bound is None or not (self.heavy or self.ops >= _WORTH) or e.dtype.is_handle:
            return False
        if isinstance(e, Call):
            return e.op is not _LIKELY and bool(e.op.vectorizable)
        if e.dtype.is_bool and e.dtype.is_vector:
            return False  # a mask costs nothing, and is often a constant
        if isinstance(e, BufferLoad):
            return False  # loading again is cheaper than a register that is live across the loops between
        return not isinstance(e, (Ramp, Broadcast))  # an access needs its ramp visible

    def build(self, named: bool = True) -> Any:
        """The expression, with named terms replaced by their names."""
        if named and self.var is not None:
            return self.var
        if self.built is None:
            order = iter(self.operands)
            self.built = self.expr.map_children(lambda _: next(order).build()) if self.operands else self.expr
        return self.built


class _Eliminate:
    """The first walk interns and counts terms, the second writes the bindings, through the same frames
    and terms in the same order.

    Terms are interned by their operator and operands; a variable by itself and the frame that binds it,
    so that equal terms are one object exactly when one binding can serve both.
    """

    def __init__(self, func: PrimFunc, commutative: bool) -> None:
        self.func, self.commutative = func, commutative
        self.terms: dict[Any, _Term] = {}
        self.names: dict[Var, _Term] = {}  # the term of a variable as it was last bound
        self.behind: dict[Buffer, tuple[Any, ...]] = {}  # the terms of a buffer's shape and strides
        self.root = self.frame = _Frame(None, False)
        self.binders: dict[Any, _Frame | None] = {}
        self.conditional = 0
        self.written = _written(func.body)
        self.frames: list[_Frame] = []
        self.tops: list[_Term] = []

    def run(self) -> PrimFunc:
        self.scan(self.func.body, self.root)
        if not self.choose():
            return self.func
        self.frames.reverse()
        self.tops.reverse()
        return self.func.replace(body=self.write(self.func.body))

    # -- first walk ------------------------------------------------------------------------
    def scan(self, n: Stmt, frame: _Frame) -> None:
        self.frames.append(frame)
        self.frame = frame
        children = n.children()
        for c in children:
            if isinstance(c, PrimExpr):
                self.tops.append(self.intern(c))
        binds = _binds(n)
        same = not isinstance(n, _CONDITIONAL) and not _is_axis(n)
        for c in children:
            if isinstance(c, Stmt):
                inner = _Frame(frame, same)
                if binds is not None:
                    self.binders[binds] = inner
                self.scan(c, inner)

    def intern(self, e: Any) -> _Term:
        """The term of an expression, this occurrence counted."""
        cls = e.__class__
        if cls is Var or cls is SizeVar:
            bound, term = self.binders.get(e, self.root), self.names.get(e)
            if term is None or term.bound is not bound:
                term = self.names[e] = self.leaf((e, bound), e, bound)
            return term
        if cls is IntImm:
            return self.leaf((e.dtype, e.value), e, self.root)
        if cls is FloatImm:
            return self.leaf((e.dtype, repr(e.value)), e, self.root)
        if not e.children() and cls is not Call:
            return _Term(e, (), None, False)
        if cls is Let:
            return self.let(e)
        if cls is Call and e.op is _ADDRESS_OF:
            load = e.args[0]
            where = tuple([self.intern(i) for i in load.children()])
            return _Term(e, (_Term(load, where, None, False),), None, False)
        return self.node(e, self.operands(e))

    def leaf(self, key: Any, e: Any, bound: _Frame | None) -> _Term:
        term = self.terms.get(key)
        if term is None:
            term = self.terms[key] = _Term(e, (), bound, True)
        return term

    def let(self, e: Let) -> _Term:
        value = self.intern(e.value)
        held = self.binders.get(e.var, self.root)
        self.binders[e.var] = None
        body = self.intern(e.body)
        self.binders[e.var] = held
        return _Term(e, (value, body), None, False)

    def operands(self, e: Any) -> tuple[_Term, ...]:
        """The terms of the operands; those after the first are conditional if `e` may not evaluate them."""
        children, cls = e.children(), e.__class__
        if not (cls is And or cls is Or or (cls is Call and e.op is _IF_THEN_ELSE)):
            return tuple([self.intern(c) for c in children])
        first = self.intern(children[0])
        self.conditional += 1
        rest = [self.intern(c) for c in children[1:]]
        self.conditional -= 1
        return (first, *rest)

    def node(self, e: Any, operands: tuple[_Term, ...]) -> _Term:
        cls = e.__class__
        plain = cls in _PLAIN
        safe, bound = plain or not self.traps(e), self.root
        for t in operands:
            if t.bound is None:
                return _Term(e, operands, None, False)
            if t.bound.depth > bound.depth:
                bound = t.bound
            safe = safe and t.safe
        if not plain:
            known = self.load_bound(e.buffer, bound) if cls is BufferLoad else bound
            if known is None or not self.is_value(e):
                return _Term(e, operands, None, False)
            bound = known
        place: Any = None
        if not safe:
            place = object() if self.conditional else self.frame.region
        ids: Any = operands
        if self.commutative and isinstance(e, _COMMUTATIVE):
            ids = tuple(sorted(operands, key=id))
        key = (cls, e.dtype, None if plain else _extra(e), ids, place)
        term = self.terms.get(key)
        if term is None:
            term = self.terms[key] = _Term(e, operands, bound, safe)
            term.ops = 1 + sum([t.ops for t in operands])
            term.heavy = (not plain and _is_heavy(e)) or any(t.heavy for t in operands)
        term.count += 1
        term.frame = self.frame if term.frame is None else common_place(term.frame, self.frame)
        return term

    def load_bound(self, buffer: Buffer, bound: _Frame) -> _Frame | None:
        """The frame below which the buffer of a load is known."""
        names = self.behind.get(buffer)
        if names is None:
            held = [m for e in buffer.children() for m in pre_order(e) if isinstance(m, Var)]
            names = self.behind[buffer] = (buffer, buffer.data, *held)
        for name in names:
            found = self.binders.get(name, self.root)
            if found is None:
                return None
            if found.depth > bound.depth:
                bound = found
        return bound

    def is_value(self, e: Any) -> bool:
        """Whether the value of the node depends on its operands only."""
        if e.__class__ is BufferLoad:
            return e.buffer.data not in self.written
        if e.__class__ is Call:
            return isinstance(e.op, Op) and e.op.effect <= CallEffectKind.Pure
        return not isinstance(e, (Reduce, ProducerLoad))

    def traps(self, e: Any) -> bool:
        if e.__class__ is Call:
            return not (isinstance(e.op, Op) and e.op.vectorizable)
        return e.__class__ is BufferLoad or (is_division(e) and not const_value(e.b))

    # -- the choice ------------------------------------------------------------------------
    def choose(self) -> bool:
        """Name the largest terms first; those within them then occur less often."""
        found = [t for t in self.terms.values() if t.count > 1 and t.nameable()]
        found.sort(key=lambda t: -t.ops)
        chosen: list[_Term] = []
        for t in found:
            if t.count < 2:
                continue
            chosen.append(t)
            stack = list(t.operands)
            while stack:
                s = stack.pop()
                s.count -= t.count - 1
                stack.extend(s.operands)
        for i, t in enumerate(reversed(chosen)):
            assert t.frame is not None
            t.var = Var(f"cse_var_{i + 1}", t.expr.dtype)
            t.frame.bindings.append(t)
        return bool(chosen)

    # -- second walk -----------------------------------------------------------------------
    def write(self, n: Stmt) -> Stmt:
        frame, children = self.frames.pop(), n.children()
        values = [self.tops.pop().build() for c in children if isinstance(c, PrimExpr)]
        bodies = [self.write(c) for c in children if isinstance(c, Stmt)]
        values.reverse()
        bodies.reverse()

        def put(c: Any) -> Any:
            if isinstance(c, PrimExpr):
                return values.pop()
            return bodies.pop() if isinstance(c, Stmt) else c

        made = n.map_children(put)
        for t in reversed(frame.bindings):
            assert t.var is not None
            made = LetStmt(t.var, t.build(named=False), made)
        return made


def _extra(e: Any) -> Any:
    """The fields in which two nodes of one class may differ, besides their operands."""
    if e.__class__ is Call:
        return e.op
    return getattr(e, "buffer", None) or getattr(e, "lanes", None)


def _is_heavy(e: Any) -> bool:
    return is_division(e) or (e.__class__ is Call and e.op not in _CHEAP_CALLS)


def _binds(n: Stmt) -> Any:
    """The variables that the statement binds in its body."""
    if isinstance(n, For):
        return n.loop_var
    if isinstance(n, LetStmt):
        return n.var
    if isinstance(n, (Allocate, AllocateConst)):
        return n.buffer_var
    if isinstance(n, DeclBuffer):
        return n.buffer
    if isinstance(n, AttrStmt) and isinstance(n.node, IterVar):
        return n.node.var
    return None


def _is_axis(n: Stmt) -> bool:
    return isinstance(n, AttrStmt) and isinstance(n.node, IterVar)


def _written(body: Stmt) -> set[Var]:
    """The pointers to memory that may be written."""
    out: set[Var] = set()
    for m in pre_order(body):
        cls = m.__class__
        if cls is Var:
            if m.dtype.is_handle:
                out.add(m)
        elif cls is BufferStore:
            out.add(m.buffer.data)
        elif cls is Call and m.op is _ADDRESS_OF:
            load: Any = m.args[0]
            out.add(load.buffer.data)
    return out
