"""Models of TensorFlow, through ONNX: tf2onnx turns graphs into ONNX, and the importer of ONNX does the rest.

GraphDef ─────────────┐
SavedModel, function ─┴─▶ tf2onnx ─▶ ModelProto ─▶ from_onnx ─▶ (mod, params)
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...ir.errors import FrontendError

if TYPE_CHECKING:
    from ...ir.module import IRModule

Shapes = Mapping[str, Sequence[Any]]

OPSET: Final = 18  # the newest that tf2onnx writes
LAYOUTS: Final = ("NCHW", "NHWC", "NCDHW", "NDHWC")
_LIMIT: Final = 12  # messages of the converter that an error repeats


def from_tensorflow(
    graph: Any,
    layout: str | None = "NHWC",
    shape: Mapping[str, Sequence[Any]] | None = None,
    outputs: Sequence[str] | None = None,
    convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a GraphDef (or .pb file), of a SavedModel's folder or of a concrete function, and its parameters.

    Inputs and results keep TensorFlow's layout, for any `layout`.
    """
    if layout is not None and layout not in LAYOUTS:
        raise FrontendError(f"from_tensorflow: layout={layout!r}: it must be one of {', '.join(LAYOUTS)}")
    tf = need("tensorflow", "from_tensorflow")
    need("tf2onnx", "from_tensorflow")
    if isinstance(graph, (str, os.PathLike)):
        path = Path(graph)
        if not path.exists():
            raise FrontendError(f"{path}: there is no such file or folder")
        if path.is_dir():
            return _from_function(tf, _signature(tf, path), str(path), shape, outputs, convert_config)
        graph, name = _read_graph(tf, path), str(path)
    else:
        name = "the graph"
    if isinstance(graph, tf.Graph):
        graph = graph.as_graph_def(add_shapes=True)
    if isinstance(graph, tf.compat.v1.GraphDef):
        model = _from_graph_def(graph, name, shape, outputs)
        return import_converted(model, name, convert_config)
    if hasattr(graph, "structured_input_signature"):
        return _from_function(tf, graph, "the function", shape, outputs, convert_config)
    if hasattr(graph, "get_concrete_function"):
        raise FrontendError(
            "from_tensorflow: a tf.function is not a graph before its shapes are known; give "
            "function.get_concrete_function(tf.TensorSpec(…))"
        )
    raise FrontendError(
        "from_tensorflow takes a GraphDef, the folder of a SavedModel or a concrete function, "
        f"not {type(graph).__name__}; a model of Keras goes to from_keras"
    )


def need(name: str, who: str) -> Any:
    """A package of the extra `tensorflow`, or an error that says how to get it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise FrontendError(
            f"relay.frontend.{who} needs the package {error.name!r}; pip install 'tilewright[tensorflow]'"
        ) from None


# -- what TensorFlow keeps models in ------------------------------------------------------------
def _signature(tf: Any, folder: Path) -> Any:
    """The serving function of a SavedModel, with the loaded object that owns its variables."""
    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:  # whatever TensorFlow says to a folder of another kind
        raise FrontendError(f"{folder}: is not a SavedModel, or a damaged one: {_first(error)}") from None
    found = dict(loaded.signatures)
    if not found:
        raise FrontendError(
            f"{folder}: has no signature to call; save it with tf.saved_model.save(model, path, signatures=…)"
        )
    if "serving_default" not in found and len(found) > 1:
        raise FrontendError(
            f"{folder}: has the signatures {', '.join(found)}, none of them serving_default; load it with "
            "tf.saved_model.load and give one of its signatures to from_tensorflow"
        )
    chosen = found.get("serving_default") or next(iter(found.values()))
    chosen._tilewright_keeps = loaded
    return chosen


def _read_graph(tf: Any, path: Path) -> Any:
    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
    except OSError as error:
        raise FrontendError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # protobuf's DecodeError, which lives in another place in every version
        raise FrontendError(f"{path}: is not a GraphDef, or a damaged one: {_first(error)}") from None
    if not graph.node:
        raise FrontendError(f"{path}: is an empty graph, or not a GraphDef")
    return graph


# -- graphs -------------------------------------------------------------------------------------
def _from_graph_def(graph: Any, name: str, shapes: Shapes | None, outputs: Sequence[str] | None) -> Any:
    inputs = [node.name for node in graph.node if node.op == "Placeholder"]
    check_names(name, shapes, inputs)
    results = [_port(o) for o in outputs] if outputs else [f"{n}:0" for n in _ends(graph)]
    known = {node.name for node in graph.node}
    for result in results:
        if result.partition(":")[0] not in known:
            raise FrontendError(f"{name}: outputs={list(outputs or ())}: there is no node {result!r}")
    given = {f"{n}:0": open_sizes(sizes) for n, sizes in (shapes or {}).items()}
    names = {f"{n}:0": n for n in inputs}
    with converting(name):
        return _graph_to_onnx(graph, list(names), results, names, given)


def _ends(graph: Any) -> list[str]:
    """The nodes that nothing reads, in order."""
    read = {i.lstrip("^").partition(":")[0] for node in graph.node for i in node.input}
    return [
        n.name for n in graph.node if n.name not in read and n.op not in ("Placeholder", "NoOp", "Assert")
    ]


def _port(name: str) -> str:
    return name if ":" in name else f"{name}:0"


# -- functions ----------------------------------------------------------------------------------
def _from_function(
    tf: Any,
    function: Any,
    name: str,
    shapes: Shapes | None,
    outputs: Sequence[str] | None,
    config: Mapping[str, Any] | None,
) -> tuple[IRModule, dict[str, Any]]:
    """A concrete function, traced again with the given sizes."""
    positional, named = function.structured_input_signature
    flat = [t for t in tf.nest.flatten((positional, named)) if isinstance(t, tf.TensorSpec)]
    specs = [t if t.name else tf.TensorSpec(t.shape, t.dtype, f"input_{i}") for i, t in enumerate(flat)]
    check_names(name, shapes, [t.name for t in specs])
    specs = [tf.TensorSpec(chosen_sizes(t, shapes), t.dtype, t.name) for t in specs]

    def call(*values: Any) -> Any:
        args, kwargs = tf.nest.pack_sequence_as((positional, named), list(values))
        found = function(*args, **kwargs)
        if not outputs:
            return found
        if not isinstance(found, dict) or set(outputs) - set(found):
            has = ", ".join(found) if isinstance(found, dict) else "without names"
            raise FrontendError(f"{name}: outputs={list(outputs)}: the results of the function are {has}")
        return [found[o] for o in outputs]

    return import_converted(convert_function(call, specs, name), name, config)


def chosen_sizes(spec: Any, shapes: Shapes | None) -> Any:
    if not shapes or spec.name not in shapes:
        return spec.shape
    given = open_sizes(shapes[spec.name])
    if not spec.shape.is_compatible_with(given):
        raise FrontendError(f"shape[{spec.name!r}] is {given}, and the model takes {tuple(spec.shape)}")
    return given


def open_sizes(sizes: Sequence[Any]) -> list[int | None]:
    """Sizes as TensorFlow writes them: None where one is not known."""
    return [int(s) if isinstance(s, int) and s >= 0 else None for s in sizes]


def check_names(name: str, shapes: Shapes | None, inputs: Sequence[str]) -> None:
    unknown = [n for n in shapes or () if n not in inputs]
    if unknown:
        raise FrontendError(
            f"{name}: shape has {unknown[0]!r}, and the inputs are {', '.join(inputs) or 'none'}"
        )


# -- conversion ---------------------------------------------------------------------------------
def convert_function(call: Callable[..., Any], specs: Sequence[Any], name: str) -> Any:
    """A Python function over tensors as an ONNX model."""
    import tensorflow as tf
    import tf2onnx

    def named(*values: Any) -> Any:
        # Functions that Keras compiles with XLA would stay calls; run eagerly, they are traced in place.
        eager = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(True)
        try:
            found = tf.nest.flatten(call(*values))
        finally:
            tf.config.run_functions_eagerly(eager)
        # A result of its own for each, so that none is an input, or the same as another.
        return [tf.identity(t, name=f"result_{i}") for i, t in enumerate(found)]

    with converting(name):
        concrete = tf.function(named, autograph=False).get_concrete_function(*specs)
        # What else the function takes are variables and tensors that it found around it; freezing makes them constants.
        inputs = [t.name for t in concrete.inputs[: len(specs)]]
        outputs = [t.name for t in concrete.outputs]
        frozen = tf2onnx.tf_loader.from_function(concrete, inputs, outputs)
        return _graph_to_onnx(frozen, inputs, outputs, {i: t.name for i, t in zip(inputs, specs)})


def _graph_to_onnx(
    graph: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
    names: Mapping[str, str],
    shapes: Mapping[str, Any] | None = None,
) -> Any:
    import tf2onnx

    model, _ = tf2onnx.convert.from_graph_def(
        graph,
        input_names=list(inputs),
        output_names=list(outputs),
        opset=OPSET,
        custom_op_handlers={op: (handler, []) for op, handler in _MORE.items()},
        tensors_to_rename=dict(names),
        shape_override=dict(shapes) if shapes else None,
    )
    return model


# -- operators that the converter does not know -------------------------------------------------
def _erfc(ctx: Any, node: Any, name: str, args: Any) -> Any:
    """1 - erf(x)"""
    return _replace(ctx, node, lambda x, one: ("Sub", [one, ctx.make_node("Erf", [x]).output[0]]))


def _expm1(ctx: Any, node: Any, name: str, args: Any) -> Any:
    """exp(x) - 1"""
    return _replace(ctx, node, lambda x, one: ("Sub", [ctx.make_node("Exp", [x]).output[0], one]))


def _log1p(ctx: Any, node: Any, name: str, args: Any) -> Any:
    """log(x + 1)"""
    return _replace(ctx, node, lambda x, one: ("Log", [ctx.make_node("Add", [x, one]).output[0]]))


def _bitcast(ctx: Any, node: Any, name: str, args: Any) -> Any:
    """The same bits: an operator of newer ONNX, which the importer knows in every version."""
    kind = ctx.get_dtype(node.output[0])
    return _replace(ctx, node, lambda x, one: ("BitCast", [x]), attr={"to": kind})


def _replace(ctx: Any, node: Any, make: Callable[[str, str], tuple[str, list[str]]], **options: Any) -> Any:
    """Put what `make` says of a node's input and the constant 1 in the place of the node."""
    import numpy as np
    from tf2onnx import utils

    (x, *_), (output, *_) = node.input, node.output
    kind, shape = ctx.get_dtype(output), ctx.get_shape(output)
    one = ctx.make_const(utils.make_name("one"), np.array(1, utils.map_onnx_to_numpy_type(kind))).output[0]
    op, taken = make(x, one)
    ctx.remove_node(node.name)
    return ctx.make_node(
        op, taken, name=node.name, outputs=[output], dtypes=[kind], shapes=[shape], **options
    )


_MORE: Final = {"Bitcast": _bitcast, "Erfc": _erfc, "Expm1": _expm1, "Log1p": _log1p}


# -- what goes wrong ----------------------------------------------------------------------------
@contextmanager
def converting(name: str) -> Iterator[None]:
    """Run the converter silently, and raise one error that lists everything that it could not convert."""
    logger = logging.getLogger("tf2onnx")
    kept = _Complaints()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(kept)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FrontendError:
        raise
    except Exception as error:  # the converter's errors are of every kind
        kept.messages.append(_first(error))
        raise FrontendError(f"{name}: cannot be converted to ONNX: {kept.text()}") from error
    finally:
        logger.removeHandler(kept)
        logger.propagate = propagate
        logger.setLevel(level)
    if kept.messages:
        raise FrontendError(f"{name}: cannot be converted to ONNX: {kept.text()}")


class _Complaints(logging.Handler):
    """The logged errors of the converter, which continues after an error and leaves invalid nodes."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage().strip().splitlines()[0])

    def text(self) -> str:
        found = list(dict.fromkeys(self.messages))
        if len(found) == 1:
            return found[0]
        more = [f"and {len(found) - _LIMIT} more"] if len(found) > _LIMIT else []
        return "".join(f"\n  {line}" for line in [*found[:_LIMIT], *more])


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def import_converted(
    model: Any, name: str, config: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """The converted model as graph functions; dynamic sizes have names after their inputs."""
    from .onnx import from_onnx

    for tensor in model.graph.input:
        for axis, dim in enumerate(tensor.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_param = "batch" if axis == 0 else f"{tensor.name}_{axis}"
    try:
        return from_onnx(model, freeze_params=False, convert_config=config)
    except FrontendError as error:
        raise FrontendError(f"{name}, converted to ONNX: {error}") from None
