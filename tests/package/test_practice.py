"""The practice of `examples/practice`: it runs in its quick mode, and what it says follows from its figures."""

from __future__ import annotations

import copy
import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

EXAMPLES = Path(__file__).parents[2] / "examples"
Figures = dict[str, Any]


@pytest.fixture(scope="module")
def practice() -> Iterator[Any]:
    """The package, imported as its user's folder has it."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        import practice.main

        yield practice
    finally:
        sys.path.remove(str(EXAMPLES))


def start(*arguments: str, cwd: Path, cache: Path) -> str:
    """What the practice prints, run as a user runs it: with the cache, without the checks of the tests."""
    env = {k: v for k, v in os.environ.items() if k not in ("TILEWRIGHT_CHECK", "TILEWRIGHT_CACHE")}
    env |= {"COLUMNS": "80", "TILEWRIGHT_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=env, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    """All five phases, measured once."""
    folder = tmp_path_factory.mktemp("practice")
    told: dict[str, Figures] = json.loads(
        start("-m", "practice.main", "--quick", "--json", cwd=EXAMPLES, cache=folder)
    )
    return told


# -- the run ---------------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.slow
def test_all_phases_run_and_answer(found: dict[str, Figures]) -> None:
    assert list(found) == ["1", "2", "3", "4", "5"]
    for phase in found.values():
        assert phase["question"].endswith("?")
        assert all(re.search(r"\d", sentence) for sentence in phase["answer"][:2]), phase["answer"]

    first, second, third, fourth, fifth = (found[n]["figures"] for n in "12345")
    assert max(r["error"] for r in first["schedules"]) < 1e-3
    assert {r["name"] for r in first["targets"] if "fm" in r["work"] or "*" in r["work"]} >= {"C", "CUDA"}

    # The simulated caches know what a textbook knows, whatever machine this is.
    level = second["caches"][0]["name"]
    misses = {r["order"]: r["misses"][level] for r in second["orders"]}
    assert max(misses["ikj"], misses["kij"]) < min(misses["ijk"], misses["jik"])
    assert max(misses["ijk"], misses["jik"]) < min(misses["jki"], misses["kji"])
    assert second["tiles"][0]["rows"][0]["misses"][level] < misses["ijk"] / 10

    assert [r["n"] for r in third["sizes"]] == [16, 32, 64, 128, 256]
    whole, unfused, *_, none = fourth["variants"]
    assert whole["kernels"] < unfused["kernels"] <= none["kernels"]
    assert whole["written"] < unfused["written"]
    assert max(r["error"] for r in fourth["variants"]) < 1e-5
    (task,) = fifth["tasks"]
    assert 1 <= sum(t is not None for t in task["search"]["trials"]) <= 8
    assert "sch.vectorize(" in task["search"]["steps"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 200])
def test_pages_fit_and_are_plain_without_a_terminal(
    found: dict[str, Figures], practice: Any, width: int
) -> None:
    for phase in practice.main.PHASES:
        stream = io.StringIO()
        page = practice.kit.Page(Console(file=stream, width=width))
        told = found[str(phase.NUMBER)]
        page.head(phase)
        phase.report(told["figures"], page)
        page.answer(told["answer"])
        text = stream.getvalue()
        assert "\x1b" not in text and "…" not in text, text
        assert max(map(len, text.splitlines())) <= width
        assert phase.answer(told["figures"]) == told["answer"]


@pytest.mark.slow
def test_a_phase_alone_as_a_file(tmp_path: Path) -> None:
    text = start(
        str(EXAMPLES / "practice" / "main.py"), "--quick", "--phase", "3", cwd=tmp_path, cache=tmp_path
    )
    assert "Phase 3: schedules compared" in text and "Phase 2" not in text
    assert "What the figures say" in text


def test_a_phase_that_is_not_there_is_refused(practice: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        practice.kit.main(practice.main.PHASES, given=["--phase", "6"])
    assert "invalid choice: 6" in capsys.readouterr().err


# -- the simulated cache ---------------------------------------------------------------------------
def slowly(lines: np.ndarray[Any, Any], sets: int, ways: int) -> list[int]:
    """What a cache that throws out what was not used for the longest time misses, a line at a time."""
    held: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(sets)]
    missed = []
    for line in map(int, lines):
        mine = held[line % sets]
        if line not in mine:
            missed.append(line)
            if len(mine) == ways:
                mine.popitem(last=False)
        mine[line] = None
        mine.move_to_end(line)
    return missed


def test_simulated_cache_keeps_what_was_used_last(practice: Any) -> None:
    from practice.cache import Cache

    rng = np.random.default_rng(0)
    lines = rng.integers(0, 60, 4000).astype("int32")
    made = Cache("L1", bytes=4 * 8 * 64, ways=4, line=64)
    halves = [made.feed(lines[:1500]).tolist(), made.feed(lines[1500:]).tolist()]
    want = slowly(lines, sets=8, ways=4)
    assert halves[0] + halves[1] == want
    assert made.misses == len(want) and 0 < len(want) < 4000


def test_trace_is_what_the_loops_touch_in_order(practice: Any) -> None:
    from practice import products
    from practice.cache import Tracer

    import tilewright as tvm

    n, tile = 6, 3
    func = tvm.lower(*products.in_tiles(n, tile))["main"]
    want = []
    for i0 in range(0, n, tile):
        for j0 in range(0, n, tile):
            rows, columns = range(i0, i0 + tile), range(j0, j0 + tile)
            want += [("C", i, j) for i in rows for j in columns]
            for k0 in range(0, n, tile):
                for i, j, k in itertools.product(rows, columns, range(k0, k0 + tile)):
                    want += [("C", i, j), ("A", i, k), ("B", k, j), ("C", i, j)]
    for largest in (5, 10_000):  # in many pieces and in one
        tracer = Tracer(func)
        got = np.concatenate([*tracer.pieces(largest)]).tolist()
        assert got == [tracer.start[name] + 4 * (n * row + column) for name, row, column in want]
        assert len(set(tracer.start.values())) == 3


# -- what is said follows from the figures ---------------------------------------------------------
def test_clearly_faster_needs_more_than_noise(practice: Any) -> None:
    kit = practice.kit
    steady, faster = kit.timing([10, 10.1, 10.2, 10.1]), kit.timing([8, 8.1, 8.2, 8.1])
    noisy = kit.timing([7, 12, 8, 14, 11, 9])
    assert kit.clearly_faster(faster, steady) and not kit.clearly_faster(steady, faster)
    assert not kit.clearly_faster(noisy, steady) and not kit.clearly_faster(steady, noisy)
    assert kit.verdict(faster, steady) == "1.25 times as fast as"
    assert kit.verdict(steady, faster) == "slower, by 1.25 times, than"
    assert kit.verdict(noisy, steady) == "no faster, within the noise, than"


def of_sizes(kit: Any, threads: int, **seconds: tuple[float, ...]) -> Figures:
    """Figures of phase 3: for each size the seconds of tiled and parallel."""
    sizes = []
    for name, (tiled, parallel) in seconds.items():
        row = {"n": int(name[1:])} | {
            k: kit.timing([s]) for k, s in (("tiled", tiled), ("parallel", parallel))
        }
        sizes.append(row | {"naive": kit.timing([10 * tiled]), "NumPy": kit.timing([tiled])})
    return {"threads": threads, "launch": {"seconds": 1e-6}, "sizes": sizes}


def test_threads_are_praised_only_where_they_helped(practice: Any) -> None:
    from practice import schedule_analysis as phase

    def said(threads: int, **seconds: tuple[float, ...]) -> str:
        return " ".join(phase.answer(of_sizes(practice.kit, threads, **seconds)))

    helped = said(4, n16=(1e-6, 3e-6), n64=(8e-6, 6e-6), n256=(4e-4, 1e-4))
    assert "Threads help from n = 64 on" in helped and "that they do not: a product of size 16" in helped
    assert "The most that 4 threads gave is 4.0 times, at n = 256, 100 %" in helped
    assert "from n = 64 on, which is where it was found" in helped
    early = said(2, n16=(1e-6, 0.8e-6), n64=(8e-6, 5e-6))
    assert "from the smallest size measured, 16" in early
    busy = said(2, n16=(1e-6, 3e-6), n64=(8e-6, 9e-6))
    assert "Threads did not help clearly" in busy and "help from" not in busy
    # A gain in the middle that is gone at the end is not a gain from there on.
    assert "did not help" in said(2, n16=(1e-6, 3e-6), n64=(8e-6, 5e-6), n256=(4e-4, 5e-4))
    assert "There is one thread here" in said(1, n16=(1e-6, 1e-6), n64=(8e-6, 8e-6))


def tiles_of(kit: Any, level: str, n: int, misses: list[float], times: list[float]) -> Figures:
    rows = [
        {"tile": t, "bytes": 12 * t * t, "misses": {level: m}, **kit.timing([s])}
        for t, m, s in zip((8, 32, n), misses, times, strict=True)
    ]
    return {"n": n, "sets": 8 if n == 128 else 64, "rows": rows}


def test_tiles_are_explained_only_by_misses_that_fell(practice: Any) -> None:
    from practice import manual_schedule as phase

    grids = [{"name": "a", "grid": [[4] * 8]}, {"name": "b", "grid": [[32, 0]]}]
    base = {"n": 128, "sets": 64, "pattern": {"programs": grids}}
    base["caches"] = [{"name": "L1", "bytes": 32768, "ways": 8, "line": 64}]

    def said(plain: tuple[list[float], list[float]], odd: list[float]) -> str:
        tiles = [tiles_of(practice.kit, "L1", 128, *plain), tiles_of(practice.kit, "L1", 112, odd, plain[1])]
        return " ".join(phase._tiles(base | {"tiles": tiles}))

    fell = said(([10, 20, 1000], [1.0, 2.0, 4.0]), [10, 20, 900])
    assert "Tiles of 8 are 4.0 times as fast as the untiled loops" in fell
    assert "8 lines of B, each used 4.0 times, become 1, each used 32 times" in fell
    assert "That they fit" not in fell
    same = said(([900, 950, 1000], [1.0, 2.0, 4.0]), [900, 950, 1000])
    assert "what helped is not the cache" in same and "how tiles help" not in same
    assert "here tiling did not help" in said(([10, 20, 1000], [4.0, 4.0, 4.0]), [1, 1, 1])
    crowded = said(([10, 800, 1000], [1.0, 2.0, 4.0]), [10, 20, 900])
    assert "Tiles of 32 miss 800 times there and 20 times here" in crowded


def test_a_search_that_won_nothing_never_pays_back(practice: Any) -> None:
    from practice import auto_tune as phase

    def said(hand: float, analysis: float, searched: float, trials: list[float | None]) -> str:
        times = {"by hand": hand, "by analysis": analysis, "searched": searched, "NumPy": 1.0}
        rows = [{"name": name, **practice.kit.timing([s, s])} for name, s in times.items()]
        search = {"wanted": 4, "seconds": 10.0, "trials": trials, "steps": ""}
        task = {"shape": [100, 100, 100], "search": search, "analysis": 0.01, "rows": rows}
        return " ".join(phase.answer({"threads": 2, "peak": 100.0, "lines": 21, "tasks": [task]}))

    won = said(2.0, 1.0, 0.5, [None, 2.0, 0.51, 0.5])
    assert "beside the one by hand after 7 calls; beside the one by analysis after 20 calls" in won
    assert "1 of them failed and were left out" in won and "after 3 of them it was within 5 %" in won
    assert "won at 100 × 100 × 100" in won
    even = said(1.0, 1.0, 1.0, [1.0, 1.0, 1.0, 1.0])
    assert "beside the one by hand never" in even and "beside the one by analysis never" in even
    assert "good enough" in even


def test_passes_that_did_nothing_are_named(practice: Any) -> None:
    from practice import relay_import as phase

    def variant(name: str, off: list[str], kernels: int, seconds: float) -> Figures:
        sizes = {"kernels": kernels, "written": 1000 * kernels, "arena": 100, "weights": 1, "error": 0.0}
        return {"name": name, "off": off, **sizes, **practice.kit.timing([seconds, seconds])}

    figures = {"from": "PyTorch", "shape": [1, 3, 8, 8], "operators": {"add": 5}, "after": {"add": 4}}
    figures["variants"] = [
        variant("all passes", [], 4, 1.0),
        variant("without FuseOps", ["FuseOps"], 9, 1.5),
        variant("without FoldConstant", ["FoldConstant"], 4, 1.0),
        variant("without SimplifyExpr", ["SimplifyExpr"], 4, 0.5),
        variant("no passes", [], 12, 2.0),
    ]
    told = phase.answer(figures)
    assert (
        "5 operators became 4 kernels; with no pass there are 12" in told[0]
        and "2.00 times as fast" in told[0]
    )
    assert "9 kernels in place of 4, 8.79 KiB written in place of 3.91 KiB and 1.50 times the time" in told[1]
    assert "Without SimplifyExpr" in told[2] and "less time, by 2.00 times" in told[2]
    assert told[3] == "Nothing that could be measured on this network came from FoldConstant."


def test_schedules_that_did_not_help_are_not_praised(practice: Any) -> None:
    from practice import te_basics as phase

    timing = practice.kit.timing
    rows = [
        {"name": "as declared", "error": 0.0, **timing([1.0])},
        {"name": "tiles", "error": 1e-6, **timing([2.0])},
    ]
    eager = [
        {"name": "compiled", "bytes": 16, **timing([2.0])},
        {"name": "NumPy", "bytes": 44, **timing([1.0])},
    ]
    figures: Figures = {"schedules": rows, "targets": [{"lines": 0}, {"lines": 9}], "eager": {"rows": eager}}
    told = phase.answer(figures)
    assert "none beat the plain loops" in told[0]
    assert "code for 1 of 2 kinds" in told[1]
    assert "slower, by 2.00 times, than NumPy" in told[2]
    better = copy.deepcopy(figures)
    better["schedules"][1].update(timing([0.25]))
    assert "The fastest (tiles) is 4.0 times as fast as" in phase.answer(better)[0]


def test_curve_falls_from_the_first_trial_that_ran(practice: Any) -> None:
    lines = practice.kit.plot([None, 8.0, 16.0, 4.0, 2.0, 4.0], height=4, width=6)
    assert [line[11:].rstrip() for line in lines[:4]] == ["  •", " ━━┓", "   ┗┓•", "    ┗━"]
    assert lines[0].startswith("     16 s ┤") and lines[3].startswith("      2 s ┤")
