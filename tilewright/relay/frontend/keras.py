"""Models of Keras, through TensorFlow's tracing and ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import FrontendError
from .tensorflow import (
    LAYOUTS,
    Shapes,
    check_names,
    chosen_sizes,
    convert_function,
    import_converted,
    need,
    open_sizes,
)

if TYPE_CHECKING:
    from ...ir.module import IRModule


def from_keras(
    model: Any, shape: Mapping[str, Sequence[Any]] | None = None, layout: str = "NCHW"
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a Keras model (or of a .keras or .h5 file) as `main` of a module, and its parameters.

    The layout is that of inputs and results: with "NCHW" those of rank 4 or more are channels-first, and so are the
    shapes given here, whatever the model uses inside; with "NHWC" they are as in Keras.
    """
    if layout not in LAYOUTS:
        raise FrontendError(f"from_keras: layout={layout!r}: it must be one of {', '.join(LAYOUTS)}")
    tf = need("tensorflow", "from_keras")
    need("tf2onnx", "from_keras")
    if isinstance(model, (str, os.PathLike)):
        model = _load(Path(model))
    if not callable(model) or not hasattr(model, "get_config"):
        raise FrontendError(f"from_keras takes a model of Keras or its file, not {type(model).__name__}")
    _check_backend(model)
    name = f"the Keras model {str(getattr(model, 'name', 'model'))!r}"
    first = layout in ("NCHW", "NCDHW") and not _has_channels_first(model)
    specs = _specs(tf, model, name, shape, first)

    def call(*values: Any) -> list[Any]:
        """The model between two transposes, which the converter cancels against those around convolutions."""
        inner = [_transposed(tf, v, to_last=True) if first else v for v in values]
        found = tf.nest.flatten(model(_packed(tf, model, inner), training=False))
        return [_transposed(tf, v, to_last=False) if first else v for v in found]

    return import_converted(convert_function(call, specs, name), name)


def _load(path: Path) -> Any:
    keras = need("keras", "from_keras")
    if not path.exists():
        raise FrontendError(f"{path}: there is no such file")
    try:
        return keras.saving.load_model(str(path), compile=False)
    except Exception as error:  # whatever Keras says to a file of another kind
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FrontendError(f"{path}: is not a model of Keras, or a damaged one: {lines[0][:300]}") from None


def _check_backend(model: Any) -> None:
    import sys

    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, getattr(keras, "Layer", ())):
        return  # a model of Keras 2 knows TensorFlow only
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise FrontendError(
            f"from_keras traces with TensorFlow, and Keras runs on {backend!r} here: set KERAS_BACKEND=tensorflow"
        )


def _has_channels_first(model: Any) -> bool:
    layers = getattr(model, "_flatten_layers", None)
    return any(getattr(x, "data_format", None) == "channels_first" for x in (layers() if layers else ()))


def _specs(tf: Any, model: Any, name: str, shapes: Shapes | None, first: bool) -> list[Any]:
    """The input specs of the model, in the given layout and sizes."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        if not shapes:
            raise FrontendError(
                f"{name} has no input specification: give shape={{'input': (1, 3, 224, 224)}}, in order"
            )
        return [tf.TensorSpec(open_sizes(s), tf.float32, n) for n, s in shapes.items()]
    names = [_input_name(t) for t in inputs]
    check_names(name, shapes, names)
    found = []
    for n, tensor in zip(names, inputs):
        sizes = [None if s is None else int(s) for s in tensor.shape]
        if first and len(sizes) >= 4:
            sizes = [sizes[0], sizes[-1], *sizes[1:-1]]
        own = tf.TensorSpec(sizes, tensor.dtype, n)
        found.append(tf.TensorSpec(chosen_sizes(own, shapes), own.dtype, n))
    return found


def _input_name(tensor: Any) -> str:
    """The name of the input layer: that of its tensor may be a number in this process."""
    made_by = (getattr(tensor, "_keras_history", None) or (None,))[0]
    return str(getattr(made_by, "name", None) or tensor.name).partition(":")[0]


def _packed(tf: Any, model: Any, values: Sequence[Any]) -> Any:
    """Values in the structure that the model was made with: one, a list, or a dict."""
    structure = getattr(model, "input", None)
    own = [id(t) for t in getattr(model, "inputs", None) or ()]
    if isinstance(structure, (dict, list, tuple)) and [id(t) for t in tf.nest.flatten(structure)] == own:
        return tf.nest.pack_sequence_as(structure, list(values))
    return values[0] if len(values) == 1 else list(values)


def _transposed(tf: Any, value: Any, to_last: bool) -> Any:
    """An image transposed to channels-last, or to channels-first; other tensors unchanged."""
    rank = value.shape.rank
    if rank is None or rank < 4:
        return value
    inner = range(2, rank) if to_last else range(1, rank - 1)
    return tf.transpose(value, [0, *inner, 1] if to_last else [0, rank - 1, *inner])
