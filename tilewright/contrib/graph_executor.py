"""The graph executor: a compiled model, its inputs and its results.

    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("data", image)
    module.run()
    scores = module.get_output(0).numpy()

The model runs as one compiled function; the graph is kept for inspection.
"""

from __future__ import annotations

from ..runtime.graph_module import GraphModule as GraphModule
from ..runtime.graph_module import create as create
