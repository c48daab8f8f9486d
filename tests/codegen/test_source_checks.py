"""Checks of data in kernels: their code, where they are reported, and what is not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.error import DivisionByZeroError, OutOfBoundsError
from tilewright.ir import ops

GPUS = ["cuda", "opencl", "rocm", "metal"]


def rows(lanes: int = 1) -> tuple[Any, list[Any]]:
    """B[i] = A[I[i]], each index checked; `lanes` of them by a thread."""
    A, I = te.placeholder((8,), "float32", "A"), te.placeholder((16,), "int64", "I")
    inside = topi.checks.check_each(I, "index", [8], "rows")
    B = te.compute((16,), lambda i: A[tir.Cast("int32", inside[i])], "B")
    s = te.create_schedule(B.op)
    s[inside].compute_inline()
    outer, inner = s[B].split(B.op.axis[0], factor=lanes)
    s[B].bind(outer, te.thread_axis("threadIdx.x"))
    if lanes > 1:
        s[B].vectorize(inner)
    return s, [A, I, B]


def kernel_of(text: str) -> list[str]:
    """The lines of the one kernel of a program."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if "kernel" in line and "(" in line)
    return lines[first:]


def test_the_text_of_a_check() -> None:
    s, args = rows()
    lines = kernel_of(tvm.build(s, args, target="opencl").imported_modules[0].get_source())
    assert lines[0].endswith("__global long* restrict tw_report, int tw_first_check) {")
    assert lines[1:] == [
        "  const int i_outer = get_local_id(0);",
        "  const long cse_var_1 = I[i_outer] < 0l ? (long)((ulong)I[i_outer] + 8lu) : I[i_outer];",
        "  B[i_outer] = A[(int)((ulong)cse_var_1 < 8lu ? cse_var_1 : (long)0)];",
        "  if (!((ulong)cse_var_1 < 8lu)) "
        "tw_report_4(tw_report, tw_first_check + 1, I[i_outer], (long)i_outer, -8l, 7l);",
        "}",
    ]


@pytest.mark.parametrize("target", GPUS)
def test_every_kind_of_gpu_has_code_for_a_check(target: str) -> None:
    s, args = rows()
    text = tvm.build(s, args, target=target).imported_modules[0].get_source()
    assert text.count("tw_report_4(") == 2
    assert "tw_claim" in text


def test_a_kernel_without_checks_takes_nothing_more() -> None:
    A = te.placeholder((8,), "float32", "A")
    B = te.compute((8,), lambda i: A[i] + 1.0, "B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    assert "tw_report" not in tvm.build(s, [A, B], target="opencl").imported_modules[0].get_source()


def test_lanes_are_loaded_together_and_reported_after_the_store() -> None:
    s, args = rows(4)
    text = "\n".join(kernel_of(tvm.build(s, args, target="cuda").imported_modules[0].get_source()))
    store = text.index("*(float4*)(B")
    assert text.index("if (") > store
    assert text.count("tw_report_4(") == 4


@pytest.mark.needs("nvrtc")
def test_nvrtc_takes_checks() -> None:
    for lanes in (1, 4):
        s, args = rows(lanes)
        made = tvm.build(s, args, target="cuda -arch=sm_90a").imported_modules[0]
        assert "atom" in made.get_source("ptx")


@pytest.mark.needs("opencl")
@pytest.mark.parametrize("lanes", [1, 4])
def test_each_lane_is_reported(lanes: int) -> None:
    s, args = rows(lanes)
    f, dev, values = tvm.build(s, args, target="opencl"), tvm.opencl(0), np.arange(8, dtype="float32")
    a, out = tvm.nd.array(values, dev), tvm.nd.empty((16,), "float32", dev)
    index = np.arange(-8, 8)
    f(a, tvm.nd.array(index, dev), out)
    np.testing.assert_array_equal(out.numpy(), values[index])
    for at, bad in ((0, -9), (5, 8), (15, 2**62)):
        wrong = index.copy()
        wrong[at] = bad
        f(a, tvm.nd.array(wrong, dev), out)
        with pytest.raises(OutOfBoundsError, match=rf"^rows: index {bad} at position \[{at}\] .* -8 to 7$"):
            out.numpy()
    f(a, tvm.nd.array(index, dev), out)
    np.testing.assert_array_equal(out.numpy(), values[index])


def taken(I: Any, i: Any, size: int = 8) -> Any:
    value = I[i]
    good = ops.logical_and(ops.greater_equal(value, 0), ops.less(value, size))
    return ops.checked(value, good, "index", "rows: index {} of {}", value, size - 1)


@pytest.mark.needs("opencl")
def test_what_is_not_computed_is_not_reported() -> None:
    A, I = te.placeholder((8,), "int32", "A"), te.placeholder((16,), "int32", "I")
    B = te.compute(
        (16,),
        lambda i: tir.if_then_else(
            I[i] < 0, 0, tir.if_then_else(tir.all(I[i] != 99, A[taken(I, i)] > 3), 1, 2)
        ),
        "B",
    )
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    f, dev = tvm.build(s, [A, I, B], target="opencl"), tvm.opencl(0)
    a, out = tvm.nd.array(np.arange(8, dtype="int32"), dev), tvm.nd.empty((16,), "int32", dev)
    index = np.int32([-7, 99, 3, 4] * 4)
    f(a, tvm.nd.array(index, dev), out)
    assert out.numpy().tolist() == [0, 2, 2, 1] * 4
    index[6] = 8
    f(a, tvm.nd.array(index, dev), out)
    with pytest.raises(OutOfBoundsError, match=r"^rows: index 8 of 7$"):
        out.numpy()


@pytest.mark.needs("opencl")
def test_a_report_is_made_before_what_it_tells_is_overwritten() -> None:
    I, A = te.placeholder((64,), "int32", "I"), te.placeholder((8,), "int32", "A")

    def build(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        index, a, b = (ib.buffer_ptr(x) for x in (*ins, *outs))
        t = te.thread_axis("threadIdx.x")
        ib.scope_attr(t, "thread_extent", 16)
        kept = ib.allocate("int32", (1,), "kept", scope="local")
        with ib.for_range(0, 4, "k") as k:
            kept[0] = index[t * 4 + k]
            b[t * 4 + k] = a[taken(kept, 0)]
            kept[0] = 100
        return ib.get()

    B = te.extern((64,), [I, A], build, dtype="int32", name="B")
    f, dev = tvm.build(te.create_schedule(B.op), [I, A, B], target="opencl"), tvm.opencl(0)
    values, index = np.arange(8, dtype="int32") * 3, np.arange(64, dtype="int32") % 8
    a, out = tvm.nd.array(values, dev), tvm.nd.empty((64,), "int32", dev)
    f(tvm.nd.array(index, dev), a, out)
    np.testing.assert_array_equal(out.numpy(), values[index])
    index[21] = 55
    f(tvm.nd.array(index, dev), a, out)
    with pytest.raises(OutOfBoundsError, match=r"^rows: index 55 of 7$"):
        out.numpy()


@pytest.mark.needs("opencl")
def test_a_statement_that_fails_in_a_kernel() -> None:
    I = te.placeholder((64,), "int32", "I")

    def build(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        index, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        t = te.thread_axis("threadIdx.x")
        ib.scope_attr(t, "thread_extent", 64)
        with ib.if_scope(index[t] == 0):
            ib.emit(ops.fail("divisor", "the divisor at {} is 0", t.var))
        b[t] = index[t]
        return ib.get()

    B = te.extern((64,), [I], build, dtype="int32", name="B")
    f, dev = tvm.build(te.create_schedule(B.op), [I, B], target="opencl"), tvm.opencl(0)
    values, out = np.arange(64, dtype="int32") - 9, tvm.nd.empty((64,), "int32", dev)
    f(tvm.nd.array(values, dev), out)
    with pytest.raises(DivisionByZeroError, match=r"^the divisor at 9 is 0$"):
        dev.sync()
    np.testing.assert_array_equal(out.numpy(), values)


def test_c_leaves_the_function_with_the_code_of_the_error() -> None:
    A, I = te.placeholder((8,), "float32", "A"), te.placeholder((16,), "int64", "I")
    inside = topi.checks.check_each(I, "index", [8], "rows")
    B = te.compute((16,), lambda i: A[tir.Cast("int32", inside[i])], "B")
    s = te.create_schedule(B.op)
    s[inside].compute_inline()
    text = tvm.build(s, [A, I, B], target="c").get_source()
    assert re.search(r"if \(!.*\) return 5;", text)


def test_too_many_values_are_refused() -> None:
    A = te.placeholder((8,), "int32", "A")
    B = te.compute((8,), lambda i: ops.checked(A[i], A[i] > 0, "value", "{}" * 40, *[i] * 40), "B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(tvm.TVMError, match="a check has 40 values, more than 31"):
        tvm.build(s, [A, B], target="opencl")
