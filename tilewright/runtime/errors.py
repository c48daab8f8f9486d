"""The base error of the package. It lives here because a deployed runtime needs nothing else."""

from __future__ import annotations

__all__ = ["LoadError", "TVMError"]


class TVMError(RuntimeError):
    """The base of every error that tilewright raises on its own account."""


class LoadError(TVMError, ValueError):
    """A file that cannot be loaded: not one of ours, damaged, or made for another machine."""
