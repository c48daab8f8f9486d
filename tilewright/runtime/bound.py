"""A compiled function with some arguments bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .module import Module


class BoundModule:
    """A module of one function whose last arguments are bound: constants that were packed when it was compiled."""

    def __init__(self, module: Module, name: str, arrays: Sequence[Any]) -> None:
        self.module, self.name, self.constants = module, name, tuple(arrays)
        self._function = module.get_function(name)
        self._takes = len(module.info.functions[name].params) - len(self.constants)

    def __call__(self, *args: Any) -> Any:
        if len(args) != self._takes:
            raise TypeError(
                f"{self.name} takes {self._takes} arguments, not {len(args)}: its constants were bound by compile"
            )
        return self._function(*args, *self.constants)

    entry_func = property(lambda self: self.__call__)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in (self.name, self.module.entry_name):
            raise AttributeError(f"module {self.module.name!r} has no function {name!r}; it has: {self.name}")
        return self.__call__

    def time_evaluator(self, func_name: str, dev: Any, **options: Any) -> Callable[..., Any]:
        """Times calls with the constants in place; see `Module.time_evaluator`."""
        timed = self.module.time_evaluator(func_name, dev, **options)
        return lambda *args: timed(*args, *self.constants)

    def get_source(self, fmt: str = "") -> str:
        return self.module.get_source(fmt)
