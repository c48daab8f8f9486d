"""The signature of a compiled function: its C arguments, and the metadata that the runtime checks calls with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import BuildError
from ...ir.expr import (
    Add,
    BufferLoad,
    Call,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    StringImm,
    Sub,
    Var,
)
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, statements
from ...ir.op import Op
from ...ir.printer_names import free_name
from ...ir.stmt import BufferStore, Evaluate

_COPY = Op.get("tir.ptx_cp_async")
_OPS = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%", Min: "min", Max: "max"}
# Names that C reserves: keywords, and library functions that one of ours would replace.
_RESERVED = frozenset(
    "main free malloc calloc realloc aligned_alloc memcpy memset memmove exit abort getenv getpid strtol "
    "exp exp2 exp10 log log2 log10 log1p sqrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh "
    "atanh erf pow fmod hypot floor ceil trunc round fma fabs copysign nextafter ldexp abs read write open "
    "close "
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile "
    "while bool true false nullptr".split()
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One C argument: a pointer to a buffer's memory, or a scalar."""

    var: Var
    is_pointer: bool
    align: int = 1


@dataclass(frozen=True, slots=True)
class Guard:
    """Two arrays, the first of which is written, that must not overlap; the same array may be both if `same`."""

    written: int
    other: int
    buffers: tuple[Buffer, Buffer]
    same: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's C symbol and arguments, with `description` as it goes into the library's metadata."""

    symbol: str
    arguments: tuple[Argument, ...]
    offsets: tuple[Var, ...]  # element offsets, which are zero: the pointer includes them
    ret_type: DataType | None
    noalias: bool
    description: dict[str, Any]
    guards: tuple[
        Guard, ...
    ] = ()  # checked by the function itself; the caller checks those in the description


def signature_of(
    func: PrimFunc,
    name: str,
    taken: Set[str] = frozenset(),
    nodes: Iterable[Any] | None = None,
    guarded: bool = False,
) -> Signature:
    """The signature of a lowered function: buffers as pointers, then the sizes that their shapes name.

    A name that is `taken` (by a C function that the module calls) gets another symbol. `nodes` are those of the body,
    if known. A `guarded` function checks most of its arrays for overlaps itself.
    """
    used = _accesses(pre_order(func.body) if nodes is None else nodes)
    symbols: dict[Var, str] = {}
    offsets: list[Var] = []
    for var in _symbolic(func, offsets):
        symbols[var] = free_name(var.name, symbols.values())
    arguments: list[Argument] = []
    params: list[dict[str, Any]] = []
    for p in func.params:
        buffer = func.buffer_map.get(p)
        if buffer is not None:
            align = buffer.dtype.element.nbytes
            arguments.append(Argument(buffer.data, True, align))
            params.append(_describe(buffer, symbols, used.get(buffer.data, ""), align))
        elif p.dtype.is_handle:
            arguments.append(Argument(p, True))
            params.append({"kind": "scalar", "name": p.name, "dtype": "handle"})
        else:
            arguments.append(Argument(p, False))
            params.append({"kind": "scalar", "name": p.name, "dtype": str(p.dtype)})
    arguments += [Argument(v, False) for v in symbols if v not in func.params]
    ret_type = _returned(func)
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", name)  # what C and LLVM can read
    if not symbol or symbol[0].isdigit() or symbol in _RESERVED or name in taken:
        symbol = f"tw_{symbol}"
    description: dict[str, Any] = {
        "name": name,
        "symbol": symbol,
        "params": params,
        "symbols": [{"name": n, "dtype": str(v.dtype)} for v, n in symbols.items() if v not in func.params],
        "ret": None if ret_type is None else str(ret_type),
    }
    noalias = bool(func.attrs.get("tir.noalias", False))
    guards, rest = _guards(func, params, guarded)
    if rest is not None:
        description["apart"] = rest
    return Signature(symbol, tuple(arguments), tuple(offsets), ret_type, noalias, description, guards)


_MOST_GUARDS = 32  # checks in a function; beyond them the caller checks all arrays together


def _guards(
    func: PrimFunc, params: list[dict[str, Any]], guarded: bool
) -> tuple[tuple[Guard, ...], list[list[int]] | dict[str, Any] | None]:
    """The arrays that must not overlap: those that the function compares itself, and those that the caller must."""
    inplace = func.attrs.get("tir.inplace")
    if inplace is None:  # arrays may overlap, or the caller ensures that they do not
        return (), None
    allowed = {(int(w), int(o)) for w, o in inplace}
    given = [(i, func.buffer_map[p]) for i, p in enumerate(func.params) if p in func.buffer_map]
    written = [(i, b) for i, b in given if "w" in params[i]["access"]]
    if len(written) * (len(given) - 1) > 2 * _MOST_GUARDS:
        return (), {"inplace": [list(pair) for pair in sorted(allowed)]}
    found: list[Guard] = []
    for i, w in written:
        for j, o in given:
            if i != j and not ("w" in params[j]["access"] and j < i):
                found.append(Guard(i, j, (w, o), (i, j) in allowed))
    # For strided arrays only the elements matter, not the gaps: that takes more than a comparison.
    dense = tuple(g for g in found if guarded and not any(b.strides for b in g.buffers))
    rest = [[g.written, g.other, int(g.same)] for g in found if g not in dense]
    return dense, rest or None


def external_names(nodes: Iterable[Any]) -> set[str]:
    """The C functions that are called."""
    return {
        m.args[0].value
        for m in nodes
        if m.__class__ is Call
        and isinstance(m.op, Op)
        and m.op.short_name in ("call_extern", "call_pure_extern")
        if isinstance(m.args[0], StringImm)
    }


def _symbolic(func: PrimFunc, offsets: list[Var]) -> Iterator[Var]:
    """The variables in the shapes and strides of parameters, in order of their first appearance."""
    seen: set[Var] = set()
    for p in func.params:
        buffer = func.buffer_map.get(p)
        if buffer is None:
            if not p.dtype.is_handle and p not in seen:
                seen.add(p)
                yield p
            continue
        for e in (*buffer.shape, *buffer.strides):
            for v in pre_order(e):
                if isinstance(v, Var) and v not in seen:
                    seen.add(v)
                    yield v
        if isinstance(buffer.elem_offset, Var) and buffer.elem_offset not in seen:
            seen.add(buffer.elem_offset)
            offsets.append(buffer.elem_offset)


def _describe(buffer: Buffer, symbols: dict[Var, str], access: str, align: int) -> dict[str, Any]:
    # An array of vectors is given as an array with one more dimension: the lanes.
    lanes = [buffer.dtype.lanes] if buffer.dtype.lanes > 1 else []
    strides = [_dim(s, symbols) for s in buffer.strides]
    if lanes and strides:
        raise BuildError(f"buffer {buffer.name} of {buffer.dtype} has strides, which the caller cannot check")
    return {
        "kind": "buffer",
        "name": buffer.name,
        "dtype": str(buffer.dtype.element),
        "shape": [_dim(d, symbols) for d in buffer.shape] + lanes,
        "strides": strides or None,
        "align": align,
        "access": access or "r",
        "device": "cpu",
        "scope": buffer.scope_name,
    }


def _dim(e: PrimExpr, symbols: dict[Var, str]) -> Any:
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Var):
        return symbols[e]
    op = _OPS.get(e.__class__)  # type: ignore[arg-type]
    if op is None:
        raise BuildError(f"a parameter's dimension is `{e}`: only + - * // % min max of sizes can be checked")
    return [op, _dim(e.a, symbols), _dim(e.b, symbols)]  # type: ignore[attr-defined]


def _accesses(nodes: Iterable[Any]) -> dict[Var, str]:
    """The access of each pointer: "r", "w" or "rw"."""
    read: set[Var] = set()
    written: set[Var] = set()
    for m in nodes:
        kind = m.__class__
        if kind is BufferLoad:
            read.add(m.buffer.data)
        elif kind is BufferStore:
            written.add(m.buffer.data)
        elif kind is Call:
            for i, arg in enumerate(m.args):
                if isinstance(arg, Var) and arg.dtype.is_handle:
                    read.add(arg)
                    if m.op is _COPY and i == 2:
                        continue  # the source
                    mask = m.args[4] if isinstance(m.op, Op) and m.op.short_name == "tvm_access_ptr" else None
                    if not (isinstance(mask, IntImm) and not mask.value & 2):
                        written.add(arg)
    out = {v: ("r" if v in read else "") + ("w" if v in written else "") for v in read | written}
    return out


def _returned(func: PrimFunc) -> DataType | None:
    for m in statements(func.body):
        call = m.value if isinstance(m, Evaluate) else None
        if isinstance(call, Call) and isinstance(call.op, Op) and call.op.short_name == "ret":
            return call.args[0].dtype
    return None
