"""Tensor cores in CUDA, as PTX: fragments of a warp (mma, ldmatrix), products of a warpgroup (wgmma).

The registers of a fragment are those of `mma.m16n8k16`, twice for 16 columns: with g = lane / 4 and t = lane % 4,

    C        rows g and g + 8, columns 2t and 2t + 1 of each 8
    A        words of neighbours along k: rows g and g + 8, then the same of the next 8 of k
    B        words of neighbours along k: column g, two halves of k; then the same of the next 8 columns

For float32 (tf32) a word is one element, and k is 8; for bytes it is four elements, and k is 16 or 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import Call, PrimExpr, StringImm, Var, const, const_value
from ...ir.expr_text import Piece
from ...ir.ops import mul
from .vectors import Vectors

_HEAD = "static __device__ __forceinline__"
_LANE = '  int lane;\n  asm("mov.u32 %0, %%laneid;" : "=r"(lane));\n'
_SHORT = {"float16": "f16", "bfloat16": "bf16", "int8": "s8", "float32": "f32", "int32": "s32"}
# the address of a row
_PLAIN = "(row * stride + piece * 8) * 2"
_PERMUTED = "by_loops * SIZE + ((by_threads + row * stride) * SIZE + piece * 16)"
_LINE_LOAD = (
    f"  unsigned int at = (unsigned int)__cvta_generic_to_shared(from) + {_PLAIN};\n"
    "  if constexpr (A == COLUMNS)\n"
    '    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"\n'
    '      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at) : "memory");\n'
    "  else\n"
    '    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"\n'
    '      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at) : "memory");\n}'
)
# the permutation of the pieces of a row (`inject_permuted_layout`)
_BY = "SIZE == 4 && PIECES == 8 ? row % 4 * 2 + row / 4 % 2 : row / ROWS % PIECES"

HELPERS = {
    # 16 x 16 elements of 16 bits whose rows are aligned to 16 bytes
    "tw_load_b16": (
        f"template <bool A, bool COLUMNS> {_HEAD} void tw_load_b16(unsigned int* d, const void* from, int stride) {{\n"
        f"{_LANE}"
        "  int row = COLUMNS ? lane % 8 + lane / 16 * 8 : lane % 16;\n"
        "  int piece = COLUMNS ? lane / 8 % 2 : lane / 16;\n"
        f"{_LINE_LOAD}"
    ),
    # 16 rows of 32 bytes, whose PIECES of 16 bytes are permuted every ROWS rows (`permuted_layout`): the parts of the
    # address that depend on threads and on loops are separate, so that the compiler can hoist the sum
    "tw_load_permuted": (
        f"template <bool A, bool COLUMNS, int PIECES, int ROWS, int SIZE = 2> {_HEAD} void tw_load_permuted("
        "unsigned int* d, const void* from, int stride, int by_threads, int by_loops, int column) {\n"
        f"{_LANE}"
        "  int row = COLUMNS ? lane % 8 + lane / 16 * 8 : lane % 16;\n"
        f"  int by = {_BY};\n"
        "  int piece = (column / (16 / SIZE) + (COLUMNS ? lane / 8 % 2 : lane / 16)) ^ by;\n"
        f"{_LINE_LOAD.replace(_PLAIN, _PERMUTED)}"
    ),
    # 8 rows of 16 elements of 32 bits, transposed: rows are steps of the reduction
    "tw_load_across": (
        f"template <bool A, int PIECES, int ROWS> {_HEAD} void tw_load_across(unsigned int* d, const void* from, "
        "int stride, int by_threads, int by_loops, int column) {\n"
        f"{_LANE}"
        "  const int SIZE = 4;\n"
        "#pragma unroll\n"
        "  for (int q = 0; q < 4; ++q) {\n"
        "    int row = lane % 4 + (A ? q / 2 : q % 2) * 4, x = column + lane / 4 + (A ? q % 2 : q / 2) * 8;\n"
        f"    int by = {_BY};\n"
        "    d[q] = ((const unsigned int*)from)[by_loops + (by_threads + row * stride + (x / 4 ^ by) * 4 + x % 4)];\n"
        "  }\n}"
    ),
    # float32 rounded to tf32 (ten bits of mantissa): products ignore the other bits. There is an instruction for that,
    # but it takes longer than a product.
    "tw_tf32": (
        f"{_HEAD} void tw_tf32(unsigned int* d) {{\n"
        "#pragma unroll\n"
        "  for (int q = 0; q < 4; ++q)\n"
        '    asm("{\\n\\t.reg .pred p;\\n\\tsetp.num.f32 p, %1, %1;\\n\\t@p add.u32 %0, %0, 4096;\\n\\t}"\n'
        '      : "+r"(d[q]) : "f"(__uint_as_float(d[q])));\n}'
    ),
    # 16 x 16 bytes, contiguous along the reduction
    "tw_load_b8": (
        f"template <int PIECES, int ROWS> {_HEAD} void tw_load_b8(unsigned int* d, const void* from, int stride, "
        "int by_threads, int by_loops, int column) {\n"
        f"{_LANE}"
        "  int row = lane % 16, piece = column / 16 ^ row / ROWS % PIECES;\n"
        "  unsigned int at = (unsigned int)__cvta_generic_to_shared(from) + by_loops + (by_threads + row * stride + "
        "piece * 16);\n"
        '  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"\n'
        '    : "=r"(d[0]), "=r"(d[1]) : "r"(at) : "memory");\n}'
    ),
    # single elements, in any layout
    "tw_load_each": (
        f"template <typename T, bool A, bool COLUMNS, int DEPTH = 16> {_HEAD} void tw_load_each(unsigned int* d, "
        "const T* from, int stride) {\n"
        f"{_LANE}"
        "  const int per = 4 / sizeof(T), halves = DEPTH / (4 * per);\n"
        "#pragma unroll\n"
        "  for (int q = 0; q < 2 * halves; ++q) {\n"
        "    int line = lane / 4 + (A ? q % 2 : q / halves) * 8;\n"
        "    int k = lane % 4 * per + (A ? q / 2 : q % halves) * 4 * per;\n"
        "    d[q] = 0;\n"
        "#pragma unroll\n"
        "    for (int e = 0; e < per; ++e) {\n"
        "      T x = A != COLUMNS ? from[line * stride + k + e] : from[(k + e) * stride + line];\n"
        "      d[q] |= (unsigned int)x << (8 * sizeof(T) * e);\n"
        "    }\n  }\n}"
    ),
    "tw_store_sums": (
        f"template <typename T> {_HEAD} void tw_store_sums(T* to, const T* d, int stride) {{\n"
        f"{_LANE}"
        "#pragma unroll\n"
        "  for (int q = 0; q < 8; ++q)\n"
        "    to[(lane / 4 + q / 2 % 2 * 8) * stride + q / 4 * 8 + lane % 4 * 2 + q % 2] = d[q];\n}"
    ),
    "tw_mma_s8_s32": (
        f"{_HEAD} void tw_mma_s8_s32(int* d, const unsigned int* a, const unsigned int* b) {{\n"
        "#pragma unroll\n"
        "  for (int n = 0; n < 2; ++n, d += 4, b += 1) {\n"
        "#if __CUDA_ARCH__ >= 800\n"
        '    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, '
        '{%0, %1, %2, %3};"\n'
        '      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));\n'
        "#else\n"
        "#pragma unroll\n"
        "    for (int h = 0; h < 2; ++h)\n"
        '      asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"\n'
        '        : "+r"(d[2 * h]), "+r"(d[2 * h + 1]) : "r"(a[h]), "r"(b[0]));\n'
        "#endif\n  }\n}"
    ),
    "tw_mma_s8_s32_deep": (
        f"{_HEAD} void tw_mma_s8_s32_deep(int* d, const unsigned int* a, const unsigned int* b) {{\n"
        "#pragma unroll\n"
        "  for (int n = 0; n < 2; ++n, d += 4, b += 2) {\n"
        "#if __CUDA_ARCH__ >= 800\n"
        '    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, '
        '{%0, %1, %2, %3};"\n'
        '      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])\n'
        '      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));\n'
        "#else\n"
        "#pragma unroll\n"
        "    for (int q = 0; q < 4; ++q)\n"
        '      asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"\n'
        '        : "+r"(d[q % 2 * 2]), "+r"(d[q % 2 * 2 + 1]) : "r"(a[q]), "r"(b[q / 2]));\n'
        "#endif\n  }\n}"
    ),
    "tw_mma_tf32_f32": (
        f"{_HEAD} void tw_mma_tf32_f32(float* d, const unsigned int* a, const unsigned int* b) {{\n"
        "#pragma unroll\n"
        "  for (int n = 0; n < 2; ++n, d += 4, b += 2)\n"
        '    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, '
        '{%0, %1, %2, %3};"\n'
        '      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])\n'
        '      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));\n}'
    ),
    "tw_mma_f16_f16": (
        f"{_HEAD} void tw_mma_f16_f16(unsigned short* d, const unsigned int* a, const unsigned int* b) {{\n"
        "#pragma unroll\n"
        "  for (int n = 0; n < 2; ++n, d += 4, b += 2) {\n"
        "    unsigned int low = d[0] | (unsigned int)d[1] << 16, high = d[2] | (unsigned int)d[3] << 16;\n"
        "#if __CUDA_ARCH__ >= 800\n"
        '    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, '
        '{%0, %1};"\n'
        '      : "+r"(low), "+r"(high) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));\n'
        "#else\n"
        "#pragma unroll\n"
        "    for (int h = 0; h < 2; ++h)\n"
        '      asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"\n'
        '        : "+r"(low), "+r"(high) : "r"(a[2 * h]), "r"(a[2 * h + 1]), "r"(b[h]));\n'
        "#endif\n"
        "    d[0] = low, d[1] = low >> 16, d[2] = high, d[3] = high >> 16;\n  }\n}"
    ),
}


def _product(kind: str) -> str:
    """The product of fragments of 16-bit floats with float32 accumulators."""
    sums = '"+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])'
    older = (
        "#else\n#pragma unroll\n    for (int h = 0; h < 2; ++h)\n"
        '      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, '
        '{%0, %1, %2, %3};"\n'
        f'        : {sums} : "r"(a[2 * h]), "r"(a[2 * h + 1]), "r"(b[h]));\n#endif\n'
    )
    return (
        f"{_HEAD} void tw_mma_{kind}_f32(float* d, const unsigned int* a, const unsigned int* b) {{\n"
        "#pragma unroll\n  for (int n = 0; n < 2; ++n, d += 4, b += 2) {\n"
        + ("#if __CUDA_ARCH__ >= 800\n" if kind == "f16" else "")
        + f'    asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{%0, %1, %2, %3}}, '
        '{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
        f'      : {sums}\n      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));\n'
        + (older if kind == "f16" else "")
        + "  }\n}"
    )


HELPERS |= {f"tw_mma_{kind}_f32": _product(kind) for kind in ("f16", "bf16")}


# ---------------------------------------------------------------------------- fragments of a warp
def _place(p: Vectors, var: PrimExpr, index: PrimExpr, size: int) -> str:
    """The registers of a fragment."""
    at = p.tidy(mul(index, const(size, index.dtype)))
    return p.expr(var) if const_value(at) == 0 else f"{p.expr(var)} + {p.at(10, at)}"


def _words(p: Vectors, var: PrimExpr, index: PrimExpr, kind: str, depth: int) -> str:
    return _place(p, var, index, 2 if (kind, depth) == ("int8", 16) else 4)


def _text(e: PrimExpr) -> str:
    return e.value if isinstance(e, StringImm) else str(e)


def _fill(p: Vectors, e: Call) -> Piece:
    var, rows, columns, _, index, value = e.args[:6]
    size = int(const_value(rows) or 0) * int(const_value(columns) or 0)
    count = 8 if size == 256 else size // 128
    i, text = p.name("r"), p.expr(value)
    p.emit(
        f"#pragma unroll\nfor (int {i} = 0; {i} < {count}; ++{i}) ({_place(p, var, index, count)})[{i}] = {text};"
    )
    return Piece("0")


def _load(p: Vectors, e: Call) -> Piece:
    var, index, pointer, stride, layout = e.args[0], e.args[4], e.args[5], e.args[6], _text(e.args[7])
    kind, which, permuted = _pointed(pointer), _text(e.args[-1]), e.args[8:-1]
    depth, size = int(const_value(e.args[3]) or 16), kind.bits // 8
    a, columns = (str(x).lower() for x in (which == "matrix_a", layout == "col_major"))
    step = const_value(stride)
    in_lines = step is not None and step * kind.bits % 128 == 0 and "shared" in p.scope_of(pointer)
    along = (which == "matrix_a") == (layout == "row_major")  # contiguous along the reduction
    lies = permuted or (const(0), const(0), const(0), const(1), const(8))
    sizes = [p.expr(x) for x in lies[3:]]
    if in_lines and depth * size == 32 and (along or size == 2):
        name = "tw_load_permuted" if permuted or size != 2 else "tw_load_b16"
        given = [a, columns, *(sizes if permuted or size != 2 else []), *([str(size)] if size != 2 else [])]
    elif in_lines and size == 1 and along:
        name, given = "tw_load_b8", sizes
    elif in_lines and size == 4:
        name, given = "tw_load_across", [a, *sizes]
    elif permuted:
        raise LoweringError(
            f"cuda: a matrix of {kind} with a stride of {stride} would be loaded element by element, which "
            "permuted memory does not support: it is for matrices in shared memory of 16 or 32 bits, or of bytes "
            "contiguous along the reduction, whose rows are whole pieces of 16 bytes"
        )
    else:
        name = "tw_load_each"
        given = [f"unsigned {({1: 'char', 2: 'short', 4: 'int'})[size]}", a, columns]
        given += [] if depth == 16 else [str(depth)]
    p.need(name)
    source, words = p.expr(pointer), _words(p, var, index, str(kind), depth)
    if name == "tw_load_each" and size != 2:
        source = f"(const {given[0]}*)({source})"
    places = lies[:3] if name not in ("tw_load_b16", "tw_load_each") else ()
    args = [words, source, p.expr(stride), *(p.expr(x) for x in places)]
    p.emit(f"{name}<{', '.join(given)}>({', '.join(args)});")
    if size == 4:
        p.need("tw_tf32")
        p.emit(f"tw_tf32({words});")
    return Piece("0")


def _pointed(pointer: PrimExpr) -> Any:
    """The type of the elements that `tvm_access_ptr` points to."""
    if not isinstance(pointer, Call) or pointer.op.short_name != "tvm_access_ptr":
        raise LoweringError(f"cuda: a fragment is loaded and stored through access_ptr, not `{pointer}`")
    return pointer.args[0].dtype


def _sync(p: Vectors, e: Call) -> Piece:
    d, di, a, ai, b, bi = e.args[:6]
    kind, out = (_text(x) for x in e.args[-2:])
    depth = int(const_value(e.args[8]) or 16) if len(e.args) > 10 else 16
    short = "tf32" if kind == "float32" else _SHORT.get(kind)
    name = f"tw_mma_{short}_{_SHORT.get(out)}{'_deep' if depth == 32 else ''}"
    if name not in HELPERS:
        raise LoweringError(f"cuda: tensor cores have no product of {kind} that accumulates in {out}")
    p.need(name)
    words = [_words(p, v, i, kind, depth) for v, i in ((a, ai), (b, bi))]
    p.emit(f"{name}({', '.join([_place(p, d, di, 8), *words])});")
    return Piece("0")


def _store(p: Vectors, e: Call) -> Piece:
    var, index, pointer, stride = e.args[0], e.args[4], e.args[5], e.args[6]
    _pointed(pointer)
    p.need("tw_store_sums")
    p.emit(f"tw_store_sums({p.expr(pointer)}, {_place(p, var, index, 8)}, {p.expr(stride)});")
    return Piece("0")


# ---------------------------------------------------------------------------- warpgroups
# The matrix descriptor: the address of a tile in units of 16 bytes, and the stride of its pieces; the upper half of
# the word is always the same: lines of 128 bytes in groups of eight, swizzled.
_TILE = (
    f"{_HEAD} unsigned int tw_tile(const void* at, unsigned int chunk) {{\n"
    "  return ((unsigned int)__cvta_generic_to_shared(at) >> 4) + (chunk >> 4 << 16);\n}\n"
    f"{_HEAD} unsigned long long tw_lines(unsigned int tile) {{\n"
    "  return (unsigned long long)0x40000040u << 32 | tile;\n}"
)
HELPERS |= {
    "tw_tile": _TILE,
    "tw_wgmma_wait": (
        f"template <int N> {_HEAD} void tw_wgmma_wait() {{\n"
        '  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");\n}'
    ),
    # four words of each of four threads, transposed: word i of thread t becomes word t of thread i
    "tw_turn": (
        f"template <int N, typename T> {_HEAD} void tw_turn(T* to, const T* from) {{\n"
        f"{_LANE}"
        "#pragma unroll\n"
        "  for (int q = 0; q < N / 16; ++q) {\n"
        "    unsigned int w[4];\n"
        "    const T* source = from + q / 2 * 16 + q % 2 * 2;\n"
        "#pragma unroll\n"
        "    for (int j = 0; j < 4; ++j)\n"
        "      w[j] = (unsigned int)source[4 * j] | (unsigned int)source[4 * j + 1] << 16;\n"
        "#pragma unroll\n"
        "    for (int bit = 1; bit < 4; bit *= 2) {\n"
        "      unsigned int upper;  // all bits or none: no threads part at a condition\n"
        '      asm("bfe.s32 %0, %1, %2, 1;" : "=r"(upper) : "r"(lane), "r"(bit / 2));\n'
        "#pragma unroll\n"
        "      for (int i = 0; i < 2; ++i) {\n"
        "        int low = bit == 1 ? 2 * i : i, high = low + bit;\n"
        "        unsigned int give = (w[low] & upper) | (w[high] & ~upper);\n"
        "        unsigned int got = __shfl_xor_sync(0xffffffffu, give, bit);\n"
        "        w[low] = (got & upper) | (w[low] & ~upper), w[high] = (w[high] & upper) | (got & ~upper);\n"
        "      }\n    }\n"
        "#pragma unroll\n"
        "    for (int j = 0; j < 4; ++j) to[q * 8 + 2 * j] = w[j], to[q * 8 + 2 * j + 1] = w[j] >> 16;\n"
        "  }\n}"
    ),
    # two pairs of floats of each of two threads: the first pairs go to the even thread, the second ones to the odd one;
    # by a select instruction, as the compiler would generate branches
    "tw_turn_pairs": (
        f"{_HEAD} float tw_pick(int odd, float x, float y) {{\n"
        '  float z;\n  asm("{\\n\\t.reg .pred p;\\n\\tsetp.ne.s32 p, %3, 0;\\n\\tselp.f32 %0, %1, %2, p;\\n\\t}"\n'
        '    : "=f"(z) : "f"(x), "f"(y), "r"(odd));\n  return z;\n}\n'
        f"template <int N> {_HEAD} void tw_turn_pairs(float* to, const float* from) {{\n"
        f"{_LANE}"
        "  int odd = lane & 1;\n"
        "#pragma unroll\n"
        "  for (int q = 0; q < N / 8; ++q) {\n"
        "    const float* d = from + q / 2 * 8 + q % 2 * 2;\n"
        "    float x = __shfl_xor_sync(0xffffffffu, tw_pick(odd, d[0], d[4]), 1);\n"
        "    float y = __shfl_xor_sync(0xffffffffu, tw_pick(odd, d[1], d[5]), 1);\n"
        "    to[4 * q] = tw_pick(odd, x, d[0]), to[4 * q + 1] = tw_pick(odd, y, d[1]);\n"
        "    to[4 * q + 2] = tw_pick(odd, d[4], x), to[4 * q + 3] = tw_pick(odd, d[5], y);\n"
        "  }\n}"
    ),
    # rows g and g + 8 of an accumulator fragment, in four threads each, combined with their previous values
    "tw_reduce_rows": (
        f"template <bool MAX, int N> {_HEAD} void tw_reduce_rows(float* to, const float* d) {{\n"
        "#pragma unroll\n"
        "  for (int h = 0; h < 2; ++h) {\n"
        "    float x[4];\n"
        "#pragma unroll\n"
        "    for (int j = 0; j < N / 4; ++j) {\n"
        "      float y = d[j / 2 * 4 + 2 * h + j % 2];\n"
        "      x[j % 4] = j < 4 ? y : MAX ? fmaxf(x[j % 4], y) : x[j % 4] + y;\n"
        "    }\n"
        "    float r = MAX ? fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])) : (x[0] + x[1]) + (x[2] + x[3]);\n"
        "#pragma unroll\n"
        "    for (int bit = 1; bit < 4; bit *= 2) {\n"
        "      float y = __shfl_xor_sync(0xffffffffu, r, bit);\n"
        "      r = MAX ? fmaxf(r, y) : r + y;\n"
        "    }\n"
        "    to[h] = MAX ? fmaxf(to[h], r) : to[h] + r;\n"
        "  }\n}"
    ),
    **{
        f"tw_narrow_{kind}": (
            f"template <int N> {_HEAD} void tw_narrow_{kind}(unsigned int* to, const float* d) {{\n"
            "#pragma unroll\n"
            "  for (int q = 0; q < N / 4; ++q)\n"
            f'    asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(to[q]) : "f"(d[2 * q + 1]), "f"(d[2 * q]));\n}}'
        )
        for kind in ("f16", "bf16")
    },
    "tw_exp2": (
        f"{_HEAD} float tw_exp2(float x) {{\n"
        '  float y;\n  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));\n  return y;\n}'
    ),
    "tw_tensor_map": "struct __align__(64) tw_tensor_map { unsigned long long v[16]; };",
    "tw_barrier_init": (
        f"{_HEAD} void tw_barrier_init(unsigned long long* b, int n) {{\n"
        '  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\\n\\tfence.mbarrier_init.release.cluster;"\n'
        '    :: "r"((unsigned int)__cvta_generic_to_shared(b)), "r"(n) : "memory");\n}'
    ),
    "tw_barrier_arrive": (
        f"{_HEAD} void tw_barrier_arrive(unsigned long long* b) {{\n"
        '  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"\n'
        '    :: "r"((unsigned int)__cvta_generic_to_shared(b)) : "memory");\n}'
    ),
    "tw_barrier_expect": (
        f"{_HEAD} void tw_barrier_expect(unsigned long long* b, int bytes) {{\n"
        '  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"\n'
        '    :: "r"((unsigned int)__cvta_generic_to_shared(b)), "r"(bytes) : "memory");\n}'
    ),
    "tw_barrier_wait": (
        f"{_HEAD} void tw_barrier_wait(unsigned long long* b, int parity) {{\n"
        '  asm volatile("{\\n\\t.reg .pred done;\\nagain:\\n\\t"\n'
        '    "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n\\t"\n'
        '    "@done bra over;\\n\\tbra again;\\nover:\\n\\t}"\n'
        '    :: "r"((unsigned int)__cvta_generic_to_shared(b)), "r"(parity) : "memory");\n}'
    ),
}


def helper(name: str) -> str | None:
    """The definition of a helper that is specific to a size: `tw_wgmma_256_f16_01`, `tw_bulk_copy_2`."""
    if name.startswith("tw_bulk_copy_"):
        return _bulk_copy_helper(int(name.removeprefix("tw_bulk_copy_")))
    if name.startswith("tw_walk_"):
        return _walk_helper(int(name.removeprefix("tw_walk_")))
    if not name.startswith("tw_wgmma_") or name in HELPERS:
        return None
    return _wgmma_helper(name)


def _wgmma_helper(name: str) -> str:
    """A product over a line of k: the number of columns, the type, the layouts of A and B (`r`: A is in registers), and
    where it matters the lines of B's pieces, or `first`: the accumulators start from 0."""
    n, kind, ways, *more = name.removeprefix("tw_wgmma_").split("_")
    first, lines = "first" in more, next((int(m) for m in more if m.isdigit()), 64)
    count = int(n) // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    sums = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    # The next step of k is 32 bytes further in a line, or 16 lines further down.
    (a_step, a_chunk), (b_step, b_chunk) = ((2048, 128 * lines) if w == "1" else (32, 16) for w in ways)
    if ways[0] == "r":
        a = "const unsigned int* a"
        left = ", ".join(f"%{count + i}" for i in range(4))
        left, given, places = f"{{{left}}}", ", ".join(f'"r"(a[4 * k + {i}])' for i in range(4)), 4
        at, trans = "", ways[1]
    else:
        a, left, places = "const void* a", f"%{count}", 1
        given = f'"l"(tw_lines(x + k * {a_step // 16}))'
        at, trans = f"x = tw_tile(a, {a_chunk}), ", f"{ways[0]}, {ways[1]}"
    right, scale = f"%{count + places}", "p" if first else "1"
    shape, turned = (f"m64n{n}k8", "") if kind == "tf32" else (f"m64n{n}k16", f", {trans}")
    call = (
        f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} {{{registers}}}, {left}, {right}, {scale}, 1, 1"
        f"{turned};"
    )
    more_given = ""
    if first:
        call = f"{{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %{count + places + 1}, 0;\\n\\t{call}\\n\\t}}"
        more_given = ', "r"(k)'
    return (
        f"{_HEAD} void {name}(float* d, {a}, const void* b) {{\n"
        f"  unsigned int {at}y = tw_tile(b, {b_chunk});\n"
        '  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
        "#pragma unroll\n  for (int k = 0; k < 4; ++k)\n"
        f'    asm volatile("{call}"\n'
        f"      : {sums}\n"
        f'      : {given}, "l"(tw_lines(y + k * {b_step // 16})){more_given});\n'
        '  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");\n}'
    )


def _bulk_copy_helper(rank: int) -> str:
    listed = "".join(f", int c{i}" for i in range(rank))
    places = ", ".join(f"%{3 + i}" for i in range(rank))
    given = "".join(f', "r"(c{i})' for i in range(rank))
    return (
        f"{_HEAD} void tw_bulk_copy_{rank}(void* to, const tw_tensor_map* map, unsigned long long* barrier"
        f"{listed}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], '
        f'[%1, {{{places}}}], [%2];"\n'
        '    :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(map),\n'
        f'       "r"((unsigned int)__cvta_generic_to_shared(barrier)){given} : "memory");\n}}'
    )


def _walk_helper(rank: int) -> str:
    """An im2col copy: the start of the walk, and the offset within each window."""
    listed = "".join(f", int c{i}" for i in range(rank)) + "".join(f", int o{i}" for i in range(rank - 2))
    places = ", ".join(f"%{3 + i}" for i in range(rank))
    offsets = ", ".join(f"%{3 + rank + i}" for i in range(rank - 2))
    given = "".join(f', "r"(c{i})' for i in range(rank))
    given += "".join(f', "h"((unsigned short)o{i})' for i in range(rank - 2))
    return (
        f"{_HEAD} void tw_walk_{rank}(void* to, const tw_tensor_map* map, unsigned long long* barrier{listed}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes '
        f'[%0], [%1, {{{places}}}], [%2], {{{offsets}}};"\n'
        '    :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(map),\n'
        f'       "r"((unsigned int)__cvta_generic_to_shared(barrier)){given} : "memory");\n}}'
    )


def _wgmma(p: Vectors, e: Call) -> Piece:
    """`ptx_wgmma(type, n, trans_a, trans_b, d, index, a, lines of a, b, lines of b[, first])`"""
    kind, n, trans_a, trans_b, d, index, a, _, b, lines, *first = e.args
    # For the instruction, an operand is transposed if it is not contiguous along k.
    ways = f"{int(bool(const_value(trans_a)))}{int(not const_value(trans_b))}"
    return _product_call(p, kind, n, ways, d, index, p.expr(a), b, lines, first)


def _wgmma_registers(p: Vectors, e: Call) -> Piece:
    """`ptx_wgmma_registers(type, n, d, index, a, index, b, lines of b[, first])`: A is a fragment."""
    kind, n, d, index, a, which, b, lines, *first = e.args
    return _product_call(p, kind, n, "r1", d, index, _place(p, a, which, 16), b, lines, first)


def _product_call(
    p: Vectors,
    kind: PrimExpr,
    n: PrimExpr,
    ways: str,
    d: PrimExpr,
    index: PrimExpr,
    a: str,
    b: PrimExpr,
    lines: PrimExpr,
    first: list[PrimExpr],
) -> Piece:
    name = f"tw_wgmma_{const_value(n)}_{_SHORT.get(_text(kind), 'tf32')}_{ways}"
    if ways[1] == "1" and const_value(lines) not in (64, None) and int(const_value(n) or 0) > 64:
        name += f"_{const_value(lines)}"
    name += "_first" if first else ""
    p.need("tw_tile")
    p.need(name)
    count = int(const_value(n) or 0) // 2
    p.emit(f"{name}({_place(p, d, index, count)}, {a}, {p.expr(b)});")
    return Piece("0")


def _reduce_rows(p: Vectors, e: Call) -> Piece:
    """`ptx_reduce_rows(what, to, index, d, index, n)`"""
    what, to, index, d, which, n = e.args
    size = int(const_value(n) or 0)
    p.need("tw_reduce_rows")
    most = str(_text(what) == "max").lower()
    p.emit(f"tw_reduce_rows<{most}, {size}>({_place(p, to, index, 2)}, {_place(p, d, which, size // 2)});")
    return Piece("0")


def _narrow(p: Vectors, e: Call) -> Piece:
    """`ptx_narrow_fragment(type, to, index, d, index, n)`"""
    kind, to, index, d, which, n = e.args
    size, name = int(const_value(n) or 0), f"tw_narrow_{_SHORT[_text(kind)]}"
    p.need(name)
    p.emit(f"{name}<{size}>({_place(p, to, index, size // 4)}, {_place(p, d, which, size // 2)});")
    return Piece("0")


def _fast_exp2(p: Vectors, e: Call) -> Piece:
    p.need("tw_exp2")
    return Piece(f"tw_exp2({p.expr(e.args[0])})")


def _wgmma_wait(p: Vectors, e: Call) -> Piece:
    p.need("tw_wgmma_wait")
    p.emit(f"tw_wgmma_wait<{int(const_value(e.args[0]) or 0)}>();")
    return Piece("0")


def _bits(var: PrimExpr) -> int:
    """The bits of the elements that a variable points to."""
    held: Any = getattr(var, "type_annotation", None)
    return int(held.element_type.dtype.bits)


def _turn(p: Vectors, e: Call) -> Piece:
    to, _, columns, index, source, which = e.args
    n = int(const_value(columns) or 0)
    name = "tw_turn_pairs" if _bits(to) == 32 else "tw_turn"
    p.need(name)
    p.emit(f"{name}<{n}>({_place(p, to, index, n // 2)}, {_place(p, source, which, n // 2)});")
    return Piece("0")


def _set_registers(p: Any, e: Call) -> Piece:
    p.sets_registers = True
    count, more = (int(const_value(a) or 0) for a in e.args)
    p.emit(f'asm volatile("setmaxnreg.{"inc" if more else "dec"}.sync.aligned.u32 {count};");')
    return Piece("0")


# ---------------------------------------------------------------------------- barriers and bulk copies
def _create(p: Any, e: Call) -> Piece:
    p.shared.append(
        f"  __shared__ __align__(8) unsigned long long tw_barriers[{int(const_value(e.args[0]) or 1)}];"
    )
    return Piece("0")


def _barrier(p: Vectors, index: PrimExpr) -> str:
    """An mbarrier, by its index or its address."""
    if index.dtype.is_handle:
        return p.expr(index)
    return "tw_barriers" if const_value(index) == 0 else f"tw_barriers + {p.at(10, index)}"


def _on_barrier(helper_name: str) -> Callable[[Vectors, Call], Piece]:
    def write(p: Vectors, e: Call) -> Piece:
        p.need(helper_name)
        p.emit(f"{helper_name}({', '.join([_barrier(p, e.args[0]), *(p.expr(a) for a in e.args[1:])])});")
        return Piece("0")

    return write


def _bulk_copy(p: Vectors, e: Call) -> Piece:
    """`ptx_cp_async_bulk_tensor(to, map, barrier, coordinates…)`, the innermost one first.

    For windows of an image: `(…, coordinates…, "windows", offsets…)`.
    """
    to, tensor_map, barrier, *places = e.args
    if not isinstance(tensor_map, Var):
        raise LoweringError(f"cuda: a bulk copy takes a map of its tensor, not `{tensor_map}`")
    marks = [i for i, x in enumerate(places) if isinstance(x, StringImm)]
    name = f"tw_walk_{marks[0]}" if marks else f"tw_bulk_copy_{len(places)}"
    places = [x for x in places if not isinstance(x, StringImm)]
    p.need(name)
    given = [p.expr(to), p.expr(tensor_map), _barrier(p, barrier), *(p.expr(x) for x in places)]
    p.emit(f"{name}({', '.join(given)});")
    return Piece("0")


INTRINSICS: dict[str, Callable[[Any, Call], Piece]] = {
    "tvm_fill_fragment": _fill,
    "tvm_load_matrix_sync": _load,
    "tvm_mma_sync": _sync,
    "tvm_store_matrix_sync": _store,
    "ptx_wgmma": _wgmma,
    "ptx_wgmma_wait": _wgmma_wait,
    "ptx_turn_fragment": _turn,
    "ptx_wgmma_registers": _wgmma_registers,
    "ptx_reduce_rows": _reduce_rows,
    "ptx_narrow_fragment": _narrow,
    "fast_exp2": _fast_exp2,
    "ptx_set_registers": _set_registers,
    "create_barriers": _create,
    "ptx_init_barrier_thread_count": _on_barrier("tw_barrier_init"),
    "ptx_arrive_barrier": _on_barrier("tw_barrier_arrive"),
    "ptx_arrive_barrier_expect_tx": _on_barrier("tw_barrier_expect"),
    "ptx_wait_barrier": _on_barrier("tw_barrier_wait"),
    "ptx_cp_async_bulk_tensor": _bulk_copy,
}
