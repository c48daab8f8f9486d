"""Rules for operators in a layout other than the program's own. A rule returns None if it does not apply."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from .. import op as R
from ..expr import Call, Tuple, TupleGetItem
from ..op import layouts as names
from ..op.expansions import along_axis
from ..op.registry import OpPattern
from ..op.traits import traits_of
from .infer_layout_utils import InferCorrectLayoutOutput
from .layouts import Laid, LayoutRewriter, plain_part
from .rewriting import by_operator, is_call, ndim_of, static_shape, tensor_type, type_of

Rule = Callable[[LayoutRewriter, Call, list[Laid]], Laid | None]


def _again(at: Call, args: list[Any], **changes: Any) -> Call:
    return at.over(args, at.attrs.replace(**changes) if changes else None)


# ---------------------------------------------------------------------------- element by element
def follow(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    """Operators element by element work in any layout."""
    if at.op.pattern == OpPattern.ELEMWISE and len(at.args) == 1 and tensor_type(at) is not None:
        if ndim_of(at) == ndim_of(at.args[0]):
            x = ins[0]
            return Laid(_again(at, [x.expr]), x.old, x.new)
    if at.op.pattern == OpPattern.BROADCAST and at.op.inputs in (("lhs", "rhs"), ("condition", "x", "y")):
        return _broadcast(walk, at, ins)
    return None


def _broadcast(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    ndim = ndim_of(at)
    ranked = [x for x, a in zip(ins, at.args, strict=True) if x.moved and ndim_of(a) == ndim]
    if not ranked:
        return None
    # The layout of the largest operand: the others are small, or have the same layout.
    lead = max(ranked, key=lambda x: _elements(at.args[ins.index(x)]))
    args = []
    for x, a in zip(ins, at.args, strict=True):
        if x is lead:
            made: Any = x.expr
        elif static_shape(a) == static_shape(at) and static_shape(a) is not None:
            made = walk.to(x, lead.old, lead.new)
        else:
            made = walk.beside(x, type_of(a), lead.old, lead.new)
        if made is None:
            return None
        args.append(made)
    return Laid(_again(at, args), lead.old, lead.new)


def _elements(expr: Any) -> int:
    return math.prod(d if isinstance(d, int) else 1 << 10 for d in type_of(expr).shape)


# ---------------------------------------------------------------------------- operators with an axis
def _axis(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    """Operators that work along one axis, and keep the shape."""
    x = ins[0]
    if not x.moved:
        return None
    letter = x.old[at.attrs.axis % len(x.old)]
    if letter in names.blocks(x.new):
        return None
    others = [o.plain() for o in ins[1:]]
    made = _again(at, [x.expr, *others], axis=names.axis_in(x.new, letter))
    return Laid(made, x.old, x.new)


def _instance_norm(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    # The batch is the first dimension; all but it and the channels are normalised over.
    return _axis(walk, at, ins) if ins[0].new[:1] == ins[0].old[:1] == "N" else None


def _bias_add(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    made = _axis(walk, at, ins)
    x = ins[0]
    if made is not None or not x.moved:
        return made
    bias = Laid(along_axis(ins[1].plain(), at.attrs.axis, len(x.old)))
    beside = walk.beside(bias, type_of(bias.expr), x.old, x.new)
    return None if beside is None else Laid(R.add(x.expr, beside), x.old, x.new)


def _batch_norm(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    made = _axis(walk, at, ins)
    if made is None:
        return None
    parts = [Laid(TupleGetItem(made.expr, i)) for i in range(3)]
    parts[0].old, parts[0].new = made.old, made.new
    return Laid(made.expr, parts=parts)


def _concatenate(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    if not isinstance(at.args[0], Tuple):
        return None
    fields = at.args[0].fields
    carried = [walk.get(f) for f in fields]
    lead = next((x for x in carried if x.moved), None)
    if lead is None:
        return None
    letter = lead.old[at.attrs.axis % len(lead.old)]
    inner = names.blocks(lead.new)
    for f in fields:
        shape = static_shape(f)
        if inner and (shape is None or any(shape[lead.old.index(v)] % s for v, s in inner.items())):
            return None
    parts = Tuple([walk.to(x, lead.old, lead.new) for x in carried])
    return Laid(_again(at, [parts], axis=names.axis_in(lead.new, letter)), lead.old, lead.new)


def _split(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x = ins[0]
    letter = x.old[at.attrs.axis % len(x.old)]
    count = len(type_of(at).fields)
    inner = names.blocks(x.new).get(letter, 1)
    given = at.attrs.indices_or_sections
    if inner > 1:
        sizes = [f.shape[x.old.index(letter)] for f in type_of(at).fields]
        if any(not isinstance(s, int) or s % inner for s in sizes):
            return None
        given = given if isinstance(given, int) else tuple(g // inner for g in given)
    made = _again(at, [x.expr], axis=names.axis_in(x.new, letter), indices_or_sections=given)
    return Laid(made, parts=[Laid(TupleGetItem(made, i), x.old, x.new) for i in range(count)])


def _strided_slice(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x = ins[0]
    axes = at.attrs.axes if at.attrs.axes is not None else tuple(range(len(at.attrs.begin)))
    shape, whole = static_shape(at.args[0]), static_shape(at)
    if shape is None or whole is None:
        return None
    steps = at.attrs.strides or (1,)
    steps = steps if len(steps) == len(axes) else tuple(steps[:1]) * len(axes)
    rows = [
        (x.old[d % len(x.old)], b, e, s)
        for d, b, e, s in zip(axes, at.attrs.begin, at.attrs.end, steps, strict=False)
        if not (shape[d] == whole[d] and s == 1)
    ]
    if any(letter in names.blocks(x.new) for letter, *_ in rows):
        return None
    made = _again(
        at,
        [x.expr],
        axes=tuple(names.axis_in(x.new, letter) for letter, *_ in rows),
        begin=tuple(r[1] for r in rows),
        end=tuple(r[2] for r in rows),
        strides=tuple(r[3] for r in rows),
    )
    return Laid(made, x.old, x.new)


def _pad(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x, inner = ins[0], names.blocks(ins[0].new)
    if not x.moved:
        return None
    wide = dict(zip(x.old, at.attrs.pad_width, strict=True))
    if any(any(wide[v]) for v in inner):
        return None
    made = [wide[v.upper()] for v, _ in names.axes(x.new)]
    return Laid(_again(at, [x.expr, *[o.plain() for o in ins[1:]]], pad_width=made), x.old, x.new)


# ---------------------------------------------------------------------------- fewer dimensions
def _reduce(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x = ins[0]
    if not x.moved:
        return None
    ndim = len(x.old)
    axes = tuple(range(ndim)) if at.attrs.axis is None else tuple(a % ndim for a in at.attrs.axis)
    if at.attrs.exclude:
        axes = tuple(d for d in range(ndim) if d not in axes)
    gone = "".join(x.old[d] for d in axes)
    split = any(v in gone for v in names.blocks(x.new))
    place = is_call(at, R.argmax, R.argmin)
    if split and (at.attrs.keepdims or place):
        return None
    if place and len(gone) > 1:
        return None  # the index is in the order of the dimensions
    args = [x.expr]
    if len(ins) > 1:  # the mean beside the data
        beside = walk.beside(ins[1], type_of(at.args[1]), x.old, x.new)
        if beside is None or (not ins[1].moved and ndim_of(at.args[1]) != ndim):
            return None
        args.append(beside)
    now = tuple(i for i, (v, _) in enumerate(names.axes(x.new)) if v.upper() in gone)
    made = _again(at, args, axis=now, exclude=False)
    if at.attrs.keepdims:
        return Laid(made, x.old, x.new)
    old = plain_part(x.old, gone)
    return Laid(made, old, plain_part(x.new, gone)) if old else Laid(made)


def _squeeze(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x, shape = ins[0], static_shape(at.args[0])
    if at.attrs.axis is None:
        if shape is None:
            return None
        axes = tuple(d for d, s in enumerate(shape) if s == 1)
    else:
        axes = tuple(a % len(x.old) for a in at.attrs.axis)
    gone = "".join(x.old[d] for d in axes)
    if not gone or any(v in gone for v in names.blocks(x.new)):
        return None
    made = _again(at, [x.expr], axis=tuple(names.axis_in(x.new, v) for v in gone))
    old = plain_part(x.old, gone)
    return Laid(made, old, plain_part(x.new, gone)) if old else Laid(made)


def _transpose(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    """Another order of the dimensions is another name for the same tensor."""
    x = ins[0]
    axes = at.attrs.axes or tuple(reversed(range(len(x.old))))
    return Laid(x.expr, "".join(x.old[a] for a in axes), x.new, made=x.made)


def _layout_transform(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x = ins[0]
    if at.attrs.src_layout != x.old or not at.attrs.dst_layout.isupper():
        return None
    return Laid(x.expr, at.attrs.dst_layout, x.new, made=x.made)


# ---------------------------------------------------------------------------- operators with a layout
def _with_layout(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    x = ins[0]
    if x.old != at.attrs.layout or at.attrs.get("out_layout"):
        return None
    packed = names.blocks(x.new)
    if packed and (set(packed) != {"C"} or not traits_of(at).scale):
        return None
    return Laid(_again(at, [x.expr, *[o.plain() for o in ins[1:]]], layout=x.new), x.old, x.new)


# ---------------------------------------------------------------------------- quantised numbers
def _is_single(parameter: Any) -> bool:
    shape = static_shape(parameter)
    return shape is not None and all(d == 1 for d in shape)


def _conversion(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    """quantize and similar operators, per tensor or along an axis."""
    x = ins[0]
    if not all(map(_is_single, at.args[1:])):
        return _axis(walk, at, ins)
    return Laid(_again(at, [x.expr, *[o.plain() for o in ins[1:]]]), x.old, x.new) if x.moved else None


def _quantised_pair(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
    """Sums and products of two quantised tensors of one shape."""
    lead = next((x for x in ins[:2] if x.moved), None)
    shape = static_shape(at)
    if lead is None or shape is None or any(static_shape(a) != shape for a in at.args[:2]):
        return None
    if not all(map(_is_single, at.args[2:])):
        return None
    both = [walk.to(x, lead.old, lead.new) for x in ins[:2]]
    return Laid(_again(at, [*both, *[o.plain() for o in ins[2:]]]), lead.old, lead.new)


# Rules by trait, and rules of single operators.
_KINDS: Final[dict[str, Rule]] = {
    "": follow,
    "axis": _axis,
    "attribute": _with_layout,
    "reduction": _reduce,
    "conversion": _conversion,
    "pair": _quantised_pair,
}
_RULES: Final[dict[Any, Rule]] = by_operator(
    {
        R.nn.bias_add: _bias_add,
        R.nn.batch_norm: _batch_norm,
        R.nn.instance_norm: _instance_norm,
        R.concatenate: _concatenate,
        R.split: _split,
        R.strided_slice: _strided_slice,
        R.nn.pad: _pad,
        R.squeeze: _squeeze,
        R.transpose: _transpose,
        R.layout_transform: _layout_transform,
    }
)


def _of_program(work: Callable[..., InferCorrectLayoutOutput]) -> Rule:
    """The rule that a program registered: it is asked for the old layouts first, then with the new ones."""

    def rule(walk: LayoutRewriter, at: Call, ins: list[Laid]) -> Laid | None:
        kinds = [type_of(a) for a in at.args]
        news, olds = [x.new for x in ins], [x.old for x in ins]
        before, after = work(at.attrs, [], olds, kinds), work(at.attrs, news, olds, kinds)
        old, new = (_named(found.output_layouts[0]) for found in (before, after))
        if not old or not new:
            return None
        args = [
            walk.to(x, x.old or _named(was), _named(now)) if _named(was) and _named(now) else x.plain()
            for x, was, now in zip(ins, before.input_layouts, after.input_layouts, strict=True)
        ]
        return Laid(at.over(args, after.new_attrs), old, new)

    return rule


def _named(layout: Any) -> str:
    """A layout by its name; "" if it is not known."""
    found = str(getattr(layout, "name", layout) or "")
    return "" if found == "__undef__" else found


def rule_of(at: Call) -> Rule:
    """The layout rule of a call."""
    own: Any = at.op.get_attr("FInferCorrectLayout")
    if own is not None:
        return _of_program(own)
    return _RULES.get(at.op) or _KINDS[traits_of(at).layout]
