"""apache-tvm (0.27, MetaSchedule) as a peer of bench/tuning.py; it runs in an environment of its own.

    python -m venv tvmenv
    tvmenv/bin/pip install apache-tvm==0.27 apache-tvm-ffi==0.1.14.post0 numpy scipy xgboost-cpu cloudpickle psutil
    python bench/tuning.py --only tvm --tvm-python tvmenv/bin/python

    {"do": "tune", "workload": name, "trials": 64}        ->  {"seconds": …, "measured": …}
    {"do": "prepare", …}, {"do": "sample"}                ->  as in workers.py

Importing the intrinsics of all its targets takes longer than the time limit of its builders on two cores, so that every
build fails; here those of x86 alone are imported. With a later apache-tvm-ffi it crashes when it saves a record.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")

import numpy as np
from workers import Stage, serve
from workloads import ALL, Workload, error_of


def few_intrinsics() -> None:
    """A package with the modules of the real one, and nothing imported but what this machine may want."""
    import importlib
    import importlib.util
    import sys
    import types

    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        return
    found = importlib.util.find_spec("tvm.s_tir")
    places = [] if found is None else list(found.submodule_search_locations or ())
    made = types.ModuleType(name)
    made.__path__ = [f"{place}/tensor_intrin" for place in places]
    sys.modules[name] = made
    importlib.import_module(f"{name}.x86")


def target(threads: int) -> Any:
    import tvm

    return tvm.target.Target({"kind": "llvm", "mcpu": processor(), "num-cores": threads})


def processor() -> str:
    """The processor's name for LLVM, without features that a virtual machine hides."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    wanted = (("znver4", "avx512vbmi2", "sse4a"), ("skylake-avx512", "avx512bw"), ("znver3", "avx2", "sse4a"))
    for name, *needs in (*wanted, ("haswell", "avx2")):
        if all(f" {flag.replace('avx512vbmi2', 'avx512_vbmi2')}" in flags for flag in needs):
            return name
    return "x86-64"


def program(w: Workload) -> Any:
    """The workload as TVM's own expressions."""
    from tvm import te, topi

    inputs = {name: te.placeholder(shape, "float32", name) for name, shape in w.inputs.items()}
    x, o = list(inputs.values()), w.options
    if w.kind == "matmul":
        k = te.reduce_axis((0, w.inputs["a"][-1]), "k")
        product = lambda *at: te.sum(x[0][(*at[:-1], k)] * x[1][(*at[:-2], k, at[-1])], axis=k)
        made = te.compute(w.output, product, "out")
    elif w.kind == "conv":
        grouped = topi.nn.depthwise_conv2d_nchw if o["groups"] > 1 else topi.nn.conv2d_nchw
        made = grouped(inputs["x"], inputs["w"], o["stride"], o["pad"], 1, "float32")
        if o["epilogue"]:
            plain, zero = made, te.const(0.0, "float32") if hasattr(te, "const") else 0.0
            made = te.compute(
                w.output, lambda n, c, i, j: te.max(plain[n, c, i, j] + inputs["bias"][c], zero), "out"
            )
    elif w.kind == "softmax":
        made = topi.nn.softmax(x[0], -1)
    elif w.kind == "layernorm":
        made = topi.nn.layer_norm(x[0], x[1], x[2], [1], 1e-5)
    elif w.kind == "sum":
        made = topi.sum(x[0], axis=o["axis"])
    elif w.kind == "transpose":
        made = topi.transpose(x[0], [1, 0])
    elif w.kind == "add":
        made = topi.add(x[0], x[1])
    else:
        return None
    return te.create_prim_func([*x, made])


class TvmStage(Stage):
    """What this worker holds: records of what it tuned, and one workload made ready."""

    def __init__(self, peer: str, threads: int, figures: str, realtime: bool) -> None:
        super().__init__(peer, threads, figures, realtime)
        os.environ["TVM_NUM_THREADS"] = str(threads)
        few_intrinsics()
        self.folder = Path(tempfile.mkdtemp(prefix="tilewright-bench-tvm-"))
        self.databases: dict[str, Any] = {}

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def tune(self, workload: str, trials: int) -> dict[str, Any]:
        from tvm.s_tir import meta_schedule as ms

        func = program(ALL[workload])
        if func is None:
            return {"absent": True}
        place = self.folder / str(len(self.databases))
        place.mkdir()
        builder = ms.builder.LocalBuilder(max_workers=os.cpu_count(), initializer=few_intrinsics)
        config = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=50, enable_cpu_cache_flush=False)
        start = time.perf_counter()
        self.databases[workload] = found = ms.tir_integration.tune_tir(
            func,
            target(self.threads),
            str(place),
            trials,
            num_trials_per_iter=min(32, trials),
            builder=builder,
            runner=ms.runner.LocalRunner(timeout_sec=20, evaluator_config=config),
            cost_model="xgb" if _has_xgboost() else "random",
            seed=0,
        )
        return {"seconds": time.perf_counter() - start, "measured": len(found.get_all_tuning_records())}

    def prepare(self, workload: str, folder: str, ms: float) -> dict[str, Any]:
        import tvm
        from tvm.s_tir import meta_schedule

        w, files = ALL[workload], Path(folder)
        if workload not in self.databases:
            return {"absent": True}
        start, chosen = time.perf_counter(), target(self.threads)
        sch = meta_schedule.tir_integration.compile_tir(self.databases[workload], program(w), chosen)
        if sch is None:
            return {"failed": "nothing that it measured can be built"}
        run = tvm.compile(sch.mod, target=chosen)["main"]
        built = time.perf_counter() - start
        arrays = [tvm.runtime.tensor(np.load(files / f"{name}.npy")) for name in w.inputs]
        out = tvm.runtime.tensor(np.zeros(w.output, np.float32))
        self.prepared = types.SimpleNamespace(run=lambda: run(*arrays, out))
        start = time.perf_counter()
        self.prepared.run()
        first = time.perf_counter() - start
        error = error_of(out.numpy(), np.load(files / "reference.npy", mmap_mode="r"))
        self._calibrate(first, ms)
        return {"error": error, "estimate": self.estimate, "build": built, "note": ""}


def _has_xgboost() -> bool:
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1", TvmStage)
