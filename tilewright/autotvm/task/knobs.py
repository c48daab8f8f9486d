"""Knobs of templates: the ways to split, reorder and annotate axes, or any list of options.

space of a knob (SplitSpace, …)  ──[i]──▶  entity (SplitEntity, …)  ──apply(s, op, axis)──▶  loops
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

from ...ir.errors import TVMError
from ...ir.expr import FloatImm, IntImm, IterVar, const_value
from ...te import thread_axis
from ...tir.schedule.sampling import divisors


class InstantiationError(TVMError, ValueError):
    """A template refused a configuration."""


class Axis(NamedTuple):
    """A loop that results from a knob: the space of the knob, and the number of the loop."""

    space: TransformSpace | None
    index: int  # type: ignore[assignment]  # a tuple has a method of that name


class VirtualAxis:
    """An axis that stands for its length, from a number, a loop or another such axis."""

    _count = 0

    def __init__(self, var: Any, name: str | None = None) -> None:
        length: Any
        if isinstance(var, VirtualAxis):
            length = var.length
        elif isinstance(var, IterVar):
            length, name = const_value(var.dom.extent), name or var.var.name
            if length is None:
                raise InstantiationError(
                    f"the axis {var.var.name} has the extent `{var.dom.extent}`, and a knob needs a number: use "
                    "cfg.axis(n) instead"
                )
        elif isinstance(var, (int, IntImm)):
            length = int(var)
        else:
            raise TypeError(f"a knob needs an axis, which is a te loop or a length, not {type(var).__name__}")
        self.length: int = int(length)
        self.name = name or f"axis_{VirtualAxis._count}"
        VirtualAxis._count += 1

    def __repr__(self) -> str:
        return f"vaxis({self.name})"


get_factors = divisors  # the classic name


def get_pow2s(n: int) -> list[int]:
    """The powers of two up to a number."""
    return [1 << i for i in range(n.bit_length())]


# ---------------------------------------------------------------------------- spaces
class TransformSpace:
    """The candidates of a knob, which results in `num_output` loops."""

    def __init__(self) -> None:
        self.entities: Sequence[Any] = []
        self.num_output = 0

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Any:
        return self.entities[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.entities)

    @staticmethod
    def get_num_output(axes: Sequence[Any], policy: str | None, **kwargs: Any) -> int:
        """The number of loops that a knob results in."""
        return len(axes)


class SplitSpace(TransformSpace):
    """The splits of an axis into `num_outputs` loops; the outermost factor is inferred (-1)."""

    def __init__(self, axes: Sequence[VirtualAxis], policy: str | None, **kwargs: Any) -> None:
        super().__init__()
        (axis,) = axes
        self.policy, self.product = policy, axis.length
        self.num_output = int(kwargs.get("num_outputs", 0))
        if self.num_output < 1:
            raise ValueError(
                f"define_split({axis.name}): give the number of loops: num_outputs=2 for (outer, inner)"
            )
        keep: Callable[[SplitEntity], Any] = kwargs.get("filter") or (lambda entity: True)
        sizes = self._candidates(kwargs) if policy == "candidate" else self._products(kwargs)
        self.entities = [e for e in map(SplitEntity, sizes) if keep(e)]

    def _candidates(self, kwargs: dict[str, Any]) -> list[list[int]]:
        given = [[int(x) for x in size] for size in kwargs["candidate"]]
        wrong = next((size for size in given if len(size) != self.num_output), None)
        if wrong is not None:
            raise ValueError(
                f"define_split: the candidate {wrong} has {len(wrong)} sizes, and num_outputs is {self.num_output}"
            )
        return given

    def _products(self, kwargs: dict[str, Any]) -> list[list[int]]:
        """Sizes of the inner loops, with -1 for the outermost; the innermost size changes slowest."""
        n = self.product
        policies = {
            "factors": lambda: set(get_factors(n)),
            "power2": lambda: set(get_pow2s(n)),
            "verbose": lambda: set(get_factors(n)) | set(get_pow2s(n)),
        }
        if self.policy not in policies:
            raise ValueError(
                f"define_split: there is no policy {self.policy!r}; there are factors, power2, verbose, candidate"
            )
        exact = bool(kwargs.get("no_tail", self.policy == "factors"))
        limit = kwargs.get("max_factor") or n
        factors = sorted(f for f in policies[self.policy]() if f <= limit)
        out: list[list[int]] = []

        def extend(inner: list[int], taken: int) -> None:
            if len(inner) == self.num_output - 1:
                if n % taken == 0 or (not exact and taken < n):
                    out.append([-1, *inner[::-1]])
                return
            for f in factors:
                if taken * f > n:
                    break
                extend([*inner, f], taken * f)

        extend([], 1)
        return out

    @staticmethod
    def get_num_output(axes: Sequence[Any], policy: str | None, **kwargs: Any) -> int:
        return int(kwargs["num_outputs"])

    def __repr__(self) -> str:
        return (
            f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_output}) "
            f"len={len(self)}"
        )


class ReorderSpace(TransformSpace):
    """The orders of some axes.

    identity       the given order
    all            every order
    interval_all   every order of the axes from interval[0] up to, but not including, interval[1]
    candidate      the orders in `candidate`, as lists of axes
    interleave     chains of spatial and of reduction axes, merged level by level
    """

    def __init__(self, axes: Sequence[Any], policy: str | None, **kwargs: Any) -> None:
        super().__init__()
        self.policy, self.num_output = policy, len(axes)
        n = len(axes)
        orders: Iterable[Sequence[int]]
        if policy == "identity":
            orders = [range(n)]
        elif policy == "all":
            orders = permutations(range(n))
        elif policy == "interval_all":
            begin, end = kwargs["interval"]
            orders = [(*range(begin), *p, *range(end, n)) for p in permutations(range(begin, end))]
        elif policy == "candidate":
            orders = [[_position(axes, a) for a in order] for order in kwargs["candidate"]]
        elif policy == "interleave":
            orders = self._interleaved(axes, kwargs["spatial"], kwargs["reduce"])
        else:
            raise ValueError(
                f"define_reorder: there is no policy {policy!r}; there are identity, all, interval_all, candidate, "
                "interleave"
            )
        self.entities = [ReorderEntity(list(p)) for p in orders]

    @staticmethod
    def _interleaved(
        axes: Sequence[Any], spatial: Sequence[Sequence[Any]], reduce: Sequence[Sequence[Any]]
    ) -> list[list[int]]:
        """The levels of tiles, outermost first. Each level of reduction axes is before or after the level of spatial
        axes at the same depth."""
        levels = [[_position(axes, a) for a in level if a is not None] for level in _by_level(spatial)]
        sums = [[_position(axes, a) for a in level if a is not None] for level in _by_level(reduce)]
        outer = max(0, len(levels) - len(sums))
        head = [a for level in levels[:outer] for a in level]
        out: list[list[int]] = []
        for before in product((True, False), repeat=len(sums)):
            order = list(head)
            for first, level, inner in zip(before, sums, levels[outer:], strict=False):
                order += [*level, *inner] if first else [*inner, *level]
            for level in sums[len(levels[outer:]) :]:
                order += level
            out.append(order)
        return out

    def __repr__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self)}"


def _by_level(chains: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The levels of chains of axes, outermost first; shorter chains have None in outer levels."""
    depth = max((len(c) for c in chains), default=0)
    padded = [[None] * (depth - len(c)) + list(c) for c in chains]
    return [[c[level] for c in padded] for level in range(depth)]


def _position(axes: Sequence[Any], wanted: Any) -> int:
    for i, a in enumerate(axes):
        if a is wanted or (isinstance(a, Axis) and a == wanted):
            return i
    raise ValueError(f"define_reorder: {wanted!r} is not one of the axes to reorder")


_BLOCKS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
_THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")


class AnnotateSpace(TransformSpace):
    """The annotations of axes.

    none, unroll, vec, try_unroll, try_vec, try_unroll_vec   one of these for each axis (try: or none), and at most one
                                                             vectorized axis
    bind_gpu, bind_gpu_virtual                               blocks and threads, in as many dimensions as the axes allow
    locate_cache                                             the `num_anchor` axes at which caches are filled
    candidate                                                the annotations in `candidate`
    """

    def __init__(self, axes: Sequence[Any], policy: str | None, **kwargs: Any) -> None:
        super().__init__()
        self.policy, self.num_output = policy, len(axes)
        n = len(axes)
        found: Iterable[Sequence[Any]]
        if policy == "candidate":
            found = [list(a) for a in kwargs["candidate"]]
        elif policy in ("bind_gpu", "bind_gpu_virtual"):
            found = [_bound(n, policy == "bind_gpu_virtual")]
        elif policy == "locate_cache":
            found = combinations(range(n), int(kwargs["num_anchor"]))
        else:
            words = str(policy).replace("try", "none").split("_")
            wrong = next((w for w in words if w not in ("none", "unroll", "vec")), None)
            if wrong is not None:
                raise ValueError(
                    f"define_annotate: there is no policy {policy!r}: {wrong!r} is not one of 'try', "
                    "'none', 'unroll' and 'vec'"
                )
            found = (anns for anns in product(words, repeat=n) if anns.count("vec") <= 1)
        self.entities = [AnnotateEntity(list(anns)) for anns in found]

    def __repr__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self)}"


def _bound(axes: int, virtual: bool) -> list[str]:
    """Blocks and (virtual) threads, in as many dimensions as the axes allow; the outer axes are fused."""
    kinds = 3 if virtual else 2
    dims = min(3, axes // kinds)
    if dims == 0:
        raise ValueError(f"define_annotate: {axes} axes are too few to bind to blocks and threads")
    bound = [*_BLOCKS[3 - dims :], *(["vthread"] * dims if virtual else []), *_THREADS[3 - dims :]]
    return ["fuse"] * (axes - len(bound)) + bound


class OtherOptionSpace(TransformSpace):
    """A list of options."""

    def __init__(self, axes: Sequence[Any], policy: str | None, **kwargs: Any) -> None:
        super().__init__()
        self.entities = [OtherOptionEntity(x) for x in kwargs["candidate"]]

    def __repr__(self) -> str:
        return f"OtherOption({list(self.entities)}) len={len(self)}"


# ---------------------------------------------------------------------------- entities
class SplitEntity:
    """A split: the sizes of the loops, of which one may be -1."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = [int(x) for x in size]

    def apply(self, sch: Any, op: Any, axis: Any) -> list[Any]:
        """Split an axis of a stage. Returns the loops, outermost first."""
        loops = []
        for size in self.size[:0:-1]:
            axis, inner = sch[op].split(axis, factor=size)
            loops.append(inner)
        return [axis, *loops[::-1]]

    def __repr__(self) -> str:
        return str(self.size)


class ReorderEntity:
    """An order of loops."""

    def __init__(self, perm: Sequence[int]) -> None:
        self.perm = [int(x) for x in perm]

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Reorder loops of a stage. Returns them in their new order."""
        if len(axes) != len(self.perm):
            raise InstantiationError(f"the order is for {len(self.perm)} loops, and {len(axes)} were given")
        ordered = [axes[i] for i in self.perm]
        sch[op].reorder(*ordered)
        return ordered

    def __repr__(self) -> str:
        return str(self.perm)


class AnnotateEntity:
    """Annotations, one for each axis."""

    def __init__(self, anns: Sequence[Any]) -> None:
        self.anns = list(anns)

    def apply(
        self,
        sch: Any,
        op: Any,
        axes: Sequence[Any],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Any = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Annotate loops of a stage, or compute the tensors of `source` at them. Returns the resulting loops.

        `axis_lens` are the lengths of the loops; one longer than `max_unroll` is not unrolled, and one whose length is
        not in `vec_size` is not vectorized: `cfg` is then marked as refused.
        """
        loops = list(axes)
        if source is not None:
            for tensors, at in zip(source, self.anns, strict=False):
                for t in tensors:
                    sch[t].compute_at(sch[op], loops[at])
            return loops
        for i, ann in enumerate(self.anns):
            length = axis_lens[i] if axis_lens is not None else 0
            if ann == "unroll":
                if max_unroll and length > max_unroll:
                    _refuse(
                        cfg, f"a loop of {length} iterations exceeds the limit of {max_unroll} for unrolling"
                    )
                sch[op].unroll(loops[i])
            elif ann == "vec":
                if vec_size and length not in vec_size:
                    _refuse(cfg, f"vectors of {length} elements are not among the sizes {list(vec_size)}")
                sch[op].vectorize(loops[i])
            elif ann == "fuse":
                loops[i + 1] = sch[op].fuse(loops[i], loops[i + 1])
            elif ann != "none":
                sch[op].bind(loops[i], thread_axis(ann))
        return loops

    def __repr__(self) -> str:
        return str(self.anns)


def _refuse(cfg: Any, why: str) -> None:
    if cfg is None:
        raise InstantiationError(why)
    cfg.raise_error(why)


class OtherOptionEntity:
    """An option."""

    def __init__(self, val: Any) -> None:
        self.val = _plain(val)

    def __repr__(self) -> str:
        return str(self.val)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, (IntImm, FloatImm)) else value
