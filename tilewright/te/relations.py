"""What was recorded on a stage: how its axes came from others, and what an axis is marked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import IterVar, PrimExpr, ProducerLoad, Reduce, Var
from ..ir.functor import rewrite, substitute, uses_var
from ..ir.ops import add, floordiv, floormod, less, logical_and, mul, sub
from ..ir.span import Span, user_span
from .tensor import Tensor


class Step:
    """One recorded call on a stage, with its arguments and the axes that it returned."""

    __slots__ = ("args", "kind", "outputs", "span")

    def __init__(self, kind: str, args: tuple[Any, ...], outputs: tuple[IterVar, ...] = ()) -> None:
        self.kind, self.args, self.outputs = kind, args, outputs
        self.span: Span | None = user_span()

    @property
    def axes(self) -> list[IterVar]:
        """The axes that it was called with."""
        return [a for a in self.args if isinstance(a, IterVar)]


class Split(Step):
    """`parent` became `outer` and `inner`; one of `factor` and `nparts` was given."""

    __slots__ = ()

    def __init__(
        self, parent: IterVar, factors: list[Any], free: bool, outputs: tuple[IterVar, IterVar]
    ) -> None:
        super().__init__("split", (parent, factors, free), outputs)

    @property
    def parent(self) -> IterVar:
        return self.args[0]  # type: ignore[no-any-return]

    @property
    def outer(self) -> IterVar:
        return self.outputs[0]

    @property
    def inner(self) -> IterVar:
        return self.outputs[1]

    @property
    def factor(self) -> PrimExpr | None:
        return self.args[1][1]  # type: ignore[no-any-return]

    @property
    def nparts(self) -> PrimExpr | None:
        return self.args[1][0]  # type: ignore[no-any-return]


class Fuse(Step):
    """Neighbouring axes, from `outer` to `inner`, became `fused`."""

    __slots__ = ()

    def __init__(self, axes: tuple[IterVar, ...], fused: IterVar) -> None:
        super().__init__("fuse", axes, (fused,))

    @property
    def outer(self) -> IterVar:
        return self.args[0]  # type: ignore[no-any-return]

    @property
    def inner(self) -> IterVar:
        return self.args[-1]  # type: ignore[no-any-return]

    @property
    def fused(self) -> IterVar:
        return self.outputs[0]


class Singleton(Step):
    """An axis of extent 1 around all others, as `fuse()` of no axes makes it."""

    __slots__ = ()

    def __init__(self, axis: IterVar) -> None:
        super().__init__("singleton", (), (axis,))

    @property
    def iter(self) -> IterVar:
        return self.outputs[0]


class IterVarAttr:
    """What an axis is marked with: the kind of its loop, its threads, its pragmas, the instruction that replaces it."""

    __slots__ = ("bind_thread", "iter_type", "pragma_keys", "pragma_values", "tensor_intrin")

    def __init__(self) -> None:
        self.iter_type: int = IterVar.DataPar
        self.bind_thread: IterVar | None = None
        self.tensor_intrin: Any = None
        self.pragma_keys: list[Any] = []
        self.pragma_values: list[Any] = []


MARKS: Mapping[str, int] = {
    "vectorize": IterVar.Vectorized,
    "parallel": IterVar.Parallelized,
    "unroll": IterVar.Unrolled,
    "tensorize": IterVar.Tensorized,
}


def follow(axis: IterVar, steps: Sequence[Step]) -> IterVar:
    """The loop that an axis is in after later steps: the inner one of a split, or the fused one."""
    for step in steps:
        if isinstance(step, Split) and step.parent is axis:
            axis = step.inner
        elif isinstance(step, Fuse) and any(a is axis for a in step.args):
            axis = step.fused
    return axis


def leaf_indices(
    steps: Sequence[Step], roots: Sequence[IterVar], at: Sequence[PrimExpr]
) -> dict[IterVar, PrimExpr]:
    """The value of every axis at the point where the roots have the values `at`."""
    value: dict[IterVar, PrimExpr] = dict(zip(roots, at, strict=True))
    for step in steps:
        if isinstance(step, Split):
            size = step.inner.dom.extent
            value[step.outer] = floordiv(value[step.parent], size)
            value[step.inner] = floormod(value[step.parent], size)
        elif isinstance(step, Fuse):
            total = value[step.args[0]]
            for a in step.args[1:]:
                total = add(mul(total, a.dom.extent), value[a])
            value[step.fused] = total
    return value


def root_values(
    steps: Sequence[Step], roots: Sequence[IterVar]
) -> tuple[dict[Var, PrimExpr], PrimExpr | None]:
    """The roots in terms of the loops that are left, and where splits go beyond the roots: when they do not."""
    value: dict[IterVar, PrimExpr] = {}
    guards: list[PrimExpr] = []

    def of(axis: IterVar) -> PrimExpr:
        return value.get(axis, axis.var)

    for step in reversed(steps):
        if isinstance(step, Split):
            made = add(mul(of(step.outer), step.inner.dom.extent), of(step.inner))
            value[step.parent] = made
            covered = mul(step.outer.dom.extent, step.inner.dom.extent)
            if str(sub(covered, step.parent.dom.extent)) != "0":
                guards.append(less(made, step.parent.dom.extent))
        elif isinstance(step, Fuse):
            rest = of(step.fused)
            for a in reversed(step.args[1:]):
                value[a] = floormod(rest, a.dom.extent)
                rest = floordiv(rest, a.dom.extent)
            value[step.args[0]] = rest
    table = {iv.var: add(value[iv], iv.dom.min) for iv in roots if iv in value}
    guard: PrimExpr | None = None
    for g in guards:
        guard = g if guard is None else logical_and(guard, g)
    return table, guard


def reading(body: Sequence[PrimExpr], old: Tensor, new: Tensor) -> tuple[PrimExpr, ...]:
    """Expressions that read `new` where they read `old`."""

    def change(e: ProducerLoad) -> PrimExpr:
        return ProducerLoad(new, e.indices) if e.producer == old else e

    return tuple(rewrite(b, {ProducerLoad: change}) for b in body)


def at_axes(body: Sequence[PrimExpr], old: Sequence[IterVar], new: Sequence[IterVar]) -> tuple[PrimExpr, ...]:
    """Expressions over the axes `old` as expressions over `new`."""
    table = {a.var: b.var for a, b in zip(old, new, strict=True)}
    made = tuple(substitute(b, table) for b in body)
    first = body[0]
    if not isinstance(first, Reduce) or not any(uses_var(iv.dom, table.__contains__) for iv in first.axis):
        return made
    axes = tuple(iv.replace(dom=substitute(iv.dom, table)) for iv in first.axis)
    return tuple(b.replace(axis=axes) if isinstance(b, Reduce) else b for b in made)
