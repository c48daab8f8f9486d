"""ONNX Loop and Scan whose end is known only when the program runs, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.profiler_vm import VirtualMachineProfiler
from tilewright.runtime.vm import VirtualMachine

onnx = pytest.importorskip("onnx")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
Case = dict[str, Any]


def rows(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def count(n: int) -> Any:
    return np.array(n, "int64")


def model_of(text: str) -> Any:
    made = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(made)
    return made


def machine(model: Any, **options: Any) -> tuple[VirtualMachine, list[str]]:
    mod, _ = relay.frontend.from_onnx(model, **options)
    exe = relay.vm.compile(mod, "llvm")
    return VirtualMachine(exe, tvm.cpu()), [p.name_hint for p in mod["main"].params]


def results(found: Any) -> list[Any]:
    return [a.numpy() for a in (list(found) if hasattr(found, "tag") else [found])]


def check(text: str, *cases: Case, **options: Any) -> VirtualMachine:
    """The same as onnxruntime for each case, from one compiled program."""
    ort = pytest.importorskip("onnxruntime")
    model = model_of(text)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    vm, names = machine(model, **options)
    for case in cases:
        wanted = session.run(None, case)
        found = results(vm.run(*(case[n] for n in names)))
        for f, w in zip(found, wanted, strict=True):
            assert (f.shape, f.dtype) == (w.shape, w.dtype)
            np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-6)
    return vm


COUNTED = """agraph (int64 count, bool go, float[3] x) => (float[3] y, float[k, 3] rows) {
  square = Mul(x, x)
  y, rows = Loop (count, go, x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w, float[3] r) {
    w = Add(v, square)
    r = Mul(w, w)
    c2 = Identity(c)
  }>
}"""


def counted(n: int, go: bool = True) -> Case:
    return {"count": count(n), "go": np.array(go), "x": rows(3)}


@pytest.mark.slow
def test_a_count_that_is_an_input() -> None:
    vm = check(
        COUNTED, counted(5), counted(0), counted(1), counted(63), counted(64), counted(65), counted(3, False)
    )
    assert "again" in vm.exe.bytecode  # a loop, no recursion


@pytest.mark.slow
def test_ten_thousand_turns() -> None:
    vm = check(COUNTED.replace("w = Add(v, square)", "w = Mul(v, v)"), counted(10_000))
    # what a turn leaves behind is used again: the rows alone are 120,000 bytes, each time that they are moved
    assert vm.memory_report().pool.total < 1 << 22


@pytest.mark.slow
def test_what_is_around_the_loop_is_computed_once() -> None:
    mod, _ = relay.frontend.from_onnx(model_of(COUNTED))
    profiler = VirtualMachineProfiler(relay.vm.compile(mod, "llvm"), tvm.cpu())
    report = profiler.profile(*counted(10).values())
    calls = sorted(r.calls for r in report.kernels if r.shapes == "float32[3]")
    assert calls == [1, 10, 10] or calls == [
        1,
        10,
    ]  # the square outside; sum and square of a turn, fused or not
    assert "calls" in str(report).splitlines()[0]


def test_a_condition_that_data_decide() -> None:
    check(
        """agraph (float x) => (float y, int64 steps, float[k] rows) {
  go = Constant <value = bool {1}> ()
  zero = Constant <value_int = 0> ()
  limit = Constant <value_float = 100.0> ()
  two = Constant <value_float = 2.0> ()
  y, steps, rows = Loop ("", go, x, zero) <body = b (int64 i, bool c, float v, int64 s)
      => (bool c2, float w, int64 s2, float r) {
    w = Mul(v, two)
    one = Constant <value_int = 1> ()
    s2 = Add(s, one)
    r = Identity(v)
    c2 = Less(w, limit)
  }>
}""",
        *({"x": np.array(v, "float32")} for v in (1.5, 70, 0.001)),
    )


@pytest.mark.slow
def test_a_state_that_grows() -> None:
    check(
        """agraph (int64 count, float[n, 3] x) => (float[m, 3] y, float[k, p] rows) {
  y, rows = Loop (count, "", x) <body = b (int64 i, bool c, float[q, 3] v) => (bool c2, float[r, 3] w, float[n] s) {
    w = Concat <axis = 0> (v, x)
    axes = Constant <value_ints = [1]> ()
    s = ReduceSum <keepdims = 0> (x, axes)
    c2 = Identity(c)
  }>
}""",
        *({"count": count(n), "x": rows(k, 3)} for n, k in ((4, 2), (1, 1), (7, 5), (130, 2))),
    )


@pytest.mark.slow
def test_rows_whose_size_shows_in_the_loop() -> None:
    text = """agraph (int64 count, int64[1] size, float[n] x) => (float[n] y, float[k, p] rows) {
  zero = Constant <value_ints = [0]> ()
  y, rows = Loop (count, "", x) <body = b (int64 i, bool c, float[n] v) => (bool c2, float[n] w, float[q] r) {
    w = Mul(v, x)
    r = Slice(w, zero, size)
    c2 = Identity(c)
  }>
}"""
    sized = [
        {"count": count(n), "size": np.array([k], "int64"), "x": rows(6)} for n, k in ((4, 3), (1, 6), (9, 1))
    ]
    check(text, *sized)


@pytest.mark.slow
def test_rows_of_several_sizes_are_refused() -> None:
    text = """agraph (int64 count, float[n] x) => (float[k, p] rows) {
  zero = Constant <value_ints = [0]> ()
  rows = Loop (count, "") <body = b (int64 i, bool c) => (bool c2, float[q] r) {
    one = Constant <value_ints = [1]> ()
    at = Add(i, one)
    r = Slice(x, zero, at)
    c2 = Identity(c)
  }>
}"""
    vm, _ = machine(model_of(text))
    assert results(vm.run(count(1), rows(4)))[0].shape == (1, 1)
    with pytest.raises(tvm.TVMError, match=r"concatenate: 1 and 2 must be the same|concatenate: 2 and 1"):
        vm.run(count(3), rows(4))


@pytest.mark.slow
def test_loops_and_branches_within_a_loop() -> None:
    check(
        """agraph (int64 count, int64 inner, float[n, 3] x) => (float[n, 3] y, float[k, n, 3] rows) {
  zero = Constant <value_int = 0> ()
  two = Constant <value_int = 2> ()
  y, rows = Loop (count, "", x) <body = b (int64 i, bool c, float[n, 3] v) => (bool c2, float[n, 3] w, float[n, 3] r) {
    odd = Mod(i, two)
    even = Equal(odd, zero)
    s = If (even) <
      then_branch = t () => (float[n, 3] a) { a = Mul(v, x) },
      else_branch = e () => (float[n, 3] d) { d = Sub(v, x) }>
    w, parts = Loop (inner, "", s) <body = bi (int64 j, bool g, float[n, 3] u)
        => (bool g2, float[n, 3] u2, float[n, 3] q) {
      g2 = Identity(g)
      half = Constant <value_float = 0.5> ()
      u2 = Mul(u, half)
      q = Add(u2, v)
    }>
    axes = Constant <value_ints = [0]> ()
    r = ReduceSum <keepdims = 0> (parts, axes)
    c2 = Identity(c)
  }>
}""",
        {"count": count(4), "inner": count(3), "x": rows(2, 3)},
        {"count": count(2), "inner": count(70), "x": rows(1, 3)},
    )


def test_a_loop_in_a_branch() -> None:
    check(
        """agraph (bool which, int64 count, float[3] x) => (float[3] y) {
  y = If (which) <
    then_branch = t () => (float[3] a) {
      a = Loop (count, "", x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w) {
        w = Mul(v, x)
        c2 = Identity(c)
      }>
    },
    else_branch = e () => (float[3] d) { d = Neg(x) }>
}""",
        *(
            {"which": np.array(w), "count": count(n), "x": rows(3)}
            for w, n in ((True, 3), (False, 3), (True, 0))
        ),
    )


SCAN = """agraph (float[2] s, float[n, 2] x, float[2, n] z) => (float[2] y, float[2, n] rows, float[n, 2] other) {
  y, rows, other = Scan <num_scan_inputs = 2, scan_input_axes = [0, -1], scan_input_directions = [0, 1],
      scan_output_axes = [1, 0], scan_output_directions = [0, 1],
      body = b (float[2] v, float[2] a, float[2] q) => (float[2] w, float[2] r, float[2] t) {
    m = Mul(v, a)
    w = Add(m, q)
    r = Sub(v, q)
    t = Identity(w)
  }> (s, x, z)
}"""


def scanned(n: int) -> Case:
    return {"s": rows(2), "x": rows(n, 2) * np.float32(0.3), "z": rows(2, n)}


@pytest.mark.slow
def test_a_scan_over_a_length_that_is_open() -> None:
    check(SCAN, scanned(5), scanned(1), scanned(200))


@pytest.mark.slow
def test_a_scan_over_a_length_that_is_known_is_unrolled_unless_it_is_long() -> None:
    vm = check(SCAN, scanned(5), shape={"x": (5, 2), "z": (2, 5)})
    assert "again" not in vm.exe.bytecode
    vm = check(SCAN, scanned(5000), shape={"x": (5000, 2), "z": (2, 5000)})
    assert "again" in vm.exe.bytecode


@pytest.mark.slow
def test_a_loop_that_is_long_is_not_unrolled() -> None:
    vm = check(COUNTED.replace("Add(v, square)", "Mul(v, v)"), counted(5000), values={"count": count(5000)})
    assert "again" in vm.exe.bytecode
    mod, _ = relay.frontend.from_onnx(model_of(COUNTED), values={"count": count(3), "go": np.array(True)})
    assert "let" not in mod.astext()


def test_an_exported_program_has_its_loop(tmp_path: Any) -> None:
    mod, _ = relay.frontend.from_onnx(model_of(COUNTED))
    path = tmp_path / "loop.so"
    relay.vm.compile(mod, "llvm").export_library(str(path))
    vm = VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    y, kept = results(vm.run(*counted(4).values()))
    np.testing.assert_allclose(y, rows(3) + 4 * rows(3) ** 2, rtol=1e-5)
    assert kept.shape == (4, 3)


ENDLESS = """agraph (float[3] x) => (float[3] y) {
  y = Loop ("", "", x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w) {
    w = Mul(v, x)
    c2 = Identity(c)
  }>
}"""
OTHER_RANK = """agraph (int64 count, float[3] x) => (float y) {
  y = Loop (count, "", x) <body = b (int64 i, bool c, float v) => (bool c2, float w) {
    axes = Constant <value_ints = [0]> ()
    w = Unsqueeze(v, axes)
    c2 = Identity(c)
  }>
}"""
OTHER_TYPE = OTHER_RANK.replace("Unsqueeze(v, axes)", "Cast <to = 7> (v)").replace("float w", "int64 w")
FEWER = OTHER_RANK.replace("(bool c2, float w)", "(bool c2)")
SEQUENCE = """agraph (int64 count, float[3] x) => (float[m] y) {
  s = SequenceConstruct(x)
  t = Loop (count, "", s) <body = b (int64 i, bool c, seq(float[3]) v) => (bool c2, seq(float[3]) w) {
    w = SequenceInsert(v, x)
    c2 = Identity(c)
  }>
  y = ConcatFromSequence <axis = 0> (t)
}"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENDLESS, "the loop never ends"),
        (OTHER_RANK, "its state 0 is"),
        (OTHER_TYPE, "its state 0 is"),
        (FEWER, "it has 1 states, and its body gives 0"),
        (SEQUENCE, "its trip count must be known at import"),
        (SCAN.replace("num_scan_inputs = 2", "num_scan_inputs = 9"), "num_scan_inputs is 9"),
        (SCAN.replace("scan_input_axes = [0, -1]", "scan_input_axes = [0, 4]"), "axis 4 does not exist"),
        (
            SCAN.replace("float[n, 2] x", "float[6, 2] x").replace("float[2, n] z", "float[2, 7] z"),
            "6 and 7 rows",
        ),
    ],
)
@pytest.mark.slow
def test_refusals(text: str, reason: str) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    with pytest.raises(tvm.TVMError, match=reason):
        relay.frontend.from_onnx(model)


def test_a_sequence_grows_where_the_count_is_known() -> None:
    check(SEQUENCE, {"count": count(3), "x": rows(3)}, values={"count": count(3)})


def test_the_backend_runs_loops() -> None:
    pytest.importorskip("onnxruntime")
    from tilewright.contrib import onnx_backend

    text = """agraph (int64 count, float[3] x) => (float[3] y) {
  y = Loop (count, "", x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] w) {
    w = Mul(v, x)
    c2 = Identity(c)
  }>
}"""
    rep = onnx_backend.prepare(model_of(text))
    for n in (0, 3):
        np.testing.assert_allclose(rep.run([count(n), rows(3)])[0], rows(3) ** (n + 1), rtol=1e-5)
    assert len(rep._made) == 1  # one program for all counts
