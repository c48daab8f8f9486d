"""Pictures of runs on the accelerator, as SVG: a roofline, and the timeline of the engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

_FONT = "font-family='system-ui, sans-serif'"
_INK, _PALE, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_WAYS = {"no hiding": "#cf6a32", "virtual threads": "#2f6f9f", "zero trials": "#2f9e6e"}
_TUNED = "#7d4fb3"
_KINDS = {
    "load inp": "#7fb3d5",
    "load wgt": "#2f6f9f",
    "load acc": "#b9d7ea",
    "load uop": "#c3cad2",
    "gemm": "#2f9e6e",
    "alu": "#f2b134",
    "store": "#cf6a32",
}


def _text(
    x: float, y: float, text: str, size: int = 12, anchor: str = "start", fill: str = _INK, more: str = ""
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' fill='{fill}' {_FONT} {more}>"
        f"{escape(text)}</text>"
    )


def _svg(width: int, height: int, body: list[str]) -> str:
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
            f"height='{height}'>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
            *body,
            "</svg>\n",
        ]
    )


def _colour(way: str) -> str:
    return _WAYS.get(way, _TUNED)


# ---------------------------------------------------------------------------- roofline
def roofline(runs: Sequence[Any], env: Any) -> str:
    """GOP/s against operations for each byte of DRAM, below the roof of the chip."""
    width, height, left, right, top, bottom = 820, 520, 70, 30, 60, 60
    unit = env.BATCH * env.BLOCK_IN * env.BLOCK_OUT
    clock = env.config.clock_mhz * 1e6
    peak = 2 * unit * clock / 1e9
    bandwidth = env.config.dram_bytes_per_cycle * clock / 1e9
    points = []
    for r in runs:
        operations = 2 * r.products * unit
        points.append((r, operations / r.nbytes, operations / r.cycles * clock / 1e9))
    low_x = 2 ** math.floor(math.log2(min(p[1] for p in points) / 1.5))
    high_x = 2 ** math.ceil(math.log2(max(p[1] for p in points) * 1.5))
    low_y = min(min(p[2] for p in points) / 1.4, peak / 4)
    high_y = peak * 1.25

    def at_x(v: float) -> float:
        return left + (math.log2(v) - math.log2(low_x)) / (math.log2(high_x) - math.log2(low_x)) * (
            width - left - right
        )

    def at_y(v: float) -> float:
        share = (math.log2(v) - math.log2(low_y)) / (math.log2(high_y) - math.log2(low_y))
        return height - bottom - share * (height - top - bottom)

    body = [
        _text(left, 28, "Convolutions of ResNet-18 on the example accelerator", 17, more="font-weight='600'")
    ]
    x = low_x
    while x <= high_x:
        body.append(
            f"<line x1='{at_x(x):.1f}' x2='{at_x(x):.1f}' y1='{top}' y2='{height - bottom}' stroke='{_GRID}'/>"
        )
        body.append(_text(at_x(x), height - bottom + 18, f"{x:g}", 12, "middle", _PALE))
        x *= 2
    for y in (5, 10, 20, 30, 40, 50):
        if low_y <= y <= high_y:
            body.append(
                f"<line x1='{left}' x2='{width - right}' y1='{at_y(y):.1f}' y2='{at_y(y):.1f}' stroke='{_GRID}'/>"
            )
            body.append(_text(left - 8, at_y(y) + 4, str(y), 12, "end", _PALE))
    ridge = peak / bandwidth
    first = max(low_x, low_y / bandwidth)
    roof = [(first, first * bandwidth), (min(ridge, high_x), min(peak, high_x * bandwidth)), (high_x, peak)]
    line = " ".join(f"{at_x(a):.1f},{at_y(b):.1f}" for a, b in roof)
    body.append(f"<polyline points='{line}' fill='none' stroke='{_INK}' stroke-width='2'/>")
    body.append(_text(width - right, at_y(peak) - 8, f"peak {peak:.1f} GOP/s", 12, "end"))
    body.append(_text(at_x(first) + 10, at_y(first * bandwidth) - 14, f"DRAM {bandwidth:.1f} GB/s", 12))
    body += _points(points, at_x, at_y)
    body.append(
        _text((left + width - right) / 2, height - 14, "operations for each byte of DRAM", 13, "middle")
    )
    body.append(
        _text(
            20,
            (top + height - bottom) / 2,
            "GOP/s",
            13,
            "middle",
            more=f"transform='rotate(-90 20 {(top + height - bottom) / 2:.0f})'",
        )
    )
    ways = list(dict.fromkeys(r.way for r in runs))
    for i, way in enumerate(ways):
        at = left + 150 * i
        body.append(f"<circle cx='{at + 6}' cy='44' r='5' fill='{_colour(way)}'/>")
        body.append(_text(at + 16, 48, way, 13))
    return _svg(width, height, body)


def _points(points: list[Any], at_x: Any, at_y: Any) -> list[str]:
    """The points of each layer, joined, with its name at the best one."""
    out: list[str] = []
    labels: list[tuple[float, float]] = []
    layers: dict[str, list[Any]] = {}
    for p in points:
        layers.setdefault(p[0].layer, []).append(p)
    for name, own in layers.items():
        line = " ".join(f"{at_x(a):.1f},{at_y(b):.1f}" for _, a, b in own)
        out.append(
            f"<polyline points='{line}' fill='none' stroke='{_PALE}' stroke-width='1' stroke-dasharray='2 3'/>"
        )
        for r, a, b in own:
            out.append(
                f"<circle cx='{at_x(a):.1f}' cy='{at_y(b):.1f}' r='5' fill='{_colour(r.way)}' fill-opacity='.9'/>"
            )
        _, a, b = own[0]
        x, y = at_x(a) + 9, at_y(b) + 4
        while any(abs(x - u) < 26 and abs(y - v) < 12 for u, v in labels):
            y += 12
        labels.append((x, y))
        out.append(_text(x, y, name, 11))
    return out


# ---------------------------------------------------------------------------- timeline
def _kind(label: str) -> str:
    """The colour group of an instruction: `load.inp`, `gemm.reset` and `alu.shr.imm` are load inp, gemm and alu."""
    name, _, rest = label.partition(".")
    return f"load {rest}" if name == "load" else name


def timeline(runs: Sequence[Any], cycles: int = 24000) -> str:
    """What each engine does over the first cycles of one layer, for each way to schedule it."""
    width, lane, gap, left, top = 1180, 26, 40, 90, 92
    engines = (1, 2, 3)
    names = {1: "load", 2: "compute", 3: "store"}
    height = top + len(runs) * (len(engines) * (lane + 4) + gap) + 30
    scale = (width - left - 30) / cycles
    body = [
        _text(
            left,
            28,
            f"Engines over the first {cycles:,} cycles of layer {runs[0].layer}",
            17,
            more="font-weight='600'",
        )
    ]
    used: dict[str, None] = {}
    y = top
    for r in runs:
        title = f"{r.way}: the compute engine is busy in {r.utilisation:.1%} of {r.cycles:,} cycles"
        body.append(_text(left, y - 8, title, 13))
        for i, e in enumerate(engines):
            at = y + i * (lane + 4)
            body.append(_text(left - 10, at + lane / 2 + 4, names[e], 12, "end", _PALE))
            body.append(
                f"<rect x='{left}' y='{at}' width='{width - left - 30}' height='{lane}' fill='#f5f7fa'/>"
            )
            for s in r.timeline:
                if s.engine != e or s.start >= cycles or s.end <= s.start:
                    continue
                kind = _kind(s.label)
                used[kind] = None
                wide = max((min(s.end, cycles) - s.start) * scale, 0.4)
                colour = _KINDS.get(kind, "#9aa5b1")
                body.append(
                    f"<rect x='{left + s.start * scale:.2f}' y='{at}' width='{wide:.2f}' height='{lane}' "
                    f"fill='{colour}'><title>{escape(s.label)}: {s.start} to {s.end}</title></rect>"
                )
        y += len(engines) * (lane + 4) + gap
    step = 4000
    for c in range(0, cycles + 1, step):
        body.append(_text(left + c * scale, height - 26, f"{c:,}", 11, "middle", _PALE))
    body.append(_text((left + width) / 2, height - 8, "cycles", 12, "middle", _PALE))
    at = left
    for kind in [k for k in _KINDS if k in used] + [k for k in used if k not in _KINDS]:
        body.append(f"<rect x='{at}' y='40' width='12' height='12' fill='{_KINDS.get(kind, '#9aa5b1')}'/>")
        body.append(_text(at + 17, 50, kind, 12))
        at += 30 + 7 * len(kind)
    return _svg(width, height, body)
