"""Generation token by token: a network whose KV caches are written in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..relay.build_module import as_target
from ..relay.interface import output_names
from ..relay.transform.cache_in_place import Cache, caches_in_place
from ..relay.transform.infer_type import infer_module
from ..relay.ty import tensor_fields
from ..runtime.arguments import in_order
from ..runtime.dtypes import ELEMENTS
from ..runtime.errors import ArgumentValueError
from .building import compiled
from .sources import source_of

_ALIGNMENT = 64


class Decoder:
    """A network that takes the keys and values of the past and returns them with new ones, as an object with state.

        decoder = Decoder(program, max_length=1024)     # of torch.export: (ids, past…) -> (logits, present…)
        decoder.start(past)                             # the caches after the prompt, in the order of the inputs
        logits = decoder(ids)                           # one step: its keys and values are written into the caches

    A cache is an input to which the network joins new rows along a dynamic dimension, and which it returns so. It is
    allocated once, for `max_length` rows (1024); a step writes its rows in place, and attention reads as many as there
    are. A cache is also an input or a buffer of fixed size into which the network writes rows at positions that it is
    given or counts, as the StaticCache of transformers has it: `max_length` is its number of rows.
    Other buffers that the network changes are kept from step to step (`states`).
    `model`, `example`, `dynamic` and `params` are those of `tilewright.compile`.
    """

    def __init__(
        self,
        model: Any,
        example: Any = None,
        max_length: int | None = None,
        *,
        target: Any = None,
        dynamic: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        source, _ = source_of(model, example, dynamic, params, state=True)
        mod = infer_module(source.mod).clone()
        mod["main"], self.caches = caches_in_place(mod["main"])
        self.name, self.past = source.name, 0
        if not self.caches:
            raise ArgumentValueError(
                f"{self.name}: there is no KV cache in it: no input that is joined with new rows along a dynamic "
                "dimension, and returned so (export it with the length of the past as a dynamic size), and no input or "
                "buffer into which rows are written at positions"
            )
        self.max_length = self._room(max_length)
        self.step = self.caches[0].step
        if any(c.step != self.step for c in self.caches):
            raise ArgumentValueError(f"{self.name}: its caches grow by different numbers of rows")
        if self.max_length < self.step:
            raise ArgumentValueError(
                f"max_length={self.max_length}: a step of {self.name} has {self.step} rows"
            )
        self._results = _names_of_results(mod["main"])
        inputs = {p.name_hint for p in mod["main"].params}
        kept = {c.name for c in self.caches} | {n for n in self._results if n in inputs}
        weights = {n: v for n, v in source.params.items() if n not in kept}
        self._initial = {n: np.asarray(v) for n, v in source.params.items() if n in kept}
        self.model = compiled(mod, weights, self.name, as_target(target))
        self.buffers = {c.name: _buffer(c, self.max_length) for c in self.caches}
        self.states: dict[str, Any] = dict.fromkeys(n for n in self._results if n in kept)
        self._names = [t.name for t in self.model.inputs if t.name not in self.buffers | self.states]
        self.start()

    def _room(self, wanted: int | None) -> int:
        """The number of rows that the caches have."""
        rows = {c.rows for c in self.caches}
        if len(rows) > 1:
            raise ArgumentValueError(
                f"{self.name}: its caches have different numbers of rows: "
                + ", ".join(f"{c.name} {c.rows or 'any'}" for c in self.caches)
            )
        (fixed,) = rows
        if fixed is not None and wanted not in (None, fixed):
            raise ArgumentValueError(f"max_length={wanted}: the caches of {self.name} have {fixed} rows")
        return fixed or (1024 if wanted is None else wanted)

    def start(self, past: Any = ()) -> None:
        """Begin after a past, given by its keys and values: by name, or in the order of the inputs.

        A network that counts its steps in a buffer of its own is given that by name too.
        """
        names = [t.name for t in self.model.inputs if t.name in self.buffers | self.states]
        given = dict(past) if isinstance(past, Mapping) else dict(zip(names, past, strict=bool(len(past))))
        if given and set(given) != set(names):
            raise ArgumentValueError(
                f"{self.name}: the caches are {', '.join(names)}, and {', '.join(given)} are given"
            )
        for t in self.model.inputs:
            if t.name in self.states:
                self.states[t.name] = self._state(t, given.get(t.name, self._initial.get(t.name)))
        rows = {}
        for cache in self.caches if given else ():
            value = np.transpose(np.asarray(given[cache.name]), cache.order)
            if value.shape[1:] != cache.row or len(value) > self.max_length:
                raise ArgumentValueError(
                    f"{self.name}: {cache.name} has rows of shape {cache.row} and at most {self.max_length} of them; "
                    f"it was given {len(value)} rows of shape {value.shape[1:]}"
                )
            rows[cache.name] = value
        if len({len(v) for v in rows.values()}) > 1:
            raise ArgumentValueError(f"{self.name}: all caches have the same number of rows")
        for name, value in rows.items():
            self.buffers[name][: len(value)] = value
        for cache in () if rows else self.caches:
            if cache.rows is not None:  # rows that are not written yet are read, and masked
                self.buffers[cache.name][:] = 0
        self.past = len(next(iter(rows.values()))) if rows else 0

    def _state(self, spec: Any, value: Any) -> Any:
        if value is None:
            return np.zeros(spec.shape, ELEMENTS[spec.dtype].numpy)
        if np.shape(value) != tuple(spec.shape):
            raise ArgumentValueError(
                f"{self.name}: {spec.name} has the shape {tuple(spec.shape)}, not {np.shape(value)}"
            )
        return np.asarray(value, ELEMENTS[spec.dtype].numpy)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of a step, without the caches, for its other inputs in order or by name."""
        rows = self.past + self.step
        if rows > self.max_length:
            raise ArgumentValueError(
                f"{self.name}: the caches are full: {self.past} of {self.max_length} rows; give a larger max_length"
            )
        given = dict(zip(self._names, in_order(self.name, self._names, args, kwargs), strict=True))
        values = [self._value(t.name, rows, given) for t in self.model.inputs]
        made = self.model(*values)
        self.past = rows
        if not self.states:
            return made
        named = list(zip(self._results, made if isinstance(made, (list, tuple)) else [made], strict=True))
        self.states = {n: np.asarray(v) for n, v in named if n in self.states}
        left = [v for n, v in named if n not in self.states]
        return left[0] if len(left) == 1 else left

    def _value(self, name: str, rows: int, given: Mapping[str, Any]) -> Any:
        """An input of a step that makes so many rows in all."""
        if name in self.states:
            return self.states[name]
        if name not in self.buffers:
            return given[name]
        whole = self.buffers[name]
        return whole if self.caches[0].rows is not None else whole[:rows]

    def cache(self, name: str) -> np.ndarray[Any, Any]:
        """The keys or values of the past, with dimensions as the network has them."""
        found = next((c for c in self.caches if c.name == name), None)
        if found is None:
            raise ArgumentValueError(
                f"{self.name}: there is no cache {name!r}; there are {', '.join(self.buffers)}"
            )
        back = [found.order.index(d) for d in range(len(found.order))]
        return np.transpose(self.buffers[name][: self.past], back)

    def __repr__(self) -> str:
        return f"Decoder({self.name}: {len(self.caches)} caches, {self.past} of {self.max_length} rows)"


def _names_of_results(main: Any) -> list[str]:
    return output_names(main, len(tensor_fields(main.body.checked_type)))


def _buffer(cache: Cache, rows: int) -> np.ndarray[Any, Any]:
    """Memory for the rows of a cache, aligned for vectors."""
    kind, shape = ELEMENTS[cache.dtype], (rows, *cache.row)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    at = -memory.ctypes.data % _ALIGNMENT
    return memory[at : at + size].view(kind.numpy).reshape(shape)
