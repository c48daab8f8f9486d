"""The parameters of a program, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.dtype import DataType
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..tune.arguments import get_const_tuple


class ArgInfo:
    """A parameter; `TensorInfo` is the only kind."""

    def as_json(self) -> Any:
        raise NotImplementedError

    @staticmethod
    def from_json(json_obj: Any) -> TensorInfo:
        """The inverse of `as_json`."""
        return TensorInfo.from_json(json_obj)

    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[TensorInfo]:
        """The parameters of a function."""
        return [TensorInfo(b.dtype, get_const_tuple(b.shape)) for b in func.buffer_params()]

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[TensorInfo]:
        """The parameters of the function `main` of a module, or of its only function."""
        functions = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc)}
        if "main" not in functions and len(functions) != 1:
            raise ValueError(f"the module has no function main, and {len(functions)} others: it has no entry")
        return ArgInfo.from_prim_func(functions.get("main") or next(iter(functions.values())))


class TensorInfo(ArgInfo):
    """A tensor: its type and its shape."""

    def __init__(self, dtype: Any, shape: Sequence[int]) -> None:
        self.dtype, self.shape = DataType(dtype), tuple(int(d) for d in shape)

    def as_json(self) -> list[Any]:
        return ["TENSOR", str(self.dtype), list(self.shape)]

    @staticmethod
    def from_json(json_obj: Any) -> TensorInfo:
        kind, dtype, shape = json_obj
        if kind != "TENSOR":
            raise ValueError(f"a parameter is a TENSOR, not {kind!r}")
        return TensorInfo(dtype, shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorInfo) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((str(self.dtype), self.shape))

    def __repr__(self) -> str:
        return f'TensorInfo("{self.dtype}", {self.shape})'
