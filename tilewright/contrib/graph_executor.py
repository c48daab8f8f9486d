"""The graph executor: a compiled model, its inputs and its results.

    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("data", image)
    module.run()
    scores = module.get_output(0).numpy()

The model runs as one compiled function; the graph is kept for inspection.
"""

from __future__ import annotations

from typing import Any

from ..runtime.devices import Device
from ..runtime.errors import TVMError
from ..runtime.executor import Executor, ModelModule
from ..runtime.graph_module import GraphModule as GraphModule
from ..runtime.json_reader import read_json


def create(graph_json_str: str, libmod: Any, device: Device | list[Device]) -> GraphModule:
    """An executor for a graph and the library that was compiled with it."""
    if getattr(libmod, "is_remote", False):  # on another machine, which has the graph in the library
        return GraphModule(libmod["default"](device[0] if isinstance(device, (list, tuple)) else device))
    return GraphModule(_executor(graph_json_str, libmod, device))


def _executor(graph_json_str: str, libmod: Any, device: Device | list[Device]) -> Executor:
    if not isinstance(libmod, ModelModule):
        raise TVMError(
            f"{libmod!r} is not the library of a model: pass the result of relay.build, or of load_module for "
            "the file that it was exported to"
        )
    try:
        nodes = read_json(graph_json_str, "the graph", ValueError)["nodes"]
        called = [n["attrs"]["func_name"] for n in nodes if n["op"] == "tvm_op"]
    except (ValueError, KeyError, TypeError) as error:
        raise TVMError(f"the graph is not the JSON of a compiled model: {error!r}") from None
    own = [step.kernel or "__copy" for step in libmod.model.steps]
    if called != own:
        raise TVMError(
            f"the graph has {len(called)} steps and was not compiled with this library, which has {len(own)}"
        )
    devices = device if isinstance(device, (list, tuple)) else [device]
    return libmod.create(devices[0])
