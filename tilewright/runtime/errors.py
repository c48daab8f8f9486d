"""The base error of the package. It lives here because a deployed runtime needs nothing else."""

from __future__ import annotations

__all__ = ["DivisionByZeroError", "LoadError", "OutOfBoundsError", "TVMError"]


class TVMError(RuntimeError):
    """The base of every error that tilewright raises on its own account."""


class OutOfBoundsError(TVMError, IndexError):
    """An index in the data of a model that lies outside of the tensor that it indexes."""


class DivisionByZeroError(TVMError, ZeroDivisionError):
    """A zero in the data of a model by which integers are to be divided."""


class LoadError(TVMError, ValueError):
    """A file that cannot be loaded: not one of ours, damaged, or made for another machine."""
