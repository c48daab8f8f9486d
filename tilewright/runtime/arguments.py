"""Arguments of compiled functions: their conversion, and the errors for arguments that do not fit.

Every error names the function, the argument by position and name, the expected and the actual value, and where
possible a remedy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from . import dlpack
from .devices import Device
from .dtypes import ELEMENTS, held_as
from .errors import ArgumentTypeError, ArgumentValueError
from .layout import Layout, layout_of
from .metadata import BufferParam, Dim, FunctionInfo, dim_text, names_in, overlap_text
from .ndarray import NDArray, host_layout, refuse_masked

_REMEMBERED = 1024
# Cached layouts by NumPy's and torch's own metadata, for speed. For NumPy only arrays that support the buffer protocol:
# dense, writable, not empty, of a built-in type. It gives the address in a fifth of the time.
_numpy_layouts: dict[tuple[object, ...], Layout] = {}
_torch_layouts: dict[tuple[object, ...], Layout] = {}


def scalar_range(dtype: str) -> tuple[int, int] | None:
    """The least and greatest value of an integer type, None for the others."""
    kind = ELEMENTS.get(dtype)
    if kind is None or not kind.is_integer:
        return None
    return (
        (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if kind.dl_code == 0 else (0, (1 << kind.bits) - 1)
    )


def _torch_view(tensor: Any) -> tuple[Layout, int, object]:
    """Layout and address of a torch tensor, read directly: DLPack would cost ten times as much."""
    if tensor.requires_grad:
        raise ArgumentValueError(
            "the tensor requires a gradient, which compiled code does not track; pass x.detach()"
        )
    if tensor.layout is not sys.modules["torch"].strided:
        raise ArgumentValueError(f"the tensor has layout {tensor.layout}; pass a dense one: x.to_dense()")
    if tensor.is_neg():  # complex tensors, which could be lazily conjugated, are not supported
        raise ArgumentValueError("the tensor is a lazy negative; pass x.resolve_neg()")
    key = (tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
    layout = _torch_layouts.get(key)
    if layout is None:
        if len(_torch_layouts) >= _REMEMBERED:
            _torch_layouts.clear()
        layout = _torch_layouts[key] = _torch_layout(*key)
    address = tensor.data_ptr()
    if address == 0 and layout.size:
        raise ArgumentValueError(f"the tensor's data pointer is null although its shape is {layout.shape}")
    return layout, address, None


def _torch_layout(dtype: Any, shape: Any, strides: Any, device: Any) -> Layout:
    mask = Device.STR2MASK.get(device.type)
    if mask is None:
        raise ArgumentValueError(
            f"the tensor lives on torch device {device.type!r}, which has no memory to work on"
        )
    index = device.index or 0 if mask != 1 else 0
    return layout_of(str(dtype).removeprefix("torch."), tuple(shape), tuple(strides), mask, index)


def view(argument: Any) -> tuple[Layout, int, object]:
    """Layout, address, and owner (to be kept alive during the call) of any array."""
    if isinstance(argument, np.ndarray):
        refuse_masked(argument)
        layout, address = host_layout(argument)
        return layout, address, None
    if isinstance(argument, NDArray):
        return argument._tw_layout, argument._tw_ptr, None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(argument, torch.Tensor):
        return _torch_view(argument)
    if hasattr(argument, "__dlpack__") and not isinstance(argument, np.generic):
        taken = dlpack.borrow(argument)
        return taken.layout, taken.address, taken
    raise TypeError


def in_order(what: str, names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The arguments of a call by position; parameters that share a name are given in order."""
    if len(args) > len(names):
        raise ArgumentTypeError(f"{what} takes {len(names)} arguments ({', '.join(names)}), not {len(args)}")
    found: dict[int, Any] = dict(enumerate(args))
    for name, value in named.items():
        if name not in names:
            raise ArgumentTypeError(f"{what} has no parameter {name!r}; it has {', '.join(names) or 'none'}")
        if names.count(name) > 1:
            raise ArgumentTypeError(
                f"{what} has several parameters {name!r}; give them in order, without names"
            )
        if names.index(name) in found:
            raise ArgumentTypeError(f"the argument {name!r} of {what} was given twice")
        found[names.index(name)] = value
    missing = [n for i, n in enumerate(names) if i not in found]
    if missing:
        raise ArgumentTypeError(f"{what} was not given {', '.join(missing)}")
    return [found[i] for i in range(len(names))]


_MOST_STEPS = 100_000  # limit of the search for an element that two views share; it takes milliseconds


def share_elements(a: Layout, at: int, b: Layout, there: int) -> bool:
    """Whether two arrays on a device share an element, or may do so: for some strided views this is not decided."""
    if at + a.low >= there + b.high or there + b.low >= at + a.high:
        return False
    if a.strides is None and b.strides is None:
        return bool(a.size and b.size)
    try:
        steps: Any = _MOST_STEPS
        return np.shares_memory(_Strided(a, at).array(), _Strided(b, there).array(), max_work=steps)
    except np.exceptions.TooHardError:
        return True


class _Strided:
    """An array interface for NumPy whose memory is never accessed: it may be a device's."""

    def __init__(self, layout: Layout, address: int) -> None:
        size = ELEMENTS[layout.dtype].itemsize if layout.dtype in ELEMENTS else 8
        self.__array_interface__ = {
            "shape": layout.shape,
            "strides": tuple(stride * size for stride in layout.all_strides()),
            "typestr": f"|V{size}",
            "data": (address, True),
            "version": 3,
        }

    def array(self) -> np.ndarray[Any, Any]:
        return np.asarray(self)


class ArgumentErrors:
    """The slow paths of one function's launcher: unusual arguments, and error messages."""

    def __init__(self, info: FunctionInfo) -> None:
        self.info = info
        self._sources = info.sources()

    def _where(self, index: int) -> str:
        return f"{self.info.name}: argument {index + 1} (`{self.info.params[index].name}`)"

    def _buffer(self, index: int) -> BufferParam:
        param = self.info.params[index]
        assert isinstance(param, BufferParam)
        return param

    def _expected(self, index: int) -> str:
        """A parameter as the signature has it: `float32[m, n * 2 + 1]`."""
        param = self._buffer(index)
        return f"{param.dtype}[{', '.join(dim_text(dim) for dim in param.shape)}]"

    # -- taking arguments --------------------------------------------------------------------
    def take(self, index: int, argument: Any) -> tuple[Layout, int, object]:
        """Layout and address of an argument that should be an array."""
        if argument.__class__ is np.ndarray and argument.flags.writeable:
            key = (argument.dtype, argument.shape, argument.strides)
            layout = _numpy_layouts.get(key)
            if layout is not None:
                start = ctypes.c_char.from_buffer(argument)  # type: ignore[arg-type]
                return layout, ctypes.addressof(start), None
            taken = self._take(index, argument)
            if taken[0].strides is None and taken[0].size and argument.dtype.isbuiltin == 1:
                if len(_numpy_layouts) >= _REMEMBERED:
                    _numpy_layouts.clear()
                _numpy_layouts[key] = taken[0]
            return taken
        return self._take(index, argument)

    def _take(self, index: int, argument: Any) -> tuple[Layout, int, object]:
        try:
            return view(argument)
        except TypeError as error:
            reason = f": {error}" if str(error) else ""
            raise ArgumentTypeError(
                f"{self._where(index)} must be an array {self._expected(index)}, "
                f"got {type(argument).__name__}{_short(argument)}{reason}"
            ) from None
        except (ValueError, BufferError, RuntimeError) as error:
            raise ArgumentValueError(f"{self._where(index)} cannot be used: {error}") from error

    def take_scalar(self, index: int, argument: Any) -> Any:
        """The C value of an argument that should be a number (or an address)."""
        dtype = self.info.params[index].dtype
        if dtype == "handle":
            return self._address(index, argument)
        value = argument
        if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", None) == ():
            value = value.item()
        elif not isinstance(value, (int, float)) and isinstance(getattr(value, "value", None), (int, float)):
            value = value.value  # a constant of the IR
        limits = scalar_range(dtype)
        if limits is not None:
            return self._integer(index, argument, value, limits)
        if dtype == "bool" and isinstance(value, int) and value in (0, 1):
            return int(value)
        if dtype != "bool" and isinstance(value, (int, float)):
            return _encode(float(value), dtype)
        self._not_scalar(index, argument)

    def _integer(self, index: int, argument: Any, value: Any, limits: tuple[int, int]) -> int:
        if not hasattr(value, "__index__"):
            self._not_scalar(index, argument)
        number = int(value.__index__())
        if not limits[0] <= number <= limits[1]:
            dtype = self.info.params[index].dtype
            raise ArgumentValueError(
                f"{self._where(index)} is {number}, but {dtype} holds only {limits[0]} to {limits[1]}"
            )
        return number

    def _not_scalar(self, index: int, argument: Any) -> NoReturn:
        raise ArgumentTypeError(
            f"{self._where(index)} must be a number of type {self.info.params[index].dtype}, "
            f"got {type(argument).__name__}{_short(argument)}"
        )

    def _address(self, index: int, argument: Any) -> int | None:
        if argument is None:
            return None
        if isinstance(argument, ctypes.c_void_p):
            return argument.value
        if isinstance(argument, int):
            return argument
        try:
            return view(argument)[1]
        except TypeError:
            raise ArgumentTypeError(
                f"{self._where(index)} must be a handle: an address, None, a ctypes pointer or an array, "
                f"got {type(argument).__name__}"
            ) from None

    # -- refusals ------------------------------------------------------------------------------
    def arity(self, args: tuple[Any, ...]) -> NoReturn:
        wanted = len(self.info.params)
        what = "1 argument" if wanted == 1 else f"{wanted} arguments"
        raise ArgumentTypeError(f"{self.info.signature} takes {what}, got {len(args)}")

    def kind(self, index: int, layout: Layout) -> None:
        """Device, type, rank and permission to write."""
        param = self._buffer(index)
        device = Device(layout.device_type, layout.device_id)
        if Device.STR2MASK.get(param.device) != layout.device_type:
            raise ArgumentValueError(
                f"{self._where(index)} must be on device {param.device}, got an array on {device}; "
                f"copy it there first"
            )
        if layout.dtype != param.dtype and held_as(layout.dtype) != param.dtype:
            raise ArgumentTypeError(
                f"{self._where(index)} must have dtype {param.dtype}, got {layout.dtype}; convert it first"
            )
        if len(layout.shape) != len(param.shape):
            raise ArgumentValueError(
                f"{self._where(index)} must have {_dimensions(len(param.shape))} ({self._expected(index)}), "
                f"got {_dimensions(len(layout.shape))}: shape {layout.shape}"
            )
        if "w" in param.access and not layout.writeable:
            raise ArgumentValueError(
                f"{self._where(index)} is written by the function, got a read-only array; "
                "pass a writable copy"
            )

    def one_device(self, *layouts: Layout) -> None:
        """All arrays must be on the same device."""
        numbers = {layout.device_id for layout in layouts}
        if len(numbers) > 1:
            placed = ", ".join(str(Device(layout.device_type, layout.device_id)) for layout in layouts)
            raise ArgumentValueError(
                f"{self.info.name}: the arrays are on several devices: {placed}; copy them to one first"
            )

    def dimension(self, index: int, layout: Layout, axis: int, names: dict[str, int]) -> NoReturn:
        dim = self._buffer(index).shape[axis]
        raise ArgumentValueError(
            f"{self._where(index)} must have shape {self._expected(index)}, got shape {layout.shape}: "
            f"dimension {axis} is {layout.shape[axis]}, expected {self._explain(dim, names)}"
        )

    def stride(self, index: int, layout: Layout, axis: int, names: dict[str, int]) -> NoReturn:
        param = self._buffer(index)
        assert param.strides is not None
        wanted = ", ".join(dim_text(dim) for dim in param.strides)
        raise ArgumentValueError(
            f"{self._where(index)} must have strides [{wanted}] in elements, got {layout.all_strides()}: "
            f"stride {axis} is {layout.all_strides()[axis]}, "
            f"expected {self._explain(param.strides[axis], names)}"
        )

    def not_dense(self, index: int, layout: Layout) -> NoReturn:
        raise ArgumentValueError(
            f"{self._where(index)} must be dense row-major, got an array of shape {layout.shape} "
            f"with strides {layout.all_strides()} in elements; pass a contiguous copy"
        )

    def misaligned(self, index: int, layout: Layout, address: int, align: int) -> None:
        """Refuse an address that is not a multiple of `align`; that of an empty array does not matter."""
        if address % align and layout.size:
            raise ArgumentValueError(
                f"{self._where(index)} must be aligned to {align} bytes, got address {address:#x}, "
                f"aligned to {address & -address}; copy it with nd.array(x), which aligns to 64"
            )

    def overlap(
        self, index: int, layout: Layout, address: int, other: int, its: Layout, at: int, same: bool
    ) -> None:
        """Refuse an array that is written and shares elements with another; views may interleave and share none."""
        if same and address == at and layout.all_strides() == its.all_strides():
            return
        if share_elements(layout, address, its, at):
            names = [param.name for param in self.info.params]
            raise ArgumentValueError(f"{self.info.name}: {overlap_text(names, index, other, same)}")

    def all_apart(self, arrays: tuple[tuple[int, Layout, int], ...]) -> None:
        """Refuse if one of many arrays is written and shares elements with another, a neighbour in memory."""
        params, together = self.info.params, self.info.all_apart or frozenset()
        before: list[tuple[int, int, Layout, int]] = []  # arrays that extend past the start of the next one
        for index, layout, address in sorted(arrays, key=lambda a: a[2] + a[1].low):
            before = [entry for entry in before if entry[0] > address + layout.low]
            for _, other, its, at in before:
                for pair in (
                    (index, layout, address, other, its, at),
                    (other, its, at, index, layout, address),
                ):
                    param = params[pair[0]]
                    if isinstance(param, BufferParam) and "w" in param.access:
                        self.overlap(*pair, (pair[0], pair[3]) in together)
                        break
            before.append((address + layout.high, index, layout, address))

    def too_large(self, symbol: int, value: int) -> NoReturn:
        name, dtype = self.info.symbols[symbol].name, self.info.symbols[symbol].dtype
        index, kind, axis = self._sources[name]
        raise ArgumentValueError(
            f"{self._where(index)}: {kind} {axis} is {value}, too large for the size {name} of type {dtype}"
        )

    def evaluate(self, index: int, axis: int, names: dict[str, int], stride: bool = False) -> int:
        """The value of a dimension that divides."""
        param = self._buffer(index)
        dim = (param.strides or ())[axis] if stride else param.shape[axis]
        try:
            return _evaluate(dim, names)
        except ZeroDivisionError:
            values = ", ".join(f"{name} = {value}" for name, value in names.items())
            raise ArgumentValueError(
                f"{self._where(index)}: dimension {axis} is {dim_text(dim)}, "
                f"which divides by zero for {values}"
            ) from None

    def _explain(self, dim: Dim, names: dict[str, int]) -> str:
        """An expected size with its origin: `n = 4 (dimension 0 of argument 1, `A`)`."""
        if isinstance(dim, int):
            return str(dim)
        if isinstance(dim, str):
            return f"{dim} = {names[dim]} ({self._origin(dim)})"
        parts = "; ".join(f"{name} = {names[name]}: {self._origin(name)}" for name in sorted(names_in(dim)))
        return f"{dim_text(dim)} = {_evaluate(dim, names)} ({parts})"

    def _origin(self, name: str) -> str:
        if name not in self._sources:
            position = next(i for i, param in enumerate(self.info.params) if param.name == name)
            return f"argument {position + 1}"
        index, kind, axis = self._sources[name]
        what = "dimension" if kind == "shape" else "stride"
        return f"{what} {axis} of argument {index + 1}, `{self.info.params[index].name}`"


def _evaluate(dim: Dim, names: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return names[dim]
    op, left, right = dim[0], _evaluate(dim[1], names), _evaluate(dim[2], names)
    if op == "+":
        return left + right
    if op == "-":
        return left - right
    if op == "*":
        return left * right
    if op == "//":
        return left // right
    if op == "%":
        return left % right
    return min(left, right) if op == "min" else max(left, right)


def _encode(value: float, dtype: str) -> float | int:
    """A float for a C call: float32 and float64 unchanged, narrower types as their bits."""
    if dtype in ("float32", "float64"):
        return value
    kind = ELEMENTS[dtype]
    return int(np.array(value, kind.numpy).view(f"u{kind.itemsize}"))


def decoder(dtype: str | None) -> Callable[[Any], Any]:
    """The conversion of a C result to a Python value, the inverse of `_encode`."""
    kind = ELEMENTS.get(dtype or "")
    if kind is None or dtype in ("float32", "float64") or kind.is_integer:
        return lambda value: value
    if dtype == "bool":
        return bool
    return lambda bits: float(np.array(bits, f"u{kind.itemsize}").view(kind.numpy))


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count} dimensions"


def _short(value: Any) -> str:
    """The value in parentheses, if it is short."""
    if value is None:
        return ""
    try:
        text = repr(value)
    except Exception:
        return ""
    return f" ({text})" if len(text) <= 40 and "\n" not in text else ""
