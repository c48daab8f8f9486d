"""What is printed reads back as the same program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import script_programs as programs
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright.ir import IRModule, PrimFunc, assert_structural_equal, decl_buffer, ops
from tilewright.ir import expr as E
from tilewright.ir.expr import BufferLoad, Call, FloatImm, IntImm, PrimExpr, Var
from tilewright.ir.printer import script
from tilewright.ir.printer_ranges import difference, stop_after
from tilewright.ir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Prefetch,
    SeqStmt,
    Stmt,
    While,
)
from tilewright.ir.types import PointerType, PrimType
from tilewright.script import from_source

LOWERING = [
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "CompactBufferAllocation",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "FlattenBuffer",
    "VectorizeLoop",
    "StorageRewrite",
    "UnrollLoop",
    "Simplify",
    "LowerIntrin",
]


def name_of(program: Any) -> str:
    return str(program.attrs.get("global_symbol", "")) or type(program).__name__


@pytest.mark.parametrize("sugar", [True, False], ids=["sugar", "plain"])
@pytest.mark.parametrize("program", programs.FUNCTIONS + programs.MODULES, ids=name_of)
def test_program(program: Any, sugar: bool) -> None:
    text = script(program, syntax_sugar=sugar)
    again = from_source(text)
    assert_structural_equal(program, again)
    assert script(again, syntax_sugar=sugar) == text


def test_every_stored_program_is_in_the_list() -> None:
    source = Path(programs.__file__).read_text()
    assert source.count("\n@T.prim_func") == len(programs.FUNCTIONS)


# -- generated expressions ---------------------------------------------------------------------
INTS = {kind: [Var(f"{kind[0]}{kind[-1]}_{n}", kind) for n in "ab"] for kind in ("int32", "int64", "uint8")}
FLOATS = {kind: [Var(f"{kind}_{n}", kind) for n in "ab"] for kind in ("float32", "float64", "float16")}
FLAGS = [Var("p", "bool"), Var("q", "bool")]
TABLE = decl_buffer((8,), "int32", "table")
WEIGHTS = decl_buffer((8, 8), "float32", "weights")


def _constant(kind: str) -> st.SearchStrategy[PrimExpr]:
    if kind.startswith("float"):
        width = {"float32": 32, "float64": 64, "float16": 16}[kind]
        return st.floats(width=width).map(lambda v: FloatImm(kind, v))  # type: ignore[arg-type]
    low, high = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint8": (0, 255)}[kind]
    return st.one_of(st.integers(-2 if low else 0, 5), st.integers(low, high)).map(lambda v: IntImm(kind, v))


@st.composite
def number(draw: Any, kind: str, depth: int) -> PrimExpr:
    variables = {**INTS, **FLOATS}[kind]
    if depth == 0:
        leaves = [st.sampled_from(variables), _constant(kind)]
        return draw(st.one_of(leaves))
    less = depth - 1
    is_int = not kind.startswith("float")
    arithmetic = [E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max]
    if is_int:
        arithmetic += [E.FloorDiv, E.FloorMod, E.Mod]
    choice = draw(st.integers(0, 7))
    if choice <= 3:
        cls = draw(st.sampled_from(arithmetic))
        return cls(draw(number(kind, less)), draw(number(kind, less)))
    if choice == 4:
        return E.Select(draw(flag(less)), draw(number(kind, less)), draw(number(kind, less)))
    if choice == 5:
        other = draw(st.sampled_from([k for k in (*INTS, *FLOATS) if k != kind]))
        return E.Cast(kind, draw(number(other, less)))  # type: ignore[arg-type]
    if choice == 6 and kind == "int32":
        return BufferLoad(TABLE, (draw(number("int32", less)),))
    if choice == 6 and kind == "float32":
        return BufferLoad(WEIGHTS, (draw(number("int32", less)), draw(number("int32", less))))
    arguments = (draw(number(kind, less)), draw(number(kind, less)))
    if is_int:
        name = draw(st.sampled_from(["bitwise_and", "shift_left", "bitwise_xor"]))
        return Call(kind, f"tir.{name}", arguments)
    name = draw(st.sampled_from(["exp", "tanh", "floor", "fabs", "pow", "if_then_else", "isnan"]))
    if name == "if_then_else":
        return Call(kind, f"tir.{name}", (draw(flag(less)), *arguments))
    return Call(kind, f"tir.{name}", arguments if name == "pow" else arguments[:1])


@st.composite
def flag(draw: Any, depth: int) -> PrimExpr:
    if depth == 0:
        return draw(st.one_of(st.sampled_from(FLAGS), st.booleans().map(E.const)))
    choice = draw(st.integers(0, 3))
    if choice == 0:
        return E.Not(draw(flag(depth - 1)))
    if choice == 1:
        return draw(st.sampled_from([E.And, E.Or]))(draw(flag(depth - 1)), draw(flag(depth - 1)))
    kind = draw(st.sampled_from(["int32", "int64", "float32", "bool"]))
    side = flag(depth - 1) if kind == "bool" else number(kind, depth - 1)
    cls = draw(st.sampled_from([E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE]))
    return cls(draw(side), draw(side))


def _function(body: Stmt) -> PrimFunc:
    scalars = [v for vs in (*INTS.values(), *FLOATS.values(), FLAGS) for v in vs]
    return PrimFunc([*scalars, TABLE, WEIGHTS], body, attrs={"global_symbol": "f"})


expressions = st.one_of(
    *[number(kind, depth) for kind in (*INTS, *FLOATS) for depth in (1, 3)],
    *[flag(depth) for depth in (1, 2, 4)],
)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(expressions)
def test_random_expression(e: PrimExpr) -> None:
    func = _function(Evaluate(e))
    assert_structural_equal(func, from_source(func.script()))


@st.composite
def statement(draw: Any, depth: int) -> Stmt:
    """Random flat code, scoping statements in all places."""
    if depth == 0:
        index = draw(number("int32", 1))
        return BufferStore(TABLE, draw(number("int32", 1)), (index,))
    inner = statement(depth - 1)
    choice = draw(st.integers(0, 9))
    if choice == 0:
        kind = draw(st.sampled_from([k for k in ForKind if k is not ForKind.THREAD_BINDING]))
        low = draw(st.sampled_from([E.const(0), E.const(2), INTS["int32"][0] * 4, INTS["int32"][1]]))
        extent = draw(st.sampled_from([E.const(4), E.const(1), INTS["int32"][1] + 1, INTS["int32"][0]]))
        note = draw(st.sampled_from([{}, {"pragma": 1, "name": "x"}]))
        return For(Var("i"), low, extent, kind, draw(inner), annotations=note)
    if choice == 1:
        otherwise = draw(st.one_of(st.none(), inner))
        return IfThenElse(draw(flag(1)), draw(inner), otherwise)
    if choice == 2:
        return While(draw(flag(1)), draw(inner))
    if choice == 3:
        v = Var("v", "int32")
        return LetStmt(v, draw(number("int32", 1)), SeqStmt((BufferStore(TABLE, v, (v,)), draw(inner))))
    if choice == 4:
        return AssertStmt(draw(flag(1)), E.StringImm(draw(st.text(max_size=5))), draw(inner))
    if choice == 5:
        node = draw(st.sampled_from([TABLE.data, "text", 0, None, INTS["int32"][0]]))
        return AttrStmt(node, "key", draw(number("int32", 1)), draw(inner))
    if choice == 6:
        data = Var("m", PointerType(PrimType("float32"), draw(st.sampled_from(["global", "local"]))))
        view = decl_buffer((4,), "float32", "m", data=data)
        use = SeqStmt((BufferStore(view, 1.0, (0,)), draw(inner)))
        body = draw(st.sampled_from([use, DeclBuffer(view, use)]))
        condition = draw(st.sampled_from([E.const(True), FLAGS[0]]))
        return Allocate(data, "float32", (E.const(4),), condition, body)  # type: ignore[arg-type]
    if choice == 7:
        bounds = (E.Range(0, 4),)
        return SeqStmt((Prefetch(TABLE, bounds), BufferRealize(TABLE, bounds, draw(flag(0)), draw(inner))))
    if choice == 8:
        return SeqStmt((Evaluate(ops.call_extern("int32", "f", TABLE.data)), draw(inner)))
    return SeqStmt((draw(inner), draw(inner)))


def _flattened(s: Any) -> Any:
    """Sequences in sequences laid flat: the text cannot tell them apart."""
    s = s.map_children(_flattened)
    if isinstance(s, SeqStmt):
        parts: list[Stmt] = []
        for one in s.seq:
            parts.extend(one.seq if isinstance(one, SeqStmt) else [one])
        return SeqStmt(tuple(parts))
    return s


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(st.one_of(statement(1), statement(2), statement(3)))
def test_random_statement(s: Stmt) -> None:
    func = _function(_flattened(s))
    for sugar in (True, False):
        assert_structural_equal(func, from_source(func.script(syntax_sugar=sugar)))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.one_of(number("int32", 0), number("int32", 1), number("int32", 2)), number("int32", 1))
def test_the_end_of_a_range_gives_its_extent_again(start: PrimExpr, extent: PrimExpr) -> None:
    assert_structural_equal(difference(stop_after(start, extent), start), extent)


def test_a_target_is_an_attribute() -> None:
    from tilewright.target import Target

    func = _function(Evaluate(E.const(0))).with_attr("target", Target("llvm -num-cores=4"))
    again = from_source(func.script())
    assert isinstance(again.attrs["target"], Target)
    assert str(again.attrs["target"]) == str(func.attrs["target"])


def test_lowered_code() -> None:
    """Each step of lowering gives a program that reads back."""
    from tilewright.tir import transform

    for program in (programs.matmul, programs.conv_padded, programs.tiled, programs.blocks_nested):
        mod = IRModule.from_expr(program)
        for name in LOWERING:
            mod = getattr(transform, name)()(mod)
            assert_structural_equal(mod, from_source(mod.script()))


def test_vectors_read_in_a_let() -> None:
    """The expansion of a math function binds the vector that it reads."""
    import tilewright as tvm
    from tilewright import te

    A = te.placeholder((8, 33), name="A")
    B = te.compute((8, 33), lambda i, j: te.exp(A[i, j]) * 2, name="B")
    s = te.create_schedule(B.op)
    s[B].vectorize(B.op.axis[1])
    mod = tvm.tir.transform.LowerIntrin()(tvm.lower(s, [A, B]))
    assert "A_1[i * 33:i * 33 + 33]})" in mod.script()
    assert_structural_equal(tvm.script.from_source(mod.script()), mod)


def test_values_of_attributes() -> None:
    values = {
        "list": [1, -2, [2.5, "s", None, True]],
        "map": {"a": {"b": []}},
        "floats": [1e300, 1e-300, -0.0, float("inf"), float("-inf"), float("nan")],
        "bytes": b"\x00\xff",
        "text": "\u2028 \ud800 \x7f \\ \" '",
        "wide": 2**70,
        "node": INTS["int32"][0] + 1,
        "string": E.StringImm("s"),
    }
    func = PrimFunc(_function(Evaluate(E.const(0))).params, Evaluate(E.const(0)), attrs=values)
    assert_structural_equal(func, from_source(func.script()))


# -- one variable or buffer in several places ----------------------------------------------------
def _store(view: Any, at: Any) -> Stmt:
    return SeqStmt((BufferStore(view, 1, (at,)), BufferStore(TABLE, BufferLoad(view, (at,)), (at,))))


def test_one_variable_bound_twice() -> None:
    """Inside the inner loop it is the inner loop's, after it the outer one's again."""
    i = Var("i")
    inner = For(i, 0, 4, ForKind.SERIAL, BufferStore(TABLE, i, (i,)))
    func = _function(For(i, 0, 4, ForKind.SERIAL, SeqStmt((inner, BufferStore(TABLE, i + 7, (i,))))))
    again = from_source(func.script())
    assert_structural_equal(func, again)
    a, b = Var("a"), Var("b")
    wrong = For(
        a,
        0,
        4,
        ForKind.SERIAL,
        SeqStmt(
            (
                For(b, 0, 4, ForKind.SERIAL, BufferStore(TABLE, a, (b,))),
                BufferStore(TABLE, a + 7, (a,)),
            )
        ),
    )
    with pytest.raises(ValueError, match="StructuralEqual check failed"):
        assert_structural_equal(func, _function(wrong))


@pytest.mark.parametrize("declared", [True, False])
def test_one_buffer_over_memory_that_is_allocated_twice(declared: bool) -> None:
    data = Var("m", PointerType(PrimType("int32"), "global"))
    view = decl_buffer((4,), "int32", "m", data=data)
    use = _store(view, INTS["int32"][0])
    once = Allocate(data, "int32", (E.const(4),), E.const(True), DeclBuffer(view, use) if declared else use)  # type: ignore[arg-type]
    func = _function(SeqStmt((once, once)))
    for sugar in (True, False):
        assert_structural_equal(func, from_source(func.script(syntax_sugar=sugar)))


def test_a_buffer_used_before_and_after_it_is_declared() -> None:
    at = INTS["int32"][0]
    data = Var("m", PointerType(PrimType("int32"), "global"))
    view = decl_buffer((4,), "int32", "m", data=data)
    use = _store(view, at)
    body = SeqStmt(
        (use, For(Var("k"), 0, 2, ForKind.SERIAL, DeclBuffer(view, use)), DeclBuffer(view, use), use)
    )
    func = _function(Allocate(data, "int32", (E.const(4),), E.const(True), body))  # type: ignore[arg-type]
    text = func.script()
    assert "        T.decl_buffer(m_1)\n" in text and "    with T.decl_buffer(m_1):\n" in text
    assert_structural_equal(func, from_source(text))


@pytest.mark.parametrize("scope", ["", "shared", "global"])
def test_a_buffer_that_is_realized_in_a_scope(scope: str) -> None:
    box = decl_buffer((3,), "int32", "box")
    realized = BufferRealize(box, (E.Range(5, 8),), E.const(True), _store(box, E.const(5)))
    func = _function(AttrStmt(box, "realize_scope", E.StringImm(scope), realized))
    text = func.script()
    assert "box = T.Buffer((3,)" in text
    assert ("T.attr(" in text) == (scope == "global")  # the scope of the buffer itself
    assert_structural_equal(func, from_source(text), True)


def test_buffers_of_an_attribute_are_declared() -> None:
    a, b = (decl_buffer((3,), "int32", name) for name in "ab")
    func = _function(AttrStmt([a, b], "buffer_bind_scope", E.const(1), Evaluate(0)))
    assert_structural_equal(func, from_source(func.script()), True)


def test_the_host_of_a_target_is_printed() -> None:
    target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
    func = _function(Evaluate(0)).with_attr("target", target)
    again = from_source(func.script())
    assert "host=" in func.script() and str(again.attrs["target"].host) == str(target.host)
    assert_structural_equal(func, again)


def test_a_buffer_that_is_realized() -> None:
    box = decl_buffer((3,), "int32", "box")
    func = _function(BufferRealize(box, (E.Range(5, 8),), E.const(True), _store(box, E.const(5))))
    assert_structural_equal(func, from_source(func.script()))
