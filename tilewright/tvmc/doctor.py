"""`tilewright doctor`: the facts of the installation, a self-test, and how to get what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import config
from ..support import facts, lines_of
from .command_line import FAILED, Desk

if TYPE_CHECKING:
    from .app import Doctor

_SIZE = 64
_PATIENCE = 120  # seconds of the self-test, which takes two


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a part of the self-test."""

    name: str
    ok: bool
    seconds: float
    error: str = ""


def doctor_command(desk: Desk, given: Doctor) -> None:
    """Print the facts, test the installation, and say how to get what is missing; it fails if a test fails."""
    known = facts()
    checks = [] if given.skip_test else _tested(known)
    hints = [{"missing": what, "remedy": how} for what, how in advice(known)]
    failed = [c for c in checks if not c.ok]
    data = {
        **known,
        "self_test": [asdict(c) for c in checks],
        "advice": hints,
        "healthy": not failed and "error" not in known["llvm"],
    }
    lines = lines_of(known)
    lines += [f"{'self-test' if i == 0 else '':<12} {_told(c)}" for i, c in enumerate(checks)]
    if hints:
        lines += ["", *(f"{h['missing']}: {h['remedy']}" for h in hints)]
    desk.result(data, "\n".join(lines))
    if not data["healthy"]:
        raise SystemExit(FAILED)


def _told(check: Check) -> str:
    state = f"right, {check.seconds:.2f} s" if check.ok else f"FAILED: {check.error}"
    return f"{check.name}: {state}"


# -- the self-test ----------------------------------------------------------------------------------
def _tested(known: dict[str, Any]) -> list[Check]:
    """The results of the self-test, which runs in a process of its own: wrong machine code may end it."""
    names = ["cpu", "graph"]
    names += [kind for kind, about in known["devices"].items() if about["found"] and not about["error"]]
    command = [sys.executable, "-m", __name__, *names]
    environment = {**os.environ, config.cache.variable: "0"}  # the compiler is tested, and not its cache
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, env=environment)
        told, ended = done.stdout, _ending(done.returncode, done.stderr)
    except subprocess.TimeoutExpired as error:
        told = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        ended = f"it did not end within {_PATIENCE} s"
    found = [Check(**json.loads(line)) for line in told.splitlines() if line.startswith("{")]
    if len(found) < len(names):
        found.append(
            Check(_TITLES.get(names[len(found)], _device_title(names[len(found)])), False, 0.0, ended)
        )
    return found


def _ending(code: int, said: str) -> str:
    """How a process ended."""
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return next(
        (line for line in reversed(said.splitlines()) if line.strip()), f"the process ended with {code}"
    )


def _device_title(kind: str) -> str:
    return f"a kernel for {kind}"


_TITLES = {"cpu": "a kernel for the CPU", "graph": "a graph for the CPU"}


def test_here(names: Sequence[str]) -> None:
    """Run parts of the self-test in this process, and print their results as lines of JSON."""
    for name in names:
        kind = "llvm" if name == "cpu" else name
        work = _run_graph if name == "graph" else partial(_run_kernel, kind, name)
        title = _TITLES.get(name, _device_title(name))
        print(json.dumps(asdict(_checked(title, work))), flush=True)


def _checked(name: str, work: Callable[[], None]) -> Check:
    start = time.perf_counter()
    try:
        work()
    except Exception as error:  # whatever goes wrong is the answer
        return Check(name, False, time.perf_counter() - start, f"{type(error).__name__}: {error}")
    return Check(name, True, time.perf_counter() - start)


def _run_kernel(target: str, device: str) -> None:
    """Compile a product of matrices, run it, and compare the result with NumPy's."""
    import numpy as np

    from .. import te
    from ..runtime.devices import device as device_of
    from ..runtime.ndarray import array, empty
    from ..tune.auto import compile as compile_tensors

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((_SIZE, _SIZE)).astype("float32") for _ in range(2))
    A, B = (te.placeholder((_SIZE, _SIZE), name=name) for name in "AB")
    k = te.reduce_axis((0, _SIZE), name="k")
    C = te.compute((_SIZE, _SIZE), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    function = compile_tensors([A, B, C], target)
    here = device_of(device)
    out = empty((_SIZE, _SIZE), "float32", here)
    function(array(a, here), array(b, here), out)
    _same(out.numpy(), a @ b)


def _run_graph() -> None:
    """Compile a layer, run it on the graph executor, and compare the result with NumPy's."""
    import numpy as np

    from ..ir.module import IRModule
    from ..relay.build_module import build
    from ..relay.expr import Function, const, var
    from ..relay.op import nn
    from ..runtime.graph_module import GraphModule

    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((4, 16)).astype("float32"), rng.standard_normal((8, 16)).astype("float32")
    data = var("data", shape=x.shape)
    layer = nn.relu(nn.dense(data, const(w)))
    run = GraphModule(build(IRModule.from_expr(Function([data], layer)), "llvm"))
    run.run(data=x)
    _same(run.get_output(0).numpy(), np.maximum(x @ w.T, 0))


def _same(found: Any, wanted: Any) -> None:
    import numpy as np

    error = float(np.abs(found - wanted).max())
    if not error < 1e-4 * _SIZE:
        raise ArithmeticError(f"the result differs from NumPy's by {error:.3g}")


# -- what is missing --------------------------------------------------------------------------------
def advice(known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is missing, and how to get it."""
    packages, cpu = known["packages"], known["cpu"]
    if "error" in known["llvm"]:
        yield (
            "LLVM",
            "pip install llvmlite (there are wheels for Linux with glibc, macOS and Windows, not for musl)",
        )
    if "error" in known["c_compiler"]:
        yield (
            "C compiler",
            "models compile and run without one; shared libraries for other programs need it: install gcc or clang, or "
            "pip install ziglang",
        )
    for package, extra, what in (("onnx", "onnx", "models of ONNX"), ("torch", "torch", "models of PyTorch")):
        if packages[package] is None:
            yield what, f"pip install 'tilewright[{extra}]'"
    if packages["xgboost"] is None and packages["xgboost-cpu"] is None:
        yield (
            "a learned cost model for tuning",
            "pip install xgboost, or xgboost-cpu, which is smaller; without it the analytical one is used",
        )
    for kind, package in (("cuda", "cuda-bindings"), ("opencl", "pyopencl")):
        about = known["devices"].get(kind, {})
        if not about.get("found") and packages[package] is None:
            yield f"{kind} devices", f"pip install 'tilewright[{kind}]', where there is a driver"
        elif about.get("found") and about["error"]:
            yield f"a compiler for {kind}", f"pip install 'tilewright[{kind}]'"
    for cache in known["caches"]:
        if not cache["writable"]:
            variable = "TILEWRIGHT_CACHE_DIR" if cache.get("limit") else "TILEWRIGHT_CONFIG_DIR"
            yield f"a writable folder for {cache['path']}", f"name one in {variable}"
    if cpu["quota"] is not None and cpu["threads"] > cpu["quota"] + 1:
        yield (
            "CPU time",
            f"{cpu['threads']} threads share a quota of {cpu['quota']:g} CPUs; unset {cpu['threads_from']}, which asks "
            "for them",
        )
    if cpu.get("figures") == "table":
        yield (
            "measured figures of this machine",
            "tilewright calibrate (a minute), for better schedules and profiles",
        )


if __name__ == "__main__":
    test_here(sys.argv[1:])
