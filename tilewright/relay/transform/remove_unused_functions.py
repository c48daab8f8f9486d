"""RemoveUnusedFunctions: functions without callers are removed."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ..analysis import post_order
from ..expr import Function
from .rewriting import typed_pass


def remove_unused_functions(mod: IRModule, entry_functions: Sequence[str] = ("main",)) -> IRModule:
    """Keep the entry functions and what they call, directly or not."""
    missing = [name for name in entry_functions if name not in mod]
    if missing:
        have = ", ".join(gv.name_hint for gv in mod.functions) or "none"
        raise TVMError(f"RemoveUnusedFunctions: there is no function {missing[0]!r}; the module has: {have}")
    live: set[GlobalVar] = set()
    stack = [mod.get_global_var(name) for name in entry_functions]
    while stack:
        gv = stack.pop()
        if gv in live or gv not in mod.functions:
            continue
        live.add(gv)
        f = mod.functions[gv]
        if isinstance(f, Function):
            stack += [at for at in post_order(f) if isinstance(at, GlobalVar)]
    if len(live) == len(mod.functions):
        return mod
    kept = {gv: f for gv, f in mod.functions.items() if gv in live}
    return IRModule(kept, mod.type_definitions, mod.attrs)


RemoveUnusedFunctions = typed_pass(
    remove_unused_functions, name="RemoveUnusedFunctions", opt_level=1, whole_module=True
)
