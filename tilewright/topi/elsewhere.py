"""The classic package had kernels and schedules for each target; here operators are the same for all.

    topi.x86.conv2d_nchw             topi.nn.conv2d_nchw
    topi.mali.dense                  topi.nn.dense
    topi.gpu.dense_small_batch       topi.nn.dense, whatever the batch
    topi.x86.schedule_conv2d_nchw    plain loops, as topi.generic has them
    topi.rocm.schedule_softmax       plain loops over threads, as topi.cuda has them

The packages of the targets are made when they are imported, and so are their modules (`topi.x86.conv2d`), which have
the names of their package. Names that promise more (a library, an instruction) stay absent.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ..absent import attributes

CPUS = ("arm_cpu", "hls", "x86")
GPUS = ("adreno", "bifrost", "gpu", "intel_graphics", "mali", "rocm")
_HOMES = ("", ".nn", ".vision", ".image", ".sparse", ".random", ".generic")

# One algorithm of an operator, under a name of its own: the scheduler chooses the algorithm here.
_ALGORITHMS = {
    "compute_conv2d_NHWC": "conv2d_nhwc",
    "compute_conv2d_NHWC_hybrid": "conv2d_nhwc",
    "compute_conv2d_NHWC_quantized_interleaved": "conv2d_nhwc",
    "compute_conv2d_NHWC_quantized_native": "conv2d_nhwc",
    "compute_depthwise_conv2d_nhwc": "depthwise_conv2d_nhwc",
    "conv2d_nchw_spatial_pack": "conv2d_nchw",
    "conv2d_nchw_winograd": "conv2d_nchw",
    "conv2d_nhwc_spatial_pack": "conv2d_nhwc",
    "conv2d_nhwc_winograd_direct": "conv2d_nhwc",
    "conv3d_ncdhw_winograd": "conv3d_ncdhw",
    "dense_dynamic": "dense",
    "dense_gemm": "dense",
    "dense_large_batch": "dense",
    "dense_nopack": "dense",
    "dense_small_batch": "dense",
    "depthwise_conv2d_nchw_spatial_pack": "depthwise_conv2d_nchw",
    "group_conv2d_nchw_spatial_pack": "group_conv2d_nchw",
    "matmul_default": "matmul",
}
# Schedules whose operator has another name, or no name of its own.
_SCHEDULES = {
    "concatenate_cpu",
    "conv2d_NHWC",
    "conv2d_NHWC_hybrid",
    "conv2d_NHWC_quantized_interleaved",
    "conv2d_NHWC_quantized_native",
    "group_conv2d_nchwc",
    "transpose",
}


def _operator(name: str) -> Callable[..., Any] | None:
    """The operator of that name, in whichever package it is."""
    own = _ALGORITHMS.get(name, name)
    for home in _HOMES:
        found = vars(importlib.import_module(f"{__package__}{home}")).get(own)
        if callable(found):
            return found  # type: ignore[no-any-return]
    return None


def is_scheduled(name: str) -> bool:
    """Whether there is a schedule of the name `schedule_…`: of an operator, or of a family of them."""
    return name in _SCHEDULES or _operator(name) is not None


def operator_or(missing: Callable[[str], Any], schedules: str = "generic") -> Callable[[str], Any]:
    """The `__getattr__` of a target's package: operators of all targets, schedules of the package `schedules`, and
    what neither has goes to `missing`."""

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            return missing(name)
        if name.startswith("schedule_"):
            made = importlib.import_module(f"{__package__}.{schedules}").schedule_of(name)
            return made if made is not None else missing(name)
        found = _operator(name)
        return found if found is not None else missing(name)

    return __getattr__


class _Targets(MetaPathFinder, Loader):
    """The import hook of the packages of targets, and of all that is below them and has no file."""

    def _schedules(self, fullname: str) -> str | None:
        start, _, rest = fullname.partition(f"{__package__}.")
        first = rest.partition(".")[0]
        if start or not rest:
            return None
        if first in GPUS or first == "cuda":
            return "cuda"
        return "generic" if first in CPUS or first == "generic" else None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._schedules(fullname) is None:
            return None
        there = PathFinder.find_spec(fullname, path)
        return (
            None if there is not None and there.has_location else ModuleSpec(fullname, self, is_package=True)
        )

    def exec_module(self, module: ModuleType) -> None:
        schedules = self._schedules(module.__name__)
        assert schedules is not None
        module.__doc__ = "Operators and plain schedules under the classic names of a target."
        module.__dict__["__getattr__"] = operator_or(attributes(module.__name__), schedules)


if not any(isinstance(finder, _Targets) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Targets())
