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
    """A location in a source file, which prints as `file:line`, or a node of an imported model."""

    source_name: str
    line: int
    end_line: int = 0
    column: int = 0
    end_column: int = 0
    node: str = ""  # the node of an imported model, in place of a line, as messages name it
    path: str = ""  # the name of that node, or the path of its module

    def __str__(self) -> str:
        return self.node or f"{Path(self.source_name).name}:{self.line}"

    @property
    def name(self) -> str:
        """The shortest name of the location: `layer1.0.conv1`, `/layer1/conv/Conv` or `model.py:12`."""
        return self.path or str(self)


NOWHERE = Span("", 0)  # the context of new nodes without a source
node_in_work: ContextVar[Span | None] = ContextVar("node_in_work", default=None)


@contextmanager
def at_node(node: str, source_name: str = "", path: str = "") -> Iterator[None]:
    """A scope in which new nodes get a node of a model as their span."""
    with at_span(Span(source_name, 0, node=node, path=path)):
        yield


@contextmanager
def at_span(span: Span | None) -> Iterator[None]:
    """A scope in which new nodes get this span, or none: not that of the user's call of a pass."""
    token = node_in_work.set(NOWHERE if span is None else span)
    try:
        yield
    finally:
        node_in_work.reset(token)


def user_span() -> Span | None:
    """The innermost frame outside this package as a span, or the node of a model that is imported."""
    node = node_in_work.get()
    if node is not None:
        return None if node is NOWHERE else node
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else Span(frame.f_code.co_filename, frame.f_lineno)
