"""What the CPU benchmark computes: shapes, inputs, references in float64, and how much work each is.

A workload is data and knows nothing of those who compute it. `constants` names the inputs that are weights:
whoever prepares its code may lay them out as it likes before the clock starts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """One thing to compute. `flops` is 0 for what memory bounds; `traffic` tells which of its roofs holds."""

    name: str
    group: str
    kind: str
    inputs: dict[str, tuple[int, ...]]
    output: tuple[int, ...]
    constants: tuple[str, ...] = ()
    flops: float = 0.0
    traffic: str = "copy"  # "read", "copy" or "triad": the pattern that bounds it
    extra: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> float:
        """Each input and the output once."""
        return 4.0 * (sum(math.prod(shape) for shape in self.inputs.values()) + math.prod(self.output))

    @property
    def bound_by_memory(self) -> bool:
        return self.flops == 0.0

    def data(self) -> dict[str, Array]:
        """The inputs, the same in every run."""
        draw = np.random.default_rng(zlib.crc32(self.name.encode()))
        made = {name: draw.standard_normal(shape, dtype=np.float32) for name, shape in self.inputs.items()}
        if self.kind == "conv":  # keep results near 1, so that relative errors mean something
            made["w"] *= np.float32(1 / math.sqrt(math.prod(self.inputs["w"][1:])))
        return made

    def reference(self, data: dict[str, Array]) -> Array:
        """The result in float64."""
        wide = {name: value.astype(np.float64) for name, value in data.items()}
        return REFERENCES[self.kind](wide, self.options)


# -- references ---------------------------------------------------------------------------------
def windows(x: Array, kernel: int, stride: int, pad: int) -> Array:
    """The pieces of an image that a convolution looks at: (channel, row, column, y, x)."""
    padded = np.pad(x[0], ((0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))[
        :, ::stride, ::stride
    ]


def _conv(x: dict[str, Array], o: dict[str, Any]) -> Array:
    seen, w = windows(x["x"], o["kernel"], o["stride"], o["pad"]), x["w"]
    if o["groups"] > 1:
        out = np.einsum("chwyx,cyx->chw", seen, w[:, 0])
    else:
        out = np.tensordot(w, seen, axes=([1, 2, 3], [0, 3, 4]))
    if o["epilogue"]:
        out = np.maximum(out + x["bias"][:, None, None], 0)
    return out[None]


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layernorm(x: dict[str, Array], o: dict[str, Any]) -> Array:
    v = x["x"]
    return (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5) * x["g"] + x["b"]


def _gelu(x: dict[str, Array], o: dict[str, Any]) -> Array:
    from scipy.special import erf

    t = x["x"] * o["a"] + o["b"]
    return 0.5 * t * (1 + erf(t / math.sqrt(2))) + o["c"]


def _attention(x: dict[str, Array], o: dict[str, Any]) -> Array:
    scale = 1 / math.sqrt(x["q"].shape[-1])
    return _softmax(x["q"] @ x["k"].swapaxes(-1, -2) * scale) @ x["v"]


REFERENCES: dict[str, Callable[[dict[str, Array], dict[str, Any]], Array]] = {
    "matmul": lambda x, o: x["a"] @ x["b"],
    "conv": _conv,
    "softmax": lambda x, o: _softmax(x["x"]),
    "layernorm": _layernorm,
    "sum": lambda x, o: x["x"].sum(o["axis"]),
    "gelu": _gelu,
    "transpose": lambda x, o: np.ascontiguousarray(x["x"].T),
    "add": lambda x, o: x["x"] + x["y"],
    "attention": _attention,
}


def error_of(result: Array, reference: Array) -> float:
    """The largest difference over the largest value, a piece at a time."""
    got, want = np.asarray(result).reshape(-1), reference.reshape(-1)
    if got.size != want.size:
        return math.inf
    worst = scale = 0.0
    for i in range(0, want.size, 1 << 20):
        piece = want[i : i + (1 << 20)]
        difference = float(np.abs(got[i : i + (1 << 20)] - piece).max())
        worst = max(worst, math.inf if math.isnan(difference) else difference)
        scale = max(scale, float(np.abs(piece).max()))
    return worst / (scale or 1.0)


# -- the list -----------------------------------------------------------------------------------
def matmul(m: int, k: int, n: int, extra: bool = False, batch: int = 0) -> Workload:
    front = (batch,) if batch else ()
    shape = f"{m} cubed" if m == k == n else f"{m}x{k}x{n}"
    flops = 2.0 * m * k * n * max(1, batch)
    # One row by a matrix reads each element once and is bound by memory.
    thin = min(m, n) == 1
    return Workload(
        f"matmul {f'{batch}x' if batch else ''}{shape}",
        "matmul",
        "matmul",
        {"a": (*front, m, k), "b": (*front, k, n)},
        (*front, m, n),
        flops=0.0 if thin else flops,
        traffic="read",
        extra=extra,
    )


def conv(
    size: int,
    kernel: int,
    into: int,
    out: int,
    stride: int = 1,
    depthwise: bool = False,
    epilogue: bool = False,
    extra: bool = False,
) -> Workload:
    pad = kernel // 2
    edge = (size + 2 * pad - kernel) // stride + 1
    per = 1 if depthwise else into
    inputs: dict[str, tuple[int, ...]] = {"x": (1, into, size, size), "w": (out, per, kernel, kernel)}
    if epilogue:
        inputs["bias"] = (out,)
    channels = f"{into}" if into == out else f"{into}->{out}"
    what = "depthwise" if depthwise else "conv+bias+relu" if epilogue else "conv"
    return Workload(
        f"{what} {kernel}x{kernel}{f'/{stride}' if stride > 1 else ''} {channels}@{size}",
        "depthwise" if depthwise else "conv",
        "conv",
        inputs,
        (1, out, edge, edge),
        tuple(name for name in inputs if name != "x"),
        2.0 * out * per * kernel * kernel * edge * edge,
        extra=extra,
        options={
            "kernel": kernel,
            "stride": stride,
            "pad": pad,
            "groups": into if depthwise else 1,
            "epilogue": epilogue,
        },
    )


def rows(kind: str, m: int, n: int, extra: bool = False) -> Workload:
    more = {"g": (n,), "b": (n,)} if kind == "layernorm" else {}
    return Workload(f"{kind} {m}x{n}", "norm", kind, {"x": (m, n), **more}, (m, n), extra=extra)


def total(m: int, n: int, axis: int, extra: bool = False) -> Workload:
    name = f"{'row' if axis else 'column'} sums {m}x{n}"
    kept = (m, n)[1 - axis]
    options = {"axis": axis}
    return Workload(
        name, "memory", "sum", {"x": (m, n)}, (kept,), traffic="read", extra=extra, options=options
    )


def transpose(m: int, n: int, extra: bool = False) -> Workload:
    return Workload(f"transpose {m}x{n}", "memory", "transpose", {"x": (m, n)}, (n, m), extra=extra)


def gelu(n: int, name: str, extra: bool = False) -> Workload:
    options = {"a": 1.5, "b": 0.25, "c": -0.5}
    return Workload(
        f"gelu(x*a+b)+c {name}", "elementwise", "gelu", {"x": (n,)}, (n,), extra=extra, options=options
    )


def add(n: int, name: str, extra: bool = False) -> Workload:
    return Workload(
        f"add {name}", "memory", "add", {"x": (n,), "y": (n,)}, (n,), traffic="triad", extra=extra
    )


def attention(heads: int, length: int, depth: int, extra: bool = False) -> Workload:
    shape = (heads, length, depth)
    return Workload(
        f"attention {heads}x{length}x{depth}",
        "attention",
        "attention",
        dict.fromkeys("qkv", shape),
        shape,
        flops=4.0 * heads * length * length * depth,
        extra=extra,
    )


def _listed() -> Iterator[Workload]:
    for n in (128, 256, 512, 1024, 2048):
        yield matmul(n, n, n)
    yield matmul(1, 4096, 4096)
    yield matmul(16, 768, 3072)
    yield matmul(128, 768, 768)
    yield matmul(197, 768, 3072)
    yield matmul(128, 64, 128, batch=12)
    yield conv(224, 7, 3, 64, 2)
    yield conv(56, 3, 64, 64)
    yield conv(56, 1, 64, 256)
    yield conv(28, 3, 128, 128)
    yield conv(28, 1, 512, 128)
    yield conv(14, 3, 256, 256)
    yield conv(14, 1, 1024, 256)
    yield conv(7, 3, 512, 512)
    yield conv(56, 1, 256, 512, 2)
    yield conv(28, 3, 128, 128, epilogue=True)
    for channels, size in ((32, 112), (144, 56), (384, 14), (960, 7)):
        yield conv(size, 3, channels, channels, depthwise=True)
    for kind in ("softmax", "layernorm"):
        yield rows(kind, 128, 1024)
        yield rows(kind, 4096, 4096)
    yield total(4096, 4096, 1)
    yield total(4096, 4096, 0)
    yield gelu(1 << 24, "16M")
    yield transpose(4096, 4096)
    yield add(1 << 24, "16M")
    yield attention(12, 128, 64)


def _extras() -> Iterator[Workload]:
    """Primes, skinny ones, and sizes just beside those that everybody tunes for."""
    for m, k, n in (
        (127, 509, 331),
        (1000, 17, 1000),
        (7, 4096, 11),
        (4096, 7, 64),
        (1, 1000, 2048),
        (4096, 4096, 1),
        (33, 1025, 1023),
        (509, 509, 509),
        (64, 8192, 64),
        (3, 768, 50257),
    ):
        yield matmul(m, k, n, extra=True)
    yield matmul(77, 64, 77, extra=True, batch=8)
    yield matmul(13, 5, 17, extra=True, batch=1000)
    yield conv(29, 3, 17, 31, extra=True)
    yield conv(57, 5, 24, 40, 2, extra=True)
    yield conv(31, 1, 37, 113, extra=True)
    yield conv(13, 3, 192, 384, 2, extra=True)
    yield conv(112, 3, 3, 32, 2, extra=True)
    yield conv(1, 1, 1280, 1000, extra=True)
    yield conv(19, 5, 120, 120, depthwise=True, extra=True)
    yield conv(113, 3, 33, 33, 2, depthwise=True, extra=True)
    for kind in ("softmax", "layernorm"):
        yield rows(kind, 77, 1237, extra=True)
        yield rows(kind, 3, 50257, extra=True)
        yield rows(kind, 20011, 17, extra=True)
    yield total(1237, 4099, 1, extra=True)
    yield total(1237, 4099, 0, extra=True)
    yield total(1000003, 7, 1, extra=True)
    yield total(3, 5000011, 0, extra=True)
    yield gelu(10007, "10007", extra=True)
    yield add(1000003, "1000003", extra=True)
    yield transpose(4099, 2053, extra=True)
    yield transpose(7, 1000003, extra=True)
    yield transpose(331, 127, extra=True)
    yield attention(7, 77, 80, extra=True)


LISTED: dict[str, Workload] = {w.name: w for w in _listed()}
EXTRA: dict[str, Workload] = {w.name: w for w in _extras()}
ALL: dict[str, Workload] = {**LISTED, **EXTRA}
