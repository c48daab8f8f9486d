"""The rule `mma`: products on the tensor cores of any architecture."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, OPENCL, T4, product


class TestMma(SlowRuleTests):
    rule = "mma"
    program = product(64, 64, 64, "float16"), A100
    wins = [
        (product(512, 512, 512, "float16"), A100),
        (product(512, 512, 512, "float16"), T4),
        (product(512, 512, 512, "int8"), H200),
    ]
    loses = [(product(512, 512, 512, "float16"), H200, "wgmma")]
    refuses = [
        (product(512, 512, 512, "float16"), OPENCL, "the target has no mma.f16"),
        (product(512, 512, 512), A100, "the target does not let float32 be rounded: cuda -tf32=1 does"),
        (product(512, 512, 512), T4, "sm_75 has no `mma` for float32"),
        (product(1, 512, 512, "float16"), A100, "it is the product of a matrix with a few vectors"),
    ]
    computes = [(product(20, 24, 40, "float16"), A100)]  # padded
