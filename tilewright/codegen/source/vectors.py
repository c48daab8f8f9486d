"""Vectors: lane by lane in registers, packed in loads and stores.

    C[i*4 : i*4+4] = A[i*4 : i*4+4] + 1      ->      float4 A_v = *(const float4*)(A + i * 4);
                                                     *(float4*)(C + i * 4) = make_float4(A_v.x + 1.0f, …);

A lane of an expression is an expression, so the printer of scalars writes it. Packed loads come first, as
statements; conditional loads are done element by element in their branch.
"""

from __future__ import annotations

import functools
from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import INT32, DataType
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import (
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    Let,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, substitute
from ...ir.op import Op
from ...ir.ops import add, mul
from ...ir.stmt import BufferStore
from .expressions import Expressions

_PACKED_BYTES = 16
_MANY = 64  # accumulators of a thread from which register bank conflicts matter


class Vectors(Expressions):
    """Expressions and stores of several lanes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lane_vars: dict[Var, list[Var]] = {}
        self.alignment: dict[Var, int] = {}  # alignment in bytes that packed accesses require of parameters
        self.packs: dict[str, str] = {}  # the types of packed values, by their names
        self.once = False  # whether loads are streaming: not read again
        self.unrolled: set[Var] = set()  # the variables of loops with an unroll pragma
        self.sums: dict[Var, PrimExpr] = {}  # named values that are sums with these variables

    # -- one lane ------------------------------------------------------------------------------
    def lane(self, e: PrimExpr, i: int) -> PrimExpr:
        """Lane `i` of an expression; a scalar is the same in all."""
        if e.dtype.lanes == 1 and not isinstance(e, Shuffle):
            return e
        if isinstance(e, Broadcast):
            return self.lane(e.value, i % e.value.dtype.lanes)
        if isinstance(e, Ramp):
            each = e.base.dtype.lanes
            step = mul(e.stride, const(i // each, e.stride.dtype.element))
            return add(self.lane(e.base, i % each), self.lane(step, i % each))
        if isinstance(e, Shuffle):
            return self._shuffled(e, i)
        if isinstance(e, Var):
            return self.lane_vars[e][i]
        if isinstance(e, Cast):
            return Cast(e.dtype.element, self.lane(e.value, i))
        if isinstance(e, Select):
            return Select(*(self.lane(x, i) for x in (e.condition, e.true_value, e.false_value)))
        if isinstance(e, Let):
            own = Var(e.var.name, e.var.dtype.element)
            body = (
                substitute(e.body, {e.var: Broadcast(own, e.var.dtype.lanes)})
                if e.var.dtype.lanes > 1
                else e.body
            )
            return (
                Let(own, self.lane(e.value, i), self.lane(body, i))
                if body is not e.body
                else Let(e.var, e.value, self.lane(e.body, i))
            )
        if isinstance(e, BufferLoad):
            return self._loaded(e, i)
        if isinstance(e, Call):
            return self._call_lane(e, i)
        parts = e.children()
        if len(parts) in (1, 2) and all(isinstance(p, PrimExpr) for p in parts):
            return e.__class__(*(self.lane(p, i) for p in parts))
        raise LoweringError(f"{self.dialect.name}: no code for a vector {type(e).__name__}: `{e}`")

    def _call_lane(self, e: Call, i: int) -> PrimExpr:
        name = e.op.short_name if isinstance(e.op, Op) else ""
        if name in ("vectorlow", "vectorhigh"):
            return self.lane(e.args[0], i + (e.dtype.lanes if name == "vectorhigh" else 0))
        if name == "if_then_else" and isinstance(e.args[1], BufferLoad) and e.args[1].predicate is not None:
            if structural_equal(e.args[1].predicate, e.args[0]):  # tested already
                e = Call(e.dtype, e.op, (e.args[0], e.args[1].replace(predicate=None), e.args[2]))
        if name == "vectorcombine":
            half = e.args[0].dtype.lanes
            return self.lane(e.args[i // half], i % half)
        if isinstance(e.op, Op) and (e.op.vectorizable or name in ("call_pure_extern", "undef", "checked")):
            return Call(e.dtype.element, e.op, [self.lane(a, i) for a in e.args])
        raise LoweringError(f"{self.dialect.name}: no code for `{name}` of vectors in `{e}`")

    def _shuffled(self, e: Shuffle, i: int) -> PrimExpr:
        at = int(const_value(e.indices[i]) or 0)
        for v in e.vectors:
            if at < v.dtype.lanes:
                return self.lane(v, at)
            at -= v.dtype.lanes
        raise LoweringError(f"{self.dialect.name}: `{e}` picks a lane that is not there")

    def _loaded(self, e: BufferLoad, i: int) -> PrimExpr:
        plain = scalar_access(e.buffer, e.indices[0])
        found = BufferLoad(plain[0], (self.lane(plain[1], i),))
        if e.predicate is None:
            return found
        zero = const(0, found.dtype)
        return Call(found.dtype, "tir.if_then_else", (self.lane(e.predicate, i), found, zero))

    def text_Shuffle(self, e: Shuffle) -> Any:
        return self.piece(self.lane(self.prepared(e), 0))

    def text_Call(self, e: Call) -> Any:
        if isinstance(e.op, Op) and e.op.short_name == "dp4a":
            signs = "".join("u" if a.dtype.is_uint else "s" for a in e.args[:2])
            a, b, c = self._four_bytes(e.args[0]), self._four_bytes(e.args[1]), self.expr(e.args[2])
            name = "tw_dp4a" if signs == "ss" else f"tw_dp4a_{signs}"
            return self.call_piece(f"{name}({a}, {b}, {c})", name)
        return super().text_Call(e)

    def _four_bytes(self, e: PrimExpr) -> str:
        """Four bytes as one integer, with one load if they are contiguous."""
        if e.dtype.lanes == 1:
            return self.expr(e)
        if isinstance(e, BufferLoad) and e.predicate is None:
            buffer, index = scalar_access(e.buffer, e.indices[0])
            if self.chunks(buffer, index) == [4] and self.dialect.needs_alignment:
                self.need_packed(buffer, "", 4)
                base: Any = index
                pointer = self.dialect.pointer(INT32, self.scope_in(buffer), True)
                return f"*({pointer})({self.address(buffer, base.base)})"
        whole, byte = self.prepared(e), self.dialect.type(DataType("uint8"))
        word = self.dialect.type(DataType("uint32"))
        parts = [f"({word})({byte})({self.expr(self.lane(whole, i))}) << {8 * i}" for i in range(4)]
        return f"({self.dialect.type(INT32)})(({') | ('.join(parts)}))"

    # -- packed loads --------------------------------------------------------------------------
    def prepared(self, e: Any) -> Any:
        """The expression after its packed loads and bindings are emitted as statements."""
        if not isinstance(e, PrimExpr) or not any(
            m.dtype.lanes > 1 for m in pre_order(e) if isinstance(m, PrimExpr)
        ):
            return e
        if isinstance(e, BufferLoad) and e.dtype.lanes > 1 and e.predicate is None:
            buffer, index = scalar_access(e.buffer, e.indices[0])
            chunks = self.chunks(buffer, index)
            return self._packed_load(buffer, index, chunks) if chunks else e
        if isinstance(e, Let):
            return self._prepared_let(e)
        if isinstance(e, Call) and isinstance(e.op, Op) and e.op.short_name == "if_then_else":
            return self._prepared_choice(e)
        if e.__class__.__name__ in ("And", "Or"):
            both: Any = e  # short-circuit: the second is evaluated only if the first does not decide
            return both.replace(a=self.prepared(both.a))
        return e.map_children(self.prepared)

    def _prepared_let(self, e: Let) -> PrimExpr:
        if e.var.dtype.lanes == 1:
            self.emit(self.bind_value(e.var, e.value))
            return self.prepared(e.body)
        self.bind_lanes(e.var, e.value)
        return self.prepared(e.body)

    def bind_lanes(self, var: Var, value: PrimExpr) -> None:
        """A variable of several lanes: one variable for each."""
        whole, kind = self.prepared(value), var.dtype.element
        lanes = [Var(f"{var.name}_{i}", kind) for i in range(var.dtype.lanes)]
        for i, v in enumerate(lanes):
            self.emit(self.bind_value(v, self.lane(whole, i)))
        self.lane_vars[var] = lanes

    def _prepared_choice(self, e: Call) -> PrimExpr:
        """A uniform condition becomes a branch statement, so that its loads can be packed."""
        condition, a, b = e.args
        if isinstance(condition, Broadcast):
            condition = condition.value
        if condition.dtype.lanes > 1:
            return Call(e.dtype, e.op, (self.prepared(condition), a, b))
        kind, lanes = e.dtype.element, e.dtype.lanes
        held = [Var(f"choice_{i}", kind) for i in range(lanes)]
        test = self.expr(condition)
        self.data.update(held)
        self.emit(f"{self.dialect.type(kind)} {', '.join(self.define(v) for v in held)};\nif ({test}) {{")
        for value, under, last in ((a, condition, "} else {"), (b, Not(condition), "}")):
            with self.aside() as lines, self.guarded(under, lines):
                whole = self.prepared(value)
                for i, v in enumerate(held):
                    self.emit(f"{self.names[v]} = {self.expr(self.lane(whole, i))};")
            self.lines += lines
            self.emit(last)
        return Shuffle(tuple(held), tuple(const(i) for i in range(lanes)))

    def chunks(self, buffer: Buffer, index: PrimExpr) -> list[int]:
        """The sizes of the packed accesses of a contiguous access."""
        if not _is_contiguous(index) or not buffer.scope_name.startswith(("global", "shared")):
            return []
        if buffer.data in self.memory and not self.memory[buffer.data][1].startswith(("global", "shared")):
            return []
        kind, lanes = buffer.dtype.element, index.dtype.lanes
        most = _PACKED_BYTES // kind.nbytes
        if self.dialect.needs_alignment:
            base: Any = self.ana.simplify(index.base)  # type: ignore[attr-defined]
            known = self.ana.modular_set(base)
            while most > 1 and (known.coeff % most or known.base % most):
                most //= 2
        out: list[int] = []
        while lanes:
            size = most
            while size > lanes:
                size //= 2
            if size < 2 or self.dialect.packed(kind, size) is None:
                return []
            out.append(size)
            lanes -= size
        return out

    def _packed_load(self, buffer: Buffer, index: Any, chunks: list[int]) -> PrimExpr:
        kind, held, start = buffer.dtype.element, list[Var](), 0
        for size in chunks:
            packed = self.dialect.packed(kind, size)
            assert packed is not None
            where = self._kept_address(buffer, self._stepped(index.base, start))
            name = self.name(f"{buffer.name}_v")
            scope = self.scope_in(buffer)
            fetch = self.dialect.load_once if self.once and scope == "global" else self.dialect.load
            loaded = fetch(packed, kind, where, scope)
            self.need_packed(buffer, packed.type, size)
            self.emit(f"const {packed.type} {name} = {loaded};")
            self.packs[name] = packed.type
            for accessor in packed.lanes:
                v = Var(buffer.name, kind)
                self.names[v] = f"{name}{accessor}"
                self.data.add(v)
                held.append(v)
            start += size
        return Shuffle(tuple(held), tuple(const(i) for i in range(len(held))))

    def _kept_address(self, buffer: Buffer, index: PrimExpr) -> str:
        """The address of an element. In swizzled memory, the part that does not depend on unrolled loops is kept
        opaque: a compiler that knows its bits would merge the bits of the loop variables in each iteration, instead of
        adding constants."""
        keep = self.dialect.keep if self.scope_in(buffer).startswith("shared") else ""
        terms = self._terms(index)
        near = [e for e in terms if self._counts_unrolled(e)]
        far = [e for e in terms if not self._counts_unrolled(e)]
        if not keep or not near or not any(_is_xor(m) for e in far for m in pre_order(e)):
            return self.address(buffer, index)
        self.need(keep)
        rest, counted = (self.at(9, functools.reduce(Add, part)) for part in (far, near))
        return f"{self.pointer_to(buffer)} + {keep}({rest}) + {counted}"

    def _terms(self, e: PrimExpr) -> list[PrimExpr]:
        e = self.sums.get(e, e) if isinstance(e, Var) else e
        return [*self._terms(e.a), *self._terms(e.b)] if isinstance(e, Add) else [e]

    def _counts_unrolled(self, e: PrimExpr) -> bool:
        """Whether a term is a constant after unrolling."""
        if isinstance(e, Mul) and const_value(e.b) is not None:
            e = e.a
        return const_value(e) is not None or e in self.unrolled

    def _stepped(self, base: PrimExpr, start: int) -> PrimExpr:
        return base if start == 0 else self.tidy(add(base, const(start, base.dtype)))

    def tidy(self, e: PrimExpr) -> PrimExpr:
        """An index in its normal form, unless that has divisions in it which are lowered already."""
        made = self.ana.simplify(e)
        return e if any(isinstance(m, (FloorDiv, FloorMod)) for m in pre_order(made)) else made

    def need_packed(self, buffer: Buffer, type_text: str, size: int) -> None:
        if type_text.startswith("tw_vec"):
            self.need("tw_vec")
        if self.dialect.needs_alignment:
            held = self.alignment.get(buffer.data, 1)
            self.alignment[buffer.data] = max(held, size * buffer.dtype.element.nbytes)

    def scope_in(self, buffer: Buffer) -> str:
        held = self.memory.get(buffer.data)
        return held[1] if held is not None else buffer.scope_name

    # -- stores --------------------------------------------------------------------------------
    def stmt_BufferStore(self, s: BufferStore) -> None:
        """An element, or the lanes of a vector."""
        if s.value.dtype.lanes == 1 and s.predicate is None:
            value = self.expr(s.value)
            self.emit(f"{self.element(s.buffer, s.indices)} = {value};")
            return
        buffer, index = scalar_access(s.buffer, s.indices[0])
        value_lanes = self._values(s, buffer, index)
        chunks = self.chunks(buffer, index) if s.predicate is None else []
        if not chunks:
            self._store_lanes(s, buffer, index, value_lanes)
            return
        start, kind, scope = 0, buffer.dtype.element, self.scope_in(buffer)
        if _is_sums(s.value) and self.dialect.apart:
            self.need(self.dialect.apart)
            value_lanes = [f"{self.dialect.apart}({v})" for v in value_lanes]
        for size in chunks:
            packed = self.dialect.packed(kind, size)
            assert packed is not None
            base: Any = index
            where = self.address(buffer, self._stepped(base.base, start))
            values = value_lanes[start : start + size]
            self.need_packed(buffer, packed.type, size)
            whole = _whole(values, packed.lanes)
            if whole is None or self.packs.get(whole) != packed.type:
                whole = self.dialect.pack(packed, values)
            self.emit(self.dialect.store(packed, kind, where, whole, scope))
            start += size

    def _values(self, s: BufferStore, buffer: Buffer, index: PrimExpr) -> list[str]:
        """The texts of the lanes of the stored value; evaluated before any store."""
        whole = self.prepared(s.value)
        texts = [self.expr(self.lane(whole, i)) for i in range(s.value.dtype.lanes)]
        for m in pre_order(whole):
            if isinstance(m, BufferLoad) and m.buffer.data is buffer.data:
                if not structural_equal(scalar_access(m.buffer, m.indices[0])[1], index):
                    return self._kept(texts, s.value.dtype.element)
        return texts

    def _kept(self, texts: list[str], kind: DataType) -> list[str]:
        names = [self.name("lane") for _ in texts]
        for name, text in zip(names, texts, strict=True):
            self.emit(f"const {self.dialect.type(kind)} {name} = {text};")
        return names

    def _store_lanes(self, s: BufferStore, buffer: Buffer, index: PrimExpr, values: list[str]) -> None:
        where, held = self.prepared(index), None if s.predicate is None else self.prepared(s.predicate)
        for i, value in enumerate(values):
            line = f"{self.element(buffer, (self.lane(where, i),))} = {value};"
            if held is not None:
                line = f"if ({self.expr(self.lane(held, i))}) {line}"
            self.emit(line)


def scalar_access(buffer: Buffer, index: PrimExpr) -> tuple[Buffer, PrimExpr]:
    """An access to elements that are vectors, as one to their lanes."""
    lanes = buffer.dtype.lanes
    if lanes == 1:
        return buffer, index
    plain = buffer.replace(dtype=buffer.dtype.element, shape=(mul(buffer.shape[0], lanes),))
    if index.dtype.lanes > 1:
        if not _is_contiguous(index):
            raise LoweringError(f"buffer {buffer.name}: vectors of vectors must be contiguous")
        base: Any = index
        return plain, Ramp(mul(base.base, lanes), const(1, base.base.dtype), base.lanes * lanes)
    return plain, Ramp(mul(index, lanes), const(1, index.dtype), lanes)


def _is_sums(value: PrimExpr) -> bool:
    """Whether a stored value is an accumulator of a large register tile."""
    if not isinstance(value, BufferLoad) or value.dtype.element != "float32":
        return False
    return value.buffer.scope_name == "local" and int(const_value(value.buffer.shape[0]) or 0) >= _MANY


def _is_contiguous(index: PrimExpr) -> bool:
    return isinstance(index, Ramp) and const_value(index.stride) == 1 and index.base.dtype.lanes == 1


def _whole(values: list[str], accessors: tuple[str, ...]) -> str | None:
    """The packed value whose lanes these are, in order; None if there is none."""
    stem = values[0].removesuffix(accessors[0])
    if stem == values[0] or not stem.isidentifier():
        return None
    return stem if values == [f"{stem}{a}" for a in accessors] else None


def _is_xor(e: object) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.short_name == "bitwise_xor"
