"""A small program, and a target, for each rule of GPUs."""

from __future__ import annotations

from typing import Any

from tilewright import te, topi
from tilewright.target import Target
from tilewright.tune.plan import Plan, plan_of

H200, A100, T4 = "cuda -model=h200", "cuda -arch=sm_80", "cuda -arch=sm_75"


def product(m: int, n: int, k: int, dtype: str = "float32") -> list[Any]:
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((n, k), dtype, name="b")
    return [a, b, topi.nn.dense(a, b, None, "int32" if dtype == "int8" else "float32")]


def conv(
    shape: tuple[int, ...], filters: int, window: int, dtype: str = "float32", pad: int = 0
) -> list[Any]:
    """Channels last for narrow types, else first."""
    last = dtype != "float32"
    channels = shape[3] if last else shape[1]
    kernel = (window, window, channels, filters) if last else (filters, channels, window, window)
    x, w = te.placeholder(shape, dtype, name="x"), te.placeholder(kernel, dtype, name="w")
    out = "int32" if dtype == "int8" else "float32"
    return [x, w, topi.nn.conv2d(x, w, 1, pad, 1, "NHWC" if last else "NCHW", out_dtype=out)]


def rows(f: Any, *shape: int) -> list[Any]:
    x = te.placeholder(shape, name="x")
    return [x, f(x)]


def depthwise() -> list[Any]:
    x, w = te.placeholder((1, 32, 8, 8), name="x"), te.placeholder((32, 1, 3, 3), name="w")
    return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)]


def attention() -> list[Any]:
    q, k, v = (te.placeholder((1, 1, 128, 64), "float16", name=n) for n in "qkv")
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)]


PROGRAMS: dict[str, tuple[list[Any], str]] = {
    "wgmma": (product(64, 64, 64, "float16"), H200),
    "mma": (product(64, 64, 64, "float16"), A100),
    "SIMT with TMA": (product(64, 64, 32), H200),
    "SIMT": (product(64, 64, 32), A100),
    "dp4a": (product(32, 32, 64, "int8"), A100),
    "im2col wgmma": (conv((1, 6, 6, 64), 64, 3, "float16", 1), H200),
    "im2col lines wgmma": (conv((1, 6, 6, 8), 64, 3, "float16"), H200),
    "im2col mma": (conv((1, 6, 6, 16), 32, 3, "float16", 1), A100),
    "im2col dp4a": (conv((1, 6, 6, 16), 32, 3, "int8", 1), A100),
    "im2col SIMT with TMA": (conv((1, 32, 8, 8), 64, 1), H200),
    "im2col SIMT": (conv((1, 8, 8, 8), 64, 3, pad=1), A100),
    "windows": (depthwise(), A100),
    "shared tile": (product(32, 32, 32), "opencl"),
    "row chain": (rows(topi.nn.softmax, 16, 64), A100),
    "row chain in shared memory": (rows(topi.nn.softmax, 16, 64), A100),
    "apart": (rows(topi.nn.softmax, 16, 64), A100),
    "rows": (rows(lambda x: topi.sum(x, axis=1), 16, 64), A100),
    "columns": (rows(lambda x: topi.sum(x, axis=0), 64, 32), A100),
    "transpose": (rows(topi.transpose, 64, 64), A100),
    "elementwise": (rows(topi.tanh, 16, 64), A100),
    "plain": (product(8, 8, 8), A100),
    "single thread": (rows(topi.tanh, 4, 4), A100),
    "attention": (attention(), H200),
    "attention apart": (attention(), H200),
}
EARLY = ("attention", "attention apart")


def forced(rule: str) -> Plan:
    """The plan of the program for a rule, with that rule for its first stage."""
    args, target = PROGRAMS[rule]
    return plan_of(te.create_prim_func(args), Target(target), forced={0: rule})
