"""The syntax of shapes on the command line: `data:[1,3,224,224] mask:[1,-1] ids:int64[1,128]`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from ..relay.ty import Any as AnySize
from ..runtime.dtypes import ELEMENTS
from .errors import TVMCException

_ONE = re.compile(
    r"\s*,?\s*(?P<name>[^\s,\[\]]+)\s*:\s*(?P<dtype>[a-z][a-z0-9_]*)?\s*\[(?P<sizes>[^\[\]]*)\]"
)
_FORM = (
    'write "name:[1,3,224,224]", or "name:int64[1,128]" with the type, several with spaces between; '
    "-1 is a dynamic size"
)


class ShapeError(TVMCException, argparse.ArgumentTypeError):
    """A text that is not a list of shapes."""


def parse_shape_string(inputs_string: str) -> dict[str, Any]:
    """The shapes by name, as (shape, type) where there is a type; a size of -1 or ? is `relay.Any()`."""
    found: dict[str, Any] = {}
    at = 0
    while inputs_string[at:].strip(" \t\n,"):
        match = _ONE.match(inputs_string, at)
        if match is None:
            raise ShapeError(
                f"shapes {inputs_string!r}: {inputs_string[at:].strip()!r} is not a shape; {_FORM}"
            )
        name, at = match["name"], match.end()
        if name in found:
            raise ShapeError(f"shapes {inputs_string!r}: {name!r} appears twice")
        texts = [t.strip() for t in match["sizes"].split(",")] if match["sizes"].strip() else []
        sizes = [_size(t, inputs_string) for t in texts]
        found[name] = (sizes, _dtype(match["dtype"], inputs_string)) if match["dtype"] else sizes
    if not found:
        raise ShapeError(f"shapes {inputs_string!r}: there is no shape in it; {_FORM}")
    return found


def _size(text: str, whole: str) -> Any:
    if text in ("?", "-1"):
        return AnySize()
    if not text.isascii() or not text.isdigit():
        raise ShapeError(f"shapes {whole!r}: {text!r} is not a size; {_FORM}")
    return int(text)


def _dtype(text: str, whole: str) -> str:
    if text not in ELEMENTS:
        raise ShapeError(f"shapes {whole!r}: {text!r} is not a type of elements; {_FORM}")
    return text
