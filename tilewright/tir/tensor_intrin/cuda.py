"""NVIDIA's tensor cores: products of 16 x 16 tiles by a warp (wmma), of 64 x n tiles by a warpgroup (wgmma).

The reduction of a 16 x 16 tile has 16 steps; for bytes also 32, and for float32, multiplied as tf32 with ten bits of
mantissa, 8: then a row of its operands has 32 bytes, as for 16 bits.

A fragment lives in the registers of all threads of a warp; in the program it is a buffer of one of the scopes
`wmma.matrix_a`, `wmma.matrix_b`, `wmma.accumulator` (tiles of 16 x 16) and `wgmma.accumulator` (of 64 x n). In
`wgmma.rows` and `wmma.rows` each thread holds eight neighbours of a row, which it can store at once. `wgmma.matrix_a`
is an operand in registers, and `wgmma.lanes` (of 64 x 4) has a value for each row, in each of the four threads that
share the row.

    fill    C[i, j] = 0                          load    A[i, j] = shared[i, j]
    sync    C[i, j] += A[i, k] * B[k, j]         store   memory[i, j] = C[i, j]

`_TRANS`: the matrix is transposed in memory, and in its fragment. `_DYN`: it is in dynamic shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.function import PrimFunc
from ..script import from_source
from .cuda_mma import CONSTANTS as _MMA
from .cuda_mma import (
    get_mma_intrin_group,
    ldmatrix_32x8_to_shared_16x16_layout,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
    shared_32x16_to_ldmatrix_32x16_layout,
)
from .intrin import built_in_later

__all__ = [
    "get_mma_intrin_group",
    "get_wgmma_intrin",
    "get_wgmma_rows_intrin",
    "get_wmma_intrin_group",
    "get_wmma_turn_intrin",
    "ldmatrix_32x8_to_shared_16x16_layout",
    "shared_16x16_to_ldmatrix_32x8_layout",
    "shared_16x32_to_ldmatrix_32x16_layout",
    "shared_32x16_to_ldmatrix_32x16_layout",
]

_SHORT = {"float16": "f16", "bfloat16": "bf16", "int8": "s8", "float32": "f32", "int32": "s32"}
_SUMS = {  # types of the accumulators
    "float16": ("float16", "float32"),
    "bfloat16": ("float32",),
    "int8": ("int32",),
    "float32": ("float32",),
}
_DEPTHS = {"int8": (16, 32), "float32": (8,)}  # k of an instruction; 16 otherwise
_LOADED, _STORED = ("shared", "shared.dyn"), ("global", "shared", "shared.dyn")
_Tile = tuple[str, tuple[int, int], str, str]  # name, shape, type, scope


def _function(tiles: Sequence[_Tile], body: str) -> PrimFunc:
    """A function over strided tiles; it writes the last one, and reads all others."""
    *sources, target = tiles
    lines = ["@T.prim_func", f"def tile({', '.join(f'{t[0].lower()}: T.handle' for t in tiles)}):"]
    for name, (rows, columns), kind, scope in tiles:
        low = name.lower()
        lines += [f"    {low}0 = T.int32()", f"    {low}1 = T.int32()"]
        lines.append(
            f'    {name} = T.match_buffer({low}, ({rows}, {columns}), "{kind}", align=64, offset_factor=8, '
            f'scope="{scope}", strides=[{low}1, {low}0])'
        )
    updates = any(word in body for word in ("C[vi, vj] +", "max(C", "mma", "reduce_rows"))
    read = [t for t in tiles if t is not target or updates]
    lines.append('    with T.block("root"):')
    for what, held in (("reads", read if sources else []), ("writes", [target])):
        regions = ", ".join(f"{n}[0:{rows}, 0:{columns}]" for n, (rows, columns), _, _ in held)
        lines.append(f"        T.{what}({regions})")
    lines += [f"        {line}" for line in body.strip("\n").splitlines()]
    return from_source("\n".join(lines) + "\n")


def _index(name: str, rows: int = 16, columns: int = 16) -> str:
    """The index of the fragment of a tile in its buffer, row-major."""
    at, wide = f"{name}.elem_offset", f"{name.lower()}1"
    return f"{at} // {wide} // {rows} * ({wide} // {columns}) + {at} % {wide} // {columns}"


def _each(name: str, line: str, rows: int = 16, columns: int = 16) -> str:
    return (
        f"for i, j in T.grid({rows}, {columns}):\n"
        f'    with T.block("{name}"):\n'
        '        vi, vj = T.axis.remap("SS", [i, j])\n'
        f"        {line}\n"
    )


def _product(sizes: tuple[int, int, int], kind: str, out: str, a: str, b: str) -> str:
    left, right = (x if kind == out else f'T.Cast("{out}", {x})' for x in (a, b))
    return (
        f"for i, j, k in T.grid({', '.join(map(str, sizes))}):\n"
        '    with T.block("update"):\n'
        '        vi, vj, vk = T.axis.remap("SSR", [i, j, k])\n'
        f"        C[vi, vj] = C[vi, vj] + {left} * {right}\n"
    )


_Pair = tuple[PrimFunc, PrimFunc]
_TILE = (16, 16)


def _fill(kind: str) -> _Pair:
    tiles = [("C", _TILE, kind, "wmma.accumulator")]
    call = f'T.tvm_fill_fragment(C.data, 16, 16, 16, {_index("C")}, T.{kind}(0), dtype="handle")'
    return _function(tiles, _each("init", f"C[vi, vj] = T.{kind}(0)")), _function(tiles, call)


def _operand(which: str, depth: int, trans: bool) -> tuple[int, int]:
    """The shape of an operand's tile in memory: 16 rows along k, or k rows if transposed."""
    return (depth, 16) if (which == "a") == trans else (16, depth)


def _load(kind: str, which: str, scope: str, trans: bool, depth: int = 16) -> _Pair:
    tile = _operand(which, depth, trans)
    tiles = [("S", tile, kind, scope), ("C", tile, kind, f"wmma.matrix_{which}")]
    layout = "col_major" if trans else "row_major"
    call = (
        f'T.tvm_load_matrix_sync(C.data, 16, 16, {depth}, {_index("C", *tile)}, S.access_ptr("r"), s1, "{layout}", '
        'dtype="handle")'
    )
    return _function(tiles, _each("load", "C[vi, vj] = S[vi, vj]", *tile)), _function(tiles, call)


def _sync(kind: str, out: str, trans_a: bool, trans_b: bool, depth: int = 16) -> _Pair:
    tiles = [
        ("A", _operand("a", depth, trans_a), kind, "wmma.matrix_a"),
        ("B", _operand("b", depth, trans_b), kind, "wmma.matrix_b"),
        ("C", _TILE, out, "wmma.accumulator"),
    ]
    a, b = "A[vk, vi]" if trans_a else "A[vi, vk]", "B[vj, vk]" if trans_b else "B[vk, vj]"
    shapes = {n: shape for n, shape, _, _ in tiles}
    parts = [f"{n}.data, {_index(n, *shapes[n])}" for n in "CABC"]
    if depth != 16:  # the shape by which the tiles of the operands are indexed
        parts += [str(depth), str(int(trans_a)), str(int(trans_b))]
    call = f'T.tvm_mma_sync({", ".join(parts)}, dtype="handle")'
    return _function(tiles, _product((16, 16, depth), kind, out, a, b)), _function(tiles, call)


def _store(kind: str, scope: str) -> _Pair:
    tiles = [("A", _TILE, kind, "wmma.accumulator"), ("C", _TILE, kind, scope)]
    call = (
        f'T.tvm_store_matrix_sync(A.data, 16, 16, 16, {_index("A")}, C.access_ptr("w"), c1, "row_major", '
        'dtype="handle")'
    )
    return _function(tiles, _each("store", "C[vi, vj] = A[vi, vj]")), _function(tiles, call)


def _name(what: str, *parts: str, depth: int = 16) -> str:
    return "_".join(["wmma", what, f"16x16x{depth}", *(p.replace(".", "_") for p in parts if p)])


def _short(kind: str) -> str:
    """The name of the type that is multiplied."""
    return "tf32" if kind == "float32" else _SHORT[kind]


def _sync_name(kind: str, out: str, trans_a: bool, trans_b: bool, depth: int = 16) -> str:
    ways = {(False, False): "", (False, True): "trans", (True, False): "trans_a", (True, True): "trans_a_b"}
    return _name("sync", _short(kind) * 2 + _SHORT[out], ways[trans_a, trans_b], depth=depth)


def _load_name(kind: str, which: str, trans: bool, scope: str, depth: int = 16) -> str:
    return _name("load", _short(kind), which, "trans" if trans else "", scope, depth=depth)


def _announce() -> dict[str, str]:
    """All intrinsics by the names of their constants."""
    out: dict[str, str] = {}
    for kind, sums in _SUMS.items():
        if 16 not in _DEPTHS.get(kind, (16,)):
            continue
        for total in sums:
            pair = _SHORT[kind] * 2 + _SHORT[total]
            for trans_a in (False, True):
                for trans_b in (False, True):
                    ways = {(0, 0): "", (0, 1): "_TRANS", (1, 0): "_TRANS_A", (1, 1): "_TRANS_A_B"}
                    constant = f"WMMA_SYNC_16x16x16_{pair}{ways[trans_a, trans_b]}_INTRIN"
                    out[constant] = built_in_later(
                        _sync_name(kind, total, trans_a, trans_b),
                        partial(_sync, kind, total, trans_a, trans_b),
                    )
        for which in "ab":
            for trans in (False, True):
                for scope in _LOADED:
                    dyn = "_DYN" if scope == "shared.dyn" else ""
                    way = f"{which.upper()}{'_TRANS' if trans else ''}{dyn}"
                    out[f"WMMA_LOAD_16x16x16_{_SHORT[kind].upper()}_{way}_INTRIN"] = built_in_later(
                        _load_name(kind, which, trans, scope),
                        partial(_load, kind, which, scope, trans),
                    )
    for kind in ("float16", "float32", "int32"):
        short = _SHORT[kind].upper()
        out[f"WMMA_FILL_16x16x16_{short}_INTRIN"] = built_in_later(
            _name("fill", _SHORT[kind]),
            partial(_fill, kind),
        )
        for scope in _STORED:
            out[f"WMMA_STORE_16x16x16_{short}_{scope.replace('.', '_').upper()}_INTRIN"] = built_in_later(
                _name("store", _SHORT[kind], scope),
                partial(_store, kind, scope),
            )
    return out


def get_wmma_intrin_group(
    load_scope: str,
    store_scope: str,
    in_dtype: str,
    out_dtype: str,
    trans_b: bool,
    trans_a: bool = False,
    depth: int = 0,
) -> dict[str, str]:
    """The intrinsics of a matrix product by role: init, load_a, load_b, compute, store.

    `depth` is k of the instruction: 16, for bytes also 32; for float32, which is multiplied as tf32, 8.
    """
    depths = _DEPTHS.get(in_dtype, (16,))
    for what, given, known in (
        ("load_scope", load_scope, _LOADED),
        ("store_scope", store_scope, _STORED),
        ("in_dtype", in_dtype, tuple(_SUMS)),
        ("out_dtype", out_dtype, _SUMS.get(in_dtype, ())),
        ("depth", depth or depths[0], depths),
    ):
        if given not in known:
            raise ValueError(
                f"get_wmma_intrin_group: {what} {given!r} is none of {', '.join(map(str, known))}"
            )
    depth = depth or depths[0]
    compute = _sync_name(in_dtype, out_dtype, trans_a, trans_b, depth)
    loads = {w: _load_name(in_dtype, w, t, load_scope, depth) for w, t in (("a", trans_a), ("b", trans_b))}
    if depth != 16:
        built_in_later(compute, lambda: _sync(in_dtype, out_dtype, trans_a, trans_b, depth))
        for which, trans in (("a", trans_a), ("b", trans_b)):
            built_in_later(
                loads[which],
                partial(_load, in_dtype, which, load_scope, trans, depth),
            )
    return {
        "init": _name("fill", _SHORT[out_dtype]),
        "load_a": loads["a"],
        "load_b": loads["b"],
        "compute": compute,
        "store": _name("store", _SHORT[out_dtype], store_scope),
    }


def get_wmma_turn_intrin(n: int, dtype: str = "float16") -> str:
    """The intrinsic that rearranges a fragment of 16 x n results of 16 bits, so that each thread holds eight contiguous
    elements of a row."""
    if n % 32 or dtype not in ("float16", "bfloat16"):
        raise ValueError(
            f"get_wmma_turn_intrin: a fragment of 16 x {n} of {dtype} cannot be rearranged: n must be a multiple of "
            "32, and dtype "
            "float16 or bfloat16"
        )
    return built_in_later(f"wmma_turn_16x{n}_{_SHORT[dtype]}", lambda: _turn(16, n, dtype))


# ---------------------------------------------------------------------------- warpgroups
WGMMA_DEPTH = 64  # steps of the reduction: a line of shared memory, 128 bytes
# by the type of the operands: k of an instruction, and the type that is multiplied
_WGMMA = {"float16": (64, "f16"), "bfloat16": (64, "bf16"), "float32": (32, "tf32")}


def get_wgmma_intrin(
    n: int, in_dtype: str = "float16", trans_a: bool = False, trans_b: bool = False
) -> dict[str, str]:
    """The intrinsics of a warpgroup's product of 64 x 64 by 64 x n: init, compute, turn (rearranges results of 16 bits
    to contiguous rows), and turn_sums (the same for the accumulators before they are narrowed).

    The operands are tiles of dynamic shared memory, 64 elements wide or divided into such tiles, in the layout of bulk
    copies (`tilewright.bulk_copy`); with `trans_b`, B is n x 64. A tile of float32 is 32 wide, is multiplied as tf32
    (ten bits of mantissa), and both operands are contiguous along the reduction: A as it is, B with `trans_b`.
    """
    if n % 8 or not 8 <= n <= 256 or in_dtype not in _WGMMA:
        raise ValueError(
            f"get_wgmma_intrin: there is no product of {in_dtype} with {n} columns: n is a multiple of 8 up to 256, "
            f"and in_dtype one of {', '.join(_WGMMA)}"
        )
    if in_dtype == "float32" and (trans_a or not trans_b):
        raise ValueError(
            "get_wgmma_intrin: products of float32 (tf32) take A as rows x k and B as columns x k: trans_a=False, "
            "trans_b=True; transpose the other operand first"
        )
    depth, short = _WGMMA[in_dtype]
    ways = f"{'_trans_a' if trans_a else ''}{'_trans' if trans_b else ''}"
    found = {
        "init": built_in_later(f"wgmma_fill_64x{n}_f32", lambda: _warpgroup_fill(n)),
        "compute": built_in_later(
            f"wgmma_64x{n}x{depth}_{short}{short}f32{ways}",
            lambda: _warpgroup_product(n, in_dtype, trans_a, trans_b),
        ),
    }
    for name, wide, kind in (("turn", 32, in_dtype), ("turn_sums", 16, "float32")):
        if n % wide == 0 and (name, kind) != ("turn", "float32"):
            what = f"wgmma_turn_64x{n}_{_SHORT[kind]}"
            found[name] = built_in_later(what, lambda kind=kind: _turn(64, n, kind))  # type: ignore[misc]
    return found


def get_wgmma_rows_intrin(n: int, wide: int, in_dtype: str = "float16") -> dict[str, str]:
    """The intrinsics between two products of a warpgroup: accumulators of 64 x n, whose rows are reduced (max, sum),
    rounded to 16 bits (narrow), and multiplied from registers by a matrix of n x wide (compute), 64 of n at a time."""
    if (
        n % 64
        or not 64 <= n <= 256
        or wide % 8
        or not 8 <= wide <= 256
        or in_dtype not in ("float16", "bfloat16")
    ):
        raise ValueError(
            f"get_wgmma_rows_intrin: there is no product of 64 x {n} by {n} x {wide} of {in_dtype}: n is a multiple of "
            "64 and wide one of 8, both up to 256, and in_dtype float16 or bfloat16"
        )
    short = _SHORT[in_dtype]
    return {
        "max": built_in_later(f"wgmma_rows_max_64x{n}_f32", lambda: _reduced_rows(n, "max")),
        "sum": built_in_later(f"wgmma_rows_sum_64x{n}_f32", lambda: _reduced_rows(n, "sum")),
        "narrow": built_in_later(f"wgmma_narrow_64x{n}_{short}", lambda: _narrow(n, in_dtype)),
        "compute": built_in_later(
            f"wgmma_registers_64x{wide}x{WGMMA_DEPTH}_{short}{short}f32",
            lambda: _registers_product(wide, in_dtype),
        ),
    }


def _reduced_rows(n: int, what: str) -> _Pair:
    """The reduction of each row, combined with a value that its four threads hold, with the result in all four."""
    tiles = [("A", (64, n), "float32", "wgmma.accumulator"), ("C", (64, 4), "float32", "wgmma.lanes")]
    made = "T.max(C[vi, vj], A[vi, vk])" if what == "max" else "C[vi, vj] + A[vi, vk]"
    body = (
        f"for i, j, k in T.grid(64, 4, {n}):\n"
        '    with T.block("update"):\n'
        '        vi, vj, vk = T.axis.remap("SSR", [i, j, k])\n'
        f"        C[vi, vj] = {made}\n"
    )
    call = f'T.ptx_reduce_rows("{what}", C.data, {_index("C", 64, 4)}, A.data, {_index("A", 64, n)}, {n})'
    return _function(tiles, body), _function(tiles, call)


def _narrow(n: int, kind: str) -> _Pair:
    tiles = [("A", (64, n), "float32", "wgmma.accumulator"), ("C", (64, n), kind, "wgmma.matrix_a")]
    body = _each("narrow", f'C[vi, vj] = T.Cast("{kind}", A[vi, vj])', 64, n)
    call = f'T.ptx_narrow_fragment("{kind}", C.data, {_index("C", 64, n)}, A.data, {_index("A", 64, n)}, {n})'
    return _function(tiles, body), _function(tiles, call)


def _registers_product(n: int, kind: str) -> _Pair:
    depth = WGMMA_DEPTH
    tiles = [
        ("A", (64, depth), kind, "wgmma.matrix_a"),
        ("B", (depth, n), kind, "shared.dyn"),
        ("C", (64, n), "float32", "wgmma.accumulator"),
    ]
    call = (
        f'T.ptx_wgmma_registers("{kind}", {n}, C.data, {_index("C", 64, n)}, A.data, {_index("A", 64, depth)}, '
        'B.access_ptr("r"), b1)'
    )
    return _function(tiles, _product((64, n, depth), kind, "float32", "A[vi, vk]", "B[vk, vj]")), _function(
        tiles, call
    )


def _warpgroup_fill(n: int) -> _Pair:
    tiles = [("C", (64, n), "float32", "wgmma.accumulator")]
    body = _each("init", "C[vi, vj] = T.float32(0)", 64, n)
    call = f'T.tvm_fill_fragment(C.data, 64, {n}, 16, {_index("C", 64, n)}, T.float32(0), dtype="handle")'
    return _function(tiles, body), _function(tiles, call)


def _turn(rows: int, n: int, kind: str) -> _Pair:
    """Rearrange a fragment from pairs to eight contiguous elements per thread (four of 32 bits)."""
    family = "wgmma" if rows == 64 else "wmma"
    tiles = [("A", (rows, n), kind, f"{family}.accumulator"), ("C", (rows, n), kind, f"{family}.rows")]
    body = _each("turn", "C[vi, vj] = A[vi, vj]", rows, n)
    call = f"T.ptx_turn_fragment(C.data, {rows}, {n}, {_index('C', rows, n)}, A.data, {_index('A', rows, n)})"
    return _function(tiles, body), _function(tiles, call)


def _warpgroup_product(n: int, kind: str, trans_a: bool, trans_b: bool) -> _Pair:
    depth = _WGMMA[kind][0]
    tiles = [
        ("A", (depth, 64) if trans_a else (64, depth), kind, "shared.dyn"),
        ("B", (n, depth) if trans_b else (depth, n), kind, "shared.dyn"),
        ("C", (64, n), "float32", "wgmma.accumulator"),
    ]
    a, b = "A[vk, vi]" if trans_a else "A[vi, vk]", "B[vj, vk]" if trans_b else "B[vk, vj]"
    rounded = "tf32" if kind == "float32" else kind
    call = (
        f'T.ptx_wgmma("{rounded}", {n}, {int(trans_a)}, {int(trans_b)}, C.data, {_index("C", 64, n)}, '
        'A.access_ptr("r"), a1, B.access_ptr("r"), b1)'
    )
    return _function(tiles, _product((64, n, depth), kind, "float32", a, b)), _function(tiles, call)


globals().update(_constants := _announce() | _MMA)
__all__ += sorted(_constants)
