"""Questions about programs: features, normal form, counts, kernels, who calls whom."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.analysis import (
    CallGraph,
    Feature,
    check_basic_block_normal_form,
    count_layers,
    detect_feature,
    extract_fused_functions,
    extract_intermdeiate_expr,
    get_total_mac_number,
    list_fake_quantized_op_freqs,
)

nn = relay.nn


def var(name: str = "x", *shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def test_features() -> None:
    x = var("x", 4)
    assert detect_feature(x) == {Feature.fVar}
    y = relay.exp(x)
    plain = {Feature.fVar, Feature.fCall, Feature.fOp}
    assert detect_feature(y) == plain
    assert detect_feature(y + y) == {*plain, Feature.fGraph}
    v = relay.var("v")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Let(v, y, relay.Tuple([v, relay.const(1.0)]))))
    wanted = {*plain, Feature.fLet, Feature.fTuple, Feature.fConstant, Feature.fFunction}
    assert detect_feature(mod) == detect_feature(mod["main"], mod) == wanted


def test_a_function_that_calls_itself() -> None:
    f, n = relay.var("f"), var("n", dtype="int32")
    loop = relay.Function([n], relay.Call(f, [n]))
    assert Feature.fLetRec in detect_feature(relay.Let(f, loop, relay.Call(f, [n])))
    assert Feature.fLetRec not in detect_feature(relay.Let(f, relay.Function([n], n), relay.Call(f, [n])))


def test_basic_block_normal_form() -> None:
    x, c, a = var("x", 4), var("c", dtype="bool"), relay.var("a")
    shared = relay.exp(x)
    assert not check_basic_block_normal_form(relay.If(c, shared, relay.tanh(shared)))
    named = relay.Let(a, shared, relay.If(c, a, relay.tanh(a)))
    assert check_basic_block_normal_form(named)
    assert check_basic_block_normal_form(shared + shared)
    before = tvm.IRModule.from_expr(relay.Function([x, c], relay.If(c, shared, relay.tanh(shared))))
    after = relay.transform.ToBasicBlockNormalForm()(before)
    assert check_basic_block_normal_form(after["main"])


def test_layers_along_the_longest_way() -> None:
    x = var("x", 1, 4, 8, 8)
    w = var("w", 4, 4, 3, 3)

    def conv(y: relay.Expr) -> relay.Expr:
        return nn.relu(nn.conv2d(y, w, padding=(1, 1)))

    func = relay.Function([x, w], conv(conv(x)) + conv(x))
    assert count_layers(func, ["nn.conv2d"]) == 2
    assert count_layers(func, ["nn.conv2d", "nn.relu", "add"]) == 5
    assert count_layers(func, []) == 0
    assert count_layers(tvm.IRModule.from_expr(func), ["nn.conv2d"]) == 2


def macs(y: relay.Expr) -> int:
    params = relay.analysis.free_vars(y)
    return get_total_mac_number(relay.transform.infer_type(relay.Function(params, y)))


def test_multiplications() -> None:
    x = var("x", 1, 4, 8, 8)
    assert macs(nn.conv2d(x, var("w", 6, 4, 3, 3), padding=(1, 1))) == 6 * 64 * 4 * 9
    assert macs(nn.conv2d(x, var("w", 4, 1, 3, 3), padding=(1, 1), groups=4)) == 4 * 64 * 9
    image = var("x", 1, 8, 8, 4)
    assert (
        macs(nn.conv2d(image, var("w", 3, 3, 4, 6), data_layout="NHWC", kernel_layout="HWIO")) == 6 * 36 * 36
    )
    assert macs(nn.conv2d_transpose(x, var("w", 4, 6, 2, 2), strides=(2, 2))) == 4 * 64 * 6 * 4
    assert macs(nn.relu(nn.dense(var("x", 5, 7), var("w", 3, 7)))) == 5 * 7 * 3
    assert macs(nn.batch_matmul(var("x", 2, 5, 7), var("w", 2, 3, 7))) == 2 * 5 * 7 * 3
    blocks = var("x", 1, 1, 8, 8, 4)
    packed = nn.contrib_conv2d_nchwc(
        blocks, var("w", 2, 1, 3, 3, 4, 3), channels=6, kernel_size=(3, 3), padding=(1, 1),
        data_layout="NCHW4c", kernel_layout="OIHW4i3o", out_layout="NCHW3c",
    )  # fmt: skip
    assert macs(packed) == 6 * 64 * 4 * 9
    with pytest.raises(tvm.TVMError, match="has no types"):
        get_total_mac_number(nn.dense(var("x", 5, 7), var("w", 3, 7)))


def test_what_lies_between_quantisations() -> None:
    q = relay.qnn.op
    x = var("x", 2, 4, dtype="int8")
    real = q.dequantize(x, relay.const(0.5), relay.const(0))
    w = q.dequantize(relay.const(np.ones((3, 4), "int8")), relay.const(0.1), relay.const(0))
    y = q.quantize(nn.relu(nn.dense(real, w)), relay.const(1.0), relay.const(0))
    z = q.quantize(relay.exp(var("z", 2)), relay.const(1.0), relay.const(0))
    mod = tvm.IRModule.from_expr(
        relay.Function(relay.analysis.free_vars(relay.Tuple([y, z])), relay.Tuple([y, z]))
    )
    assert list_fake_quantized_op_freqs(mod) == {"nn.dense": 1, "nn.relu": 1}


def test_kernels_and_parts_of_a_module() -> None:
    x = var("x", 4, 4)
    y = nn.softmax(relay.exp(nn.softmax(relay.exp(x))))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    kernels = extract_fused_functions(relay.transform.FuseOps(2)(mod))
    assert len(extract_fused_functions(mod)) == len(kernels)  # a module that is not fused is fused first
    assert sorted(relay.analysis.count_calls(k) for k in kernels.values()) == [1, 1]  # equal ones once
    part = extract_intermdeiate_expr(mod, 1)
    tvm.ir.assert_structural_equal(part["main"].body, nn.softmax(relay.exp(x)), map_free_vars=True)
    with pytest.raises(tvm.TVMError, match="the last one is %3"):
        extract_intermdeiate_expr(mod, 4)


def test_who_calls_whom() -> None:
    x, y = var("x", 4), var("y", 4)
    a, b, main = relay.GlobalVar("a"), relay.GlobalVar("b"), relay.GlobalVar("main")
    mod = tvm.IRModule(
        {
            a: relay.Function([x], relay.Call(b, [x])),
            b: relay.Function([y], relay.Call(a, [y])),
            main: relay.Function([x], relay.Call(a, [relay.Call(a, [x])])),
        }
    )
    graph = CallGraph(mod)
    assert graph.is_recursive("a") and graph.is_recursive(b) and not graph.is_recursive("main")
    assert [graph.ref_count(n) for n in ("a", "b", "main")] == [3, 1, 0]
    assert graph.global_call_count("main") == 2
    assert "<main> calls <a>" in str(graph)
    with pytest.raises(tvm.TVMError, match="no function @c"):
        graph.ref_count("c")
