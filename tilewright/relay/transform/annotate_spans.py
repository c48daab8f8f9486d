"""AnnotateSpans: places in the text of a program, for programs that were never text."""

from __future__ import annotations

from ...ir.module import IRModule
from .rewriting import typed_pass


def annotate_spans(mod: IRModule) -> IRModule:
    """Write the module as text and read it back: every call then knows its line there."""
    from ..parser import parse  # which knows the operators

    return parse(mod.astext(show_meta_data=True), "GeneratedSource")


AnnotateSpans = typed_pass(annotate_spans, name="AnnotateSpans", opt_level=0, whole_module=True)
