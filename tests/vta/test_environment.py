"""The classic face of the chip: the names of an environment, its configuration, debug flags and mocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, vta
from tilewright.ir import say_once
from tilewright.ir.say_once import IgnoredWarning
from tilewright.vta.config import Config
from tilewright.vta.errors import ConfigError
from tilewright.vta.testing import run, simulator

CLASSIC = {
    "TARGET": "sim",
    "HW_VER": "0.0.2",
    "LOG_INP_WIDTH": 3,
    "LOG_WGT_WIDTH": 3,
    "LOG_ACC_WIDTH": 5,
    "LOG_BATCH": 0,
    "LOG_BLOCK": 4,
    "LOG_UOP_BUFF_SIZE": 15,
    "LOG_INP_BUFF_SIZE": 15,
    "LOG_WGT_BUFF_SIZE": 18,
    "LOG_ACC_BUFF_SIZE": 17,
}
SMALL = {"LOG_INP_BUFF_SIZE": 13, "LOG_WGT_BUFF_SIZE": 14, "LOG_ACC_BUFF_SIZE": 14}


def vector_add(env: vta.Environment, at: vta.Environment | None = None, n: int = 4) -> Any:
    """A schedule of int8(A + B), and its arguments; pragmas come from `at`."""
    at = at or env
    shape = (n, env.BATCH, env.BLOCK_OUT)
    a, b = (te.placeholder(shape, env.acc_dtype, name) for name in "AB")
    a_buf, b_buf = (te.compute(shape, lambda *i, t=t: t(*i), f"{t.op.name}_buf") for t in (a, b))
    total = te.compute(shape, lambda *i: a_buf(*i) + b_buf(*i), "total")
    c = te.compute(shape, lambda *i: total(*i).astype(env.inp_dtype), "C")
    s = te.create_schedule(c.op)
    for t in (a_buf, b_buf, total):
        s[t].set_scope(env.acc_scope)
    for t in (a_buf, b_buf):
        s[t].pragma(s[t].op.axis[0], at.dma_copy)
    s[total].pragma(s[total].op.axis[0], at.alu)
    s[c].pragma(s[c].op.axis[0], env.dma_copy)
    return s, [a, b, c]


def product(env: vta.Environment, at: vta.Environment | None = None, n: int = 2) -> Any:
    """A schedule of a matrix product of n x n elements; the intrinsic and the pragmas of loads come from `at`."""
    at = at or env
    a = te.placeholder((n, n, env.BATCH, env.BLOCK_IN), env.inp_dtype, "A")
    w = te.placeholder((n, n, env.BLOCK_OUT, env.BLOCK_IN), env.wgt_dtype, "W")
    a_buf, w_buf = (te.compute(t.shape, lambda *i, t=t: t(*i), f"{t.op.name}_buf") for t in (a, w))
    ko, ki = te.reduce_axis((0, n), "ko"), te.reduce_axis((0, env.BLOCK_IN), "ki")
    shape = (n, n, env.BATCH, env.BLOCK_OUT)
    kind = env.acc_dtype
    total = te.compute(
        shape,
        lambda x, y, i, j: te.sum(
            a_buf[x, ko, i, ki].astype(kind) * w_buf[y, ko, j, ki].astype(kind), axis=[ko, ki]
        ),
        "total",
    )
    c = te.compute(shape, lambda *i: total(*i).astype(env.inp_dtype), "C")
    s = te.create_schedule(c.op)
    for t, scope in ((a_buf, env.inp_scope), (w_buf, env.wgt_scope)):
        s[t].set_scope(scope)
        s[t].pragma(s[t].op.axis[0], at.dma_copy)
    s[total].set_scope(env.acc_scope)
    x, y, i, j = s[total].op.axis
    s[total].reorder(ko, x, y, i, j, ki)
    s[total].tensorize(i, at.gemm)
    s[c].pragma(s[c].op.axis[0], env.dma_copy)
    return s, [a, w, c]


# ---------------------------------------------------------------------------- names and configuration
def test_the_classic_names() -> None:
    env = vta.Environment(CLASSIC)
    assert (env.BATCH, env.BLOCK_IN, env.BLOCK_OUT) == (1, 16, 16)
    assert (env.INP_WIDTH, env.WGT_WIDTH, env.ACC_WIDTH, env.OUT_WIDTH) == (8, 8, 32, 8)
    assert (env.inp_dtype, env.wgt_dtype, env.acc_dtype, env.out_dtype) == ("int8", "int8", "int32", "int8")
    assert (env.INP_BUFF_SIZE, env.WGT_BUFF_SIZE, env.ACC_BUFF_SIZE) == (1 << 15, 1 << 18, 1 << 17)
    assert (env.UOP_BUFF_SIZE, env.OUT_BUFF_SIZE) == (1 << 15, 1 << 15)
    assert (env.INP_ELEM_BYTES, env.WGT_ELEM_BYTES, env.ACC_ELEM_BYTES, env.OUT_ELEM_BYTES) == (
        16, 256, 64, 16,
    )  # fmt: skip
    assert env.INP_ELEM_BITS == 128 and env.TARGET == "sim" and env.LOG_ACC_WIDTH == 5
    assert (env.inp_scope, env.wgt_scope, env.acc_scope) == (
        "local.inp_buffer", "local.wgt_buffer", "local.acc_buffer",
    )  # fmt: skip
    assert (env.dma_copy, env.alu) == ("dma_copy", "alu")
    assert (env.mock.dma_copy, env.mock.alu) == ("skip_dma_copy", "skip_alu")
    assert env.mock.mock is env.mock and env.mock.BLOCK_IN == 16
    assert env.dev.MEM_ID_WGT == 1 and env.dev.QID_COMPUTE == env.dev.get_task_qid(2) == 2
    assert str(env.target.kind) == "ext_dev" and env.target_host == "llvm"
    assert env.BITSTREAM == "1x16x16_8b8b32b_15_15_18_17" and f"sim_{env.BITSTREAM}" == env.MODEL
    assert env.cfg_dict["LOG_BLOCK"] == 4 and env.cfg_dict["LOG_OUT_WIDTH"] == 3
    with pytest.raises(AttributeError, match="the environment of the chip has no attribute 'BLOCK'"):
        _ = env.BLOCK


def test_the_host_of_a_board() -> None:
    hosts = {name: vta.Environment({**CLASSIC, "TARGET": name}).target_host for name in ("pynq", "ultra96")}
    assert hosts == {
        "pynq": "llvm -mtriple=armv7-none-linux-gnueabihf",
        "ultra96": "llvm -mtriple=aarch64-linux-gnu",
    }


def test_environments_are_nested() -> None:
    outside = vta.get_env()
    wide = vta.Environment({**CLASSIC, "LOG_BLOCK": 5})
    with wide as entered:
        assert entered is wide is vta.get_env() and wide.BLOCK_OUT == 32
        with vta.Environment(CLASSIC) as inside:
            assert vta.get_env() is inside
        assert vta.get_env() is wide
    assert vta.get_env() is outside
    with pytest.raises(ZeroDivisionError), wide:
        _ = 1 // 0
    assert vta.get_env() is outside


def test_the_configuration_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "vta_config.json"
    file.write_text(json.dumps({**CLASSIC, "LOG_BATCH": 1, "LOG_BLOCK": 3, **SMALL}))
    monkeypatch.setenv("VTA_CONFIG", str(file))
    monkeypatch.setattr(vta.Environment, "current", None)
    env = vta.get_env()
    assert (env.BATCH, env.BLOCK_IN, env.BLOCK_OUT) == (2, 8, 8)
    assert env.config == Config.read(str(file)) and vta.Environment(env.config).BATCH == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"LOG_BLOK": 4}, "unknown key 'LOG_BLOK'; did you mean LOG_BLOCK"),
        ({"LOG_BLOCK_IN": 5}, "LOG_BLOCK_IN=5 contradicts LOG_BLOCK=4; give LOG_BLOCK, or LOG_BLOCK_IN"),
        ({"LOG_OUT_WIDTH": 5}, "LOG_OUT_WIDTH=5 contradicts the other keys, by which it is 3; leave it out"),
        ({"LOG_BATCH": "one"}, "LOG_BATCH='one': a whole number from"),
    ],
)
def test_a_contradictory_configuration_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        vta.Environment({**CLASSIC, **change})
    assert told in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"LOG_BLOCK": 3, **SMALL}, {"LOG_BATCH": 1, "LOG_BLOCK": 5}], ids=str)
def test_a_program_for_each_configuration(change: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    with vta.Environment({**CLASSIC, **change}) as env:
        s, args = product(env)
        a, w = (rng.integers(-4, 5, [int(n) for n in t.shape]).astype(np.int8) for t in args[:2])
        c = np.zeros([int(n) for n in args[2].shape], np.int8)
        vta.build(s, args, "ext_dev")(a, w, c)
    expected = np.einsum("xkim,ykjm->xyij", a.astype(np.int32), w.astype(np.int32))
    assert np.array_equal(c, expected.astype(np.int8))


# ---------------------------------------------------------------------------- debug flags
def test_debug_flags_print_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    env = vta.get_env()
    s, args = vector_add(env)

    def printed(flag: int) -> list[str]:
        with vta.build_config(debug_flag=flag):
            vta.build(s, args, "ext_dev", name="vadd")
        return [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]

    instructions = ["load.uop", "load.acc", "load.acc", "alu.add", "store.out", "finish"]
    assert printed(0) == []
    assert sorted(printed(env.DEBUG_DUMP_INSN)) == sorted(instructions)
    assert printed(env.DEBUG_DUMP_UOP) == ["uop"]
    assert sorted(printed(env.DEBUG_DUMP_INSN | env.DEBUG_DUMP_UOP)) == sorted([*instructions, "uop"])
    vta.build(s, args, "ext_dev")
    assert capsys.readouterr().out == ""


def test_barriers_are_said_to_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(say_once, "_said", set())
    env = vta.get_env()
    with pytest.warns(IgnoredWarning) as caught:
        vta.build_config(debug_flag=env.DEBUG_SKIP_READ_BARRIER)
        vta.build_config(debug_flag=env.DEBUG_SKIP_WRITE_BARRIER)
    (one,) = caught
    assert str(one.message) == (
        "DEBUG_SKIP_READ_BARRIER and DEBUG_SKIP_WRITE_BARRIER do nothing here: the simulated chip reads and writes the "
        "memory of the host, and there are no caches to flush"
    )


def test_other_options_of_the_pass_context() -> None:
    with vta.build_config(2, opt_level=1, config={"tir.disable_assert": True}) as context:
        assert context.opt_level == 1
        assert context.config == {"vta.debug_flag": 2, "tir.disable_assert": True}


# ---------------------------------------------------------------------------- mocks
def counted(s: Any, args: list[Any]) -> dict[str, int]:
    """How often each kind of instruction occurs in a program."""
    built: Any = vta.build(s, args, "ext_dev")
    (function,) = built.program.functions.values()
    kinds = [i.kind for i in function.code.instructions if i.kind != "load" or i.memory != 0]
    shapes = [[int(n) for n in t.shape] for t in args]
    built(*(np.zeros(shape, t.dtype) for shape, t in zip(shapes, args, strict=True)))
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


@pytest.mark.slow
def test_mocked_stages_have_no_work() -> None:
    env = vta.get_env()
    assert counted(*vector_add(env)) == {"load": 2, "alu": 1, "store": 1, "finish": 1}
    assert counted(*vector_add(env, env.mock)) == {"store": 1, "finish": 1}
    assert counted(*product(env)) == {"load": 2, "gemm": 2, "store": 1, "finish": 1}
    assert counted(*product(env, env.mock)) == {"store": 1, "finish": 1}


def test_mocked_loads_leave_the_products() -> None:
    env = vta.get_env()
    s, args = product(env)
    whole = counted(s, args)

    class OnlyLoads:
        dma_copy, gemm = env.mock.dma_copy, env.gemm

    s, args = product(env, OnlyLoads())  # type: ignore[arg-type]
    simulator.clear_stats()
    part = counted(s, args)
    assert part == {kind: n for kind, n in whole.items() if kind != "load"}
    stats = simulator.stats()
    assert stats["inp_load_nbytes"] == stats["wgt_load_nbytes"] == 0 < stats["gemm_counter"]


# ---------------------------------------------------------------------------- vta.testing
def test_run_gives_a_session() -> None:
    seen = []

    def body(env: vta.Environment, remote: Any) -> None:
        device = remote.ext_dev(0)
        s, args = vector_add(env)
        built = vta.build(s, args, "ext_dev", name="vadd")
        ones = np.ones((4, env.BATCH, env.BLOCK_OUT), "int32")
        a, b = tvm.nd.array(ones, device), tvm.nd.array(2 * ones, device)
        c = tvm.nd.array(np.zeros(ones.shape, "int8"), device)
        assert simulator.stats()["inp_load_nbytes"] == 0
        built(a, b, c)
        assert (c.numpy() == 3).all()
        seen.append(simulator.stats()["acc_load_nbytes"])

    run(body)
    assert seen == [2 * 4 * 16 * 4]


def test_run_refuses_a_board() -> None:
    with vta.Environment({**CLASSIC, "TARGET": "pynq"}), pytest.raises(RuntimeError) as refused:
        run(lambda env, remote: None)
    assert str(refused.value) == (
        "the configuration is for pynq: connect to the board with rpc.connect and pass the session yourself, or set "
        "TARGET to sim"
    )


@pytest.mark.slow
def test_operands_of_the_vector_unit_in_other_widths():
    """Arrays narrower than accumulators are widened by the load and truncated by the store, whatever their widths."""
    keys = {**vta.get_env().cfg_dict, "LOG_INP_WIDTH": 4, "LOG_WGT_WIDTH": 4}
    keys = {k: v for k, v in keys.items() if not k.startswith("LOG_OUT")}
    shape = (1, 8, 1, 16)
    with vta.Environment(keys) as env:
        assert (env.inp_dtype, env.out_dtype, env.acc_dtype) == ("int16", "int16", "int32")
        a, b = (te.placeholder(shape, env.out_dtype, name) for name in "ab")
        wide = [
            te.compute(shape, lambda *i, t=t: t(*i).astype(env.acc_dtype), f"wide_{t.op.name}")
            for t in (a, b)
        ]
        total = te.compute(shape, lambda *i: wide[0](*i) + wide[1](*i), "total")
        out = te.compute(shape, lambda *i: total(*i).astype(env.out_dtype), "out")
        module = tvm.build(tvm.auto_schedule([a, b, out], "ext_dev").mod, target="ext_dev")
        x = np.arange(128, dtype=env.out_dtype).reshape(shape) * -3
        got = np.zeros(shape, env.out_dtype)
        module(x, 2 * x, got)
    np.testing.assert_array_equal(got, 3 * x)
