"""How tensor expressions refuse: the operation, the reason, the user's line, a way out."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..ir.errors import TensorExpressionError
from ..ir.span import Span, user_span

_PACKAGE = str(Path(__file__).resolve().parent.parent)
# The operation whose lambda is running, so that an error inside it can name it.
_current: ContextVar[str] = ContextVar("tilewright_te_operation", default="")


@contextmanager
def building(what: str) -> Iterator[None]:
    """Errors raised inside are told as errors of `what`, say "te.compute `C`"."""
    token = _current.set(what)
    try:
        yield
    finally:
        _current.reset(token)


def refuse(
    reason: str, hint: str = "", what: str | None = None, span: Span | None = None
) -> TensorExpressionError:
    """The error to raise.

    te.compute `C`: `A` has 2 dimensions and is indexed with 3: A[i, j, k]
      at model.py:6
      hint: …
    """
    what = _current.get() if what is None else what
    lines = [f"{what}: {reason}" if what else reason]
    place = span or user_span()
    if place is not None:
        lines.append(f"  at {place}")
    if hint:
        lines.append(f"  hint: {hint}")
    return TensorExpressionError("\n".join(lines))


def blame(error: Exception, before: str = "") -> TensorExpressionError | None:
    """An error that the expression classes raised, retold with the user's line; None if it is not theirs."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return None
    user = [(f, line) for f, line in frames if not f.f_code.co_filename.startswith(_PACKAGE)]
    span = Span(user[-1][0].f_code.co_filename, user[-1][1]) if user else user_span()
    text = str(error)
    if "'ProducerLoad' object is not subscriptable" in text:
        return refuse("a tensor is indexed with more indices than it has dimensions", span=span)
    if user and user[-1][0] is frames[-1][0]:
        return None
    return refuse(before + text, span=span)


def shape_text(shape: Sequence[Any]) -> str:
    """A shape as Python writes it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def shown(value: Any) -> str:
    """A value as an error names it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
