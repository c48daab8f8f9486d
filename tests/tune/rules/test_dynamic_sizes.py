"""Rules on programs with a dynamic size: each finds what it finds for a constant size, and computes any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.expr import Var, const
from tilewright.ir.functor import substitute
from tilewright.ir.module import IRModule
from tilewright.target import Target
from tilewright.tir.schedule import Schedule
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import Plan, plan_of
from tilewright.tune.program.facts import number
from tilewright.tune.program.stages import Stages

SIZES = (1, 7, 16, 33, 100)
LIKE = 257  # the constant that a dynamic size is compared with: odd, and near the size that is assumed
PLAIN_TARGETS = ("znver4", "haswell", "neoverse-n1", "sifive-u74")


def ph(*shape: Any, name: str = "x") -> Any:
    return te.placeholder(shape, name=name)


def matmul(m: Any, n: Any, k: Any, ta: bool = False, tb: bool = False) -> list[Any]:
    a = ph(*((k, m) if ta else (m, k)), name="a")
    b = ph(*((n, k) if tb else (k, n)), name="b")
    return [a, b, topi.matmul(a, b, ta, tb)]


def batched(shape_a: tuple[Any, ...], shape_b: tuple[Any, ...], tb: bool) -> list[Any]:
    a, b = ph(*shape_a, name="a"), ph(*shape_b, name="b")
    return [a, b, topi.nn.batch_matmul(a, b, transpose_b=tb)]


def dense(n: Any) -> list[Any]:
    x, w, b = ph(n, 64), ph(32, 64, name="w"), ph(32, name="b")
    return [x, w, b, topi.nn.relu(topi.nn.dense(x, w) + b)]


def conv(*shape: Any, stride: int = 1) -> list[Any]:
    x, w = ph(*shape), ph(16, 8, 3, 3, name="w")
    return [x, w, topi.nn.conv2d(x, w, stride, 1, 1)]


def channels_last(n: Any) -> list[Any]:
    x, w = ph(1, 14, n, 8), ph(3, 3, 8, 16, name="w")
    return [x, w, topi.nn.conv2d(x, w, 1, 1, 1, "NHWC")]


def depthwise(n: Any) -> list[Any]:
    x, w = ph(1, 16, n, 14), ph(16, 1, 3, 3, name="w")
    return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)]


def norm(*shape: Any) -> list[Any]:
    x, g, b = ph(*shape), ph(shape[1], name="g"), ph(shape[1], name="b")
    return [x, g, b, topi.nn.layer_norm(x, g, b, [1])]


def of(f: Callable[[Any], Any], *shape: Any) -> list[Any]:
    x = ph(*shape)
    return [x, f(x)]


def added(n: Any) -> list[Any]:
    x, y = ph(n, 40), ph(40, n, name="y")
    return [x, y, topi.add(x, topi.transpose(y))]


def broadcast(n: Any) -> list[Any]:
    x, y = ph(n, 33), ph(33, name="y")
    return [x, y, topi.add(x, y)]


def softmax(axis: int) -> Callable[[Any], Any]:
    return lambda x: topi.nn.softmax(x, axis=axis)


def summed(*axes: int) -> Callable[[Any], Any]:
    return lambda x: topi.sum(x, axis=axes)


PROGRAMS: dict[str, Callable[[Any], list[Any]]] = {
    "matmul, rows": lambda n: matmul(n, 64, 48),
    "matmul, columns": lambda n: matmul(40, n, 48),
    "matmul, sum": lambda n: matmul(40, 64, n),
    "matmul, few terms": lambda n: matmul(n, 64, 3),
    "matmul, one row": lambda n: matmul(1, n, 48),
    "matmul NT, rows": lambda n: matmul(n, 64, 48, tb=True),
    "matmul NT, columns": lambda n: matmul(24, n, 48, tb=True),
    "matmul NT, sum": lambda n: matmul(24, 64, n, tb=True),
    "matmul TN, rows": lambda n: matmul(n, 64, 48, ta=True),
    "matmul, batch": lambda n: batched((n, 16, 32), (n, 32, 24), False),
    "batched matmul, rows": lambda n: batched((3, n, 32), (3, 24, 32), True),
    "dense, batch": dense,
    "conv, batch": lambda n: conv(n, 8, 14, 14),
    "conv, height": lambda n: conv(1, 8, n, 14),
    "conv, width": lambda n: conv(1, 8, 14, n),
    "conv, width, stride 2": lambda n: conv(1, 8, 14, n, stride=2),
    "conv NHWC, width": channels_last,
    "depthwise, height": depthwise,
    "softmax, rows": lambda n: of(softmax(1), n, 100),
    "softmax, columns": lambda n: of(softmax(1), 20, n),
    "softmax, short rows": lambda n: of(softmax(1), n, 10),
    "softmax, axis 0": lambda n: of(softmax(0), 20, n),
    "softmax, axis 0, sum": lambda n: of(softmax(0), n, 20),
    "layer norm, rows": lambda n: norm(n, 100),
    "layer norm, columns": lambda n: norm(20, n),
    "elementwise": lambda n: of(lambda x: topi.tanh(x) + 1.0, n),
    "elementwise, rows": lambda n: of(lambda x: topi.tanh(x) + 1.0, n, 33),
    "elementwise, columns": lambda n: of(lambda x: topi.tanh(x) + 1.0, 33, n),
    "elementwise, middle": lambda n: of(lambda x: topi.tanh(x) + 1.0, 4, n, 16),
    "broadcast": broadcast,
    "sum of rows": lambda n: of(summed(1), n, 33),
    "sum of columns": lambda n: of(summed(1), 33, n),
    "sum over rows": lambda n: of(summed(0), n, 33),
    "sum over rows, columns": lambda n: of(summed(0), 33, n),
    "sum of all": lambda n: of(summed(0), n),
    "sum of two axes": lambda n: of(summed(1, 2), 4, n, 16),
    "sum of the middle": lambda n: of(summed(1), 4, n, 16),
    "sum around": lambda n: of(summed(0, 2), 4, n, 16),
    "max": lambda n: of(lambda x: topi.max(x, axis=1), n, 33),
    "argmax, rows": lambda n: of(lambda x: topi.argmax(x, axis=1), n, 33),
    "argmax, columns": lambda n: of(lambda x: topi.argmax(x, axis=1), 33, n),
    "argmax, axis 0": lambda n: of(lambda x: topi.argmax(x, axis=0), 33, n),
    "transpose, rows": lambda n: of(topi.transpose, n, 40),
    "transpose, columns": lambda n: of(topi.transpose, 40, n),
    "transpose, middle": lambda n: of(lambda x: topi.transpose(x, (0, 2, 1)), 3, n, 40),
    "transposed operand": added,
    "max pool": lambda n: of(
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), 1, 8, n, 14
    ),
    "concatenation": lambda n: of(lambda x: topi.concatenate([x, topi.tanh(x)], 1), n, 12),
}


def rules(plan: Plan) -> list[tuple[str, str]]:
    return [(c.stage.name, c.winner.rule.name) for c in plan.choices]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_rule_of_a_constant_size_is_found(name: str) -> None:
    for cpu in PLAIN_TARGETS:
        target = Target(f"llvm -mcpu={cpu} -num-cores=4")
        open_, fixed = (plan_of(te.create_prim_func(PROGRAMS[name](n)), target) for n in (te.var("n"), LIKE))
        assert rules(open_) == rules(fixed) != [], cpu


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_rule_computes_any_size(name: str) -> None:
    """The cheapest row of every rule that matches the first stage."""
    n, target = te.var("n"), Target("llvm -num-cores=2")
    tensors = PROGRAMS[name](n)
    func = te.create_prim_func(tensors)
    first = planned(func, target, None)
    built = {first.choices[0].winner.rule.name: first}
    for offer in first.choices[0].rivals:
        built[offer.rule.name] = planned(func, target, offer.rule.name)
    modules = {rule: tvm.build(plan.sch.mod, target=target) for rule, plan in built.items()}
    plain = tvm.build(func, target=target)
    for size in SIZES:
        rng = np.random.default_rng(size)
        shapes = [[sized(d, n, size) for d in t.shape] for t in tensors]
        given = [tvm.nd.array(rng.random(s).astype("float32")) for s in shapes[:-1]]
        wanted = tvm.nd.array(np.zeros(shapes[-1], str(tensors[-1].dtype)))
        plain(*given, wanted)
        for rule, module in modules.items():
            got = tvm.nd.array(np.full(shapes[-1], 7, str(tensors[-1].dtype)))
            module(*given, got)
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), 2e-5, 1e-5, err_msg=f"{rule}, {size}")


def planned(func: Any, target: Target, rule: str | None) -> Plan:
    sch = Schedule(IRModule({"main": func}))
    sch.explanation = Explanation(str(target))
    stages = Stages(sch, func, target, sch.explanation, frozenset())
    plan = Plan(stages, forced={} if rule is None else {0: rule})
    plan.run()
    return plan


def sized(dim: Any, n: Var, size: int) -> int:
    return number(substitute(dim, {n: const(size, n.dtype)}) if not isinstance(dim, int) else dim)
