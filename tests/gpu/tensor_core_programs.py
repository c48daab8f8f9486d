"""Products of matrices by tensor cores, with schedules by hand and by rules, for CUDA alone. Nothing here needs pytest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_programs import Program, random

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.tir.tensor_intrin.cuda import get_wgmma_intrin, get_wmma_intrin_group
from tilewright.tune.plan import plan_of

HOPPER = "cuda -model=h200"
TF32 = f"{HOPPER} -tf32=1"
AMPERE = "cuda -model=a100"
AMPERE_TF32 = f"{AMPERE} -tf32=1"
PASCAL = "cuda -arch=sm_61"


def product(
    m: int,
    n: int,
    k: int,
    kind: str = "float16",
    sums: str = "float32",
    out: str = "",
    trans_a: bool = False,
    trans_b: bool = False,
    batch: tuple[int, ...] = (),
    bias: bool = False,
) -> list[Any]:
    """The tensors of a product, with a bias and a ReLU if asked for, rounded to `out` if that is another type."""
    A = te.placeholder((*batch, *((k, m) if trans_a else (m, k))), kind, name="A")
    B = te.placeholder((*batch, *((n, k) if trans_b else (k, n))), kind, name="B")
    r = te.reduce_axis((0, k), name="k")

    def term(*x: Any) -> Any:
        *b, i, j = x
        a = A[(*b, r, i)] if trans_a else A[(*b, i, r)]
        c = B[(*b, j, r)] if trans_b else B[(*b, r, j)]
        return te.sum(a.astype(sums) * c.astype(sums), axis=r)

    C = te.compute((*batch, m, n), term, name="C")
    args = [A, B]
    if bias:
        shift = te.placeholder((n,), sums, name="shift")
        args.append(shift)
        D = te.compute(
            C.shape,
            lambda *x: tir.max(C[x] + shift[x[-1]], tir.const(0, sums)).astype(out or sums),
            name="D",
        )
    elif out and out != sums:
        D = te.compute(C.shape, lambda *x: C[x].astype(out), name="D")
    else:
        D = C
    return [*args, D]


def arrays(args: list[Any], trans_a: bool = False, trans_b: bool = False) -> tuple[list[Any], Any]:
    """Random inputs, and what must come out."""
    given = [random(*map(int, t.shape), dtype=t.dtype, seed=i) for i, t in enumerate(args[:-1])]
    a, b = (x.astype("float64") for x in given[:2])
    out = (a.swapaxes(-1, -2) if trans_a else a) @ (b.swapaxes(-1, -2) if trans_b else b)
    if len(given) > 2:
        out = np.maximum(out + given[2], 0)
    import ml_dtypes

    return given, out.astype(getattr(ml_dtypes, args[-1].dtype, args[-1].dtype))


def by_hand(
    m: int,
    n: int,
    k: int,
    tile: int = 64,
    warp: int = 32,
    depth: int = 32,
    stages: int = 1,
    permuted: bool = False,
    **facts: Any,
) -> tir.Schedule:
    """The classic schedule: fragments from shared memory, stored by the instruction; with stages, a pipeline."""
    args = product(m, n, k, **facts)
    trans_a, trans_b = facts.get("trans_a", False), facts.get("trans_b", False)
    sch = tir.Schedule(te.create_prim_func(args))
    sums = args[-1].dtype
    scope = "shared.dyn" if stages > 1 else "shared"
    group = get_wmma_intrin_group(scope, "global", args[0].dtype, sums, trans_b, trans_a)
    c = sch.get_block("C")
    i, j, r = sch.get_loops(c)
    i0, i1, i2, i3 = sch.split(i, [None, tile // warp, warp // 16, 16])
    j0, j1, j2, j3 = sch.split(j, [None, tile // warp, warp // 16, 16])
    k0, k1, k2 = sch.split(r, [None, depth // 16, 16])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2, i3, j3, k2)
    for loop, axis in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.z"), (j1, "threadIdx.y")):
        sch.bind(loop, axis)
    out = sch.cache_write(c, 0, "wmma.accumulator")
    sch.reverse_compute_at(out, j1)
    for which, name in enumerate("ab"):
        _fetch(sch, c, which, k0, tile // warp, scope, permuted)
        load = sch.cache_read(c, which, f"wmma.matrix_{name}")
        sch.compute_at(load, k1)
        sch.tensorize(lines_of_tile(sch, load), group[f"load_{name}"])
    if stages > 1:
        sch.annotate(k0, "software_pipeline_stage", [0, 0, stages - 1])
        sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k0, "software_pipeline_async_stages", [0])
    start = sch.decompose_reduction(c, k0)
    sch.tensorize(sch.get_loops(start)[-2], group["init"])
    sch.tensorize(i3, group["compute"])
    sch.tensorize(lines_of_tile(sch, out), group["store"])
    return sch


def _fetch(
    sch: tir.Schedule, c: Any, which: int, at: Any, warps: int, scope: str, permuted: bool = False
) -> None:
    """A tile in shared memory, by all threads, 16 bytes at a time; rows are kept apart, or their pieces permuted."""
    copy = sch.cache_read(c, which, scope)
    sch.compute_at(copy, at)
    wide = 16 // np.dtype("int8" if sch.get(copy).writes[0].buffer.dtype == "int8" else "int16").itemsize
    some, z, y, x, lane = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, warps, warps, 32, wide])
    for loop, axis in ((z, "threadIdx.z"), (y, "threadIdx.y"), (x, "threadIdx.x")):
        sch.bind(loop, axis)
    sch.vectorize(lane)
    sch.unroll(some)
    if permuted:
        sch.annotate(copy, "permuted_layout", 1)
    else:
        sch.storage_align(copy, 0, -2, 2 * wide, wide)


def lines_of_tile(sch: tir.Schedule, block: Any, rows: int = 16, columns: int = 16) -> Any:
    """The loop over the lines of a tile."""
    i, j = sch.get_loops(block)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, rows]), sch.split(j, [None, columns])
    sch.reorder(i0, j0, i1, j1)
    return i1


def by_warpgroups(
    m: int,
    n: int,
    k: int,
    rows: int = 128,
    columns: int = 128,
    stages: int = 3,
    blocks: int = 0,
    **facts: Any,
) -> tir.Schedule:
    """Products of warpgroups over tiles that bulk copies fetch, by a warpgroup of their own."""
    args = product(m, n, k, out="float16", **facts)
    trans_a, trans_b = facts.get("trans_a", False), facts.get("trans_b", False)
    sch = tir.Schedule(te.create_prim_func(args))
    c, d = sch.get_block("C"), sch.get_block("D")
    intrinsics = get_wgmma_intrin(columns, args[0].dtype, trans_a, trans_b)
    sch.set_scope(c, 0, "wgmma.accumulator")
    i, j, r = sch.get_loops(c)
    i0, i1, i2 = sch.split(i, [None, rows // 64, 64])
    j0, j1 = sch.split(j, [None, columns])
    k0, k1 = sch.split(r, [None, 64])
    sch.reorder(i0, j0, i1, k0, i2, j1, k1)
    sch.bind(sch.fuse(i0, j0), "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    for which in (0, 1):
        copy = sch.cache_read(c, which, "shared.dyn")
        sch.compute_at(copy, k0)
        sch.annotate(sch.blockize(sch.get_loops(copy)[-2]), "tilewright.bulk_copy", 1)
    sch.annotate(k0, "tilewright.specialize_warps", stages)
    if blocks:
        sch.annotate(k0, "tilewright.persistent_blocks", blocks)
    sch.reverse_compute_at(d, i1)
    x, y = sch.get_loops(d)[-2:]
    warp, half, row = sch.split(x, [4, 2, 8])
    eight, quad, pair = sch.split(y, [None, 4, 2])
    sch.reorder(warp, row, quad, eight, half, pair)
    sch.bind(sch.fuse(warp, row, quad), "threadIdx.x")
    sch.vectorize(pair)
    start = sch.decompose_reduction(c, k0)
    sch.tensorize(sch.get_loops(start)[-2], intrinsics["init"])
    sch.tensorize(i2, intrinsics["compute"])
    return sch


def _program(make: Callable[..., tir.Schedule], *sizes: int, **facts: Any) -> Callable[[], Program]:
    def build() -> Program:
        given_to = ("tile", "depth", "stages", "permuted", "rows", "columns", "blocks")
        shape = {k: v for k, v in facts.items() if k not in given_to}
        if make is by_warpgroups:
            shape["out"] = "float16"
        ways = {k: v for k, v in facts.items() if k.startswith("trans")}
        given, result = arrays(product(*sizes, **shape), **ways)
        return Program(make(*sizes, **facts), None, given, result, 1e-2, 1e-2 * sizes[2] ** 0.5)

    return build


def scheduled(args: list[Any], target: str, rule: str = "") -> Any:
    """The zero-trial schedule; or that in which a rule takes the first stage that it matches, whichever rule would win:
    `wgmma` is `im2col wgmma` for convolutions."""
    if not rule:
        return tvm.auto_schedule(args, target)
    func, on = te.create_prim_func(args), tvm.target.Target(target)
    plan = plan_of(func, on)
    for number, choice in enumerate(plan.choices):
        offers = [o for o in (choice.winner, *choice.rivals) if f" {o.rule.name}".endswith(f" {rule}")]
        if offers:
            least = min(offers, key=lambda o: o.least)
            return plan_of(func, on, forced={number: least.rule.name}).sch
    raise ValueError(f"no stage for the rule {rule!r}:\n{plan.sch.explain()}")


def _by_rules(
    target: str, *sizes: int, sketch: str = "tensor cores", rule: str = "", **facts: Any
) -> Callable[[], Program]:
    def build() -> Program:
        args = product(*sizes, **facts)
        ways = {k: v for k, v in facts.items() if k.startswith("trans")}
        given, result = arrays(args, **ways)
        tensor_cores = "wgmma" if target.startswith(HOPPER) else "mma"
        sch = scheduled(args, target, rule or (tensor_cores if sketch == "tensor cores" else ""))
        assert any(r["sketch"] == sketch for r in sch.explanation.records), sch.explain()
        return Program(sch.mod, None, given, result, 1e-2, 1e-2 * sizes[2] ** 0.5)

    return build


def special_values() -> Program:
    """What is not a number, and what is larger than all, goes through products of float32 that are rounded."""
    args = product(64, 64, 64, kind="float32")
    given, _ = arrays(args)
    for row, bits in enumerate((0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800000, 0xFF800000)):
        given[0][row, 3 + row] = np.uint32(bits).view("float32")
    with np.errstate(invalid="ignore"):
        result = (given[0].astype("float64") @ given[1].astype("float64")).astype("float32")
    sch = scheduled(args, AMPERE_TF32, "mma")
    assert "tf32" in sch.explanation.records[0]["instructions"]
    return Program(sch.mod, None, given, result, 1e-2, 1e-1)


def convolution(
    data: tuple[int, ...],
    filters: int,
    window: tuple[int, ...],
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    turned: bool = False,
    fused: bool = False,
    kind: str = "float16",
) -> list[Any]:
    """The tensors of a convolution with channels last, of one to three dimensions; `turned`: filters come first in
    its weights; `fused`: with a bias, the sum with another tensor, and a ReLU."""
    x = te.placeholder(data, kind, name="x")
    sizes = (filters, *window, data[-1]) if turned else (*window, data[-1], filters)
    w = te.placeholder(sizes, kind, name="w")
    space = "DHW"[3 - len(window) :]
    sums = "int32" if kind == "int8" else "float32"
    layouts = (f"N{space}C", f"O{space}I" if turned else f"{space}IO", sums)
    if len(window) == 2:
        y = topi.nn.conv2d(x, w, strides, padding, dilation, *layouts)
    else:
        y = topi.nn.conv(x, w, strides, padding, dilation, 1, *layouts)
    args = [x, w]
    if fused:
        bias = te.placeholder((filters,), kind, name="bias")
        other = te.placeholder(y.shape, kind, name="other")
        args += [bias, other]
        y = topi.nn.relu(y + topi.cast(bias, sums) + topi.cast(other, sums))
    return [*args, y if kind == "int8" else topi.cast(y, kind)]


def convolved(
    given: list[Any], strides: Any = 1, padding: Any = 0, dilation: Any = 1, turned: bool = False, **_: Any
) -> Any:
    """What must come out, in float64."""
    x, w = (a.astype("float64") for a in given[:2])
    w = np.moveaxis(w, 0, -1) if turned else w
    rank = x.ndim - 2
    steps, around, apart = ((v,) * rank if isinstance(v, int) else v for v in (strides, padding, dilation))
    x = np.pad(x, [(0, 0), *((n, n) for n in around), (0, 0)])
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[1:-1], w.shape, apart, steps, strict=False)
    ]
    out = np.zeros((x.shape[0], *sizes, w.shape[-1]))
    for place in np.ndindex(*w.shape[:rank]):
        cut = (
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, apart, sizes, steps, strict=True)
        )
        out += x[(slice(None), *cut)] @ w[place]
    if len(given) > 2:
        out = np.maximum(out + given[2].astype("float64") + given[3].astype("float64"), 0)
    return out


def _convolution(
    target: str, *sizes: Any, instructions: str, rule: str = "", **facts: Any
) -> Callable[[], Program]:
    def build() -> Program:
        args = convolution(*sizes, **facts)
        given = [random(*map(int, t.shape), dtype=t.dtype, seed=i) for i, t in enumerate(args[:-1])]
        result = convolved(given, **facts).astype("int32" if given[0].dtype == "int8" else given[0].dtype)
        rules = {"wgmma": "wgmma", "wmma": "mma", "s8s8s32": "mma"}
        sch = scheduled(args, target, rule or rules.get(instructions, ""))
        assert any(instructions in r.get("instructions", "") for r in sch.explanation.records), sch.explain()
        depth = given[1].size / given[1].shape[0 if facts.get("turned") else -1]
        return Program(sch.mod, None, given, result, 1e-2, 2e-2 * depth**0.5)

    return build


def channels_first(
    data: tuple[int, int, int, int], filters: int, window: int, kind: str = "float16", **facts: Any
) -> list[Any]:
    """The tensors of a convolution with channels first: NCHW, OIHW."""
    x = te.placeholder(data, kind, name="x")
    w = te.placeholder((filters, data[1], window, window), kind, name="w")
    strides, padding = facts.get("strides", 1), facts.get("padding", 0)
    y = topi.nn.conv2d(x, w, strides, padding, 1, "NCHW", "OIHW", "float32")
    if facts.get("fused"):
        bias = te.placeholder((filters, 1, 1), kind, name="bias")
        return [x, w, bias, topi.cast(topi.nn.relu(y + topi.cast(bias, "float32")), kind)]
    return [x, w, topi.cast(y, kind)]


def _channels_first(target: str, *sizes: Any, **facts: Any) -> Callable[[], Program]:
    def build() -> Program:
        args = channels_first(*sizes, **facts)
        given = [random(*map(int, t.shape), dtype=t.dtype, seed=i) for i, t in enumerate(args[:-1])]
        ways = {k: v for k, v in facts.items() if k in ("strides", "padding")}
        last = [given[0].transpose(0, 2, 3, 1), given[1].transpose(2, 3, 1, 0)]
        result = convolved(last, **ways).transpose(0, 3, 1, 2)
        if len(given) > 2:
            result = np.maximum(result + given[2].astype("float64"), 0)
        sch = scheduled(args, target, "gathered mma")
        assert any("wmma" in r.get("instructions", "") for r in sch.explanation.records), sch.explain()
        import ml_dtypes

        kind = args[-1].dtype
        depth = given[1][0].size
        return Program(
            sch.mod, None, given, result.astype(getattr(ml_dtypes, kind, kind)), 1e-2, 2e-2 * depth**0.5
        )

    return build


_REGISTERS = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float16"), B: T.Buffer((8, 16), "float16"), C: T.Buffer((16, 16), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.allocate([256], "float16", "shared")
    W = T.allocate([128], "float16", "shared")
    a = T.allocate([8], "float16", "local")
    b = T.allocate([4], "float16", "local")
    c = T.allocate([8], "float32", "local")
    S_1 = T.Buffer((256,), "float16", data=S, scope="shared")
    W_1 = T.Buffer((128,), "float16", data=W, scope="shared")
    for i in range(8):
        S_1[tx * 8 + i] = A[tx // 2, tx % 2 * 8 + i]
    for i in range(4):
        W_1[tx * 4 + i] = B[tx // 4, tx % 4 * 4 + i]
    T.tvm_storage_sync("shared")
    T.evaluate(T.Call("float32", "tir.mma_fill", [8, c, 0]))
    T.evaluate(T.Call("float16", "tir.ptx_ldmatrix", [False, 4, ".b16", a, 0, S, tx % 16 * 16 + tx // 16 * 8]))
    T.evaluate(T.Call("float16", "tir.ptx_ldmatrix", [False, 2, ".b16", b, 0, W, tx % 8 * 16 + tx // 8 % 2 * 8]))
    for h in range(2):
        T.evaluate(T.Call("float32", "tir.ptx_mma", [
            "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, b, 0, c, h * 4, False]))
    T.evaluate(T.Call("float32", "tir.mma_store", [16, 16, C.data, c, 0, 16]))
"""


def registers() -> Program:
    """The instructions of single threads: A by the turned B, beside itself."""
    from gpu_programs import from_script

    a, b = random(16, 16, dtype="float16"), random(8, 16, dtype="float16", seed=1)
    once = a.astype("float64") @ b.astype("float64").T
    return Program(
        from_script(_REGISTERS), None, [a, b], np.hstack([once, once]).astype("float32"), 1e-2, 1e-2
    )


def attention(
    batch: int,
    heads: int,
    length: int,
    width: int,
    keys: int = 0,
    shared: int = 1,
    mask: bool = False,
    **facts: Any,
) -> list[Any]:
    """The tensors of an attention; `shared` heads of the queries use one of the keys."""
    kind = facts.pop("kind", "float16")
    few, keys = heads // shared, keys or length
    q = te.placeholder((batch, heads, length, width), kind, name="q")
    k, v = (te.placeholder((batch, few, keys, width), kind, name=n) for n in "kv")
    m = [te.placeholder((length, keys), "float32", name="m")] if mask else []
    return [q, k, v, *m, topi.nn.scaled_dot_product_attention(q, k, v, *m, **facts)]


def attention_in_place(
    batch: int, heads: int, length: int, width: int, together: bool = False, **facts: Any
) -> list[Any]:
    """An attention over heads that lie beside each other, of three tensors or `together` in one, and whose results do."""
    if together:
        x = te.placeholder((batch, length, 3, heads, width), "float16", name="x")
        given = [x]
        q, k, v = (
            te.compute(
                (batch, heads, length, width), lambda b, h, i, e, n=n: x[b, i, n, h, e], name=f"part{n}"
            )
            for n in range(3)
        )
    else:
        given = [te.placeholder((batch, length, heads, width), "float16", name=n) for n in "qkv"]
        q, k, v = (topi.transpose(t, (0, 2, 1, 3)) for t in given)
    out = topi.nn.scaled_dot_product_attention(q, k, v, **facts)
    return [*given, topi.transpose(out, (0, 2, 1, 3))]


def _attention(*sizes: int, **facts: Any) -> Callable[[], Program]:
    def build() -> Program:
        args = attention(*sizes, **facts)
        given = [random(*map(int, t.shape), dtype=t.dtype, seed=i) for i, t in enumerate(args[:-1])]
        q, k, v, *m = (x.astype("float64") for x in given)
        k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
        s = q @ k.swapaxes(-1, -2) * facts.get("scale", q.shape[-1] ** -0.5)
        s = s + m[0] if m else s
        if facts.get("is_causal"):
            s = np.where(np.arange(s.shape[-1]) <= np.arange(s.shape[-2])[:, None], s, -np.inf)
        w = np.exp(s - s.max(axis=-1, keepdims=True))
        sch = tvm.auto_schedule(args, HOPPER)
        assert [r["sketch"] for r in sch.explanation.records] == ["attention"], sch.explain()
        out = (w / w.sum(axis=-1, keepdims=True)) @ v
        import ml_dtypes

        kind = args[-1].dtype
        return Program(sch.mod, None, given, out.astype(getattr(ml_dtypes, kind, kind)), 1e-2, 1e-2)

    return build


# by the architecture that they need at least
BY_HAND: dict[str, Callable[[], Program]] = {
    "wmma": _program(by_hand, 128, 192, 96),
    "wmma, A turned": _program(by_hand, 128, 64, 64, trans_a=True),
    "wmma, B turned": _program(by_hand, 64, 128, 64, trans_b=True),
    "wmma, bytes": _program(by_hand, 64, 128, 96, kind="int8", sums="int32"),
    "wmma, sums in float16": _program(by_hand, 64, 64, 32, sums="float16"),
    "wmma, permuted": _program(by_hand, 128, 128, 128, tile=128, depth=64, permuted=True),
    "wmma, permuted, turned": _program(by_hand, 64, 192, 96, trans_a=True, trans_b=True, permuted=True),
    "dot products of bytes by rules": _by_rules(
        PASCAL, 256, 384, 320, kind="int8", sums="int32", sketch="dot products"
    ),
    "dot products of bytes by rules, ragged, bias": _by_rules(
        PASCAL, 100, 70, 200, kind="int8", sums="int32", trans_b=True, bias=True, sketch="dot products"
    ),
    "convolution of bytes by dot products": _convolution(
        PASCAL, (2, 14, 14, 64), 64, (3, 3), padding=1, fused=True, kind="int8", instructions="dp4a"
    ),
}
AMPERE_PROGRAMS: dict[str, Callable[[], Program]] = {
    "registers": registers,
    "wmma, bfloat16": _program(by_hand, 64, 64, 64, kind="bfloat16", trans_a=True, trans_b=True),
    "wmma, pipeline": _program(by_hand, 128, 128, 320, stages=4),
    "mma by rules": _by_rules(AMPERE, 256, 384, 320, out="float16"),
    "mma by rules, ragged, bias": _by_rules(AMPERE, 200, 300, 100, out="float16", bias=True, trans_b=True),
    "large tiles of float32": _by_rules(AMPERE, 1024, 1024, 128, kind="float32", sketch="large tile"),
    "large tiles, ragged": _by_rules(
        AMPERE, 1000, 1030, 70, kind="float32", trans_b=True, bias=True, sketch="large tile"
    ),
    "mma by rules, odd": _by_rules(AMPERE, 70, 63, 33, trans_a=True),
    "mma by rules, parts": _by_rules(AMPERE, 40, 64, 2048),
    "mma by rules, bytes": _by_rules(AMPERE, 256, 384, 320, kind="int8", sums="int32", trans_b=True),
    "mma by rules, bytes, ragged": _by_rules(AMPERE, 100, 70, 200, kind="int8", sums="int32", trans_b=True),
    "mma by rules, batch": _by_rules(AMPERE, 96, 80, 64, batch=(3,), trans_a=True),
    "mma by rules, tf32": _by_rules(AMPERE_TF32, 256, 384, 320, kind="float32"),
    "mma by rules, tf32, both turned": _by_rules(
        AMPERE_TF32, 96, 80, 64, batch=(3,), kind="float32", trans_a=True, trans_b=True, rule="mma"
    ),
    "mma by rules, tf32, ragged, bias": _by_rules(
        AMPERE_TF32, 200, 301, 99, kind="float32", trans_b=True, bias=True
    ),
    "mma by rules, tf32, special values": special_values,
    "mma by rules, tf32, parts": _by_rules(AMPERE_TF32, 40, 64, 2048, kind="float32"),
    "convolution by mma": _convolution(
        AMPERE, (2, 14, 14, 64), 64, (3, 3), padding=1, fused=True, instructions="wmma"
    ),
    "convolution by mma, three channels": _convolution(
        AMPERE, (1, 30, 27, 3), 64, (7, 7), strides=2, padding=3, instructions="wmma"
    ),
    "convolution by mma, odd": _convolution(
        AMPERE, (2, 9, 13, 20), 70, (3, 2), dilation=(1, 2), turned=True, instructions="wmma"
    ),
    "convolution by mma, tf32": _convolution(
        AMPERE_TF32,
        (2, 14, 14, 64),
        64,
        (3, 3),
        padding=1,
        fused=True,
        kind="float32",
        instructions="tf32",
        rule="im2col mma",
    ),
    "convolution by mma, tf32, odd": _convolution(
        AMPERE_TF32, (2, 9, 13, 18), 70, (3, 2), kind="float32", turned=True, instructions="tf32"
    ),
    "convolution by mma, channels first": _channels_first(AMPERE, (1, 41, 23, 21), 61, 3, padding=1),
    "convolution by mma, channels first, batch, 1x1": _channels_first(
        AMPERE, (8, 250, 10, 10), 8, 1, fused=True
    ),
    "convolution by mma, channels first, parts": _channels_first(
        AMPERE, (1, 245, 8, 8), 350, 3, kind="bfloat16", padding=1
    ),
    "convolution by mma, channels first, strides": _channels_first(
        AMPERE, (3, 17, 30, 27), 40, 5, strides=2, padding=2, fused=True
    ),
    "convolution by mma, channels first, aligned weights": _channels_first(
        AMPERE, (2, 64, 15, 15), 128, 3, padding=1
    ),
    "convolution by mma, channels first, tf32": _channels_first(
        AMPERE_TF32, (2, 19, 20, 21), 33, 3, padding=1, kind="float32"
    ),
    "convolution by mma, odd channels last": _convolution(
        AMPERE, (1, 19, 17, 41), 61, (3, 3), padding=1, instructions="wmma"
    ),
    "mma by rules, odd rows": _by_rules(AMPERE, 251, 463, 19, out="float16", trans_b=True, batch=(5,)),
    "mma by rules, odd rows, long": _by_rules(
        AMPERE, 200, 550, 337, kind="bfloat16", out="bfloat16", trans_b=True
    ),
    "mma by rules, odd rows of A, bias": _by_rules(AMPERE, 333, 264, 401, out="float16", bias=True),
    "mma by rules, odd rows of B": _by_rules(AMPERE, 130, 301, 320, out="float16"),
    "mma by rules, both turned, odd rows": _by_rules(AMPERE, 131, 77, 520, out="float16", trans_a=True),
    "mma by rules, rows of pairs": _by_rules(AMPERE, 250, 310, 298, out="float16", trans_b=True),
    "mma by rules, rows of fours": _by_rules(AMPERE, 500, 516, 300, out="bfloat16", kind="bfloat16"),
    "mma by rules, partial tiles": _by_rules(AMPERE, 536, 256, 272, out="float16", trans_b=True, batch=(4,)),
    "mma by rules, odd rows, float32 results": _by_rules(AMPERE, 251, 463, 190, trans_b=True),
    "mma by rules, odd rows, parts": _by_rules(AMPERE, 40, 61, 2049, out="float16", trans_b=True),
    "mma by rules, bytes, odd rows": _by_rules(AMPERE, 100, 71, 203, kind="int8", sums="int32", trans_b=True),
    "convolution by mma, bytes": _convolution(
        AMPERE, (2, 14, 14, 64), 64, (3, 3), padding=1, fused=True, kind="int8", instructions="s8s8s32"
    ),
    "convolution by mma, bytes, odd": _convolution(
        AMPERE, (2, 9, 13, 20), 70, (3, 2), strides=2, kind="int8", turned=True, instructions="s8s8s32"
    ),
}
HOPPER_PROGRAMS: dict[str, Callable[[], Program]] = {
    "wgmma": _program(by_warpgroups, 256, 256, 320),
    "wgmma, A turned": _program(by_warpgroups, 256, 128, 192, trans_a=True),
    "wgmma, B turned": _program(by_warpgroups, 128, 128, 192, trans_b=True),
    "wgmma, both turned, bfloat16": _program(
        by_warpgroups, 128, 256, 128, trans_a=True, trans_b=True, kind="bfloat16"
    ),
    "wgmma, persistent": _program(by_warpgroups, 512, 512, 192, columns=256, stages=4, blocks=3),
    "wgmma by rules": _by_rules(HOPPER, 512, 768, 512, out="float16"),
    "wgmma by rules, ragged, bias": _by_rules(HOPPER, 200, 296, 104, out="float16", bias=True, trans_b=True),
    "wgmma by rules, many tiles, bias": _by_rules(
        HOPPER, 1024, 2304, 768, out="float16", bias=True, trans_b=True
    ),
    "wgmma by rules, parts": _by_rules(HOPPER, 16, 512, 4096, out="float16"),
    "wgmma by rules, batch": _by_rules(HOPPER, 128, 192, 128, batch=(3,)),
    "tf32 by rules": _by_rules(TF32, 512, 768, 512, kind="float32", trans_b=True),
    "tf32 by rules, ragged, bias": _by_rules(TF32, 200, 296, 100, kind="float32", bias=True, trans_b=True),
    "tf32 by rules, parts": _by_rules(TF32, 16, 512, 4096, kind="float32", trans_b=True),
    "tf32 by rules, turned before": _by_rules(TF32, 1000, 1024, 2048, kind="float32", trans_a=True),
    "tf32 by rules, batch": _by_rules(TF32, 512, 1024, 2048, kind="float32", batch=(3,)),
    "attention": _attention(2, 3, 512, 64),
    "attention, wide, many tiles": _attention(2, 16, 1024, 128),
    "attention, ragged, causal": _attention(1, 2, 197, 80, is_causal=True),
    "attention, other keys, mask": _attention(1, 2, 129, 128, keys=65, mask=True),
    "attention, shared heads, small": _attention(1, 4, 50, 32, shared=2, scale=2.0),
    "attention, bfloat16, very wide": _attention(1, 2, 300, 256, kind="bfloat16"),
    "convolution by wgmma": _convolution(
        HOPPER, (4, 14, 14, 128), 128, (3, 3), padding=1, fused=True, instructions="wgmma"
    ),
    "convolution by wgmma, OHWI, dilated, bfloat16": _convolution(
        HOPPER,
        (2, 15, 11, 64),
        72,
        (3, 3),
        padding=2,
        dilation=2,
        turned=True,
        kind="bfloat16",
        instructions="wgmma",
    ),
    "convolution by wgmma, strides": _convolution(
        HOPPER, (3, 29, 31, 64), 64, (3, 5), strides=(2, 3), padding=(1, 2), instructions="wgmma"
    ),
    "convolution by wgmma, 1x1": _convolution(HOPPER, (16, 14, 14, 96), 256, (1, 1), instructions="wgmma"),
    "convolution by wgmma, 1x1 with strides": _convolution(
        HOPPER, (2, 15, 14, 96), 128, (1, 1), strides=2, instructions="wgmma"
    ),
    "convolution by wgmma, parts": _convolution(
        HOPPER, (1, 7, 7, 512), 512, (3, 3), padding=1, fused=True, instructions="wgmma"
    ),
    "convolution by wgmma, channels that are not lines": _convolution(
        HOPPER, (1, 9, 8, 40), 48, (3, 3), padding=1, instructions="wgmma"
    ),
    "convolution by wgmma, one dimension": _convolution(
        HOPPER, (3, 50, 64), 64, (5,), strides=2, padding=1, instructions="wgmma"
    ),
    "convolution by wgmma, three dimensions": _convolution(
        HOPPER,
        (2, 7, 6, 8, 64),
        64,
        (3, 2, 3),
        strides=(1, 2, 1),
        padding=1,
        fused=True,
        instructions="wgmma",
    ),
    "convolution by wgmma, few channels": _convolution(
        HOPPER, (2, 30, 36, 8), 64, (7, 7), strides=2, padding=(3, 0), instructions="wgmma"
    ),
    "convolution by tf32": _convolution(
        TF32,
        (4, 14, 14, 64),
        128,
        (3, 3),
        padding=1,
        kind="float32",
        turned=True,
        fused=True,
        instructions="tf32",
    ),
    "convolution by tf32, channels that are not lines": _convolution(
        TF32, (3, 13, 15, 20), 44, (3, 2), strides=(2, 1), kind="float32", turned=True, instructions="tf32"
    ),
    "convolution by tf32, 1x1 with strides": _convolution(
        TF32, (2, 15, 14, 96), 128, (1, 1), strides=2, kind="float32", turned=True, instructions="tf32"
    ),
    "convolution by tf32, few channels": _convolution(
        TF32,
        (2, 30, 36, 4),
        64,
        (7, 7),
        strides=2,
        padding=(3, 0),
        kind="float32",
        turned=True,
        instructions="tf32",
    ),
    "convolution by wgmma, persistent": _convolution(
        HOPPER, (4, 56, 56, 64), 128, (3, 3), padding=1, instructions="wgmma"
    ),
}
