"""Large tensors of ONNX files: read once, from where they are, and never from elsewhere than protobuf would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright import relay
from tilewright.ir.errors import FrontendError
from tilewright.relay.frontend.onnx.large_tensors import parsed_without_large_tensors
from tilewright.relay.frontend.onnx.load import array_of, load_model

LARGE = np.arange(64 * 64, dtype="float32").reshape(64, 64)


def model_of(tensors: list[Any]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])
    nodes, at = [], "x"
    for i, t in enumerate(tensors):
        nodes.append(helper.make_node("Add", [at, t.name], ["y" if i == len(tensors) - 1 else f"t{i}"]))
        at = f"t{i}"
    graph = helper.make_graph(nodes, "g", [x], [y], tensors, doc_string="a graph")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="test")


def several() -> onnx.ModelProto:
    whole = numpy_helper.from_array(LARGE, "whole")
    small = numpy_helper.from_array(np.ones((1, 64), "float32"), "small")
    fields = helper.make_tensor("fields", TensorProto.FLOAT, [64, 64], LARGE.reshape(-1).tolist())
    last = numpy_helper.from_array(LARGE * 2, "last")
    last.doc_string = "behind the data"
    return model_of([whole, small, fields, last])


def test_only_large_raw_data_stays_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(several(), path)
    proto, name, folder = load_model(path)
    assert (name, folder) == (str(path), tmp_path)
    external = {t.name: t.data_location == TensorProto.EXTERNAL for t in proto.graph.initializer}
    assert external == {"whole": True, "small": False, "fields": False, "last": True}
    assert proto.graph.initializer[3].doc_string == "behind the data" and proto.producer_name == "test"
    for mine, theirs in zip(proto.graph.initializer, several().graph.initializer, strict=True):
        found = array_of(mine, folder)
        np.testing.assert_array_equal(found, numpy_helper.to_array(theirs))
    assert found.ctypes.data % 64 == 0 and found.flags.writeable


def test_the_model_is_the_one_that_protobuf_reads(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(several(), path)
    from_file, _ = relay.frontend.from_onnx(path)
    from_proto, _ = relay.frontend.from_onnx(several())
    assert str(from_file["main"]) == str(from_proto["main"])
    frozen, params = relay.frontend.from_onnx(path, freeze_params=False)
    np.testing.assert_array_equal(params["last"].numpy(), LARGE * 2)
    params["last"].copyfrom(LARGE)  # the caller's own


@pytest.mark.parametrize("cut", [1, 100, 20000, 40000])
def test_a_file_that_is_cut_is_refused_as_before(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "model.onnx"
    data = several().SerializeToString()
    path.write_bytes(data[:-cut])
    with pytest.raises(FrontendError, match="is not an ONNX model, or a damaged one"):
        relay.frontend.from_onnx(path)


def test_a_shape_that_does_not_fit_the_bytes_is_refused(tmp_path: Path) -> None:
    wrong = numpy_helper.from_array(LARGE, "wrong")
    wrong.dims[0] = 63
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([wrong]).SerializeToString())
    with pytest.raises(FrontendError, match="tensor 'wrong' of shape \\[63, 64\\] is damaged"):
        relay.frontend.from_onnx(path)


def test_what_protobuf_would_merge_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    twice = (
        several().SerializeToString() + onnx.ModelProto(graph=onnx.GraphProto(name="h")).SerializeToString()
    )
    path.write_bytes(twice)
    assert not parsed_without_large_tensors(onnx.ModelProto(), path)
    tensor = numpy_helper.from_array(LARGE, "w").SerializeToString()
    again = onnx.TensorProto(raw_data=bytes(LARGE.nbytes)).SerializeToString()
    merged = onnx.TensorProto.FromString(tensor + again)
    model = model_of([merged])
    path.write_bytes(model.SerializeToString())
    proto, _, folder = load_model(path)
    np.testing.assert_array_equal(array_of(proto.graph.initializer[0], folder), 0)


def test_links_to_a_model(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    onnx.save(several(), tmp_path / "blobs" / "model.onnx")
    (tmp_path / "beside.onnx").symlink_to(tmp_path / "blobs" / "model.onnx")
    (tmp_path / "blobs" / "link.onnx").symlink_to("model.onnx")
    for path in (tmp_path / "beside.onnx", tmp_path / "blobs" / "link.onnx"):
        _, params = relay.frontend.from_onnx(path, freeze_params=False)
        np.testing.assert_array_equal(params["last"].numpy(), LARGE * 2)


def test_an_empty_or_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FrontendError, match="cannot be read"):
        relay.frontend.from_onnx(tmp_path / "none.onnx")
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(FrontendError, match="it has no graph"):
        relay.frontend.from_onnx(tmp_path / "empty.onnx")
