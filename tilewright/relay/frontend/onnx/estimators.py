"""Linear models, support vector machines and the preprocessing of features in ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import R, cast, constant, dtype_of, rank, scalar, shape_of
from .context import Node, converter
from .scores import as_label, labelled, labels_of, transform_of, transformed
from .strings import STRING, as_strings, numbers_of
from .trees import ML


def _rows(n: Node, at: int = 0) -> Any:
    """Features as float32 rows; a vector is one row."""
    x = cast(n[at], "float32")
    return x if rank(x) == 2 else R.expand_dims(x, 0)


def _floats(n: Node, name: str) -> Any:
    return np.asarray(n.attr(name, []), np.float32)


def _matrix(n: Node, name: str, features: int | None) -> Any:
    """An attribute as a matrix whose columns are features."""
    values = _floats(n, name)
    if not isinstance(features, int) or features < 1 or values.size % features or not values.size:
        raise n.refuse(f"{name} has {values.size} numbers, and rows have {features} features")
    return values.reshape(-1, features)


def _product(x: Any, matrix: Any) -> Any:
    return R.nn.matmul(x, constant(np.ascontiguousarray(matrix.T)))


# ---------------------------------------------------------------------------- linear models
def _linear(n: Node, intercepts: Any) -> Any:
    """The scores of a linear model: (rows, targets)."""
    x = _rows(n)
    made = _product(x, _matrix(n, "coefficients", shape_of(x)[1]))
    return R.add(made, constant(intercepts)) if intercepts.size else made


@converter("LinearRegressor", domain=ML)
def linear_regressor(n: Node) -> Any:
    return transformed(n, _linear(n, _floats(n, "intercepts")))


@converter("LinearClassifier", domain=ML)
def linear_classifier(n: Node) -> Any:
    scores = _linear(n, _floats(n, "intercepts"))
    return labelled(n, scores, mirrored=True)


# ---------------------------------------------------------------------------- support vectors
def _kernel(n: Node, x: Any, vectors: Any) -> Any:
    """The kernel of each row with each vector: (rows, vectors)."""
    name = n.attr("kernel_type", "LINEAR")
    gamma, offset, degree = (*_floats(n, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    if name == "RBF":
        # exp(-γ |x - v|²), the differences as they are: their expansion cancels for near vectors
        apart = R.subtract(R.expand_dims(x, 1), constant(vectors[None]))
        size = R.sum(R.multiply(apart, apart), axis=[2])
        return R.exp(R.multiply(size, scalar(-gamma, x)))
    made = _product(x, vectors)
    if name == "LINEAR":
        return made
    made = R.add(R.multiply(made, scalar(gamma, x)), scalar(offset, x))
    if name == "POLY":
        return R.power(made, scalar(degree, x))
    if name == "SIGMOID":
        return R.tanh(made)
    raise n.refuse(f"kernel_type {name!r} is unknown")


@converter("SVMRegressor", domain=ML)
def svm_regressor(n: Node) -> Any:
    """Without support vectors the coefficients are a linear model's."""
    _plain(n)
    x, count = _rows(n), int(n.attr("n_supports", 0))
    features, weights = shape_of(x)[1], _floats(n, "coefficients")
    if count:
        made = _product(_kernel(n, x, _matrix(n, "support_vectors", features)), weights.reshape(1, count))
    else:
        made = _kernel(n, x, weights.reshape(1, -1))
    made = R.add(made, constant(_floats(n, "rho")[:1]))
    if n.attr("one_class", 0):
        return R.where(R.greater(made, scalar(0, made)), scalar(1, made), scalar(-1, made))
    return made


@converter("SVMClassifier", domain=ML)
def svm_classifier(n: Node) -> Any:
    """Each pair of classes has a score, which is a vote for one of the two; the scores of all pairs are a result."""
    _plain(n)
    x, counts = _rows(n), n.attr("vectors_per_class") or []
    if not counts:
        scores = _kernel(n, x, _matrix(n, "coefficients", shape_of(x)[1]))
        return labelled(n, R.add(scores, constant(_floats(n, "rho")[:1])))
    labels, classes = labels_of(n), len(counts)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    vectors = _matrix(n, "support_vectors", shape_of(x)[1])
    edges = np.cumsum([0, *counts])
    weights = _floats(n, "coefficients").reshape(classes - 1, -1)
    if len(vectors) != edges[-1] or weights.shape[1] != edges[-1] or len(labels) != classes:
        raise n.refuse(f"{len(vectors)} support vectors and {len(labels)} labels do not fit {counts}")
    mixed = np.zeros((len(pairs), len(vectors)), np.float32)
    for row, (i, j) in enumerate(pairs):
        mixed[row, edges[i] : edges[i + 1]] = weights[j - 1, edges[i] : edges[i + 1]]
        mixed[row, edges[j] : edges[j + 1]] = weights[i, edges[j] : edges[j + 1]]
    rho = _floats(n, "rho")
    if len(rho) < len(pairs):
        raise n.refuse(f"rho has {len(rho)} numbers for {len(pairs)} pairs of classes")
    scores = R.add(_product(_kernel(n, x, vectors), mixed), constant(rho[: len(pairs)]))
    first = cast(R.greater(scores, scalar(0, scores)), "float32")
    voters = np.zeros((2, classes, len(pairs)), np.float32)
    for row, (i, j) in enumerate(pairs):
        voters[0, i, row] = voters[1, j, row] = 1
    votes = R.add(_product(first, voters[0]), _product(R.subtract(scalar(1, first), first), voters[1]))
    if len(_floats(n, "prob_a")):
        result = _probabilities(n, scores, classes)
    else:  # the score of two classes is given for both
        result = R.concatenate([R.negative(scores), scores], 1) if classes == 2 else scores
    return [as_label(n, _label(labels, R.argmax(votes, axis=[1]))), result]


def _label(labels: Any, index: Any) -> Any:
    return R.take(constant(labels), index, axis=0, mode="fast")


def _probabilities(n: Node, scores: Any, classes: int) -> Any:
    """Platt's probabilities of two classes, 1 / (1 + exp(a·s + b)) for the first.

    onnxruntime approaches these by libsvm's iteration, which for two classes ends within 0.005 of the exact value.
    """
    if classes != 2:
        raise n.refuse(
            "probabilities of more than two classes are not supported; leave out prob_a (SVC(probability=False))"
        )
    a, b = (scalar(float(_floats(n, k)[0]), scores) for k in ("prob_a", "prob_b"))
    first = R.clip(R.sigmoid(R.negative(R.add(R.multiply(scores, a), b))), 1e-7, 1 - 1e-7)
    return R.concatenate([first, R.subtract(scalar(1, first), first)], 1)


def _plain(n: Node) -> None:
    if transform_of(n) != "NONE":
        raise n.refuse(f"post_transform {transform_of(n)!r} is not supported")


# ---------------------------------------------------------------------------- preprocessing
@converter("Scaler", domain=ML)
def scaler(n: Node) -> Any:
    x = cast(n[0], "float32")
    offset, scale = (constant(_floats(n, k)) for k in ("offset", "scale"))
    return R.multiply(R.subtract(x, offset), scale)


@converter("Normalizer", domain=ML)
def normalizer(n: Node) -> Any:
    """Rows divided by their maximum, by the sum of their absolute values, or by their Euclidean norm."""
    x, name = cast(n[0], "float32"), n.attr("norm", "MAX")
    axis = [rank(x) - 1]
    if name == "MAX":
        size = R.max(x, axis=axis, keepdims=True)
    elif name == "L1":
        size = R.sum(R.abs(x), axis=axis, keepdims=True)
    elif name == "L2":
        size = R.sqrt(R.sum(R.multiply(x, x), axis=axis, keepdims=True))
    else:
        raise n.refuse(f"norm {name!r} is unknown")
    return R.divide(x, R.where(R.equal(size, scalar(0, x)), scalar(1, x), size))


@converter("Imputer", domain=ML)
def imputer(n: Node) -> Any:
    """One value, or NaN, replaced by a number or by one for each feature."""
    x = n[0]
    kind = "floats" if dtype_of(x).startswith("float") else "int64s"
    wanted = n.attr(f"imputed_value_{kind}")
    if not wanted:
        raise n.refuse(f"imputed_value_{kind} is missing, and the input is {dtype_of(x)}")
    gone = n.attr(f"replaced_value_{kind[:-1]}", 0)
    missing = R.isnan(x) if gone != gone else R.equal(x, scalar(gone, x))
    return R.where(missing, constant(np.asarray(wanted, dtype_of(x))), x)


@converter("FeatureVectorizer", domain=ML)
def feature_vectorizer(n: Node) -> Any:
    """Inputs side by side, each cut or filled with zeros to its number of columns."""
    parts = []
    for i, width in enumerate(n.attr("inputdimensions", [])):
        x = _rows(n, i)
        have = shape_of(x)[1]
        if not isinstance(have, int):
            raise n.refuse(f"the number of features of input {i} is dynamic")
        if have > width:
            x = R.strided_slice(x, [0], [width], axes=[1])
        elif have < width:
            x = R.nn.pad(x, [(0, 0), (0, width - have)], scalar(0, x))
        parts.append(x)
    return R.concatenate(parts, 1)


@converter("OneHotEncoder", domain=ML)
def one_hot_encoder(n: Node) -> Any:
    """Another dimension with 1 at the category; zeros where there is no such category."""
    kinds = n.attr("cats_int64s") or numbers_of(n, n.attr("cats_strings") or [])
    if not kinds:
        raise n.refuse("it has no categories")
    if not n.flag("zeros", 1):
        raise n.refuse("zeros=0 is not supported: an unknown category cannot stop a compiled model")
    x = cast(n[0], "int64")
    return cast(R.equal(R.expand_dims(x, rank(x)), constant(np.asarray(kinds, np.int64))), "float32")


@converter("CategoryMapper", domain=ML)
@converter("LabelEncoder", domain=ML)
def strings_and_integers(n: Node) -> Any:
    """Strings become integers, and integers strings, by one table."""
    words = numbers_of(n, n.attr("cats_strings") or n.attr("classes_strings") or [])
    integers = n.attr("cats_int64s") or range(len(words))
    names, numbers = (np.asarray(list(v), np.int64) for v in (words, integers))
    if n.value(0).elem == STRING:
        return _looked_up(n, names, numbers, np.int64(n.attr("default_int64", -1)))
    (default,) = numbers_of(n, [n.attr("default_string", "_Unused")])
    return as_strings(_looked_up(n, numbers, names, np.int64(default)))


@converter("LabelEncoder", domain=ML, since=2)
def label_encoder(n: Node) -> Any:
    """A table from keys to values; a key that it does not have becomes a default."""
    (keys, has_words), (values, to_words) = _column(n, "keys"), _column(n, "values")
    if len(keys) != len(values) or has_words != (n.value(0).elem == STRING):
        raise n.refuse(f"{len(keys)} keys for {len(values)} values, or keys of another type than the input")
    kind = values.dtype.name
    default = n.attr("default_tensor")
    if to_words:
        (number,) = numbers_of(n, default or [n.attr("default_string", "_Unused")])
        return as_strings(_looked_up(n, keys, values, np.int64(number)))
    if default is None:
        default = n.attr("default_int64", -1) if kind == "int64" else n.attr("default_float", -0.0)
    return _looked_up(n, keys, values, np.asarray(default, kind).reshape(()))


def _looked_up(n: Node, keys: Any, values: Any, default: Any) -> Any:
    """For each element the value of its key; of equal keys the first counts."""
    x = cast(n[0], keys.dtype.name)
    known = ~np.isnan(keys) if keys.dtype.kind == "f" else np.ones(len(keys), bool)
    sorted_keys, first = np.unique(keys[known], return_index=True)
    made: Any = R.broadcast_to(constant(default), shape_of(x))
    if len(first):
        at = R.searchsorted(constant(sorted_keys), x, dtype="int32")
        at = R.minimum(at, constant(np.int32(len(first) - 1)))
        same = R.equal(R.take(constant(sorted_keys), at, axis=0, mode="fast"), x)
        table = constant(np.ascontiguousarray(values[known][first]))
        made = R.where(same, R.take(table, at, axis=0, mode="fast"), made)
    if not known.all():
        made = R.where(R.isnan(x), constant(values[~known][0]), made)
    return made


def _column(n: Node, name: str) -> tuple[Any, bool]:
    """The keys or values of a table, and whether they are numbers of strings."""
    tensor = n.attr(f"{name}_tensor")
    words = tensor if isinstance(tensor, list) else n.attr(f"{name}_strings")
    if words:
        return np.asarray(numbers_of(n, words), np.int64), True
    if tensor is not None:
        return tensor.reshape(-1), False
    for suffix, kind in (("int64s", np.int64), ("floats", np.float32)):
        if n.attr(f"{name}_{suffix}"):
            return np.asarray(n.attr(f"{name}_{suffix}"), kind), False
    raise n.refuse(f"it has no {name}")


@converter("ZipMap", domain=ML)
def zip_map(n: Node) -> Any:
    raise n.refuse(
        "a list of dictionaries is not a result of a compiled model; export the scores as a tensor "
        "(skl2onnx: options={'zipmap': False})"
    )
