"""The hand-scheduling programs of the seed documents, with only their import line changed.

Schedules for CPUs run through the interpreter and as machine code; those for GPUs in block form and lowered,
thread by thread, from the texts that tests/gpu/seed_programs.py runs on devices. A test's name says what the program
is; its docstring names the document.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

import seed_programs as seeds
from seed_programs import whole

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.functor import pre_order
from tilewright.ir.module import IRModule


def run(s, args, *arrays):
    """What a schedule computes into its last argument: in block form, lowered, and as machine code."""
    results = []
    for how in ("blocks", "lowered", "built"):
        held = [a.copy() for a in arrays]
        if how == "blocks":
            tir.interpret(s.to_prim_func(args), *held, check_regions=True, detect_races=False)
        elif how == "lowered":
            tir.interpret(tvm.lower(s, args)["main"], *held)
        else:
            given = [tvm.nd.array(a) for a in held]
            tvm.build(s, args, target="llvm")(*given)
            held = [g.numpy() for g in given]
        results.append(held[-1])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    return results[0]


def program(*parts, **given):
    """The names that the texts of a program leave."""
    return seeds.run("".join(parts), "cuda", **{"print": lambda *_: None, **given})


def matmul(M=20, N=24, K=12):
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def script_of(mod):
    """The text of a module's functions, without the head of comments."""
    lines = mod.script().splitlines()
    start = next(i for i, line in enumerate(lines) if "@T.prim_func" in line)
    return textwrap.dedent("\n".join(lines[start:])).strip()


# ---------------------------------------------------------------------------- vectors
@pytest.mark.parametrize("size", [1024, 1000, 31])
def test_vector_add_in_parallel_with_vectors(size):
    """000_c94b23ed02cfc284: Core Concepts, 2. Schedule and 3. Build and Execute."""
    held = program(seeds.EXPRESSION, seeds.SCHEDULE)
    s, A, B, C = (held[name] for name in "sABC")

    # Build function for target hardware
    func = tvm.build(s, [A, B, C], target="llvm")

    # Prepare data
    dev = tvm.cpu(0)
    a = tvm.nd.array(whole(size), dev)
    b = tvm.nd.array(whole(size)[::-1].copy(), dev)
    c = tvm.nd.array(np.zeros(size, dtype=np.float32), dev)

    # Execute
    func(a, b, c)
    np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())


@pytest.mark.parametrize("tgt", ["llvm", "cuda"])
def test_the_schedule_of_my_add(tgt):
    """004_eb1758ed1c90b5cf: Flow, 2. schedule the computation, and 3. compile (for CPUs)."""
    held = program(seeds.MY_ADD, seeds.SCHEDULE_MY_ADD, tgt=tgt)
    s, args = held["s"], [held[name] for name in "ABC"]
    assert type(held["C"]) is te.tensor.Tensor

    a, b = whole(100), whole(100)[::-1].copy()
    if tgt == "llvm":
        fadd = program(seeds.COMPILE_MY_ADD, **held, tgt_host="llvm")["fadd"]
        c = tvm.nd.array(np.zeros(100, np.float32))
        fadd(tvm.nd.array(a), tvm.nd.array(b), c)
        np.testing.assert_array_equal(c.numpy(), a + b)
        return
    lowered = tvm.lower(s, args, name="myadd")["myadd"]
    out = np.zeros(100, np.float32)
    tir.interpret(lowered, a, b, out)
    np.testing.assert_array_equal(out, a + b)
    text = lowered.script()
    assert 'T.launch_thread("blockIdx.x", (n + 63) // 64)' in text
    assert 'T.launch_thread("threadIdx.x", 64)' in text


# ---------------------------------------------------------------------------- schedule primitives
def test_split_divides_the_iteration_space():
    """000_c94b23ed02cfc284: Schedule Primitives, 1. Split."""
    A = te.placeholder((128,), name="A")
    C = te.compute((128,), lambda i: A[i] * 2, name="C")
    s = te.create_schedule(C.op)
    (x,) = C.op.axis
    xo, xi = s[C].split(x, factor=32)
    assert (int(xo.dom.extent), int(xi.dom.extent)) == (4, 32)
    text = s.to_prim_func([A, C]).script()
    assert "for i_outer, i_inner in T.grid(4, 32):" in text and "i_outer * 32 + i_inner" in text
    a = whole(128)
    np.testing.assert_array_equal(run(s, [A, C], a, np.zeros(128, np.float32)), a * 2)


@pytest.mark.parametrize("shape", [(64, 64), (50, 70)])
def test_tile_splits_in_two_dimensions(shape):
    """000_c94b23ed02cfc284: Schedule Primitives, 2. Tile; 001_1e32228900fa6a2d: 3.1."""
    A = te.placeholder(shape, name="A")
    C = te.compute(shape, lambda x, y: A[x, y] + 1, name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    xo, yo, xi, yi = s[C].tile(x, y, x_factor=32, y_factor=32)
    assert s[C].leaf_iter_vars == [xo, yo, xi, yi]
    a = whole(*shape)
    np.testing.assert_array_equal(run(s, [A, C], a, np.zeros(shape, np.float32)), a + 1)


def test_reorder_changes_the_nest_of_a_matmul():
    """000_c94b23ed02cfc284: Schedule Primitives, 3. Reorder, 5. Vectorize, 6. Parallel, 7. Unroll."""
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (k,) = C.op.reduce_axis
    xo, yo, xi, yi = s[C].tile(x, y, x_factor=8, y_factor=8)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].vectorize(yi)
    s[C].parallel(xo)
    s[C].unroll(xi)
    a, b = whole(20, 12), whole(12, 24)
    np.testing.assert_array_equal(run(s, [A, B, C], a, b, np.zeros((20, 24), np.float32)), a @ b)


def test_fuse_of_two_loops():
    """001_1e32228900fa6a2d: 3.1, the table of primitives."""
    A = te.placeholder((6, 10), name="A")
    B = te.compute((6, 10), lambda i, j: A[i, j] * 3, name="B")
    C = te.compute((6, 10), lambda i, j: B[i, j] + 1, name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    xy = s[C].fuse(x, y)
    outer, inner = s[C].split(xy, 32)
    s[B].compute_at(s[C], outer)
    s[C].parallel(outer)
    a = whole(6, 10)
    np.testing.assert_array_equal(run(s, [A, C], a, np.zeros((6, 10), np.float32)), a * 3 + 1)


@pytest.mark.parametrize("primitives", ["split", "reorder", "vectorize", "parallel", "all"])
def test_the_exercise_of_manual_schedules(primitives):
    """002_d39a76ab4d320c7f: Phase 2, split, reorder, vectorize and parallel on a matmul."""
    A, B, C = matmul(33, 40, 17)
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (k,) = C.op.reduce_axis
    xo, xi = s[C].split(x, factor=16)
    yo, yi = s[C].split(y, factor=16)
    if primitives in ("reorder", "all"):
        s[C].reorder(xo, yo, k, xi, yi)
    if primitives in ("vectorize", "all"):
        s[C].reorder(k, yi)
        s[C].vectorize(yi)
    if primitives in ("parallel", "all"):
        s[C].parallel(xo)
    a, b = whole(33, 17), whole(17, 40)
    np.testing.assert_array_equal(run(s, [A, B, C], a, b, np.zeros((33, 40), np.float32)), a @ b)
    assert str(tvm.lower(s, [A, B, C], simple_mode=True))


# ---------------------------------------------------------------------------- building and lowering
def test_an_elementwise_product_is_built_and_printed(capsys):
    """003_6d17afb3b306fbc9: TE."""
    m = te.var("m")
    n = te.var("n")

    a = te.placeholder((m, n), name="A")
    b = te.placeholder((m, n), name="B")

    c = te.compute((m, n), lambda i, j: a[i, j] * b[i, j], name="C")

    s = te.create_schedule([c.op])

    tgt = tvm.target.Target(target="llvm", host="llvm")
    mult = tvm.build(s, [a, b, c], target=tgt, name="mult")

    print(mult.get_source())
    print(tvm.lower(s, [a, b, c], simple_mode=True))
    shown = capsys.readouterr().out
    assert "define" in shown and "C_1[" in shown
    assert isinstance(tvm.lower(s, [a, b, c]), IRModule)
    x, y = whole(3, 5), whole(3, 5)
    out = tvm.nd.array(np.zeros((3, 5), np.float32))
    mult(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_array_equal(out.numpy(), x * y)


def nest_of(mod):
    """The loops of a module's function, as they are printed."""
    text = script_of(mod)
    return textwrap.dedent(text[text.index("    for ") :])


def test_plus_one_prints_as_a_script_and_is_built(expect):
    """003_6d17afb3b306fbc9: Demo for IRModule transform, modulo the printing of later versions."""
    ir_module = program(seeds.PLUS_ONE, IRModule=IRModule)["ir_module"]
    expect(
        script_of(ir_module),
        """
        @T.prim_func
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i0 in range(8):
                with T.block("B"):
                    v_i0 = T.axis.spatial(8, i0)
                    T.reads(A[v_i0])
                    T.writes(B[v_i0])
                    B[v_i0] = A[v_i0] + T.float32(1)
        """,
    )
    mod = tvm.build(ir_module, target="llvm")  # The module for CPU backends.
    a = whole(8)
    out = tvm.nd.array(np.zeros(8, np.float32))
    mod(tvm.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), a + 1)


def test_split_reorder_and_bind_print_as_scripts(expect):
    """003_6d17afb3b306fbc9: Demo for IRModule transform, step by step."""
    held = program(seeds.PLUS_ONE, seeds.SPLIT, IRModule=IRModule)
    sch = held["sch"]
    expect(
        nest_of(sch.mod),
        """
        for i0_0, i0_1, i0_2 in T.grid(2, 2, 2):
            with T.block("B"):
                v_i0 = T.axis.spatial(8, i0_0 * 4 + i0_1 * 2 + i0_2)
                T.reads(A[v_i0])
                T.writes(B[v_i0])
                B[v_i0] = A[v_i0] + T.float32(1)
        """,
    )

    program(seeds.EXCHANGE, **held)
    assert nest_of(sch.mod).startswith("for i0_0, i0_2, i0_1 in T.grid(2, 2, 2):\n    with")

    program(seeds.TO_THREADS, **held)
    expect(
        nest_of(sch.mod),
        """
        for i0_0 in T.thread_binding(2, thread="blockIdx.x"):
            for i0_2 in T.thread_binding(2, thread="threadIdx.x"):
                for i0_1 in range(2):
                    with T.block("B"):
                        v_i0 = T.axis.spatial(8, i0_0 * 4 + i0_1 * 2 + i0_2)
                        T.reads(A[v_i0])
                        T.writes(B[v_i0])
                        B[v_i0] = A[v_i0] + T.float32(1)
        """,
    )
    a = whole(8)
    for made in (sch.mod["main"], tvm.lower(sch.mod)["main"]):
        got = np.zeros(8, np.float32)
        tir.interpret(made, a.copy(), got)
        np.testing.assert_array_equal(got, a + 1)


def test_sums_of_rows_are_lowered():
    """003_6d17afb3b306fbc9: TOPI, the sum without it."""
    n = te.var("n")
    m = te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    assert "B" in str(tvm.lower(s, [A], simple_mode=True))
    ko, ki = s[B].split(k, factor=4)
    BF = s.rfactor(B, ki)
    s[BF].compute_at(s[B], s[B].op.axis[0])
    a = whole(5, 11)
    np.testing.assert_array_equal(run(s, [A, B], a, np.zeros(5, np.float32)), a.sum(1))


def test_a_pass_of_ones_own_is_hooked_into_lowering():
    """003_6d17afb3b306fbc9: Develop, a custom vectorize after phase 1."""
    n = tvm.tir.const(128, "int32")
    a = te.placeholder((n,), name="a")
    b = te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    sch = te.create_schedule(c.op)
    loops = []

    def find_width8(op):
        """Find all loops whose extent can be divided by 8."""
        if isinstance(op, tvm.tir.For) and isinstance(op.extent, tvm.tir.IntImm) and op.extent.value % 8 == 0:
            loops.append(op)

    def vectorize8(op):
        """Split a found loop by 8 and vectorize the inner part."""
        if op in loops:
            extent = op.extent.value
            name = op.loop_var.name
            lo, li = te.var(name + ".outer"), te.var(name + ".inner")
            body = tvm.tir.stmt_functor.substitute(op.body, {op.loop_var: lo * 8 + li})
            body = tvm.tir.For(li, 0, 8, tvm.tir.ForKind.VECTORIZED, body)
            return tvm.tir.For(lo, 0, extent // 8, tvm.tir.ForKind.SERIAL, body)
        return None

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def vectorize(f, mod, ctx):
        tvm.tir.stmt_functor.post_order_visit(f.body, find_width8)
        if not loops:
            return f
        return f.with_body(tvm.tir.stmt_functor.ir_transform(f.body, None, vectorize8, ["tir.For"]))

    plain = tvm.lower(sch, [a, b, c])
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, vectorize)]}):
        lowered = tvm.lower(sch, [a, b, c])
        built = tvm.build(sch, [a, b, c], target="llvm")
    assert len(loops) >= 1
    assert "i_outer * 8:i_outer * 8 + 8" in lowered.script()
    assert "i_outer" not in plain.script()
    x, y = whole(128), whole(128)[::-1].copy()
    got = np.zeros(128, np.float32)
    tir.interpret(lowered["main"], x, y, got)
    np.testing.assert_array_equal(got, x + y)
    out = tvm.nd.array(np.zeros(128, np.float32))
    built(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_array_equal(out.numpy(), x + y)


# ---------------------------------------------------------------------------- the GPU pattern
def threads(s, args, *arrays, races=True):
    """What a GPU schedule computes: in block form, and lowered with its barriers, thread by thread."""
    blocks = [a.copy() for a in arrays]
    tir.interpret(s.to_prim_func(args), *blocks, check_regions=True)
    lowered = tir.transform.ThreadSync("shared")(tvm.lower(s, args))
    held = [a.copy() for a in arrays]
    tir.interpret(lowered["main"], *held, detect_races=races)
    np.testing.assert_array_equal(held[-1], blocks[-1])
    return lowered["main"], blocks[-1]


def test_loops_bound_to_threads():
    """000_c94b23ed02cfc284: Schedule Primitives, 4. Bind."""
    held = program(seeds.EXPRESSION, seeds.BIND)
    s, A, B, C = (held[name] for name in "sABC")
    a, b = whole(70), whole(70)[::-1].copy()
    _, got = threads(s, [A, B, C], a, b, np.zeros(70, np.float32))
    np.testing.assert_array_equal(got, a + b)


@pytest.mark.slow
@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_typical_schedule(together):
    """000_c94b23ed02cfc284: Typical GPU Schedule Pattern, up to lowering."""
    parts = [seeds.PRODUCT, seeds.STEPS, seeds.TYPICAL, seeds.REORDER, seeds.COOPERATE, seeds.BOTH]
    held = program(*parts, *([seeds.FETCH] if together else []), M=128, N=64, K=16)
    s, A, B, C = (held[name] for name in "sABC")
    a, b = whole(128, 16), whole(16, 64)
    # Without the last step every thread fetches all of the tile: the same values to the same places.
    lowered, got = threads(s, [A, B, C], a, b, np.zeros((128, 64), np.float32), races=together)
    np.testing.assert_array_equal(got, a @ b)
    sizes = {
        str(n.buffer_var.name): [int(e) for e in n.extents]
        for n in pre_order(lowered.body)
        if isinstance(n, tir.Allocate)
    }
    assert {name: int(np.prod(size)) for name, size in sizes.items()} == {
        "A_shared": 64 * 8,
        "B_shared": 8 * 64,
    }
    if together:
        assert lowered.script().count('T.tvm_storage_sync("shared")') == 2


@pytest.mark.slow
def test_sums_in_registers_and_tiles_in_shared_memory():
    """000_c94b23ed02cfc284: Schedule Primitives, 8. Cache Read/Write; 001_1e32228900fa6a2d: 3.2."""
    held = program(seeds.PRODUCT, seeds.CACHES, M=32, N=64, K=16)
    s, A, B, C = (held[name] for name in "sABC")
    a, b = whole(32, 16), whole(16, 64)
    lowered, got = threads(s, [A, B, C], a, b, np.zeros((32, 64), np.float32))
    np.testing.assert_array_equal(got, a @ b)
    assert lowered.script().count("T.tvm_storage_sync") == 2
