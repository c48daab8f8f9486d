"""NVIDIA GPUs, by CUDA C++ through NVRTC and the driver API."""

from __future__ import annotations

from typing import Any, Final

from ..runtime.devices import cuda
from ..target import Target
from ..target.kinds import GPU, Option
from . import Backend
from ._gpu import PIPELINE, kernels_as_source, limits


def _present(target: Target) -> Target:
    """The GPU of this machine, if there is one and nothing is said of which it is."""
    if {"arch", "model"} & set(target.attrs) or not cuda(0).exist:
        return target
    said = {k: v for k, v in target.attrs.items() if target.kind.defaults.get(k) != v}
    target = Target.from_device(cuda(0))
    for name, value in said.items():
        target = target.with_attr(name, value)
    return target


def _limits(target: Target) -> Any:
    return limits(_present(target), {"threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64})


def _dialect() -> Any:
    from ..codegen.source.cuda import Cuda

    return Cuda()


BACKEND: Final = Backend(
    name="cuda",
    device_type=2,
    family="gpu",
    capabilities=frozenset({"tensor_cores", "warp_shuffles"}),
    options={
        **GPU,
        "arch": Option("text", "the compute capability, as sm_80"),
        "mcpu": Option("text", "the same as -arch"),
        "tf32": Option("bool", "tensor cores may round float32 to 10 bits before products"),
    },
    defaults={"max_num_threads": 1024, "thread_warp_size": 32},
    pipeline=PIPELINE,
    generate=kernels_as_source,
    limits=_limits,
    dialect=_dialect,
    executor="device",
    measurable=True,
    present=_present,
)
