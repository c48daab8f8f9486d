"""The peers of bench/cpu_models.py, each in a process of its own; `workers.py` has the protocol.

    {"do": "prepare", "model": name, "folder": path, "ms": 50}   ->  error, estimate, build, warm, memory, note
    {"do": "sample"}                                             ->  as there

tilewright compiles in a further process, once with an empty cache and once more; the process that is timed loads the
library that came of it, with the runtime alone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from models import MODELS, Model, error_of, read_inputs, torch_module
from peers import Prepared
from workers import Stage, hold_the_core, serve

Array = np.ndarray[Any, Any]


class Made(NamedTuple):
    """A model made ready, with the seconds that took: from nothing, and where a cache helped."""

    prepared: Prepared
    build: float
    warm: float | None = None
    compile_memory: int = 0  # bytes, of the process that compiled, if it was another


class ModelStage(Stage):
    """What a worker holds: one model made ready."""

    LONG = 2.0  # all models here are shorter, and all peers must be timed under the same rule

    def prepare(self, model: str, folder: str, ms: float) -> dict[str, Any]:  # type: ignore[override]
        m, place = MODELS[model], Path(folder)
        made = MODEL_PEERS[self.peer](m, place, read_inputs(m, place), self.threads)
        self.prepared = made.prepared
        self.prepared.run()
        error = error_of(self.prepared.result(), np.load(place / f"{model}.reference.npy"))
        reset = _reset_peak()
        # With the priority of the samples. Without it, threads that wait for each other in barriers take up to a
        # hundred times as long on a busy machine, and would then be taken for too long to get the priority.
        hold_the_core(self.realtime)
        try:
            start = time.perf_counter()
            self.prepared.run()
            self._calibrate(time.perf_counter() - start, ms)
        finally:
            hold_the_core(False)
        return {
            "error": error,
            "estimate": self.estimate,
            "build": made.build,
            "warm": made.warm,
            "memory": peak_memory() if reset else 0,
            "compile_memory": made.compile_memory,
            "note": self.prepared.note,
        }


def _reset_peak() -> bool:
    """Let the most memory that was held begin anew, so that loading does not count as running."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int:
    """Bytes of memory that this process held at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


# -- tilewright ---------------------------------------------------------------------------------
def tilewright(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    return _dynamic(m, folder, x, threads, versions=0) if m.shape else _static(m, folder, x, threads)


def recurring(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    """A model of dynamic size with the version that it compiles in the background for a size that recurs."""
    return _dynamic(m, folder, x, threads, versions=1)


def _static(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(Path(name) / "cache")}
        library, params = Path(name) / "model.so", Path(name) / "model.params"
        command = [sys.executable, __file__, "compile", str(folder / f"{m.name}.onnx"), str(library)]
        command += [
            str(params),
            str(threads),
            json.dumps({k: v.shape for k, v in x.items()} if m.shape else {}),
        ]
        cold = _compiled(command, environment)
        warm = _compiled(command, environment)
        from tilewright.runtime import cpu, load_module
        from tilewright.runtime.params import load_param_dict_from_file

        module: Any = load_module(library)
        executor = module["default"](cpu(0))
        executor.load_params(load_param_dict_from_file(params))
    for key, value in x.items():
        executor.set_input(key, value)
    prepared = Prepared(executor.run, lambda: executor.get_output(0).numpy())
    return Made(prepared, cold["seconds"], warm["seconds"], cold["memory"])


def _dynamic(m: Model, folder: Path, x: dict[str, Array], threads: int, versions: int) -> Made:
    """A model for inputs of any size. Compiling ends with the first result, since kernels are compiled when a size
    first needs them; then this process takes them from the cache."""
    source, inputs = str(folder / f"{m.name}.onnx"), str(folder / f"{m.name}.inputs.npz")
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        os.environ["TILEWRIGHT_VERSIONS"] = str(versions)
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(Path(name) / "cache")}
        command = [sys.executable, __file__, "first", source, inputs, str(threads)]
        cold = _compiled(command, environment)
        warm = _compiled(command, environment)
        os.environ["TILEWRIGHT_CACHE_DIR"] = environment["TILEWRIGHT_CACHE_DIR"]
        from tilewright.runtime.versions import RECURS

        run, result, finish = _virtual_machine(source, x, threads)
        for _ in range(RECURS):
            run()
        finish()
    return Made(Prepared(run, result), cold["seconds"], warm["seconds"], cold["memory"])


def _virtual_machine(
    source: str, x: dict[str, Array], threads: int
) -> tuple[Callable[[], Any], Callable[[], Array], Callable[[], None]]:
    import tilewright as tvm
    from tilewright import relay

    mod, weights = relay.frontend.from_onnx(source)
    exe = relay.vm.compile(mod, target=f"llvm -num-cores={threads}", params=weights)
    machine = relay.vm.VirtualMachine(exe, tvm.cpu())
    given, last = [tvm.nd.array(v) for v in x.values()], [None]

    def run() -> None:
        last[0] = machine.invoke("main", *given)

    def result() -> Array:
        made: Any = last[0]
        return np.asarray((made if hasattr(made, "numpy") else made[0]).numpy())

    return run, result, machine.finish


def first_result(source: str, inputs: str, threads: str) -> dict[str, Any]:
    """Import and compile a model for any size, up to its first result."""
    from tilewright import relay

    _ = relay.build  # loads the compiler
    with np.load(inputs) as file:
        x = {name: file[name] for name in file.files}
    start = time.perf_counter()
    run, _, _ = _virtual_machine(source, x, int(threads))
    run()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": time.perf_counter() - start, "memory": memory}


def fixed(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    """tilewright with all sizes known, beside a model of dynamic size."""
    return _static(m, folder, x, threads)


def _compiled(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    told = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    if "seconds" not in told:
        raise RuntimeError(told.get("failed", f"the compiling process ended with {done.returncode}"))
    return dict(told)


def compile_here(source: str, library: str, params: str, threads: str, shapes: str) -> dict[str, Any]:
    """Import and compile a model; the clock starts when Python has loaded tilewright."""
    from tilewright import relay
    from tilewright.runtime.params import save_param_dict_to_file

    _ = relay.build  # loads the compiler
    start = time.perf_counter()
    mod, weights = relay.frontend.from_onnx(source, shape=json.loads(shapes) or None)
    imported = time.perf_counter()
    lib = relay.build(mod, target=f"llvm -num-cores={threads}", params=weights)
    done = time.perf_counter()
    lib.get_lib().export_library(library)
    save_param_dict_to_file(lib.get_params(), params)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": done - start, "import": imported - start, "memory": memory}


# -- peers --------------------------------------------------------------------------------------
def onnxruntime(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    import onnxruntime as lib

    options = lib.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    start = time.perf_counter()
    session = lib.InferenceSession(
        str(folder / f"{m.name}.onnx"), options, providers=["CPUExecutionProvider"]
    )
    built = time.perf_counter() - start
    binding = session.io_binding()
    for name, value in x.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output(session.get_outputs()[0].name, "cpu")
    run: Callable[[], Any] = lambda: session.run_with_iobinding(binding)
    return Made(Prepared(run, lambda: np.asarray(binding.copy_outputs_to_cpu()[0])), built)


def openvino(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    import openvino as lib

    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,
    }
    start = time.perf_counter()
    request = lib.Core().compile_model(str(folder / f"{m.name}.onnx"), "CPU", options).create_infer_request()
    built = time.perf_counter() - start
    for name, value in x.items():
        request.set_tensor(name, lib.Tensor(value))
    return Made(Prepared(request.infer, lambda: np.array(request.get_output_tensor(0).data)), built)


def torch(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    module, inputs = _torch(m, folder, x, threads)
    return _torch_made(module, inputs, 0.0)


def torch_compile(m: Model, folder: Path, x: dict[str, Array], threads: int) -> Made:
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = name
        import torch as lib

        module, inputs = _torch(m, folder, x, threads)
        compiled = lib.compile(module)
        start = time.perf_counter()
        compiled(*inputs)
        return _torch_made(compiled, inputs, time.perf_counter() - start)


def _torch(m: Model, folder: Path, x: dict[str, Array], threads: int) -> tuple[Any, list[Any]]:
    import torch as lib

    lib.set_num_threads(threads)
    lib.set_grad_enabled(False)
    return torch_module(m, folder), [lib.from_numpy(value) for value in x.values()]


def _torch_made(module: Any, inputs: list[Any], built: float) -> Made:
    last: list[Any] = [None]

    def run() -> None:
        last[0] = module(*inputs)

    return Made(Prepared(run, lambda: np.asarray(last[0].numpy())), built)


MODEL_PEERS: dict[str, Callable[[Model, Path, dict[str, Array], int], Made]] = {
    "tilewright": tilewright,
    "tilewright.recurring": recurring,
    "tilewright.fixed": fixed,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": torch,
    "torch.compile": torch_compile,
}


def _main() -> None:
    if sys.argv[1] not in ("compile", "first"):
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1", ModelStage)
        return
    try:
        told = (compile_here if sys.argv[1] == "compile" else first_result)(*sys.argv[2:])
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        told = {"failed": f"{type(error).__name__}: {first}"[:300]}
    print(json.dumps(told))


if __name__ == "__main__":
    _main()
