"""The virtual machine on a device: OpenCL, which PoCL runs on a processor, against the same programs on the CPU."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay
from tilewright.error import OutOfBoundsError
from tilewright.ir.errors import BuildError
from tilewright.relay.op import dyn
from tilewright.runtime.devices import device_api
from tilewright.runtime.versions import RECURS
from tilewright.runtime.vm import VirtualMachine
from tilewright.runtime.vm_verify import verify

A = relay.Any()
DEV = tvm.opencl(0)
needs_device = pytest.mark.needs("opencl")


@pytest.fixture(autouse=True)
def no_versions() -> Iterator[None]:
    with config.using(versions=0):
        yield


def weights(*shape: int, seed: int = 0) -> Any:
    return relay.const(np.random.default_rng(seed).standard_normal(shape).astype("float32") / shape[-1])


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def machine(params: Any, body: Any) -> VirtualMachine:
    return VirtualMachine(relay.vm.compile(relay.Function(params, body), "opencl"), DEV)


def mlp() -> Any:
    x = relay.var("x", shape=(A, 8))
    y = relay.nn.relu(relay.nn.dense(x, weights(12, 8)))
    return [x], relay.nn.softmax(relay.nn.dense(y, weights(5, 12)))


def conv() -> Any:
    x = relay.var("x", shape=(A, 2, A, A))
    y = relay.nn.conv2d(x, weights(4, 2, 3, 3), padding=(1, 1), kernel_size=(3, 3), channels=4)
    return [x], relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(y)))


def scores() -> Any:
    """Scores of attention among tokens, two results."""
    x = relay.var("x", shape=(1, A, 8))
    y = relay.nn.softmax(relay.nn.batch_matmul(x, x))
    return [x], relay.Tuple([relay.nn.batch_matmul(y, relay.transpose(x, (0, 2, 1))), y])


def branch() -> Any:
    x = relay.var("x", shape=(A, 4))
    positive = relay.greater(relay.sum(x), relay.const(0.0))
    return [x], relay.If(positive, relay.nn.relu(x), relay.exp(x) * relay.const(2.0))


def loop() -> Any:
    """A loop over n steps, whose condition the host computes."""
    x, n = relay.var("x", shape=(A, 4)), relay.var("n", shape=(), dtype="int32")
    i, y = relay.var("i", shape=(), dtype="int32"), relay.var("y", shape=(A, 4))
    again = relay.var("again")
    more = relay.Call(again, [i + relay.const(1), relay.tanh(relay.nn.dense(y, weights(4, 4)))])
    body = relay.Function([i, y], relay.If(relay.less(i, n), more, y), relay.TensorType((A, 4), "float32"))
    return [x, n], relay.Let(again, body, relay.Call(again, [relay.const(0), x]))


def by_values() -> Any:
    """Shapes that come from values, and a kernel without a rule for GPUs, on the host."""
    x, shape = relay.var("x", shape=(A, 4)), relay.var("shape", shape=(2,), dtype="int64")
    y = dyn.reshape(relay.nn.relu(x), shape)
    return [x, shape], relay.sum(relay.argwhere(y), axis=0)


CASES: dict[str, tuple[Callable[[], Any], list[tuple[Any, ...]]]] = {
    "mlp": (mlp, [(values(1, 8),), (values(5, 8),)]),
    "conv": (conv, [(values(1, 2, 6, 5),), (values(3, 2, 4, 7),)]),
    "scores": (scores, [(values(1, 1, 8),), (values(1, 9, 8),)]),
    "branch": (branch, [(values(3, 4),), (-abs(values(2, 4)),)]),
    "loop": (loop, [(values(3, 4), np.array(n, "int32")) for n in (0, 3)]),
    "by values": (by_values, [(values(6, 4), np.array([3, 8])), (values(2, 4), np.array([-1, 1]))]),
}


@functools.cache
def compiled(name: str, target: str = "opencl") -> Any:
    """One of the programs, compiled once for all tests."""
    return relay.vm.compile(relay.Function(*CASES[name][0]()), target)


def case(name: str, target: str = "opencl") -> VirtualMachine:
    return VirtualMachine(compiled(name, target))


def leaves(value: Any) -> list[Any]:
    return [x for f in value for x in leaves(f)] if hasattr(value, "tag") else [value]


class Counted:
    """The copies and the waiting of a device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        api = device_api(DEV)
        self.calls: list[tuple[str, int]] = []
        for name in ("upload", "download", "sync"):
            monkeypatch.setattr(api, name, self.counted(name, getattr(api, name)))

    def counted(self, name: str, real: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append((name, args[-1]))
            return real(*args)

        return call


# ---------------------------------------------------------------------------- results
@needs_device
@pytest.mark.filterwarnings("ignore:.*runs on the host:RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_cpu(name: str) -> None:
    _, calls = CASES[name]
    there, here = case(name), case(name, "llvm")
    for given in calls:
        found, wanted = leaves(there.run(*given)), leaves(here.run(*given))
        assert all(f.device == DEV for f in found)
        again = leaves(there.run(*(tvm.nd.array(v, DEV) for v in given)))
        for f, g, w in zip(found, again, wanted, strict=True):
            np.testing.assert_allclose(f.numpy(), w.numpy(), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(g.numpy(), f.numpy())


@needs_device
def test_a_call_copies_and_awaits_only_what_the_host_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    calm, choosing, counting = case("mlp"), case("branch"), case("loop")
    x, y = tvm.nd.array(values(5, 8), DEV), tvm.nd.array(values(5, 4), DEV)
    steps = np.array(3, "int32")
    for vm, given in ((calm, [x]), (choosing, [y]), (counting, [y, steps])):
        vm.run(*given)  # constants are uploaded
    counted = Counted(monkeypatch)
    calm.run(x)
    assert counted.calls == []
    choosing.run(y)
    assert counted.calls == [("download", 1)]  # the condition
    counted.calls.clear()
    counting.run(y, steps)
    assert counted.calls == []  # the host computes the condition
    result = calm.run(values(5, 8))
    assert counted.calls == [("upload", 5 * 8 * 4)]
    result.numpy()
    assert counted.calls[1:] == [("download", 5 * 5 * 4)]


@needs_device
def test_memory_is_reused() -> None:
    vm = case("mlp")
    for _ in range(4):
        vm.run(values(5, 8))
    before = vm.memory_report().pool
    assert before.total > before.used >= 0
    for _ in range(4):
        vm.run(values(5, 8))
    assert vm.memory_report().pool == before
    held = [vm.run(values(5, 8, seed=s)) for s in range(3)]  # results stay as they are
    wanted = case("mlp", "llvm")
    for s, found in enumerate(held):
        np.testing.assert_allclose(found.numpy(), wanted.run(values(5, 8, seed=s)).numpy(), rtol=1e-4)


@needs_device
def test_results_do_not_share_memory_with_arguments_and_constants() -> None:
    x, c = relay.var("x", shape=(A, 4)), weights(2, 4)
    vm = machine([x], relay.Tuple([x, c]))
    given = tvm.nd.array(values(3, 4), DEV)
    same, constant = vm.run(given)
    assert same.data_ptr != given.data_ptr
    constant.copyfrom(np.zeros((2, 4), "float32"))
    np.testing.assert_array_equal(vm.run(given)[1].numpy(), c.data.numpy())
    np.testing.assert_array_equal(same.numpy(), given.numpy())


@needs_device
def test_a_bad_index_is_an_error_and_the_machine_goes_on() -> None:
    x, at = relay.var("x", shape=(A, 4)), relay.var("at", shape=(A,), dtype="int32")
    vm = machine([x, at], relay.take(x, at, axis=0, mode="fast"))
    with pytest.raises(OutOfBoundsError, match="index 6"):
        vm.run(values(6, 4), np.array([1, 6], "int32")).numpy()
    found = vm.run(values(6, 4), np.array([5, 0], "int32"))
    np.testing.assert_array_equal(found.numpy(), values(6, 4)[[5, 0]])


@needs_device
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("places", [None, [1, 2, -1]])
def test_a_cache_is_written_in_place(on_device: bool, places: list[int] | None) -> None:
    cache, new = relay.var("cache", shape=(8, 4)), relay.var("new", shape=(A, 4))
    at = relay.var("at", shape=(A,), dtype="int64")
    given = [relay.nn.relu(new)] if places is None else [relay.nn.relu(new), at]
    params = [cache, new] if places is None else [cache, new, at]
    vm = machine(params, relay.sum(relay.nn.cache_update(cache, *given), axis=1))
    held = tvm.nd.array(np.zeros((8, 4), "float32"), DEV) if on_device else np.zeros((8, 4), "float32")
    rows = abs(values(3, 4))
    found = vm.run(held, rows, *([] if places is None else [np.array(places)])).numpy()
    wanted = np.zeros((8, 4), "float32")
    wanted[slice(5, 8) if places is None else places] = rows
    np.testing.assert_array_equal(held.numpy() if on_device else held, wanted)
    np.testing.assert_allclose(found, wanted.sum(1), rtol=1e-5)


@needs_device
def test_sizes_that_recur_get_a_version() -> None:
    x = relay.var("x", shape=(A, 8))
    with config.using(versions=2, cache=False):
        vm = machine([x], relay.nn.relu(relay.nn.dense(x, weights(4, 8))))
        for n in (3, 6):
            for seed in range(RECURS + 2):
                found = vm.run(values(n, 8, seed=seed)).numpy()
                wanted = np.maximum(values(n, 8, seed=seed) @ weights(4, 8).data.numpy().T, 0)
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
                vm.finish()
        assert set(vm.exe.versions.ready) == {((3, 8),), ((6, 8),)}  # type: ignore[union-attr]
        one, other = vm._executors.values()
        assert one._weights is other._weights and one.device == DEV


# ---------------------------------------------------------------------------- out and in
@needs_device
def test_programs_are_saved_and_loaded(tmp_path: Path) -> None:
    model = tvm.compile(tvm.IRModule.from_expr(relay.Function(*branch())), target="opencl")
    x = values(3, 4)
    wanted = model(x)
    assert isinstance(wanted, np.ndarray) and model.device == DEV
    for name in ("net.tar", "net.so"):
        model.save(tmp_path / name)
        loaded = tvm.load(tmp_path / name)
        assert loaded.device == DEV
        np.testing.assert_array_equal(loaded(x), wanted)
        np.testing.assert_array_equal(loaded(-x), model(-x))


@needs_device
def test_a_program_runs_where_it_was_compiled_for() -> None:
    vm = case("mlp")
    with pytest.raises(
        tvm.TVMError, match=r"compiled for opencl and cannot run on cpu\(0\); give tvm.opencl\(0\)"
    ):
        VirtualMachine(vm.exe, tvm.cpu())
    with pytest.raises(tvm.TVMError, match="as one file, with export_library"):
        vm.exe.save()


# ---------------------------------------------------------------------------- what is compiled
def compiled_whole(params: Any, body: Any) -> Any:
    """A program with the kernels for all relations of sizes, which are otherwise compiled at their first call."""
    exe = relay.vm.compile(relay.Function(params, body), "cuda -arch=sm_90a")
    exe._compile(exe.assembly.groups)
    return exe


@pytest.mark.parametrize("make", [mlp, conv, scores])
def test_kernels_for_symbolic_sizes_are_on_the_device(make: Any) -> None:
    exe = compiled_whole(*make())
    assert exe.program.device == "cuda"
    kernels = exe.assembly.kernels.values()
    assert kernels and not any(k.on_host for k in kernels)
    assert any(k.about["symbols"] for k in kernels)


def test_operands_of_asynchronous_copies_are_only_read() -> None:
    x = relay.var("x", shape=(A, 64))
    exe = compiled_whole([x], relay.nn.dense(x, weights(96, 64)))
    infos = {n: exe.native(n).info for n in exe.program.kernels}
    assert [[p.access for p in i.params] for i in infos.values()] == 2 * [["r", "w", "r"]]
    verify(exe.program, infos, saved=False)


@pytest.mark.needs("nvrtc")
def test_ptx_is_made() -> None:
    exe = compiled_whole(*mlp())
    (module,) = exe.assembly.library(list(exe.assembly.kernels.values())).imported_modules
    assert module.get_source("ptx").count(".entry") >= 3


def test_accelerators_are_refused() -> None:
    from tilewright import vta

    with pytest.raises(BuildError, match="the virtual machine runs on CPUs and GPUs"):
        relay.vm.compile(relay.Function(*mlp()), vta.get_env().target)


def test_the_cpu_needs_nothing_of_devices() -> None:
    code = (
        "import sys, tilewright as t; from tilewright import relay; x = relay.var('x', shape=(relay.Any(), 4));"
        "vm = relay.vm.VirtualMachine(relay.vm.compile(relay.Function([x], relay.nn.relu(x)), 'llvm'), t.cpu());"
        "vm.run(__import__('numpy').ones((2, 4), 'float32'));"
        "print([m for m in sys.modules if m.endswith(('vm_device', 'device_kernel', 'cuda_driver'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
