"""The frame-based builder of the classic API. The names are here; `tir.ir_builder` does the work today."""

from __future__ import annotations

from typing import Any

from ..ir.errors import UnsupportedError

__all__ = ["IRBuilder", "ir", "tir"]

_INSTEAD = "write the program as a @T.prim_func, or build it with tilewright.tir.ir_builder.create()"


class IRBuilder:
    """A builder over frames."""

    def __init__(self) -> None:
        raise UnsupportedError(f"script.ir_builder.IRBuilder is not there yet; {_INSTEAD}")


class _Names:
    """The names of a part of the builder; calling one of them says what to use instead."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise UnsupportedError(f"script.ir_builder.{self._part}.{name} is not there yet; {_INSTEAD}")

        refuse.__name__ = name
        return refuse


ir, tir = _Names("ir"), _Names("tir")
