"""What the package asks for is what it imports."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [re.split(r"[<>=!~ \[]", line)[0] for line in project["dependencies"]]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tilewright").rglob("*.py"))
    unused = [name for name in wanted if not re.search(rf"^\s*(?:import|from) {name}\b", text, re.MULTILINE)]
    assert not unused, f"pyproject.toml asks for {', '.join(unused)}, and nothing imports it"
