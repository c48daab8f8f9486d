"""The Python in README and docs runs. The blocks of one page share one namespace, in order.

A block that starts with ```python no-run is left out. A block ```text right behind one must be what that one
printed, where the text says so with a first line `# prints`.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[tuple[str, int, str]]:
    """The fenced blocks of a page: their kind, the line where their text starts, the text."""
    source = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(source):
        yield found["kind"].strip(), source.count("\n", 0, found.start("text")) + 1, found["text"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for kind, line, text in blocks(page):
        if kind == "python":
            out = io.StringIO()
            # The lines of the block keep their numbers, so that a traceback points into the page.
            code = compile("\n" * (line - 1) + text, str(page), "exec")
            with contextlib.redirect_stdout(out):
                exec(code, scope)
            printed = out.getvalue()
        elif kind == "text" and text.startswith("# prints\n"):
            shown = text.removeprefix("# prints\n").rstrip()
            assert _even(shown) == _even(printed), f"{page.name}:{line} shows something else than was printed"


def _even(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert not broken, "\n".join(broken)


def test_every_page_is_on_the_map() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [
        p.name for p in PAGES if p.parent.name == "docs" and p.name != "index.md" and p.name not in index
    ]
    assert not missing


def test_every_pass_of_the_pipeline_is_described() -> None:
    from tilewright.driver.lower import phases

    page = (ROOT / "docs" / "lowering.md").read_text(encoding="utf-8")
    names = {p.info.name.removeprefix("tir.") for phase in phases() for p in phase} | {"LowerIntrin"}
    assert not [name for name in sorted(names) if f"`{name}`" not in page]


def test_every_knob_is_described() -> None:
    from tilewright import config

    text = "".join(p.read_text(encoding="utf-8") for p in PAGES)
    assert not [k.variable for k in config.knobs().values() if k.variable not in text]
