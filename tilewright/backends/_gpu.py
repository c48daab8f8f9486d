"""What the targets that are GPUs have in common: how programs are lowered for them, the limits of a block of threads,
and kernels as source."""

from __future__ import annotations

from typing import Any, Final

from ..ir.say_once import say_once
from ..ir.transform import Pass, PassContext
from ..target import Target
from ..target.gpu_machine import register_split
from ..tir import transform as T
from . import Pipeline, backend_of, lowering_rules, unless, when


def _no_bound_checkers(target: Target | None) -> None:
    if PassContext.current().option("tir.instrument_bound_checkers"):
        say_once(
            "pass option 'tir.instrument_bound_checkers' does nothing for kernels of a GPU; use tir.interpret"
        )


def _combine_in_warps(target: Target | None) -> Pass:
    warp = int(target.thread_warp_size) if target is not None and target.has("warp_shuffles") else 0
    made: Pass = T.LowerCrossThreadReduction(warp=warp)
    return made


def _cut_kernels(target: Target | None) -> Pass:
    assert target is not None
    find = backend_of(target).limits or limits
    made: Pass = T.SplitHostDevice(find(target))
    return made


# No loop is partitioned: in a kernel a condition costs less than a second copy of the loop with its barriers.
PIPELINE: Final = Pipeline(
    blocks=(
        when("tir.disable_assert", T.SkipAssert()),
        T.LowerScans(),
        T.BindParallelLoops(),
        T.UnifyThreadBinding(),
        _combine_in_warps,
        T.LowerInitBlock(),
        T.PlanAndUpdateBufferAllocationLocation(),
        T.PlaceThreadMemory(),
        T.ConvertBlocksToOpaque(),
        T.CompactBufferAllocation(),
        T.AlignStorage(),
        T.LowerBulkCopies(),
        T.LowerMatchBuffer(),
        T.InjectPermutedLayout(),
        T.LowerOpaqueBlock(),
        T.LowerFragments(),
        _no_bound_checkers,
    ),
    storage=(T.FlattenBuffer(), T.WidenIndices(check_sizes=True), T.Simplify(), T.LowerWarpMemory()),
    loops=(
        T.InjectPrefetch(),
        T.SpecializeWarps(registers=register_split),
        T.InjectSoftwarePipeline(),
        T.InjectVirtualThread(),
        T.VectorizeLoop(),
        T.InjectDoubleBuffer(),
        unless("tir.disable_storage_rewrite", T.StorageRewrite()),
        T.RunBackAndForth(),
        T.UnrollLoop(),
        T.InjectPTXAsyncCopy(),
    ),
    clean=(
        T.RewriteUnsafeSelect(),
        T.Simplify(),
        T.FetchEarly(),
        T.RemoveNoOp(),
        T.HoistIfThenElse(),
        unless("tir.disable_cse_tir", T.CommonSubexprElimTIR()),
    ),
    barriers=(T.ThreadSync("shared.cluster"), T.ThreadSync("shared", "shared.dyn")),
    instructions=(lambda target: T.LowerIntrin(library=True, rules=lowering_rules(target)),),
    kernels=(_cut_kernels,),
)


# What every GPU has at least, where a target says nothing.
SMALL: Final = {
    "max_num_threads": 256,
    "max_threads_per_block": 256,
    "max_shared_memory_per_block": 16384,
    "thread_warp_size": 1,
}


def limits(target: Target, axes: dict[str, int] | None = None) -> Any:
    """What a block of threads may use on a target; `axes` has the greatest extents of further axes."""
    from ..tir.transform.split_host_device import KernelLimits

    gpu = target.gpu
    return KernelLimits(
        f"target {target.kind.name}" + (f" ({gpu.arch})" if gpu.arch else ""),
        gpu.max_threads_per_block,
        gpu.shared_memory_per_block,
        gpu.dynamic_shared_memory_per_block,
        {
            "blockIdx.x": 2**31 - 1,
            "blockIdx.y": 65535,
            "blockIdx.z": 65535,
            "clusterCtaIdx.x": gpu.blocks_per_cluster,
            **(axes or {}),
        },
    )


def kernels_as_source(whole: Any, split: Any, target: Target) -> Any:
    """Kernels in the dialect of the target, and the functions that launch them."""
    from ..codegen.source import build_source

    dialect = backend_of(target).dialect
    assert dialect is not None
    return build_source(whole, split, target, dialect())
