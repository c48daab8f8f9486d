"""Touched elements as cells of grids, in the compact form that the page plays.

A grid shows the last two dimensions of a buffer as rows and columns, and the dimensions before them as
tiles side by side. What one step touches is a pattern of cells and the place where it is put down: most steps
put down the same pattern one place further, so that a run of them is a few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

import numpy as np

from ....ir.buffer import Buffer
from ....ir.expr import IterVar, const_value
from ....ir.stmt import Block
from .touches import Array, Run, Touches

SIDE = 64  # the most cells of a grid along one side
CELLS = 8192  # and in all
SHARED = -1  # the worker of a cell that several workers touch at once


@dataclass(frozen=True, slots=True)
class Grid:
    """How an array is drawn: dimension d shows `cells[d]` cells of `scale[d]` elements from `start[d]` on."""

    shape: tuple[int, ...]
    start: tuple[int, ...]
    scale: tuple[int, ...]
    cells: tuple[int, ...]
    rows: int
    cols: int
    across: int  # tiles in a row

    @property
    def tiles(self) -> int:
        return ceil(prod(self.cells) / (self.rows * self.cols))

    def note(self, unit: str = "elements") -> str:
        """What is not as in memory: which part is shown, and how many elements a cell stands for."""
        parts = []
        if any(c * s < n for c, s, n in zip(self.cells, self.scale, self.shape)):
            ranges = [
                f"{a}…{min(a + c * s, n) - 1}" if c * s > 1 else f"{a}"
                for a, c, s, n in zip(self.start, self.cells, self.scale, self.shape)
            ]
            parts.append(f"shows [{', '.join(ranges)}]")
        if any(s > 1 for s in self.scale):
            sizes = [s for s, n in zip(self.scale, self.shape) if n > 1]
            parts.append(f"a cell is {' × '.join(map(str, sizes))} {unit}")
        wide = [n for n in self.shape if n > 1]
        if len(wide) == 1 and self.rows > 1:
            parts.append(f"{self.cols * max(self.scale)} {unit} a row")
        return " · ".join(parts)


def grid_for(shape: Sequence[int], low: Sequence[int], high: Sequence[int], crop: bool = False) -> Grid:
    """A grid for an array that is touched from `low` to `high`; with `crop`, of these elements alone."""
    if crop:
        size = [b - a + 1 for a, b in zip(low, high)]
        inner = grid_for(size, [0] * len(size), [n - 1 for n in size])
        return replace(inner, shape=tuple(shape), start=tuple(a + s for a, s in zip(low, inner.start)))
    wide = [d for d, n in enumerate(shape) if n > 1]
    lead = prod(shape[d] for d in wide[:-2])
    side = CELLS // 2 if len(wide) == 1 else SIDE if lead == 1 else SIDE // 2 if lead <= 4 else SIDE // 4
    start, scale, cells = [0] * len(shape), [1] * len(shape), [1] * len(shape)
    room = CELLS
    for d in reversed(wide):
        n = shape[d]
        most = side if d in wide[-2:] else max(1, room)
        if n > most:
            reach = min(n, max(most, high[d] - low[d] + 1))
            start[d] = min(low[d], n - reach)
            if d in wide[-2:]:
                scale[d] = ceil(reach / most)
                n = reach
            else:
                n = most
        cells[d] = ceil(n / scale[d])
        room //= cells[d]
    shown = [cells[d] for d in wide]
    if len(wide) <= 1:
        n = shown[0] if shown else 1
        cols = n if n <= 32 else 32 if n <= 1024 else SIDE
        return Grid(tuple(shape), tuple(start), tuple(scale), tuple(cells), ceil(n / cols), cols, 1)
    across = shown[-3] if len(shown) > 3 and shown[-3] <= 16 else _across(prod(shown[:-2]))
    return Grid(tuple(shape), tuple(start), tuple(scale), tuple(cells), shown[-2], shown[-1], across)


def _across(tiles: int) -> int:
    """How many tiles stand side by side: somewhat wider than high, in full rows where that can be."""
    root = ceil(tiles**0.5)
    return next((n for n in range(root, min(tiles, 2 * root) + 1) if tiles % n == 0), root)


def runs_of(values: Iterable[int]) -> list[int]:
    """Numbers as the first one and then pairs: a difference and how often it follows."""
    array = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.int64)
    if not array.size:
        return []
    steps = np.diff(array)
    edges = np.flatnonzero(np.diff(steps)) + 1 if steps.size else np.empty(0, np.int64)
    starts = np.concatenate([[0], edges]) if steps.size else edges
    counts = np.diff(np.concatenate([starts, [steps.size]])) if steps.size else edges
    pairs = np.stack([steps[starts], counts], axis=1).ravel() if steps.size else edges
    return [int(array[0]), *map(int, pairs)]


class _Patterns:
    """The shapes that steps touch, each held once: runs of (first cell, how many, worker)."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, bytes], int] = {}
        self.made: list[list[int]] = []

    def number(self, rows: Array, strides: Array) -> int:
        key = (strides.tobytes(), rows.tobytes())
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.made)
            self.made.append(_cells(np.unique(rows, axis=0), strides))
        return found


def _cells(rows: Array, strides: Array) -> list[int]:
    """The cells of boxes given as rows of (worker, first cell …, last cell …)."""
    owner: dict[int, int] = {}
    n = len(strides)
    for row in rows.tolist():
        worker, offsets = row[0], np.zeros(1, np.int64)
        for d in range(n):
            along = np.arange(row[1 + d], row[1 + n + d] + 1) * strides[d]
            offsets = (offsets[:, None] + along[None, :]).ravel()
        for cell in offsets.tolist():
            owner[cell] = worker if owner.get(cell, worker) == worker else SHARED
    out: list[int] = []
    for cell, worker in sorted(owner.items()):
        if out and out[-3] + out[-2] == cell and out[-1] == worker:
            out[-2] += 1
        else:
            out += [cell, 1, worker]
    return out


def _stream(t: Touches, grid: Grid, patterns: _Patterns) -> dict[str, Any] | None:
    """What is touched, step by step: the step, the pattern, and where it is put down."""
    start, scale, cells = (np.array(x, np.int64)[:, None] for x in (grid.start, grid.scale, grid.cells))
    lo, hi = (t.lo - start) // scale, (t.hi - start) // scale
    keep = np.flatnonzero(np.logical_and(hi >= 0, lo < cells).all(axis=0) & (hi >= lo).all(axis=0))
    if not keep.size:
        return None
    lo, hi, tick = np.maximum(lo, 0)[:, keep], np.minimum(hi, cells - 1)[:, keep], t.tick[keep]
    first = np.flatnonzero(np.concatenate([[True], tick[1:] != tick[:-1]]))
    sizes = np.diff(np.concatenate([first, [tick.size]]))
    strides = np.array([prod(grid.cells[d + 1 :]) for d in range(len(grid.cells))], np.int64)
    origin = np.repeat(lo[:, first], sizes, axis=1)
    rows = np.ascontiguousarray(np.concatenate([t.worker[keep][None, :], lo - origin, hi - origin]).T)
    numbers = [patterns.number(rows[a : a + n], strides) for a, n in zip(first.tolist(), sizes.tolist())]
    base = (lo[:, first] * strides[:, None]).sum(axis=0)
    return {"t": runs_of(tick[first]), "p": runs_of(numbers), "o": runs_of(base)}


def _flattened(t: Touches) -> tuple[Touches, tuple[int, ...], list[str]]:
    """A block's iterations on the two iterators that say most: the last two spatial ones, then reductions."""
    block = t.what
    assert isinstance(block, Block)
    seen = [int(row.max()) + 1 for row in t.hi]
    extents = [max(n, int(const_value(iv.dom.extent) or 0)) for n, iv in zip(seen, block.iter_vars)]
    wide = [d for d, n in enumerate(extents) if n > 1]
    spatial = [d for d in wide if block.iter_vars[d].iter_type != IterVar.CommReduce]
    reduced = [d for d in wide if d not in spatial]
    chosen = sorted([*spatial[-2:], *reduced[: 2 - len(spatial[-2:])]]) or [0]
    names = [block.iter_vars[d].var.name for d in chosen]
    rows = Touches(block, t.mode, t.tick, t.worker, t.lo[chosen], t.hi[chosen])
    return rows, tuple(extents[d] for d in chosen), names


def encoded_run(run: Run, label: str, note: str, first: Sequence[Buffer] = ()) -> dict[str, Any]:
    """A run as plain data: its grids, those of `first` first, the patterns, and the streams of touches."""
    rank: dict[Buffer | Block, int] = {b: i for i, b in enumerate(first)}
    patterns, streams = _Patterns(), []
    grids: list[tuple[Grid, dict[str, Any]]] = []
    index: dict[Buffer | Block, int] = {}
    for t in sorted(run.touches, key=lambda t: rank.get(t.what, len(rank))):
        names: list[str] = []
        if isinstance(t.what, Block):
            t, shape, names = _flattened(t)
        else:
            shape = run.shapes[t.what]
            if not shape:  # a scalar is an array of one
                shape, zeros = (1,), np.zeros((1, t.tick.size), np.int64)
                t = Touches(t.what, t.mode, t.tick, t.worker, zeros, zeros)
        if t.what not in index:
            same = [t] if names else [x for x in run.touches if x.what is t.what and len(x.lo)] or [t]
            low = [max(0, min(int(x.lo[d].min()) for x in same)) for d in range(len(shape))]
            high = [min(n - 1, max(int(x.hi[d].max()) for x in same)) for d, n in enumerate(shape)]
            grid = grid_for(shape, low, high, crop=bool(names))
            index[t.what] = len(grids)
            grids.append((grid, _described(t.what, grid, names)))
        number = index[t.what]
        stream = _stream(t, grids[number][0], patterns)
        if stream is not None:
            streams.append({"g": number, "m": t.mode[0], **stream})
    return {
        "label": label,
        "note": note,
        "ticks": run.ticks,
        "total": run.total,
        "grids": [described for _, described in grids],
        "patterns": patterns.made,
        "streams": streams,
    }


def _described(what: Buffer | Block, grid: Grid, names: list[str]) -> dict[str, Any]:
    out = {
        "name": what.name if isinstance(what, Buffer) else what.name_hint,
        "shape": grid.shape,
        "start": grid.start,
        "scale": grid.scale,
        "cells": grid.cells,
        "rows": grid.rows,
        "cols": grid.cols,
        "across": grid.across,
        "tiles": grid.tiles,
        "note": grid.note("elements" if isinstance(what, Buffer) else "iterations"),
    }
    if isinstance(what, Buffer):
        return {**out, "dtype": str(what.dtype), "scope": what.scope()}
    return {**out, "axes": names}
