"""The targets that this machine can run, and marks for tests that need one of them."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from typing import Any, Final

from ..backends import kinds_with
from ..contrib.nvcc import get_cuda_version
from ..runtime.devices import Device, device
from ..runtime.errors import TVMError
from ..runtime.module import enabled
from ..target import Target

__all__ = [
    "IS_IN_CI",
    "Feature",
    "device_enabled",
    "enabled_targets",
    "exclude_targets",
    "install_request_hook",
    "known_failing_targets",
    "parametrize_targets",
    "requires_arm_dot",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cudagraph",
    "requires_cudnn",
    "requires_gpu",
    "requires_llvm",
    "requires_metal",
    "requires_nvcc_version",
    "requires_opencl",
    "requires_package",
    "requires_rocm",
    "requires_rpc",
    "requires_tensorcore",
    "requires_vulkan",
    "requires_x86",
    "skip_if_32bit",
    "slow",
    "uses_gpu",
]

IS_IN_CI: Final = os.environ.get("CI") == "true"
_VARIABLE: Final = "TVM_TEST_TARGETS"
# OpenCL may run on the CPU, and is tested only on request.
_DEFAULT: Final = ("llvm", "cuda")


def device_enabled(target: Any) -> bool:
    """Whether tests for a target run: there is a code generator and a device for it, and TVM_TEST_TARGETS lists it or
    is not set."""
    if not isinstance(target, (str, Target)):
        raise TypeError(f"a target is a string or a Target, not {type(target).__name__}")
    kind = target.kind.name if isinstance(target, Target) else (target.split() or [""])[0]
    listed = not os.environ.get(_VARIABLE) or any(_kind_of(name) == kind for name in _listed())
    return listed and _can_run(kind)


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets of TVM_TEST_TARGETS (by default llvm and cuda) that this machine can run, each with a device."""
    return [(name, device(name)) for name in _listed() if _can_run(_kind_of(name))]


def _listed() -> list[str]:
    text = os.environ.get(_VARIABLE, "")
    return [name.strip() for name in text.split(";") if name.strip()] or list(_DEFAULT)


def _kind_of(target: str) -> str:
    return (target.split() or [""])[0]


def _can_run(kind: str) -> bool:
    return kind in kinds_with(lambda b: b.measurable) and enabled(kind)


class Feature:
    """A requirement of a test; `@feature` and `@feature()` skip the test if it is not met."""

    def __init__(self, name: str, present: Callable[[], bool], missing: str) -> None:
        self.name, self.present, self.missing = name, present, missing

    def marks(self) -> list[Any]:
        """The pytest marks of such a test."""
        import pytest

        return [pytest.mark.skipif(not self.present(), reason=f"needs {self.name}: {self.missing}")]

    def __call__(self, function: Any = None) -> Any:
        if function is None:
            return self
        # A program that uses the marks may be run as a plain script, without pytest.
        if importlib.util.find_spec("pytest") is None:
            return function
        for mark in self.marks():
            function = mark(function)
        return function

    def __repr__(self) -> str:
        return f"Feature({self.name})"


def _kind(name: str) -> Feature:
    return Feature(name, lambda: _can_run(name), "there is no code generator or no device for it here")


def _never(name: str) -> Feature:
    return Feature(name, lambda: False, "it is not there yet")


def _compute_version() -> tuple[int, ...]:
    """The compute capability of the first CUDA device; nothing if there is none."""
    found = Device(2, 0).compute_version if _can_run("cuda") else None
    return tuple(int(part) for part in (found or "0").split("."))


def requires_cuda_compute_version(major: int, minor: int = 0, exact: bool = False) -> Feature:
    """Skip a test where the first CUDA device has not at least (or not exactly) this compute capability."""

    def present() -> bool:
        found = _compute_version()
        return found == (major, minor) if exact else found >= (major, minor)

    return Feature(f"compute capability {major}.{minor}", present, "there is no such CUDA device")


def requires_nvcc_version(major: int, minor: int = 0, release: int = 0) -> Feature:
    """Skip a test where there is no CUDA toolkit, or an older one."""

    def present() -> bool:
        try:
            return get_cuda_version() >= (major, minor)
        except (TVMError, OSError):
            return False

    return Feature(f"nvcc {major}.{minor}", present, "install the CUDA toolkit")


def skip_if_32bit(function: Any = None, reason: str = "needs 64 bits") -> Any:
    """Skip a test on a machine of 32 bits."""
    feature = Feature("64 bits", lambda: sys.maxsize > 2**32, reason)
    return feature if function is None else feature(function)


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


requires_llvm: Final = _kind("llvm")
requires_cuda: Final = _kind("cuda")
requires_opencl: Final = _kind("opencl")
requires_rocm: Final = _kind("rocm")
requires_metal: Final = _kind("metal")
requires_vulkan: Final = _kind("vulkan")
requires_gpu: Final = Feature(
    "a GPU",
    lambda: any(map(_can_run, kinds_with(lambda b: b.family == "gpu"))),
    "none can be used here",
)
uses_gpu: Final = requires_gpu
requires_cudagraph: Final = Feature("graphs of CUDA", lambda: _can_run("cuda"), "there is no CUDA device")
requires_cudnn: Final = _never("cudnn")
requires_rpc: Final = _never("rpc")
requires_tensorcore: Final = Feature(
    "tensor cores", lambda: _compute_version() >= (7, 0), "there is no CUDA device that has them"
)
requires_x86: Final = Feature("an x86 CPU", _is_x86, "this is another one")
requires_arm_dot: Final = Feature("an ARM CPU with dot products", lambda: False, "this is another one")


def requires_package(*packages: str) -> Feature:
    """Skip a test where one of some Python packages is not installed."""

    def present() -> bool:
        return all(importlib.util.find_spec(name) is not None for name in packages)

    return Feature(", ".join(packages), present, "pip install it")


def slow(function: Any) -> Any:
    """A test that takes long: `-m "not slow"` leaves it out."""
    import pytest

    return pytest.mark.slow(function)


def parametrize_targets(*args: Any) -> Any:
    """Run a test with `target, dev` for each of the targets given; for all that are enabled if none are."""
    import pytest

    def decorate(function: Any) -> Any:
        names = [a for a in args if not callable(a)]
        chosen = [(t, device(t)) for t in names if device_enabled(t)] if names else enabled_targets()
        return pytest.mark.parametrize("target,dev", chosen, ids=[str(t) for t, _ in chosen])(function)

    return decorate(args[0]) if len(args) == 1 and callable(args[0]) else decorate


def exclude_targets(*args: str) -> Callable[[Any], Any]:
    """Leave some targets out where a test runs for all of them."""
    return _noted("tvm_excluded_targets", args)


def known_failing_targets(*args: str) -> Callable[[Any], Any]:
    """Expect a test to fail for some targets."""
    return _noted("tvm_known_failing_targets", args)


def _noted(name: str, targets: tuple[str, ...]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        setattr(function, name, (*getattr(function, name, ()), *targets))
        return function

    return decorate


def install_request_hook(depth: int) -> None:
    """Redirect downloads to a mirror, which only the classic CI has: downloads are left as they are.

    Tutorials call it at their top; `depth` says how many folders they are below the root of their repository.
    """
