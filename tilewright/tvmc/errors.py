"""The error of this room."""

from __future__ import annotations

from ..ir.errors import TVMError

__all__ = ["TVMCException"]


class TVMCException(TVMError):
    """A model, package or input that a step cannot work with: which file, why, and what to do."""
