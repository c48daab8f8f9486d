"""The importer of JAX functions: `capture.py` traces a function to a jaxpr, `importer.py` walks it, `table.py` says how
to write a converter, and the other files convert one family of primitives each."""

from __future__ import annotations

from .importer import from_jax, supported_primitives

__all__ = ["from_jax", "supported_primitives"]
