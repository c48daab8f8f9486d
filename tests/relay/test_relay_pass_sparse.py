"""Models with sparse weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, topi
from tilewright.topi.sparse.utils import random_bsr_matrix

sp = pytest.importorskip("scipy.sparse")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape, "float32")


def blocks(rows: int, columns: int) -> np.ndarray:
    """A matrix in blocks of 4 by 1, a fifth of them not zero."""
    return np.asarray(random_bsr_matrix(rows, columns, 4, 1, 0.1, "float32").todense())


def run(func: Any, params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    lib = relay.build(tvm.IRModule.from_expr(func), "llvm", params=params)
    m = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.set_input("x", x)
    m.run()
    return m.get_output(0).numpy()


def names(func: Any) -> list[str]:
    return [p.name_hint for p in func.params]


def test_dense_layers() -> None:
    x = relay.var("x", shape=(2, 12))
    keep, w = relay.var("keep", shape=(8, 12)), relay.var("w", shape=(16, 8))
    func = relay.Function([x, keep, w], relay.nn.relu(relay.nn.dense(relay.nn.dense(x, keep), w)))
    params = {"keep": tvm.nd.array(floats(8, 12)), "w": tvm.nd.array(blocks(16, 8))}
    data = floats(2, 12)
    wanted = run(func, dict(params), data)
    made, params = relay.data_dep_optimization.bsr_dense.convert(func, params, (4, 1), 0.5)
    assert names(made) == ["x", "keep", "w.data", "w.indices", "w.indptr"]
    assert set(params) == set(names(made)) - {"x"} and "nn.sparse_dense" in str(made)
    np.testing.assert_allclose(run(made, params, data), wanted, 1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [1, 3])
def test_convolutions(layout: str, size: int) -> None:
    last = layout == "NHWC"
    weight = blocks(8, 4 * size**2)
    weight = weight.T.reshape(size, size, 4, 8) if last else weight.reshape(8, 4, size, size)
    x = relay.var("x", shape=(1, 6, 6, 4) if last else (1, 4, 6, 6))
    w = relay.var("w", shape=weight.shape)
    form = {"data_layout": layout, "kernel_layout": "HWIO" if last else "OIHW", "kernel_size": size}
    conv = relay.nn.conv2d(x, w, padding=size // 2, channels=8, **form)
    func = relay.Function([x, w], conv)
    params = {"w": tvm.nd.array(np.ascontiguousarray(weight))}
    data = floats(*x.type_annotation.shape)
    wanted = run(func, dict(params), data)
    bound = relay.build_module.bind_params_by_name(func, params)
    convert = relay.data_dep_optimization.bsr_conv2d
    made, params = convert.convert(func, params, (4, 1), 0.5, layout, size)
    assert "nn.sparse_conv2d" in str(made)
    np.testing.assert_allclose(run(made, params, data), wanted, 1e-4, 1e-5)
    constant, _ = convert.convert2(bound, {}, (4, 1), 0.5, layout, size)
    assert "nn.sparse_conv2d" in str(constant)
    np.testing.assert_allclose(run(constant, {}, data), wanted, 1e-4, 1e-5)


def test_what_a_sparse_convolution_cannot_do_stays() -> None:
    x, w = relay.var("x", shape=(1, 4, 6, 6)), relay.var("w", shape=(8, 4, 1, 1))
    for options in ({"strides": 2}, {"padding": 1}):
        func = relay.Function([x, w], relay.nn.conv2d(x, w, channels=8, kernel_size=1, **options))
        params = {"w": tvm.nd.array(blocks(8, 4).reshape(8, 4, 1, 1))}
        made, params = relay.data_dep_optimization.bsr_conv2d.convert(func, params, (4, 1), 0.5, "NCHW")
        assert names(made) == ["x", "w"] and list(params) == ["w"]


def test_a_weight_that_is_used_otherwise_stays() -> None:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(8, 8))
    func = relay.Function([x, w], relay.nn.dense(x, w) + relay.sum(w))
    assert relay.analysis.search_dense_op_weight(func) == []


def test_weights_are_stored_transposed() -> None:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(8, 4))
    func = relay.Function([x, w], relay.nn.dense(x, relay.transpose(w)))
    params, data = {"w": tvm.nd.array(floats(8, 4))}, floats(2, 8)
    wanted = data @ params["w"].numpy()
    made, params = relay.data_dep_optimization.simplify_fc_transpose.convert(func, params)
    assert names(made) == ["x", "w.T"] and "transpose" not in str(made)
    np.testing.assert_allclose(run(made, params, data), wanted, 1e-4)


def test_a_model_is_made_sparse() -> None:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(8, 16))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, relay.transpose(w))))
    made, params = topi.sparse.utils.convert_model_dense_to_sparse(
        mod, {"w": tvm.nd.array(floats(8, 16))}, random_params=True, bs_r=4, sparsity=0.85
    )
    assert "nn.sparse_dense" in str(made) and "w.T.data" in params


def test_sums_and_transposes_of_sparse_matrices() -> None:
    a = sp.csr_matrix(blocks(8, 8))
    x = relay.var("x", shape=(8, 8))
    added = relay.nn.sparse_add(x, tuple(map(relay.const, (a.data, a.indices, a.indptr))))
    np.testing.assert_allclose(run(relay.Function([x], added), {}, floats(8, 8)), floats(8, 8) + a.toarray())
    turned = relay.nn.sparse_transpose(a)
    out = relay.nn.sparse_dense(x, (turned[0], turned[1], turned[2]))
    data = floats(8, 8)
    np.testing.assert_allclose(run(relay.Function([x], out), {}, data), data @ a.toarray(), 1e-4)
