"""Transposed convolutions without multiplications by zeros: by gathered products, or by phases of the stride."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod as product_of
from typing import Any, NamedTuple

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ..utils import get_const_tuple, injective, simplify
from .padding import pad
from .utils import Layout


class Spread(NamedTuple):
    """One spatial dimension: element i meets tap k in element i*stride + k*dilation - before of the result."""

    size: Any
    kernel: Any
    stride: int
    dilation: int
    before: int
    out: Any

    @property
    def taps(self) -> int:
        """The most taps that meet in an element of the result."""
        return -(-int(self.kernel) // self.stride)

    @property
    def rest(self) -> int:
        """How far into a round of phases the result begins."""
        return self.before % self.stride

    @property
    def shifts(self) -> bool:
        """Phases 0 and 1 of the result are phases 1 and 0 of the kernel, the second of the next element.

        Then the result needs no more elements of a phase than it has; where the stride is greater, it
        begins within a round.
        """
        return self.stride == 2 and self.rest == 1


class Operands(NamedTuple):
    """What is convolved, where its dimensions are, and in which type it is summed."""

    data: te.Tensor
    kernel: te.Tensor
    layout: Layout
    weights: Layout
    groups: int
    kind: DataType


Form = Callable[[Operands, "Mapping[str, Spread]", str], te.Tensor]


_FEW = 9  # most products per element of the result that may go through memory
_WASTE = 1.25  # most multiplications relative to the minimum, to keep accumulators in registers
_NEAR = 1 << 18  # most products that stay in a cache until they are gathered


def form_of(given: Operands, dims: Mapping[str, Spread]) -> Form | None:
    """How to compute it; None for the convolution of spread data, which has no zeros if no stride is above 1.

    Gathered products need the fewest multiplications, but all of them go through memory: one for each tap of an
    element. Phases keep accumulators in registers, but need the kernel in another order, and multiply by zeros where
    the stride does not divide it. With one channel per group, gathered products do not pay.
    """
    each = list(dims.values())
    if not all(isinstance(d.kernel, int) for d in each) or all(d.stride == 1 for d in each):
        return None
    if any(d.stride > 1 and d.dilation > 1 for d in each):  # the phase of a tap is not linear in its place
        return None
    meet = product_of(d.taps for d in each)
    done, needed = product_of(d.taps * d.stride for d in each), product_of(d.kernel for d in each)
    depthwise = given.groups > 1 and _reduced(given) is None
    if meet == 1:
        return by_products
    if meet > _FEW or depthwise:
        return by_phases
    return by_products if done > needed * _WASTE or _near(given, needed) else by_phases


def _near(given: Operands, taps: int) -> bool:
    """Whether the products of all taps are few enough to stay in a cache."""
    outputs = given.weights.size("O", get_const_tuple(given.kernel.shape))
    shape = zip(given.layout.letters, get_const_tuple(given.data.shape), strict=True)
    sizes = [outputs, given.groups, taps, *(n for c, n in shape if c != "C")]
    return all(isinstance(n, int) for n in sizes) and product_of(sizes) <= _NEAR


class _Stage:
    """The dimensions of a stage between data and result: groups, and taps or phases beside the channels.

        NCHW:  g, co, taps, n, y, x         NHWC:  n, y, x, g, taps, co

    Rows of a product of matrices are together, and so are its columns.
    """

    def __init__(self, given: Operands, sizes: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
        outputs = given.weights.size("O", get_const_tuple(given.kernel.shape))
        group = [("G", given.groups)] if given.groups > 1 else []
        taps = [(f"k{c}", n) for c, n in inner.items() if n != 1]
        given_sizes = zip(given.layout.letters, get_const_tuple(given.data.shape), strict=True)
        places = [(c, sizes.get(c, n)) for c, n in given_sizes if c != "C"]
        last = given.layout.letters[-1] == "C"
        axes = [*places, *group, *taps, ("O", outputs)] if last else [*group, ("O", outputs), *taps, *places]
        self.names = [name for name, _ in axes]
        self.shape = [n for _, n in axes]

    def named(self, at: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, at, strict=True))

    def read(self, stage: te.Tensor, at: Mapping[str, Any]) -> Any:
        return stage(*(at[name] for name in self.names))


def _reduced(given: Operands) -> te.IterVar | None:
    """The channels of a group, if there is more than one."""
    inputs = given.weights.size("I", get_const_tuple(given.kernel.shape))
    each = inputs // given.groups if isinstance(inputs, int) else simplify(ops.floordiv(inputs, given.groups))
    return None if isinstance(each, int) and each == 1 else te.reduce_axis((0, each), "ci")


def _channel(given: Operands, at: Mapping[str, Any], ci: te.IterVar | None) -> Any:
    inner = 0 if ci is None else ci.var
    each = 1 if ci is None else ci.dom.extent
    return inner if given.groups == 1 else ops.add(ops.mul(at["G"], each), inner)


def _result(
    given: Operands, dims: Mapping[str, Spread], tag: str, element: Callable[[dict[str, Any]], Any]
) -> te.Tensor:
    """The last stage: `element` of a point, whose channel is given as group and channel within the group."""
    layout = given.layout
    outputs = given.weights.size("O", get_const_tuple(given.kernel.shape))
    data_shape = get_const_tuple(given.data.shape)
    shape = [
        dims[c].out if c in dims else simplify(outputs * given.groups) if c == "C" else n
        for c, n in zip(layout.letters, data_shape, strict=True)
    ]

    def value(*indices: Any) -> Any:
        at = dict(zip(layout.letters, indices, strict=True))
        at["O"] = at["C"]
        if given.groups > 1:
            at["G"], at["O"] = ops.floordiv(at["C"], outputs), ops.floormod(at["C"], outputs)
        return element(at)

    return injective("nn.conv_transpose", shape, value, tag, tag)


def by_products(given: Operands, dims: Mapping[str, Spread], tag: str) -> te.Tensor:
    """Each element times each tap, a product of matrices, and the sum of those that meet.

    parts[co, k, i] = sum over ci of data[ci, i] * kernel[ci, co, k]
    out[co, o]      = parts[co, k, i] + …    for all i*stride + k*dilation - before = o
    """
    ci, kind = _reduced(given), given.kind
    stage = _Stage(given, {c: d.size for c, d in dims.items()}, {c: d.kernel for c, d in dims.items()})

    def part(*indices: Any) -> Any:
        at = stage.named(indices)
        channel = _channel(given, at, ci)
        value = given.layout.read(given.data, {"N": at["N"], "C": channel, **{c: at[c] for c in dims}})
        taps = {c: at.get(f"k{c}", 0) for c in dims}
        weight = given.weights.read(given.kernel, {"I": channel, "O": at["O"], **taps})
        both = ops.mul(ops.cast(kind, value), ops.cast(kind, weight))
        return both if ci is None else te.sum(both, axis=[ci])

    parts = te.compute(stage.shape, part, f"{tag}_parts")

    def element(at: dict[str, Any]) -> Any:
        total: Any = None
        for turn in product(*(range(d.taps) for d in dims.values())):
            point, hits = dict(at), []
            for a, (c, d) in zip(turn, dims.items(), strict=True):
                here = ops.add(at[c], d.before)
                point[c] = ops.sub(ops.floordiv(here, d.stride), a * d.dilation)
                hits += [ops.greater_equal(point[c], 0), ops.less(point[c], d.size)]
                point[f"k{c}"] = ops.add(ops.floormod(here, d.stride), a * d.stride)
                if d.kernel % d.stride:
                    hits.append(ops.less(point[f"k{c}"], d.kernel))
            met = ops.if_then_else(ops.all(*hits), stage.read(parts, point), te.const(0, kind))
            total = met if total is None else ops.add(total, met)
        return total

    return _result(given, dims, tag, element)


def by_phases(given: Operands, dims: Mapping[str, Spread], tag: str) -> te.Tensor:
    """A convolution for each phase of the stride, with the taps of that phase, and the phases interleaved.

    stride 2, 4 taps, before 1:     out[0] = x[0]*k[1] + x[-1]*k[3]     phase 0
                                    out[1] = x[1]*k[0] + x[ 0]*k[2]     phase 1
                                    out[2] = x[1]*k[1] + x[ 0]*k[3]     phase 0
    """
    ci, kind = _reduced(given), given.kind
    counts, lows = {}, {}
    before, after = ([0] * given.data.ndim for _ in range(2))
    for c, d in dims.items():
        counts[c] = simplify(ops.floordiv(d.out + (0 if d.shifts else d.rest) + d.stride - 1, d.stride))
        least = d.before // d.stride - (d.taps - 1) * d.dilation
        (place,) = given.layout.places(c)
        before[place] = max(-least, 0)
        last = simplify(counts[c] - 1 + d.before // d.stride + int(d.shifts) - (d.size - 1))
        after[place] = max(last, 0) if isinstance(last, int) else simplify(ops.max_of(last, 0))
        lows[c] = d.before // d.stride + before[place]
    data = pad(given.data, before, after, 0, name="pad_temp") if any((*before, *after)) else given.data
    stage = _Stage(given, counts, {c: d.stride for c, d in dims.items()})
    taps = {c: te.reduce_axis((0, d.taps), f"k{c.lower()}") for c, d in dims.items() if d.taps > 1}
    read = _phase_kernel(given, dims, ci)
    axes = ([] if ci is None else [ci]) + list(taps.values())

    def phase(*indices: Any) -> Any:
        at = stage.named(indices)
        where = {"N": at["N"], "C": _channel(given, at, ci)}
        for c, d in dims.items():
            first = ops.add(at[c], at[f"k{c}"]) if d.shifts else at[c]
            step = ops.mul(taps[c].var, d.dilation) if c in taps else 0
            where[c] = ops.sub(ops.add(first, lows[c]), step)
        value = given.layout.read(data, where)
        return te.sum(ops.mul(ops.cast(kind, value), ops.cast(kind, read(at, taps))), axis=axes)

    sums = te.compute(stage.shape, phase, f"{tag}_phases")

    def element(at: dict[str, Any]) -> Any:
        point = dict(at)
        for c, d in dims.items():
            here = at[c] if d.shifts else ops.add(at[c], d.rest)
            point[c], point[f"k{c}"] = ops.floordiv(here, d.stride), ops.floormod(here, d.stride)
        return stage.read(sums, point)

    return _result(given, dims, tag, element)


def _phase_kernel(
    given: Operands, dims: Mapping[str, Spread], ci: te.IterVar | None
) -> Callable[[Mapping[str, Any], Mapping[str, te.IterVar]], Any]:
    """Reads the stage of the kernel in which each phase has its taps, with zeros behind those that it lacks."""
    shape = get_const_tuple(given.kernel.shape)
    sizes = {"O": given.weights.size("O", shape), **{f"k{c}": d.stride for c, d in dims.items()}}
    sizes |= {"I": given.weights.size("I", shape), **{c: d.taps for c, d in dims.items()}}

    def weight(*indices: Any) -> Any:
        at = dict(zip(sizes, indices, strict=True))
        source, inside = {"O": at["O"], "I": at["I"]}, []
        for c, d in dims.items():
            phase = ops.sub(1, at[f"k{c}"]) if d.shifts else at[f"k{c}"]
            source[c] = ops.add(ops.mul(at[c], d.stride), phase)
            if d.kernel % d.stride:
                inside.append(ops.less(source[c], d.kernel))
        value = given.weights.read(given.kernel, source)
        return ops.if_then_else(ops.all(*inside), value, te.const(0, value.dtype)) if inside else value

    stage = injective("nn.conv_transpose", list(sizes.values()), weight, name="kernel_phases")

    def read(at: Mapping[str, Any], taps: Mapping[str, te.IterVar]) -> Any:
        where = {"O": at["O"], "I": _channel(given, at, ci)}
        for c in dims:
            where[f"k{c}"] = at.get(f"k{c}", 0)
            where[c] = taps[c].var if c in taps else 0
        return stage(*(where[name] for name in sizes))

    return read
