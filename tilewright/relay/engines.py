"""Code generators that come with the package: which operators they take, and what they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from ..runtime.registry import register_func
from .op.registry import get

MISSING: Final[dict[str, str]] = {}  # what code generators lack, and how it is installed


def register_engine(
    name: str,
    home: str,
    takes: Sequence[str],
    check: Callable[[Any], bool],
    missing: str,
) -> None:
    """Declare a code generator of the package: `relay.ext.NAME`, and the operators that it takes if `check` accepts.

    It is the function `generate` of the module `home`, which is loaded when a model is built with it. `missing` says
    how the engine is installed if it is not there; then no code generator is registered.
    """

    def generate(fn: Any) -> Any:
        return import_module(home).generate(fn)

    for op in takes:
        get(op).set_attr(f"target.{name}", check)
    if missing:
        MISSING[name] = missing
    else:
        register_func(f"relay.ext.{name}", generate, override=True)


def installed(package: str) -> bool:
    """Whether a package of Python can be imported."""
    return find_spec(package) is not None
