"""The rule `row parts`: a thread block for each part of a long row, then other kernels for the partial results."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gpu_rule_checks import RuleTests, asked, check_nvrtc, check_on_opencl, check_rows, forced
from gpu_rule_programs import A100, H200, OPENCL, rows, softmax, tanh, total

from tilewright import te, topi

N = te.var("n")


@cache
def mean(*shape: int) -> list[Any]:
    return rows(lambda x: topi.mean(x, axis=-1), *shape)


@cache
def argmax(*shape: int) -> list[Any]:
    return rows(lambda x: topi.argmax(x, axis=-1), *shape)


class TestRowParts(RuleTests):
    rule = "row parts"
    program = total(2, 2053), A100
    wins = [
        (args, target)
        for target in (A100, H200, OPENCL)
        for args in (
            total(16777213),
            mean(16777213),
            mean(1 << 24),  # a chain of two stages, for which `rows` does not compete
            argmax(8, 250007),
            total(N, 1000, 63, axis=None),  # otherwise it would have a single thread
        )
    ]
    wins += [(total(1, 50257), A100), (argmax(1, 50257), A100)]  # the logits of a language model
    loses = [
        (total(8, 64, 28, 28, axis=(0, 2, 3)), A100, "rows"),  # a gain within the doubt
        (total(1 << 24), A100, "rows"),  # equal parts, without a condition
        (argmax(200, 16387), A100, "rows"),  # there are enough rows
        (total(1, 10007), H200, "rows"),  # a second launch would cost more
        (mean(200, 16387), A100, "row chain"),
    ]
    refuses = [
        (total(64, 1000), A100, "its rows are too short for two parts"),
        (total(5000, 64, axis=0), A100, "it does not reduce along contiguous memory"),
        (
            total(N, te.var("m"), 64, axis=None),
            A100,
            "only the outermost of its reduced axes may have a dynamic size",
        ),
        (softmax(4, 50257), A100, "it is not a single reduction"),
        (tanh(50257), A100, "it is not a single reduction"),
        (
            rows(lambda x: x / topi.sum(x, axis=1, keepdims=True), 4, 50257),
            A100,
            "a stage of the chain has a value for each element of a row",
        ),
    ]
    computes = [
        (total(8196), A100),  # vectors, with a condition
        (mean(2, 2101), A100),
        (total(2, 3, 701, axis=(1, 2)), A100),  # two axes that are contiguous with each other
        (total(N, 63, axis=None), A100),
        (total(3, N, 64, axis=(1, 2)), OPENCL),
    ]

    @pytest.mark.slow
    def test_the_index_of_the_largest_value(self) -> None:
        check_rows(self.rule, argmax(2051), A100)


def test_a_prime_length_keeps_all_multiprocessors_busy() -> None:
    """64 MiB take 43 us at 1555 GB/s; one SM of 108 has a small part of that bandwidth."""
    args = total(16777213)
    rules = asked(args, A100)
    assert rules.times["row parts"] * 10 < rules.times["rows"]
    first, second = forced("row parts", args, A100).choices
    assert 43e-6 < first.row.predicted < 60e-6
    assert first.winner.table.count("blocks")[0] == 1024
    assert second.winner.rule.name == "rows" and second.row.predicted < 1.1e-6


def test_the_epilogue_is_part_of_the_last_kernel() -> None:
    plan = forced("row parts", mean(2, 2101), A100)
    assert [c.winner.rule.name for c in plan.choices] == ["row parts", "rows"]
    assert str(plan.sch.mod).count("blockIdx.x") == 2


@pytest.mark.needs("opencl")
@pytest.mark.slow
@pytest.mark.parametrize("args", [total(3, 5001), mean(2, 16388), argmax(10007)])
def test_an_opencl_device_computes_the_result(args: list[Any]) -> None:
    shape = [int(n) for n in args[0].shape]
    check_on_opencl("row parts", args, np.random.default_rng(0).normal(size=shape).astype("float32"))


@pytest.mark.needs("nvrtc")
@pytest.mark.slow
@pytest.mark.parametrize("args", [mean(10007), argmax(2, 16388), total(N, 63, axis=None)])
def test_nvrtc_compiles_it(args: list[Any]) -> None:
    check_nvrtc("row parts", args, "sm_80")
