"""What the package asks for is what it imports."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tilewright.version import __version__

ROOT = Path(__file__).parents[2]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEVELOPERS = {"demo", "frameworks", "test"}


def test_extras_of_users_replace_nothing() -> None:
    """An exact version would replace what is installed; developers' extras may have one."""
    extras = PROJECT["optional-dependencies"]
    pinned = {name for name, lines in extras.items() for line in lines if "==" in line.partition(";")[0]}
    assert pinned <= DEVELOPERS <= set(extras)
    for name in ("tune", "tune-cpu"):  # both are the module xgboost
        assert [re.split("[<>=]", line)[0] for line in extras[name]] == [
            {"tune": "xgboost", "tune-cpu": "xgboost-cpu"}[name]
        ]


def test_what_an_index_shows() -> None:
    assert set(PROJECT["scripts"]) == {"tilewright"}  # `tvmc` is the script of another package
    assert all(url.startswith("https://github.com/tilewright/tilewright") for url in PROJECT["urls"].values())
    assert "Programming Language :: Python :: 3.14" in PROJECT["classifiers"]
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert all(link.startswith(("https://", "#")) for link in links if "(" not in link), links
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert re.fullmatch(rf"## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)|## Unreleased", first)


def test_every_dependency_is_imported() -> None:
    wanted = [re.split(r"[<>=!~ \[]", line)[0] for line in PROJECT["dependencies"]]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tilewright").rglob("*.py"))
    unused = [name for name in wanted if not re.search(rf"^\s*(?:import|from) {name}\b", text, re.MULTILINE)]
    assert not unused, f"pyproject.toml asks for {', '.join(unused)}, and nothing imports it"
