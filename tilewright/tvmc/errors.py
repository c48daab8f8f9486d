"""The error of tvmc."""

from __future__ import annotations

from ..ir.errors import TVMError


class TVMCException(TVMError):
    """A model, package or input that a step cannot work with: which file, why, and what to do."""


class TVMCImportError(TVMCException):
    """A framework that a model comes from and that is not installed."""
