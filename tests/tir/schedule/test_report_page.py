"""The page that shows a schedule, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import needs
import pytest
from report_programs import matmul

pytestmark = pytest.mark.slow  # starting the browser alone takes seconds
FLAGS = ["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    command = needs.browser()
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        made = p.chromium.launch(executable_path=command, args=FLAGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sch = matmul(32)
    i, j, k = sch.get_loops(sch.get_block("C"))
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, [None, 8])
    sch.reorder(io, jo, k, ii, ji)
    sch.vectorize(ji)
    sch.parallel(io)
    path = tmp_path_factory.mktemp("report") / "report.html"
    sch.to_html(path)
    return path


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The report in a window of 1280 × 800, standing still; nothing but the file itself may be asked for."""
    view = {"width": 1280, "height": 800}
    context = browser.new_context(viewport=view, reduced_motion="reduce", color_scheme="light", offline=True)
    made, asked, errors = context.new_page(), [], []
    made.on("request", lambda r: asked.append(r.url))
    made.on("pageerror", lambda e: errors.append(str(e)))
    made.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    made.goto(report.as_uri())
    yield made
    assert asked == [report.as_uri()]
    assert errors == []
    context.close()


def at(page: Any, fraction: float) -> None:
    """Move the position slider."""
    page.evaluate(
        "f => { const p = document.getElementById('position'); p.value = Math.round(p.max * f);"
        " p.dispatchEvent(new Event('input')); }",
        fraction,
    )


def texts(page: Any, selector: str) -> list[str]:
    return [x.strip() for x in page.locator(selector).all_inner_texts()]


def test_arrow_keys_go_through_the_steps(page: Any) -> None:
    assert page.title() == "main: schedule report"
    assert texts(page, "#call") == ["The program as given"]
    assert page.locator("#code .add, #code .chg").count() == 0
    page.keyboard.press("ArrowRight")
    assert texts(page, "#call") == ["l3, l4 = sch.split(loop=l0, factors=[None, 4])"]
    assert texts(page, "#source") == ["io, ii = sch.split(i, [None, 4])"]
    assert texts(page, "#place")[0].startswith("test_report_page.py:")
    assert texts(page, "#code .chg")[0] == "for i_0, i_1, j, k in T.grid(8, 4, 32, 32):"
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert texts(page, "#labels .now") == ["vectorize"]
    assert texts(page, "#code .add") == ["for j_1 in T.vectorized(8):"]
    page.keyboard.press("ArrowLeft")
    assert page.locator("#step").input_value() == "3"
    assert texts(page, "#labels .now") == ["reorder"]
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert page.locator("#step").input_value() == "5", "it ends at the last step"


def test_the_slider_can_be_dragged_and_labels_clicked(page: Any) -> None:
    page.locator("#step").fill("2")
    assert texts(page, "#number") == ["2"]
    page.locator("#labels button", has_text="parallel").click()
    assert texts(page, "#number") == ["5"]


def test_removed_lines_are_shown_on_request(page: Any) -> None:
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    gone = page.locator("#code .del")
    assert gone.count() > 0 and not gone.first.is_visible()
    page.locator("#removed").check()
    assert all(x.is_visible() for x in gone.all())


def test_the_grids_say_and_show_what_is_touched(page: Any) -> None:
    page.keyboard.press("ArrowRight")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert texts(page, "#parts button") == ["C"]
    assert texts(page, "#grids figcaption b") == ["A", "B", "C"]
    at(page, 0)
    # for io, jo, k, ii, ji: step 5 of the run is k = 1, ii = 0
    for _ in range(4):
        page.keyboard.press(".")
    assert texts(page, "#where") == ["5 of 4,096"]
    assert texts(page, "#grids .now") == ["reads [0, 1]", "reads [1, 0…7]", "writes [0, 0…7]"]
    assert texts(page, "#loops .v") == ["i_0", "j_0", "k", "i_1", "j_1"]
    assert texts(page, "#loops .t") == ["0 of 8", "0 of 4", "1 of 32", "0 of 4", "8 at once · vectorized"]
    page.keyboard.press(",")
    assert texts(page, "#grids .now") == ["reads [3, 0]", "reads [0, 0…7]", "writes [3, 0…7]"]
    # the middle of an element of C that is written now, and of one that is not touched yet
    now, never = (pixel(page, "C", row, column) for row, column in ((3, 5), (20, 20)))
    assert now == rgb("#e8590c") and never == rgb("#eceae5")


def pixel(page: Any, grid: str, row: int, column: int) -> list[int]:
    return page.evaluate(
        """([name, row, column]) => {
            const c = document.querySelector(`canvas[data-grid="${name}"]`), cell = (c.width - 16) / 32;
            const x = 8 + (column + 0.5) * cell, y = 8 + (row + 0.5) * cell;
            return [...c.getContext("2d").getImageData(x, y, 1, 1).data.slice(0, 3)];
        }""",
        [grid, row, column],
    )


def rgb(text: str) -> list[int]:
    return [int(text[i : i + 2], 16) for i in (1, 3, 5)]


def test_workers_have_hues_of_their_own(page: Any) -> None:
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    at(page, 0)
    assert texts(page, "#loops .t")[0] == "8 workers · parallel"
    assert "workers 0–7" in texts(page, "#legend")[0]
    rows = [tuple(pixel(page, "C", 4 * w, 3)) for w in range(8)]
    assert len(set(rows)) == 8
    shared = pixel(page, "B", 0, 3)
    assert shared == rgb("#7a8290"), "all workers read the same row of B"


def test_the_first_steps_of_a_long_run_can_be_chosen(page: Any) -> None:
    assert texts(page, "#runs button") == ["Whole run", "First steps"]
    page.locator("#runs button", has_text="First steps").click()
    assert texts(page, "#note") == ["the first 2,048 of 32,768 steps"]
    at(page, 0)
    assert texts(page, "#grids .now") == ["reads [0, 0]", "reads [0, 0]", "writes [0, 0]"]


def test_play_moves_on_and_pause_holds(page: Any) -> None:
    assert texts(page, "#where")[0].startswith("1 of "), "it stands still where motion is not wanted"
    page.locator("#play").click()
    page.wait_for_function("document.getElementById('position').value > 3")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    held = page.locator("#position").input_value()
    page.wait_for_timeout(150)
    assert page.locator("#position").input_value() == held
    page.locator("#position").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#position").input_value() == str(int(held) + 1), (
        "arrows move the slider that has the focus"
    )
    assert page.locator("#step").input_value() == "0"


def test_both_themes_and_nothing_wider_than_the_window(page: Any) -> None:
    size = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    for step in range(6):
        width, height = page.evaluate(size)
        assert width <= 1280 and height <= 800, f"step {step} is {width} × {height}"
        inside = page.evaluate(
            "[...document.querySelectorAll('.card, .bar > *')].every(e => e.scrollWidth <= e.clientWidth)"
        )
        assert inside, f"something sticks out at step {step}"
        page.keyboard.press("ArrowRight")
    before = page.evaluate("getComputedStyle(document.body).color")
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).color") != before
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate(size)[0] <= 700
