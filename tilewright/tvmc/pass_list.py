"""Names of passes on the command line: `--disabled-pass FoldScaleAxis,FuseOps`."""

from __future__ import annotations

import argparse

from ..relay import transform as relay_transform
from ..tir import transform as tir_transform
from .errors import TVMCException


class PassListError(TVMCException, argparse.ArgumentTypeError):
    """A name that is not the name of a pass."""


def _known() -> list[str]:
    own = {n for n in dir(relay_transform) if n[0].isupper()}
    return sorted(own | {f"tir.{n}" for n in dir(tir_transform) if n[0].isupper()})


def parse_pass_list_str(input_string: str) -> list[str]:
    """The names of passes in a text, separated by commas; names that no pass has are refused."""
    names = [name.strip() for name in input_string.split(",")]
    known = _known()
    if missing := [n for n in names if n and n not in known]:
        raise PassListError(f"there is no pass {', '.join(missing)}; there are {', '.join(known)}")
    return names
