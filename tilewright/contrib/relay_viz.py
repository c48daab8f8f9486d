"""Pictures of graphs. They are not there yet: using a name of it says so."""

from .._later import announce

__getattr__ = announce(
    __name__, "the graph compiler is not there yet, so there are no graphs to draw", ["interface"]
)
