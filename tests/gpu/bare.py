"""What works where little is installed: NumPy, ml_dtypes and llvmlite, and nothing else.

python tests/gpu/bare.py
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
ABSENT = (
    "xgboost typer rich onnx safetensors dask distributed torch jax tensorflow pyopencl cuda scipy".split()
)
for name in ABSENT:
    sys.modules[name] = None  # type: ignore[assignment]  # importing it fails

import importlib  # noqa: E402

import numpy as np  # noqa: E402

import tilewright as tvm  # noqa: E402
from tilewright import te  # noqa: E402
from tilewright.tune.search.cost_models import cost_model  # noqa: E402

PACKAGES = (
    "relay relay.frontend relay.testing topi te tir auto_scheduler autotvm autotvm.tuner driver driver.tvmc contrib.nvcc "
    "contrib.graph_executor contrib.cc rpc testing tir.tensor_intrin.cuda micro vta"
).split()


def main() -> None:
    for package in PACKAGES:
        try:
            importlib.import_module(f"tilewright.{package}")
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.startswith("tilewright"):
                continue  # there is no such part
            raise
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    kernels = tvm.build(s, [A, B], target="cuda").imported_modules[0]
    print(len(kernels.get_source().splitlines()), "lines of CUDA")
    for what in (lambda: kernels.get_source("ptx"), lambda: tvm.nd.empty((1,), device=tvm.cuda(0))):
        try:
            what()
        except (tvm.TVMError, ValueError) as error:
            print(error)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tvm.auto_scheduler.XGBModel()
        cost_model("auto", target=tvm.target.Target("cuda -arch=sm_90a"))
    print(*(str(w.message) for w in said))
    here = tvm.build(te.create_schedule(B.op), [A, B], target="llvm")
    out = tvm.nd.empty((64,))
    here(tvm.nd.array(np.ones(64, "float32")), out)
    assert (out.numpy() == 2).all()


if __name__ == "__main__":
    main()
