"""Programs for which a sketch was once wrong or missing: what is decided for them now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.stmt import ForKind

MACHINE = tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=4")


def scheduled(args: list[Any]) -> Any:
    return tvm.auto_schedule(te.create_prim_func(args), MACHINE)


def records(sch: Any) -> dict[str, Any]:
    return {r["stage"]: r for r in sch.explanation.records}


def driven(sch: Any, name: str) -> dict[str, ForKind]:
    """The kind of the loop that each iterator of a block comes from, by the iterator's name."""
    realize = sch.realize(sch.get_block(name))
    kinds = {x.loop_var: x.kind for x in map(sch.loop, sch.get_loops(sch.get_block(name)))}
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {iv.var.name: kinds[value] for iv, value in pairs if value in kinds}


def test_several_rows_of_a_product_with_a_vector_lie_in_lanes_of_their_own() -> None:
    A, x = te.placeholder((4096, 4096), name="A"), te.placeholder((4096,), name="x")
    k = te.reduce_axis((0, 4096), name="k")
    sch = scheduled([A, x, te.compute((4096,), lambda i: te.sum(A[i, k] * x[k], k), name="y")])
    assert records(sch)["y"]["sketch"] == "dot"
    assert driven(sch, "y_rf")["vk_1"] is ForKind.VECTORIZED


def test_the_groups_of_a_convolution_are_an_axis() -> None:
    x, w = te.placeholder((1, 64, 28, 28), name="x"), te.placeholder((64, 16, 3, 3), name="w")
    sch = scheduled([x, w, topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 4)])
    told = records(sch)["group_conv2d_nchw"]
    assert told["sketch"] == "tile" and told["accumulators"] >= 12


@pytest.mark.parametrize("channels", [16, 24])  # of a group: one vector, and one and a half
def test_the_channels_of_a_group_have_panels_of_their_own(channels: int) -> None:
    x = te.placeholder((1, 2 * channels, 5, 5), name="x")
    w = te.placeholder((2 * channels, channels, 3, 3), name="w")
    y = topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 2)
    sch = tvm.auto_schedule(te.create_prim_func([x, w, y]), ALONE, constants=("w",))
    told = records(sch)["group_conv2d_nchw"]
    assert (told["lanes"], told["packed"], told["packed_before"]) == (16, "w", True)
    _agrees([x, w, y], sch)


def test_the_channels_of_a_group_are_normalised_together() -> None:
    x, g, b = te.placeholder((2, 32, 14, 14), name="x"), *(te.placeholder((32,), name=n) for n in "gb")
    sch = scheduled([x, g, b, topi.nn.group_norm(x, g, b, 8, 1, [2, 3])])
    told = records(sch)["T_group_norm"]
    assert told["sketch"] == "rows" and len(told["rows"]) == 2
    # each group is summed up once, in vectors that lie in line
    text = tvm.lower(sch.mod).script()
    assert "% 14" not in text and "// 14" not in text


@pytest.mark.parametrize("axis", [0, 1])
def test_the_place_of_the_largest_is_found_for_many_at_once(axis: int) -> None:
    x = te.placeholder((512, 512), name="x")
    sch = scheduled([x, topi.argmax(x, axis=axis)])
    kinds = [sch.loop(v).kind for v in sch.get_loops(sch.get_block("T_argmax_red_temp"))]
    assert kinds[0] is ForKind.PARALLEL
    assert (ForKind.VECTORIZED in kinds) == (axis == 0)
    data = np.random.default_rng(0).integers(0, 50, (512, 512)).astype("float32")
    out = tvm.nd.empty((512,), "int32")
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(data), out)
    np.testing.assert_array_equal(out.numpy(), data.argmax(axis))


LONG = {"l1d": 4096, "l2": 1 << 14, "l3": 0}  # caches that hold no row of the programs below


def _chains(rows: int, size: int) -> dict[str, list[Any]]:
    x, w = te.placeholder((rows, size), name="x"), te.placeholder((size,), name="w")
    return {
        "softmax": [x, topi.nn.softmax(x)],
        "log_softmax": [x, topi.nn.log_softmax(x)],
        "logsumexp": [x, topi.logsumexp(x, axis=1)],
        "layer_norm": [x, w, topi.nn.layer_norm(x, w, w, axis=[1])],
    }


@pytest.mark.parametrize("chain", ["softmax", "log_softmax", "logsumexp", "layer_norm"])
@pytest.mark.parametrize("rows, size", [(5, 16384), (5, 16411), (1, 16384)])
def test_rows_that_no_cache_holds_are_reduced_in_parts(chain: str, rows: int, size: int) -> None:
    args = _chains(rows, size)[chain]
    sch = tvm.auto_schedule(te.create_prim_func(args), MACHINE.with_machine(LONG))
    assert any(r.get("parts of rows") == 512 for r in sch.explanation.records)
    plain = te.create_prim_func(args)
    rng = np.random.default_rng(0)
    values = [
        tvm.nd.array(rng.standard_normal([int(n) for n in t.shape]).astype("float32")) for t in args[:-1]
    ]
    got, want = (tvm.nd.empty([int(n) for n in args[-1].shape]) for _ in range(2))
    tvm.build(sch.mod, target="llvm")(*values, got)
    tvm.build(plain, target="llvm")(*values, want)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-5)


def test_rows_that_a_cache_holds_are_read_into_it_once() -> None:
    sch = tvm.auto_schedule(te.create_prim_func(_chains(64, 4096)["softmax"]), MACHINE)
    assert not any("parts of rows" in r for r in sch.explanation.records)


def _agrees(args: list[Any], sch: Any) -> None:
    """The scheduled program computes what the plain one does."""
    rng = np.random.default_rng(0)
    values = [
        tvm.nd.array(rng.standard_normal([int(n) for n in t.shape]).astype("float32")) for t in args[:-1]
    ]
    got, want = (tvm.nd.empty([int(n) for n in args[-1].shape]) for _ in range(2))
    tvm.build(sch.mod, target="llvm")(*values, got)
    tvm.build(te.create_prim_func(args), target="llvm")(*values, want)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(48, 64), (45, 67)])
def test_what_lies_across_is_turned_before_it_is_computed_with(shape: tuple[int, int]) -> None:
    x, b = te.placeholder(shape, name="x"), te.placeholder(shape[:1], name="b")
    args = [x, b, topi.nn.relu(topi.transpose(topi.exp(x)) + b)]
    sch = scheduled(args)
    assert any("transposed in registers" in str(r.get("tile")) for r in sch.explanation.records)
    _agrees(args, sch)


@pytest.mark.slow
def test_a_vector_that_is_computed_beside_a_product_goes_into_what_follows_it() -> None:
    x, w, b = (
        te.placeholder((64, 256), name="x"),
        te.placeholder((96, 256), name="w"),
        te.placeholder((96,), name="b"),
    )
    args = [x, w, b, topi.nn.dense(x, w) + topi.exp(b)]
    sch = scheduled(args)
    assert records(sch)["T_matmul_NT"]["fused_after"] == "T_add"
    _agrees(args, sch)


def test_a_stage_that_cannot_follow_in_registers_leaves_the_tile_as_it_is() -> None:
    """What the sum of a short product is added to is made after it, and would have to be made before."""
    x, w, b = (
        te.placeholder((64, 16), name="x"),
        te.placeholder((96, 16), name="w"),
        te.placeholder((96,), name="b"),
    )
    args = [x, w, b, topi.nn.dense(x, w) + topi.exp(b)]
    sch = scheduled(args)
    assert records(sch)["T_matmul_NT"]["sketch"] == "tile"
    _agrees(args, sch)


@pytest.mark.parametrize("size", [64, 100, 256])
def test_short_lines_are_added_up_in_registers(size: int) -> None:
    x = te.placeholder((8, 50, size), name="x")
    args = [x, topi.sum(x, axis=1)]
    sch = scheduled(args)
    assert records(sch)["T_sum"]["vectors in registers"] == -(-size // 16)
    _agrees(args, sch)


# A processor on which products cost more than what is done around them.
SLOW = {
    "num_cores": 1,
    "fma_ports": 1,
    "l2_bandwidth": 64.0,
    "l3_bandwidth": 32.0,
    "memory_bandwidth": 100.0,
    "memory_bandwidth_all": 400.0,
}
ALONE = tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=1")


def _filtered(sch: Any) -> list[int]:
    return [r["tiles"] for r in sch.explanation.records if r["sketch"] == "winograd"]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("after", [False, True])
def test_convolutions_with_constant_kernels_take_fewer_products(layout: str, after: bool) -> None:
    if layout == "NCHW":
        x, w = te.placeholder((1, 32, 15, 18), name="x"), te.placeholder((48, 32, 3, 3), name="w")
        y = topi.nn.conv2d_nchw(x, w, 1, 1, 1)
    else:
        x, w = te.placeholder((1, 15, 18, 32), name="x"), te.placeholder((3, 3, 32, 48), name="w")
        y = topi.nn.conv2d_nhwc(x, w, 1, 1, 1)
    out = topi.nn.relu(y + 0.5) if after else y
    func = te.create_prim_func([x, w, out])
    sch = tvm.auto_schedule(func, ALONE.with_machine(SLOW), constants=("w",))
    assert _filtered(sch) == [2]
    _agrees([x, w, out], sch)


@pytest.mark.slow
def test_how_large_tiles_may_be_is_for_the_user_to_say() -> None:
    x, w = te.placeholder((1, 64, 28, 28), name="x"), te.placeholder((64, 64, 3, 3), name="w")
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 1, 1)])
    found = []
    for largest in (0, 2, 4):
        with tvm.transform.PassContext(config={"tilewright.winograd": largest}):
            found.append(_filtered(tvm.auto_schedule(func, ALONE.with_machine(SLOW), constants=("w",))))
    assert found == [[], [2], [4]]
    assert (
        _filtered(tvm.auto_schedule(func, ALONE.with_machine(SLOW))) == []
    )  # its kernel would be transformed in every call
    fast = tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=1 -fast-math").with_machine(SLOW)
    assert _filtered(tvm.auto_schedule(func, fast, constants=("w",))) == [4]


def test_few_channels_and_strides_stay_as_they_are() -> None:
    for channels, stride in ((3, 1), (64, 2)):
        x, w = te.placeholder((1, channels, 28, 28), name="x"), te.placeholder((64, channels, 3, 3), name="w")
        func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, stride, 1, 1)])
        assert _filtered(tvm.auto_schedule(func, ALONE.with_machine(SLOW), constants=("w",))) == []


# ---------------------------------------------------------------------------- sums of few products
def outer_product(n: int, m: int, k: int = 1, bias: bool = False) -> list[Any]:
    a, b, c = (te.placeholder(s, name=x) for x, s in (("a", (n, k)), ("b", (k, m)), ("c", (m,))))
    r = te.reduce_axis((0, k), "r")
    y = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], r), name="y")
    return [a, b, c, topi.nn.relu(y + c)] if bias else [a, b, y]


def pixels(channels: int) -> list[Any]:
    x, w = te.placeholder((1, channels, 20, 37), name="x"), te.placeholder((8, channels, 1, 1), name="w")
    return [x, w, topi.nn.conv2d(x, w, 1, 0, 1)]


SHORT = {
    "outer": outer_product(1024, 1024),
    "ragged": outer_product(100, 77),
    "three": outer_product(64, 130, 3),
    "after it": outer_product(33, 200, 1, bias=True),
    "one line": outer_product(1, 16, 2),
    "dense": [
        (a := te.placeholder((40, 1), name="a")),
        (b := te.placeholder((50, 1), name="b")),
        topi.nn.dense(a, b),
    ],
    "a channel": pixels(1),
    "colours": pixels(3),
}


@pytest.mark.parametrize("name", SHORT)
def test_sums_of_few_products_are_written_line_by_line(name: str) -> None:
    args = SHORT[name]
    sch = scheduled(args)
    (told,) = (r for r in records(sch).values() if r["sketch"] != "inline")
    assert told["sketch"] == "elementwise" and told.get("fused") == ("T_relu" if name == "after it" else None)
    arrays = [np.random.default_rng(1).integers(-4, 5, [int(n) for n in a.shape]) for a in args]
    plain, made = ([tvm.nd.array(a.astype("float32")) for a in arrays] for _ in range(2))
    tvm.build(te.create_schedule(args[-1].op), args, target="llvm")(*plain)
    tvm.build(sch.mod, target="llvm")(*made)
    np.testing.assert_array_equal(made[-1].numpy(), plain[-1].numpy())


def test_an_outer_product_is_shared_by_threads_row_by_row() -> None:
    sch = scheduled(SHORT["outer"])
    text = tvm.lower(sch.mod).script()
    assert "for i in T.parallel(1024):" in text and "y_1[cse_var_1 + 48:cse_var_1 + 64] =" in text
    assert records(sch)["y"]["parallel"] is True
    much = records(scheduled(outer_product(20000, 20000)))["y"]
    assert much["stores"] == "past the caches"


@pytest.mark.parametrize("k", [5, 64])
def test_longer_sums_are_tiles(k: int) -> None:
    assert records(scheduled(outer_product(1024, 1024, k)))["y"]["sketch"] == "tile"
    x, w = te.placeholder((1, 1, 20, 37), name="x"), te.placeholder((8, 1, 2, 2), name="w")
    windows = records(scheduled([x, w, topi.nn.conv2d(x, w, 1, 0, 1)]))
    assert windows["conv2d_nchw"]["sketch"] == "tile"  # neighbours read the same elements
