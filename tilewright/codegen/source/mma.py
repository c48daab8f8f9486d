"""NVIDIA's instructions over the registers of single threads: `ptx_mma`, `ptx_ldmatrix`, `mma_fill`, `mma_store`.

Each thread holds its part of a tile in an array of its own, in the layout of PTX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import Call, PrimExpr, StringImm, const_value
from ...ir.expr_text import Piece
from .vectors import Vectors

_HEAD = "static __device__ __forceinline__"
# classic names of types -> PTX's, bits, and the register constraint of its accumulators
_TYPES = {
    "fp16": ("f16", 16, "r"),
    "bf16": ("bf16", 16, "r"),
    "int8": ("s8", 8, "r"),
    "uint8": ("u8", 8, "r"),
    "fp32": ("f32", 32, "f"),
    "int32": ("s32", 32, "r"),
}
HELPERS = {
    "tw_word": (
        f"template <typename T> {_HEAD} unsigned int tw_word(const T* p) {{\n"
        "  if constexpr (sizeof(T) == 4) return *(const unsigned int*)p;\n"
        "  if constexpr (sizeof(T) == 2)\n"
        "    return (unsigned int)(unsigned short)p[0] | (unsigned int)(unsigned short)p[1] << 16;\n"
        "  return (unsigned int)(unsigned char)p[0] | (unsigned int)(unsigned char)p[1] << 8 |\n"
        "         (unsigned int)(unsigned char)p[2] << 16 | (unsigned int)(unsigned char)p[3] << 24;\n}"
    ),
    "tw_set_word": (
        f"template <typename T> {_HEAD} void tw_set_word(T* p, unsigned int x) {{\n"
        "#pragma unroll\n"
        "  for (int i = 0; i < 4 / (int)sizeof(T); ++i) p[i] = (T)(x >> (8 * sizeof(T) * i));\n}"
    ),
}


def helper(name: str) -> str | None:
    """The definition of `tw_ptx_mma_m16n8k16_row_col_fp16_fp16_fp32` or `tw_ldmatrix_4_trans`."""
    if name.startswith("tw_ldmatrix_"):
        count, _, trans = name.removeprefix("tw_ldmatrix_").partition("_")
        return _ldmatrix(int(count), bool(trans))
    if not name.startswith("tw_ptx_mma_"):
        return None
    shape, a_layout, b_layout, a_kind, b_kind, kind = name.removeprefix("tw_ptx_mma_").split("_")
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    a, b = (size * _TYPES[t][1] // 1024 for size, t in ((m * k, a_kind), (k * n, b_kind)))
    out, bits, held = _TYPES[kind]
    c = m * n * bits // 1024
    sums = ", ".join(f"%{i}" for i in range(c))
    left, right = (", ".join(f"%{i}" for i in range(x, y)) for x, y in ((c, c + a), (c + a, c + a + b)))
    words = [f'"r"(tw_word(a + {i * 32 // _TYPES[a_kind][1]}))' for i in range(a)]
    words += [f'"r"(tw_word(b + {i * 32 // _TYPES[b_kind][1]}))' for i in range(b)]
    if bits == 32:
        before = after = ""
        listed = ", ".join(f'"+{held}"(d[{i}])' for i in range(c))
    else:
        before = "".join(f"  unsigned int d{i} = tw_word(d + {2 * i});\n" for i in range(c))
        after = "".join(f"  tw_set_word(d + {2 * i}, d{i});\n" for i in range(c))
        listed = ", ".join(f'"+r"(d{i})' for i in range(c))
    kinds = ".".join([out, _TYPES[a_kind][0], _TYPES[b_kind][0], out])
    return (
        f"template <typename D, typename A, typename B> {_HEAD} void {name}(D* d, const A* a, const B* b) {{\n{before}"
        f'  asm volatile("mma.sync.aligned.{shape}.{a_layout}.{b_layout}.{kinds} {{{sums}}}, {{{left}}}, {{{right}}}, '
        f'{{{sums}}};"\n    : {listed} : {", ".join(words)});\n{after}}}'
    )


def _ldmatrix(count: int, trans: bool) -> str:
    names = [f"r{i}" for i in range(count)]
    places = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"=r"({r})' for r in names)
    sets = "".join(f"  tw_set_word(d + {i} * (4 / (int)sizeof(T)), {r});\n" for i, r in enumerate(names))
    name = f"tw_ldmatrix_{count}{'_trans' if trans else ''}"
    return (
        f"template <typename T> {_HEAD} void {name}(T* d, const void* from) {{\n"
        f"  unsigned int {', '.join(names)}, at = (unsigned int)__cvta_generic_to_shared(from);\n"
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{".trans" if trans else ""}.shared.b16 {{{places}}}, '
        f'[%{count}];"\n    : {outs} : "r"(at) : "memory");\n{sets}}}'
    )


def _text(e: PrimExpr) -> str:
    return e.value if isinstance(e, StringImm) else str(e)


def _moved(p: Vectors, pointer: PrimExpr, offset: PrimExpr) -> str:
    text = p.expr(pointer)
    return text if const_value(offset) == 0 else f"{text} + {p.at(10, offset)}"


def _mma(p: Vectors, e: Call) -> Piece:
    shape, a_layout, b_layout, a_kind, b_kind, kind = (_text(x) for x in e.args[:6])
    for what in (a_kind, b_kind, kind):
        if what not in _TYPES:
            raise LoweringError(f"cuda: ptx_mma takes {', '.join(_TYPES)}, not {what!r}")
    if not re.fullmatch(r"m\d+n\d+k\d+", shape):
        raise LoweringError(f"cuda: ptx_mma takes a shape like m16n8k16, not {shape!r}")
    name = f"tw_ptx_mma_{shape}_{a_layout}_{b_layout}_{a_kind}_{b_kind}_{kind}"
    for held in ("tw_word", "tw_set_word", name):
        p.need(held)
    a, b, d = (_moved(p, e.args[i], e.args[i + 1]) for i in (6, 8, 10))
    p.emit(f"{name}({d}, {a}, {b});")
    return Piece("0")


def _load(p: Vectors, e: Call) -> Piece:
    """`ptx_ldmatrix(trans, number, ".b16", registers, offset, shared memory, offset)`."""
    trans, count = bool(const_value(e.args[0])), const_value(e.args[1])
    if count not in (1, 2, 4):
        raise LoweringError(f"cuda: ptx_ldmatrix loads 1, 2 or 4 matrices, not {e.args[1]}")
    name = f"tw_ldmatrix_{count}{'_trans' if trans else ''}"
    p.need("tw_set_word")
    p.need(name)
    p.emit(f"{name}({_moved(p, e.args[3], e.args[4])}, {_moved(p, e.args[5], e.args[6])});")
    return Piece("0")


def _fill(p: Vectors, e: Call) -> Piece:
    size, i = const_value(e.args[0]), p.name("r")
    place = _moved(p, e.args[1], e.args[2])
    p.emit(f"#pragma unroll\nfor (int {i} = 0; {i} < {size}; ++{i}) ({place})[{i}] = 0;")
    return Piece("0")


def _store(p: Vectors, e: Call) -> Piece:
    """`mma_store(m, n, memory, registers, offset, stride)`: sums of 16 x 16."""
    if (const_value(e.args[0]), const_value(e.args[1])) != (16, 16):
        raise LoweringError(f"cuda: mma_store stores 16 x 16 sums, not {e.args[0]} x {e.args[1]}")
    p.need("tw_store_sums")
    source = _moved(p, e.args[3], e.args[4])
    p.emit(f"tw_store_sums({p.expr(e.args[2])}, {source}, {p.expr(e.args[5])});")
    return Piece("0")


INTRINSICS: dict[str, Callable[[Any, Call], Piece]] = {
    "ptx_mma": _mma,
    "ptx_ldmatrix": _load,
    "mma_fill": _fill,
    "mma_store": _store,
}
