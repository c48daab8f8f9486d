"""The generic convolution: any rank, layout and number of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ... import te
from ...ir import ops
from ..math import cast
from ..reduction import accumulator
from ..utils import dtype_of, fail, get_const_tuple, prod, simplify, static_int
from .padding import pad
from .utils import (
    Coordinate,
    Digit,
    Layout,
    joined,
    layout_of,
    paddings,
    spatial,
    spatial_letters,
    window_count,
)

__all__ = ["conv"]


class Layouts(NamedTuple):
    """The layouts of the operands and the result of a convolution."""

    data: str
    kernel: str
    out: str


def kernel_layout_for(data_layout: str) -> str:
    """The layout that kernels have where none is named: OIHW beside NCHW, HWIO beside NHWC."""
    letters = "".join(c for c in data_layout if c.isupper())
    space = "".join(c for c in letters if c not in "NC")
    return f"OI{space}" if letters.startswith("NC") else f"{space}IO"


def conv(
    inp: te.Tensor,
    filt: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A convolution of the rank that the layouts name.

    out[n, co, oh, ow] = sum over ci, kh, kw of
        padded[n, co // (CO/groups) * (CI/groups) + ci, oh*stride + kh*dilation, …] * filt[co, ci, kh, kw]
    """
    rank = len(spatial_letters("nn.conv", "data_layout", data_layout, "")) if data_layout else 0
    tag = f"conv{rank}d_{data_layout.lower()}"
    grouped = static_int("nn.conv", "groups", groups) != 1
    layouts = Layouts(data_layout, kernel_layout or kernel_layout_for(data_layout), data_layout)
    name = f"group_{tag}" if grouped else tag
    return convolve("nn.conv", inp, filt, stride, padding, dilation, groups, layouts, out_dtype, name)


def convolve(
    operator_name: str,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layouts: Layouts,
    out_dtype: str | None,
    tag: str,
    name: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> te.Tensor:
    """The stages of a convolution: the padded data if there is padding, the sum of products, and a cast if the
    accumulator is wider than the result.

    A kernel layout without I is depthwise: each of its channels is applied to one channel of the data.
    """
    spec = _Convolution(operator_name, data, kernel, groups, layouts)
    spec.place_windows(strides, padding, dilation)
    kind = dtype_of(operator_name, data.dtype if out_dtype is None else out_dtype)
    return cast(spec.stages(accumulator(kind), tag, name or tag, attrs), kind)


class _Convolution:
    """The sizes of a convolution, checked, and the sum that it is."""

    def __init__(self, operator_name: str, data: Any, kernel: Any, groups: Any, layouts: Layouts) -> None:
        self.what = operator_name
        space = spatial_letters(operator_name, "data_layout", layouts.data, "")
        self.data_layout = layout_of(operator_name, "data_layout", layouts.data, f"NC{space}", space)
        inputs = "I" if "I" in layouts.kernel else ""
        self.kernel_layout = layout_of(
            operator_name, "kernel_layout", layouts.kernel, f"O{inputs}{space}", space
        )
        self.out_layout = layout_of(operator_name, "out_layout", layouts.out, f"NC{space}", space)
        if _blocks(self.out_layout, "N") != _blocks(self.data_layout, "N"):
            raise fail(
                operator_name,
                f"out_layout is {layouts.out!r} and splits N otherwise than data_layout, {layouts.data!r}",
            )
        self.data, self.kernel, self.space = data, kernel, space
        self.data_shape = self.data_layout.checked_shape(operator_name, "data", data)
        self.kernel_shape = self.kernel_layout.checked_shape(operator_name, "kernel", kernel)
        self.groups = static_int(operator_name, "groups", groups)
        self._check_channels()

    def _check_channels(self) -> None:
        inputs = self.data_layout.size("C", self.data_shape)
        outputs = self.kernel_layout.size("O", self.kernel_shape)
        each = self.kernel_layout.size("I", self.kernel_shape)
        if self.groups < 1:
            raise fail(self.what, f"groups is {self.groups} and must be at least 1")
        for which, channels in (("input", inputs), ("output", outputs)):
            if isinstance(channels, int) and channels % self.groups:
                raise fail(
                    self.what, f"{channels} {which} channels cannot be split into {self.groups} groups"
                )
        wanted = simplify(each * self.groups)
        if isinstance(inputs, int) and isinstance(wanted, int) and inputs != wanted:
            raise fail(
                self.what,
                f"the data has {inputs} channels and the kernel takes {each} in each of {self.groups} "
                f"group{'' if self.groups == 1 else 's'}",
                f"data is {self.data_layout.text}, kernel {self.kernel_layout.text}",
            )
        self.out_channels = outputs
        self.out_each = (
            outputs // self.groups
            if isinstance(outputs, int)
            else simplify(te.floordiv(outputs, self.groups))
        )

    def place_windows(self, strides: Any, padding: Any, dilation: Any) -> None:
        """Compute the windows of the kernel on the data."""
        rank = len(self.space)
        self.strides = spatial(self.what, "strides", strides, rank)
        self.dilation = spatial(self.what, "dilation", dilation, rank)
        sizes = [self.kernel_layout.size(c, self.kernel_shape) for c in self.space]
        covered = [simplify((k - 1) * d + 1) for k, d in zip(sizes, self.dilation, strict=True)]
        self.before, self.after = paddings(self.what, padding, covered)
        self.out_sizes = {
            c: window_count(self.what, self.data_layout.size(c, self.data_shape), b, a, extent, s, c)
            for c, b, a, extent, s in zip(
                self.space, self.before, self.after, covered, self.strides, strict=True
            )
        }

    def padded(self) -> te.Tensor:
        """The data with its padding."""
        if not any((*self.before, *self.after)):
            return self.data
        before, after = [0] * self.data.ndim, [0] * self.data.ndim
        for c, b, a in zip(self.space, self.before, self.after, strict=True):
            (place,) = self.data_layout.places(c)
            before[place], after[place] = b, a
        return pad(self.data, before, after, 0, name="pad_temp")

    def out_shape(self) -> list[Any]:
        """The shape of the result; channels are split as its layout or else the kernel says."""
        layout = self.out_layout
        given = self.kernel_layout.sizes("O", self.kernel_shape)
        places = layout.places("C")
        inner = [
            layout.blocks[p] or (given[-1] if len(places) == 2 and len(given) == 2 else None)
            for p in places[1:]
        ]
        if any(b is None for b in inner):
            raise fail(
                self.what, f"out_layout is {layout.text!r} and does not say how many channels are in a block"
            )
        block = prod(inner)
        if isinstance(self.out_channels, int) and self.out_channels % block:
            raise fail(self.what, f"{self.out_channels} output channels cannot be split in blocks of {block}")
        outer = simplify(ops.floordiv(self.out_channels, block)) if inner else self.out_channels
        channels = iter([outer, *inner])
        batch = iter(self.data_layout.sizes("N", self.data_shape))
        shape: list[Any] = [None] * len(layout.letters)
        for p in places:
            shape[p] = next(channels)
        for p in layout.places("N"):
            shape[p] = next(batch)
        for c in self.space:
            shape[layout.places(c)[0]] = self.out_sizes[c]
        return list(get_const_tuple(shape))

    def reduction(self) -> tuple[list[Any], dict[str, Coordinate]]:
        """The axes to sum over in the order of the kernel's dimensions, and the coordinates they make."""
        layout = self.kernel_layout
        axes: dict[int, Any] = {}
        at: dict[str, Coordinate] = {}
        for letter in dict.fromkeys(layout.letters):
            if letter == "O":
                continue
            places = layout.places(letter)
            sizes = [self.kernel_shape[p] for p in places]
            # One channel in each of several groups is depthwise: nothing to sum over.
            if letter == "I" and self.groups > 1 and all(isinstance(s, int) and s == 1 for s in sizes):
                at["I"] = [Digit(0, s) for s in sizes]
                continue
            name = "ci" if letter == "I" else f"k{letter.lower()}"
            names = [name] if len(places) == 1 else [f"{name}_{d}" for d in range(len(places))]
            for p, s, n in zip(places, sizes, names, strict=True):
                axes[p] = te.reduce_axis((0, s), n)
            at[letter] = [Digit(axes[p].var, s) for p, s in zip(places, sizes, strict=True)]
        return [axes[p] for p in sorted(axes)], at

    def channel(self, out: Coordinate, inner: Coordinate) -> Coordinate:
        """The input channel of output channel `out` and kernel channel `inner`."""
        if self.groups == 1:
            return inner
        summed = not all(isinstance(d.value, int) for d in inner)
        if not summed and isinstance(self.out_each, int) and self.out_each == 1:
            return out
        group = self._group(out)
        if not summed:
            return [Digit(group, self.groups)]
        first = inner[0]
        outermost = Digit(
            ops.add(ops.mul(group, first.size), first.value), simplify(first.size * self.groups)
        )
        return [outermost, *inner[1:]]

    def _group(self, out: Coordinate) -> Any:
        """The group of an output channel, from as few of its digits as possible."""
        digits, each = list(out), self.out_each
        while (
            len(digits) > 1
            and isinstance(each, int)
            and isinstance(digits[-1].size, int)
            and each % digits[-1].size == 0
        ):
            each //= digits.pop().size
        return ops.floordiv(joined(digits), each)

    def stages(self, kind: str, tag: str, name: str, attrs: Mapping[str, Any] | None) -> te.Tensor:
        """The tensor of the result."""
        data = self.padded()
        shape, layout = self.out_shape(), self.out_layout
        axes, at = self.reduction()
        source_shape = get_const_tuple(data.shape)

        def element(*indices: Any) -> Any:
            out = {
                c: [Digit(indices[p], shape[p]) for p in layout.places(c)]
                for c in dict.fromkeys(layout.letters)
            }
            where: dict[str, Coordinate] = {
                "N": out["N"],
                "C": self.channel(out["C"], at.get("I", [Digit(0, 1)])),
            }
            for c, s, d in zip(self.space, self.strides, self.dilation, strict=True):
                position = ops.add(ops.mul(joined(out[c]), s), ops.mul(joined(at[c]), d))
                where[c] = [Digit(position, None)]
            value = data(*self.data_layout.index(where, source_shape))
            weight = self.kernel(*self.kernel_layout.index({**at, "O": out["C"]}, self.kernel_shape))
            return te.sum(ops.mul(ops.cast(kind, value), ops.cast(kind, weight)), axis=axes)

        return te.compute(shape, element, name, tag, attrs, varargs_names=_axis_names(layout))


def _blocks(layout: Layout, letter: str) -> list[int | None]:
    return [layout.blocks[p] for p in layout.places(letter)]


def _axis_names(layout: Layout) -> Sequence[str]:
    """What the loops of a result are called: n, co, oh, ow."""
    known = {"N": "n", "C": "co", "D": "od", "H": "oh", "W": "ow", "n": "n_i", "c": "co_i"}
    names = [known[n] for n in layout.names]
    return [n if names.count(n) == 1 else f"{n}{i}" for i, n in enumerate(names)]
