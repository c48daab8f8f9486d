"""cuDNN is not used: generated kernels stand on their own."""

from __future__ import annotations


def exists() -> bool:
    """Whether operators may be handed to cuDNN: never."""
    return False
