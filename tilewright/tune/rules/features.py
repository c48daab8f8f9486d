"""The features of a candidate for a learned cost model: numbers of the loop nest and of the machine, as arrays.

The columns are the same for every program and machine, so that a model that was trained on one serves another.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...target.machine import CpuMachine
from ..program.facts import Facts

if TYPE_CHECKING:
    from .cpu.tile_space import TileSpace

__all__ = ["COLUMNS", "STAGE_COLUMNS", "layout", "machine_features", "simple_features", "tile_features"]

Array = Any
# The figures of a tile by the analytical model: cycles, bytes, counts.
_FIGURES = (
    "cycles", "compute", "first_touch", "units", "point", "fma", "loads", "registers", "spills", "traffic",
    "panel", "streamed",
)  # fmt: skip
_SHAPE = (
    "rows", "axes in tile", "vectors", "lanes", "outer", "threads", "unroll", "packed", "packed before",
    "transposes", "window", "dot", "tail of vectors", "tail of rows", "accumulators",
    "contrary",
)  # fmt: skip
# Ratios of these figures to each other and to the machine, which carry over from one size of a program to another.
_RATIOS = (
    "waits", "loads by multiply-adds", "registers used", "traffic by compute", "panel by L1", "panel by L2",
    "streamed by L1", "streamed by L2", "first touch by all",
)  # fmt: skip
_WORK = (
    "spatial points", "reduced points", "reads", "bytes read", "bytes written", "work", "intensity", "simple",
)  # fmt: skip
STAGE_COLUMNS = (*_FIGURES, *_SHAPE, *_RATIOS, *_WORK)
_MACHINE = (
    "L1", "L2", "L3", "cores", "vector registers", "vector bits", "multiply-adds in a cycle", "clock",
    "loads in a cycle", "L2 bandwidth", "L3 bandwidth", "memory bandwidth",
)  # fmt: skip
# The time of all stages together; the share and the columns of each of the two that take longest.
COLUMNS = (
    "seconds",
    *(f"{n} {c}" for n in (1, 2) for c in ("share", *STAGE_COLUMNS)),
    *_MACHINE,
    "seconds by zero-trial",
)


def layout() -> str:
    """A digest of the columns and their order: a model serves only features of the layout that it was trained on."""
    return hashlib.sha256("\n".join(COLUMNS).encode()).hexdigest()[:12]


def _log(x: Any) -> Any:
    return np.log2(1.0 + np.maximum(x, 0.0))


def _work(f: Facts, simple: bool) -> list[float]:
    read = sum(f.touched(r) for r in f.reads)
    written = f.touched(f.write) if f.write is not None else 0
    spatial, reduced = math.prod(a.extent for a in f.spatial), math.prod(a.extent for a in f.reduce)
    numbers = [spatial, reduced, len(f.reads), read, written, f.work, f.points / max(1, read + written)]
    return [float(_log(x)) for x in numbers] + [float(simple)]


def _by(x: Array, y: Array) -> Array:
    return np.log2((1.0 + x) / (1.0 + y))


def _ratios(costs: dict[str, Array], machine: CpuMachine) -> list[Array]:
    caches, by = machine.cache_sizes, _by
    return [
        by(costs["point"], costs["fma"]),
        by(costs["loads"], costs["fma"]),
        costs["registers"] / machine.vector_registers,
        by(costs["traffic"], costs["compute"]),
        by(costs["panel"], caches.l1d),
        by(costs["panel"], caches.l2),
        by(costs["streamed"], caches.l1d),
        by(costs["streamed"], caches.l2),
        by(costs["first_touch"], costs["cycles"]),
    ]


def tile_features(
    space: TileSpace,
    costs: dict[str, Array],
    machine: CpuMachine,
    threads: int,
    unroll: int,
    contrary: int,
) -> Array:
    """One row for each candidate of a space."""
    n = len(space.vectors)
    rows = space.tiles.prod(axis=1) if space.tiles.shape[1] else np.ones(n)
    width = space.vectors * space.lanes
    tail = np.ones(n)
    for i, axis in enumerate(space.rows):
        tail = tail * axis.extent / (-(-axis.extent // space.tiles[:, i]) * space.tiles[:, i])
    shape = [
        _log(rows),
        (space.tiles > 1).sum(axis=1),
        space.vectors,
        np.full(n, math.log2(space.lanes)),
        space.outer,
        np.full(n, threads),
        np.full(n, math.log2(unroll)),
        np.full(n, space.packed is not None),
        np.full(n, space.pack_free),
        np.full(n, space.transposes),
        np.full(n, space.window),
        np.full(n, space.dot),
        space.vector.extent / (-(-space.vector.extent // width) * width),
        tail,
        rows * space.vectors,
        np.full(n, contrary),
    ]
    figures = [
        _log(np.broadcast_to(costs[name], (n,))) if name in costs else np.zeros(n) for name in _FIGURES
    ]
    work = np.tile(_work(space.facts, False), (n, 1))
    ratios = _ratios(costs, machine)
    return np.concatenate([np.stack([*figures, *shape, *ratios], axis=1), work], axis=1).astype(np.float32)


def simple_features(f: Facts, points: Array, seconds: Array, shared: Array) -> Array:
    """One row for each way to schedule a stage without a tile."""
    n = len(points)
    out = np.zeros((n, len(STAGE_COLUMNS)), np.float32)
    out[:, 0] = _log(seconds * 1e9)
    out[:, len(_FIGURES) + 3] = np.log2(points[:, 0] / max(8, f.bits))
    out[:, len(_FIGURES) + 5] = shared
    out[:, -len(_WORK) :] = _work(f, True)
    return out


def machine_features(machine: CpuMachine) -> Array:
    """The features of a machine, by which a model that was trained on one can be used on another."""
    caches = machine.cache_sizes
    sizes = [caches.l1d, caches.l2, caches.l3, machine.num_cores]
    figures = [
        machine.vector_registers, machine.preferred_vector_bits, machine.fma_ports, machine.clock,
        machine.loads_per_cycle, machine.l2_bandwidth, machine.l3_bandwidth, machine.bandwidth(0),
    ]  # fmt: skip
    return np.array([*map(_log, sizes), *figures], np.float32)
