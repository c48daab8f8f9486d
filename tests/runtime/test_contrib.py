"""The small tools: temporary folders, compilers, downloads, worker processes."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import needs
import pytest

import tilewright as tvm
from tilewright.contrib import cc, clang, cudnn, download, nvcc, utils
from tilewright.contrib.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind
from tilewright.runtime import TVMError


@pytest.mark.slow
def test_temporary_folder(tmp_path: Path) -> None:
    folder = utils.tempdir()
    path = folder.path
    Path(folder.relpath("a.txt")).write_text("a")
    assert folder.listdir() == ["a.txt"]
    assert folder / "a.txt" == folder.relpath("a.txt")
    folder.remove()
    assert not os.path.exists(path)
    with utils.tempdir() as other:
        assert os.path.isdir(other.path)
    assert not os.path.exists(other.path)
    forgotten = utils.tempdir()
    path = forgotten.path
    del forgotten
    gc.collect()
    assert not os.path.exists(path)
    mine = utils.tempdir(str(tmp_path / "mine"))
    del mine
    gc.collect()
    assert (tmp_path / "mine").is_dir()


@pytest.fixture
def source(tmp_path: Path) -> str:
    needs.skip_without("linker")
    path = tmp_path / "main.c"
    path.write_text("int answer(void) { return 42; }\nint main(void) { return answer(); }\n")
    return str(path)


def test_compiler(source: str, tmp_path: Path) -> None:
    cc.create_shared(tmp_path / "x.so", source)
    assert (tmp_path / "x.so").exists()
    cc.create_executable(tmp_path / "x", [source], ["-O1"])
    assert subprocess.run([str(tmp_path / "x")]).returncode == 42
    linker = cc.cross_compiler(cc.get_cc() or "", options=["-O2"])
    assert linker.output_format == "so"
    assert "-" in (linker.get_target_triple() or "")
    linker(tmp_path / "y.so", [source])
    assert (tmp_path / "y.so").exists()
    with pytest.raises(TVMError, match="cannot run the compiler 'no-such-cc'"):
        cc.create_shared(tmp_path / "z.so", source, cc="no-such-cc")
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        cc.create_shared(tmp_path / "none" / "z.so", source)
    assert cc.get_target_by_dump_machine("no-such-cc")() is None


def test_cross_compiler_around_a_function() -> None:
    seen: list[object] = []
    linker = cc.cross_compiler(
        lambda output, objects, options: seen.append((output, objects, options)),
        options=["-a"],
        output_format="tar",
        get_target_triple="my-triple",
        add_files=["extra.o"],
    )
    linker("out", "in.o", options=["-b"])
    assert seen == [("out", ["in.o", "extra.o"], ["-a", "-b"])]
    assert (linker.output_format, linker.get_target_triple()) == ("tar", "my-triple")


def test_static_library(source: str, tmp_path: Path) -> None:
    subprocess.run([*(cc.get_cc() or "").split(), "-c", source, "-o", str(tmp_path / "a.o")], check=True)
    for _ in range(2):
        cc.create_staticlib(tmp_path / "a.a", [str(tmp_path / "a.o")])
    assert (tmp_path / "a.a").read_bytes().startswith(b"!<arch>")
    with pytest.raises(TVMError, match="failed to make"):
        cc.create_staticlib(tmp_path / "b.a", [str(tmp_path / "none.o")])


def test_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'extern "C" int f(int x) { return x + 1; }'
    without = not clang.find_clang(required=False) and importlib.util.find_spec("ziglang") is None
    if not without:
        text = clang.create_llvm(code)
        assert "@f(" in text
        assert "ubsan" not in text
        with pytest.raises(TVMError, match="clang failed:"):
            clang.create_llvm("this is no C")
    monkeypatch.setattr(clang.shutil, "which", lambda name: None)
    monkeypatch.setattr(clang.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TVMError) as caught:
        clang.create_llvm(code)
    assert str(caught.value) == (
        "clang was not found on the path; install it, or `pip install ziglang`, to compile C to LLVM IR"
    )


def test_compute_capabilities() -> None:
    assert nvcc.parse_compute_version("8.6") == nvcc.parse_compute_version("sm_86") == (8, 6)
    assert nvcc.parse_compute_version("12.0") == nvcc.parse_compute_version("sm_120a") == (12, 0)
    assert [nvcc.have_fp16(v) for v in ("5.2", "5.3", "6.0")] == [False, True, True]
    assert [nvcc.have_int8(v) for v in ("6.0", "6.1")] == [False, True]
    assert [nvcc.have_tensorcore(v) for v in ("6.1", "7.0", None)] == [False, True, False]
    assert [nvcc.have_bf16(v) for v in ("7.5", "8.0")] == [False, True]
    assert [nvcc.have_fp8(v) for v in ("8.6", "8.9")] == [False, True]
    assert nvcc.get_target_compute_version(tvm.target.Target("cuda -arch=sm_90a")) == "9.0"
    with tvm.target.Target("cuda -model=a100"):
        assert nvcc.get_target_compute_version() == "8.0"
    if not tvm.cuda(0).exist:
        with pytest.raises(ValueError, match="neither the target nor a device gives the architecture"):
            nvcc.get_target_compute_version(tvm.target.Target("cuda"))
    with pytest.raises(ValueError, match="'x' is not a compute capability"):
        nvcc.have_fp16("x")
    with pytest.raises(ValueError, match="target_format 'exe' is unknown"):
        nvcc.compile_cuda("", "exe")
    assert not cudnn.exists()


def test_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = tmp_path / "origin"
    origin.write_text("first")
    target = tmp_path / "deep" / "copy"
    download.download(origin.as_uri(), target)
    assert target.read_text() == "first"
    origin.write_text("second")
    download.download(origin.as_uri(), target)
    assert target.read_text() == "first"
    download.download(origin.as_uri(), target, overwrite=True)
    assert target.read_text() == "second"
    with pytest.raises(OSError, match="cannot download file:"):
        download.download((tmp_path / "none").as_uri(), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    path = download.download_testdata(origin.as_uri(), "a.txt", module="data")
    assert path == str(tmp_path / "cache" / "testdata" / "data" / "a.txt")
    with pytest.raises(ValueError, match="outside the cache"):
        download.download_testdata(origin.as_uri(), "../../a.txt")


@pytest.mark.slow
def test_worker_processes() -> None:
    with PopenPoolExecutor(max_workers=1, timeout=300) as pool:
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
        ends = list(pool.map_with_error_catching(abs, [-1, "x"]))
    assert [end.status for end in ends] == [StatusKind.COMPLETE, StatusKind.EXCEPTION]
    assert ends[0].value == 1
    worker = PopenWorker()
    try:
        worker.send(pow, (2, 5))
        with pytest.raises(RuntimeError, match="still busy"):
            worker.send(pow, (2, 5))
        assert worker.recv() == 32
        with pytest.raises(RuntimeError, match="nothing to receive"):
            worker.recv()
        worker.send(time.sleep, (30,), timeout=0.5)
        with pytest.raises(TimeoutError):
            worker.recv()
        worker.send(os._exit, (3,))
        with pytest.raises(RuntimeError, match=r"^the worker process has ended .*, with exit code 3$"):
            worker.recv()
        worker.send(int, ("7",))  # and another one is there for the next call
        assert worker.recv() == 7
        worker.send(open, (os.devnull,))
        with pytest.raises(RuntimeError, match=r"^the answer cannot be sent: "):
            worker.recv()
    finally:
        worker.kill()


_CALLS: list[Any] = []


def test_a_reference_is_computed_once() -> None:
    from tilewright.contrib.pickle_memoize import memoize

    def reference(n: int) -> Any:
        @memoize("tests.reference")
        def get(*more: object) -> int:
            _CALLS.append((n, more))
            return n * 2

        return get

    assert reference(3)() == reference(3)() == 6
    assert reference(4)() == 8 and _CALLS == [(3, ()), (4, ())]
    assert reference(3)([]) == reference(3)([]) == 6 and len(_CALLS) == 4  # a list is not to be remembered


def test_linking_for_android_needs_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.contrib import ndk

    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    with pytest.raises(TVMError, match="set the environment variable TVM_NDK_CC"):
        ndk.create_shared("a.so", ["a.o"])
    monkeypatch.setenv("TVM_NDK_CC", cc.get_cc() or "cc")
    assert ndk.create_shared.output_format == "so"


def test_a_function_for_the_tensors_of_others() -> None:
    import numpy as np

    from tilewright.contrib.dlpack import convert_func

    def double(array: tvm.nd.NDArray, factor: int) -> None:
        array[:] = array.numpy() * factor

    values = np.arange(3, dtype="float32")
    convert_func(double, np.ndarray, lambda a: a.__dlpack__())(values, 2)
    assert values.tolist() == [0, 2, 4]


def test_files_in_an_archive(tmp_path: Path) -> None:
    from tilewright.contrib import tar

    (tmp_path / "a.o").write_bytes(b"code")
    tar.tar(tmp_path / "all.tar", [str(tmp_path / "a.o")])
    tar.untar(tmp_path / "all.tar", tmp_path / "out")
    assert (tmp_path / "out" / "a.o").read_bytes() == b"code" and tar.tar.output_format == "tar"


def test_a_library_of_others_says_what_to_do() -> None:
    from tilewright.contrib import cublas

    with pytest.raises(
        NotImplementedError, match=r"^contrib\.cublas\.matmul is not part .*; use the operator"
    ):
        cublas.matmul(1, 2)
    with pytest.raises(ImportError):
        from tilewright.contrib import no_such_tool  # noqa: F401
