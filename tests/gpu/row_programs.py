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


def _groups(x: Any, g: Any, b: Any, count: int) -> Any:
    n, c = x.shape[:2]
    d = x.reshape(n * count, -1)
    d = d - d.mean(1, keepdims=True)
    d = (d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)).reshape(x.shape)
    return d * g.reshape(c, 1, 1) + b.reshape(c, 1, 1)


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


def _attention(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def _decoding(
    heads: int, keys: int, width: int, rows: int = 1, dtype: str = "float16"
) -> dict[str, Automatic]:
    """Attention of a query, or of a few, over their past."""
    shapes = [(2, heads, rows, width), (2, heads, keys, width), (2, heads, keys, width)]
    compute, rough = topi.nn.scaled_dot_product_attention, 1e-2 if dtype == "float16" else 1e-4
    name = (
        f"attention of {rows} queries {shapes[1]} {dtype}"
        if rows > 1
        else f"attention of a query {shapes[1]}"
    )
    return {name: Automatic(shapes, compute, _attention, dtype, rough)}


def _scan(shape: tuple[int, ...], axis: int | None, dtype: str = "float32", **how: Any) -> Automatic:
    """Running sums, or those before each element."""
    exclusive = how.get("exclusive", False)

    def reference(x: Any) -> Any:
        made = x.cumsum(axis)
        return made - (x if axis is not None else x.ravel()) if exclusive else made

    # Sums of a long row are large in between, and so is what is rounded off, also where they come near to zero.
    rough = {"float32": 5e-4 if max(shape) < 10000 else 1e-2, "float16": 2e-2}.get(dtype, 1e-10)
    return Automatic([shape], lambda x: topi.cumsum(x, axis, exclusive=exclusive), reference, dtype, rough)


SCAN_PROGRAMS: dict[str, Automatic] = {
    f"running sums {'x'.join(map(str, p.shapes[0]))} {p.dtype} {number}": p
    for number, p in enumerate(
        [
            *(
                _scan(s, 1)
                for s in ((1, 1), (5, 7), (128, 113), (856, 325), (26, 517), (131, 2049), (40, 8192))
            ),
            *(_scan(s, 1) for s in ((12032, 547), (1024, 1701), (200, 53333), (4, 1000000), (1, 1000003))),
            *(_scan(s, 0) for s in ((856, 325), (3, 100000), (100000, 3), (7000, 64), (1000000,))),
            _scan((20, 50, 70), 1),
            _scan((6, 50, 70), None),
            _scan((64, 1000), 1, exclusive=True),
            _scan((2, 300000), 1, exclusive=True),
            _scan((3000, 65), 0, exclusive=True),
            _scan((130, 1000), 1, "float16"),
            _scan((130, 1001), 1, "float16"),
            _scan((1000, 130), 0, "float16"),
            _scan((130, 1000), 1, "int32"),
            _scan((3, 100001), 1, "int64"),
            _scan((5, 3000), 1, "float64"),
        ]
    )
} | {
    "running products": Automatic(
        [(70, 40)], lambda x: topi.cumprod(x + 1.0, 1), lambda x: (x + 1.0).cumprod(1), rough=1e-3
    ),
    "running sums of bytes": Automatic(
        [(30, 100)], lambda x: topi.cumsum(x, 1, "int32"), lambda x: x.cumsum(1, "int32"), "int8"
    ),
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
    "mean of a prime number of elements": Automatic(
        [(1, 250007)], lambda x: topi.mean(x, axis=1), lambda x: x.mean(1), rough=2e-3
    ),
    "places of the largest of long rows": Automatic(
        [(3, 100003)], lambda x: topi.argmax(x, axis=1), lambda x: x.argmax(1)
    ),
    "transpose and add": Automatic(
        [(128, 192), (192, 128)], lambda x, y: topi.transpose(x) + y, lambda x, y: x.T + y
    ),
    "norms of groups": Automatic(
        [(6, 32, 14, 14), (32,), (32,)],
        lambda x, g, b: topi.nn.group_norm(x, g, b, 4, 1, [2, 3]),
        lambda x, g, b: _groups(x, g, b, 4),
        rough=2e-3,
    ),
    "norms of instances": Automatic(
        [(6, 8, 56, 56), (8,), (8,)],
        lambda x, g, b: topi.nn.instance_norm(x, g, b, [2, 3], channel_axis=1),
        lambda x, g, b: _groups(x, g, b, 8),
        rough=2e-3,
    ),
    "side by side": Automatic(
        [(100, 1000), (100, 24)],
        lambda x, y: topi.concatenate([x, y], 1),
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "every second": Automatic(
        [(60, 2000)], lambda x: topi.strided_slice(x, (0, 0), (60, 2000), (1, 2)), lambda x: x[:, ::2]
    ),
    "all but the ends": Automatic(
        [(60, 1002)], lambda x: topi.strided_slice(x, (0, 1), (60, 1001), (1, 1)), lambda x: x[:, 1:-1]
    ),
    "twice as large": Automatic(
        [(2, 6, 14, 18)],
        lambda x: topi.nn.upsampling(x, 2, 2),
        lambda x: x.repeat(2, 2).repeat(2, 3),
    ),
    "backwards": Automatic([(60, 1000)], lambda x: topi.flip(x, 1), lambda x: x[:, ::-1]),
    "channels last": Automatic(
        [(2, 40, 14, 14)],
        lambda x: topi.transpose(x, (0, 2, 3, 1)),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "channels first of halves": Automatic(
        [(2, 14, 14, 64)],
        lambda x: topi.transpose(x, (0, 3, 1, 2)),
        lambda x: x.transpose(0, 3, 1, 2),
        "float16",
    ),
    "windows side by side": Automatic(
        [(2, 8, 16, 16)],
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "avg"),
        lambda x: x.reshape(2, 8, 8, 2, 8, 2).mean((3, 5)),
    ),
    "means of columns": Automatic(
        [(600, 256)], lambda x: topi.mean(x, axis=0), lambda x: x.mean(0), rough=2e-3
    ),
    "means of images": Automatic(
        [(4, 64, 7, 7)], lambda x: topi.mean(x, axis=[2, 3]), lambda x: x.mean((2, 3)), rough=2e-3
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
    **SCAN_PROGRAMS,
    **_decoding(16, 3600, 80),
    **_decoding(4, 1000, 40),
    **_decoding(3, 501, 96),
    **_decoding(2, 4096, 256),
    **_decoding(16, 4096, 128),
    **_decoding(4, 2000, 64, 4),
    **_decoding(2, 3001, 128, 7),
    **_decoding(4, 2050, 64, 3, "float32"),
    **_decoding(1, 65536, 128),
    "places of the largest of odd rows": Automatic(
        [(301, 5333)], lambda x: topi.argmax(x, axis=1), lambda x: x.argmax(1)
    ),
    "place of the least of all": Automatic(
        [(7, 100003)], lambda x: topi.argmin(x, axis=None), lambda x: np.asarray(x.argmin())
    ),
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
