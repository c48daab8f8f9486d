"""Generation token by token: a network whose KV caches are written in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..relay.build_module import as_target
from ..relay.transform.cache_in_place import Cache, caches_in_place
from ..relay.transform.infer_type import infer_module
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
    allocated once, for `max_length` rows; a step writes its rows in place, and attention reads as many as there are.
    `model`, `example`, `dynamic` and `params` are those of `tilewright.compile`.
    """

    def __init__(
        self,
        model: Any,
        example: Any = None,
        max_length: int = 1024,
        *,
        target: Any = None,
        dynamic: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        source, _ = source_of(model, example, dynamic, params)
        mod = infer_module(source.mod).clone()
        mod["main"], self.caches = caches_in_place(mod["main"])
        self.name, self.max_length, self.past = source.name, max_length, 0
        if not self.caches:
            raise ArgumentValueError(
                f"{self.name}: there is no KV cache in it: no input that is joined with new rows along a dynamic "
                "dimension, and returned so; export it with the length of the past as a dynamic size"
            )
        self.step = self.caches[0].step
        if any(c.step != self.step for c in self.caches):
            raise ArgumentValueError(f"{self.name}: its caches grow by different numbers of rows")
        if max_length < self.step:
            raise ArgumentValueError(f"max_length={max_length}: a step of {self.name} has {self.step} rows")
        self.model = compiled(mod, source.params, self.name, as_target(target))
        self.buffers = {c.name: _buffer(c, max_length) for c in self.caches}
        self._names = [t.name for t in self.model.inputs if t.name not in self.buffers]

    def start(self, past: Any = ()) -> None:
        """Begin after a past, given by its keys and values: by name, or in the order of the inputs."""
        names = [t.name for t in self.model.inputs if t.name in self.buffers]
        given = dict(past) if isinstance(past, Mapping) else dict(zip(names, past, strict=bool(len(past))))
        if given and set(given) != set(names):
            raise ArgumentValueError(
                f"{self.name}: the caches are {', '.join(names)}, and {', '.join(given)} are given"
            )
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
        self.past = len(next(iter(rows.values()))) if rows else 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of a step, without the caches, for its other inputs in order or by name."""
        rows = self.past + self.step
        if rows > self.max_length:
            raise ArgumentValueError(
                f"{self.name}: the caches are full: {self.past} of {self.max_length} rows; give a larger max_length"
            )
        given = dict(zip(self._names, in_order(self.name, self._names, args, kwargs), strict=True))
        values = [
            self.buffers[t.name][:rows] if t.name in self.buffers else given[t.name]
            for t in self.model.inputs
        ]
        made = self.model(*values)
        self.past = rows
        return made

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


def _buffer(cache: Cache, rows: int) -> np.ndarray[Any, Any]:
    """Memory for the rows of a cache, aligned for vectors."""
    kind, shape = ELEMENTS[cache.dtype], (rows, *cache.row)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    at = -memory.ctypes.data % _ALIGNMENT
    return memory[at : at + size].view(kind.numpy).reshape(shape)
