"""Indices and divisors in data: models of one indexing operator, and integer division."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import fuzzer
from tilewright import IRModule, config, relay, te, tir
from tilewright import build as build_loops
from tilewright.error import DivisionByZeroError, OutOfBoundsError

KINDS = ["int32", "int64", "int64", "int16", "int8", "uint8", "uint32", "uint64"]
FAR = [2**31 - 1, 2**31, 2**32, 2**33, 2**63 - 1, -(2**31), -(2**33), -(2**63), 10**7, 100, -100]


def _indices(rng: random.Random, shape: list[int], sizes: list[int], kind: str, signed: bool) -> Any:
    """Random indices, most of them legal, along a dimension, or a row for each of several."""
    info = np.iinfo(kind)
    rows = []
    for n in sizes:
        low = -n if signed else 0
        flat = [rng.randrange(low, n) for _ in range(int(np.prod(shape)))]
        if flat and rng.random() < 0.4:
            bad = rng.choice([n, n + 1, low - 1, rng.choice(FAR)])
            flat[rng.randrange(len(flat))] = bad
        rows.append([min(max(v, int(info.min)), int(info.max)) for v in flat])
    return np.array(rows, object).astype(kind).reshape([len(sizes), *shape])


def _legal(index: Any, sizes: list[int], signed: bool) -> bool:
    rows = index.reshape(len(sizes), -1).astype(object)
    return all((-n if signed else 0) <= v < n for row, n in zip(rows, sizes, strict=True) for v in row)


def _case(rng: random.Random) -> tuple[Any, dict[str, Any], bool, Callable[[], Any] | None]:
    """(a call, its inputs, whether they are legal, what NumPy says)."""
    ndim = rng.randrange(1, 4)
    shape = [rng.randrange(1, rng.choice([4, 9, 40])) for _ in range(ndim)]
    data = np.array([rng.randrange(-99, 99) for _ in range(int(np.prod(shape)))], "float32").reshape(shape)
    kind, axis = rng.choice(KINDS), rng.randrange(ndim)
    x = relay.var("x", shape=shape)
    op = rng.choice(["take", "gather", "gather_nd", "scatter_elements", "scatter_nd", "adv_index"])
    n = shape[axis]
    if op in ("gather_nd", "scatter_nd", "adv_index"):
        count = rng.randrange(1, ndim + 1)
        points = [rng.randrange(1, 9)]
        index = _indices(rng, points, shape[:count], kind, True)
        i = relay.var("i", shape=index.shape, dtype=kind)
        places = tuple(index.astype("int64" if kind != "uint64" else object)[c] for c in range(count))
        legal = _legal(index, shape[:count], True)
        if op == "gather_nd":
            return (
                relay.gather_nd(x, i),
                {"x": data, "i": index},
                legal,
                lambda: data[tuple(p.astype(int) for p in places)],
            )
        if op == "adv_index":
            parts = [relay.squeeze(relay.strided_slice(i, [c], [c + 1], axes=[0]), [0]) for c in range(count)]
            return (
                relay.adv_index([x, *parts]),
                {"x": data, "i": index},
                legal,
                lambda: data[tuple(p.astype(int) for p in places)],
            )
        new = np.ones([*points, *shape[count:]], "float32")

        def added() -> Any:
            out = data.copy()
            np.add.at(out, tuple(p.astype(int) for p in places), new)
            return out

        u = relay.var("u", shape=new.shape)
        return relay.scatter_nd(x, i, u, "add"), {"x": data, "i": index, "u": new}, legal, added
    if op == "take":
        index = _indices(rng, [rng.randrange(1, 30)], [n], kind, True)[0]
        i = relay.var("i", shape=index.shape, dtype=kind)
        legal = _legal(index, [n], True)
        return (
            relay.take(x, i, axis=axis, mode="fast"),
            {"x": data, "i": index},
            legal,
            lambda: np.take(data, index.astype(int), axis),
        )
    size = [*shape[:axis], rng.randrange(1, 9), *shape[axis + 1 :]]
    index = _indices(rng, size, [n], kind, True)[0]
    i = relay.var("i", shape=index.shape, dtype=kind)
    legal = _legal(index, [n], True)
    if op == "gather":
        return (
            relay.gather(x, axis, i),
            {"x": data, "i": index},
            legal,
            lambda: np.take_along_axis(data, index.astype(int), axis),
        )
    new = np.ones(size, "float32")

    def scattered() -> Any:
        out = data.copy()
        at = list(np.indices(size))
        at[axis] = index.astype(int)
        np.add.at(out, tuple(at), new)
        return out

    u = relay.var("u", shape=new.shape)
    return relay.scatter_elements(x, i, u, axis, "add"), {"x": data, "i": index, "u": new}, legal, scattered


@fuzzer("indices", seconds=60, short=12)
def indices(rng: random.Random) -> str:
    """A model that indexes with data gives what NumPy gives, or an error that says which index is outside."""
    call, inputs, legal, wanted = _case(rng)
    if rng.random() < 0.3:
        call = relay.nn.relu(call)
        plain, wanted = wanted, lambda: np.maximum(plain(), 0)  # type: ignore[misc]
    mod = IRModule.from_expr(call)
    order = [p.name_hint for p in mod["main"].params]
    mode = rng.choice(["check", "check", "clamp"])
    with config.using(data_check=mode):
        f = relay.create_executor(rng.choice(["graph", "graph", "vm"]), mod).evaluate()
        try:
            got = f(*(inputs[name] for name in order)).numpy()
        except OutOfBoundsError as error:
            assert not legal and mode == "check" and "is out of bounds; the legal range is" in str(error)
            return "refused"
    if not legal:
        assert mode == "clamp", "an index outside was not found"
        assert np.isfinite(got).all() and abs(got).max() < 1000, "not the data of the model"
        return "held inside"
    np.testing.assert_array_equal(got, wanted())
    return "equal"


_DIVISIONS = ["floordiv", "floormod", "truncdiv", "truncmod"]
_MODEL_DIVISIONS = {
    "floordiv": "floor_divide",
    "floormod": "floor_mod",
    "truncdiv": "trunc_divide",
    "truncmod": "trunc_mod",
}


def _divided(name: str, a: Any, b: Any) -> Any:
    out = []
    for p, q in zip(a.astype(object), b.astype(object), strict=True):
        cut = 0 if q == 0 else abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        quotient = cut if name.startswith("trunc") else 0 if q == 0 else p // q
        out.append(quotient if name.endswith("div") else 0 if q == 0 else p - quotient * q)
    bits = a.dtype.itemsize * 8
    return np.array([v % (1 << bits) for v in out], object).astype(f"uint{bits}").view(a.dtype)


@fuzzer("division", seconds=60, short=12)
def division(rng: random.Random) -> str:
    """Integers of any type, divided by any: as NumPy in programs, and an error for a zero in a model."""
    kind, name, count = rng.choice(KINDS), rng.choice(_DIVISIONS), rng.randrange(1, 70)
    info = np.iinfo(kind)
    ends = [0, 1, int(info.min), int(info.max)] + ([-1] if info.min else [])

    def values() -> Any:
        drawn = [
            rng.choice(ends) if rng.random() < 0.3 else rng.randrange(int(info.min), int(info.max) + 1)
            for _ in range(count)
        ]
        return np.array(drawn, object).astype(kind)

    a, b = values(), values()
    wanted = _divided(name, a, b)
    if rng.random() < 0.4:
        x, d = relay.var("x", shape=a.shape, dtype=kind), relay.var("d", shape=b.shape, dtype=kind)
        call = getattr(relay, _MODEL_DIVISIONS[name])(x, d)
        try:
            got = relay.create_executor("graph", IRModule.from_expr(call)).evaluate()(a, b).numpy()
        except DivisionByZeroError as error:
            first = int(np.argmax(b == 0))
            assert (b == 0).any() and f"at position [{first}] is 0" in str(error)
            return "refused"
        assert not (b == 0).any(), "a zero was not found"
    else:
        x, d = te.placeholder(a.shape, kind, "x"), te.placeholder(b.shape, kind, "d")
        work = getattr(te, name)
        sch = tir.Schedule(te.create_prim_func([x, d, te.compute(a.shape, lambda i: work(x[i], d[i]), "c")]))
        if rng.random() < 0.5:
            loops = sch.split(sch.get_loops(sch.get_block("c"))[0], [None, rng.choice([4, 8, 16])])
            sch.vectorize(loops[1])
        got = np.empty_like(a)
        build_loops(sch.mod, target="llvm")(a, b, got)
    np.testing.assert_array_equal(got, wanted)
    return "equal"
