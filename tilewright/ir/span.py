"""Where in the user's source something was written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

__all__ = ["Span", "user_span"]

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source file; prints as `file:line`."""

    source_name: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{Path(self.source_name).name}:{self.line}"


def user_span() -> Span | None:
    """The innermost frame outside this package, as a span."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else Span(frame.f_code.co_filename, frame.f_lineno)
