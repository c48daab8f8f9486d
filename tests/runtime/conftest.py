"""Fixtures: libraries written in C by hand, compiled and loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from native_library import ADD, ADD_INFO, metadata, write_library

from tilewright.runtime import Module, load_module

Build = Callable[..., Module]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compile C code with a description of its functions, and load it."""
    count = 0

    def make(code: str, functions: list[dict[str, Any]], **more: Any) -> Module:
        nonlocal count
        count += 1
        return load_module(write_library(tmp_path / f"lib{count}.so", code, metadata(functions, **more)))

    return make


@pytest.fixture(scope="session")
def add_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with one function `add(A, B, C)` over float32[m, n]."""
    return write_library(tmp_path_factory.mktemp("add") / "add.so", ADD, metadata([ADD_INFO]))


@pytest.fixture
def add(add_library: Path) -> Module:
    return load_module(add_library)
