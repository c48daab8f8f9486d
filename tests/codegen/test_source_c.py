"""C source: its text, and that what a C compiler makes of it agrees with the interpreter."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import BuildError

needs_cc = pytest.mark.needs("cc")


def compiled(mod: Any, folder: Path) -> Any:
    mod.save(folder / "program.c")
    library = folder / "program.so"
    flags = ["-O2", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-shared", "-fPIC"]
    subprocess.run(
        [needs.compiler(), *flags, "-o", str(library), str(folder / "program.c"), "-lm"], check=True
    )
    return ctypes.CDLL(str(library))


def test_a_function(expect) -> None:
    n = te.var("n")
    A = te.placeholder((n, 64), name="A")
    B = te.compute((n, 64), lambda i, j: te.exp(A[i, j]), name="B")
    k = te.reduce_axis((0, 64), "k")
    C = te.compute((n,), lambda i: te.sum(B[i, k], axis=k), name="C")
    expect(
        tvm.build(te.create_schedule(C.op), [A, C], target="c").get_source(),
        """
        #include <math.h>
        #include <stdbool.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <string.h>
        int32_t default_function(const float* restrict A, float* restrict C, int32_t n) {
          float* B = (float*)malloc((size_t)((int64_t)n * 64) * 4);
          if (B == NULL) return 4;
          for (int32_t i = 0; i < n; ++i) {
            for (int32_t j = 0; j < 64; ++j) {
              B[(int64_t)i * 64 + (int64_t)j] = expf(A[(int64_t)i * 64 + (int64_t)j]);
            }
          }
          for (int32_t i_1 = 0; i_1 < n; ++i_1) {
            C[i_1] = 0.0f;
            for (int32_t k = 0; k < 64; ++k) {
              C[i_1] = C[i_1] + B[(int64_t)i_1 * 64 + (int64_t)k];
            }
          }
          free(B);
          return 0;
        }
        """,
    )


def programs() -> dict[str, Any]:
    """Expressions of each kind of number."""
    f, h = te.placeholder((50,), name="f"), te.placeholder((50,), "float16", name="h")
    i, j = te.placeholder((50,), "int32", name="i"), te.placeholder((50,), "int8", name="j")
    b = te.placeholder((50,), "bfloat16", name="b")
    return {
        "floats": (
            [f],
            te.compute((50,), lambda x: tir.max(te.tanh(f[x]) + te.sqrt(te.abs(f[x])), te.floor(f[x]))),
        ),
        "halves": ([h], te.compute((50,), lambda x: h[x] * h[x] + tir.const(0.1, "float16"))),
        "brains": ([b], te.compute((50,), lambda x: b[x] * b[x] - tir.const(3.0, "bfloat16"))),
        "integers": (
            [i],
            te.compute((50,), lambda x: te.floordiv(i[x], -7) * 65537 + te.floormod(i[x], 5) * i[x]),
        ),
        "bytes": (
            [j],
            te.compute((50,), lambda x: (j[x] * j[x] + j[x]).astype("int32") + (j[x] >> 2).astype("int32")),
        ),
        "bits": (
            [i],
            te.compute((50,), lambda x: tir.popcount(i[x]) + tir.clz(i[x]) + (~i[x] ^ (i[x] << 3))),
        ),
        "seen as others": ([f], te.compute((50,), lambda x: tir.reinterpret("int32", f[x]) & 255)),
        "rounded": ([f], te.compute((50,), lambda x: te.round(f[x]) + te.trunc(f[x] * 3.0) + te.ceil(f[x]))),
    }


@needs_cc
@pytest.mark.parametrize("name", programs())
def test_meaning(name: str, tmp_path: Path) -> None:
    inputs, output = programs()[name]
    s = te.create_schedule(output.op)
    s[output].vectorize(s[output].split(output.op.axis[0], factor=4)[1])
    func = te.create_prim_func([*inputs, output])
    rng = np.random.default_rng(0)
    arrays = []
    for b in func.buffer_params():
        kind = tvm.nd.empty((1,), str(b.dtype)).numpy().dtype
        values = rng.integers(-(2**31), 2**31 - 1, 50) if b.dtype == "int32" else rng.standard_normal(50) * 50
        arrays.append(values.astype(kind))
    want = [a.copy() for a in arrays]
    tir.interpret(func, *want)
    library = compiled(tvm.build(s, [*inputs, output], target="c"), tmp_path)
    assert library.default_function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays)) == 0
    got, expected = arrays[-1], want[-1]
    if got.dtype.kind == "i":
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got.astype("float64"), expected.astype("float64"), rtol=2e-6)


@needs_cc
def test_products_of_bytes(tmp_path: Path) -> None:
    text = """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((64,), "int8"), B: T.Buffer((64,), "int8"), C: T.Buffer((16,), "int32")):
    T.func_attr({"global_symbol": "products"})
    for i in range(16):
        C[i] = T.Call("int32", "tir.dp4a", [A[i * 4:i * 4 + 4:1], B[T.Ramp(i, 16, 4)], i])
"""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, 64).astype("int8") for _ in range(2))
    c = np.zeros(16, "int32")
    library = compiled(tvm.build(tvm.script.from_source(text), target="c"), tmp_path)
    assert library.products(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))) == 0
    want = (a.reshape(16, 4).astype("int32") * b.reshape(4, 16).T).sum(1) + np.arange(16)
    np.testing.assert_array_equal(c, want)


def test_a_header_goes_with_it(tmp_path: Path) -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    mod = tvm.build(te.create_schedule(B.op), [A, B], target="c", name="plus_one")
    mod.save(tmp_path / "plus_one.h")
    assert "int32_t plus_one(const float* A, float* B)" in (tmp_path / "plus_one.h").read_text()


def test_source_for_another_machine_is_not_called() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    target = "c -mtriple=riscv64-unknown-linux-gnu"
    mod = tvm.build(te.create_schedule(B.op), [A, B], target=target, name="plus_one")
    assert not mod.is_runnable
    with pytest.raises(BuildError, match="plus_one is C source for riscv64-unknown-linux-gnu: save it"):
        mod(tvm.nd.empty((8,)), tvm.nd.empty((8,)))
