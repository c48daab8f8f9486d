"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import injective, normalize_axes
from .stages import float_tensor, keep, reduced, wide

__all__ = ["fast_softmax", "log_softmax", "softmax", "softmax_common"]


def softmax_common(x: Any, axis: Any, use_fast_exp: bool = False) -> te.Tensor:
    """exp(x) divided by its sum over `axis`, one axis or several.

    max -> exp(x - max) -> sum -> 1 / sum -> multiply: one division for a row, not one for each element.
    """
    data = float_tensor("nn.softmax", "x", x)
    axes = normalize_axes("nn.softmax", axis, len(data.shape))
    name = "T_fast_softmax" if use_fast_exp else "T_softmax"
    top = reduced(f"{name}_maxelem", data.shape, axes, te.max, data)

    def lifted(*i: Any) -> PrimExpr:
        return te.exp(wide(data(*i)) - wide(top(*keep(i, axes))))

    grown = injective("nn.softmax", data.shape, lifted, tag.INJECTIVE, f"{name}_exp")
    total = reduced(f"{name}_expsum", data.shape, axes, te.sum, grown)
    share = injective("nn.softmax", total.shape, lambda *i: 1.0 / total(*i), tag.ELEMWISE, f"{name}_share")
    return injective(
        "nn.softmax",
        data.shape,
        lambda *i: ops.cast(data.dtype, grown(*i) * share(*keep(i, axes))),
        f"{'fast_' if use_fast_exp else ''}softmax_output",
        f"{name}_norm",
        {"axis": axes[0] if len(axes) == 1 else list(axes)},
    )


def softmax(x: Any, axis: Any = -1) -> te.Tensor:
    """exp(x) divided by its sum over `axis`, one axis or several."""
    return softmax_common(x, axis)


def fast_softmax(x: Any, axis: Any = -1) -> te.Tensor:
    """softmax: the exponential is a vectorised expansion in any case, so nothing is lost for its speed."""
    return softmax_common(x, axis, True)


def log_softmax(x: Any, axis: Any = -1) -> te.Tensor:
    """The logarithm of the softmax, x - max - log(sum(exp(x - max)))."""
    data = float_tensor("nn.log_softmax", "x", x)
    axes = normalize_axes("nn.log_softmax", axis, len(data.shape))
    top = reduced("T_log_softmax_maxelem", data.shape, axes, te.max, data)

    def below(*i: Any) -> PrimExpr:
        return wide(data(*i)) - wide(top(*keep(i, axes)))

    total = reduced("T_log_softmax_expsum", data.shape, axes, te.sum, lambda *i: te.exp(below(*i)))
    shift = injective(
        "nn.log_softmax", total.shape, lambda *i: te.log(total(*i)), tag.ELEMWISE, "T_log_softmax_logsum"
    )
    return injective(
        "nn.log_softmax",
        data.shape,
        lambda *i: ops.cast(data.dtype, below(*i) - shift(*keep(i, axes))),
        "log_softmax_output",
        "T_log_softmax_norm",
        {"axis": axes[0] if len(axes) == 1 else list(axes)},
    )
