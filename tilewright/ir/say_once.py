"""Warnings about requests without effect, each once per process."""

from __future__ import annotations

import sys
import warnings
from typing import Final

_PACKAGE: Final = __name__.partition(".")[0]
_said: Final[set[str]] = set()


class IgnoredWarning(UserWarning):
    """An option or a name of the classic API that is accepted and does nothing here."""


def say_once(text: str, category: type[Warning] = IgnoredWarning) -> None:
    """Warn about `what` at the line of the user's program, once per process."""
    if text in _said:
        return
    _said.add(text)
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, category, stacklevel=depth)
