"""Static analyses of loop programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir import functor as _functor
from ...ir.equal import structural_equal
from ...ir.errors import TVMError
from ...ir.expr import Call, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.op import Op
from ...ir.stmt import BufferStore
from .effects import can_trap, has_effect, is_pure, side_effect
from .lca import detect_buffer_access_lca, find_anchor_block
from .measure import (
    calculate_allocated_bytes,
    calculate_constant_bytes,
    calculate_workspace_bytes,
    estimate_tir_flops,
)
from .oob import OOBChecker, check_bounds
from .regions import get_block_access_region, get_block_read_write_region
from .verify import verify_gpu_code, verify_memory, verify_ssa, verify_well_formed

__all__ = [
    "OOBChecker",
    "assert_pure_function",
    "calculate_allocated_bytes",
    "calculate_constant_bytes",
    "calculate_workspace_bytes",
    "can_trap",
    "check_bounds",
    "detect_buffer_access_lca",
    "estimate_tir_flops",
    "expr_deep_equal",
    "find_anchor_block",
    "get_block_access_region",
    "get_block_read_write_region",
    "has_effect",
    "is_pure",
    "is_pure_function",
    "side_effect",
    "undefined_vars",
    "verify_gpu_code",
    "verify_memory",
    "verify_ssa",
    "verify_well_formed",
]


class ImpureFunctionError(TVMError, AssertionError, ValueError):
    """A function with an effect that its caller can observe."""


def undefined_vars(node: Any, defs: Iterable[Var] = ()) -> list[Var]:
    """The variables that `node` uses and does not define, less those in `defs`."""
    return _functor.undefined_vars(node, defs)


def expr_deep_equal(lhs: PrimExpr, rhs: PrimExpr) -> bool:
    """Whether two expressions are the same, over the very same variables."""
    return structural_equal(lhs, rhs)


def _effects(func: PrimFunc) -> list[str]:
    found = []
    for m in pre_order(func.body):
        if isinstance(m, BufferStore) and m.buffer.data in {b.data for b in func.buffer_map.values()}:
            found.append(f"it writes to {m.buffer.name}")
        elif isinstance(m, Call) and not _returns(m) and side_effect(m) > 2:
            found.append(f"it calls `{m}`")
    return found


def _returns(m: Call) -> bool:
    """Whether a call hands a value to the caller, and has no effect of its own; what it hands over is looked at too."""
    return isinstance(m.op, Op) and m.op.short_name == "ret"


def is_pure_function(func: PrimFunc) -> bool:
    """Whether a call of the function has no effect that its caller can observe."""
    return not _effects(func)


def assert_pure_function(func: PrimFunc) -> bool:
    """Raise ImpureFunctionError with the first effect of the function, if it has one."""
    found = _effects(func)
    if found:
        raise ImpureFunctionError(
            f"{func.attrs.get('global_symbol', 'the function')} is not pure: {found[0]}"
        )
    return True
