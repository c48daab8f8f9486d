"""Marks of stages that only accelerators understand, and their refusal by other targets."""

from __future__ import annotations

from ..ir.errors import LoweringError

_ENGINE_MARKS = ("alu", "coproc_scope", "dma_copy", "vector_unit")


def refuse_engine_mark(key: str, target: str) -> None:
    """Refuse a mark that gives a statement to an engine of an accelerator, for a target without engines."""
    name = key.removeprefix("pragma_")
    if name in _ENGINE_MARKS:
        raise LoweringError(
            f"a stage is marked by {name!r} for an engine of an accelerator, which {target} does not have: "
            "build for an accelerator, such as ext_dev, or leave the mark out"
        )
