"""DelayReshape: elementwise operators on the result of a product move before its reshape."""

from __future__ import annotations

import math
from typing import Any

from ...target import Target
from .. import op as R
from ..expr import Call, Function
from ..op.traits import is_regular, traits_of
from .axis_parts import shown
from .rewriting import CallRewriter, is_call, static_shape, typed_pass


def delay_reshape(func: Function) -> Function:
    """For a GPU, make the elementwise operators after a product its epilogue, past a reshape between them.

        %0 = nn.matmul(%x, %w);                          %0 = nn.matmul(%x, %w);
        %1 = reshape(%0, newshape=[2, 64, 256]);   ->    %1 = nn.relu(add(%0, %b));
        nn.relu(add(%1, %b))                             reshape(%1, newshape=[2, 64, 256])

    The last dimension must be the same before and after. Other targets are unchanged.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.is_gpu:
        return func
    return _Delay().visit(func)


class _Delay(CallRewriter):
    def __init__(self) -> None:
        super().__init__(self.one)
        self.made: set[Any] = set()  # elementwise results of products

    def one(self, op: Any) -> Any:
        """The rule of an operator: a matrix product, an elementwise operator, a reshape."""
        if op is R.reshape.op:  # type: ignore[attr-defined]
            return self.back
        matrices = op.traits.product and "kernel_layout" not in op.spec
        return self.product if matrices else self.rule if is_regular(op) else None

    def product(self, at: Call) -> None:
        self.made.add(at)

    def rule(self, at: Call) -> Any:
        """The reshape after the computation."""
        shape = static_shape(at)
        if any(a in self.made and static_shape(a) == shape for a in at.args):
            self.made.add(at)
            return None
        given: list[Any] = list(at.args)
        before = [a.args[0] for a in given if self.is_delayed(a, shape)]
        first = static_shape(before[0]) if before else None
        if shape is None or first is None or any(static_shape(b) != first for b in before):
            return None
        args = [a.args[0] if self.is_delayed(a, shape) else _beside(a, shape, first) for a in given]
        if any(a is None for a in args):
            return None
        if traits_of(at).commutes and not self.is_delayed(given[0], shape):
            args.reverse()  # the order that other passes match
        new = at.over(args)
        self.made.add(new)
        return R.reshape(new, newshape=list(shape))

    def back(self, at: Call) -> Any:
        """The operand of a reshape, and its original shape."""
        e: Any = at.args[0]
        again = is_call(e, R.reshape) and static_shape(e.args[0]) == static_shape(at)
        return e.args[0] if again and e.args[0] in self.made else None

    def is_delayed(self, e: Any, shape: Any) -> bool:
        """Whether an operand is a reshaped result of a product with unchanged rows."""
        if not is_call(e, R.reshape) or e.args[0] not in self.made or static_shape(e) != shape:
            return False
        given = static_shape(e.args[0])
        return bool(given and shape and given[-1] == shape[-1])


def _beside(e: Any, shape: tuple[int, ...], before: tuple[int, ...]) -> Any:
    """The other operand in the original shape: a scalar, one value per column, or a full tensor."""
    own = static_shape(e)
    if own is None:
        return None
    count = math.prod(own)
    if count == 1:
        return shown(e, ())
    if count == shape[-1] == own[-1]:
        return shown(e, own[-1:])
    return shown(e, before) if own == shape else None


DelayReshape = typed_pass(delay_reshape, name="DelayReshape", opt_level=2)
