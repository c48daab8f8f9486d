"""The virtual machine: sizes known only when it runs, values that decide sizes, loops, closures, memory, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay, te
from tilewright.ir.errors import BuildError, InternalError, ScheduleError
from tilewright.relay.backend.vm import to_compile
from tilewright.relay.op import dyn
from tilewright.runtime.seal import sealed
from tilewright.runtime.vm import Executable, VirtualMachine

A = relay.Any()
W = np.arange(12, dtype="float32").reshape(3, 4) / 10


def machine(params: Any, body: Any = None) -> VirtualMachine:
    """A machine for a function, or for a whole module."""
    program = relay.Function(params, body) if body is not None else params
    return VirtualMachine(relay.vm.compile(program, "llvm"), tvm.cpu())


def rows(*shape: int) -> Any:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype="float32").reshape(shape)


def i64(*values: int) -> Any:
    return relay.const(values, "int64")


# ---------------------------------------------------------------------------- sizes
def test_one_kernel_runs_for_all_sizes() -> None:
    x = relay.var("x", shape=(A, A, 4))
    vm = machine([x], relay.nn.relu(x * relay.const(W[2])))
    for shape in ((3, 5, 4), (2, 1, 4), (7, 0, 4), (3, 17, 4)):
        v = rows(*shape)
        np.testing.assert_allclose(vm.run(v).numpy(), np.maximum(v * W[2], 0), rtol=1e-6)
    assert len(vm.exe.primitive_ops) == 1


def test_a_batch_of_one_has_kernels_of_its_own() -> None:
    x = relay.var("x", shape=(A, 3, 4))
    vm = machine([x], relay.nn.relu(x))
    vm.run(rows(1, 3, 4))
    (one,) = vm.exe.primitive_ops
    np.testing.assert_array_equal(vm.run(rows(5, 3, 4)).numpy(), np.maximum(rows(5, 3, 4), 0))
    assert len(vm.exe.primitive_ops) == 2 and one in vm.exe.primitive_ops


def test_sizes_in_attributes() -> None:
    n = te.size_var("n")
    x = relay.var("x", shape=(n, 6))
    places = rows(16, 6)
    part = relay.strided_slice(relay.const(places), [0, 0], [n, 6])
    ones = relay.full(relay.const(2.0), [n * 2, 3])
    vm = machine([x], relay.reshape(x + part, [n * 2, 3]) * ones)
    for k in (1, 4, 16):
        v = rows(k, 6)
        np.testing.assert_allclose(vm.run(v).numpy(), (v + places[:k]).reshape(-1, 3) * 2, rtol=1e-5)
    with pytest.raises(tvm.TVMError, match=r"strided_slice.*: 16 and 17 must be the same"):
        vm.run(rows(17, 6))


def test_a_size_that_is_no_dimension_is_a_number_for_the_kernel() -> None:
    n = te.size_var("n")
    x = relay.var("x", shape=(n,))
    table = relay.const(rows(32))
    vm = machine([x], relay.sum(relay.strided_slice(table, [n], [n * 2])))
    for k in (1, 5):
        np.testing.assert_allclose(vm.run(rows(k)).numpy(), rows(32)[k : 2 * k].sum(), rtol=1e-5)


@pytest.mark.parametrize(("one", "other"), [((A,), (A,)), ((A, 3), (3,)), ((4, A), (A, 1))])
def test_what_is_broadcast_shows_when_it_runs(one: Any, other: Any) -> None:
    x, y = relay.var("x", shape=one), relay.var("y", shape=other)
    vm = machine([x, y], relay.exp(x) * y + x)

    def sizes(shape: Any, k: int) -> Any:
        return rows(*(k if d is A else d for d in shape))

    for a, b in ((4, 4), (4, 1), (1, 4), (1, 1)):
        v, w = sizes(one, a), sizes(other, b)
        try:
            want = np.exp(v) * w + v
        except ValueError:
            continue
        np.testing.assert_allclose(vm.run(v, w).numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_sizes_that_must_be_the_same_are_checked() -> None:
    x, y = relay.var("x", shape=(A, A)), relay.var("y", shape=(A, A))
    vm = machine([x, y], relay.nn.dense(x, y))
    np.testing.assert_allclose(vm.run(rows(2, 4), rows(3, 4)).numpy(), rows(2, 4) @ rows(3, 4).T, rtol=1e-5)
    with pytest.raises(tvm.TVMError, match=r"nn.dense: 4 and 5 must be the same|nn.dense: 5 and 4"):
        vm.run(rows(2, 4), rows(3, 5))
    n = te.size_var("n")
    p, q = relay.var("p", shape=(n, 2)), relay.var("q", shape=(n, 2))
    vm = machine([p, q], p + q)
    with pytest.raises(tvm.TVMError, match="the size n of the parameters of main: 2 and 1 must be the same"):
        vm.run(rows(2, 2), rows(1, 2))


def test_a_squeeze_of_a_size_that_is_not_one() -> None:
    x = relay.var("x", shape=(A, A, 2))
    vm = machine([x], relay.squeeze(relay.exp(x), [1]))
    np.testing.assert_allclose(vm.run(rows(3, 1, 2)).numpy(), np.exp(rows(3, 2)), rtol=1e-5)
    with pytest.raises(tvm.TVMError, match="squeeze: 4 and 1 must be the same"):
        vm.run(rows(3, 4, 2))


def test_inputs_that_are_too_small() -> None:
    x = relay.var("x", shape=(A, 2))
    vm = machine([x], relay.exp(relay.split(x, [3], 0)[1]))
    assert vm.run(rows(5, 2)).shape == (2, 2)
    with pytest.raises(tvm.TVMError, match="has a size of -1: the inputs are too small"):
        vm.run(rows(2, 2))


_KERNEL = np.ones((1, 1, 3, 3), "float32")


@pytest.mark.parametrize(
    ("work", "name", "window", "padding", "least"),
    [
        (lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), "nn.max_pool2d", 2, 0, 2),
        (lambda x: relay.nn.avg_pool2d(x, (4, 2), (4, 1), padding=(1, 0)), "nn.avg_pool2d", 4, 2, 2),
        (lambda x: relay.nn.max_pool2d(x, (5, 1), (3, 1), ceil_mode=True), "nn.max_pool2d", 5, 0, 3),
        (lambda x: relay.nn.conv2d(x, relay.const(_KERNEL), strides=(2, 2)), "nn.conv2d", 3, 0, 3),
        (lambda x: relay.nn.conv2d(x, relay.const(_KERNEL), dilation=(2, 1)), "nn.conv2d", 5, 0, 5),
    ],
)
def test_a_window_that_does_not_fit(work: Any, name: str, window: int, padding: int, least: int) -> None:
    x = relay.var("x", shape=(1, 1, A, 6))
    exe = relay.vm.compile(relay.Function([x], work(x)), "llvm")
    vm = VirtualMachine(Executable.load_exec(*exe.save()), tvm.cpu())
    fixed = relay.var("x", shape=(1, 1, least, 6))
    known = machine([fixed], work(fixed)).run(rows(1, 1, least, 6)).numpy()
    assert known.shape[2] == 1
    np.testing.assert_allclose(vm.run(rows(1, 1, least, 6)).numpy(), known, rtol=1e-5)
    wanted = (
        f"{name}: a window of {window} with {padding} of padding does not fit into a size of {least - 1}, "
    )
    with pytest.raises(tvm.TVMError, match=wanted + f"which must be at least {least}"):
        vm.run(rows(1, 1, least - 1, 6))


@pytest.mark.slow
def test_windows_that_fit_wherever_there_is_data_are_not_checked() -> None:
    x = relay.var("x", shape=(1, 1, A, 6))
    vm = machine([x], relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)))
    assert "least" not in vm.exe.bytecode
    assert vm.run(rows(1, 1, 1, 6)).shape == (1, 1, 1, 3) and vm.run(rows(1, 1, 0, 6)).shape == (1, 1, 0, 3)


def test_reshape_needs_sizes_that_divide() -> None:
    x = relay.var("x", shape=(A, 3))
    vm = machine([x], relay.reshape(x, (-1, 2)))
    np.testing.assert_array_equal(vm.run(rows(4, 3)).numpy(), rows(4, 3).reshape(-1, 2))
    with pytest.raises(tvm.TVMError, match=r"reshape: 8 and 9 must be the same|reshape: 9 and 8"):
        vm.run(rows(3, 3))


# ---------------------------------------------------------------------------- values that decide sizes
def test_argwhere() -> None:
    x = relay.var("x", shape=(A, A))
    vm = machine([x], relay.cast(relay.argwhere(x), "int64") + relay.const(1, "int64"))
    for shape in ((3, 4), (1, 1), (5, 2)):
        v = (rows(*shape) > 0.2).astype("float32")
        np.testing.assert_array_equal(vm.run(v).numpy(), np.argwhere(v) + 1)
    assert vm.run(np.zeros((2, 2), "float32")).shape == (0, 2)


def test_unique() -> None:
    y = relay.var("y", shape=(A,), dtype="int32")
    found = relay.unique(y, return_counts=True)
    cut = [dyn.strided_slice(found[i], i64(0), relay.cast(found[3], "int64"), i64(1)) for i in (0, 4)]
    vm = machine([y], relay.Tuple(cut))
    for values in ([3, 1, 3, 2, 1, 3], [7], [5, 5, 5]):
        v = np.array(values, "int32")
        for got, want in zip(vm.run(v), np.unique(v, return_counts=True), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.slow
def test_non_max_suppression_keeps_as_many_as_there_are() -> None:
    boxes = relay.var("boxes", shape=(1, A, 4))
    scores = relay.var("scores", shape=(1, 1, A))
    made = relay.vision.all_class_non_max_suppression(
        boxes, scores, relay.const(10, "int64"), relay.const(np.float32(0.5)), relay.const(np.float32(0.1))
    )
    rows_, count = made[0], made[1]
    kept = dyn.strided_slice(rows_, i64(0), relay.cast(relay.reshape(count, (1,)), "int64"), i64(1))
    vm = machine([boxes, scores], kept)
    square = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3], [5, 5, 6, 6]], "float32")
    for n, want in ((4, [0, 2, 3]), (2, [0]), (3, [0, 2])):
        score = np.array([0.9, 0.8, 0.7, 0.6], "float32")[:n]
        got = vm.run(square[None, :n], score[None, None]).numpy()
        np.testing.assert_array_equal(got[:, 2], want)


DYN: dict[str, tuple[Any, Any]] = {
    "reshape": (
        lambda x: relay.reshape(relay.exp(x), relay.reverse(relay.shape_of(x), 0)),
        lambda v: np.exp(v).reshape(v.shape[::-1]),
    ),
    "broadcast_to": (
        lambda x: relay.broadcast_to(relay.sum(x, 0, True), relay.shape_of(x)),
        lambda v: np.broadcast_to(v.sum(0, keepdims=True), v.shape),
    ),
    "zeros": (lambda x: x + relay.zeros(relay.shape_of(x), "float32"), lambda v: v),
    "tile": (lambda x: relay.tile(x, i64(2, 1)), lambda v: np.tile(v, (2, 1))),
    "slice": (
        lambda x: dyn.strided_slice(x, i64(1, 0), relay.cast(relay.shape_of(x), "int64"), i64(1, 2)),
        lambda v: v[1:, ::2],
    ),
    "arange": (
        lambda x: relay.arange(
            relay.const(0, "int64"),
            relay.take(relay.cast(relay.shape_of(x), "int64"), relay.const(0)),
            relay.const(1, "int64"),
            dtype="int64",
        ),
        lambda v: np.arange(v.shape[0]),
    ),
}


@pytest.mark.parametrize("name", DYN)
@pytest.mark.slow
def test_shapes_that_the_program_computes(name: str) -> None:
    make, reference = DYN[name]
    x = relay.var("x", shape=(A, A))
    vm = machine([x], make(x))
    for shape in ((3, 5), (2, 2), (1, 4)):
        got = vm.run(rows(*shape)).numpy()
        np.testing.assert_allclose(got, reference(rows(*shape)), rtol=1e-5, atol=1e-6)


def test_a_shape_that_cannot_be() -> None:
    x, s = relay.var("x", shape=(A,)), relay.var("s", shape=(2,), dtype="int64")
    vm = machine([x, s], relay.reshape(x, s))
    assert vm.run(rows(6), np.array([2, -1])).shape == (2, 3)
    with pytest.raises(
        tvm.TVMError, match=r"dyn.reshape: newshape: \(6,\) has 6 elements and \(4, 2\) has 8"
    ):
        vm.run(rows(6), np.array([4, 2]))


# ---------------------------------------------------------------------------- branches, loops, functions
def test_branches_of_different_sizes() -> None:
    x, c = relay.var("x", shape=(A, 2)), relay.var("c", shape=(), dtype="bool")
    chosen = relay.If(c, relay.concatenate([x, x], 0), relay.strided_slice(x, [0], [1], axes=[0]))
    vm = machine([x, c], relay.exp(chosen) + chosen)
    for flag in (True, False):
        v = rows(3, 2)
        want = np.concatenate([v, v]) if flag else v[:1]
        np.testing.assert_allclose(vm.run(v, np.array(flag)).numpy(), np.exp(want) + want, rtol=1e-5)


def counting(limit: int, step: Any) -> tvm.IRModule:
    """loop(i, acc) = loop(i + 1, step(acc)) if i < limit else acc"""
    i, acc = relay.var("i", shape=(), dtype="int32"), relay.var("acc", shape=(A,))
    loop = relay.GlobalVar("loop")
    more = relay.Call(loop, [i + relay.const(1), step(acc)])
    mod = tvm.IRModule()
    mod[loop] = relay.Function(
        [i, acc], relay.If(relay.less(i, relay.const(limit)), more, acc), relay.TensorType((A,))
    )
    x = relay.var("x", shape=(A,))
    mod["main"] = relay.Function([x], relay.Call(loop, [relay.const(0), x]))
    return mod


def test_long_loops_take_neither_stack_nor_memory() -> None:
    vm = machine(counting(20_000, lambda acc: acc + relay.const(1.0)))
    np.testing.assert_array_equal(vm.run(np.zeros(3, "float32")).numpy(), [20_000] * 3)
    assert vm.memory_report().pool.total < 2000


def test_a_loop_in_which_a_tensor_grows() -> None:
    vm = machine(counting(6, lambda acc: relay.concatenate([acc, acc], 0)))
    np.testing.assert_array_equal(vm.run(rows(2)).numpy(), np.tile(rows(2), 64))


def test_functions_that_call_each_other() -> None:
    even, odd = relay.GlobalVar("even"), relay.GlobalVar("odd")
    mod = tvm.IRModule()
    for own, other, last in ((even, odd, True), (odd, even, False)):
        n = relay.var("n", shape=(), dtype="int32")
        mod[own] = relay.Function(
            [n],
            relay.If(
                relay.equal(n, relay.const(0)), relay.const(last), relay.Call(other, [n - relay.const(1)])
            ),
            relay.TensorType((), "bool"),
        )
    n = relay.var("n", shape=(), dtype="int32")
    mod["main"] = relay.Function([n], relay.Call(even, [n]))
    vm = machine(mod)
    assert vm.run(5000).numpy() and not vm.run(5001).numpy()


def test_recursion_that_is_no_loop() -> None:
    n, f = relay.var("n", shape=(), dtype="int64"), relay.GlobalVar("f")
    mod = tvm.IRModule()
    mod[f] = relay.Function(
        [n],
        relay.If(
            relay.equal(n, relay.const(0, "int64")),
            relay.const(0, "int64"),
            n + relay.Call(f, [n - relay.const(1, "int64")]),
        ),
        relay.TensorType((), "int64"),
    )
    m = relay.var("m", shape=(), dtype="int64")
    mod["main"] = relay.Function([m], relay.Call(f, [m]))
    assert machine(mod).run(np.array(3000, "int64")).numpy() == 3000 * 3001 // 2


def test_a_closure_that_calls_itself_and_sees_sizes_around_it() -> None:
    n = te.size_var("n")
    x = relay.var("x", shape=(n, 2))
    kind = relay.FuncType([relay.TensorType((), "int32"), relay.TensorType((A, 2))], relay.TensorType((A, 2)))
    loop = relay.Var("loop", kind)
    i, acc = relay.var("i", shape=(), dtype="int32"), relay.var("acc", shape=(A, 2))
    again = relay.Call(loop, [i - relay.const(1), relay.concatenate([acc, x], 0)])
    body = relay.If(relay.greater(i, relay.const(0)), again, acc)
    func = relay.Function([i, acc], body, relay.TensorType((A, 2)))
    main = relay.Let(loop, func, relay.Call(loop, [relay.const(3), relay.zeros((n, 2), "float32")]))
    vm = machine([x], main)
    for k in (2, 5):
        want = np.concatenate([np.zeros((k, 2)), *[rows(k, 2)] * 3])
        np.testing.assert_array_equal(vm.run(rows(k, 2)).numpy(), want)


def test_functions_as_values() -> None:
    x, y, twice, f = (
        relay.var("x", shape=(A,)),
        relay.var("y", shape=(A,)),
        relay.var("twice"),
        relay.var("f"),
    )
    add = relay.Function([y], y + x)
    kind = relay.FuncType([relay.TensorType((A,))], relay.TensorType((A,)))
    g, z = relay.Var("g", kind), relay.var("z", shape=(A,))
    apply = relay.Function([g, z], relay.Call(g, [relay.Call(g, [z])]))
    vm = machine([x], relay.Let(f, add, relay.Let(twice, apply, relay.Call(twice, [f, x]))))
    np.testing.assert_array_equal(vm.run(rows(4)).numpy(), rows(4) * 3)


def test_a_let_of_a_global_function() -> None:
    x, f, y = relay.var("x", shape=(A,)), relay.var("f"), relay.var("y", shape=(A,))
    double = relay.GlobalVar("double")
    mod = tvm.IRModule({double: relay.Function([y], y + y)})
    mod["main"] = relay.Function([x], relay.Let(f, double, relay.Call(f, [relay.Call(f, [x])])))
    np.testing.assert_array_equal(machine(mod).run(rows(3)).numpy(), rows(3) * 4)


def test_tuples_in_and_out() -> None:
    pair = relay.TupleType([relay.TensorType((A,)), relay.TensorType((A, 2))])
    p, c = relay.Var("p", pair), relay.var("c", shape=(), dtype="bool")
    swapped = relay.Tuple([relay.exp(relay.TupleGetItem(p, 0)), relay.TupleGetItem(p, 1)])
    vm = machine([p, c], relay.Tuple([relay.TupleGetItem(relay.If(c, swapped, p), 0), p]))
    for flag in (True, False):
        first, (a, b) = vm.run((rows(3), rows(4, 2)), np.array(flag))
        np.testing.assert_allclose(first.numpy(), np.exp(rows(3)) if flag else rows(3), rtol=1e-6)
        np.testing.assert_array_equal(b.numpy(), rows(4, 2))
        assert a.shape == (3,)


# ---------------------------------------------------------------------------- memory
def chain(vm_steps: int) -> VirtualMachine:
    x = relay.var("x", shape=(A, 64))
    y: Any = x
    for _ in range(vm_steps):
        y = relay.nn.softmax(y)
    return machine([x], y)


def test_memory_is_used_again() -> None:
    vm = chain(12)
    for _ in range(3):
        result = vm.run(rows(64, 64))
    report = vm.memory_report()
    # the result, and two that take turns, though there are twelve in all
    assert report.pool.total <= 3 * 64 * 64 * 4 and report.pool.used >= 64 * 64 * 4
    assert (
        str(report).splitlines()[1].split()[0] == "total"
        and report.peak == report.weights + report.pool.total
    )
    kept = np.asarray(result)
    before = kept.copy()
    del result
    vm.run(-rows(64, 64))
    np.testing.assert_array_equal(kept, before)  # a result stays as long as somebody looks at it


def test_free_memory_is_given_back() -> None:
    vm = chain(2)
    vm.call("main", [rows(8, 64)])
    assert vm.pool.report().used == 0 < vm.pool.report().free  # the result was let go of
    vm.pool.trim()
    assert vm.pool.report().total == 0


# ---------------------------------------------------------------------------- files
def saved() -> VirtualMachine:
    x, c = relay.var("x", shape=(A, 4)), relay.var("c", shape=(), dtype="bool")
    y = relay.nn.dense(x, relay.const(W))
    rest = relay.cast(relay.argwhere(y), "float32")
    return machine([x, c], relay.If(c, relay.nn.softmax(y), rest * relay.const(np.array([2, 3], "float32"))))


def check_saved(vm: VirtualMachine) -> None:
    for n in (1, 2, 7):
        v = rows(n, 4)
        z = v @ W.T
        e = np.exp(z - z.max(-1, keepdims=True))
        got = vm.run(v, np.array(True)).numpy()
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5)
        np.testing.assert_array_equal(vm.run(v, np.array(False)).numpy(), np.argwhere(z) * [2, 3])


@pytest.mark.slow
def test_one_library(tmp_path: Path) -> None:
    vm = saved()
    path = vm.exe.export_library(tmp_path / "net.so")
    loaded = tvm.runtime.load_module(path)
    check_saved(VirtualMachine(loaded, tvm.cpu()))
    check_saved(vm)
    assert loaded.type_key == "vm" and loaded.executable.get_function_params("main") == ["x", "c"]
    # nothing but the runtime is needed
    code = f"""
import sys, numpy as np
from tilewright.runtime import load_module, cpu
from tilewright.runtime.seal import sealed
from tilewright.runtime.vm import VirtualMachine
vm = VirtualMachine(load_module({str(path)!r}), cpu(0))
assert vm.run(np.ones((3, 4), "float32"), np.array(True)).shape == (3, 3)
bad = [m for m in sys.modules if m.startswith(("tilewright.relay", "tilewright.te", "llvmlite"))]
assert not bad, bad
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_code_and_library(tmp_path: Path) -> None:
    code, lib = saved().exe.save()
    lib.export_library(str(tmp_path / "lib.so"))
    kernels = tvm.runtime.load_module(tmp_path / "lib.so")
    check_saved(VirtualMachine(Executable.load_exec(code, kernels), tvm.cpu()))
    with pytest.raises(tvm.TVMError, match="not a program of the virtual machine"):
        Executable.load_exec(b"PK\x03\x04" + bytes(64), kernels)
    with pytest.raises(tvm.TVMError, match="truncated"):
        Executable.load_exec(code[:200], kernels)
    (length,) = np.frombuffer(code[8:16], "<u8")
    about, rest = json.loads(bytes(code[16 : 16 + int(length)])), code[16 + int(length) : -len(sealed(b""))]
    worn = bytearray(code)
    worn[int(length)] ^= 1
    with pytest.raises(tvm.TVMError, match="does not match the checksum"):
        Executable.load_exec(worn, kernels)

    def damaged(change: Any) -> bytes:
        data = json.loads(json.dumps(about))
        change(data)
        text = json.dumps(data).encode()
        return bytes(code[:8]) + len(text).to_bytes(8, "little") + text + bytes(rest)

    def first(data: Any) -> Any:
        return data["functions"][0]["body"]

    for change, reason in (
        (lambda d: d.update(format=9), "format 9"),
        (lambda d: first(d).insert(0, ["fly"]), "no instruction 'fly'"),
        (lambda d: first(d).insert(0, ["ret", 99]), "register 99 is read and has no value"),
        (lambda d: first(d).insert(0, ["let", 5, ["+", "__import__", 1]]), "'__import__' is not a size"),
        (lambda d: first(d).insert(0, ["move", 5, -99]), "no constant 98"),
        (lambda d: d["kernels"].__setitem__(0, "nope"), "'nope' is unknown"),
        (lambda d: d["functions"][0].update(body=[]), "ends without a result"),
        (lambda d: d["constants"].append(["float32", [3]]), "constant .* should be float32"),
    ):
        with pytest.raises(tvm.TVMError, match=reason):
            Executable.load_exec(damaged(change), kernels)


def test_what_needs_its_sizes_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.ir.errors import BuildError
    from tilewright.relay.backend import vm as backend

    def refusing(jobs: Any, target: Any, failed: Any = None) -> Any:
        failed.update((job.key, BuildError("no")) for job in jobs)
        return {}

    real = backend.compile_all
    monkeypatch.setattr(backend, "compile_all", refusing)
    x = relay.var("x", shape=(2, A))
    exe = relay.vm.compile(relay.Function([x], relay.exp(x)), "llvm")
    monkeypatch.setattr(backend, "compile_all", real)
    vm = VirtualMachine(exe, tvm.cpu())
    for n in (3, 1, 3):
        np.testing.assert_allclose(vm.run(rows(2, n)).numpy(), np.exp(rows(2, n)), rtol=1e-6)
    with pytest.raises(
        tvm.TVMError, match="cannot be saved: exp can only be compiled for sizes that are known"
    ):
        exe.save()


# ---------------------------------------------------------------------------- the classic names
def test_the_machine_and_its_arguments() -> None:
    x = relay.var("x", shape=(A, 4))
    vm = machine([x], relay.exp(x))
    vm.set_input("main", rows(2, 4))
    vm.invoke_stateful("main")
    np.testing.assert_allclose(vm.get_outputs()[0].numpy(), np.exp(rows(2, 4)), rtol=1e-6)
    assert vm.benchmark(tvm.cpu(), rows(2, 4), repeat=2, number=2).mean > 0
    np.testing.assert_allclose(vm.run(np.asfortranarray(rows(3, 4))).numpy(), np.exp(rows(3, 4)), rtol=1e-6)
    for bad, reason in (
        (rows(3, 5), r"argument 'x' must have shape \(\?, 4\), got shape \(3, 5\)"),
        (rows(4), r"must have shape \(\?, 4\)"),
        (rows(3, 4).astype("float64"), "must be of type float32, got float64"),
    ):
        with pytest.raises((ValueError, TypeError), match=reason):
            vm.run(bad)
    with pytest.raises(ValueError, match="no function 'other'; it has: main"):
        vm.invoke("other", rows(2, 4))
    with pytest.raises(TypeError, match=r"takes what relay\.vm\.compile"):
        VirtualMachine(3, tvm.cpu())
    assert "fused_exp" in vm.exe.primitive_ops[0] and "ret" in vm.exe.bytecode and "kernels" in vm.exe.stats


def test_well_formed_functions_that_call_themselves() -> None:
    kind = relay.FuncType([relay.TensorType(())], relay.TensorType(()))
    f, x, y = relay.Var("f", kind), relay.var("x", shape=()), relay.var("y", shape=())
    program = relay.Function([y], relay.Let(f, relay.Function([x], relay.Call(f, [x])), relay.Call(f, [y])))
    assert relay.analysis.well_formed(program)
    assert not relay.analysis.well_formed(relay.Function([y], relay.Tuple([program, x, relay.Let(x, y, x)])))


def test_branches_in_branches() -> None:
    x, c = relay.var("x", shape=(A,)), relay.var("c", shape=(), dtype="bool")
    inner: Any = x
    for i in range(120):
        inner = relay.If(c, inner if i % 40 else relay.exp(inner), x)
    vm = machine([x, c], relay.negative(inner))
    np.testing.assert_allclose(
        vm.run(rows(3), np.array(True)).numpy(), -np.exp(np.exp(np.exp(rows(3)))), rtol=1e-5
    )
    np.testing.assert_array_equal(vm.run(rows(3), np.array(False)).numpy(), -rows(3))


def test_nothing_but_inputs_and_constants() -> None:
    x = relay.var("x", shape=(A,))
    v = tvm.nd.array(rows(3))
    vm = machine([x], relay.Tuple([x, relay.const(rows(2)), x]))
    a, b, _ = vm.run(v)
    a[0] = 7.0  # a copy: neither the input nor the program's constant is changed
    b[0] = 7.0
    assert v[0] == rows(3)[0] and vm.run(v)[1][0] == rows(2)[0]


def test_shape_arithmetic_becomes_attributes() -> None:
    x = relay.var("x", shape=(A, A, 4))
    sizes = relay.shape_of(x, dtype="int64")
    first = [relay.take(sizes, relay.const(i)) for i in (0, 1)]
    wanted = relay.stack([first[0] * first[1], relay.const(4, "int64")], 0)
    y = relay.reshape(relay.exp(x), wanted)
    z = relay.broadcast_to(relay.sum(y, 0, True), relay.shape_of(y, dtype="int64"))
    vm = machine([x], y + z)
    assert "shapes" not in vm.exe.bytecode and "shape_of" not in str(vm.exe.primitive_ops)
    for shape in ((2, 3, 4), (4, 1, 4)):
        want = np.exp(rows(*shape)).reshape(-1, 4)
        np.testing.assert_allclose(vm.run(rows(*shape)).numpy(), want + want.sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    "codes",
    [(0, -1), (-2,), (-3, 4), (2, -4, 1, 3, 4), (-1, 0, 2), (2, -2), (-4, -1, 2, -2), (6, 4), (5, -1)],
)
def test_codes_of_reshape_mean_the_same_when_it_runs(codes: Any) -> None:
    from tilewright.relay.op.rearrange import reshaped
    from tilewright.runtime.shape_functions import SHAPE_FUNCTIONS

    attrs = type("Attrs", (), {"allowzero": False})
    work = SHAPE_FUNCTIONS["dyn.reshape"]
    try:
        want = tuple(reshaped((2, 3, 4), codes))
    except relay.RelayTypeError:
        with pytest.raises(tvm.TVMError):
            work(attrs, [np.zeros((2, 3, 4)), np.array(codes)])
    else:
        assert work(attrs, [np.zeros((2, 3, 4)), np.array(codes)]) == [want]


def test_a_tuple_that_both_branches_hand_on() -> None:
    x, c = relay.var("x", shape=(A,)), relay.var("c", shape=(), dtype="bool")
    pair = relay.var("pair")
    both = relay.Tuple([relay.exp(x), x])
    kind = relay.TupleType([relay.TensorType((A,))] * 2)
    t = relay.Var("t", kind)
    first = relay.Function([t], relay.Tuple([relay.TupleGetItem(t, 1), relay.TupleGetItem(t, 0)]))
    f = relay.var("f")
    chosen = relay.If(c, relay.Call(f, [pair]), pair)
    vm = machine([x, c], relay.Let(f, first, relay.Let(pair, both, chosen)))
    for flag in (True, False):
        a, b = vm.run(rows(3), np.array(flag))
        want = [rows(3), np.exp(rows(3))] if flag else [np.exp(rows(3)), rows(3)]
        np.testing.assert_allclose(a.numpy(), want[0], rtol=1e-6)
        np.testing.assert_allclose(b.numpy(), want[1], rtol=1e-6)


@pytest.mark.slow
def test_broadcasts_of_more_relations_than_are_compiled_ahead(tmp_path: Any) -> None:
    """Four operands of unknown sizes may broadcast in dozens of ways: rare ones are compiled when they occur."""
    params = [relay.var(n, shape=(relay.Any(), relay.Any())) for n in "abcd"]
    a, b, c, d = params
    exe = relay.vm.compile(tvm.IRModule.from_expr(relay.Function(params, (a + b) * (c - d))), "llvm")
    vm = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu())
    for sizes in ([(2, 3)] * 4, [(1, 3), (2, 3), (2, 1), (1, 1)], [(1, 3), (4, 3), (1, 3), (4, 3)]):
        x = [rows(*s) for s in sizes]
        np.testing.assert_allclose(vm.run(*x).numpy(), (x[0] + x[1]) * (x[2] - x[3]), rtol=1e-6)
    with pytest.raises(tvm.TVMError, match="3 and 2 do not broadcast"):
        vm.run(rows(3, 3), rows(2, 3), rows(1, 3), rows(1, 3))
    path = tmp_path / "saved.so"
    exe.export_library(str(path))
    saved = tvm.runtime.vm.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    same = [rows(2, 3)] * 4
    np.testing.assert_allclose(saved.run(*same).numpy(), (same[0] * 2) * 0)
    with pytest.raises(tvm.TVMError, match=r"\(saved for 9 relations of sizes\): .* do not broadcast"):
        saved.run(rows(1, 3), rows(4, 3), rows(1, 3), rows(4, 3))
    again = [rows(1, 3), rows(4, 3), rows(1, 3), rows(4, 3)]
    got = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu()).run(*again).numpy()
    np.testing.assert_allclose(got, (again[0] + again[1]) * (again[2] - again[3]), rtol=1e-6)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.slow
def test_windows_over_images_of_any_size(stride: int) -> None:
    """Rows that share windows are computed together, with a version for each number of rows that is left."""
    h, w = te.size_var("h"), te.size_var("w")
    x, weights = relay.var("x", shape=(1, 3, h, w)), relay.const(rows(3, 1, 3, 3))
    call = relay.nn.conv2d(x, weights, strides=stride, padding=1, groups=3, channels=3, kernel_size=3)
    vm = machine([x], call)
    for shape in ((1, 1), (2, 17), (5, 3), (8, 40), (9, 33)):
        v = rows(1, 3, *shape)
        padded = np.pad(v, ((0, 0), (0, 0), (1, 1), (1, 1)))
        window = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        wanted = np.einsum("nchwij,cij->nchw", window, rows(3, 1, 3, 3)[:, 0])[:, :, ::stride, ::stride]
        np.testing.assert_allclose(vm.run(v).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_kernels_are_scheduled_for_likely_sizes() -> None:
    """Strides make images smaller, and what is good for the usual size is good for more."""
    x = relay.var("x", shape=(1, 8, A, A))
    for _ in range(3):
        conv = relay.nn.conv2d(
            x, relay.const(rows(8, 8, 3, 3)), strides=2, padding=1, channels=8, kernel_size=3
        )
        x = relay.nn.relu(conv)
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(x), x))
    assembly = to_compile(mod, tvm.target.Target("llvm"))
    assert len({j.key for j in assembly.jobs.values()}) == 3
    sizes = [[d.likely for d in p.case.fn.params[0].checked_type.shape[2:]] for p in assembly.emitter.pending]
    assert sizes == [[256, 256], [128, 128], [64, 64]]


@pytest.mark.parametrize(("error", "surfaces"), [(NameError("x"), True), (ScheduleError("no"), False)])
def test_only_a_refusal_leaves_a_kernel_to_be_compiled_when_it_runs(error, surfaces, monkeypatch):
    from tilewright.relay.backend import te_compiler

    def broken(*_):
        raise error

    x = relay.var("x", shape=(relay.Any(), 3))
    data = np.ones((2, 3), "float32")
    with config.using(cache=False, versions=0), monkeypatch.context() as m:
        m.setattr(te_compiler, "compile_kernel", broken)
        vm = VirtualMachine(relay.vm.compile(relay.Function([x], relay.nn.relu(x)), "llvm"), tvm.cpu())
        # The kernel for any size is compiled at the first call; the one for this size, which takes its place, fails too.
        with pytest.raises(InternalError if surfaces else BuildError, match="fused_nn_relu"):
            vm.run(data)
        assert bool(vm.exe.open_names()) is not surfaces
    if not surfaces:
        np.testing.assert_array_equal(vm.run(data).numpy(), data)
