"""The rule `windows`: pooling and depthwise convolutions, some neighbouring results for each thread."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, H200, OPENCL, depthwise, pooled, product, tanh


class TestWindows(RuleTests):
    rule = "windows"
    program = depthwise(), A100
    wins = [(depthwise(), H200), (depthwise(), OPENCL), (pooled(1, 64, 56, 56), A100)]
    refuses = [
        (product(64, 64, 64), A100, "it is no pooling and no depthwise convolution"),
        (tanh(16, 64), A100, "it is no reduction over windows"),
        (depthwise(1, 17), A100, "its results are not shared by whole warps"),
    ]
    computes = [(pooled(1, 2, 9, 9), A100)]
