"""From expressions to forms and back: the simplifier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import gcd
from typing import Any, ClassVar

from ..ir import ops
from ..ir.dtype import BOOL, FLOAT16, FLOAT32, FLOAT64, DataType
from ..ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    ProducerLoad,
    Reduce,
    Select,
    SizeVar,
    Sub,
    Var,
)
from ..ir.functor import pre_order, substitute
from ..ir.op import Op
from ..ir.ops import BINARY, cast, if_then_else
from .bounds import divided, times, truncated_mod
from .facts import BIG, Interval, Residue
from .form import (
    CAST,
    MAX,
    MIN,
    VAR,
    Atom,
    DoesNotFit,
    Lin,
    constant,
    dtype_of,
    expr_vars,
    is_index,
    of_atom,
    same,
)
from .logic import FALSE, TRUE, Logic

_ITE = "tir.if_then_else"


def _callee(e: Any) -> str:
    return e.op.name if isinstance(e.op, Op) else ""


def _reads(e: PrimExpr) -> bool:
    """Whether an operand of `select` reads memory at computed indices, or checks data.

    Both operands are evaluated for any condition, so an index may not become one that is legal only under it:
    `select(i < 0, 0, A[max(i, 0)])` is not `select(i < 0, 0, A[i])`.
    """
    for m in pre_order(e):
        if m.__class__ in (BufferLoad, ProducerLoad):
            if not all(i.__class__ is IntImm for i in m.indices):
                return True
        elif m.__class__ is Call and _callee(m) == "tir.checked":
            return True
    return False


def _is_checked_index(e: Any) -> bool:
    """Whether an expression is an index that the program checks; the last argument is the greatest that passes."""
    return isinstance(e, Call) and _callee(e) == "tir.checked" and getattr(e.args[2], "value", "") == "index"


class Normalizer(Logic):
    """Normal forms of expressions."""

    _leaves: ClassVar[dict[type, Callable[[Any, Any], Lin]]] = {}
    _others: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {}

    # -- integers --------------------------------------------------------------------------
    def norm(self, e: PrimExpr) -> Lin:
        """The normal form of an index expression."""
        cls = e.__class__
        if cls is IntImm:
            return Lin({}, e.value)  # type: ignore[attr-defined]
        if cls is Var or cls is SizeVar:
            return self._var_cache.get(e) or self._var(e)  # type: ignore[call-overload, arg-type]
        if cls is not Add and cls is not Sub and cls is not Mul:
            return self._leaf(e)
        terms: dict[Atom, int] = {}
        const = self._collect(e, 1, terms)
        return self.finish(terms, const)

    def _var(self, v: Var) -> Lin:
        made = self.values.get(v)
        if made is None:
            a = self.forms.var(v)
            low, high = self.atom_bound(a)
            made = constant(low) if low == high else of_atom(a)
        self._var_cache[v] = made
        return made

    def _collect(self, e: Any, k: int, terms: dict[Atom, int]) -> int:
        """Add k times the expression to the terms; returns its constant part."""
        cls = e.__class__
        if cls is Add:
            return self._collect(e.a, k, terms) + self._collect(e.b, k, terms)
        if cls is IntImm:
            return k * e.value  # type: ignore[no-any-return]
        if cls is Mul:
            a, b = e.a, e.b
            if b.__class__ is IntImm:
                return self._collect(a, k * b.value, terms) if b.value else 0
            if a.__class__ is IntImm:
                return self._collect(b, k * a.value, terms) if a.value else 0
            form = self.mul(self.norm(a), self.norm(b))
        elif cls is Sub:
            return self._collect(e.a, k, terms) + self._collect(e.b, -k, terms)
        elif cls is Var or cls is SizeVar:
            form = self._var_cache.get(e) or self._var(e)
        else:
            form = self._leaf(e)
        for a, c in form.terms.items():
            made = terms.get(a, 0) + c * k
            if made:
                terms[a] = made
            else:
                del terms[a]
        return form.const * k

    def _leaf(self, e: Any) -> Lin:
        found = self._memo.get(id(e))
        if found is not None:
            return found[1]
        handler = self._leaves.get(e.__class__)
        made = self._opaque(e) if handler is None else handler(self, e)
        if len(made.terms) == 1:
            # An atom with only one possible value is that value.
            ((a, c),) = made.terms.items()
            if a.kind != VAR:
                low, high = self.atom_bound(a)
                if low == high:
                    made = constant(made.const + c * low)
        self._memo[id(e)] = (e, made)
        return made

    def _opaque(self, e: PrimExpr) -> Lin:
        made = self.simp_children(e)
        if made is not e:
            if made.__class__ is IntImm:
                return constant(made.value)
            if made.__class__ is not e.__class__:
                return self.norm(made)
        return of_atom(self.forms.opaque(made))

    def _divmod(self, e: Any) -> Lin:
        cls = e.__class__
        b = self.norm(e.b)
        if not b.terms and b.const == 0:
            return of_atom(self.forms.opaque(e))  # division by zero stays as it was written
        a = self.norm(e.a)
        if self._as_written(e, a, b):
            return self._opaque(e)
        if cls is FloorDiv:
            return self.div(a, b)
        if cls is FloorMod:
            return self.mod(a, b)
        return self.truncdiv(a, b) if cls is Div else self.truncmod(a, b)

    def _as_written(self, e: Any, a: Lin, b: Lin) -> bool:
        """Whether a quotient or remainder has values that the laws of algebra do not give.

        A divisor that is data, or a loop's variable, may be 0: x // 0 is 0, and so x // x is not always 1. Data wrap
        around: x * 4 // 4 is not always x. And x // -3 is not -x // 3 where -x does not fit the type.
        """
        if any(atom.reads for atom in a.terms):
            low, high = self.bound(a)
            if low < e.dtype.low or high > e.dtype.high:
                return True
        if not b.terms:
            return b.const < -1 and e.__class__ in (FloorDiv, FloorMod) and self.bound(a)[0] <= e.dtype.low
        if any(atom.reads for atom in b.terms):
            return True
        only = b.single()
        known = None if only is None or only.kind != VAR else self.bounds.get(only)
        # A size has no upper bound but that of its type.
        return known is not None and known[0] <= 0 <= known[1] < min(int(e.dtype.high), BIG)

    def _extreme(self, e: Any) -> Lin:
        kind = MIN if e.__class__ is Min else MAX
        a, b = self.norm(e.a), self.norm(e.b)
        if kind == MIN:
            # An index that was checked is at most the last one, which may be known at run time only.
            for index, form, other in ((e.a, a, b), (e.b, b, a)):
                if _is_checked_index(index) and self.norm(index.args[-1]).key == other.key:
                    return form
        return self.extreme(kind, [a, b])

    def _select(self, e: Any) -> Lin:
        return self._choice(e.condition, e.true_value, e.false_value, False)

    def _choice(self, condition: PrimExpr, yes: PrimExpr, no: PrimExpr, lazy: bool) -> Lin:
        c = self.simp(condition)
        if c.__class__ is IntImm:
            return self.norm(yes if c.value else no)
        with self.assuming(c) if lazy or not _reads(yes) else nullcontext():
            a = self.norm(yes)
        with self.assuming(c, False) if lazy or not _reads(no) else nullcontext():
            b = self.norm(no)
        if a.key == b.key:
            return a
        return of_atom(self.forms.select(c, a, b, yes.dtype, lazy))

    def _cast(self, e: Any) -> Lin:
        value, dtype = e.value, e.dtype
        if not is_index(value.dtype):
            return self._opaque_cast(e)
        form = self.norm(value)
        if not form.terms:
            made = cast(dtype, IntImm(value.dtype, form.const)) if self._fits(form, value.dtype) else None
            return constant(made.value) if isinstance(made, IntImm) else of_atom(self.forms.opaque(e))
        if value.dtype is dtype:
            return form
        a = form.single()
        if (
            a is not None
            and a.kind == CAST
            and dtype_of(a.args[0]) is dtype
            and dtype.bits < value.dtype.bits
        ):
            return a.args[0]  # type: ignore[no-any-return]
        return of_atom(self.forms.cast(dtype, form))

    @staticmethod
    def _fits(form: Lin, dtype: DataType) -> bool:
        return dtype.low <= form.const <= dtype.high

    def _opaque_cast(self, e: Any) -> Lin:
        value = self.simp(e.value)
        made = cast(e.dtype, value)
        if made.__class__ is IntImm:
            return constant(made.value)  # type: ignore[attr-defined]
        if made.__class__ is not Cast:
            return self.norm(made)
        return of_atom(self.forms.opaque(e if value is e.value else made))

    def _call(self, e: Any) -> Lin:
        name = _callee(e)
        if name == _ITE:
            return self._choice(e.args[0], e.args[1], e.args[2], True)
        if name == "tir.likely":
            return self.norm(e.args[0])
        made = _folded_call(self.simp_children(e)) if name in _FOLDED_CALLS else None
        return self._opaque(e) if made is None else constant(made)

    def _reduction(self, e: Any) -> Lin:
        return of_atom(self.forms.opaque(self.simp_reduce(e)))

    def _let(self, e: Any) -> Lin:
        made = self.simp_let(e)
        return of_atom(self.forms.opaque(made)) if made.__class__ is Let else self.norm(made)

    # -- everything else -------------------------------------------------------------------
    def simp(self, e: Any) -> Any:
        """The simplified expression; the same object if there was nothing to do."""
        cls = e.__class__
        if cls is IntImm or cls is FloatImm:
            return e
        if isinstance(e, PrimExpr) and is_index(e.dtype):
            return self._simp_index(e)
        handler = self._others.get(cls)
        if handler is not None:
            return handler(self, e)
        if self.truths and isinstance(e, PrimExpr) and e.dtype is BOOL:
            return self.simp_truth(e)
        return self.simp_children(e)

    def _simp_index(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Var) and e not in self.values:
            return e  # also where a condition leaves it one value: its name says more
        try:
            made = self.forms.build(self.norm(e), e.dtype)
        except DoesNotFit:
            return e.map_children(self.simp)
        return e if same(made, e) else made

    def simp_children(self, e: Any) -> Any:
        """The node with its children simplified, and folded if they became constants."""
        made = e.map_children(self.simp)
        if isinstance(made, BinaryOp):
            fold = BINARY.get(made.__class__)
            if fold is not None and not (made.b.__class__ is IntImm and made.b.value == 0):
                folded = fold(made.a, made.b)
                if folded.__class__ is not made.__class__:
                    return folded
        return made

    def simp_let(self, e: Any) -> PrimExpr:
        value = self.simp(e.value)
        if value.__class__ in (IntImm, FloatImm) or isinstance(value, Var):
            return self.simp(substitute(e.body, {e.var: value}))  # type: ignore[no-any-return]
        with self.scope():
            if is_index(e.var.dtype):
                low, high = self.bound(self.norm(value))
                self._set(self.bounds, self.forms.var(e.var), (low, high))
            body = self.simp(e.body)
        if e.var not in expr_vars(body):
            return body  # type: ignore[no-any-return]
        return e if value is e.value and body is e.body else Let(e.var, value, body)

    def simp_select(self, e: Any) -> PrimExpr:
        return self._simp_choice(e, (e.condition, e.true_value, e.false_value), Select, _reads)

    def _simp_ite(self, e: Any) -> PrimExpr:
        return self._simp_choice(e, e.args, if_then_else, lambda value: False)

    def _simp_choice(
        self, e: Any, parts: Any, make: Callable[..., PrimExpr], always: Callable[[Any], bool]
    ) -> PrimExpr:
        """A choice of two values by a condition; a value is evaluated in any case where `always` holds for it."""
        given, yes, no = parts
        condition = self.simp(given)
        if condition.__class__ is IntImm:
            return self.simp(yes if condition.value else no)  # type: ignore[no-any-return]
        with nullcontext() if always(yes) else self.assuming(condition):
            a = self.simp(yes)
        with nullcontext() if always(no) else self.assuming(condition, False):
            b = self.simp(no)
        if same(a, b):
            return a  # type: ignore[no-any-return]
        if condition is given and a is yes and b is no:
            return e  # type: ignore[no-any-return]
        return make(condition, a, b)

    def simp_call(self, e: Any) -> PrimExpr:
        name = _callee(e)
        if name == _ITE and e.args[0].dtype.lanes == 1:
            return self._simp_ite(e)
        made = e.map_children(self.simp)
        if name == "tir.likely" and made.args[0].__class__ is IntImm:
            return made.args[0]  # type: ignore[no-any-return]
        if e.dtype.is_bool and e.dtype.lanes == 1:
            known = self._known_truth(made)
            return made if known is None else known
        return made  # type: ignore[no-any-return]

    def simp_cast(self, e: Any) -> PrimExpr:
        value = self.simp(e.value)
        if value is not e.value or value.__class__ in (IntImm, FloatImm, Broadcast):
            made = cast(e.dtype, value)
            return e if same(made, e) else made
        return e  # type: ignore[no-any-return]

    def simp_reduce(self, e: Any) -> PrimExpr:
        with self.scope():
            for iv in e.axis:
                if iv.dom is not None and is_index(iv.var.dtype):
                    self.bind_range(iv.var, iv.dom)
            return e.map_children(self.simp)  # type: ignore[no-any-return]

    def bind_range(self, var: Var, dom: Any) -> None:
        raise NotImplementedError

    def simp_truth(self, e: Any) -> PrimExpr:
        """A boolean value that is opaque to further analysis."""
        made = self.simp_children(e)
        known = self._known_truth(made)
        return made if known is None else known

    def simp_arith(self, e: Any) -> PrimExpr:
        """Arithmetic on floats and on integers that wrap around: only rewrites that are exact in every case."""
        made: Any = self.simp_children(e)
        cls = made.__class__
        if cls is not e.__class__:
            return made  # type: ignore[no-any-return]
        a, b = made.a, made.b
        if cls is Min or cls is Max:
            if same(a, b):
                return a  # type: ignore[no-any-return]
            return self._ordered_extreme(made)
        if a.dtype.is_float:
            one = b.value if b.__class__ is FloatImm else None
            if one == 1.0 and (cls is Mul or cls is Div):
                return a  # type: ignore[no-any-return]
            if cls is Mul and a.__class__ is FloatImm and a.value == 1.0:
                return b  # type: ignore[no-any-return]
            return made  # type: ignore[no-any-return]
        if a.dtype.is_integral and a.dtype.lanes == 1:
            if cls is Sub and same(a, b):
                return IntImm(a.dtype, 0)
            return self._wrapping_divmod(made)
        return made  # type: ignore[no-any-return]

    def _ordered_extreme(self, e: Any) -> PrimExpr:
        if e.dtype.is_integral and e.dtype.lanes == 1:
            x, y = self.value_bound(e.a), self.value_bound(e.b)
            least = e.a if x[1] <= y[0] else e.b if y[1] <= x[0] else None
            if least is not None:
                return least if (e.__class__ is Min) else (e.b if least is e.a else e.a)  # type: ignore[no-any-return]
        return e  # type: ignore[no-any-return]

    def _wrapping_divmod(self, e: Any) -> PrimExpr:
        if e.__class__ in (FloorDiv, FloorMod, Div, Mod) and e.b.__class__ is IntImm and e.b.value > 0:
            low, high = self.value_bound(e.a)
            if low >= 0 and high < e.b.value:
                return IntImm(e.dtype, 0) if e.__class__ in (FloorDiv, Div) else e.a
            if e.b.value == 1 and e.__class__ in (FloorMod, Mod):
                return IntImm(e.dtype, 0)
        return e  # type: ignore[no-any-return]

    def simp_other_comparison(self, e: Any) -> PrimExpr:
        made: Any = e.map_children(self.simp)
        a, b = made.a, made.b
        cls = made.__class__
        if a.dtype.lanes == 1:
            if a.__class__ is IntImm and b.__class__ is IntImm:
                return BINARY[cls](a, b)
            if a.dtype.is_integral:
                x, y = self.value_bound(a), self.value_bound(b)
                truth = _ordered(cls, x, y)
                if truth is None and same(a, b):
                    truth = cls in (LE, GE, EQ)
                if truth is not None:
                    return TRUE if truth else FALSE
            if a.dtype.is_bool and cls in (EQ, NE):
                for x, y in ((a, b), (b, a)):
                    if x.__class__ is IntImm:
                        keep = bool(x.value) == (cls is EQ)
                        return y if keep else self.simp(Not(y))  # type: ignore[no-any-return]
                if same(a, b):
                    return TRUE if cls is EQ else FALSE
            known = self._known_truth(made)
            if known is not None:
                return known
        return made  # type: ignore[no-any-return]

    # -- bounds of values that are not indices ---------------------------------------------
    def value_bound(self, e: Any) -> Interval:
        """The bounds of any integer expression; those of its type if it may wrap around."""
        if is_index(e.dtype):
            return self.bound(self.norm(e))
        whole = (int(e.dtype.low), int(e.dtype.high)) if not e.dtype.is_float else (-BIG, BIG)
        if e.dtype.is_float or e.dtype.is_handle:
            return (-BIG, BIG)
        cls = e.__class__
        if cls is IntImm:
            return (e.value, e.value)
        if isinstance(e, Var):
            low, high = self.bounds.get(self.forms.var(e), whole)
            return (max(low, whole[0]), min(high, whole[1]))
        if isinstance(e, BinaryOp) and e.dtype.is_integral and cls in _RANGES:
            out = _RANGES[cls](self.value_bound(e.a), self.value_bound(e.b))
            return out if whole[0] <= out[0] and out[1] <= whole[1] else whole
        if cls is Broadcast:
            return self.value_bound(e.value)
        if cls is Cast and (e.value.dtype.is_integral or e.value.dtype.is_bool):
            out = self.value_bound(e.value)
            return out if whole[0] <= out[0] and out[1] <= whole[1] else whole
        low, high = self._opaque_bound(e)
        return (max(low, whole[0]), min(high, whole[1]))

    def _opaque_bound(self, e: Any) -> Interval:
        cls = e.__class__
        if cls is Call:
            name = _callee(e)
            if name == _ITE:
                return _union(self.value_bound(e.args[1]), self.value_bound(e.args[2]))
            if name in _BITS and e.dtype.is_integral:
                return _BITS[name](*[self.value_bound(x) for x in e.args])
            if name == "tir.shift_left" and e.dtype.is_integral:
                low, high = _shifted_left(*[self.value_bound(x) for x in e.args])
                return (low, high) if high <= e.dtype.high else (-BIG, BIG)
            if name == "tir.abs" and e.dtype.is_int:
                low, high = self.value_bound(e.args[0])
                return (max(low, -high, 0), max(-low, high))
            if name == "tir.vscale":
                return (1, ops.LARGEST_VSCALE)
            if name in ("tir.popcount", "tir.clz"):
                return (0, int(e.args[0].dtype.bits))
            if _is_checked_index(e):
                return (0, max(self.value_bound(e.args[-1])[1], 0))
        elif cls is Cast and (e.value.dtype.is_integral or e.value.dtype.is_bool):
            low, high = self.value_bound(e.value)
            if e.dtype.low <= low and high <= e.dtype.high:
                return (low, high)
        elif cls is Cast and e.value.__class__ is Cast and e.value.value.dtype.is_integral:
            low, high = self.value_bound(e.value.value)  # through a float, which holds small integers exactly
            exact = 1 << _EXACT_BITS.get(e.value.dtype, 0)
            if max(-exact, e.dtype.low) <= low and high <= min(exact, e.dtype.high):
                return (low, high)
        elif cls is Cast and e.value.__class__ is Call:
            return self._bound_of_ceil_log2(e.value)
        elif cls is Select:
            return _union(self.value_bound(e.true_value), self.value_bound(e.false_value))
        elif cls is Let:
            with self.scope():
                if e.var.dtype.is_integral:
                    self._set(self.bounds, self.forms.var(e.var), self.value_bound(e.value))
                return self.value_bound(e.body)
        elif cls in _RANGES and cls is not Mul:
            return _RANGES[cls](self.value_bound(e.a), self.value_bound(e.b))
        elif cls is Mul:
            return times(self.value_bound(e.a), self.value_bound(e.b))
        return (-BIG, BIG)

    def _bound_of_ceil_log2(self, e: Any) -> Interval:
        """The bounds of `ceil(log2(float64(x)))`, for numbers x that are small enough for it to be exact."""
        inner: Any = e.args[0] if _callee(e) == "tir.ceil" else None
        if inner.__class__ is Call and _callee(inner) == "tir.log2" and inner.dtype == "float64":
            x = inner.args[0]
            low, high = 0, 0
            if x.__class__ is FloatImm and x.value == x.value // 1:
                low = high = int(x.value)
            elif x.__class__ is Cast and x.value.dtype.is_integral:
                low, high = self.value_bound(x.value)
            if low >= 1 and high < 1 << 32:
                return ((low - 1).bit_length(), (high - 1).bit_length())
        return (-BIG, BIG)

    def _opaque_residue(self, e: Any) -> Residue:
        if e.__class__ is Call:
            name = _callee(e)
            if name == "tir.shift_left" and e.args[1].__class__ is IntImm and 0 <= e.args[1].value < 31:
                c, b = self.residue(self.norm(e.args[0]))
                step = 1 << e.args[1].value
                return (c * step, b * step)
            if name == "tir.bitwise_and" and e.args[1].__class__ is IntImm and is_index(e.dtype):
                # x & 31 is x % 32, also of a negative number
                size = e.args[1].value + 1
                if size > 0 and size & e.args[1].value == 0:
                    c, b = self.residue(self.norm(e.args[0]))
                    c = gcd(c, size)
                    return (c, b % c) if c else (0, b % size)
        elif e.__class__ is Let and is_index(e.var.dtype):
            with self.scope():
                self._set(self.values, e.var, self.norm(e.value))
                return self.residue(self.norm(e.body))
        return (1, 0)


def _folded_call(e: Any) -> int | None:
    """The value of an operation on bits whose operands are constants."""
    values = [x.value for x in e.args if x.__class__ is IntImm]
    if len(values) != len(e.args) or e.dtype.lanes != 1:
        return None
    name = _callee(e)
    if name.startswith("tir.shift") and not 0 <= values[1] < e.dtype.bits:
        return None
    made = _FOLDED_CALLS[name](*e.args)
    return made.value if made.__class__ is IntImm else None  # type: ignore[no-any-return]


def _union(x: Interval, y: Interval) -> Interval:
    return (min(x[0], y[0]), max(x[1], y[1]))


def _ordered(cls: type, x: Interval, y: Interval) -> bool | None:
    """The truth of a comparison of two intervals, where all pairs agree."""
    if cls is GT or cls is GE:
        x, y, cls = y, x, LT if cls is GT else LE
    if cls is LT:
        return True if x[1] < y[0] else False if x[0] >= y[1] else None
    if cls is LE:
        return True if x[1] <= y[0] else False if x[0] > y[1] else None
    apart = x[1] < y[0] or y[1] < x[0]
    if apart:
        return cls is NE
    if x[0] == x[1] == y[0] == y[1]:
        return cls is EQ
    return None


def _masked(x: Interval, y: Interval) -> Interval:
    if x[0] >= 0 and y[0] >= 0:
        return (0, min(x[1], y[1]))
    if y[0] >= 0:
        return (0, y[1])
    return (0, x[1]) if x[0] >= 0 else (-BIG, BIG)


def _shifted(x: Interval, y: Interval) -> Interval:
    if y[0] < 0 or y[1] > 64:
        return (-BIG, BIG)
    ends = [a >> b for a in x for b in y]
    return (min(ends), max(ends))


def _shifted_left(x: Interval, y: Interval) -> Interval:
    if x[0] < 0 or y[0] < 0 or y[1] > 64 or x[1] >= 1 << 64:
        return (-BIG, BIG)
    return (x[0] << y[0], x[1] << y[1])


def _crossed(x: Interval, y: Interval) -> Interval:
    if x[0] < 0 or y[0] < 0:
        return (-BIG, BIG)
    return (0, min(BIG, (1 << max(x[1], y[1]).bit_length()) - 1))


_FOLDED_CALLS: dict[str, Callable[..., Any]] = {
    "tir.bitwise_and": ops.bitwise_and,
    "tir.bitwise_or": ops.bitwise_or,
    "tir.bitwise_xor": ops.bitwise_xor,
    "tir.shift_left": ops.shift_left,
    "tir.shift_right": ops.shift_right,
    "tir.clz": ops.clz,
}
_BITS: dict[str, Callable[..., Interval]] = {
    "tir.bitwise_and": _masked,
    "tir.bitwise_xor": _crossed,
    "tir.shift_right": _shifted,
}
_EXACT_BITS = {FLOAT16: 11, FLOAT32: 24, FLOAT64: 53}  # the integers that a float type has without a gap
_RANGES: dict[type, Callable[[Interval, Interval], Interval]] = {
    Add: lambda x, y: (x[0] + y[0], x[1] + y[1]),
    Sub: lambda x, y: (x[0] - y[1], x[1] - y[0]),
    Mul: times,
    FloorDiv: lambda x, y: divided(x, y, True),
    Div: lambda x, y: divided(x, y, False),
    FloorMod: lambda x, y: Normalizer._mod_bound(x, y),
    Mod: truncated_mod,
    Min: lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    Max: lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
}

Normalizer._leaves = {
    Var: Normalizer._var,
    SizeVar: Normalizer._var,
    IntImm: lambda self, e: constant(e.value),
    FloorDiv: Normalizer._divmod,
    FloorMod: Normalizer._divmod,
    Div: Normalizer._divmod,
    Mod: Normalizer._divmod,
    Min: Normalizer._extreme,
    Max: Normalizer._extreme,
    Select: Normalizer._select,
    Cast: Normalizer._cast,
    Call: Normalizer._call,
    Let: Normalizer._let,
    Reduce: Normalizer._reduction,
}
Normalizer._others = {
    **dict.fromkeys((Add, Sub, Mul, Div, Mod, FloorDiv, FloorMod, Min, Max), Normalizer.simp_arith),
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), Normalizer.simp_comparison),
    And: Normalizer.simp_junction,
    Or: Normalizer.simp_junction,
    Not: Normalizer.simp_not,
    Select: Normalizer.simp_select,
    Call: Normalizer.simp_call,
    Cast: Normalizer.simp_cast,
    Let: Normalizer.simp_let,
    Reduce: Normalizer.simp_reduce,
}
