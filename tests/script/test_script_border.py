"""Nothing but IR building can be reached from a script given as text, and reading one has a budget."""

from __future__ import annotations

import inspect
import time
import types
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Buffer, PrimExpr, PrimFunc, Type
from tilewright.ir.dtype import DataType
from tilewright.ir.errors import ScriptError
from tilewright.ir.expr import IterVar, Range
from tilewright.ir.module import GlobalVar
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.script import from_source
from tilewright.tir.script import namespace, specs
from tilewright.tir.script.budget import BUILTINS
from tilewright.tir.script.function import ModuleAttrs, _script_names
from tilewright.tir.script.reach import Namespace, OutOfReach, Reach, allowed

EMPTY = "@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(0)\n"


def text(expression: str) -> str:
    return f"x = {expression}\n{EMPTY}"


# ---------------------------------------------------------------------------- a walk over everything
# The kinds of objects that reading may meet: parts of programs, descriptions of them, plain data.
DATA = (bool, int, float, str, bytes, type(None), np.generic, np.dtype, np.ndarray)
PARTS = (Node, Type, DataType, Op, GlobalVar)
DESCRIPTIONS = tuple(
    v for v in vars(specs).values() if isinstance(v, type) and v.__module__ == specs.__name__
)
OURS = (namespace.Scalar, namespace.BufferForm, namespace.Axis, Namespace, ModuleAttrs)
ROOMS = ("tilewright.ir.", "tilewright.tir.script.", "tilewright.script.", "tilewright.target")


def is_known(value: Any) -> bool:
    if isinstance(value, (*DATA, *PARTS, *DESCRIPTIONS, *OURS, slice, range)):
        return True
    if isinstance(value, type):  # T.Add, T.IntImm: they are called, and have no attributes
        return issubclass(value, (Node, GlobalVar, ModuleAttrs)) or value.__module__ == "builtins"
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return (value.__module__ or "").startswith(ROOMS)
    if isinstance(value, types.BuiltinFunctionType):  # of a text, a list, a number: plain data in and out
        return value.__self__.__class__ in (
            str,
            DataType,
            bool,
            int,
            float,
            list,
            tuple,
            dict,
            types.ModuleType,
        )
    if type(value).__module__ == "builtins" and hasattr(value, "__iter__"):  # iterators, views of tables
        return True
    return type(value).__name__ == "Target"


def samples() -> dict[str, Any]:
    """Arguments for calls, by kinds that the names of T take."""
    n, A = namespace.var("int32", "n"), specs.BufferSpec((4, 8)).build("A")
    return {
        "expr": n,
        "buffer": A,
        "load": A[n, 0],
        "number": 1,
        "text": "int32",
        "list": [1, 2],
        "table": {"a": 1},
        "function": lambda a, b: a + b,
        "iterator": IterVar(Range(8), "i", 0),
    }


def calls(function: Any) -> list[Any]:
    """What a function returns for some arguments; calls that it refuses give nothing."""
    made = samples()
    tries: list[tuple[Any, ...]] = [(), *((v,) for v in made.values())]
    tries += [
        (a, b) for a in made.values() for b in (made["number"], made["text"], made["list"], made["expr"])
    ]
    tries += [
        (made["list"], "uint8", [2]),
        ("int32", "exp", made["expr"]),
        (made["expr"], 1, 2),
        (A := made["buffer"], 1, [0, A]),
    ]
    out = []
    for args in tries:
        try:
            out.append(function(*args))
        except Exception:
            continue
    return out


@pytest.mark.slow
def test_nothing_but_ir_building_is_reachable() -> None:
    """Every name, every allowed attribute of what it stands for, every result of calling it, and so on."""
    names = _script_names()
    reach = Reach({})
    waiting: list[tuple[str, Any, int]] = [(k, v, 0) for k, v in names.items()]
    waiting += [(n, reach.builtin(n), 2) for n in BUILTINS]
    waiting += [(f"T.{n}", names["T"].find(n), 0) for n in namespace.all_names() if n != "prim_func"]
    waiting += [(f"a {k}", v, 0) for k, v in samples().items() if k != "function"]
    seen: set[Any] = set()
    kinds: set[type] = set()
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, (list, tuple, set, dict)):
            inside = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
            waiting += [(f"{path}[…]", v, depth + 1) for v in inside[:8]]
        else:
            assert is_known(value), f"{path} is {value!r} ({type(value)})"
        kinds.add(type(value))
        if depth > 3:
            continue
        for name in dir(value):
            try:
                found = reach.attribute(value, name)
            except (OutOfReach, AttributeError):
                continue
            assert not name.startswith("_") and name in allowed(type(value)), f"{path}.{name}"
            if (type(value), name) not in seen:
                seen.add((type(value), name))
                waiting.append((f"{path}.{name}", found, depth + 1))
        if (callable(value) and not isinstance(value, types.LambdaType)) or inspect.isfunction(value):
            mark = getattr(value, "__qualname__", type(value).__name__)
            if ("call", mark, path.split("(")[0]) not in seen and depth < 3:
                seen.add(("call", mark, path.split("(")[0]))
                waiting += [(f"{path}(…)", r, depth + 1) for r in calls(value)]
    assert {np.ndarray, specs.AllocateSpec, namespace.Scalar, DataType} - {np.ndarray} <= kinds


def test_attributes_are_listed_by_kind() -> None:
    """A class that nobody listed has no attributes for a text, whatever it is called."""

    class Holder:
        shape = dtype = name = data = 1

    for owner in (Holder(), Holder, np, open, types, object(), np.zeros(2), [].append):
        for name in ("data", "tofile", "dump", "append", "system", "name", "T", "mro"):
            with pytest.raises(OutOfReach):
                Reach({}).attribute(owner, name)
    with pytest.raises(OutOfReach):  # a caller's array is data too
        Reach({"a": (a := np.zeros(2))}).attribute(a, "tofile")


WRITES = {
    "module level": 'x = T.allocate_const([120, 61, 49], "uint8", [3]).data.tofile("pwn")\n' + EMPTY,
    "dump": 'x = T.allocate_const([1], "uint8", [1]).data.dump("pwn")\n' + EMPTY,
    "body": EMPTY.replace("0)", 'T.allocate_const([1], "uint8", [1]).data.tofile("pwn"))'),
    "given": 'x = a.tofile("pwn")\n' + EMPTY,
    "data alone": 'x = T.allocate_const([1], "uint8", [1]).data\n' + EMPTY,
    "target": 'x = T.target("llvm").kind\n' + EMPTY,
}


@pytest.mark.parametrize("name", WRITES)
def test_no_file_is_written(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScriptError, match="not accessible"):
        from_source(WRITES[name], {"a": np.zeros(3, np.uint8)})
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------- the budget
BOMBS = {
    "power": text("10 ** 10 ** 9"),
    "pow": text("pow(10, 10 ** 9)"),
    "shift": text("1 << 10 ** 10"),
    "text": text('"a" * 10 ** 10'),
    "bytes": text("b'a' * 10 ** 10"),
    "list": text("[0] * 10 ** 9"),
    "tuple": text("10 ** 9 * (1,)"),
    "comprehension": text("[i for i in range(10 ** 9)]"),
    "nested ranges": text("[0 for i in range(10 ** 5) for j in range(10 ** 5)]"),
    "range": text("list(range(10 ** 9))"),
    "sum": text("sum([[1] * 10 ** 4] * 10 ** 4, [])"),
    "doubled list": "x = [0]\n" + "x = [x, x]\n" * 60 + EMPTY,
    "doubled text": "x = 'a'\n" + "x = f'{x}{x}'\n" * 60 + EMPTY,
    "doubled expression": "x = T.var('int32', 'x')\n" + "x = x * x\n" * 60 + EMPTY,
    "compared": "x = (0,)\n" + "x = (x, x)\n" * 60 + "y = x == x\n" + EMPTY,
    "width": text("f'{1:1000000000}'"),
    "width of a width": text("f'{1:{10 ** 9}}'"),
    "percent": text("'%1000000000d' % 1"),
    "join": text("','.join(['a' * 10 ** 5] * 10 ** 5)"),
    "replace": text("('a' * 10 ** 5).replace('a', 'b' * 10 ** 5)"),
    "zip": text("list(zip(*[range(1000)] * 100000))"),
    "round": text("round(5, -10 ** 9)"),
    "integer": "x = 9\n" + "x = x * x\n" * 60 + EMPTY,
    "chain": "x = T.var('int32', 'x')\n" + "x = x + 1\n" * 9000 + EMPTY.replace("evaluate(0", "evaluate(x"),
    "recursion": "f = lambda n: f(n) + f(n)\nx = f(1)\n" + EMPTY,
    "macros": "@T.macro\ndef m0(x):\n    T.evaluate(x)\n"
    + "".join(f"@T.macro\ndef m{i + 1}(x):\n    m{i}(x)\n    m{i}(x)\n" for i in range(40))
    + EMPTY.replace("T.evaluate(0)", "m40(n)"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_text_that_would_take_the_machine_is_refused(name: str) -> None:
    start = time.process_time()
    with pytest.raises(ScriptError):
        from_source(BOMBS[name])
    assert time.process_time() - start < 20  # it has 5 seconds, and checks now and then


@pytest.mark.slow
def test_long_honest_texts_are_read() -> None:
    lines = [f"    A[{i}] = T.exp(A[{i}] * T.float32({i}) + n)" for i in range(2000)]
    made = from_source(
        '@T.prim_func\ndef f(A: T.Buffer((2000,), "float32"), n: T.float32):\n' + "\n".join(lines)
    )
    assert isinstance(made, PrimFunc) and len(made.body.seq) == 2000
    data = ", ".join(str(i % 256) for i in range(20_000))
    constant = (
        f'@T.prim_func\ndef f():\n    p = T.allocate_const([{data}], "uint8", [20000])\n    T.evaluate(0)\n'
    )
    assert from_source(constant).body.data.shape == (20_000,)


def test_a_decorated_function_has_no_budget() -> None:
    from tilewright.script import tir as T

    @T.prim_func
    def f(x: T.int64):
        T.evaluate(x + (2**5000 >> 4990))

    assert int(f.body.value.b) == 1024


def test_kinds_of_programs() -> None:
    """What scripts do with buffers and variables."""
    made = from_source(
        '@T.prim_func\ndef f(A: T.Buffer((4, 8), "float32"), n: T.int32):\n'
        "    T.evaluate(A.access_ptr('r'))\n"
        "    T.evaluate(A.offset_of([1, 2])[0])\n"
        "    T.evaluate(n.astype('int64'))\n"
        "    T.evaluate(T.int32(A.shape[0].value) if A.dtype.is_float else len(A.name.upper()))\n"
    )
    assert isinstance(made, PrimFunc) and isinstance(made.buffer_map[made.params[0]], Buffer)
    assert isinstance(made.body.seq[2].value, PrimExpr)
