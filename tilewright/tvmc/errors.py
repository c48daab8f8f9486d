"""The error of tvmc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..ir.errors import TVMError
from ..runtime.errors import LoadError


class TVMCException(TVMError):
    """A model, package or input that a step cannot work with: which file, why, and what to do."""


class TVMCImportError(TVMCException):
    """A framework that a model comes from and that is not installed."""


@contextmanager
def as_classic() -> Iterator[None]:
    """Raise errors of files as those of tvmc."""
    try:
        yield
    except LoadError as error:
        raise TVMCException(str(error)) from error.__cause__
