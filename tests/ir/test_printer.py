"""The script form of expressions, statements, functions and modules."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tilewright.ir import Buffer, BufferRegion, IRModule, PrimFunc, assert_structural_equal, decl_buffer, ops
from tilewright.ir.expr import (
    Add,
    BufferLoad,
    Call,
    Cast,
    CommReducer,
    Div,
    FloatImm,
    FloorDiv,
    IntImm,
    IterVar,
    Let,
    Min,
    Mod,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Range,
    Reduce,
    Select,
    StringImm,
    Sub,
    Var,
    const,
)
from tilewright.ir.expr_text import C_INFIX, ExprText, Piece
from tilewright.ir.printer import expr_text, script, script_marked, show
from tilewright.ir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    LetStmt,
    SeqStmt,
)
from tilewright.ir.types import PointerType, PrimType

x, y = Var("x"), Var("y")
f, g = Var("f", "float32"), Var("g", "float32")
p, q = Var("p", "bool"), Var("q", "bool")
A = decl_buffer((8, 8), name="A")


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


EXPRESSIONS: list[tuple[PrimExpr, str]] = [
    (x + 1, "x + 1"),
    ((x + 1) * y, "(x + 1) * y"),
    (x + y * 2, "x + y * 2"),
    (x - (y - x), "x - (y - x)"),
    (x - y - x, "x - y - x"),
    (x * (y // x), "x * (y // x)"),
    (x * y // x % 3, "x * y // x % 3"),
    (x + -1, "x + -1"),
    (f / g, "f / g"),
    (Div(x, y), "T.Div(x, y)"),
    (Mod(x, y), "T.truncmod(x, y)"),
    (ops.min_of(x, y), "T.min(x, y)"),
    (ops.max_of(x, 3), "T.max(x, 3)"),
    # What an operator would fold away is written by the name of its node.
    (Add(x, IntImm("int32", 0)), "T.Add(x, 0)"),
    (Mul(IntImm("int32", 2), IntImm("int32", 3)), "T.Mul(2, 3)"),
    (Sub(x, IntImm("int32", 0)), "T.Sub(x, 0)"),
    (FloorDiv(f, g), "T.FloorDiv(f, g)"),
    (Min(x, x), "T.Min(x, x)"),
    (Not(Not(p)), "T.Not(not p)"),
    (Call("int32", "tir.likely", (IntImm("int32", 1),)), 'T.call_intrin("int32", "tir.likely", 1)'),
    (ops.logical_and(x < 1, ops.logical_or(x > 2, y >= 3)), "x < 1 and (x > 2 or y >= 3)"),
    (ops.logical_or(ops.logical_and(p, q), p), "p and q or p"),
    (ops.logical_and(p, ops.logical_and(q, p)), "p and (q and p)"),
    (ops.logical_not(ops.logical_and(p, q)), "not (p and q)"),
    (ops.logical_not(x < y), "not x < y"),
    (ops.equal(x < y, p), "(x < y) == p"),
    (ops.not_equal(x, y), "x != y"),
    (Cast("float32", x), 'T.Cast("float32", x)'),
    (Select(p, x, y), "T.Select(p, x, y)"),
    (ops.if_then_else(p, x, y), "T.if_then_else(p, x, y)"),
    (Let(x, y, x + 1), "T.Let(x + 1, where={x: y})"),
    (ops.exp(f), "T.exp(f)"),
    (Call("float16", "tir.exp", (f,)), 'T.call_intrin("float16", "tir.exp", f)'),
    (ops.call_extern("int32", "f", x, "text"), 'T.call_extern("int32", "f", x, "text")'),
    (ops.bitwise_and(x, 7), "T.bitwise_and(x, 7)"),
    (ops.reinterpret("int32", f), 'T.reinterpret("int32", f)'),
    (Call("void", "tir.tvm_storage_sync", ("shared",)), 'T.tvm_storage_sync("shared", dtype="void")'),
    (Call("int32", "tir.tvm_storage_sync", ("shared",)), 'T.tvm_storage_sync("shared")'),
    (Call("handle", "tir.tvm_struct_get", (x, 0, 1)), 'T.tvm_struct_get(x, 0, 1, "handle")'),
    (Ramp(x, 1, 4), "T.Ramp(x, 1, 4)"),
    (const(1, "float32x4"), "T.Broadcast(T.float32(1), 4)"),
    (BufferLoad(A, (x, Ramp(y * 4, 1, 4))), "A[x, y * 4:y * 4 + 4]"),
    (BufferLoad(A, (x, Ramp(y, 2, 4))), "A[x, y:y + 8:2]"),
    (BufferLoad(A, (x, Ramp(y, x, 4))), "A[x, T.Ramp(y, x, 4)]"),
    (BufferLoad(decl_buffer((), name="s"), ()), "s[()]"),
    (IntImm("int64", 3), "T.int64(3)"),
    (IntImm("bool", 1), "T.bool(True)"),
    (FloatImm("float32", 1.0), "T.float32(1)"),
    (FloatImm("float32", 0.1), "T.float32(0.1)"),
    (FloatImm("float32", -0.0), "T.float32(-0.0)"),
    (FloatImm("float64", 1e300), "T.float64(1e+300)"),
    (FloatImm("float16", float("-inf")), 'T.float16("-inf")'),
    (FloatImm("float32", float("nan")), 'T.float32("nan")'),
    (StringImm('a "b"\n'), r'"a \"b\"\n"'),
]


@pytest.mark.parametrize(("expr", "text"), EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expression(expr: PrimExpr, text: str) -> None:
    assert expr_text(expr) == text
    assert repr(expr) == text
    assert script(expr) == text


def test_two_variables_of_one_name_get_two_names() -> None:
    other = Var("x")
    assert expr_text(x + other * x) == "x + x_1 * x"


def test_names_are_made_valid() -> None:
    names = [Var("threadIdx.x"), Var("for"), Var("T"), Var("3d"), Var("")]
    assert expr_text(ops.call_extern("int32", "f", *names)) == (
        'T.call_extern("int32", "f", threadIdx_x, for_1, T_1, v3d, v)'
    )


def test_reduction() -> None:
    k = IterVar(Range(0, 8), "k", IterVar.CommReduce)
    a, b = Var("a", "float32"), Var("b", "float32")
    add = CommReducer((a,), (b,), (a + b,), (const(0.0),))
    made = Reduce(add, (A[k.var, x],), (k,), const(True), 0)
    assert expr_text(made) == (
        "T.reduce(T.comm_reducer(lambda a, b: a + b, [T.float32(0)]), source=[A[k, x]], init=[], "
        'axis=[T.iter_var(k, T.Range(0, 8), "CommReduce", "")], condition=T.bool(True), value_index=0)'
    )


def _matmul() -> PrimFunc:
    buffers = [decl_buffer((8, 8), name=n) for n in "ABC"]
    a, b, c = buffers
    i, j, k = (Var(n) for n in "ijk")
    vi, vj, vk = (Var(f"v{n}") for n in "ijk")
    block = Block(
        [IterVar(8, vi, 0), IterVar(8, vj, 0), IterVar(8, vk, 2)],
        [BufferRegion.point(a, (vi, vk)), BufferRegion.point(b, (vk, vj))],
        [BufferRegion.point(c, (vi, vj))],
        "C",
        BufferStore(c, c[vi, vj] + a[vi, vk] * b[vk, vj], (vi, vj)),
        init=BufferStore(c, 0.0, (vi, vj)),
    )
    body: Any = BlockRealize((i, j, k), True, block)
    for v in (k, j, i):
        body = For(v, 0, 8, ForKind.SERIAL, body)
    root = BlockRealize((), True, Block((), (), (), "root", body))
    return PrimFunc(buffers, root, attrs={"global_symbol": "main", "tir.noalias": True})


MATMUL = dedent(
    """
    # from tilewright.script import ir as I
    # from tilewright.script import tir as T

    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i, j, k in T.grid(8, 8, 8):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    """
)


def test_module() -> None:
    mod = IRModule({"main": _matmul()})
    assert mod.script() == MATMUL
    assert str(mod) == MATMUL


def test_function_alone_has_one_import() -> None:
    text = _matmul().script()
    assert text.splitlines()[:4] == [*MATMUL.splitlines()[1:3], "@T.prim_func", text.splitlines()[3]]
    assert text.splitlines()[3].startswith("def main(A: T.Buffer")


def test_without_sugar_everything_is_written() -> None:
    text = _matmul().script(syntax_sugar=False)
    assert dedent(
        """
            with T.block("root"):
                T.reads()
                T.writes()
                for i in T.serial(8):
                    for j in T.serial(8):
                        for k in T.serial(8):
                            with T.block("C"):
                                vi = T.axis.spatial(8, i)
                                vj = T.axis.spatial(8, j)
                                vk = T.axis.reduce(8, k)
        """
    ) in dedent("\n".join(text.splitlines()[5:]))


def test_options() -> None:
    text = _matmul().script(name="mm", tir_prefix="tir", indent_spaces=2)
    assert text.splitlines()[0] == "# from tilewright.script import tir as tir"
    assert text.splitlines()[3].startswith("def mm(A: tir.Buffer((8, 8)")
    assert text.splitlines()[4].startswith('  tir.func_attr({"global_symbol": "main"')
    with pytest.raises(TypeError, match="no option 'colour'"):
        script(x, colour=True)
    assert script(x, print_line_numbers=True) == "1 x"


def test_loops() -> None:
    i, j = Var("i"), Var("j")
    store = BufferStore(A, 0.0, (i, j))
    inner = For(j, i, 4, ForKind.VECTORIZED, store)
    thread = IterVar(None, Var("t"), IterVar.ThreadIndex, "threadIdx.x")
    outer = For(i, 0, 8, ForKind.THREAD_BINDING, inner, thread, {"pragma": "x"})
    assert script(outer) == dedent(
        """
        A = T.Buffer((8, 8))
        for i in T.thread_binding(8, thread="threadIdx.x", annotations={"pragma": "x"}):
            for j in T.vectorized(i, i + 4):
                A[i, j] = T.float32(0)
        """
    )


def test_a_grid_stops_where_an_extent_needs_an_outer_loop() -> None:
    i, j, k = (Var(n) for n in "ijk")
    nest = For(
        i,
        0,
        4,
        ForKind.SERIAL,
        For(j, 0, 5, ForKind.SERIAL, For(k, 0, i + 1, ForKind.SERIAL, Evaluate(k))),
    )
    assert script(nest) == dedent(
        """
        for i, j in T.grid(4, 5):
            for k in range(i + 1):
                T.evaluate(k)
        """
    )


def test_neighbouring_loops_may_share_a_name_and_nested_ones_not() -> None:
    loops = [For(Var("i"), 0, 2, ForKind.SERIAL, Evaluate(const(1))) for _ in range(2)]
    nested = For(Var("i"), 0, 3, ForKind.PARALLEL, SeqStmt(tuple(loops)))
    assert script(nested) == dedent(
        """
        for i in T.parallel(3):
            for i_1 in range(2):
                T.evaluate(1)
            for i_1 in range(2):
                T.evaluate(1)
        """
    )


def _flat(last: bool) -> Any:
    data = Var("buf", PointerType(PrimType("float32"), "global"))
    view = decl_buffer((8,), name="buf", data=data)
    n = Var("n")
    store = BufferStore(view, 1.0, (n,))
    alloc = Allocate(data, "float32", (const(8),), const(True), LetStmt(n, const(3), store))  # type: ignore[arg-type]
    return alloc if last else SeqStmt((alloc, Evaluate(const(0))))


def test_a_definition_holds_to_the_end_of_its_suite_or_opens_a_with() -> None:
    assert script(_flat(True)) == dedent(
        """
        buf = T.allocate([8], "float32", "global")
        buf_1 = T.Buffer((8,), data=buf)
        n: T.int32 = 3
        buf_1[n] = T.float32(1)
        """
    )
    assert script(_flat(False)) == dedent(
        """
        with T.allocate([8], "float32", "global") as buf:
            buf_1 = T.Buffer((8,), data=buf)
            n: T.int32 = 3
            buf_1[n] = T.float32(1)
        T.evaluate(0)
        """
    )


def test_allocated_and_declared_at_once() -> None:
    data = Var("b", PointerType(PrimType("int8"), "local"))
    b = decl_buffer((8,), "int8", "b", data=data)
    alloc = Allocate(data, "int8", (const(8),), const(True), DeclBuffer(b, BufferStore(b, 1, (0,))))  # type: ignore[arg-type]
    assert script(alloc) == dedent(
        """
        b = T.decl_buffer((8,), "int8", scope="local")
        b[0] = T.int8(1)
        """
    )


def test_threads_and_attributes() -> None:
    tx = IterVar(Range(0, 8), "tx", IterVar.ThreadIndex, "threadIdx.x")
    vt = IterVar(Range(0, 2), "vt", IterVar.ThreadIndex, "vthread")
    body = Evaluate(tx.var + vt.var)
    inner = AttrStmt(vt, "virtual_thread", const(2), body)
    stmt = AttrStmt(tx, "thread_extent", const(8), AttrStmt(A.data, "k", StringImm("v"), inner))
    assert script(stmt) == dedent(
        """
        tx = T.launch_thread("threadIdx.x", 8)
        A = T.handle("float32", "global")
        T.attr(A, "k", "v")
        vt = T.launch_thread("vthread", 2)
        T.evaluate(tx + vt)
        """
    )


def test_symbolic_parameters() -> None:
    n, s = Var("n"), Var("s")
    b = decl_buffer(
        (n, n * 2), "int64", "B", strides=(s, 1), scope="shared", data_alignment=128, offset_factor=4
    )
    func = PrimFunc([b], BufferStore(b, const(1, "int64"), (0, 0)), attrs={"global_symbol": "f"})
    assert func.script() == dedent(
        """
        # from tilewright.script import tir as T

        @T.prim_func
        def f(var_B: T.handle):
            n = T.int32()
            s = T.int32()
            B_elem_offset = T.int32()
            B = T.match_buffer(var_B, (n, n * 2), "int64", scope="shared", strides=(s, 1), elem_offset=B_elem_offset, align=128, offset_factor=4)
            B[0, 0] = T.int64(1)
        """
    )


def test_private_function_and_a_symbol_that_is_not_the_name() -> None:
    func = PrimFunc([x], Evaluate(x))
    assert func.script() == dedent(
        """
        # from tilewright.script import tir as T

        @T.prim_func(private=True)
        def main(x: T.int32):
            T.evaluate(x)
        """
    )
    mod = IRModule({"f": func.with_attr("global_symbol", "g")}, attrs={"a": [1, "b"]})
    assert mod.script() == dedent(
        """
        # from tilewright.script import ir as I
        # from tilewright.script import tir as T

        @I.ir_module
        class Module:
            I.module_attrs({"a": [1, "b"]})

            @T.prim_func
            def f(x: T.int32):
                T.func_attr({"global_symbol": "g"})
                T.evaluate(x)
        """
    )


def test_buffer_alone() -> None:
    assert script(A) == 'T.Buffer((8, 8), "float32")'
    assert script(IRModule()).splitlines()[-1].strip() == "pass"


def test_marks_an_expression_a_statement_and_what_is_not_there() -> None:
    func = _matmul()
    block = func.body.block.body.body.body.body.block  # type: ignore[attr-defined]
    marked = script_marked(func, block.body.value.b).splitlines()
    at = next(i for i, line in enumerate(marked) if "^" in line)
    assert marked[at - 1].strip() == "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"
    start = marked[at].index("^")
    assert marked[at - 1][start : start + marked[at].count("^")] == "A[vi, vk] * B[vk, vj]"
    marked = script_marked(func, func.body.block.body).splitlines()  # type: ignore[attr-defined]
    at = next(i for i, line in enumerate(marked) if "^" in line)
    assert marked[at - 1].strip() == "for i, j, k in T.grid(8, 8, 8):"
    assert marked[at].strip() == "^" * len(marked[at - 1].strip())
    assert script_marked(func, 7).splitlines()[-2:] == ["in which this was looked for:", "7"]


def test_inequality_shows_both_programs() -> None:
    one = PrimFunc([x], Evaluate(x + 1), attrs={"global_symbol": "f"})
    two = PrimFunc([y], Evaluate(y + 2), attrs={"global_symbol": "f"})
    with pytest.raises(ValueError) as failed:
        assert_structural_equal(one, two)
    assert str(failed.value) == dedent(
        """
        StructuralEqual check failed, caused by lhs at <root>.body.value.b.value:
        # from tilewright.script import tir as T

        @T.prim_func
        def f(x: T.int32):
            T.evaluate(x + 1)
                           ^
        and rhs at <root>.body.value.b.value:
        # from tilewright.script import tir as T

        @T.prim_func
        def f(y: T.int32):
            T.evaluate(y + 2)
                           ^
        """
    )


def test_show_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    show(_matmul())
    assert capsys.readouterr().out == _matmul().script() + "\n"


@pytest.mark.slow
def test_deep_programs_print() -> None:
    e: PrimExpr = x
    for _ in range(3000):
        e = Add(e, y)
    assert expr_text(e).count("+") == 3000
    body: Any = Evaluate(x)
    for n in range(1500):
        body = LetStmt(Var(f"v{n}"), x, body)
    assert len(script(body).splitlines()) == 1502


def test_printing_is_the_same_every_time() -> None:
    assert len({_matmul().script() for _ in range(3)}) == 1


class _C(ExprText):
    infix = C_INFIX

    def otherwise(self, e: Any) -> Piece:
        return Piece(e.name if isinstance(e, Var) else str(e.value))


def test_the_same_machinery_prints_c() -> None:
    text = _C().expr(ops.logical_and(ops.logical_or(x < y, x - (y + 1) > 0), Mod(x, y) * 2 >= 3))
    assert text == "(x < y || x - (y + 1) > 0) && x % y * 2 >= 3"


def test_free_buffer_types() -> None:
    b: Buffer = decl_buffer((4,), "bool", "flags", scope="local")
    assert (
        script(Evaluate(b[x]))
        == 'x = T.int32()\nflags = T.Buffer((4,), "bool", scope="local")\nT.evaluate(flags[x])'
    )


def test_a_buffer_of_two_attributes_is_declared_once() -> None:
    """Attributes of several buffers, as `buffer_bind_scope` is, in two loops beside each other."""
    a, b = decl_buffer((4,), "float32", "a", offset_factor=1), decl_buffer((4,), "float32", "b")
    used, loops = Evaluate(ops.call("int32", "tir.call_extern", "use", a.data, b.data)), []
    for name in ("i", "j"):
        bound = AttrStmt([a, b], "buffer_bind_scope", ops.call("handle", "tir.tvm_tuple", 0, 4), used)
        loops.append(For(Var(name), 0, 4, ForKind.SERIAL, bound))
    text = script(PrimFunc([], SeqStmt(loops)))
    assert text.count("a = T.Buffer(") == text.count("b = T.Buffer(") == 1
