"""The Python in README and docs runs, and prints what the page shows.

The blocks of one page share one namespace, in order. A block ```python no-run is left out. A block
```text printed shows what the block before it printed; `python tests/package/test_docs.py` writes those anew.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import needs
import pytest

from tilewright.ir.op import graph_operators

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = ("models.md", "compile.md")  # pages that take seconds
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def run(page: Path) -> str:
    """The page with every `text printed` block holding what was printed; its own operators are gone afterwards."""
    try:
        return _run(page)
    finally:
        for name in [n for n, op in graph_operators.items() if getattr(op, "open_attrs", False)]:
            del graph_operators[name]


def _run(page: Path) -> str:
    source = page.read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "__page__"}
    out, done, printed = "", 0, ""
    for found in FENCE.finditer(source):
        kind, text = found["kind"].strip(), found["text"]
        if kind == "python":
            line = source.count("\n", 0, found.start("text"))
            stream = io.StringIO()
            # The lines of the block keep their numbers, so that a traceback points into the page. Scripts are
            # parsed from their source, which for this file is the block alone.
            text = "\n" * line + text
            linecache.cache[str(page)] = (len(text), None, text.splitlines(keepends=True), str(page))
            with contextlib.redirect_stdout(stream):
                exec(compile(text, str(page), "exec"), scope)
            # What a reader runs is the block: its lines are counted from its start.
            place = re.compile(rf"{re.escape(page.name)}:(\d+)")
            shown = place.sub(lambda m: f"program.py:{int(m[1]) - line}", stream.getvalue())  # noqa: B023
            printed = "".join(f"{row.rstrip()}\n" for row in shown.strip().splitlines())
        elif kind == "text printed":
            out += source[done : found.start("text")] + printed
            done = found.end("text")
    return out + source[done:]


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.name in LONG else []) for p in PAGES],
)
def test_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "import torch\n" in page.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TILEWRIGHT_DUMP", raising=False)
    assert page.read_text(encoding="utf-8") == run(page)


@pytest.mark.slow
def test_the_c_program_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = needs.compiler()
    monkeypatch.chdir(tmp_path)
    run(ROOT / "README.md")  # exports the library
    source = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = (found["text"] for found in FENCE.finditer(source) if found["kind"].strip() == "c")
    Path("main.c").write_text(program)
    subprocess.run(
        [compiler, "-Wall", "-Werror", "main.c", "add.so", "-Wl,-rpath,.", "-o", "main"], check=True
    )
    assert subprocess.run(["./main"]).returncode == 0
    declared = re.search(r"/\* (int32_t add.*?;) \*/", program)
    assert declared is not None and declared[1] in Path("add.h").read_text()


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        prose = re.sub(r"`[^`\n]+`", "code", FENCE.sub("", page.read_text(encoding="utf-8")))
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
    from tilewright.backends._accelerator import PIPELINE
    from tilewright.compiler.lower import phases
    from tilewright.ir.transform import Pass
    from tilewright.target import Target

    page = (ROOT / "docs" / "lowering.md").read_text(encoding="utf-8")
    both = [p for kind in ("llvm", "cuda") for phase in phases(Target(kind)) for p in phase]
    chip = [p for phase in PIPELINE[:4] for p in phase if isinstance(p, Pass)]
    names = {p.info.name.removeprefix("tir.") for p in both + chip} | {
        "DMACommands",  # these read the description of a chip
        "VectorCommands",
        "PlaceScopes",
        "CoProcSync",
        "LowerIntrin",
        "ThreadSync",
        "SplitHostDevice",
    }
    assert not [name for name in sorted(names) if f"`{name}`" not in page]


def test_every_primitive_is_described() -> None:
    from tilewright import te, tir

    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    names = tir.Schedule(te.create_prim_func([A, B])).primitives
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert not [name for name in sorted(names) if not re.search(rf"`{name}[`(]", page)]


def test_every_pragma_is_described() -> None:
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    found = {
        name
        for room in ("tir/transform", "codegen")
        for file in (ROOT / "tilewright" / room).rglob("*.py")
        for name in re.findall(r'"(pragma_\w+)"', file.read_text(encoding="utf-8"))
    }
    assert len(found) > 3
    assert not [name for name in sorted(found) if f"`{name}:" not in page]


def test_every_knob_is_described() -> None:
    from tilewright import config

    text = "".join(p.read_text(encoding="utf-8") for p in PAGES)
    assert not [k.variable for k in config.knobs().values() if k.variable not in text]


if __name__ == "__main__":
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            page.write_text(run(page), encoding="utf-8")
        print(f"{os.path.relpath(page)} is up to date")
