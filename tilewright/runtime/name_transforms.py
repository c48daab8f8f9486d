"""Names that C accepts."""

from __future__ import annotations

import re

from .errors import TVMError


def sanitize_name(original_name: str) -> str:
    """woof:1 -> woof_1"""
    if not original_name:
        raise TVMError("Name is empty")
    return re.sub(r"[^A-Za-z0-9_]", "_", original_name)
