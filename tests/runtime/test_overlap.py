"""Arguments that overlap in memory: refused where the program would compute something else, and only there."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.contrib import graph_executor
from tilewright.runtime import link
from tilewright.runtime.arguments import share_elements
from tilewright.runtime.ndarray import host_layout
from tilewright.script import tir as T
from tilewright.tir.analysis import inplace


def matmul(n: int = 32) -> Any:
    A, B = (te.placeholder((n, n), name=name) for name in "AB")
    k = te.reduce_axis((0, n), "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tvm.build(te.create_schedule(C.op), [A, B, C], "llvm", name="matmul")


def adding(shape: Any = None, vectors: bool = True) -> Any:
    extents = (te.var("n"),) if shape is None else shape
    A, B = (te.placeholder(extents, name=name) for name in "AB")
    C = te.compute(extents, lambda *i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    if vectors:
        outer, inner = s[C].split(C.op.axis[-1], 16)
        s[C].vectorize(inner)
        s[C].parallel(outer)
    return tvm.build(s, [A, B, C], "llvm", name="add")


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random(shape, "float32")


def test_a_result_that_is_an_operand_is_refused() -> None:
    f, a, b, c = matmul(), values(32, 32), values(32, 32), values(32, 32)
    before = a.copy()
    with pytest.raises(ValueError, match="overlaps") as caught:
        f(a, b, a)
    assert str(caught.value) == (
        "matmul: argument 3 (`C`) is written and overlaps argument 1 (`A`) in memory; pass a copy of one of them"
    )
    with pytest.raises(ValueError, match=r"argument 3 \(`C`\) is written and overlaps argument 2 \(`B`\)"):
        f(a, b, b)
    np.testing.assert_array_equal(a, before)
    f(a, a, c)  # what is only read may be given twice
    np.testing.assert_allclose(c, a @ a, rtol=1e-5)


@pytest.mark.parametrize("make", [tvm.nd.array, lambda x: x], ids=["NDArray", "NumPy"])
def test_an_elementwise_function_works_in_place(make: Any) -> None:
    f, a, b = adding(), values(1000), values(1000)
    wanted = a + b
    a = make(a)
    f(a, make(b), a)
    np.testing.assert_array_equal(np.asarray(a), wanted)


@pytest.mark.parametrize("shift", [1, 16, 999, -1, -16, -999])
def test_slices_that_overlap_in_part_are_refused(shift: int) -> None:
    f, memory, y = adding(), values(3000), values(1000)
    at = 1000 + shift
    with pytest.raises(ValueError, match="overlaps") as caught:
        f(memory[1000:2000], y, memory[at : at + 1000])
    assert str(caught.value) == (
        "add: argument 3 (`C`) is written and overlaps argument 1 (`A`) in memory in part; pass a copy of one of "
        "them, or the same array for both"
    )


@pytest.mark.parametrize("at", [0, 2000])
def test_neighbours_are_apart(at: int) -> None:
    f, memory, y = adding(), values(3000), values(1000)
    wanted = memory[1000:2000] + y
    f(memory[1000:2000], y, memory[at : at + 1000])
    np.testing.assert_array_equal(memory[at : at + 1000], wanted)


def test_an_empty_array_is_nowhere() -> None:
    f, memory = adding(), values(100)
    f(memory[5:5], memory[6:6], memory[5:5])


def test_two_results_must_be_two_arrays() -> None:
    A = te.placeholder((64,), name="A")
    B, C = te.compute((64,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B, C], "llvm", name="both")
    a, b = values(64), values(64)
    with pytest.raises(ValueError, match=r"argument 2 .* is written and overlaps argument 3"):
        f(a, b, b)


# -- what may be done in place -----------------------------------------------------------------------
def pairs(func: Any) -> Any:
    from tilewright.tir.analysis.inplace import inplace_pairs

    return inplace_pairs(func)


def test_a_reversed_copy_and_a_shift_are_not_done_in_place() -> None:
    A = te.placeholder((64,), name="A")
    for place in (lambda i: A[63 - i], lambda i: A[tir.max(i - 1, 0)], lambda i: A[0]):
        B = te.compute((64,), place, name="B")
        assert pairs(te.create_prim_func([A, B])) == ()
    assert pairs(te.create_prim_func([A, te.compute((64,), lambda i: A[i] * A[i], name="B")])) == ((1, 0),)


def test_what_is_read_before_anything_is_written_may_be_the_result() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[63 - i], name="B")
    C = te.compute((64,), lambda i: B[i] + 1.0, name="C")
    func = te.create_prim_func([A, C])
    assert pairs(func) == ((1, 0),)
    f, a = tvm.build(func, target="llvm"), values(64)
    wanted = a[::-1] + 1
    f(a, a)
    np.testing.assert_array_equal(a, wanted)
    sch = tir.Schedule(func)
    (i,) = sch.get_loops(sch.get_block("C"))
    outer, _ = sch.split(i, [8, 8])
    sch.compute_at(sch.get_block("B"), outer)  # now half of A is written when the other half is read
    assert pairs(sch.mod["main"]) == ()


def test_a_program_that_writes_a_place_twice_is_not_done_in_place() -> None:
    @T.prim_func
    def twice(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")) -> None:
        T.func_attr({"tir.noalias": True})
        for _again, i in T.grid(3, 8):
            B[i] = A[i] + 1.0

    @T.prim_func
    def once(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")) -> None:
        T.func_attr({"tir.noalias": True})
        for i in T.serial(8):
            B[i] = A[i] + 1.0

    assert pairs(twice) == () and pairs(once) == ((1, 0),)


def test_schedules_of_one_function_agree() -> None:
    A = te.placeholder((60, 50), name="A")
    func = te.create_prim_func([A, te.compute((60, 50), lambda i, j: A[i, j] * 2.0, name="B")])
    sch = tir.Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    outer, inner = sch.split(j, [None, 16])  # 16 does not divide 50
    sch.reorder(outer, i, inner)
    sch.vectorize(inner)
    assert pairs(sch.mod["main"]) == ((1, 0),)
    f, a = tvm.build(sch.mod, target="llvm"), values(60, 50)
    wanted = a * 2
    f(a, a)
    np.testing.assert_array_equal(a, wanted)


def test_a_lowered_program_keeps_what_it_may() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].vectorize(s[B].split(B.op.axis[0], 16)[1])
    f, a = tvm.build(tvm.lower(s, [A, B]), target="llvm"), values(64)
    wanted = a + 1
    f(a, a)
    np.testing.assert_array_equal(a, wanted)


def test_a_program_that_allows_overlap_gets_it() -> None:
    @T.prim_func
    def shift(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")) -> None:
        for i in T.serial(64):
            B[i] = A[i] + 1.0

    f, memory = tvm.build(shift, target="llvm"), np.zeros(65, "float32")
    f(memory[:64], memory[1:])  # as the program says: each element is made of the one before
    np.testing.assert_array_equal(memory, np.arange(65))


# -- views with strides --------------------------------------------------------------------------------
def doubling() -> Any:
    P, Q = (
        tir.decl_buffer((8, 4), "float32", name, strides=[te.var(f"{name}0"), te.var(f"{name}1")])
        for name in "PQ"
    )
    A = te.placeholder((8, 4), name="P")
    B = te.compute((8, 4), lambda i, j: A[i, j] * 2.0, name="Q")
    return tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="double", binds={A: P, B: Q})


@pytest.mark.parametrize(
    ("source", "result"),
    [
        (np.s_[:, ::2], np.s_[:, 1::2]),
        (np.s_[:, :4], np.s_[:, 4:]),
        (np.s_[:, :4], np.s_[:, :4]),
        (np.s_[:, 3::-1], np.s_[:, 4:]),
    ],
)
def test_views_that_share_no_element_are_accepted(source: Any, result: Any) -> None:
    memory = values(8, 8)
    wanted = memory[source] * 2
    doubling()(memory[source], memory[result])
    np.testing.assert_array_equal(memory[result], wanted)


@pytest.mark.parametrize("result", [np.s_[:, 3:7], np.s_[:, 1::2], np.s_[:, 3::-1]])
def test_views_that_share_elements_are_refused(result: Any) -> None:
    memory = values(8, 8)
    with pytest.raises(ValueError, match=r"double: argument 2 \(`Q`\) is written and overlaps argument 1"):
        doubling()(memory[:, :4], memory[result])


def test_views_are_compared_exactly() -> None:
    rng = np.random.default_rng(1)
    memory, found = np.zeros(200, "float32"), set()
    for _ in range(300):
        a, b = (
            np.lib.stride_tricks.as_strided(memory[at:], shape=tuple(shape), strides=tuple(4 * steps))
            for at, shape, steps in (
                (int(rng.integers(0, 60)), rng.integers(0, 5, 2), rng.integers(0, 12, 2)) for _ in range(2)
            )
        )
        (la, pa), (lb, pb) = host_layout(a), host_layout(b)
        assert share_elements(la, pa, lb, pb) == np.shares_memory(a, b)
        found.add(np.shares_memory(a, b))
    assert found == {True, False}


# -- models, C, masks -----------------------------------------------------------------------------------
def model() -> Any:
    x = relay.var("x", shape=(8, 8))
    w = relay.const(np.eye(8, dtype="float32")[::-1].copy())
    body = relay.nn.dense(x, w)
    return relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")


def test_a_model_does_not_write_where_it_reads() -> None:
    lib = model()
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    shared, apart = (tvm.nd.array(values(8, 8)) for _ in range(2))
    m.set_input_zero_copy("x", shared)
    m.set_output_zero_copy(0, shared)
    with pytest.raises(ValueError, match=r"is written and overlaps argument 1 \(`x`\) in memory"):
        m.run()
    m.set_output_zero_copy(0, apart)
    m.run()
    np.testing.assert_allclose(apart.numpy(), shared.numpy()[:, ::-1], rtol=1e-6)


@pytest.mark.skipif(link.find_cc() is None, reason="there is no C compiler")
def test_c_programs_get_the_error_too(tmp_path: Path) -> None:
    matmul().export_library(str(tmp_path / "matmul.so"))
    header = (tmp_path / "matmul.h").read_text()
    assert "must not overlap" in header and "may be called from several threads" in header
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        #include "matmul.h"
        static float a[32 * 32], b[32 * 32], c[32 * 32];
        int main(void) {
            int32_t good = matmul(a, b, c), bad = matmul(a, b, a);
            printf("%d %d %s", good, bad, __tw_last_error());
        }
        """
    )
    program = tmp_path / "main"
    subprocess.run(
        [*(link.find_cc() or []), "-o", program, "main.c", "./matmul.so"], cwd=tmp_path, check=True
    )
    told = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert told == (
        "0 7 argument 3 (`C`) is written and overlaps argument 1 (`A`) in memory; pass a copy of one of them"
    )


def test_a_masked_array_is_refused() -> None:
    f, a, b = adding((8,), vectors=False), np.ma.array(values(8), mask=[1, 0] * 4), values(8)
    with pytest.raises(ValueError, match="masked") as caught:
        f(a, b, values(8))
    assert str(caught.value) == (
        "add: argument 1 (`A`) cannot be used: it is a masked array, whose mask would be lost; pass x.filled(value), "
        "or x.data to ignore the mask"
    )
    f(a.data, b, values(8))
    for take in (tvm.nd.array, tvm.nd.empty((8,)).copyfrom, tvm.nd.numpyasarray):
        with pytest.raises(ValueError, match="it is a masked array, whose mask would be lost"):
            take(a)
    m = graph_executor.GraphModule(model()["default"](tvm.cpu(0)))
    with pytest.raises(ValueError, match="input 'x' cannot be used: it is a masked array"):
        m.set_input("x", np.ma.array(values(8, 8), mask=True))


def test_the_work_for_many_parameters_grows_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    alike = inplace._alike
    monkeypatch.setattr(inplace, "_alike", lambda a, b: compared.append(a) or alike(a, b))
    inputs = [te.placeholder((64,), name=f"x{k}") for k in range(200)]
    y = te.compute((64,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]), name="y")
    assert inplace.inplace_pairs(te.create_prim_func([*inputs, y])) == tuple((200, k) for k in range(200))
    assert len(compared) <= 200


@pytest.mark.slow
def test_many_arrays_are_compared_with_their_neighbours() -> None:
    """The number of pairs is the square of that of arrays: neither the metadata nor a call may list them."""
    A = te.placeholder((8,), name="A")
    outs = [te.compute((8,), lambda i, k=k: A[i] + float(k), name=f"B{k}") for k in range(300)]
    f = tvm.build(te.create_prim_func([A, *outs]), target="llvm")
    assert len(f.get_source("json")) < 100_000
    memory = np.zeros((301, 8), "float32")
    f(*memory)
    assert (memory[1:] == np.arange(300, dtype="float32")[:, None]).all()
    flat = memory.reshape(-1)
    with pytest.raises(ValueError, match=r"argument 302? .`B0?`. is written and overlaps|overlaps argument"):
        f(*memory[:300], flat[300 * 8 - 4 : 301 * 8 - 4])
