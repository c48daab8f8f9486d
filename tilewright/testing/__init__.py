"""Help for tests of compiled programs: comparing arrays, running over targets, skipping what cannot run."""

from .._later import announce as _announce
from .arrays import assert_allclose
from .parameters import fixture, main, parameter, parameters
from .targets import (
    Feature,
    device_enabled,
    enabled_targets,
    exclude_targets,
    known_failing_targets,
    parametrize_targets,
    requires_arm_dot,
    requires_cuda,
    requires_cudagraph,
    requires_cudnn,
    requires_gpu,
    requires_llvm,
    requires_metal,
    requires_opencl,
    requires_package,
    requires_rocm,
    requires_rpc,
    requires_tensorcore,
    requires_vulkan,
    requires_x86,
    slow,
    uses_gpu,
)

__all__ = [
    "Feature",
    "assert_allclose",
    "device_enabled",
    "enabled_targets",
    "exclude_targets",
    "fixture",
    "known_failing_targets",
    "main",
    "parameter",
    "parameters",
    "parametrize_targets",
    "requires_arm_dot",
    "requires_cuda",
    "requires_cudagraph",
    "requires_cudnn",
    "requires_gpu",
    "requires_llvm",
    "requires_metal",
    "requires_opencl",
    "requires_package",
    "requires_rocm",
    "requires_rpc",
    "requires_tensorcore",
    "requires_vulkan",
    "requires_x86",
    "slow",
    "uses_gpu",
]

# The workloads that the tuners' tests share.
_announce(
    __name__,
    "the tuners are not there yet, so their test workloads are not either",
    ["auto_scheduler", "autotvm"],
)
