"""What a script that is wrong is told: the place, the reason, the remedy."""

from __future__ import annotations

import contextlib
import textwrap
import warnings

import pytest

from tilewright.ir.diagnostics import override_renderer
from tilewright.ir.errors import DiagnosticError, ScriptError, TVMError
from tilewright.script import from_source
from tilewright.script import ir as I
from tilewright.script import tir as T


def refused(body: str, signature: str = 'A: T.Buffer((8, 8), "float32"), n: T.int32') -> str:
    """The error of a function with this body."""
    text = f"@T.prim_func\ndef f({signature}):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    with pytest.raises(ScriptError) as failed:
        from_source(text)
    return str(failed.value)


CASES = {
    "unknown name of T": (
        "for i, j in T.gird(8, 8):\n    A[i, j] = 0.0",
        """
        <script>:3: T has no name 'gird'
          |     for i, j in T.gird(8, 8):
          |                 ^^^^^^
          hint: did you mean T.grid?
        """,
    ),
    "undefined variable": (
        "A[n, 0] = alhpa\nalpha = 3",
        """
        <script>:3: 'alhpa' is not defined here
          |     A[n, 0] = alhpa
          |               ^^^^^
          hint: a variable is made with n = T.int32(), a buffer with T.alloc_buffer
        """,
    ),
    "near miss of a variable": (
        "alpha = n * 2\nT.evaluate(alhpa)",
        """
        <script>:4: 'alhpa' is not defined here
          |     T.evaluate(alhpa)
          |                ^^^^^
          hint: did you mean alpha?
        """,
    ),
    "a loop variable after its loop": (
        "for row in range(8):\n    A[row, 0] = 0.0\nA[row, 1] = 0.0",
        """
        <script>:5: 'row' is not defined here
          |     A[row, 1] = 0.0
          |       ^^^
          hint: a variable is made with n = T.int32(), a buffer with T.alloc_buffer
        """,
    ),
    "number of indices, in a store": (
        "A[n] = 0.0",
        """
        <script>:3: buffer A has 2 dimensions (8, 8) and is indexed with 1
          |     A[n] = 0.0
          |     ^^^^
          hint: write A[i, j], one index each
        """,
    ),
    "number of indices, in a load": (
        "A[0, 0] = A[0, n, 0] + 1.0",
        """
        <script>:3: buffer A has 2 dimensions (8, 8) and is indexed with 3
          |     A[0, 0] = A[0, n, 0] + 1.0
          |               ^^^^^^^^^^
          hint: write A[i, j], one index each
        """,
    ),
    "not a loop range": (
        "for i in [1, 2]:\n    A[i, 0] = 0.0",
        """
        <script>:3: `[1, 2]` is not a valid loop range
          |     for i in [1, 2]:
          |              ^^^^^^
          hint: range, T.serial, T.grid, T.parallel, T.vectorized, T.unroll and T.thread_binding are
        """,
    ),
    "a step": (
        "for i in range(0, 8, 2):\n    A[i, 0] = 0.0",
        """
        <script>:3: a loop advances by 1; multiply the index inside instead of giving `range` a step
          |     for i in range(0, 8, 2):
          |              ^^^^^^^^^^^^^^
        """,
    ),
    "names and extents of a grid": (
        "for i, j in T.grid(8, 8, 8):\n    A[i, j] = 0.0",
        """
        <script>:3: 2 loop variables for 3 extents
          |     for i, j in T.grid(8, 8, 8):
          |         ^^^^
        """,
    ),
    "division of integers": (
        "T.evaluate(n / 2)",
        """
        <script>:3: `n / 2` divides integers; choose a division: floordiv/floormod (Python's //), truncdiv/truncmod (C's), indexdiv/indexmod (for indices), or cast to a float first
          |     T.evaluate(n / 2)
          |                ^^^^^
        """,
    ),
    "remap of an expression": (
        "for i in range(8):\n    with T.block('A'):\n        vi = T.axis.remap('S', [i + 1])\n        A[vi, 0] = 0.0",
        """
        <script>:5: T.axis.remap takes the variables of the loops around the block; `i + 1` is not one
          |             vi = T.axis.remap('S', [i + 1])
          |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: for an expression write T.axis.spatial(extent, value) or T.axis.reduce(extent, value)
        """,
    ),
    "letters of remap": (
        "with T.block('A'):\n    vi = T.axis.remap('SX', [n])",
        """
        <script>:4: T.axis.remap('SX', …) takes one letter S or R for each of the 1 loops
          |         vi = T.axis.remap('SX', [n])
          |              ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    "reads outside of a block": (
        "T.reads(A[0, 0])",
        """
        <script>:3: T.reads is outside of any block
          |     T.reads(A[0, 0])
          |     ^^^^^^^^^^^^^^^^
          hint: put it under `with T.block(…):`
        """,
    ),
    "an axis without a value": (
        "with T.block('A'):\n    v = T.axis.spatial(8)\n    A[v, 0] = 0.0",
        """
        <script>:3: block A: an axis has no value
          |     with T.block('A'):
          |     ^^^^^^^^^^^^^^^^^^
        """,
    ),
    "two inits": (
        "with T.block('A'):\n    with T.init():\n        A[0, 0] = 0.0\n    with T.init():\n        A[0, 0] = 0.0",
        """
        <script>:6: a block has one T.init
          |         with T.init():
          |         ^^^^^^^^^^^^^^
        """,
    ),
    "a block without with": (
        "T.block('A')",
        """
        <script>:3: this opens a suite
          |     T.block('A')
          |     ^^^^^^^^^^^^
          hint: write `with …:`
        """,
    ),
    "a buffer without a name": (
        "T.alloc_buffer((8,))",
        """
        <script>:3: the result of this is not bound to a name
          |     T.alloc_buffer((8,))
          |     ^^^^^^^^^^^^^^^^^^^^
          hint: write `name = …`
        """,
    ),
    "with of something else": (
        "with n:\n    A[0, 0] = 0.0",
        """
        <script>:3: `with` does not take n
          |     with n:
          |          ^
          hint: with T.block(…), T.init(), T.allocate(…), T.attr(…), T.launch_thread(…), T.LetStmt(…)
        """,
    ),
    "match_buffer of something else": (
        "B = T.match_buffer(n + 1, (8,))",
        """
        <script>:3: T.match_buffer takes a parameter of the function or a region of a buffer, not `n + 1`
          |     B = T.match_buffer(n + 1, (8,))
          |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    "a condition that is a number": (
        "T.evaluate(n and n > 3)",
        """
        <script>:3: `n` of type int32 is used as a condition
          |     T.evaluate(n and n > 3)
          |                ^^^^^^^^^^^
        """,
    ),
    "vectors of different lengths": (
        "A[0, 0:4] = A[0, 0:8]",
        """
        <script>:3: cannot cast float32x8 to float32x4: the lanes differ
          |     A[0, 0:4] = A[0, 0:8]
          |     ^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    "a slice where a value is expected": (
        "A[0, 0] = A[0:4, 0]",
        """
        <script>:3: `A` is sliced where a value is expected: only the last index may be a slice, and of constant length
          |     A[0, 0] = A[0:4, 0]
          |     ^^^^^^^^^^^^^^^^^^^
        """,
    ),
    "statements that scripts do not have": (
        "try:\n    pass\nfinally:\n    pass",
        """
        <script>:3: a script has no Try statements
          |     try:
          |     ^^^^
          hint: use for, while, if, with, assert, assignments and calls
        """,
    ),
    "expressions that scripts do not have": (
        "T.evaluate((x := 3))",
        """
        <script>:3: a script has no NamedExpr expressions
          |     T.evaluate((x := 3))
          |                 ^^^^^^
        """,
    ),
    "too few names": (
        "a, b = T.int32()",
        """
        <script>:3: 2 names for one value
          |     a, b = T.int32()
          |     ^^^^
        """,
    ),
    "a call of what is not a function": (
        "n(3)",
        """
        <script>:3: `n` is n and cannot be called
          |     n(3)
          |     ^^^^
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refusal(case: str) -> None:
    body, expected = CASES[case]
    assert refused(body) == textwrap.dedent(expected).strip("\n")


def test_parameters() -> None:
    assert refused("pass", "A") == textwrap.dedent(
        """\
        <script>:2: parameter A has no type
          | def f(A):
          |       ^
          hint: write A: T.Buffer((8,), "float32") or T.int32"""
    )
    assert refused("pass", "A: T.grid") == textwrap.dedent(
        """\
        <script>:2: `T.grid` is not a type of a parameter
          | def f(A: T.grid):
          |          ^^^^^^
          hint: T.Buffer((8,), "float32"), T.handle, T.int32 and the like are"""
    )
    assert "plain parameters only" in refused("pass", "*A")
    assert "cannot use <class 'list'> (type) as an expression" in refused(
        "pass", 'A: T.Buffer((8, list), "float32")'
    )
    assert "as an expression" in refused("pass", "A: T.Buffer((8,), strides=[T.grid(8)])")
    assert "unknown data type 'float31'" in refused("pass", 'A: T.Buffer((8,), "float31")')


def test_text_that_is_not_python() -> None:
    with pytest.raises(ScriptError) as failed:
        from_source("@T.prim_func\ndef f(:\n    pass")
    assert str(failed.value).splitlines()[:2] == [
        "<script>:2: this is not Python: invalid syntax",
        "  | def f(:",
    ]


def test_text_without_a_program() -> None:
    with pytest.raises(ScriptError, match="holds 0 functions"):
        from_source("x = 3")
    with pytest.raises(ScriptError, match="imports only tir and ir"):
        from_source("import numpy\n@T.prim_func\ndef f():\n    pass")
    with pytest.raises(ScriptError, match=r"function f of a module is not a prim_func"):
        from_source("@I.ir_module\nclass M:\n    def f():\n        pass")


def test_call_of_an_unknown_function_of_the_module() -> None:
    with pytest.raises(ScriptError) as failed:
        from_source("@I.ir_module\nclass M:\n    @T.prim_func\n    def f(n: T.int32):\n        M.g(n)")
    assert str(failed.value).splitlines()[0] == "<script>:5: module M has no function 'g'"


def test_a_decorated_function_names_its_file() -> None:
    with pytest.raises(ScriptError) as failed:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            A[0, 0] = 1.0

    first, source, *_ = str(failed.value).splitlines()
    assert first.startswith("test_errors.py:")
    assert source.endswith("A[0, 0] = 1.0")
    assert isinstance(failed.value, TVMError) and isinstance(failed.value, SyntaxError)


def test_decorators_want_the_right_thing() -> None:
    with pytest.raises(TypeError, match="takes a Python function"):
        T.prim_func(3)
    with pytest.raises(TypeError, match="takes a class"):
        I.ir_module(3)
    with pytest.raises(AttributeError, match=r"T has no name 'flaot32'; did you mean T.float32"):
        _ = T.flaot32
    space: dict[str, object] = {"T": T}
    with pytest.raises(ScriptError, match=r"source of <string> cannot be read"):
        exec("@T.prim_func\ndef f():\n    pass", space)


def test_a_renderer_of_ones_own_gets_the_place_and_the_reason() -> None:
    seen = []
    override_renderer(lambda ctx: seen.extend(ctx.diagnostics))
    try:
        with pytest.raises(DiagnosticError):
            from_source("@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(m)\n")
    finally:
        override_renderer(None)
    (told,) = seen
    assert (told.span.line, told.message) == (3, "'m' is not defined here")
    with pytest.raises(ScriptError):
        from_source("@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(m)\n")
    assert len(seen) == 1


def test_a_text_warns_of_nothing() -> None:
    text = '@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(T.call_extern("int32", "a\\d", 1if n is 1 else 2))\n'
    with warnings.catch_warnings(record=True) as seen, contextlib.suppress(ScriptError):
        warnings.simplefilter("always")
        from_source(text)
    assert seen == []


@pytest.mark.parametrize(
    "body, reason",
    [
        ('p = T.allocate([16], "float32", b"global")\nT.evaluate(0)', "named by a string"),
        ('p = T.allocate([T.attr], "float32", "global")\nT.evaluate(0)', "as an expression"),
        ('with T.allocate([T.attr], "float32", "global") as p:\n    T.evaluate(0)', "as an expression"),
        ("with T.block(len):\n    T.evaluate(0)", "the field `name_hint` must be str"),
        ('B = T.alloc_buffer((8,), "float32", scope=b"shared")\nB[0] = T.float32(0)', "named by a string"),
    ],
)
def test_what_a_text_makes_is_of_the_right_kinds(body: str, reason: str) -> None:
    assert reason in refused(body)
