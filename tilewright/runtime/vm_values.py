"""Values of programs of the virtual machine: tensors, functions, data and references, and what a program's text calls
for them."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import numpy as np

from .arguments import view
from .container import ADT, RefValue, tuple_object
from .dtypes import ELEMENTS
from .errors import ArgumentTypeError, ArgumentValueError, TVMError
from .layout import Layout, layout_of
from .ndarray import NDArray, _make, array, numpyasarray
from .pool import Pool, Storage
from .recursion import deep_calls
from .shape_functions import SHAPE_FUNCTIONS
from .vm_sizes import LARGEST

DEPTH: Final = 50_000  # most nested calls

Tensor = tuple[int, tuple[int, ...], str, Any]  # address, shape, type of elements, owner of the memory


class Closure:
    """A function as a value, with its captured variables."""

    __slots__ = ("arity", "captured", "function", "tensors")
    captured: tuple[Any, ...]
    tensors: HostTensors  # of the program that returned it

    def __init__(self, function: Callable[..., Any], arity: int) -> None:
        self.function, self.arity = function, arity

    def __call__(self, *args: Any) -> Any:
        """The result for arguments from outside."""
        if len(args) != self.arity:
            raise ValueError(f"the function takes {self.arity} arguments, got {len(args)}")
        with deep_calls(DEPTH):
            tensors = self.tensors
            return tensors.result(called(self.function(*self.captured, *map(tensors.as_it_is, args))))


class Data:
    """A value of an algebraic data type: the tag of its constructor, and its fields."""

    __slots__ = ("fields", "tag")

    def __init__(self, tag: int, fields: list[Any]) -> None:
        self.tag, self.fields = tag, fields


class Cell:
    """A mutable reference to a value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Tail:
    """A tail call, which the caller makes, so that loops use no stack."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args


def called(value: Any) -> Any:
    """The result of a call, after its tail calls."""
    while value.__class__ is Tail:
        value = value.function(*value.args)
    return value


class Missing(Exception):
    """A call of a kernel that is not compiled yet. Functions have no side effects: they are called again afterwards."""

    def __init__(self, number: int) -> None:
        self.number = number


# ---------------------------------------------------------------------------- tensors
class HostTensors:
    """The tensors of a program in the memory of the CPU: its arguments, its results, and the memory for the others."""

    device_type = 1

    def __init__(self) -> None:
        self.pool = Pool()

    def callbacks(self) -> dict[str, Any]:
        """What the text of a program calls, by name."""
        return {
            "take": self.pool.take, "truth": ctypes.c_uint8.from_address, "shapes": shapes_of, "update": _update,
            "put": put_rows,
        }  # fmt: skip

    # -- arguments -----------------------------------------------------------------------------------
    def taken(self, value: Any, kind: Any, name: str) -> Any:
        """An argument in the form that the program expects; an array that is not dense or aligned is copied."""
        if kind[0] == "function":
            if not isinstance(value, Closure):
                raise ArgumentTypeError(f"argument {name!r} must be a function, got {type(value).__name__}")
            return value
        if kind[0] == "value":
            return self.as_it_is(value)
        if kind[0] == "tuple":
            fields = list(value)
            if len(fields) != len(kind[1]):
                raise ArgumentValueError(
                    f"argument {name!r} must be a tuple of {len(kind[1])}, got {len(fields)} values"
                )
            return [
                self.taken(v, k, f"{name}[{i}]") for i, (v, k) in enumerate(zip(fields, kind[1], strict=True))
            ]
        _, dtype, dims = kind
        if value.__class__ is not NDArray and not hasattr(value, "__dlpack__"):
            value = np.asarray(value)
            if value.dtype.name != dtype and value.ndim == 0:
                value = value.astype(ELEMENTS[dtype].numpy)
        if isinstance(value, np.generic):
            value = np.asarray(value)
        layout, address, keep = view(value)
        self.accept(layout, name)
        if layout.dtype != dtype:
            raise ArgumentTypeError(f"argument {name!r} must be of type {dtype}, got {layout.dtype}")
        if len(layout.shape) != len(dims) or any(
            d is not None and d != n for d, n in zip(dims, layout.shape, strict=True)
        ):
            wanted = ", ".join("?" if d is None else str(d) for d in dims)
            raise ArgumentValueError(
                f"argument {name!r} must have shape ({wanted}), got shape {layout.shape}"
            )
        return self.tensor(value, layout, address, keep)

    def accept(self, layout: Layout, name: str) -> None:
        """Refuse an argument on another device."""
        if layout.device_type != 1:
            raise ArgumentValueError(f"argument {name!r} must be on the CPU")

    def tensor(self, value: Any, layout: Layout, address: int, keep: object) -> Tensor:
        """The tensor of an argument."""
        if layout.strides is not None or address % ELEMENTS[layout.dtype].itemsize:
            return self.of_array(array(value))
        return address, layout.shape, layout.dtype, (value, keep)

    def as_it_is(self, value: Any) -> Any:
        """An argument whose type says nothing of its form: data, a tuple, a function or a tensor."""
        if isinstance(value, (Closure, Cell)):
            return value
        if isinstance(value, RefValue):
            return Cell(self.as_it_is(value.value))
        if isinstance(value, ADT):
            fields = [self.as_it_is(v) for v in value]
            return Data(value.tag, fields) if value.tag else fields
        if isinstance(value, (list, tuple)):
            return [self.as_it_is(v) for v in value]
        return self.of_array(value if isinstance(value, NDArray) else array(value))

    def constant(self, made: NDArray) -> Tensor:
        """A constant of the program."""
        return self.of_array(made)

    def before(self, given: Sequence[Any]) -> None:
        """Make the arguments of a call ready."""

    def of_array(self, made: NDArray) -> Tensor:
        """An array as a tensor."""
        return made._tw_ptr, made.shape, made.dtype, made

    def given(self, tensor: Tensor) -> Any:
        """The array of an argument: the caller's, with what it keeps alive, or a copy."""
        owner = tensor[3]
        return owner[0] if owner.__class__ is tuple else owner

    def values(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """A tensor's values for reading on the host."""
        return values_at(tensor)

    # -- results -------------------------------------------------------------------------------------
    def result(self, value: Any) -> Any:
        """A result for the caller."""
        if isinstance(value, list):
            return tuple_object([self.result(v) for v in value])
        if value.__class__ is Data:
            return ADT(value.tag, [self.result(v) for v in value.fields])
        if value.__class__ is Cell:
            return RefValue(self.result(value.value))
        if value.__class__ is Closure:
            value.tensors = self
        return self.array(value) if isinstance(value, tuple) else value

    def array(self, tensor: Tensor) -> NDArray:
        """A tensor as an array; one that is not from the pool is copied."""
        address, shape, dtype, owner = tensor
        values = values_at(tensor)
        if not isinstance(owner, Storage):
            return array(numpyasarray(values))
        return _make(layout_of(dtype, shape), address, values)


def values_at(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's values, in its memory."""
    address, shape, dtype, owner = tensor
    kind = ELEMENTS[dtype]
    size = kind.itemsize
    for d in shape:
        size *= d
    lease: Any = (ctypes.c_uint8 * size).from_address(address)
    lease.owner = owner  # the block is freed when no array uses it any more
    try:
        return np.ndarray(shape, kind.numpy, lease)
    except ValueError as error:
        raise TVMError(f"a tensor of shape {shape} cannot be an array: {error}") from None


def shapes_of(name: str, attrs: dict[str, Any], tensors: tuple[Tensor, ...], count: int) -> list[int]:
    """The sizes that a shape function gives."""
    return shapes(name, attrs, [values_at(t) for t in tensors], count)


def shapes(name: str, attrs: dict[str, Any], values: list[Any], count: int) -> list[int]:
    """The sizes that a shape function gives for arrays."""
    try:
        found = SHAPE_FUNCTIONS[name](SimpleNamespace(**attrs), values)
        sizes = [operator.index(d) for shape in found for d in shape]
    except TVMError as error:
        raise TVMError(f"{name}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TVMError(f"{name}: its arguments have no shape: {error}") from error
    if len(sizes) != count:
        raise TVMError(f"{name}: its result has {len(sizes)} sizes, and the program takes {count}")
    if sizes and not 0 <= min(sizes) <= max(sizes) < LARGEST:
        negative(min(sizes) if min(sizes) < 0 else max(sizes))
    return sizes


def _update(cache: Tensor, rows: Tensor) -> None:
    """Overwrite the last elements of an argument with those of another tensor."""
    size, new = written(cache, rows, _own(cache))
    ctypes.memmove(cache[0] + size - new, rows[0], new)


def put_rows(cache: Tensor, rows: Tensor, positions: Tensor) -> None:
    """Overwrite rows of an argument; a negative position counts from its end."""
    size, new = written(cache, rows, _own(cache))
    places = rows_of(cache, rows, positions)
    room, count = cache[1][0], len(places)
    for i, at in enumerate(places):
        ctypes.memmove(cache[0] + at * (size // room), rows[0] + i * (new // count), new // count)


def rows_of(cache: Tensor, rows: Tensor, positions: Tensor) -> list[int]:
    """The rows of a cache at positions, whose values are on the host."""
    kind, count = positions[2], math.prod(positions[1])
    if (
        kind not in ("int32", "int64")
        or not cache[1]
        or rows[1][:1] != (count,)
        or cache[1][1:] != rows[1][1:]
    ):
        raise TVMError(
            f"a KV cache of shape {cache[1]} cannot take rows {rows[1]} at {count} positions of {kind}"
        )
    number = ctypes.c_int32 if kind == "int32" else ctypes.c_int64
    room = cache[1][0]
    places = list((number * count).from_address(positions[0])) if count else []
    for at in places:
        if not -room <= at < room:
            raise ArgumentValueError(f"a KV cache of {room} rows has no row {at}")
    return [at % room for at in places]


def _own(cache: Tensor) -> Any:
    """The caller's array, which was not copied."""
    return cache[3][0] if cache[3].__class__ is tuple else None


def written(cache: Tensor, rows: Tensor, value: Any) -> tuple[int, int]:
    """The bytes of an argument that is written, and those of the rows that it takes. The caller's array is `value`."""
    _, shape, dtype, _ = cache
    if value is None or (isinstance(value, np.ndarray) and not value.flags.writeable):
        raise ArgumentValueError(
            f"a KV cache of shape {shape} is written in place: it must be a contiguous array that may be written"
        )
    size, new = (math.prod(s) * ELEMENTS[dtype].itemsize for s in (shape, rows[1]))
    if rows[2] != dtype or new > size:
        raise TVMError(f"a KV cache of {dtype} and shape {shape} cannot take rows of {rows[2]}: {rows[1]}")
    return size, new


def missing(number: int) -> NoReturn:
    raise Missing(number)


def differ(a: int, b: int, text: str) -> NoReturn:
    raise TVMError(f"{text}: {a} and {b} must be the same")


def small(size: int, least: int, text: str) -> NoReturn:
    raise TVMError(f"{text} does not fit into a size of {size}, which must be at least {least}")


def negative(size: int) -> NoReturn:
    what = "small" if size < 0 else "large"
    raise TVMError(f"a tensor has a size of {size}: the inputs are too {what} for the program")


def too_large(size: int, kernel: str) -> NoReturn:
    raise TVMError(f"a tensor has a size of {size}, and the kernel {kernel} takes only smaller sizes")


def misfit(operand: int, wanted: str) -> NoReturn:
    where = f"register {operand}" if operand >= 0 else "an instruction"
    raise TVMError(f"the program is damaged: {where} does not have {wanted}")


def fits(value: Any, kind: Any) -> None:
    """Refuse a value that is not of the type that a function's parameter has."""
    if not _is_of(value, kind):
        raise TVMError(f"the program is damaged: an argument of a function should be {kind}, and is not one")


def _is_of(value: Any, kind: Any) -> bool:
    if kind[0] in ("function", "value"):
        return True
    if kind[0] == "tuple":
        return (
            value.__class__ is list
            and len(value) == len(kind[1])
            and all(_is_of(v, k) for v, k in zip(value, kind[1], strict=True))
        )
    if value.__class__ is not tuple or value[2] != kind[1] or len(value[1]) != len(kind[2]):
        return False
    return all(d is None or d == n for d, n in zip(kind[2], value[1], strict=True))


def no_clause(text: str) -> NoReturn:
    raise TVMError(text)


def no_case(text: str, sizes: tuple[int, ...]) -> NoReturn:
    raise TVMError(f"{text}: {' and '.join(map(str, sizes))} do not broadcast")
