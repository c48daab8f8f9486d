"""Dot products of ARM processors, run under qemu."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import needs
import numpy as np
import pytest
from test_cross import main_program
from word_programs import data, product

import tilewright as tvm
from tilewright import tir

PROGRAMS = {
    "signed_words": product("int8", "int8", 9, 21, 30),
    "unsigned_words": product("uint8", "uint8", 9, 21, 30),
    "mixed_words": product("uint8", "int8", 9, 21, 32),
    "floats": product("bfloat16", "bfloat16", 9, 21, 30),
}


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-n2"])
def test_results_on_arm(cpu: str, tmp_path: Path) -> None:
    needs.skip_without("qemu-aarch64")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the Python package ziglang")
    target = tvm.target.Target(f"llvm -mtriple=aarch64-linux-musl -num-cores=2 -mcpu={cpu}")
    inputs = {name: data(func) for name, func in PROGRAMS.items()}
    made = {
        name: tvm.auto_schedule(func.with_attr("global_symbol", name), target).mod[name]
        for name, func in PROGRAMS.items()
    }
    built = tvm.build(tvm.IRModule(made), target=target)
    built.save(tmp_path / "f.o")
    built.save(tmp_path / "f.h")
    (tmp_path / "main.c").write_text(main_program("f.h", [*PROGRAMS], inputs))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    subprocess.run([*command, "main.c", "f.o", "-o", "main"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(
        ["qemu-aarch64", "-cpu", "max", str(tmp_path / "main")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for line, (name, func) in zip(done.stdout.splitlines(), PROGRAMS.items(), strict=True):
        want = inputs[name]
        tir.interpret(func, *want)
        there = np.frombuffer(bytes.fromhex(line.split()[2]), want[-1].dtype).reshape(want[-1].shape)
        tolerance = 0 if there.dtype == np.int32 else 1e-3
        np.testing.assert_allclose(there, want[-1], rtol=tolerance, atol=tolerance)
