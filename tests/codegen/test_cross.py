"""Code for other architectures, run: linked by zig with a C program, under qemu or wasmtime, and compared."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import needs
import numpy as np
import pytest

import tilewright as tvm
from tilewright.script import ir as I
from tilewright.script import tir as T

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None, reason="needs the Python package ziglang"
    ),
]


@I.ir_module
class Kernels:
    @T.prim_func
    def matmul(
        A: T.Buffer((16, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((16, 16), "float32")
    ):
        T.func_attr({"global_symbol": "matmul"})
        for i, jo in T.grid(16, 2):
            for ji in T.vectorized(8):
                C[i, jo * 8 + ji] = T.float32(0)
            for k in range(24):
                for ji in T.vectorized(8):
                    C[i, jo * 8 + ji] = C[i, jo * 8 + ji] + A[i, k] * B[k, jo * 8 + ji]

    @T.prim_func
    def exps(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "exps"})
        for io in range(8):
            for ii in T.vectorized(8):
                B[io * 8 + ii] = T.exp(A[io * 8 + ii]) + T.tanh(A[io * 8 + ii])

    @T.prim_func
    def halves(A: T.Buffer((32,), "float16"), B: T.Buffer((32,), "bfloat16"), C: T.Buffer((32,), "float16")):
        T.func_attr({"global_symbol": "halves"})
        for i in range(32):
            C[i] = A[i] * T.float16(1.5) + T.Cast("float16", B[i])

    @T.prim_func
    def dot(A: T.Buffer((128,), "int8"), B: T.Buffer((128,), "int8"), C: T.Buffer((1,), "int32")):
        T.func_attr({"global_symbol": "dot"})
        C[0] = 0
        for k in range(128):
            C[0] = C[0] + T.Cast("int32", A[k]) * T.Cast("int32", B[k])


@I.ir_module
class Shared:
    @T.prim_func
    def squares(A: T.Buffer((512,), "float32"), B: T.Buffer((512,), "float32")):
        T.func_attr({"global_symbol": "squares"})
        for i in T.parallel(512):
            B[i] = A[i] * A[i] + T.float32(1)


def arrays() -> dict[str, list[np.ndarray]]:
    dice = np.random.default_rng(0)
    small = dice.standard_normal
    return {
        "matmul": [small((16, 24), "float32"), small((24, 16), "float32"), np.zeros((16, 16), "float32")],
        "exps": [small(64, "float32"), np.zeros(64, "float32")],
        "halves": [
            small(32).astype("float16"),
            small(32).astype(ml_dtypes.bfloat16),
            np.zeros(32, "float16"),
        ],
        "dot": [dice.integers(-128, 127, 128).astype("int8") for _ in range(2)] + [np.zeros(1, "int32")],
        "squares": [small(512, "float32"), np.zeros(512, "float32")],
    }


def main_program(header: str, names: list[str], data: dict[str, list[np.ndarray]]) -> str:
    """A C program that calls each function and prints the bytes of its last argument."""
    lines = ["#include <stdio.h>", f'#include "{header}"']
    calls = []
    for name in names:
        for i, array in enumerate(data[name]):
            values = ",".join(str(b) for b in array.tobytes())
            lines.append(f"static _Alignas(64) unsigned char {name}{i}[] = {{{values}}};")
        arguments = ", ".join(f"(void*){name}{i}" for i in range(len(data[name])))
        last = f"{name}{len(data[name]) - 1}"
        calls.append(f'  printf("{name} %d ", (int){name}({arguments}));')
        calls.append(f'  for (unsigned i = 0; i < sizeof {last}; i++) printf("%02x", {last}[i]);')
        calls.append('  printf("\\n");')
    return "\n".join([*lines, "int main(void) {", *calls, "  return 0;", "}"])


def compare(told: str, module: tvm.runtime.Module, names: list[str]) -> None:
    """What the other machine printed against what this one computes."""
    data = arrays()
    for line, name in zip(told.splitlines(), names, strict=True):
        assert line.split()[:2] == [name, "0"]
        here = data[name][-1]
        module[name](*data[name])
        there = np.frombuffer(bytes.fromhex(line.split()[2]), here.dtype).reshape(here.shape)
        # Sums may be contracted differently.
        rtol, atol = (2e-3, 0.0) if here.dtype == np.float16 else (2e-5, 1e-6)
        np.testing.assert_allclose(there.astype("f8"), here.astype("f8"), rtol, atol, err_msg=name)
        assert np.any(here != 0)


def linked(folder: Path, mod: tvm.IRModule, triple: str, zig: str, *flags: str) -> tuple[Path, list[str]]:
    names = [gv.name_hint for gv in mod.functions]
    built = tvm.build(mod, target=f"llvm -mtriple={triple}")
    built.save(folder / "f.o")
    built.save(folder / "f.h")
    (folder / "main.c").write_text(main_program("f.h", names, arrays()))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", zig, *flags]
    done = subprocess.run(
        [*command, "main.c", "f.o", "-o", "main", "-lm"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "main", names


QEMU = {
    "aarch64": ("aarch64-linux-musl", "aarch64-linux-musl"),
    "riscv64": ("riscv64-linux-musl", "riscv64-linux-musl"),
}


@pytest.mark.sample(1)  # zig compiles the C library of each machine
@pytest.mark.parametrize("arch", QEMU)
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_qemu(arch: str, kind: str, tmp_path: Path) -> None:
    needs.skip_without(f"qemu-{arch}")
    mod = Kernels if kind == "serial" else Shared
    program, names = linked(tmp_path, mod, *QEMU[arch], "-static")
    done = subprocess.run(
        [f"qemu-{arch}", "-E", "TILEWRIGHT_NUM_THREADS=3", str(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    compare(done.stdout, tvm.build(mod), names)


def test_wasm(tmp_path: Path) -> None:
    wasmtime = pytest.importorskip("wasmtime")
    program, names = linked(tmp_path, Kernels, "wasm32-unknown-wasi", "wasm32-wasi")
    engine = wasmtime.Engine()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.stdout_file = str(tmp_path / "out")
    store.set_wasi(wasi)
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, str(program)))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        assert end.code == 0
    compare((tmp_path / "out").read_text(), tvm.build(Kernels), names)
