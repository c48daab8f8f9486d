"""Convolutions by fewer products: winograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from schedule_checks import replays

import tilewright as tvm
from tilewright import te, tir, topi


def convolution(
    layout: str, channels: int, outputs: int, size: tuple[int, int], pad: int, batch: int = 2
) -> Any:
    h, w = size
    if layout == "NCHW":
        x, k = (
            te.placeholder((batch, channels, h, w), name="x"),
            te.placeholder((outputs, channels, 3, 3), name="k"),
        )
        y = topi.nn.conv2d_nchw(x, k, 1, pad, 1)
    else:
        x, k = (
            te.placeholder((batch, h, w, channels), name="x"),
            te.placeholder((3, 3, channels, outputs), name="k"),
        )
        y = topi.nn.conv2d_nhwc(x, k, 1, pad, 1)
    return te.create_prim_func([x, k, y]), y.op.name


def check(func: Any, sch: Any, tolerance: float) -> None:
    """It computes the same, up to `tolerance` of the largest result."""
    rng = np.random.default_rng(0)
    *inputs, out = [func.buffer_map[v] for v in func.params]
    values = [
        tvm.nd.array(rng.standard_normal([int(n) for n in b.shape]).astype(str(b.dtype))) for b in inputs
    ]
    got, want = (tvm.nd.empty([int(n) for n in out.shape], str(out.dtype)) for _ in range(2))
    tvm.build(func, target="llvm")(*values, want)
    tvm.build(sch.mod, target="llvm")(*values, got)
    reference = want.numpy()
    assert np.abs(got.numpy() - reference).max() <= tolerance * np.abs(reference).max()


@pytest.mark.slow
@pytest.mark.parametrize("tile", [2, 4])
def test_what_is_not_finite(tile: int) -> None:
    """An infinity among the data may come out as NaN: in tiles of 2 only where a plain convolution is not finite either,
    in larger ones in the whole tile."""
    func, name = convolution("NCHW", 3, 4, (13, 16), 1)
    sch = tir.Schedule(func)
    sch.winograd(name, tile)
    rng = np.random.default_rng(2)
    x, k = rng.standard_normal((2, 3, 13, 16)).astype("f4"), rng.standard_normal((4, 3, 3, 3)).astype("f4")
    for value, place in ((np.inf, (0, 1, 3, 4)), (-np.inf, (0, 2, 8, 9)), (np.nan, (1, 0, 12, 15))):
        x[place] = value
    values = [tvm.nd.array(x), tvm.nd.array(k)]
    got, want = (tvm.nd.empty((2, 4, 13, 16)) for _ in range(2))
    tvm.build(func, target="llvm")(*values, want)
    tvm.build(sch.mod, target="llvm")(*values, got)
    plain, filtered = want.numpy(), got.numpy()
    assert np.isinf(plain).sum() > 50
    assert not np.isfinite(filtered[~np.isfinite(plain)]).any()
    if tile == 2:
        np.testing.assert_array_equal(np.isfinite(filtered), np.isfinite(plain))
    assert np.isnan(filtered[np.isnan(plain)]).all()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("tile, tolerance", [(2, 2e-6), (3, 4e-6), (4, 2e-5)])
@pytest.mark.parametrize("size, pad", [((8, 8), 1), ((9, 6), 0), ((5, 11), 2)])
def test_it_computes_the_same(
    layout: str, tile: int, tolerance: float, size: tuple[int, int], pad: int
) -> None:
    func, name = convolution(layout, 3, 5, size, pad)
    sch = tir.Schedule(func)
    sch.winograd(name, tile)
    check(func, sch, tolerance)


@pytest.mark.slow
def test_groups_and_a_larger_kernel() -> None:
    x, k = te.placeholder((1, 2, 3, 12, 12), name="x"), te.placeholder((2, 4, 3, 5, 5), name="k")
    ci, r, s = (te.reduce_axis((0, n), name=v) for n, v in ((3, "ci"), (5, "r"), (5, "s")))
    C = te.compute(
        (1, 2, 4, 8, 8),
        lambda n, g, co, h, w: te.sum(x[n, g, ci, h + r, w + s] * k[g, co, ci, r, s], [ci, r, s]),
        name="C",
    )
    func = te.create_prim_func([x, k, C])
    sch = tir.Schedule(func)
    sch.winograd("C", 2)
    check(func, sch, 2e-5)


@pytest.mark.slow
def test_in_doubles_it_is_exact_to_many_digits() -> None:
    x, k = te.placeholder((1, 4, 10, 10), "float64", "x"), te.placeholder((4, 4, 3, 3), "float64", "k")
    y = topi.nn.conv2d_nchw(x, k, 1, 1, 1, out_dtype="float64")
    func = te.create_prim_func([x, k, y])
    sch = tir.Schedule(func)
    sch.winograd(y.op.name, 4)
    check(func, sch, 1e-13)


def test_its_stages_and_what_they_multiply() -> None:
    func, name = convolution("NCHW", 8, 16, (8, 8), 1, batch=1)
    sch = tir.Schedule(func)
    blocks = sch.winograd(name, 2)
    made = [sch.realize(b).block for b in blocks]
    assert [b.name_hint.removeprefix(name + "_") for b in made] == [
        "kernel_rows", "kernel", "data_rows", "data", "product", "result_rows", name,
    ]  # fmt: skip
    product = made[4]
    assert [int(iv.dom.extent) for iv in product.iter_vars] == [
        16,
        16,
        16,
        8,
    ]  # points, tiles, outputs, inputs


def test_the_trace_rebuilds_it() -> None:
    func, name = convolution("NHWC", 4, 4, (6, 6), 1)
    sch = tir.Schedule(func)
    sch.winograd(name, 2)
    replays(func, sch)


def reason(sch: Any, name: str, tile: int = 2) -> str:
    before = sch.mod
    with pytest.raises(tvm.tir.ScheduleError) as told:
        sch.winograd(name, tile)
    assert sch.mod is before
    return str(told.value).splitlines()[0]


def test_strides() -> None:
    x, k = te.placeholder((1, 4, 9, 9), name="x"), te.placeholder((4, 4, 3, 3), name="k")
    y = topi.nn.conv2d_nchw(x, k, 2, 1, 1)
    sch = tir.Schedule(te.create_prim_func([x, k, y]))
    assert reason(sch, y.op.name).endswith("has no window of two dimensions that slides by 1")


def test_no_convolution() -> None:
    x, k = te.placeholder((4, 5), name="x"), te.placeholder((5, 6), name="k")
    y = topi.matmul(x, k)
    sch = tir.Schedule(te.create_prim_func([x, k, y]))
    assert reason(sch, y.op.name).endswith("has no window of two dimensions that slides by 1")


def test_whole_numbers() -> None:
    x, k = te.placeholder((1, 4, 9, 9), "int32", "x"), te.placeholder((4, 4, 3, 3), "int32", "k")
    y = topi.nn.conv2d_nchw(x, k, 1, 1, 1, out_dtype="int32")
    sch = tir.Schedule(te.create_prim_func([x, k, y]))
    assert reason(sch, y.op.name).endswith("is not a sum of floats")


def test_after_its_loops_were_split() -> None:
    func, name = convolution("NCHW", 4, 4, (8, 8), 1)
    sch = tir.Schedule(func)
    sch.split(sch.get_loops(name)[1], [None, 2])
    assert reason(sch, name).endswith("is scheduled already")


@pytest.mark.parametrize("tile", [1, 11])
def test_tiles_that_are_not_known(tile: int) -> None:
    func, name = convolution("NCHW", 4, 4, (8, 8), 1)
    assert reason(tir.Schedule(func), name, tile).endswith(f"tiles of {tile} with a kernel of 3")
