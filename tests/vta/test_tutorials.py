"""Programs written as for the classic VTA: built, saved, uploaded to a session, loaded and run there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import rpc, te, topi, vta
from tilewright.contrib import utils
from tilewright.vta.testing import simulator

Array = np.ndarray[Any, Any]


def run_remotely(
    env: vta.Environment, s: Any, args: list[Any], arrays: list[Array], name: str
) -> tuple[Array, dict[str, Any]]:
    """The result of a program that was saved, uploaded and loaded again, and the statistics of its run."""
    remote = rpc.LocalSession()
    with vta.build_config(disabled_pass={"tir.CommonSubexprElimTIR"}):
        built = vta.build(s, args, tvm.target.Target("ext_dev", host=env.target_host), name=name)
    folder = utils.tempdir()
    built.save(folder.relpath(f"{name}.o"))
    remote.upload(folder.relpath(f"{name}.o"))
    function = remote.load_module(f"{name}.o")
    device = remote.ext_dev(0)
    shape = tuple(int(n) for n in args[-1].shape)
    held = [tvm.nd.array(x, device) for x in (*arrays, np.zeros(shape, args[-1].dtype))]
    simulator.clear_stats()
    function(*held)
    return held[-1].numpy(), simulator.stats()


def copied(s: Any, t: Any, scope: str, env: vta.Environment) -> None:
    """A stage in a memory of the chip that a DMA transfer fills."""
    s[t].set_scope(scope)
    s[t].pragma(s[t].op.axis[0], env.dma_copy)


def cached(t: Any) -> Any:
    return te.compute(t.shape, lambda *i: t(*i), f"{t.op.name}_buf")


def blocks(x: Array, rows: int, columns: int) -> Array:
    """A matrix in contiguous blocks of rows x columns."""
    m, n = x.shape
    return np.ascontiguousarray(x.reshape(m // rows, rows, n // columns, columns).transpose(0, 2, 1, 3))


def test_vector_add() -> None:
    env = vta.get_env()
    shape = (1, 40, env.BATCH, env.BLOCK_OUT)
    a, b = (te.placeholder(shape, env.acc_dtype, name) for name in "AB")
    a_buf, b_buf = cached(a), cached(b)
    total = te.compute(shape, lambda *i: a_buf(*i) + b_buf(*i), "total")
    c = te.compute(shape, lambda *i: total(*i).astype(env.inp_dtype), "C")
    s = te.create_schedule(c.op)
    copied(s, a_buf, env.acc_scope, env)
    copied(s, b_buf, env.acc_scope, env)
    s[total].set_scope(env.acc_scope)
    s[total].pragma(total.op.axis[0], env.alu)
    s[c].pragma(s[c].op.axis[0], env.dma_copy)
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-128, 128, shape).astype(env.acc_dtype) for _ in range(2))
    got, stats = run_remotely(env, s, [a, b, c], [x, y], "vector_add")
    assert np.array_equal(got, (x + y).astype(np.int8))
    assert stats["acc_load_nbytes"] == x.nbytes + y.nbytes and stats["out_store_nbytes"] == got.nbytes
    assert stats["cycles"] > 0 and all(isinstance(v, (int, float)) for v in stats.values())


def matrix_product(env: vta.Environment, m: int, n: int, k: int) -> tuple[Any, ...]:
    """The stages of clip((A W^T) >> 8), in blocks of the matrix unit."""
    a = te.placeholder((m, k, env.BATCH, env.BLOCK_IN), env.inp_dtype, "A")
    w = te.placeholder((n, k, env.BLOCK_OUT, env.BLOCK_IN), env.wgt_dtype, "W")
    a_buf, w_buf = cached(a), cached(w)
    ko, ki = te.reduce_axis((0, k), "ko"), te.reduce_axis((0, env.BLOCK_IN), "ki")
    shape, kind = (m, n, env.BATCH, env.BLOCK_OUT), env.acc_dtype
    total = te.compute(
        shape,
        lambda x, y, i, j: te.sum(
            a_buf[x, ko, i, ki].astype(kind) * w_buf[y, ko, j, ki].astype(kind), axis=[ko, ki]
        ),
        "total",
    )
    shifted = te.compute(shape, lambda *i: total(*i) >> 8, "shifted")
    positive = te.compute(shape, lambda *i: te.max(shifted(*i), 0), "positive")
    clipped = te.compute(shape, lambda *i: te.min(positive(*i), 127), "clipped")
    c = te.compute(shape, lambda *i: clipped(*i).astype(env.inp_dtype), "C")
    return a, w, a_buf, w_buf, ko, ki, total, (shifted, positive, clipped), c


def matrices(env: vta.Environment, m: int, n: int, k: int) -> tuple[list[Array], Array]:
    """Operands in blocks, and the result."""
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (m * env.BATCH, k * env.BLOCK_IN)).astype(np.int8)
    y = rng.integers(-128, 128, (n * env.BLOCK_OUT, k * env.BLOCK_IN)).astype(np.int8)
    expected = np.clip(x.astype(np.int32) @ y.astype(np.int32).T >> 8, 0, 127).astype(np.int8)
    operands = [blocks(x, env.BATCH, env.BLOCK_IN), blocks(y, env.BLOCK_OUT, env.BLOCK_IN)]
    return operands, blocks(expected, env.BATCH, env.BLOCK_OUT)


def test_matrix_product() -> None:
    env = vta.get_env()
    a, w, a_buf, w_buf, ko, ki, total, chain, c = matrix_product(env, 2, 3, 4)
    s = te.create_schedule(c.op)
    copied(s, a_buf, env.inp_scope, env)
    copied(s, w_buf, env.wgt_scope, env)
    for t in (total, *chain):
        s[t].set_scope(env.acc_scope)
    for t in chain:
        s[t].pragma(s[t].op.axis[0], env.alu)
    x, y, i, j = s[total].op.axis
    s[total].reorder(ko, x, y, i, j, ki)
    s[total].tensorize(i, env.gemm)
    s[c].pragma(s[c].op.axis[0], env.dma_copy)
    operands, expected = matrices(env, 2, 3, 4)
    got, stats = run_remotely(env, s, [a, w, c], operands, "matrix_product")
    assert np.array_equal(got, expected)
    assert stats["gemm_counter"] >= 2 * 3 * 4 and stats["alu_counter"] == 3 * 2 * 3
    assert stats["inp_load_nbytes"] == operands[0].nbytes and stats["wgt_load_nbytes"] == operands[1].nbytes


@pytest.mark.parametrize("threads", [1, 2])
def test_blocked_matrix_product(threads: int) -> None:
    env = vta.get_env()
    m, n, k = 2, 16, 8
    a, w, a_buf, w_buf, ko, ki, total, chain, c = matrix_product(env, m, n, k)
    s = te.create_schedule(c.op)
    x, y, i, j = s[c].op.axis
    yo, yi = s[c].split(y, factor=4)
    s[c].reorder(x, yo, yi, i, j)
    if threads > 1:
        yo, thread = s[c].split(yo, factor=threads)
        s[c].reorder(thread, x, yo)
        s[c].bind(thread, te.thread_axis("cthread"))
    for t in (total, *chain):
        s[t].set_scope(env.acc_scope)
        s[t].compute_at(s[c], yo)
    for t in chain:
        s[t].pragma(s[t].op.axis[0], env.alu)
    px, py, pi, pj = s[total].op.axis
    outer, inner = s[total].split(ko, factor=2)
    s[total].reorder(outer, inner, px, py, pi, pj, ki)
    s[total].tensorize(pi, env.gemm)
    for t, scope in ((a_buf, env.inp_scope), (w_buf, env.wgt_scope)):
        s[t].compute_at(s[total], outer)
        copied(s, t, scope, env)
    s[c].pragma(yi, env.dma_copy)
    operands, expected = matrices(env, m, n, k)
    got, stats = run_remotely(env, s, [a, w, c], operands, f"blocked_{threads}")
    assert np.array_equal(got, expected)
    assert stats["wgt_load_nbytes"] == m * operands[1].nbytes  # once for each block of rows


def convolution(env: vta.Environment, threads: int) -> tuple[Any, list[Any], list[Array], Array]:
    """A convolution of 7 x 14 tiles with `threads` virtual threads over output channels; operands and result."""
    size, inside, outside = 14, 4, 4  # blocks of channels
    data = te.placeholder((1, inside, size, size, env.BATCH, env.BLOCK_IN), env.inp_dtype, "data")
    kernel = te.placeholder((outside, inside, 3, 3, env.BLOCK_OUT, env.BLOCK_IN), env.wgt_dtype, "kernel")
    data_buf = topi.nn.pad(data, [0, 0, 1, 1, 0, 0], name="data_buf")
    kernel_buf = cached(kernel)
    dy, dx = te.reduce_axis((0, 3), "dy"), te.reduce_axis((0, 3), "dx")
    ic, ii = te.reduce_axis((0, inside), "ic"), te.reduce_axis((0, env.BLOCK_IN), "ii")
    shape, kind = (1, outside, size, size, env.BATCH, env.BLOCK_OUT), env.acc_dtype
    conv = te.compute(
        shape,
        lambda n, c, y, x, i, j: te.sum(
            data_buf[n, ic, y + dy, x + dx, i, ii].astype(kind)
            * kernel_buf[c, ic, dy, dx, j, ii].astype(kind),
            axis=[ic, dy, dx, ii],
        ),
        "conv",
    )
    shifted = te.compute(shape, lambda *i: conv(*i) >> 8, "shifted")
    clipped = te.compute(shape, lambda *i: te.min(te.max(shifted(*i), 0), 127), "clipped")
    out = te.compute(shape, lambda *i: clipped(*i).astype(env.inp_dtype), "out")
    s = te.create_schedule(out.op)
    n, c, y, x, i, j = s[out].op.axis
    yo, yi = s[out].split(y, factor=7)
    co, ci = s[out].split(c, factor=1)
    s[out].reorder(n, co, yo, ci, yi, x, i, j)
    if threads > 1:
        co, thread = s[out].split(co, factor=threads)
        s[out].reorder(thread, n, co, yo)
        s[out].bind(thread, te.thread_axis("cthread"))
    for t in (conv, shifted, clipped):
        s[t].set_scope(env.acc_scope)
        s[t].compute_at(s[out], yo)
    for t in (shifted, clipped):
        s[t].pragma(s[t].op.axis[0], env.alu)
    cn, cc, cy, cx, bi, bj = s[conv].op.axis
    s[conv].reorder(ic, cn, cc, cy, dy, dx, cx, bi, bj, ii)
    s[conv].tensorize(bi, env.gemm)
    for t, scope in ((data_buf, env.inp_scope), (kernel_buf, env.wgt_scope)):
        s[t].compute_at(s[conv], ic)
        copied(s, t, scope, env)
    s[out].pragma(yi, env.dma_copy)
    rng = np.random.default_rng(3)
    image = rng.integers(-128, 128, (1, inside, size, size, 1, env.BLOCK_IN)).astype(np.int8)
    weight = rng.integers(-128, 128, (outside, inside, 3, 3, env.BLOCK_OUT, env.BLOCK_IN)).astype(np.int8)
    border = [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0), (0, 0)]
    padded = np.pad(image.astype(np.int32), border)
    windows = [[padded[:, :, a : a + size, b : b + size] for b in range(3)] for a in range(3)]
    total = np.einsum("pqncyxik,ocpqjk->noyxij", np.array(windows), weight.astype(np.int32), optimize=True)
    return s, [data, kernel, out], [image, weight], np.clip(total >> 8, 0, 127).astype(np.int8)


@pytest.mark.slow
def test_convolution_with_virtual_threads() -> None:
    env = vta.get_env()
    cycles = []
    for threads in (1, 2):
        s, args, arrays, expected = convolution(env, threads)
        got, stats = run_remotely(env, s, args, arrays, f"conv_{threads}")
        assert np.array_equal(got, expected)
        cycles.append(stats["cycles"])
    assert cycles[1] < 0.85 * cycles[0]  # the loads of one thread run beside the products of the other


@pytest.mark.slow
def test_lowered_programs_show_their_tokens() -> None:
    env = vta.get_env()
    s, args, *_ = convolution(env, 2)
    text = str(vta.lower(s, args, simple_mode=True))
    for pair in ("1, 2", "2, 1", "2, 3", "3, 2"):
        assert f"T.coproc_dep_push({pair})" in text and f"T.coproc_dep_pop({pair})" in text
    assert "dma_copy" not in text and 'T.attr(0, "coproc_scope", 2)' in text


@pytest.mark.slow
def test_the_simulator_can_skip_execution() -> None:
    env = vta.get_env()
    s, args, arrays, expected = convolution(env, 1)
    whole, stats = run_remotely(env, s, args, arrays, "whole")
    simulator.debug_mode(simulator.DEBUG_SKIP_EXEC)
    try:
        skipped, counted = run_remotely(env, s, args, arrays, "skipped")
    finally:
        simulator.debug_mode(0)
    assert np.array_equal(whole, expected) and not skipped.any()
    assert counted["cycles"] == stats["cycles"]


def test_the_registered_functions_of_the_simulator() -> None:
    names: dict[str, Callable[..., Any]] = {
        name: tvm.get_global_func(f"vta.simulator.profiler_{name}")
        for name in ("clear", "status", "debug_mode")
    }
    names["clear"]()
    assert '"cycles": 0' in names["status"]()
    names["debug_mode"](0)


@pytest.mark.slow
def test_a_damaged_upload_is_refused(tmp_path: Path) -> None:
    env = vta.get_env()
    s, args, *_ = convolution(env, 1)
    file = os.fspath(tmp_path / "conv.o")
    vta.build(s, args, "ext_dev", name="conv").save(file)
    data = Path(file).read_bytes()
    Path(file).write_bytes(data[:-100])
    remote = rpc.LocalSession()
    remote.upload(file)
    with pytest.raises(
        tvm.error.TVMError, match=r"the file is truncated: it has \d+ of \d+ bytes; copy it again"
    ):
        remote.load_module("conv.o")
