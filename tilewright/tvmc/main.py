"""The classic home of the command line: `python -m tilewright.driver.tvmc compile …` is `tilewright compile …`."""

from __future__ import annotations

from collections.abc import Sequence

from .app import main as _main


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command, as given here or on the command line."""
    _main(argv, "tvmc")
