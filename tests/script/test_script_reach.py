"""A script given as text is read, not run: it reaches the names of T and I and what it is given."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tilewright.ir import PrimFunc, assert_structural_equal
from tilewright.ir.errors import ScriptError
from tilewright.script import from_source
from tilewright.script import tir as T


def text(expression: str) -> str:
    return f'@T.prim_func\ndef f(A: T.Buffer((4, 8), "float32"), n: T.int32):\n    T.evaluate({expression})\n'


REFUSED = {
    "open('/etc/passwd').read()": "open",
    "__import__('os').system('true')": "__import__",
    "eval('1')": "eval",
    "exec('1')": "exec",
    "compile('1', '', 'eval')": "compile",
    "getattr(n, 'dtype')": "getattr",
    "globals()": "globals",
    "vars(T)": "vars",
    "type(n)": "type",
    "print(n)": "print",
    "n.__class__": "n.__class__",
    "n.__init__.__globals__": "n.__init__",
    "().__class__.__bases__": "().__class__",
    "T.__dict__": "T has no name '__dict__'",
    "T.Var.mro()": "T.Var.mro",
    "T.exp.__globals__": "T.exp.__globals__",
    "T.exp.func_code": "T.exp.func_code",
    "A.vload.im_func": "A.vload.im_func",
    "T.prim_func(n)": "T has no name 'prim_func'",
    "T.lookup('exp')": "T has no name 'lookup'",
    "T.all_names()": "T has no name 'all_names'",
    "tvm.runtime.load_module('x.so')": "tvm.runtime",
    "tvm.script.from_source('')": "tvm.script.from_source",
    "I.ir_module": "I.ir_module",
    "'{0.__class__}'.format(n)": "'{0.__class__}'.format",
    "'{a}'.format_map({'a': n})": "'{a}'.format_map",
    "(lambda: 1).__code__": "(lambda: 1).__code__",
    "[c for c in ().__class__.__base__.__subclasses__()]": "().__class__",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression: str) -> None:
    with pytest.raises(ScriptError) as caught:
        from_source(text(expression))
    named = REFUSED[expression]
    if not named.startswith("T has"):
        named = f"<script>:3: `{named}` is not accessible to a script given as text"
    assert named in str(caught.value)


def test_the_whole_refusal() -> None:
    with pytest.raises(ScriptError) as caught:
        from_source(text("n + open('x')"))
    assert str(caught.value) == (
        "<script>:3: `open` is not accessible to a script given as text\n"
        "  |     T.evaluate(n + open('x'))\n"
        "  |                    ^^^^\n"
        "  hint: it sees the names of T and I and those in extra_vars: from_source(text, extra_vars={…})"
    )


@pytest.mark.parametrize(
    "place", ["macro", "assignment", "attribute", "default", "annotation", "class", "lambda"]
)
def test_no_place_reaches_further(place: str) -> None:
    bad = "open('x')"
    plain = "@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(n)\n"
    programs = {
        "macro": f"@T.macro\ndef m(x):\n    T.evaluate({bad})\n@T.prim_func\ndef f(n: T.int32):\n    m(n)\n",
        "assignment": f"size = {bad}\n{plain}",
        "attribute": plain.replace("    T.ev", f"    T.func_attr({{'a': {bad}}})\n    T.ev"),
        "default": f"@T.macro\ndef m(x={bad}):\n    T.evaluate(x)\n@T.prim_func\ndef f():\n    m()\n",
        "annotation": plain.replace("T.int32", f"T.Buffer(({bad},))"),
        "class": f"@I.ir_module\nclass M:\n    I.module_attrs({{'a': {bad}}})\n",
        "lambda": plain.replace("T.evaluate(n)", f"T.evaluate((lambda x: {bad})(n))"),
    }
    with pytest.raises(ScriptError, match="`open` is not accessible"):
        from_source(programs[place])


def test_what_a_text_may_say() -> None:
    made = from_source(
        """
import tvm
from tvm.script import tir as T, ir as I

SIZES = [2 ** k for k in range(3)]
@T.macro
def twice(x):
    T.evaluate(x)
    T.evaluate(x)
@T.prim_func
def f(A: T.Buffer((4, max(*SIZES)), "float32"), n: T.int32):
    twice(T.exp(A[0, len(SIZES) - 1]))
    T.evaluate(A.shape[1] + sum(int(s) for s in A.shape[:1]) + tvm.tir.min(n, 3))
    T.evaluate(A.access_ptr("r") if A.dtype == "float32" else n)
    T.evaluate(n.astype("int64"))
    T.call_extern("void", f"name_{len(SIZES)}", ",".join(["a", "b"]))
"""
    )

    @T.prim_func
    def f(A: T.Buffer((4, 4), "float32"), n: T.int32):
        T.evaluate(T.exp(A[0, 2]))
        T.evaluate(T.exp(A[0, 2]))
        T.evaluate(8 + T.min(n, 3))
        T.evaluate(A.access_ptr("r"))
        T.evaluate(T.Cast("int64", n))
        T.call_extern("void", "name_3", "a,b")

    assert_structural_equal(made, f)


class Config:
    """Something of the caller's."""

    tile = 4

    def __init__(self) -> None:
        self.parts = [types.SimpleNamespace(size=2)]

    def double(self, n: int) -> int:
        return 2 * n


def test_extra_vars_are_the_callers() -> None:
    import math

    given: dict[str, Any] = {
        "config": Config(),
        "Config": Config,
        "math": math,
        "double": lambda n: 2 * n,
        "open": lambda name: len(name),
        "own": T.meta_var,
    }
    expression = (
        "config.double(config.tile) + Config.tile + math.floor(math.pi) + double(3) + open('abc') "
        "+ sum([p.size for p in config.parts])"
    )
    made = from_source(text(expression), given)
    assert isinstance(made, PrimFunc)
    assert made.body.value.value == 8 + 4 + 3 + 6 + 3 + 2
    for bad in ("config.__class__", "double.__globals__", "math.__loader__", "Config.double.__globals__"):
        with pytest.raises(ScriptError, match="not accessible"):
            from_source(text(bad), given)


def test_frames_are_out_of_reach_even_if_given_away() -> None:
    frame = sys._getframe()
    with pytest.raises(ScriptError, match=r"`holder\.frame\.f_builtins` is not accessible"):
        from_source(text("holder.frame.f_builtins"), {"holder": types.SimpleNamespace(frame=frame)})


def test_a_macro_of_the_callers_sees_what_he_sees() -> None:
    size, kind = 3, "int64"

    @T.macro
    def mine(function):
        T.evaluate(getattr(T, kind)(size))
        T.evaluate(function(size))

    program = "@T.prim_func\ndef f():\n    mine(lambda n: n + 1)\n"
    made = from_source(program, {"mine": mine})
    assert [int(s.value) for s in made.body.seq] == [3, 4]
    # the function that the text hands over is still the text's
    with pytest.raises(ScriptError, match="`open` is not accessible"):
        from_source(program.replace("n + 1", "open('x')"), {"mine": mine})


def test_decorated_functions_see_their_module() -> None:
    kind = "int32"

    @T.prim_func
    def f():
        T.evaluate(getattr(T, kind)(len(sys.argv[:0])))

    assert int(f.body.value) == 0


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("T.evaluate(0)\0", "null bytes"),
        ("'\ud800'", "surrogates not allowed"),
        ("-" * 20_000 + "1", "nested too deeply for Python's parser"),
        ("(" * 300 + "1" + ")" * 300, "too many nested parentheses"),
    ],
    ids=["zero", "half a pair", "minuses", "parentheses"],
)
def test_texts_that_python_cannot_read(program: str, reason: str) -> None:
    with pytest.raises(ScriptError, match=reason):
        from_source(program)
