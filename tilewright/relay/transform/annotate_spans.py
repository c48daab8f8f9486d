"""AnnotateSpans: source locations for programs that were not parsed from text."""

from __future__ import annotations

from ...ir.module import IRModule
from .rewriting import typed_pass


def annotate_spans(mod: IRModule) -> IRModule:
    """Print the module and parse it again: every call then has its line as its span."""
    from ..parser import parse  # which knows the operators

    return parse(mod.astext(show_meta_data=True), "GeneratedSource")


AnnotateSpans = typed_pass(annotate_spans, name="AnnotateSpans", opt_level=0, whole_module=True)
