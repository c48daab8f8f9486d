"""The table of global functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright import te
from tilewright.runtime import (
    PackedFunc,
    convert,
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def test_three_ways_to_register() -> None:
    @register_func
    def plainly_named(x: int) -> int:
        return x + 1

    @register_func("test.named")
    def named(x: int) -> int:
        return x + 2

    assert register_func("test.direct", named) is named
    assert plainly_named(1) == 2
    assert get_global_func("plainly_named")(1) == 2
    assert get_global_func("test.named")(1) == get_global_func("test.direct")(1) == 3
    assert {"plainly_named", "test.direct", "test.named"} <= set(list_global_func_names())
    assert repr(get_global_func("test.named")) == "<PackedFunc test.named>"


def test_a_name_is_taken_once() -> None:
    register_func("test.once", lambda: 1)
    with pytest.raises(ValueError, match=r"'test.once' exists already; pass override=True"):
        register_func("test.once", lambda: 2)
    register_func("test.once", lambda: 3, override=True)
    assert get_global_func("test.once")() == 3


def test_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"there is no global function 'test.none'"):
        get_global_func("test.none")
    assert get_global_func("test.none", allow_missing=True) is None
    remove_global_func("test.none")
    with pytest.raises(TypeError, match="must be callable, not int"):
        register_func("test.none", 3)  # type: ignore[type-var]


def test_convert() -> None:
    packed = convert(lambda x: x * 2)
    assert isinstance(packed, PackedFunc)
    assert packed(4) == 8
    assert convert(packed) is packed
    assert convert("x") == "x"
    tensor = te.placeholder((2,))  # it can be called, as a function of its indices
    assert convert([tensor])[0] is tensor


def test_convert_of_numbers_gives_constants() -> None:
    import tilewright as tvm

    for value, dtype in [
        (1, "int32"),
        (True, "bool"),
        (1.5, "float32"),
        (np.uint8(3), "uint8"),
        (np.float64(2), "float64"),
    ]:
        made = convert(value)
        assert isinstance(made, tvm.tir.PrimExpr)
        assert (made.dtype, made.value) == (dtype, value)
    shape, table = convert([1, "a"]), convert({"n": 2})
    assert (shape[0].value, shape[1], table["n"].value) == (1, "a", 2)
