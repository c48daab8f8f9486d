"""Small ONNX models of operators outside the standard, run here and in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

from tilewright.contrib import onnx_backend  # noqa: E402

MS = "com.microsoft"
ML = "ai.onnx.ml"


def one_node(
    op: str,
    domain: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    constants: Sequence[str] = (),
    opset: int = 21,
    version: int = 1,
) -> Any:
    """A model of one node. `inputs` are its inputs by name in order, None for one that is left out."""
    given = {k: np.asarray(v) for k, v in inputs.items() if v is not None}
    node = helper.make_node(
        op, [k if k in given else "" for k in inputs], list(outputs), domain=domain, **(attrs or {})
    )
    kinds = {k: helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in given.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(k, kinds[k], v.shape) for k, v in given.items() if k not in constants],
        [helper.make_empty_tensor_value_info(o) for o in outputs if o],
        [numpy_helper.from_array(given[k], k) for k in constants if k in given],
    )
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, version))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def by_onnxruntime(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def check(
    op: str,
    domain: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    constants: Sequence[str] = (),
    tol: float = 2e-5,
    step: int = 0,
    **more: Any,
) -> list[Any]:
    """The same results as onnxruntime's; integers within `step`."""
    model = one_node(op, domain, inputs, attrs, outputs, constants, **more)
    feeds = {k: np.asarray(v) for k, v in inputs.items() if v is not None and k not in constants}
    wanted = by_onnxruntime(model, feeds)
    found = list(onnx_backend.run_model(model, dict(feeds)))
    for f, w in zip(found, wanted, strict=True):
        w = np.asarray(w)
        assert f.shape == w.shape and f.dtype == w.dtype, (f.shape, w.shape, f.dtype, w.dtype)
        if w.dtype.kind == "f":
            np.testing.assert_allclose(f, w, rtol=tol, atol=tol)
        else:
            np.testing.assert_allclose(f.astype(np.int64), w.astype(np.int64), rtol=0, atol=step)
    return found
