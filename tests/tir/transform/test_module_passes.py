"""Passes over the functions of a module: targets, entries, filters; and those that drop what is not run."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import IRModule
from tilewright.ir.errors import LoweringError
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import transform
from tilewright.tir.transform.remove_assume import remove_assume
from tilewright.tir.transform.remove_store_undef import remove_store_undef


@I.ir_module
class Two:
    @T.prim_func
    def main():
        T.evaluate(0)

    @T.prim_func(private=True)
    def inner():
        T.evaluate(1)


def test_bind_target_tells_the_host_to_what_is_called_from_outside() -> None:
    target = Target("cuda", host="llvm")
    made = transform.BindTarget(target)(Two)
    assert made["main"].attrs["target"] == target
    assert made["inner"].attrs["target"] == Target("cuda")
    again = transform.BindTarget(Target("opencl"))(made)
    assert again["main"] is made["main"]


def test_bind_target_of_a_function_of_the_host() -> None:
    mod = Two.clone()
    mod["inner"] = mod["inner"].with_attr("tir.is_host_func", True)
    made = transform.BindTarget(Target("cuda", host="llvm"))(mod)["inner"]
    assert made.attrs["target"].kind.name == "llvm"
    assert "tir.is_host_func" not in made.attrs


def test_the_entry_is_the_one_with_a_symbol() -> None:
    made = transform.AnnotateEntryFunc()(Two)
    assert made["main"].attrs["tir.is_entry_func"]
    assert made["inner"] is Two["inner"]
    both = Two.clone()
    both["inner"] = both["inner"].with_attr("global_symbol", "inner")
    assert transform.AnnotateEntryFunc()(both)["main"] is both["main"]


def test_filter() -> None:
    kept = transform.Filter(lambda f: "global_symbol" in f.attrs)(Two)
    assert [v.name_hint for v in kept.functions] == ["main"]


def test_verify_memory_refuses_host_code_in_device_memory() -> None:
    @T.prim_func
    def on_host(A: T.Buffer((4,), "float32")):
        T.func_attr({"target": T.target("cuda")})
        for i in range(4):
            A[i] = T.float32(0)

    module = IRModule({"on_host": on_host})
    with pytest.raises(LoweringError, match=r"on_host accesses the memory of cuda.*bind its loops"):
        transform.VerifyMemory()(module)
    cpu = IRModule({"on_host": on_host.with_attr("target", Target("llvm"))})
    assert transform.VerifyMemory()(cpu).functions == cpu.functions


def test_stores_of_undefined_values_go(expect: Any) -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        x: T.int32 = T.undef(dtype="int32")
        for i in range(4):
            A[i] = x + 1
        A[0] = 2

    expect(
        remove_store_undef(f),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            for i in range(4):
                T.evaluate(0)
            A[0] = 2
        """,
    )
    kept = remove_store_undef(f)
    assert remove_store_undef(kept) is kept


def test_an_undefined_index_is_refused() -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        A[0] = A[T.undef(dtype="int32")]

    with pytest.raises(LoweringError, match="of buffer A is undefined"):
        remove_store_undef(f)


def test_assumptions_go(expect: Any) -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        for i in range(4):
            T.evaluate(T.assume(A[i] == 0))
            A[i] = 1

    expect(
        remove_assume(f),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            for i in range(4):
                A[i] = 1
        """,
    )
    made = remove_assume(f)
    assert remove_assume(made) is made
