"""Why a schedule was chosen, in numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .program.facts import Facts

if TYPE_CHECKING:
    from .plan import Choice, Offer
    from .rules import Applied

__all__ = ["Explanation", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a stage on a GPU, for decisions; the records of an explanation are for people."""

    stage: str
    threads: int  # of a thread block; 0 if the rule does not say
    shared_memory: bool  # whether the kernel uses shared memory
    refused: str  # why a better rule was refused; empty if none was


class Explanation:
    """The decisions of the automatic scheduler, one record for each stage, as text and as JSON."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.records: list[dict[str, Any]] = []
        self.outcomes: list[Outcome] = []

    # -- decisions ---------------------------------------------------------------------------
    def inlined(self, name: str, into: list[str]) -> None:
        self.records.append({"stage": name, "sketch": "inline", "into": into})

    def untouched(self, f: Facts, why: str = "") -> None:
        self.records.append({"stage": f.name, "sketch": "as it is", **({"instead": why} if why else {})})

    def left(self, function: str, why: str) -> None:
        """A whole function, or a stage of it, that is left as it is."""
        self.records.append({"stage": function, "sketch": "as it is", "because": why})

    def long_sums(self, blocks: dict[str, int]) -> None:
        """Sums that are added up in blocks, and how many additions a block has."""
        for name, size in blocks.items():
            self.records.append({"stage": name, "sketch": "long sum", "added in blocks of": size})

    def chosen(self, choice: Choice, applied: Applied, instead: str, at: int) -> None:
        """The rule and the row that won, and the best rival. `instead` says why a cheaper one was refused; stages that
        were scheduled on the way are noted after it."""
        stage, note = choice.stage, dict(applied.note)
        told: dict[str, Any] = {"stage": stage.name, "sketch": applied.sketch or choice.winner.rule.name}
        if told["sketch"] in ("rows", "apart"):
            told["stages"] = [f.name for f in stage.chain]
        told |= note
        told["rule"], told["row"] = choice.winner.rule.name, dict(choice.row.values)
        told |= applied.figures
        told.setdefault("predicted_us", round(choice.row.own * 1e6, 2))
        rival = min(choice.rivals, key=lambda o: o.least, default=None)
        if rival is not None:
            told["rival"] = _rival(choice, rival)
        own = choice.winner.rule.name
        near = {name: no.why for name, no in choice.refused.items() if no.near and name != own}
        if near:
            told["refused"] = near
        if instead:
            told["instead"] = instead
        self.records.insert(at, told)
        shared = "shared_memory" in choice.winner.rule.needs
        threads, refused = int(note.get("threads", 0)), str(told.get("instead", ""))  # type: ignore[call-overload]
        self.outcomes.append(Outcome(stage.name, threads, shared, refused))

    # -- output --------------------------------------------------------------------------------
    def to_json(self) -> str:
        return json.dumps({"target": self.target, "stages": self.records}, indent=2)

    def __str__(self) -> str:
        return "\n".join([f"target {self.target}", *[_record_text(r) for r in self.records]])


def _rival(choice: Choice, rival: Offer) -> dict[str, Any]:
    """The best row of another rule, and what made it lose."""
    row, won = rival.row(rival.best), choice.row
    more = {k: v - won.figures[k] for k, v in row.figures.items() if k.startswith("for ")}
    worst = max(more, key=lambda k: more[k])
    return {
        "rule": rival.rule.name,
        "row": dict(row.values),
        "predicted_us": round(row.predicted * 1e6, 2),
        "times": round(row.predicted / max(won.predicted, 1e-12), 2),
        "why": f"more {worst}" if more[worst] > 0 and row.predicted >= won.predicted else rival.family.doubt,
    }


def _bytes(n: float) -> str:
    return f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 1024:.1f} KiB" if n >= 1024 else f"{n:.0f} bytes"


def _speed(gflops: float) -> str:
    return f"{gflops / 1e3:.1f} TFLOP/s" if gflops >= 1e4 else f"{gflops} GFLOP/s"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# The figures of a kernel for a GPU, which `_kernel` puts into sentences.
_FIGURES = (
    "flop", "dram_bytes", "l2_bytes", "intensity", "blocks", "blocks_per_sm", "warps_per_sm", "warps_there",
    "registers", "shared_bytes", "bound", "predicted_us", "predicted_gflops", "rival", "refused",
)  # fmt: skip


def _kernel(r: dict[str, Any]) -> list[str]:
    """The figures of a kernel for a GPU, its rival, and what was refused."""
    near = f", {_bytes(r['l2_bytes'])} from the L2 cache" if "l2_bytes" in r else ""
    held = f"{r['blocks_per_sm']} for each SM at once: {r['warps_per_sm']} of {r['warps_there']} warps"
    held += f", {r['registers']} registers for each thread" if "registers" in r else ""
    held += f", {_bytes(r['shared_bytes'])} of shared memory for each block" if "shared_bytes" in r else ""
    lines = [
        _rule(r),
        f"  memory         {_bytes(r['dram_bytes'])} of DRAM{near}; {r['intensity']} operations for each byte of DRAM",
        f"  occupancy      {r['blocks']} thread blocks, {held}",
        f"  predicted      {r['predicted_us']} us, {_speed(r['predicted_gflops'])}; bound by {r['bound']}",
    ]
    return [*lines, *_lost(r), *_refused(r)]


def _refused(r: dict[str, Any]) -> list[str]:
    return [f"  refused        {rule}: {why}" for rule, why in r.get("refused", {}).items()]


# The figures of a program for an accelerator, which `_chip` puts into sentences.
_CHIP_FIGURES = (
    "work", "loaded_bytes", "stored_bytes", "held_bytes", "cycles", "busy", "bound", "predicted_us", "rival", "refused",
)  # fmt: skip


def _chip(r: dict[str, Any]) -> list[str]:
    """The figures of a program for an accelerator, its rival, and what was refused."""
    work = ", ".join(f"{n:,} {name}" for name, n in r["work"].items())
    moved = [f"{_bytes(n)} into {memory}" for memory, n in r["loaded_bytes"].items() if n]
    used = [f"{memory} {_bytes(n)} of {_bytes(size)}" for memory, (n, size) in r["held_bytes"].items()]
    return [
        _rule(r),
        f"  work           {work} of elements",
        f"  DRAM           {', '.join(moved)}; {_bytes(r['stored_bytes'])} stored",
        f"  memories       {', '.join(used)}",
        f"  predicted      {r['cycles']:,} cycles, {r['predicted_us']} us; the compute engine is busy in "
        f"{100 * r['busy']:.1f}% of them; bound by {r['bound']}",
        *_lost(r),
        *_refused(r),
    ]


# The entries that are printed last, as sentences.
_LAST = ("stage", "sketch", "rule", "row", "predicted_us", "rival", "refused")


def _chosen(r: dict[str, Any]) -> list[str]:
    """The rule, its row and its predicted time, then the best rival and why it lost."""
    if "rule" not in r:
        return []
    return [_rule(r), f"  predicted      {r['predicted_us']} us", *_lost(r), *_refused(r)]


def _rule(r: dict[str, Any]) -> str:
    row = ", ".join(f"{k} {v}" for k, v in r["row"].items())
    return f"  rule           {r['rule']}: {row}"


def _lost(r: dict[str, Any]) -> list[str]:
    if "rival" not in r:
        return []
    rival = r["rival"]
    return [
        f"  rival          {rival['rule']}, {rival['predicted_us']} us: {rival['times']} times as long, "
        f"{rival['why']}"
    ]


def _record_text(r: dict[str, Any]) -> str:
    head = f"{r['stage']}: {r['sketch']}"
    if r["sketch"] == "inline":
        return f"{r['stage']}: inlined into {', '.join(r['into'])}"
    if r["sketch"] not in ("tile", "dot") or "rule" not in r:
        told: Callable[[dict[str, Any]], list[str]] = _chosen
        figures: tuple[str, ...] = ()
        if "blocks_per_sm" in r:
            told, figures = _kernel, _FIGURES
        elif "held_bytes" in r:
            told, figures = _chip, _CHIP_FIGURES
        own = [f"  {k:<14} {_shown(v)}" for k, v in r.items() if k not in (*_LAST, *figures)]
        return "\n".join([head, *own, *told(r)])
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
        *_lost(r),
    ]
    return "\n".join(lines)
