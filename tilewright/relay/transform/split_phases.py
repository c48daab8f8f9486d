"""SplitPhases: transposed convolutions as convolutions of the phases of their stride, for an accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...target import Target
from .. import op as R
from ..expr import Call, Expr, Function, Tuple, const
from ..op.traits import traits_of
from ..visitor import flow_inputs, in_order
from .offload import PARTITIONED
from .packed_ops import Blocks, blocks_of, rule_of
from .rewriting import is_call, static_shape, typed_pass


def split_phases(func: Function) -> Function:
    """For an accelerator with a matrix unit, replace transposed convolutions by convolutions that it computes.

        %0 = nn.conv2d_transpose(%x, %w,              %0 = nn.conv2d(%x, take(%w, [3, 1]), …);    %1 = cast(%0 >> 4)
                                 strides=2)    ->     %2 = nn.conv2d(%x, take(%w, [2, 0]), …);    %3 = cast(%2 >> 4)
        cast(%0 >> 4)                                 reshape(stack([%1, %3], axis=-1))

    A stride of s has s phases: the elements o of the result with the same o % s, for which every s-th tap of the
    kernel counts. Each is a convolution of the data as it is, so no product has a zero that the stride put between
    elements. Elementwise operators behind it, with numbers or with vectors of channels, are computed in phases;
    the host interleaves the results. Other targets are unchanged.

    Needs: types, no lets or branches. Gives: no transposed convolution that the chip can compute in phases.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.is_accelerator or func.attrs.get(PARTITIONED):
        return func
    blocks = blocks_of(target.accelerator)
    if blocks is None or blocks.matrix is None:
        return func
    return _Split(blocks).run(func)


@dataclass(frozen=True)
class _Phases:
    """A tensor NCHW as the phases of its rows and columns, row by row."""

    parts: tuple[Expr, ...]
    strides: tuple[int, int]


class _Split:
    """Builds the function in which tensors may have phases."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.phases: dict[Any, _Phases] = {}
        self.plain: dict[Any, Any] = {}

    def run(self, func: Function) -> Function:
        for e in in_order(func.body, flow_inputs):
            found = self._split(e) if e.__class__ is Call else None
            if found is not None:
                self.phases[e] = found
            else:
                self.plain[e] = e.map_children(lambda c: self._whole(c) if isinstance(c, Expr) else c)
        body = self._whole(func.body)
        return func.updated(body=body)

    def _whole(self, x: Any) -> Any:
        """An expression with its phases interleaved."""
        if x not in self.plain and x in self.phases:
            self.plain[x] = _interleaved(self.phases[x], static_shape(x) or ())
        return self.plain.get(x, x)

    def _split(self, e: Call) -> _Phases | None:
        if is_call(e, R.nn.conv2d_transpose):
            return self._convolutions(e)
        if not is_call(e, R.cast) and not traits_of(e).vector:
            return None
        rule = rule_of(e)
        kinds = {0: "data"} if rule is None else rule.operands(e)
        data = [i for i, kind in kinds.items() if kind != "channels"]
        found = [self.phases.get(e.args[i]) for i in data]
        if not found or any(f is None or f.strides != found[0].strides for f in found):  # type: ignore[union-attr]
            return None
        first = found[0]
        assert first is not None
        made = []
        for n in range(len(first.parts)):
            own = {i: self.phases[e.args[i]].parts[n] for i in data}
            made.append(
                Call(e.op, [own.get(i) or self._whole(a) for i, a in enumerate(e.args)], e.attrs, span=e.span)
            )
        return _Phases(tuple(made), first.strides)

    def _convolutions(self, e: Call) -> _Phases | None:
        """The convolution of each phase; none if one of them is not for the chip."""
        a = e.attrs
        x, w, out = (static_shape(t) for t in (*e.args, e))
        layouts = (a.data_layout, a.kernel_layout, a.out_layout or "NCHW")
        if x is None or w is None or out is None or layouts != ("NCHW", "IOHW", "NCHW"):
            return None
        dims = [
            _phases(x[i], w[i], out[i], a.strides[i - 2], a.dilation[i - 2], a.padding[i - 2]) for i in (2, 3)
        ]
        data, weight = (self._whole(t) for t in e.args)
        weight = _direct(weight, w, a.groups)
        parts = []
        for rows, columns in product(*dims):
            if min(*rows.pads, *columns.pads) < 0:
                return None
            taps = _taken(_taken(weight, rows.taps, w[2], 2), columns.taps, w[3], 3)
            made = R.nn.conv2d(
                data,
                taps,
                padding=(rows.pads[0], columns.pads[0], rows.pads[1], columns.pads[1]),
                dilation=(rows.dilation, columns.dilation),
                groups=a.groups,
                channels=w[1] * a.groups,
                kernel_size=(len(rows.taps), len(columns.taps)),
                out_dtype=a.out_dtype,
            )
            rule = rule_of(made)
            if rule is None or rule.why_not(made, self.blocks):
                return None
            parts.append(made)
        return _Phases(tuple(parts), (len(dims[0]), len(dims[1])))


# ---------------------------------------------------------------------------- phases of a dimension
@dataclass(frozen=True)
class _Phase:
    """A phase of a dimension: the taps of the kernel in the order of the data, and the padding on both sides.

    The tap behind the last one is 0: it makes up for padding that would be negative.
    """

    taps: list[int]
    pads: tuple[int, int]
    dilation: int = 1


def _phases(size: int, kernel: int, out: int, stride: int, dilation: int, before: int) -> list[_Phase]:
    """The phases of a dimension. Element i meets tap k in element i*stride + k*dilation - before of the result, so that

    out[q*stride + r] = sum over t of x[q + first - t] * kernel[p + t*stride]      first, p = divmod(r + before, stride)
    """
    count = -(-out // stride)
    if dilation > 1:
        if stride > 1:  # the phase of a tap is not linear in its place
            return [_Phase([], (-1, -1))]
        pads = ((kernel - 1) * dilation - before, count - size + before)
        return [_Phase(list(range(kernel - 1, -1, -1)), pads, dilation)]
    found = []
    for r in range(stride):
        first, p = divmod(r + before, stride)
        low = min(0, count - size + first)
        high = max(-(-(kernel - p) // stride) - 1, first)
        places = [p + t * stride if t >= 0 else kernel for t in range(high, low - 1, -1)]
        found.append(_Phase([min(k, kernel) for k in places], (high - first, count - size + first - low)))
    return found


def _direct(w: Expr, shape: tuple[int, ...], groups: int) -> Expr:
    """The weights IOHW of a transposed convolution as OIHW."""
    if groups == 1:
        return R.transpose(w, axes=(1, 0, 2, 3))
    inputs, outputs, *window = shape
    w = R.reshape(w, newshape=(groups, inputs // groups, outputs, *window))
    return R.reshape(
        R.transpose(w, axes=(0, 2, 1, 3, 4)), newshape=(groups * outputs, inputs // groups, *window)
    )


def _taken(w: Expr, taps: list[int], size: int, axis: int) -> Expr:
    """Some taps of weights along an axis; that behind the last is 0."""
    if size in taps:
        width = [(0, 0)] * 4
        width[axis] = (0, 1)
        w = R.nn.pad(w, pad_width=width)
    return R.take(w, const(np.array(taps, "int32")), axis=axis)


def _interleaved(phases: _Phases, shape: tuple[int, ...]) -> Expr:
    """A tensor out of its phases."""
    rows, columns = phases.strides
    if rows * columns == 1:
        return phases.parts[0]
    n, c, height, width = (-(-size // s) for size, s in zip(shape, (1, 1, rows, columns), strict=True))
    made = R.stack(Tuple(list(phases.parts)), axis=-1)
    made = R.reshape(made, newshape=(n, c, height, width, rows, columns))
    made = R.transpose(made, axes=(0, 1, 2, 4, 3, 5))
    made = R.reshape(made, newshape=(n, c, height * rows, width * columns))
    if (height * rows, width * columns) != shape[2:]:
        made = R.strided_slice(made, begin=(0,) * 4, end=shape, strides=(1,) * 4)
    return made


SplitPhases = typed_pass(split_phases, name="SplitPhases", opt_level=0)
