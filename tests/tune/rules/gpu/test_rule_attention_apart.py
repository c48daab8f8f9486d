"""The rule `attention apart`: attention in three kernels."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests, forced
from gpu_rule_programs import A100, H200, attention, decoding, total

from tilewright import te
from tilewright.target import Target
from tilewright.tune.plan import plan_of


class TestAttentionApart(SlowRuleTests):
    rule = "attention apart"
    program = attention(), H200
    loses = [(attention(1024, 64, 8), H200, "attention")]
    refuses = [
        (attention(), A100, "the target has no tma, wgmma"),
        (total(64, 64), H200, "it is not a product"),
    ]


def test_the_past_is_divided_among_all_multiprocessors() -> None:
    """The weights are float32 and the values float16, and still their product is one of a matrix with a vector."""
    plan = forced("attention apart", decoding(3600, 80, 32), H200)
    assert [c.winner.rule.name for c in plan.choices] == ["attention apart", "rows", "columns", "row chain"]
    product = plan.choices[2].winner.table
    assert product.count("blocks")[0] >= 132


def test_a_query_over_its_past_means_the_same() -> None:
    assert forced("attention apart", decoding(70, 40, 2), H200).sch.verify().kernels == "agree"


def test_one_query_leaves_most_of_a_tile_empty() -> None:
    """And few heads leave most SMs idle."""
    for keys, width, heads, rule in ((3600, 80, 32, "attention in parts"), (200, 64, 12, "attention")):
        plan = plan_of(te.create_prim_func(decoding(keys, width, heads)), Target(H200))
        assert plan.choices[0].winner.rule.name == rule
