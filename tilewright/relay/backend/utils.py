"""Names of compiled models."""

from __future__ import annotations


def mangle_module_name(mod_name: str | None) -> str:
    """The prefix of a model's functions: default -> tvmgen_default"""
    if not mod_name:
        return "tvmgen"
    if not mod_name.isascii() or not all(c.isalnum() or c in "_- " for c in mod_name):
        raise ValueError(
            f"the name of a model is of ASCII letters, digits, _, - and spaces, not {mod_name!r}"
        )
    return f"tvmgen_{mod_name}"
