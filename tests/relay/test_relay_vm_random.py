"""Random programs over sizes that are not known: for each size they agree with the program built for that size."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.vm import VirtualMachine

# Which sizes stand for n and m: equal, one of them 1, both odd.
SIZES = [(4, 6), (1, 3), (6, 1), (2, 2)]
WEIGHT = np.linspace(-0.5, 0.5, 20, dtype="float32").reshape(5, 4)


class Program:
    """A program over x: (n, 4), y: (m, 4) and z: (n, m); `build` makes it for sizes, known or not."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def build(self, n: Any, m: Any) -> relay.Function:
        rng = random.Random(self.seed)
        params = [relay.var("x", shape=(n, 4)), relay.var("y", shape=(m, 4)), relay.var("z", shape=(n, m))]
        values = list(zip(params, ("n4", "m4", "nm"), strict=True))
        for _ in range(rng.randint(4, 8)):
            values.append(self.step(rng, values))
        picked = [v for v, _ in values[-3:]]
        return relay.Function(params, relay.Tuple(picked))

    def step(self, rng: random.Random, values: list[tuple[Any, str]]) -> tuple[Any, str]:
        """One more value; the letters say which sizes it has."""
        x, kind = rng.choice(values)
        same = [v for v, k in values if k == kind]
        choice = rng.randrange(11)
        if choice == 0:
            return relay.tanh(x) + relay.const(0.5), kind
        if choice == 1:
            return relay.multiply(x, rng.choice(same)), kind
        if choice == 2:
            return relay.nn.softmax(x), kind
        if choice == 3:
            return relay.subtract(x, relay.mean(rng.choice(same), axis=0, keepdims=True)), kind
        if choice == 4:
            return relay.transpose(x), kind[::-1]
        if choice == 5 and kind.endswith("4") and len(kind) == 2:
            made = relay.nn.relu(relay.nn.dense(x, relay.const(WEIGHT)))
            return relay.strided_slice(made, [0, 1], [2**31 - 1, 5]), kind
        if choice == 6:
            return relay.strided_slice(
                relay.concatenate([x, rng.choice(same)], 0), [0], [2**31 - 1], [2]
            ), kind
        if choice == 7:
            flat = relay.reshape(x, (-1,))
            return relay.reshape(relay.exp(flat * relay.const(0.1)), relay.shape_of(x)), kind
        if choice == 8:
            return relay.maximum(x, relay.sum(x, axis=-1, keepdims=True)), kind
        if choice == 9:
            return relay.broadcast_to(relay.max(x, axis=0, keepdims=True), relay.shape_of(x)), kind
        return relay.where(relay.greater(x, relay.const(0.0)), x, relay.zeros_like(x)), kind


def check(seed: int, sizes: list[tuple[int, int]], ways: int = 2) -> None:
    program = Program(seed)
    named = tvm.te.size_var("n"), tvm.te.size_var("m")
    rng = np.random.default_rng(seed)
    for n, m in (named, (relay.Any(), relay.Any()))[:ways]:
        vm = VirtualMachine(relay.vm.compile(program.build(n, m), "llvm"), tvm.cpu())
        for a, b in sizes:
            given = [rng.standard_normal(s).astype("float32") for s in ((a, 4), (b, 4), (a, b))]
            want = relay.create_executor("graph").evaluate(program.build(a, b))(*given)
            for got, right in zip(vm.run(*given), want, strict=True):
                np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_random_program() -> None:
    check(0, SIZES[:1], 1)


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_random_programs(seed: int) -> None:
    check(seed, SIZES)


# ---------------------------------------------------------------------------- branches and functions
ROW = relay.TensorType((relay.Any(),))
Meaning = Any  # from the values of the variables in scope to an array


class Control:
    """A random expression with names, branches, functions and tuples, and what it means in NumPy."""

    def __init__(self, seed: int) -> None:
        self.rng, self.count = random.Random(seed), 0

    def fresh(self, kind: Any = None) -> Any:
        self.count += 1
        return relay.Var(f"v{self.count}", kind)

    def make(self, depth: int, scope: list[Any]) -> tuple[Any, Meaning]:
        choice = self.rng.randrange(9) if depth else 0
        if choice <= 1:
            var = self.rng.choice(scope)
            return var, lambda env: env[var]
        a, mean_a = self.make(depth - 1, scope)
        if choice == 2:
            return relay.tanh(a), lambda env: np.tanh(mean_a(env))
        if choice == 3:
            b, mean_b = self.make(depth - 1, scope)
            return relay.subtract(a, b), lambda env: mean_a(env) - mean_b(env)
        if choice == 4:
            var = self.fresh()
            b, mean_b = self.make(depth - 1, [*scope, var])
            return relay.Let(var, a, b), lambda env: mean_b({**env, var: mean_a(env)})
        if choice == 5:
            b, mean_b = self.make(depth - 1, scope)
            c, mean_c = self.make(depth - 1, scope)
            test = relay.greater(relay.sum(a), relay.const(0.1))
            return relay.If(test, b, c), lambda env: mean_b(env) if mean_a(env).sum() > 0.1 else mean_c(env)
        if choice == 6:
            b, mean_b = self.make(depth - 1, scope)
            pair, i = relay.Tuple([a, b]), self.rng.randrange(2)
            return relay.TupleGetItem(pair, i), lambda env: (mean_a, mean_b)[i](env)
        param, name = self.fresh(ROW), self.fresh()
        body, mean = self.make(depth - 1, [*scope, param])
        if choice == 7:
            fn, arg = relay.Function([param], body, ROW), relay.Call(name, [a])
            made = relay.Let(name, fn, relay.Call(name, [arg]))
            return made, lambda env: mean({**env, param: mean({**env, param: mean_a(env)})})
        return self.loop(a, mean_a, param, body, mean)

    def loop(self, a: Any, mean_a: Meaning, param: Any, body: Any, mean: Meaning) -> tuple[Any, Meaning]:
        """The body three times over, by a function that calls itself."""
        count = relay.TensorType((), "int32")
        name, i = self.fresh(relay.FuncType([count, ROW], ROW)), self.fresh(count)
        again = relay.Call(name, [i - relay.const(1), body])
        fn = relay.Function([i, param], relay.If(relay.greater(i, relay.const(0)), again, param), ROW)

        def meaning(env: Any) -> Any:
            value = mean_a(env)
            for _ in range(3):
                value = mean({**env, param: value})
            return value

        return relay.Let(name, fn, relay.Call(name, [relay.const(3), a])), meaning


def check_control(seed: int) -> None:
    x = relay.Var("x", ROW)
    body, meaning = Control(seed).make(5, [x])
    vm = VirtualMachine(relay.vm.compile(relay.Function([x], body), "llvm"), tvm.cpu())
    for n in (3, 1):
        v = np.linspace(-0.7, 1, n, dtype="float32")
        np.testing.assert_allclose(vm.run(v).numpy(), meaning({x: v}), rtol=1e-4, atol=1e-5)
    assert vm.pool.report().used <= 64 * 2  # nothing is held but the last result


@pytest.mark.parametrize("seed", range(3))
def test_random_control_flow(seed: int) -> None:
    check_control(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 60))
def test_much_random_control_flow(seed: int) -> None:
    check_control(seed)
