"""The classic home of the errors."""

from .ir.errors import DiagnosticError, InternalError, TVMError

__all__ = ["DiagnosticError", "InternalError", "OpError", "TVMError"]

OpError = TVMError
