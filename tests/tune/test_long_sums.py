"""Long sums that are scheduled automatically: as exact as PyTorch's, and the same with one thread and with two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay, te, topi
from tilewright.tune.program.long_sums import LONGEST

torch = pytest.importorskip("torch")

Array = np.ndarray
DRAWS: dict[str, Callable[..., Array]] = {
    "normal": lambda rng, *s: rng.standard_normal(s),
    "uniform": lambda rng, *s: rng.random(s),
    "offset": lambda rng, *s: 1000 + rng.standard_normal(s),
}


def compiled(tensors: list[te.Tensor], threads: int) -> Any:
    target = tvm.target.Target(f"llvm -num-cores={threads}")
    return tvm.build(tvm.auto_schedule(tensors, target).mod, target=target)


def run(tensors: list[te.Tensor], arrays: list[Array], threads: int = 2) -> Array:
    sizes = {v: n for t, a in zip(tensors, arrays) for v, n in zip(t.shape, a.shape)}
    shape = [int(d) if isinstance(d, (int, tvm.tir.IntImm)) else sizes[d] for d in tensors[-1].shape]
    out = tvm.nd.empty(shape, tensors[-1].dtype)
    compiled(tensors, threads)(*map(tvm.nd.array, arrays), out)
    return out.numpy()


def matmul(m: int, k: Any, n: int, trans: bool = False, batch: int = 0, kind: str = "float32") -> Any:
    lead = (batch,) if batch else ()
    A = te.placeholder((*lead, m, k), kind, name="A")
    B = te.placeholder((*lead, n, k) if trans else (*lead, k, n), kind, name="B")
    r = te.reduce_axis((0, k), name="k")

    def element(*at: Any) -> Any:
        *b, i, j = at
        return te.sum(A(*b, i, r.var) * (B(*b, j, r.var) if trans else B(*b, r.var, j)), axis=r)

    return [A, B, te.compute((*lead, m, n), element, name="C")]


def unary(make: Callable[[te.Tensor], te.Tensor]) -> Callable[..., list[te.Tensor]]:
    def tensors(*shape: Any) -> list[te.Tensor]:
        A = te.placeholder(shape, name="A")
        return [A, make(A)]

    return tensors


def conv1d() -> list[te.Tensor]:
    A, W = te.placeholder((1, 4, 6000), name="A"), te.placeholder((8, 4, 5000), name="W")
    return [A, W, topi.nn.conv1d(A, W, 1, 0, 1)]


def conv2d() -> list[te.Tensor]:
    A, W = te.placeholder((1, 700, 9, 9), name="A"), te.placeholder((16, 700, 3, 3), name="W")
    return [A, W, topi.nn.conv2d(A, W, 1, 0, 1)]


n = te.var("n")
F = torch.nn.functional
rows = unary(lambda a: topi.sum(a, axis=1))
columns = unary(lambda a: topi.sum(a, axis=0))
# name: (tensors, shapes of the inputs, the same in PyTorch)
CASES: dict[str, tuple[Callable[[], list[te.Tensor]], list[tuple[int, ...]], Callable[..., Any]]] = {
    "product": (lambda: matmul(24, 100_000, 40), [(24, 100_000), (100_000, 40)], lambda a, b: a @ b),
    "product, prime": (lambda: matmul(9, 20_011, 33), [(9, 20_011), (20_011, 33)], lambda a, b: a @ b),
    "transposed": (lambda: matmul(8, 100_000, 8, True), [(8, 100_000), (8, 100_000)], lambda a, b: a @ b.T),
    "batch": (
        lambda: matmul(8, 30_000, 16, False, 3),
        [(3, 8, 30_000), (3, 30_000, 16)],
        lambda a, b: a @ b,
    ),
    "matvec": (lambda: matmul(1, 60_000, 64), [(1, 60_000), (60_000, 64)], lambda a, b: a @ b),
    "dot": (lambda: matmul(1, 500_000, 1), [(1, 500_000), (500_000, 1)], lambda a, b: a @ b),
    "symbolic": (lambda: matmul(16, n, 32), [(16, 50_000), (50_000, 32)], lambda a, b: a @ b),
    "conv1d": (conv1d, [(1, 4, 6000), (8, 4, 5000)], F.conv1d),
    "conv2d": (conv2d, [(1, 700, 9, 9), (16, 700, 3, 3)], F.conv2d),
    "sum": (
        lambda: unary(lambda a: topi.sum(a, keepdims=True))(10**7),
        [(10**7,)],
        lambda a: a.sum((0,), True),
    ),
    "rows": (lambda: rows(5, 10**6), [(5, 10**6)], lambda a: a.sum(1)),
    "rows, symbolic": (lambda: rows(5, n), [(5, 10**6)], lambda a: a.sum(1)),
    "columns": (lambda: columns(100_000, 20), [(100_000, 20)], lambda a: a.sum(0)),
    "columns, many": (lambda: columns(10_007, 300), [(10_007, 300)], lambda a: a.sum(0)),
    "mean": (lambda: unary(lambda a: topi.mean(a, axis=0))(200_000, 7), [(200_000, 7)], lambda a: a.mean(0)),
    "squares": (
        lambda: unary(lambda a: topi.sum(a * a, axis=0))(100_000, 16),
        [(100_000, 16)],
        lambda a: (a * a).sum(0),
    ),
    "softmax": (lambda: unary(topi.nn.softmax)(2, 300_000), [(2, 300_000)], lambda a: a.softmax(1)),
    "cumsum": (lambda: unary(lambda a: topi.cumsum(a, 0))(100_000), [(100_000,)], lambda a: a.cumsum(0)),
    "cumsum, rows": (
        lambda: unary(lambda a: topi.cumsum(a, 0))(30_001, 5),
        [(30_001, 5)],
        lambda a: a.cumsum(0),
    ),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_as_exact_as_pytorch(name: str, draw: str) -> None:
    make, shapes, theirs = CASES[name]
    rng = np.random.default_rng(7)
    arrays = [DRAWS[draw](rng, *s).astype("float32") for s in shapes]
    exact = theirs(*(torch.from_numpy(a.astype("float64")) for a in arrays)).numpy()
    beside = theirs(*(torch.from_numpy(np.abs(a.astype("float64"))) for a in arrays)).numpy()

    def error(got: Array) -> float:
        """The largest error relative to the sum of magnitudes, which bounds rounding where terms cancel."""
        return float((np.abs(got.astype("float64") - exact) / beside).max())

    ours = run(make(), arrays)
    allowed = 1.5 * error(theirs(*map(torch.from_numpy, arrays)).numpy())
    # below two roundings of a sum, and four of a softmax, whose exponential rounds too, all are equally exact
    assert error(ours) <= max(allowed, (4 if name == "softmax" else 2) * 2**-24)


@pytest.mark.parametrize("name", ["product", "product, prime", "dot", "columns, many", "conv2d", "symbolic"])
def test_one_thread_and_two(name: str) -> None:
    """A target of one core may be scheduled otherwise; the same kernel gives the same with any number of threads."""
    make, shapes, _ = CASES[name]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
    target = tvm.target.Target("llvm -num-cores=2")
    tensors = make()
    built = tvm.build(tvm.auto_schedule(tensors, target).mod, target=target)
    sizes = {v: m for t, x in zip(tensors, arrays) for v, m in zip(t.shape, x.shape)}
    results = []
    for threads in (1, 2):
        out = tvm.nd.empty([int(sizes.get(d, d)) for d in tensors[-1].shape], tensors[-1].dtype)
        with config.using(num_threads=threads):
            built(*map(tvm.nd.array, arrays), out)
        results.append(out.numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_other_types(kind: str) -> None:
    tensors = matmul(4, 20_000, 24, kind=kind) if kind == "float64" else None
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 20_000)).astype(kind), rng.random((20_000, 24)).astype(kind)
    exact = a.astype("longdouble") @ b.astype("longdouble")
    if tensors is None:
        A, B = te.placeholder(a.shape, kind, name="A"), te.placeholder(b.shape, kind, name="B")
        tensors = [A, B, topi.matmul(A, B)]
    error = np.abs(run(tensors, [a, b]).astype("longdouble") - exact).max() / exact.max()
    assert error < (1e-14 if kind == "float64" else 2**-11)


@pytest.mark.slow
def test_a_graph() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.random((3, 60_000)).astype("float32"), rng.random((32, 60_000)).astype("float32")
    out = relay.nn.dense(relay.var("x", shape=x.shape), relay.var("w", shape=w.shape))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out))
    got = relay.create_executor("graph", mod, target="llvm").evaluate()(x, w).numpy()
    exact = x.astype("float64") @ w.T.astype("float64")
    assert np.abs(got - exact).max() / exact.max() < 1e-6


def test_what_is_short_is_left_as_it_is() -> None:
    short, long = (tvm.auto_schedule(matmul(8, k, 32), "llvm") for k in (LONGEST, 2 * LONGEST))
    assert "part" not in short.mod.script() and "long sum" not in str(short.explanation)
    assert "C_local_part" in long.mod.script() or "C_part" in long.mod.script()
    assert "added in blocks of 512" in str(long.explanation)


def test_what_rounds_nothing_is_left_as_it_is() -> None:
    whole = tvm.auto_schedule(matmul(8, 100_000, 32, kind="int32"), "llvm")
    A = te.placeholder((3, 10**6), name="A")
    greatest = tvm.auto_schedule([A, topi.max(A, axis=0)], "llvm")
    assert "part" not in whole.mod.script() and "part" not in greatest.mod.script()
