"""Loads and stores: plain, masked, of stride 2, and streaming (non-temporal)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import INT64, DataType
from ...ir.errors import LoweringError
from ...ir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, const_value
from ...ir.functor import pre_order
from ...ir.stmt import BufferStore, LetStmt, Stmt
from .lanes import contiguous, private
from .types import mem_type, reg_type, suffix, vector_suffix, vector_type

if TYPE_CHECKING:
    from .emit import FunctionEmitter


def load(f: FunctionEmitter, e: BufferLoad) -> str:
    """The value of a load, by the cheapest instructions that its index allows."""
    buffer, index = e.buffer, f.flat(e.buffer, e.indices)
    _refuse_masked(f, e, "load")
    if e.predicate is not None and index.dtype.is_vector and not private(index, buffer):
        return _masked_load(f, e, index)
    if index.dtype.lanes == 1:
        return f.load_at(f.address(buffer, index), buffer.dtype, buffer)
    if isinstance(index, Broadcast):
        value = f.load_at(f.address(buffer, index.value), buffer.dtype, buffer)
        return f.splat(value, buffer.dtype, index.dtype.lanes)
    if contiguous(index):
        return f.load_at(f.address(buffer, index.base), e.dtype, buffer)
    if index.dtype.is_scalable:
        return _masked_load(f, e, index)
    if _every_second(index) and not e.dtype.is_bool and buffer.data not in f.volatile:
        return _every_second_load(f, e, index)
    lanes = [f.load_at(p, buffer.dtype, buffer) for p in f.addresses(buffer, index)]
    return f.gathered(lanes, e.dtype)


def _refuse_masked(f: FunctionEmitter, access: Any, what: str) -> None:
    """Refuse a predicate of volatile memory: LLVM has no such instruction."""
    if access.predicate is not None and access.buffer.data in f.volatile:
        raise LoweringError(
            f"a {what} of {access.buffer.name} has a predicate, and {access.buffer.name} is volatile: no masked {what} "
            "is volatile; write a condition around a scalar access instead of the predicate"
        )


def _every_second_load(f: FunctionEmitter, e: BufferLoad, index: Any) -> str:
    """A load of stride 2: two whole vectors, of which every second lane is kept. The last element, which may be out of
    bounds, is not read."""
    lanes, text, bits = index.lanes, mem_type(e.dtype), f"<{index.lanes} x i1>"
    if e.predicate is None:
        halves = [
            f"<{', '.join('i1 true' for _ in range(lanes))}>",
            f"<{', '.join('i1 true' for _ in range(lanes - 1))}, i1 false>",
        ]
    else:
        mask, halves = f.expr(e.predicate), []
        for half in range(2):
            picks = [lanes // 2 * half + i // 2 if i % 2 == 0 else lanes for i in range(lanes)]
            chosen = ", ".join(f"i32 {p}" for p in picks)
            halves.append(
                f.tmp(f"shufflevector {bits} {mask}, {bits} zeroinitializer, <{lanes} x i32> <{chosen}>")
            )
    name, align = f"llvm.masked.load.{suffix(e.dtype)}.p0", e.buffer.dtype.element.nbytes
    f.module.declare(f"declare {text} @{name}(ptr, i32, {bits}, {text})")
    first = f.address(e.buffer, index.base)
    second = f.tmp(f"getelementptr {mem_type(e.buffer.dtype)}, ptr {first}, i64 {lanes}")
    parts = [
        f.effect(f"call {text} @{name}(ptr {p}, i32 {align}, {bits} {m}, {text} zeroinitializer)")
        for p, m in zip((first, second), halves, strict=True)
    ]
    even = ", ".join(f"i32 {2 * i}" for i in range(lanes))
    return f.tmp(f"shufflevector {text} {parts[0]}, {text} {parts[1]}, <{lanes} x i32> <{even}>")


def _masked_load(f: FunctionEmitter, e: BufferLoad, index: PrimExpr) -> str:
    """A load of the lanes where the predicate holds; no other memory is accessed."""
    if _every_second(index) and not e.dtype.is_bool:
        return _every_second_load(f, e, index)
    text, kind = mem_type(e.dtype), e.dtype
    bits, align = vector_type("i1", kind.lanes), e.buffer.dtype.element.nbytes
    if e.buffer.data in f.module.slack and contiguous(index):
        return f.effect(f"load {text}, ptr {f.address(e.buffer, index.base)}, align {align}")
    mask = f"{bits} {'splat (i1 true)' if e.predicate is None else f.expr(e.predicate)}"
    if contiguous(index):
        name = f"llvm.masked.load.{suffix(kind)}.p0"
        f.module.declare(f"declare {text} @{name}(ptr, i32, {bits}, {text})")
        where = f"ptr {f.address(e.buffer, index.base)}, i32 {align}"
    else:
        pointers = _pointers(f, e.buffer, index)
        name = f"llvm.masked.gather.{suffix(kind)}.{vector_suffix('p0', kind.lanes)}"
        many = vector_type("ptr", kind.lanes)
        f.module.declare(f"declare {text} @{name}({many}, i32, {bits}, {text})")
        where = f"{many} {pointers}, i32 {align}"
    value = f.effect(f"call {text} @{name}({where}, {mask}, {text} zeroinitializer)")
    return f.truth(value, kind) if kind.bits == 1 else value


def _pointers(f: FunctionEmitter, buffer: Buffer, index: PrimExpr) -> str:
    """A vector of addresses, one for each lane."""
    value = f.expr(index)
    if index.dtype.bits != 64:
        value = f.extend(value, index.dtype)
    wide = reg_type(INT64.with_lanes(index.dtype.lanes))
    return f.tmp(f"getelementptr {mem_type(buffer.dtype)}, ptr {f.pointer(buffer)}, {wide} {value}")


def store(f: FunctionEmitter, s: Any) -> None:
    """A store of a scalar or of the lanes of a vector, by the cheapest instructions that its index allows."""
    buffer, index, kind = s.buffer, f.flat(s.buffer, s.indices), s.value.dtype
    value = f.expr(s.value)
    if kind.bits == 1:
        value = f.tmp(f"zext {reg_type(kind)} {value} to {mem_type(kind)}")
    f.wrote(buffer.data)
    _refuse_masked(f, s, "store")
    store = "store volatile" if buffer.data in f.volatile else "store"
    align = buffer.dtype.element.nbytes
    if s.predicate is not None and index.dtype.is_vector:
        if not private(index, buffer):
            _masked_store(f, s, index, value)
            return
        # Accumulators stay in registers only if whole vectors are stored.
        pointer, text = f.address(buffer, index.base), mem_type(kind)
        if buffer.data in f.module.unmasked:
            f.emit(f"store {text} {value}, ptr {pointer}, align {align}")
            return
        old = f.effect(f"load {text}, ptr {pointer}, align {align}")
        mask = f"{reg_type(s.predicate.dtype)} {f.expr(s.predicate)}"
        new = f.tmp(f"select {mask}, {text} {value}, {text} {old}")
        f.emit(f"store {text} {new}, ptr {pointer}, align {align}")
    elif index.dtype.lanes == 1:
        f.emit(f"{store} {mem_type(kind)} {value}, ptr {f.address(buffer, index)}, align {align}")
    elif contiguous(index) and _in_pieces(f, kind) and buffer.scope_name != "local":
        _narrow_stores(f, s, index.base, value, "splat (i1 true)")
    elif contiguous(index):
        pointer = f.address(buffer, index.base)
        past = ""
        if f.streaming and buffer.data in f.streaming and kind.nbytes in (16, 32, 64):
            align, past = kind.nbytes, ", !nontemporal !2"
        f.emit(f"{store} {mem_type(kind)} {value}, ptr {pointer}, align {align}{past}")
    elif kind.is_scalable:
        _masked_store(f, s, index, value)
    else:
        one = mem_type(buffer.dtype)
        for i, pointer in enumerate(f.addresses(buffer, index)):
            lane = f.tmp(f"extractelement {mem_type(kind)} {value}, i64 {i}")
            f.emit(f"{store} {one} {lane}, ptr {pointer}, align {align}")


def _masked_store(f: FunctionEmitter, s: Any, index: PrimExpr, value: str) -> None:
    """A store of the lanes where the predicate holds; no other memory is accessed."""
    kind, align = s.value.dtype, s.buffer.dtype.element.nbytes
    text, lanes = mem_type(kind), kind.lanes
    bits = vector_type("i1", lanes)
    on = "splat (i1 true)" if s.predicate is None else f.expr(s.predicate)
    if contiguous(index) and f.module.truncating_store_bits and not kind.is_float and align <= 4:
        _narrow_stores(f, s, index.base, value, on)
        return
    mask = f"{bits} {on}"
    if contiguous(index):
        name = f"llvm.masked.store.{suffix(kind)}.p0"
        f.module.declare(f"declare void @{name}({text}, ptr, i32, {bits})")
        where = f"ptr {f.address(s.buffer, index.base)}, i32 {align}"
    else:
        name = f"llvm.masked.scatter.{suffix(kind)}.{vector_suffix('p0', lanes)}"
        many = vector_type("ptr", lanes)
        f.module.declare(f"declare void @{name}({text}, {many}, i32, {bits})")
        where = f"{many} {_pointers(f, s.buffer, index)}, i32 {align}"
    f.emit(f"call void @{name}({text} {value}, {where}, {mask})")


def _in_pieces(f: FunctionEmitter, kind: DataType) -> bool:
    """Whether LLVM would store a vector of narrow integers in pieces, though the CPU can mask lanes."""
    return bool(f.module.truncating_store_bits) and kind.bits in (8, 16) and kind.lanes.bit_count() > 2


def _narrow_stores(f: FunctionEmitter, s: Any, base: PrimExpr, value: str, mask: str) -> None:
    """A masked store of integers for a CPU that can truncate while it stores.

    LLVM joins a truncation, its own ones included, with a masked store. If it knows that the mask has a single lane, it
    then stores the element as it was before the truncation, over the elements behind it (seen in LLVM 22). So the
    vectors have legal types, and pass through an empty assembly statement.
    """
    kind, bits = s.value.dtype, s.buffer.dtype.element.nbytes * 8
    lanes, step, one = kind.lanes, f.module.truncating_store_bits // bits, mem_type(s.buffer.dtype)
    address = f.address(s.buffer, base)
    for first in range(0, lanes, step):
        count = max(128 // bits, 1 << (min(step, lanes - first) - 1).bit_length())
        part, whole, flags = f"<{count} x {one}>", f"<{count * bits // 32} x i32>", f"<{count} x i1>"
        picks = ", ".join(
            f"i32 {min(first + i, lanes)}" for i in range(count)
        )  # those behind the last are off
        held = f.tmp(
            f"shufflevector {mem_type(kind)} {value}, {mem_type(kind)} poison, <{count} x i32> <{picks}>"
        )
        on = f.tmp(
            f"shufflevector <{lanes} x i1> {mask}, <{lanes} x i1> zeroinitializer, <{count} x i32> <{picks}>"
        )
        held = f.tmp(f"bitcast {part} {held} to {whole}")
        held = f.tmp(f'call {whole} asm "", "=v,0"({whole} {held})')
        held = f.tmp(f"bitcast {whole} {held} to {part}")
        name = f"llvm.masked.store.v{count}i{bits}.p0"
        f.module.declare(f"declare void @{name}({part}, ptr, i32, {flags})")
        where = f.tmp(f"getelementptr {one}, ptr {address}, i64 {first}") if first else address
        f.emit(f"call void @{name}({part} {held}, ptr {where}, i32 {bits // 8}, {flags} {on})")


def streamed(f: FunctionEmitter, body: Stmt) -> None:
    """Code with streaming stores for aligned memory, and plain code otherwise."""
    buffers = [b for b in _streamable(body) if b.data in f.values]
    if not buffers:
        f.stmt(body)
        return
    together = "0"
    for b in buffers:
        address = f.tmp(f"ptrtoint ptr {f.pointer(b)} to i64")
        together = f.tmp(f"or i64 {together}, {address}")
    rest = f.tmp(f"and i64 {together}, 63")
    past, plain, done = f.label("stream"), f.label("plain"), f.label("streamed")
    f.branch_if(f.tmp(f"icmp eq i64 {rest}, 0"), past, plain)
    f.start(past)
    f.streaming = frozenset(b.data for b in buffers)
    with f.branching():
        f.stmt(body)
    fence(f)
    f.streaming = None
    f.branch(done)
    f.start(plain)
    f.streaming = frozenset()
    with f.branching():
        f.stmt(body)
    f.streaming = None
    f.branch(done)
    f.start(done)


def fence(f: FunctionEmitter) -> None:
    """A fence: streaming stores are visible to other threads only after it."""
    if f.streaming:
        f.module.declare("declare void @llvm.x86.sse.sfence()")
        f.emit("call void @llvm.x86.sse.sfence()")


def _every_second(index: PrimExpr) -> bool:
    """Whether the lanes have stride 2."""
    return (
        isinstance(index, Ramp)
        and const_value(index.stride) == 2
        and index.base.dtype.lanes == 1
        and index.dtype.lanes in (4, 8, 16, 32, 64)
    )


def _streamable(body: Stmt) -> list[Buffer]:
    """The buffers that are stored in whole, aligned vectors and never read, if their memory is aligned."""
    stores = [m for m in pre_order(body) if isinstance(m, BufferStore)]
    read = {m.buffer.data for m in pre_order(body) if isinstance(m, BufferLoad)}
    ana = Analyzer()
    for m in pre_order(body):
        if isinstance(m, LetStmt) and m.value.dtype.is_int and m.value.dtype.lanes == 1:
            ana.bind(m.var, m.value, override=True)
    out = []
    for b in dict.fromkeys(s.buffer for s in stores):
        vectors = [
            s for s in stores if s.buffer.data is b.data and s.value.dtype.lanes > 1 and s.predicate is None
        ]
        if b.data in read or not vectors or b.scope_name != "global":
            continue
        if all(contiguous(s.indices[0]) and _whole_lines(ana, s.indices[0]) for s in vectors):
            out.append(b)
    return out


def _whole_lines(ana: Analyzer, index: Any) -> bool:
    """Whether a vector starts at a multiple of its lanes."""
    known = ana.modular_set(ana.simplify(index.base))
    return bool(known.coeff % index.lanes == 0 and known.base % index.lanes == 0)
