"""Versions of buffers that iterations use in turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import statements
from tilewright.ir.stmt import AttrStmt
from tilewright.script import tir as T
from tilewright.tir.script.function import from_source
from tilewright.tir.transform.version_buffers import version_buffers


@T.prim_func(private=True)
def before(X: T.Buffer((24,), "int32"), Y: T.Buffer((24,), "int32")):
    for o in range(2):
        for k in T.serial(3, annotations={"software_pipeline_stage": [0, 1]}):
            s = T.allocate([4], "int32", "local.tiny_acc")
            S = T.decl_buffer((4,), "int32", data=s, scope="local.tiny_acc")
            for i in range(4):
                S[i] = X[o * 12 + k * 4 + i]
            for i in range(4):
                Y[o * 12 + k * 4 + i] = S[i] + 1


def test_iterations_take_turns(expect, agree):
    made = version_buffers(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(X: T.Buffer((24,), "int32"), Y: T.Buffer((24,), "int32")):
            for o, k in T.grid(2, 3):
                S = T.decl_buffer((8,), "int32", scope="local.tiny_acc")
                for i in range(4):
                    S[i + (o + k) % 2 * 4] = X[o * 12 + k * 4 + i]
                for i in range(4):
                    Y[o * 12 + k * 4 + i] = S[i + (o + k) % 2 * 4] + 1
        """,
    )
    agree(before, made, np.arange(24, dtype="int32"), np.zeros(24, "int32"))


def test_stages_that_do_not_fit_the_statements(expect):
    @T.prim_func(private=True)
    def wrong(X: T.Buffer((8,), "int32")):
        for k in T.serial(8, annotations={"software_pipeline_stage": [0, 1]}):
            X[k] = 1

    with pytest.raises(LoweringError) as caught:
        version_buffers(wrong)
    expect(
        str(caught.value),
        """
        the pipeline of loop `k` has 1 statements, stages [0, 1] and order [0]: there must be a stage for each, and the order must be a permutation
        """,
    )


def test_nothing_to_do():
    made = version_buffers(before)
    assert version_buffers(made) is made


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.permutations(range(2)).map(tuple),
)
@pytest.mark.slow
def test_versions_keep_the_meaning(agree, outer, inner, size, versions, order):
    """Random loops, sizes and numbers of versions; the buffer is read in another order than it is filled."""
    loops = [("o", outer), ("k", inner)]
    (a, m), (b, n) = (loops[i] for i in order)
    at = f"(o * {inner} + k) * {size}"
    func = from_source(f"""
@T.prim_func(private=True)
def main(X: T.Buffer(({outer * inner * size},), "int32"), Y: T.Buffer(({outer * inner * size},), "int32")):
    for {a} in range({m}):
        for {b} in range({n}):
            s = T.allocate([{size}], "int32", "local.tiny_acc")
            S = T.decl_buffer(({size},), "int32", data=s, scope="local.tiny_acc")
            with T.attr(0, "pragma_buffer_versions", {versions}):
                for i in range({size}):
                    S[i] = X[{at} + i] * 2
            for i in range({size}):
                Y[{at} + i] = S[{size - 1} - i] + 1
""")
    count = outer * inner * size
    made = version_buffers(func)
    assert not any(isinstance(s, AttrStmt) for s in statements(made.body))
    agree(func, made, np.arange(count, dtype="int32"), np.zeros(count, "int32"))
