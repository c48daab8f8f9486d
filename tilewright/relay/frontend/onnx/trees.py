"""Tree ensembles of ai.onnx.ml. Each kind of branch becomes nodes that ask only `feature <= threshold`.

x < t      ->  x <= the number before t
x >= t     ->  the branches of x < t change places
x == t     ->  x <= t and not x < t: two nodes
x in {…}   ->  x == t for each, one behind the other
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .build import R, cast, constant, rank, typed
from .context import Node, converter
from .scores import labelled, transformed

ML = "ai.onnx.ml"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")


class Forest:
    """Nodes under construction: a feature (-1 in a leaf), a threshold, and what follows if <=, if >, if NaN."""

    def __init__(self, kind: str) -> None:
        self.kind = np.dtype(kind)
        self.features: list[int] = []
        self.thresholds: list[Any] = []
        self.children: list[list[int]] = []
        self.roots: list[int] = []

    def add(self, feature: int = -1, threshold: Any = 0, children: Sequence[int] = (0, 0, 0)) -> int:
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.children.append(list(children))
        return len(self.features) - 1

    def branch(self, at: int, mode: str, feature: int, value: Any, yes: int, no: int, missing: int) -> None:
        """Node `at` as a branch of a mode; nodes that it needs besides are added."""
        kind = self.kind.type
        limit = kind(value)
        if mode in ("BRANCH_LT", "BRANCH_GTE"):
            limit = np.nextafter(limit, kind(-np.inf))
        if mode in ("BRANCH_LEQ", "BRANCH_LT"):
            nodes = [yes, no, missing]
        elif mode in ("BRANCH_GT", "BRANCH_GTE"):
            nodes = [no, yes, missing]
        else:
            equal, other = (yes, no) if mode == "BRANCH_EQ" else (no, yes)
            below = self.add(feature, np.nextafter(limit, kind(-np.inf)), (other, equal, missing))
            nodes = [below, other, missing]
        self.features[at], self.thresholds[at], self.children[at] = feature, limit, nodes

    def member(self, at: int, feature: int, values: Sequence[Any], yes: int, no: int, missing: int) -> None:
        """Node `at` as a branch that is taken if the feature is one of several values."""
        for i, value in enumerate(values):
            other = no if i + 1 == len(values) else self.add()
            self.branch(at, "BRANCH_EQ", feature, value, yes, other, missing)
            at = other

    def refuse_cycles(self, n: Node, width: Any) -> None:
        """Refuse nodes that come back to themselves, or ask for a feature that rows do not have."""
        done, within = (
            set[int](),
            set[int](),
        )  # nodes all below which was visited; nodes above the one at hand
        stack = [(root, False) for root in self.roots]
        while stack:
            at, back = stack.pop()
            if back:
                within.discard(at)
                done.add(at)
            elif at in within:
                raise n.refuse("the nodes of a tree form a cycle")
            elif at not in done and self.features[at] >= 0:
                if isinstance(width, int) and self.features[at] >= width:
                    raise n.refuse(f"a node reads feature {self.features[at]} of rows that have {width}")
                within.add(at)
                stack.append((at, True))
                stack += [(c, False) for c in dict.fromkeys(self.children[at])]

    def leaves(self, n: Node) -> Any:
        """The leaf of each row in each tree: (rows, trees)."""
        x = n[0] if rank(n[0]) == 2 else R.expand_dims(n[0], 0)
        self.refuse_cycles(n, typed(x).checked_type.shape[1])
        return R.tree_leaves(
            cast(x, self.kind.name),
            constant(np.asarray(self.roots, np.int32)),
            constant(np.asarray(self.features, np.int32)),
            constant(np.asarray(self.thresholds, self.kind)),
            constant(np.asarray(self.children, np.int32)),
        )


def _numbers(n: Node, name: str) -> Any:
    """An attribute that has a form with a tensor, of which the element type counts."""
    found = n.attr(f"{name}_as_tensor")
    return np.asarray(n.attr(name, []), np.float32) if found is None else np.asarray(found)


def _read(n: Node, prefix: str, width: int) -> tuple[Forest, Any, Any]:
    """The nodes of a classifier or regressor, the weights (leaves, width), and the ids that leaves have weights for."""
    values = _numbers(n, "nodes_values")
    weights = _numbers(n, f"{prefix}_weights")
    kind = "float64" if values.dtype == np.float64 or n.dtype(0) == "float64" else "float32"
    forest = Forest(kind)
    trees, ids, modes = n.attr("nodes_treeids", []), n.attr("nodes_nodeids", []), n.attr("nodes_modes", [])
    count = len(ids)
    columns = [n.attr(f"nodes_{k}", []) for k in ("featureids", "truenodeids", "falsenodeids")]
    if any(len(c) != count for c in (trees, modes, values, *columns)):
        raise n.refuse(f"its attributes nodes_… are not all of one length ({count} nodes)")
    where = {key: forest.add() for key in zip(trees, ids, strict=True)}
    if len(where) != count:
        raise n.refuse("two nodes of a tree have one id")
    tracks = n.attr("nodes_missing_value_tracks_true") or [0] * count
    leaves = 0
    leaf_of: dict[Any, int] = {}
    seen: set[Any] = set()
    for i, key in enumerate(zip(trees, ids, strict=True)):
        if key[0] not in seen:  # the first node of a tree is its root
            seen.add(key[0])
            forest.roots.append(where[key])
        if modes[i] == "LEAF":
            leaf_of[key] = leaves
            forest.children[where[key]][0] = leaves
            leaves += 1
            continue
        if modes[i] not in _MODES[:6]:
            raise n.refuse(f"the mode {modes[i]!r} of a node is unknown")
        yes, no = (where[key[0], columns[k][i]] for k in (1, 2))
        missing = yes if tracks[i] or modes[i] == "BRANCH_NEQ" else no
        forest.branch(where[key], modes[i], columns[0][i], values[i], yes, no, missing)
    table = np.zeros((max(leaves, 1), width), np.float64 if kind == "float64" else np.float32)
    targets = n.attr(f"{prefix}_ids", [])
    for i, key in enumerate(
        zip(n.attr(f"{prefix}_treeids", []), n.attr(f"{prefix}_nodeids", []), strict=True)
    ):
        if not 0 <= targets[i] < width:
            raise n.refuse(f"{prefix}_ids has {targets[i]}, and there are {width}")
        table[leaf_of[key], targets[i]] += weights[i]
    return forest, table, (targets, weights)


def _gathered(n: Node, leaves: Any, table: Any, how: str, trees: int) -> Any:
    """The weights of a row's leaves as one row: (rows, width)."""
    found = R.take(constant(table), leaves, axis=0, mode="fast")
    works = {"SUM": R.sum, "AVERAGE": R.sum, "MIN": R.min, "MAX": R.max}
    if how not in works:
        raise n.refuse(f"aggregate_function {how!r} is unknown")
    made = works[how](found, axis=[1])
    return R.divide(made, constant(np.asarray(trees, table.dtype))) if how == "AVERAGE" else made


def _with_base(n: Node, scores: Any, table: Any) -> Any:
    base = _numbers(n, "base_values")
    return R.add(scores, constant(base.astype(table.dtype))) if base.size else scores


@converter("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(n: Node) -> Any:
    forest, table, _ = _read(n, "target", int(n.attr("n_targets", 1)))
    how = n.attr("aggregate_function", "SUM")
    scores = _gathered(n, forest.leaves(n), table, how, len(forest.roots))
    return cast(transformed(n, _with_base(n, scores, table)), "float32")


@converter("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(n: Node) -> Any:
    """Labels and scores. Weights of the first of two classes alone are those of a single score, that of the second."""
    labels = n.attr("classlabels_int64s") or n.attr("classlabels_strings") or []
    forest, table, (targets, weights) = _read(n, "class", len(labels))
    lone = len(labels) == 2 and len(set(targets)) == 1
    one = lone and targets[0] == 0
    scores = _gathered(n, forest.leaves(n), table[:, :1] if one else table, "SUM", len(forest.roots))
    base = _numbers(n, "base_values")
    if base.size:
        # base values of both classes, but one score: that of the second class counts
        scores = R.add(scores, constant((base[-1:] if one else base).astype(table.dtype)))
    positive = bool((weights >= 0).all())
    return labelled(n, scores, 0.5 if lone and positive else 0.0, mirrored=one and positive, by_second=lone)


_PLAIN_MODES = dict(enumerate(_MODES))


@converter("TreeEnsemble", domain=ML)
def tree_ensemble(n: Node) -> Any:
    """Trees whose nodes and leaves have tables of their own; leaves have one target each."""
    splits = np.asarray(n.attr("nodes_splits"))
    forest = Forest(splits.dtype.name if splits.dtype != np.float16 else "float32")
    modes = [int(v) for v in np.asarray(n.attr("nodes_modes")).reshape(-1)]
    weights = np.asarray(n.attr("leaf_weights"))
    targets = n.attr("leaf_targetids", [])
    inner, outer = (
        [forest.add() for _ in modes],
        [forest.add(children=(i, 0, 0)) for i in range(len(targets))],
    )
    tracks = n.attr("nodes_missing_value_tracks_true") or [0] * len(modes)
    sets = _member_sets(np.asarray(n.attr("membership_values", []), forest.kind))
    ends = []
    for w in ("true", "false"):
        pairs = zip(n.attr(f"nodes_{w}nodeids", []), n.attr(f"nodes_{w}leafs", []), strict=True)
        ends.append([(outer if leaf else inner)[at] for at, leaf in pairs])
    features = n.attr("nodes_featureids", [])
    for i, mode in enumerate(modes):
        if mode not in _PLAIN_MODES:
            raise n.refuse(f"the mode {mode} of a node is unknown")
        yes, no = ends[0][i], ends[1][i]
        missing = yes if tracks[i] or mode == 5 else no
        if mode == 6:
            forest.member(inner[i], features[i], next(sets, []), yes, no, missing)
        else:
            forest.branch(inner[i], _PLAIN_MODES[mode], features[i], splits[i], yes, no, missing)
    forest.roots = [inner[i] for i in n.attr("tree_roots", [])]
    table = np.zeros((len(targets), int(n.attr("n_targets", 1))), forest.kind)
    table[np.arange(len(targets)), targets] = weights
    how = ("AVERAGE", "SUM", "MIN", "MAX")[int(n.attr("aggregate_function", 1))]
    scores = _gathered(n, forest.leaves(n), table, how, len(forest.roots))
    return transformed(n, scores)


def _member_sets(values: Any) -> Any:
    """The sets of values of the nodes that ask for members, which NaN part."""
    held: list[Any] = []
    for v in values:
        if np.isnan(v):
            yield held
            held = []
        else:
            held.append(v)
