"""Compiling models from the command line. It is not there yet: using a name of it says so."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "compiling models needs the graph compiler, which is not there yet",
    [
        "compiler",
        "composite_target",
        "frontends",
        "model",
        "pass_config",
        "pass_list",
        "runner",
        "shape_parser",
        "target",
        "transform",
    ],
)
