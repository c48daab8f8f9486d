"""Pictures of runs on the accelerator, as SVG: a roofline, and the timeline of the engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, Final

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


# ---------------------------------------------------------------------------- roofline
class _Axes:
    """Logarithmic axes of operations for each byte and of GOP/s."""

    width, height, left, right, top, bottom = 820, 520, 70, 30, 60, 60

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.low_x, self.high_x = x
        self.low_y, self.high_y = y

    def x(self, value: float) -> float:
        share = math.log2(value / self.low_x) / math.log2(self.high_x / self.low_x)
        return self.left + share * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        share = math.log2(value / self.low_y) / math.log2(self.high_y / self.low_y)
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)

    def grid(self) -> list[str]:
        out, end, floor = [], self.width - self.right, self.height - self.bottom
        x = self.low_x
        while x <= self.high_x:
            at = self.x(x)
            out.append(f"<line x1='{at:.1f}' x2='{at:.1f}' y1='{self.top}' y2='{floor}' stroke='{_GRID}'/>")
            out.append(_text(at, floor + 18, f"{x:g}", 12, "middle", _PALE))
            x *= 2
        for y in (5, 10, 20, 30, 40, 50):
            if self.low_y <= y <= self.high_y:
                at = self.y(y)
                out.append(
                    f"<line x1='{self.left}' x2='{end}' y1='{at:.1f}' y2='{at:.1f}' stroke='{_GRID}'/>"
                )
                out.append(_text(self.left - 8, at + 4, str(y), 12, "end", _PALE))
        middle = (self.top + floor) / 2
        turned = f"transform='rotate(-90 20 {middle:.0f})'"
        out.append(
            _text((self.left + end) / 2, self.height - 14, "operations for each byte of DRAM", 13, "middle")
        )
        return [*out, _text(20, middle, "GOP/s", 13, "middle", more=turned)]

    def roof(self, peak: float, bandwidth: float) -> list[str]:
        first = max(self.low_x, self.low_y / bandwidth)
        ridge = (min(peak / bandwidth, self.high_x), min(peak, self.high_x * bandwidth))
        line = " ".join(
            f"{self.x(a):.1f},{self.y(b):.1f}"
            for a, b in ((first, first * bandwidth), ridge, (self.high_x, peak))
        )
        return [
            f"<polyline points='{line}' fill='none' stroke='{_INK}' stroke-width='2'/>",
            _text(self.width - self.right, self.y(peak) - 8, f"peak {peak:.1f} GOP/s", 12, "end"),
            _text(self.x(first) + 32, self.y(first * bandwidth) - 14, f"DRAM {bandwidth:.1f} GB/s", 12),
        ]


def roofline(runs: Sequence[Any], env: Any) -> str:
    """GOP/s against operations for each byte of DRAM, below the roof of the chip."""
    unit = env.BATCH * env.BLOCK_IN * env.BLOCK_OUT
    clock = env.config.clock_mhz * 1e6
    peak = 2 * unit * clock / 1e9
    points = []
    for r in runs:
        operations = 2 * r.products * unit
        points.append((r, operations / r.nbytes, operations / r.cycles * clock / 1e9))
    low_x = 2 ** math.floor(math.log2(min(p[1] for p in points) / 1.5))
    high_x = 2 ** math.ceil(math.log2(max(p[1] for p in points) * 1.5))
    axes = _Axes((low_x, high_x), (min(min(p[2] for p in points) / 1.4, peak / 4), peak * 1.25))
    title = "Convolutions of ResNet-18 on the example accelerator"
    body = [_text(axes.left, 28, title, 17, more="font-weight='600'"), *axes.grid()]
    body += axes.roof(peak, env.config.dram_bytes_per_cycle * clock / 1e9)
    body += _points(points, axes)
    for i, way in enumerate(dict.fromkeys(r.way for r in runs)):
        at = axes.left + 150 * i
        body += [_dot(at + 6, 44, way), _text(at + 18, 48, way, 13)]
    return _svg(axes.width, axes.height, body)


def _dot(x: float, y: float, way: str) -> str:
    """A point; a ring if it is of tuned schedules, in which one sees that of zero trials if they are the same."""
    if way not in _WAYS:
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='7.5' fill='none' stroke='{_TUNED}' stroke-width='1.5'/>"
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='5' fill='{_WAYS[way]}' fill-opacity='.9'/>"


def _points(points: list[Any], axes: _Axes) -> list[str]:
    """The points of each layer, joined, with its name at the first one."""
    layers: dict[str, list[tuple[str, float, float]]] = {}
    for r, a, b in points:
        layers.setdefault(r.layer, []).append((r.way, axes.x(a), axes.y(b)))
    lines, dots, names = [], [], []
    taken = [(x - 8, y - 8, x + 8, y + 8) for own in layers.values() for _, x, y in own]
    for name, own in layers.items():
        line = " ".join(f"{x:.1f},{y:.1f}" for _, x, y in own)
        lines.append(
            f"<polyline points='{line}' fill='none' stroke='{_PALE}' stroke-width='1' stroke-dasharray='2 3'/>"
        )
        dots += [_dot(x, y, way) for way, x, y in own]
        x, y = _free_place(*own[0][1:], 7.0 * len(name), taken)
        names.append(_text(x, y, name, 11))
    return [*lines, *dots, *names]


def _free_place(
    x: float, y: float, wide: float, taken: list[tuple[float, float, float, float]]
) -> tuple[float, float]:
    """The place of a name of some width beside a point where nothing else is; it is taken from then on."""
    tall = 11
    places = [(x + 9, y + 4), (x - 9 - wide, y + 4), (x - wide / 2, y + 9 + tall), (x - wide / 2, y - 10)]
    boxes = [(u, v - tall, u + wide, v) for u, v in places]

    def hidden(box: tuple[float, float, float, float]) -> int:
        return sum(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in taken)

    best = min(range(len(boxes)), key=lambda i: hidden(boxes[i]))
    taken.append(boxes[best])
    return places[best]


# ---------------------------------------------------------------------------- timeline
_ENGINES: Final = {1: "load", 2: "compute", 3: "store"}
_LANE, _GAP, _STEP = 26, 40, 4000


def _kind(label: str) -> str:
    """The colour group of an instruction: `load.inp`, `gemm.reset` and `alu.shr.imm` are load inp, gemm and alu."""
    name, _, rest = label.partition(".")
    return f"load {rest}" if name == "load" else name


def timeline(runs: Sequence[Any], before: int = 32000, behind: int = 8000) -> str:
    """What each engine does in the cycles around the first store of one layer, for each way to schedule it."""
    width, left, top = 1180, 90, 92
    height = top + len(runs) * (len(_ENGINES) * (_LANE + 4) + _GAP) + 30
    scale = (width - left - 30) / (before + behind)
    title = f"Engines around the first store of layer {runs[0].layer}"
    body = [_text(left, 28, title, 17, more="font-weight='600'")]
    used: dict[str, None] = {}
    y = top
    for r in runs:
        title = f"{r.way}: the compute engine is busy in {r.utilisation:.1%} of {r.cycles:,} cycles"
        body.append(_text(left, y - 8, title, 13))
        begin = min((s.start for s in r.timeline if _kind(s.label) == "store"), default=before) - before
        for engine, name in _ENGINES.items():
            end = begin + before + behind
            own = [s for s in r.timeline if s.engine == engine and s.end > begin and s.start < end]
            used |= dict.fromkeys(_kind(s.label) for s in own)
            body.append(_text(left - 10, y + _LANE / 2 + 4, name, 12, "end", _PALE))
            body.append(
                f"<rect x='{left}' y='{y}' width='{width - left - 30}' height='{_LANE}' fill='#f5f7fa'/>"
            )
            body += _spans(own, begin, end, left, y, scale)
            y += _LANE + 4
        y += _GAP
    for c in range(-before, behind + 1, _STEP):
        body.append(_text(left + (before + c) * scale, height - 26, f"{c:,}", 11, "middle", _PALE))
    body.append(_text((left + width) / 2, height - 8, "cycles, from the first store", 12, "middle", _PALE))
    at = left
    for kind in [k for k in _KINDS if k in used] + [k for k in used if k not in _KINDS]:
        body.append(f"<rect x='{at}' y='40' width='12' height='12' fill='{_KINDS.get(kind, '#9aa5b1')}'/>")
        body.append(_text(at + 17, 50, kind, 12))
        at += 36 + 7 * len(kind)
    return _svg(width, height, body)


def _spans(spans: list[Any], begin: int, end: int, left: float, y: float, scale: float) -> list[str]:
    """The instructions of an engine between two cycles."""
    out = []
    for s in spans:
        first, last = max(s.start, begin), min(s.end, end)
        if last > first:
            x, wide = left + (first - begin) * scale, max((last - first) * scale, 0.4)
            out.append(
                f"<rect x='{x:.2f}' y='{y}' width='{wide:.2f}' height='{_LANE}' "
                f"fill='{_KINDS.get(_kind(s.label), '#9aa5b1')}'>"
                f"<title>{escape(s.label)}: {s.start} to {s.end}</title></rect>"
            )
    return out
