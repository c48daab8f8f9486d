"""LowerCustomDatatypes: numbers of types that the user has registered become their bits."""

from __future__ import annotations

from typing import Any

from ...homes import home_of
from ...ir.buffer import Buffer
from ...ir.dtype import DataType, custom_types
from ...ir.errors import LoweringError
from ...ir.expr import BinaryOp, Call, Cast, CmpOp, FloatImm, Let, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import Substitution, pre_order
from ...ir.stmt import Allocate, BufferStore, LetStmt
from ...ir.types import PointerType, PrimType
from ...runtime.registry import get_global_func


def lower_custom_datatypes(func: PrimFunc) -> PrimFunc:
    """Replace operations on types of the user's by what `target.datatype.register_op` says, and the types by uint.

        B[i] = A[i] + A[i]        (custom[posit]32)
    ->  B[i] = call_pure_extern("uint32", "Posit32Add", A[i], A[i])

    Needs: nothing. Gives: no type that is not the compiler's own.
    """
    if not custom_types() or not _uses_custom(func):
        return func
    target = home_of("targets").Target.current(allow_none=True)
    work = _Lowered("llvm" if target is None else target.kind.name)
    params = [work.variable(p) for p in func.params]
    table = {work.variable(p): work.visit_buffer(b) for p, b in func.buffer_map.items()}
    return func.replace(params=params, buffer_map=table, body=work.visit(func.body))


def _uses_custom(func: PrimFunc) -> bool:
    if any(b.dtype.is_custom for b in func.buffer_map.values()) or any(
        p.dtype.is_custom for p in func.params
    ):
        return True
    return any(isinstance(n, PrimExpr) and n.dtype.is_custom for n in pre_order(func.body))


def _bits_of(kind: DataType) -> DataType:
    return DataType(f"uint{kind.bits}").with_lanes(kind.lanes) if kind.is_custom else kind


def _name(kind: DataType) -> str:
    """A type without its number of bits: float, posit."""
    return kind.code[7:-1] if kind.is_custom else kind.code


def _visited(visit: Any, value: Any) -> Any:
    return (
        tuple(visit(v) for v in value)
        if isinstance(value, tuple)
        else visit(value)
        if value is not None
        else None
    )


class _Lowered(Substitution):
    def __init__(self, target: str) -> None:
        super().__init__({})
        self.target = target

    def variable(self, v: Var) -> Var:
        """A variable for the bits of a number, or for a pointer to such."""
        kind = v.type_annotation
        if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType):
            inner = DataType(kind.element_type.dtype)
            if not inner.is_custom:
                return v
            made = Var(v.name, PointerType(PrimType(_bits_of(inner)), kind.storage_scope))
        elif v.dtype.is_custom:
            made = Var(v.name, _bits_of(v.dtype))
        else:
            return v
        return self.table.setdefault(v, made)  # type: ignore[no-any-return]

    def visit_buffer(self, b: Buffer) -> Buffer:
        self.variable(b.data)
        known = b in self.buffers
        made = super().visit_buffer(b)
        if not known and made.dtype.is_custom:
            made = self.buffers[b] = made.replace(dtype=_bits_of(made.dtype))
        return made

    def lowered(self, path: str, made: PrimExpr, was: Any) -> PrimExpr:
        name = f"tvm.datatype.lower.{self.target}.{path}"
        found = get_global_func(name, allow_missing=True)
        if found is None:
            op = path.partition(".")[0]
            raise LoweringError(
                f"{was} of type {was.dtype}: it is not registered what this becomes on {self.target}; "
                f"target.datatype.register_op(…, {op!r}, {self.target!r}, …) registers the function {name}"
            )
        return self.visit_again(found(made), was)

    def visit_again(self, made: PrimExpr, was: Any) -> PrimExpr:
        if made.dtype.is_custom:
            raise LoweringError(
                f"what {was} becomes has the type {made.dtype}, and must have {_bits_of(made.dtype)}"
            )
        return made

    def visit(self, n: Any) -> Any:
        if isinstance(n, (BinaryOp, CmpOp)):
            made = n.map_children(self.visit)
            custom = n.a.dtype.is_custom
            return self.lowered(f"{type(n).__name__}.{_name(n.a.dtype)}", made, n) if custom else made
        return super().visit(n)

    def visit_BufferStore(self, n: BufferStore) -> BufferStore:
        made = {name: _visited(self.visit, getattr(n, name)) for name in n._fields if name != "buffer"}
        return n.updated(buffer=self.visit_buffer(n.buffer), **made)

    def visit_FloatImm(self, n: FloatImm) -> PrimExpr:
        return self.lowered(f"FloatImm.{_name(n.dtype)}", n, n) if n.dtype.is_custom else n

    def visit_Cast(self, n: Cast) -> PrimExpr:
        made = n.map_children(self.visit)
        if not n.dtype.is_custom and not n.value.dtype.is_custom:
            return made
        return self.lowered(f"Cast.{_name(n.dtype)}.{_name(n.value.dtype)}", made, n)

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        if not n.dtype.is_custom:
            return made
        name = str(getattr(n.op, "name", n.op))
        if name == "tir.type_annotation":
            return made.replace(dtype=_bits_of(n.dtype))
        full = name if name.startswith("tir.") else f"tir.{name}"
        return self.lowered(f"Call.intrin.{full}.{_name(n.dtype)}", made, n)

    def visit_Let(self, n: Let) -> PrimExpr:
        return Let(self.variable(n.var), self.visit(n.value), self.visit(n.body))

    def visit_LetStmt(self, n: LetStmt) -> LetStmt:
        return n.updated(var=self.variable(n.var), value=self.visit(n.value), body=self.visit(n.body))

    def visit_Allocate(self, n: Allocate) -> Allocate:
        var = self.variable(n.buffer_var)
        made = n.map_children(self.visit)
        return made.updated(buffer_var=var, dtype=_bits_of(n.dtype))
