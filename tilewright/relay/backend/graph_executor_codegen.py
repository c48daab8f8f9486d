"""The classic way to a graph: `GraphExecutorCodegen(None, target).codegen(mod, mod["main"])`."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..expr import Function


class GraphExecutorCodegen:
    """Compiles a function to a graph, its kernels and its parameters."""

    def __init__(self, mod: Any, target: Any) -> None:
        self.target = target

    def codegen(self, ir_module: IRModule, func: Function) -> tuple[str, Any, dict[str, NDArray]]:
        """The JSON of the graph, the compiled library, the parameters by name."""
        from ..build_module import build

        mod = IRModule({**ir_module.functions}, ir_module.type_definitions, ir_module.attrs)
        mod["main"] = func
        graph, library, params = build(mod, self.target)
        return graph, library, params
