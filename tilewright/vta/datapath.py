"""The inner loops of the simulator, compiled by tilewright itself: products, elementwise operations and 2-D copies.

All sizes of an instruction are arguments; the shapes of the buffers are those of the configuration. Elements of wgt are
kept transposed, so that the lanes of a product are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..script import tir as T
from .config import Config
from .layout import ALU_OPS

if TYPE_CHECKING:
    from ..ir.function import PrimFunc

_LANES: Final = 16
_MIN, _MAX, _ADD, _SHR, _MUL = (ALU_OPS[name] for name in ("min", "max", "add", "shr", "mul"))


def datapath(config: Config) -> dict[str, Callable[..., None]]:
    """The compiled functions by name; configurations with the same shapes share them."""
    return _compiled(
        (config.batch, config.block_in, config.block_out),
        (config.inp_dtype, config.wgt_dtype, config.acc_dtype, config.out_dtype),
        tuple(config.depth(name) for name in ("uop", "inp", "wgt", "acc")),
    )


@lru_cache(8)
def _compiled(
    block: tuple[int, int, int], dtypes: tuple[str, ...], depths: tuple[int, ...]
) -> dict[str, Callable[..., None]]:
    from ..compiler.build import build
    from ..ir.module import IRModule

    batch, block_in, block_out = block
    inp, wgt, acc, out = dtypes
    uops, inps, wgts, accs = depths
    inp_lanes, acc_lanes = batch * block_in, batch * block_out
    functions = {
        "gemm": _gemm(block, (inp, wgt, acc), depths),
        "reset": _reset(uops, accs, acc_lanes, acc),
        "alu": _alu(uops, accs, acc_lanes, acc),
        "alu_imm": _alu_imm(uops, accs, acc_lanes, acc),
        "load_inp": _transfer(inps, inp_lanes, inp, inp),
        "load_wgt": _load_transposed(wgts, block_out, block_in, wgt),
        "load_acc": _transfer(accs, acc_lanes, acc, acc),
        "load_acc8": _transfer(accs, acc_lanes, out, acc),
        "store_acc": _transfer(accs, acc_lanes, acc, acc, store=True),
        "store_out": _transfer(accs, acc_lanes, out, acc, store=True),
    }
    made = build(
        IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()}), target="llvm"
    )
    return {name: made[name] for name in functions}


def _lanes(count: int) -> tuple[int, int]:
    """A row of numbers as vectors: how many, and of how many lanes."""
    lanes = min(count, _LANES)
    return count // lanes, lanes


def _gemm(block: tuple[int, int, int], dtypes: tuple[str, ...], depths: tuple[int, ...]) -> PrimFunc:
    """acc[d] += inp[s] @ wgt[w].T for all micro-ops in two loops."""
    batch, block_in, block_out = block
    inp_t, wgt_t, acc_t = dtypes
    uops, inps, wgts, accs = depths
    x_vectors, x_lanes = _lanes(block_out)
    k_parts, k_part = _lanes(block_in)

    @T.prim_func
    def gemm(
        acc_: T.handle,
        inp_: T.handle,
        wgt_: T.handle,
        uop_: T.handle,
        begin: T.int32, end: T.int32, outer: T.int32, inner: T.int32,
        acc_outer: T.int32, acc_inner: T.int32,
        inp_outer: T.int32, inp_inner: T.int32,
        wgt_outer: T.int32, wgt_inner: T.int32,
    ) -> None:  # fmt: skip
        acc = T.match_buffer(acc_, (accs, batch, block_out), acc_t)
        inp = T.match_buffer(inp_, (inps, batch, block_in), inp_t)
        wgt = T.match_buffer(wgt_, (wgts, block_in, block_out), wgt_t)
        uop = T.match_buffer(uop_, (uops, 3), "int32")
        total = T.alloc_buffer((x_lanes,), acc_t)
        for o in range(outer):
            for i in range(inner):
                for u in range(begin, end):
                    for b in range(batch):
                        for v in range(x_vectors):
                            for x in T.vectorized(x_lanes):
                                total[x] = acc[uop[u, 0] + o * acc_outer + i * acc_inner, b, v * x_lanes + x]
                            for p in range(k_parts):
                                for k in T.unroll(k_part):
                                    for x in T.vectorized(x_lanes):
                                        total[x] = total[x] + T.cast(
                                            inp[uop[u, 1] + o * inp_outer + i * inp_inner, b, p * k_part + k],
                                            acc_t,
                                        ) * T.cast(
                                            wgt[
                                                uop[u, 2] + o * wgt_outer + i * wgt_inner,
                                                p * k_part + k,
                                                v * x_lanes + x,
                                            ],
                                            acc_t,
                                        )
                            for x in T.vectorized(x_lanes):
                                acc[uop[u, 0] + o * acc_outer + i * acc_inner, b, v * x_lanes + x] = total[x]

    return gemm


def _reset(uops: int, accs: int, numbers: int, dtype: str) -> PrimFunc:
    """acc[d] = 0 for all micro-ops in two loops."""

    @T.prim_func
    def reset(
        acc_: T.handle,
        uop_: T.handle,
        begin: T.int32, end: T.int32, outer: T.int32, inner: T.int32, acc_outer: T.int32, acc_inner: T.int32,
    ) -> None:  # fmt: skip
        acc = T.match_buffer(acc_, (accs, numbers), dtype)
        uop = T.match_buffer(uop_, (uops, 3), "int32")
        for o in range(outer):
            for i in range(inner):
                for u in range(begin, end):
                    for x in range(numbers):
                        acc[uop[u, 0] + o * acc_outer + i * acc_inner, x] = T.cast(0, dtype)

    return reset


def _alu(uops: int, accs: int, numbers: int, dtype: str) -> PrimFunc:
    """acc[d] = op(acc[d], acc[s]) for all micro-ops in two loops."""
    vectors, lanes = _lanes(numbers)
    most = _bits(dtype) - 1

    @T.prim_func
    def alu(
        acc_: T.handle,
        uop_: T.handle,
        op: T.int32, begin: T.int32, end: T.int32, outer: T.int32, inner: T.int32,
        dst_outer: T.int32, dst_inner: T.int32, src_outer: T.int32, src_inner: T.int32,
    ) -> None:  # fmt: skip
        acc = T.match_buffer(acc_, (accs, numbers), dtype)
        uop = T.match_buffer(uop_, (uops, 3), "int32")
        a = T.alloc_buffer((lanes,), dtype)
        s = T.alloc_buffer((lanes,), dtype)
        for o in range(outer):
            for i in range(inner):
                for u in range(begin, end):
                    for v in range(vectors):
                        for x in T.vectorized(lanes):
                            a[x] = acc[uop[u, 0] + o * dst_outer + i * dst_inner, v * lanes + x]
                        for x in T.vectorized(lanes):
                            s[x] = acc[uop[u, 1] + o * src_outer + i * src_inner, v * lanes + x]
                        if op == _MIN:
                            for x in T.vectorized(lanes):
                                a[x] = T.min(a[x], s[x])
                        if op == _MAX:
                            for x in T.vectorized(lanes):
                                a[x] = T.max(a[x], s[x])
                        if op == _ADD:
                            for x in T.vectorized(lanes):
                                a[x] = a[x] + s[x]
                        if op == _MUL:
                            for x in T.vectorized(lanes):
                                a[x] = a[x] * s[x]
                        if op == _SHR:
                            for x in range(lanes):
                                if s[x] >= 0:
                                    a[x] = T.shift_right(a[x], T.min(s[x], T.cast(most, dtype)))
                                else:
                                    a[x] = T.shift_left(
                                        a[x], T.cast(0, dtype) - T.max(s[x], T.cast(-most, dtype))
                                    )
                        for x in T.vectorized(lanes):
                            acc[uop[u, 0] + o * dst_outer + i * dst_inner, v * lanes + x] = a[x]

    return alu


def _alu_imm(uops: int, accs: int, numbers: int, dtype: str) -> PrimFunc:
    """acc[d] = op(acc[s], imm) for all micro-ops in two loops; `right` and `left` are the amounts of a shift."""
    vectors, lanes = _lanes(numbers)

    @T.prim_func
    def alu_imm(
        acc_: T.handle,
        uop_: T.handle,
        op: T.int32, imm: T.int32, right: T.int32, left: T.int32,
        begin: T.int32, end: T.int32, outer: T.int32, inner: T.int32,
        dst_outer: T.int32, dst_inner: T.int32, src_outer: T.int32, src_inner: T.int32,
    ) -> None:  # fmt: skip
        acc = T.match_buffer(acc_, (accs, numbers), dtype)
        uop = T.match_buffer(uop_, (uops, 3), "int32")
        a = T.alloc_buffer((lanes,), dtype)
        for o in range(outer):
            for i in range(inner):
                for u in range(begin, end):
                    for v in range(vectors):
                        for x in T.vectorized(lanes):
                            a[x] = acc[uop[u, 1] + o * src_outer + i * src_inner, v * lanes + x]
                        if op == _MIN:
                            for x in T.vectorized(lanes):
                                a[x] = T.min(a[x], T.cast(imm, dtype))
                        if op == _MAX:
                            for x in T.vectorized(lanes):
                                a[x] = T.max(a[x], T.cast(imm, dtype))
                        if op == _ADD:
                            for x in T.vectorized(lanes):
                                a[x] = a[x] + T.cast(imm, dtype)
                        if op == _MUL:
                            for x in T.vectorized(lanes):
                                a[x] = a[x] * T.cast(imm, dtype)
                        if op == _SHR:
                            for x in T.vectorized(lanes):
                                a[x] = T.shift_left(
                                    T.shift_right(a[x], T.cast(right, dtype)), T.cast(left, dtype)
                                )
                        for x in T.vectorized(lanes):
                            acc[uop[u, 0] + o * dst_outer + i * dst_inner, v * lanes + x] = a[x]

    return alu_imm


def _transfer(depth: int, numbers: int, stored: str, dtype: str, store: bool = False) -> PrimFunc:
    """Rows of elements from DRAM into a buffer, or from acc to DRAM; a narrower type gets the low bits."""

    @T.prim_func
    def transfer(
        dram_: T.handle,
        sram_: T.handle,
        d: T.int32, s: T.int32, rows: T.int32, columns: T.int32, d_stride: T.int32, s_stride: T.int32,
    ) -> None:  # fmt: skip
        sram = T.match_buffer(sram_, (depth, numbers), dtype)
        size = T.int32()
        dram = T.match_buffer(dram_, (size,), stored)
        for r in range(rows):
            for c in range(columns):
                for x in range(numbers):
                    if store:
                        dram[(d + r * d_stride + c) * numbers + x] = T.cast(
                            sram[s + r * s_stride + c, x], stored
                        )
                    else:
                        sram[s + r * s_stride + c, x] = T.cast(
                            dram[(d + r * d_stride + c) * numbers + x], dtype
                        )

    return transfer


def _load_transposed(depth: int, outs: int, ins: int, dtype: str) -> PrimFunc:
    """Rows of elements of wgt from DRAM, each transposed."""
    numbers = outs * ins

    @T.prim_func
    def load(
        dram_: T.handle,
        sram_: T.handle,
        d: T.int32, s: T.int32, rows: T.int32, columns: T.int32, d_stride: T.int32, s_stride: T.int32,
    ) -> None:  # fmt: skip
        sram = T.match_buffer(sram_, (depth, ins, outs), dtype)
        size = T.int32()
        dram = T.match_buffer(dram_, (size,), dtype)
        for r in range(rows):
            for c in range(columns):
                for k in range(ins):
                    for x in range(outs):
                        sram[s + r * s_stride + c, k, x] = dram[
                            (d + r * d_stride + c) * numbers + x * ins + k
                        ]

    return load


def shift_amounts(imm: int, dtype: str) -> tuple[int, int]:
    """A shift by an immediate as one to the right and one to the left, of which one is 0.

    The chip shifts by at most the width of a number minus 1.
    """
    most = _bits(dtype) - 1
    return min(max(imm, 0), most), min(max(-imm, 0), most)


def _bits(dtype: str) -> int:
    return int(dtype.removeprefix("int"))
