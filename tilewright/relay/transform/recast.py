"""recast: chosen operators of a graph computed in another type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...ir.module import IRModule
from .. import op as R
from ..expr import Call, Tuple
from .infer_type import infer_module, infer_type
from .rewriting import Mutator, name_of, tensor_type

_PRODUCTS: Final = ("nn.conv2d",)  # the default of the classic function


def recast(
    expr: Any,
    dtype: str,
    out_dtype: str,
    ops: Iterable[str] | None = None,
    skip_layers: Sequence[int] | None = None,
) -> Any:
    """Compute some operators on operands of `dtype`, with results of `out_dtype` that are cast back.

        nn.conv2d(%x, %w)     ->     cast(nn.conv2d(cast(%x, "int8"), cast(%w, "int8"), out_dtype="int32"), "float32")

    Layers are counted from 0 in the order in which they are computed; a negative number counts from the last one.
    """
    wanted = tuple(_PRODUCTS if ops is None else ops)
    typed = infer_module(expr) if isinstance(expr, IRModule) else infer_type(expr)
    if isinstance(typed, IRModule):
        made = typed.clone()
        made["main"] = _recast(typed["main"], dtype, out_dtype, wanted, skip_layers or ())
        return infer_module(made)
    return infer_type(_recast(typed, dtype, out_dtype, wanted, skip_layers or ()))


def _recast(expr: Any, dtype: str, out_dtype: str, ops: tuple[str, ...], skip: Sequence[int]) -> Any:
    from ..analysis import post_order

    layers = [at for at in post_order(expr) if name_of(at) in ops]
    left = {layers[i] for i in skip if -len(layers) <= i < len(layers)}
    return _Recast({at for at in layers if at not in left}, dtype, out_dtype).visit(expr)


class _Recast(Mutator):
    def __init__(self, layers: set[Any], dtype: str, out_dtype: str) -> None:
        super().__init__()
        self.layers, self.dtype, self.out_dtype = layers, dtype, out_dtype

    def visit_call(self, at: Call) -> Any:
        new = super().visit_call(at)
        if at not in self.layers:
            return new
        before = tensor_type(at)
        attrs = dict(new.attrs.items()) if new.attrs is not None else {}
        if "out_dtype" in attrs:
            attrs["out_dtype"] = self.out_dtype
        made = Call(new.op, [self.cast(a) for a in new.args], attrs, None, new.span)
        return made if before is None else R.cast(made, dtype=before.dtype)

    def cast(self, value: Any) -> Any:
        if isinstance(value, Tuple):
            return Tuple([self.cast(f) for f in value.fields], value.span)
        kind = tensor_type(value)
        return R.cast(value, dtype=self.dtype) if kind is not None else value
