"""Attention in one kernel: when it is chosen, what the kernel is, and that it means the same."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from tensor_core_programs import AMPERE, HOPPER, HOPPER_PROGRAMS, attention, attention_in_place

import tilewright as tvm
from tilewright import te, topi
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.library.attention import attention_of
from tilewright.tune.rules.gpu.attention import Parts, _Sketch, refusal


def scheduled(*sizes: int, target: str = HOPPER, **facts: Any) -> Any:
    return tvm.auto_schedule(attention(*sizes, **facts), target)


def sketches(sch: Any) -> list[str]:
    return [r["sketch"] for r in sch.explanation.records]


@pytest.mark.slow
def test_the_whole_is_one_kernel() -> None:
    sch = scheduled(2, 16, 4096, 128)
    (record,) = sch.explanation.records
    assert record["sketch"] == "attention" and record["tile"] == "128 x 128"
    assert record["instructions"] == [
        "wgmma_64x128x64_f16f16f32_trans",
        "wgmma_registers_64x128x64_f16f16f32",
    ]
    text = tvm.build(sch.mod, target=HOPPER).imported_modules[0].get_source()
    kernel = text[text.index('extern "C"') :]
    assert text.count("__global__") == 1
    # the first part, the others, and the last product
    assert kernel.count("tw_wgmma_128_f16_00_first(") == 2 and kernel.count("tw_wgmma_128_f16_r1_128(") == 4
    _, loop = kernel.split("for (int part_1")
    steps = ["00_first(", "r1_128(", "wait<2>", "rows<true", "tw_exp2", "wait<0>", "arrive(", "narrow_f16"]
    places = [loop.index(w) for w in steps]
    assert places == sorted(places)  # the products of the part before are on their way during the softmax


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "facts", "target"),
    [
        ((1, 2, 128, 64), {}, AMPERE),  # no warpgroups
        ((1, 2, 128, 320), {}, HOPPER),  # too wide
        ((1, 2, 128, 60), {}, HOPPER),  # lines that do not start at multiples of 16 bytes
    ],
)
def test_what_a_warpgroup_cannot_do_is_left_to_others(sizes: Any, facts: Any, target: str) -> None:
    found = sketches(scheduled(*sizes, target=target, **facts))
    assert "attention" not in found and len(found) > 1


@pytest.mark.slow
def test_narrow_heads_have_more_warpgroups_where_there_are_many_rows() -> None:
    sizes = ((16, 12, 197, 64), (8, 16, 1024, 64))
    assert [scheduled(*s).explanation.records[0]["tile"] for s in sizes] == ["128 x 128", "256 x 64"]
    assert scheduled(8, 16, 1024, 64, is_causal=True).explanation.records[0]["tile"] == "128 x 128"


def test_softmax_and_products_of_a_model_are_an_attention() -> None:
    q, k, v = (te.placeholder((12, 128, 64), "float16", name=n) for n in "qkv")
    scores = topi.nn.batch_matmul(q, k, None, "float32") * 0.125
    weights = topi.nn.softmax(scores).astype("float16")
    out = topi.nn.batch_matmul(weights, v, None, "float32", False, False).astype("float16")
    assert sketches(tvm.auto_schedule([q, k, v, topi.nn.relu(out)], HOPPER))[0] == "attention"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "facts"),
    [
        ((1, 1, 60, 32), {"shared": 1}),
        pytest.param((1, 2, 130, 64), {"keys": 200, "is_causal": True}, marks=pytest.mark.slow),
        pytest.param((1, 1, 64, 256), {"kind": "bfloat16"}, marks=pytest.mark.slow),
    ],
)
def test_it_means_the_same(sizes: Any, facts: dict[str, Any]) -> None:
    sch = scheduled(*sizes, **facts)
    assert sketches(sch) == ["attention"]
    assert sch.verify()


def summed_in(kind: str) -> list[Any]:
    """An attention whose last product is summed in a type."""
    q, k, v = (te.placeholder((2, 60, 32), "float16", name=n) for n in "qkv")
    weights = topi.nn.softmax(topi.nn.batch_matmul(q, k, None, "float32") * 0.25).astype("float16")
    j = te.reduce_axis((0, 60), "j")
    out = te.compute(
        (2, 60, 32),
        lambda b, i, d: te.sum(weights[b, i, j].astype(kind) * v[b, j, d].astype(kind), axis=j),
        name="out",
    )
    return [q, k, v, out]


@pytest.mark.slow
def test_sums_of_16_bits_are_rounded_once_at_the_end() -> None:
    sch = tvm.auto_schedule(summed_in("float16"), HOPPER)
    assert sketches(sch) == ["attention"]
    assert sch.verify()


def test_sums_of_float64_are_not_made_float32() -> None:
    func = te.create_prim_func(summed_in("float64"))
    assert "attention" not in sketches(tvm.auto_schedule(func, HOPPER))
    sch = Schedule(func)
    block = sch.get_block("out")
    reason = attention_of(sch, sch.realize(block))
    assert reason == "its sums are float64, and those of its parts would be float32"


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", ["attention, ragged, causal", "attention, bfloat16, very wide"])
def test_nvrtc_takes_it(name: str) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    text = HOPPER_PROGRAMS[name]().build(HOPPER).imported_modules[0].get_source()
    assert len(compile_cubin(text, {"arch": "sm_90a"})) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("parts", [Parts(1, 64, 2, False), Parts(3, 64, 3, True)])
def test_other_sizes_can_be_had(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tune.rules.gpu.attention.best_parts", lambda a, gpu: parts)
    sch = scheduled(1, 2, 192, 64)
    text = tvm.build(sch.mod, target=HOPPER).imported_modules[0].get_source()
    assert f"__launch_bounds__({128 * (parts.groups + 1)}" in text
    assert text.count("tw_wgmma_64_f16_r1(T") == (2 if parts.overlap else 1)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("sizes", "facts"),
    [
        ((1, 2, 128, 64), {"together": True}),
        pytest.param((2, 2, 70, 80), {"is_causal": True}, marks=pytest.mark.slow),
        pytest.param((1, 3, 60, 32), {"together": True}, marks=pytest.mark.slow),
    ],
)
def test_heads_are_read_and_written_where_they_lie(sizes: Any, facts: dict[str, Any]) -> None:
    sch = tvm.auto_schedule(attention_in_place(*sizes, **facts), HOPPER)
    assert sketches(sch) == ["attention"]
    assert sch.verify()


@pytest.mark.slow
def test_results_that_are_moved_go_eight_at_a_time() -> None:
    sch = tvm.auto_schedule(attention_in_place(1, 2, 128, 64, together=True), HOPPER)
    text = tvm.build(sch.mod, target=HOPPER).imported_modules[0].get_source()
    assert text.count("__global__") == 1 and "tw_turn" in text


def test_a_part_of_a_matrix_is_no_matrix() -> None:
    """Heads of which only some columns are used: the rest must not be multiplied along."""
    q, k, v = (te.placeholder((2, 64, 64), "float16", name=n) for n in "qkv")
    e, j = te.reduce_axis((0, 32), "e"), te.reduce_axis((0, 64), "j")
    scores = te.compute(
        (2, 64, 64),
        lambda b, i, j: te.sum(q[b, i, e].astype("float32") * k[b, j, e].astype("float32"), axis=e),
        name="scores",
    )
    weights = topi.nn.softmax(scores).astype("float16")
    out = te.compute(
        (2, 64, 64),
        lambda b, i, d: te.sum(weights[b, i, j].astype("float32") * v[b, j, d].astype("float32"), axis=j),
        name="out",
    )
    assert "attention" not in sketches(tvm.auto_schedule([q, k, v, out], HOPPER))


def test_a_refusal_says_why() -> None:
    func = te.create_prim_func(attention(1, 2, 128, 60))
    assert refusal(tvm.target.Target(HOPPER), te.create_prim_func(attention(1, 2, 128, 64))) is None
    assert refusal(tvm.target.Target(HOPPER), func) == "TMA cannot copy its operands"
    assert "no `wgmma`" in str(refusal(tvm.target.Target(AMPERE), func))


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ((8, 16, 1024, 64), 4),  # head by head some processors would have a third more to do than others
        ((1, 12, 128, 64), 1),  # a tile for each head: all are the same
        ((2, 16, 4096, 128), 1),  # no order is better than head by head
    ],
)
def test_rows_that_see_more_are_shared_out(sizes: Any, together: int) -> None:
    sch = Schedule(te.create_prim_func(attention(*sizes, is_causal=True)))
    found = attention_of(sch, sch.realize(sch.get_block("T_attention")))
    gpu = tvm.target.Target(HOPPER).gpu
    made = SimpleNamespace(a=found, parts=Parts(2, 128, 2, True), g=SimpleNamespace(gpu=gpu))
    assert found.edges()[0] == [(1, 0)]
    assert _Sketch.heads(made, found.edges()[0]) == together  # type: ignore[arg-type]
