"""Random programs, scheduled automatically for GPUs: they lower, and their threads compute what plain loops do."""

from __future__ import annotations

from typing import Any

import pytest
from how_many import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tune_programs import Program, programs

import tilewright as tvm
from tilewright import te, tir, topi

EXAMPLES = examples(10)
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}
TARGETS = ("cuda -arch=sm_75", "cuda -arch=sm_80", "cuda -arch=sm_90a", "opencl")


def lowered(func: Any, target: str) -> Any:
    """The kernels of the zero-trial schedule with their barriers."""
    sch = tvm.auto_schedule(func, target)
    with tvm.target.Target(target):
        mod = tir.transform.ThreadSync("shared.cluster")(tvm.lower(sch.mod))
        return tir.transform.ThreadSync("shared")(mod)["main"]


@settings(max_examples=EXAMPLES, **COMMON)
@given(programs(most=3, sizes=(1, 2, 3, 5, 8, 17, 40), elements=400), st.sampled_from(TARGETS))
def test_threads_compute_what_plain_loops_do(program: Program, target: str) -> None:
    func = program.func()
    want, got = program.arrays(), program.arrays()
    tir.interpret(func, *want)
    tir.interpret(lowered(func, target), *got)
    program.compare(got, want)


@pytest.mark.slow
@settings(max_examples=examples(4) * EXAMPLES, **COMMON)
@given(programs(), st.sampled_from(TARGETS))
def test_random_programs_lower(program: Program, target: str) -> None:
    lowered(program.func(), target)


SIZES = st.one_of(st.integers(1, 600), st.integers(1, 64).map(lambda n: 8 * n))


@pytest.mark.slow
@settings(max_examples=examples(4) * EXAMPLES, **COMMON)
@given(
    st.tuples(st.one_of(st.just(1), SIZES), SIZES, SIZES),
    st.sampled_from(("float32", "float16", "bfloat16", "int8")),
    st.booleans(),
    st.sampled_from(TARGETS),
)
def test_products_of_any_size_lower(
    sizes: tuple[int, int, int], dtype: str, transposed: bool, target: str
) -> None:
    m, n, k = sizes
    a = te.placeholder((m, k), dtype, name="a")
    b = te.placeholder((n, k) if transposed else (k, n), dtype, name="b")
    out = "int32" if dtype == "int8" else dtype
    c = topi.nn.matmul(a, b, out_dtype=out, transpose_b=transposed)
    lowered(te.create_prim_func([a, b, c]), target)
