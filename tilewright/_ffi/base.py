"""The classic home of the base error."""

from ..runtime.errors import TVMError

__all__ = ["TVMError"]
