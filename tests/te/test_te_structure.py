"""The loop programs that tensor expressions give, as text and as nodes."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import ops as tir
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.equal import structural_equal
from tilewright.ir.expr import BufferLoad, IntImm, IterVar, ProducerLoad
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block, BufferStore, For, LetStmt


def text(func) -> str:
    """The script without its header."""
    return func.script().split("\n\n", 1)[1].rstrip()


def expect(func, wanted: str) -> None:
    assert text(func) == textwrap.dedent(wanted).strip()


def blocks(func) -> dict[str, Block]:
    return {b.name_hint: b for b in pre_order(func.body) if isinstance(b, Block)}


def test_matmul_with_a_consumer():
    A = te.placeholder((16, 32), name="A")
    B = te.placeholder((32, 8), name="B")
    k = te.reduce_axis((0, 32), name="k")
    C = te.compute((16, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((16, 8), lambda i, j: te.exp(C[i, j]), name="D")
    func = te.create_prim_func([A, B, D])
    assert func.attrs == {"global_symbol": "main", "tir.noalias": True}
    expect(
        func,
        """
        @T.prim_func
        def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((32, 8), "float32"), D: T.Buffer((16, 8), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            C = T.alloc_buffer((16, 8))
            for i, j, k in T.grid(16, 8, 32):
                with T.block("C"):
                    v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[v_i, v_k], B[v_k, v_j])
                    T.writes(C[v_i, v_j])
                    with T.init():
                        C[v_i, v_j] = T.float32(0)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for i, j in T.grid(16, 8):
                with T.block("D"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.reads(C[v_i, v_j])
                    T.writes(D[v_i, v_j])
                    D[v_i, v_j] = T.exp(C[v_i, v_j])
        """,
    )


def test_starred_indices_are_named_i0_i1():
    A = te.placeholder((8, 4), name="A")
    B = te.compute(A.shape, lambda *i: A(*i) + 1.0, name="B")
    assert [iv.var.name for iv in B.op.axis] == ["i0", "i1"]
    C = te.compute((2, 3, 4), lambda n, *hw: A[n, hw[1]], name="C")
    assert [iv.var.name for iv in C.op.axis] == ["n", "i0", "i1"]
    D = te.compute((2, 3), lambda *i: A(*i), name="D", varargs_names=["x", "y"])
    assert [iv.var.name for iv in D.op.axis] == ["x", "y"]


def test_argmax_combines_both_parts_before_storing_either():
    argmax = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda index, value: (te.const(-1, index), te.min_value(value)),
        name="argmax",
    )
    idx = te.placeholder((4, 8), "int32", "idx")
    val = te.placeholder((4, 8), "float32", "val")
    k = te.reduce_axis((0, 8), "k")
    best = te.compute((4,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="best")
    expect(
        te.create_prim_func([idx, val, *best]),
        """
        @T.prim_func
        def main(idx: T.Buffer((4, 8), "int32"), val: T.Buffer((4, 8), "float32"), best_v0: T.Buffer((4,), "int32"), best_v1: T.Buffer((4,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i, k in T.grid(4, 8):
                with T.block("best"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    T.reads(idx[v_i, v_k], val[v_i, v_k])
                    T.writes(best_v0[v_i], best_v1[v_i])
                    T.block_attr({"tir.any_order": T.bool(True)})
                    with T.init():
                        best_v0[v_i] = -1
                        best_v1[v_i] = T.float32(-3.4028234663852886e+38)
                    v_best_v0: T.int32 = T.if_then_else(best_v1[v_i] >= val[v_i, v_k], best_v0[v_i], idx[v_i, v_k])
                    v_best_v1: T.float32 = T.max(best_v1[v_i], val[v_i, v_k])
                    best_v0[v_i] = v_best_v0
                    best_v1[v_i] = v_best_v1
        """,
    )
    assert [t.name for t in best] == ["best.v0", "best.v1"]


def test_scan_runs_its_body_step_by_step():
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda t, i: X[0, i], name="first")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    S = te.scan(init, update, state, inputs=[X], name="S")
    func, names = te.build_prim_func([X, S])
    found = blocks(func)
    assert list(found) == ["root", "first", "S_init", "update", "S"]
    assert names == {init.op: "first", update.op: "update", S.op: "S"}
    loop = func.body.block.body.seq[2]
    assert isinstance(loop, For) and loop.loop_var.name == "S_idx" and loop.min.value == 1
    step = found["update"]
    assert [iv.iter_type for iv in step.iter_vars] == [IterVar.Ordered, IterVar.DataPar]
    read = {r.buffer.name: r for r in step.reads}
    assert set(read) == {"S", "X"}, "the state lies in the result"


def test_extern_is_an_opaque_block_over_whole_buffers():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    row = te.compute((n,), lambda i: A[i] * 2.0, name="row")
    B = te.extern((n,), [row], lambda ins, outs: tir.call_packed("negate", ins[0], outs[0]), name="B")
    func = te.create_prim_func([A, B])
    block = blocks(func)["B"]
    assert block.iter_vars == ()
    (read,), (write,) = block.reads, block.writes
    assert read.buffer is func.body.block.alloc_buffers[0] and write.buffer is func.buffer_params()[1]
    assert str(read.region[0].extent) == "n"
    call = block.body.value
    assert [a.args[0] for a in call.args[1:]] == [read.buffer.data, write.buffer.data]
    assert all(a.args[-1].value == 0 for a in call.args[1:]), "the elements' offsets are known"


def test_a_stencil_reads_the_box_around_its_points():
    A = te.placeholder((18, 16), name="A")
    B = te.compute((16, 16), lambda i, j: A[i, j] + A[i + 2, j] + A[i + 1, j], name="B")
    (region,) = blocks(te.create_prim_func([A, B]))["B"].reads
    assert [str(r.min) for r in region.region] == ["v_i", "v_j"]
    assert [r.extent.value for r in region.region] == [3, 1]


def test_points_of_unknown_distance_read_the_whole_dimension():
    A = te.placeholder((32, 16), name="A")
    B = te.compute((16, 16), lambda i, j: A[i, j] + A[i * 2, j], name="B")
    (region,) = blocks(te.create_prim_func([A, B]))["B"].reads
    assert (region.region[0].min.value, region.region[0].extent.value) == (0, 32)
    assert region.region[1].extent.value == 1


def test_a_gather_reads_the_whole_dimension_it_picks_from():
    A = te.placeholder((100, 16), name="A")
    I = te.placeholder((8,), "int32", "I")
    B = te.compute((8, 16), lambda i, j: A[I[i], j], name="B")
    reads = blocks(te.create_prim_func([A, I, B]))["B"].reads
    assert [r.buffer.name for r in reads] == ["A", "I"]
    assert (reads[0].region[0].min.value, reads[0].region[0].extent.value) == (0, 100)
    assert str(reads[0].region[1].min) == "v_j" and reads[0].region[1].extent.value == 1


def test_where_puts_the_identity_in_place_of_what_does_not_count():
    A = te.placeholder((8,), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((), lambda: te.max(A[k], axis=k, where=k > 3), name="B")
    store = blocks(te.create_prim_func([A, B]))["B"].body
    assert isinstance(store, BufferStore)
    assert str(store.value) == 'T.max(B[()], T.if_then_else(v_k > 3, A[v_k], T.float32("-inf")))'


def test_init_takes_the_place_of_the_identity():
    A = te.placeholder((4, 8), name="A")
    start = te.placeholder((4,), name="start")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=start[i]), name="B")
    block = blocks(te.create_prim_func([A, start, B]))["B"]
    assert isinstance(block.init.value, BufferLoad) and block.init.value.buffer.name == "start"
    assert {r.buffer.name for r in block.reads} == {"A", "start"}
    C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=2.5), name="C")
    assert blocks(te.create_prim_func([A, C]))["C"].init.value.value == 2.5


def test_a_scalar_compute_has_one_point():
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A() + 1.0, name="B")
    block = blocks(te.create_prim_func([A, B]))["B"]
    (point,) = block.iter_vars
    assert point.iter_type == IterVar.DataPar and point.dom.extent.value == 1
    assert block.body.indices == ()


def test_several_outputs_share_a_block():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="B")
    func, names = te.build_prim_func([A, *B])
    assert names == {B[0].op: "B"}
    assert [w.buffer.name for w in blocks(func)["B"].writes] == ["B_v0", "B_v1"]


def test_a_reduction_may_start_anywhere():
    A = te.placeholder((8,), name="A")
    k = te.reduce_axis((2, 6), "k")
    B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
    func = te.create_prim_func([A, B])
    loop = func.body.block.body.body
    assert (loop.min.value, loop.extent.value) == (2, 4)
    domain = blocks(func)["B"].iter_vars[1].dom
    assert (domain.min.value, domain.extent.value) == (2, 4)


def test_names_become_unique_only_in_the_function():
    A = te.placeholder((4,), name="X")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="X")
    C = te.compute((4,), lambda i: B[i] + 1.0, name="X")
    assert A.op.name == B.op.name == C.op.name == "X"
    func, names = te.build_prim_func([A, C])
    assert list(names.values()) == ["X", "X_1"]
    assert [b.name for b in (*func.buffer_params(), *func.body.block.alloc_buffers)] == ["X", "X_1", "X_2"]
    assert list(blocks(func)) == ["root", "X", "X_1"]


def test_names_that_are_no_identifiers_are_made_so():
    A = te.placeholder((4,), name="data.0")
    B = te.compute((4,), lambda i: A[i], name="1 to 1")
    func = te.create_prim_func([A, B])
    assert [b.name for b in func.buffer_params()] == ["data_0", "_1_to_1"]


def test_arguments_are_in_order_with_scalars_among_them():
    n, alpha = te.var("n"), te.var("alpha", "float32")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * alpha, name="B")
    func = te.create_prim_func([alpha, B, A])
    assert [p.name for p in func.params] == ["alpha", "var_B", "var_A"]
    assert func.params[0] is alpha
    same = te.create_prim_func(alpha, B, A)
    assert structural_equal(func, same)


def test_two_builds_share_no_definitions():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    one, two = te.create_prim_func([A, B]), te.create_prim_func([A, B])
    assert structural_equal(one, two)
    mine = {id(n.loop_var) for n in pre_order(one.body) if isinstance(n, For)}
    assert not mine & {id(n.loop_var) for n in pre_order(two.body) if isinstance(n, For)}


def test_outputs_that_are_no_arguments_are_computed_in_temporary_memory():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    func, names = te.build_prim_func([A], outputs=[B])
    assert names == {B.op: "B"}
    assert [b.name for b in func.body.block.alloc_buffers] == ["B"]


def test_tensors_can_be_bound_to_buffers():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    mine = decl_buffer((4,), "float32", "mine", data_alignment=128)
    func, _ = te.build_prim_func([mine, B], binds={A: mine})
    assert func.buffer_params()[0] is mine
    assert blocks(func)["B"].reads[0].buffer is mine


def test_symbolic_shapes_of_several_symbols():
    m, n = te.var("m"), te.size_var("n", "int64")
    A = te.placeholder((m, n), name="A")
    B = te.compute((m * 2 + 1, n), lambda i, j: A[i // 3, j], name="B")
    assert str(B.shape[0]) == "m * 2 + 1"
    func = te.create_prim_func([A, B])
    loops = [x for x in pre_order(func.body) if isinstance(x, For)]
    assert [x.loop_var.dtype for x in loops] == ["int32", "int64"]
    assert loops[1].extent is n


def test_indices_of_another_type():
    n = te.var("n")
    A = te.placeholder((n, 4), name="A")
    B = te.compute((n, 4), lambda i, j: te.if_then_else(i < 2, A[n - 1 - i, j], te.const(0.0)) + i, name="B")
    func = te.create_prim_func([A, B], index_dtype_override="int64")
    expect(
        func,
        """
        @T.prim_func
        def main(var_A: T.handle, var_B: T.handle):
            T.func_attr({"tir.noalias": T.bool(True)})
            n = T.int64()
            A = T.match_buffer(var_A, (n, T.int64(4)))
            B = T.match_buffer(var_B, (n, T.int64(4)))
            # with T.block("root"):
            for i, j in T.grid(n, T.int64(4)):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.reads(A[n - T.int64(1) - v_i, v_j])
                    T.writes(B[v_i, v_j])
                    B[v_i, v_j] = T.if_then_else(v_i < T.int64(2), A[n - T.int64(1) - v_i, v_j], T.float32(0)) + T.Cast("float32", T.Cast("int32", v_i))
        """,
    )


def test_attributes_become_annotations_and_layout_free_arguments():
    A = te.placeholder((4,), name="A")
    W = te.placeholder((4,), name="W")
    B = te.compute(
        (4,), lambda i: A[i] * W[i], name="B", attrs={"layout_free_placeholders": [W], "workload": "scale"}
    )
    func = te.create_prim_func([A, W, B])
    assert func.attrs["layout_free_buffers"] == [1]
    assert blocks(func)["B"].annotations == {"workload": "scale"}


@pytest.mark.slow
def test_a_long_chain():
    x = y = te.placeholder((4,), name="x")
    for _ in range(3000):
        y = y + 1.0
    _, names = te.build_prim_func([x, y])
    assert len(names) == 3000 and names[y.op] == "T_add_2999"


def test_an_expression_that_shares_its_parts_many_times():
    A = te.placeholder((4,), name="A")

    def many(i):
        value = A[i]
        for _ in range(60):
            value = value * value
        return value

    B = te.compute((4,), many, name="B")
    assert B.op.input_tensors == (A,)


def test_a_primfunc_as_an_operation():
    A = te.placeholder((4,), name="A")
    double = te.create_prim_func([A, te.compute((4,), lambda i: A[i] * 2.0, name="B")])
    X = te.placeholder((4,), name="X")
    first = te.extern_primfunc([X], double, name="first")
    second = te.extern_primfunc([first], double, name="second")
    func = te.create_prim_func([X, second])
    assert list(blocks(func)) == ["root", "first", "root_1", "B", "second", "root_2", "B_1"]
    stores = [n.buffer.name for n in pre_order(func.body) if isinstance(n, BufferStore)]
    assert stores == ["first", "second"]


def test_a_primfunc_of_symbolic_shape_takes_the_shape_of_its_inputs():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    double = te.create_prim_func([A, te.compute((n,), lambda i: A[i] * 2.0, name="B")])
    X = te.placeholder((6,), name="X")
    Y = te.extern_primfunc([X], double, name="Y")
    assert Y.shape[0].value == 6
    (loop,) = [x for x in pre_order(te.create_prim_func([X, Y]).body) if isinstance(x, For)]
    assert isinstance(loop.extent, IntImm) and loop.extent.value == 6


def test_operations_know_their_parts():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B", tag="comm_reduce")
    assert isinstance(A.op, te.PlaceholderOp) and isinstance(B.op, te.ComputeOp)
    assert B.op.input_tensors == (A,) and B.op.num_outputs == 1 and B.op.tag == "comm_reduce"
    assert [iv.var.name for iv in B.op.axis] == ["i"] and B.op.reduce_axis == (k,)
    assert B.op.output(0) == B and hash(B.op.output(0)) == hash(B)
    assert A != B and A != 3
    assert B.op.span.source_name == __file__
    assert str(A) == "Tensor(shape=[4, 8], op.name=A)"
    load = A[1, 2]
    assert isinstance(load, ProducerLoad) and load.producer is A
    assert isinstance(A[1], te.TensorSlice) and isinstance(A[1][2], ProducerLoad)
    assert structural_equal(A[1][2], A(1, 2))


def test_let_keeps_several_outputs_apart_only_where_needed():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    assert not [n for n in pre_order(te.create_prim_func([A, B]).body) if isinstance(n, LetStmt)]


def test_tags():
    A = te.placeholder((4,), name="A")
    with te.tag_scope("injective"):
        B = te.compute((4,), lambda i: A[i], name="B")
    assert B.op.tag == "injective" and te.TagScope.get_current() is None

    @te.tag_scope(tag="elemwise")
    def relu(x):
        return te.compute(x.shape, lambda *i: te.max(x(*i), 0.0))

    assert relu(A).op.tag == "elemwise"


def test_thread_axes():
    tx = te.thread_axis("threadIdx.x")
    assert (tx.thread_tag, tx.var.name, tx.dom, tx.iter_type) == ("threadIdx.x", "threadIdx.x", None, 1)
    bx = te.thread_axis((0, 32), "blockIdx.x", name="bx")
    assert bx.dom.extent.value == 32 and bx.var.name == "bx"


def test_the_classic_names_are_there():
    classic = (
        "placeholder compute var reduce_axis sum size_var thread_axis max create_prim_func min scan "
        "decl_tensor_intrin comm_reducer floordiv extern min_value floormod tensor.Tensor const exp "
        "round sigmoid div if_then_else hybrid.script AXIS_SEPARATOR tanh ceil power sqrt max_value "
        "tag_scope abs PlaceholderOp ScanOp extern_primfunc floor gradient hybrid.build log trunc "
        "truncdiv truncmod indexdiv indexmod infinity ComputeOp ExternOp TensorComputeOp prod all "
        "any nearbyint erf sin cos tan asin acos atan rsqrt log2 log10 log1p isnan isfinite isinf "
        "popcount fmod add subtract multiply tensor.ComputeOp "
    )
    for name in classic.split():
        found = te
        for part in name.split("."):
            found = getattr(found, part)
        assert found is not None
    assert set(te.__all__) <= set(dir(te))
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        te.no_such_name  # noqa: B018


def test_types_and_sizes_of_numpy_are_understood():
    A = te.placeholder((np.int64(4), np.int32(2)), np.float16, "A")
    assert A.dtype == "float16" and [d.dtype for d in A.shape] == ["int32", "int32"]
    assert te.placeholder((4,), np.dtype("int8")).dtype == "int8"
    assert te.placeholder(7).ndim == 1
