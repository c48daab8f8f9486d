"""Data types: parsing, parts, limits."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from tilewright.ir.dtype import BOOL, FLOAT32, FLOAT64, HANDLE, INT32, INT64, VOID, DataType

SCALARS = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 "
    "float8_e4m3fn float8_e5m2 bool handle void"
).split()


@pytest.mark.parametrize("name", SCALARS)
def test_names_are_their_own_text(name: str) -> None:
    kind = DataType(name)
    assert str(kind) == name == kind and kind is DataType(name) and hash(kind) == hash(name)
    assert kind.lanes == 1 and kind.element is kind and not kind.is_vector
    assert kind == name and isinstance(kind, str)


@pytest.mark.parametrize("name", SCALARS[:-2])
@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 16, 128])
def test_vectors(name: str, lanes: int) -> None:
    kind = DataType(name).with_lanes(lanes)
    assert str(kind) == f"{name}x{lanes}" and kind is DataType(f"{name}x{lanes}")
    assert kind.lanes == lanes and kind.element is DataType(name) and kind.is_vector
    assert kind.with_lanes(1) is DataType(name) and kind.with_lanes(lanes) is kind
    assert kind.nbytes == lanes * DataType(name).nbytes


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("int", "int32"),
        ("uint", "uint32"),
        ("float", "float32"),
        ("uint1", "bool"),
        ("uint1x4", "boolx4"),
        ("bool1", "bool"),
        ("", "void"),
        ("float32x1", "float32"),
        ("handle64", "handle"),
        ("e4m3_float8", "float8_e4m3fn"),
        ("e5m2_float8x4", "float8_e5m2x4"),
        (float, "float32"),
        (int, "int32"),
        (bool, "bool"),
        (np.float16, "float16"),
        (np.dtype("uint8"), "uint8"),
    ],
)
def test_other_ways_to_write(written: str, meant: str) -> None:
    assert DataType(written) is DataType(meant)


@pytest.mark.parametrize(
    "text",
    "foo float31 int7 bool8 handle32 x4 float32x float32x-1 void8 custom float128 int32x4x4 Float32".split(),
)
def test_unknown_types(text: str) -> None:
    with pytest.raises(ValueError, match="unknown data type") as caught:
        DataType(text)
    assert "known are float32, float16" in str(caught.value) and repr(text) in str(caught.value)


def test_spaces_are_no_part_of_a_type() -> None:
    with pytest.raises(ValueError, match="unknown data type"):
        DataType("float32 ")


def test_lanes_that_are_none() -> None:
    with pytest.raises(ValueError, match="data type 'float32x0' has no lanes"):
        DataType("float32x0")


def test_scalable_vectors() -> None:
    kind = DataType("float32xvscalex4")
    assert (kind.element, kind.lanes, kind.is_scalable, kind.is_vector) == ("float32", -4, True, True)
    assert kind.with_lanes(1) is kind.element
    assert kind.element.with_lanes(-4) is kind
    assert DataType("uint1xvscalex8") == "boolxvscalex8"
    assert not DataType("float32x4").is_scalable


def test_kinds() -> None:
    def says(name: str) -> str:
        k = DataType(name)
        facts = (k.is_float, k.is_int, k.is_uint, k.is_integral, k.is_bool, k.is_handle)
        return "".join("01"[fact] for fact in facts)

    assert says("float16") == says("bfloat16x4") == says("float8_e5m2") == "100000"
    assert says("int8") == "010100" and says("uint64") == "001100"
    assert says("bool") == "000010" and says("handle") == "000001" and says("void") == "000000"


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integer_limits_are_numpys(name: str) -> None:
    info = np.iinfo(name)
    kind = DataType(name)
    assert (kind.min_value(), kind.max_value()) == (info.min, info.max) == (kind.low, kind.high)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_float_limits_are_numpys(name: str) -> None:
    info = np.finfo(name)
    assert (DataType(name).low, DataType(name).high) == (float(info.min), float(info.max))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_limits_are_those_of_ml_dtypes(name: str) -> None:
    import ml_dtypes

    info = ml_dtypes.finfo(name)
    assert (DataType(name).low, DataType(name).high) == (float(info.min), float(info.max))


def test_sizes() -> None:
    sizes = {"bool": 1, "int8": 1, "float16": 2, "float32x4": 16, "handle": 8, "boolx8": 8, "float8_e5m2": 1}
    assert {n: DataType(n).nbytes for n in sizes} == sizes
    assert DataType("int64").itemsize() == 8
    with pytest.raises(ValueError, match="the size of float32xvscalex4 is known to the hardware alone"):
        DataType("float32xvscalex4").itemsize()


def test_codes_are_dlpacks() -> None:
    codes = {"int8": 0, "uint8": 1, "bool": 1, "float32": 2, "handle": 3, "bfloat16": 4, "float8_e5m2": 12}
    assert {n: DataType(n).type_code for n in codes} == codes


def test_with_bits() -> None:
    assert DataType("int8x4").with_bits(32) is DataType("int32x4")
    assert DataType("bool").with_bits(8) is DataType("uint8")
    assert DataType("bool").with_bits(1) is BOOL
    with pytest.raises(ValueError, match="unknown data type 'float7'"):
        DataType("float32").with_bits(7)


def test_copies_are_the_same() -> None:
    kind = DataType("int8x4")
    assert copy.deepcopy(kind) is kind and copy.copy(kind) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_constants() -> None:
    assert [BOOL, FLOAT32, FLOAT64, HANDLE, INT32, INT64, VOID] == [
        "bool",
        "float32",
        "float64",
        "handle",
        "int32",
        "int64",
        "void",
    ]
