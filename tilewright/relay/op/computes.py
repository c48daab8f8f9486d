"""What operators compute with, loaded when the first of them is computed: a graph is built without it."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["Analyzer", "Layouts", "convolve", "te", "topi"]


class _Later:
    """A name in a module, found when it is called: `topi.nn.dense` says which, `topi.nn.dense(x, w)` loads it."""

    __slots__ = ("_found", "_module", "_name")

    def __init__(self, module: str, name: str = "") -> None:
        self._module, self._name = module, name
        self._found: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(self._module, f"{self._name}.{name}".lstrip("."))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._found is None:
            self._found = attrgetter(self._name)(import_module(f"...{self._module}", __package__))
        return self._found(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self._module}.{self._name}, loaded when it is called>"


if TYPE_CHECKING:
    from ... import te, topi
    from ...arith import Analyzer
    from ...topi.nn.conv import Layouts, convolve
else:
    te, topi, Analyzer = _Later("te"), _Later("topi"), _Later("arith", "Analyzer")
    Layouts, convolve = _Later("topi.nn.conv", "Layouts"), _Later("topi.nn.conv", "convolve")
