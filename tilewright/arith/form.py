"""Linear forms: integers as sums of atoms with constant coefficients.

    (i * 4 + j // 2) * 3 + 1   is   {i: 12, S(j, 2): 3} + 1

An atom is a term that is opaque to addition: a variable, a digit `(e // l) % m` of a sum, a product of
atoms, a minimum, or an opaque expression. Atoms are unique within a table, so like terms meet by identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any, Final

from ..ir.dtype import DataType
from ..ir.expr import (
    Add,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    ProducerLoad,
    Ramp,
    Select,
    Sub,
    Var,
)
from ..ir.node import Node, field_kinds
from ..ir.op import CallEffectKind, Op
from ..ir.ops import if_then_else

VAR: Final = 0  # (var,)
SPLIT: Final = 1  # (e, lower, upper): (e // lower) % (upper // lower); no upper, no remainder
SYMDIV: Final = 2  # (e, d): e // d, where d is not a constant
SYMMOD: Final = 3  # (e, d): e % d
MIN: Final = 4  # two or more forms
MAX: Final = 5
PROD: Final = 6  # two or more atoms
CAST: Final = 7  # (e,): from another index type
SELECT: Final = 8  # (condition, e, e, lazy): lazy if only the chosen one may be evaluated
TRUNCDIV: Final = 9  # (e, d)
TRUNCMOD: Final = 10
OPAQUE: Final = 11  # (expr,)


class DoesNotFit(Exception):
    """A constant overflows its type: the expression is left unchanged."""


def is_index(dtype: DataType) -> bool:
    """Whether arithmetic of this type is that of the integers: signed, wide, and assumed not to overflow."""
    return dtype.code == "int" and dtype.bits >= 32 and dtype.lanes == 1


class Atom:
    """A term of a linear form."""

    __slots__ = ("_vars", "args", "dtype", "expr", "index", "kind", "reads")

    def __init__(self, kind: int, args: tuple[Any, ...], dtype: DataType, index: int) -> None:
        self.kind, self.args, self.dtype, self.index = kind, args, dtype, index
        self.expr: PrimExpr | None = None
        self._vars: frozenset[Var] | None = None
        self.reads: bool = any(a.reads for a in _parts(args))  # depends on memory or on an effect

    @property
    def vars(self) -> frozenset[Var]:
        """The variables that occur in it."""
        found = self._vars
        if found is None:
            if self.kind == VAR:
                found = frozenset(self.args)
            else:
                out: set[Var] = set()
                for part in self.args:
                    if isinstance(part, Lin):
                        out |= part.vars()
                    elif isinstance(part, Atom):
                        out |= part.vars
                    elif isinstance(part, Node):
                        out |= expr_vars(part)
                found = frozenset(out)
            self._vars = found
        return found

    def __repr__(self) -> str:
        names = [
            "var",
            "split",
            "div",
            "mod",
            "min",
            "max",
            "prod",
            "cast",
            "select",
            "tdiv",
            "tmod",
            "opaque",
        ]
        return f"{names[self.kind]}{self.args}"


def _parts(args: Iterable[Any]) -> Iterable[Atom]:
    for a in args:
        if a.__class__ is Lin:
            yield from a.terms
        elif a.__class__ is Atom:
            yield a


def expr_vars(n: Any) -> set[Var]:
    """The variables in an expression."""
    out: set[Var] = set()
    stack = [n]
    while stack:
        m = stack.pop()
        if isinstance(m, Var):
            out.add(m)
        else:
            stack.extend(m.children())
    return out


def reads_state(n: Any) -> bool:
    """Whether the value of an expression may change while its variables do not."""
    stack = [n]
    while stack:
        m = stack.pop()
        if isinstance(m, (BufferLoad, ProducerLoad)):
            return True
        if m.__class__ is Call and not (isinstance(m.op, Op) and m.op.effect <= CallEffectKind.Pure):
            return True
        stack.extend(m.children())
    return False


class Lin:
    """A sum of atoms times constants, plus a constant. Immutable."""

    __slots__ = ("_key", "const", "terms")

    def __init__(self, terms: dict[Atom, int], const: int) -> None:
        self.terms, self.const = terms, const
        self._key: Any = None

    @property
    def key(self) -> Any:
        """Equal for equal forms."""
        found = self._key
        if found is None:
            found = self._key = (self.const, frozenset(self.terms.items()))
        return found

    def __add__(self, other: Lin) -> Lin:
        if not other.terms:
            return Lin(self.terms, self.const + other.const) if other.const else self
        terms = dict(self.terms)
        for a, c in other.terms.items():
            made = terms.get(a, 0) + c
            if made:
                terms[a] = made
            else:
                del terms[a]
        return Lin(terms, self.const + other.const)

    def __sub__(self, other: Lin) -> Lin:
        return self + other.scale(-1)

    def scale(self, k: int) -> Lin:
        if k == 1:
            return self
        if k == 0:
            return Lin({}, 0)
        return Lin({a: c * k for a, c in self.terms.items()}, self.const * k)

    def shift(self, k: int) -> Lin:
        return Lin(self.terms, self.const + k) if k else self

    def divide(self, g: int) -> Lin:
        """The form divided by a divisor of all coefficients, 0 if there are none; the constant is rounded down."""
        return self if g in (0, 1) else Lin({a: c // g for a, c in self.terms.items()}, self.const // g)

    def without(self, a: Atom) -> Lin:
        """The form without the term of an atom."""
        return Lin({x: c for x, c in self.terms.items() if x is not a}, self.const)

    def gcd(self) -> int:
        """The greatest common divisor of the coefficients, the constant left out; 0 if there are none."""
        g = 0
        for c in self.terms.values():
            g = gcd(g, c)
        return g

    def vars(self) -> set[Var]:
        out: set[Var] = set()
        for a in self.terms:
            out |= a.vars
        return out

    def single(self) -> Atom | None:
        """The atom, if the form is one atom and nothing else."""
        if self.const == 0 and len(self.terms) == 1:
            ((a, c),) = self.terms.items()
            if c == 1:
                return a
        return None

    def __repr__(self) -> str:
        return " + ".join([f"{c}*{a!r}" for a, c in self.terms.items()] + [str(self.const)])


def constant(value: int) -> Lin:
    return Lin({}, value)


def of_atom(atom: Atom) -> Lin:
    return Lin({atom: 1}, 0)


class Forms:
    """The table of atoms, and the way back from forms to expressions."""

    __slots__ = ("table", "vars")

    def __init__(self) -> None:
        self.vars: dict[Var, Atom] = {}
        self.table: dict[Any, Atom] = {}

    def var(self, v: Var) -> Atom:
        found = self.vars.get(v)
        if found is None:
            found = self.vars[v] = Atom(VAR, (v,), v.dtype, len(self.vars) + len(self.table))
            found.expr = v
        return found

    def _make(self, key: Any, kind: int, args: tuple[Any, ...], dtype: DataType) -> Atom:
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = Atom(kind, args, dtype, len(self.vars) + len(self.table))
        return found

    def split(self, e: Lin, lower: int, upper: int | None) -> Atom:
        return self._make((SPLIT, e.key, lower, upper), SPLIT, (e, lower, upper), dtype_of(e))

    def find_split(self, e: Lin, lower: int, upper: int | None) -> Atom | None:
        return self.table.get((SPLIT, e.key, lower, upper))

    def pair(self, kind: int, a: Lin, b: Lin) -> Atom:
        """A division or remainder whose divisor is not a constant, or one that rounds towards zero."""
        dtype = dtype_of(a if a.terms else b)
        return self._make((kind, a.key, b.key), kind, (a, b), dtype)

    def extreme(self, kind: int, args: list[Lin]) -> Atom:
        key = (kind, frozenset([a.key for a in args]))
        return self._make(key, kind, tuple(args), dtype_of(next(a for a in args if a.terms)))

    def prod(self, atoms: list[Atom]) -> Atom:
        if len(atoms) == 1:
            return atoms[0]
        factors: list[Atom] = []
        for a in atoms:
            factors.extend(a.args if a.kind == PROD else (a,))
        key = (PROD, tuple(sorted(a.index for a in factors)))
        return self._make(key, PROD, tuple(factors), factors[0].dtype)

    def cast(self, dtype: DataType, e: Lin) -> Atom:
        return self._make((CAST, dtype, e.key, dtype_of(e)), CAST, (e,), dtype)

    def select(self, condition: PrimExpr, a: Lin, b: Lin, dtype: DataType, lazy: bool) -> Atom:
        key = (SELECT, skey(condition), a.key, b.key, dtype, lazy)
        atom = self._make(key, SELECT, (condition, a, b, lazy), dtype)
        if reads_state(condition):
            atom.reads = True
        return atom

    def opaque(self, expr: PrimExpr) -> Atom:
        atom = self._make((OPAQUE, skey(expr)), OPAQUE, (expr,), expr.dtype)
        if atom.expr is None:
            atom.expr = expr
            atom.reads = reads_state(expr)
        return atom

    # -- back to expressions ---------------------------------------------------------------
    def expr(self, atom: Atom) -> PrimExpr:
        """The expression that the atom stands for."""
        made = atom.expr
        if made is None:
            made = atom.expr = self._expr(atom)
        return made

    def _expr(self, atom: Atom) -> PrimExpr:
        kind, args, dtype = atom.kind, atom.args, atom.dtype
        if kind == SPLIT:
            e, lower, upper = args
            made = self.build(e, dtype)
            if lower != 1:
                made = FloorDiv(made, number(lower, dtype))
            return made if upper is None else FloorMod(made, number(upper // lower, dtype))
        if kind == PROD:
            made = self.expr(args[0])
            for a in args[1:]:
                made = Mul(made, self.expr(a))
            return made
        if kind in (MIN, MAX):
            cls = Min if kind == MIN else Max
            made = self.build(args[0], dtype)
            for a in args[1:]:
                made = cls(made, self.build(a, dtype))
            return made
        if kind == CAST:
            return Cast(dtype, self.build(args[0], dtype_of(args[0])))
        if kind == SELECT:
            make = if_then_else if args[3] else Select
            return make(args[0], self.build(args[1], dtype), self.build(args[2], dtype))
        pair: Any = {SYMDIV: FloorDiv, SYMMOD: FloorMod, TRUNCDIV: Div, TRUNCMOD: Mod}[kind]
        return pair(self.build(args[0], dtype), self.build(args[1], dtype))  # type: ignore[no-any-return]

    def build(self, form: Lin, dtype: DataType) -> PrimExpr:
        """The sum as an expression: terms in the order they were met, the constant last."""
        terms, rest = form.terms, form.const
        if not terms:
            return number(rest, dtype)
        out: Any = None
        items = list(terms.items())
        if items[0][1] < 0:
            # A sum reads better if it starts with something positive.
            for n, (_, c) in enumerate(items):
                if c > 0:
                    items.insert(0, items.pop(n))
                    break
            else:
                if rest > 0 or items[0][1] == -1:
                    out, rest = number(rest, dtype), 0
        for a, c in items:
            part = self.expr(a)
            if out is None:
                out = part if c == 1 else Mul(part, number(c, dtype))
            elif c == 1:
                out = Add(out, part)
            elif c == -1:
                out = Sub(out, part)
            elif c > 0:
                out = Add(out, Mul(part, number(c, dtype)))
            else:
                out = Sub(out, Mul(part, number(-c, dtype)))
        if rest > 0:
            out = Add(out, number(rest, dtype))
        elif rest < 0:
            out = Sub(out, number(-rest, dtype)) if -rest <= dtype.high else Add(out, number(rest, dtype))
        return out  # type: ignore[no-any-return]


def number(value: int, dtype: DataType) -> IntImm:
    """A constant of an index type."""
    if not dtype.low <= value <= dtype.high:
        raise DoesNotFit
    return IntImm(dtype, value)


def dtype_of(e: Lin) -> DataType:
    """The type of a form, which its atoms carry."""
    for a in e.terms:
        return a.dtype
    raise AssertionError("a constant form has no type of its own")


# ---------------------------------------------------------------------------- structure
def skey(n: Any) -> Any:
    """A hashable key, equal for expressions of the same structure."""
    cls = n.__class__
    if isinstance(n, Var):
        return n
    if cls is IntImm:
        return (n.dtype, n.value)
    if cls is FloatImm:
        return (n.dtype, repr(n.value))
    if isinstance(n, (BinaryOp, CmpOp)):
        return (cls, skey(n.a), skey(n.b))
    if cls is Call and not (isinstance(n.op, Op) and n.op.effect <= CallEffectKind.ReadState):
        return object()  # two calls with effects are never the same
    out: list[Any] = [cls]
    for name, kind in field_kinds(cls):
        value = getattr(n, name)
        if kind in ("expr", "node"):
            out.append(skey(value))
        elif kind in ("exprs", "nodes"):
            out.append(tuple([skey(x) for x in value]))
        elif kind == "expr?":
            out.append(None if value is None else skey(value))
        elif isinstance(value, (str, int, float, bool)) or value is None:
            out.append(value)
        else:
            out.append(_ById(value))
    return tuple(out)


class _ById:
    """A key by identity, which keeps its object alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return other.__class__ is _ById and self.value is other.value  # type: ignore[attr-defined]


def same(a: Any, b: Any) -> bool:
    """Whether two expressions have the same structure and the same variables."""
    if a is b:
        return True
    cls = a.__class__
    if cls is not b.__class__:
        return False
    if isinstance(a, (BinaryOp, CmpOp)):
        return same(a.a, b.a) and same(a.b, b.b)
    if cls is IntImm:
        return a.value == b.value and a.dtype is b.dtype
    if isinstance(a, Var):
        return False
    if cls is Ramp:
        return a.lanes == b.lanes and same(a.base, b.base) and same(a.stride, b.stride)
    if cls is Broadcast:
        return a.lanes == b.lanes and same(a.value, b.value)
    return bool(skey(a) == skey(b))
