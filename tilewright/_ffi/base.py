"""The classic home of the base error, and of the conversion of C's text."""

from ..runtime.errors import TVMError

__all__ = ["TVMError", "py_str"]


def py_str(x: bytes) -> str:
    """Bytes in UTF-8 as text."""
    return x.decode("utf-8")
