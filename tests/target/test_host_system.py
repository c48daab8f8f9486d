"""Code for another operating system does not run in this process, whatever its processor."""

from __future__ import annotations

import platform

import pytest

from tilewright.target import Target

HERE = platform.machine()


@pytest.mark.parametrize(
    ("system", "runs"),
    [("unknown-linux-gnu", True), ("linux-gnu", True), ("pc-windows-msvc", False), ("apple-darwin", False)],
)
@pytest.mark.skipif(platform.system() != "Linux", reason="the systems are those beside Linux")
def test_systems(system: str, runs: bool) -> None:
    assert Target(f"llvm -mtriple={HERE}-{system}").llvm.is_host is runs
