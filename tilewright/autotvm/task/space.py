"""Spaces of configurations: all combinations of the knobs of a template.

    index  ──point──▶  (a number for each knob)  ──▶  ConfigEntity: an entity for each knob

The first knob changes fastest: an index is Σ point[k] · Π(numbers of candidates of the knobs before k).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Any

import numpy as np

from ...forks import cached_property
from .knobs import (
    AnnotateEntity,
    AnnotateSpace,
    Axis,
    InstantiationError,
    OtherOptionEntity,
    OtherOptionSpace,
    ReorderEntity,
    ReorderSpace,
    SplitEntity,
    SplitSpace,
    TransformSpace,
    VirtualAxis,
    get_factors,
    get_pow2s,
)

__all__ = [
    "AnnotateEntity",
    "AnnotateSpace",
    "Axis",
    "ConfigEntity",
    "ConfigSpace",
    "FallbackConfigEntity",
    "InstantiationError",
    "OtherOptionEntity",
    "OtherOptionSpace",
    "ReorderEntity",
    "ReorderSpace",
    "SplitEntity",
    "SplitSpace",
    "TransformSpace",
    "VirtualAxis",
    "get_factors",
    "get_pow2s",
]

Array = Any
_KINDS: dict[str, tuple[type, str]] = {
    "sp": (SplitEntity, "size"),
    "re": (ReorderEntity, "perm"),
    "an": (AnnotateEntity, "anns"),
    "ot": (OtherOptionEntity, "val"),
}
_ANNOTATIONS = (
    "none", "vec", "unroll", "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "vthread", "fuse",
)  # fmt: skip


def flatten_entity(entity: Any) -> list[float]:
    """The values of an entity, as numbers."""
    if isinstance(entity, SplitEntity):
        return [float(x) for x in entity.size]
    if isinstance(entity, ReorderEntity):
        return [float(x) for x in entity.perm]
    if isinstance(entity, AnnotateEntity):
        return [float(_ANNOTATIONS.index(a)) if a in _ANNOTATIONS else float(a) for a in entity.anns]
    value = entity.val
    if isinstance(value, (bool, int, float)):
        return [float(value)]
    if isinstance(value, (list, tuple)) and all(isinstance(x, (int, float)) for x in value):
        return [float(x) for x in value]
    return []  # a word has no value: its position in the list of options is a feature of its own


class _Knobs:
    """The interface of spaces and configurations for templates."""

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: dict[str, TransformSpace] = {}
        self.errors: list[str] = []
        self.code_hash: str | None = None
        self.flop: float = 0
        self.cost: Any = None
        self._collect = True
        self._entity_map: dict[str, Any] = {}

    # -- knobs -----------------------------------------------------------------------------------
    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        """An axis that stands for its length, from a number or a loop."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(self, name: str, axis: Any, policy: str = "factors", **kwargs: Any) -> list[Axis]:
        """Define a knob for the split of an axis into `num_outputs` loops.

        `policy` is factors (the divisors of the length), power2, verbose (both) or candidate (those of `candidate=`).
        `max_factor=` limits the sizes of inner loops, `no_tail=` excludes sizes that do not divide the length, and
        `filter=` is a function of a SplitEntity.
        """
        return self._define(SplitSpace, name, [axis], policy, **kwargs)

    def define_reorder(
        self, name: str, axes: Sequence[Any], policy: str = "all", **kwargs: Any
    ) -> list[Axis]:
        """Define a knob for the order of loops; `ReorderSpace` lists the policies."""
        return self._define(ReorderSpace, name, list(axes), policy, **kwargs)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Axis]:
        """Define a knob for the annotations of loops (unroll, vectorize, bind); `AnnotateSpace` lists the policies."""
        return self._define(AnnotateSpace, name, list(axes), policy, **kwargs)

    def define_knob(self, name: str, candidate: Iterable[Any]) -> list[Axis]:
        """Define a knob for one of several options."""
        return self._define(OtherOptionSpace, name, [], None, candidate=list(candidate))

    def _define(
        self, kind: type[TransformSpace], name: str, axes: list[Any], policy: str | None, **kwargs: Any
    ) -> list[Axis]:
        known = self.space_map.get(name)
        if known is not None and self.is_fallback:  # its value may have been set in the meantime
            return [Axis(known, i) for i in range(known.num_output)]
        if not self._collect:
            return [Axis(None, i) for i in range(kind.get_num_output(axes, policy, **kwargs))]
        by_length = kind is SplitSpace
        given = [a if isinstance(a, (VirtualAxis, Axis)) or not by_length else self.axis(a) for a in axes]
        space = kind(given, policy, **kwargs)  # type: ignore[call-arg]
        if not len(space):
            raise InstantiationError(f"the knob {name!r} has no candidate: {space}")
        self.space_map[name] = space
        self._entity_map[name] = space[0]
        self._forget()
        return [Axis(space, i) for i in range(space.num_output)]

    def _forget(self) -> None:
        """Drop cached values, as the knobs have changed."""

    def add_flop(self, flop: Any) -> None:
        """Add to the number of operations of a run."""
        self.flop += float(getattr(flop, "value", flop))

    def raise_error(self, msg: str) -> None:
        """Refuse the configuration, for a reason; it is not measured."""
        self.errors.append(str(msg))

    def valid(self) -> bool:
        """Whether the template accepted the configuration when it was instantiated."""
        return not self.errors

    # -- values ------------------------------------------------------------------------------------
    def __getitem__(self, name: str) -> Any:
        try:
            return self._entity_map[name]
        except KeyError:
            known = ", ".join(self._entity_map) or "none"
            raise KeyError(f"there is no knob {name!r}; there are: {known}") from None

    def get_entity(self, name: str) -> Any:
        """The value of a knob; None if there is no such knob."""
        return self._entity_map.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entity_map

    def __iter__(self) -> Iterator[str]:
        return iter(self._entity_map)


class ConfigSpace(_Knobs):
    """All configurations of a template. While it is collected, `cfg[name]` is the first candidate of a knob.

    `known` are the indices of configurations to measure first, such as the one that is used without tuning.
    """

    known: Sequence[int] = ()

    def __init__(self) -> None:
        super().__init__()
        self._filter: Callable[[Any], Any] | None = None

    def _forget(self) -> None:
        for name in ("dims", "_radix", "_columns", "_indices"):
            self.__dict__.pop(name, None)

    # -- sizes -----------------------------------------------------------------------------------
    @cached_property
    def dims(self) -> list[int]:
        """The number of candidates of each knob."""
        sizes = [len(space) for space in self.space_map.values()]
        if math.prod(sizes) >= 1 << 62:
            raise InstantiationError(f"the knobs have {math.prod(sizes)} combinations: define fewer of them")
        return sizes

    @cached_property
    def _radix(self) -> Array:
        return np.concatenate([[1], np.cumprod(np.array(self.dims, object))[:-1]]).astype(np.int64)

    @property
    def range_length(self) -> int:
        """The number of indices, including those that the filter excludes."""
        return math.prod(self.dims)

    def __len__(self) -> int:
        return len(self._indices)

    def subrange_length(self, start: int, end: int) -> int:
        """The number of configurations with an index from `start` up to, but not including, `end`."""
        first, last = self._places(start, end)
        return last - first

    def _places(self, start: int | None, end: int | None) -> tuple[int, int]:
        """The positions in `_indices` of a range of indices, which is the whole space by default."""
        begin, stop = start or 0, self.range_length if end is None else end
        if not 0 <= begin <= stop <= self.range_length:
            raise ValueError(f"the range {begin}:{stop} is not within the space 0:{self.range_length}")
        return bisect_left(self._indices, begin), bisect_left(self._indices, stop)

    # -- filters -----------------------------------------------------------------------------------
    def multi_filter(self, filter: Callable[[Any], Any]) -> None:
        """Keep only the configurations for which a function of the configuration is true."""
        self._filter = filter
        self._forget()

    @cached_property
    def _indices(self) -> Any:
        """The indices that the filter does not exclude, in order: an array, or the range of all without a filter."""
        every = range(self.range_length)
        if self._filter is None:
            return every
        return np.array([i for i in every if self._filter(self._entity(i))], np.int64)

    def is_index_valid(self, index: int) -> bool:
        """Whether an index is that of a configuration, which the filter does not exclude."""
        place = bisect_left(self._indices, index)
        return bool(place < len(self._indices) and self._indices[place] == index)

    def are_valid(self, indices: Array) -> Array:
        """`is_index_valid` of an array of indices."""
        if self._filter is None:
            return (indices >= 0) & (indices < self.range_length)
        first, behind = (np.searchsorted(self._indices, indices, side) for side in ("left", "right"))
        return first < behind

    # -- indices and points ------------------------------------------------------------------------
    def point2knob(self, point: int) -> list[int]:
        """The number of the candidate of each knob, from an index."""
        out = []
        for n in self.dims:
            point, digit = divmod(int(point), n)
            out.append(digit)
        return out

    def knob2point(self, knob: Sequence[int]) -> int:
        """The index, from the number of the candidate of each knob."""
        total, scale = 0, 1
        for digit, n in zip(knob, self.dims, strict=True):
            total, scale = total + int(digit) * scale, scale * n
        return total

    def points(self, indices: Array) -> Array:
        """`point2knob` of an array of indices."""
        rest, out = np.asarray(indices, np.int64), []
        for n in self.dims:
            out.append(rest % n)
            rest = rest // n
        return np.stack(out, axis=1) if out else np.zeros((len(rest), 0), np.int64)

    def indices(self, points: Array) -> Array:
        """`knob2point` of an array of points."""
        return (np.asarray(points, np.int64) * self._radix).sum(axis=1)

    def get_rand_index(
        self,
        start: int | None = None,
        end: int | None = None,
        to_exclude: Iterable[int] | None = None,
        rng: Any = None,
    ) -> int:
        """The index of a random configuration in a range, without those of `to_exclude`."""
        first, last = self._places(start, end)
        rng = rng or Random()
        gone = set(to_exclude or ())
        for _ in range(64 if last > first else 0):
            index = int(self._indices[rng.randrange(first, last)])
            if index not in gone:
                return index
        left = [i for i in self._indices[first:last] if i not in gone]
        if not left:
            raise ValueError(f"no configuration is left in the range {start or 0}:{end or self.range_length}")
        return int(rng.choice(left))

    def get_next_index(
        self, index: int, n: int = 1, start: int | None = None, end: int | None = None
    ) -> int | None:
        """The index of the n-th configuration after an index; None if it is not in the range."""
        first, last = self._places(start, end)
        place = (
            bisect_left(self._indices, index + 1) + n - 1 if n > 0 else bisect_left(self._indices, index) + n
        )
        return int(self._indices[place]) if first <= place < last else None

    def sample_ints(self, m: int, rng: Any = None) -> Array:
        """Up to `m` different indices of random configurations."""
        rng = rng or np.random.default_rng()
        if self._filter is not None:
            return rng.permutation(self._indices)[:m]
        n = self.range_length
        if n <= 4 * m:
            return rng.permutation(n)[:m]
        found: dict[int, None] = {}
        while len(found) < m:
            found.update(dict.fromkeys(int(i) for i in rng.integers(0, n, m - len(found))))
        return np.array(list(found), np.int64)

    def sample_except(self, visited: Collection[int], rng: Any) -> int | None:
        """The index of a random configuration that is not in `visited`; None if there is none."""
        candidates = chain(self.sample_ints(64, rng), self._indices)
        return next((int(i) for i in candidates if int(i) not in visited), None)

    def random_walk(self, point: int, rng: Any = None) -> int:
        """The index of a configuration that differs in one knob."""
        rng = rng or np.random.default_rng()
        return int(self.random_walks(np.array([point], np.int64), rng)[0])

    def random_walks(self, indices: Array, rng: Any) -> Array:
        """`random_walk` of an array of indices; one stays as it is if no valid step is found."""
        free = [k for k, n in enumerate(self.dims) if n > 1]
        if not free:
            return indices
        out = np.asarray(indices, np.int64).copy()
        waiting = np.arange(len(out))
        for _ in range(16):  # the filter may exclude a step: then another is tried
            points = self.points(out[waiting])
            knobs = rng.choice(free, len(waiting))
            sizes = np.array(self.dims, np.int64)[knobs]
            steps = 1 + (rng.random(len(waiting)) * (sizes - 1)).astype(np.int64)
            rows = np.arange(len(waiting))
            points[rows, knobs] = (points[rows, knobs] + steps) % sizes
            moved = self.indices(points)
            fine = self.are_valid(moved)
            out[waiting[fine]] = moved[fine]
            waiting = waiting[~fine]
            if not len(waiting):
                break
        return out

    def crossed(self, one: int, other: int, rng: Any) -> int:
        """The index of a child: the first knobs are those of one parent, the others those of the other."""
        cut = int(rng.integers(0, len(self.dims) + 1))
        return self.knob2point([*self.point2knob(one)[:cut], *self.point2knob(other)[cut:]])

    def mutated(self, index: int, chance: float, rng: Any) -> int:
        """An index with each knob replaced, with the probability `chance`, by a random candidate."""
        changed = rng.random(len(self.dims)) < chance
        point = self.point2knob(index)
        return self.knob2point(
            [int(rng.integers(0, n)) if c else p for p, n, c in zip(point, self.dims, changed, strict=True)]
        )

    # -- configurations ----------------------------------------------------------------------------
    def get(self, index: int) -> ConfigEntity:
        """The configuration of an index, which the filter must not exclude."""
        if not 0 <= index < max(1, self.range_length):
            raise IndexError(f"the space has the indices 0 to {self.range_length - 1}, not {index}")
        if self._filter is not None and not self.is_index_valid(index):
            raise IndexError(f"the filter of the space excludes the configuration {index}")
        return self._entity(index)

    def _entity(self, index: int) -> ConfigEntity:
        entities: dict[str, Any] = {}
        for (name, space), digit in zip(self.space_map.items(), self.point2knob(index), strict=True):
            entities[name] = space[digit]
        return ConfigEntity(int(index), self.code_hash, entities)

    @cached_property
    def _columns(self) -> list[Array]:
        """A table for each knob: the number and the values of each candidate."""
        out = []
        for space in self.space_map.values():
            rows = [flatten_entity(e) for e in space]
            width = max(map(len, rows), default=0)
            table = np.zeros((len(rows), width + 1), np.float32)
            table[:, 0] = np.arange(len(rows))
            for i, row in enumerate(rows):
                table[i, 1 : 1 + len(row)] = row
            out.append(table)
        return out

    def knob_features(self, indices: Array) -> Array:
        """The features of configurations: for each knob, the number of its candidate and its values."""
        points = self.points(indices)
        parts = [table[points[:, k]] for k, table in enumerate(self._columns)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(points), 1), np.float32)

    def __repr__(self) -> str:
        lines = [f"  {i:2d} {name}: {space}\n" for i, (name, space) in enumerate(self.space_map.items())]
        return (
            f"ConfigSpace (len={len(self)}, range_length={self.range_length}, space_map=\n{''.join(lines)})"
        )


class ConfigEntity(_Knobs):
    """A configuration: a value for each knob."""

    def __init__(
        self,
        index: int,
        code_hash: str | None = None,
        entity_map: Mapping[str, Any] | None = None,
        constraints: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self.index, self.code_hash = index, code_hash
        self.machine: str | None = (
            None  # the fingerprint of the machine that measured it, if it comes from a record
        )
        self._entity_map = dict(entity_map or {})
        self._collect = False

    def get_flatten_feature(self) -> Array:
        """The values of all knobs, as numbers."""
        return np.array([x for e in self._entity_map.values() for x in flatten_entity(e)], np.float32)

    def get_other_option(self) -> dict[str, Any]:
        """The values of knobs of `define_knob`, by name."""
        return {k: e.val for k, e in self._entity_map.items() if isinstance(e, OtherOptionEntity)}

    def to_json_dict(self) -> dict[str, Any]:
        """The configuration as JSON: its index, and the value of each knob."""
        return {
            "index": int(self.index),
            "code_hash": self.code_hash,
            "entity": [[name, *_as_json(e)] for name, e in self._entity_map.items()],
        }

    @staticmethod
    def from_json_dict(json_dict: Mapping[str, Any]) -> ConfigEntity:
        """The inverse of `to_json_dict`."""
        entities = {}
        for name, kind, value in json_dict["entity"]:
            if kind not in _KINDS:
                raise ValueError(f"the knob {name!r} is of the kind {kind!r}; there are {', '.join(_KINDS)}")
            entities[str(name)] = _KINDS[kind][0](value)
        return ConfigEntity(int(json_dict["index"]), json_dict.get("code_hash"), entities)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash(self.index)

    def __repr__(self) -> str:
        inner = ", ".join(f"('{k}', {e})" for k, e in self._entity_map.items())
        return f"[{inner}],{self.code_hash},{self.index}"


def _as_json(entity: Any) -> tuple[str, Any]:
    kind, field = next((k, f) for k, (c, f) in _KINDS.items() if isinstance(entity, c))
    return kind, getattr(entity, field)


class FallbackConfigEntity(ConfigSpace):
    """The configuration of an untuned task: each knob has its first candidate, unless the template sets another."""

    is_fallback = True

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Set a split, with each loop as long as its constraint and the length of the axis allow, the innermost first.

        fallback_split("tile", [-1, 8, 4])    of 128: [4, 8, 4]    of 49: [7, 7, 1]
        """
        space = self.space_map.get(name)
        if not isinstance(space, SplitSpace):
            raise KeyError(f"fallback_split: there is no split {name!r}")
        if len(constraints) != space.num_output:
            raise ValueError(
                f"fallback_split({name!r}): {len(constraints)} sizes for {space.num_output} loops of the split"
            )
        if 0 in constraints:
            raise InstantiationError(
                f"fallback_split({name!r}, {list(constraints)}): a loop has at least one iteration; give -1 for the "
                "loop whose length follows from the others"
            )
        left, sizes = space.product, [1] * len(constraints)
        open_ends = [i for i, c in enumerate(constraints) if c < 0]
        for i in reversed(range(len(constraints))):
            if constraints[i] > 0:
                sizes[i] = max(f for f in get_factors(left) if f <= constraints[i])
                left //= sizes[i]
        if open_ends:
            sizes[open_ends[0]] = left
        self._entity_map[name] = SplitEntity(sizes)

    def fallback_with_reference_log(self, ref_log: Iterable[tuple[Any, Any]]) -> None:
        """Set the knobs from records of other workloads of the template: of the one with the nearest splits."""
        best: dict[str, tuple[float, ConfigEntity]] = {}
        for inp, result in ref_log:
            key, time = str(inp.task.workload), float(np.mean(result.costs))
            if result.error_no == 0 and (key not in best or time < best[key][0]):
                best[key] = (time, inp.config)
        splits = {n: s for n, s in self.space_map.items() if isinstance(s, SplitSpace)}

        def kept(config: ConfigEntity) -> float:
            """The logarithm of the sizes of its splits that divide the axes here."""
            total = 0.0
            for name, space in splits.items():
                sizes = config[name].size[1:] if name in config else []
                total += sum(math.log2(math.gcd(space.product, abs(x)) + 1) for x in sizes)
            return total

        if not best:
            return
        _, chosen = max(best.values(), key=lambda pair: kept(pair[1]))
        for name in self._entity_map:
            if name not in chosen:
                continue
            entity = chosen[name]
            if isinstance(entity, SplitEntity) and name in splits:
                self.fallback_split(name, [-1, *entity.size[1:]])
            else:
                self._entity_map[name] = entity

    def __setitem__(self, name: str, entity: Any) -> None:
        """Set a knob."""
        self._entity_map[name] = entity

    def __repr__(self) -> str:
        inner = ", ".join(f"('{k}', {e})" for k, e in self._entity_map.items())
        return f"[{inner}],{self.code_hash},None"
