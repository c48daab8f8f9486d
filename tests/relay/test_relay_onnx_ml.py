"""The operators of ai.onnx.ml, which scikit-learn's models are exported with, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from onnx_beside import ML, by_onnxruntime, check, one_node

from tilewright import relay
from tilewright.contrib import onnx_backend
from tilewright.ir.errors import FrontendError

RNG = np.random.default_rng(5)
FEATURES = 4


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def forest(trees: int, depth: int, modes: tuple[str, ...], prefix: str, ids: list[int]) -> dict[str, Any]:
    """Full trees with random nodes; each leaf has a weight for each of `ids`."""
    out: dict[str, list[Any]] = {
        f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }  # fmt: skip
    out |= {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    out["nodes_missing_value_tracks_true"] = []
    for tree in range(trees):
        for node in range(2 ** (depth + 1) - 1):
            leaf = node >= 2**depth - 1
            row = {
                "treeids": tree, "nodeids": node, "featureids": 0 if leaf else int(RNG.integers(FEATURES)),
                "modes": "LEAF" if leaf else str(RNG.choice(modes)), "values": float(np.round(RNG.normal(), 0)),
                "truenodeids": 0 if leaf else 2 * node + 1, "falsenodeids": 0 if leaf else 2 * node + 2,
                "missing_value_tracks_true": int(RNG.integers(2)),
            }  # fmt: skip
            for k, v in row.items():
                out[f"nodes_{k}"].append(v)
            for i in ids if leaf else ():
                for k, v in (
                    ("treeids", tree),
                    ("nodeids", node),
                    ("ids", i),
                    ("weights", float(RNG.normal())),
                ):
                    out[f"{prefix}_{k}"].append(v)
    return out


def rows(count: int = 30, missing: bool = False) -> Any:
    """Features that are often equal to thresholds."""
    x = np.round(RNG.standard_normal((count, FEATURES))).astype(np.float32)
    if missing:
        x[RNG.random(x.shape) < 0.2] = np.nan
    return x


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@pytest.mark.parametrize("modes", [*((m,) for m in MODES), MODES])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(modes: tuple[str, ...], how: str) -> None:
    attrs = forest(5, 3, modes, "target", [0, 1])
    attrs |= {"n_targets": 2, "aggregate_function": how, "base_values": [0.5, -1.0]}
    check("TreeEnsembleRegressor", ML, {"x": rows()}, attrs, version=3)


def test_missing_values_take_the_branch_they_are_said_to_take() -> None:
    attrs = forest(8, 4, ("BRANCH_LEQ",), "target", [0]) | {"n_targets": 1}
    check("TreeEnsembleRegressor", ML, {"x": rows(missing=True)}, attrs, version=3)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_classifier(post: str) -> None:
    attrs = forest(5, 3, ("BRANCH_LEQ",), "class", [0, 1, 2])
    attrs |= {"classlabels_int64s": [7, 8, 9], "post_transform": post}
    check("TreeEnsembleClassifier", ML, {"x": rows()}, attrs, ("label", "scores"), version=3)


def test_two_classes_with_weights_of_both() -> None:
    """onnxruntime answers 0 or 1 by the sign of the second score, whatever the labels are: only scores are compared."""
    attrs = forest(5, 3, ("BRANCH_LEQ",), "class", [0, 1]) | {"classlabels_int64s": [7, 8]}
    x = rows()
    model = one_node("TreeEnsembleClassifier", ML, {"x": x}, attrs, ("label", "scores"), version=3)
    (_, wanted), (labels, scores) = by_onnxruntime(model, {"x": x}), onnx_backend.run_model(model, {"x": x})
    np.testing.assert_allclose(scores, wanted, rtol=2e-5, atol=2e-5)
    assert (labels == np.array([7, 8])[np.argmax(wanted, 1)]).all()


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("class_", "base"), [(0, []), (0, [0.2]), (1, [])])
def test_tree_classifier_with_weights_of_one_class(
    post: str, positive: bool, class_: int, base: list[float]
) -> None:
    attrs = forest(5, 3, ("BRANCH_LEQ",), "class", [class_])
    if positive:
        attrs["class_weights"] = [abs(w) / 5 for w in attrs["class_weights"]]
    attrs |= {"classlabels_int64s": [0, 1], "post_transform": post}
    if base:
        attrs["base_values"] = base
    check("TreeEnsembleClassifier", ML, {"x": rows()}, attrs, ("label", "scores"), version=3)


def test_trees_that_do_not_end_are_refused() -> None:
    attrs = forest(1, 1, ("BRANCH_LEQ",), "target", [0]) | {"n_targets": 1}
    attrs["nodes_truenodeids"][0] = 0
    with pytest.raises(FrontendError, match="the nodes of a tree form a cycle"):
        relay.frontend.from_onnx(one_node("TreeEnsembleRegressor", ML, {"x": rows()}, attrs, version=3))
    attrs = forest(1, 1, ("BRANCH_LEQ",), "target", [0]) | {"n_targets": 1}
    attrs["nodes_featureids"][0] = 9
    with pytest.raises(FrontendError, match="a node reads feature 9 of rows that have 4"):
        relay.frontend.from_onnx(one_node("TreeEnsembleRegressor", ML, {"x": rows()}, attrs, version=3))
