"""Parallel loops of dynamic size: how much they do, and that small ones run on the calling thread."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright.arith import Analyzer
from tilewright.codegen.llvm.trips import operations
from tilewright.ir.expr import const_value
from tilewright.ir.functor import pre_order, substitute
from tilewright.ir.stmt import For
from tilewright.script import tir as T


@T.prim_func
def dynamic(a: T.handle, b: T.handle):
    n = T.int32(is_size_var=True)
    m = T.int32(is_size_var=True)
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n, m))
    for i in T.parallel(n):
        for j in range(m):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)


@T.prim_func
def fixed(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i in T.parallel(8):
        for j in range(4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)


@T.prim_func
def read_inside(A: T.Buffer((8, 4), "float32")):
    for i in T.parallel(8):
        s = T.alloc_buffer((1,), "int32")
        with T.block("s"):
            vi = T.axis.spatial(8, i)
            s[0] = vi
        for j in range(s[0]):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                T.reads(s[0])
                T.writes(A[vi, 0:4])
                A[vi, j % 4] = T.float32(1)


def parallel_loop(func):
    (lowered,) = tvm.lower(func).functions.values()
    return next(
        s for s in pre_order(lowered.body) if isinstance(s, For) and s.kind == tvm.tir.ForKind.PARALLEL
    )


def test_the_operations_of_a_nest_grow_with_its_sizes():
    found = operations(parallel_loop(dynamic), lambda v: v.name in ("n", "m"))
    by_name = {v.name: v for v in pre_order(found) if isinstance(v, tvm.tir.Var)}
    at = lambda n, m: const_value(Analyzer().simplify(substitute(found, {by_name["n"]: n, by_name["m"]: m})))
    assert at(10, 30) == 300 * at(1, 1) > 0


@pytest.mark.parametrize("func", [fixed, read_inside])
def test_without_a_dynamic_size_that_is_known_before_there_is_no_count(func):
    assert operations(parallel_loop(func), lambda v: True) is None


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 7), (300, 400)])
def test_both_ways_give_the_same(shape):
    built = tvm.build(dynamic, target="llvm -num-cores=2")
    assert "@__tw_alone" in built.get_source("ll")
    x = np.random.default_rng(0).random(shape).astype("float32")
    out = tvm.nd.array(np.zeros(shape, "float32"))
    built(tvm.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x + 1)
