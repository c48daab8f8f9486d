"""The rule `attention in parts`: attention of few queries over a long past."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gpu_rule_checks import RuleTests, check_nvrtc, check_on_opencl, forced
from gpu_rule_programs import A100, H200, attention, decoding, total

import tilewright as tvm
from tilewright import te, topi
from tilewright.target import Target
from tilewright.tune.plan import plan_of


@cache
def queries(
    rows: int, keys: int, width: int, shared: int = 1, dtype: str = "float16", **how: Any
) -> list[Any]:
    """Attention of some queries; `shared` heads of the queries use one of the keys."""
    q = te.placeholder((1, 2, rows, width), dtype, name="q")
    k, v = (te.placeholder((1, 2 // shared, keys, width), dtype, name=x) for x in "kv")
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v, **how)]


class TestAttentionParts(RuleTests):
    rule = "attention in parts"
    program = queries(1, 200, 40), A100
    rows = 2
    refuses = [
        (total(64, 64), H200, "it is not a product"),
        (attention(), A100, "threads cannot hold the sums of more than 16 queries"),
        (decoding(1000, 36), A100, "its rows are no whole vectors of 16 bytes"),
        (decoding(16, 64), A100, "there are too few keys for two parts that shared memory has room for"),
    ]
    computes = [
        (queries(3, 150, 64, shared=2), H200),
        (queries(2, 200, 96, is_causal=True, offset=190), H200),
        (queries(1, 130, 32, dtype="float32"), A100),
        (queries(4, 130, 128, dtype="bfloat16"), H200),
    ]


def test_all_that_is_stored_between_the_two_kernels_are_sums_of_parts() -> None:
    plan = forced("attention in parts", decoding(3600, 80, 32), H200)
    text = tvm.build(plan.sch.mod, target=H200).imported_modules[0].get_source()
    parts, combine = text.split("__global__")[1:]
    assert "T_attention_logits" not in parts.split("{")[0] and "T_attention_product" in combine.split("{")[0]


def test_keys_and_values_are_loaded_in_vectors_without_conditions() -> None:
    """Also where the last part is shorter: it reads the last key again."""
    plan = forced("attention in parts", decoding(1000, 128, 4), H200)
    text = tvm.build(plan.sch.mod, target=H200).imported_modules[0].get_source()
    kernel = text[text.index("__global__") :]
    for name in ("k + ", "v + "):
        assert f"*(const tw_vec<unsigned short, 8>*)({name}" in kernel
        assert f" {name}[" not in kernel


@pytest.mark.parametrize(
    ("keys", "width", "heads", "target"),
    [
        (3600, 80, 32, H200),
        (4096, 128, 32, H200),
        (2000, 64, 8, H200),
        (65536, 128, 8, H200),
        (4096, 128, 8, A100),
    ],
)
def test_it_wins_for_long_pasts(keys: int, width: int, heads: int, target: str) -> None:
    plan = plan_of(te.create_prim_func(decoding(keys, width, heads)), Target(target))
    (choice,) = plan.choices
    assert choice.winner.rule.name == "attention in parts"
    assert plan.sch.explanation.records[0]["blocks"] >= Target(target).gpu.multiprocessors // 3


def test_it_loses_for_short_pasts() -> None:
    plan = plan_of(te.create_prim_func(decoding(200, 64, 12)), Target(H200))
    assert plan.choices[0].winner.rule.name == "attention"
    assert "attention in parts" in [o.rule.name for o in plan.choices[0].rivals]


@pytest.mark.needs("opencl")
def test_an_opencl_device_agrees() -> None:
    args = queries(2, 300, 64, dtype="float32")
    given = [
        np.random.default_rng(n).standard_normal([int(x) for x in t.shape]) for n, t in enumerate(args[:3])
    ]
    check_on_opencl("attention in parts", args, *(x.astype("float32") for x in given))


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
def test_nvrtc_takes_it() -> None:
    check_nvrtc("attention in parts", decoding(1000, 80, 4), "sm_90a")
