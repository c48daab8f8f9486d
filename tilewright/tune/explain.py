"""Why a schedule was chosen, in numbers."""

from __future__ import annotations

import json
import math
from typing import Any

from ..target.machine import CpuMachine
from .program.facts import Facts
from .rules.cpu.tiles import Best

__all__ = ["Explanation"]


class Explanation:
    """The decisions of the automatic scheduler, one record for each stage, as text and as JSON."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.records: list[dict[str, Any]] = []

    # -- decisions ---------------------------------------------------------------------------
    def inlined(self, name: str, into: list[str]) -> None:
        self.records.append({"stage": name, "sketch": "inline", "into": into})

    def untouched(self, f: Facts, why: str = "") -> None:
        self.records.append({"stage": f.name, "sketch": "as it is", **({"instead": why} if why else {})})

    def left(self, function: str, why: str) -> None:
        """A whole function, or a stage of it, that is left as it is."""
        self.records.append({"stage": function, "sketch": "as it is", "because": why})

    def filtered(self, f: Facts, size: int) -> None:
        """A convolution that is computed by Winograd's algorithm, in tiles of `size`."""
        self.records.append({"stage": f.name, "sketch": "winograd", "tiles": size})

    def long_sums(self, blocks: dict[str, int]) -> None:
        """Sums that are added up in blocks, and how many additions a block has."""
        for name, size in blocks.items():
            self.records.append({"stage": name, "sketch": "long sum", "added in blocks of": size})

    def elementwise(self, f: Facts, note: dict[str, object], machine: CpuMachine) -> None:
        self.records.append({"stage": f.name, "sketch": "elementwise", **note})

    def rows(self, last: Facts, group: list[Facts], note: dict[str, object], machine: CpuMachine) -> None:
        self.records.append({"stage": last.name, "sketch": "rows", "stages": [f.name for f in group], **note})

    def tile(
        self, f: Facts, best: Best, threads: bool, machine: CpuMachine, after: str | None, before: list[str]
    ) -> None:
        """A register tile with the epilogue `after`; the stages `before` are computed inside its outermost loop."""
        space, figures = best.space, best.figures
        rows = math.prod(best.tile)
        seconds = best.cycles / (machine.clock * 1e9)
        operations = 2 * f.points
        touched = sum(f.touched(r) for r in f.accesses)
        bound = "compute"
        if figures["traffic"] > figures["compute"]:
            bound = _level(machine, max(float(figures["panel"]), float(figures["streamed"])))
        elif figures["first_touch"] > 0.5 * figures["cycles"]:
            bound = "memory" if touched > machine.cache_sizes.l3 else "L3"
        elif figures["loads"] > figures["fma"]:
            bound = "loads from L1"
        self.records.append(
            {
                "stage": f.name,
                "sketch": "dot" if space.dot else "tile",
                "vector_axis": space.vector.var.name,
                "lanes": space.lanes,
                "tile": {a.var.name: t for a, t in zip(space.rows, best.tile, strict=True) if t > 1},
                "vectors": best.vectors,
                "accumulators": rows * best.vectors,
                "registers": int(figures["registers"]),
                "registers_there": machine.vector_registers,
                "loop_order": "vectors around rows" if best.vector_outer else "rows around vectors",
                "packed": space.packed.buffer.name if space.packed is not None else None,
                "packed_before": space.pack_free,
                "fused_after": after,
                "fused_before": before,
                "panel_bytes": int(figures["panel"]),
                "panel_in": _level(machine, float(figures["panel"])),
                "streamed_bytes": int(figures["streamed"]),
                "streamed_from": _level(machine, float(figures["streamed"])),
                "parallel_units": int(figures["units"]) if threads else 1,
                "flop": operations,
                "intensity": round(operations / max(1, touched), 2),
                "bound": bound,
                "predicted_us": round(seconds * 1e6, 2),
                "predicted_gflops": round(operations / max(seconds, 1e-12) / 1e9, 1),
                "candidates": best.candidates,
            }
        )

    # -- output --------------------------------------------------------------------------------
    def to_json(self) -> str:
        return json.dumps({"target": self.target, "stages": self.records}, indent=2)

    def __str__(self) -> str:
        return "\n".join([f"target {self.target}", *[_told(r) for r in self.records]])


def _level(machine: CpuMachine, size: float) -> str:
    caches = machine.cache_sizes
    for name, room in (("L1", caches.l1d), ("L2", caches.l2), ("L3", caches.l3)):
        if size <= 0.8 * room:
            return name
    return "memory"


def _bytes(n: float) -> str:
    return f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 1024:.1f} KiB" if n >= 1024 else f"{n:.0f} bytes"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _told(r: dict[str, Any]) -> str:
    head = f"{r['stage']}: {r['sketch']}"
    if r["sketch"] == "inline":
        return f"{r['stage']}: inlined into {', '.join(r['into'])}"
    if r["sketch"] not in ("tile", "dot"):
        return "\n".join(
            [head, *[f"  {k:<14} {_shown(v)}" for k, v in r.items() if k not in ("stage", "sketch")]]
        )
    tile = " x ".join([f"{t} {a}" for a, t in r["tile"].items()] or ["1 row"])
    lines = [
        head,
        f"  vectors along  {r['vector_axis']}, {r['lanes']} lanes",
        f"  register tile  {tile} x {r['vectors']} vectors = {r['accumulators']} accumulators; "
        f"{r['registers']} of {r['registers_there']} registers",
        f"  loops          {r['loop_order']}"
        + (f", {r['parallel_units']} units for threads" if r["parallel_units"] > 1 else ", one thread"),
    ]
    if r["packed"]:
        when = "before it runs" if r["packed_before"] else "where it is used"
        lines.append(f"  panels         of {r['packed']}, made {when}")
    if r["fused_before"]:
        lines.append(
            f"  computed here  {', '.join(r['fused_before'])}, for the tiles of one turn of the first loop"
        )
    if r["fused_after"]:
        lines.append(f"  fused          {r['fused_after']}, while the results are in registers")
    lines += [
        f"  reused         {_bytes(r['panel_bytes'])} in {r['panel_in']}",
        f"  streamed       {_bytes(r['streamed_bytes'])} from {r['streamed_from']}",
        f"  intensity      {r['intensity']} operations for each byte; bound by {r['bound']}",
        f"  predicted      {r['predicted_us']} us, {r['predicted_gflops']} GFLOP/s "
        f"(best of {r['candidates']} candidates)",
    ]
    return "\n".join(lines)
