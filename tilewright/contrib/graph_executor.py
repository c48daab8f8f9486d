"""The graph executor. It is not there yet: using a name of it says so."""

from .._later import announce

__getattr__ = announce(
    __name__, "graphs cannot be compiled or run yet; call the functions of a module one by one"
)
