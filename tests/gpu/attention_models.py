"""Attention as models have it: products, masks and softmax as operators of their own, and what they mean in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright as tvm
from tilewright import relay as R
from tilewright.relay import nn


class Sample(NamedTuple):
    mod: Any
    given: dict[str, Any]
    expected: Any


class Form(NamedTuple):
    """Sizes, and the words of some exporter.

    heads_by    transpose     q, k, v of [batch, length, heads * width]
                split, slice  all three side by side in one tensor; places: split at places that are told
                unbind        [batch, length, 3, heads, width]
                shared        keys and values of [batch, length, heads / 2 * width], for two heads each
                turned        keys are stored as [batch, heads, width, length]
                none          [batch * heads, length, width]
    mask        added, hidden (where, a number instead), seen (the weights are set to 0 as well), causal, window,
                causal added
    """

    batch: int
    heads: int
    rows: int
    width: int
    keys: int = 0
    mask: str = ""
    heads_by: str = "transpose"
    scale: str = "product"
    softmax: str = "operator"
    dtype: str = "float16"

    @property
    def scores(self) -> tuple[int, ...]:
        return (self.batch, self.heads, self.rows, self.keys or self.rows)


class _Writer:
    def __init__(self, form: Form, seed: int) -> None:
        self.form = form
        self.rng = np.random.default_rng(seed)
        self.given: dict[str, Any] = {}
        self.vars: list[Any] = []

    def tensor(self, name: str, *shape: int, values: Any = None) -> Any:
        made = self.rng.standard_normal(shape) if values is None else values
        self.given[name] = made.astype(self.form.dtype) if values is None else made
        self.vars.append(R.var(name, shape=shape, dtype=str(self.given[name].dtype)))
        return self.vars[-1]

    # -- operands --------------------------------------------------------------------------
    def operands(self) -> tuple[list[Any], list[Any]]:
        """q, k and v as batches of matrices, and as numbers of [batch, heads, length, width]."""
        f = self.form
        batch, heads, rows, keys = f.scores
        lengths = {"q": rows, "k": keys, "v": keys}
        flat = (batch, -1, heads, f.width)
        if f.heads_by in ("split", "slice", "places"):
            whole = self.tensor("x", batch, rows, 3 * heads * f.width)
            edge = heads * f.width
            if f.heads_by != "slice":
                parts = list(R.split(whole, 3 if f.heads_by == "split" else (edge, 2 * edge), axis=2))
            else:
                parts = [R.strided_slice(whole, [n * edge], [n * edge + edge], axes=[2]) for n in range(3)]
            values = [p.reshape(flat).transpose(0, 2, 1, 3) for p in np.split(self.given["x"], 3, axis=2)]
        elif f.heads_by == "unbind":
            whole = self.tensor("x", batch, rows, 3 * heads * f.width)
            five = R.transpose(R.reshape(whole, (batch, rows, 3, heads, f.width)), (2, 0, 3, 1, 4))
            heads_of = [R.squeeze(R.strided_slice(five, [n], [n + 1], axes=[0]), [0]) for n in range(3)]
            values = list(self.given["x"].reshape(batch, rows, 3, heads, f.width).transpose(2, 0, 3, 1, 4))
            return [R.reshape(t, (batch * heads, rows, f.width)) for t in heads_of], values
        elif f.heads_by in ("none", "turned"):
            parts, values = [], []
            for n, length in lengths.items():
                shape = (batch * heads, length, f.width)
                turned = f.heads_by == "turned" and n == "k"
                parts.append(self.tensor(n, *((shape[0], f.width, length) if turned else shape)))
                own = self.given[n].swapaxes(-1, -2) if turned else self.given[n]
                values.append(own.reshape(batch, heads, length, f.width))
            return parts, values
        elif f.heads_by == "shared":
            parts, values = [], []
            for n, length in lengths.items():
                few, by = (heads, 1) if n == "q" else (heads // 2, 2)
                own = R.reshape(self.tensor(n, batch, length, few * f.width), (batch, length, few, f.width))
                own = R.expand_dims(R.transpose(own, (0, 2, 1, 3)), 2)
                own = R.broadcast_to(own, (batch, few, by, length, f.width))
                parts.append(R.reshape(own, (batch * heads, length, f.width)))
                numbers = self.given[n].reshape(batch, length, few, f.width).transpose(0, 2, 1, 3)
                values.append(np.repeat(numbers, by, axis=1))
            return parts, values
        else:
            parts = [self.tensor(n, batch, length, heads * f.width) for n, length in lengths.items()]
            values = [self.given[n].reshape(flat).transpose(0, 2, 1, 3) for n in lengths]
        made = [R.transpose(R.reshape(p, (batch, -1, heads, f.width)), (0, 2, 1, 3)) for p in parts]
        return [R.reshape(t, (batch * heads, -1, f.width)) for t in made], values

    # -- scores ----------------------------------------------------------------------------
    def masked(self, scores: Any) -> tuple[Any, Any, Any, Any]:
        """The scores with the mask; the mask for the weights; which are seen, and what is added, as numbers."""
        f = self.form
        batch, _, rows, keys = f.scores
        i, j = np.arange(rows)[:, None], np.arange(keys)
        low = R.const(np.finfo("float16").min.astype("float32"))
        if f.mask == "added":
            line = np.where(j < keys - keys // 3, 0, -1e4)[None, None, None] * np.ones((batch, 1, 1, 1))
            mask = self.tensor("mask", batch, 1, 1, keys, values=line.astype("float32"))
            return R.add(scores, mask), None, True, line
        if f.mask in ("hidden", "seen"):
            seen = (self.rng.random((batch, 1, rows, keys)) < 0.7) & (i != 3)
            seen[:, :, :, 0] |= f.mask == "hidden"  # a row of which nothing is seen has no mean of anything
            mask = self.tensor("mask", *seen.shape, values=seen)
            return R.where(mask, scores, low), mask if f.mask == "seen" else None, seen, 0
        if f.mask in ("causal", "window"):
            seen = (j <= i + keys - rows) & (
                j > i + keys - rows - (40 if f.mask == "window" else keys + rows)
            )
            hidden = R.where(R.const(seen.reshape(1, 1, rows, keys)), scores, low)
            return hidden, None, seen, 0
        if f.mask == "causal added":
            seen = j <= i
            return R.add(scores, R.const(np.where(seen, 0, -np.inf).astype("float32"))), None, seen, 0
        return scores, None, True, 0

    def softmax(self, x: Any) -> Any:
        if self.form.softmax == "operator":
            return nn.softmax(x, axis=3)
        power = R.exp(R.subtract(x, R.max(x, axis=-1, keepdims=True)))
        return R.divide(power, R.sum(power, axis=-1, keepdims=True))


def sample(form: Form, seed: int = 0) -> Sample:
    """A model of one attention, arrays for it, and what they give."""
    w = _Writer(form, seed)
    batch, heads, rows, keys = form.scores
    by = form.width**-0.5
    (q, k, v), (a, b, c) = w.operands()
    if form.scale == "operands":
        q, k = (R.multiply(t, R.const(by**0.5, form.dtype)) for t in (q, k))
    scores = nn.batch_matmul(q, k, out_dtype="float32", transpose_b=form.heads_by != "turned")
    scores = R.reshape(R.cast(scores, form.dtype), form.scores)
    if form.scale == "product":
        scores = R.divide(scores, R.const(1 / by, form.dtype))
    logits, zeros, seen, added = w.masked(R.cast(scores, "float32"))
    weights = w.softmax(logits)
    weights = weights if zeros is None else R.where(zeros, weights, R.const(0.0))
    weights = R.reshape(R.cast(weights, form.dtype), (batch * heads, rows, keys))
    out = R.cast(nn.batch_matmul(weights, v, out_dtype="float32", transpose_b=False), form.dtype)
    if form.heads_by not in ("none", "turned"):
        out = R.transpose(R.reshape(out, (batch, heads, rows, form.width)), (0, 2, 1, 3))
        out = R.reshape(out, (batch, rows, heads * form.width))
    x = a.astype("float64") @ b.astype("float64").swapaxes(-1, -2) * by + added
    x = np.where(seen, x, -np.inf)
    power = np.exp(x - np.maximum(x.max(axis=-1, keepdims=True), -1e300))
    expected = power / np.maximum(power.sum(axis=-1, keepdims=True), 1e-300) @ c.astype("float64")
    if form.heads_by not in ("none", "turned"):
        expected = expected.transpose(0, 2, 1, 3)
    kind = R.transform.InferType()(tvm.IRModule.from_expr(R.Function(w.vars, out)))
    return Sample(kind, w.given, expected.reshape(kind["main"].ret_type.shape))


FORMS: dict[str, Form] = {
    "BERT": Form(2, 4, 128, 64, mask="added"),
    "GPT-2": Form(1, 6, 100, 64, mask="causal", heads_by="split"),
    "ViT": Form(2, 3, 197, 64, heads_by="unbind"),
    "PyTorch": Form(1, 3, 100, 64, heads_by="places"),
    "written out, narrow": Form(1, 4, 77, 32, softmax="written out", scale="operands"),
    "cross attention, 80 wide": Form(2, 2, 64, 80, keys=77),
    "128 wide, rows that see nothing": Form(1, 2, 130, 128, mask="seen", heads_by="none"),
    "keys turned, hidden": Form(1, 2, 64, 64, keys=200, mask="hidden", heads_by="turned"),
    "a window, slices": Form(1, 2, 256, 64, mask="window", heads_by="slice"),
    "causal, later rows": Form(1, 3, 60, 64, keys=100, mask="causal"),
    "Llama": Form(2, 4, 72, 64, mask="causal", heads_by="shared"),
    "one head, infinity added": Form(1, 1, 96, 64, mask="causal added"),
}
