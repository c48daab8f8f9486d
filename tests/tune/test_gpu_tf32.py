"""Products of float32 that may be rounded to tf32: who allows it, what then takes tensor cores, and what does not."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from tensor_core_programs import (
    AMPERE,
    AMPERE_PROGRAMS,
    AMPERE_TF32,
    HOPPER,
    HOPPER_PROGRAMS,
    TF32,
    by_warpgroups,
    convolution,
    product,
    scheduled,
)

import tilewright as tvm
from tilewright import te
from tilewright.tir.tensor_intrin.cuda import get_wgmma_intrin
from tilewright.tune.explain import Explanation
from tilewright.tune.measure.building import schedule_of
from tilewright.tune.measure.checking import tolerance_of
from tilewright.tune.records.database import Record
from tilewright.tune.records.history import apply_to
from tilewright.tune.workload import present, task_of

ALLOWED = {"tilewright.tf32": True}
STEM = convolution((1, 30, 36, 4), 64, (7, 7), strides=2, padding=(3, 0), kind="float32", turned=True)


def sketch(args: list[te.Tensor], target: str, rule: str = "") -> dict[str, Any]:
    records = scheduled(args, target, rule).explanation.records
    return next(r for r in records if r["sketch"] != "inline")


def small(**facts: Any) -> list[te.Tensor]:
    return product(128, 64, 96, "float32", trans_b=True, **facts)


@pytest.mark.slow
def test_nothing_is_rounded_unasked() -> None:
    assert sketch(small(), HOPPER)["sketch"] == "large tile"
    with tvm.transform.PassContext(config={"tilewright.tf32": False}):
        assert sketch(small(), HOPPER)["sketch"] == "large tile"


def test_a_target_or_a_context_allows_it() -> None:
    large = product(1024, 1024, 1024, "float32", trans_b=True)
    wanted = "wgmma_64x64x32_tf32tf32f32_trans"
    assert sketch(large, TF32)["instructions"] == wanted
    with tvm.transform.PassContext(config=ALLOWED):
        assert sketch(large, HOPPER)["instructions"] == wanted
        assert present(tvm.target.Target(HOPPER)) == tvm.target.Target(TF32)
        assert present(tvm.target.Target("llvm")) == tvm.target.Target("llvm")


def test_what_is_said_of_the_gpu_that_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    here = tvm.target.Target(HOPPER)
    monkeypatch.setattr(tvm.backends.cuda, "cuda", lambda _: SimpleNamespace(exist=True))
    monkeypatch.setattr(tvm.target.Target, "from_device", lambda _: here)
    assert present(tvm.target.Target("cuda")) == here
    assert present(tvm.target.Target("cuda -tf32=1")) == tvm.target.Target(TF32)
    assert present(tvm.target.Target("cuda -max_num_threads=512")).max_num_threads == 512


@pytest.mark.parametrize("target", [AMPERE, "cuda -arch=sm_75 -tf32=1"])
def test_others_compute_in_float32(target: str) -> None:
    assert sketch(small(), target)["sketch"] in ("large tile", "shared tile")


def test_warps_have_it_too() -> None:
    assert sketch(small(), AMPERE_TF32)["instructions"] == "wmma_sync_16x16x8_tf32tf32f32_trans"
    made = sketch(product(128, 64, 96, "float32", trans_a=True), AMPERE_TF32)
    assert made["instructions"] == "wmma_sync_16x16x8_tf32tf32f32_trans_a"


def test_results_may_be_as_far_off_as_rounding_is() -> None:
    func = te.create_prim_func(small())
    plain, rounded = tolerance_of(func), tolerance_of(func, tvm.target.Target(TF32))
    assert rounded.relative == 2**13 * plain.relative
    assert tolerance_of(func, tvm.target.Target(HOPPER)).relative == plain.relative


@pytest.mark.parametrize("target, asked", [(TF32, HOPPER), (AMPERE_TF32, AMPERE)])
def test_a_record_rounds_only_where_the_target_allows_it(target: str, asked: str) -> None:
    trace = tvm.auto_schedule(small(), target).trace.as_json()
    func = te.create_prim_func(small())
    task = task_of(func, tvm.target.Target(asked))
    record = Record(task.workload, asked, "", "ok", trace=trace)
    sch = tvm.tir.Schedule(task.mod)
    assert re.match(
        r"ScheduleError: step \d+ of the trace rounds float32 to tf32",
        apply_to(sch, task, record, Explanation("")),
    )
    with pytest.raises(tvm.tir.ScheduleError, match="a target with -tf32=1 does"):
        schedule_of(task, "trace", trace)
    allowed = task_of(func, tvm.target.Target(target))
    assert not apply_to(sch, allowed, replace(record, workload=allowed.workload), Explanation(""))


@pytest.mark.parametrize(
    "args",
    [
        product(70, 64, 36, "float32", trans_b=True, bias=True),
        convolution((1, 6, 5, 32), 64, (3, 3), padding=1, kind="float32", turned=True, fused=True),
        STEM,
    ],
    ids=["ragged", "convolution", "few channels"],
)
@pytest.mark.parametrize("target", [TF32, AMPERE_TF32])
def test_schedules_mean_the_same(args: list[te.Tensor], target: str) -> None:
    sch = scheduled(args, target, "wgmma" if target == TF32 and args is not STEM else "mma")
    assert "tf32" in next(r for r in sch.explanation.records if r["sketch"] != "inline")["instructions"]
    assert sch.verify()


@pytest.mark.slow
def test_operands_are_turned_where_it_pays() -> None:
    made = sketch(product(1024, 1024, 2048, "float32", trans_a=True), TF32)
    assert made["transposed"] == ["A", "B"] and "tf32" in made["instructions"]
    # Warps take operands as they lie, and rows of any length.
    for args in (product(16, 4096, 4096, "float32"), product(1024, 1024, 1022, "float32", trans_b=True)):
        assert sketch(args, TF32)["instructions"].startswith("wmma_sync_16x16x8_tf32tf32f32")


@pytest.mark.slow
@pytest.mark.parametrize("channels", [8, 64])
def test_weights_are_turned_and_few_channels_are_padded(channels: int) -> None:
    sch = tvm.auto_schedule(convolution((2, 7, 7, channels), 64, (3, 3), padding=1, kind="float32"), TF32)
    assert "tf32" in sch.explanation.records[-1]["instructions"]
    assert sch.verify()


@pytest.mark.slow
def test_the_engine_rounds_on_the_way() -> None:
    sch = scheduled(small(), TF32, "wgmma")
    program = tvm.build(sch.mod, target=TF32)
    told = str(program.description)
    assert told.count("'tf32'") == 2, told
    text = program.imported_modules[0].get_source()
    assert "m64n64k8.f32.tf32.tf32" in text and "1, 1;" in text  # operands cannot be turned


@pytest.mark.parametrize(("columns", "wide"), [(72, "float4*"), (70, "float2*")])
@pytest.mark.slow
def test_sums_are_turned_so_that_four_results_go_at_once(columns: int, wide: str) -> None:
    sch = scheduled(product(100, columns, 64, "float32", trans_b=True, bias=True), TF32, "wgmma")
    text = tvm.build(sch.mod, target=TF32).imported_modules[0].get_source()
    assert ("tw_turn_pairs<64>" in text) == (columns % 4 == 0)
    stores = [line.strip() for line in text.splitlines() if "(D + " in line]
    assert len(stores) == (8 if columns % 4 == 0 else 16) and all(f"*({wide})" in s for s in stores), stores


def test_overlapping_pixels_of_few_channels() -> None:
    """Lines of windows are channels of an image whose pixels lie 16 bytes apart."""
    program = tvm.build(tvm.auto_schedule(STEM, TF32).mod, target=TF32)
    sizes, steps, box = next(n[3:] for n in _maps(program.description) if n[3][0] == 28 and len(n[3]) == 4)
    assert sizes == [28, 30, 30, 1]  # channels, columns, lines, images
    assert steps == [16, 16 * 36, 16 * 36 * 30] and box[:2] == [32, 64]


def _maps(told: Any) -> list[Any]:
    if isinstance(told, list) and len(told) == 6 and told[0] == "map":
        return [told]
    parts = told.values() if isinstance(told, dict) else told if isinstance(told, (list, tuple)) else ()
    return [m for p in parts for m in _maps(p)]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="transpose the other operand first"):
        get_wgmma_intrin(64, "float32")
    with pytest.raises(ValueError, match="in_dtype one of float16, bfloat16, float32"):
        get_wgmma_intrin(64, "int8", trans_b=True)


def test_only_float32_is_rounded() -> None:
    sch = by_warpgroups(128, 128, 64)
    copy = sch.get_block("A_shared_dyn_o")
    sch.unannotate(copy, "tilewright.bulk_copy")
    sch.annotate(copy, "tilewright.bulk_copy", "tf32")
    with pytest.raises(tvm.TVMError, match="elements that it rounds to tf32 are float32, not float16"):
        tvm.build(sch.mod, target=HOPPER)


@pytest.mark.needs("nvrtc")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "arch"),
    [
        ("tf32 by rules, ragged, bias", TF32, "sm_90a"),
        ("convolution by tf32, few channels", TF32, "sm_90a"),
        ("mma by rules, tf32", AMPERE_TF32, "sm_80"),
    ],
)
def test_nvrtc_takes_it(name: str, target: str, arch: str) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    text = (HOPPER_PROGRAMS | AMPERE_PROGRAMS)[name]().build(target).imported_modules[0].get_source()
    assert len(compile_cubin(text, {"arch": arch})) > 1000


@pytest.mark.slow
def test_models() -> None:
    from tilewright import relay

    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 3, 32, 32))
    stem, more = (
        relay.const(rng.standard_normal(s).astype("float32")) for s in ((64, 3, 7, 7), (64, 64, 3, 3))
    )
    y = relay.nn.relu(relay.nn.conv2d(x, stem, padding=(3, 3), strides=(2, 2)))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(y, more, padding=(1, 1))))
    with tvm.transform.PassContext(opt_level=3, config=ALLOWED):
        lib = relay.build(mod, HOPPER)
    assert [t.count("tf32tf32f32") for t in lib.schedules.values() if "conv2d" in t] == [1, 1]
    plain = relay.build(mod, HOPPER)
    assert not any("tf32tf32" in t for t in plain.schedules.values())
