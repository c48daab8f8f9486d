"""Tensor core instructions over whole tiles: a fragment is a tile of its buffer.

The threads that share a fragment execute each instruction together, once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .memory import Pointer
from .report import InterpreterError

Tile = np.ndarray[Any, Any]


def _tile(fragments: Pointer, rows: int, columns: int, index: int) -> Tile:
    """One of the tiles of a buffer, counted row by row."""
    memory = fragments.memory
    wide = memory.shape[-1] if memory.shape else 0
    if len(memory.shape) < 2 or wide % columns:
        raise InterpreterError("unsupported", f"{memory.name}: its tiles are not known after lowering")
    held = fragments.array(memory.kind, (int(np.prod(memory.shape[:-1])), wide))
    down, across = divmod(index, wide // columns)
    found = held[down * rows : (down + 1) * rows, across * columns : (across + 1) * columns]
    if found.shape != (rows, columns):
        raise InterpreterError(
            "out-of-bounds", f"fragment {index} of {memory.name}, which has {memory.shape}"
        )
    return found


def _region(pointer: Pointer, rows: int, columns: int, stride: int) -> Tile:
    """A tile in memory."""
    return pointer.array(pointer.memory.kind, (rows, columns), (stride, 1))


def _multiply(sums: Tile, a: Tile, b: Tile) -> None:
    exact = np.int64 if sums.dtype.kind in "iu" else np.float64
    sums[:] = (sums.astype(exact) + a.astype(exact) @ b.astype(exact)).astype(sums.dtype)


def _fill(to: Pointer, rows: int, columns: int, _: int, index: int, value: Any) -> None:
    _tile(to, rows, columns, index)[:] = value


def _load(
    to: Pointer,
    _: int,
    __: int,
    depth: int,
    index: int,
    source: Pointer,
    stride: int,
    layout: str,
    *lies: int,
) -> None:
    lines, wide = (
        (depth, 16) if (to.memory.scope == "wmma.matrix_a") == (layout == "col_major") else (16, depth)
    )
    if lies:  # permuted: start, column in the permuted group, size of the group, rows between changes
        threads, loops, column, pieces, apart = lies
        size = source.memory.kind.nbytes
        piece = 16 // size
        source = Pointer(source.memory, source.offset + (threads + loops) * size)
        held, i, j = (
            _region(source, lines, pieces * piece, stride),
            np.arange(lines)[:, None],
            np.arange(wide),
        )
        by = i % 4 * 2 + i // 4 % 2 if size == 4 and pieces == 8 else i // apart % pieces
        held = held[i, ((column + j) // piece ^ by) * piece + j % piece]
    else:
        held = _region(source, lines, wide, stride)
    # The product takes rows of A and columns of B in any layout; no other statement reads a fragment of an operand.
    found = _tile(to, lines, wide, index)
    found[:] = (held.T if layout == "col_major" else held).reshape(found.shape)


def _sync(
    d: Pointer,
    di: int,
    a: Pointer,
    ai: int,
    b: Pointer,
    bi: int,
    c: Pointer,
    ci: int,
    depth: int = 16,
    trans_a: int = 0,
    trans_b: int = 0,
) -> None:
    sums, start = _tile(d, 16, 16, di), _tile(c, 16, 16, ci)
    if sums is not start:
        sums[:] = start
    left = _tile(a, *((depth, 16) if trans_a else (16, depth)), ai).reshape(16, depth)
    right = _tile(b, *((16, depth) if trans_b else (depth, 16)), bi).reshape(depth, 16)
    _multiply(sums, left, right)  # tf32 is not rounded here


def _store(
    source: Pointer, rows: int, columns: int, _: int, index: int, to: Pointer, stride: int, __: str
) -> None:
    _region(to, rows, columns, stride)[:] = _tile(source, rows, columns, index)


def _warpgroup(
    kind: str,
    n: int,
    trans_a: int,
    trans_b: int,
    d: Pointer,
    index: int,
    a: Pointer,
    wide_a: int,
    b: Pointer,
    wide_b: int,
) -> None:
    depth = 32 if kind == "tf32" else 64  # tf32 is not rounded here: copies round it
    left = _region(a, depth, 64, wide_a).T if trans_a else _region(a, 64, depth, wide_a)
    right = _region(b, n, depth, wide_b).T if trans_b else _region(b, depth, n, wide_b)
    _multiply(_tile(d, 64, n, index), left, right)


def _turn(to: Pointer, rows: int, columns: int, index: int, source: Pointer, which: int) -> None:
    _tile(to, rows, columns, index)[:] = _tile(source, rows, columns, which)


def _registers(_: str, n: int, d: Pointer, index: int, a: Pointer, which: int, b: Pointer, wide: int) -> None:
    _multiply(_tile(d, 64, n, index), _tile(a, 64, 64, which), _region(b, 64, n, wide))


def _reduce_rows(what: str, to: Pointer, index: int, source: Pointer, which: int, n: int) -> None:
    held, rows = _tile(to, 64, 4, index), _tile(source, 64, n, which)
    if what == "max":
        held[:] = np.maximum(held, rows.max(axis=1, keepdims=True))
    else:
        held[:] = (held.astype(np.float64) + rows.astype(np.float64).sum(axis=1, keepdims=True)).astype(
            held.dtype
        )


def _narrow(_: str, to: Pointer, index: int, source: Pointer, which: int, n: int) -> None:
    held = _tile(to, 64, n, index)
    held[:] = _tile(source, 64, n, which).astype(held.dtype)


_RUN: dict[str, Any] = {
    "ptx_wgmma_registers": _registers,
    "ptx_reduce_rows": _reduce_rows,
    "ptx_narrow_fragment": _narrow,
    "ptx_turn_fragment": _turn,
    "tvm_fill_fragment": _fill,
    "tvm_load_matrix_sync": _load,
    "tvm_mma_sync": _sync,
    "tvm_store_matrix_sync": _store,
    "ptx_wgmma": _warpgroup,
}


def run_fragments(name: str, *args: Any) -> None:
    """Do one instruction."""
    _RUN[name](*args)
