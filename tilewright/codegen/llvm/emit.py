"""Flat TIR to LLVM's text, one function at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...ir.buffer import Buffer
from ...ir.dtype import BOOL, FLOAT32, INT64, DataType
from ...ir.errors import LoweringError
from ...ir.expr import (
    Broadcast,
    BufferLoad,
    Call,
    IntImm,
    PrimExpr,
    Ramp,
    StringImm,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, undefined_vars
from ...ir.module import GlobalVar
from ...ir.node import methods_of_nodes
from ...ir.op import Op
from ...ir.ops import less, sub
from ...ir.stmt import SLACK, ForKind, LetStmt, Stmt
from ..marks import refuse_engine_mark
from . import loop_hints, memory, polls, trips
from .checks import Waiting, greatest_place
from .half import from_float, to_float
from .intrinsics import INTRINSICS, intrinsic, refuse_by_lane
from .min_max import clipped, is_number, min_max, wants_clip
from .types import constant, is_small_float, mem_type, reg_type, vector_type

if TYPE_CHECKING:
    from .module_emitter import ModuleEmitter

# Allocations up to this many bytes live on the stack.
_STACK_BYTES = 64 * 1024
# Parallel loops of dynamic size with fewer operations run on the calling thread. Chosen by estimate, not measured.
_FEW = 16 * 1024
_ERROR_ASSERT, _ERROR_MEMORY = 1, 4


def _imported_text(value: str) -> str:
    """The code of `pragma import_llvm`: LLVM IR as text, or the name of a file of it."""
    if "\n" in value or not value.endswith(".ll"):
        return value
    try:
        with open(value, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise LoweringError(
            f"pragma import_llvm names the file {value}, which cannot be read: {error}"
        ) from None


class FunctionEmitter:
    """The body of one LLVM function. Values are operands as text; types follow from the expressions."""

    def __init__(self, module: ModuleEmitter, *, in_parallel: bool = False, noalias: bool = False) -> None:
        self.module, self.noalias = module, noalias
        self.in_parallel = in_parallel
        self.streaming: frozenset[Var] | None = None  # memory written by streaming stores
        self.volatile: frozenset[Var] = frozenset()  # memory that others may read and write meanwhile
        self.lines: list[str] = []
        self.entry: list[str] = []  # allocas, which belong into the entry block
        self.values: dict[Var, str] = {}  # "" if `late` has the instruction
        self.wide: dict[Var, str] = {}  # values as 64-bit integers, for addresses
        self.late: dict[Var, str] = {}  # instructions of rarely used values, emitted at first use
        self.known: dict[Any, str] = {}  # registers of this block and its dominators, by their values
        self.order: list[Any] = []  # the keys of `known`, oldest first
        self.writes: dict[Var, int] = {}  # number of writes so far, by memory
        self.epoch = 0  # number of operations that may have written any memory
        self.noalias = noalias  # whether no two pointers alias
        self.heap: list[str] = []  # pointers to free at a return
        self.block = "entry"
        self.count = 0
        self.ret_pointer: str | None = None
        self.watched: Var | None = None  # the pointer to the interrupt flag
        self.polls: dict[
            Stmt, int
        ] = {}  # loops that poll it, with the number of iterations between two polls

    @property
    def watch(self) -> str:
        assert self.watched is not None
        return self.expr_Var(self.watched)

    # -- text --------------------------------------------------------------------------------
    def emit(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def effect(self, text: str) -> str:
        """A new register with the result of an instruction that has effects, or depends on those of others."""
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def tmp(self, text: str, key: Any = None) -> str:
        """The register with the result of an instruction: an existing one, if the same was computed before.

        Unrolled code repeats most address computations, and LLVM takes long to eliminate them. The `key` identifies a
        result that depends on more than the text.
        """
        key = key or text
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.effect(text)
            self.order.append(key)
        return found

    @contextmanager
    def branching(self, again: bool = False) -> Iterator[None]:
        """A scope of conditional code, whose registers do not dominate the code that follows. If it may run `again`,
        earlier loads are stale."""
        self.epoch += again
        level = len(self.order)
        yield
        for key in self.order[level:]:
            del self.known[key]
        del self.order[level:]
        self.epoch += again

    def wrote(self, data: Var) -> None:
        """Invalidate earlier loads from this memory."""
        if self.noalias:
            self.writes[data] = self.writes.get(data, 0) + 1
        else:
            self.epoch += 1

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def branch_if(self, condition: str, yes: str, no: str, weights: str = "") -> None:
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}{weights}")

    def alloca(self, type_text: str, count: int = 1, align: int = 64) -> str:
        self.count += 1
        name = f"%a{self.count}"
        self.entry.append(f"  {name} = alloca {type_text}, i64 {count}, align {align}")
        return name

    def ret(self, code: str) -> None:
        for pointer in reversed(self.heap):
            self.emit(f"call void @__tw_give(ptr {pointer})")
        self.emit(f"ret i32 {code}")

    def fail(self, code: int, message: str) -> None:
        """Return from the function with an error."""
        text = self.module.string(message)
        self.emit(f"store ptr {text}, ptr @__tw_error_message")
        self.ret(str(code))

    def propagate(self, code: str) -> None:
        """Return from the function if a call returned an error."""
        bad, good = self.label("failed"), self.label("ok")
        self.branch_if(self.tmp(f"icmp ne i32 {code}, 0"), bad, good, ", !prof !0")
        self.start(bad)
        self.ret(code)
        self.start(good)

    # -- expressions -------------------------------------------------------------------------
    def expr(self, e: PrimExpr) -> str:
        handler = _EXPR.get(e.__class__.__name__)
        if handler is None:
            raise LoweringError(f"no code for {e.__class__.__name__}: `{e}`")
        return handler(self, e)

    def bind(self, var: Var, value: str) -> None:
        self.values[var] = value
        self.wide.pop(var, None)

    def bind_wide(self, var: Var, wide: str, how: str = "trunc") -> None:
        """Bind a variable to the low bits of a 64-bit integer; mostly only addresses use it."""
        if var.dtype.bits == 64:
            self.values[var] = wide
        else:
            self.values[var] = ""
            self.late[var] = f"{how} i64 {wide} to {reg_type(var.dtype)}"
        self.wide[var] = wide

    def expr_Var(self, e: Var) -> str:
        found = self.values.get(e)
        if found is None:
            raise LoweringError(f"variable `{e.name}` is used where it is not defined")
        return found or self.tmp(self.late[e])

    expr_SizeVar = expr_Var

    def index64(self, e: PrimExpr) -> str:
        """An index as a 64-bit integer: sums and products are computed wide, so they cannot overflow."""
        name = e.__class__.__name__
        if isinstance(e, IntImm):
            return str(e.value)
        if isinstance(e, Var):
            found = self.wide.get(e)
            if found is None:
                value = self.expr_Var(e)
                found = value if e.dtype.bits == 64 else self.extend(value, e.dtype)
                # Cache it only where the register dominates: loops fill `wide` themselves.
            return found
        if name in ("Add", "Sub", "Mul") and e.dtype.is_int:
            return self.wide_sum(name, self.index64(e.a), self.index64(e.b))  # type: ignore[attr-defined]
        value = self.expr(e)
        return value if e.dtype.bits == 64 else self.extend(value, e.dtype)

    def wide_sum(self, name: str, a: str, b: str) -> str:
        """The sum, difference or product of 64-bit integers that do not overflow."""
        if name == "Add" and "0" in (a, b):
            return b if a == "0" else a
        return self.tmp(f"{name.lower()} nsw i64 {a}, {b}")

    def extend(self, value: str, kind: DataType) -> str:
        how = "sext" if kind.is_int else "zext"
        wide = INT64.with_lanes(kind.lanes)
        return self.tmp(f"{how} {reg_type(kind)} {value} to {reg_type(wide)}")

    def expr_IntImm(self, e: Any) -> str:
        return constant(e.dtype, e.value)

    expr_FloatImm = expr_IntImm

    def expr_StringImm(self, e: StringImm) -> str:
        return self.module.string(e.value)

    # arithmetic
    def expr_Add(self, e: Any) -> str:
        kind, a, b = e.dtype, self.expr(e.a), self.expr(e.b)
        return self.binary(e.__class__.__name__, kind, a, b)

    expr_Sub = expr_Mul = expr_Div = expr_Mod = expr_FloorDiv = expr_Add
    expr_FloorMod = expr_Add

    def expr_Min(self, e: Any) -> str:
        a, b = self.expr(e.a), self.expr(e.b)
        if wants_clip(e):
            return clipped(self, e, *((a, b) if is_number(e.a) else (b, a)))
        return self.binary(e.__class__.__name__, e.dtype, a, b)

    expr_Max = expr_Min

    def binary(self, name: str, kind: DataType, a: str, b: str) -> str:
        if is_small_float(kind):
            wide = FLOAT32.with_lanes(kind.lanes)
            made = self.binary(name, wide, to_float(self, kind, a), to_float(self, kind, b))
            return from_float(self, kind, made)
        text = reg_type(kind)
        if name in ("Min", "Max"):
            return min_max(self, name, kind, a, b)
        if name in ("FloorDiv", "FloorMod") and kind.is_integral:
            return self.floor_division(name, kind, a, b)
        if kind.is_float:
            return self.tmp(f"{_FLOAT_OPS[name]} {self.module.fast_flags} {text} {a}, {b}")
        table = _INT_OPS if kind.is_int else _UINT_OPS
        return self.tmp(f"{table[name]} {text} {a}, {b}")

    def floor_division(self, name: str, kind: DataType, a: str, b: str) -> str:
        text, mask = reg_type(kind), reg_type(BOOL.with_lanes(kind.lanes))
        if not kind.is_int:
            return self.tmp(f"{'udiv' if name == 'FloorDiv' else 'urem'} {text} {a}, {b}")
        zero = constant(kind, 0)
        rem = self.tmp(f"srem {text} {a}, {b}")
        odd = self.tmp(f"icmp ne {text} {rem}, {zero}")
        signs = self.tmp(f"xor {text} {rem}, {b}")
        differ = self.tmp(f"icmp slt {text} {signs}, {zero}")
        fix = self.tmp(f"and {mask} {odd}, {differ}")
        if name == "FloorMod":
            more = self.tmp(f"add {text} {rem}, {b}")
            return self.tmp(f"select {mask} {fix}, {text} {more}, {text} {rem}")
        quotient = self.tmp(f"sdiv {text} {a}, {b}")
        less = self.tmp(f"add {text} {quotient}, {constant(kind, -1)}")
        return self.tmp(f"select {mask} {fix}, {text} {less}, {text} {quotient}")

    def expr_EQ(self, e: Any) -> str:
        kind, name = e.a.dtype, e.__class__.__name__
        if kind.is_int and kind.lanes == 1 and _is_index(e.a) and _is_index(e.b):
            kind, a, b = INT64, self.index64(e.a), self.index64(e.b)
        else:
            a, b = self.expr(e.a), self.expr(e.b)
        if is_small_float(kind):
            a, b = to_float(self, kind, a), to_float(self, kind, b)
            kind = FLOAT32.with_lanes(kind.lanes)
        text = reg_type(kind)
        if kind.is_float:
            order = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}[name]
            return self.tmp(f"fcmp {order} {text} {a}, {b}")
        order = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}[name]
        if name not in ("EQ", "NE"):
            order = ("s" if kind.is_int else "u") + order
        return self.tmp(f"icmp {order} {text} {a}, {b}")

    expr_NE = expr_LT = expr_LE = expr_GT = expr_GE = expr_EQ

    def expr_And(self, e: Any) -> str:
        conj = e.__class__.__name__ == "And"
        a = self.expr(e.a)
        if e.dtype.is_vector or not may_trap(e.b):
            return self.tmp(f"{'and' if conj else 'or'} {reg_type(e.dtype)} {a}, {self.expr(e.b)}")
        decided = "false" if conj else "true"
        return self.choice(
            a, (lambda: self.expr(e.b)) if conj else None, None if conj else e.b, "i1", decided
        )

    expr_Or = expr_And

    def choice(
        self, condition: str, then: Callable[[], str] | None, other: PrimExpr | None, text: str, fixed: str
    ) -> str:
        """A value that depends on a condition, with a branch: only the selected operand is computed."""
        yes, no, done = self.label("then"), self.label("else"), self.label("end")
        self.branch_if(condition, yes, no)
        self.start(yes)
        with self.branching():
            a = fixed if then is None else then()
        from_a = self.block
        self.branch(done)
        self.start(no)
        with self.branching():
            b = fixed if other is None else self.expr(other)
        from_b = self.block
        self.branch(done)
        self.start(done)
        return self.effect(f"phi {text} [ {a}, %{from_a} ], [ {b}, %{from_b} ]")

    def expr_Not(self, e: Any) -> str:
        return self.tmp(f"xor {reg_type(e.dtype)} {self.expr(e.a)}, {constant(e.dtype, 1)}")

    def expr_Select(self, e: Any) -> str:
        condition, a, b = self.expr(e.condition), self.expr(e.true_value), self.expr(e.false_value)
        text = reg_type(e.dtype)
        return self.tmp(f"select {reg_type(e.condition.dtype)} {condition}, {text} {a}, {text} {b}")

    def expr_Let(self, e: Any) -> str:
        self.bind(e.var, self.expr(e.value))
        self.noalias &= not e.var.dtype.is_handle  # an alias of another pointer
        return self.expr(e.body)

    def expr_Cast(self, e: Any) -> str:
        return self.narrowed(self.expr(e.value), e)

    def narrowed(self, value: str, e: Any) -> str:
        """The value of a cast. A checked index loses no bits."""
        old, new = e.value.dtype, e.dtype
        if new.is_int and old.is_integral and new.bits < old.bits and greatest_place(e.value) <= new.high:
            return self.tmp(f"trunc nuw nsw {reg_type(old)} {value} to {reg_type(new)}")
        return self.convert(value, old, new)

    def convert(self, value: str, old: DataType, new: DataType) -> str:
        if old is new:
            return value
        if is_small_float(old):
            return self.convert(to_float(self, old, value), FLOAT32.with_lanes(old.lanes), new)
        if is_small_float(new):
            wide = FLOAT32.with_lanes(new.lanes)
            return from_float(self, new, self.convert(value, old, wide))
        a, b = reg_type(old), reg_type(new)
        if new.is_bool:
            zero = constant(old, 0)
            return self.tmp(f"{'fcmp une' if old.is_float else 'icmp ne'} {a} {value}, {zero}")
        if old.is_float and new.is_float:
            return self.tmp(f"{'fpext' if new.bits > old.bits else 'fptrunc'} {a} {value} to {b}")
        if old.is_float:
            return self.tmp(f"{'fptosi' if new.is_int else 'fptoui'} {a} {value} to {b}")
        if new.is_float:
            return self.tmp(f"{'sitofp' if old.is_int else 'uitofp'} {a} {value} to {b}")
        if old.is_handle or new.is_handle:
            how = "ptrtoint" if old.is_handle else "inttoptr"
            return self.tmp(f"{how} {a} {value} to {b}")
        if new.bits == old.bits:
            return value
        how = "trunc" if new.bits < old.bits else "sext" if old.is_int else "zext"
        return self.tmp(f"{how} {a} {value} to {b}")

    # vectors
    def expr_Broadcast(self, e: Broadcast) -> str:
        known = const_value(e.value)
        if known is not None:
            return constant(e.dtype, known)
        return self.splat(self.expr(e.value), e.value.dtype, e.dtype.lanes)

    def splat(self, value: str, kind: DataType, lanes: int) -> str:
        if kind.is_vector:
            raise LoweringError(f"a broadcast of the vector type {kind} has no code")
        text = reg_type(kind.with_lanes(lanes))
        one = self.tmp(f"insertelement {text} poison, {reg_type(kind)} {value}, i64 0")
        zeros = f"{vector_type('i32', lanes)} zeroinitializer"
        return self.tmp(f"shufflevector {text} {one}, {text} poison, {zeros}")

    def expr_Ramp(self, e: Ramp) -> str:
        kind, text = e.base.dtype, reg_type(e.dtype)
        base = self.splat(self.expr(e.base), kind, e.dtype.lanes)
        step = const_value(e.stride)
        if e.dtype.is_scalable:
            numbers = intrinsic(self, "stepvector", e.dtype)
            if step == 1:
                return self.tmp(f"add {text} {base}, {numbers}")
            by = self.splat(self.expr(e.stride), kind, e.dtype.lanes)
            return self.tmp(f"add {text} {base}, {self.tmp(f'mul {text} {by}, {numbers}')}")
        if step is not None:
            steps = ", ".join(f"{reg_type(kind)} {int(step) * i}" for i in range(e.lanes))
            return self.tmp(f"add {text} {base}, <{steps}>")
        lanes = ", ".join(f"{reg_type(kind)} {i}" for i in range(e.lanes))
        stride = self.splat(self.expr(e.stride), kind, e.lanes)
        scaled = self.tmp(f"mul {text} {stride}, <{lanes}>")
        return self.tmp(f"add {text} {base}, {scaled}")

    def expr_Shuffle(self, e: Any) -> str:
        kind = e.vectors[0].dtype
        for v in e.vectors:
            refuse_by_lane(v.dtype, "a choice of single lanes", e)
        if kind.lanes > 1 and len(e.vectors) <= 2 and len(e.indices) > 1:
            text, values = reg_type(kind), [self.expr(v) for v in e.vectors]
            order = ", ".join(f"i32 {int(const_value(i) or 0)}" for i in e.indices)
            second = values[1] if len(values) > 1 else "poison"
            return self.tmp(
                f"shufflevector {text} {values[0]}, {text} {second}, <{len(e.indices)} x i32> <{order}>"
            )
        parts: list[tuple[str, DataType]] = []
        for v in e.vectors:
            value = self.expr(v)
            if v.dtype.lanes == 1:
                parts.append((value, v.dtype))
            else:
                for i in range(v.dtype.lanes):
                    lane = self.tmp(f"extractelement {reg_type(v.dtype)} {value}, i64 {i}")
                    parts.append((lane, v.dtype.element))
        picks = [int(const_value(i) or 0) for i in e.indices]
        if len(picks) == 1:
            return parts[picks[0]][0]
        return self.gathered([parts[i][0] for i in picks], e.dtype)

    def gathered(self, lanes: Iterable[str], kind: DataType) -> str:
        text, one, out = reg_type(kind), reg_type(kind.element), "poison"
        for i, lane in enumerate(lanes):
            out = self.tmp(f"insertelement {text} {out}, {one} {lane}, i64 {i}")
        return out

    # -- memory --------------------------------------------------------------------------------
    def pointer(self, buffer: Buffer) -> str:
        found = self.values.get(buffer.data)
        if found is None:
            raise LoweringError(f"buffer {buffer.name} is used where its memory is not defined")
        return found

    def address(self, buffer: Buffer, index: PrimExpr) -> str:
        base, place = self.pointer(buffer), self.index64(index)
        if place == "0":
            return base
        return self.tmp(f"getelementptr inbounds {mem_type(buffer.dtype)}, ptr {base}, i64 {place}")

    def load_at(self, pointer: str, kind: DataType, buffer: Buffer) -> str:
        how = f"{mem_type(kind)}, ptr {pointer}, align {buffer.dtype.element.nbytes}"
        if buffer.data in self.volatile:
            value = self.effect(f"load volatile {how}")
        else:
            text = f"load {how}"
            value = self.tmp(text, (text, self.epoch, self.writes.get(buffer.data, 0)))
        return self.truth(value, kind) if kind.bits == 1 else value

    def truth(self, value: str, kind: DataType) -> str:
        """A byte, or a vector of bytes, as bool: every value but 0 is true."""
        return self.tmp(f"icmp ne {mem_type(kind)} {value}, {'0' if kind.lanes == 1 else 'zeroinitializer'}")

    def flat(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
        if len(indices) != 1:
            raise LoweringError(f"buffer {buffer.name} still has {len(indices)} dimensions: flatten it first")
        return indices[0]

    def addresses(self, buffer: Buffer, index: PrimExpr) -> list[str]:
        """One address for each lane of a vector index."""
        base, text = self.pointer(buffer), mem_type(buffer.dtype)
        lanes = index.dtype.lanes
        if isinstance(index, Ramp) and index.base.dtype.lanes == 1:
            first = self.address(buffer, index.base)
            step = const_value(index.stride)
            if step is not None:
                return [
                    self.tmp(f"getelementptr inbounds {text}, ptr {first}, i64 {int(step) * i}")
                    for i in range(lanes)
                ]
            stride = self.index64(index.stride)
            out = [first]
            for _ in range(1, lanes):
                out.append(self.tmp(f"getelementptr inbounds {text}, ptr {out[-1]}, i64 {stride}"))
            return out
        value = self.expr(index)
        if index.dtype.bits != 64:
            value = self.extend(value, index.dtype)
        wide = reg_type(INT64.with_lanes(lanes))
        picks = [self.tmp(f"extractelement {wide} {value}, i64 {i}") for i in range(lanes)]
        return [self.tmp(f"getelementptr inbounds {text}, ptr {base}, i64 {p}") for p in picks]

    # -- calls -----------------------------------------------------------------------------------
    def expr_Call(self, e: Call) -> str:
        if isinstance(e.op, GlobalVar):
            args = ", ".join(f"{reg_type(a.dtype)} {self.expr(a)}" for a in e.args)
            symbol = self.module.symbol(e.op.name_hint)
            if e.op.name_hint not in self.module.symbols:  # compiled on its own, and linked later
                self.module.declare_extern(symbol, "i32", [reg_type(a.dtype) for a in e.args])
            code = self.effect(f"call i32 @{symbol}({args})")
            self.epoch += 1
            self.propagate(code)
            if self.watched is not None:
                polls.look(self)
            return code
        assert isinstance(e.op, Op)
        handler = INTRINSICS.get(e.op.short_name)
        if handler is None:
            raise LoweringError(f"the LLVM backend has no code for `{e.op.name}` in `{e}`")
        made = handler(self, e)
        self.epoch += not e.op.is_pure
        return made

    expr_BufferLoad = memory.load

    # -- statements ------------------------------------------------------------------------------
    def stmt(self, s: Stmt) -> None:
        handler = _STMT.get(s.__class__.__name__)
        if handler is None:
            raise LoweringError(f"no code for {s.__class__.__name__}; lower the function first")
        handler(self, s)

    def stmt_SeqStmt(self, s: Any) -> None:
        for one in s.seq:
            self.stmt(one)

    def stmt_LetStmt(self, s: Any) -> None:
        waiting = Waiting(self)
        while True:
            if not waiting.takes(s):
                self.let_value(s)
            if not isinstance(s.body, LetStmt):
                break
            s = s.body
        waiting.end()
        self.stmt(s.body)

    def let_value(self, s: LetStmt) -> None:
        if s.var.dtype.is_int and s.var.dtype.lanes == 1 and s.var.dtype.bits < 64 and _is_index(s.value):
            # A common part of addresses: keep it wide.
            self.bind_wide(s.var, self.index64(s.value))
        else:
            self.bind(s.var, self.expr(s.value))
            self.noalias &= not s.var.dtype.is_handle

    def stmt_AttrStmt(self, s: Any) -> None:
        if s.attr_key == "thread_extent":
            raise LoweringError(
                f"a loop is bound to {s.node.thread_tag}, which a CPU target does not have: "
                "build for a GPU target, or use parallel/vectorize instead of bind"
            )
        refuse_engine_mark(s.attr_key, "a CPU target")
        if s.attr_key == "pragma_import_llvm" and isinstance(s.value, StringImm):
            self.module.imported[_imported_text(s.value.value)] = None
        if s.attr_key == "volatile_scope" and isinstance(s.node, Var):
            before, self.volatile = self.volatile, self.volatile | {s.node}
            self.stmt(s.body)
            self.volatile = before
            return
        if s.attr_key == "pragma_nontemporal" and self.streaming is None and self.module.is_x86:
            memory.streamed(self, s.body)
            return
        self.stmt(s.body)

    def stmt_AssertStmt(self, s: Any) -> None:
        good, bad = self.label("holds"), self.label("fails")
        self.branch_if(self.expr(s.condition), good, bad, ", !prof !1")
        self.start(bad)
        message = s.message.value if isinstance(s.message, StringImm) else "assertion failed"
        self.fail(_ERROR_ASSERT, message)
        self.start(good)
        self.stmt(s.body)

    def stmt_IfThenElse(self, s: Any) -> None:
        condition = self.expr(s.condition)
        yes, done = self.label("if"), self.label("endif")
        no = done if s.else_case is None else self.label("else")
        self.branch_if(condition, yes, no)
        self.start(yes)
        with self.branching():
            self.stmt(s.then_case)
        self.branch(done)
        if s.else_case is not None:
            self.start(no)
            with self.branching():
                self.stmt(s.else_case)
            self.branch(done)
        self.start(done)

    def stmt_For(self, s: Any) -> None:
        if s.kind is ForKind.PARALLEL and not self.in_parallel:
            self.parallel(s)
        elif s.kind is ForKind.THREAD_BINDING:
            raise LoweringError(f"loop `{s.loop_var}` is still bound to a thread: lower the function first")
        else:
            begin = self.index64(s.min)
            self.loop(s, begin, self.wide_sum("Add", begin, self.index64(s.extent)))

    def loop(self, s: Any, begin: str, end: str) -> None:
        """A counted loop, which may poll for interrupts: in each iteration, between blocks, or if it is long."""
        size = self.polls.get(s, 0)
        if size < 0:
            yes, no, done = self.label("long"), self.label("short"), self.label("done")
            count = self.tmp(f"sub nsw i64 {end}, {begin}")
            self.branch_if(self.tmp(f"icmp sgt i64 {count}, {polls.LONG}"), yes, no, ", !prof !0")
            self.start(yes)
            with self.branching():
                self.in_blocks(s, begin, end, -size)
            self.branch(done)
            self.start(no)
            with self.branching():
                self.counted(s, begin, end)
            self.branch(done)
            self.start(done)
        elif size > 1:
            self.in_blocks(s, begin, end, size)
        else:
            self.counted(s, begin, end, size == 1)

    def in_blocks(self, s: Any, begin: str, end: str, size: int) -> None:
        """A counted loop that polls for interrupts once in `size` iterations."""
        head, body, done = self.label("head"), self.label("block"), self.label("done")
        before = self.block
        self.branch(head)
        self.start(head)
        self.count += 1
        first, slot = f"%i{self.count}", len(self.lines)
        self.lines.append("")
        self.branch_if(self.effect(f"icmp slt i64 {first}, {end}"), body, done)
        self.start(body)
        with self.branching(again=True):
            polls.look(self)
            full = self.tmp(f"add nsw i64 {first}, {size}")
            last = self.tmp(f"select i1 {self.tmp(f'icmp slt i64 {full}, {end}')}, i64 {full}, i64 {end}")
            self.counted(s, first, last)
        self.lines[slot] = f"  {first} = phi i64 [ {begin}, %{before} ], [ {last}, %{self.block} ]"
        self.branch(head)
        self.start(done)

    def counted(self, s: Any, begin: str, end: str, looks: bool = False) -> None:
        """A counted loop over 64-bit integers; the loop variable is its low bits."""
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        before = self.block
        self.branch(head)
        self.start(head)
        self.count += 1
        counter, following = f"%i{self.count}", f"%n{self.count}"
        slot = len(self.lines)
        self.lines.append("")
        inside = self.tmp(f"icmp slt i64 {counter}, {end}")
        self.branch_if(inside, body, done)
        self.start(body)
        self.bind_wide(s.loop_var, counter, "trunc nsw")
        with self.branching(again=True):
            if looks:
                polls.look(self)
            self.stmt(s.body)
        self.emit(f"{following} = add nsw i64 {counter}, 1")
        latch = self.block
        mark = loop_hints.metadata(self.module, s, self.lines[slot + 1 :])
        self.emit(f"br label %{head}{mark}")
        self.lines[slot] = f"  {counter} = phi i64 [ {begin}, %{before} ], [ {following}, %{latch} ]"
        self.start(done)

    def parallel(self, s: Any) -> None:
        """Outline the loop's body and hand ranges of it to the thread pool."""
        captured = [v for v in undefined_vars(s.body, [s.loop_var]) if v in self.values]
        captured += [] if self.watched is None else [self.watched]
        entry = self.module.outline(self, s, captured)
        fields = [reg_type(v.dtype) for v in captured]
        environment = self.alloca("{ " + ", ".join(fields) + " }" if fields else "i8", align=16)
        struct_text = "{ " + ", ".join(fields) + " }"
        for i, v in enumerate(captured):
            slot = self.tmp(f"getelementptr inbounds {struct_text}, ptr {environment}, i32 0, i32 {i}")
            self.emit(f"store {fields[i]} {self.expr_Var(v)}, ptr {slot}")
        begin = self.index64(s.min)
        end = self.wide_sum("Add", begin, self.index64(s.extent))
        launch = self.effect("load ptr, ptr @__tw_parallel_launch")
        if (work := trips.operations(s, self.values.__contains__)) is not None:
            few = self.expr(less(work, const(_FEW, "int64")))
            launch = self.tmp(f"select i1 {few}, ptr @__tw_alone, ptr {launch}")
        self.epoch += 1
        code = self.effect(f"call i32 {launch}(ptr @{entry}, ptr {environment}, i64 {begin}, i64 {end})")
        self.propagate(code)

    def stmt_While(self, s: Any) -> None:
        head, body, done = self.label("while"), self.label("do"), self.label("done")
        self.branch(head)
        self.start(head)
        self.epoch += 1
        self.branch_if(self.expr(s.condition), body, done)
        self.start(body)
        with self.branching(again=True):
            if s in self.polls:
                polls.look(self)
            self.stmt(s.body)
        self.branch(head)
        self.start(done)

    stmt_BufferStore = memory.store

    def stmt_Allocate(self, s: Any) -> None:
        size = const_value(s.extents[0]) if len(s.extents) == 1 else None
        if len(s.extents) > 1:
            raise LoweringError(f"allocation of {s.buffer_var.name} still has {len(s.extents)} dimensions")
        text = mem_type(s.dtype)
        if size is not None and int(size) * s.dtype.nbytes <= _STACK_BYTES:
            self.bind(s.buffer_var, self.alloca(text, max(1, int(size))))
            self.stmt(s.body)
            return
        with self.allocated(s):
            self.stmt(s.body)

    @contextmanager
    def allocated(self, s: Any) -> Iterator[None]:
        """The memory of an allocation on the heap while its body is emitted."""
        nbytes = s.dtype.nbytes
        room = self.tmp(f"mul i64 {self.index64(s.extents[0])}, {nbytes}")
        slack = int(s.annotations.get(SLACK, 0))
        if slack:
            self.module.slack.add(s.buffer_var)
        # aligned_alloc takes multiples of the alignment
        padded = self.tmp(f"add i64 {room}, {127 + slack * nbytes}")
        whole = self.tmp(f"and i64 {padded}, -64")
        size_type = self.module.size_type
        if size_type != "i64":
            whole = self.tmp(f"trunc i64 {whole} to {size_type}")
        pointer = self.effect(f"call noalias align 64 ptr @__tw_take({size_type} {whole})")
        good, bad = self.label("got"), self.label("nomem")
        self.branch_if(self.tmp(f"icmp ne ptr {pointer}, null"), good, bad, ", !prof !1")
        self.start(bad)
        self.fail(_ERROR_MEMORY, f"out of memory for buffer {s.buffer_var.name}")
        self.start(good)
        self.heap.append(pointer)
        self.bind(s.buffer_var, pointer)
        yield
        self.heap.pop()
        self.emit(f"call void @__tw_give(ptr {pointer})")

    def stmt_AllocateConst(self, s: Any) -> None:
        self.bind(s.buffer_var, self.module.constant_array(s.data, s.dtype))
        self.stmt(s.body)

    def stmt_DeclBuffer(self, s: Any) -> None:
        self.stmt(s.body)

    def stmt_Evaluate(self, s: Any) -> None:
        if not isinstance(s.value, IntImm):
            self.expr(s.value)

    def stmt_Prefetch(self, s: Any) -> None:
        index = sub(s.bounds[0].min, IntImm(s.bounds[0].min.dtype, 0))
        self.emit(f"call void @llvm.prefetch.p0(ptr {self.address(s.buffer, index)}, i32 0, i32 3, i32 1)")


def _is_index(e: PrimExpr) -> bool:
    """Whether it consists of loop variables and sizes only, which do not overflow."""
    return all(
        m.__class__.__name__ in ("Var", "SizeVar", "IntImm", "Add", "Sub", "Mul") for m in pre_order(e)
    )


def may_trap(e: PrimExpr) -> bool:
    """Whether evaluating it speculatively may trap."""
    for m in pre_order(e):
        if isinstance(m, (BufferLoad, Call)) and not (
            isinstance(m, Call)
            and isinstance(m.op, Op)
            and m.op.vectorizable
            and m.op.short_name != "if_then_else"
        ):
            return True
        if m.__class__.__name__ in ("Div", "Mod", "FloorDiv", "FloorMod") and not m.dtype.is_float:
            if not const_value(m.b):
                return True
    return False


_FLOAT_OPS = {"Add": "fadd", "Sub": "fsub", "Mul": "fmul", "Div": "fdiv", "Mod": "frem"}
# Integers in data wrap as NumPy's do; only addresses may assume that they do not overflow.
_INT_OPS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "sdiv", "Mod": "srem"}
_UINT_OPS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "udiv", "Mod": "urem"}
_EXPR: Final = methods_of_nodes(FunctionEmitter, "expr_")
_STMT: Final = methods_of_nodes(FunctionEmitter, "stmt_")
