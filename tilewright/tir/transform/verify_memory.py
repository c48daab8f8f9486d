"""Whether host code keeps off device memory."""

from __future__ import annotations

from ...ir.errors import LoweringError
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ..analysis.verify import verify_memory as _is_kept


def verify_memory(mod: IRModule) -> IRModule:
    """Refuse a module in which code of the host accesses the memory of a device; others stay as they are."""
    for var, func in mod.functions.items():
        if isinstance(func, PrimFunc) and not _is_kept(func):
            raise LoweringError(
                f"memory verification failed: function {var.name_hint} accesses the memory of "
                f"{func.attrs.get('target')} outside of its threads; did you forget to bind its loops?"
            )
    return mod
