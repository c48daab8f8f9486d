"""The files of converters, one for each family of operators."""

from __future__ import annotations

from importlib import import_module

_FAMILIES = (
    "math", "shape", "reduce", "nn", "norm", "index", "image", "quant", "rnn", "control", "scan", "sequence", "signal",
    "counting", "training", "microsoft",
)  # fmt: skip


def load() -> None:
    """Enter all converters into the table."""
    for name in _FAMILIES:
        import_module(f"{__package__}.{name}")
