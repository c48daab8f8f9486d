"""Figures of kernels for profiles: operations, bytes, the nodes of the model that they come from, and the peak of the
machine. They are part of a model's metadata, since the runtime knows nothing of programs."""

from __future__ import annotations

from typing import Any

from ...ir.errors import TVMError
from ...ir.function import PrimFunc
from ...target import Target
from ...target.machine import CpuMachine
from ...tir.analysis.work import work_of
from ..expr import Call, Function
from ..op.registry import RelayOp
from .dims import dim_of
from .lower import inner_order

# How many times as many multiply-adds of a type as of float32, on a CPU with one of these features.
_FASTER = (
    ("int8", 4, ("avx512vnni", "avxvnni", "dotprod", "i8mm")),
    ("uint8", 4, ("avx512vnni", "avxvnni", "dotprod", "i8mm")),
    ("bfloat16", 2, ("avx512bf16", "bf16")),
    ("float16", 2, ("avx512fp16", "fullfp16")),
)


def work_data(func: PrimFunc) -> list[Any] | None:
    """The operations and bytes of an unscheduled function, as numbers or expressions of its sizes; None if they depend
    on more than sizes."""
    try:
        found = work_of(func)
        return None if found is None else [dim_of(each) for each in found]
    except TVMError:  # an expression that the runtime cannot evaluate
        return None


def nodes_of(fn: Function) -> list[str]:
    """The nodes of the source that a fused function computes: first the node of its least regular operator, which
    takes the time, then the others in order."""
    calls = [e for e in inner_order(fn) if isinstance(e, Call) and isinstance(e.op, RelayOp)]
    known = [(c.op.pattern, c.span.name) for c in calls if c.span is not None]
    if not known:
        return []
    anchor = max(known, key=lambda row: row[0])
    return list(dict.fromkeys(name for _, name in (anchor, *known)))


def roof_of(target: Target) -> dict[str, Any] | None:
    """The peak of a target's machine, for `runtime.profiling.Roof`; None if there are no figures."""
    if target.is_cpu:
        return _roof_of_cpu(target.cpu)
    if not target.is_gpu:
        return None
    gpu = target.gpu
    rates = {"float32": gpu.peak_flops / 1e9}
    if gpu.mma_per_cycle:
        rates |= dict.fromkeys(
            ("float16", "bfloat16"), 2 * gpu.clock * gpu.mma_per_cycle * gpu.multiprocessors
        )
    return {
        "name": gpu.arch,
        "source": gpu.source,
        "cores": 1,
        "gflops": rates,
        "levels": [[None, gpu.bandwidth, gpu.bandwidth]],
    }


def _roof_of_cpu(cpu: CpuMachine) -> dict[str, Any]:
    """The figures of one core, and of all: caches by their size, with GB/s."""
    peak = cpu.peak_gflops()
    rates = {"float32": peak, "float64": peak / 2, "float16": peak, "bfloat16": peak}
    rates |= dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "uint32"), peak)
    for dtype, times, features in _FASTER:
        if not cpu.features.isdisjoint(features):
            rates[dtype] = times * peak
    l2, l3 = cpu.l2_bandwidth * cpu.clock, cpu.l3_bandwidth * cpu.clock
    sizes, cores = cpu.cache_sizes, cpu.num_cores
    levels: list[list[Any]] = [[sizes.l2 * cores, l2, l2 * cores]]
    if sizes.l3:
        levels.append([sizes.l3, l3, l3 * cores])
    levels.append([None, cpu.memory_bandwidth, cpu.memory_bandwidth_all])
    return {"name": cpu.cpu, "source": cpu.source, "cores": cores, "gflops": rates, "levels": levels}
