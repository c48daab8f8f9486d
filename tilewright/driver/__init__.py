"""The classic home of `lower`, `build` and the command line; `moved.py` has the modules below it."""

import sys
from importlib import import_module

from ..compiler import build, build_module, lower

__all__ = ["build", "build_module", "lower"]

# Known now: a later import of the module `driver.build` would put it in the place of the function.
sys.modules |= {
    f"{__name__}.{name}": import_module(f"..compiler.{name}", __name__) for name in ("build", "lower")
}
