"""Facts about programs that are not scheduled yet: those that a match counts with are those that `apply` will find."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.target import Target
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import plan_of
from tilewright.tune.program.facts import Facts, divided, facts_of, with_fused_axes, with_split_axes
from tilewright.tune.program.stages import Stage, Stages
from tilewright.tune.rules import Refusal
from tilewright.tune.rules.cpu.tile_sketch import prepare_tile, prepared_facts
from tilewright.tune.rules.gpu import GPU
from tilewright.tune.rules.gpu.kernel import Kernel
from tilewright.tune.rules.gpu.product import Product
from tilewright.tune.rules.gpu.rows import joined_axes


def block_of(args: list[Any], name: str) -> tuple[tir.Schedule, Facts]:
    sch = tir.Schedule(te.create_prim_func(args))
    return sch, facts_of(sch, sch.get_block(name))


def stages_of(args: list[Any], target: str) -> Stages:
    """The stages of a program, none of them scheduled."""
    func = te.create_prim_func(args)
    made = Stages(tir.Schedule(func), func, Target(target), Explanation(""), frozenset())
    assert made.begin()
    return made


def shape_of(f: Facts) -> list[Any]:
    """The extents and kinds of the axes, and the strides of each access along them."""
    axes = [(a.extent, a.known, a.reduce) for a in f.axes]
    return [axes, *([r.buffer.name, [r.stride(a) for a in f.axes]] for r in f.accesses)]


def without_names(f: Facts) -> list[Any]:
    """As `shape_of`, for blocks that write to other buffers."""
    axes, *accesses = shape_of(f)
    return [axes, *(strides for _, strides in accesses)]


@pytest.mark.parametrize("count", [2, 3])
def test_fused_axes(count: int) -> None:
    x = te.placeholder((2, 3, 4, 5), name="x")
    y = te.compute((2, 3, 4, 5), lambda n, c, h, w: x[n, c, h, w] + x[n, c, h, 0], name="y")
    sch, f = block_of([x, y], "y")
    ahead = with_fused_axes(f, count)
    sch.transform_block_layout(f.rv, joined_axes([a.extent for a in f.axes[-count:]]))
    assert shape_of(ahead) == shape_of(facts_of(sch, f.rv))
    assert ahead.axes[-1].extent == math.prod(a.extent for a in f.axes[-count:])


def test_fused_axes_of_a_reduction() -> None:
    x = te.placeholder((6, 7, 9), name="x")
    sch, f = block_of([x, topi.sum(x, axis=(1, 2))], "T_sum")
    ahead = with_fused_axes(f, 2)
    sch.transform_block_layout(f.rv, joined_axes([7, 9]))
    assert shape_of(ahead) == shape_of(facts_of(sch, f.rv))


def test_split_axes() -> None:
    x, m = te.placeholder((2, 12, 5), name="x"), te.placeholder((2, 3), name="m")
    y = te.compute((2, 12, 5), lambda n, c, h: x[n, c, h] - m[n, c // 4], name="y")
    sch, f = block_of([x, m, y], "y")
    ahead = with_split_axes(f, [1, 4, 1])
    sch.transform_block_layout(f.rv, divided([1, 4, 1]))
    assert shape_of(ahead) == shape_of(facts_of(sch, f.rv))
    assert [str(i) for i in ahead.reads[1].indices][1].endswith("_0")  # m[n, c // 4] is m[n, group]


# ---------------------------------------------------------------------------- register tiles
def conv(layout: str, channels: int, dtype: str = "float32", window: int = 3, pad: int = 1) -> list[Any]:
    image, kernel = [2, channels, 16, 16], [64, channels, window, window]
    if layout == "NHWC":
        image, kernel = [2, 16, 16, channels], [window, window, channels, 64]
    x, w = te.placeholder(image, dtype, name="x"), te.placeholder(kernel, dtype, name="w")
    out = "int32" if dtype == "int8" else "float32"
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, pad, 1, layout, out_dtype=out))]


def grouped() -> list[Any]:
    x, w = te.placeholder((1, 16, 8, 8), name="x"), te.placeholder((32, 4, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 4))]


def batches() -> list[Any]:
    x, y = te.placeholder((3, 5, 7, 16), name="x"), te.placeholder((16, 24), name="y")
    k = te.reduce_axis((0, 16), name="k")
    made = te.compute((3, 5, 7, 24), lambda a, b, c, j: te.sum(x[a, b, c, k] * y[k, j], axis=k), name="z")
    return [x, y, made]


TILED = {
    "convolution": conv("NCHW", 16),
    "channels last": conv("NHWC", 16),
    "one pixel": conv("NCHW", 16, window=1, pad=0),
    "groups": grouped(),
    "batches": batches(),
}


@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("fused", [True, False])
def test_prepared_facts(name: str, fused: bool) -> None:
    program = stages_of(TILED[name], "llvm -mcpu=haswell")
    (f,) = [f for f in program.stages() if f.kind == "reduction"]
    consumer = program.fusable_consumer(f) if fused else None
    ahead = prepared_facts(f, None if consumer is None else facts_of(program.sch, consumer))
    made, _ = prepare_tile(program.sch, f, consumer)
    assert without_names(ahead) == without_names(made)


def test_prepared_facts_of_results_with_gaps() -> None:
    """The results are written to registers, without the gaps that the output has."""
    func = tvm.script.from_source(
        "from tilewright.script import tir as T\n"
        "@T.prim_func\n"
        "def main(a: T.handle, b: T.handle, c: T.handle):\n"
        "    A = T.match_buffer(a, (6, 8, 16))\n"
        "    B = T.match_buffer(b, (16, 32))\n"
        "    C = T.match_buffer(c, (6, 8, 32), strides=[400, 40, 1])\n"
        "    for i, j, n, k in T.grid(6, 8, 32, 16):\n"
        "        with T.block('C'):\n"
        "            vi, vj, vn, vk = T.axis.remap('SSSR', [i, j, n, k])\n"
        "            with T.init():\n"
        "                C[vi, vj, vn] = T.float32(0)\n"
        "            C[vi, vj, vn] = C[vi, vj, vn] + A[vi, vj, vk] * B[vk, vn]\n"
    )
    sch = tir.Schedule(func)
    f = facts_of(sch, sch.get_block("C"))
    ahead = prepared_facts(f, None)
    made, _ = prepare_tile(sch, f, None)
    assert [a.extent for a in ahead.axes] == [a.extent for a in made.axes]
    assert ahead.write is not None and made.write is not None
    assert list(ahead.write.strides.values()) == list(made.write.strides.values())
    assert f.write is not None and list(f.write.strides.values()) == [400, 40, 1]


# ---------------------------------------------------------------------------- im2col
PRODUCTS = {
    "im2col mma": (conv("NHWC", 16, "float16"), "cuda -arch=sm_80"),
    "im2col dp4a": (conv("NHWC", 16, "int8"), "cuda -arch=sm_80"),
    "im2col wgmma": (conv("NHWC", 64, "float16"), "cuda -arch=sm_90a"),
    "im2col lines wgmma": (conv("NHWC", 8, "float16", pad=0), "cuda -arch=sm_90a"),
    "im2col SIMT": (conv("NCHW", 16), "cuda -arch=sm_80"),
    "im2col SIMT with TMA": (conv("NCHW", 32, window=1, pad=0), "cuda -arch=sm_90a"),
}


def described(p: Product) -> list[Any]:
    """A product without the names of its axes and operands."""
    sizes = [x.extent for x in (p.m, p.n, p.k, *p.others)]
    shapes = [[int(n) for n in b.shape] for b in (p.a, p.b)]
    return [sizes, *shapes, p.kind, p.trans_a, p.trans_b, p.windows, p.pieces, p.after]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_convolutions_will_be(name: str) -> None:
    args, target = PRODUCTS[name]
    program = stages_of(args, target)
    rule: Any = next(r for r in GPU if r.name == name)
    (f,) = [f for f in program.stages() if f.kind == "reduction"]
    match = rule.match(Stage(program, f, (f,)), Target(target))
    assert not isinstance(match, Refusal), match
    found = match.found
    made = rule.rewritten(Kernel(match.stage), f, found.what, found.source)
    assert not isinstance(made, Refusal), made
    assert described(found.source.product) == described(made.product)
    assert found.source.depth == made.depth


# ---------------------------------------------------------------------------- rows
def norm(shape: tuple[int, ...], axes: list[int]) -> list[Any]:
    x = te.placeholder(shape, name="x")
    g = te.placeholder([shape[a] for a in axes], name="g")
    return [x, g, topi.nn.layer_norm(x, g, g, axis=axes)]


def groups() -> list[Any]:
    x, g = te.placeholder((2, 32, 6, 6), name="x"), te.placeholder((32,), name="g")
    return [x, g, topi.nn.group_norm(x, g, g, 4, 1, [2, 3])]


def over(f: Any, *shape: Any) -> list[Any]:
    x = te.placeholder(shape, name="x")
    return [x, f(x)]


PROGRAMS = {
    "softmax": over(topi.nn.softmax, 4096, 1000),
    "odd softmax": over(topi.nn.softmax, 77, 333),
    "softmax of columns": over(lambda x: topi.nn.softmax(x, axis=0), 500, 96),
    "long softmax": over(topi.nn.softmax, 8, 60000),
    "layer norm": norm((128, 768), [1]),
    "layer norm of two axes": norm((16, 24, 32), [1, 2]),
    "group norm": groups(),
    "sum": over(lambda x: topi.sum(x, axis=1), 100, 1000),
    "sum of two axes": over(lambda x: topi.sum(x, axis=(1, 2)), 30, 14, 14),
    "sum in parts": over(topi.sum, 1024, 1024),
    "sum of outer and inner axes": over(lambda x: topi.sum(x, axis=(0, 2)), 8, 16, 28),
    "dynamic rows": over(lambda x: topi.sum(x, axis=1), te.var("n"), 64),
    "argmax": over(lambda x: topi.argmax(x, axis=1), 64, 1000),
}


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "cuda -arch=sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_thread_blocks_that_are_counted_are_those_of_the_kernel(name: str, target: str) -> None:
    plan = plan_of(te.create_prim_func(PROGRAMS[name]), Target(target))
    choice, told = plan.choices[0], plan.sch.explanation.records
    assert choice.winner.rule.name in ("rows", "row chain")
    (kernel,) = [r for r in told if r.get("stage") == choice.stage.name and "blocks" in r]
    assert choice.winner.table.count("blocks")[0] == kernel["blocks"]
