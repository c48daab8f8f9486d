"""A float network on the chip, the classic way: quantized, packed, built, uploaded, and timed by the graph executor."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, rpc, vta
from tilewright.contrib import graph_executor, utils
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
    assert tvm.runtime.enabled("rpc")
    remote = rpc.LocalSession()
    device = remote.ext_dev(0)
    with vta.build_config(opt_level=3, disabled_pass={"AlterOpLayout"}):
        graph, library, left = relay.build(packed, target=target, params=params)
    folder = utils.tempdir()
    library.export_library(folder.relpath("graphlib.tar"))
    remote.upload(folder.relpath("graphlib.tar"))
    module = graph_executor.create(graph, remote.load_module("graphlib.tar"), device)
    image = np.random.default_rng(0).normal(size=(env.BATCH, 3, 32, 32))  # float64, which is rounded
    module.set_input(**left)
    module.set_input("data", image)
    simulator.clear_stats()
    cost = module.module.time_evaluator("run", device, number=2, repeat=1)()
    runs = 2 * 1 + 1  # one to warm up
    assert cost.mean > 0
    assert simulator.stats()["gemm_counter"] > runs * 100_000  # the convolutions did run on the chip
    answer = module.get_output(0, tvm.nd.empty((env.BATCH, 10), "float32", remote.cpu(0)))
    host = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    host.set_input("data", image.astype("float32"))
    host.run()
    np.testing.assert_array_equal(answer.numpy(), host.get_output(0).numpy())
