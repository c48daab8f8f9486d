"""The importer of PyTorch models: `capture.py` brings a model to one form, `importer.py` walks it, `table.py` says how
to write a converter, and the other files convert one family of operators each."""

from __future__ import annotations

from .importer import from_exported_program, from_pytorch, supported_operators

__all__ = ["from_exported_program", "from_pytorch", "supported_operators"]
