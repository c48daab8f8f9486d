"""The old name of `contrib.graph_executor`."""

from .graph_executor import GraphModule, create

__all__ = ["GraphModule", "create"]
