"""Object files that cannot be loaded, and why."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.runtime.errors import LoadError


def _built(target):
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    return tvm.build(te.create_schedule(B.op), [A, B], target, name="plus")


def test_a_truncated_object_file(tmp_path):
    path = tmp_path / "f.o"
    _built("llvm").save(str(path))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LoadError, match=r"f\.o: the file is truncated"):
        tvm.runtime.load_module(str(path))


def test_an_object_file_for_another_machine(tmp_path):
    other = "riscv64" if tvm.target.Target("llvm").llvm.triple.startswith("aarch64") else "aarch64"
    path = tmp_path / "f.o"
    _built(f"llvm -mtriple={other}-linux-gnu").save(str(path))
    with pytest.raises(LoadError, match=r"f\.o: the object file is for (aarch64|riscv), this machine is"):
        tvm.runtime.load_module(str(path))


def test_object_code_that_cannot_be_linked(tmp_path, monkeypatch):
    path = tmp_path / "f.o"
    _built("llvm").save(str(path))
    monkeypatch.setenv("TILEWRIGHT_CC", "false")
    with pytest.raises(LoadError, match=r"f\.o: its object code cannot be linked: making .* failed"):
        tvm.runtime.load_module(str(path))
