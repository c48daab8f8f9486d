"""onnxruntime's other ways to run a session: bound memory, values on devices, callbacks, options, what a file says."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import GraphOptimizationLevel, IOBinding, OrtValue, RunOptions, SessionOptions
from tilewright.ir.errors import FrontendError
from tilewright.runtime.errors import ArgumentTypeError, ArgumentValueError

onnx = pytest.importorskip("onnx")

X = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def model() -> Any:
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [h.make_node("Relu", ["x"], ["r"]), h.make_node("Neg", ["r"], ["y"])]
    infos = [h.make_tensor_value_info(n, kind, ["rows", 3]) for n in ("x", "r", "y")]
    graph = h.make_graph(nodes, "net", infos[:1], infos[1:], doc_string="two results")
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9, producer_name="here")
    made.model_version = 3
    onnx.helper.set_model_props(made, {"author": "me"})
    return made


def options(**values: Any) -> SessionOptions:
    made = SessionOptions()
    made.add_free_dimension_override_by_name("rows", 2)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.fixture(scope="module")
def session() -> Any:
    return tilewright.InferenceSession(model().SerializeToString(), options())


def test_a_size_by_name_is_fixed(session: Any) -> None:
    assert session.get_inputs()[0].shape == [2, 3] and not session.compiled.is_dynamic
    with pytest.warns(RuntimeWarning, match="the model has no dynamic size 'columns'"):
        chosen = options()
        chosen.add_free_dimension_override_by_name("columns", 4)
        tilewright.InferenceSession(model(), chosen)


def test_lists_are_converted_and_run_options_are_taken(session: Any) -> None:
    (y,) = session.run(["y"], {"x": X.tolist()}, RunOptions())
    np.testing.assert_array_equal(y, -np.maximum(X, 0))
    with pytest.raises(ArgumentTypeError, match="run_options is a RunOptions, not dict"):
        session.run(None, {"x": X}, {})


def test_values_on_a_device(session: Any) -> None:
    x = OrtValue.ortvalue_from_numpy(X)
    assert (x.shape(), x.data_type(), x.element_type(), x.device_name()) == (
        [2, 3],
        "tensor(float)",
        1,
        "cpu",
    )
    assert x.tensor_size_in_bytes() == 24 and x.is_tensor() and x.has_value() and not x.is_tensor_sequence()
    r, y = session.run_with_ort_values(None, {"x": x})
    np.testing.assert_array_equal(r.numpy(), np.maximum(X, 0))
    np.testing.assert_array_equal(np.asarray(y), -np.maximum(X, 0))
    x.update_inplace(-X)
    (y,) = session.run_with_ort_values(["y"], {"x": x})
    np.testing.assert_array_equal(np.from_dlpack(y), -np.maximum(-X, 0))


def test_bound_memory(session: Any) -> None:
    bound = session.io_binding()
    assert isinstance(bound, IOBinding)
    with pytest.raises(ArgumentValueError, match="no result is bound: call bind_output first"):
        session.run_with_iobinding(bound)
    bound.bind_cpu_input("x", X)
    bound.bind_output("y")
    session.run_with_iobinding(bound)
    np.testing.assert_array_equal(bound.copy_outputs_to_cpu()[0], -np.maximum(X, 0))
    bound.clear_binding_outputs()
    memory, value = np.empty((2, 3), "float32"), OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    bound.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    bound.bind_output("r", "cpu", 0, np.float32, [2, 3], memory.ctypes.data)
    bound.bind_ortvalue_output("y", value)
    session.run_with_iobinding(bound)
    np.testing.assert_array_equal(memory, np.maximum(X, 0))
    np.testing.assert_array_equal(value.numpy(), -np.maximum(X, 0))
    bound.bind_ortvalue_output("y", OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32))
    with pytest.raises(ArgumentValueError, match=r"'y' is float32\[2, 3\], and float32\[3, 2\] is bound"):
        session.run_with_iobinding(bound)
    with pytest.raises(ArgumentValueError, match="there is no input 'z'; there are x"):
        bound.bind_cpu_input("z", X)
    with pytest.raises(ArgumentTypeError, match="addresses on cuda are not taken; bind an OrtValue"):
        bound.bind_input("x", "cuda", 0, np.float32, X.shape, 4096)


def test_a_callback_gets_the_results_or_the_error(session: Any) -> None:
    told: list[Any] = []
    for feed in ({"x": X}, {"x": X[0]}):
        done = threading.Event()
        session.run_async(["y"], feed, lambda *all_of: (told.append(all_of), done.set()), 7)  # noqa: B023
        assert done.wait(60)
    assert told[0][0][0].shape == (2, 3) and told[0][1:] == (7, "")
    assert told[1][0] == [] and "does not take an array of shape [3]" in told[1][2]


def test_what_the_file_says(session: Any) -> None:
    about = session.get_modelmeta()
    assert (about.graph_name, about.producer_name, about.version) == ("net", "here", 3)
    assert about.graph_description == "two results" and about.custom_metadata_map == {"author": "me"}
    assert session.get_overridable_initializers() == []
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert tilewright.get_available_providers()[0] == "CPUExecutionProvider"
    session.set_providers(["CPUExecutionProvider"])
    with pytest.raises(ArgumentValueError, match="a session is compiled for its providers"):
        session.set_providers(["CUDAExecutionProvider"])
    with pytest.raises(FrontendError, match="is not an ONNX model, or a damaged one"):
        tilewright.InferenceSession(b"junk")


def test_a_trace_of_the_kernels(tmp_path: Path) -> None:
    chosen = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "net_"))
    chosen.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL  # so that there are two kernels
    session = tilewright.InferenceSession(model(), chosen)
    with pytest.raises(ArgumentValueError, match="nothing was run yet"):
        session.end_profiling()
    session.run(None, {"x": X})
    path = session.end_profiling()
    assert path.startswith(str(tmp_path / "net_"))
    names = [e["name"] for e in json.loads(Path(path).read_text())["traceEvents"] if e.get("ph") == "X"]
    assert len(names) == 2, names


def test_options_warn_where_they_change_nothing(session: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = SessionOptions()
        chosen.log_severity_level = chosen.log_severity_level
    with pytest.warns(RuntimeWarning, match="the session configuration 'a.b' does nothing here"):
        chosen.add_session_config_entry("a.b", "1")
    assert chosen.get_session_config_entry("a.b") == "1"
    with pytest.warns(RuntimeWarning, match=r"RunOptions\.logid does nothing here"):
        RunOptions().logid = "x"
    with pytest.raises(ArgumentValueError, match="known are ORT_DISABLE_ALL, ORT_ENABLE_BASIC"):
        chosen.graph_optimization_level = 7
    with pytest.raises(
        ArgumentValueError, match="libraries of custom operators are made for onnxruntime alone"
    ):
        chosen.register_custom_ops_library("ops.so")
    with pytest.raises(ArgumentValueError, match=r"session\.compiled\.profile\(x\) works for all"):
        session.end_profiling()


def test_options_of_onnxruntime_itself() -> None:
    ort = pytest.importorskip("onnxruntime")
    theirs = ort.SessionOptions()
    theirs.intra_op_num_threads = 1
    theirs.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    ours = SessionOptions.of(theirs)
    assert (ours.intra_op_num_threads, ours.opt_level) == (1, 1)
    theirs.enable_mem_pattern = False
    with pytest.warns(RuntimeWarning, match=r"SessionOptions\.enable_mem_pattern does nothing here"):
        SessionOptions.of(theirs)
    with pytest.raises(ArgumentTypeError, match=r"sess_options is a SessionOptions, not builtins\.dict"):
        SessionOptions.of({})
