"""`tir.IndexMap`: applied, inverted, and as text."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.tir import IndexMap


def texts(items):
    return [str(i) for i in items]


def test_from_func():
    m = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
    assert [v.name for v in m.initial_indices] == ["i", "j"]
    assert all(v.dtype == "int64" for v in m.initial_indices)
    assert str(m) == "lambda i, j: (i // 4, j, i % 4)"
    assert str(IndexMap.from_func(lambda i: i * 2 + 1, index_dtype="int32")) == "lambda i: (i * 2 + 1,)"


def test_a_function_of_any_number_of_indices():
    m = IndexMap.from_func(lambda n, *rest: [*rest, n], ndim=3)
    assert str(m) == "lambda n, rest_0, rest_1: (rest_0, rest_1, n)"
    assert str(IndexMap.from_func(lambda i, *, last: [last, i], ndim=2)) == "lambda i, last: (last, i)"
    with pytest.raises(ValueError) as caught:
        IndexMap.from_func(lambda *rest: rest)
    assert str(caught.value) == "ndim must be given: the function takes any number of indices (*rest)"
    with pytest.raises(ValueError) as caught:
        IndexMap.from_func(lambda i, j: [i, j], ndim=3)
    assert str(caught.value) == "the function takes 2 indices, and there are 3"


def test_axis_separators():
    assert IndexMap.AXIS_SEPARATOR == te.AXIS_SEPARATOR
    made, cuts = IndexMap.from_func_with_separators(lambda i, j: [i, IndexMap.AXIS_SEPARATOR, j, i * 0])
    assert (cuts, len(made.final_indices)) == ([1], 3)
    with pytest.raises(ValueError) as caught:
        IndexMap.from_func(lambda i: [IndexMap.AXIS_SEPARATOR, i])
    assert str(caught.value) == (
        "the function returns IndexMap.AXIS_SEPARATOR, which is not an index; from_func_with_separators takes it"
    )


def test_map_indices_takes_the_type_of_the_indices():
    m = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
    assert texts(m.map_indices([9, 5])) == ["2", "5", "1"]
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    mapped = m.map_indices([x, y])
    assert texts(mapped) == ["x // 4", "y", "x % 4"]
    assert {e.dtype for e in mapped} == {"int32"}
    with pytest.raises(ValueError) as caught:
        m.map_indices([x])
    assert str(caught.value) == "lambda i, j: (i // 4, j, i % 4) takes 2 indices, not 1"


def test_map_shape_and_ranges():
    m = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
    assert texts(m.map_shape([16, 8])) == ["4", "8", "4"]
    assert texts(m.map_shape([14, 8])) == ["4", "8", "4"]
    n = tir.Var("n", "int32")
    assert texts(m.map_shape([n, 8])) == ["(n + 3) // 4", "8", "4"]
    assert texts(IndexMap.from_func(lambda i: [i + 2]).map_ranges([tir.Range(0, 8)])) == ["Range(2, 10)"]
    assert texts(IndexMap.from_func(lambda i: [7 - i]).map_ranges([tir.Range(0, 8)])) == ["Range(0, 8)"]
    assert texts(IndexMap.from_func(lambda i, j: [i * i + j]).map_shape([3, 2])) == ["6"]
    with pytest.raises(ValueError) as caught:
        IndexMap.from_func(lambda i: [0 - i]).map_shape([4])
    assert str(caught.value) == "lambda i: (0 - i,) maps the shape [4] to indices below 0"


def test_inverse():
    m = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
    assert str(m.inverse([16, 8])) == "lambda axis0, axis1, axis2: (axis0 * 4 + axis2, axis1)"
    fused = IndexMap.from_func(lambda i, j: [i * 8 + j])
    assert str(fused.inverse([4, 8])) == "lambda axis0: (axis0 // 8, axis0 % 8)"
    assert m.inverse([16, 8]).inverse([4, 8, 4]).is_equivalent_to(m)


def test_inverse_of_a_map_that_is_not_onto():
    m = IndexMap.from_func(lambda i: [i // 4, i % 4])
    back, padding = m.non_surjective_inverse([14])
    assert str(back) == "lambda axis0, axis1: (axis0 * 4 + axis1,)"
    assert str(padding) == "axis0 * 4 + axis1 >= 14"
    with pytest.raises(ValueError) as caught:
        m.inverse([14])
    assert str(caught.value) == (
        "lambda i: (i // 4, i % 4) is not onto over the shape (14): "
        "nothing is mapped to where `axis0 * 4 + axis1 >= 14`"
    )
    assert str(IndexMap.from_func(lambda i: [i + 2]).non_surjective_inverse([8])[1]) == "axis0 < 2"
    assert tir.const(False, "bool").value == m.non_surjective_inverse([16])[1].value


@pytest.mark.parametrize(
    ("function", "shape", "why"),
    [
        (lambda i: [i // 4], [16], "lambda i: (i // 4,) maps several values of `i` to the same index"),
        (
            lambda i, j: [i + j],
            [4, 4],
            "lambda i, j: (i + j,) cannot be inverted: iterators overlap or leave gaps: their scales do not "
            "follow from their extents",
        ),
        (lambda i, j: [i], [4, 4], "lambda i, j: (i,) maps several values of `j` to the same index"),
    ],
)
def test_maps_that_cannot_be_inverted(function, shape, why):
    with pytest.raises(ValueError) as caught:
        IndexMap.from_func(function).inverse(shape)
    assert str(caught.value) == why


def test_a_given_inverse_is_used():
    m = IndexMap.from_func(lambda i: [i * 1], inverse_index_map=lambda k: [k])
    assert str(m.inverse([4])) == "lambda axis0: (axis0,)"


def test_map_ndarray():
    a = np.arange(28).reshape(14, 2)
    out = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4]).map_ndarray(a)
    assert out.shape == (4, 2, 4)
    for i in range(14):
        for j in range(2):
            assert out[i // 4, j, i % 4] == a[i, j]
    assert out[3, 0, 3] == 0
    n = tir.Var("n", "int64")
    with pytest.raises(ValueError) as caught:
        IndexMap.from_func(lambda i: [i % n]).map_ndarray(np.arange(3))
    assert str(caught.value) == "`n` cannot be computed for an array: it uses ['n']"


def test_is_equivalent_to():
    m = IndexMap.from_func(lambda i, j: [i * 4 + j])
    assert m.is_equivalent_to(IndexMap.from_func(lambda a, b: [b + a * 4], index_dtype="int32"))
    assert not m.is_equivalent_to(IndexMap.from_func(lambda a, b: [b + a * 3]))
    assert not m.is_equivalent_to(IndexMap.from_func(lambda a, b: [a, b]))
    assert not m.is_equivalent_to(IndexMap.from_func(lambda a: [a]))


@pytest.mark.parametrize(
    "text",
    [
        "lambda i, j: (i // 4, j, i % 4)",
        "lambda i: (i,)",
        "lambda i: (-(i - 7) * 2,)",
        "lambda i, j: (min(i, j), max(i, 3))",
        "lambda i: (i - (3 - i),)",
        "lambda i: (1.5,)",
        "lambda : (0,)",
    ],
)
def test_text_goes_round(text):
    m = IndexMap.from_python(text)
    again = IndexMap.from_python(m.as_python())
    assert again.as_python() == m.as_python()
    assert len(again.final_indices) == len(m.final_indices)


def test_equal_names_are_told_apart_in_the_text():
    i, j = tir.Var("i", "int32"), tir.Var("i", "int32")
    assert IndexMap([i, j], [j, i]).as_python() == "lambda i, i_1: (i_1, i)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "lambda i: (__import__('os').system('true'),)",
            "`__import__('os').system('true')` is more than arithmetic on its parameters",
        ),
        ("lambda i: (open('x'),)", "`open('x')` is more than arithmetic on its parameters"),
        ("lambda i: (i.dtype,)", "`i.dtype` is more than arithmetic on its parameters"),
        ("lambda i: (n,)", "`n` is more than arithmetic on its parameters"),
        ("lambda i: (i ** 2,)", "`i ** 2` is more than arithmetic on its parameters"),
        ("lambda i: ('x',)", "`'x'` is more than arithmetic on its parameters"),
        ("lambda *i: (i,)", "its parameters must be plain names"),
        ("lambda i=1: (i,)", "its parameters must be plain names"),
        ("i + 1", "it is not a lambda"),
        ("lambda i: (", "it is not a Python expression"),
        ("min(i=1", "it is not a Python expression"),
        ("lambda i: (min(i),)", "`min(i)` is more than arithmetic on its parameters"),
    ],
)
def test_foreign_text_is_refused(text, why):
    with pytest.raises(ScheduleError) as caught:
        IndexMap.from_python(text)
    assert str(caught.value) == f"cannot read the index map {text!r}: {why}"


def test_a_map_over_symbols_of_the_program_prints_but_does_not_read_back(expect):
    n = tir.Var("n", "int64")
    text = IndexMap.from_func(lambda i: [i // n, i % n]).as_python()
    assert text == "lambda i: (i // (n), i % (n))"
    with pytest.raises(ScheduleError) as caught:
        IndexMap.from_python(text)
    expect(
        str(caught.value),
        """
        cannot read the index map 'lambda i: (i // (n), i % (n))': `n` is more than arithmetic on its parameters
        """,
    )


@st.composite
def reshapes(draw):
    """A shape, and a map that splits, fuses and permutes its dimensions."""
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    parts = []
    for axis in range(len(shape)):
        if draw(st.booleans()):
            f = draw(st.integers(1, 5))
            parts += [(axis, "div", f), (axis, "mod", f)]
        else:
            parts.append((axis, "all", 1))
    return shape, draw(st.permutations(parts))


@settings(max_examples=examples(80), derandomize=True, deadline=None)
@given(reshapes())
def test_inverse_undoes_the_map(case):
    shape, parts = case
    pick = {"div": lambda i, f: i // f, "mod": lambda i, f: i % f, "all": lambda i, f: i}
    m = IndexMap.from_func(lambda *i: [pick[how](i[axis], f) for axis, how, f in parts], ndim=len(shape))
    back, padding = m.non_surjective_inverse(shape)
    new_shape = [int(d) for d in m.map_shape(shape)]
    seen = {}
    for index in np.ndindex(*shape):
        place = tuple(int(e) for e in m.map_indices(list(index)))
        assert all(0 <= p < d for p, d in zip(place, new_shape, strict=True))
        assert place not in seen
        seen[place] = index
    where = IndexMap(back.initial_indices, [padding])
    for place in np.ndindex(*new_shape):
        padded = bool(where.map_indices(list(place))[0])
        assert padded is (place not in seen)
        if not padded:
            assert tuple(int(e) for e in back.map_indices(list(place))) == seen[place]


def test_arrays_of_a_device_stay_arrays_of_it():
    given = np.arange(16).astype("int8")
    made = tir.IndexMap.from_func(lambda i: [i // 4, i % 4]).map_ndarray(tvm.nd.array(given))
    assert isinstance(made, tvm.nd.NDArray)
    np.testing.assert_array_equal(made.numpy(), given.reshape(4, 4))
