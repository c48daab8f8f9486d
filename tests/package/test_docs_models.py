"""What the page about models shows beside Python: its commands run, and its C program prints what Python computed."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest

pytest.importorskip("onnx")

from test_docs import FENCE, ROOT, run
from typer.testing import CliRunner

from tilewright.__main__ import app

PAGE = ROOT / "docs" / "models.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where the page has run and left its files."""
    made = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        run(PAGE)
        yield made


def blocks(kind: str) -> list[str]:
    return [f["text"] for f in FENCE.finditer(PAGE.read_text(encoding="utf-8")) if f["kind"].strip() == kind]


@pytest.mark.slow
def test_commands(folder: Path) -> None:
    np.savez("in.npz", image=np.ones((1, 1, 8, 8), "float32"))
    for block in blocks("console"):
        *_, last = commands = [line for line in block.splitlines() if line.startswith("$ tilewright ")]
        for command in commands:
            result = CliRunner().invoke(app, shlex.split(command)[2:])
            assert result.exit_code == 0, result.output
            shown = block[block.index(last) + len(last) :].strip() if command is last else ""
            if shown:
                printed = "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())
                assert printed == shown


@pytest.mark.slow
def test_the_c_program(folder: Path) -> None:
    compiler = needs.compiler()
    (program,) = blocks("c")
    Path("main.c").write_text(program)
    subprocess.run(
        [compiler, "-Wall", "-Werror", "main.c", "digits.so", "-Wl,-rpath,.", "-o", "main"], check=True
    )
    printed = subprocess.run(["./main"], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in printed.splitlines()]
    assert [int(i) for i, _ in rows] == list(range(10))
    np.testing.assert_allclose(sum(float(v) for _, v in rows), 1.0, atol=0.01)
