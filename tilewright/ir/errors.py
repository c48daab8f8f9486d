"""The errors that users meet. Each names the thing, the place, the reason and the remedy."""

from __future__ import annotations

__all__ = [
    "BuildError",
    "DiagnosticError",
    "InternalError",
    "LoweringError",
    "ScheduleError",
    "ScriptError",
    "TVMError",
    "TargetError",
    "TensorExpressionError",
    "UnsupportedError",
]


class TVMError(RuntimeError):
    """The base of every error that tilewright raises on its own account."""


class InternalError(TVMError):
    """Something that must hold inside tilewright does not."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\nthis is a bug in tilewright, please report it with the program")


class UnsupportedError(TVMError, NotImplementedError):
    """A name of the classic API that exists but does nothing yet."""


class TensorExpressionError(TVMError, ValueError):
    """A tensor expression that has no meaning."""


class ScheduleError(TVMError):
    """A schedule step that would change the result, or cannot be done."""


class LoweringError(TVMError):
    """A program that the lowering pipeline cannot take on."""


class BuildError(TVMError):
    """Code generation or linking failed."""


class TargetError(TVMError, ValueError):
    """A target that is unknown or contradictory."""


class ScriptError(TVMError, SyntaxError):
    """A script that does not parse."""


class DiagnosticError(TVMError):
    """Errors that were reported one by one before this one was raised."""
