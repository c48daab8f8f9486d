"""Rows, columns and transposes, scheduled by rules for the target that they run on. Nothing here needs pytest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_programs import random

import tilewright as tvm
from tilewright import te, topi


@dataclass
class Automatic:
    """A computation, the shapes of its inputs, and the same in NumPy."""

    shapes: list[tuple[int, ...]]
    compute: Callable[..., Any]
    reference: Callable[..., Any]
    dtype: str = "float32"
    rough: float = 1e-4

    def run(self, target: str, dev: Any) -> None:
        """Schedule, compile, run on the device, compare."""
        args = [te.placeholder(s, self.dtype, name=f"x{i}") for i, s in enumerate(self.shapes)]
        out = self.compute(*args)
        func = tvm.build(tvm.auto_schedule([*args, out], target).mod, target=target)
        given = [random(*s, dtype=self.dtype, seed=i) for i, s in enumerate(self.shapes)]
        want = self.reference(*(x.astype("float64" if "float" in self.dtype else x.dtype) for x in given))
        kind = str(out.dtype)
        got = tvm.nd.array(np.full(want.shape, 77).astype(kind), dev)
        func(*[tvm.nd.array(x, dev) for x in given], got)
        np.testing.assert_allclose(got.numpy().astype("float64"), want, self.rough, self.rough)


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _norm(x: Any, g: Any, b: Any) -> Any:
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * g + b


def _rows(m: int, n: int) -> dict[str, Automatic]:
    size = f"{m} x {n}"
    return {
        f"softmax {size}": Automatic([(m, n)], topi.nn.softmax, _softmax),
        f"layernorm {size}": Automatic(
            [(m, n), (n,), (n,)], lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]), _norm, rough=2e-3
        ),
        f"row sums {size}": Automatic(
            [(m, n)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1), rough=2e-3
        ),
        f"column sums {size}": Automatic(
            [(m, n)], lambda x: topi.sum(x, axis=0), lambda x: x.sum(0), rough=2e-3
        ),
        f"transpose {size}": Automatic([(m, n)], topi.transpose, lambda x: x.T),
    }


ROW_PROGRAMS: dict[str, Automatic] = {
    **_rows(128, 1024),
    **_rows(200, 64),
    **_rows(300, 1003),
    **_rows(5, 40000),
    "places of the largest": Automatic(
        [(100, 1000)], lambda x: topi.argmax(x, axis=1), lambda x: x.argmax(1)
    ),
    "softmax of columns": Automatic(
        [(300, 200)], lambda x: topi.nn.softmax(x, axis=0), lambda x: _softmax(x, 0)
    ),
    "sums of channels": Automatic(
        [(4, 16, 14, 14)], lambda x: topi.sum(x, axis=[0, 2, 3]), lambda x: x.sum((0, 2, 3)), rough=2e-3
    ),
    "middle sums": Automatic([(6, 200, 96)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1), rough=2e-3),
    "one sum": Automatic([(100, 1000)], topi.sum, lambda x: np.asarray(x.sum()), rough=2e-3),
    "transpose and add": Automatic(
        [(128, 192), (192, 128)], lambda x, y: topi.transpose(x) + y, lambda x, y: x.T + y
    ),
    "softmax of halves": Automatic([(64, 1024)], topi.nn.softmax, _softmax, "float16", 1e-2),
    "transpose of halves": Automatic([(256, 128)], topi.transpose, lambda x: x.T, "float16"),
    "sums of bytes": Automatic(
        [(64, 1024)],
        lambda x: topi.sum(topi.cast(x, "int32"), axis=1),
        lambda x: x.astype("int32").sum(1),
        "int8",
    ),
    "largest bytes": Automatic([(64, 1024)], lambda x: topi.max(x, axis=1), lambda x: x.max(1), "int8"),
}
ROW_QUICK = ("softmax 200 x 64", "row sums 200 x 64", "column sums 200 x 64", "transpose 200 x 64", "one sum")

# Rows that take clusters of blocks, where there are some.
LONG_ROW_PROGRAMS: dict[str, Automatic] = {
    **{n: p for n, p in _rows(70, 70000).items() if not n.startswith(("column", "transpose"))},
    **{n: p for n, p in _rows(66, 65537).items() if n.startswith("softmax")},
    "places of the largest in long rows": Automatic(
        [(70, 70000)], lambda x: topi.argmax(x, axis=1), lambda x: x.argmax(1)
    ),
    "softmax of long halves": Automatic([(65, 1 << 17)], topi.nn.softmax, _softmax, "float16", 1e-2),
    "largest of long bytes": Automatic(
        [(65, 1 << 18)], lambda x: topi.max(x, axis=1), lambda x: x.max(1), "int8"
    ),
}
