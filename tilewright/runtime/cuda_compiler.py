"""CUDA C++ to machine code with NVRTC: the kernels of a program are compiled separately, in parallel, and each text
once.

source ──one piece for each kernel──▶ pieces ──equal texts once, from the cache where they are there──▶ images
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

from ..cpus import usable_cpus
from .cache import compiled_code, digest
from .errors import TVMError

_HEAD = re.compile(r'^extern "C" __global__ void (?:__\w+__\([^)]*\)\s*)*(\w+)\(', re.MULTILINE)
_CONSTANT = re.compile(r"\btw_constant_\w+")
_NAME = "tw_kernel"  # the name of every separately compiled kernel
_OPENED = re.compile(r'^(extern "C" __global__ void [^{;]*\) \{)$', re.MULTILINE)
_WAIT = r'asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");'
_EARLY = re.compile(r"\n *tw_early\([^\n]*\);(?:\n *\})*")
_READS = re.compile(r"\*\(|__ldcs|= \w+\[")  # accesses to memory, or possible ones


class Piece(NamedTuple):
    """A kernel with its dependences, under a name that all pieces share: kernels that differ only in their name are
    compiled once."""

    kernel: str
    text: str


class CompilerMissing(TVMError):
    """NVRTC is not installed on this machine."""


class Image(NamedTuple):
    """Machine code or PTX, the name of the kernel in it, and whether it waits for the previous kernel itself."""

    code: bytes
    name: str
    waits: bool


# -- pieces ----------------------------------------------------------------------------------------
def pieces_of(source: str) -> list[Piece]:
    """The pieces of a program by kernel; empty if it cannot be split, as with foreign sources."""
    heads = list(_HEAD.finditer(source))
    if len(heads) < 2:
        return []
    before = source[: heads[0].start()].splitlines()
    out = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        own = source[head.start() : following.start() if following else len(source)].rstrip("\n")
        if own.find("\n}") != len(own) - 2:  # more than one kernel
            return []
        start, end = (n - head.start() for n in head.span(1))
        out.append(Piece(head[1], _alone(before, own[:start] + _NAME + own[end:])))
    return out


def _alone(before: Sequence[str], own: str) -> str:
    """A kernel with the preceding lines that it needs, under canonical names."""
    used = dict.fromkeys(_CONSTANT.findall(own))
    lines = [x for x in before if not (found := _CONSTANT.search(x)) or found[0] in used]
    text = "\n".join([*lines, own, ""])
    for n, each in enumerate(used):
        text = re.sub(rf"\b{each}\b", f"tw_array_{n}", text)
    return text


def compiled(source: str, arch: str, ptx: bool) -> dict[str, Image]:
    """The images of a program by kernel; under "" the image of the whole program if it is not split."""
    source, waits = after_others(source) if number_of(arch) >= 90 else (source, False)
    pieces = pieces_of(source)
    if not pieces:
        return {"": Image(compile_program(source, arch, ptx), "", waits)}
    texts = sorted({p.text for p in pieces}, key=len, reverse=True)  # long ones first
    with ThreadPoolExecutor(min(len(texts), usable_cpus()), "nvrtc") as threads:
        # the workers use the configuration of this thread
        waiting = {t: threads.submit(copy_context().run, compile_program, t, arch, ptx) for t in texts}
        made = {t: w.result() for t, w in waiting.items()}
    return {p.kernel: Image(made[p.text], _NAME, waits) for p in pieces}


def after_others(source: str) -> tuple[str, bool]:
    """A program whose kernels wait for the previous kernel by an instruction of their own, and let the next kernel
    start up to that instruction while they run (programmatic dependent launch, from `sm_90` on, which hides the
    latency of a launch); and whether all of its kernels do."""
    heads = list(_OPENED.finditer(source))
    if len(heads) != source.count("__global__"):
        return source, False
    out, start = "", 0
    for head in heads:
        at = _begin(source, head.end())
        out, start = f"{out}{source[start:at]}\n  {_WAIT}", at
    return out + source[start:], True


def _begin(source: str, at: int) -> int:
    """The position of a kernel's first memory access, after its early prefetches."""
    body = source[at : source.find("\n}", at)]
    asked = list(_EARLY.finditer(body))
    return at + asked[-1].end() if asked and not _READS.search(body, 0, asked[-1].start()) else at


# -- NVRTC -----------------------------------------------------------------------------------------
def compile_program(source: str, arch: str, ptx: bool) -> bytes:
    """Machine code (`sm_80`) or PTX (`compute_80`) of a program, from the cache where it is known."""
    nvrtc, version = _nvrtc()
    cache = compiled_code()
    key = digest("cuda", *version, arch, ptx, source)
    found = None if cache is None else cache.get(key)
    if found is not None:
        return found
    code, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], [])
    if int(code) != 0:
        raise TVMError(f"NVRTC cannot read a program: {nvrtc.nvrtcGetErrorString(code)[1].decode()}")
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"--extra-device-vectorization"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code) != 0:
        raise _refused(nvrtc, version, program, arch, source)
    size_of, read = (
        (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if ptx else (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    )
    _, size = size_of(program)
    made = b" " * size
    read(program, made)
    nvrtc.nvrtcDestroyProgram(program)
    if cache is not None:
        cache.put(key, made)
    return made


def _nvrtc() -> tuple[Any, tuple[int, ...]]:
    """NVRTC and its version."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompilerMissing(
            f"compiling CUDA needs NVRTC: {error}; install it: pip install 'tilewright[cuda]'"
        ) from error
    try:
        return nvrtc, tuple(int(v) for v in nvrtc.nvrtcVersion()[1:])
    except RuntimeError as error:
        raise CompilerMissing(
            f"NVRTC was not found: {error}; install it: pip install nvidia-cuda-nvrtc"
        ) from error


def _refused(nvrtc: Any, version: tuple[int, ...], program: Any, arch: str, source: str) -> TVMError:
    """The error for a program that does not compile."""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode(errors="replace").rstrip("\0 \n")
    known = supported()
    if known and number_of(arch) not in known:
        return TVMError(
            f"NVRTC {version[0]}.{version[1]} does not compile for {arch}, only for "
            f"{', '.join(f'sm_{n}' for n in known)}; install one that does (nvidia-cuda-nvrtc-cu12 has those from "
            "sm_50 on), or let the machine with the device compile: an exported library carries the source"
        )
    numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(source.splitlines(), 1))
    return TVMError(f"NVRTC cannot compile a program for {arch}:\n{text}\n{numbered}")


def supported() -> list[int]:
    """The architectures that NVRTC compiles for; empty if they are unknown."""
    nvrtc, _ = _nvrtc()
    ask = getattr(nvrtc, "nvrtcGetSupportedArchs", None)
    code, *found = ask() if ask is not None else (1,)
    return sorted(found[0]) if int(code) == 0 else []


def number_of(arch: str) -> int:
    """80 of `sm_80`."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", arch)
    if match is None:
        raise TVMError(f"{arch!r} is not an NVIDIA architecture; write it as sm_80")
    return int(match[1])
