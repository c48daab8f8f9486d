"""Scalable vectors: their LLVM types, and their results under qemu with vectors of several lengths."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from test_cross import main_program

import tilewright as tvm
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T

SVE = "llvm -mtriple=aarch64-linux-musl -mattr=+sve"
RVV = "llvm -mtriple=riscv64-linux-musl -mcpu=generic-rv64 -mattr=+m,+a,+f,+d,+c,+v"


@T.prim_func
def add_one(A: T.Buffer((115,), "float32"), B: T.Buffer((115,), "float32")):
    for i in range(115):
        with T.block("B"):
            vi = T.axis.spatial(115, i)
            B[vi] = A[vi] + T.float32(1)


@T.prim_func
def exps(A: T.Buffer((37,), "float32"), B: T.Buffer((37,), "float32")):
    for i in range(37):
        with T.block("B"):
            vi = T.axis.spatial(37, i)
            B[vi] = T.max(T.exp(A[vi]), T.tanh(A[vi])) / T.sqrt(T.fabs(A[vi]) + T.float32(1))


@T.prim_func
def every_third(A: T.Buffer((60,), "int32"), B: T.Buffer((20,), "int64")):
    for i in range(20):
        with T.block("B"):
            vi = T.axis.spatial(20, i)
            B[vi] = T.Cast("int64", A[vi * 3]) * T.Cast("int64", vi) - T.int64(5)


@T.prim_func
def spread(A: T.Buffer((20,), "float64"), B: T.Buffer((40,), "float64")):
    for i in range(20):
        with T.block("B"):
            vi = T.axis.spatial(20, i)
            B[vi * 2] = T.if_then_else(A[vi] < T.float64(0), T.float64(0), A[vi])


@T.prim_func
def halves(A: T.Buffer((50,), "float16"), B: T.Buffer((50,), "float16")):
    for i in range(50):
        with T.block("B"):
            vi = T.axis.spatial(50, i)
            B[vi] = A[vi] * T.float16(1.5) + T.float16(0.25)


@T.prim_func
def taken(A: T.Buffer((64,), "float32"), I: T.Buffer((30,), "int32"), B: T.Buffer((30,), "float32")):
    for i in range(30):
        with T.block("B"):
            vi = T.axis.spatial(30, i)
            B[vi] = A[I[vi]] * T.float32(2)


@T.prim_func
def signs(A: T.Buffer((33,), "float32"), B: T.Buffer((33,), "bool")):
    for i in range(33):
        with T.block("B"):
            vi = T.axis.spatial(33, i)
            B[vi] = A[vi] > T.float32(0)


@T.prim_func
def matmul(A: T.Buffer((7, 9), "float32"), B: T.Buffer((9, 21), "float32"), C: T.Buffer((7, 21), "float32")):
    for i, k, j in T.grid(7, 9, 21):
        with T.block("C"):
            vi, vk, vj = T.axis.remap("SRS", [i, k, j])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def vectorized(func: Any, lanes: int = 4) -> Any:
    """The program with its last loop as scalable vectors."""
    sch = tvm.tir.Schedule(func)
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    _, inner = sch.split(sch.get_loops(block)[-1], [None, T.vscale() * lanes])
    sch.vectorize(inner)
    return sch.mod["main"].with_attr("global_symbol", func.attrs["global_symbol"])


def draw() -> dict[str, list[np.ndarray]]:
    dice = np.random.default_rng(3)

    def some(*shape: int, dtype: str = "float32") -> np.ndarray:
        return dice.standard_normal(shape).astype(dtype)

    return {
        "add_one": [some(115), np.zeros(115, "float32")],
        "exps": [some(37), np.zeros(37, "float32")],
        "every_third": [dice.integers(-99, 99, 60).astype("int32"), np.zeros(20, "int64")],
        "spread": [some(20, dtype="float64"), np.zeros(40)],
        "halves": [some(50, dtype="float16"), np.zeros(50, "float16")],
        "taken": [some(64), dice.integers(0, 64, 30).astype("int32"), np.zeros(30, "float32")],
        "signs": [some(33), np.zeros(33, "bool")],
        "matmul": [some(7, 9), some(9, 21), np.zeros((7, 21), "float32")],
    }


PROGRAMS = {
    "add_one": add_one,
    "exps": exps,
    "every_third": every_third,
    "spread": spread,
    "halves": halves,
    "taken": taken,
    "signs": signs,
    "matmul": matmul,
}


@pytest.fixture(scope="module", params=["aarch64", "riscv64"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    arch = request.param
    needs.skip_without(f"qemu-{arch}")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the Python package ziglang")
    target = SVE if arch == "aarch64" else RVV
    folder = tmp_path_factory.mktemp(arch)
    made = tvm.IRModule({name: vectorized(func) for name, func in PROGRAMS.items()})
    built = tvm.build(made, target=target)
    assert "<vscale x 4 x float>" in built.get_source("ll")
    built.save(folder / "f.o")
    built.save(folder / "f.h")
    (folder / "main.c").write_text(main_program("f.h", [*PROGRAMS], draw()))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-musl", "-static"]
    done = subprocess.run(
        [*command, "main.c", "f.o", "-o", "main", "-lm"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return arch, folder / "main"


@pytest.mark.slow
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_results(program: tuple[str, Path], bits: int) -> None:
    arch, path = program
    cpu = f"max,sve-max-vq={bits // 128}" if arch == "aarch64" else f"rv64,v=true,vext_spec=v1.0,vlen={bits}"
    done = subprocess.run([f"qemu-{arch}", "-cpu", cpu, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = draw()
    lines = done.stdout.splitlines()
    for line, (name, func) in zip(lines, PROGRAMS.items(), strict=True):
        assert line.split()[:2] == [name, "0"]
        here = data[name][-1]
        tvm.build(func)(*data[name])
        there = np.frombuffer(bytes.fromhex(line.split()[2]), here.dtype).reshape(here.shape)
        # A product and a sum may be rounded once.
        rtol, atol = (2e-3, 1e-3) if here.dtype == np.float16 else (2e-5, 1e-6)
        np.testing.assert_allclose(there.astype("f8"), here.astype("f8"), rtol, atol, err_msg=name)
        assert np.any(here != 0)


@pytest.mark.parametrize("vscale", [1, 2, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning(name: str, vscale: int) -> None:
    """The interpreter's results before and after lowering, with vectors of several lengths."""
    func = PROGRAMS[name]
    wide, plain, lowered = vectorized(func), draw()[name], draw()[name]
    expected = draw()[name]
    tvm.tir.interpret(func, *expected)
    tvm.tir.interpret(wide, *plain, vscale=vscale)
    np.testing.assert_array_equal(plain[-1], expected[-1])
    with tvm.target.Target(SVE):
        made = tvm.lower(wide)
    assert "T.vscale() * 4" in str(made)
    tvm.tir.interpret(made, *lowered, vscale=vscale)
    np.testing.assert_array_equal(lowered[-1], expected[-1])


def test_meaning_of_vectors_by_hand() -> None:
    @T.prim_func
    def copy(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        B[T.ramp(0, 1, 4 * T.vscale())] = A[T.ramp(0, 1, 4 * T.vscale())] + T.broadcast(
            T.float32(1), 4 * T.vscale()
        )

    a, b = np.ones(128, "float32"), np.zeros(128, "float32")
    tvm.tir.interpret(copy, a, b, vscale=4)
    assert (b[:16] == 2).all() and not b[16:].any()
    with pytest.raises(tvm.tir.InterpreterError, match="out of bounds"):
        tvm.tir.interpret(copy, a, b, vscale=64)
    with pytest.raises(ValueError, match="vscale=3 is not a power of two from 1 to 1024"):
        tvm.tir.interpret(copy, a, b, vscale=3)


def test_predicates_are_lane_masks() -> None:
    text = tvm.build(vectorized(add_one), target=SVE).get_source("ll")
    assert "llvm.get.active.lane.mask.nxv4i1" in text
    assert "llvm.masked.load.nxv4f32" in text and "llvm.masked.store.nxv4f32" in text
    assert "vscale_range(1,16)" in text


def test_no_predicate_for_lengths_that_divide() -> None:
    """With `disable_predication` 128 elements need no predicate: all lengths of SVE divide them."""

    @T.prim_func
    def func(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        for i in range(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] + T.float32(1)

    with tvm.target.Target(SVE):
        sch = tvm.tir.Schedule(func)
        _, inner = sch.split(sch.get_loops("B")[0], [None, 4 * T.vscale()], disable_predication=True)
        sch.vectorize(inner)
        text = tvm.build(sch.mod).get_source("ll")
    assert "load <vscale x 4 x float>" in text and "lane.mask" not in text
    sch = tvm.tir.Schedule(add_one)
    with tvm.target.Target(SVE), pytest.raises(tvm.tir.ScheduleError, match="beyond its end may run too"):
        sch.split(sch.get_loops("B")[0], [None, 4 * T.vscale()], disable_predication=True)


def test_targets_without_scalable_vectors_are_refused() -> None:
    with pytest.raises(LoweringError, match=r"which makes scalable vectors, and the target .* has none"):
        tvm.build(vectorized(add_one), target="llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")

    @T.prim_func
    def length(A: T.Buffer((1,), "int32")):
        A[0] = T.vscale()

    with pytest.raises(
        LoweringError, match="the length factor of scalable vectors, and the target for x86_64"
    ):
        tvm.build(length, target="llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    assert "llvm.vscale.i32" in tvm.build(length, target=SVE).get_source()


def test_functions_of_single_lanes_are_refused() -> None:
    @T.prim_func
    def called(A: T.Buffer((16,), "float32")):
        for i in T.vectorized(T.vscale() * 4):
            A[i] = T.call_pure_extern("float32", "cbrtf", A[i])

    text = tvm.build(called, target=SVE).get_source("ll")  # a loop over single elements
    assert "@cbrtf(float" in text

    @T.prim_func
    def by_hand(A: T.Buffer((128,), "float32")):
        A[T.ramp(0, 1, 4 * T.vscale())] = T.call_pure_extern(
            "float32xvscalex4", "cbrtf", A[T.ramp(0, 1, 4 * T.vscale())]
        )

    with pytest.raises(LoweringError, match="needs a call of cbrtf for each lane, which the scalable vector"):
        tvm.build(by_hand, target=SVE)
