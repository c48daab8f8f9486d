"""A float network on the chip, the classic way: quantized, packed, built, and run by the graph executor."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, vta
from tilewright.contrib import graph_executor
from tilewright.relay import testing
from tilewright.vta.testing import simulator
from tilewright.vta.top import graph_pack


@pytest.mark.slow
def test_a_quantized_network_gives_the_answer_of_the_host():
    env = vta.get_env()
    mod, params = testing.resnet.get_workload(
        batch_size=env.BATCH, num_classes=10, num_layers=18, image_shape=(3, 32, 32)
    )
    with (
        tvm.transform.PassContext(opt_level=3),
        relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]),
    ):
        mod = relay.quantize.quantize(mod, params=params)
    packed = graph_pack(
        mod["main"],
        env.BATCH,
        env.BLOCK_OUT,
        env.WGT_WIDTH,
        start_name="nn.conv2d",
        stop_name="nn.global_avg_pool2d",
    )
    target = tvm.target.Target(env.target, host=env.target_host)
    with vta.build_config(opt_level=3, disabled_pass={"AlterOpLayout"}):
        library = relay.build(packed, target=target, params=params)
    image = np.random.default_rng(0).normal(size=(env.BATCH, 3, 32, 32)).astype("float32")
    simulator.clear_stats()
    answer = _run(library, tvm.ext_dev(0), image)
    assert simulator.stats()["gemm_counter"] > 100_000  # the convolutions did run on the chip
    np.testing.assert_array_equal(answer, _run(relay.build(mod, "llvm", params=params), tvm.cpu(), image))


def _run(library, device, image):
    module = graph_executor.GraphModule(library["default"](device))
    module.set_input("data", image)
    module.run()
    return module.get_output(0).numpy()
