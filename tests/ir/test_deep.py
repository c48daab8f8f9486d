"""Programs that nest by the thousand: walked, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import NestingError
from tilewright.script import from_source

A, I = tir.decl_buffer((64,), "float32", "A"), tir.Var("i", "int32")


def sums(n: int, x: Any = A, i: Any = I) -> Any:
    e = x[i]
    for k in range(n):
        e = e + x[(i + k) % 64]
    return e


def choices(n: int, x: Any = A, i: Any = I) -> Any:
    e = x[i]
    for k in range(n):
        e = tir.Select(x[i] > float(k), te.max(e, x[i]), x[i])
    return e


def conditions(n: int, x: Any = A, i: Any = I) -> Any:
    c = x[i] > 0.0
    for k in range(n):
        c = tir.And(c, x[i] > float(k))
    return tir.Select(c, x[i], tir.const(2.0, "float32"))


def indices(n: int, x: Any = A, i: Any = I) -> Any:
    j = i
    for k in range(n):
        j = j + i * (k + 1) % 3
    return x[j % 64]


WALKS: dict[str, Callable[[Any, Callable[[], Any]], Any]] = {
    "text": lambda e, again: len(str(e)) > 10_000,
    "equality": lambda e, again: tvm.ir.structural_equal(e, again()),
    "hash": lambda e, again: tvm.ir.structural_hash(e) == tvm.ir.structural_hash(again()),
    "simplify": lambda e, again: tvm.arith.Analyzer().simplify(e) is not None,
    "substitute": lambda e, again: tir.stmt_functor.substitute(e, {I: te.var("z")}) is not e,
    "variables": lambda e, again: tir.analysis.undefined_vars(tir.Evaluate(e), [A.data]) == [I],
    "json": lambda e, again: tvm.ir.load_json(tvm.ir.save_json(e)) is not None,
}


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("make", [sums, choices, conditions, indices])
def test_five_thousand_levels_are_walked(make: Callable[..., Any], walk: str) -> None:
    assert WALKS[walk](make(5_000), lambda: make(5_000))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("walk", ["hash", "substitute", "simplify"])
def test_a_hundred_thousand_levels_are_refused_by_name(walk: str) -> None:
    e = A[I]
    for _ in range(100_000):
        e = e + 1.0
    with pytest.raises(
        NestingError, match=r"^the program nests too deeply: about 20,000 levels of an expression"
    ):
        WALKS[walk](e, lambda: e)


def test_what_would_be_astronomically_long_is_not_written_out() -> None:
    e = A[I]
    for _ in range(5_000):
        e = e * e
    assert str(e) == (
        "<an expression of 5002 nodes shares subexpressions so often that it has 10^1506 nodes when expanded>"
    )


def program(n: int) -> Any:
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: sums(n, x, i), name="y")
    return te.create_prim_func([x, y])


@pytest.mark.slow
def test_ten_thousand_terms_are_printed_read_scheduled_lowered_and_interpreted() -> None:
    func = program(10_000)
    tvm.ir.assert_structural_equal(from_source(func.script()), func)
    sch = tir.Schedule(func)
    (loop,) = sch.get_loops(sch.get_block("y"))
    sch.vectorize(sch.split(loop, [None, 8])[1])
    assert "A[" not in tvm.build(func, target="c").get_source()
    x, y = np.linspace(0, 1, 64, dtype="float32"), np.zeros(64, "float32")
    tir.interpret(func, x, y)
    want = x + sum(np.roll(x, -k % 64).astype("float64") for k in range(10_000))
    np.testing.assert_allclose(y, want, rtol=1e-3)


@pytest.mark.slow
def test_a_thousand_terms_are_compiled() -> None:
    x, y = np.linspace(0, 1, 64, dtype="float32"), np.zeros(64, "float32")
    tvm.build(program(1_000), target="llvm")(x, y)
    np.testing.assert_allclose(y, x + sum(np.roll(x, -k % 64) for k in range(1_000)), rtol=1e-4)


def constants(n: int, e: Any) -> Any:
    for k in range(n):
        e = e + (k % 7 + 0.5)
    return e


@pytest.mark.slow
@pytest.mark.parametrize(("terms", "marked"), [(1_000, False), (10_000, True)])
def test_llvm_does_not_vectorize_a_chain_of_thousands_of_operations(terms: int, marked: bool) -> None:
    # Its vectorizer takes time that grows with the square of the chain.
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: constants(terms, a[i]), name="b")
    built = tvm.build(te.create_prim_func([a, b]), target="llvm")
    assert ("llvm.loop.vectorize.enable" in built.text) is marked
    assert built.text.count("fadd") == terms
    x, y = np.linspace(0, 1, 64, dtype="float32"), np.zeros(64, "float32")
    built(x, y)
    np.testing.assert_allclose(y, x + sum(k % 7 + 0.5 for k in range(terms)), rtol=1e-5)


def test_many_short_chains_in_one_loop_are_vectorized() -> None:
    x = te.placeholder((64,), name="x")
    made = [
        te.compute((64,), lambda i, k=k: constants(50, x[i] * (k + 0.5)), name=f"y{k}") for k in range(60)
    ]
    sch = tir.Schedule(te.create_prim_func([x, *made]))
    sch.merge(*[sch.get_loops(f"y{k}")[0] for k in range(60)])
    text = tvm.build(sch.mod, target="llvm").text
    assert len(text[text.index("\nbody") :].split("\ndone")[0].splitlines()) > 2_048
    assert "llvm.loop.vectorize.enable" not in text
