"""The rule `row chain in shared memory`: a chain of stages in one kernel, a thread block for each row."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, softmax, total

from tilewright import te


class TestRowChainInSharedMemory(RuleTests):
    rule = "row chain in shared memory"
    program = softmax(16, 64), A100
    loses = [(softmax(4096, 1000), A100, "row chain"), (softmax(4096, 1000), OPENCL, "row chain")]
    refuses = [
        (
            softmax(1, 1 << 20),
            A100,
            "4194316 bytes between the stages of a row are too much for shared memory",
        ),
        (softmax(4096, 100, axis=0), A100, "loads of threads along a row would not be coalesced"),
        (softmax(te.var("n"), 64), A100, "a row whose length is not known cannot be kept in shared memory"),
        (total(64, 64), A100, "it is not a chain of stages"),
    ]
    computes = [(softmax(3, 71), A100)]
