"""Importers: a model of another framework as a module of graph functions and its parameters.

mod, params = relay.frontend.from_onnx("net.onnx", shape={"x": (1, 3, 224, 224)})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...ir.module import IRModule

__all__ = ["from_exported_program", "from_onnx", "from_pytorch"]


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of an ONNX model (a ModelProto, its bytes or a path) as `main` of a module, and its parameters.

    With `freeze_params` the initialisers are constants of the graph and there are no parameters.
    """
    from .onnx import from_onnx as work

    return work(model, shape, dtype, opset, freeze_params, convert_config)


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

    An input of other elements than `default_dtype` is described as ("ids", ((1, 128), "int64")).
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
