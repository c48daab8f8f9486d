"""contrib.pipeline_executor: stages in threads of their own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import pipeline_executor_build as pb
from tilewright.contrib.pipeline_executor import PipelineModule

SHAPE = (2, 3)


def stage(work: Any, *names: str) -> Any:
    params = [relay.var(n, shape=SHAPE) for n in names]
    return tvm.IRModule.from_expr(relay.Function(params, work(*params)))


def three() -> tuple[Any, Any, Any]:
    """x -> (x + 1, x - 2) -> second: (a + y) * 2 -> third: b + c"""
    one = relay.const(1.0)
    first = stage(lambda x: relay.Tuple([x + one, x - relay.const(2.0)]), "x")
    second = stage(lambda a, y: (a + y) * relay.const(2.0), "a", "y")
    return first, second, stage(lambda b, c: b + c, "b", "c")


def connected() -> Any:
    first, second, third = three()
    config = pb.PipelineConfig()
    config["input"]["in0"].connect(config[first]["input"]["x"])
    config["input"]["in1"].connect(config[second]["input"]["y"])
    config[first]["output"][0].connect(config[second]["input"]["a"])
    config[first]["output"][1].connect(config[third]["input"]["c"])
    config[second]["output"][0].connect(config[third]["input"]["b"])
    config[third]["output"][0].connect(config["output"]["0"])
    return config


def wanted(x: Any, y: Any) -> Any:
    return (x + 1 + y) * 2 + (x - 2)


def data(i: int) -> Any:
    return np.full(SHAPE, i, "float32")


def test_text():
    assert repr(connected()).split("\n")[2:] == [
        "Inputs",
        "  |in0: mod0:x",
        "  |in1: mod1:y",
        "",
        "output",
        "  |output(0) : mod2.output(0)",
        "",
        "connections",
        "  |mod0.output(0)-> mod1.a",
        "  |mod0.output(1)-> mod2.c",
        "  |mod1.output(0)-> mod2.b",
    ]


def test_runs_are_in_order(tmp_path):
    factory = pb.build(connected())
    file = factory.export_library(str(tmp_path))
    for pipe in (PipelineModule(factory), PipelineModule.load_library(file)):
        for i in range(5):
            pipe.set_input("in0", data(i))
            pipe.set_input("in1", tvm.nd.array(data(10 * i)))
            pipe.run()
        for i in range(5):
            (got,) = pipe.get_output()
            np.testing.assert_allclose(got.numpy(), wanted(data(i), data(10 * i)))
        assert (pipe.num_inputs, pipe.num_outputs, pipe.num_executing_pipeline) == (2, 1, 5)
        assert pipe.get_input_pipeline_map("in1") == ["1", "y"]
        assert pipe.get_output(synchronize=False) == []


def test_stages_overlap():
    """The first stage starts its second run while the second stage is still in its first."""
    met = threading.Barrier(2, timeout=20)
    x = relay.var("x", shape=SHAPE)
    for name in ("left", "right"):
        tvm.register_func(f"relay.ext.{name}", _meeting(met), override=True)
    config = pb.PipelineConfig()
    mods = []
    for name in ("left", "right"):
        fn = relay.Function([x], relay.exp(x)).with_attr("Compiler", name)
        a = relay.var("a", shape=SHAPE)
        mods.append(tvm.IRModule.from_expr(relay.Function([a], fn(a))))
    config["input"]["in"].connect(config[mods[0]]["input"]["a"])
    config[mods[0]]["output"][0].connect(config[mods[1]]["input"]["a"])
    config[mods[1]]["output"][0].connect(config["output"][0])
    pipe = PipelineModule(pb.build(config))
    pipe.set_input("in", data(1))
    pipe.run()
    pipe.run()
    assert np.array_equal(pipe.get_output()[0].numpy(), data(1))
    pipe.get_output()
    for name in ("left", "right"):
        tvm.runtime.remove_global_func(f"relay.ext.{name}")


def _meeting(met: threading.Barrier) -> Any:
    """A code generator whose second stage waits, in its first call, for the second call of the first stage."""

    def generate(fn: Any) -> Any:
        calls: list[int] = []

        def call(a: Any, out: Any) -> None:
            calls.append(1)
            if len(calls) == (2 if fn.attrs["Compiler"] == "left" else 1):
                met.wait()
            out.copyfrom(a)

        return tvm.runtime.ExternalModule({str(fn.attrs["global_symbol"]): call})

    return generate


def test_parameters_of_a_stage():
    first = stage(lambda x: x * relay.const(np.full(SHAPE, 3, "float32")), "x")
    config = pb.PipelineConfig()
    config["param_group"]["p"].connect(config[first]["param"])
    config["input"]["in"].connect(config[first]["input"]["x"])
    config[first]["output"][0].connect(config["output"][0])
    factory = pb.build(config)
    pipe = PipelineModule(factory)
    (name,) = factory.pipeline_mods[0]["lib"].get_params()
    pipe.set_params("p", {name: tvm.nd.array(data(5))})
    pipe.set_input("in", data(2))
    pipe.run()
    np.testing.assert_allclose(pipe.get_output()[0].numpy(), data(10))
    with pytest.raises(tvm.TVMError, match="no group of parameters 'q'; it has: p"):
        pipe.set_params("q", {name: data(1)})
    with pytest.raises(tvm.TVMError, match="there are no parameters to set"):
        pipe.set_params("p", {})


def test_an_error_of_a_stage_is_raised_with_its_results():
    def call(*arrays: Any) -> None:
        raise ZeroDivisionError("stage")

    tvm.register_func(
        "relay.ext.broken", lambda fn: tvm.runtime.ExternalModule({"broken_0": call}), override=True
    )
    x, a = (relay.var(n, shape=SHAPE) for n in "xa")
    fn = relay.Function([x], relay.exp(x)).with_attr("Compiler", "broken")
    mod = tvm.IRModule.from_expr(relay.Function([a], fn(a)))
    config = pb.PipelineConfig()
    config["input"]["in"].connect(config[mod]["input"]["a"])
    config[mod]["output"][0].connect(config["output"][0])
    pipe = PipelineModule(pb.build(config))
    pipe.set_input("in", data(1))
    pipe.run()
    with pytest.raises(ZeroDivisionError, match="stage"):
        pipe.get_output()
    tvm.runtime.remove_global_func("relay.ext.broken")


def test_refused_connections():
    first, second, _ = three()
    config = pb.PipelineConfig()
    a, b = config[first], config[second]
    a["output"][0].connect(b["input"]["a"])
    cases = [
        (lambda: a["output"][0].connect(a["input"]["x"]), "both belong to the same stage"),
        (lambda: a["input"]["x"].connect(b["input"]["y"]), "inputs of the pipeline feed those of stages"),
        (
            lambda: config["output"]["0"].connect(a["output"][0]),
            "inputs of the pipeline feed those of stages",
        ),
        (lambda: b["output"][0].connect(a["input"]["x"]), "that would make a cycle of stages"),
        (lambda: a["output"][1].connect(b["input"]["a"]), "something feeds it already"),
        (lambda: a["output"][9], "no output 9; it has 2"),
        (lambda: a["input"]["z"], "no input 'z'; it has: x"),
        (lambda: config["inputs"], "no 'inputs'"),
    ]
    for work, told in cases:
        with pytest.raises(tvm.TVMError, match=told):
            work()


def test_an_input_without_a_value_is_refused():
    pipe = PipelineModule(pb.build(connected()))
    with pytest.raises(tvm.TVMError, match="no value for its input 'in0'"):
        pipe.run()
    with pytest.raises(tvm.TVMError, match="call run"):
        pipe.get_output()
