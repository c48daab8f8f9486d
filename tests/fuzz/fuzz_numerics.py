"""Sums, products and conversions of random shapes and types, compiled automatically, beside exact arithmetic."""

from __future__ import annotations

import math
import random
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tvm
from fuzz import fuzzer
from tilewright import config, te, tir, topi
from tilewright.tune.program.long_sums import LONGEST

EPS = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SPECIALS = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-45, 3e38]


def drawn(rng: random.Random, shape: tuple[int, ...], kind: str, special: bool) -> np.ndarray:
    """Random elements: around 0, above it, far from it, of all sizes; with a few that are not finite, if asked."""
    g = np.random.default_rng(rng.randrange(1 << 32))
    how = rng.randrange(4)
    x = g.standard_normal(shape) if how != 1 else g.random(shape)
    x = x + 1000 if how == 2 else x * 10.0 ** g.integers(-3, 4, shape) if how == 3 else x
    x = x.astype(NARROW.get(kind, kind))
    if special:
        for _ in range(rng.randrange(1, 4)):
            x[tuple(rng.randrange(n) for n in shape)] = rng.choice(SPECIALS)
    return x


def length(rng: random.Random) -> int:
    """How many are added up: few, some, or more than a chain may have."""
    return rng.choice([rng.randrange(1, 70), rng.randrange(70, 3000), rng.randrange(LONGEST, 40_000)])


def program(rng: random.Random, kind: str) -> tuple[list[te.Tensor], list[tuple[int, ...]], str, int]:
    """Tensors, the shapes of the inputs, what it is in terms of NumPy, and the additions of a result."""
    k = length(rng)
    size: Any = te.var("k") if rng.random() < 0.2 else k
    if rng.random() < 0.5:
        m, n, turned = rng.randrange(1, 40), rng.randrange(1, 40), rng.random() < 0.5
        A = te.placeholder((m, size), kind, name="A")
        B = te.placeholder((n, size) if turned else (size, n), kind, name="B")
        C = topi.matmul(A, B, False, turned)
        return [A, B, C], [(m, k), (n, k) if turned else (k, n)], "a @ b.T" if turned else "a @ b", k
    m, axis = rng.randrange(1, 40), rng.randrange(2)
    shape = (size, m) if axis == 0 else (m, size)
    A = te.placeholder(shape, kind, name="A")
    how = rng.choice(["sum", "cumsum", "mean"]) if size is k else "sum"
    C = getattr(topi, how)(A, axis=axis)
    return [A, C], [(k, m) if axis == 0 else (m, k)], f"np.{how}(a, axis={axis})", k


def chain(k: int) -> int:
    """The longest chain of additions that a sum of k may have: short ones have one, long ones are added in blocks."""
    return k if k <= LONGEST else LONGEST + k // 512


@fuzzer("numerics", seconds=60, short=12)
def numerics(rng: random.Random) -> str:
    """Errors stay below what the length of the chains allows; what is not finite is where exact arithmetic has it."""
    if rng.random() < 0.3:
        return conversion(rng)
    kind = rng.choice([*EPS])
    tensors, shapes, meaning, k = program(rng, kind)
    special = rng.random() < 0.25
    arrays = [drawn(rng, s, kind, special) for s in shapes]
    names = dict(zip("ab", [a.astype("float64") for a in arrays], strict=False))
    sizes = dict(zip("ab", [np.abs(a) for a in names.values()], strict=False))
    with np.errstate(all="ignore"):
        exact = eval(meaning, {"np": np}, names)  # of the few texts above
        size = eval(meaning, {"np": np}, sizes)
    got = run(tensors, arrays, exact.shape, rng).astype("float64")
    held = min(EPS[kind], EPS["float32"])
    with np.errstate(all="ignore"):
        # n roundings, each of at most eps: n * eps / (1 - n * eps) of the sum of sizes, and that of the result
        steps = (chain(k) + 4) * held
        allowed = size * (steps / (1 - steps)) + np.abs(exact) * 1.01 * EPS[kind] + 1e-37
        largest = 6e4 if kind == "float16" else 3e38
        finite = np.isfinite(exact) & (size * 1.01 < largest)
        wrong = finite & ~(np.abs(got - exact) <= allowed)
        assert not wrong.any(), f"{meaning} of {shapes} in {kind}: {got[wrong][:3]} for {exact[wrong][:3]}"
    lost = np.isnan(exact) & ~np.isnan(got)
    assert not lost.any(), f"{meaning} of {shapes} in {kind}: {got[lost][:3]} where there is NaN"
    return f"{meaning.split('(')[0].split('.T')[0]} {kind}"


def run(tensors: list[te.Tensor], arrays: list[np.ndarray], shape: Any, rng: random.Random) -> np.ndarray:
    target = tvm.target.Target(f"llvm -num-cores={rng.randrange(1, 3)}")
    built = tvm.build(tvm.auto_schedule(tensors, target).mod, target=target)
    out = tvm.nd.empty(shape, tensors[-1].dtype)
    built(*map(tvm.nd.array, arrays), out)
    again = tvm.nd.empty(shape, tensors[-1].dtype)
    with config.using(num_threads=1):
        built(*map(tvm.nd.array, arrays), again)
    kept = out.numpy()
    assert kept.tobytes() == again.numpy().tobytes(), "one thread gives other bits than two"
    return kept


def conversion(rng: random.Random) -> str:
    """Conversions, compiled and interpreted: the same bits."""
    wide = ["float64", "float32", "int64", "uint64", "int32", "bool", "float16", "bfloat16"]
    source, kind = rng.choice(wide), rng.choice(["float16", "bfloat16", "float32", "float64", "bool"])
    g, size = np.random.default_rng(rng.randrange(1 << 32)), rng.randrange(1, 200)
    if source == "bool":
        given = g.integers(0, 256, size, dtype="uint8").view(np.bool_)
    elif source.startswith(("int", "uint")):
        given = g.integers(0, 1 << 63, size, dtype="uint64") >> np.uint64(rng.randrange(30))
        given = given.astype(source)
    else:
        exact = g.standard_normal(size) * 2.0 ** g.integers(-30, 30, size)
        with np.errstate(over="ignore"):
            near = exact.astype("float32").astype(ml_dtypes.bfloat16 if rng.random() < 0.5 else np.float16)
        exact = np.where(
            g.random(size) < 0.5, near.astype("float64") * (1 + 2.0 ** -rng.randrange(8, 40)), exact
        )
        exact[0] = rng.choice(SPECIALS)
        with np.errstate(all="ignore"):
            given = exact.astype(NARROW.get(source, source))
    A = te.placeholder((size,), source, name="A")
    B = te.compute((size,), lambda i: A[i].astype(kind), name="B")
    want = np.zeros(size, NARROW.get(kind, kind))
    tir.interpret(te.create_prim_func([A, B]), given, want)
    got = run([A, B], [given], (size,), rng)
    nan = (want != want) & (got != got)
    assert (got.view("uint8").reshape(size, -1) == want.view("uint8").reshape(size, -1))[~nan].all(), (
        f"{source} to {kind}: {given[got != want][:3]} is {got[got != want][:3]}, not {want[got != want][:3]}"
    )
    return f"{source} to {kind}"
