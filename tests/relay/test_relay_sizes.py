"""Numbers in place of symbolic sizes."""

from __future__ import annotations

import pytest

from tilewright import relay, te
from tilewright.relay.sizes import size_values, with_sizes
from tilewright.relay.transform.infer_type import infer_type

N = te.size_var("n", "int32")


def program() -> relay.Function:
    x = relay.var("x", shape=(N, 6), dtype="float32")
    y = relay.var("y", shape=(N, 1), dtype="float32")
    body = relay.reshape(relay.add(x, y), [N * 2, -1])
    return infer_type(relay.Function([x, y], relay.add(body, relay.full(relay.const(1.0), [N * 2, 3]))))


def test_sizes_are_found_and_put_into_types_and_attributes() -> None:
    fn = program()
    values = size_values(fn, [(5, 6), (5, 1)])
    assert values == {N: 5}
    made = with_sizes(fn, values)
    assert [p.checked_type.shape for p in made.params] == [(5, 6), (5, 1)]
    assert made.body.checked_type.shape == (10, 3)
    assert "newshape=[10, -1]" in made.astext() and "shape=[10, 3]" in made.astext()


def test_nothing_to_do_is_the_same_function() -> None:
    fn = program()
    assert with_sizes(fn, {}) is fn


def test_sizes_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match=r"^%y: size n is 4 here and 5 in a parameter before$"):
        size_values(program(), [(5, 6), (4, 1)])
    with pytest.raises(
        ValueError, match=r"^%x is Tensor\[\(n, 6\), float32\], and a tensor of shape \(5, 7\) is given$"
    ):
        size_values(program(), [(5, 7), (5, 1)])
    with pytest.raises(ValueError, match=r"^%x has 2 dimensions, and 3 are given$"):
        size_values(program(), [(5, 6, 1), (5, 1)])
