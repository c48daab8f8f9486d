"""Classic names of what tilewright decides by itself."""

from __future__ import annotations

from typing import Any, Final

from ..ir.say_once import say_once

_PACKAGE: Final = __name__.rpartition(".")[0]


class Named:
    """A classic object without work of its own: the plan and lowering decide, and its arguments have no effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = type(self)
        if (args or kwargs) and own.__module__.startswith(_PACKAGE):
            say_once(
                f"meta_schedule: the arguments of {own.__name__} do nothing here; the automatic scheduler chooses "
                "these figures from the target"
            )
        self.args, self.kwargs = args, kwargs
