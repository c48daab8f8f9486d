"""Layouts of tensors, and the way from one to another."""

from __future__ import annotations

import pytest

from tilewright import tir


def values(items: list[tir.PrimExpr]) -> list[int]:
    return [int(i) for i in items]


def test_axes() -> None:
    layout = tir.layout("NCHW16c")
    assert (layout.factor_of("C"), layout.factor_of("c"), layout.factor_of("N")) == (16, 16, -1)
    assert [layout.index_of(a) for a in "NCHWcO"] == [0, 1, 2, 3, 4, -1]
    assert "c" in layout and "O" not in layout
    assert (layout[-1], len(layout), str(layout)) == ("c", 5, "NCHW16c")
    assert layout.axes[4].dom.extent.value == 16
    assert tir.layout("NCHW", dtype="int64").axes[0].dom.extent.dtype == "int64"


@pytest.mark.parametrize("text", ["NCHWN", "NCHW16x", "nchw"])
def test_texts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a layout"):
        tir.layout(text)


def test_the_type_of_sizes() -> None:
    with pytest.raises(TypeError, match="a type of integers, not of 'float32'"):
        tir.layout("NCHW", dtype="float32")


def test_there_and_back() -> None:
    way = tir.bijective_layout("NCHW", "NCHW16c")
    assert way is not None
    assert values(way.forward_shape((1, 32, 7, 7))) == [1, 2, 7, 7, 16]
    assert values(way.backward_shape((1, 2, 7, 7, 16))) == [1, 32, 7, 7]
    assert values(way.forward_index([0, 18, 6, 6])) == [0, 1, 6, 6, 2]
    assert values(way.backward_index([0, 1, 6, 6, 2])) == [0, 18, 6, 6]
    with pytest.raises(ValueError, match="has 4 dimensions, and the index has 3"):
        way.forward_index([0, 1, 2])
    with pytest.raises(ValueError, match="has 16 of c, and the shape has 8"):
        way.backward_shape((1, 2, 7, 7, 8))


@pytest.mark.parametrize("pair", [("NCHW", "ABCD"), ("__undef__", "NCHW"), ("NCHW", ""), ("", "")])
def test_layouts_of_other_axes(pair: tuple[str, str]) -> None:
    assert tir.bijective_layout(*pair) is None
