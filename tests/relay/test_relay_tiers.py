"""Models that answer before they are compiled: the first tier, the change to the final one, what waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_relay_build import run, small_net

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.backend import te_compiler, tiers
from tilewright.relay.backend.tiers import TieredExecutor, TieredModule
from tilewright.te import evaluate

W = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


def dense() -> tvm.IRModule:
    x = relay.var("x", shape=(2, 4))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(W)))))


def built(mod: Any, **more: Any) -> Any:
    with tvm.transform.PassContext(opt_level=2, config={"relay.backend.tiers": True, **more}):
        return relay.build(mod, "llvm")


class Held:
    """Workers that compile nothing until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.file = tmp_path / "go"
        real = te_compiler.compile_kernel

        def held(job: Any, target: Any) -> Any:
            for _ in range(600):
                if self.file.exists():
                    break
                time.sleep(0.05)
            return real(job, target)

        monkeypatch.setattr(te_compiler, "compile_kernel", held)
        monkeypatch.setattr(te_compiler, "usable_cpus", lambda: 2)

    def release(self) -> None:
        self.file.touch()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    made = Held(monkeypatch, tmp_path)
    yield made
    made.release()


@pytest.mark.slow
def test_the_first_answer_comes_before_the_kernels(held: Held) -> None:
    lib = built(dense())
    assert isinstance(lib, TieredModule) and not lib.is_final
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.set_input("x", X)
    module.run()
    want = np.maximum(X @ W.T, 0)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-6)
    assert not lib.is_final and "being compiled" in repr(lib)
    held.release()
    assert lib.wait() is lib and lib.is_final
    place = module.get_output(0)
    module.run(x=-X)  # the same executor, with the same memory of results, now compiled
    assert isinstance(module.module, TieredExecutor) and module.module.info.steps
    np.testing.assert_allclose(place.numpy(), np.maximum(-X @ W.T, 0), rtol=1e-6)
    assert "Model(default" in repr(lib)


@pytest.mark.slow
def test_the_final_tier_is_the_model_without_tiers(held: Held, rng: np.random.Generator) -> None:
    func, reference = small_net(rng)
    x = rng.normal(size=(1, 8, 9, 9)).astype("float32")
    lib = built(tvm.IRModule.from_expr(func))
    np.testing.assert_allclose(run(lib, x=x)[0], reference(x), rtol=2e-4, atol=2e-5)
    assert not lib.is_final
    held.release()
    plain = relay.build(tvm.IRModule.from_expr(func), "llvm")
    assert lib.get_graph_json() == plain.get_graph_json()
    np.testing.assert_array_equal(run(lib, x=x)[0], run(plain, x=x)[0])


@pytest.mark.slow
def test_what_only_a_compiled_model_has_waits_for_it(held: Held, tmp_path: Path) -> None:
    lib = built(dense())
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    threading.Timer(0.2, held.release).start()
    assert list(lib.get_params()) == ["p0"]
    lib.export_library(str(tmp_path / "model.so"))
    again = tvm.runtime.load_module(str(tmp_path / "model.so"))
    np.testing.assert_allclose(run(again, x=X)[0], np.maximum(X @ W.T, 0), rtol=1e-6)
    assert module.module.benchmark(number=1, repeat=1).mean > 0
    assert module.get_input("p0").shape == lib.get_params()["p0"].shape


def test_an_error_of_the_compilation_is_raised_by_the_next_run(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise tvm.TVMError("no such instruction")

    monkeypatch.setattr(te_compiler, "compile_kernel", broken)
    lib = built(dense())
    with pytest.raises(tvm.TVMError, match="fused_nn_dense_nn_relu: no such instruction"):
        lib.wait()
    with pytest.raises(tvm.TVMError, match="no such instruction"):
        run(lib, x=X)


def test_a_worker_that_is_killed_is_an_error(held: Held) -> None:
    lib = built(dense())
    lib._compilation.workers.kill()
    with pytest.raises(tvm.TVMError, match="a compiling process ended by itself"):
        lib.wait()


def test_functions_that_numpy_cannot_evaluate_are_compiled_as_loops(held: Held) -> None:
    held.release()
    x = relay.var("x", shape=(4,), dtype="float16")
    lib = built(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    value = np.array([-1, 0, 2, 3], "float16")
    np.testing.assert_array_equal(run(lib, x=value)[0], np.maximum(value, 0))


def test_products_that_numpy_cannot_compute_have_no_first_tier(held: Held) -> None:
    held.release()
    x, w = (relay.var(n, shape=(4, 4), dtype="float16") for n in "xw")
    lib = built(tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w))))
    assert not isinstance(lib, TieredModule)


@pytest.mark.slow
def test_what_would_take_too_much_memory_waits_for_the_kernels(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = built(dense())
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    monkeypatch.setattr(evaluate, "_LARGEST", 4)
    threading.Timer(0.2, held.release).start()
    module.run(x=X)
    assert lib.is_final
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(X @ W.T, 0), rtol=1e-6)
    module.run(x=-X)
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(-X @ W.T, 0), rtol=1e-6)


def test_threads_have_executors_of_their_own(held: Held) -> None:
    lib = built(dense())
    before = tiers._blas()[0]() if tiers._blas() else 0
    values = [X * k for k in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda v: run(lib, x=v)[0], values))
    for v, got in zip(values, found, strict=True):
        np.testing.assert_allclose(got, np.maximum(v @ W.T, 0), rtol=1e-6)
    assert not lib.is_final
    assert before == (tiers._blas()[0]() if tiers._blas() else 0)


def test_unknown_inputs_and_other_devices_are_refused(held: Held) -> None:
    lib = built(dense())
    with pytest.raises(tvm.TVMError, match="compiled for the CPU and cannot run on cuda"):
        lib["default"](tvm.cuda(0))
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    held.release()
    with pytest.raises(ValueError, match="has no input 'y'"):
        module.set_input("y", X)


def test_kernels_in_the_cache_leave_nothing_to_wait_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    first = built(dense())
    assert isinstance(first, TieredModule)
    first.wait()
    second = built(dense())
    assert not isinstance(second, TieredModule) and second.is_final and second.wait() is second


def test_off_by_default_and_for_other_machines() -> None:
    assert not isinstance(relay.build(dense(), "llvm"), TieredModule)
    with tvm.transform.PassContext(config={"relay.backend.tiers": True}):
        made = relay.build(dense(), "llvm -mtriple=aarch64-linux-gnu")
    assert not isinstance(made, TieredModule)


def test_views_copies_and_several_results(held: Held) -> None:
    x = relay.var("x", shape=(2, 4))
    y = relay.reshape(relay.nn.relu(x), (4, 2))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([y, x, relay.const(W)])))
    lib = built(mod)
    assert isinstance(lib, TieredModule)
    found = run(lib, x=X)
    for got, want in zip(found, (np.maximum(X, 0).reshape(4, 2), X, W), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_a_process_that_ends_does_not_wait_for_its_kernels(tmp_path: Path) -> None:
    program = (
        "import time\n"
        "import tilewright as tvm\n"
        "from tilewright import relay\n"
        "from tilewright.relay.backend import te_compiler\n"
        "te_compiler.compile_kernel = lambda *_: time.sleep(600)\n"
        "x = relay.var('x', shape=(2, 4))\n"
        "with tvm.transform.PassContext(config={'relay.backend.tiers': True}):\n"
        "    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), 'llvm')\n"
        "print(*[p.pid for p in lib._compilation.workers.processes], flush=True)\n"
    )
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.returncode == 0 and not done.stderr
    for number in done.stdout.split():
        assert not Path(f"/proc/{number}").exists()
