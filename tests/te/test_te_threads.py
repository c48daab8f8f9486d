"""te stages on the threads of a GPU: reductions that they share, scans that they live around, their memory;
and groups of stages. The kernels are run by the interpreter, thread by thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import ScheduleError

EXAMPLES = examples(8)


def kernels(s: te.Schedule, args: list[Any]) -> tir.PrimFunc:
    """The kernels of a schedule with their barriers."""
    return lower_kernels(tvm.IRModule({"main": s.to_prim_func(args)}))["main"]


def same(s: te.Schedule, args: list[Any]) -> tir.PrimFunc:
    """In block form and as kernels the schedule gives what the expressions say."""
    plain, made = te.create_prim_func(args), s.to_prim_func(args)
    rng = np.random.default_rng(0)
    start = [
        rng.integers(-8, 8, [int(d) for d in b.shape]).astype(str(b.dtype)) for b in plain.buffer_params()
    ]
    want = [a.copy() for a in start]
    tir.interpret(plain, *want)
    lowered = kernels(s, args)
    for func in (made, lowered):
        got = [a.copy() for a in start]
        tir.interpret(func, *got)
        for x, y in zip(want, got, strict=True):
            np.testing.assert_array_equal(y, x, err_msg=str(func))
    return lowered


def row_sums(n: int = 6, m: int = 50) -> tuple[te.Tensor, te.Tensor]:
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    return A, te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")


def shared_sum(s: te.Schedule, B: te.Tensor, width: int, rows: int) -> tuple[Any, te.IterVar]:
    """The classic schedule: each thread sums a part, and the threads of a row combine theirs."""
    _, ki = s[B].split(s[B].op.reduce_axis[0], factor=width)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=rows)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], tx)
    s[BF[0] if isinstance(BF, list) else BF].compute_at(s[B], s[B].op.reduce_axis[0])
    return BF, tx


# ---------------------------------------------------------------------------- reductions
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(st.integers(1, 7), st.integers(1, 40), st.integers(1, 13), st.integers(1, 4))
def test_a_sum_that_threads_share(n, m, width, rows):
    A, B = row_sums(n, m)
    s = te.create_schedule(B.op)
    _, tx = shared_sum(s, B, width, rows)
    s[B].set_store_predicate(tx.var.equal(0))
    same(s, [A, B])


def test_the_kernel_of_a_shared_sum(expect):
    A, B = row_sums(4, 12)
    s = te.create_schedule(B.op)
    shared_sum(s, B, 6, 2)
    expect(
        kernels(s, [A, B]),
        """
        @T.prim_func
        def main(A: T.Buffer((4, 12), "float32"), B: T.Buffer((4,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            A_1 = T.decl_buffer((48,), data=A.data)
            i_outer = T.launch_thread("blockIdx.x", 2)
            i_inner = T.launch_thread("threadIdx.y", 2)
            k_inner = T.launch_thread("threadIdx.x", 6)
            B_rf_1 = T.decl_buffer((1,), scope="local")
            B_part = T.allocate([1], "float32", "local")
            B_shared = T.allocate([12], "float32", "shared")
            B_rf_1[0] = T.float32(0)
            for ax2 in range(2):
                B_rf_1[0] = B_rf_1[0] + A_1[i_outer * 24 + i_inner * 12 + ax2 * 6 + k_inner]
            B_part_1 = T.decl_buffer((1,), data=B_part)
            B_shared_1 = T.decl_buffer((12,), data=B_shared)
            B_part_1[0] = T.float32(0)
            B_part_1[0] = B_part_1[0] + B_rf_1[0]
            B_shared_1[i_inner * 6 + k_inner] = B_part_1[0]
            T.tvm_storage_sync("shared")
            if k_inner < 2:
                B_shared_1[i_inner * 6 + k_inner] = B_shared_1[i_inner * 6 + k_inner] + B_shared_1[i_inner * 6 + k_inner + 4]
            if k_inner < 2:
                B_shared_1[i_inner * 6 + k_inner] = B_shared_1[i_inner * 6 + k_inner] + B_shared_1[i_inner * 6 + k_inner + 2]
            T.tvm_storage_sync("shared")
            if k_inner < 1:
                B_shared_1[i_inner * 6] = B_shared_1[i_inner * 6] + B_shared_1[i_inner * 6 + 1]
            if T.likely(k_inner == 0):
                B[i_outer * 2 + i_inner] = B_shared_1[i_inner * 6]
        """,
    )


def argmax() -> Any:
    def combine(x, y):
        first = tir.any(x[1] > y[1], tir.all(x[1] == y[1], x[0] < y[0]))
        return tir.Select(first, x[0], y[0]), tir.Select(first, x[1], y[1])

    return te.comm_reducer(combine, lambda a, b: (tir.const(1 << 20, a), te.min_value(b)), name="argmax")


@pytest.mark.parametrize("width", [1, 4, 5, 16])
def test_the_largest_and_where_it_is(width):
    index, value = te.placeholder((3, 16), "int32", name="index"), te.placeholder((3, 16), name="value")
    k = te.reduce_axis((0, 16), "k")
    T0, T1 = te.compute((3,), lambda i: argmax()((index[i, k], value[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    BF, _ = shared_sum(s, T0, width, 2)
    assert [t.dtype for t in BF] == ["int32", "float32"]
    same(s, [index, value, T0, T1])


def test_the_largest_factored_for_a_processor():
    index, value = te.placeholder((3, 16), "int32", name="index"), te.placeholder((3, 16), name="value")
    k = te.reduce_axis((0, 16), "k")
    T0, T1 = te.compute((3,), lambda i: argmax()((index[i, k], value[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    _, ki = s[T0].split(k, factor=4)
    R0, R1 = s.rfactor(T0, ki, 1)
    assert [int(d) for d in R0.shape] == [int(d) for d in R1.shape] == [3, 4]
    s[R0].reorder(s[R0].op.reduce_axis[0], *s[R0].op.axis)
    v = np.random.default_rng(0).integers(0, 5, (3, 16)).astype("float32")
    i = np.tile(np.arange(16, dtype="int32"), (3, 1))
    where, most = np.zeros(3, "int32"), np.zeros(3, "float32")
    tvm.build(s, [index, value, T0, T1], target="llvm")(i, v, where, most)
    np.testing.assert_array_equal(where, v.argmax(1))
    np.testing.assert_array_equal(most, v.max(1))


def test_threads_that_go_on_with_the_result():
    """A row less its mean: the sum is shared by the threads that then use it."""
    A, B = row_sums(5, 24)
    D = te.compute((5, 24), lambda i, j: A[i, j] * 24 - B[i], name="D")
    s = te.create_schedule(D.op)
    tx = te.thread_axis("threadIdx.x")
    _, xi = s[D].split(D.op.axis[1], factor=8)
    s[D].bind(D.op.axis[0], te.thread_axis("blockIdx.x"))
    s[D].bind(xi, tx)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=8)
    s[B].bind(ki, tx)
    s[B].compute_at(s[D], D.op.axis[0])
    made = s.to_prim_func([A, D])
    assert made.body.block.alloc_buffers[0].scope() == "shared"
    same(s, [A, D])


# ---------------------------------------------------------------------------- who stores
def test_refuse_to_store_a_part(expect, told):
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    tx = te.thread_axis("threadIdx.x")
    s[B].bind(B.op.axis[0], tx)
    s[B].set_store_predicate(tx.var.equal(0))
    with pytest.raises(ScheduleError) as caught:
        s.to_prim_func([A, B])
    expect(
        told(caught),
        """
        s[B].set_store_predicate: each thread of threadIdx.x stores elements of its own (loop `i`), and where `threadIdx_x == 0` does not hold they would be missing
          at test_te_threads.py:LINE

          hint: it is for axes that B is reduced over
        """,
    )


def test_refuse_a_predicate_of_no_thread(expect, told):
    A, B = row_sums()
    s = te.create_schedule(B.op)
    shared_sum(s, B, 4, 2)
    s[B].set_store_predicate(te.var("n").equal(0))
    with pytest.raises(ScheduleError) as caught:
        s.to_prim_func([A, B])
    expect(
        told(caught),
        """
        s[B].set_store_predicate: `n` is not a thread axis that a loop is bound to
          at test_te_threads.py:LINE

          hint: the axes are blockIdx.x (blockIdx.x), threadIdx.y (threadIdx.y), threadIdx.x (threadIdx.x)
        """,
    )


# ---------------------------------------------------------------------------- scans
def cumulated(m: int = 5, n: int = 12) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return X, init, update, te.scan(init, update, state, inputs=[X], name="scan")


@pytest.mark.parametrize("around", [True, False])
def test_threads_that_live_around_a_scan(around):
    X, init, update, scan = cumulated()
    s = te.create_schedule(scan.op)
    bx, tx = te.thread_axis((0, 3), "blockIdx.x"), te.thread_axis((0, 4), "threadIdx.x")
    for stage in (init, update):
        xo, xi = s[stage].split(stage.op.axis[1], factor=4)
        s[stage].bind(xo, bx)
        s[stage].bind(xi, tx)
    if around:
        s[scan].env_threads([bx, tx])
    lowered = same(s, [X, scan]).script()
    inside = lowered.index("for scan_idx")
    # one launch for all steps, or one for each
    assert lowered.count("launch_thread", inside) == (0 if around else 2)


def test_a_stage_inside_the_steps_of_a_scan():
    X = te.placeholder((5, 8), name="X")
    state = te.placeholder((5, 8), name="state")
    init = te.compute((1, 8), lambda _, i: X[0, i], name="init")
    twice = te.compute((5, 8), lambda t, i: state[t - 1, i] * 2, name="twice")
    update = te.compute((5, 8), lambda t, i: twice[t, i] + X[t, i], name="update")
    scan = te.scan(init, update, state, inputs=[X], name="scan")
    s = te.create_schedule(scan.op)
    tx = te.thread_axis("threadIdx.x")
    for stage in (init, twice, update):
        s[stage].bind(stage.op.axis[1], tx)
    s[scan].env_threads([tx])  # as many threads as its loops have
    assert same(s, [X, scan]).script().count("launch_thread") == 2


def test_a_scan_lies_in_its_result(expect):
    X, _, _, scan = cumulated(3, 4)
    s = te.create_schedule(scan.op)
    expect(
        s.to_prim_func([X, scan]),
        """
        @T.prim_func
        def main(X: T.Buffer((3, 4), "float32"), scan: T.Buffer((3, 4), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for _, i in T.grid(1, 4):
                with T.block("init"):
                    v__, v_i = T.axis.remap("SS", [_, i])
                    T.reads(X[0, v_i])
                    T.writes(scan[v__, v_i])
                    scan[v__, v_i] = X[0, v_i]
            for scan_idx in T.serial(1, 3):
                for i in range(4):
                    with T.block("update"):
                        v_scan_idx = T.axis.scan((1, 3), scan_idx)
                        v_i = T.axis.spatial(4, i)
                        T.reads(scan[v_scan_idx - 1, v_i], X[v_scan_idx, v_i])
                        T.writes(scan[v_scan_idx, v_i])
                        scan[v_scan_idx, v_i] = scan[v_scan_idx - 1, v_i] + X[v_scan_idx, v_i]
        """,
    )


def test_refuse_threads_around_what_is_no_scan(expect, told):
    A, B = row_sums()
    s = te.create_schedule(B.op)
    with pytest.raises(ScheduleError) as caught:
        s[B].env_threads([te.thread_axis((0, 4), "threadIdx.x")])
    expect(
        told(caught),
        """
        s[B].env_threads: B is not a scan, and only the steps of a scan can share a launch of threads
          at test_te_threads.py:LINE

          hint: bind its loops
        """,
    )
    _, _, _, scan = cumulated()
    s = te.create_schedule(scan.op)
    with pytest.raises(ScheduleError) as caught:
        s[scan].env_threads([A.op])
    expect(
        told(caught).replace(repr(A.op), "A"),
        """
        s[scan].env_threads takes te.thread_axis axes, not A
          at test_te_threads.py:LINE
        """,
    )


def test_refuse_more_threads_than_a_loop_has(expect, told):
    X, _, update, scan = cumulated()
    s = te.create_schedule(scan.op)
    tx = te.thread_axis((0, 4), "threadIdx.x")
    s[update].bind(update.op.axis[1], tx)
    s[scan].env_threads([tx])
    with pytest.raises(ScheduleError) as caught:
        s.to_prim_func([X, scan])
    expect(
        told(caught),
        """
        launch_around(scan_idx, thread_axis='threadIdx.x', extent=4): loop `i` has 12 iterations for the 4 threads of threadIdx.x
          at test_te_threads.py:LINE

          | def main(X: T.Buffer((5, 12), "float32"), scan: T.Buffer((5, 12), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for _, i in T.grid(1, 12):
          |         with T.block("init"):
          |             v__, v_i = T.axis.remap("SS", [_, i])
          |             T.reads(X[0, v_i])
          |             T.writes(scan[v__, v_i])
          |             scan[v__, v_i] = X[0, v_i]
          |     for scan_idx in T.serial(1, 5):
          |         for i in T.thread_binding(12, thread="threadIdx.x"):    # <-- here
          |             with T.block("update"):
          |                 v_scan_idx = T.axis.scan((1, 5), scan_idx)
          |                 v_i = T.axis.spatial(12, i)
          |                 T.reads(scan[v_scan_idx - 1, v_i], X[v_scan_idx, v_i])
          |                 T.writes(scan[v_scan_idx, v_i])
          |                 scan[v_scan_idx, v_i] = scan[v_scan_idx - 1, v_i] + X[v_scan_idx, v_i]

          hint: launch 12 threads around, or split it by 4
        """,
    )


# ---------------------------------------------------------------------------- groups
def chain(n: int = 12) -> list[te.Tensor]:
    out = [te.placeholder((n, n), name="A")]
    for i, name in enumerate("BCDE"):
        x = out[-1]
        out.append(te.compute((n, n), lambda i, j, x=x, c=i: x[i, j] + c, name=name))
    return out


@pytest.mark.parametrize("include", [False, True])
def test_a_group_at_one_place(include):
    A, B, C, D, E = chain()
    s = te.create_schedule(E.op)
    g = s.create_group(outputs=D, inputs=B, include_inputs=include)
    assert repr(g) == ("group(B, C, D)" if include else "group(C, D)")
    assert s[C].group is g
    g.compute_at(s[E], E.op.axis[0])
    plain = te.create_schedule(E.op)
    for x in (B, C, D) if include else (C, D):
        plain[x].compute_at(plain[E], E.op.axis[0])
    assert tvm.ir.structural_equal(s.to_prim_func([A, E]), plain.to_prim_func([A, E]))
    g.compute_root()
    assert tvm.ir.structural_equal(s.to_prim_func([A, E]), te.create_schedule(E.op).to_prim_func([A, E]))


def test_a_stage_of_a_group_has_a_place_of_its_own():
    A, B, C, D, E = chain()
    s = te.create_schedule(E.op)
    g = s.create_group(outputs=[D], inputs=[A])
    g.compute_at(s[E], E.op.axis[0])
    s[B].compute_root()
    s[C].compute_inline()
    inner = s.create_group(outputs=[D], inputs=[C])
    assert s.groups == [g, inner]
    func = s.to_prim_func([A, E])
    x = np.ones((12, 12), "float32")
    y = np.zeros_like(x)
    tir.interpret(func, x, y)
    np.testing.assert_array_equal(y, x + 6)
    names = [type(n).__name__ for n in func.body.block.body.seq]
    assert names == ["For", "For"]  # B, and E with D inside


def test_refuse_groups(expect, told):
    A, B, C, D, E = chain()
    s = te.create_schedule(E.op)
    with pytest.raises(ScheduleError) as caught:
        s.create_group(outputs=[E], inputs=[A])
    expect(
        told(caught),
        """
        create_group: E is an output of the schedule, which is computed at the root
          at test_te_threads.py:LINE
        """,
    )
    g = s.create_group(outputs=[D], inputs=[B])
    with pytest.raises(ScheduleError) as caught:
        g.compute_at(s[C], C.op.axis[0])
    expect(
        told(caught),
        """
        group(C, D).compute_at: C is itself in the group
          at test_te_threads.py:LINE
        """,
    )


def test_a_reduction_over_threads_whose_result_is_no_argument() -> None:
    """`lower(s, [A])` of a program whose result is left out, as a look at the loops: the result is dead, not shared."""
    A = te.placeholder((128,), name="A")
    k = te.reduce_axis((0, 128), "k")
    B = te.compute((), lambda: te.sum(A[k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(B.op.reduce_axis[0], 32)
    s.rfactor(B, inner)
    s[B].bind(s[B].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    assert 'launch_thread("threadIdx.x", 32)' in tvm.lower(s, [A]).script()
