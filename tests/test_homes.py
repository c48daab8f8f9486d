"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys

import pytest

from tilewright.homes import lazily


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "tools.py").write_text("count = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("lazy_example")
    for name in ("lazy_example", "lazy_example.tools"):
        sys.modules.pop(name, None)


def test_names_and_modules_are_loaded_when_used_and_kept(package):
    get = lazily("lazy_example", {"tools": "count many=count"}, "tools kit=tools")
    assert "lazy_example.tools" not in sys.modules
    assert (get("count"), get("many")) == (3, 3)
    assert get("tools") is get("kit") is sys.modules["lazy_example.tools"]
    assert vars(package)["many"] == 3


def test_other_names_are_asked_for_elsewhere_or_refused(package):
    with pytest.raises(AttributeError, match=r"module 'lazy_example' has no attribute 'none'"):
        lazily("lazy_example", {"tools": "count"})("none")
    assert lazily("lazy_example", {}, "", str.upper)("none") == "NONE"
