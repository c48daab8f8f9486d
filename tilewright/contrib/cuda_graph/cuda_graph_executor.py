"""The classic home of replayed models. `graph_executor` captures those of a GPU by itself."""

from ..graph_executor import GraphModule as GraphModuleCudaGraph
from ..graph_executor import create

__all__ = ["GraphModuleCudaGraph", "create"]
