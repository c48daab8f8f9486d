"""Building: from a schedule, function or module to a module of machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.deep import deep_programs
from ..ir.errors import BuildError
from ..ir.function import PrimFunc
from ..ir.functor import statements
from ..ir.module import IRModule
from ..ir.stmt import Allocate
from ..ir.transform import PassContext, run_passes
from ..runtime.cache import digest
from ..runtime.devices import cuda
from ..target import Target
from ..tir import transform as T
from ..tir.analysis.measure import scope_of
from ..tir.transform.split_host_device import KernelLimits
from .lower import lower_in_parts, lower_to_build

__all__ = ["build"]


def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str | None = None,
    binds: Mapping[Any, Any] | None = None,
) -> Any:
    """Compile exactly the loops that are given.

    `inputs` is a te schedule with `args`, a PrimFunc, an IRModule, a tir.Schedule, or a dict from
    targets to modules. A te schedule without a `name` becomes "default_function"; a PrimFunc keeps its own.
    """
    with deep_programs():
        return _build_all(inputs, args, target, target_host, name, binds)


def _build_all(inputs: Any, args: Any, target: Any, target_host: Any, name: str | None, binds: Any) -> Any:
    if isinstance(inputs, Mapping) and not isinstance(inputs, IRModule):
        parts = [_build_one(m, None, t, target_host, name, binds) for t, m in inputs.items()]
        if not parts:
            raise BuildError("an empty dict of targets was given to build")
        for extra in parts[1:]:
            parts[0].import_module(extra)
        parts[0].beside = tuple(parts[1:])
        return parts[0]
    return _build_one(inputs, args, target, target_host, name, binds)


def _build_one(inputs: Any, args: Any, target: Any, host: Any, name: str | None, binds: Any) -> Any:
    chosen = target if target is not None else Target.current(allow_none=True)
    if chosen is None:
        chosen = Target("llvm")
    if not isinstance(chosen, Target) or host is not None:
        chosen = Target(chosen, host=host)
    with chosen:
        if name is None:
            name = "main" if isinstance(inputs, PrimFunc) else "default_function"
        if chosen.kind.name == "llvm":
            from ..codegen.llvm.nests import Nests

            nests = Nests.current()
            if nests is not None:
                return _build_in_parts(inputs, args, name, binds, chosen, nests)
        return _generate(lower_to_build(inputs, args, name, binds), chosen)


def _build_in_parts(inputs: Any, args: Any, name: str, binds: Any, target: Target, nests: Any) -> Any:
    """A module whose parallel loops are compiled apart, or known."""
    from ..codegen.llvm.linked import unit_of
    from ..tune.workload import stable_key

    settings = f"{target} {PassContext.current()}"

    def named(nest: PrimFunc) -> str:
        scopes = [scope_of(s.buffer_var) for s in statements(nest.body) if isinstance(s, Allocate)]
        return "__tw_nest_" + digest(settings, stable_key(nest), *scopes)[:32]

    mod, parts = lower_in_parts(inputs, args, name, binds, named, nests.known)
    made = {key: unit_of(_generate(part, target)) for key, part in parts.items() if part is not None}
    nests.keep(made, list(parts))
    return _generate(mod, target)


def _generate(mod: IRModule, target: Target) -> Any:
    kind = target.kind.name
    if kind == "llvm":
        from ..codegen.llvm import build_llvm

        cpu = target.cpu
        wide = "avx512f" in cpu.features and cpu.arch == "x86_64"
        expand = T.LowerIntrin(fast_math=bool(target.attrs.get("fast-math")), has_fma=cpu.fma, avx512=wide)
        lowered = run_passes((expand,), mod)
        if lowered is not mod:  # only what was expanded is not simple any more
            done = {s for f in mod.functions.values() if isinstance(f, PrimFunc) for s in statements(f.body)}
            lowered = run_passes((T.Simplify(done=done),), lowered)
        return build_llvm(lowered, target)
    if kind in ("cuda", "opencl", "rocm", "metal"):
        return _generate_kernels(mod, target)
    if kind == "c":
        from ..codegen.source import build_c

        return build_c(run_passes((T.LowerIntrin(library=True),), mod), target)
    raise BuildError(
        f"there is no code generator for targets of kind {kind!r} yet; there are: llvm, c, cuda, opencl, "
        "and sources for rocm and metal"
    )


def _generate_kernels(mod: IRModule, target: Target) -> Any:
    """Kernels for a GPU, and the functions that launch them."""
    from ..codegen.source import build_source

    barriers = (T.ThreadSync("shared.cluster"), T.ThreadSync("shared", "shared.dyn"))
    ready = run_passes((*barriers, T.LowerIntrin(library=True)), mod)
    return build_source(ready, run_passes((T.SplitHostDevice(_limits(target)),), ready), target)


def _limits(target: Target) -> KernelLimits:
    """What a block of threads may use on a target."""
    if target.kind.name == "cuda" and not {"arch", "model"} & set(target.attrs):
        here = cuda(0)  # nothing is said of the GPU: it is the one that is there
        if here.exist:
            target = Target.from_device(here)
    gpu = target.gpu
    axes = {"blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535}
    axes["clusterCtaIdx.x"] = gpu.blocks_per_cluster
    if target.kind.name == "cuda":
        axes |= {"threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64}
    return KernelLimits(
        f"target {target.kind.name}" + (f" ({gpu.arch})" if gpu.arch else ""),
        gpu.max_threads_per_block,
        gpu.shared_memory_per_block,
        gpu.dynamic_shared_memory_per_block,
        axes,
    )
