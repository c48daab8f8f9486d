"""Padding, dilation and layouts of the neural operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ... import te
from ...ir import ops
from ...ir.data_layout import layout_axes
from ...ir.expr import convert
from ..utils import fail, get_const_tuple, int_list, prod, same_size, shape_text, shown, simplify, static_int

__all__ = [
    "get_pad_tuple",
    "get_pad_tuple1d",
    "get_pad_tuple3d",
    "get_pad_tuple_generic",
    "infer_pad",
    "infer_stride",
]


# ---------------------------------------------------------------------------- padding and strides
def _integers(operator_name: str, argument: str, value: Any) -> list[int]:
    """One integer or several that are known now; NumPy's count as Python's."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    return [static_int(operator_name, argument, v) for v in int_list(operator_name, argument, plain)]


def paddings(
    operator_name: str, padding: Any, kernel: Sequence[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is added before and after each spatial dimension.

    1            one amount everywhere
    (1, 2)       the same before and after: 1 for the height, 2 for the width
    (1, 2, 3, 4) top, left, bottom, right
    'VALID'      nothing; 'SAME' kernel - 1 in all, the greater half before
    """
    rank = len(kernel)
    if isinstance(padding, str):
        if padding.upper() == "VALID":
            return (0,) * rank, (0,) * rank
        if padding.upper() == "SAME":
            whole = [static_int(operator_name, "the size of the kernel", k) - 1 for k in kernel]
            return tuple((w + 1) // 2 for w in whole), tuple(w // 2 for w in whole)
        raise fail(
            operator_name, f"padding is {padding!r}", "write 'SAME', 'VALID' or what to add on each side"
        )
    given = _integers(operator_name, "padding", padding)
    if any(p < 0 for p in given):
        raise fail(
            operator_name, f"padding is {shown(padding)} and must not be negative", "cut with strided_slice"
        )
    if len(given) == 1:
        given *= rank
    if len(given) == rank:
        return tuple(given), tuple(given)
    if len(given) != 2 * rank:
        forms = f"1, {rank} or {2 * rank}" if rank > 1 else "1 or 2"
        raise fail(operator_name, f"padding is {shown(padding)} and has {forms} numbers")
    return tuple(given[:rank]), tuple(given[rank:])


def spatial(operator_name: str, argument: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """One number for all spatial dimensions or one for each, none below `least`."""
    given = _integers(operator_name, argument, value)
    if len(given) == 1:
        given *= rank
    if len(given) != rank:
        raise fail(
            operator_name,
            f"{argument} is {shown(value)} and there are {rank} spatial dimensions",
            "give one number for each, or one for all",
        )
    if any(v < least for v in given):
        raise fail(operator_name, f"{argument} is {shown(value)} and must be at least {least}")
    return tuple(given)


def get_pad_tuple_generic(padding: Any, kernel: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and the padding after each dimension of the (dilated) kernel."""
    return paddings("nn.utils.get_pad_tuple_generic", padding, kernel)


def get_pad_tuple(padding: Any, kernel: Sequence[Any]) -> tuple[int, int, int, int]:
    """Top, left, bottom and right padding of a two-dimensional operator."""
    (top, left), (bottom, right) = paddings("nn.utils.get_pad_tuple", padding, kernel)
    return top, left, bottom, right


def get_pad_tuple1d(padding: Any, kernel: Any) -> tuple[int, int]:
    """Left and right padding of a one-dimensional operator."""
    size = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel,)
    (left,), (right,) = paddings("nn.utils.get_pad_tuple1d", padding, size)
    return left, right


def get_pad_tuple3d(padding: Any, kernel: Sequence[Any]) -> tuple[int, int, int, int, int, int]:
    """Front, top, left, back, bottom and right padding of a three-dimensional operator."""
    (front, top, left), (back, bottom, right) = paddings("nn.utils.get_pad_tuple3d", padding, kernel)
    return front, top, left, back, bottom, right


def infer_pad(data: te.Tensor, data_pad: te.Tensor | None) -> tuple[int, int]:
    """The symmetric height and width padding between an NCHW tensor and its padded form."""
    if data_pad is None:
        return 0, 0
    sizes = zip(get_const_tuple(data.shape[2:]), get_const_tuple(data_pad.shape[2:]), strict=True)
    height, width = ((padded - plain) // 2 for plain, padded in sizes)
    return height, width


def infer_stride(data: te.Tensor, kernel: te.Tensor, out: te.Tensor) -> tuple[int, int]:
    """The strides of an unpadded NCHW convolution, from the shapes of its operands and its result."""
    sizes = (get_const_tuple(t.shape[2:4]) for t in (data, kernel, out))
    height, width = ((i - k) // max(o - 1, 1) for i, k, o in zip(*sizes, strict=True))
    return height, width


# ---------------------------------------------------------------------------- layouts
class Digit(NamedTuple):
    """A part of a coordinate that is split over several dimensions: its value and how many values it has."""

    value: Any
    size: Any


# A coordinate, outermost digit first: channel 37 in blocks of 16 is (2, 5).
Coordinate = Sequence[Digit]


def joined(coordinate: Coordinate) -> Any:
    """The coordinate as one number."""
    value: Any = 0
    for position, digit in enumerate(coordinate):
        value = digit.value if position == 0 else ops.add(ops.mul(value, digit.size), digit.value)
    return value


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) if isinstance(a, int) and isinstance(b, int) else same_size(convert(a), convert(b))


def resplit(coordinate: Coordinate, sizes: Sequence[Any]) -> list[Any]:
    """The digits of a coordinate for dimensions of other sizes; digits that fit stay as they are.

    (c1, c2:4, c3:4) for dimensions of 8 and 16:  c1, c2*4 + c3
    (c) for dimensions of 8 and 16:               c // 16, c % 16
    """
    rest = list(coordinate)
    out: list[Any] = []
    for size in reversed(sizes[1:]):
        taken: list[Digit] = []
        while rest and not _same(prod(d.size for d in taken), size):
            taken.insert(0, rest.pop())
        if not _same(prod(d.size for d in taken), size):
            whole, out = joined(coordinate), []
            for inner in reversed(sizes[1:]):
                out.append(ops.floormod(whole, inner))
                whole = ops.floordiv(whole, inner)
            return [whole, *reversed(out)]
        out.append(joined(taken))
    return [joined(rest), *reversed(out)]


class Layout:
    """The dimensions of a tensor: in NCHW16c the channels are blocked, with 16 of them last."""

    def __init__(self, text: str, axes: Sequence[tuple[str, int]]) -> None:
        self.text = text
        self.letters = tuple(letter.upper() for letter, _ in axes)
        self.blocks = tuple(block or None for _, block in axes)
        self.primary = tuple(letter for letter, _ in axes if letter.isupper())
        self.names = tuple(letter for letter, _ in axes)

    @property
    def spatial(self) -> tuple[str, ...]:
        """The spatial dimensions in their order of depth, height and width."""
        return tuple(c for c in "DHW" if c in self.primary)

    def places(self, letter: str) -> list[int]:
        """The dimensions of the digits of a coordinate, outermost first."""
        found = [i for i, c in enumerate(self.letters) if c == letter]
        return sorted(found, key=lambda i: (self.names[i].islower(), i))

    def sizes(self, letter: str, shape: Sequence[Any]) -> list[Any]:
        """The sizes of the digits of a coordinate."""
        return [shape[i] for i in self.places(letter)]

    def size(self, letter: str, shape: Sequence[Any]) -> Any:
        """How many values a coordinate has; 1 if the tensor has no such dimension."""
        return prod(self.sizes(letter, shape))

    def index(self, at: Mapping[str, Coordinate], shape: Sequence[Any]) -> list[Any]:
        """The indices of an element from its coordinates."""
        out: list[Any] = [None] * len(self.letters)
        for letter in dict.fromkeys(self.letters):
            places = self.places(letter)
            for place, value in zip(places, resplit(at[letter], self.sizes(letter, shape)), strict=True):
                out[place] = value
        return out

    def read(self, tensor: te.Tensor, at: Mapping[str, Any]) -> Any:
        """The element of a tensor at coordinates that are one number each."""
        index = {letter: [Digit(value, None)] for letter, value in at.items()}
        return tensor(*self.index(index, get_const_tuple(tensor.shape)))

    def checked_shape(self, operator_name: str, argument: str, tensor: Any) -> tuple[Any, ...]:
        """The shape of a tensor in this layout."""
        if not isinstance(tensor, te.Tensor):
            raise fail(operator_name, f"{argument} is {shown(tensor)} and must be a tensor")
        shape = get_const_tuple(tensor.shape)
        if len(shape) != len(self.letters):
            raise fail(
                operator_name,
                f"{argument} `{tensor.name}` has shape {shape_text(shape)} and layout {self.text} has "
                f"{len(self.letters)} dimensions",
            )
        for size, block, name in zip(shape, self.blocks, self.names, strict=True):
            if block is not None and not _same(size, block):
                raise fail(
                    operator_name,
                    f"{argument} `{tensor.name}` has shape {shape_text(shape)}: dimension {name} of layout "
                    f"{self.text} is {size}",
                )
        return shape


@lru_cache(maxsize=256)
def _parsed(text: str) -> Layout | None:
    axes = layout_axes(text)
    return None if axes is None else Layout(text, axes)


def layout_of(operator_name: str, argument: str, text: Any, needed: str, whole: str = "") -> Layout:
    """A layout that names the dimensions `needed`, of which those in `whole` must not be split."""
    layout = _parsed(text) if isinstance(text, str) else None
    if layout is None:
        raise fail(operator_name, f"{argument} is {shown(text)}", "write it as NCHW, NHWC or NCHW16c")
    if set(needed) != set(layout.primary):
        raise fail(operator_name, f"{argument} is {text!r} and must have the dimensions {', '.join(needed)}")
    for letter in whole:
        if len(layout.places(letter)) > 1:
            raise fail(operator_name, f"{argument} is {text!r} and {letter} must not be split")
    return layout


def spatial_letters(operator_name: str, argument: str, text: Any, batch: str) -> str:
    """The spatial dimensions that a layout names besides those in `batch`."""
    layout = _parsed(text) if isinstance(text, str) else None
    if layout is None or not layout.spatial:
        raise fail(operator_name, f"{argument} is {shown(text)}", "write it as NCHW, NHWC or NCHW16c")
    return batch + "".join(layout.spatial)


def window_count(
    operator_name: str, size: Any, before: Any, after: Any, extent: Any, stride: Any, what: str, over: int = 0
) -> Any:
    """How many windows of `extent` fit into a dimension with its padding; that none does is an error, unless the first
    hangs over the end by no more than `over`."""
    room = simplify(size + before + after - extent)
    if isinstance(room, int) or hasattr(room, "value"):
        fits = int(getattr(room, "value", room))
        if fits < -over:
            raise fail(
                operator_name,
                f"the kernel covers {extent} elements of dimension {what}, which has {size} and padding of "
                f"{before} and {after}",
                "use a smaller kernel or dilation, or more padding",
            )
        return fits // stride + 1
    return simplify(ops.floordiv(room, stride) + 1)
