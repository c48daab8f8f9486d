"""The reader of untrusted JSON, with limits on depth and length.

Python's own reader recurses for each bracket and raises five kinds of errors. This one limits the depth and length of a
text, and raises one kind of error, which names the file.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from .errors import LoadError

DEPTH: Final = 256  # nesting levels; the package writes about a dozen
SIZE: Final = 1 << 30  # bytes
_OTHER_BYTES: Final = bytes(set(range(256)) - set(b"[]{}"))
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read_json(
    text: str | bytes | bytearray | memoryview,
    where: str,
    error: type[Exception] = LoadError,
    *,
    size: int = SIZE,
) -> Any:
    """The value of a JSON text; raises `error` with `where` and the reason if it is invalid."""
    if len(text) > size:
        raise error(f"{where}: the JSON has {len(text):,} bytes, and at most {size:,} are read")
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if _deeper(raw):
            raise error(f"{where}: the JSON is nested more than {DEPTH} levels deep")
        return json.loads(text if isinstance(text, str) else raw.decode())
    except UnicodeError as bad:
        raise error(f"{where}: the text is not UTF-8: {bad}") from None
    except (ValueError, RecursionError) as bad:
        if isinstance(bad, error):
            raise
        raise error(f"{where}: this is not JSON: {bad}") from None


def as_table(data: Any, where: str) -> dict[str, Any]:
    """The metadata table of a library, given as such or as JSON."""
    read = data if isinstance(data, dict) else read_json(data, f"{where}: the library's metadata is damaged")
    if not isinstance(read, dict):
        raise LoadError(f"{where}: the library's metadata is damaged: it is not a table")
    return read


def _deeper(raw: bytes) -> bool:
    """Whether brackets are nested more than DEPTH deep. Strings are skipped only if the count with them exceeds it."""
    if raw.count(b"[") + raw.count(b"{") <= DEPTH:
        return False
    import numpy as np

    steps = np.array([1 if c in b"[{" else -1 for c in range(256)], np.int64)
    for shown in (raw, None):
        if shown is None:
            shown = _STRINGS.sub(b"", raw)
        brackets = shown.translate(None, _OTHER_BYTES)
        if brackets.count(b"[") + brackets.count(b"{") <= DEPTH:
            return False
        if np.cumsum(steps[np.frombuffer(brackets, np.uint8)]).max() <= DEPTH:
            return False
    return True
