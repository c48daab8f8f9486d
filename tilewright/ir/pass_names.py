"""The names of passes: those that exist, those of the classic API that are absent, and those that programs make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..absent import text_of
from ..homes import homes_of
from .errors import TVMError, UnsupportedError, near_matches
from .say_once import say_once

# Passes that the classic API calls by another name in a context than in its factories.
_OTHER_NAMES: Final = {
    "CombineParallelConv2d": "CombineParallelConv2D",
    "InlineGlobals": "Inline",
    "QnnCanonicalize": "qnn.CanonicalizeOps",
    "QnnLegalize": "qnn.Legalize",
    "qnn.Canonicalize": "qnn.CanonicalizeOps",
}
_known: Final[set[str]] = set()


class UnknownPassError(TVMError, ValueError):
    """A PassContext names a pass that does not exist."""


def note_pass_name(name: str) -> None:
    """Register the name of a pass."""
    _known.add(name)


def as_named_here(name: str) -> str:
    """The name here of a pass of the classic API."""
    return _OTHER_NAMES.get(name, name)


def check_pass_names(names: Iterable[str], what: str) -> None:
    """Refuse names that no pass has: a misspelled one would silently have no effect.

    A pass of the classic API that is absent cannot be required; disabling it has no effect, which is a warning.
    """
    for name in sorted(names):
        homes = homes_of("passes")  # these modules register their passes when they are loaded
        while name not in _known and next(homes, None):
            pass
        if name in _known:
            continue
        home = "tir.transform." if name.startswith("tir.") else "relay.transform."
        told = text_of(home + name.removeprefix("tir."))
        if told is None:
            near = near_matches(name, _known).partition(" Known are")[0]
            raise UnknownPassError(
                f"PassContext({what}=[{name!r}]): there is no pass of that name{near} "
                "Create a pass of your own before the context, so that its name is known"
            )
        if what == "required_pass":
            raise UnsupportedError(f"PassContext({what}=[{name!r}]): {told}")
        say_once(f"PassContext({what}=[{name!r}]) does nothing: {told}")
