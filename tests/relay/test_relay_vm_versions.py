"""Versions of dynamic models for sizes that recur: when they are made, what they share, and that they disturb nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay
from tilewright.relay.backend import recurring
from tilewright.runtime.versions import RECURS
from tilewright.runtime.vm import VirtualMachine

A = relay.Any()
W = np.linspace(-1, 1, 32 * 64, dtype="float32").reshape(32, 64)


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with config.using(versions=2, cache=False):
        yield


def dense(*, results: int = 1) -> VirtualMachine:
    x = relay.var("x", shape=(A, 64))
    y = relay.nn.relu(relay.nn.dense(x, relay.const(W)))
    body = y if results == 1 else relay.Tuple([y, relay.Tuple([relay.sum(y, 1), x])])
    return machine([x], body)


def machine(params: Any, body: Any) -> VirtualMachine:
    return VirtualMachine(relay.vm.compile(relay.Function(params, body), "llvm"), tvm.cpu())


def rows(n: int) -> Any:
    return np.random.default_rng(n).normal(size=(n, 64)).astype("float32")


def recur(vm: VirtualMachine, n: int, times: int = RECURS) -> None:
    for _ in range(times):
        np.testing.assert_allclose(vm.run(rows(n)).numpy(), wanted(n), rtol=1e-4, atol=1e-5)
    vm.finish()


def wanted(n: int) -> Any:
    return np.maximum(rows(n) @ W.T, 0)


def ready(vm: VirtualMachine) -> Any:
    return vm.exe.versions.ready  # type: ignore[union-attr]


@pytest.mark.slow
def test_sizes_that_recur_get_a_version() -> None:
    vm = dense(results=2)
    for _ in range(RECURS):
        assert not ready(vm)
        dynamic = vm.run(rows(5))
    vm.finish()
    assert list(ready(vm)) == [((5, 64),)]
    made = vm.run(rows(5))
    assert vm._executors  # it ran
    (version,) = ready(vm).values()
    assert version.module.model.inputs[0].shape == (5, 64)
    for a, b in ((made[0], dynamic[0]), (made[1][0], dynamic[1][0]), (made[1][1], dynamic[1][1])):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
    part = np.asfortranarray(rows(5))  # copied before it is read
    np.testing.assert_allclose(vm.run(part)[0].numpy(), wanted(5), rtol=1e-4, atol=1e-5)
    assert vm.run(rows(7))[0].shape == (7, 32)


@pytest.mark.slow
def test_results_are_new_arrays() -> None:
    vm = dense()
    recur(vm, 5)
    first = vm.run(rows(5))
    second = vm.run(-rows(5))
    np.testing.assert_allclose(first.numpy(), wanted(5), rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first.numpy(), second.numpy())


@pytest.mark.slow
def test_no_version_without_the_knob() -> None:
    vm = dense()
    with config.using(versions=0):
        recur(vm, 5)
        assert not ready(vm)
    recur(vm, 5)
    assert ready(vm) and not vm._executors
    with config.using(versions=0):
        vm.run(rows(5))
    assert not vm._executors


def test_fixed_sizes_and_caches_have_none() -> None:
    x = relay.var("x", shape=(2, 64))
    assert machine([x], relay.nn.relu(x)).exe.versions is None
    cache, new = relay.var("cache", shape=(8, 4)), relay.var("new", shape=(A, 4))
    assert machine([cache, new], relay.nn.cache_update(cache, new)).exe.versions is None


@pytest.mark.slow
def test_they_are_few_and_those_of_the_sizes_that_recur_most() -> None:
    vm = dense()
    for n in (5, 6):
        recur(vm, n)
    recur(vm, 7, 2 * RECURS)
    assert set(ready(vm)) == {((5, 64),), ((6, 64),)}
    vm.run(rows(6))  # one more call than of 5
    recur(vm, 7)
    assert set(ready(vm)) == {((6, 64),), ((7, 64),)}


@pytest.mark.slow
def test_many_sizes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring, "_REMEMBERED", 4)
    vm = dense()
    recur(vm, 1)
    for n in range(2, 12):
        vm.run(rows(n))
    assert len(vm.exe.versions.calls) <= 6 and ((1, 64),) in vm.exe.versions.calls  # type: ignore[union-attr]


@pytest.mark.slow
def test_versions_share_weights() -> None:
    vm = dense()
    recur(vm, 5)
    store = vm.exe.versions._store  # type: ignore[union-attr]
    used = store.used
    recur(vm, 6)
    assert used >= W.nbytes and vm.exe.versions._store is store and store.used < used + W.nbytes  # type: ignore[union-attr]
    assert len(ready(vm)) == 2
    vm.run(rows(5)), vm.run(rows(6))
    one, other = (e._weights._tw_ptr for e in vm._executors.values())
    assert one == other


def test_weights_of_displaced_versions_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recurring._code_of

    def with_weights_of_its_own(mod: Any, target: Any, outputs: Any, store: Any) -> Any:
        made = real(mod, target, outputs, store)
        store.place(tvm.nd.array(np.full(W.size, outputs[0][0], "float32")))
        return replace(made, places=store.places, used=store.used)

    monkeypatch.setattr(recurring, "_code_of", with_weights_of_its_own)
    monkeypatch.setattr(recurring, "_SLACK", W.nbytes)
    vm = dense()
    with config.using(versions=1):
        for i, n in enumerate((5, 6, 7, 8)):
            recur(vm, n, 4 ** (i + 1))  # more than twice as often as the one before
            recur(vm, n)
            assert list(ready(vm)) == [((n, 64),)] and not vm.exe.versions.failed  # type: ignore[union-attr]


def test_a_model_that_branches_on_values_stays_as_it_is() -> None:
    x = relay.var("x", shape=(A, 64))
    positive = relay.greater(relay.sum(x), relay.const(0.0))
    vm = machine([x], relay.If(positive, relay.nn.relu(x), x * relay.const(2.0)))
    for _ in range(RECURS + 1):
        np.testing.assert_array_equal(vm.run(-abs(rows(5))).numpy(), -2 * abs(rows(5)))
    vm.finish()
    assert not ready(vm) and ((5, 64),) in vm.exe.versions.failed  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["raises", "dies"])
@pytest.mark.slow
def test_a_failure_in_the_background_disturbs_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        if how == "dies":
            os._exit(3)
        raise RuntimeError("broken")

    vm = dense()
    monkeypatch.setattr(recurring, "_code_of", broken)
    recur(vm, 5)
    recur(vm, 5)
    recur(vm, 6)
    assert not ready(vm) and set(vm.exe.versions.failed) == {((5, 64),), ((6, 64),)}  # type: ignore[union-attr]
    recur(vm, 7)  # not tried any more
    assert len(vm.exe.versions.failed) == 2  # type: ignore[union-attr]


def test_other_shapes_of_results_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    vm, real = dense(), recurring.with_shapes
    monkeypatch.setattr(recurring, "with_shapes", lambda mod, _: real(mod, ((6, 64),)))
    recur(vm, 5)
    (why,) = vm.exe.versions.failed.values()  # type: ignore[union-attr]
    assert "its results have the shapes ((6, 32),), and those of the dynamic model ((5, 32),)" in str(why)


@pytest.mark.slow
def test_the_next_process_starts_with_the_first_call(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.using(cache=True, cache_dir=tmp_path):
        recur(dense(), 5)
        vm = dense()
        recur(vm, 6, 1)
        assert not ready(vm)
        recur(vm, 5, 1)
        assert list(ready(vm)) == [((5, 64),)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.slow
def test_a_fork_has_the_versions_and_makes_its_own() -> None:
    vm = dense()
    recur(vm, 5)
    vm.run(rows(5))
    child = os.fork()
    if not child:
        status = 1
        signal.alarm(60)  # a fork of a process with threads of other packages may wait for ever
        try:
            recur(vm, 5)
            recur(vm, 6)
            status = 0 if len(ready(vm)) == 2 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    recur(vm, 7)
    assert set(ready(vm)) == {((5, 64),), ((7, 64),)}
    np.testing.assert_allclose(vm.run(rows(5)).numpy(), wanted(5), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_process_ends_while_a_version_is_compiled() -> None:
    program = """
import os, time, numpy as np, tilewright as tvm
from tilewright import relay
from tilewright.relay.backend import recurring
recurring._code_of = lambda *_: time.sleep(60)
x = relay.var("x", shape=(relay.Any(), 4))
vm = relay.vm.VirtualMachine(relay.vm.compile(relay.Function([x], relay.exp(x)), "llvm"), tvm.cpu())
for _ in range(4):
    vm.run(np.ones((3, 4), "float32"))
print(vm.exe.versions._compiling.workers.processes[0].pid)
"""
    environment = {**os.environ, "TILEWRIGHT_VERSIONS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
