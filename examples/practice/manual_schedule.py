"""Phase 2: a schedule by hand: loop order, tiles, vectors, registers, threads."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import tilewright as tvm

from . import cache, kit, products
from .kit import Figures, Page

NUMBER = 2
TITLE = "a schedule by hand"
QUESTION = (
    "Why does tiling (split and reorder) help the cache? What does the access pattern look like? What do vectors "
    "buy, and what does each step?"
)
ACCESSES = 4  # of a multiply-add: it reads A, B and C and writes C


def lowered(built: products.Built) -> Any:
    return tvm.lower(*built)["main"]


def with_misses(built: products.Built, most: int) -> Figures:
    """Misses of the simulated caches in 1000 multiply-adds."""
    found = cache.count_misses(lowered(built), most)
    return {name: 1000 * ACCESSES * part for name, part in found.items()}


def strides(n: int, order: str) -> dict[str, int]:
    """Bytes from one turn of the innermost loop to the next, in each matrix."""
    step = {"A": {"i": n, "k": 1}, "B": {"k": n, "j": 1}, "C": {"i": n, "j": 1}}
    return {matrix: 4 * by.get(order[-1], 0) for matrix, by in step.items()}


def loop_orders(n: int, most: int, rounds: int) -> list[Figures]:
    """The six orders of the three loops, without any vectors."""
    bench = products.Bench(n)
    orders = ["".join(order) for order in itertools.permutations("ijk")]
    times = kit.in_turns({o: bench.run(products.ordered(n, o), products.SCALAR) for o in orders}, rounds)
    return [
        {
            "order": o,
            "strides": strides(n, o),
            "misses": with_misses(products.ordered(n, o), most),
            **times[o],
        }
        for o in orders
    ]


def tile_sizes(n: int, sizes: Sequence[int], most: int, rounds: int) -> list[Figures]:
    """The plain order in cubes of several sizes, without any vectors."""
    bench = products.Bench(n)
    runs = {str(t): bench.run(products.in_tiles(n, t), products.SCALAR) for t in sizes}
    times = kit.in_turns(runs, rounds)
    return [
        {
            "tile": t,
            "bytes": 12 * t * t,
            "misses": with_misses(products.in_tiles(n, t), most),
            **times[str(t)],
        }
        for t in sizes
    ]


def sets_of_a_column(n: int) -> int:
    """In how many sets of the first cache the lines of a column of a matrix lie."""
    first = cache.caches()[0]
    return len({row * 4 * n // first.line % first.sets for row in range(n)})


def steps(n: int, rounds: int) -> list[Figures]:
    """From plain loops to all cores, a step at a time; with and without the vectors that LLVM finds by itself."""
    bench = products.Bench(n)
    runs = {}
    for step in products.STEPS:
        for target, name in ((products.SCALAR, "plain"), ("llvm", "llvm")):
            runs[f"{step.__name__} {name}"] = bench.run(step(n), target)
    times = kit.in_turns(runs, rounds)
    return [
        {
            "step": step.__name__,
            "what": step.__doc__,
            "loops": products.nest(step(n)),
            "plain": times[f"{step.__name__} plain"],
            "llvm": times[f"{step.__name__} llvm"],
        }
        for step in products.STEPS
    ]


def pattern(n: int, tile: int, multiply_adds: int) -> list[Figures]:
    """Which lines of B the first multiply-adds touch, and how often."""
    line = cache.caches()[0].line
    found = []
    for name, built in (("as declared", products.naive(n)), (f"tiles of {tile}", products.in_tiles(n, tile))):
        grid = cache.touched(lowered(built), "B", multiply_adds, line, n)
        found.append({"name": name, "grid": grid.T.tolist()})
    return found


def measure(quick: bool) -> Figures:
    n = 128 if quick else 512
    most = 400_000 if quick else 6_000_000
    sizes = [8, 16, 32, 64] if quick else [8, 16, 32, 48, 64, 128, 256]
    rounds = 3 if quick else 5
    odd = n - 16  # rows of this length begin in other sets of the cache, one after the other
    return {
        "n": n,
        "caches": [
            {"name": c.name, "bytes": c.bytes, "ways": c.ways, "line": c.line} for c in cache.caches()
        ],
        "simulated": min(most, ACCESSES * n**3),
        "orders": loop_orders(n, most, rounds),
        "tiles": [
            {"n": m, "sets": sets_of_a_column(m), "rows": tile_sizes(m, [*sizes, m], most, rounds)}
            for m in (n, odd)
        ],
        "sets": cache.caches()[0].sets,
        "pattern": {"n": 64, "multiply_adds": 256, "programs": pattern(64, 8, 256)},
        "steps": steps(n, rounds),
        "threads": products.threads(),
    }


# -- what is shown -------------------------------------------------------------------------------
def _strides(row: Figures) -> str:
    return " ".join(f"{m}:{s}" for m, s in row["strides"].items())


def _misses(row: Figures) -> list[str]:
    return [kit.count(v) for v in row["misses"].values()]


def _draw(figures: Figures, page: Page) -> None:
    drawn = figures["pattern"]
    page.heading(
        f"The lines of B ({drawn['n']} × {drawn['n']}) that the first {drawn['multiply_adds']} multiply-adds touch"
    )
    shades = "·░▒▓█"
    for program in drawn["programs"]:
        lines, uses = _touched(program)
        most = max(map(max, program["grid"]))
        page.lines(
            [
                f"{program['name']}: {lines} lines, each used {kit.ratio(uses)} times",
                *("│" + "".join(shades[-(-4 * v // most)] for v in row) + "│" for row in program["grid"]),
            ]
        )
    page.text("Rows of B run from left to right; down are the cache lines of a row. Dark: used often.")


def _touched(program: Figures) -> tuple[int, float]:
    """How many lines are touched at all, and how often each."""
    counts = [v for row in program["grid"] for v in row if v]
    return len(counts), sum(counts) / len(counts)


def report(figures: Figures, page: Page) -> None:
    n, levels = figures["n"], [c["name"] for c in figures["caches"]]
    told = ", ".join(f"{c['name']} {kit.size(c['bytes'])} in {c['ways']} ways" for c in figures["caches"])
    page.text(
        f"This machine: {told}, lines of {figures['caches'][0]['line']} bytes. Misses are those of simulated caches of "
        f"that size, in 1000 multiply-adds, over {kit.percent(figures['simulated'] / ACCESSES / n**3)} of the product."
    )
    gflops = [2 * n**3 / r["seconds"] / 1e9 for r in figures["orders"]]
    page.table(
        f"The order of the loops, {n} × {n} × {n}, no vectors",
        ["loops", "time", "GFLOP/s", "", "strides, bytes", *levels],
        [
            [
                r["order"],
                kit.seconds(r["seconds"]),
                f"{g:.2f}",
                kit.bar(g, max(gflops), 8),
                _strides(r),
                *_misses(r),
            ]
            for r, g in zip(figures["orders"], gflops, strict=True)
        ],
        best=gflops.index(max(gflops)),
        left=(0, 3, 4),
    )
    _report_tiles(figures, page)
    _draw(figures, page)
    _report_steps(figures, page)


def _report_tiles(figures: Figures, page: Page) -> None:
    columns, speeds = ["tile", "three tiles"], []
    for part in figures["tiles"]:
        columns += [f"n = {part['n']}", "", figures["caches"][0]["name"]]
        speeds.append([2 * part["n"] ** 3 / r["seconds"] / 1e9 for r in part["rows"]])
    rows = []
    for i, first in enumerate(figures["tiles"][0]["rows"]):
        whole = i == len(speeds[0]) - 1
        row = ["whole" if whole else first["tile"], kit.size(first["bytes"])]
        for part, speed in zip(figures["tiles"], speeds, strict=True):
            misses = next(iter(part["rows"][i]["misses"].values()))
            row += [f"{speed[i]:.2f}", kit.bar(speed[i], max(map(max, speeds)), 6), kit.count(misses)]
        rows.append(row)
    best = speeds[0].index(max(speeds[0]))
    page.table(
        "Cubes of the loops i, j, k: GFLOP/s without vectors, and misses", columns, rows, best, left=(3, 6)
    )


def _report_steps(figures: Figures, page: Page) -> None:
    n = figures["n"]
    for row in figures["steps"]:
        page.heading(row["what"])
        page.program(row["loops"])
    gflops = [[2 * n**3 / r[kind]["seconds"] / 1e9 for kind in ("plain", "llvm")] for r in figures["steps"]]
    most = max(g for row in gflops for g in row)
    page.table(
        "Step by step: GFLOP/s, LLVM's own vectors off and on",
        ["step", "off", "on", ""],
        [
            [r["what"], f"{plain:.3g}", f"{llvm:.3g}", kit.bar(llvm, most)]
            for r, (plain, llvm) in zip(figures["steps"], gflops, strict=True)
        ],
        left=(0, 3),
    )


# -- what follows --------------------------------------------------------------------------------
def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: 1 where both order things alike, -1 where they order them the other way round."""
    ra, rb = ([sum(x < y for x in v) + (sum(x == y for x in v) - 1) / 2 for y in v] for v in (a, b))
    mean = (len(a) - 1) / 2
    dot = sum((x - mean) * (y - mean) for x, y in zip(ra, rb, strict=True))
    norm = (sum((x - mean) ** 2 for x in ra) * sum((y - mean) ** 2 for y in rb)) ** 0.5
    return dot / norm if norm else 0.0


def _orders(figures: Figures) -> str:
    rows, first = figures["orders"], figures["caches"][0]["name"]
    best, worst = min(rows, key=lambda r: r["seconds"]), max(rows, key=lambda r: r["seconds"])
    told = (
        f"Loop order alone, with the same {figures['n']}³ multiply-adds: {best['order']} is "
        f"{kit.verdict(best, worst)} {worst['order']}. Its innermost loop steps {_strides(best)} bytes, the other's "
        f"{_strides(worst)}; 1000 multiply-adds miss {first} {kit.count(best['misses'][first])} times and "
        f"{kit.count(worst['misses'][first])} times"
    )
    rho = rank_correlation([r["seconds"] for r in rows], [r["misses"][first] for r in rows])
    alike = "order alike" if rho > 0.7 else "do not order alike"
    return f"{told}. Over the orders, time and misses {alike} (rank correlation {rho:.2f})."


def _tiles(figures: Figures) -> list[str]:
    (plain, odd), level = figures["tiles"], figures["caches"][0]
    rows, name = plain["rows"], level["name"]
    whole, best = rows[-1], min(rows, key=lambda r: r["seconds"])
    if not kit.clearly_faster(best, whole):
        return [
            f"No tile was clearly faster than the whole loops at n = {plain['n']}: here tiling did not help."
        ]
    told = [
        f"Tiles of {best['tile']} are {kit.verdict(best, whole)} the untiled loops: three of them take "
        f"{kit.size(best['bytes'])}, {name} holds {kit.size(level['bytes'])}. Misses of {name} in 1000 multiply-adds "
        f"go from {kit.count(whole['misses'][name])} to {kit.count(best['misses'][name])}"
    ]
    if best["misses"][name] < 0.8 * whole["misses"][name]:
        (lines, uses), (fewer, more) = map(_touched, figures["pattern"]["programs"])
        told[0] += (
            f". In the picture {lines} lines of B, each used {kit.ratio(uses)} times, become {fewer}, each used "
            f"{kit.ratio(more)} times while it is there: that is how tiles help."
        )
    else:
        told[0] += ", hardly fewer: what helped is not the cache but the shorter loops."
    return told + _conflicts(plain, odd, figures)


def _conflicts(plain: Figures, odd: Figures, figures: Figures) -> list[str]:
    """Tiles that fit a cache by their bytes and not by its sets."""
    level = figures["caches"][0]
    name = level["name"]
    pairs = [p for p in zip(plain["rows"], odd["rows"], strict=True) if p[0]["bytes"] <= level["bytes"]]
    bad = [(a, b) for a, b in pairs if a["misses"][name] > 100 and a["misses"][name] > 2 * b["misses"][name]]
    if not bad:
        return []
    a, b = max(bad, key=lambda p: p[0]["misses"][name] / max(p[1]["misses"][name], 1e-3))
    gain = (a["seconds"] / plain["n"] ** 3) / (b["seconds"] / odd["n"] ** 3)
    return [
        f"That they fit is not all: at n = {plain['n']} rows lie {4 * plain['n']:,} bytes apart, and a column has "
        f"{plain['sets']} of the {figures['sets']} sets of {name}; at n = {odd['n']} it has {odd['sets']}. Tiles of "
        f"{a['tile']} miss {kit.count(a['misses'][name])} times there and {kit.count(b['misses'][name])} times here, "
        f"and a multiply-add takes {kit.ratio(gain)} times as long there."
    ]


def _vectors(figures: Figures) -> str:
    by = {r["step"]: r for r in figures["steps"]}
    before, after = by["reordered"], by["vectorized"]
    scalar, found, asked = before["plain"], before["llvm"], after["llvm"]
    lead = f"Vectors: the reordered tiles without any run in {kit.seconds(scalar['seconds'])}. "
    if kit.clearly_faster(found, scalar):
        lead += f"LLVM finds some by itself and is {kit.verdict(found, scalar)} that; "
    else:
        lead += "LLVM finds none by itself that help; "
    return lead + (
        f"with `vectorize` it is {kit.verdict(asked, scalar)} the code without, and "
        f"{kit.verdict(asked, found)} what LLVM had found."
    )


def _path(figures: Figures) -> str:
    rows = figures["steps"]
    pairs = [(before["llvm"], after["llvm"], after["what"]) for before, after in itertools.pairwise(rows)]
    most = max(pairs, key=lambda p: kit.times_as_fast(p[1], p[0]))
    lost = [
        f'"{what}" ({kit.ratio(kit.times_as_fast(before, after))} times slower)'
        for before, after, what in pairs
        if kit.clearly_faster(before, after)
    ]
    told = (
        f"The last step ({figures['threads']} threads) is {kit.verdict(rows[-1]['llvm'], rows[0]['llvm'])} the plain "
        f'loops. The largest part is "{most[2]}", {kit.ratio(kit.times_as_fast(most[1], most[0]))} times'
    )
    if lost:
        told += f"; not every step helps by itself: {kit.listed(lost)}"
    return told + "."


def answer(figures: Figures) -> list[str]:
    return [_orders(figures), *_tiles(figures), _vectors(figures), _path(figures)]


if __name__ == "__main__":
    kit.main([sys.modules[__name__]])
