"""LLVM code generation: types, arithmetic, memory, parallel loops, errors, targets."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import BuildError, LoweringError, TargetError
from tilewright.script import tir as T


def numpy_type(name: str) -> type:
    return {"bfloat16": ml_dtypes.bfloat16}.get(name) or np.dtype(name).type


def elementwise(
    dtype: str, function, out: str | None = None, n: int = 37, lanes: int = 0, target: str = "llvm"
):
    """A compiled function of one array, plain or vectorised by `lanes`."""
    A = te.placeholder((n,), dtype, name="A")
    B = te.compute((n,), lambda i: function(A[i]), name="B")
    s = te.create_schedule(B.op)
    if lanes:
        _, inner = s[B].split(B.op.axis[0], factor=lanes)
        s[B].vectorize(inner)
    f = tvm.build(s, [A, B], target)

    def run(x: np.ndarray) -> np.ndarray:
        got = tvm.nd.empty((n,), B.dtype)
        f(tvm.nd.array(x.astype(numpy_type(dtype))), got)
        return got.numpy()

    return run


RNG = np.random.default_rng(1)


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint32", "uint64"])
def test_integer_arithmetic_wraps_as_numpys(dtype: str, lanes: int) -> None:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, 37, dtype=dtype)
    got = elementwise(dtype, lambda a: a * a + a, lanes=lanes)(x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, x * x + x)


@pytest.mark.parametrize("lanes", [0, 4, 16])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
def test_small_floats_round_after_each_operation(dtype: str, lanes: int, target: str) -> None:
    x = np.concatenate([RNG.standard_normal(30) * 100, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 6e-8]])
    kept = x.astype(numpy_type(dtype))
    with np.errstate(all="ignore"):
        want = kept * kept + kept
    got = elementwise(dtype, lambda a: a * a + a, lanes=lanes, target=target)(kept)
    np.testing.assert_array_equal(got.view(np.uint16)[~np.isnan(want)], want.view(np.uint16)[~np.isnan(want)])
    assert np.isnan(got[np.isnan(want)]).all()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_float_conversion_is_exact_for_every_bit_pattern(dtype: str, target: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(numpy_type(dtype))
    A = te.placeholder((1 << 16,), dtype, name="A")
    W = te.compute(A.shape, lambda i: A[i].astype("float32"), name="W")
    B = te.compute(A.shape, lambda i: (W[i] * 1.0009765625).astype(dtype), name="B")
    wide, back = tvm.nd.empty(A.shape, "float32"), tvm.nd.empty(A.shape, dtype)
    tvm.build(te.create_schedule(B.op), [A, W, B], target)(tvm.nd.array(x), wide, back)
    np.testing.assert_array_equal(wide.numpy(), x.astype("float32"))
    with np.errstate(all="ignore"):
        want = (x.astype("float32") * np.float32(1.0009765625)).astype(numpy_type(dtype))
    np.testing.assert_array_equal(back.numpy().astype("float32"), want.astype("float32"))


@pytest.mark.parametrize("lanes", [0, 7, 8])
def test_min_and_max_keep_nan(lanes: int) -> None:
    x = np.where(RNG.random(37) < 0.3, np.nan, RNG.standard_normal(37)).astype("float32")
    np.testing.assert_array_equal(
        elementwise("float32", lambda a: tir.max(a, tir.const(0.0)), lanes=lanes)(x), np.maximum(x, 0)
    )
    A, B = te.placeholder((37,), name="A"), te.placeholder((37,), name="B")
    C = te.compute((37,), lambda i: tir.min(A[i], B[i]), name="C")
    y, got = np.roll(x, 1), np.empty(37, "float32")
    tvm.build(te.create_schedule(C.op), [A, B, C])(x, y, got)
    np.testing.assert_array_equal(got, np.minimum(x, y))


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, -1, -3, -8])
def test_integer_divisions(divisor: int, lanes: int) -> None:
    x = np.arange(-18, 19, dtype="int32")
    d = tir.const(divisor, "int32")
    run = lambda f: elementwise("int32", f, lanes=lanes)(x)
    np.testing.assert_array_equal(run(lambda a: tir.floordiv(a, d)), x // divisor)
    np.testing.assert_array_equal(run(lambda a: tir.floormod(a, d)), x % divisor)
    np.testing.assert_array_equal(run(lambda a: tir.truncdiv(a, d)), np.fix(x / divisor).astype("int32"))
    np.testing.assert_array_equal(run(lambda a: tir.truncmod(a, d)), np.fmod(x, divisor))


@pytest.mark.parametrize("lanes", [0, 4])
def test_bits_and_casts(lanes: int) -> None:
    x = RNG.integers(-1000, 1000, 37).astype("int32")
    run = lambda f: elementwise("int32", f, lanes=lanes)(x)
    np.testing.assert_array_equal(run(lambda a: (a << 3) ^ (a >> 2) | (a & 5)), (x << 3) ^ (x >> 2) | (x & 5))
    np.testing.assert_array_equal(run(lambda a: ~a), ~x)
    np.testing.assert_array_equal(
        run(lambda a: tir.popcount(a)), [bin(int(v) & 0xFFFFFFFF).count("1") for v in x]
    )
    np.testing.assert_array_equal(run(lambda a: a.astype("int8")), x.astype("int8"))
    np.testing.assert_array_equal(run(lambda a: a.astype("bool")), x.astype("bool"))
    np.testing.assert_array_equal(run(lambda a: tir.reinterpret("float32", a)).view("int32"), x)
    y = (RNG.standard_normal(37) * 50).astype("float32")
    np.testing.assert_array_equal(
        elementwise("float32", lambda a: a.astype("int32"), lanes=lanes)(y), y.astype("int32")
    )


def test_lazy_conditions_do_not_touch_what_they_guard() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((16,), lambda i: te.if_then_else(i < 8, A[i], 0.0), name="B")
    C = te.compute(
        (16,), lambda i: te.if_then_else(tir.all(i < 8, A[i] > 0.0), A[i], tir.const(-1.0)), name="C"
    )
    x = RNG.standard_normal(8).astype("float32")
    b, c = np.empty(16, "float32"), np.empty(16, "float32")
    tvm.build(te.create_schedule([B.op, C.op]), [A, B, C])(x, b, c)
    np.testing.assert_array_equal(b, np.r_[x, np.zeros(8)].astype("float32"))
    np.testing.assert_array_equal(c, np.r_[np.where(x > 0, x, -1), -np.ones(8)].astype("float32"))


@T.prim_func
def count_down(A: T.Buffer((4,), "int32")):
    for i in range(4):
        while A[i] > 0:
            A[i] = A[i] - 3


def test_while_loops() -> None:
    x = np.array([10, -1, 0, 3], "int32")
    tvm.build(count_down)(x)
    np.testing.assert_array_equal(x, [-2, -1, 0, 0])


@T.prim_func
def checked(A: T.Buffer((4,), "int32"), n: T.int32):
    assert n < 4, "n must be less than 4"
    A[n] = 7


def test_a_failed_assertion_reaches_python() -> None:
    f = tvm.build(checked)
    x = np.zeros(4, "int32")
    f(x, 2)
    assert x.tolist() == [0, 0, 7, 0]
    with pytest.raises(tvm.TVMError, match="checked: n must be less than 4"):
        f(x, 4)


@T.prim_func
def checked_in_parallel(A: T.Buffer((64,), "int32")):
    for i in T.parallel(64):
        assert A[i] >= 0, "negative"
        A[i] = A[i] * 2


def test_a_failed_assertion_in_a_parallel_loop_reaches_python() -> None:
    f = tvm.build(checked_in_parallel)
    x = np.arange(64, dtype="int32")
    f(x)
    np.testing.assert_array_equal(x, 2 * np.arange(64))
    x[40] = -1
    with pytest.raises(tvm.TVMError, match="negative"):
        f(x)
    x[40] = 0
    f(x)  # the pool goes on working


@T.prim_func
def returns(n: T.int32) -> T.int32:
    T.ret(n * 3)


def test_returned_values() -> None:
    assert tvm.build(returns)(14) == 42


@T.prim_func
def nested(A: T.Buffer((4, 8), "int32")):
    for i in T.parallel(4):
        for j in T.parallel(8):
            A[i, j] = i * 8 + j


def test_nested_parallel_loops_run_serially_inside() -> None:
    x = np.zeros((4, 8), "int32")
    f = tvm.build(nested)
    f(x)
    np.testing.assert_array_equal(x, np.arange(32).reshape(4, 8))
    assert f.get_source("ll").count("@__tw_parallel_launch") >= 1


def test_large_and_symbolic_allocations_live_on_the_heap() -> None:
    n = te.var("n")
    A = te.placeholder((n, 1000), name="A")
    B = te.compute((n, 1000), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, 1000), lambda i, j: B[i, 999 - j] + 1.0, name="C")
    f = tvm.build(te.create_schedule(C.op), [A, C])
    x = RNG.standard_normal((100, 1000)).astype("float32")
    got = np.empty_like(x)
    for _ in range(3):
        f(x, got)
    np.testing.assert_allclose(got, x[:, ::-1] * 2 + 1, rtol=1e-6)
    assert "aligned_alloc" in f.get_source("ll")


def test_vector_code_is_vectors() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2.0 + 1.0, name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(B.op.axis[0], factor=8)
    s[B].vectorize(inner)
    text = tvm.build(s, [A, B], "llvm").text
    assert "load <8 x float>" in text and "fmul contract <8 x float>" in text


def test_gathers_and_strided_vectors() -> None:
    A, I = te.placeholder((64,), name="A"), te.placeholder((32,), "int32", name="I")
    B = te.compute((32,), lambda i: A[I[i]] + A[i * 2] + A[63 - i], name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(B.op.axis[0], factor=8)
    s[B].vectorize(inner)
    x, i = RNG.standard_normal(64).astype("float32"), RNG.integers(0, 64, 32).astype("int32")
    got = np.empty(32, "float32")
    tvm.build(s, [A, I, B])(x, i, got)
    np.testing.assert_allclose(got, x[i] + x[0:64:2] + x[63 - np.arange(32)], rtol=1e-6)


def test_several_functions_in_a_module_and_targets_as_keys() -> None:
    from tilewright.ir import IRModule

    mod = IRModule({"count_down": count_down, "returns": returns})
    built = tvm.build(mod, target="llvm")
    assert built["returns"](2) == 6
    x = np.array([4, 4, 4, 4], "int32")
    built["count_down"](x)
    assert x.tolist() == [-2] * 4
    with pytest.raises(TypeError, match="no entry function"):
        built(x)
    assert tvm.build({"llvm": IRModule({"returns": returns})})["returns"](3) == 9


def test_thread_bindings_are_refused_on_a_cpu() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(LoweringError, match=r"bound to threadIdx.x, which a CPU target does not have"):
        tvm.build(s, [A, B], "llvm")


def test_other_machines() -> None:
    mod = tvm.build(returns, target="llvm -mtriple=aarch64-linux-gnu")
    assert "ret" in mod.get_source("asm")
    with pytest.raises(BuildError, match=r"aarch64-linux-gnu.*export_library it and run it there"):
        mod(3)
    for triple in ("riscv64-unknown-linux-gnu", "x86_64-unknown-linux-gnu", "wasm32-unknown-unknown"):
        assert tvm.build(returns, target=f"llvm -mtriple={triple}").get_source("asm")
    with pytest.raises(TargetError, match="-mtripel"):
        tvm.build(returns, target="llvm -mtripel=x")
    with pytest.raises(BuildError, match="no code generator for targets of kind 'vulkan'"):
        tvm.build(returns, target="vulkan")


def test_unknown_source_formats_are_named() -> None:
    mod = tvm.build(returns)
    with pytest.raises(BuildError, match="there are: ll, asm, h, json"):
        mod.get_source("cubin")
    with pytest.raises(BuildError, match="cannot save a module as 'exe'"):
        mod.save("f.exe")


def test_noalias_is_promised_only_where_it_holds() -> None:
    assert "noalias" not in tvm.build(count_down).text.split("@count_down")[1].split("{")[0]
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i], name="B")
    text = tvm.build(te.create_schedule(B.op), [A, B], name="copy").text
    assert "noalias" in text.split("@copy")[1].split("{")[0]


@T.prim_func
def vectors(A: T.Buffer((4,), "float32x4"), B: T.Buffer((4,), "float32x4")):
    for i in range(4):
        B[i] = A[i] * T.Broadcast(T.float32(2), 4)


def test_buffers_of_vectors_are_arrays_with_one_more_dimension() -> None:
    x = RNG.standard_normal((4, 4)).astype("float32")
    got = np.empty_like(x)
    tvm.build(vectors)(x, got)
    np.testing.assert_array_equal(got, x * 2)


def test_a_function_may_have_the_name_of_a_c_function_that_it_calls() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: tir.call_pure_extern("float32", "cbrtf", A[i]), name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B], name="cbrtf")
    x, got = np.array([1, 8, 27, 64], "float32"), np.empty(4, "float32")
    f["cbrtf"](x, got)
    np.testing.assert_allclose(got, [1, 2, 3, 4], rtol=1e-6)


def test_a_missing_c_function_is_named() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: tir.call_pure_extern("float32", "no_such_function", A[i]), name="B")
    with pytest.raises(
        BuildError, match="calls the C function no_such_function, which is not in this process"
    ):
        tvm.build(te.create_schedule(B.op), [A, B])(np.ones(4, "float32"), np.ones(4, "float32"))


@pytest.mark.slow
def test_a_long_chain_of_maxima_compiles_in_time() -> None:
    """LLVM's vectorizer once took time exponential in the number of steps, which all iterations of `i` share here."""
    program = """
from tilewright.script import tir as T
import tilewright as tvm

@T.prim_func
def main(A: T.Buffer((5,), "float32"), B: T.Buffer((6,), "float32"), n: T.int32):
    for o, i, j, k, l in T.grid(2, n, 2, 4, 5):
        with T.block("B"):
            v0 = T.axis.spatial(6, o + i)
            v1 = T.axis.reduce(5, j + k)
            v2 = T.axis.reduce(5, l)
            with T.init():
                B[v0] = T.float32(0)
            B[v0] = T.max(B[v0], A[v2])

tvm.build(main, target="llvm").get_source("asm")
"""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "chain.py"
        source.write_text(program)
        subprocess.run([sys.executable, source], check=True, timeout=60)


def test_stores_to_elements_that_iterations_share_keep_their_order() -> None:
    """LLVM's vectorizer once let all first stores come before the second ones."""

    @T.prim_func
    def program(A: T.Buffer((64,), "float32"), B: T.Buffer((32,), "float32"), n: T.int32):
        L = T.alloc_buffer((64,), scope="local")
        for i in range(64):
            with T.block("L"):
                v = T.axis.spatial(64, i)
                L[v] = A[v]
        for i in T.serial(0, n):
            with T.block("B"):
                v = T.axis.opaque(64, i)
                B[v // 2] = T.float32(0)
                if v % 2 == 0:
                    B[v // 2] = B[v // 2] + L[v]

    b = np.full(32, 7, "float32")
    tvm.build(program, target="llvm")(np.ones(64, "float32"), b, 64)
    np.testing.assert_array_equal(b, np.zeros(32))


@pytest.mark.parametrize("mark", ["dma_copy", "coproc_scope"])
@pytest.mark.parametrize(("kind", "words"), [("llvm", "a CPU target"), ("c", "this target")])
def test_marks_for_engines_of_an_accelerator_are_refused(mark: str, kind: str, words: str):
    from tilewright import te

    a = te.placeholder((4, 16), "int32", "a")
    b = te.compute((4, 16), lambda i, j: a[i, j], "b")
    s = te.create_schedule(b.op)
    s[b].pragma(b.op.axis[0], mark)
    with pytest.raises(
        LoweringError,
        match=f"a stage is marked by '{mark}' for an engine of an accelerator, which {words} does not have: "
        "build for an accelerator, such as ext_dev, or leave the mark out",
    ):
        tvm.build(s, [a, b], kind)


def test_functions_are_in_the_order_of_their_names() -> None:
    import re

    def calls(name: str) -> tir.PrimFunc:
        v = te.var("v", "float32")
        body = tir.Evaluate(tir.call_extern("float32", f"{name}_callee", v))
        return tir.PrimFunc([v], body).with_attr("global_symbol", name)

    mod = tvm.IRModule({name: calls(name) for name in ("first", "then", "also")})
    text = tvm.build(mod, target="llvm").get_source("ll")
    assert re.findall(r"^define[^@]*@(first|then|also)\(", text, re.MULTILINE) == ["also", "first", "then"]
