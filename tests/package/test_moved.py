"""Classic module paths: the same modules under both names, and names of a module in its package."""

from __future__ import annotations

import importlib

import pytest

from tilewright.moved import MOVED, WITHIN

ROWS = [
    *MOVED.items(),
    *((f"{home}.{word}", home) for home, words in WITHIN.items() for word in words.split()),
]


@pytest.mark.parametrize(("classic", "own"), ROWS)
def test_a_classic_path_is_the_module(classic: str, own: str) -> None:
    found = importlib.import_module(f"tilewright.{classic}")
    assert found is importlib.import_module(f"tilewright.{own}")
    assert found.__name__ == f"tilewright.{own}"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("ir.container", "Map"),
        ("ir.attrs", "Attrs"),
        ("ir.adt", "Constructor"),
        ("runtime.packed_func", "PackedFunc"),
        ("arith.pattern", "detect_linear_equation"),
        ("relay.transform.transform", "InferType"),
        ("te.tag", "tag_scope"),
        ("tir.generic", "add"),
        ("topi.nn.conv2d_transpose", "conv2d_transpose_nchw"),
    ],
)
def test_names_of_classic_modules(module: str, name: str) -> None:
    assert getattr(importlib.import_module(f"tilewright.{module}"), name) is not None
