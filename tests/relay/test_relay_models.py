"""The networks of relay.testing, compiled, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.testing import inception_v3, mlp, mobilenet, resnet, squeezenet, synthetic, vgg

torch = pytest.importorskip("torch")


def _pool(name: str) -> Callable[..., Any]:
    def run(a: Any, x: Any) -> Any:
        f = torch.nn.functional
        pad = a.padding[:2]
        if name == "max":
            return f.max_pool2d(x, a.pool_size, a.strides, pad, ceil_mode=a.ceil_mode)
        return f.avg_pool2d(x, a.pool_size, a.strides, pad, a.ceil_mode, a.count_include_pad)

    return run


def _conv(a: Any, x: Any, w: Any) -> Any:
    return torch.conv2d(x, w, None, a.strides, a.padding[:2], a.dilation, a.groups)


def _norm(a: Any, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    return [torch.nn.functional.batch_norm(x, mean, var, gamma, beta, False, 0.0, a.epsilon)]


MEANING: dict[str, Callable[..., Any]] = {
    "nn.conv2d": _conv,
    "nn.batch_norm": _norm,
    "nn.relu": lambda a, x: torch.relu(x),
    "add": lambda a, x, y: x + y,
    "nn.bias_add": lambda a, x, b: x + b.reshape([-1 if i == a.axis % x.ndim else 1 for i in range(x.ndim)]),
    "nn.dense": lambda a, x, w: x @ w.T,
    "nn.batch_flatten": lambda a, x: x.flatten(1),
    "nn.softmax": lambda a, x: torch.softmax(x, a.axis),
    "nn.dropout": lambda a, x: [x],
    "nn.max_pool2d": _pool("max"),
    "nn.avg_pool2d": _pool("avg"),
    "nn.global_avg_pool2d": lambda a, x: x.mean((2, 3), keepdim=True),
    "concatenate": lambda a, xs: torch.cat(xs, a.axis),
}


def reference(mod: Any, params: Any, data: Any) -> Any:
    """The network by PyTorch, in float64."""
    given = {
        n: torch.from_numpy(v.numpy()).double() for n, v in {**params, "data": tvm.nd.array(data)}.items()
    }
    values: dict[Any, Any] = {}
    for e in relay.analysis.post_order(mod["main"].body):
        if isinstance(e, relay.Var):
            values[e] = given[e.name_hint]
        elif isinstance(e, relay.Tuple):
            values[e] = [values[f] for f in e.fields]
        elif isinstance(e, relay.TupleGetItem):
            values[e] = values[e.tuple_value][e.index]
        elif isinstance(e, relay.Call):
            values[e] = MEANING[e.op.name](e.attrs, *[values[a] for a in e.args])
    return values[mod["main"].body].numpy()


def check(workload: Any, level: int) -> Any:
    mod, params = workload
    data = next(p for p in mod["main"].params if p.name_hint == "data")
    x = np.random.default_rng(0).normal(size=data.checked_type.shape).astype("float32")
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(mod, "llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.run(data=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), reference(mod, params, x), rtol=2e-3, atol=2e-5)
    return lib


@pytest.mark.slow
def test_mlp() -> None:
    lib = check(mlp.get_workload(2, image_shape=(1, 5, 5)), 3)
    assert len(lib.model.steps) == 4


@pytest.mark.slow
def test_synthetic() -> None:
    check(synthetic.get_workload(input_shape=(1, 3, 8, 8)), 3)


@pytest.mark.sample(1)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
def test_resnet_18(level: int) -> None:
    lib = check(resnet.get_workload(1, num_classes=10, num_layers=18, image_shape=(3, 64, 64)), level)
    report = lib.memory_report()
    largest = 64 * 32 * 32 * 4
    assert report.arena <= 4 * largest


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: resnet.get_workload(1, num_classes=10, num_layers=50, image_shape=(3, 32, 32)),
        lambda: mobilenet.get_workload(1, num_classes=10, image_shape=(3, 64, 64), alpha=0.5),
        lambda: squeezenet.get_workload(1, num_classes=10, version="1.1", image_shape=(3, 64, 64)),
        lambda: vgg.get_workload(1, num_classes=10, image_shape=(3, 32, 32), batch_norm=True),
        lambda: inception_v3.get_workload(1, num_classes=10, image_shape=(3, 107, 107)),
    ],
    ids=["resnet50", "mobilenet", "squeezenet", "vgg11", "inception_v3"],
)
def test_networks(make: Callable[[], Any]) -> None:
    check(make(), 3)
