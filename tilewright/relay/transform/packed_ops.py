"""Operators on tensors in the layout of an accelerator: blocks that are elements of its memories.

    NCHW, 24 channels   ->   NCHW1n16c, 2 blocks of 16 channels, of which the last 8 hold zeros

Each rule says why an operator cannot be computed in this layout, or how. Operands that a chip widens when it loads them
are widened first, and a result is narrowed last: transfers do both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from ...ir.dtype import DataType
from ...target.accelerator import DRAM, Accelerator, MatrixUnit, VectorUnit
from .. import op as R
from ..expr import Call, Constant, Expr, const
from ..op.reduce import reduced_axes
from ..op.traits import traits_of
from .rewriting import by_operator, is_call, static_shape, tensor_type, type_of


@dataclass(frozen=True)
class Blocks:
    """The layout of tensors on a chip, and the units that compute with them."""

    chip: Accelerator
    matrix: MatrixUnit | None
    vector: VectorUnit
    rows: int  # of the batch in a block
    channels: int  # in a block

    @property
    def layout(self) -> str:
        return "NCHW" if self.rows == self.channels == 1 else f"NCHW{self.rows}n{self.channels}c"

    @property
    def kernel_layout(self) -> str:
        return f"OIHW{self.channels}o{self.channels}i"

    @property
    def wide(self) -> str:
        """The type that the vector unit computes with."""
        scope = self.chip.scope(self.vector.scope)
        assert scope is not None
        return scope.dtype

    def fits(self, number: float) -> bool:
        """Whether a constant can be an immediate operand of the vector unit."""
        kind, bits = DataType(self.wide), self.vector.immediate
        if kind.is_float:
            return bits >= kind.bits
        return -(1 << bits - 1) <= number < 1 << bits - 1

    @property
    def loaded(self) -> tuple[str, ...]:
        """The types in DRAM that operands of the vector unit are loaded from."""
        transfer = self.chip.transfer(DRAM, self.vector.scope)
        return () if transfer is None else (self.wide, *transfer.widens)

    @property
    def stored(self) -> tuple[str, ...]:
        """The types in DRAM that results are stored as."""
        transfer = self.chip.transfer(self.vector.scope, DRAM)
        return () if transfer is None else (self.wide, *transfer.narrows)


def blocks_of(chip: Accelerator) -> Blocks | None:
    """The blocks of a chip; None if it has no vector unit.

    Results of a matrix unit are operands of the next product, so blocks of input and output channels must be equal.
    """
    for unit in chip.matrix_units:
        vector = chip.unit(unit.result)
        m, n, k = unit.shape
        if vector is not None and n == k:
            return Blocks(chip, unit, vector, m, n)
    for vector in chip.vector_units:
        scope = chip.scope(vector.scope)
        assert scope is not None
        return Blocks(chip, None, vector, 1, scope.lanes)
    return None


# ---------------------------------------------------------------------------- borders
def pack(x: Expr, blocks: Blocks) -> Expr:
    """A tensor NCHW or NC in blocks; those that it does not fill have zeros."""
    shape = static_shape(x)
    assert shape is not None
    if len(shape) == 2:
        x = R.reshape(x, newshape=(*shape, 1, 1))
    return _transformed(x, "NCHW", blocks.layout)


def _transformed(x: Expr, source: str, target: str) -> Expr:
    """A tensor in another layout; blocks of one element are the layout without blocks."""
    return x if source == target else R.layout_transform(x, src_layout=source, dst_layout=target)


def unpack(x: Expr, blocks: Blocks, shape: tuple[int, ...]) -> Expr:
    """A tensor of the given shape out of its blocks."""
    made = _transformed(x, blocks.layout, "NCHW")
    full = (*shape, 1, 1)[:4]
    if static_shape(made) != full:
        made = R.strided_slice(made, begin=(0,) * 4, end=full, strides=(1,) * 4)
    return made if len(shape) == 4 else R.reshape(made, newshape=shape)


def pack_channels(x: Expr, blocks: Blocks) -> Expr:
    """A number for each channel in blocks, the same for each row of the batch."""
    count = prod(static_shape(x) or ())
    column = R.reshape(x, newshape=(1, count, 1, 1))
    if blocks.rows > 1:
        column = R.repeat(column, repeats=blocks.rows, axis=0)
    return _transformed(column, "NCHW", blocks.layout)


def pack_weights(w: Expr, groups: int, blocks: Blocks) -> Expr:
    """Weights OIHW or OI in blocks."""
    shape = static_shape(w)
    assert shape is not None
    if len(shape) == 2:
        w = R.reshape(w, newshape=(*shape, 1, 1))
    if groups > 1:
        w = _of_groups(w, groups, blocks)
    return R.layout_transform(w, src_layout="OIHW", dst_layout=blocks.kernel_layout)


# ---------------------------------------------------------------------------- operators
@dataclass(frozen=True)
class Packed:
    """How an operator is computed in blocks.

    `why_not` gives the reason why a call cannot be, or nothing. `operands` names the packing of each argument: "data"
    a tensor, "weights", "channels" a number for each channel; numbers have none. `make` builds the packed call from
    packed arguments.
    """

    why_not: Callable[[Call, Blocks], str]
    operands: Callable[[Call], dict[int, str]]
    make: Callable[[Call, list[Expr], Blocks], Expr]


def rule_of(call: Call) -> Packed | None:
    """The rule of a call; None if its operator is never computed in blocks."""
    return _RULES.get(call.op) or (_ELEMENTWISE if traits_of(call).vector else None)


def is_product(call: Any) -> bool:
    return is_call(call, R.nn.conv2d, R.nn.dense)


def is_view(call: Any) -> bool:
    """Whether a call turns NC11 into NC or back: both have the same blocks."""
    if call.__class__ is not Call or not traits_of(call).view or len(call.args) != 1:
        return False
    old, new = static_shape(call.args[0]), static_shape(call)
    if old is None or new is None or {len(old), len(new)} - {2, 4}:
        return False
    return (*old, 1, 1)[:4] == (*new, 1, 1)[:4]


def is_widening(call: Any, blocks: Blocks) -> bool:
    """Whether a call converts what a load converts anyway."""
    if not is_call(call, R.cast) or str(call.attrs.dtype) != blocks.wide:
        return False
    kind = tensor_type(call.args[0])
    return kind is not None and str(kind.dtype) in blocks.loaded and str(kind.dtype) != blocks.wide


def is_narrowing(call: Any, blocks: Blocks) -> bool:
    """Whether a call converts what a store converts anyway."""
    kind = tensor_type(call.args[0]) if is_call(call, R.cast) else None
    narrow = kind is not None and str(kind.dtype) == blocks.wide
    return narrow and str(call.attrs.dtype) in blocks.stored and str(call.attrs.dtype) != blocks.wide


def _dtype(x: Expr) -> str:
    kind = tensor_type(x)
    return "" if kind is None else str(kind.dtype)


# -- products
def _why_no_product(call: Call, blocks: Blocks) -> str:
    unit = blocks.matrix
    if unit is None:
        return f"{blocks.chip.name} has no matrix unit"
    types = [_dtype(call.args[0]), _dtype(call.args[1]), _dtype(call)]
    scopes = [blocks.chip.scope(s) for s in (unit.left, unit.right, unit.result)]
    wanted = [s.dtype for s in scopes if s is not None]
    if types != wanted:
        has, does = (f"{a} by {b} into {c}" for a, b, c in (types, wanted))
        return f"it multiplies {has}, and {blocks.chip.name} {does}; quantize the model to these types first"
    shapes = [static_shape(a) for a in (*call.args, call)]
    if any(s is None or len(s) not in (2, 4) for s in shapes):
        return "its sizes are not known now"
    outputs, inputs = (shapes[1] or (0, 0))[:2]
    if is_call(call, R.nn.conv2d):
        a = call.attrs
        if a.groups != 1 and _merged(outputs // a.groups, inputs, a.groups, blocks) is None:
            return (
                f"its {a.groups} groups have {inputs} input and {outputs // a.groups} output channels: no number of "
                f"them has one block of {blocks.channels} outputs"
            )
        inputs *= a.groups
        if (a.data_layout, a.kernel_layout, a.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
            return f"its layouts are {a.data_layout} and {a.kernel_layout}, not NCHW and OIHW"
    block = blocks.channels
    used = prod(n / (-(-n // block) * block) for n in (outputs, inputs))
    least = blocks.matrix.least_used if blocks.matrix is not None else 0.0
    if used < least:
        return (
            f"{inputs} input and {outputs} output channels use {used:.0%} of blocks of {block} by {block}, and "
            f"{least:.0%} are the least"
        )
    return ""


def _merged(outputs: int, inputs: int, groups: int, blocks: Blocks) -> int | None:
    """How many groups of a convolution are one group in blocks, given the channels of each; None if there is no way.

    The outputs of a group are one block, so that consecutive blocks of outputs read consecutive blocks of inputs. The
    last blocks may be padded if those of inputs and outputs correspond. A few groups may be one.
    """
    block = blocks.channels
    count = block // outputs if block % outputs == 0 else 0
    if count and count * inputs % block == 0 and (groups % count == 0 or inputs == outputs):
        return count
    few = blocks.matrix is not None and 1 / groups >= blocks.matrix.least_used
    return groups if few else None


def _of_groups(w: Expr, groups: int, blocks: Blocks) -> Expr:
    """Weights of groups that are merged: matrices with zeros beside their diagonal.

    four groups of one channel, blocks of 2              a 0 | · ·
    a b c d                                     ->       0 b | · ·       two groups of one block
                                                         · · | c 0
                                                         · · | 0 d
    """
    outputs, inputs = (static_shape(w) or ())[:2]
    each = outputs // groups
    count = _merged(each, inputs, groups, blocks)
    assert count is not None
    row = np.arange(outputs) // each % count
    own = row[:, None] == np.arange(count * inputs) // inputs
    mask = const(own.reshape(outputs, count * inputs, 1, 1), _dtype(w))
    return R.multiply(R.tile(w, reps=(1, count, 1, 1)), mask)


def _make_product(call: Call, args: list[Expr], blocks: Blocks) -> Expr:
    shape, data = static_shape(args[1]), static_shape(args[0])
    assert shape is not None and data is not None
    window = call.attrs if is_call(call, R.nn.conv2d) else {}
    return R.nn.conv2d(
        args[0],
        args[1],
        window.get("strides", (1, 1)),
        window.get("padding", (0, 0)),
        window.get("dilation", (1, 1)),
        groups=data[1] // shape[1],
        channels=shape[0] * blocks.channels,
        kernel_size=shape[2:4],
        data_layout=blocks.layout,
        kernel_layout=blocks.kernel_layout,
        out_dtype=blocks.wide,
    )


# -- windows
def _why_no_pool(call: Call, blocks: Blocks) -> str:
    a = call.attrs
    if "max" not in blocks.vector.operations:
        return "the vector unit has no maximum"
    if a.ceil_mode:
        return "its windows may reach over the border (ceil_mode)"
    if a.layout != "NCHW" or a.out_layout not in ("", "NCHW") or static_shape(call) is None:
        return "it is not a plain pooling of NCHW"
    if any(p >= n for p, n in zip(a.padding, (*a.pool_size, *a.pool_size), strict=True)):
        return "a window may have padding only"
    if any(a.padding) and range_of(call.args[0])[0] < 0:
        return "loads pad with zeros, which may be greater than its elements"
    return _why_no_types(call, blocks)


def _why_no_types(call: Call, blocks: Blocks) -> str:
    if _dtype(call.args[0]) not in blocks.loaded or _dtype(call) not in blocks.stored:
        return (
            f"the vector unit of {blocks.chip.name} computes with {blocks.wide}, not {_dtype(call.args[0])}"
        )
    return ""


def _make_pool(call: Call, args: list[Expr], blocks: Blocks) -> Expr:
    attrs = call.attrs.replace(layout=blocks.layout, out_layout="")
    x: Any = args[0]
    if any(attrs.padding):
        # zeros change no maximum of numbers that are not negative, and loads add them
        top, left, bottom, right = attrs.padding
        inside = ((0, 0), (0, 0)) if blocks.layout != "NCHW" else ()
        width = ((0, 0), (0, 0), (top, bottom), (left, right), *inside)
        attrs = attrs.replace(padding=(0, 0, 0, 0))
        if is_widening(x, blocks):
            x = R.cast(R.nn.pad(x.args[0], width, const(0, _dtype(x.args[0]))), dtype=blocks.wide)
        else:
            x = R.nn.pad(x, width, const(0, blocks.wide))
    return Call(call.op, [x], attrs)


def range_of(x: Any) -> tuple[float, float]:
    """Bounds of the values of an expression, as far as clipping in front of it shows them."""
    low, high = -math.inf, math.inf
    while x.__class__ is Call:
        number = _number(x.args[1]) if is_call(x, R.maximum, R.minimum) else None
        if is_call(x, R.clip):
            low, high = max(low, x.attrs.a_min), min(high, x.attrs.a_max)
        elif is_call(x, R.nn.relu):
            low = max(low, 0)
        elif number is not None and is_call(x, R.maximum):
            low = max(low, number)
        elif number is not None:
            high = min(high, number)
        elif not (is_call(x, R.nn.max_pool2d) or is_view(x) or (is_call(x, R.cast) and _keeps(x))):
            break
        x = x.args[0]
    return low, high


def _keeps(cast: Call) -> bool:
    """Whether a conversion changes no value."""
    low, high = range_of(cast.args[0])
    dtype = str(cast.attrs.dtype)
    half = 1 << int(dtype.removeprefix("int")) - 1 if dtype.startswith("int") else 0
    return -half <= low <= high < half


def _why_no_sum(call: Call, blocks: Blocks) -> str:
    shape = static_shape(call.args[0])
    if "add" not in blocks.vector.operations:
        return "the vector unit has no sum"
    if shape is None or len(shape) != 4 or reduced_axes(call.attrs, 4) != (2, 3):
        return "it does not sum over the rows and columns of images"
    return (
        _why_no_types(call, blocks) if _dtype(call) == blocks.wide else "its sum is not as wide as the unit's"
    )


def _make_sum(call: Call, args: list[Expr], blocks: Blocks) -> Expr:
    return R.sum(args[0], axis=(2, 3), keepdims=True)


# -- element by element
def _number(x: Expr) -> float | None:
    """The value of a constant with one element."""
    if not isinstance(x, Constant) or prod(x.data.shape) != 1:
        return None
    return x.numpy().reshape(()).item()  # type: ignore[no-any-return]


def _per_channel(call: Call, x: Expr) -> bool:
    """Whether an operand has one number for each channel of the result."""
    shape, result = static_shape(x), static_shape(call)
    if shape is None or result is None:
        return False
    if is_call(call, R.nn.bias_add):
        return call.attrs.axis in (1, 1 - len(result)) and shape == (result[1],)
    full = (1,) * (len(result) - len(shape)) + shape
    return full == (1, *result[1:2], *(1,) * (len(result) - 2)) and result[1] != 1


def _kinds(call: Call) -> dict[int, str]:
    """The packing of each argument of an elementwise operator."""
    out: dict[int, str] = {}
    for i, a in enumerate(call.args):
        if _number(a) is None:
            same = static_shape(a) == static_shape(call)
            out[i] = "data" if same else "channels" if _per_channel(call, a) else ""
    return out


def _why_no_elements(call: Call, blocks: Blocks) -> str:
    unit, shape = blocks.vector, static_shape(call)
    missing = set(traits_of(call).vector) - set(unit.operations)
    if missing:
        return f"the vector unit has no {', '.join(sorted(missing))}"
    if shape is None or len(shape) not in (2, 4):
        return "it is not a tensor NCHW or NC of known size"
    why = _why_no_types(call, blocks)
    if why:
        return why
    kinds = _kinds(call)
    if "" in kinds.values() or "data" not in kinds.values():
        return "an operand is broadcast, and not along channels"
    first = _number(call.args[0])
    if first is not None and not traits_of(call).commutes:
        return "its first operand is a constant"
    numbers = [n for a in call.args if (n := _number(a)) is not None]
    bounds = [call.attrs[name] for name in ("a_min", "a_max") if call.attrs and name in call.attrs]
    wrong = next((n for n in (*numbers, *bounds) if not blocks.fits(n)), None)
    if wrong is not None:
        return f"the constant {wrong} has more than the {unit.immediate} bits of an immediate operand"
    bits = type_of(call).dtype.bits
    if "shift_right" in traits_of(call).vector and not (len(numbers) == 1 and 0 <= numbers[0] < bits):
        return "it does not shift by a constant"
    return ""


def _make_elements(call: Call, args: list[Expr], blocks: Blocks) -> Expr:
    if is_call(call, R.nn.bias_add):
        return R.add(*args)
    given = [a if (n := _number(a)) is None else const(n, blocks.wide) for a in args]
    if len(given) == 2 and _number(given[0]) is not None:
        given.reverse()
    return Call(call.op, given, call.attrs)


_ELEMENTWISE: Final = Packed(_why_no_elements, _kinds, _make_elements)
_PRODUCT: Final = Packed(_why_no_product, lambda call: {0: "data", 1: "weights"}, _make_product)
_RULES: Final[dict[Any, Packed]] = by_operator(
    {
        R.nn.conv2d: _PRODUCT,
        R.nn.dense: _PRODUCT,
        R.nn.max_pool2d: Packed(_why_no_pool, lambda call: {0: "data"}, _make_pool),
        R.sum: Packed(_why_no_sum, lambda call: {0: "data"}, _make_sum),
    }
)
