"""The inputs and results of a graph function by name, with the sizes as the model declares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ..ir.module import IRModule
from ..runtime.container import tuple_object
from ..runtime.model import TensorSpec
from ..runtime.ndarray import NDArray
from ..runtime.words import Words
from .expr import Function
from .ty import Any as AnySize
from .ty import TensorType, TupleType, tensor_fields

_WORDS: Final = ("string_words", "string_inputs", "string_outputs")  # attributes of a function with strings
OUTPUT_NAMES: Final = "output_tensor_names"  # attribute of a function: the name of each of its results


def with_output_names(fn: Function, names: Iterable[str]) -> Function:
    """The function with names for its results; an empty name stands for none."""
    given = list(names)
    return fn.with_attr(OUTPUT_NAMES, given) if any(given) else fn


def output_names(fn: Function, count: int) -> list[str]:
    """A name for each of the `count` results of a function: the model's, otherwise `output_0`, `output_1`, …"""
    given: Sequence[Any] = (fn.attrs or {}).get(OUTPUT_NAMES) or ()
    if len(given) != count:  # the results were changed after the import
        given = [""] * count
    return [str(name) or f"output_{i}" for i, name in enumerate(given)]


def with_words(fn: Function, words: Words) -> Function:
    """The function of a model with strings, of which it takes and returns numbers."""
    for key, value in zip(_WORDS, words, strict=True):
        fn = fn.with_attr(key, sorted(value) if isinstance(value, frozenset) else list(value))
    return fn


def words_of(fn: Function) -> Words | None:
    """The strings of a model, if it has any."""
    found = [(fn.attrs or {}).get(key) for key in _WORDS]
    if all(v is None for v in found):
        return None
    known, inputs, outputs = ([str(w) for w in v or ()] for v in found)
    return Words(tuple(known), frozenset(inputs), frozenset(outputs))


def interface_of(mod: IRModule) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs and results of `main` of a typed module; of a `main` over other values than tensors, none."""
    main = next((f for gv, f in mod.functions.items() if gv.name_hint == "main"), None)
    if not isinstance(main, Function):
        return (), ()
    kinds = [(p.name_hint, p.checked_type) for p in main.params]
    result = main.body.checked_type
    if not all(is_tensors(kind) for _, kind in (*kinds, ("", result))):
        return (), ()
    fields = tensor_fields(result)
    results = zip(output_names(main, len(fields)), fields, strict=True)
    return (
        tuple(spec for name, kind in kinds for spec in _specs(name, kind)),
        tuple(_spec(name, kind) for name, kind in results),
    )


def is_tensors(kind: Any) -> bool:
    """Whether a value of a type is a tensor, or a tuple of such values."""
    return isinstance(kind, TensorType) or (isinstance(kind, TupleType) and all(map(is_tensors, kind.fields)))


def _specs(name: str, kind: Any) -> list[TensorSpec]:
    """The tensors of a parameter; those of a tuple are `x.0`, `x.1`, …"""
    if isinstance(kind, TensorType):
        return [_spec(name, kind)]
    return [_spec(f"{name}.{i}", field) for i, field in enumerate(tensor_fields(kind))]


def _spec(name: str, kind: TensorType) -> TensorSpec:
    return TensorSpec(name, str(kind.dtype), tuple(_size(d) for d in kind.shape))


def _size(size: Any) -> int | str | None:
    """A size as the user knows it: a number, the text of an expression over names, or None for any."""
    if isinstance(size, int):
        return int(size)
    return None if isinstance(size, AnySize) else str(size).replace("T.", "")


def shaped(kind: Any, tensors: Iterable[NDArray]) -> Any:
    """A value of a type, made of its tensors in order."""
    return _shaped(kind, iter(tensors))


def _shaped(kind: Any, tensors: Iterator[NDArray]) -> Any:
    if isinstance(kind, TupleType):
        return tuple_object([_shaped(f, tensors) for f in kind.fields])
    return next(tensors)
