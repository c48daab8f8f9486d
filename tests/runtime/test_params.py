"""Parameters on disk: round trips, the safetensors package as a judge, damaged data."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.runtime import (
    LoadError,
    load_param_dict,
    load_param_dict_from_file,
    nd,
    save_param_dict,
    save_param_dict_to_file,
)
from tilewright.runtime.params import _FROM_NAME

SAMPLE: dict[str, Any] = {
    "weight": np.arange(6, dtype="float32").reshape(2, 3),
    "bias": nd.array(np.array([1, -1], "int8")),
    "größe": np.array(3, "int64"),
    "empty": np.zeros((0, 4), "float16"),
    "brain": np.array([1.5], ml_dtypes.bfloat16),
}


def test_round_trip(tmp_path: Path) -> None:
    save_param_dict_to_file(SAMPLE, tmp_path / "p")
    for loaded in (load_param_dict(save_param_dict(SAMPLE)), load_param_dict_from_file(tmp_path / "p")):
        assert set(loaded) == set(SAMPLE)
        for name, value in SAMPLE.items():
            expected = value.numpy() if isinstance(value, nd.NDArray) else value
            assert loaded[name].numpy().dtype == expected.dtype
            assert loaded[name].data_ptr % 64 == 0
            np.testing.assert_array_equal(loaded[name].numpy(), expected)


@pytest.mark.parametrize("kind", _FROM_NAME.values(), ids=lambda kind: kind.name)
def test_every_type(kind: Any) -> None:
    values = np.array([0, 1, 2]).astype(kind.numpy)
    loaded = load_param_dict(save_param_dict({"x": values}))["x"]
    assert loaded.dtype == kind.name
    np.testing.assert_array_equal(loaded.numpy(), values)


def test_others_read_it_and_write_it() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    theirs = safetensors.load(save_param_dict({k: v for k, v in SAMPLE.items() if k != "brain"}))
    np.testing.assert_array_equal(theirs["weight"], SAMPLE["weight"])
    assert theirs["größe"].shape == ()
    ours = load_param_dict(safetensors.save({"w": SAMPLE["weight"]}))
    np.testing.assert_array_equal(ours["w"].numpy(), SAMPLE["weight"])


def test_what_cannot_be_saved() -> None:
    with pytest.raises(
        ValueError, match="parameter 'c' cannot be saved: the runtime has no arrays of '<c16'"
    ):
        save_param_dict({"c": np.zeros(2, complex)})
    with pytest.raises(ValueError, match="reserved"):
        save_param_dict({"__metadata__": [1]})
    with pytest.raises(TypeError, match="a string, not 3"):
        save_param_dict({3: [1]})  # type: ignore[dict-item]


def damaged(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "truncated: 0 bytes, a parameter file has at least 8"),
        (b"hello, I am text", "not a parameter file"),
        (struct.pack("<Q", 50) + b"{}", "truncated: the header has 50 bytes, the data ends after 10"),
        (damaged(b"{'x'"), "not a parameter file (safetensors), or damaged: "),
        (damaged([1]), "damaged: the header is not a table of arrays"),
        (damaged({"x": {"dtype": "F32"}}), "damaged: the entry of parameter 'x' is incomplete"),
        (damaged({"x": 3}), "damaged: the entry of parameter 'x' is incomplete"),
        (
            damaged({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
            "damaged: the shape or the offsets of parameter 'x' are not non-negative integers",
        ),
        (
            damaged({"x": {"dtype": "F32", "shape": "ab", "data_offsets": [0, 4]}}, bytes(4)),
            "damaged: the shape or the offsets of parameter 'x' are not non-negative integers",
        ),
        (
            damaged({"x": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)),
            "parameter 'x' has type 'C64'; known are F16",
        ),
        (
            damaged({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)),
            "damaged: parameter 'x' of float32 and shape (3,) needs 12 bytes, and its entry has 8",
        ),
        (
            damaged({"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(8)),
            "truncated: parameter 'x' ends at byte 12 of the data, which has 8",
        ),
    ],
)
def test_damaged(data: bytes, text: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as info:
        load_param_dict(data)
    assert str(info.value).startswith(f"the parameter data: {text}")
    (tmp_path / "p.bin").write_bytes(data)
    with pytest.raises(LoadError, match=r"p\.bin: "):
        load_param_dict_from_file(tmp_path / "p.bin")


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.data())
def test_no_damage_does_worse_than_an_error(data: st.DataObject) -> None:
    whole = bytearray(save_param_dict(SAMPLE))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    with contextlib.suppress(LoadError):
        load_param_dict(bytes(whole[:cut]))
