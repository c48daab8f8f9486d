"""The CUDA compiler, and the features of compute capabilities."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from ..runtime.errors import TVMError
from .utils import tempdir


def find_cuda_path() -> str:
    """The folder of the CUDA toolkit."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            return os.environ[variable]
    program = shutil.which("nvcc")
    if program:
        return os.path.dirname(os.path.dirname(os.path.realpath(program)))
    if os.path.exists("/usr/local/cuda/bin/nvcc"):
        return "/usr/local/cuda"
    raise TVMError("the CUDA toolkit was not found; set CUDA_PATH to its folder")


def _nvcc() -> str:
    found = shutil.which("nvcc")
    return found or os.path.join(find_cuda_path(), "bin", "nvcc")


def get_cuda_version(cuda_path: str | None = None) -> tuple[int, ...]:
    """The version of the toolkit: `(12, 4)`."""
    program = os.path.join(cuda_path, "bin", "nvcc") if cuda_path else _nvcc()
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    match = re.search(r"release (\d+)\.(\d+)", done.stdout)
    if match is None:
        raise TVMError(f"{program} --version names no release:\n{done.stdout}{done.stderr}")
    return int(match[1]), int(match[2])


def compile_cuda(
    code: str,
    target_format: str = "ptx",
    arch: str | Sequence[str] | None = None,
    options: str | Sequence[str] | None = None,
    path_target: str | None = None,
) -> bytes:
    """Compile CUDA C++ to ptx, cubin or fatbin with nvcc; without nvcc, to ptx or cubin with NVRTC."""
    if target_format not in ("ptx", "cubin", "fatbin"):
        raise ValueError(f"target_format {target_format!r} is unknown; known are ptx, cubin, fatbin")
    if target_format != "fatbin" and not options and not _has_nvcc():
        return _by_nvrtc(code, target_format, arch, path_target)
    temporary = tempdir()
    source = temporary.relpath("kernel.cu")
    target = path_target or temporary.relpath(f"kernel.{target_format}")
    with open(source, "w", encoding="utf-8") as file:
        file.write(code)
    arches = [f"-arch={arch}"] if isinstance(arch, str) else list(arch or ())
    extra = [options] if isinstance(options, str) else list(options or ())
    done = subprocess.run(
        [_nvcc(), f"--{target_format}", "-O3", *arches, *extra, "-o", target, source],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise TVMError(f"nvcc failed:\n{(done.stderr + done.stdout).strip()}")
    with open(target, "rb") as binary:
        return binary.read()


def _has_nvcc() -> bool:
    try:
        return os.access(_nvcc(), os.X_OK)
    except TVMError:
        return False


def _by_nvrtc(code: str, form: str, arch: str | Sequence[str] | None, path: str | None) -> bytes:
    from ..runtime.cuda_driver import compile_cubin, compile_ptx

    first = arch if isinstance(arch, str) or not arch else arch[0]
    made = (compile_ptx if form == "ptx" else compile_cubin)(code, {"arch": first} if first else {})
    if path is not None:
        with open(path, "wb") as file:
            file.write(made)
    return made


def get_target_compute_version(target: Any = None) -> str:
    """The compute capability that is compiled for: a target's, that of the target in scope, or the first device's."""
    from ..runtime.devices import cuda
    from ..target import Target

    chosen = target or Target.current(allow_none=True)
    arch = None if chosen is None else chosen.attrs.get("arch")
    if arch:
        return ".".join(map(str, parse_compute_version(str(arch))))
    found = cuda(0).compute_version
    if found is None:
        raise ValueError(
            "neither the target nor a device gives the architecture; name one: Target('cuda -arch=sm_80')"
        )
    return found


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """`"8.6"` as `(8, 6)`; `sm_86` and `86` are understood too."""
    text = str(compute_version).removeprefix("sm_").removeprefix("compute_").rstrip("af")
    match = re.fullmatch(r"(\d+)\.(\d+)", text) or re.fullmatch(r"(\d+)(\d)", text)
    if match is None:
        raise ValueError(f"{compute_version!r} is not a compute capability such as '8.6'")
    return int(match[1]), int(match[2])


def have_fp16(compute_version: str) -> bool:
    """Whether half-precision arithmetic is native."""
    version = parse_compute_version(compute_version)
    return version == (5, 3) or version >= (6, 0)


def have_int8(compute_version: str) -> bool:
    """Whether the dot product of bytes is native."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_bf16(compute_version: str) -> bool:
    """Whether bfloat16 arithmetic is native."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_fp8(compute_version: str) -> bool:
    """Whether the tensor cores take 8-bit floats."""
    return parse_compute_version(compute_version) >= (8, 9)


def have_tensorcore(compute_version: str | None = None, target: Any = None) -> bool:
    """Whether there are tensor cores, by a version or by the `arch` of a target."""
    if compute_version is None:
        compute_version = getattr(target, "arch", None) or (getattr(target, "attrs", None) or {}).get("arch")
        if compute_version is None:
            return False
    return parse_compute_version(compute_version) >= (7, 0)


def have_cudagraph() -> bool:
    """Whether the toolkit can capture launches as a graph."""
    try:
        return get_cuda_version() >= (10, 0)
    except (TVMError, OSError):
        return False
