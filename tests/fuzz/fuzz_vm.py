"""Programs of the virtual machine: honest ones, changed into well-formed but hostile ones, then run."""

from __future__ import annotations

import copy
import json
import random
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

import tilewright as tvm
from fuzz import fuzzer
from fuzz.guarded import GuardedPool, guarded
from tilewright import relay
from tilewright.error import TVMError
from tilewright.runtime.errors import LoadError
from tilewright.runtime.params import save_param_dict
from tilewright.runtime.vm import Executable, VirtualMachine

Data = dict[str, Any]
Honest = tuple[Data, bytes, Any, list[Any]]  # the program, its constants, its library, arguments


def _rows(*shape: int) -> Any:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype="float32").reshape(shape)


# -- honest programs -----------------------------------------------------------------------------------
def _dense() -> Any:
    x = relay.var("x", shape=(relay.Any(), 8))
    y = relay.nn.relu(relay.nn.dense(x, relay.const(_rows(5, 8))) + relay.const(_rows(5)))
    return relay.Function([x], relay.reshape(y, (-1,))), [_rows(3, 8)]


def _broadcast() -> Any:
    a, b = relay.var("a", shape=(relay.Any(), 4)), relay.var("b", shape=(relay.Any(), 4))
    joined = relay.concatenate([relay.exp(a + b), b], axis=0)
    return relay.Function([a, b], relay.Tuple([joined, relay.sum(a, axis=0)])), [_rows(3, 4), _rows(1, 4)]


def _by_values() -> Any:
    x, n = relay.var("x", shape=(relay.Any(), 4)), relay.var("n", shape=(2,), dtype="int64")
    from tilewright.relay.op import dyn

    return relay.Function([x, n], dyn.reshape(relay.exp(x), n) + relay.const(1.0)), [
        _rows(2, 4),
        np.array([4, 2]),
    ]


def _loop() -> Any:
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(4, 4))
    i, t = relay.var("i", shape=(), dtype="int32"), relay.var("t", shape=(relay.Any(), 4))
    kind = relay.TensorType((relay.Any(), 4), "float32")
    loop = relay.Var("loop", relay.FuncType([relay.TensorType((), "int32"), kind], kind))
    step = relay.Call(loop, [i + relay.const(1), relay.nn.dense(t, w)])
    fn = relay.Function([i, t], relay.If(relay.less(i, relay.const(3)), step, t), kind)
    return relay.Function([x, w], relay.Let(loop, fn, relay.Call(loop, [relay.const(0), x]))), [
        _rows(2, 4),
        _rows(4, 4),
    ]


def _branch() -> Any:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(relay.Any(), 2))
    f = relay.Var("f")
    y = relay.var("y", shape=(relay.Any(), 2))
    inner = relay.Function([y], relay.tanh(y) + relay.sum(x))
    chosen = relay.If(c, relay.Tuple([x, relay.exp(x)]), relay.Tuple([relay.negative(x), x]))
    body = relay.Let(f, inner, relay.Call(f, [relay.TupleGetItem(chosen, 1)]))
    return relay.Function([c, x], body), [np.array(True), _rows(3, 2)]


@cache
def _honest(number: int) -> Honest:
    made, args = (_dense, _broadcast, _by_values, _loop, _branch)[number]()
    code, library = relay.vm.compile(made, "llvm").save()
    (length,) = struct.unpack("<Q", code[8:16])
    found = Executable.load_exec(code, library)
    params = save_param_dict({f"c{i}": c for i, c in enumerate(found.constants)})
    return json.loads(bytes(code[16 : 16 + length])), params, library, args


# -- damage --------------------------------------------------------------------------------------------
def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all entries of nested lists and tables."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from _places(value[key], (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _blocks(functions: list[Any]) -> list[Any]:
    """The lists of instructions, as far as they still look like it."""
    found = [_at(functions, path) for path in _places(functions)]
    return [
        v
        for v in found
        if isinstance(v, list) and v and all(isinstance(i, list) and i and isinstance(i[0], str) for i in v)
    ]


def _size(rng: random.Random, depth: int = 0) -> Any:
    if depth > 3 or rng.random() < 0.4:
        return rng.choice(
            [
                0,
                1,
                2,
                3,
                4,
                8,
                100,
                100000,
                2**31 - 1,
                2**31,
                2**32,
                2**63 - 1,
                -1,
                -4,
                f"s{rng.randrange(4)}",
            ]
        )
    return [
        rng.choice(["+", "-", "*", "//", "%", "min", "max"]),
        _size(rng, depth + 1),
        _size(rng, depth + 1),
    ]


def _dim(rng: random.Random) -> Any:
    return rng.choice([0, 1, 3, 4, 8, 100000, 2**31, 2**62, -1, "s0", "s1", "s2", "s3", _size(rng, 2)])


def _instruction(rng: random.Random, data: Data) -> list[Any]:
    """A new instruction that means something, over registers that may hold anything."""
    r, x = rng.randrange(8), rng.randrange(-2, 8)
    xs = [rng.randrange(-2, 8) for _ in range(rng.randrange(3))]
    f = rng.randrange(len(data["functions"]))
    captured = [
        rng.choice([["r", rng.randrange(6)], ["s", _dim(rng)], ["self"]]) for _ in range(rng.randrange(3))
    ]
    dims = [_dim(rng) for _ in range(rng.randrange(4))]
    return rng.choice(
        [
            ["size", rng.randrange(4), x, rng.randrange(3)],
            ["let", rng.randrange(4), _size(rng)],
            ["same", _dim(rng), _dim(rng), "x"],
            ["view", r, x, dims],
            ["view", r, x, dims],
            ["tuple", r, xs],
            ["get", r, x, rng.randrange(4)],
            ["get", r, x, rng.randrange(4)],
            ["move", r, x],
            ["kill", [r]],
            ["ret", x],
            ["closure", r, f, captured],
            ["call", r, f, captured, xs],
            ["apply", r, x, xs],
            ["recur", r, xs],
            ["tail", f, captured, xs],
            ["jump", x, xs],
            ["again", xs],
            ["if", x, [["ret", r]], [["move", r, x]]],
            ["shapes", [0, 1][: rng.randrange(1, 3)], rng.choice(["dyn.reshape", "dyn.zeros", "dyn.tile", "argwhere", "dyn.nn.pad"]), {"allowzero": 0}, xs],
            ["run", rng.randrange(max(1, len(data["kernels"]))), [*xs, ["o", 0]], [[r, "float32", dims]], dims[:1]],
        ]
    )  # fmt: skip


def _changed(rng: random.Random, data: Data) -> None:
    body = rng.choice(_blocks(data["functions"]) or [[]])
    match rng.randrange(8):
        case 0 | 1:
            body.insert(rng.randrange(len(body) + 1), _instruction(rng, data))
        case 2:
            if body:
                del body[rng.randrange(len(body))]
        case 3:
            if len(body) > 1:
                a, b = rng.sample(range(len(body)), 2)
                body[a], body[b] = body[b], body[a]
        case _:  # another value in the place of one
            paths = list(_places(data["functions"]))
            path = rng.choice(paths)
            old, holder = _at(data["functions"], path), _at(data["functions"], path[:-1])
            other: Callable[[], Any] = rng.choice(
                [
                    lambda: _at(data["functions"], rng.choice(paths)),
                    lambda: rng.randrange(-3, 9),
                    lambda: _dim(rng),
                    lambda: _size(rng),
                    lambda: rng.choice(["float32", "int64", "bool", "float64", "function", "tensor", None]),
                    lambda: old + rng.choice([-1, 1, 7, 10**6]) if isinstance(old, int) else old,
                ]
            )
            holder[path[-1]] = copy.deepcopy(other())


class _Slow(Exception):
    pass


@contextmanager
def _no_longer(seconds: float) -> Iterator[None]:
    """Programs may loop for ever, which does no harm: they are interrupted."""

    def stop(*_: Any) -> None:
        raise _Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@fuzzer("vm", seconds=15, gib=2, short=150)
def vm(rng: random.Random) -> str:
    """Hostile programs are refused when they are read or when they run; no kernel leaves its tensors."""
    honest, params, library, args = _honest(rng.randrange(5))
    data = json.loads(json.dumps(honest))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _changed(rng, data)
    try:
        text = json.dumps(data).encode()
    except (ValueError, RecursionError):
        return "no JSON"
    try:
        code = b"TWVM\1\0\0\0" + struct.pack("<Q", len(text)) + text + params
        found = Executable.load_exec(code, library)
        found.constants = [guarded(c.numpy()) for c in found.constants]
        machine = VirtualMachine(found, tvm.cpu())
        machine.pool, machine._program = GuardedPool(), None  # linked again with this pool
    except LoadError:
        return "refused when read"
    try:
        with _no_longer(1.0):
            result = machine.run(*(guarded(a) for a in args))
    except (TVMError, MemoryError):
        return "refused when run"
    except (TypeError, ValueError) as error:  # arguments of `main`, whose types may have been changed
        if "argument" not in str(error) and "takes" not in str(error) and "no function" not in str(error):
            raise
        return "other arguments"
    except _Slow:
        return "interrupted"
    for value in result if hasattr(result, "tag") else [result]:
        if hasattr(value, "numpy") and value.size < 1 << 26:
            value.numpy().tobytes()
    return "ran"
