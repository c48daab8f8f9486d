"""Object files of several programs in one library, LLVM's own files as modules, libraries of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.contrib import cc, tar
from tilewright.runtime.errors import LoadError


@pytest.fixture(scope="module")
def saved(tmp_path_factory: Any) -> Path:
    """`add1` and `add2`, each with parallel loops, as object files and as files of LLVM."""
    folder: Path = tmp_path_factory.mktemp("objects")
    A = te.placeholder((64,), name="A")
    for k in (1, 2):
        B = te.compute((64,), lambda i, k=k: A[i] + float(k), name="B")
        s = te.create_schedule(B.op)
        s[B].parallel(B.op.axis[0])
        f = tvm.build(s, [A, B], "llvm", name=f"add{k}")
        for kind in ("o", "ll", "bc"):
            f.save(folder / f"add{k}.{kind}")
    return folder


def check(function: Any, k: int) -> None:
    a, b = np.arange(64, dtype="float32"), tvm.nd.empty((64,))
    function(tvm.nd.array(a), b)
    np.testing.assert_array_equal(b.numpy(), a + k)


@pytest.mark.slow
def test_several_objects_become_one_library(saved: Path, tmp_path: Path) -> None:
    objects = [str(saved / "add1.o"), str(saved / "add2.o")]
    cc.create_shared(tmp_path / "both.so", objects)
    tar.tar(str(tmp_path / "both.tar"), objects)
    for name in ("both.so", "both.tar"):
        both = tvm.runtime.load_module(tmp_path / name)
        assert both.function_names == ["add1", "add2"]
        check(both["add1"], 1)
        check(both["add2"], 2)
        with pytest.raises(TypeError, match="no entry function, only: add1, add2"):
            both()


def test_two_functions_of_one_name_are_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "again.o").write_bytes((saved / "add1.o").read_bytes())
    with pytest.raises(
        tvm.TVMError, match=r"function 'add1' is in .*add1.o and in .*again.o; build one of them"
    ):
        cc.create_shared(tmp_path / "both.so", [str(saved / "add1.o"), str(tmp_path / "again.o")])


@pytest.mark.parametrize("kind", ["ll", "bc"])
def test_files_of_llvm_are_modules(kind: str, saved: Path, tmp_path: Path) -> None:
    check(tvm.runtime.load_module(saved / f"add2.{kind}"), 2)
    broken = tmp_path / f"broken.{kind}"
    broken.write_bytes((saved / f"add2.{kind}").read_bytes()[:200])
    with pytest.raises(LoadError, match=f"broken.{kind}: LLVM cannot read it"):
        tvm.runtime.load_module(broken)


def test_libraries_that_the_process_has_loaded(saved: Path, tmp_path: Path) -> None:
    cc.create_shared(tmp_path / "both.so", [str(saved / "add1.o"), str(saved / "add2.o")])
    program = f"""
import ctypes, numpy as np, tilewright as tvm
try:
    tvm.runtime.system_lib()
except tvm.TVMError as error:
    print(error)
held = ctypes.CDLL({str(tmp_path / "both.so")!r})
a, b = tvm.nd.array(np.zeros(64, "float32")), tvm.nd.empty((64,))
tvm.runtime.system_lib()["add2"](a, b)
print(b.numpy()[63])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    told = done.stdout.splitlines()
    assert told[0].startswith("no library made by tilewright is loaded in this process"), done.stderr
    assert told[1] == "2.0"
    with pytest.raises(tvm.TVMError, match=r"system_lib\('net_'\): functions have no prefix"):
        tvm.runtime.system_lib("net_")
