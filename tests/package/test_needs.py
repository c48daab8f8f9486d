"""What tests need of the machine: how it is named, counted and hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import needs
import pytest

TESTS = Path(__file__).parents[1]


def test_a_test_is_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "found", lambda name: name != "qemu-riscv64")
    needs.skip_without("qemu-aarch64", "cc")
    with pytest.raises(pytest.skip.Exception, match=r"^needs qemu-riscv64: apt package qemu-user$"):
        needs.skip_without("cc", "qemu-riscv64")


def test_a_name_that_is_not_known_is_refused(request: pytest.FixtureRequest) -> None:
    item: Any = SimpleNamespace(
        nodeid="x.py::test", iter_markers=lambda _: [SimpleNamespace(args=("opencl", "fpga"))]
    )
    with pytest.raises(pytest.UsageError, match=r"x.py::test: nothing is called 'fpga'; there are opencl, "):
        needs.check_names([item])


def test_reasons_are_listed_once_with_their_counts() -> None:
    told = ["Skipped: needs strip: apt package binutils"] * 2
    told += ["Skipped: could not import 'torch.nn': No module named 'torch'", "Skipped: there is a GPU"]
    reports: list[Any] = [SimpleNamespace(longrepr=("x.py", 1, text)) for text in told]
    assert needs.skipped(reports) == [
        (2, "needs strip: apt package binutils"),
        (1, "needs the Python package torch.nn"),
        (1, "there is a GPU"),
    ]


@pytest.mark.slow
def test_what_is_hidden_is_found_by_no_process() -> None:
    program = """
import needs, os, subprocess, sys
before = {n: needs.found(n) for n in ("cc", "strip")}
needs.found.cache_clear()
needs.hide()
assert before == {n: needs.found(n) for n in before}
child = "import needs; print([n for n in needs.HIDDEN if needs.found(n)])"
sys.exit(subprocess.run([sys.executable, "-c", child]).returncode)
"""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_which_files_speak_of_packages() -> None:
    assert needs.speaks_of_packages(TESTS / "codegen" / "test_cross.py")
    assert needs.speaks_of_packages(
        TESTS / "compiler" / "test_opencl_rows.py"
    )  # by a module that it imports, too
    assert not needs.speaks_of_packages(TESTS / "arith" / "test_arith_analyzer.py")


def uses_a_device() -> str:
    return "opencl"


def helper() -> str:
    return uses_a_device()


def test_a_test_reaches_what_its_helpers_say(request: pytest.FixtureRequest) -> None:
    def item(function: Any, **params: Any) -> Any:
        return SimpleNamespace(
            function=function,
            iter_markers=lambda _: [],
            callspec=SimpleNamespace(params=params),
            _fixtureinfo=SimpleNamespace(name2fixturedefs={}),
        )

    def quiet() -> None:
        item.__name__.upper()

    def loud() -> None:
        helper()

    assert needs.reaches_packages(item(loud)) and not needs.reaches_packages(item(quiet))
    assert needs.reaches_packages(item(quiet, target="opencl -x"))
    assert needs.reaches_packages(item(quiet, page=TESTS / "gpu" / "witness.py"))
