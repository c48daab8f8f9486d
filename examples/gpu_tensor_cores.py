"""A dense layer on the tensor cores of an NVIDIA GPU, from its description alone.

Where there is no such GPU, the kernel is only written: its source says what would run.
"""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te, topi

N = 1024


def layer() -> list[te.Tensor]:
    """relu(x @ w.T + b), in float16 with sums in float32."""
    x = te.placeholder((N, N), "float16", name="x")
    w = te.placeholder((N, N), "float16", name="w")
    b = te.placeholder((N,), "float32", name="b")
    y = topi.nn.relu(topi.nn.dense(x, w, None, "float32") + b).astype("float16")
    return [x, w, b, y]


def main() -> None:
    dev = tvm.cuda(0)
    target = tvm.target.Target.from_device(dev) if dev.exist else tvm.target.Target("cuda -model=h200")
    sch = tvm.auto_schedule(layer(), target)
    sch.explain()
    built = tvm.build(sch.mod, target=target)
    source = built.imported_modules[0].get_source()
    print(f"the kernel: {len(source.splitlines())} lines of CUDA")
    if not dev.exist:
        print("there is no CUDA device here to run it")
        return
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((N, N)).astype("float16") for _ in range(2))
    b = rng.standard_normal(N).astype("float32")
    given = [tvm.nd.array(a, dev) for a in (x, w, b, np.full((N, N), np.nan, "float16"))]
    built(*given)
    want = np.maximum(x.astype("float64") @ w.astype("float64").T + b, 0)
    error = np.abs(given[-1].numpy() - want).max() / want.max()
    seconds = built.time_evaluator(built.entry_name, dev, number=100)(*given).mean
    print(f"error {error:.1e}, {2 * N**3 / seconds / 1e12:.0f} TFLOP/s")


if __name__ == "__main__":
    main()
