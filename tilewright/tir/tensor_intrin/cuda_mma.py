"""NVIDIA's tensor cores through `ldmatrix` and `mma.sync`: tiles in memory of the scope `warp`.

A tile of 16 x 16 is a buffer of 32 x 8: the lane that holds an element, and the register.

    ldmatrix   W[thread, register] = shared[i, j]        fill    W[thread, register] = 0
    mma        C[…] += A[…] * B[…]                       store   memory[i, j] = W[thread, register]

`_TRANS`: the matrix is transposed in memory. `_DYN`: it is in dynamic shared memory. Bytes have tiles
of 16 x 32, and 16 registers of a byte each.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...ir.function import PrimFunc
from ..script import from_source
from .intrin import built_in_later

WARP_SIZE = 32
M_DIM = N_DIM = 16
_SHORT = {"float16": "f16", "float32": "f32", "int8": "i8", "int32": "i32"}
_PTX = {"float16": "fp16", "float32": "fp32", "int8": "int8", "int32": "int32"}
_SUMS = {"float16": ("float16", "float32"), "int8": ("int32",)}
_DEPTH = {"float16": 16, "int8": 32}  # k of one tile
_Pair = tuple[PrimFunc, PrimFunc]


def shared_16x16_to_ldmatrix_32x8_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """The thread and register of an element of 16 x 16: pairs along a row, rows 8 to 15 next, then columns."""
    return 4 * (i % 8) + j % 8 // 2, 4 * (j // 8) + i // 8 * 2 + j % 2


def shared_16x32_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """The same for 16 x 32 bytes: groups of four along a row."""
    return 4 * (i % 8) + j % 16 // 4, 8 * (j // 16) + i // 8 * 4 + j % 4


def shared_32x16_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """The same for 32 x 16 bytes: groups of four along a column."""
    return i % 16 // 4 + 4 * (j % 8), 8 * (j // 8) + i // 16 * 4 + i % 4


def ldmatrix_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """The element of 16 x 16 that a thread has in a register."""
    return 8 * (local_id % 4 // 2) + thread_id // 4, 8 * (local_id // 4) + thread_id % 4 * 2 + local_id % 2


def _place(layout: str, i: str, j: str) -> str:
    if layout == "16x16":
        return f"4 * ({i} % 8) + {j} % 8 // 2, 4 * ({j} // 8) + {i} // 8 * 2 + {j} % 2"
    if layout == "16x32":
        return f"4 * ({i} % 8) + {j} % 16 // 4, 8 * ({j} // 16) + {i} // 8 * 4 + {j} % 4"
    return f"{i} % 16 // 4 + 4 * ({j} % 8), 8 * ({j} // 8) + {i} // 16 * 4 + {i} % 4"


def _layout(kind: str, which: str, trans: bool) -> str:
    if kind == "float16":
        return "16x16"
    return "32x16" if which == "b" and not trans else "16x32"


_Held = tuple[str, tuple[int, int], str, str]  # name, shape, type, scope


def _function(held: list[_Held], writes: str, body: str, reads: str, strided: bool) -> PrimFunc:
    lines = ["@T.prim_func", f"def tile({', '.join(f'{h[0].lower()}: T.handle' for h in held)}):"]
    for name, (rows, columns), kind, scope in held:
        low, strides = name.lower(), ""
        if scope != "warp" and strided:
            lines += [f"    {low}0 = T.int32()", f"    {low}1 = T.int32()"]
            strides = f", strides=[{low}0, {low}1]"
        lines.append(
            f'    {name} = T.match_buffer({low}, ({rows}, {columns}), "{kind}", align=64, offset_factor=1, '
            f'scope="{scope}"{strides})'
        )
    whole = {h[0]: f"{h[0]}[0:{h[1][0]}, 0:{h[1][1]}]" for h in held}
    lines += ['    with T.block("root"):', f"        T.reads({', '.join(whole[n] for n in reads)})"]
    lines += [f"        T.writes({', '.join(whole[n] for n in writes)})"]
    lines += [f"        {line}" for line in body.strip("\n").splitlines()]
    return from_source("\n".join(lines) + "\n")


def _pair(held: list[_Held], writes: str, reads: str, desc: str, impl: str) -> _Pair:
    body = 'for tx in T.thread_binding(32, thread="threadIdx.x"):\n'
    body += "".join(f"    {line}\n" for line in impl.strip("\n").splitlines())
    return _function(held, writes, desc, reads, False), _function(held, writes, body, reads, True)


def _each(rows: int, columns: int, name: str, line: str) -> str:
    return (
        f"for i, j in T.grid({rows}, {columns}):\n"
        f'    with T.block("{name}"):\n'
        '        vi, vj = T.axis.remap("SS", [i, j])\n'
        f"        {line}\n"
    )


def _ldmatrix(kind: str, which: str, trans: bool, scope: str) -> _Pair:
    depth, layout = _DEPTH[kind], _layout(kind, which, trans)
    rows, columns = (M_DIM, depth) if (which == "a") != trans else (depth, M_DIM)
    size = M_DIM * depth // WARP_SIZE
    held = [("W", (WARP_SIZE, size), kind, "warp"), ("S", (rows, columns), kind, scope)]
    desc = _each(rows, columns, "shared_warp", f"W[{_place(layout, 'vi', 'vj')}] = S[vi, vj]")
    if layout == "32x16":  # no instruction transposes bytes
        impl = (
            f"for r in range({size}):\n"
            "    W[tx, r] = S[r % 8 // 4 * 16 + tx % 4 * 4 + r % 4, r // 8 * 8 + tx // 4]"
        )
        return _pair(held, "W", "S", desc, impl)
    line = 8 if kind == "float16" else 16  # elements of the 16 bytes that a thread points to
    if trans:
        at = f"s0 * 8 * (tx // 16) + s0 * (tx % 8) + {line} * (tx % 16 // 8)"
    else:
        at = f"s0 * (tx % 16) + {line} * (tx // 16)"
    transposed = trans if which == "a" else not trans
    impl = (
        f'T.evaluate(T.ptx_ldmatrix(T.bool({transposed}), 4, ".b16", W.data, W.elem_offset + {size} * tx, '
        f'S.access_ptr("r"), {at}, dtype="{kind}"))'
    )
    return _pair(held, "W", "S", desc, impl)


def _mma(kind: str, out: str, trans_a: bool, trans_b: bool) -> _Pair:
    depth = _DEPTH[kind]
    size = M_DIM * depth // WARP_SIZE
    held = [(n, (WARP_SIZE, size), kind, "warp") for n in "AB"] + [("C", (WARP_SIZE, 8), out, "warp")]
    a = _place(_layout(kind, "a", trans_a), *(("vk", "vi") if trans_a else ("vi", "vk")))
    b = _place(_layout(kind, "b", trans_b), *(("vj", "vk") if trans_b else ("vk", "vj")))
    c = _place("16x16", "vi", "vj")
    left, right = (x if kind == out else f'T.Cast("{out}", {x})' for x in (f"A[{a}]", f"B[{b}]"))
    desc = (
        f"for i, j, k in T.grid(16, 16, {depth}):\n"
        '    with T.block("C"):\n'
        '        vi, vj, vk = T.axis.remap("SSR", [i, j, k])\n'
        f"        C[{c}] = C[{c}] + {left} * {right}\n"
    )
    kinds = f'"{_PTX[kind]}", "{_PTX[kind]}", "{_PTX[out]}"'
    impl = ""
    for half in (0, 1):  # columns of the result
        impl += (
            f'T.evaluate(T.ptx_mma("m16n8k{depth}", "row", "col", {kinds}, A.data, A.elem_offset + tx * {size}, '
            f"B.data, B.elem_offset + tx * {size} + {half * size // 2}, C.data, C.elem_offset + tx * 8 + {half * 4}, "
            f'T.bool(False), dtype="{out}"))\n'
        )
    return _pair(held, "C", "CAB", desc, impl)


def _fill(kind: str) -> _Pair:
    held = [("C", (WARP_SIZE, 8), kind, "warp")]
    desc = _each(16, 16, "C_warp", f"C[{_place('16x16', 'vi', 'vj')}] = T.{kind}(0)")
    impl = f'T.evaluate(T.mma_fill(8, C.data, C.elem_offset, dtype="{kind}"))'
    return _pair(held, "C", "", desc, impl)


def _store(kind: str, scope: str, simple: bool) -> _Pair:
    held = [("W", (WARP_SIZE, 8), kind, "warp"), ("C", (16, 16), kind, scope)]
    desc = _each(16, 16, "C_warp", f"C[vi, vj] = W[{_place('16x16', 'vi', 'vj')}]")
    if simple:
        impl = (
            "for r in range(8):\n    C[r % 4 // 2 * 8 + tx // 4, r // 4 * 8 + tx % 4 * 2 + r % 2] = W[tx, r]"
        )
    else:
        impl = (
            f'T.evaluate(T.mma_store(16, 16, C.access_ptr("w"), W.data, W.elem_offset, c0, dtype="{kind}"))'
        )
    return _pair(held, "C", "W", desc, impl)


def _announce() -> dict[str, str]:
    """All intrinsics by the names of their constants."""
    out: dict[str, str] = {}
    for kind, sums in _SUMS.items():
        short = _SHORT[kind]
        for which in "ab":
            for trans in (False, True) if kind == "float16" or which == "b" else (False,):
                for scope in ("shared", "shared.dyn"):
                    way = f"{'_trans' if trans else ''}{'_dyn' if scope == 'shared.dyn' else ''}"
                    out[f"LDMATRIX_{short}_{which.upper()}{way.upper()}_INTRIN"] = built_in_later(
                        f"mma_ldmatrix_{short}_{which}{way}",
                        partial(_ldmatrix, kind, which, trans, scope),
                    )
        for total in sums:
            for trans_a in (False, True) if kind == "float16" else (False,):
                for trans_b in (False, True):
                    way = f"{'_trans_a' if trans_a else ''}{'_trans_b' if trans_b else ''}"
                    out[f"MMA_{short}{short}{_SHORT[total]}{way.upper()}_INTRIN"] = built_in_later(
                        f"mma_{short}{short}{_SHORT[total]}{way}",
                        partial(_mma, kind, total, trans_a, trans_b),
                    )
    for kind in ("float32", "float16", "int32"):
        short = _SHORT[kind]
        out[f"MMA_fill_16x16_{short}_INTRIN"] = built_in_later(
            f"mma_fill_16x16_{short}",
            partial(_fill, kind),
        )
        for scope in ("global", "shared", "shared.dyn"):
            for simple in (False, True):
                place = scope.replace(".", "_")
                out[f"MMA_store_16x16_{short}_{place}_INTRIN{'_SIMPLE' if simple else ''}"] = built_in_later(
                    f"mma_store_16x16_{short}_{place}_{'simple_' if simple else ''}",
                    partial(_store, kind, scope, simple),
                )
    return out


def get_mma_intrin_group(
    load_scope: str,
    store_scope: str,
    a_dtype: str,
    b_dtype: str,
    out_dtype: str,
    trans_a: bool,
    trans_b: bool,
    not_use_mma_store_intrinic: bool = True,
    store_to_smem_dtype: str | None = None,
) -> dict[str, str]:
    """The intrinsics of a matrix product by role: init, load_a, load_b, compute, store."""
    for what, given, known in (
        ("load_scope", load_scope, ("shared", "shared.dyn")),
        ("store_scope", store_scope, ("global", "shared", "shared.dyn")),
        ("a_dtype", a_dtype, tuple(_SUMS)),
        ("b_dtype", b_dtype, (a_dtype,)),
        ("out_dtype", out_dtype, _SUMS.get(a_dtype, ())),
    ):
        if given not in known:
            raise ValueError(f"get_mma_intrin_group: {what} {given!r} is none of {', '.join(known)}")
    a, b, out = _SHORT[a_dtype], _SHORT[b_dtype], _SHORT[out_dtype]
    dyn = "_dyn" if load_scope == "shared.dyn" else ""
    stored = _SHORT[store_to_smem_dtype or out_dtype]
    simple = "simple_" if not_use_mma_store_intrinic else ""
    return {
        "init": f"mma_fill_16x16_{out}",
        "load_a": f"mma_ldmatrix_{a}_a{'_trans' if trans_a else ''}{dyn}",
        "load_b": f"mma_ldmatrix_{b}_b{'_trans' if trans_b else ''}{dyn}",
        "compute": f"mma_{a}{b}{out}{'_trans_a' if trans_a else ''}{'_trans_b' if trans_b else ''}",
        "store": f"mma_store_16x16_{stored}_{store_scope.replace('.', '_')}_{simple}",
    }


CONSTANTS = _announce()
