"""Instructions declared by tensor expressions: te.decl_tensor_intrin and s[…].tensorize."""

# Expected texts are as long as they are; all loops of a nest have names, used or not.
from __future__ import annotations

import ctypes
import json
import re
import subprocess

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError, TensorExpressionError, UnsupportedError

N, M, L = 16, 32, 24


@pytest.fixture(scope="module")
def gemv_functions(tmp_path_factory):
    """The C functions of the intrinsic, found by name in the process."""
    folder = tmp_path_factory.mktemp("gemv")
    (folder / "gemv.c").write_text(
        """
        int tilewright_gemv_update(float *cc, float *aa, float *bb, int m, int l, int stride) {
            for (int i = 0; i < m; ++i)
                for (int j = 0; j < l; ++j)
                    cc[i] += aa[j] * bb[i * stride + j];
            return 0;
        }
        int tilewright_gemv_reset(float *cc, int m) {
            for (int i = 0; i < m; ++i) cc[i] = 0.0;
            return 0;
        }
        int tilewright_gemv(float *cc, float *aa, float *bb, int m, int l, int stride) {
            tilewright_gemv_reset(cc, m);
            return tilewright_gemv_update(cc, aa, bb, m, l, stride);
        }
        """
    )
    library = str(folder / "gemv.so")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", library, str(folder / "gemv.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


def intrin_gemv(m, l, parts=("body",)):
    """c[i] = Σ a[k] * b[i, k], by calls of C functions."""
    a = te.placeholder((l,), name="a")
    b = te.placeholder((m, l), name="b")
    k = te.reduce_axis((0, l), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    Ab = tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    Bb = tvm.tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=[te.var("s1"), 1])
    Cb = tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def intrin_func(ins, outs):
        ib = tvm.tir.ir_builder.create()
        aa, bb = ins
        cc = outs[0]

        def call(name):
            ib = tvm.tir.ir_builder.create()
            ib.emit(
                tvm.tir.call_extern(
                    "int32",
                    name,
                    cc.access_ptr("rw"),
                    aa.access_ptr("r"),
                    bb.access_ptr("r"),
                    m,
                    l,
                    bb.strides[0],
                )
            )
            return ib.get()

        ib.emit(tvm.tir.call_extern("int32", "tilewright_gemv_reset", cc.access_ptr("w"), m))
        made = {"body": call("tilewright_gemv"), "reset": ib.get(), "update": call("tilewright_gemv_update")}
        chosen = tuple(made[p] if p else None for p in parts)
        return chosen if len(chosen) > 1 else chosen[0]

    return te.decl_tensor_intrin(c.op, intrin_func, name="gemv", binds={a: Ab, b: Bb, c: Cb})


def product():
    A = te.placeholder((N, L), name="A")
    B = te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    return A, B, C


def check(s, args):
    func = tvm.build(s, args, target="llvm", name="product")
    a, b = (
        np.random.default_rng(i).integers(-8, 8, x).astype("float32") for i, x in enumerate([(N, L), (M, L)])
    )
    c = tvm.nd.array(np.ones((N, M), "float32"))
    func(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), a @ b.T)


def test_all_of_a_reduction(expect, gemv_functions):
    A, B, C = product()
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    yo, yi = s[C].split(y, factor=8)
    s[C].tensorize(yi, intrin_gemv(8, L))
    assert s[C].iter_var_attrs[yi].tensor_intrin.name == "gemv"
    expect(
        tvm.lower(s, [A, B, C])["main"],
        """
        @T.prim_func
        def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((32, 24), "float32"), C: T.Buffer((16, 32), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            for i, j_outer in T.grid(16, 4):
                T.call_extern("int32", "tilewright_gemv", T.tvm_access_ptr(T.type_annotation("float32"), C.data, i * 32 + j_outer * 8, 8, 3), T.tvm_access_ptr(T.type_annotation("float32"), A.data, i * 24, 24, 1), T.tvm_access_ptr(T.type_annotation("float32"), B.data, j_outer * 192, 192, 1), 8, 24, 24)
        """,
    )
    check(s, [A, B, C])


def test_a_reduction_that_goes_on_outside(expect, gemv_functions):
    """The classic program: reset and update in the place of the two halves of the reduction."""
    A, B, C = product()
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=8)
    zo, zi = s[C].split(z, factor=6)
    s[C].reorder(x, yo, zo, yi, zi)
    s[C].tensorize(yi, intrin_gemv(8, 6, ("body", "reset", "update")))
    expect(
        tvm.lower(s, [A, B, C])["main"],
        """
        @T.prim_func
        def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((32, 24), "float32"), C: T.Buffer((16, 32), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            for i, j_outer in T.grid(16, 4):
                cse_var_1: T.int32 = i * 32 + j_outer * 8
                T.call_extern("int32", "tilewright_gemv_reset", T.tvm_access_ptr(T.type_annotation("float32"), C.data, cse_var_1, 8, 2), 8)
                for k_outer in range(4):
                    T.call_extern("int32", "tilewright_gemv_update", T.tvm_access_ptr(T.type_annotation("float32"), C.data, cse_var_1, 8, 3), T.tvm_access_ptr(T.type_annotation("float32"), A.data, i * 24 + k_outer * 6, 6, 1), T.tvm_access_ptr(T.type_annotation("float32"), B.data, j_outer * 192 + k_outer * 6, 192, 1), 8, 6, 24)
        """,
    )
    check(s, [A, B, C])


def test_the_lines_may_come_in_any_order(gemv_functions):
    def scheduled(late):
        A, B, C = product()
        s = te.create_schedule(C.op)
        x, y = C.op.axis
        (z,) = C.op.reduce_axis
        yo, yi = s[C].split(y, factor=8)
        zo, zi = s[C].split(z, factor=6)
        gemv = intrin_gemv(8, 6, ("body", "reset", "update"))
        if not late:
            s[C].tensorize(yi, gemv)
        s[C].reorder(x, yo, zo, yi, zi)
        s[C].parallel(x)
        if late:
            s[C].tensorize(yi, gemv)
        check(s, [A, B, C])
        return s.to_prim_func([A, B, C])

    assert_structural_equal(scheduled(False), scheduled(True))


def test_without_a_reset_the_start_stays_as_loops(gemv_functions):
    A, B, C = product()
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=8)
    zo, zi = s[C].split(z, factor=6)
    s[C].reorder(x, yo, zo, yi, zi)
    s[C].tensorize(yi, intrin_gemv(8, 6, ("body", "", "update")))
    assert "tilewright_gemv_reset" not in tvm.lower(s, [A, B, C])["main"].script()
    check(s, [A, B, C])


def test_operands_that_are_staged_beside_it(gemv_functions):
    """B is packed into tiles, so that its stride is that of a tile."""
    A, B, C = product()
    s = te.create_schedule(C.op)
    BB = s.cache_read(B, "global", [C])
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=8)
    zo, zi = s[C].split(z, factor=6)
    s[C].reorder(x, yo, zo, yi, zi)
    s[BB].compute_at(s[C], zo)
    s[C].tensorize(yi, intrin_gemv(8, 6, ("body", "reset", "update")))
    check(s, [A, B, C])


def test_an_elementwise_instruction():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 2.0 + 1.0, name="y")

    def by_vectors(ins, outs):
        ib = tir.ir_builder.create()
        ib.emit(outs[0].vstore([0], ins[0].vload([0], "float32x4") * tir.const(2.0, "float32x4") + 1.0))
        return ib.get()

    intrin = te.decl_tensor_intrin(y.op, by_vectors, default_buffer_params={"offset_factor": 1})
    assert intrin.name == "tensor_intrin" and intrin.buffers[0].offset_factor == 1
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] * 2.0 + 1.0, name="B")
    s = te.create_schedule(B.op)
    jo, ji = s[B].split(B.op.axis[1], factor=4)
    s[B].tensorize(ji, intrin)
    func = s.to_prim_func([A, B])
    a, b = np.arange(48, dtype="float32").reshape(6, 8), np.zeros((6, 8), "float32")
    tir.interpret(func, a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)
    got = tvm.nd.array(np.zeros_like(b))
    tvm.build(s, [A, B], target="llvm")(tvm.nd.array(a), got)
    np.testing.assert_array_equal(got.numpy(), b)


def test_what_it_became_is_in_the_trace(expect, gemv_functions):
    A, B, C = product()
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=8)
    zo, zi = s[C].split(z, factor=6)
    s[C].reorder(x, yo, zo, yi, zi)
    # An intrinsic of another size under the same name, before this one, takes nothing from it.
    intrin_gemv(4, 6, ("body", "reset", "update"))
    s[C].tensorize(yi, intrin_gemv(8, 6, ("body", "reset", "update")))
    func = s.to_prim_func([A, B, C])
    text = str(s.trace)
    assert "b1 = sch.blockize(target=l4)" in text
    assert "b2 = sch.decompose_reduction(block=b1, loop=l5)" in text
    assert "sch.tensorize(block_or_loop=b2, tensor_intrin='te.gemv.reset" in text
    plain = te.create_schedule(C.op).to_prim_func([A, B, C])
    again = tir.Schedule(plain)
    type(s.trace).apply_json_to_schedule(json.dumps(s.trace.as_json()), again, trusted=True)
    assert_structural_equal(again.mod["main"], func)


def test_the_functions_may_come_along_as_llvm_ir():
    """What contrib.clang makes of C code, brought in by a pragma."""
    code = """
    define i32 @tilewright_double(ptr %out, ptr %in, i32 %n) {
    entry:
      br label %loop
    loop:
      %i = phi i32 [ 0, %entry ], [ %next, %loop ]
      %from = getelementptr float, ptr %in, i32 %i
      %value = load float, ptr %from
      %twice = fadd float %value, %value
      %to = getelementptr float, ptr %out, i32 %i
      store float %twice, ptr %to
      %next = add i32 %i, 1
      %more = icmp slt i32 %next, %n
      br i1 %more, label %loop, label %done
    done:
      ret i32 0
    }
    """
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 2.0, name="y")
    double = te.decl_tensor_intrin(
        y.op,
        lambda ins, outs: tir.call_extern(
            "int32", "tilewright_double", outs[0].access_ptr("w"), ins[0].access_ptr("r"), 4
        ),
        name="double",
        default_buffer_params={"offset_factor": 1},
    )
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    jo, ji = s[B].split(B.op.axis[1], factor=4)
    s[B].tensorize(ji, double)
    s[B].pragma(B.op.axis[0], "import_llvm", code.replace("fadd", "fsub"))
    s[B].pragma(jo, "import_llvm", code)  # of two definitions the last is taken
    a, b = np.arange(48, dtype="float32").reshape(6, 8), tvm.nd.array(np.zeros((6, 8), "float32"))
    tvm.build(s, [A, B], target="llvm")(tvm.nd.array(a), b)
    np.testing.assert_array_equal(b.numpy(), 2 * a)


GEMV = """
extern "C" int gemv_update(float *cc, float *aa, float *bb, int m, int l, int stride) {
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < l; ++j)
            cc[i] += aa[j] * bb[i * stride + j];
    return 0;
}
extern "C" int gemv_reset(float *cc, int m) {
    for (int i = 0; i < m; ++i) cc[i] = 0.0f;
    return 0;
}
"""


def gemv(m, l):
    """A vector times a matrix by a function in C: as a whole, its start, and one more part of it."""
    a = te.placeholder((l,), name="a")
    b = te.placeholder((m, l), name="b")
    k = te.reduce_axis((0, l), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    Ab = tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    Bb = tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=[te.var("s1"), 1])
    Cb = tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def call(name, out, *more):
        ib = tvm.tir.ir_builder.create()
        ib.emit(tir.call_extern("int32", name, out, *more))
        return ib.get()

    def intrin_func(ins, outs):
        aa, bb = ins
        cc = outs[0]

        def update():
            return call(
                "gemv_update", cc.access_ptr("w"), aa.access_ptr("r"), bb.access_ptr("r"), m, l, bb.strides[0]
            )

        def reset():
            return call("gemv_reset", cc.access_ptr("w"), m)

        return tir.SeqStmt([reset(), update()]), reset(), update()

    return te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})


def test_code_in_a_file(tmp_path):
    (tmp_path / "code.ll").write_text(
        "define float @twice(float %x) {\n  %y = fadd float %x, %x\n  ret float %y\n}\n"
    )
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: tir.call_pure_extern("float32", "twice", A[i]), name="B")
    s = te.create_schedule(B.op)
    s[B].pragma(B.op.axis[0], "import_llvm", str(tmp_path / "code.ll"))
    a, b = tvm.nd.array(np.arange(4, dtype="float32")), tvm.nd.empty((4,))
    tvm.build(s, [A, B], target="llvm")(a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * a.numpy())
    s = te.create_schedule(B.op)
    s[B].pragma(B.op.axis[0], "import_llvm", str(tmp_path / "none.ll"))
    with pytest.raises(tvm.TVMError, match=r"names the file .*none\.ll, which cannot be read"):
        tvm.build(s, [A, B], target="llvm")


def test_the_tutorial_with_an_intrinsic_in_c(tmp_path):
    """C code through clang's LLVM IR (or zig's), brought along by a pragma; the reduction goes on outside."""
    from tilewright.contrib import clang

    try:
        code = clang.create_llvm(GEMV, output=str(tmp_path / "temp.ll"))
    except tvm.TVMError as why:
        pytest.skip(str(why).splitlines()[0])
    assert (tmp_path / "temp.ll").exists()
    N, M, L, factor = 32, 16, 24, 8
    A = te.placeholder((N, L), name="A")
    B = te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    x, y = s[C].op.axis
    (z,) = s[C].op.reduce_axis
    yo, yi = s[C].split(y, factor=factor)
    zo, zi = s[C].split(z, factor=factor)
    s[C].reorder(x, yo, zo, yi, zi)
    s[C].tensorize(yi, gemv(factor, factor))
    s[C].pragma(x, "import_llvm", code)
    func = tvm.build(s, [A, B, C], target="llvm", name="gemv")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype("float32") for shape in ((N, L), (M, L)))
    c = tvm.nd.array(np.zeros((N, M), dtype="float32"))
    func(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), a @ b.T)


# ---------------------------------------------------------------------------- refusals
def refusal(s, args):
    with pytest.raises(ScheduleError) as caught:
        s.to_prim_func(args)
    return re.sub(r"(  at \S+\.py):\d+", r"\1:LINE", str(caught.value))


def test_a_tile_of_another_size_is_refused_where_it_was_asked_for(expect):
    A, B, C = product()
    s = te.create_schedule(C.op)
    yo, yi = s[C].split(C.op.axis[1], factor=16)
    s[C].tensorize(yi, intrin_gemv(8, L))
    expect(
        refusal(s, [A, B, C]),
        """
        tensorize(C_o, tensor_intrin='te.gemv'): block C_o does not do what te.gemv describes: loop `j_inner` runs 16 times and the intrinsic's `i` 8
          at test_te_tensorize.py:LINE

          | def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((32, 24), "float32"), C: T.Buffer((16, 32), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for i, j_outer in T.grid(16, 2):
          |         with T.block("C_o"):    # <-- here
          |             v_i_o, v_j_o = T.axis.remap("SS", [i, j_outer])
          |             v_k_o = T.axis.reduce(1, 0)
          |             T.reads(A[v_i_o, 0:24], B[v_j_o * 16:v_j_o * 16 + 16, 0:24])
          |             T.writes(C[v_i_o, v_j_o * 16:v_j_o * 16 + 16])
          |             for j_inner, k in T.grid(16, 24):
          |                 with T.block("C"):
          |                     v_i_i = T.axis.spatial(1, 0)
          |                     v_j_i, v_k_i = T.axis.remap("SR", [j_inner, k])
          |                     T.reads(A[v_i_o, v_k_i], B[v_j_o * 16 + v_j_i, v_k_i])
          |                     T.writes(C[v_i_o, v_j_o * 16 + v_j_i])
          |                     with T.init():
          |                         C[v_i_o, v_j_o * 16 + v_j_i] = T.float32(0)
          |                     C[v_i_o, v_j_o * 16 + v_j_i] = C[v_i_o, v_j_o * 16 + v_j_i] + A[v_i_o, v_k_i] * B[v_j_o * 16 + v_j_i, v_k_i]

          | block C_o                                                   | te.gemv
          | for j_inner, k in T.grid(16, 24):    # <-- here             | for i, k in T.grid(8, 24):    # <-- here
          |     if k == 0:                                              |     if k == 0:
          |         C[v_i_o, v_j_o * 16 + j_inner] = T.float32(0)       |         C[i] = T.float32(0)
          |     C[v_i_o, v_j_o * 16 + j_inner] = C[v_i_o, v_j_o * 16 +  |     C[i] = C[i] + A[k] * B[i, k]
          |         j_inner] + A[v_i_o, k] * B[v_j_o * 16 + j_inner, k] |
        """,
    )


def test_a_reduction_outside_needs_an_update(expect):
    A, B, C = product()
    s = te.create_schedule(C.op)
    (z,) = C.op.reduce_axis
    zo, zi = s[C].split(z, factor=6)
    yo, yi = s[C].split(C.op.axis[1], factor=8)
    s[C].reorder(yo, zo, yi, zi)
    s[C].tensorize(yi, intrin_gemv(8, 6))
    expect(
        refusal(s, [A, B, C]),
        """
        tensorize(j_inner): loop `k_outer` outside carries on the reduction, and intrinsic te.gemv has no reduce_update
          at test_te_tensorize.py:LINE

          | def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((32, 24), "float32"), C: T.Buffer((16, 32), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for i, j_outer, k_outer in T.grid(16, 4, 4):    # <-- here
          |         with T.block("C_o"):
          |             v_i_o, v_j_o, v_k_o = T.axis.remap("SSR", [i, j_outer, k_outer])
          |             T.reads(A[v_i_o, v_k_o * 6:v_k_o * 6 + 6], B[v_j_o * 8:v_j_o * 8 + 8, v_k_o * 6:v_k_o * 6 + 6])
          |             T.writes(C[v_i_o, v_j_o * 8:v_j_o * 8 + 8])
          |             with T.init():
          |                 for j_inner_init in range(8):
          |                     with T.block("C_init"):
          |                         v_i_i = T.axis.spatial(1, 0)
          |                         v_j_i = T.axis.spatial(8, j_inner_init)
          |                         T.reads()
          |                         T.writes(C[v_i_o, v_j_o * 8 + v_j_i])
          |                         C[v_i_o, v_j_o * 8 + v_j_i] = T.float32(0)
          |             for j_inner, k_inner in T.grid(8, 6):
          |                 with T.block("C"):
          |                     v_i_i = T.axis.spatial(1, 0)
          |                     v_j_i, v_k_i = T.axis.remap("SR", [j_inner, k_inner])
          |                     T.reads(C[v_i_o, v_j_o * 8 + v_j_i], A[v_i_o, v_k_o * 6 + v_k_i], B[v_j_o * 8 + v_j_i, v_k_o * 6 + v_k_i])
          |                     T.writes(C[v_i_o, v_j_o * 8 + v_j_i])
          |                     C[v_i_o, v_j_o * 8 + v_j_i] = C[v_i_o, v_j_o * 8 + v_j_i] + A[v_i_o, v_k_o * 6 + v_k_i] * B[v_j_o * 8 + v_j_i, v_k_o * 6 + v_k_i]

          hint: give fcompute's reset and update, or leave `k_outer` inside of `j_inner`
        """,
    )


def test_a_whole_reduction_needs_a_body(expect):
    a, b = te.placeholder((L,), name="a"), te.placeholder((8, L), name="b")
    k = te.reduce_axis((0, L), name="k")
    c = te.compute((8,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    nothing = tir.Evaluate(0)
    intrin = te.decl_tensor_intrin(c.op, lambda ins, outs: (None, nothing, nothing), name="parts")
    A, B, C = product()
    s = te.create_schedule(C.op)
    yo, yi = s[C].split(C.op.axis[1], factor=8)
    s[C].tensorize(yi, intrin)
    expect(
        refusal(s, [A, B, C]),
        """
        tensorize(C_o): intrinsic te.parts has no body for a whole reduction
          at test_te_tensorize.py:LINE

          | def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((32, 24), "float32"), C: T.Buffer((16, 32), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for i, j_outer in T.grid(16, 4):
          |         with T.block("C_o"):    # <-- here
          |             v_i_o, v_j_o = T.axis.remap("SS", [i, j_outer])
          |             v_k_o = T.axis.reduce(1, 0)
          |             T.reads(A[v_i_o, 0:24], B[v_j_o * 8:v_j_o * 8 + 8, 0:24])
          |             T.writes(C[v_i_o, v_j_o * 8:v_j_o * 8 + 8])
          |             for j_inner, k in T.grid(8, 24):
          |                 with T.block("C"):
          |                     v_i_i = T.axis.spatial(1, 0)
          |                     v_j_i, v_k_i = T.axis.remap("SR", [j_inner, k])
          |                     T.reads(A[v_i_o, v_k_i], B[v_j_o * 8 + v_j_i, v_k_i])
          |                     T.writes(C[v_i_o, v_j_o * 8 + v_j_i])
          |                     with T.init():
          |                         C[v_i_o, v_j_o * 8 + v_j_i] = T.float32(0)
          |                     C[v_i_o, v_j_o * 8 + v_j_i] = C[v_i_o, v_j_o * 8 + v_j_i] + A[v_i_o, v_k_i] * B[v_j_o * 8 + v_j_i, v_k_i]

          hint: split the reduction and reorder, so that a part of it stays outside
        """,
    )


def test_what_decl_tensor_intrin_refuses(expect, told):
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((4,), lambda i: b[i] + 1.0, name="c")
    nothing = tir.Evaluate(0)
    with pytest.raises(TypeError) as caught:
        te.decl_tensor_intrin(a.op, lambda ins, outs: nothing)
    expect(
        told(caught),
        """
        te.decl_tensor_intrin takes the operation of a te.compute, not PlaceholderOp(a)
        """,
    )
    with pytest.raises(Exception) as caught:
        te.decl_tensor_intrin(c.op, lambda ins, outs: nothing)
    expect(
        told(caught),
        """
        te.decl_tensor_intrin(tensor_intrin): it reads b, which is computed; an intrinsic is one operation on placeholders
          at test_te_tensorize.py:LINE
        """,
    )
    with pytest.raises(ValueError) as caught:
        te.decl_tensor_intrin(b.op, lambda ins, outs: [nothing] * 4)
    expect(
        told(caught),
        """
        fcompute of intrinsic tensor_intrin gave 4 statements, and not one to three
        """,
    )
    with pytest.raises(ValueError) as caught:
        te.decl_tensor_intrin(b.op, lambda ins, outs: [nothing] * 2)
    expect(
        told(caught),
        """
        intrinsic tensor_intrin is not a reduction, so it has no reduce_init and reduce_update
        """,
    )
    with pytest.raises(TypeError) as caught:
        te.decl_tensor_intrin(b.op, lambda ins, outs: 3)
    expect(
        told(caught),
        """
        fcompute of a tensor intrinsic gives statements, not 3
        """,
    )
    made = te.decl_tensor_intrin(
        b.op, lambda ins, outs: tir.call_extern("int32", "f", outs[0].access_ptr("w"))
    )
    assert isinstance(made.body, tir.Evaluate)
    with pytest.raises(
        TensorExpressionError, match="takes 1 tensors and 0 scalars, and is called with 1 and 1"
    ):
        made(a[0:4], 3)
    with pytest.raises(TensorExpressionError, match="has no reduce_init and reduce_update"):
        made(a[0:4], reduce_axis=te.reduce_axis((0, 2), "k"))
    with pytest.raises(TensorExpressionError, match="has the step 2, and must be dense"):
        made(a[0:4:2])


def test_what_a_stage_refuses(expect, told):
    A, B, C = product()
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    with pytest.raises(ScheduleError) as caught:
        s[C].tensorize(y, "gemv")
    expect(
        told(caught),
        """
        s[C].tensorize takes the result of te.decl_tensor_intrin, not 'gemv'
        """,
    )
    s[C].split(y, factor=8)
    with pytest.raises(ScheduleError) as caught:
        s[C].tensorize(y, intrin_gemv(8, L))
    expect(
        told(caught),
        """
        s[C].tensorize: axis `j` is not a loop of this stage (it was split or fused)
          at test_te_tensorize.py:LINE

          hint: the loops are i, j_outer, j_inner, k
        """,
    )


# ---------------------------------------------------------------------------- calls inside of te.compute
@pytest.fixture
def tiles():
    """Functions of tiles, in Python: a sum, a product with one row after the other, and their start."""

    def add(x, y, z, scale=1, shift=0):
        z.copyfrom((x.numpy() + y.numpy()) * scale + shift)

    def update(w, x, z):
        z.copyfrom(z.numpy() + w.numpy() @ x.numpy())

    def zero(z):
        z.copyfrom(z.numpy() * 0)

    held = {"tests.add": add, "tests.update": update, "tests.zero": zero}
    for name, f in held.items():
        tvm.register_func(name, f, override=True)
    yield
    for name in held:
        tvm.runtime.remove_global_func(name)


def intrin_add(n):
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    z = te.compute((n,), lambda i: x[i] + y[i], name="z")
    return te.decl_tensor_intrin(
        z.op,
        lambda ins, outs: tir.call_packed("tests.add", *ins, *outs),
        default_buffer_params={"offset_factor": 1},
    )


def test_a_tile_for_each_call(tiles):
    add = intrin_add(4)
    A, B = te.placeholder((6, 4), name="A"), te.placeholder((6, 4), name="B")
    B1 = te.compute((6, 4), lambda i, j: B[i, j] + 5, name="B1")
    C = te.compute((6, 4), lambda i: add(A[i, 0:4], B1[i]), name="C")
    assert isinstance(C.op, te.TensorComputeOp) and C.op.input_tensors == (A, B1)
    s = te.create_schedule(C.op)
    assert s[C].leaf_iter_vars == [C.op.axis[0]] and len(C.op.axis) == 2
    CL = s.cache_write(C, "global")
    xo, _xi = s[CL].split(CL.op.axis[0], factor=2)
    s[B1].compute_at(s[CL], xo)
    a, b = np.random.default_rng(0).integers(-9, 9, (2, 6, 4)).astype("float32")
    c = tvm.nd.array(a * 0)
    tvm.build(s, [A, B, C], target="llvm")(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), a + b + 5)


def test_a_reduction_of_tiles(tiles):
    m, n, parts = 4, 3, 5
    w, x = te.placeholder((m, n), name="w"), te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), "k")
    z = te.compute((m,), lambda i: te.sum(w[i, k] * x[k], axis=k), name="z")

    def call(ins, outs):
        update = tir.call_packed("tests.update", *ins, *outs)
        return update, tir.call_packed("tests.zero", *outs), update

    gemv = te.decl_tensor_intrin(z.op, call, default_buffer_params={"offset_factor": 1})
    A, B = te.placeholder((2, parts, m, n), name="A"), te.placeholder((parts, n), name="B")
    r = te.reduce_axis((0, parts), "r")
    C = te.compute((2, m), lambda i: gemv(A[i, r, 0:m, 0:n], B[r, 0:n], reduce_axis=r), name="C")
    assert C.op.reduce_axis == (r,)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, shape).astype("float32") for shape in ((2, parts, m, n), (parts, n)))
    c = tvm.nd.array(np.full((2, m), 7, "float32"))
    tvm.build(te.create_schedule(C.op), [A, B, C], target="llvm")(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), np.einsum("ipmn,pn->im", a, b))


def test_scalar_parameters_of_an_instruction(tiles):
    x, v, w = te.placeholder((4,), name="x"), te.var("v"), te.var("w")
    z = te.compute((4,), lambda i: x[i] * v + w, name="z")
    scaled = te.decl_tensor_intrin(
        z.op,
        lambda ins, outs, sp: tir.call_packed("tests.add", ins[0], ins[0], outs[0], *sp),
        scalar_params=[v, w],
        default_buffer_params={"offset_factor": 1},
    )
    A = te.placeholder((3, 4), name="A")
    C = te.compute((3, 4), lambda i: scaled(i * i, A[i], i + 1), name="C")
    a = np.arange(12, dtype="float32").reshape(3, 4)
    c = tvm.nd.array(a * 0)
    s = te.create_schedule(C.op)
    tvm.build(s, [A, C], target="llvm")(tvm.nd.array(a), c)
    i = np.arange(3)[:, None]
    np.testing.assert_array_equal(c.numpy(), 2 * a * i * i + i + 1)
    B = te.compute((4,), lambda i: A[0, i] * 2 + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].tensorize(B.op.axis[0], scaled)
    with pytest.raises(UnsupportedError, match="has scalar parameters, which tensorize does not find"):
        tvm.lower(s, [A, B])
