"""Binding of arguments: arrays of any origin as buffers, and the symbolic sizes that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import Add, Cast, Mul, PrimExpr, Sub, Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import undefined_vars
from . import scalars
from .memory import Memory, Pointer


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """A NumPy array that shares the memory of an array of any origin; None if the value is not an array."""
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "untyped_storage"):
        return _torch_array(value)
    if isinstance(value, (np.generic, int, float, str)) or value is None:
        return None
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value.numpy()) if hasattr(value, "numpy") else None


def _torch_array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor's memory; types that NumPy lacks are seen through integers of the same size."""
    plain, name = tensor.detach(), str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes
        import torch

        stand_in = torch.int16 if name == "bfloat16" else torch.uint8
        return plain.view(stand_in).numpy().view(np.dtype(getattr(ml_dtypes, name)))  # type: ignore[no-any-return]
    return plain.numpy()  # type: ignore[no-any-return]


class Arguments:
    """The values of a function's parameters, and of the variables in its buffers' shapes."""

    def __init__(self, func: PrimFunc, name: str) -> None:
        self.func, self.name = func, name
        self.values: dict[Var, Any] = {}
        self.origin: dict[Var, str] = {}  # where a size came from, for reports
        self.copies: list[tuple[Any, np.ndarray[Any, Any]]] = []  # arrays whose memory could not be shared

    def bind(self, args: Sequence[Any], units: Any, written: Any, outputs: tuple[str, ...]) -> None:
        """Match all arguments. `units` gives a pointer's cell size, `written` whether it is stored to."""
        func = self.func
        if len(args) != len(func.params):
            raise TypeError(f"{self.name} takes {len(func.params)} arguments, {len(args)} were given")
        for p, value in zip(func.params, args):
            if p not in func.buffer_map and not p.dtype.is_handle:
                self.values[p] = self._scalar(p, value)
                self.origin[p] = f"argument {p.name}"
        pending: list[tuple[Buffer, str, PrimExpr, int]] = []
        for p, value in zip(func.params, args):
            if p in func.buffer_map:
                b = func.buffer_map[p]
                made = self._buffer(b, value, units(b.data), written(b.data), b.name in outputs, pending)
                self.values[p] = self.values[b.data] = made
            elif p.dtype.is_handle:
                self.values[p] = self._handle(p, value, units(p))
        self._solve(pending)

    def finish(self) -> None:
        """Copy results back to arrays whose memory could not be shared."""
        for target, array in self.copies:
            target.copyfrom(array)

    # -- scalars -----------------------------------------------------------------------------
    def _scalar(self, p: Var, value: Any) -> Any:
        kind = p.dtype
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        known = const_value(value) if isinstance(value, PrimExpr) else value
        if not isinstance(known, (int, float)):
            raise TypeError(f"{self.name}: argument {p.name} is a {kind}, {type(value).__name__} was given")
        if kind.is_float:
            return scalars.rounding(kind)(known)
        if kind.is_bool:
            return bool(known)
        if int(known) != known or not kind.low <= known <= kind.high:
            raise ValueError(f"{self.name}: argument {p.name} is a {kind}, which cannot be {known}")
        return int(known)

    def _handle(self, p: Var, value: Any, unit: int) -> Any:
        array = as_array(value)
        if array is None:
            return value
        kind = DataType(str(array.dtype))
        return Pointer(Memory(p.name, kind, array.shape, self._flat(p.name, array), unit))

    # -- arrays ------------------------------------------------------------------------------
    def _wrong(self, b: Buffer, reason: str) -> ValueError:
        return ValueError(f"{self.name}: argument for buffer {b.name}: {reason}")

    def _buffer(
        self,
        b: Buffer,
        value: Any,
        unit: int,
        written: bool,
        unwritten: bool,
        pending: list[tuple[Buffer, str, PrimExpr, int]],
    ) -> Pointer:
        if isinstance(value, Pointer):
            if isinstance(b.elem_offset, Var):
                pending.append((b, "elem_offset", b.elem_offset, 0))
            return value
        array = as_array(value)
        if array is None:
            raise TypeError(
                f"{self.name}: argument for buffer {b.name}: {type(value).__name__} is not an array"
            )
        if (
            array is not value
            and hasattr(value, "copyfrom")
            and not np.shares_memory(array, np.asarray(value))
        ):
            self.copies.append((value, array))
        shape, strides = self._checked(b, array)
        if written and not array.flags.writeable:
            raise self._wrong(b, "the array is read-only, and the function writes it")
        for d, (have, want) in enumerate(zip(b.shape, shape)):
            pending.append((b, f"shape[{d}]", have, want))
        for d, (have, want) in enumerate(zip(b.strides, strides)):
            pending.append((b, f"strides[{d}]", have, want))
        pending.append((b, "elem_offset", b.elem_offset, 0))
        raw = self._flat(b.name, array)
        return Pointer(Memory(b.name, b.dtype, shape, raw, unit, b.scope_name, unwritten))

    def _checked(self, b: Buffer, array: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides in elements of the buffer, after type and rank are known to agree."""
        shape, kind = array.shape, scalars.numpy_type(b.dtype)
        if array.dtype != kind:
            raise self._wrong(b, f"its type is {array.dtype}, the buffer's is {b.dtype}")
        strides = array.strides
        if b.dtype.lanes > 1:
            if not shape or shape[-1] != b.dtype.lanes:
                raise self._wrong(b, f"{b.dtype} needs a last dimension of {b.dtype.lanes}")
            shape, strides = shape[:-1], strides[:-1]
        if len(shape) != len(b.shape):
            raise self._wrong(b, f"it has {len(shape)} dimensions, the buffer {len(b.shape)}")
        if not b.strides and not array.flags.c_contiguous:
            raise self._wrong(b, "the array is not dense, and the buffer declares no strides")
        if any(s % b.dtype.nbytes or s < 0 for s in strides):
            raise self._wrong(
                b, f"strides of {strides} bytes are not positive multiples of the size of {b.dtype}"
            )
        return shape, tuple(s // b.dtype.nbytes for s in strides)

    def _flat(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The bytes from the first element to the last, gaps included."""
        if array.size == 0:
            return np.zeros(0, np.uint8)
        if array.ctypes.data % array.dtype.alignment:
            raise ValueError(f"{self.name}: argument for {name}: its memory is not aligned to {array.dtype}")
        last = sum((n - 1) * s for n, s in zip(array.shape, array.strides))
        size = last // array.itemsize + 1
        # stride tricks know only NumPy's own types, so the elements go by as words of their size
        words = array.view(f"u{array.itemsize}") if array.itemsize <= 8 else array
        flat = np.lib.stride_tricks.as_strided(
            words, (size,), (array.itemsize,), writeable=array.flags.writeable
        )
        return flat.view(np.uint8)

    # -- sizes -------------------------------------------------------------------------------
    def _solve(self, pending: list[tuple[Buffer, str, PrimExpr, int]]) -> None:
        """Solve for the variables in shapes, strides and offsets; contradictions are refused."""
        while pending:
            rest = []
            for b, what, have, want in pending:
                unknown = [v for v in undefined_vars(have) if v not in self.values]
                if not unknown:
                    self._same(b, what, have, want)
                elif not self._invert(have, want, b, what):
                    rest.append((b, what, have, want))
            if len(rest) == len(pending):
                b, what, have, want = rest[0]
                raise self._wrong(b, f"{what} is `{have}`, which does not follow from the arguments")
            pending = rest

    def _same(self, b: Buffer, what: str, have: PrimExpr, want: int) -> None:
        value = self._evaluate(have)
        if value != want:
            why = [
                f"{v.name} = {self.values[v]} by {self.origin[v]}"
                for v in undefined_vars(have)
                if v in self.origin
            ]
            says = f"`{have}`" + (f" ({', '.join(why)})" if why else "")
            raise self._wrong(b, f"its {what} is {want}, the buffer's is {says}")

    def _evaluate(self, e: PrimExpr) -> int | None:
        from .program import evaluate

        if isinstance(e, Var):
            return int(self.values[e])
        number = const_value(e)
        if number is not None:
            return int(number)
        known = {v: self.values[v] for v in undefined_vars(e)}
        return int(evaluate(e, known))

    def _invert(self, e: PrimExpr, want: int, b: Buffer, what: str) -> bool:
        """Solve `e == want` for its only unknown variable, if possible."""
        if isinstance(e, Var):
            if what.startswith("shape") and want < 0:
                return False
            self.values[e] = want
            self.origin[e] = f"{b.name}.{what}"
            return True
        if isinstance(e, Cast):
            return self._invert(e.value, want, b, what)
        if isinstance(e, (Add, Sub, Mul)):
            for x, y, second in ((e.a, e.b, False), (e.b, e.a, True)):
                if any(v not in self.values for v in undefined_vars(y)):
                    continue
                other = self._evaluate(y)
                if other is None:
                    continue
                if isinstance(e, Add):
                    return self._invert(x, want - other, b, what)
                if isinstance(e, Sub):
                    return self._invert(x, other - want if second else want + other, b, what)
                if other and want % other == 0:
                    return self._invert(x, want // other, b, what)
        return False
