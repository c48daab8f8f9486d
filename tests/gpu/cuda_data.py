"""Indices and divisors in the data of models on a CUDA device: errors with the text of the processor's, and their cost."""

from __future__ import annotations

import re
import statistics
import threading
import warnings
from typing import Any

import numpy as np
from cuda_models import of_models

import tilewright as tvm
from tilewright import config, relay
from tilewright.contrib import graph_executor
from tilewright.error import DivisionByZeroError, OutOfBoundsError
from tilewright.runtime.devices import device_api

X = np.arange(12, dtype="float32").reshape(4, 3)


def fails(work: Any, kind: type[Exception] = OutOfBoundsError) -> str:
    """The text of the error that some work ends with."""
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def built(expr: Any, target: str, dev: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lib = relay.build(tvm.IRModule.from_expr(expr), target)
    return graph_executor.GraphModule(lib["default"](dev))


def operators() -> dict[str, Any]:
    x, i = relay.const(X), relay.var("i", shape=(1,), dtype="int64")
    wide = relay.broadcast_to(relay.reshape(i, (1, 1)), (1, 3))
    row, ones = relay.const(np.ones((1, 3), "float32")), relay.const(np.ones(4, "float32"))
    return {
        "take": relay.take(x, i, axis=0, mode="fast"),
        "gather": relay.gather(x, 0, wide),
        "gather_nd": relay.gather_nd(x, relay.reshape(i, (1, 1))),
        "adv_index": relay.adv_index([x, i]),
        "scatter_elements": relay.scatter_elements(x, wide, row, 0),
        "scatter_nd": relay.scatter_nd(x, relay.reshape(i, (1, 1)), row),
        "nll_loss": relay.nn.nll_loss(relay.const(X.reshape(3, 4)[:1]), i, ones, "sum"),
        "narrow": relay.take(x, relay.cast(i, "int16"), axis=0, mode="fast"),
    }


@of_models
def bad_indices(dev: Any) -> str:
    """Each operator launched, recorded and replayed, with good indices and bad ones in turns."""
    for name, expr in operators().items():
        here, there = built(expr, "llvm", tvm.cpu()), built(expr, "cuda", dev)
        for v in (1, 3, 4, 2, -5 if name != "nll_loss" else -1, 0, 7, 7, 3):
            results = []
            for executor in (here, there):

                def work(executor: Any = executor, v: int = v) -> Any:
                    executor.run(i=np.int64([v]))
                    return executor.get_output(0).numpy()

                good = 0 <= v < 4
                results.append(work() if good else fails(work))
            if good:
                np.testing.assert_allclose(results[1], results[0], err_msg=name)
            else:
                one, other = (re.sub(r"position \[0, \d\]", "", text) for text in results)
                assert one == other, results  # of several bad columns any one is named
        assert there.module._graphs is not None
    a, b = (relay.var(n, shape=(4,), dtype="int32") for n in "ab")
    divided = built(relay.floor_divide(a, b), "cuda", dev)
    for divisor in ([1, 2, 3, 4], [1, 2, 0, 4], [5, 6, 7, 8]):
        divided.run(a=np.int32([9, 9, 9, 9]), b=np.int32(divisor))
        if 0 in divisor:
            assert "divisor at position [2] is 0" in fails(divided.get_output(0).numpy, DivisionByZeroError)
        else:
            np.testing.assert_array_equal(divided.get_output(0).numpy(), 9 // np.int32(divisor))
    return ", ".join(operators())


@of_models
def reports_wait_for_nobody(dev: Any) -> None:
    """An error comes with the next wait, for the executor that it belongs to, in whatever thread asks."""
    expr = relay.take(relay.const(X), relay.var("i", shape=(2,), dtype="int64"), axis=0, mode="fast")
    lib = relay.build(tvm.IRModule.from_expr(expr), "cuda")
    one, two = (graph_executor.GraphModule(lib["default"](dev)) for _ in range(2))
    good, bad = (tvm.nd.array(np.int64(v), dev) for v in ([1, 2], [1, 7]))
    for _ in range(3):
        one.set_input_zero_copy("i", bad)
        two.set_input_zero_copy("i", good)
        for _ in range(3):
            two.run()
        one.run()
        assert "index 7 at position [1]" in fails(dev.sync)
        dev.sync()
        np.testing.assert_array_equal(two.get_output(0).numpy(), X[[1, 2]])
        one.run()
        said: list[Any] = []

        def read(said: list[Any] = said) -> None:
            said.append(two.get_output(0).numpy())
            said.append(fails(lambda: one.get_output(0).numpy()))

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        np.testing.assert_array_equal(said[0], X[[1, 2]])
        assert "index 7 at position [1]" in said[1]
        one.run()
        device_api(dev).sync(0)  # the driver's own, as another package would wait
        assert "index 7" in fails(one.run)  # seen before anything is launched again
        one.set_input_zero_copy("i", good)
        one.run()
        np.testing.assert_array_equal(one.get_output(0).numpy(), X[[1, 2]])


@of_models
def many_bad_indices(dev: Any) -> None:
    """All of 2^27 elements are bad: one is reported, and the kernel ends soon."""
    index = np.full((1 << 17,), 4, "int64")
    table = relay.var("x", shape=(4, 1024))
    expr = relay.take(table, relay.var("i", shape=index.shape, dtype="int64"), axis=0, mode="fast")
    executor = built(expr, "cuda", dev)
    executor.set_input("x", np.ones((4, 1024), "float32"))
    executor.set_input("i", index)
    executor.run()
    assert "index 4 at position" in fails(dev.sync)


def pairs() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Expressions over large tensors, with good indices."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((50000, 1024)).astype("float32")
    x = relay.var("x", shape=table.shape)
    few = rng.integers(-50000, 50000, (16384,))
    wide = rng.integers(0, 50000, (16384, 1024))
    points = rng.integers(0, 1024, (2, 1 << 22))
    i = [relay.var("i", shape=v.shape, dtype="int64") for v in (few, wide, points)]
    ids = rng.integers(-50000, 50000, (64,))
    return {
        "embedding": (relay.take(x, i[0], axis=0, mode="fast"), {"x": table, "i": few}),
        "embedding of 64": (
            relay.take(x, relay.var("i", shape=(64,), dtype="int64"), axis=0, mode="fast"),
            {"x": table, "i": ids},
        ),
        "gather": (relay.gather(x, 0, i[1]), {"x": table, "i": wide}),
        "gather_nd": (relay.gather_nd(x, i[2]), {"x": table, "i": points}),
    }


@of_models
def cost_of_checks(dev: Any) -> str:
    """Checked against clamped, in alternating samples."""
    told = []
    for name, (expr, given) in pairs().items():
        made = {}
        for mode in ("check", "clamp"):
            with config.using(data_check=mode):
                made[mode] = built(expr, "cuda", dev)
            for key, value in given.items():
                made[mode].set_input(key, value)
            for _ in range(3):
                made[mode].run()
        times: dict[str, list[float]] = {mode: [] for mode in made}
        for _ in range(15):
            for mode, executor in made.items():
                times[mode].append(executor.benchmark(dev, number=20, repeat=1).median)
        check, clamp = (statistics.median(times[mode]) for mode in ("check", "clamp"))
        told.append(f"{name} {clamp * 1e6:.1f} us, checked {check / clamp:.3f}")
    return "; ".join(told)
