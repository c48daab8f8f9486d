"""Loops that are compiled apart: the same code, once for all programs that have them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.backends import backend_of
from tilewright.codegen.llvm.linked import LinkedModule, unit_of
from tilewright.codegen.llvm.nests import Nests
from tilewright.compiler.lower import lower_in_parts
from tilewright.ir.function import PrimFunc
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir.transform.outline_nests import outline_nests
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of


@T.prim_func
def two(a: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32")):
    T.func_attr({"tir.noalias": True})
    b = T.allocate([64], "float32", "global")
    b_1 = T.decl_buffer((64,), data=b)
    for i in T.parallel(64):
        b_1[i] = a[i] * T.float32(2)
    for j in range(64):
        c[j] = b_1[j] + T.float32(1)


def numbered(func: PrimFunc) -> tuple[PrimFunc, list[PrimFunc]]:
    names = iter(range(9))
    main, made = outline_nests(func, lambda _: f"nest{next(names)}")
    return main, list(made.values())


def test_loops_become_functions():
    main, (first, second) = numbered(two)
    calls = [line.strip() for line in str(main).splitlines() if "nest" in line]
    assert calls == [
        'T.Call("int32", I.GlobalVar("nest0"), '
        '[b_1.data, T.tvm_access_ptr(T.type_annotation("float32"), a.data, 0, 64, 1)])',
        'T.Call("int32", I.GlobalVar("nest1"), '
        '[c.data, T.tvm_access_ptr(T.type_annotation("float32"), b_1.data, 0, 64, 1)])',
    ]
    assert [v.name for v in first.params] == ["b", "a"] and first.attrs["global_symbol"] == "nest0"
    assert "for i in T.parallel(64):" in str(first) and "for j in range(64):" in str(second)


def test_what_stays():
    func = two.with_attr("tir.noalias", False)
    assert numbered(func) == (func, [])  # one loop alone may go: then it may as well stay

    @T.prim_func
    def private(a: T.Buffer((64,), "float32")):
        T.func_attr({"tir.noalias": True})
        b = T.allocate([8], "float32", "local")
        b_1 = T.decl_buffer((8,), data=b)
        for i in range(8):
            b_1[i] = T.float32(1)
        for i in T.parallel(64):
            a[i] = a[i] + T.float32(1)
        with T.attr(0, "pragma_nontemporal", 1):
            for i in range(64):
                a[i] = a[i] + T.float32(1)

    main, made = numbered(private)
    assert len(made) == 1 and "b_1[i]" in str(main) and "pragma_nontemporal" in str(main)


def bodies(texts: list[str]) -> list[str]:
    """The bodies of parallel loops, without function names, and without the numbers of metadata and of texts."""
    found = [b for t in texts for b in re.findall(r"_run\((.*?)^}", t, re.MULTILINE | re.DOTALL) if "\n" in b]
    return sorted(re.sub(r"!llvm.loop !\d+|@\.str\d+", "", b) for b in found)


@pytest.mark.slow
def test_parallel_loops_have_the_same_code_as_in_the_whole():
    x, w = te.placeholder((1, 64, 28, 28), name="x"), te.placeholder((64, 64, 3, 3), name="w")
    task = task_of([x, w, topi.nn.conv2d(x, w, 1, 1, 1)], "llvm -mcpu=znver4 -num-cores=2", constants=("w",))
    mod = Sketches(task).apply().mod
    whole = tvm.build(mod, target=task.target)
    names = iter(range(99))
    with Target(task.target):
        main, parts = lower_in_parts(mod, None, "main", None, lambda _: f"nest{next(names)}", ())
        texts = [backend_of(task.target).build(p, task.target).text for p in (main, *parts.values())]
    assert bodies(texts) == bodies([whole.text]) and len(parts) > 3 and len(bodies(texts)) > 3


def program(factor: float):
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((64,), lambda i: B[63 - i] * factor, name="C")
    s = te.create_schedule(C.op)
    s[B].parallel(B.op.axis[0])
    return s, [A, C]


def test_loops_are_compiled_once():
    nests, x = Nests(), np.arange(64, dtype="float32")
    for factor, known in ((2.0, 2), (3.0, 3), (2.0, 3)):
        with nests:
            made = tvm.build(*program(factor), "llvm", name="f")
        assert len(nests.known) == known and len(nests.parts) == 2
        unit = unit_of(made)
        description = {"format": 1, "functions": list(unit.functions), "entry": "f"}
        linked = LinkedModule([unit, *nests.parts], made.machine, description, native=True, name="f")
        y = np.empty_like(x)
        linked["f"](x, y)
        np.testing.assert_array_equal(y, (x[::-1] + 1) * np.float32(factor))
    assert Nests.current() is None
