"""`te.Schedule`: stages, their axes and relations, and what becomes of them."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal, structural_equal
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import IterVar


def matmul(n=7, m=6, l=5):
    A = te.placeholder((n, l), name="A")
    B = te.placeholder((l, m), name="B")
    k = te.reduce_axis((0, l), "k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def names(axes):
    return [iv.var.name for iv in axes]


def check(s, args, target="llvm"):
    """The schedule means what the plain one means: interpreted in block form, lowered, and compiled."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-8, 8, [int(d) for d in t.shape]).astype(str(t.dtype)) for t in args]
    plain = te.create_schedule(s.outputs).to_prim_func(args)
    want = [np.copy(a) for a in arrays]
    tir.interpret(plain, *want)
    for func in (s.to_prim_func(args), tvm.lower(s, args)["main"]):
        got = [np.copy(a) for a in arrays]
        tir.interpret(func, *got)
        for x, y in zip(want, got, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=str(func))
    if target:
        tvm.build(s, args, target=target)(*arrays)
        for x, y in zip(want, arrays, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5)


# ---------------------------------------------------------------------------- stages
def test_stages_stand_producers_first():
    A, _B, C = matmul()
    D = te.compute(C.shape, lambda i, j: C[i, j] + 1, name="D")
    s = te.create_schedule(D.op)
    assert [stage.op.name for stage in s.stages] == ["A", "B", "C", "D"]
    assert [stage.is_output for stage in s.stages] == [False, False, False, True]
    assert s[D] is s[D.op] is s.stages[-1]
    assert C in s and D.op in s
    assert te.placeholder((3,), name="X") not in s
    assert names(s[C].leaf_iter_vars) == ["i", "j", "k"]
    assert names(s[A].leaf_iter_vars) == []
    assert repr(s[C]) == "stage(C, ['i', 'j', 'k'])"
    assert s.outputs == [D.op]
    assert s.normalize() is s


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: t.op, lambda t: [t.op], lambda t: (t,)])
def test_what_a_schedule_is_made_from(wrap):
    _A, _B, C = matmul()
    assert te.create_schedule(wrap(C)).outputs == [C.op]


def test_what_no_schedule_is_made_from(expect, told):
    with pytest.raises(TypeError) as caught:
        te.create_schedule(3)
    expect(
        told(caught),
        """
        te.create_schedule takes operations (C.op) or tensors, not 3
        """,
    )
    with pytest.raises(ValueError) as caught:
        te.create_schedule([])
    expect(
        told(caught),
        """
        te.create_schedule needs at least one operation
        """,
    )
    _A, _B, C = matmul()
    s = te.create_schedule(C.op)
    with pytest.raises(TypeError) as caught:
        s["C"]
    expect(
        told(caught),
        """
        s[…] takes a tensor or an operation, not 'C'
        """,
    )
    with pytest.raises(ScheduleError) as caught:
        s[te.placeholder((3,), name="X")]
    expect(
        told(caught),
        """
        the schedule has no stage for X; it has: A, B, C
          at test_te_schedule.py:LINE
        """,
    )


def test_several_outputs():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    D = te.compute((8,), lambda i: B[i] * 3, name="D")
    s = te.create_schedule([C.op, D.op])
    assert [stage.op.name for stage in s.stages] == ["A", "B", "C", "D"]
    s[C].vectorize(s[C].split(C.op.axis[0], factor=4)[1])
    s[D].parallel(D.op.axis[0])
    check(s, [A, C, D])


def test_long_chains_need_no_recursion():
    x = A = te.placeholder((4,), name="A")
    for i in range(2000):
        x = te.compute((4,), lambda j, x=x: x[j] + 1, name=f"S{i}")
    assert len(te.create_schedule(x.op).stages) == 2001
    assert te.create_schedule(x.op).stages[0].op is A.op


# ---------------------------------------------------------------------------- axes
def test_split(expect):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    xo, xi = s[C].split(C.op.axis[0], factor=4)
    yo, yi = s[C].split(C.op.axis[1], nparts=4)
    ko, ki = s[C].split(C.op.reduce_axis[0], 5)
    assert names(s[C].leaf_iter_vars) == ["i_outer", "i_inner", "j_outer", "j_inner", "k_outer", "k_inner"]
    assert names(s[C].all_iter_vars)[:3] == ["i", "j", "k"]
    assert [step.kind for step in s[C].relations] == ["split"] * 3
    assert [str(iv.dom.extent) for iv in (xo, xi, yo, yi, ko, ki)] == ["2", "4", "4", "2", "1", "5"]
    assert ko.iter_type == ki.iter_type == te.tensor.IterVar.CommReduce
    expect(
        s.to_prim_func([A, B, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i_outer, i_inner, j_outer, j_inner, k_outer, k_inner in T.grid(2, 4, 4, 2, 1, 5):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i_outer * 4 + i_inner)
                    v_j = T.axis.spatial(6, j_outer * 2 + j_inner)
                    v_k = T.axis.reduce(5, k_inner)
                    T.where(i_outer * 4 + i_inner < 7 and j_outer * 2 + j_inner < 6)
                    T.reads(A[v_i, v_k], B[v_k, v_j])
                    T.writes(C[v_i, v_j])
                    with T.init():
                        C[v_i, v_j] = T.float32(0)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )
    check(s, [A, B, C])


def test_fuse_and_reorder(expect):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    (i, j), (k,) = C.op.axis, C.op.reduce_axis
    s[C].reorder(k, i, j)
    assert names(s[C].leaf_iter_vars) == ["k", "i", "j"]
    f = s[C].fuse(i, j)
    assert f.var.name == "i_j_fused" and str(f.dom.extent) == "42"
    assert names(s[C].leaf_iter_vars) == ["k", "i_j_fused"]
    assert s[C].fuse(f) is f
    expect(
        s.to_prim_func([A, B, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for k, i_j_fused in T.grid(5, 42):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i_j_fused // 6)
                    v_j = T.axis.spatial(6, i_j_fused % 6)
                    v_k = T.axis.reduce(5, k)
                    T.reads(A[v_i, v_k], B[v_k, v_j])
                    T.writes(C[v_i, v_j])
                    with T.init():
                        C[v_i, v_j] = T.float32(0)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )
    check(s, [A, B, C])


def test_reorder_of_some_leaves_the_others_in_place():
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    s[C].reorder(C.op.reduce_axis[0], C.op.axis[0])
    assert names(s[C].leaf_iter_vars) == ["k", "j", "i"]
    check(s, [A, B, C], target=None)


def test_tile():
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    axes = s[C].tile(*C.op.axis, 4, 2)
    assert names(axes) == ["i_outer", "j_outer", "i_inner", "j_inner"]
    assert names(s[C].leaf_iter_vars) == ["i_outer", "j_outer", "i_inner", "j_inner", "k"]
    s[C].reorder(*axes[:2], C.op.reduce_axis[0], *axes[2:])
    check(s, [A, B, C])


def test_tile_is_recorded_as_a_whole_or_not_at_all(expect, told):
    _A, _B, C = matmul()
    s = te.create_schedule(C.op)
    with pytest.raises(ValueError) as caught:
        s[C].tile(*C.op.axis, 4, 0)
    expect(
        told(caught),
        """
        s[C].split: the factor is 0; it must be a whole number from 1 on
        """,
    )
    assert names(s[C].leaf_iter_vars) == ["i", "j", "k"] and s[C].relations == []
    s[C].tile(*C.op.axis, 4, 2)


def test_splits_of_splits_and_of_fused_axes():
    A, B, C = matmul(12, 10, 8)
    s = te.create_schedule(C.op)
    f = s[C].fuse(*C.op.axis)
    a, b = s[C].split(f, factor=24)
    b, c = s[C].split(b, nparts=3)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=3)
    s[C].reorder(a, ko, b, ki, c)
    check(s, [A, B, C])


# ---------------------------------------------------------------------------- marks
def test_marks(expect):
    A, B, C = matmul(8, 8, 8)
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 4)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].parallel(xo)
    s[C].unroll(ki)
    s[C].vectorize(yi)
    s[C].pragma(xo, "auto_unroll_max_step", 16)
    s[C].pragma(ko, "mine")
    kinds = {axis: attr.iter_type for axis, attr in s[C].iter_var_attrs.items()}
    parallel, unrolled, lanes = IterVar.Parallelized, IterVar.Unrolled, IterVar.Vectorized
    assert kinds == {xo: parallel, ki: unrolled, yi: lanes, ko: IterVar.DataPar}
    assert [k.value for k in s[C].iter_var_attrs[ko].pragma_keys] == ["mine"]
    expect(
        s.to_prim_func([A, B, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i_outer in T.parallel(2, annotations={"pragma_auto_unroll_max_step": 16}):
                for j_outer in range(2):
                    for k_outer in T.serial(2, annotations={"pragma_mine": 1}):
                        for i_inner in range(4):
                            for k_inner in T.unroll(4):
                                for j_inner in T.vectorized(4):
                                    with T.block("C"):
                                        v_i = T.axis.spatial(8, i_outer * 4 + i_inner)
                                        v_j = T.axis.spatial(8, j_outer * 4 + j_inner)
                                        v_k = T.axis.reduce(8, k_outer * 4 + k_inner)
                                        T.reads(A[v_i, v_k], B[v_k, v_j])
                                        T.writes(C[v_i, v_j])
                                        with T.init():
                                            C[v_i, v_j] = T.float32(0)
                                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )
    check(s, [A, B, C])


def test_bind(expect):
    A, B, C = matmul(8, 8, 8)
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 4)
    for axis, thread in zip(
        (xo, yo, xi, yi), ("blockIdx.x", "blockIdx.y", "vthread", "threadIdx.x"), strict=True
    ):
        s[C].bind(axis, te.thread_axis(thread))
    expect(
        s.to_prim_func([A, B, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i_outer in T.thread_binding(2, thread="blockIdx.x"):
                for j_outer in T.thread_binding(2, thread="blockIdx.y"):
                    for i_inner in T.thread_binding(4, thread="vthread"):
                        for j_inner in T.thread_binding(4, thread="threadIdx.x"):
                            for k in range(8):
                                with T.block("C"):
                                    v_i = T.axis.spatial(8, i_outer * 4 + i_inner)
                                    v_j = T.axis.spatial(8, j_outer * 4 + j_inner)
                                    v_k = T.axis.reduce(8, k)
                                    T.reads(A[v_i, v_k], B[v_k, v_j])
                                    T.writes(C[v_i, v_j])
                                    with T.init():
                                        C[v_i, v_j] = T.float32(0)
                                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )
    check(s, [A, B, C], target=None)


@pytest.mark.parametrize("kind", ["vectorize", "unroll", "parallel"])
def test_pragmas_that_are_marks(kind):
    A, B, C = matmul(8, 8, 8)
    s, t = te.create_schedule(C.op), te.create_schedule(C.op)
    s[C].pragma(C.op.axis[1], kind)
    getattr(t[C], kind)(C.op.axis[1])
    assert_structural_equal(s.to_prim_func([A, B, C]), t.to_prim_func([A, B, C]))


def test_compute_root_is_where_stages_are():
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    before = s.to_prim_func([A, B, C])
    s[C].compute_root()
    assert s[C].attach_type == 1
    assert_structural_equal(s.to_prim_func([A, B, C]), before)


# ---------------------------------------------------------------------------- order
def test_lines_that_do_not_depend_on_each_other_may_stand_in_any_order():
    A, B, C = matmul(8, 8, 8)
    D = te.compute(C.shape, lambda i, j: C[i, j] * 2, name="D")

    def on_c(s):
        xo, xi = s[C].split(C.op.axis[0], factor=4)
        s[C].reorder(xo, C.op.reduce_axis[0], xi, C.op.axis[1])
        s[C].vectorize(C.op.axis[1])

    def on_d(s):
        s[D].parallel(D.op.axis[0])

    made = []
    for order in ((on_c, on_d), (on_d, on_c)):
        s = te.create_schedule(D.op)
        for part in order:
            part(s)
        made.append(s.to_prim_func([A, B, D]))
    assert_structural_equal(*made)


def test_marks_may_stand_before_a_reorder():
    A, B, C = matmul(8, 8, 8)
    s, t = te.create_schedule(C.op), te.create_schedule(C.op)
    (i, j), (k,) = C.op.axis, C.op.reduce_axis
    s[C].vectorize(j)
    s[C].reorder(i, k, j)
    t[C].reorder(i, k, j)
    t[C].vectorize(j)
    assert_structural_equal(s.to_prim_func([A, B, C]), t.to_prim_func([A, B, C]))


def test_a_schedule_can_be_lowered_again_and_again():
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    first = tvm.lower(s, [A, B, C])
    _xo, _xi = s[C].split(C.op.axis[0], factor=4)
    second = tvm.lower(s, [A, B, C])
    assert not structural_equal(first, second)
    assert_structural_equal(tvm.lower(s, [A, B, C]), second)


# ---------------------------------------------------------------------------- errors
def text_of(call, kind=ScheduleError):
    with pytest.raises(kind) as caught:
        call()
    return re.sub(r"(at \S+\.py):\d+", r"\1:LINE", str(caught.value))


def test_axes_that_are_not_there(expect):
    A, _B, C = matmul()
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    s[C].split(i, factor=2)
    expect(
        text_of(lambda: s[C].vectorize(i)),
        """
        s[C].vectorize: axis `i` is not a loop of this stage (it was split or fused)
          at test_te_schedule.py:LINE

          hint: the loops are i_outer, i_inner, j, k
        """,
    )
    other = te.compute((3,), lambda x: A[x, x], name="other")
    expect(
        text_of(lambda: s[C].reorder(other.op.axis[0], j)),
        """
        s[C].reorder: axis `x` is not a loop of this stage (it is another's)
          at test_te_schedule.py:LINE

          hint: the loops are i_outer, i_inner, j, k
        """,
    )
    expect(
        text_of(lambda: s[A].split(j, factor=2)),
        """
        s[A].split: axis `j` is not a loop of this stage (it is another's)
          at test_te_schedule.py:LINE

          hint: the loops are none
        """,
    )
    expect(
        text_of(lambda: s[C].split("j", factor=2)),
        """
        s[C].split: 'j' is not an axis
          at test_te_schedule.py:LINE
        """,
    )


def test_splits_that_mean_nothing(expect):
    _A, _B, C = matmul()
    s = te.create_schedule(C.op)
    i = C.op.axis[0]
    expect(
        text_of(lambda: s[C].split(i), ValueError),
        """
        s[C].split takes exactly one of factor and nparts
        """,
    )
    expect(
        text_of(lambda: s[C].split(i, factor=2, nparts=2), ValueError),
        """
        s[C].split takes exactly one of factor and nparts
        """,
    )
    expect(
        text_of(lambda: s[C].split(i, factor=0), ValueError),
        """
        s[C].split: the factor is 0; it must be a whole number from 1 on
        """,
    )
    expect(
        text_of(lambda: s[C].split(i, nparts=-1), ValueError),
        """
        s[C].split: the nparts is -1; it must be a whole number from 1 on
        """,
    )
    expect(
        text_of(lambda: s[C].split(i, factor=2.5), ValueError),
        """
        s[C].split: the factor is T.float32(2.5); it must be a whole number from 1 on
        """,
    )
    assert s[C].relations == []


def test_fuses_that_mean_nothing(expect):
    _A, _B, C = matmul()
    s = te.create_schedule(C.op)
    (i, j), (k,) = C.op.axis, C.op.reduce_axis
    expect(
        text_of(lambda: s[C].fuse(j, i)),
        """
        s[C].fuse: `i` is not directly inside `j`
          at test_te_schedule.py:LINE

          hint: reorder them to be adjacent, outermost first
        """,
    )
    expect(
        text_of(lambda: s[C].fuse(i, k)),
        """
        s[C].fuse: `k` is not directly inside `i`
          at test_te_schedule.py:LINE

          hint: reorder them to be adjacent, outermost first
        """,
    )
    assert s[C].relations == [] and names(s[C].leaf_iter_vars) == ["i", "j", "k"]


def test_other_calls_that_mean_nothing(expect):
    _A, _B, C = matmul()
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    expect(
        text_of(lambda: s[C].reorder(i, j, i)),
        """
        s[C].reorder: an axis is named twice
          at test_te_schedule.py:LINE
        """,
    )
    expect(
        text_of(lambda: s[C].bind(i, "threadIdx.x")),
        """
        s[C].bind takes a te.thread_axis, not 'threadIdx.x'
          at test_te_schedule.py:LINE
        """,
    )


def test_what_only_lowering_can_tell_names_the_line_of_the_schedule(expect):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    line = inspect.currentframe().f_lineno + 1
    s[C].parallel(C.op.reduce_axis[0])
    with pytest.raises(ScheduleError) as caught:
        tvm.lower(s, [A, B, C])
    assert f"  at test_te_schedule.py:{line}\n" in str(caught.value)
    expect(
        re.sub(r":\d+\n", ":LINE\n", str(caught.value)),
        """
        parallel(k): loop `k` carries the reduction of block C
          at test_te_schedule.py:LINE

          | def main(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          |         with T.block("C"):
          |             v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
          |             T.reads(A[v_i, v_k], B[v_k, v_j])
          |             T.writes(C[v_i, v_j])
          |             with T.init():
          |                 C[v_i, v_j] = T.float32(0)
          |             C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]

          hint: use rfactor(k) first, or parallel(i)
        """,
    )


def test_a_mark_before_a_split_is_refused_when_it_is_lowered(expect, told):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    s[C].vectorize(C.op.axis[1])
    s[C].split(C.op.axis[1], factor=2)
    with pytest.raises(ScheduleError) as caught:
        tvm.lower(s, [A, B, C])
    expect(
        told(caught),
        """
        split(j, factors=[None, 2], names=['j_outer', 'j_inner']): loop `j` is already marked vectorize
          at test_te_schedule.py:LINE

          | def main(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for i in range(7):
          |         for j in T.vectorized(6):    # <-- here
          |             for k in range(5):
          |                 with T.block("C"):
          |                     v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
          |                     T.reads(A[v_i, v_k], B[v_k, v_j])
          |                     T.writes(C[v_i, v_j])
          |                     with T.init():
          |                         C[v_i, v_j] = T.float32(0)
          |                     C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]

          hint: split first, then vectorize the part you want
        """,
    )


def test_trace(expect, told):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    with pytest.raises(ScheduleError) as caught:
        s.trace  # noqa: B018
    expect(
        told(caught),
        """
        the schedule has no trace before it is lowered: call tvm.lower(s, args) first
        """,
    )
    s[C].split(C.op.axis[0], factor=4)
    tvm.lower(s, [A, B, C])
    assert "sch.split(" in str(s.trace)


def test_names_that_do_not_exist():
    _A, _B, C = matmul()
    s = te.create_schedule(C.op)
    with pytest.raises(AttributeError, match="'Stage' object has no attribute 'splitt'"):
        s[C].splitt()
    with pytest.raises(AttributeError, match="'Schedule' object has no attribute 'splitt'"):
        s.splitt()


# ---------------------------------------------------------------------------- the classic functions
def test_infer_bound():
    _A, _B, C = matmul()
    s = te.create_schedule(C.op).normalize()
    _xo, _xi = s[C].split(C.op.axis[0], factor=4)
    bounds = te.schedule.InferBound(s)
    assert {iv.var.name: str(r.extent) for iv, r in bounds.items()} == {
        "i": "7",
        "j": "6",
        "k": "5",
        "i_outer": "2",
        "i_inner": "4",
    }
    assert all(str(r.min) == "0" for r in bounds.values())


def test_schedule_ops(expect, told):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    s[C].split(C.op.axis[0], factor=4)
    bounds = te.schedule.InferBound(s)
    stmt = te.schedule.ScheduleOps(s, bounds)
    assert isinstance(stmt, tir.Stmt)
    assert "i_outer, i_inner" in str(stmt)
    func = te.schedule.SchedulePostProcToPrimFunc([A, B, C], s)
    assert_structural_equal(func, s.to_prim_func([A, B, C]))
    with pytest.raises(TypeError) as caught:
        te.schedule.SchedulePostProcToPrimFunc([A], "s")
    expect(
        told(caught),
        """
        expected a te.Schedule, not str
        """,
    )


# ---------------------------------------------------------------------------- kinds of operations
def test_operations_of_two_outputs():
    A = te.placeholder((6, 4), name="A")
    B, C = te.compute((6, 4), lambda i, j: (A[i, j] + 1, A[i, j] * 2), name="B")
    s = te.create_schedule(B.op)
    assert s[B] is s[C]
    _xo, _xi = s[B].split(B.op.axis[0], factor=4)
    s[B].vectorize(B.op.axis[1])
    check(s, [A, B, C])


def test_scalars_have_no_loops():
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A() + 1, name="B")
    s = te.create_schedule(B.op)
    assert names(s[B].leaf_iter_vars) == []
    check(s, [A, B])


def test_full_reductions():
    A = te.placeholder((40,), name="A")
    k = te.reduce_axis((0, 40), "k")
    B = te.compute((), lambda: te.sum(A[k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    s[B].unroll(ki)
    check(s, [A, B])


def test_symbolic_shapes():
    n = te.var("n")
    A = te.placeholder((n, 8), name="A")
    B = te.compute((n, 8), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    xo, _xi = s[B].split(B.op.axis[0], factor=4)
    s[B].parallel(xo)
    s[B].vectorize(B.op.axis[1])
    f = tvm.build(s, [A, B], target="llvm")
    for rows in (1, 4, 7):
        a = np.arange(rows * 8, dtype="float32").reshape(rows, 8)
        b = np.zeros_like(a)
        f(a, b)
        np.testing.assert_array_equal(b, a + 1)


def test_factors_that_are_expressions():
    n = te.var("n")
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].split(B.op.axis[0], factor=tir.const(4))
    s[B].split(B.op.axis[1], nparts=n)
    func = s.to_prim_func([A, B])
    a = np.arange(25, dtype="float32").reshape(5, 5)
    b = np.zeros_like(a)
    tir.interpret(func, a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_externs_and_scans_have_no_axes_to_schedule():
    n = 6
    X = te.placeholder((n, 3), name="X")
    state = te.placeholder((n, 3), name="state")
    init = te.compute((1, 3), lambda _, i: X[0, i], name="init")
    update = te.compute((n, 3), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    scanned = te.scan(init, update, state, inputs=[X], name="scanned")
    s = te.create_schedule(scanned.op)
    assert "update" in [stage.op.name for stage in s.stages]
    x = np.arange(18, dtype="float32").reshape(6, 3)
    y = np.zeros_like(x)
    tvm.build(s, [X, scanned], target="llvm")(x, y)
    np.testing.assert_allclose(y, x.cumsum(0))


@pytest.mark.parametrize("how", [{"factor": 4}, {"nparts": 4}])
@pytest.mark.parametrize("shape", ["n m", "5 n", "n 5"])
def test_parts_of_a_fused_loop_over_symbols_run_in_parallel(shape, how):
    sizes = {name: te.var(name) for name in "nm"}
    dims = tuple(sizes.get(d) if d in sizes else int(d) for d in shape.split())
    A = te.placeholder(dims, name="A")
    B = te.compute(dims, lambda i, j: A[i, j] * 2, name="B")
    s = te.create_schedule(B.op)
    outer, _ = s[B].split(s[B].fuse(*B.op.axis), **how)
    s[B].parallel(outer)
    f = tvm.build(s, [A, B], "llvm")
    a = np.arange(7 * 5, dtype="float32").reshape([7 if d == "n" else 5 for d in shape.split()])
    out = np.zeros_like(a)
    f(a, out)
    assert (out == a * 2).all()
