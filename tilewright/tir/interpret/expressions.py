"""Expressions to Python source. A vector is translated lane by lane: each lane is a scalar expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...ir import expr as E
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, Var, const_value
from ...ir.function import PrimFunc
from ...ir.node import methods_of_nodes
from . import access, scalars
from .access import Regions, View
from .facts import Facts
from .report import InterpreterError
from .source import Code, Frame, times

_DEEP = 40  # nesting at which an expression gets a function of its own: Python's parser allows about 200


@dataclass(frozen=True)
class Options:
    """The checks to make while a program runs, and the length of its scalable vectors."""

    detect_races: bool = True
    check_bounds: bool = True
    check_unwritten: bool = True
    check_regions: bool = False
    outputs: tuple[str, ...] = ()
    vscale: int = 1


class ExprTranslator:
    """The state of a translation, and its expressions."""

    def __init__(self, func: PrimFunc, options: Options) -> None:
        self.func, self.options = func, options
        self.facts = Facts(func)
        self.frame = Frame("run", [], "main")
        self.scope: dict[Var, Code] = {}
        self.views: dict[Buffer, View] = {}
        self.owners: set[Buffer] = set()
        self.room: dict[Var, int] = {}  # sizes in bytes of allocations of constant size
        self.pool: dict[str, Any] = {}  # constants that the source refers to
        self._pooled: dict[Any, str] = {}
        self.sites: list[Any] = []
        self.logged: frozenset[Var] = frozenset()  # roots whose accesses are logged here
        self.regions: list[Regions] = []
        self.marked = self._marked_params()
        self.current: Any = None
        self.lanes: list[str] = []  # lane variables in scope
        self.thread_tags: dict[Var, str] = {}
        self.reducer: Any = None
        self.in_kernel = False
        self.in_engine = False  # in the program of an accelerator's engine
        self.window_names: set[str] = set()  # Python names of pointers into the middle of a memory
        self._count = 0

    def _marked_params(self) -> set[Var]:
        """The roots of parameters that are uninitialized at the start."""
        chosen = [b for b in self.func.buffer_map.values() if b.name in self.options.outputs]
        return {self.facts.root(b.data) for b in chosen}

    def tracked(self, data: Var) -> bool:
        """Whether writes to each cell of the memory are tracked."""
        root = self.facts.root(data)
        return self.options.check_unwritten and (root in self.facts.tracked or root in self.marked)

    # -- names -------------------------------------------------------------------------------
    def fresh(self, hint: str) -> str:
        """A Python name that nothing else has."""
        self._count += 1
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in hint)
        return f"{plain}_{self._count}" if plain[:1].isalpha() else f"v{plain}_{self._count}"

    def constant(self, value: Any, key: Any = None) -> str:
        """The name by which the source refers to a Python object."""
        key = ("id", id(value)) if key is None else key
        name = self._pooled.get(key)
        if name is None:
            name = self._pooled[key] = f"K{len(self._pooled)}"
            self.pool[name] = value
        return name

    def site(self) -> int:
        """A number for the current statement, by which a report finds it."""
        if not self.sites or self.sites[-1] is not self.current:
            self.sites.append(self.current)
        return len(self.sites) - 1

    def refuse(self, what: str) -> InterpreterError:
        made = InterpreterError("unsupported", what)
        made.statement = self.current
        return made

    # -- entry points ------------------------------------------------------------------------
    def value(self, e: PrimExpr) -> Code:
        """The source of a scalar, or of the list of a vector's lanes."""
        if e.dtype.lanes == 1:
            return self.scalar(e, None)
        if isinstance(e, Var):
            return self.lookup(e)
        lane = self.fresh("l")
        self.lanes.append(lane)
        code = self.scalar(e, lane)
        self.lanes.pop()
        return Code(f"[{code.text} for {lane} in range({e.dtype.lanes})]", depth=code.depth + 1)

    def lane(self, e: PrimExpr, lane: str | None) -> Code:
        """The source of the lane numbered `lane` of a vector; a scalar has no lanes and is itself."""
        return self.scalar(e, lane if e.dtype.lanes > 1 else None)

    def scalar(self, e: PrimExpr, lane: str | None) -> Code:
        handler = _HANDLERS.get(e.__class__.__name__)
        if handler is None:
            raise self.refuse(
                f"`{e}` is a {type(e).__name__}, which has no meaning in a loop program; "
                "te.create_prim_func turns tensor expressions into one"
            )
        code = handler(self, e, lane)
        return self._outlined(code) if code.depth > _DEEP else code

    def _outlined(self, code: Code) -> Code:
        """The expression as a call of a function of its own, so that the source does not nest too deep."""
        frame = Frame(self.fresh("value"), self.lanes, "value")
        frame.generator = "(yield" in code.text
        frame.outer_lets = list(self.frame.lets)
        frame.lines.append((1, f"return {code.text}", self.record()))
        self.frame.defs.append(frame)
        call = f"{frame.name}({', '.join(self.lanes)})"
        return Code(f"(yield from {call})" if frame.generator else call, code.lo, code.hi)

    def record(self) -> Any:
        """What a report needs of the current line."""
        return (self.current, None)

    def lookup(self, v: Var) -> Code:
        code = self.scope.get(v)
        if code is None:
            raise self.refuse(f"variable {v.name} is used outside of its definition")
        return code

    # -- integers ----------------------------------------------------------------------------
    def fit(self, kind: DataType, text: str, lo: int, hi: int, depth: int = 0) -> Code:
        """An integer result, wrapped if its range leaves that of the type."""
        if kind.low <= lo and hi <= kind.high:
            return Code(text, lo, hi, depth)
        return Code(scalars.wrapped(kind, text), int(kind.low), int(kind.high), depth + 1)

    def full(self, kind: DataType, text: str, depth: int = 0) -> Code:
        """A value of which only the type is known."""
        if kind.is_integral:
            return Code(text, int(kind.low), int(kind.high), depth)
        return Code(text, depth=depth)

    def rounded(self, kind: DataType, text: str, depth: int = 0) -> Code:
        """A double, rounded to a float type."""
        one = kind.element
        if one == "float64":
            return Code(text, depth=depth)
        name = self.constant(
            scalars.numpy_type(one).type if one in ("float32", "float16") else scalars.rounding(one),
            ("round", one),
        )
        return Code(f"{name}({text})", depth=depth + 1)

    # -- memory ------------------------------------------------------------------------------
    def pointer(self, data: Var) -> str:
        return self.lookup(data).text

    def view_of(self, b: Buffer) -> View:
        """The view of a buffer here."""
        held = self.views.get(b)
        if held is not None:
            return held
        extents = [self.value(d) for d in b.shape]
        strides: list[int | str] = []
        if b.strides:
            strides = [self.number(s) for s in b.strides]
        else:
            size: int | str = 1
            for d in reversed(b.shape):
                strides.append(size)
                size = times(size, self.number(d))
            strides.reverse()
        offset = self.number(b.elem_offset)
        owner = b in self.owners or self._fits(b, offset)
        return View(self.pointer(b.data), offset, strides, [Code("0", 0, 0)] * len(extents), extents, owner)

    def number(self, e: PrimExpr) -> int | str:
        """A constant as a Python number, else the source of it."""
        known = const_value(e)
        return int(known) if known is not None else self.value(e).text

    def _fits(self, b: Buffer, offset: int | str) -> bool:
        """Whether a dense buffer is provably within its allocation."""
        shape, room = b.const_shape(), self.room.get(b.data)
        if shape is None or room is None or b.strides or not isinstance(offset, int) or offset < 0:
            return False
        size = 1
        for n in shape:
            size *= n
        return (offset + size) * b.dtype.nbytes <= room

    def load(self, e: E.BufferLoad, lane: str | None) -> Code:
        b = e.buffer
        indices, sub = self.lane_indices(b, e.indices, lane)
        kind = b.dtype.element
        text = access.locate(self, b, indices, sub, write=False).loaded()
        if kind.is_integral and kind.bits < 8:
            text = f"int({text})"
        depth = 3 + max([i.depth for i in indices], default=0)
        if e.predicate is not None:
            mask, zero = self.lane(e.predicate, lane), self.scalar(E.const(0, kind), None)
            text, depth = f"({text} if {mask.text} else {zero.text})", depth + mask.depth
        return self.full(kind, text, depth)

    expr_BufferLoad = load

    def lane_indices(
        self, b: Buffer, indices: tuple[PrimExpr, ...], lane: str | None
    ) -> tuple[list[Code], str | None]:
        """The indices of one lane; for a buffer of vectors also the lane within the element."""
        own = b.dtype.lanes
        outer, sub = lane, None
        if own > 1 and lane is not None:
            sub = f"{lane} % {own}"
            outer = f"({lane} // {own})"
        return [self.lane(i, outer) for i in indices], sub

    # -- leaves ------------------------------------------------------------------------------
    def expr_Var(self, e: Var, lane: str | None) -> Code:
        code = self.lookup(e)
        return code if lane is None else self.full(e.dtype.element, f"{code.text}[{lane}]", 1)

    expr_SizeVar = expr_Var

    def expr_IntImm(self, e: E.IntImm, lane: str | None) -> Code:
        if e.dtype.is_bool:
            return Code("True" if e.value else "False")
        value = scalars.wrap_to(e.dtype, e.value) if e.dtype.is_integral else e.value
        if e.dtype.is_handle:
            return Code("None" if value == 0 else str(value))
        return Code(str(value) if value >= 0 else f"({value})", value, value)

    def expr_FloatImm(self, e: E.FloatImm, lane: str | None) -> Code:
        value = scalars.rounding(e.dtype)(e.value)
        return Code(self.constant(value, ("float", e.dtype, repr(float(value)))))

    def expr_StringImm(self, e: E.StringImm, lane: str | None) -> Code:
        return Code(repr(e.value))

    # -- operators ---------------------------------------------------------------------------
    def _operands(self, e: Any, lane: str | None) -> tuple[Code, Code, int]:
        a, b = self.lane(e.a, lane), self.lane(e.b, lane)
        return a, b, 1 + max(a.depth, b.depth)

    def expr_Add(self, e: E.BinaryOp, lane: str | None) -> Code:
        a, b, depth = self._operands(e, lane)
        kind, sign = e.dtype.element, {E.Add: "+", E.Sub: "-", E.Mul: "*"}[type(e)]
        text = f"({a.text} {sign} {b.text})"
        if kind.is_bool:
            return Code(f"bool({a.text} {'^' if sign == '-' else sign} {b.text})", depth=depth)
        if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
            return Code(text, depth=depth)
        if sign == "+":
            return self.fit(kind, text, a.lo + b.lo, a.hi + b.hi, depth)
        if sign == "-":
            return self.fit(kind, text, a.lo - b.hi, a.hi - b.lo, depth)
        corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return self.fit(kind, text, min(corners), max(corners), depth)

    expr_Sub = expr_Mul = expr_Add

    def expr_Div(self, e: E.BinaryOp, lane: str | None) -> Code:
        a, b, depth = self._operands(e, lane)
        kind = e.dtype.element
        if kind.is_float:
            return self._float_div(type(e), kind, a, b, depth)
        if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
            raise self.refuse(f"`{e}` divides values of type {e.dtype}")
        natural, sure = a.lo >= 0 and b.lo >= 0, b.lo > 0 or b.hi < 0
        if isinstance(e, (E.FloorDiv, E.Div)):
            if isinstance(e, E.FloorDiv) or natural:
                text = f"({a.text} // {b.text})" if sure else f"floor_div({a.text}, {b.text})"
            else:
                text = f"trunc_div({a.text}, {b.text})"
            if b.lo > 0:
                corners = [x // y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
                return self.fit(kind, text, min(corners), max(max(corners), 0), depth)
            # the quotient is no greater than the dividend, but the least value over -1 does not fit
            most = max(abs(a.lo), abs(a.hi))
            return self.fit(kind, text, -most - 1 if a.lo >= 0 else -most, most, depth)
        if isinstance(e, E.FloorMod) or natural:
            text = f"({a.text} % {b.text})" if sure else f"floor_mod({a.text}, {b.text})"
            return self.fit(kind, text, min(0, b.lo + 1), max(0, b.hi - 1), depth)
        most = max(abs(b.lo), abs(b.hi)) - 1
        return self.fit(kind, f"trunc_mod({a.text}, {b.text})", max(-most, min(a.lo, 0)), most, depth)

    expr_Mod = expr_FloorDiv = expr_FloorMod = expr_Div

    def _float_div(self, cls: type, kind: DataType, a: Code, b: Code, depth: int) -> Code:
        quotient = f"divide({a.text}, {b.text})" if kind.bits == 64 else f"({a.text} / {b.text})"
        if cls is E.Div:
            return Code(quotient, depth=depth)
        if cls is E.Mod:
            return self.rounded(kind, f"F_fmod({a.text}, {b.text})", depth)
        floor = self.rounded(kind, f"F_floor({quotient})", depth)
        if cls is E.FloorDiv:
            return floor
        return Code(f"({a.text} - {floor.text} * {b.text})", depth=depth + 1)

    def expr_Min(self, e: E.BinaryOp, lane: str | None) -> Code:
        a, b, depth = self._operands(e, lane)
        least = isinstance(e, E.Min)
        if e.dtype.element.is_bool:
            return Code(f"({a.text} {'and' if least else 'or'} {b.text})", depth=depth)
        first, x = self.named(a)
        second, y = self.named(b)
        sign = "<=" if least else ">="
        nan = f" or {x} != {x}" if e.dtype.is_float else ""
        text = f"({x} if {first} {sign} {second}{nan} else {y})"
        if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
            return Code(text, depth=depth)
        choose = min if least else max
        return Code(text, choose(a.lo, b.lo), choose(a.hi, b.hi), depth)

    expr_Max = expr_Min

    def named(self, code: Code) -> tuple[str, str]:
        """The source for the first use of a value and for the later ones."""
        if code.atom:
            return code.text, code.text
        name = self.fresh("t")
        return f"({name} := {code.text})", name

    def expr_EQ(self, e: E.CmpOp, lane: str | None) -> Code:
        a, b, depth = self._operands(e, lane)
        sign = _COMPARE[type(e)]
        return Code(f"({a.text} {sign} {b.text})", depth=depth)

    expr_NE = expr_LT = expr_LE = expr_GT = expr_GE = expr_EQ

    def expr_And(self, e: E.BinaryOp, lane: str | None) -> Code:
        a, b, depth = self._operands(e, lane)
        return Code(f"({a.text} {'and' if isinstance(e, E.And) else 'or'} {b.text})", depth=depth)

    expr_Or = expr_And

    def expr_Not(self, e: E.Not, lane: str | None) -> Code:
        a = self.lane(e.a, lane)
        return Code(f"(not {a.text})", depth=a.depth + 1)

    def expr_Cast(self, e: E.Cast, lane: str | None) -> Code:
        v = self.lane(e.value, lane)
        return self.converted(v, e.value.dtype.element, e.dtype.element)

    def converted(self, v: Code, source: DataType, target: DataType) -> Code:
        """A value of one type as another: integers wrap, floats lose their fraction or are rounded."""
        depth = v.depth + 1
        if source is target or target.is_handle:
            return v
        if source.is_handle:
            raise self.refuse(f"a handle converted to {target}")
        if target.is_bool:
            return Code(f"({v.text} != 0)", depth=depth)
        if target.is_integral:
            if source.is_bool:
                return Code(f"int({v.text})", 0, 1, depth)
            if source.is_float:
                return self.full(target, f"float_to_int({v.text}, {target.low}, {target.high})", depth)
            assert v.lo is not None and v.hi is not None
            return self.fit(target, v.text, v.lo, v.hi, depth)
        text = f"int({v.text})" if source.is_bool else v.text
        if target == "float64":
            return Code(f"float({text})", depth=depth)
        small = v.lo is None or v.hi is None or (v.lo >= -(1 << 53) and v.hi <= 1 << 53)
        if small:
            return self.rounded(target, text, depth)
        return Code(f"{self.constant(scalars.rounding(target), ('wide', target))}({text})", depth=depth)

    # -- choice and binding ------------------------------------------------------------------
    def choice(self, condition: PrimExpr, yes: PrimExpr, no: PrimExpr, lane: str | None) -> Code:
        """One of two values; the other is not evaluated."""
        c, a, b = self.lane(condition, lane), self.lane(yes, lane), self.lane(no, lane)
        depth = 1 + max(a.depth, b.depth, c.depth)
        text = f"({a.text} if {c.text} else {b.text})"
        if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
            return Code(text, depth=depth)
        return Code(text, min(a.lo, b.lo), max(a.hi, b.hi), depth)

    def expr_Select(self, e: E.Select, lane: str | None) -> Code:
        return self.choice(e.condition, e.true_value, e.false_value, lane)

    def expr_Let(self, e: E.Let, lane: str | None) -> Code:
        value = self.value(e.value)
        name = self.fresh(e.var.name)
        self.frame.lets.append(name)
        before = self.scope.get(e.var)
        self.scope[e.var] = Code(name, value.lo, value.hi)
        body = self.lane(e.body, lane)
        if before is None:
            del self.scope[e.var]
        else:
            self.scope[e.var] = before
        text = f"(({name} := {value.text}), {body.text})[1]"
        return Code(text, body.lo, body.hi, 2 + max(value.depth, body.depth))

    # -- vectors -----------------------------------------------------------------------------
    def expr_Ramp(self, e: E.Ramp, lane: str | None) -> Code:
        self._check_lanes(e)
        inner = e.base.dtype.lanes
        outer, within = (lane, None) if inner == 1 else (f"({lane} // {inner})", f"({lane} % {inner})")
        base, stride = self.lane(e.base, within), self.lane(e.stride, within)
        kind, depth = e.dtype.element, 2 + max(base.depth, stride.depth)
        text = f"({base.text} + {stride.text} * {outer})"
        if base.lo is None or base.hi is None or stride.lo is None or stride.hi is None:
            raise self.refuse(f"`{e}` is a ramp of {kind}")
        steps = [s * n for s in (stride.lo, stride.hi) for n in (0, e.lanes - 1)]
        return self.fit(kind, text, base.lo + min(steps), base.hi + max(steps), depth)

    def _check_lanes(self, e: E.PrimExpr) -> None:
        if e.dtype.is_scalable:
            raise self.refuse(f"`{e}` is a scalable vector, whose length only the hardware knows")

    def expr_Broadcast(self, e: E.Broadcast, lane: str | None) -> Code:
        self._check_lanes(e)
        inner = e.value.dtype.lanes
        return self.scalar(e.value, None if inner == 1 else f"({lane} % {inner})")

    def expr_Shuffle(self, e: E.Shuffle, lane: str | None) -> Code:
        parts = []
        for v in e.vectors:
            code = self.value(v).text
            parts.append(f"[{code}]" if v.dtype.lanes == 1 else code)
        picks = [self.value(i).text for i in e.indices]
        index = picks[0] if lane is None else f"({', '.join(picks)},)[{lane}]"
        return self.full(e.dtype.element, f"({' + '.join(parts)})[{index}]", 3)

    def expr_Call(self, e: E.Call, lane: str | None) -> Code:
        from .calls import translate_call

        return translate_call(self, e, lane)


_COMPARE = {E.EQ: "==", E.NE: "!=", E.LT: "<", E.LE: "<=", E.GT: ">", E.GE: ">="}


_HANDLERS: Final = methods_of_nodes(ExprTranslator, "expr_")
