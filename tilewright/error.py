"""The classic home of the errors."""

from .ir.errors import DiagnosticError, DivisionByZeroError, InternalError, OutOfBoundsError, TVMError

__all__ = [
    "DiagnosticError",
    "DivisionByZeroError",
    "InternalError",
    "OpError",
    "OutOfBoundsError",
    "TVMError",
]

OpError = TVMError
