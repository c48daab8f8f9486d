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


# ---------------------------------------------------------------------------- linear models and support vectors
@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.slow
def test_linear_models(post: str, count: int) -> None:
    attrs = {"coefficients": floats(FEATURES * count).tolist(), "intercepts": floats(count).tolist()}
    if count == 2:
        check(
            "LinearRegressor", ML, {"x": floats(9, FEATURES)}, attrs | {"targets": 2, "post_transform": post}
        )
    attrs |= {"classlabels_ints": [7, 8, 9][: max(count, 2)], "post_transform": post}
    check("LinearClassifier", ML, {"x": floats(9, FEATURES)}, attrs, ("label", "scores"))
    check("LinearClassifier", ML, {"x": np.arange(8).reshape(2, 4)}, attrs, ("label", "scores"))


KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one", [0, 1])
def test_svm_regressor(kernel: str, one: int) -> None:
    attrs = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.2, 2.0], "support_vectors": floats(5 * FEATURES).tolist(),
        "n_supports": 5, "coefficients": floats(5).tolist(), "rho": [0.3], "one_class": one,
    }  # fmt: skip
    check("SVMRegressor", ML, {"x": floats(9, FEATURES)}, attrs)


def support(kernel: str, counts: list[int]) -> dict[str, Any]:
    classes, total = len(counts), sum(counts)
    return {
        "kernel_type": kernel, "kernel_params": [0.3, 0.2, 2.0], "vectors_per_class": counts,
        "support_vectors": floats(total * FEATURES).tolist(),
        "coefficients": floats((classes - 1) * total).tolist(),
        "rho": floats(classes * (classes - 1) // 2).tolist(), "classlabels_ints": [7, 8, 9, 10][:classes],
    }  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("counts", [[2, 3], [2, 3, 1], [2, 3, 1, 2]])
@pytest.mark.slow
def test_svm_classifier(kernel: str, counts: list[int]) -> None:
    check(
        "SVMClassifier",
        ML,
        {"x": floats(20, FEATURES)},
        support(kernel, counts),
        ("label", "scores"),
        tol=1e-4,
    )


def test_probabilities_of_an_svm() -> None:
    """onnxruntime iterates to them; for two classes it ends at most 0.005 away from the exact probability."""
    attrs = support("RBF", [2, 3]) | {"prob_a": [-0.7], "prob_b": [0.1]}
    check("SVMClassifier", ML, {"x": floats(20, FEATURES)}, attrs, ("label", "scores"), tol=5.1e-3)
    attrs = support("RBF", [2, 3, 1]) | {"prob_a": [-1.0] * 3, "prob_b": [0.0] * 3}
    with pytest.raises(FrontendError, match="probabilities of more than two classes are not supported"):
        model = one_node(
            "SVMClassifier", ML, {"x": floats(2, FEATURES)}, attrs, ("label", "scores"), version=1
        )
        relay.frontend.from_onnx(model)


# ---------------------------------------------------------------------------- preprocessing
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_leaves_rows_of_zeros(norm: str) -> None:
    x = floats(6, FEATURES)
    x[2] = 0
    x[3] = -np.abs(x[3])
    check("Normalizer", ML, {"x": x}, {"norm": norm})


@pytest.mark.parametrize("count", [1, FEATURES])
def test_scaler(count: int) -> None:
    attrs = {"offset": floats(count).tolist(), "scale": floats(count).tolist()}
    check("Scaler", ML, {"x": floats(3, FEATURES)}, attrs)
    check("Scaler", ML, {"x": np.arange(8).reshape(2, 4)}, attrs)


def test_imputer() -> None:
    x = rows(missing=True)
    attrs = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}
    check("Imputer", ML, {"x": x}, attrs)
    attrs = {"imputed_value_int64s": [9, 8], "replaced_value_int64": 0}
    check("Imputer", ML, {"x": np.array([[1, 0], [0, 5]])}, attrs)


@pytest.mark.parametrize("widths", [[2, 4], [3, 2]])
def test_features_side_by_side(widths: list[int]) -> None:
    inputs = {"a": floats(3, 2), "b": floats(3, 4)}
    check("FeatureVectorizer", ML, inputs, {"inputdimensions": widths})


def test_one_hot_encoder() -> None:
    attrs = {"cats_int64s": [1, 5, 7], "zeros": 1}
    check("OneHotEncoder", ML, {"x": np.array([[1, 3], [5, 7]])}, attrs)
    with pytest.raises(FrontendError, match="zeros=0 is not supported: an unknown category cannot stop"):
        model = one_node("OneHotEncoder", ML, {"x": np.array([1])}, {"cats_int64s": [1], "zeros": 0})
        relay.frontend.from_onnx(model)


@pytest.mark.parametrize(
    ("x", "keys", "values"),
    [
        (np.array([[1, 3], [5, 7]]), [7, 1, 5, 1], [0.5, 1.0, 2.0, 3.0]),
        (np.array([1, 4, np.nan], np.float32), [4.0, float("nan"), 1.0], [5, 6, 7]),
        (np.array([1, 4, np.nan], np.float32), [4.0, 1.5], [5.0, 6.0]),
        (np.array([3, 4, 2]), [4, 3], [8, 9]),
    ],
)
def test_label_encoder(x: Any, keys: list[Any], values: list[Any]) -> None:
    def suffix(found: list[Any]) -> str:
        return "int64s" if isinstance(found[0], int) else "floats"

    attrs = {f"keys_{suffix(keys)}": keys, f"values_{suffix(values)}": values, "default_float": 9.0}
    check("LabelEncoder", ML, {"x": x}, attrs, version=4)
