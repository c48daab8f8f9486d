"""FoldExplicitPadding: zero padding is folded into the following convolution or pooling."""

from __future__ import annotations

from typing import Any, Final

from .. import op as R
from ..expr import Call, Constant, Expr, Function
from .rewriting import CallRewriter, is_call, typed_pass

_CONVS: Final = (R.nn.conv1d, R.nn.conv2d, R.nn.conv3d)
_MAXIMA: Final = (R.nn.max_pool1d, R.nn.max_pool2d, R.nn.max_pool3d)
_AVERAGES: Final = (R.nn.avg_pool1d, R.nn.avg_pool2d, R.nn.avg_pool3d)


def fold_explicit_padding(func: Function) -> Function:
    """Fold a pad into the operator that reads its result.

        nn.conv2d(nn.pad(%x, 0f, [[0, 0], [0, 0], [1, 1], [1, 1]]), %w)   ->   nn.conv2d(%x, %w, padding=[1, 1, 1, 1])

    Zeros for convolutions and for averages that count them, minus infinity for a maximum.
    """
    rules = dict.fromkeys((*_CONVS, *_MAXIMA, *_AVERAGES), _folded)
    return CallRewriter(rules).visit(func)


def _folded(at: Call) -> Expr | None:
    padded: Any = at.args[0]
    if not is_call(padded, R.nn.pad) or padded.attrs.pad_mode != "constant" or not _right_value(at, padded):
        return None
    layout = at.attrs.data_layout if is_call(at, *_CONVS) else at.attrs.layout
    if not layout.isupper() or len(layout) != len(padded.attrs.pad_width):
        return None
    wide = dict(zip(layout, padded.attrs.pad_width, strict=True))
    spatial = [v for v in layout if v not in "NC"]
    if any(any(wide[v]) for v in "NC" if v in wide) or any(w < 0 for v in spatial for w in wide[v]):
        return None
    have = at.attrs.padding
    n = len(spatial)
    if len(have) != 2 * n:
        return None
    padding = [have[i] + wide[v][0] for i, v in enumerate(spatial)]
    padding += [have[n + i] + wide[v][1] for i, v in enumerate(spatial)]
    return at.over([padded.args[0], *at.args[1:]], at.attrs.replace(padding=tuple(padding)))


def _right_value(at: Call, padded: Call) -> bool:
    value = padded.args[1] if len(padded.args) > 1 else None
    if not isinstance(value, Constant):
        return False
    number = float(value.numpy())
    if is_call(at, *_CONVS):
        return number == 0
    if is_call(at, *_MAXIMA):
        return number == float("-inf")
    # an average that excludes padding, or has padding of its own, would change its divisor
    return bool(number == 0 and at.attrs.count_include_pad and not at.attrs.ceil_mode)


FoldExplicitPadding = typed_pass(fold_explicit_padding, name="FoldExplicitPadding", opt_level=3)
