"""What programs written for the classic stack do with stages: sizes, arguments, layouts, and what an operation tells."""

from __future__ import annotations

import numpy as np
import pytest
from te_stage_programs import blur, matmul, refusal, same

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import IterVar, Reduce


def run(s, args, *arrays):
    """The arguments after the compiled program ran on copies of `arrays`."""
    held = [tvm.nd.array(a) for a in arrays]
    tvm.build(s, args, target="llvm")(*held)
    return [a.numpy() for a in held]


# ---------------------------------------------------------------------------- sizes
def test_sizes_that_division_made_floats():
    n, bn = 32, 8
    A = te.placeholder((n / bn, bn), name="A")
    k = te.reduce_axis((0, n / 4), "k")
    B = te.compute((n / bn, n / 8), lambda i, j: te.sum(A[i, k] * j, axis=k), name="B")
    assert [d.value for d in (*A.shape, *B.shape, k.dom.extent)] == [4, 8, 4, 4, 8]
    s = te.create_schedule(B.op)
    _outer, inner = s[B].split(B.op.axis[1], factor=bn / 4)
    assert inner.dom.extent.value == 2
    assert tir.decl_buffer((n / bn, 2)).shape[0].dtype == "int32"
    same(s, [A, B])


def test_a_size_that_is_no_integer_is_refused():
    with pytest.raises(tvm.TVMError, match=r"dimension 0 of the shape is 4\.5 and must be an integer"):
        te.placeholder((9 / 2,), name="A")


# ---------------------------------------------------------------------------- arguments that are computed elsewhere
def chain(n=20):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    return A, B, te.compute((n,), lambda i: B[i] * 2, name="C")


@pytest.mark.parametrize("inlined", [False, True])
def test_an_argument_that_is_computed_in_its_consumer(inlined):
    A, B, C = chain()
    s = te.create_schedule(C.op)
    outer, _inner = s[C].split(C.op.axis[0], factor=7)
    if inlined:
        s[B].compute_inline()
    else:
        s[B].compute_at(s[C], outer)
    a = np.arange(20, dtype="float32")
    _, b, c = run(s, [A, B, C], a, a * 0 - 1, a * 0)
    np.testing.assert_array_equal(c, 2 * (a + 1))
    np.testing.assert_array_equal(b, a * 0 - 1 if inlined else a + 1)  # an inlined stage is stored nowhere


def test_a_loop_that_was_split_later_still_holds_a_stage():
    A, B, C = blur()
    for last in (
        lambda s: s[C].split(C.op.axis[1], factor=5),
        lambda s: s[C].fuse(*C.op.axis),
    ):
        s = te.create_schedule(C.op)
        s[B].compute_at(s[C], C.op.axis[1])
        last(s)
        assert s[B].attach_ivar in s[C].leaf_iter_vars
        same(s, [A, C], build=False)


# ---------------------------------------------------------------------------- axes
def test_an_axis_of_extent_one():
    X = te.placeholder((10,), "int32", "X")
    k = te.reduce_axis((0, 10), "k")
    Y = te.compute((), lambda: te.sum(X[k], axis=k), name="Y")
    s = te.create_schedule(Y.op)
    axis = s[Y].fuse(*Y.op.axis)
    assert s[Y].leaf_iter_vars == [axis, k] and isinstance(s[Y].relations[0], te.schedule.Singleton)
    s[Y].split(axis, nparts=4)
    same(s, [X, Y])


def test_a_reduction_fused_with_the_axis_outside_it():
    A, B, C = matmul(4, 5, 6)
    s = te.create_schedule(C.op)
    fused = s[C].fuse(C.op.axis[1], C.op.reduce_axis[0])
    assert fused.iter_type == IterVar.CommReduce and isinstance(s[C].relations[-1], te.schedule.Fuse)
    same(s, [A, B, C])


# ---------------------------------------------------------------------------- caches
def test_a_cache_of_two_outputs():
    A, B = (te.placeholder((8, 6), name=n) for n in "AB")
    C, D = te.compute((8, 6), lambda i, j: (A[i, j] + 1, B[i, j] * 2), name="C")
    s = te.create_schedule([C.op, D.op])
    AL = s.cache_read(A, "local", [C])
    CL, DL = s.cache_write([C, D], "local")
    assert CL.op is DL.op and s[CL].op.input_tensors == (AL, B)
    s[CL].compute_at(s[C], C.op.axis[0])
    a, b = np.random.default_rng(0).random((2, 8, 6), "float32")
    *_, c, d = run(s, [A, B, C, D], a, b, a * 0, a * 0)
    np.testing.assert_array_equal(c, a + 1)
    np.testing.assert_array_equal(d, b * 2)
    assert "a list" in refusal(lambda: te.create_schedule(C.op).cache_write(C, "local"))


def test_a_cache_has_the_layout_of_the_loops():
    A, B, C = matmul(8, 6, 5)
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    xo, xi = s[C].split(x, factor=4)
    s[C].reorder(xo, y, xi)
    CC = s.cache_write(C, "global")
    assert [int(d) for d in CC.shape] == [2, 6, 4] and s[C].leaf_iter_vars == [x, y]
    func = same(s, [A, B, C])
    assert "C_global = T.alloc_buffer((2, 6, 4))" in str(func)


# ---------------------------------------------------------------------------- what operations tell
def test_operations_of_caches_say_what_they_compute():
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    AA = s.cache_read(A, "shared", [C])
    CC = s.cache_write(C, "local")
    assert str(AA.op.body[0]) == "A[ax0, ax1]"
    assert s[CC].op.input_tensors == (AA, B) and isinstance(CC.op.body[0], Reduce)
    assert str(s[C].op.body[0]) == "C_local[i, j]" and s[C].op.output(0).shape == C.shape
    assert s[C.op] is s[s[C].op]


def test_operations_of_factors_say_what_they_compute():
    A, B, C = matmul(4, 5, 6)
    k = C.op.reduce_axis[0]
    s = te.create_schedule(C.op)
    ko, ki = s[C].split(k, factor=4)
    xo, _xi = s[C].split(C.op.axis[0], factor=2)  # stays with the stage
    CF = s.rfactor(C, ki)
    (body,) = CF.op.body
    assert [iv.var.name for iv in body.axis] == ["k_outer"] and body.axis[0] is ko
    assert str(body.condition) == "k_outer * 4 + k_inner < 6"
    assert str(s[C].op.body[0].source[0]) == "C_rf[k_inner_v, i, j]"
    s[C].parallel(xo)
    same(s, [A, B, C])


def test_bounds_follow_the_place_of_a_stage():
    A, B, C = blur()
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 2, 4)
    s[B].compute_at(s[C], yo)
    bounds = te.schedule.InferBound(s)
    assert isinstance(bounds, tvm.runtime.container.Map)
    assert [str(bounds[iv].extent) for iv in B.op.axis] == ["4", "4"]
    assert [str(bounds[iv].extent) for iv in (*C.op.axis, xo, yo, xi, yi)] == ["10", "12", "5", "3", "2", "4"]


# ---------------------------------------------------------------------------- layouts
def test_the_layout_of_an_input():
    A = te.placeholder((24,), "int32", "A")
    B = te.compute((24,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    axes = s[A].transform_layout(lambda i: [i // 4, i % 4])
    assert [int(iv.dom.extent) for iv in axes] == [6, 4]
    a = np.arange(24, dtype="int32")
    _, b = run(s, [A, B], a.reshape(6, 4), a * 0)
    np.testing.assert_array_equal(b, a + 1)


def test_a_layout_of_two_physical_dimensions():
    A = te.placeholder((2, 3, 4), name="A")
    B = te.compute(A.shape, lambda i, j, k: A[i, j, k], name="B")
    s = te.create_schedule(B.op)
    s[B].transform_layout(lambda i, j, k: [k, j, te.AXIS_SEPARATOR, i])
    made = s.to_prim_func([A, B]).buffer_params()[1]
    assert [int(d) for d in made.shape] == [4, 3, 2] and made.axis_separators == (2,)


def test_a_second_instruction_for_an_axis_replaces_the_first():
    def intrin(n, name):
        a = te.placeholder((n,), name="a")
        c = te.compute((n,), lambda i: a[i] + 1, name="c")
        return te.decl_tensor_intrin(
            c.op,
            lambda ins, outs: tir.call_extern("int32", name, outs[0].access_ptr("w")),
            name=name,
            default_buffer_params={"offset_factor": 1},
        )

    A = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda i: A[i] + 1, name="C")
    s = te.create_schedule(C.op)
    _o, inner = s[C].split(C.op.axis[0], factor=4)
    s[C].tensorize(inner, intrin(8, "first"))
    with pytest.raises(ScheduleError):
        tvm.lower(s, [A, C])
    s[C].tensorize(inner, intrin(4, "second"))
    assert '"second"' in str(tvm.lower(s, [A, C]))


# ---------------------------------------------------------------------------- scans
def recurrence(m=6, n=10):
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    s1 = te.compute((m, n), lambda t, i: state[t - 1, i] * 2, name="s1")
    s2 = te.compute((m, n), lambda t, i: s1[t, i] + X[t, i], name="s2")
    return X, s1, s2, te.scan(init, s2, state, inputs=[X])


@pytest.mark.parametrize("inlined", [False, True])
def test_a_step_of_several_stages(inlined):
    X, s1, s2, result = recurrence()
    s = te.create_schedule(result.op)
    outer, _inner = s[s2].split(s2.op.axis[1], factor=4)
    if inlined:
        s[s1].compute_inline()
    else:
        s[s1].compute_at(s[s2], outer)
    x = np.random.default_rng(0).integers(-4, 4, (6, 10)).astype("float32")
    _, got = run(s, [X, result], x, x * 0)
    want = x.copy()
    for t in range(1, 6):
        want[t] = want[t - 1] * 2 + x[t]
    np.testing.assert_array_equal(got, want)


def test_a_stage_that_reads_other_elements_of_the_step_before():
    m, n = 6, 10
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    # reads the step before at other elements: fine in its own loop, and inside of another one
    s1 = te.compute((m, n), lambda t, i: state[t - 1, n - 1 - i], name="s1")
    s2 = te.compute((m, n), lambda t, i: s1[t, i] + 1, name="s2")
    result = te.scan(init, s2, state, inputs=[X])
    s = te.create_schedule(result.op)
    s[s1].compute_at(s[s2], s2.op.axis[1])
    x = np.arange(60, dtype="float32").reshape(m, n)
    _, got = run(s, [X, result], x, x * 0)
    want = x.copy()
    for t in range(1, m):
        want[t] = want[t - 1][::-1] + 1
    np.testing.assert_array_equal(got, want)


def test_graphs_of_operations():
    A, B, C = blur()
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[1])
    graph = te.schedule.CreateReadGraph([C.op])
    assert list(graph) == [A.op, B.op, C.op] and graph[C.op] == [B]
    assert te.schedule.PostDFSOrder([C.op], graph) == [A.op, B.op, C.op]
    path = te.schedule.CreateAttachPath(s)
    assert path[B.op] == [C.op.axis[1], C.op.axis[0]] and path[C.op] == []
    _X, s1, s2, result = recurrence()
    assert te.schedule.ScanGetBody(result.op) == [s1.op, s2.op]


# ---------------------------------------------------------------------------- buffers that broadcast
def test_a_dimension_of_one_stands_for_any_size():
    m, n, o = ([te.size_var(f"{x}{i}") for i in range(3)] for x in "mno")
    A, B = te.placeholder(m, name="A"), te.placeholder(n, name="B")
    C = te.compute(o, lambda *i: A[i] + B[i], name="C")
    binds = {t: tir.decl_buffer(t.shape, t.dtype, t.op.name, buffer_type="auto_broadcast") for t in (A, B)}
    add = tvm.build(te.create_schedule(C.op), [A, B, C], "llvm", binds=binds)
    rng = np.random.default_rng(0)
    a = rng.random((2, 4, 3), "float32")
    for shape in ((2, 1, 1), (1, 4, 1), (2, 4, 3), (1, 1, 1)):
        b, c = rng.random(shape, "float32"), tvm.nd.array(a * 0)
        add(tvm.nd.array(a), tvm.nd.array(b), c)
        np.testing.assert_array_equal(c.numpy(), a + b)


def test_what_buffers_that_broadcast_refuse():
    with pytest.raises(ValueError, match="the types are 'default' and 'auto_broadcast'"):
        tir.decl_buffer((4,), buffer_type="circular")
    with pytest.raises(ValueError, match="has the strides of its shape; give none"):
        tir.decl_buffer((4,), strides=[2], buffer_type="auto_broadcast")


# ---------------------------------------------------------------------------- ranges that depend on the point
def test_a_reduction_over_a_triangle():
    X = te.placeholder((9,), name="X")

    def rule(i):
        k = te.reduce_axis((i, i * 2 - 1), "k")
        return te.sum(X[k], axis=k)

    Y = te.compute((5,), rule, name="Y")
    (k,) = Y.op.reduce_axis
    assert str(k.dom) == "Range(0, 7)" and "k" in str(Y.op.body[0].condition)
    s = te.create_schedule(Y.op)
    s[Y].split(k, factor=2)
    func = same(s, [X, Y])
    x = np.arange(9, dtype="float32")
    y = np.zeros(5, "float32")
    tir.interpret(func, x, y)
    np.testing.assert_array_equal(y, [x[i : max(i, 2 * i - 1)].sum() for i in range(5)])


def test_a_reducer_that_depends_on_the_point():
    X = te.placeholder((6,), name="X")
    k = te.reduce_axis((0, 6), "k")

    def rule(i):
        longest = te.comm_reducer(lambda x, y: te.max(x + y, i.astype("float32")), lambda t: te.const(0, t))
        return longest(X[k], axis=k)

    Y = te.compute((4,), rule, name="Y")
    x = np.array([-9, 1, 2, -1, 0, 1], "float32")
    _, y = run(te.create_schedule(Y.op), [X, Y], x, np.zeros(4, "float32"))
    want = []
    for i in range(4):
        total = 0
        for value in x:
            total = max(total + value, i)
        want.append(total)
    np.testing.assert_array_equal(y, want)


def test_the_type_of_indices_may_stand_behind_the_tensors():
    A, _B, C = chain(4)
    assert te.create_prim_func([A, C], None).buffer_params()[0].shape[0].dtype == "int32"
    assert te.create_prim_func([A, C], "int64").buffer_params()[0].shape[0].dtype == "int64"


def test_a_vectorized_reduction_axis_is_refused_where_it_is_written() -> None:
    V = te.placeholder((128,), name="V")
    k = te.reduce_axis((0, 128), name="k")
    total = te.compute((1,), lambda _: te.sum(V[k], axis=k), name="total")
    s = te.create_schedule(total.op)
    _, inner = s[total].split(k, 8)
    for axis in (inner,):
        with pytest.raises(RuntimeError, match=r"s\[total\].vectorize: k.inner is a reduction axis"):
            s[total].vectorize(axis)
