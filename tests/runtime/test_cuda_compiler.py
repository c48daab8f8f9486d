"""CUDA programs kernel by kernel: how they are cut, what is compiled once, what is said of errors."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.config import using
from tilewright.runtime import cuda_compiler, cuda_driver
from tilewright.runtime.device_module import DeviceModule
from tilewright.runtime.errors import TVMError

HEAD = (
    "static __device__ float tw_twice(float x) {\n  return x + x;\n}\n"
    "__device__ const float tw_constant_a_0[2] = {1, 2};"
)


def kernel(name: str, body: str = "  x[0] = tw_twice(x[0]);", bounds: str = "") -> str:
    return f'extern "C" __global__ void{bounds} {name}(float* x) {{\n{body}\n}}\n'


def test_a_program_is_cut_by_its_kernels() -> None:
    constant = kernel("second", "  x[0] = tw_constant_a_0[1];", " __launch_bounds__(64)")
    source = "\n".join(
        [HEAD, kernel("first"), constant, kernel("third", bounds=" __cluster_dims__(2, 1, 1)")]
    )
    pieces = cuda_compiler.pieces_of(source)
    assert [p.kernel for p in pieces] == ["first", "second", "third"]
    one, two, _ = (p.text for p in pieces)
    assert all("tw_twice(float x)" in p.text and "tw_kernel(float* x)" in p.text for p in pieces)
    assert "tw_constant" not in one and "tw_array_0[2] = {1, 2}" in two and "= tw_array_0[1]" in two
    assert "first" not in one and "second" not in one
    assert "tw_kernel(float* x)" in cuda_compiler.pieces_of(kernel("x") + kernel("y"))[0].text


def test_kernels_that_differ_in_their_name_are_one() -> None:
    source = "\n".join([HEAD, kernel("first"), kernel("second"), kernel("third", "  x[1] = 0;")])
    first, second, third = (p.text for p in cuda_compiler.pieces_of(source))
    assert first == second != third


@pytest.mark.parametrize(
    "source",
    [
        kernel("alone"),
        kernel("first") + "static __device__ int helper() {\n  return 1;\n}\n" + kernel("second"),
        kernel("first") + "#define N 3\n" + kernel("second"),
        kernel("first") + kernel("second") + "// the end",
    ],
)
def test_what_cannot_be_cut_stays_whole(source: str) -> None:
    assert cuda_compiler.pieces_of(source) == []


class Nvrtc(SimpleNamespace):
    """Notes what is compiled, by which threads; `wrong` in a program is an error."""

    def __init__(self) -> None:
        super().__init__(texts=[], together=threading.Barrier(2, timeout=120))

    def nvrtcVersion(self) -> tuple[int, int, int]:
        return 0, 13, 0

    def nvrtcCreateProgram(self, source: bytes, *rest: Any) -> tuple[int, bytes]:
        return 0, source

    def nvrtcCompileProgram(self, program: bytes, count: int, options: list[bytes]) -> tuple[int]:
        self.texts.append(program.decode())
        if b"meet" in program:
            self.together.wait()
        return (1 if b"wrong" in program else 0,)

    def nvrtcGetCUBINSize(self, program: bytes) -> tuple[int, int]:
        return 0, 4

    def nvrtcGetCUBIN(self, program: bytes, into: bytes) -> None:
        pass

    def nvrtcDestroyProgram(self, program: bytes) -> None:
        pass

    def nvrtcGetProgramLogSize(self, program: bytes) -> tuple[int, int]:
        return 0, 1

    def nvrtcGetProgramLog(self, program: bytes, into: bytes) -> None:
        pass

    def nvrtcGetSupportedArchs(self) -> tuple[int, list[int]]:
        return 0, [75, 80, 90]


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Nvrtc()
    monkeypatch.setattr(cuda_compiler, "_nvrtc", lambda: (made, (13, 0)))
    monkeypatch.setattr(cuda_compiler, "usable_cpus", lambda: 2)
    with using(cache=False):
        yield made


def test_kernels_are_compiled_beside_each_other_and_each_text_once(nvrtc: Any) -> None:
    source = "\n".join(
        [
            HEAD,
            kernel("a", "  x[0] = 1; // meet"),
            kernel("b", "  x[0] = 2; // meet"),
            kernel("c", "  x[0] = 1; // meet"),
        ]
    )
    made = cuda_compiler.compiled(source, "sm_80", False)  # either would wait for the other for ever
    assert len(nvrtc.texts) == 2
    assert {k: i.name for k, i in made.items()} == dict.fromkeys("abc", "tw_kernel")


def test_a_single_kernel_keeps_its_name(nvrtc: Any) -> None:
    made = cuda_compiler.compiled(HEAD + "\n" + kernel("alone"), "sm_80", False)
    assert list(made) == [""] and "alone(float* x)" in nvrtc.texts[0]


def test_the_error_of_one_kernel_is_that_of_the_program(nvrtc: Any) -> None:
    source = "\n".join([HEAD, kernel("first"), kernel("second", "  wrong;")])
    with pytest.raises(TVMError, match=r"NVRTC cannot compile a program for sm_80:\n(.|\n)* wrong;"):
        cuda_compiler.compiled(source, "sm_80", False)
    with pytest.raises(
        TVMError, match=r"NVRTC 13\.0 does not compile for sm_50, only for sm_75, sm_80, sm_90"
    ):
        cuda_compiler.compiled(source, "sm_50", False)


def test_pieces_come_from_the_cache(nvrtc: Any, tmp_path: Any) -> None:
    two = [kernel("first"), kernel("second", "  x[0] = 3;")]
    with using(cache=True, cache_dir=tmp_path):
        cuda_compiler.compiled("\n".join([HEAD, *two]), "sm_80", False)
        assert len(nvrtc.texts) == 2
        # another model, other names, one kernel more
        more = [kernel("x", "  x[0] = 3;"), kernel("y"), kernel("z", "  x[0] = 4;")]
        cuda_compiler.compiled("\n".join([HEAD, *more]), "sm_80", False)
    assert len(nvrtc.texts) == 3


def test_where_nvrtc_is_missing_a_library_has_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise cuda_compiler.CompilerMissing("NVRTC is not there")

    monkeypatch.setattr(cuda_driver, "supported", missing)
    launcher = SimpleNamespace(api=SimpleNamespace(attribute=lambda index, name: "9.0"), index=0)
    made = cuda_driver._Launcher._compiled(launcher, kernel("k"), {"arch": "sm_90a", "ptx": b".entry k"})  # type: ignore[arg-type]
    assert made[""].code == b".entry k"
    with pytest.raises(TVMError, match="NVRTC is not there"):
        cuda_driver._Launcher._compiled(launcher, kernel("k"), {})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [True, False])
def test_a_library_says_whether_its_ptx_is_somebody_elses(given: bool) -> None:
    options = {"arch": "sm_80", "image" if given else "ptx": b".entry k\0"}
    described = DeviceModule("cuda", kernel("k"), ["k"], options).described()
    assert described["ptx"] == ".entry k"
    again = DeviceModule.of_description(described, "a library")
    assert ("image" in again.options) is given and again.get_source("ptx") == ".entry k"
