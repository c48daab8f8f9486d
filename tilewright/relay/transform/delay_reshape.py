"""DelayReshape: what is done with the results of a product comes before they are given another shape."""

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
    """For a GPU, let a product's kernel have what follows it element by element, where a reshape stands between.

        %0 = nn.matmul(%x, %w);                          %0 = nn.matmul(%x, %w);
        %1 = reshape(%0, newshape=[2, 64, 256]);   ->    %1 = nn.relu(add(%0, %b));
        nn.relu(add(%1, %b))                             reshape(%1, newshape=[2, 64, 256])

    Rows stay rows: the last dimension is the same before and after. For other targets nothing is changed.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.is_gpu:
        return func
    return _Delay().visit(func)  # type: ignore[no-any-return]


class _Delay(CallRewriter):
    def __init__(self) -> None:
        super().__init__(self.one)
        self.made: set[Any] = set()  # from products, element by element

    def one(self, op: Any) -> Any:
        """The rule for an operator: a product of matrices, what is done element by element, a reshape."""
        if op is R.reshape.op:  # type: ignore[attr-defined]
            return self.back
        matrices = op.traits.product and "kernel_layout" not in op.spec
        return self.product if matrices else self.rule if is_regular(op) else None

    def product(self, at: Call) -> None:
        self.made.add(at)

    def rule(self, at: Call) -> Any:
        """The reshape of what is computed without it."""
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
            args.reverse()  # as other passes look for it
        new = Call(at.op, args, at.attrs, at.type_args, at.span)
        self.made.add(new)
        return R.reshape(new, newshape=list(shape))

    def back(self, at: Call) -> Any:
        """What was given another shape, and the old one again."""
        e: Any = at.args[0]
        again = is_call(e, R.reshape) and static_shape(e.args[0]) == static_shape(at)
        return e.args[0] if again and e.args[0] in self.made else None

    def is_delayed(self, e: Any, shape: Any) -> bool:
        """Whether an operand is the results of a product in the shape that is wanted, rows as they were."""
        if not is_call(e, R.reshape) or e.args[0] not in self.made or static_shape(e) != shape:
            return False
        given = static_shape(e.args[0])
        return bool(given and shape and given[-1] == shape[-1])


def _beside(e: Any, shape: tuple[int, ...], before: tuple[int, ...]) -> Any:
    """Another operand, for the shape before: a number, one for each column, or as many as there are results."""
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
