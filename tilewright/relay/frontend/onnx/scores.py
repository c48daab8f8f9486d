"""Scores of ai.onnx.ml: what is done to them last, and the labels that they decide for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import R, cast, constant, scalar, shape_of
from .context import Node
from .strings import as_strings, numbers_of

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transform_of(n: Node) -> str:
    found = n.attr("post_transform", "NONE")
    name = _TRANSFORMS[found] if isinstance(found, int) and found < len(_TRANSFORMS) else found
    if name not in _TRANSFORMS or name == "PROBIT":
        raise n.refuse(f"post_transform {name!r} is not supported; {', '.join(_TRANSFORMS[:4])} are")
    return str(name)


def transformed(n: Node, scores: Any) -> Any:
    """Scores (rows, classes) after the node's post_transform."""
    name = transform_of(n)
    if name == "LOGISTIC":
        return R.sigmoid(scores)
    if name == "SOFTMAX":
        return R.nn.softmax(scores, 1)
    if name == "SOFTMAX_ZERO":  # scores of 0 stay 0 and have no share
        none = R.equal(scores, scalar(0, scores))
        shares = R.where(
            none, scalar(0, scores), R.exp(R.subtract(scores, R.max(scores, axis=[1], keepdims=True)))
        )
        return R.divide(shares, R.maximum(R.sum(shares, axis=[1], keepdims=True), scalar(1e-30, scores)))
    return scores


def labels_of(n: Node) -> Any:
    """The labels of the classes; of strings, their numbers."""
    strings = n.attr("classlabels_strings")
    if strings:
        return np.asarray(numbers_of(n, strings), np.int64)
    return np.asarray(n.attr("classlabels_int64s") or n.attr("classlabels_ints") or [], np.int64)


def as_label(n: Node, made: Any) -> Any:
    """A result that has labels of classes."""
    return as_strings(made) if n.attr("classlabels_strings") else made


def labelled(
    n: Node, scores: Any, limit: float = 0.0, mirrored: bool = False, by_second: bool = False
) -> list[Any]:
    """Labels and scores. One score for two classes is that of the second, which wins above a limit.

    The score of the first is then 1 - s if `mirrored`, else -s; of LOGISTIC both are the logistic of their scores.
    With `by_second` the score of the second class alone decides between two that are both given.
    """
    labels = labels_of(n)
    if not len(labels):
        raise n.refuse("it has no labels of classes")
    columns = shape_of(scores)[1]
    if len(labels) == 1 or (columns != 1 and not by_second):
        best = R.argmax(scores, axis=[1])
        made = R.take(constant(labels), best, axis=0, mode="fast")
        return [as_label(n, made), cast(transformed(n, scores), "float32")]
    last = R.take(scores, constant(np.int32(columns - 1)), axis=1, mode="fast")
    made = R.where(R.greater(last, scalar(limit, scores)), constant(labels[1]), constant(labels[0]))
    if columns != 1:
        return [as_label(n, made), cast(transformed(n, scores), "float32")]
    if mirrored:
        second = R.sigmoid(scores) if transform_of(n) == "LOGISTIC" else scores
        both = R.concatenate([R.subtract(scalar(1, scores), second), second], 1)
        return [as_label(n, made), cast(both, "float32")]
    both = R.concatenate([R.negative(scores), scores], 1)
    return [
        as_label(n, made),
        cast(transformed(n, both) if transform_of(n) == "LOGISTIC" else both, "float32"),
    ]
