"""Write what TVM's own tests say of tilewright into docs/coming_from_tvm.md.

    python scripts/classic_table.py run.json [gallery.json]

The arguments are the JSON files of a run of TVM v0.17.0's tests, and of its tutorials, with `tvm` resolved to this
package. `scripts/classic/*.toml` say why a test does not pass:

    [[difference]]                       # or [[missing]]: not done yet
    tests = ["te/test_te_schedule.py::test_reorder_fail"]
    reason = "…"

A test that fails without a reason is listed as such, and the exit code is 1.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coming_from_tvm.md"
BEGIN, END = "<!-- tests of TVM: begin -->", "<!-- tests of TVM: end -->"


def reasons() -> dict[str, tuple[str, str]]:
    """The kind ("difference" or "missing") and the reason for each test that has one."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "scripts" / "classic").glob("*.toml")):
        for kind, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for row in rows:
                found |= dict.fromkeys(row["tests"], (kind, row["reason"]))
    return found


def statuses(run: dict[str, Any]) -> dict[str, str]:
    """The outcome of each test function; those that TVM skips here are left out."""
    every = {f"{f['file']}::{n}": s for f in run["files"] for n, s in f["functions"].items()}
    return {name: s for name, s in every.items() if s != "skipped"}


def figures(done: dict[str, str]) -> list[str]:
    """A row for each group of tests."""
    passed, counted = Counter[str](), Counter[str]()
    for name, status in done.items():
        group = name.split("/")[0]
        counted[group] += 1
        passed[group] += status == "passed"
    rows = [f"| {group} | {passed[group]} | {counted[group]} |" for group in sorted(counted)]
    total = f"| **all** | **{passed.total()}** | **{counted.total()}** |"
    return ["| group | pass | of |", "|---|---|---|", *rows, total]


def table(failed: list[str], why: dict[str, tuple[str, str]], kind: str) -> list[str]:
    """The tests of one kind, those of one reason and file together."""
    by_reason: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in failed:
        found, reason = why.get(name, ("unexplained", ""))
        if found == kind:
            file, _, test = name.partition("::")
            by_reason[reason][file].append(test)
    out = []
    for reason, files in sorted(by_reason.items()):
        tests = "; ".join(f"{file}: {', '.join(f'`{t}`' for t in names)}" for file, names in files.items())
        out.append(f"| {reason} | {tests} |")
    return out


def section(run: dict[str, Any], gallery: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """The lines of the page, and the failures without a reason."""
    done, why = statuses(run), reasons()
    failed = sorted(name for name, status in done.items() if status != "passed")
    lines = [*figures(done), ""]
    if gallery is not None:
        ran = [r for r in gallery["gallery"] if r["status"] != "skipped"]
        good = sum(r["status"] == "passed" for r in ran)
        lines += [f"Of its tutorials for CPUs, {good} of {len(ran)} run.", ""]
        lines += [f"- `{r['script']}`: {r['message']}" for r in ran if r["status"] != "passed"]
    for kind, title in (("difference", "Different on purpose"), ("missing", "Not done yet")):
        rows = table(failed, why, kind)
        if rows:
            lines += ["", f"### {title}", "", "| reason | tests |", "|---|---|", *rows]
    return lines, [name for name in failed if name not in why]


def main(arguments: list[str]) -> int:
    runs = [json.loads(Path(a).read_text(encoding="utf-8")) for a in arguments]
    lines, unexplained = section(runs[0], runs[1] if len(runs) > 1 else None)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]), encoding="utf-8")
    for name in unexplained:
        print(f"no reason: {name}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
