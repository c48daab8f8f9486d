"""Importers: a model of another framework as a module of graph functions and its parameters.

mod, params = relay.frontend.from_onnx("net.onnx", shape={"x": (1, 3, 224, 224)})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...absent import attributes
from ...homes import lazily

if TYPE_CHECKING:
    from ...ir.module import IRModule

__all__ = ["from_exported_program", "from_jax", "from_keras", "from_onnx", "from_pytorch", "from_tensorflow"]


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    *,
    values: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of an ONNX model (a ModelProto, its bytes or a path) as `main` of a module, and its parameters.

    With `freeze_params` the initialisers are constants of the graph and there are no parameters. Inputs in `values` are
    constants as well: fixing one that selects a branch (a sample rate, a mode) removes the branch.
    """
    from .onnx import from_onnx as work

    return work(model, shape, dtype, opset, freeze_params, convert_config, values)


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[Any] = (),
    custom_convert_map: Mapping[str, Any] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a traced module, or of a program of torch.export, as `main` of a module, and its parameters.

        mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", (1, 3, 224, 224))])

    An input of a type other than `default_dtype` is described as ("ids", ((1, 128), "int64")).
    """
    from .pytorch import from_pytorch as work

    return work(
        script_module,
        input_infos,
        custom_convert_map,
        default_dtype,
        use_parser_friendly_name,
        keep_quantized_weight,
        export_renamed_c_graph_path,
    )


def from_exported_program(
    exported_program: Any, custom_convert_map: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a program of torch.export as `main` of a module, and its parameters."""
    from .pytorch import from_exported_program as work

    return work(exported_program, custom_convert_map)


def from_jax(
    function: Any,
    *example_args: Any,
    dynamic: Mapping[str, Mapping[int, str] | Sequence[str | int | None]] | None = None,
    **example_kwargs: Any,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a JAX function, for arguments like the examples, as `main` of a module, and its parameters.

        mod, params = relay.frontend.from_jax(lambda x: model.apply(weights, x), x)

    An example is an array or a `jax.ShapeDtypeStruct`, or a pytree of them; each of its arrays is an input (`x`,
    `batch.image`). Arrays that the function has closed over or that `functools.partial` binds are parameters. `dynamic`
    names sizes that stay dynamic: {"x": {0: "n"}}. A closed jaxpr is imported as it is, without examples.
    """
    from .jax import from_jax as work

    return work(function, *example_args, dynamic=dynamic, **example_kwargs)


def from_keras(
    model: Any, shape: Mapping[str, Sequence[Any]] | None = None, layout: str = "NCHW"
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a Keras model (or of a .keras or .h5 file) as `main` of a module, and its parameters.

    With the layout "NCHW" inputs and outputs are channels-first, and so is `shape`; with "NHWC" they are as in Keras.
    """
    from .keras import from_keras as work

    return work(model, shape, layout)


def from_tensorflow(
    graph: Any,
    layout: str | None = "NHWC",
    shape: Mapping[str, Sequence[Any]] | None = None,
    outputs: Sequence[str] | None = None,
    convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a GraphDef, of a SavedModel's folder or of a concrete function, and its parameters.

    Inputs and results keep TensorFlow's layout, for any `layout`.
    """
    from .tensorflow import from_tensorflow as work

    return work(graph, layout, shape, outputs, convert_config)


__getattr__ = lazily(__name__, {"change_datatype": "ChangeDatatype"}, otherwise=attributes(__name__))
