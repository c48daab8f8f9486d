"""The errors for users. Each names the object, the location, the reason and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..runtime.errors import DivisionByZeroError as DivisionByZeroError
from ..runtime.errors import OutOfBoundsError as OutOfBoundsError
from ..runtime.errors import TVMError as TVMError
from ..runtime.errors import UnsupportedError as UnsupportedError

if TYPE_CHECKING:
    from .span import Span


def near_matches(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: `; did you mean a or b? Known are: a, b, c`."""
    from difflib import get_close_matches  # only a failing program pays for it

    names = sorted(known)
    by_lower = {n.lower(): n for n in names}
    near = [by_lower[n] for n in get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    guess = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"{guess} Known are: {', '.join(names) or 'none'}"


class InternalError(TVMError):
    """A violated invariant of tilewright."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\nthis is a bug in tilewright, please report it with the program")


class OperandTypeError(TVMError, TypeError):
    """An operand or a field of a type that is not possible there."""


class OperandValueError(TVMError, ValueError):
    """An operand or a field with a value that is not possible there."""


class TensorExpressionError(TVMError, ValueError):
    """An invalid tensor expression."""


class ScheduleError(TVMError):
    """A schedule step that would change the result, or cannot be applied."""


class LoweringError(TVMError):
    """A program that the lowering pipeline does not support."""


class NestingError(TVMError, RecursionError):
    """A program that nests more deeply than can be walked."""


class BuildError(TVMError):
    """Code generation or linking failed."""


class TargetError(TVMError, ValueError):
    """A target that is unknown or contradictory."""


class FrontendError(TVMError, ValueError):
    """A model that cannot be imported: the file, the node and the reason."""


class DiagnosticError(TVMError):
    """Errors that were reported one by one before this one was raised."""


class ScriptError(DiagnosticError, SyntaxError):
    """A script that does not parse; `span` is the place, and `reason` what is wrong there."""

    def __init__(self, message: str = "", span: Span | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.msg = message  # what Python prints of a SyntaxError
        self.span, self.reason = span, reason or message
