"""The function at which a module is entered."""

from __future__ import annotations

from ...ir.function import PrimFunc
from ...ir.module import IRModule


def annotate_entry_func(mod: IRModule) -> IRModule:
    """Mark the function at which the module is entered: the only one, or the only one with a symbol of its own.

    def main(): …      ->      def main():
                                   T.func_attr({"tir.is_entry_func": True})
    """
    funcs = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    exposed = [f for f in mod.functions.values() if "global_symbol" in getattr(f, "attrs", {})]
    entries = funcs if len(mod.functions) == 1 else exposed
    if len(entries) != 1 or entries[0] not in funcs:
        return mod
    entry = entries[0]
    return mod.map_functions(lambda f: f.with_attr("tir.is_entry_func", True) if f is entry else f)
