"""ConvertLayout and AlterOpLayout."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count, rand

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn = relay.nn
NHWC = {"nn.conv2d": ["NHWC", "default"]}
LOOSE = {"rtol": 1e-4, "atol": 1e-4}


def image(channels=16, size=8):
    return relay.var("x", shape=(1, channels, size, size))


def test_convert_written_out():
    x, w = image(3), relay.var("w", shape=(4, 3, 3, 3))
    before = relay.Function([x, w], nn.relu(nn.conv2d(x, w, padding=(1, 1))))
    y = nn.conv2d(
        relay.layout_transform(x, "NCHW", "NHWC"),
        relay.layout_transform(w, "OIHW", "HWIO"),
        padding=(1, 1),
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    expected = relay.Function([x, w], relay.layout_transform(nn.relu(y), "NHWC", "NCHW"))
    check(before, T.ConvertLayout(NHWC), expected, **LOOSE)


@pytest.mark.slow
def test_convert_there_is_nothing_between_neighbours():
    x = image()
    y = nn.relu(nn.bias_add(nn.conv2d(x, rand(16, 16, 3, 3), padding=1), rand(16)))
    y = nn.conv2d(y, rand(16, 16, 1, 1)) + y
    y = nn.batch_norm(y, *(rand(16, seed=i, positive=True) for i in range(4)))[0]
    y = nn.max_pool2d(y * rand(16, 1, 1), (2, 2), (2, 2))
    y = nn.avg_pool2d(nn.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3))
    y = relay.concatenate([y, nn.conv2d(y, rand(8, 16, 1, 1))], axis=1)
    before = relay.Function([x], relay.mean(relay.clip(y, 0, 6), axis=[2, 3]))
    after = check(before, T.ConvertLayout(NHWC), **LOOSE)
    assert count(after, "layout_transform") == 1 + 3 + 1  # the input, three kernels, one factor


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NHWC", "NCHW16c"])
def test_operators_that_follow(layout):
    x = image()
    y = nn.conv2d(x, rand(32, 16, 3, 3))
    parts = relay.split(y, 2, axis=1)
    z = parts[0] + parts[1] * relay.const(2.0)
    z = relay.strided_slice(z, [0, 0, 1, 0], [1, 16, 6, 6], [1, 1, 2, 1])
    z = nn.global_avg_pool2d(z) * z
    z = relay.where(relay.greater(z, relay.const(0.0)), z, relay.exp(z))
    before = relay.Function(
        [x], relay.Tuple([relay.squeeze(nn.global_max_pool2d(z), [2, 3]), relay.sum(z, axis=[1])])
    )
    after = check(before, T.ConvertLayout({"nn.conv2d": [layout, "default"]}), **LOOSE)
    assert count(after, "layout_transform") <= 3


@pytest.mark.slow
def test_softmax_and_argmax_along_channels():
    x = image(4)
    y = nn.conv2d(x, rand(6, 4, 1, 1))
    before = relay.Function([x], relay.Tuple([nn.softmax(y, axis=1), relay.argmax(y, axis=1)]))
    after = check(before, T.ConvertLayout(NHWC), **LOOSE)
    softmax = next(c for c in relay.analysis.call_graph_order(after) if c.op.name == "nn.softmax")
    assert softmax.attrs.axis == 3


def test_an_operator_without_a_rule_gets_its_operands_back():
    x = image(4)
    before = relay.Function([x], nn.dense(nn.batch_flatten(nn.conv2d(x, rand(2, 4, 3, 3))), rand(5, 72)))
    after = check(before, T.ConvertLayout(NHWC), **LOOSE)
    flat = next(c for c in relay.analysis.call_graph_order(after) if c.op.name == "nn.batch_flatten")
    assert flat.args[0].op.name == "layout_transform" and flat.args[0].attrs.dst_layout == "NCHW"


def test_transposes_around_convolutions_vanish():
    x = relay.var("x", shape=(1, 8, 8, 4))  # a program in NHWC that convolves in NCHW
    y = nn.conv2d(relay.transpose(x, (0, 3, 1, 2)), rand(6, 4, 3, 3))
    y = relay.transpose(y, (0, 2, 3, 1))
    y = nn.conv2d(relay.transpose(nn.relu(y), (0, 3, 1, 2)), rand(6, 6, 1, 1))
    after = check(relay.Function([x], relay.transpose(y, (0, 2, 3, 1))), T.ConvertLayout(NHWC), **LOOSE)
    assert count(after, "transpose") == 1  # that of the input; the result is in its order already


def test_to_nchw_from_nhwc_with_groups():
    x = relay.var("x", shape=(1, 8, 8, 4))
    y = nn.conv2d(x, rand(3, 3, 1, 4), groups=4, data_layout="NHWC", kernel_layout="HWIO")
    after = check(relay.Function([x], y), T.ConvertLayout({"nn.conv2d": ["NCHW", "default"]}), **LOOSE)
    conv = next(c for c in relay.analysis.call_graph_order(after) if c.op.name == "nn.conv2d")
    assert (conv.attrs.data_layout, conv.attrs.kernel_layout) == ("NCHW", "OIHW")


def test_channels_that_do_not_part_stay():
    x = image(3)
    before = relay.Function([x], nn.conv2d(x, rand(16, 3, 3, 3)))
    check(before, T.ConvertLayout({"nn.conv2d": ["NCHW16c", "default"]}), before, **LOOSE)


def test_pooling_can_be_asked_for_too():
    x = image(4)
    after = check(relay.Function([x], nn.max_pool2d(x, (2, 2))), T.ConvertLayout({"nn.max_pool2d": ["NHWC"]}))
    assert count(after, "layout_transform") == 2


def test_the_layouts_must_be_a_list_of_a_known_operator():
    mod = tvm.IRModule.from_expr(relay.Function([], relay.zeros((1,), "float32")))
    with pytest.raises(tvm.TVMError, match="are a list such as"):
        T.ConvertLayout({"nn.conv2d": "NHWC"})(mod)
    with pytest.raises(ValueError, match="no graph operator"):
        T.ConvertLayout({"nn.conv2": ["NHWC"]})(mod)


@pytest.mark.slow
def test_alter_packs_channels_and_folds_weights():
    x = image(16)
    y = nn.relu(nn.bias_add(nn.conv2d(x, rand(32, 16, 3, 3), padding=1), rand(32)))
    y = nn.conv2d(y, rand(32, 1, 3, 3), padding=1, groups=32) + y
    y = nn.max_pool2d(nn.conv2d(y, rand(8, 32, 1, 1)), (2, 2), (2, 2))
    after = check(relay.Function([x], y), [T.AlterOpLayout(), T.FoldConstant()], **LOOSE)
    # the input, from blocks of 16 to blocks of 8, and the result
    assert count(after, "layout_transform") == 3
    convs = [c for c in relay.analysis.call_graph_order(after) if c.op.name == "nn.conv2d"]
    assert [c.attrs.kernel_layout for c in convs] == ["OIHW16i16o", "OIHW16o", "OIHW8i8o"]
    assert all(isinstance(c.args[1], relay.Constant) for c in convs)


def test_alter_by_the_operators_own_wish():
    x, w = image(16), relay.var("w", shape=(16, 16, 3, 3))

    def wish(attrs, inputs, tinfos, out_type):
        data, weight = inputs
        assert tuple(tinfos[0].shape) == (1, 16, 8, 8) and tuple(out_type.shape) == (1, 16, 6, 6)
        return nn.conv2d(data, weight * relay.const(2.0), data_layout="NCHW8c", kernel_layout="OIHW8i8o")

    op = relay.op.get("nn.conv2d")
    op.set_attr("FTVMAlterOpLayout", wish)
    try:
        after = apply(relay.Function([x, w], nn.conv2d(x, w)), T.AlterOpLayout())
    finally:
        op.reset_attr("FTVMAlterOpLayout")
    y = nn.conv2d(
        relay.layout_transform(x, "NCHW", "NCHW8c"),
        relay.layout_transform(w * relay.const(2.0), "OIHW", "OIHW8i8o"),
        data_layout="NCHW8c",
        kernel_layout="OIHW8i8o",
    )
    expected = relay.Function([x, w], relay.layout_transform(y, "NCHW8c", "NCHW"))
    tvm.ir.assert_structural_equal(after, T.infer_type(expected))


@pytest.mark.slow
def test_operands_of_one_channel_beside_packed_ones():
    x, m = image(16), relay.var("m", shape=(1, 1, 6, 6))
    before = relay.Function([x, m], nn.conv2d(x, rand(16, 16, 3, 3)) * m + relay.sigmoid(m))
    check(before, T.AlterOpLayout(), **LOOSE)


@pytest.mark.slow
def test_quantised_convolutions():
    qnn = relay.qnn.op
    x = relay.var("x", shape=(1, 4, 6, 6), dtype="int8")
    w = relay.const(np.random.default_rng(0).integers(-9, 9, (8, 4, 3, 3)).astype("int8"))
    scales = relay.const(np.linspace(0.1, 0.8, 8, dtype="float32"))
    y = qnn.conv2d(x, w, 1, 0, 0.5, scales, kernel_size=(3, 3), channels=8, padding=(1, 1))
    y = qnn.requantize(y, scales, 0, 1.0, 2, axis=1)
    z = qnn.add(y, nn.relu(y), 1.0, 2, 1.0, 2, 2.0, 0)
    before = relay.Function([x], qnn.dequantize(z, 2.0, 0))
    after = check(before, T.ConvertLayout({"qnn.conv2d": ["NHWC", "default"]}))
    assert count(after, "layout_transform") == 3  # the input, the kernel, the result


def test_nothing_to_do_is_the_same_module():
    x = image(3)
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], nn.relu(x))))
    assert T.AlterOpLayout()(mod) is mod and T.ConvertLayout(NHWC)(mod) is mod


def test_a_deep_network():
    x = image(16, 4)
    y, w = x, rand(16, 16, 1, 1)
    for _ in range(1000):
        y = nn.relu(nn.conv2d(y, w))
    after = apply(relay.Function([x], y), T.ConvertLayout(NHWC))
    assert count(after, "layout_transform") == 3


def test_normalisations_follow():
    x, w = image(4), rand(4, 4, 3, 3)
    for norm in (nn.instance_norm, lambda *a: nn.layer_norm(*a, axis=1)):
        y = norm(nn.conv2d(x, w, padding=1), rand(4, seed=2), rand(4, seed=3))
        after = check(relay.Function([x], nn.relu(y)), T.ConvertLayout(NHWC), **LOOSE)
        assert count(after, "layout_transform") == 3  # the input, the kernel, the result


def test_a_rule_of_the_program_acts_at_level_3():
    x, w = image(4), relay.var("w", shape=(4, 4, 3, 3))
    func = relay.Function([x, w], nn.relu(nn.conv2d(x, w)))

    def doubled(attrs, inputs, types, out_type):
        return nn.conv2d(inputs[0], inputs[1] * relay.const(2.0), **attrs)

    changed = relay.testing.temp_op_attr.TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", doubled)
    with changed, tvm.transform.PassContext(opt_level=3):
        after = tvm.transform.Sequential([T.AlterOpLayout()])(tvm.IRModule.from_expr(func))
        built, _ = relay.optimize(func, "llvm")
    assert count(after["main"], "multiply") == 1
    assert count(built["main"], "multiply") == 1
    packed = T.AlterOpLayout(pack=False)(tvm.IRModule.from_expr(func))
    assert count(packed["main"], "layout_transform") == 0


def test_an_operand_beside_blocked_channels():
    x, w, z = (
        relay.var(n, shape=s) for n, s in (("x", (1, 2, 3, 3, 4)), ("w", (2, 2, 1, 1, 4, 4)), ("z", (3, 4)))
    )
    y = nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OIHW4i4o", kernel_size=(1, 1), channels=8)

    def plain(attrs, inputs, types, out_type):
        return nn.conv2d(*inputs, **{**dict(attrs.items()), "data_layout": "NCHW", "kernel_layout": "OIHW"})

    parts = [
        y + z,
        relay.strided_slice(y, [0, 0], [1, 2], [1, 2]),
        relay.concatenate([y, y], 1),
        relay.sum(y, 1),
    ]
    for made in (*parts, nn.relu(y)):
        with relay.testing.temp_op_attr.TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", plain):
            after = check(relay.Function([x, w, z], made), T.AlterOpLayout(), **LOOSE)
        assert count(after, "layout_transform") == 3  # both operands, and the result
