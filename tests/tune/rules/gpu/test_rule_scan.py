"""The rule `scan`: running sums and products of rows by warps, of columns by threads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gpu_rule_checks import RuleTests, asked, check_nvrtc, check_on_opencl, forced
from gpu_rule_programs import A100, H200, OPENCL, cumsum, cumulated, rows, tanh

import tilewright as tvm
from tilewright import te, tir, topi

N = te.var("n")


@cache
def scanned(
    shape: tuple[Any, ...],
    axis: int | None,
    dtype: str = "float32",
    exclusive: bool = False,
    op: Any = topi.cumsum,
) -> list[Any]:
    x = te.placeholder(shape, dtype, name="x")
    return [x, op(x, axis, exclusive=exclusive)]


class TestScan(RuleTests):
    rule = "scan"
    program = scanned((3, 70), 1), A100
    wins = [
        (cumsum(*shape), target)
        for target in (A100, H200)
        for shape in ((128, 113), (856, 325), (26, 517), (12032, 547), (13836, 432), (1, 1000000))
    ]
    wins += [(scanned((856, 325), 0), H200), (scanned((856, 325), 0), OPENCL), (scanned((N, 300), 1), H200)]
    wins += [(cumsum(64, 64), OPENCL)]  # it has no warp shuffles: a thread for each part of a row
    refuses = [
        (tanh(64, 64), A100, "it declares no scan"),
        (cumulated(64, 64), A100, "it declares no scan"),
    ]


def computed(args: list[Any], point: list[int]) -> Any:
    """A schedule with decisions, whose kernels the interpreter has compared with the program."""
    sch = tir.Schedule(te.create_prim_func(args))
    sch.annotate(sch.get_child_blocks("root")[0], "scan_threads", point)
    assert sch.verify().kernels == "agree"
    return sch


@pytest.mark.parametrize(
    ("args", "point"),
    [
        (scanned((5, 70), 1), [1, 2, 1, 1]),  # the last block of warps is partial, and so is the last chunk
        (scanned((2, 701), 1), [2, 2, 1, 1]),  # two warps, chunk after chunk
        (scanned((2, 700), 1, exclusive=True), [2, 2, 4, 1]),
        (scanned((1, 2600), 1), [2, 1, 4, 4]),  # parts
        (scanned((1, 2600), 1, exclusive=True), [1, 1, 2, 36]),  # more parts than lanes
        (scanned((2, 141), 1, exclusive=True), [2, 2, 1, 2]),
        (scanned((2, 14, 5), None), [1, 1, 2, 2]),
        (scanned((3, 64), 1, "float16"), [1, 1, 2, 1]),
        (scanned((3, 64), 1, "int8", op=topi.cumprod), [1, 2, 1, 1]),
        (scanned((3, 40), 1, "int64"), [1, 2, 1, 1]),
        (scanned((2, 37, 3), 1), [1, 4, 0, 1]),  # columns
        (scanned((2, 37, 3), 1, exclusive=True), [1, 4, 0, 5]),
        (scanned((37, 40), 0, "float16"), [2, 8, 0, 3]),
        (scanned((N, 40), 1), [1, 2, 1, 1]),
        (scanned((N, 3), 0), [1, 4, 0, 1]),
        (scanned((40, 7), 1), [1, 8, 0, 1]),  # a thread for each row
        (scanned((2, 70), 1), [1, 4, 0, 3]),
    ],
)
def test_its_kernels_compute_the_scan(args: list[Any], point: list[int]) -> None:
    computed(args, point)


def test_all_lanes_take_part_in_a_shuffle() -> None:
    """A shuffle that an operand of `?:` asks for would be run by the other lanes alone."""
    target = "cuda -arch=sm_80"
    for point in ([2, 2, 2, 2], [1, 2, 1, 1]):
        source = (
            tvm.build(computed(scanned((2, 700), 1), point).mod, target=target)
            .imported_modules[0]
            .get_source()
        )
        lines = [line for line in source.splitlines() if "__shfl" in line]
        assert lines and not any("?" in line or "if" in line for line in lines)


def test_few_long_rows_are_divided_into_parts() -> None:
    first = forced("scan", cumsum(1, 1000000), H200).choices[0]
    assert first.row.values["parts"] > 16 and first.row.values["lanes"] == 4
    assert forced("scan", cumsum(13836, 432), H200).choices[0].row.values["parts"] == 1


def test_it_is_predicted_to_reach_the_bandwidth() -> None:
    """66 MB read and written once take 25 us at 4.8 TB/s."""
    times = asked(cumsum(32768, 500), H200).times
    assert 25 < times["scan"] < 35 < times["parallel loops"]


@pytest.mark.needs("opencl")
@pytest.mark.slow
def test_an_opencl_device_computes_columns() -> None:
    args = scanned((500, 6), 0)
    check_on_opencl("scan", args, np.random.default_rng(0).normal(size=(500, 6)).astype("float32"))


@pytest.mark.needs("nvrtc")
@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [cumsum(3, 5000), rows(topi.cumprod, 300, 7), scanned((3, 400), 1, "float16"), scanned((N, 40), 1)],
)
def test_nvrtc_compiles_it(args: list[Any]) -> None:
    check_nvrtc("scan", args, "sm_80")
