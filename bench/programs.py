"""The workloads as tensor expressions: what tilewright is given, with no word on how to compute it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from workloads import Workload

from tilewright import te, tir, topi


def program(w: Workload) -> list[Any]:
    """The inputs, in the workload's order, and then the output."""
    inputs = {name: te.placeholder(shape, "float32", name) for name, shape in w.inputs.items()}
    return [*inputs.values(), _PROGRAMS[w.kind](inputs, w)]


def _product(a: Any, b: Any, name: str, swapped: bool = False) -> Any:
    """a @ b over the last two axes; `swapped` takes b as its transpose."""
    *front, m, depth = a.shape
    k = te.reduce_axis((0, depth), "k")

    def element(*at: Any) -> Any:
        lead, i, j = at[:-2], at[-2], at[-1]
        right = b[(*lead, j, k)] if swapped else b[(*lead, k, j)]
        return te.sum(a[(*lead, i, k)] * right, axis=k)

    return te.compute((*front, m, b.shape[-2 if swapped else -1]), element, name)


def _matmul(x: dict[str, Any], w: Workload) -> Any:
    return _product(x["a"], x["b"], "out")


def _conv(x: dict[str, Any], w: Workload) -> Any:
    o = w.options
    kernel, stride, pad, grouped = o["kernel"], o["stride"], o["pad"], o["groups"] > 1
    image, weight = x["x"], x["w"]
    _, channels, high, wide = w.inputs["x"]
    if pad:
        inside = te.compute(
            (1, channels, high + 2 * pad, wide + 2 * pad),
            lambda n, c, i, j: te.if_then_else(
                te.all(i >= pad, i < high + pad, j >= pad, j < wide + pad),
                image[n, c, i - pad, j - pad],
                te.const(0.0, "float32"),
            ),
            "padded",
        )
    else:
        inside = image
    ry, rx = te.reduce_axis((0, kernel), "ry"), te.reduce_axis((0, kernel), "rx")
    rc = te.reduce_axis((0, 1 if grouped else channels), "rc")

    def element(n: Any, f: Any, i: Any, j: Any) -> Any:
        if grouped:
            at = inside[n, f, i * stride + ry, j * stride + rx]
            return te.sum(at * weight[f, 0, ry, rx], axis=[ry, rx])
        at = inside[n, rc, i * stride + ry, j * stride + rx]
        return te.sum(at * weight[f, rc, ry, rx], axis=[rc, ry, rx])

    if not o["epilogue"]:
        return te.compute(w.output, element, "out")
    bias, plain, zero = x["bias"], te.compute(w.output, element, "conv"), te.const(0.0, "float32")
    return te.compute(w.output, lambda n, f, i, j: tir.max(plain[n, f, i, j] + bias[f], zero), "out")


def _softmax(x: dict[str, Any], w: Workload) -> Any:
    return topi.nn.softmax(x["x"], axis=-1)


def _layernorm(x: dict[str, Any], w: Workload) -> Any:
    v, g, b = x["x"], x["g"], x["b"]
    m, n = w.inputs["x"]
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    share = te.const(1.0 / n, "float32")
    total = te.compute((m,), lambda i: te.sum(v[i, k], axis=k), "total")
    away = te.compute((m, n), lambda i, j: v[i, j] - total[i] * share, "away")
    spread = te.compute((m,), lambda i: te.sum(away[i, r] * away[i, r], axis=r), "spread")
    small = te.const(1e-5, "float32")
    return te.compute(
        (m, n), lambda i, j: away[i, j] * te.rsqrt(spread[i] * share + small) * g[j] + b[j], "out"
    )


def _sum(x: dict[str, Any], w: Workload) -> Any:
    v = x["x"]
    k = te.reduce_axis((0, w.inputs["x"][w.options["axis"]]), "k")
    if w.options["axis"] == 1:
        return te.compute(w.output, lambda i: te.sum(v[i, k], axis=k), "out")
    return te.compute(w.output, lambda j: te.sum(v[k, j], axis=k), "out")


def _gelu(x: dict[str, Any], w: Workload) -> Any:
    a, b, c = (te.const(w.options[name], "float32") for name in "abc")
    half, root = te.const(0.5, "float32"), te.const(1 / math.sqrt(2), "float32")
    one = te.const(1.0, "float32")
    moved = te.compute(w.output, lambda i: x["x"][i] * a + b, "moved")
    bent = te.compute(w.output, lambda i: half * moved[i] * (one + te.erf(moved[i] * root)), "bent")
    return te.compute(w.output, lambda i: bent[i] + c, "out")


def _transpose(x: dict[str, Any], w: Workload) -> Any:
    return te.compute(w.output, lambda i, j: x["x"][j, i], "out")


def _add(x: dict[str, Any], w: Workload) -> Any:
    return te.compute(w.output, lambda i: x["x"][i] + x["y"][i], "out")


def _attention(x: dict[str, Any], w: Workload) -> Any:
    scale = te.const(1 / math.sqrt(w.output[-1]), "float32")
    scores = _product(x["q"], x["k"], "scores", swapped=True)
    scaled = te.compute(scores.shape, lambda *at: scores[at] * scale, "scaled")
    return _product(topi.nn.softmax(scaled, axis=-1), x["v"], "out")


_PROGRAMS: dict[str, Callable[[dict[str, Any], Workload], Any]] = {
    "matmul": _matmul,
    "conv": _conv,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "sum": _sum,
    "gelu": _gelu,
    "transpose": _transpose,
    "add": _add,
    "attention": _attention,
}
