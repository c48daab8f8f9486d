"""What kernels ask for before others have ended: where it stands, what is left out, and that it changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.runtime.cuda_compiler import after_others
from tilewright.tir.transform.fetch_early import FETCH_EARLY

CUDA = "cuda -arch=sm_90"


def copied(size: int, first: int) -> tir.Schedule:
    """A kernel of blocks of 64 threads that doubles what it has copied before."""
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[i] * 2, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    copy = sch.cache_read("B", 0, "local")
    b, t = sch.split(sch.get_loops("B")[0], [None, 64])
    sch.bind(b, "blockIdx.x")
    sch.bind(t, "threadIdx.x")
    sch.compute_at(copy, t)
    sch.annotate(copy, FETCH_EARLY, first)
    return sch


def source(sch: tir.Schedule, target: str = CUDA) -> str:
    return str(tvm.build(sch.mod, target=target).imported_modules[0].get_source())


def test_the_first_blocks_ask_before_they_read(expect: Any) -> None:
    text = source(copied(640, 4))
    expect(
        text[text.index("extern") :],
        """
        extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* __restrict__ A, float* __restrict__ B) {
          const int i_0 = blockIdx.x;
          const int i_1 = threadIdx.x;
          if (i_0 < 4) {
            tw_early(A + i_0 * 64 + i_1);
          }
          float A_local[1];
          A_local[0] = A[i_0 * 64 + i_1];
          B[i_0 * 64 + i_1] = A_local[0] * 2.0f;
        }
        """,
    )


def test_all_blocks_ask_where_there_are_few() -> None:
    text = source(copied(128, 4))
    assert "if (" not in text[text.index("__global__") :] and "  tw_early(A + " in text


def test_what_is_read_under_a_condition_is_asked_for_under_it() -> None:
    lines = source(copied(100, 4)).splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.strip().startswith("tw_early(A")]
    assert lines[at - 1].strip() == "if (cse_var_1) {"
    assert any(line.strip() == "const bool cse_var_1 = i_0 * 64 + i_1 < 100;" for line in lines[:at])


def test_the_kernel_waits_for_others_after_it_has_asked_and_before_it_reads() -> None:
    text, waits = after_others(source(copied(640, 4)))
    assert waits
    asked, wait, read = (text.rindex(s) for s in ("tw_early(A", "griddepcontrol.wait", "A_local[0] = A["))
    assert asked < wait < read
    assert text[:wait].endswith('  }\n  asm volatile("')  # not only in the first blocks


def test_a_kernel_that_reads_before_it_asks_waits_first() -> None:
    text, waits = after_others(
        source(copied(640, 4)).replace("  if (i_0 < 4)", "  float x = A[0];\n  if (i_0 < 4)")
    )
    assert waits and text.index("griddepcontrol.wait") < text.index("float x = A[0];")


def test_other_targets_ask_for_nothing() -> None:
    assert "early" not in source(copied(640, 4), "opencl")
    x = te.placeholder((256, 1024), name="x")
    for target, asks in (("cuda -arch=sm_80", False), (CUDA, True)):
        made = tvm.auto_schedule([x, topi.nn.softmax(x)], target)
        assert ("tw_early(" in source(made, target)) is asks


def test_what_pads_is_not_asked_for() -> None:
    """It may lie outside of what there is."""
    x = te.placeholder((6, 100), name="x")
    sch = tvm.auto_schedule([x, topi.nn.pad(x, (0, 1), (0, 3))], CUDA)
    assert "tw_early(" not in source(sch)


def test_the_result_stays() -> None:
    sch = copied(100, 1)
    with tvm.target.Target(CUDA):
        low = tvm.lower(sch.mod)
    assert "T.prefetch" in low.script()
    x, got = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    tir.interpret(low["main"], x, got)
    np.testing.assert_array_equal(got, x * 2)


def test_nothing_marked_nothing_done() -> None:
    A = te.placeholder((4,), name="A")
    mod = tvm.lower(te.create_prim_func([A, te.compute((4,), lambda i: A[i], name="B")]))
    assert tir.transform.FetchEarly()(mod) is mod
