"""Seeing a schedule: the order of touches, the steps, the terminal, and the page."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from report_programs import matmul

from tilewright import tir
from tilewright.ir import PrimFunc
from tilewright.script import tir as T
from tilewright.tir.schedule.report import print_diff, report_data
from tilewright.tir.schedule.report.drawing import encoded_run, grid_for, runs_of
from tilewright.tir.schedule.report.steps import changes, steps_of
from tilewright.tir.schedule.report.timeline import timeline
from tilewright.tir.schedule.report.touches import Run, sizes_of, touches_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "schedule_report.py"


def run_of(func: PrimFunc, limit: int = 4096, **options: Any) -> Run:
    return touches_of(func.body, sizes_of(func), limit, **options)


def seen(run: Run, name: str, mode: str) -> list[tuple[int, ...]]:
    """What is touched, as (step, worker, index …); boxes as (step, worker, (lo, hi) …)."""
    out = []
    for t in run.touches:
        if getattr(t.what, "name", None) == name and t.mode == mode:
            for tick, worker, lo, hi in zip(t.tick, t.worker, t.lo.T, t.hi.T):
                index = [int(a) if a == b else (int(a), int(b)) for a, b in zip(lo, hi)]
                out.append((int(tick), int(worker), *index))
    return out


# -- the order of touches ----------------------------------------------------------------------------
def test_a_matrix_product_touches_row_by_column() -> None:
    run = run_of(matmul(2).mod["main"])
    assert (run.ticks, run.total) == (8, 8)
    order = list(itertools.product(range(2), range(2), range(2)))
    assert seen(run, "A", "read") == [(t, 0, i, k) for t, (i, _, k) in enumerate(order)]
    assert seen(run, "B", "read") == [(t, 0, k, j) for t, (_, j, k) in enumerate(order)]
    assert seen(run, "C", "read") == [(t, 0, i, j) for t, (i, j, _) in enumerate(order)]
    # the start of the reduction writes at the first k, with the first sum
    assert seen(run, "C", "write") == sorted(
        [(t, 0, i, j) for t, (i, j, _) in enumerate(order)]
        + [(0, 0, 0, 0), (2, 0, 0, 1), (4, 0, 1, 0), (6, 0, 1, 1)]
    )


def test_reordered_loops_touch_in_the_new_order() -> None:
    sch = matmul(2)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, j, i)
    run = run_of(sch.mod["main"])
    assert [x[2:] for x in seen(run, "C", "read")] == [(0, 0), (1, 0), (0, 1), (1, 1)] * 2


def test_vector_lanes_are_one_step() -> None:
    sch = matmul(2, 8, 1)
    _, j, _ = sch.get_loops(sch.get_block("C"))
    _, inner = sch.split(j, [None, 4])
    sch.reorder(*sch.get_loops(sch.get_block("C"))[::3], inner)
    sch.vectorize(inner)
    run = run_of(sch.mod["main"])
    assert run.ticks == 4
    assert [x for x in seen(run, "B", "read") if x[0] == 1] == [(1, 0, 0, j) for j in range(4, 8)]
    assert [x for x in seen(run, "A", "read") if x[0] == 1] == [(1, 0, 0, 0)], "a scalar is read once"


def test_parallel_loops_run_side_by_side_on_up_to_eight_workers() -> None:
    @T.prim_func
    def rows(A: T.Buffer((20, 2), "float32")):
        for i in T.parallel(20):
            for j in range(2):
                A[i, j] = 1.0

    run = run_of(rows)
    # 20 rows on 8 workers: 3 rows each, and the last worker has but 2 of 3
    assert run.ticks == 6
    touched = seen(run, "A", "write")
    assert {(w, i) for _, w, i, _ in touched} == {(i // 3, i) for i in range(20)}
    assert sorted(x for x in touched if x[0] == 3) == [(3, w, 3 * w + 1, 1) for w in range(7)]


def test_unrolled_statements_are_one_step_but_unrolled_loops_are_not() -> None:
    @T.prim_func
    def two(A: T.Buffer((4,), "float32"), B: T.Buffer((2, 3), "float32")):
        for i in T.unroll(4):
            A[i] = 1.0
        for i in T.unroll(2):
            for j in range(3):
                B[i, j] = 1.0

    run = run_of(two)
    assert run.ticks == 1 + 6
    assert seen(run, "A", "write") == [(0, 0, i) for i in range(4)]
    assert seen(run, "B", "write") == [(1 + 3 * i + j, 0, i, j) for i in range(2) for j in range(3)]


def test_threads_move_together_and_blocks_are_workers() -> None:
    sch = matmul(4, 4, 2)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    run = run_of(sch.mod["main"])
    assert run.ticks == 2, "only the reduction takes time"
    assert sorted(x for x in seen(run, "C", "read") if x[0] == 1) == [
        (1, i, i, j) for i in range(4) for j in range(4)
    ]


def test_what_a_predicate_leaves_out_is_not_touched() -> None:
    @T.prim_func
    def add(A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32")):
        for i_0, i_1 in T.grid(2, 3):
            with T.block("B"):
                v = T.axis.spatial(5, i_0 * 3 + i_1)
                T.where(i_0 * 3 + i_1 < 5)
                B[v] = A[v] + T.float32(1)

    run = run_of(add)
    assert run.ticks == 6
    assert seen(run, "B", "write") == [(i, 0, i) for i in range(5)]


def test_padding_reads_only_where_the_condition_holds() -> None:
    @T.prim_func
    def pad(A: T.Buffer((3,), "float32"), B: T.Buffer((5,), "float32")):
        for i in range(5):
            B[i] = T.if_then_else(i >= 1 and i < 4, A[i - 1], T.float32(0))

    run = run_of(pad)
    assert seen(run, "A", "read") == [(i, 0, i - 1) for i in range(1, 4)]
    assert len(seen(run, "B", "write")) == 5


def test_stages_under_a_shared_loop_take_turns() -> None:
    @T.prim_func
    def chain(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(2):
            for j in range(2):
                with T.block("B"):
                    v = T.axis.spatial(4, i * 2 + j)
                    B[v] = A[v] * T.float32(2)
            for j in range(2):
                with T.block("C"):
                    v = T.axis.spatial(4, i * 2 + j)
                    C[v] = B[v] + T.float32(1)

    run = run_of(chain)
    assert run.ticks == 8
    assert [t for t, *_ in seen(run, "B", "write")] == [0, 1, 4, 5]
    assert [t for t, *_ in seen(run, "C", "write")] == [2, 3, 6, 7]
    assert seen(run, "B", "read") == [(2, 0, 0), (3, 0, 1), (6, 0, 2), (7, 0, 3)]


def test_loops_that_are_too_deep_are_boxes() -> None:
    func = matmul(4).mod["main"]
    run = run_of(func, depths={func.body: 1})
    assert run.ticks == 4
    assert seen(run, "A", "read") == [(i, 0, i, (0, 3)) for i in range(4)]
    assert seen(run, "B", "read") == [(i, 0, (0, 3), (0, 3)) for i in range(4)]


def test_bounds_through_division_and_remainder() -> None:
    @T.prim_func
    def fused(A: T.Buffer((4, 8), "float32")):
        for i in range(2):
            for f in range(16):
                A[i * 2 + f // 8, f % 8] = 1.0

    assert len(set(seen(run_of(fused), "A", "write"))) == 32
    assert seen(run_of(fused, depths={fused.body: 1}), "A", "write") == [
        (0, 0, (0, 1), (0, 7)),
        (1, 0, (2, 3), (0, 7)),
    ]


def test_a_long_run_is_cut_and_says_how_long_it_was() -> None:
    run = run_of(matmul(512).mod["main"], limit=100)
    assert (run.ticks, run.total) == (100, 512**3)
    assert seen(run, "A", "read") == [(k, 0, 0, k) for k in range(100)]


def test_symbolic_sizes_get_a_value_and_loaded_indices_are_anywhere() -> None:
    @T.prim_func
    def gather(a: T.handle, i: T.handle, b: T.handle):
        n = T.int32()
        A, I, B = T.match_buffer(a, (n,)), T.match_buffer(i, (n,), "int32"), T.match_buffer(b, (n,))
        for k in range(n):
            B[k] = A[I[k]]

    run = run_of(gather)
    assert run.ticks == 32
    assert seen(run, "I", "read") == [(k, 0, k) for k in range(32)]
    assert seen(run, "A", "read") == [(k, 0, (0, 31)) for k in range(32)]


def test_an_intrinsic_touches_what_its_block_declares() -> None:
    @T.prim_func
    def copy(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(2):
            with T.block("copy"):
                v = T.axis.spatial(2, i)
                T.reads(A[v * 4 : v * 4 + 4])
                T.writes(B[v * 4 : v * 4 + 4])
                T.evaluate(T.call_extern("int32", "copy4", B.data, A.data))

    run = run_of(copy)
    assert seen(run, "A", "read") == [(0, 0, (0, 3)), (1, 0, (4, 7))]
    assert seen(run, "B", "write") == [(0, 0, (0, 3)), (1, 0, (4, 7))]


def test_a_loop_of_no_iterations_takes_no_time() -> None:
    @T.prim_func
    def nothing(A: T.Buffer((4,), "float32")):
        for i in range(0):
            A[i] = 1.0
        A[0] = 2.0

    assert timeline(nothing.body, {}).duration == 1
    assert seen(run_of(nothing), "A", "write") == [(0, 0, 0)]


# -- cells -------------------------------------------------------------------------------------------
def decoded(runs: list[int]) -> list[int]:
    out = runs[:1]
    for step, count in zip(runs[1::2], runs[2::2]):
        for _ in range(count):
            out.append(out[-1] + step)
    return out


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.lists(st.integers(-5, 5)))
def test_runs_say_the_same_numbers(values: list[int]) -> None:
    assert decoded(runs_of(values)) == values


def test_regular_numbers_are_two_runs() -> None:
    assert runs_of(range(0, 4000, 4)) == [0, 4, 999]


def test_large_arrays_are_drawn_reduced_and_say_so() -> None:
    whole = grid_for((1024, 1024), (0, 0), (1023, 1023))
    assert (whole.rows, whole.cols, whole.scale) == (64, 64, (16, 16))
    assert whole.note() == "a cell is 16 × 16 elements"
    corner = grid_for((1024, 1024), (0, 960), (3, 1023))
    assert (corner.start, corner.cells, corner.scale) == ((0, 960), (64, 64), (1, 1))
    assert corner.note() == "shows [0…63, 960…1023]"
    assert grid_for((64, 64), (0, 0), (0, 0)).note() == ""


def test_lines_are_folded_and_further_dimensions_are_tiles() -> None:
    line = grid_for((1000,), (0,), (999,))
    assert (line.rows, line.cols, line.tiles) == (32, 32, 1)
    assert line.note() == "32 elements a row"
    images = grid_for((1, 8, 14, 14), (0, 0, 0, 0), (0, 7, 13, 13))
    assert (images.rows, images.cols, images.tiles, images.across) == (14, 14, 8, 4)
    weights = grid_for((16, 8, 3, 3), (0, 0, 0, 0), (15, 7, 2, 2))
    assert (weights.tiles, weights.across) == (128, 8)


@pytest.mark.parametrize("name", ["parallel", "scaled", "tiled"])
def test_the_page_gets_exactly_the_cells_that_are_touched(name: str) -> None:
    """Patterns and places, put together again, are the touches that they were made from."""
    sch = matmul(8) if name != "scaled" else matmul(8, 200)
    i, j, k = sch.get_loops(sch.get_block("C"))
    outer, _ = sch.split(i, [None, 2])
    sch.split(j, [None, 4])
    if name == "tiled":
        loops = sch.get_loops(sch.get_block("C"))
        sch.reorder(loops[0], loops[2], k, loops[1], loops[3])
    if name == "parallel":
        sch.parallel(outer)
    run = run_of(sch.mod["main"], 500)
    data = json.loads(json.dumps(encoded_run(run, "", "")))
    for stream in data["streams"]:
        grid, mode = data["grids"][stream["g"]], {"r": "read", "w": "write", "v": "visit"}[stream["m"]]
        if mode == "visit":
            continue
        got = set()
        for tick, pattern, base in zip(*(decoded(stream[x]) for x in "tpo"), strict=True):
            runs = data["patterns"][pattern]
            for first, count, worker in zip(runs[::3], runs[1::3], runs[2::3]):
                got |= {(tick, worker, base + first + n) for n in range(count)}
        want: dict[tuple[int, int], set[int]] = {}
        for tick, worker, *index in seen(run, grid["name"], mode):
            cell = [(x - a) // s for x, a, s in zip(index, grid["start"], grid["scale"])]
            if all(0 <= c < n for c, n in zip(cell, grid["cells"])):
                flat = int(np.ravel_multi_index(cell, grid["cells"]))
                want.setdefault((tick, flat), set()).add(worker)
        assert got == {(t, next(iter(w)) if len(w) == 1 else -1, c) for (t, c), w in want.items()}
        assert got


# -- steps -------------------------------------------------------------------------------------------
def scheduled(n: int = 16) -> tir.Schedule:
    sch = matmul(n)
    i, j, k = sch.get_loops(sch.get_block("C"))
    io, ii = sch.split(i, factors=[None, 4])
    sch.reorder(
        io,
        j,
        k,
        ii,
    )
    sch.parallel(io)
    sch.get_block("C")
    return sch


def test_calls_that_change_nothing_go_with_the_next_step() -> None:
    steps = steps_of(scheduled())
    assert [s.title for s in steps] == ["start", "split", "reorder", "parallel"]
    assert [len(s.calls) for s in steps] == [0, 3, 1, 2]
    assert steps[1].calls[2].text == "l3, l4 = sch.split(loop=l0, factors=[None, 4])"
    assert steps[3].calls[1].text.startswith("b1 = sch.get_block(")


def test_calls_name_the_place_and_show_the_whole_statement() -> None:
    _, split, reorder, _ = steps_of(scheduled())
    assert re.fullmatch(r"test_report\.py:\d+", split.calls[2].place)
    assert split.calls[2].source == "io, ii = sch.split(i, factors=[None, 4])"
    assert reorder.calls[0].source == "sch.reorder(\n    io,\n    j,\n    k,\n    ii,\n)"


def test_a_source_that_cannot_be_read_is_left_out() -> None:
    space: dict[str, Any] = {"sch": matmul(4)}
    exec(compile("sch.parallel(sch.get_loops(sch.get_block('C'))[0])", "<typed in>", "exec"), space)
    last = steps_of(space["sch"])[-1].calls[-1]
    assert (last.place, last.source) == ("<typed in>:1", "")


def test_lines_that_only_moved_in_are_the_same() -> None:
    old = ["for i in range(8):", "    A[i] = 1"]
    new = ["for i_0 in range(2):", "    for i in range(4):", "        A[i] = 1"]
    got = changes(old, new)
    assert [(c.sign, c.new) for c in got] == [("~", new[0]), ("+", new[1]), (" ", new[2])]
    assert [new[0][a:b] for a, b in got[0].marks] == ["i_0", "2"]
    assert [old[0][a:b] for a, b in got[0].old_marks] == ["i", "8"]
    assert [(c.sign, c.old, c.new) for c in changes(["x", "gone"], ["x"])] == [
        (" ", "x", "x"),
        ("-", "gone", None),
    ]


# -- the terminal ------------------------------------------------------------------------------------
def fill_schedule() -> tir.Schedule:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = T.float32(1)

    sch = tir.Schedule(main)
    (i,) = sch.get_loops(sch.get_block("A"))
    _, inner = sch.split(i, [None, 4])
    sch.vectorize(inner)
    return sch


def test_diff_prints_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    fill_schedule().diff()
    assert capsys.readouterr().out.splitlines() == [
        "the program as given, and after 4 steps",
        "",
        "@T.prim_func                              @T.prim_func",
        'def main(A: T.Buffer((8,), "float32")):   def main(A: T.Buffer((8,), "float32")):',
        '    # with T.block("root"):                   # with T.block("root"):',
        "    for i in range(8):                  ~     for i_0 in range(2):",
        "                                        +         for i_1 in T.vectorized(4):",
        '        with T.block("A"):                            with T.block("A"):',
        "            v = T.axis.spatial(8, i)    ~                 v = T.axis.spatial(8, i_0 * 4 + i_1)",
        "            T.reads()                                     T.reads()",
        "            T.writes(A[v])                                T.writes(A[v])",
        "            A[v] = T.float32(1)                           A[v] = T.float32(1)",
    ]


def test_diff_of_one_step(capsys: pytest.CaptureFixture[str]) -> None:
    sch = fill_schedule()
    sch.diff(step=-1)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step 3: sch\.vectorize\(loop=l2\)    # test_report\.py:\d+", lines[0])
    assert [x for x in lines if re.search(" [~+]  ", x)] == [
        "    for i_0, i_1 in T.grid(2, 4):                ~     for i_0 in range(2):",
        "                                                 +         for i_1 in T.vectorized(4):",
    ]
    sch.diff(step=0)
    assert capsys.readouterr().out.splitlines()[-1] == "nothing changed"
    with pytest.raises(IndexError, match=r"diff\(step=9\): the trace has 4 steps, numbered from 0"):
        sch.diff(step=9)


def test_diff_is_coloured_on_a_terminal_and_fits_it() -> None:
    from rich.console import Console

    out = io.StringIO()
    print_diff(
        fill_schedule(), console=Console(file=out, force_terminal=True, width=90, color_system="standard")
    )
    text = out.getvalue()
    assert "\x1b[31m" in text and "\x1b[32m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert all(len(line) <= 90 for line in plain.splitlines())
    assert "T.vectorized(4)" in plain


# -- the page ----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    sch = scheduled()
    sch.annotate(sch.get_block("C"), "note", "</script><!-- <b>")
    sch.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(
        r"https?:|//\w+\.\w|\bsrc\s*=|\bhref\b|@import|\burl\(|\bfetch\(|XMLHttp|import\(", page
    )
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2, "the text of a program cannot end the script that holds it"
    data = json.loads(scripts[0])
    assert [s["title"] for s in data["steps"]] == ["start", "split", "reorder", "parallel", "annotate"]
    assert any("</script><!-- <b>" in line for _, line, _ in data["steps"][-1]["lines"])
    assert "/*" not in re.sub(r"/\*.*?\*/", "", page), "every part of the page is filled in"
    assert str(Path(__file__).parent) not in page, "where files lie on this machine is nobody's business"


def test_equal_drawings_are_held_once() -> None:
    @T.prim_func
    def two(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2)
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v] + T.float32(1)

    sch = tir.Schedule(two)
    sch.parallel(sch.get_loops(sch.get_block("C"))[0])
    data = report_data(sch)
    first, second = ([(p["title"], p["scene"]) for p in s["parts"]] for s in data["steps"])
    assert [title for title, _ in first] == ["whole program", "B", "C"]
    assert dict(first)["B"] == dict(second)["B"]
    assert dict(first)["C"] != dict(second)["C"]


def test_a_long_program_is_played_whole_and_from_the_start() -> None:
    (scene,) = report_data(matmul(64))["scenes"]
    assert [(r["label"], r["ticks"], r["total"], r["note"]) for r in scene["runs"]] == [
        ("Whole run", 4096, 4096, "inner loops as one step"),
        ("First steps", 2048, 64**3, "the first 2,048 of 262,144 steps"),
    ]


@pytest.mark.slow
def test_the_example_writes_a_report(tmp_path: Path) -> None:
    out = tmp_path / "matmul.html"
    command = [sys.executable, str(EXAMPLE), "--size", "16", "--out", str(out)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert f"the report is in {out}" in said
    assert '"title":"vectorize"' in out.read_text(encoding="utf-8")
