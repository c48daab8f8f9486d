"""Stages of a te.Schedule that move and factor: what they become, what they refuse, what they mean."""

from __future__ import annotations

import inspect
import re

import pytest
from te_stage_programs import blocks, blur, matmul, refusal, same, three

import tilewright as tvm
from tilewright import te
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError


# ---------------------------------------------------------------------------- compute_at
def test_a_stage_at_a_loop_of_its_consumer(expect):
    A, B, C = blur()
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    expect(
        s.to_prim_func([A, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((12, 14), "float32"), C: T.Buffer((10, 12), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            B = T.alloc_buffer((12, 12))
            for i in range(10):
                for ax0, ax1 in T.grid(3, 12):
                    with T.block("B"):
                        v_i = T.axis.spatial(12, i + ax0)
                        v_j = T.axis.spatial(12, ax1)
                        T.reads(A[v_i, v_j:v_j + 3])
                        T.writes(B[v_i, v_j])
                        B[v_i, v_j] = A[v_i, v_j] + A[v_i, v_j + 1] + A[v_i, v_j + 2]
                for j in range(12):
                    with T.block("C"):
                        v_i, v_j = T.axis.remap("SS", [i, j])
                        T.reads(B[v_i:v_i + 3, v_j])
                        T.writes(C[v_i, v_j])
                        C[v_i, v_j] = B[v_i, v_j] + B[v_i + 1, v_j] + B[v_i + 2, v_j]
        """,
    )
    same(s, [A, C])


@pytest.mark.parametrize("factor", [1, 3, 4, 16])
def test_a_stage_at_a_tile(factor):
    A, B, C = blur()
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, factor, factor)
    s[B].compute_at(s[C], yo)
    s[B].vectorize(B.op.axis[1]) if factor == 4 else s[B].unroll(B.op.axis[0])
    s[C].parallel(xo)
    same(s, [A, C])


def test_the_order_of_the_lines_does_not_matter():
    texts = []
    for order in range(3):
        A, B, C = blur()
        s = te.create_schedule(C.op)

        def attach(outer, s=s, B=B, C=C):
            s[B].compute_at(s[C], outer)

        def inner(s=s, B=B):
            i, j = B.op.axis
            jo, ji = s[B].split(j, factor=4)
            s[B].reorder(jo, i, ji)

        if order == 0:
            inner()
        outer, _ = s[C].split(C.op.axis[0], factor=4)
        if order == 1:
            inner()
        attach(outer)
        if order == 2:
            inner()
        texts.append(s.to_prim_func([A, C]).script())
        same(s, [A, C], build=False)
    assert texts[0] == texts[1] == texts[2]


def test_two_stages_at_one_loop_in_either_order():
    for names in ("BC", "CB"):
        A, B, C, D = three()
        s = te.create_schedule(D.op)
        for name in names:
            s[{"B": B, "C": C}[name]].compute_at(s[D], D.op.axis[0])
        made = same(s, [A, D], build=names == "BC")
        assert blocks(made) == ["B", "C", "D"]


def test_a_stage_at_a_stage_that_is_attached_itself():
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] * 2, name="B")
    C = te.compute((12,), lambda i: B[i] + 1, name="C")
    D = te.compute((12,), lambda i: C[i] * C[i], name="D")
    s = te.create_schedule(D.op)
    outer, inner = s[D].split(D.op.axis[0], factor=5)
    s[C].compute_at(s[D], outer)
    s[B].compute_at(s[C], C.op.axis[0])
    same(s, [A, D])


@pytest.mark.slow
def test_a_symbolic_shape():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    C = te.compute(
        (n,), lambda i: B[i] + te.if_then_else(i > 0, B[i - 1], te.const(0.0, "float32")), name="C"
    )
    s = te.create_schedule(C.op)
    outer, _ = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], outer)
    for n in (1, 4, 7):
        same(s, [A, C], n=n, build=n == 7)


def test_compute_root_takes_it_back():
    A, B, C = blur()
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    assert s[B].attach_type == 4
    s[B].compute_root()
    assert s[B].attach_type == 1
    assert_structural_equal(s.to_prim_func([A, C]), te.create_schedule(C.op).to_prim_func([A, C]))


def test_refuse_places(expect):
    A, B, C = blur()
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    expect(
        refusal(lambda: s[B].compute_at(s[C], C.op.axis[0])),
        """
        s[C].compute_at: axis `i` is not a loop of this stage (it was split or fused)
          at test_te_stages.py:LINE

          hint: the loops are i_outer, i_inner, j
        """,
    )
    expect(
        refusal(lambda: s[B].compute_at(C, outer)),
        """
        s[B].compute_at takes a stage (s[C]) and one of its loops
          at test_te_stages.py:LINE
        """,
    )
    expect(
        refusal(lambda: s[C].compute_at(s[B], B.op.axis[0])),
        """
        s[C].compute_at: C is an output of the schedule, which is computed at the root
          at test_te_stages.py:LINE
        """,
    )
    expect(
        refusal(lambda: s[C].compute_inline()),
        """
        s[C].compute_inline: C is an output of the schedule, which must be stored
          at test_te_stages.py:LINE
        """,
    )


def test_refuse_a_stage_with_consumers_elsewhere(expect):
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    s[B].compute_at(s[C], C.op.axis[0])
    text = refusal(lambda: tvm.lower(s, [A, D]))
    expect(
        "\n".join(line for line in text.splitlines() if not line.startswith("  |")),
        """
        compute_at(B, loop=i, preserve_unit_loops=True): it requires all the consumers of B to be under loop `i`, and block D is not
          at test_te_stages.py:LINE


          hint: its consumers share no loop
        """,
    )


# ---------------------------------------------------------------------------- compute_inline
def test_stages_inlined(expect):
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    s[B].compute_inline()
    s[C].compute_inline()
    assert s[C].attach_type == 2
    expect(
        s.to_prim_func([A, D]),
        """
        @T.prim_func
        def main(A: T.Buffer((12, 10), "float32"), D: T.Buffer((12, 10), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i, j in T.grid(12, 10):
                with T.block("D"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.reads(A[v_i, v_j])
                    T.writes(D[v_i, v_j])
                    D[v_i, v_j] = A[v_i, v_j] * T.float32(2) + T.float32(1) + A[v_i, v_j] * T.float32(2)
        """,
    )
    same(s, [A, D])


@pytest.mark.slow
def test_padding_inlined_into_a_convolution():
    X = te.placeholder((2, 6, 6), name="X")
    W = te.placeholder((3, 2, 3, 3), name="W")
    P = te.compute(
        (2, 8, 8),
        lambda c, y, x: te.if_then_else(
            te.all(y >= 1, y < 7, x >= 1, x < 7), X[c, y - 1, x - 1], te.const(0.0, "float32")
        ),
        name="P",
    )
    c, ky, kx = te.reduce_axis((0, 2), "c"), te.reduce_axis((0, 3), "ky"), te.reduce_axis((0, 3), "kx")
    Y = te.compute(
        (3, 6, 6), lambda o, y, x: te.sum(P[c, y + ky, x + kx] * W[o, c, ky, kx], axis=[c, ky, kx]), name="Y"
    )
    s = te.create_schedule(Y.op)
    s[P].compute_inline()
    o, y, x = Y.op.axis
    xo, xi = s[Y].split(x, factor=4)
    s[Y].reorder(o, y, xo, *Y.op.reduce_axis, xi)
    s[Y].vectorize(xi)
    same(s, [X, W, Y])
    s = te.create_schedule(Y.op)
    s[P].compute_at(s[Y], Y.op.axis[1])
    same(s, [X, W, Y])


def test_refuse_to_inline_a_reduction(expect):
    A, B, C = matmul()
    D = te.compute((10, 7), lambda i, j: C[i, j] + 1, name="D")
    s = te.create_schedule(D.op)
    s[C].compute_inline()
    expect(
        refusal(lambda: tvm.lower(s, [A, B, D])),
        """
        compute_inline(C): block C is a reduction, which takes many steps for one element
          at test_te_stages.py:LINE

          | def main(A: T.Buffer((10, 9), "float32"), B: T.Buffer((9, 7), "float32"), D: T.Buffer((10, 7), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     C = T.alloc_buffer((10, 7))
          |     for i, j, k in T.grid(10, 7, 9):
          |         with T.block("C"):    # <-- here
          |             v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
          |             T.reads(A[v_i, v_k], B[v_k, v_j])
          |             T.writes(C[v_i, v_j])
          |             with T.init():
          |                 C[v_i, v_j] = T.float32(0)
          |             C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
          |     for i, j in T.grid(10, 7):
          |         with T.block("D"):
          |             v_i, v_j = T.axis.remap("SS", [i, j])
          |             T.reads(C[v_i, v_j])
          |             T.writes(D[v_i, v_j])
          |             D[v_i, v_j] = C[v_i, v_j] + T.float32(1)

          hint: use compute_at to compute it close to its consumer
        """,
    )


# ---------------------------------------------------------------------------- rfactor
def rows(n=5, k=10, how=te.sum):
    A = te.placeholder((n, k), name="A")
    r = te.reduce_axis((0, k), "k")
    B = te.compute((n,), lambda i: how(A[i, r], axis=r), name="B")
    return A, B


def test_a_factored_sum(expect):
    A, B = rows()
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=4)
    BF = s.rfactor(B, ki)
    assert BF.op.name == "B_rf"
    assert [iv.var.name for iv in s[BF].op.axis] == ["k_inner", "i"]
    assert [iv.var.name for iv in s[BF].op.reduce_axis] == ["k_outer"]
    s[BF].compute_at(s[B], s[B].op.axis[0])
    expect(
        s.to_prim_func([A, B]),
        """
        @T.prim_func
        def main(A: T.Buffer((5, 10), "float32"), B: T.Buffer((5,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            B_rf = T.alloc_buffer((4, 5))
            for i in range(5):
                for ax0, ax1, ax2 in T.grid(4, 1, 3):
                    with T.block("B_rf"):
                        vk_inner = T.axis.spatial(4, ax0)
                        v_i = T.axis.spatial(5, i + ax1)
                        vk_outer = T.axis.reduce(3, ax2)
                        T.reads(A[v_i, vk_outer * 4 + vk_inner])
                        T.writes(B_rf[vk_inner, v_i])
                        with T.init():
                            B_rf[vk_inner, v_i] = T.float32(0)
                        if vk_outer * 4 + vk_inner < 10:
                            B_rf[vk_inner, v_i] = B_rf[vk_inner, v_i] + A[v_i, vk_outer * 4 + vk_inner]
                for k_inner in range(4):
                    with T.block("B"):
                        v_i, vk_inner = T.axis.remap("SR", [i, k_inner])
                        T.reads(B_rf[vk_inner, v_i])
                        T.writes(B[v_i])
                        with T.init():
                            B[v_i] = T.float32(0)
                        B[v_i] = B[v_i] + B_rf[vk_inner, v_i]
        """,
    )
    same(s, [A, B])


@pytest.mark.parametrize("how", [te.sum, te.max, te.min, te.prod if hasattr(te, "prod") else te.sum])
@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_factored_reductions(how, part, axis):
    A, B = rows(how=how)
    s = te.create_schedule(B.op)
    parts = s[B].split(B.op.reduce_axis[0], factor=4)
    BF = s.rfactor(B, parts[part], axis)
    s[BF].reorder(*reversed(s[BF].op.axis))
    same(s, [A, B], build=axis == 0)


def test_a_factored_sum_at_each_loop():
    for at in range(2):
        A, B = rows()
        s = te.create_schedule(B.op)
        ko, ki = s[B].split(B.op.reduce_axis[0], factor=4)
        BF = s.rfactor(B, ko)
        loops = [*s[B].op.axis, *s[B].op.reduce_axis]
        s[BF].compute_at(s[B], loops[at])
        same(s, [A, B])


def test_lanes_of_a_dot_product():
    A, B = rows()
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=4)
    BF = s.rfactor(B, ki, factor_axis=1)
    s[BF].compute_at(s[B], s[B].op.axis[0])
    (k,) = s[BF].op.reduce_axis
    s[BF].reorder(k, *s[BF].op.axis)
    s[BF].vectorize(s[BF].op.axis[1])
    same(s, [A, B])


def test_axes_of_the_same_name():
    A = te.placeholder((4, 6, 6), name="A")
    k1, k2 = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "k")
    B = te.compute((4,), lambda k: te.sum(A[k, k1, k2], axis=[k1, k2]), name="B")
    for axis in (0, 1):
        s = te.create_schedule(B.op)
        s.rfactor(B, s[B].op.reduce_axis[axis])
        same(s, [A, B], build=axis == 1)


def test_refuse_factors(expect):
    A, B = rows()
    s = te.create_schedule(B.op)
    expect(
        refusal(lambda: s.rfactor(B, B.op.axis[0])),
        """
        rfactor(B): `i` is not a reduction axis of it
          at test_te_stages.py:LINE
        """,
    )
    s[B].reorder(B.op.reduce_axis[0], B.op.axis[0])
    expect(
        refusal(lambda: s.rfactor(B, B.op.reduce_axis[0])),
        """
        rfactor(B): reorder(k, i) comes before it, and moves axes that are reduced among others
          at test_te_stages.py:LINE

          hint: split the reduction axis, then rfactor, then schedule both stages
        """,
    )


# ---------------------------------------------------------------------------- blame
def test_a_refusal_names_the_line_that_asked():
    """Steps are carried out when the schedule is lowered, and blamed on where they were written."""

    def place(action):
        with pytest.raises(ScheduleError) as caught:
            action()
        return int(re.search(r"at test_te_stages\.py:(\d+)", str(caught.value)).group(1))

    A, B, C, D = three()
    here = inspect.currentframe()
    s = te.create_schedule(D.op)
    s[B].compute_at(s[C], C.op.axis[0])
    assert place(lambda: tvm.lower(s, [A, D])) == here.f_lineno - 1
    s = te.create_schedule(D.op)
    s.cache_read(A, "attic", [B])
    assert place(lambda: tvm.lower(s, [A, D])) == here.f_lineno - 1
    s = te.create_schedule(D.op)
    s[D].set_scope("shared")
    assert place(lambda: tvm.lower(s, [A, D])) == here.f_lineno - 1
    s = te.create_schedule(D.op)
    s[C].compute_inline()
    s[B].compute_at(s[C], C.op.axis[0])
    assert place(lambda: tvm.lower(s, [A, D])) == here.f_lineno - 1


def test_refuse_a_place_in_a_stage_without_loops(expect):
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    s[C].compute_inline()
    s[B].compute_at(s[C], C.op.axis[0])
    expect(
        refusal(lambda: tvm.lower(s, [A, D])),
        """
        s[B].compute_at: C has no loops of its own to compute it in (it is inlined, or is computed before B)
          at test_te_stages.py:LINE
        """,
    )
    s = te.create_schedule(D.op)
    s[C].compute_at(s[B], B.op.axis[0])
    expect(
        refusal(lambda: tvm.lower(s, [A, D])),
        """
        s[C].compute_at: B has no loops of its own to compute it in (it is inlined, or is computed before C)
          at test_te_stages.py:LINE
        """,
    )


def test_a_doubled_buffer_inside_another_loop():
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    s[B].compute_at(s[D], D.op.axis[0])
    s[C].compute_at(s[D], D.op.axis[1])
    s[C].double_buffer()
    same(s, [A, D])


def test_refuse_places_of_groups(expect):
    A, B, C = blur()
    s = te.create_schedule(C.op)
    group = s.create_group(outputs=B, inputs=A, include_inputs=False)
    expect(
        refusal(lambda: group.compute_at("C", C.op.axis[0])),
        """
        a group's compute_at takes a stage (s[C]) and one of its loops
          at test_te_stages.py:LINE
        """,
    )
    expect(
        refusal(lambda: group.compute_at(s[B], B.op.axis[0])),
        """
        group(B).compute_at: B is itself in the group
          at test_te_stages.py:LINE
        """,
    )


@pytest.mark.parametrize(
    ("inline", "left"),
    [
        ("AutoInlineElemWise", ["wide", "turned", "total", "out"]),
        ("AutoInlineBroadcast", ["turned", "total", "out"]),
        ("AutoInlineInjective", ["total", "out"]),
    ],
)
def test_stages_in_between_are_inlined_by_what_they_read(inline, left):
    A, v = te.placeholder((6, 8), name="A"), te.placeholder((8,), name="v")
    plain = te.compute((6, 8), lambda i, j: A[i, j] + 1.0, name="plain")
    wide = te.compute((6, 8), lambda i, j: plain[i, j] * v[j], name="wide")
    turned = te.compute((8, 6), lambda i, j: wide[j, i], name="turned")
    k = te.reduce_axis((0, 6), name="k")
    total = te.compute((8,), lambda i: te.sum(turned[i, k], axis=k), name="total")
    out = te.compute((8,), lambda i: total[i] * 2.0, name="out")
    s = te.create_schedule(out.op)
    getattr(te.schedule, inline)(s)
    kept = blocks(s.to_prim_func([A, v, out]))
    assert kept == left
    same(s, [A, v, out])


def test_a_loop_that_is_split_or_fused_after_another_stage_was_placed_there():
    def placed(first: bool):
        A, B, C = blur()
        s = te.create_schedule(C.op)
        i, j = C.op.axis
        if first:
            s[B].compute_at(s[C], i)
        _, inner = s[C].split(i, factor=5)
        outer, inner = s[C].split(inner, factor=5)
        fused = s[C].fuse(outer, inner)
        if not first:
            s[B].compute_at(s[C], fused)
        return s.to_prim_func([A, C])

    assert_structural_equal(placed(True), placed(False))
