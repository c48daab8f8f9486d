"""Source locations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).resolve().parent.parent)


class SourceName(str):
    """The name of a source that a program gives itself; texts of graphs show it."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Span:
    """A location in a source file; prints as `file:line`."""

    source_name: str
    line: int
    end_line: int = 0
    column: int = 0
    end_column: int = 0
    node: str = ""  # the node of an imported model, in place of a line

    def __str__(self) -> str:
        return self.node or f"{Path(self.source_name).name}:{self.line}"


_node: ContextVar[Span | None] = ContextVar("_node", default=None)


@contextmanager
def at_node(node: str, source_name: str = "") -> Iterator[None]:
    """A scope in which new nodes get a node of a model as their span."""
    token = _node.set(Span(source_name, 0, node=node))
    try:
        yield
    finally:
        _node.reset(token)


def user_span() -> Span | None:
    """The innermost frame outside this package as a span, or the node of a model that is imported."""
    node = _node.get()
    if node is not None:
        return node
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else Span(frame.f_code.co_filename, frame.f_lineno)
