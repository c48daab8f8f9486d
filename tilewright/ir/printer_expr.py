"""Expressions, buffers and attribute values in the script form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from .buffer import Buffer, BufferRegion
from .dtype import BOOL, FLOAT32, HANDLE, INT32, VOID, DataType
from .expr import (
    BufferLoad,
    Call,
    Cast,
    CommReducer,
    FloatImm,
    IntImm,
    IterVar,
    IterVarType,
    Let,
    PrimExpr,
    ProducerLoad,
    Ramp,
    Range,
    Reduce,
    Select,
    Shuffle,
    StringImm,
    Var,
    const,
    const_value,
)
from .expr_text import ATOM, PYTHON_INFIX, PYTHON_NOT, ExprText, Infix, Piece, float_text, quoted
from .module import GlobalVar
from .node import Node
from .op import Op
from .ops import BINARY, is_zero, logical_not
from .printer_calls import DTYPE_FIRST, DTYPE_LAST, INFERRED, default_dtype, infers_back
from .printer_names import Names
from .printer_ranges import difference, stop_after
from .types import PointerType, PrimType, TupleType, Type

MARK_START, MARK_END = "\x01", "\x02"
_CONSTANTS = (IntImm, FloatImm)
# Python reads 200 brackets inside each other, fewer where they are calls, and recurses along chains.
_NESTED, _CHAINED = 50, 900


class ScriptExpr(ExprText):
    """The script form of expressions. Variables get a name at their first use."""

    infix: ClassVar[Mapping[type, Infix]] = PYTHON_INFIX

    def __init__(self, prefix: str = "T", target: Any = None) -> None:
        self.t = prefix
        self.names = Names()
        self.target = target
        self.i = "I"
        self.module_name = "Module"
        # what the functions of the module are called; None where no module is being written
        self.functions: dict[str, str] | None = None
        # the parts that were taken out of the line being written, as (name, text); None: all stays in one
        self.taken_out: list[tuple[str, str]] | None = None
        self._nested = self._chained = 0  # of the parts written so far of the present expression

    def piece(self, e: Any) -> Piece:
        nested, chained = self._nested, self._chained
        self._nested = self._chained = 0
        made = super().piece(e)
        self._nested += made.level == ATOM and made.text[-1:] in (")", "]")
        self._chained += 1
        if self._nested > _NESTED or self._chained > _CHAINED:
            made = self._take_out(made)
        self._nested, self._chained = max(nested, self._nested), max(chained, self._chained)
        return made if e is not self.target else Piece(f"{MARK_START}{made.text}{MARK_END}", made.level)

    def at(self, level: int, e: Any) -> str:
        text, own = self.piece(e)
        if own >= level:
            return text
        self._nested += 1
        return f"({text})"

    def _take_out(self, made: Piece) -> Piece:
        """Bind an expression that is nested too deeply for one line to a name, on a line before.

        part = T.meta_var(c - (d - (e - …)))
        A[i] = a - (b - part)
        """
        if self.taken_out is None:
            return made
        name = self.names.define(object(), "part")
        self.taken_out.append((name, made.text))
        self._nested = self._chained = 0
        return Piece(name)

    def name_of(self, thing: Any) -> str:
        """The name of a variable or buffer."""
        name = self.names.of.get(thing)
        if name is None:
            name = self.names.define(thing, thing.name)
        return f"{MARK_START}{name}{MARK_END}" if thing is self.target else name

    def otherwise(self, e: Any) -> Piece:
        if isinstance(e, GlobalVar):
            name = e.name_hint if self.functions is None else self.functions.get(e.name_hint)
            if name is None:  # nothing of this module
                return Piece(f"{self.i}.GlobalVar({quoted(e.name_hint)})")
            return Piece(f"{self.module_name}.{name}")
        if isinstance(e, Op):
            return Piece(quoted(e.name))
        if isinstance(e, Node):  # nothing of the language, such as a term of an iteration map
            fields = ", ".join(f"{name}={self.value(getattr(e, name))}" for name in e._fields)
            return Piece(f"{e.__class__.__name__}({fields})")
        return Piece(self.value(e))

    # -- leaves ------------------------------------------------------------------------------
    def text_Var(self, e: Var) -> Piece:
        name = self.names.of.get(e)
        return Piece(self.names.define(e, e.name) if name is None else name)

    text_SizeVar = text_Var

    def text_IntImm(self, e: IntImm) -> Piece:
        if e.dtype is INT32:
            return Piece(str(e.value))
        if e.dtype is BOOL:
            return Piece(f"{self.t}.bool({bool(e.value)})")
        if e.dtype.is_integral:
            return Piece(f"{self.t}.{e.dtype}({e.value})")
        return Piece(f"{self.t}.IntImm({quoted(e.dtype)}, {e.value})")

    def text_FloatImm(self, e: FloatImm) -> Piece:
        return Piece(f"{self.t}.{e.dtype}({float_text(float(e.value))})")

    def text_StringImm(self, e: StringImm) -> Piece:
        return Piece(quoted(e.value))

    # -- operators ---------------------------------------------------------------------------
    def infix_piece(self, infix: Infix, a: PrimExpr, b: PrimExpr) -> Piece:
        raise NotImplementedError

    def _binary(self, e: Any) -> Piece:
        """An operator, or the node's name if the operator would be folded."""
        cls = e.__class__
        infix = PYTHON_INFIX.get(cls)
        if infix is not None and (infix.symbol != "/" or e.dtype.is_float) and _builds_back(cls, e):
            return ExprText.infix_piece(self, infix, e.a, e.b)
        return Piece(f"{self.t}.{cls.__name__}({self.expr(e.a)}, {self.expr(e.b)})")

    text_Add = text_Sub = text_Mul = text_Div = text_FloorDiv = text_FloorMod = _binary
    text_EQ = text_NE = text_LT = text_LE = text_GT = text_GE = text_And = text_Or = _binary

    def _named_binary(self, e: Any) -> Piece:
        cls = e.__class__
        name = {"Min": "min", "Max": "max", "Mod": "truncmod"}[cls.__name__]
        if not _builds_back(cls, e):
            name = cls.__name__
        return Piece(f"{self.t}.{name}({self.expr(e.a)}, {self.expr(e.b)})")

    text_Min = text_Max = text_Mod = _named_binary

    def text_Not(self, e: Any) -> Piece:
        try:
            made: Any = logical_not(e.a)
        except TypeError:
            made = None
        if made.__class__ is e.__class__ and made.a is e.a:
            return Piece(f"not {self.at(PYTHON_NOT, e.a)}", PYTHON_NOT)
        return Piece(f"{self.t}.Not({self.expr(e.a)})")

    def text_Cast(self, e: Cast) -> Piece:
        return Piece(f"{self.t}.Cast({quoted(e.dtype)}, {self.expr(e.value)})")

    def text_Select(self, e: Select) -> Piece:
        return Piece(f"{self.t}.Select({self.listed((e.condition, e.true_value, e.false_value))})")

    def text_Let(self, e: Let) -> Piece:
        value = self.expr(e.value)
        name = self.expr(e.var)
        return Piece(f"{self.t}.Let({self.expr(e.body)}, where={{{name}: {value}}})")

    # -- vectors -----------------------------------------------------------------------------
    def text_Ramp(self, e: Ramp) -> Piece:
        return Piece(f"{self.t}.Ramp({self.expr(e.base)}, {self.expr(e.stride)}, {self._lanes(e)})")

    def text_Broadcast(self, e: Any) -> Piece:
        return Piece(f"{self.t}.Broadcast({self.expr(e.value)}, {self._lanes(e)})")

    def _lanes(self, e: Any) -> str:
        return str(e.lanes) if e.lanes.__class__ is int else self.expr(e.lanes)

    def text_Shuffle(self, e: Shuffle) -> Piece:
        return Piece(f"{self.t}.Shuffle([{self.listed(e.vectors)}], [{self.listed(e.indices)}])")

    # -- memory ------------------------------------------------------------------------------
    def indices(self, items: Any) -> str:
        """Indices between brackets; a dense vector in the last place is a slice."""
        if not items:
            return "()"
        texts = [self.expr(i) for i in items[:-1]]
        last = items[-1]
        sliced = self._slice(last) if last.__class__ is Ramp else None
        texts.append(self.expr(last) if sliced is None else sliced)
        return ", ".join(texts)

    def _slice(self, e: Ramp) -> str | None:
        step = const_value(e.stride)
        if e.base.dtype.lanes != 1 or e.stride.dtype is not e.base.dtype or not isinstance(step, int):
            return None
        if step < 1 or e.dtype.is_scalable or e.lanes < 2 or not e.base.dtype.is_integral:
            return None
        try:
            stop = stop_after(e.base, const(step * e.lanes, e.base.dtype))
            if const_value(difference(stop, e.base)) != step * e.lanes:
                return None
        except ValueError:
            return None
        text = f"{self.expr(e.base)}:{self.expr(stop)}"
        if step != 1:
            text += f":{step}"
        return f"{MARK_START}{text}{MARK_END}" if e is self.target else text

    def text_BufferLoad(self, e: BufferLoad) -> Piece:
        if e.predicate is not None:
            where = ", ".join([self.expr(i) for i in e.indices])
            return Piece(f"{self.name_of(e.buffer)}.vload([{where}], predicate={self.expr(e.predicate)})")
        return Piece(f"{self.name_of(e.buffer)}[{self.indices(e.indices)}]")

    def text_ProducerLoad(self, e: ProducerLoad) -> Piece:
        return Piece(f"{getattr(e.producer, 'name', 'tensor')}[{self.indices(e.indices)}]")

    def text_BufferRegion(self, e: BufferRegion) -> Piece:
        return Piece(f"{self.name_of(e.buffer)}[{self.region(e.region)}]")

    def region(self, ranges: Any) -> str:
        """Ranges between brackets: an index where the extent is 1, else a slice."""
        if not ranges:
            return "()"
        return ", ".join(
            self.expr(r.min)
            if r.extent.__class__ is IntImm and r.extent.value == 1
            else f"{self.expr(r.min)}:{self.stop_of(r)}"
            for r in ranges
        )

    def stop_of(self, r: Any) -> str:
        """The end of a range, from which the extent can be recovered."""
        return self.expr(stop_after(r.min, r.extent))

    def text_Buffer(self, e: Buffer) -> Piece:
        return Piece(self.name_of(e))

    # -- calls -------------------------------------------------------------------------------
    def text_Call(self, e: Call) -> Piece:
        args = [self.expr(a) for a in e.args]
        if isinstance(e.op, GlobalVar):
            callee = self.expr(e.op)
            if e.dtype is VOID:
                return Piece(f"{callee}({', '.join(args)})")
            return Piece(f"{self.t}.Call({quoted(e.dtype)}, {callee}, [{', '.join(args)}])")
        name = e.op.short_name if isinstance(e.op, Op) else str(e.op)
        exact = not name.isidentifier() or not isinstance(e.op, Op) or e.op.name == name
        if exact or (name in INFERRED and not infers_back(e, name)):
            op_name = e.op.name if isinstance(e.op, Op) else name
            args = [quoted(e.dtype), quoted(op_name), *args]
            return Piece(f"{self.t}.call_intrin({', '.join(args)})")
        if name in DTYPE_FIRST:
            args.insert(0, quoted(e.dtype))
        elif name in DTYPE_LAST:
            args.append(quoted(e.dtype))
        elif name not in INFERRED and e.dtype is not default_dtype(name):
            args.append(f"dtype={quoted(e.dtype)}")
        return Piece(f"{self.t}.{name}({', '.join(args)})")

    # -- reductions and ranges -----------------------------------------------------------------
    def text_Range(self, r: Range) -> Piece:
        return Piece(f"{self.t}.Range({self.expr(r.min)}, {self.stop_of(r)})")

    def text_IterVar(self, iv: IterVar) -> Piece:
        dom = "None" if iv.dom is None else self.expr(iv.dom)
        kind = quoted(IterVarType(iv.iter_type).name)
        return Piece(f"{self.t}.iter_var({self.expr(iv.var)}, {dom}, {kind}, {quoted(iv.thread_tag)})")

    def text_CommReducer(self, e: CommReducer) -> Piece:
        with self.names.scope():
            params = [self.names.define(v, v.name) for v in (*e.lhs, *e.rhs)]
            held, self.taken_out = self.taken_out, None  # the parameters are known inside only
            result = self.listed(e.result)
            self.taken_out = held
        if len(e.result) != 1:
            result = f"({result})"
        identity = self.listed(e.identity_element)
        return Piece(f"{self.t}.comm_reducer(lambda {', '.join(params)}: {result}, [{identity}])")

    def text_Reduce(self, e: Reduce) -> Piece:
        axis = self.listed(e.axis)
        return Piece(
            f"{self.t}.reduce({self.expr(e.combiner)}, source=[{self.listed(e.source)}], "
            f"init=[{self.listed(e.init)}], axis=[{axis}], condition={self.expr(e.condition)}, "
            f"value_index={e.value_index})"
        )

    # -- types, buffers, attributes ------------------------------------------------------------
    def type_text(self, kind: Type) -> str:
        """A type as an annotation: `T.int32`, `T.handle`, `T.handle("float32", "global")`."""
        if isinstance(kind, PrimType):
            return f"{self.t}.{kind.dtype}"
        if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType):
            if kind.element_type.dtype is VOID and not kind.storage_scope:
                return f"{self.t}.handle"
            return f"{self.t}.handle({quoted(kind.element_type.dtype)}, {quoted(kind.storage_scope)})"
        if isinstance(kind, TupleType):
            return "None" if not kind.fields else f"({', '.join(map(self.type_text, kind.fields))})"
        return f"{self.t}.handle"

    def var_declaration(self, v: Var) -> str:
        """The right side that makes a variable: `T.int32()`."""
        text = self.type_text(v.type_annotation)
        size = "is_size_var=True" if v.__class__.__name__ == "SizeVar" else ""
        return text if text.endswith(")") else f"{text}({size})"

    def tuple_text(self, items: Any) -> str:
        texts = [self.expr(i) for i in items]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def buffer_args(self, b: Buffer, *, always_dtype: bool = False) -> list[str]:
        """The arguments that describe a buffer, without defaults."""
        args = [self.tuple_text(b.shape)]
        if always_dtype or b.dtype is not FLOAT32:
            args.append(quoted(b.dtype))
        if b.data in self.names:
            args.append(f"data={self.expr(b.data)}")
        elif b.scope_name != "global":
            args.append(f"scope={quoted(b.scope_name)}")
        if b.strides:
            args.append(f"strides={self.tuple_text(b.strides)}")
        index_type = b.shape[0].dtype if b.shape else INT32
        if not is_zero(b.elem_offset) or b.offset_factor != 1 or b.elem_offset.dtype is not index_type:
            args.append(f"elem_offset={self.expr(b.elem_offset)}")
        if b.data_alignment != 64:
            args.append(f"align={b.data_alignment}")
        if b.offset_factor != 1:
            args.append(f"offset_factor={b.offset_factor}")
        if b.axis_separators:
            args.append(f"axis_separators={list(b.axis_separators)}")
        return args

    def value(self, v: Any) -> str:
        """An attribute's value; Python's own values stay Python's own."""
        if isinstance(v, float) and not math.isfinite(v):
            return f"float({float_text(v)})"
        if v is None or isinstance(v, (float, bytes)):
            return repr(v)
        if isinstance(v, bool):
            return f"{self.t}.bool({v})"
        if isinstance(v, int):
            return str(v)
        if isinstance(v, DataType) or v.__class__ is str:
            return quoted(v)
        if isinstance(v, StringImm):
            return f"{self.t}.StringImm({quoted(v.value)})"
        if isinstance(v, (tuple, list)):
            return f"[{', '.join(map(self.value, v))}]"
        if isinstance(v, Mapping):
            return f"{{{', '.join(f'{self.value(k)}: {self.value(x)}' for k, x in v.items())}}}"
        if isinstance(v, (Node, GlobalVar)):
            return self.expr(v)
        if v.__class__.__name__ == "Target":
            host = "" if v.host is None else f", host={quoted(str(v.host))}"
            return f"{self.t}.target({quoted(str(v))}{host})"
        return repr(v)


def _builds_back(cls: type, e: Any) -> bool:
    """Whether applying the operator to `e`'s operands gives `e` again, without folding."""
    a, b = e.a, e.b
    if a.__class__ is IntImm and b.__class__ is IntImm:
        return False  # both are Python numbers, and Python would evaluate the operator
    if a.__class__ not in _CONSTANTS and b.__class__ not in _CONSTANTS and a is not b:
        if not e.dtype.is_float and e.dtype is not HANDLE and not e.dtype.is_bool:
            return True
    try:
        made = BINARY[cls](a, b)
    except (TypeError, ValueError, ZeroDivisionError, RuntimeError):
        return False
    return made.__class__ is cls and made.a is a and made.b is b  # type: ignore[attr-defined]
