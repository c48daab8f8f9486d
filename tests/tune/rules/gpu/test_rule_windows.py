"""The rule `windows`: pooling and depthwise convolutions, some neighbouring results for each thread."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, H200, OPENCL, depthwise, pooled, product, tanh

import tilewright as tvm


class TestWindows(RuleTests):
    rule = "windows"
    program = depthwise(), A100
    wins = [
        (depthwise(), H200),
        (depthwise(), OPENCL),
        (pooled(1, 64, 56, 56), A100),
        (pooled(16, 56, 56, 64, layout="NHWC"), A100),
    ]
    refuses = [
        (product(64, 64, 64), A100, "it is no pooling and no depthwise convolution"),
        (tanh(16, 64), A100, "it is no reduction over windows"),
        (depthwise(1, 17), A100, "its results are not shared by whole warps"),
    ]
    computes = [(pooled(1, 2, 9, 9), A100)]


def test_channels_last_are_read_in_vectors() -> None:
    """Where rows of results end inside of thread blocks too."""
    for size in (56, 60):
        made = tvm.auto_schedule(pooled(16, size, size, 64, layout="NHWC"), A100).explanation
        assert made.records[-1]["sketch"] == "windows" and made.records[-1]["vector"] == 4, made
