"""ChangeDatatype: a graph with one element type in place of another."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from .. import op as R
from ..expr import Constant, Function, Var
from ..transform.rewriting import Mutator, typed_pass
from ..ty import TensorType, TupleType


def _change_datatype(func: Function, src: str, dst: str) -> Function:
    """Parameters, constants, and types in attributes of `src` become those of `dst`; constants are cast when it runs.

        fn (%x: Tensor[(3), float32]) { add(%x, 1f) }
    ->  fn (%x: Tensor[(3), custom[posit]32]) { add(%x, cast(1f, dtype="custom[posit]32")) }
    """
    made: Function = _Change(DataType(src), DataType(dst)).visit(func)
    return made


ChangeDatatype = typed_pass(_change_datatype, name="ChangeDatatype")


class _Change(Mutator):
    def __init__(self, src: DataType, dst: DataType) -> None:
        super().__init__()
        self.src, self.dst = src, dst
        self.names: dict[Var, Var] = {}

    def kind(self, kind: Any) -> Any:
        if isinstance(kind, TensorType) and kind.dtype == self.src:
            return TensorType(kind.shape, self.dst)
        if isinstance(kind, TupleType):
            return TupleType(tuple(self.kind(f) for f in kind.fields))
        return kind

    def visit_var(self, var: Var) -> Any:
        kind = self.kind(var.type_annotation)
        if kind is var.type_annotation:
            return var
        return self.names.setdefault(var, Var(var.name_hint, kind, var.span))

    def visit_constant(self, c: Constant) -> Any:
        return R.cast(c, dtype=str(self.dst)) if c.data.dtype == self.src else c

    def visit_call(self, call: Any) -> Any:
        new = super().visit_call(call)
        attrs = dict(new.attrs.items()) if new.attrs is not None else {}
        changed = {k: str(self.dst) for k, v in attrs.items() if k.endswith("dtype") and v == self.src}
        return new.replace(attrs={**attrs, **changed}) if changed else new
