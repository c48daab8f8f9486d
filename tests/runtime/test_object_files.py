"""Object files that cannot be loaded, and why."""

from __future__ import annotations

import numpy as np
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


def test_object_code_runs_without_a_c_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CC", "false")
    monkeypatch.setenv("PATH", "")
    for name in ("f.o", "f.tar"):
        path = tmp_path / name
        _built("llvm").save(str(path)) if name == "f.o" else _built("llvm").export_library(str(path))
        a, b = tvm.nd.array(np.arange(8, dtype="float32")), tvm.nd.empty((8,))
        tvm.runtime.load_module(str(path))["plus"](a, b)
        assert b.numpy().tolist() == list(range(1, 9))


def test_object_code_that_calls_what_is_not_here(tmp_path):
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: tvm.tir.call_pure_extern("float32", "no_such_function", A[i]), name="B")
    path = tmp_path / "f.o"
    tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="f").save(str(path))
    with pytest.raises(LoadError, match=r"f\.o: it calls no_such_function, which is not in this process"):
        tvm.runtime.load_module(str(path))


def test_a_loaded_archive_is_saved_as_one(tmp_path):
    _built("llvm").export_library(str(tmp_path / "f.tar"))
    loaded = tvm.runtime.load_module(str(tmp_path / "f.tar"))
    loaded.export_library(str(tmp_path / "g.tar"))
    assert tvm.runtime.load_module(str(tmp_path / "g.tar")).function_names == ["plus"]
    with pytest.raises(tvm.TVMError, match=r"it can be saved as \.tar, not as 'so'"):
        loaded.export_library(str(tmp_path / "g.so"))
