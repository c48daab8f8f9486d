"""CanonicalizeCast: each user gets its own cast, so that it can be fused."""

from __future__ import annotations

from typing import Any

from .. import op as R
from ..analysis import use_counts
from ..expr import Call, Function
from ..op.registry import OpPattern, RelayOp
from .rewriting import Mutator, is_call, typed_pass


def canonicalize_cast(func: Function) -> Function:
    """Duplicate a widening cast for each call that reads it.

        %0 = cast(%x, "int32");                   %0 = cast(%x, "int32");
        %1 = add(%0, 1); %2 = add(%0, 2)    ->    %1 = add(%0, 1); %3 = cast(%x, "int32"); %2 = add(%3, 2)

    A value in 8 bits that is read twice then moves as 8 bits, and is widened inside each fused group.
    """
    return _Cast(use_counts(func)).visit(func)


class _Cast(Mutator):
    def __init__(self, uses: dict[Any, int]) -> None:
        super().__init__()
        self.uses, self.given = uses, set()  # type: ignore[var-annotated]

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if not isinstance(call.op, RelayOp) or call.op.pattern > OpPattern.INJECTIVE:
            return new
        args = list(new.args)
        for i, old in enumerate(call.args):
            if is_call(old, R.cast) and self.uses[old] > 1:
                if old in self.given and isinstance(args[i], Call):
                    args[i] = Call(args[i].op, args[i].args, args[i].attrs, args[i].type_args, args[i].span)
                self.given.add(old)
        return new.over(args)


CanonicalizeCast = typed_pass(canonicalize_cast, name="CanonicalizeCast", opt_level=3)
