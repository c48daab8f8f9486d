"""Scalar expressions as text of the C family.

Parts that C cannot write inside an expression (a binding, a branch that needs one) become statements in front of it,
in `lines`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...arith import Analyzer
from ...ir import ops
from ...ir.buffer import Buffer
from ...ir.dtype import FLOAT32, DataType
from ...ir.errors import LoweringError
from ...ir.expr import (
    NE,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Let,
    Not,
    PrimExpr,
    StringImm,
    Var,
    const_value,
)
from ...ir.expr_text import ATOM, C_INFIX, UNARY, ExprText, Piece
from ...ir.float8 import is_float8
from ...ir.fold import odd_float32
from ...ir.functor import pre_order
from ...ir.op import Op
from ...ir.printer_names import free_name
from ...runtime.errors import CHECK_CODES
from ...runtime.reports import MOST_VALUES
from .dialect import Dialect, is_small_float, widening_helper
from .float8 import narrowing, widening
from .straight import is_straight

UINT32 = DataType("uint32")
REPORT, FIRST_CHECK = "tw_report", "tw_first_check"  # parameters of kernels that check their data
_TERNARY = 0
_EQUAL = C_INFIX[NE].level
_BITS = {"bitwise_or": ("|", 3), "bitwise_xor": ("^", 4), "bitwise_and": ("&", 5), "shift_right": (">>", 8)}
# lowered divisions by powers of two, and swizzles of shared memory
_OF_INDICES = ("shift_right", "bitwise_and", "bitwise_xor", "likely")
_SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}


class Expressions(ExprText):
    """The names of a kernel's variables, the lines written so far, and the text of expressions."""

    infix = C_INFIX

    def __init__(self, dialect: Dialect, helpers: dict[str, None]) -> None:
        self.dialect = dialect
        self.helpers = helpers  # helpers that the program must define, in order of use
        self.ana = Analyzer()
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Var, str] = {}
        self.taken: set[str] = set(dialect.words)
        self.data: set[Var] = set()  # variables with loaded values, which may overflow
        self.wide: dict[Var, str] = {}  # 32-bit variables that are computed in 64 bits
        self.memory: dict[
            Var, tuple[DataType, str]
        ] = {}  # the declared element type and scope of each pointer
        self.checks: dict[tuple[str, str], int] = {}  # checks of data: kind, message -> number, from 1
        self.failures: list[tuple[str, str]] = []  # pending reports of this block: condition, report
        self.guards: list[PrimExpr] = []  # conditions under which the current expression is evaluated
        self.constant_data: set[Var] = set()  # pointers to memory that the kernel does not write
        self.straight = False  # whether all operands of the current condition are evaluated
        self.at_once = False  # whether values of a report may be overwritten before the end of the block

    # -- text ----------------------------------------------------------------------------------
    def emit(self, text: str) -> None:
        for line in text.split("\n"):
            self.lines.append(line if line.startswith("#") else "  " * self.depth + line)

    def name(self, hint: str) -> str:
        """A unique name."""
        base = re.sub(r"\W", "_", hint, flags=re.ASCII) or "v"
        if base[0].isdigit() or base.startswith(("__", "tw_")):
            base = f"v_{base}"
        made = free_name(base, self.taken)
        self.taken.add(made)
        return made

    def define(self, var: Var) -> str:
        """The name of a variable from here on."""
        made = self.names[var] = self.name(var.name)
        self.wide.pop(var, None)
        return made

    def need(self, helper: str) -> None:
        if helper:
            self.helpers[helper] = None

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Lines that are written to a list of their own, one level deeper."""
        held, self.lines = self.lines, []
        self.depth += 1
        try:
            yield self.lines
        finally:
            self.depth -= 1
            self.lines = held

    def otherwise(self, e: Any) -> Piece:
        raise LoweringError(f"{self.dialect.name}: no code for {type(e).__name__}: `{e}`")

    def call_piece(self, text: str, helper: str = "") -> Piece:
        self.need(helper)
        return Piece(text)

    # -- leaves --------------------------------------------------------------------------------
    def text_Var(self, e: Var) -> Piece:
        if e in self.wide:
            return Piece(f"(int){self.wide[e]}", UNARY)
        found = self.names.get(e)
        if found is None:
            raise LoweringError(f"variable `{e.name}` is used where it is not defined")
        return Piece(found)

    text_SizeVar = text_Var

    def text_IntImm(self, e: IntImm) -> Piece:
        if e.dtype.is_bool:
            return Piece("true" if e.value else "false")
        if e.dtype.is_handle:
            return Piece("0")
        text = self.dialect.int_text(e.dtype, e.value)
        return Piece(text, UNARY if text.startswith("-") else ATOM)

    def text_FloatImm(self, e: FloatImm) -> Piece:
        if is_small_float(e.dtype):
            return Piece(f"({self.dialect.type(e.dtype)}){_small_bits(e):#x}", UNARY)
        text = self.dialect.float_text(e.dtype, e.value)
        return Piece(text, UNARY if text.startswith("-") else ATOM)

    def text_StringImm(self, e: StringImm) -> Piece:
        from ...ir.expr_text import quoted

        return Piece(quoted(e.value))

    # -- arithmetic ----------------------------------------------------------------------------
    def arithmetic(self, e: Any) -> Piece:
        kind, symbol = e.dtype, _SYMBOLS[e.__class__.__name__]
        if is_small_float(kind):
            return self.in_float(kind, lambda: e.__class__(_as_float(e.a), _as_float(e.b)))
        if kind.is_float and symbol == "%":
            return self.call_piece(f"{self.math_name('fmod', kind)}({self.expr(e.a)}, {self.expr(e.b)})")
        d = self.dialect
        if kind.is_integral and kind.bits < 32:  # C computes in int
            if symbol == "*" and kind == "uint16":
                return Piece(self._wrapped(e, symbol, d.type(DataType("uint32")), kind), UNARY)
            plain = self.infix_piece(C_INFIX[e.__class__], e.a, e.b)
            return Piece(d.cast(kind, f"({plain.text})"), UNARY)
        if kind.is_int and symbol in "+-*" and not self.is_index(e) and not self._cannot_overflow(e):
            return Piece(self._wrapped(e, symbol, d.unsigned(kind), kind), UNARY)
        return self.infix_piece(C_INFIX[e.__class__], e.a, e.b)

    text_Add = text_Sub = text_Mul = text_Div = text_Mod = arithmetic

    def _wrapped(self, e: Any, symbol: str, unsigned: str, kind: DataType) -> str:
        """Arithmetic that wraps around, as data does and signed integers of C may not."""
        a, b = self._unsigned(e.a, unsigned), self._unsigned(e.b, unsigned)
        return self.dialect.cast(kind, f"({a} {symbol} {b})")

    def _unsigned(self, e: PrimExpr, unsigned: str) -> str:
        """An operand of arithmetic that wraps around; one that wraps itself is not converted twice."""
        if isinstance(e, IntImm) and e.value >= 0 and e.dtype.bits >= 32:
            return self.dialect.int_text(DataType(f"uint{e.dtype.bits}"), e.value)
        text, again = self.at(UNARY, e), self.dialect.cast(e.dtype, "((")
        if text.startswith(again) and e.__class__.__name__ in ("Add", "Sub", "Mul"):
            return text[len(again) - 2 :]
        return f"({unsigned}){text}"

    def is_index(self, e: PrimExpr) -> bool:
        """Whether it consists of loop variables, thread indices and sizes, which do not overflow."""
        for m in pre_order(e):
            if isinstance(m, BufferLoad) or m in self.data:
                return False
            if isinstance(m, Call) and not (isinstance(m.op, Op) and m.op.short_name in _OF_INDICES):
                return False
        return True

    def bind_value(self, var: Var, value: PrimExpr) -> str:
        """The line that names a value."""
        if var.dtype.is_integral and not self.is_index(value):
            self.data.add(var)
        text = self.expr(value)
        return f"const {self.dialect.type(var.dtype)} {self.define(var)} = {text};"

    def _cannot_overflow(self, e: Any) -> bool:
        """Whether both operands were widened from few enough bits that the result cannot overflow."""
        a, b = _bits_of(e.a), _bits_of(e.b)
        return a + b < e.dtype.bits if e.__class__.__name__ == "Mul" else max(a, b) < e.dtype.bits - 1

    def in_float(self, kind: DataType, make: Callable[[], PrimExpr]) -> Piece:
        """A value of 16 or 8 bits that is computed in float32."""
        return self.narrowed(kind, self.expr(make()))

    def narrowed(self, kind: DataType, text: str) -> Piece:
        """The text of a float32 rounded to 16 or 8 bits."""
        helper = "tw_f2b" if kind.code == "bfloat" else "tw_f2h"
        if is_float8(kind):
            self.need(self.dialect.reinterpret(UINT32, FLOAT32, "x")[1])
            helper = narrowing(kind)
        return self.call_piece(f"{helper}({text})", helper)

    def widened(self, kind: DataType, text: str) -> Piece:
        helper = widening_helper(kind)
        if is_float8(kind):
            self.need(self.dialect.reinterpret(FLOAT32, UINT32, "x")[1])
            helper = widening(kind)
        return self.call_piece(f"{helper}({text})", helper)

    def least(self, e: Any) -> Piece:
        kind, name = e.dtype, e.__class__.__name__.lower()
        if is_float8(kind):
            return self.in_float(kind, lambda: e.__class__(_as_float(e.a), _as_float(e.b)))
        if is_small_float(kind):  # compared in float32, and not rounded: the result is one of the two
            self.need(widening_helper(kind))
        return self.call_piece(*self.dialect.least(name, kind, self.expr(e.a), self.expr(e.b)))

    text_Min = text_Max = least

    def comparison(self, e: Any) -> Piece:
        a, b = e.a, e.b
        if is_small_float(a.dtype):
            a, b = _as_float(a), _as_float(b)
        return self.infix_piece(C_INFIX[e.__class__], a, b)

    text_EQ = text_NE = text_LT = text_LE = text_GT = text_GE = comparison

    def logic(self, e: Any) -> Piece:
        infix = C_INFIX[e.__class__]
        if self.straight:
            return Piece(f"({self.at(UNARY, e.a)} {infix.symbol[0]} {self.at(UNARY, e.b)})")
        a = self.at(infix.left, e.a)
        with self.aside() as lines, self.guarded(e.a if infix.symbol == "&&" else Not(e.a), lines):
            b = self.at(infix.right, e.b)
        if not lines:
            return Piece(f"{a} {infix.symbol} {b}", infix.level)
        out = self.name("holds")
        self.emit(f"bool {out} = {a};")
        self.emit(f"if ({out if infix.symbol == '&&' else f'!{out}'}) {{")
        self.lines += lines
        self.emit(f"  {out} = {b};\n}}")
        return Piece(out)

    text_And = text_Or = logic

    def text_Not(self, e: Any) -> Piece:
        return Piece(f"!{self.at(UNARY, e.a)}", UNARY)

    def text_Select(self, e: Any) -> Piece:
        before, self.straight = self.straight, self.dialect.has_straight_logic and is_straight(e.condition)
        c = self.at(_TERNARY + 1, e.condition)
        self.straight = before
        a, b = self.at(_TERNARY + 1, e.true_value), self.at(_TERNARY + 1, e.false_value)
        return Piece(f"{c} ? {a} : {b}", _TERNARY)

    def choice(self, e: Call) -> Piece:
        """`if_then_else`: only the selected operand is evaluated."""
        condition, a, b = e.args
        c = self.at(_TERNARY + 1, condition)
        with self.aside() as lines_a, self.guarded(condition, lines_a):
            text_a = self.at(_TERNARY + 1, a)
        with self.aside() as lines_b, self.guarded(Not(condition), lines_b):
            text_b = self.at(_TERNARY + 1, b)
        if not lines_a and not lines_b:
            return Piece(f"{c} ? {text_a} : {text_b}", _TERNARY)
        out = self.name("choice")
        self.emit(f"{self.dialect.type(e.dtype)} {out};\nif ({c}) {{")
        self.lines += lines_a
        self.emit(f"  {out} = {text_a};\n}} else {{")
        self.lines += lines_b
        self.emit(f"  {out} = {text_b};\n}}")
        return Piece(out)

    def text_Let(self, e: Let) -> Piece:
        self.emit(self.bind_value(e.var, e.value))
        return self.piece(e.body)

    def text_Cast(self, e: Cast) -> Piece:
        old, new = e.value.dtype, e.dtype
        if old is new:
            return self.piece(e.value)
        if is_small_float(old):
            if isinstance(e.value, FloatImm) and new == "float32":
                return self.piece(FloatImm(new, e.value.value))
            wide = self.widened(old, self.expr(e.value))
            return wide if new == "float32" else self._cast_text(wide, FLOAT32, new)
        if is_small_float(new):
            if isinstance(e.value, (IntImm, FloatImm)):
                return self.piece(FloatImm(new, float(e.value.value)))
            text = (
                self.expr(e.value)
                if old == "float32"
                else self.dialect.cast(FLOAT32, self.at(UNARY, e.value))
            )
            return self.narrowed(new, text)
        return self._cast_text(self.piece(e.value), old, new)

    def _cast_text(self, value: Piece, old: DataType, new: DataType) -> Piece:
        inner = value.text if value.level >= UNARY else f"({value.text})"
        if is_small_float(new):
            return self.narrowed(new, value.text)
        if new.is_bool:
            return Piece(f"{inner} != 0", _EQUAL)
        return Piece(self.dialect.cast(new, inner), UNARY)

    # -- memory --------------------------------------------------------------------------------
    def text_BufferLoad(self, e: BufferLoad) -> Piece:
        text = self.element(e.buffer, e.indices)
        if e.dtype.is_bool:
            return Piece(f"{text} != 0", _EQUAL)
        return Piece(text)

    def element(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
        """An element of a buffer, to read or to write."""
        if len(indices) != 1:
            raise LoweringError(f"buffer {buffer.name} still has {len(indices)} dimensions: flatten it first")
        return f"{self.pointer_to(buffer)}[{self.index(buffer, indices[0])}]"

    def pointer_to(self, buffer: Buffer) -> str:
        """The memory of a buffer, as a pointer to its elements."""
        name = self.names.get(buffer.data)
        if name is None:
            raise LoweringError(f"buffer {buffer.name} is used where its memory is not defined")
        held = self.memory.get(buffer.data)
        element = buffer.dtype.element
        if held is not None and self.dialect.memory_type(held[0]) != self.dialect.memory_type(element):
            return f"(({self.dialect.pointer(element, held[1])}){name})"
        return name

    def address(self, buffer: Buffer, index: PrimExpr) -> str:
        """The address of an element, as an argument."""
        pointer = self.pointer_to(buffer)
        return pointer if const_value(index) == 0 else f"{pointer} + {self.index_at(9, buffer, index)}"

    def index(self, buffer: Buffer, e: PrimExpr) -> str:
        return self.index_at(_TERNARY, buffer, e)

    def index_at(self, level: int, buffer: Buffer, e: PrimExpr) -> str:
        """An index; in 64 bits if the buffer may have more elements than 32 bits can count."""
        size = const_value(buffer.shape[0]) if len(buffer.shape) == 1 else None
        if size is None:  # a symbolic size of 32 bits, or possibly a multiple of it
            narrow = len(buffer.shape) == 1 and isinstance(buffer.shape[0], Var) and buffer.dtype.lanes == 1
        else:
            narrow = size * buffer.dtype.lanes < 1 << 31
        computed = e.__class__.__name__ in ("Add", "Sub", "Mul") or e in self.wide
        if narrow or not computed or e.dtype.bits == 64 or buffer.scope_name != "global":
            return self.at(level, e)
        text, own = self.widely(e)
        return text if own >= level else f"({text})"

    def widely(self, e: PrimExpr) -> Piece:
        """An integer computed in 64 bits."""
        long = DataType("int64")
        if e.dtype.bits == 64 or isinstance(e, IntImm):
            return self.piece(e)
        if isinstance(e, Var) and e in self.wide:
            return Piece(self.wide[e])
        if e.__class__.__name__ in ("Add", "Sub", "Mul") and e.dtype.is_int:
            infix, a, b = C_INFIX[e.__class__], self.widely(e.a), self.widely(e.b)  # type: ignore[attr-defined]
            left = a.text if a.level >= infix.left else f"({a.text})"
            right = b.text if b.level >= infix.right else f"({b.text})"
            return Piece(f"{left} {infix.symbol} {right}", infix.level)
        return Piece(self.dialect.cast(long, self.at(UNARY, e)), UNARY)

    # -- calls ---------------------------------------------------------------------------------
    def text_Call(self, e: Call) -> Piece:
        if not isinstance(e.op, Op):
            raise LoweringError(f"{self.dialect.name}: a kernel cannot call {e.op}")
        name = e.op.short_name
        handler = self.dialect.intrinsics.get(name) or _CALLS.get(name)
        if handler is not None:
            return handler(self, e)
        if e.dtype.is_float:
            return self.mathematical(name, e)
        raise LoweringError(f"{self.dialect.name}: no code for `{e.op.name}` in `{e}`")

    def math_name(self, name: str, kind: DataType) -> str:
        found = self.dialect.function(name, kind)
        if found is None:
            raise LoweringError(f"{self.dialect.name} has no function {name} of {kind}")
        return found

    def mathematical(self, name: str, e: Call) -> Piece:
        kind = e.dtype
        if is_small_float(kind):
            args = [_as_float(a) if is_small_float(a.dtype) else a for a in e.args]
            return self.narrowed(kind, self.expr(Call("float32", e.op, args)))
        return Piece(f"{self.math_name(name, kind)}({self.listed(e.args)})")

    def sigmoid(self, e: Call) -> Piece:
        kind = e.dtype
        if is_small_float(kind):
            return self.mathematical("sigmoid", e)
        one = self.dialect.float_text(kind, 1.0)
        return Piece(f"{one} / ({one} + {self.math_name('exp', kind)}(-{self.at(UNARY + 1, e.args[0])}))", 10)

    def bits(self, e: Call) -> Piece:
        symbol, level = _BITS[e.op.short_name]
        text = f"{self.at(11, e.args[0])} {symbol} {self.at(11, e.args[1])}"
        if e.dtype.is_bool:
            return Piece(f"({text}) != 0", _EQUAL)
        return (
            Piece(self.dialect.cast(e.dtype, f"({text})"), UNARY) if e.dtype.bits < 32 else Piece(text, level)
        )

    def shift_left(self, e: Call) -> Piece:
        a, b = self.at(UNARY, e.args[0]), self.at(11, e.args[1])
        wide = DataType("uint32") if e.dtype.bits < 32 else DataType(f"uint{e.dtype.bits}")
        return Piece(self.dialect.cast(e.dtype, f"(({self.dialect.type(wide)}){a} << {b})"), UNARY)

    def bitwise_not(self, e: Call) -> Piece:
        if e.dtype.is_bool:
            return Piece(f"!{self.at(UNARY, e.args[0])}", UNARY)
        text = f"~{self.at(UNARY, e.args[0])}"
        return (
            Piece(self.dialect.cast(e.dtype, f"({text})"), UNARY) if e.dtype.bits < 32 else Piece(text, UNARY)
        )

    def reinterpret(self, e: Call) -> Piece:
        old, new = e.args[0].dtype, e.dtype
        text = self.expr(e.args[0])
        if self.dialect.type(old) == self.dialect.type(new):
            return self.piece(e.args[0])
        if not (old.is_float and not is_small_float(old)) and not (new.is_float and not is_small_float(new)):
            return Piece(self.dialect.cast(new, f"({text})"), UNARY)
        return self.call_piece(*self.dialect.reinterpret(new, old, text))

    def absolute(self, e: Call) -> Piece:
        x = e.args[0]
        if x.dtype.is_float:
            return self.mathematical("fabs", Call(e.dtype, "tir.fabs", e.args))
        v = Var("x", x.dtype)
        return self.piece(Let(v, x, ops.abs(v)))

    def counting(self, e: Call) -> Piece:
        """popcount and clz, of as many bits as the argument has."""
        x = e.args[0]
        text, helper = self.dialect.count_bits(e.op.short_name, x.dtype, self.expr(x))
        self.need(helper)
        return Piece(self.dialect.cast(e.dtype, text), UNARY)

    def extern(self, e: Call) -> Piece:
        name = e.args[0]
        if not isinstance(name, StringImm):
            raise LoweringError(f"call_extern takes the function's name first, not `{name}`")
        return Piece(f"{name.value}({self.listed(e.args[1:])})")

    def address_of(self, e: Call) -> Piece:
        load: Any = e.args[0]
        index = load.indices[0]
        text = self.address(load.buffer, getattr(index, "base", index))
        return Piece(text, 9 if " + " in text else ATOM)

    def access_ptr(self, e: Call) -> Piece:
        kind, data, offset = e.args[0].dtype, e.args[1], e.args[2]
        name = self.expr(data)
        held = self.memory.get(data) if isinstance(data, Var) else None
        if held is not None and self.dialect.memory_type(held[0]) != self.dialect.memory_type(kind):
            name = f"({self.dialect.pointer(kind.element, held[1])}){name}"
        return Piece(name) if const_value(offset) == 0 else Piece(f"{name} + {self.at(10, offset)}", 9)

    def scope_of(self, e: Any) -> str:
        """The memory that an address points into."""
        for m in pre_order(e):
            if isinstance(m, Var) and m in self.memory:
                return self.memory[m][1]
            if isinstance(m, BufferLoad):
                return m.buffer.scope_name
        return "global"

    def atomic_add(self, e: Call) -> Piece:
        pointer, value = e.args[0], e.args[1]
        return self.call_piece(
            *self.dialect.atomic_add(
                value.dtype, self.at(UNARY, pointer), self.expr(value), self.scope_of(pointer)
            )
        )

    def shuffle_call(self, e: Call) -> Piece:
        how = {"tvm_warp_shuffle": "idx", "tvm_warp_shuffle_up": "up", "tvm_warp_shuffle_down": "down"}
        mask, value, lane, width = (self.expr(a) for a in e.args[:4])
        return Piece(self.dialect.shuffle(how[e.op.short_name], mask, value, lane, width))

    # -- checks of data ------------------------------------------------------------------------
    @contextmanager
    def guarded(self, condition: PrimExpr, lines: list[str]) -> Iterator[None]:
        """A scope of code under a condition; its failures are reported under it too, and before the end of `lines`, if
        the report may use names of these."""
        self.guards.append(condition)
        count = len(self.failures)
        yield
        if lines:
            self.report_failures(count)
        self.guards.pop()

    def checked(self, e: Call) -> Piece:
        """A checked value, or 0 if the check fails; a host function returns with an error instead.

        The report comes at the end of the block, where it does not prevent loads from being in flight together.
        """
        value, good, *failure = e.args
        if self.dialect.is_host:
            self.emit(f"if (!{self.at(UNARY, good)}) {self.leave(failure[0])}")
            return self.piece(value)
        holds, passed = self.at(_TERNARY + 1, good), self.at(_TERNARY + 1, value)
        bad = " && ".join([*(self.at(UNARY, g) for g in self.guards), f"!{self.at(UNARY, good)}"])
        if (bad, report := self.report(failure)) not in self.failures:
            self.failures.append((bad, report))
        read = [
            m for x in (*self.guards, good, *failure[2:]) for m in pre_order(x) if isinstance(m, BufferLoad)
        ]
        self.at_once |= not all(m.buffer.data in self.constant_data for m in read)
        zero = self.dialect.cast(e.dtype, "0")
        return Piece(f"{holds} ? {passed} : {zero}", _TERNARY)

    def report_failures(self, since: int = 0) -> None:
        """Emit the pending reports of this block."""
        found, self.failures[since:] = self.failures[since:], []
        if len(found) > 1:
            self.emit(f"if ({' || '.join(bad for bad, _ in found)}) {{")
        for bad, report in found:
            self.emit(f"{'  ' if len(found) > 1 else ''}if ({bad}) {report};")
        if len(found) > 1:
            self.emit("}")
        self.at_once = False

    def failed(self, e: Call) -> Piece:
        if self.dialect.is_host:
            self.emit(self.leave(e.args[0]))
            return Piece("0")
        return Piece(self.report(e.args))

    def leave(self, kind: Any) -> str:
        return f"return {CHECK_CODES[kind.value]};"

    def report(self, failure: Sequence[Any]) -> str:
        """The call that reports a failed check (kind, message, values) and gives 0."""
        kind, message, *values = failure
        if len(values) > MOST_VALUES:
            raise LoweringError(
                f"{self.dialect.name}: a check has {len(values)} values, more than {MOST_VALUES}"
            )
        number = self.checks.setdefault((kind.value, message.value), len(self.checks) + 1)
        helper = f"tw_report_{len(values)}"
        self.need("tw_claim")
        self.need(helper)
        return f"{helper}({', '.join([REPORT, f'{FIRST_CHECK} + {number}', *map(self.expr, values)])})"

    def barrier(self, e: Call) -> Piece:
        what = e.args[0]
        self.emit(self.dialect.barrier(what.value if isinstance(what, StringImm) else "shared"))
        return Piece("0")

    def classified(self, e: Call) -> Piece:
        x, name = e.args[0], e.op.short_name
        text = self.at(UNARY, _as_float(x) if is_small_float(x.dtype) else x)
        kind = FLOAT32 if is_small_float(x.dtype) else x.dtype
        if name == "isnan":
            return Piece(f"{text} != {text}", _EQUAL)
        order = "==" if name == "isinf" else "<"
        size = f"{self.math_name('fabs', kind)}({text})"
        return Piece(f"{size} {order} {self.dialect.infinity(kind)}", _EQUAL)


def _as_float(e: PrimExpr) -> PrimExpr:
    return Cast(FLOAT32, e)


def _small_bits(e: FloatImm) -> int:
    import ml_dtypes
    import numpy as np

    held = np.float16 if e.dtype == "float16" else getattr(ml_dtypes, e.dtype)
    with np.errstate(over="ignore"):
        return int(np.array(odd_float32(e.value), np.float32).astype(held).view(f"u{e.dtype.nbytes}"))


def _bits_of(e: PrimExpr) -> int:
    """The number of bits of an expression's value, without the sign."""
    if isinstance(e, IntImm):
        return abs(e.value).bit_length()
    if isinstance(e, Cast) and e.value.dtype.is_integral and e.value.dtype.bits < e.dtype.bits:
        return e.value.dtype.bits
    if e.__class__.__name__ == "Mul":
        return _bits_of(e.a) + _bits_of(e.b)  # type: ignore[attr-defined]
    if e.__class__.__name__ in ("Add", "Sub"):
        return max(_bits_of(e.a), _bits_of(e.b)) + 1  # type: ignore[attr-defined]
    return e.dtype.bits


_E = Expressions
_CALLS: dict[str, Callable[[Expressions, Call], Piece]] = {
    "if_then_else": _E.choice,
    "likely": lambda p, e: p.piece(e.args[0]),
    "tvm_thread_invariant": lambda p, e: p.piece(e.args[0]),
    "sigmoid": _E.sigmoid,
    **dict.fromkeys(_BITS, _E.bits),
    "shift_left": _E.shift_left,
    "bitwise_not": _E.bitwise_not,
    "reinterpret": _E.reinterpret,
    "abs": _E.absolute,
    "popcount": _E.counting,
    "clz": _E.counting,
    "call_extern": _E.extern,
    "call_pure_extern": _E.extern,
    "address_of": _E.address_of,
    "tvm_access_ptr": _E.access_ptr,
    "atomic_add": _E.atomic_add,
    **dict.fromkeys(("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down"), _E.shuffle_call),
    "tvm_warp_activemask": lambda p, e: Piece(p.dialect.active_mask()),
    "tvm_storage_sync": _E.barrier,
    "checked": _E.checked,
    "fail": _E.failed,
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _E.classified),
    "undef": lambda p, e: Piece("0"),
    "assume": lambda p, e: Piece("0"),
    "prefetch": lambda p, e: Piece("0"),
    "large_uint_imm": lambda p, e: p.piece(
        IntImm(e.dtype, int(const_value(e.args[1]) or 0) << 32 | int(const_value(e.args[0]) or 0))
    ),
}
