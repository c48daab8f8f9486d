"""Saving, exporting and loading: object files, libraries with a C header, and what may be wrong with a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import needs
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.contrib import cc


def product(parallel: bool = True) -> tvm.runtime.Module:
    m, n = te.var("m"), te.var("n")
    A, B = te.placeholder((m, n), name="A"), te.placeholder((m, n), name="B")
    C = te.compute((m, n), lambda i, j: te.exp(A[i, j]) * B[i, j], name="C")
    s = te.create_schedule(C.op)
    if parallel:
        s[C].parallel(C.op.axis[0])
    return tvm.build(s, [A, B, C], "llvm", name="mult")


def check(module: tvm.runtime.Module) -> None:
    a, b = np.random.rand(30, 40).astype("float32"), np.random.rand(30, 40).astype("float32")
    c = np.empty_like(a)
    module["mult"](a, b, c)
    np.testing.assert_allclose(c, np.exp(a) * b, rtol=1e-5)


def test_an_exported_library_loads_again(tmp_path: Path) -> None:
    path = tmp_path / "mult.so"
    product().export_library(path)
    check(tvm.runtime.load_module(path))
    assert (
        "int32_t mult(const float* A, const float* B, float* C, int32_t m, int32_t n);"
        in (tmp_path / "mult.h").read_text()
    )


@pytest.mark.slow
def test_object_files_link_by_hand(tmp_path: Path) -> None:
    module = product()
    for suffix in ("o", "ll", "bc", "s", "h", "json"):
        module.save(tmp_path / f"mult.{suffix}")
        assert (tmp_path / f"mult.{suffix}").stat().st_size > 100
    cc.create_shared(str(tmp_path / "byhand.so"), [str(tmp_path / "mult.o")])
    check(tvm.runtime.load_module(tmp_path / "byhand.so"))
    check(tvm.runtime.load_module(tmp_path / "mult.o"))
    module.export_library(tmp_path / "mult.tar")
    check(tvm.runtime.load_module(tmp_path / "mult.tar"))


@pytest.mark.needs("cc")
def test_a_c_program_calls_it_without_python(tmp_path: Path) -> None:
    product().export_library(tmp_path / "libmult.so")
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        #include "libmult.h"
        int main(void) {
            float a[6] = {0, 0, 0, 0, 0, 0}, b[6] = {1, 2, 3, 4, 5, 6}, c[6];
            int32_t code = mult(a, b, c, 2, 3);
            printf("%d", code);
            for (int i = 0; i < 6; i++) printf(" %g", c[i]);
            return 0;
        }
        """
    )
    subprocess.run(
        [needs.compiler(), "-Wall", "-Werror", "main.c", "-o", "main", "./libmult.so"],
        cwd=tmp_path,
        check=True,
    )
    told = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told == "0 1 2 3 4 5 6"


@pytest.mark.slow
def test_a_library_needs_the_runtime_alone(tmp_path: Path) -> None:
    product().export_library(tmp_path / "mult.so")
    program = f"""
import sys
import numpy as np
from tilewright.runtime import load_module
f = load_module({str(tmp_path / "mult.so")!r})
a = np.zeros((2, 2), "float32"); b = np.ones((2, 2), "float32"); c = np.empty((2, 2), "float32")
f(a, b, c)
assert (c == 1).all()
used = [m for m in sys.modules if m.startswith("tilewright.")]
heavy = [m for m in used if m.split(".")[1] in ("codegen", "te", "tir", "driver", "arith", "target")]
assert not heavy and "llvmlite" not in sys.modules, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_no_library_of_ours_is_refused(tmp_path: Path) -> None:
    product().export_library(tmp_path / "mult.so")
    whole = (tmp_path / "mult.so").read_bytes()
    (tmp_path / "cut.so").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.so").write_text("not a library")
    other = bytearray(whole)
    other[18] = 0xB7  # an aarch64 machine
    (tmp_path / "arm.so").write_bytes(bytes(other))
    for name in ("cut.so", "text.so", "arm.so"):
        with pytest.raises(tvm.TVMError, match=name):
            tvm.runtime.load_module(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.so"):
        tvm.runtime.load_module(tmp_path / "nowhere.so")


@pytest.mark.slow
def test_the_pool_respects_the_number_of_threads_and_survives_a_fork(tmp_path: Path) -> None:
    program = """
import os, sys, threading
import numpy as np
import tilewright as tvm
from tilewright.script import tir as T

@T.prim_func
def twice(A: T.Buffer((4096,), "float32")):
    for i in T.parallel(4096):
        A[i] = A[i] * T.float32(2)

f = tvm.build(twice)
x = np.ones(4096, "float32")
for _ in range(20):
    f(x); x[:] = 1
threads = len(os.listdir("/proc/self/task"))
pid = os.fork()
f(x)
good = (x == 2).all()
if pid == 0:
    os._exit(0 if good else 1)
assert os.waitpid(pid, 0)[1] == 0 and good
print(threads)
"""
    (tmp_path / "program.py").write_text(program)
    counts = {}
    for n in ("1", "3"):
        env = {**os.environ, "TILEWRIGHT_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        counts[n] = int(done.stdout)
    assert counts["3"] - counts["1"] == 2


def test_imported_modules_go_into_the_same_library(tmp_path: Path) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    other = tvm.build(s, [A, B], "llvm", name="plus_one")
    module = product()
    module.import_module(other)
    module.export_library(tmp_path / "both.so")
    loaded = tvm.runtime.load_module(tmp_path / "both.so")
    check(loaded)
    x, y = np.arange(5, dtype="float32"), np.empty(5, "float32")
    loaded["plus_one"](x, y)
    np.testing.assert_array_equal(y, x + 1)
    header = (tmp_path / "both.h").read_text()
    assert "plus_one(" in header and "mult(" in header


def test_a_word_of_c_is_no_symbol(tmp_path: Path) -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] * 2.0, name="B")
    module = tvm.build(te.create_schedule(B.op), [A, B], name="double")
    assert "int32_t tw_double(const float* A, float* B);" in module.get_source("h")
    x, y = np.ones(4, "float32"), np.empty(4, "float32")
    module["double"](x, y)
    assert (y == 2).all()
