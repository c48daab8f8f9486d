"""Whatever is wrong with a file of a stranger, the error has a name and names the file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.driver import tvmc
from tilewright.ir.errors import TVMError
from tilewright.runtime.errors import LoadError
from tilewright.runtime.json_reader import DEPTH, read_json
from tilewright.runtime.metadata import parse_metadata
from tilewright.tune.records.database import Database
from tilewright.tune.records.files import open_records

DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [DEEP, DEEP.encode(), '{"a":' * 1000, "[" * (DEPTH + 1) + "]" * (DEPTH + 1)])
def test_depth(text: str | bytes) -> None:
    with pytest.raises(LoadError, match=f"^file: the JSON is nested more than {DEPTH} levels deep"):
        read_json(text, "file")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nul", "this is not JSON"),
        (b"\xff", "not UTF-8"),
        ('"\ud800"', "not UTF-8"),
        ("9" * 5000, "this is not JSON"),
        ("", "not JSON"),
    ],
)
def test_refusals(text: str | bytes, why: str) -> None:
    with pytest.raises(LoadError, match=f"^file: .*{why}"):
        read_json(text, "file")


def test_size_and_what_is_fine() -> None:
    with pytest.raises(LoadError, match="has 9 bytes, and at most 4 are read"):
        read_json('"1234567"', "file", size=4)
    assert read_json("[" * DEPTH + "]" * DEPTH, "file")
    brackets = '"' + "[" * 1000 + '\\"' + "]" * 3 + '"'  # in a text they are none
    assert read_json(f"[{brackets}, {brackets}]", "file") == [json.loads(brackets)] * 2


def params(header: str) -> bytes:
    return struct.pack("<Q", len(header)) + header.encode()


@pytest.mark.parametrize(
    "header",
    [
        DEEP,
        '{"x": {"dtype": "F32", "shape": [4611686018427387904, 4, 0], "data_offsets": [0, 0]}}',
        json.dumps({"x": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]}}),
        '{"x": {"dtype": [], "shape": [], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}',
    ],
    ids=["deep", "overflow", "dimensions", "dtype", "truth"],
)
def test_parameters(header: str) -> None:
    with pytest.raises(LoadError, match="the parameter data: "):
        relay.load_param_dict(params(header) + bytes(8))


def test_texts_of_programs_and_graphs() -> None:
    with pytest.raises(TVMError, match="nested more than"):
        tvm.ir.load_json(DEEP)
    with pytest.raises(TVMError, match="nested more than"):
        relay.fromtext(f"fn () {{ 1 }}\n#[metadata]\n{DEEP}")
    with pytest.raises(LoadError, match="lib: the library's metadata is damaged: the JSON is nested"):
        parse_metadata(DEEP, "lib")
    with pytest.raises(ValueError, match="'1x' is not a number"):
        relay.parser._split_number("1x")
    with pytest.raises(TVMError):
        relay.fromtext("fn () { 99999999999999999999 }")
    with pytest.raises(
        tvm.target.TargetError if hasattr(tvm.target, "TargetError") else TVMError, match="nested"
    ):
        tvm.target.Target("{" + DEEP)


def test_graphs_of_models() -> None:
    x = relay.var("x", shape=(2, 2))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], x + x)), "llvm")
    with pytest.raises(TVMError, match="nested more than"):
        graph_executor.create(DEEP, lib, tvm.cpu())


def test_packages(tmp_path: Path) -> None:
    import io
    import tarfile

    for content in (DEEP.encode(), b'{"kind": "\xff"}'):
        with tarfile.open(tmp_path / "net.tar", "w") as tar:
            entry = tarfile.TarInfo("metadata.json")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        with pytest.raises(TVMError, match=r"net\.tar"):
            tvmc.TVMCPackage(tmp_path / "net.tar")


@pytest.mark.parametrize("value", [b"\xff\xfe", DEEP, "{"])
def test_databases(tmp_path: Path, value: Any) -> None:
    with Database(tmp_path / "t.db") as db:
        db._db.execute("INSERT INTO machines VALUES (?, ?)", ("m", value))
        with pytest.raises(TVMError, match=r"t\.db"):
            db.machines()
    import sqlite3

    with sqlite3.connect(tmp_path / "t.db") as raw:  # text that is not UTF-8
        raw.execute("INSERT INTO workloads VALUES ('w', CAST(x'ff' AS TEXT), 'p', '[]', '{}')")
    with Database(tmp_path / "t.db") as db, pytest.raises(TVMError, match=r"t\.db"):
        db.export_json(tmp_path / "out.json")
    (tmp_path / "t.json").write_text('{"format": "tilewright-records-1"}\n' + DEEP + "\n{}\n")
    with pytest.raises(TVMError, match=r"t\.json, line 2: .*nested"):
        open_records(tmp_path / "t.json")


def test_external_data_with_a_zero_in_its_name(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    tensor = helper.make_tensor("w", kinds.FLOAT, [1], [1.0])
    tensor.ClearField("float_data")
    tensor.data_location = kinds.EXTERNAL
    tensor.external_data.add(key="location", value="a\0b")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    sizes = [helper.make_tensor_value_info(n, kinds.FLOAT, [1]) for n in "xy"]
    graph = helper.make_graph([node], "g", sizes[:1], sizes[1:], [tensor])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(TVMError, match="which is not a valid file name"):
        relay.frontend.from_onnx(str(tmp_path / "m.onnx"))
