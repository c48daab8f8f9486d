"""What scripts mean."""

# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tilewright import script as tvm_script
from tilewright.ir import IRModule, PrimFunc, assert_structural_equal, structural_equal
from tilewright.ir.errors import ScriptError
from tilewright.ir.expr import (
    And,
    BufferLoad,
    Call,
    FloatImm,
    IntImm,
    IterVar,
    Max,
    Mul,
    PrimExpr,
    Ramp,
    SizeVar,
    Var,
)
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
    IfThenElse,
    LetStmt,
    SeqStmt,
)
from tilewright.ir.types import PointerType, PrimType, TupleType
from tilewright.script import from_source
from tilewright.script import ir as I
from tilewright.script import tir as T

SIZE = 16
dtype_outside = "int8"


def text_of(func: PrimFunc) -> list[str]:
    """The body as printed, without the head."""
    return [line.strip() for line in func.script().splitlines()[4:]]


def block_named(func: PrimFunc, name: str) -> Block:
    from tilewright.ir.functor import pre_order

    return next(n for n in pre_order(func.body) if isinstance(n, Block) and n.name_hint == name)


# -- functions -----------------------------------------------------------------------------------
def test_parameters_and_attributes() -> None:
    @T.prim_func
    def f(
        a: T.handle, n: T.int32, x: T.float64, p: T.handle("int8", "shared"), B: T.Buffer((4,), "int8")
    ) -> T.int32:
        T.func_attr({"tir.noalias": True})
        A = T.match_buffer(a, (n,), "float16")
        A[0] = T.float16(1)

    assert isinstance(f, PrimFunc)
    assert [v.name for v in f.params] == ["a", "n", "x", "p", "B_handle"]
    assert [v.dtype for v in f.params] == ["handle", "int32", "float64", "handle", "handle"]
    assert f.params[3].type_annotation == PointerType(PrimType("int8"), "shared")
    assert f.buffer_map[f.params[0]].shape[0] is f.params[1]
    assert f.buffer_map[f.params[4]].dtype == "int8"
    assert f.ret_type == PrimType("int32")
    assert list(f.attrs) == ["global_symbol", "tir.noalias"]
    assert f.attrs["global_symbol"] == "f"


def test_a_private_function_with_a_symbol_is_refused() -> None:
    with pytest.raises(ScriptError, match="function f is private and has the global_symbol 'g'") as caught:

        @T.prim_func(private=True)
        def f() -> None:
            T.func_attr({"global_symbol": "g"})
            T.evaluate(0)

    assert "leave out private=True, or the attribute" in str(caught.value)


def test_reinterpret_as_the_same_type_is_the_value() -> None:
    x = Var("x", "float32")
    assert T.reinterpret("float32", x) is x
    assert T.reinterpret("int32", x).op.name == "tir.reinterpret"


def test_private_function_has_no_symbol() -> None:
    @T.prim_func(private=True)
    def f(n: T.int32) -> None:
        T.evaluate(n)

    assert f.attrs == {}
    assert f.ret_type == TupleType()


def test_older_buffer_syntax() -> None:
    @T.prim_func
    def old(A: T.Buffer[(8, 4), "int32"], B: T.Buffer[8, "float16"], C: T.Buffer[(2,)]):
        A[0, 0] = 1

    @T.prim_func
    def new(A: T.Buffer((8, 4), "int32"), B: T.Buffer(8, "float16"), C: T.Buffer((2,))):
        A[0, 0] = 1

    assert structural_equal(old.with_attr("global_symbol", "new"), new)


def test_a_size_of_the_signature_may_be_another_parameter() -> None:
    @T.prim_func
    def f(n: T.int32, A: T.Buffer((n, "m"), "float32")):
        A[n - 1, m - 1] = 0.0

    shape = f.buffer_map[f.params[1]].shape
    assert shape[0] is f.params[0]
    assert f.body.indices[1].a is shape[1]  # type: ignore[attr-defined]


def test_variables_made_in_the_body() -> None:
    @T.prim_func
    def f(a: T.handle):
        n = T.int32(is_size_var=True)
        A = T.match_buffer(
            a, (n,), strides=("s",), elem_offset="o", scope="global", align=32, offset_factor=8
        )
        A[0] = 0.0

    buffer = f.buffer_map[f.params[0]]
    assert isinstance(buffer.shape[0], SizeVar)
    assert (buffer.strides[0].name, buffer.elem_offset.name) == ("s", "o")  # type: ignore[attr-defined]
    assert (buffer.data_alignment, buffer.offset_factor) == (32, 8)


# -- names from outside ----------------------------------------------------------------------------
def _twice(e: Any) -> Any:
    return e * 2


def test_globals_and_closure_are_captured() -> None:
    width, table = 4, {"scale": 0.5}
    free = Var("free")

    @T.prim_func
    def f(A: T.Buffer((SIZE, width), dtype_outside), B: T.Buffer((width,), "float32")):
        for i in range(width):
            B[i] = B[i] * table["scale"] + T.float32(len(table))
            B[i] = T.Cast("float32", _twice(i) + free)

    assert_structural_equal(f.buffer_map[f.params[0]].shape, (IntImm("int32", 16), IntImm("int32", 4)))
    assert f.buffer_map[f.params[0]].dtype == "int8"
    assert text_of(f)[-3:] == [
        "for i in range(4):",
        "B[i] = B[i] * T.float32(0.5) + T.float32(1)",
        'B[i] = T.Cast("float32", i * 2 + free)',
    ]
    found = f.body.body.seq[1].value.value  # type: ignore[attr-defined]
    assert found.b is free


def test_comprehensions_f_strings_and_unpacking() -> None:
    shape = [2, 3]

    @T.prim_func
    def f(A: T.Buffer([s * 2 for s in shape], "float32")):
        for i, j in T.grid(*[s * 2 for s in shape if s > 0]):
            A[(i, j)] = T.call_extern(
                "float32", f"fun_{len(shape)}_{shape[0]:02d}", *[k + 1 for k in range(3)]
            )

    assert text_of(f) == [
        "for i, j in T.grid(4, 6):",
        'A[i, j] = T.call_extern("float32", "fun_2_02", 1, 2, 3)',
    ]


def test_a_condition_known_now_chooses() -> None:
    fast = False

    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        if fast:
            A[0] = 1.0
        elif SIZE == 16:
            A[1] = 1.0 if fast else 2.0
        if A[0] > 0.0:
            A[2] = 1.0

    assert text_of(f) == ["A[1] = T.float32(2)", "if A[0] > T.float32(0):", "A[2] = T.float32(1)"]


def test_functions_of_a_test_class_are_parsed_at_once() -> None:
    class Case:
        @T.prim_func
        def before(A: T.Buffer((8,), "float32")):
            A[0] = 1.0

    assert isinstance(Case.before, PrimFunc)


# -- expressions -----------------------------------------------------------------------------------
def test_operators() -> None:
    @T.prim_func
    def f(i: T.int32, x: T.float32, p: T.bool):
        T.evaluate((0 <= i < 8 and not p) or x != 1.5)
        T.evaluate(i if i > 0 else -i)
        T.evaluate((i << 2) | (i & 3) ^ (i >> 1))
        T.evaluate(~i + i**2)
        T.evaluate(i + 1.5)
        T.evaluate(+i)

    assert text_of(f) == [
        "T.evaluate(0 <= i and i < 8 and not p or x != T.float32(1.5))",
        "T.if_then_else(i > 0, i, 0 - i)",
        "T.bitwise_or(T.shift_left(i, 2), T.bitwise_xor(T.bitwise_and(i, 3), T.shift_right(i, 1)))",
        "T.evaluate(T.bitwise_not(i) + i * i)",
        'T.evaluate(T.Cast("float32", i) + T.float32(1.5))',
        "T.evaluate(i)",
    ]


def test_names_of_t() -> None:
    @T.prim_func
    def f(x: T.float32, i: T.int32):
        T.evaluate(T.cast(i, "float32") + T.float32(i) + T.max(x, 0.0))
        T.evaluate(T.ceildiv(i, 4) + T.floordiv(i, 3) + T.truncdiv(i, 3))
        T.evaluate(T.any(i < 1, i > 3))
        T.evaluate(T.max_value("int8"))
        T.evaluate(T.float32x4(x))
        T.evaluate(T.call_pure_extern("f", x, dtype="float32"))
        T.evaluate(T.bitwise_and(i, 1) + T.abs(i))

    assert text_of(f) == [
        'T.evaluate(T.Cast("float32", i) + T.Cast("float32", i) + T.max(x, T.float32(0)))',
        "T.evaluate((i + 3) // 4 + i // 3 + T.Div(i, 3))",
        "T.evaluate(i < 1 or i > 3)",
        "T.evaluate(T.int8(127))",
        "T.evaluate(T.Broadcast(x, 4))",
        'T.call_pure_extern("float32", "f", x)',
        "T.evaluate(T.bitwise_and(i, 1) + T.Select(i >= 0, i, 0 - i))",
    ]


def test_every_registered_operator_is_a_name_of_t() -> None:
    from tilewright.ir import Op

    for name in Op.list_op_names():
        short = name.removeprefix("tir.")
        if name != short:
            assert callable(getattr(T, short)), name
    assert {"exp", "call_extern", "float32", "block", "grid", "tvm_access_ptr"} <= set(dir(T))


def test_reduction_and_let() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
        k = T.int32()
        x = T.float32()
        B[0] = T.reduce(
            T.comm_reducer(lambda a, b: a + b, [T.float32(0)]),
            source=[A[k]],
            axis=[T.iter_var(k, T.Range(0, 8), "CommReduce", "")],
        )
        B[0] = T.Let(x * x, where={x: A[0]})

    assert_structural_equal(f, from_source(f.script()))
    assert isinstance(f.body.seq[1].value.body, Mul)  # type: ignore[attr-defined]


# -- statements ------------------------------------------------------------------------------------
def test_loops() -> None:
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), n: T.int32, m: T.int64):
        for i in T.serial(n, n + 4, annotations={"k": 1}):
            A[i] = 0.0
        for i in T.parallel(1, 5):
            A[i] = 0.0
        for i in T.thread_binding(8, thread="threadIdx.y"):
            A[i] = 0.0
        for i in T.unroll((n + 1) * 4 - n * 4):
            A[i] = 0.0
        for j in range(m):
            A[j] = 0.0
        for i in range(n * 4, (n + 1) * 4):
            A[i] = 0.0

    loops = f.body.seq  # type: ignore[attr-defined]
    assert [loop.kind for loop in loops] == [
        ForKind.SERIAL,
        ForKind.PARALLEL,
        ForKind.THREAD_BINDING,
        ForKind.UNROLLED,
        ForKind.SERIAL,
        ForKind.SERIAL,
    ]
    assert loops[0].min is f.params[1] and loops[0].extent.value == 4 and loops[0].annotations == {"k": 1}
    assert (loops[1].min.value, loops[1].extent.value) == (1, 4)
    assert loops[2].thread_binding.thread_tag == "threadIdx.y"
    assert loops[2].thread_binding.iter_type == IterVar.ThreadIndex
    assert loops[4].loop_var.dtype == "int64"
    assert loops[5].extent.value == 4


def test_assignments() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int8")):
        x = A[0] * 2.0
        y: T.int32 = 3
        z = T.meta_var(A[1])
        a, b = T.int32(), T.float32()
        A[y] += x
        B[0] = 300.0 - 200
        A[0:4] = A[4:8]
        A[0:4] = x
        T.evaluate(z + T.Cast("float32", a) + b)

    let = f.body
    assert isinstance(let, LetStmt) and let.var.name == "x" and let.var.dtype == "float32"
    assert isinstance(let.body, LetStmt) and let.body.var.dtype == "int32"
    inner = let.body.body
    assert isinstance(inner, SeqStmt)
    assert isinstance(inner[0], BufferStore) and inner[0].value.a.indices[0] is let.body.var  # type: ignore[attr-defined]
    assert isinstance(inner[1].value, IntImm) and inner[1].value.value == 100  # type: ignore[attr-defined]
    assert isinstance(inner[2].indices[0], Ramp) and inner[2].value.dtype == "float32x4"  # type: ignore[attr-defined]
    assert inner[3].value.dtype == "float32x4"  # type: ignore[attr-defined]


def test_rebinding_a_name_nests() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "int32")):
        x = A[0]
        x += 1
        A[1] = x

    assert text_of(f) == ["x: T.int32 = A[0]", "x_1: T.int32 = x + 1", "A[1] = x_1"]


def test_memory() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        B = T.decl_buffer((4,), "int32", scope="local")
        p = T.allocate([8], "float32", "shared")
        P = T.Buffer((2, 4), data=p, scope="shared")
        with T.launch_thread("threadIdx.x", 8) as tx:
            P[0, tx] = A[tx]
        B[0] = 1

    alloc = f.body
    assert isinstance(alloc, Allocate) and isinstance(alloc.body, DeclBuffer)
    assert alloc.body.buffer.scope() == "local" and alloc.body.buffer.data is alloc.buffer_var
    second = alloc.body.body
    assert isinstance(second, Allocate) and second.buffer_var.type_annotation == PointerType(
        PrimType("float32"), "shared"
    )
    launch = second.body.seq[0]  # type: ignore[attr-defined]
    assert isinstance(launch, AttrStmt) and launch.attr_key == "thread_extent"
    assert launch.body.buffer.data is second.buffer_var  # type: ignore[attr-defined]


def test_return_and_nothing() -> None:
    @T.prim_func
    def f(n: T.int32) -> T.int32:
        """Docstrings are left alone."""
        if n > 3:
            return n + 1
        return T.ret(0)

    @T.prim_func
    def g():
        pass

    assert text_of(f) == ["if n > 3:", "T.ret(n + 1)", "T.ret(0)"]
    assert isinstance(g.body, Evaluate)


def test_macros() -> None:
    factor = 3

    @T.macro
    def scaled(buffer: Any, index: Any, by: Any = factor) -> None:
        x = buffer[index]
        buffer[index] = x * by

    @T.macro(hygienic=False)
    def reset(index: Any) -> None:
        A[index] = 0

    @T.prim_func
    def f(A: T.Buffer((8,), "int32")):
        for i in range(8):
            scaled(A, i)
            scaled(A, i, by=2)
            reset(i)

    assert text_of(f) == [
        "for i in range(8):",
        "with T.LetStmt(A[i]) as x:",
        "A[i] = x * 3",
        "with T.LetStmt(A[i]) as x:",
        "A[i] = x * 2",
        "A[i] = 0",
    ]


# -- blocks ----------------------------------------------------------------------------------------
def test_a_root_block_is_added_only_where_one_is_needed() -> None:
    @T.prim_func
    def with_blocks(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.S(8, i)
                A[vi] = 0.0

    @T.prim_func
    def with_memory(A: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        B[0] = A[0]

    @T.prim_func
    def own_root(A: T.Buffer((8,), "float32")):
        with T.block("root"):
            A[0] = 1.0

    @T.prim_func
    def flat(A: T.Buffer((8,), "float32")):
        A[0] = 1.0

    root = with_blocks.body
    assert (
        isinstance(root, BlockRealize) and root.block.name_hint == "root" and isinstance(root.block.body, For)
    )
    assert not root.block.reads and not root.block.writes
    assert with_memory.body.block.alloc_buffers[0].name == "B"  # type: ignore[attr-defined]
    assert own_root.body.block.name_hint == "root"  # type: ignore[attr-defined]
    assert isinstance(own_root.body.block.body, BufferStore)  # type: ignore[attr-defined]
    assert isinstance(flat.body, BufferStore)


def test_axes() -> None:
    @T.prim_func
    def f(A: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("A"):
                vi = T.axis.remap("S", [i])
                vj = T.axis.R((2, 6), j + 2)
                vk = T.axis.opaque(1, 0)
                T.where(i + j < 9)
                A[vi, vj] = T.Cast("float32", vk)

    block = block_named(f, "A")
    assert [iv.iter_type for iv in block.iter_vars] == [IterVar.DataPar, IterVar.CommReduce, IterVar.Opaque]
    assert block.iter_vars[1].dom.min.value == 2 and block.iter_vars[1].dom.extent.value == 4


@pytest.fixture(scope="module")
def completed() -> PrimFunc:
    @T.prim_func
    def f(
        A: T.Buffer((64, 64), "float32"),
        B: T.Buffer((64, 64), "float32"),
        N: T.Buffer((64,), "int32"),
        C: T.Buffer((64,), "float32"),
    ):
        for i, j in T.grid(16, 16):
            with T.block("tile"):
                vi, vj = T.axis.remap("SS", [i, j])
                for a, b in T.grid(4, 4):
                    B[vi * 4 + a, vj * 4 + b] = A[vi * 4 + a, vj * 4 + 63 - vi * 4 - b]
        for i in range(60):
            with T.block("stencil"):
                vi = T.axis.S(60, i)
                C[vi] = A[vi, 0] + A[vi + 4, 0] + A[vi + 2, 1]
        for i in range(64):
            with T.block("gather"):
                vi = T.axis.S(64, i)
                C[vi] = A[N[vi], vi]
        for i in range(64):
            with T.block("sum"):
                vi = T.axis.S(64, i)
                with T.init():
                    C[vi] = 0.0
                for k in range(64):
                    C[vi] = C[vi] + A[vi, k]
        for i in range(64):
            with T.block("opaque"):
                vi = T.axis.S(64, i)
                T.call_extern("int32", "fill", A.data, vi)
                T.evaluate(B.access_ptr("r"))
        for i in range(8):
            with T.block("outer"):
                vi = T.axis.S(8, i)
                for k in range(8):
                    with T.block("inner"):
                        vk = T.axis.S(8, k)
                        C[vi * 8 + vk] = T.exp(C[vi * 8 + vk])
        for i in range(4):
            with T.block("mod"):
                vi = T.axis.S(4, i)
                n: T.int32 = vi * 2
                C[n] = A[vi, 0]
                for k in range(12):
                    C[k % 5 + k // 4] = 0.0

    return f


@pytest.mark.parametrize(
    ("name", "reads", "writes"),
    [
        (
            "tile",
            "A[vi * 4:vi * 4 + 4, vj * 4 - vi * 4 + 60:vj * 4 - vi * 4 + 64]",
            "B[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4]",
        ),
        ("stencil", "A[vi:vi + 5, 0:2]", "C[vi]"),
        ("gather", "A[N[vi], vi], N[vi]", "C[vi]"),
        ("sum", "A[vi, 0:64]", "C[vi]"),
        ("opaque", "B[0:64, 0:64], A[0:64, 0:64]", "A[0:64, 0:64]"),
        ("outer", "C[vi * 8:vi * 8 + 8]", "C[vi * 8:vi * 8 + 8]"),
        ("inner", "C[vi * 8 + vk]", "C[vi * 8 + vk]"),
    ],
)
def test_accesses_are_found(completed: PrimFunc, name: str, reads: str, writes: str) -> None:
    from tilewright.ir.printer import expr_text

    block = block_named(completed, name)
    assert ", ".join(expr_text(r) for r in block.reads) == reads
    assert ", ".join(expr_text(r) for r in block.writes) == writes


def test_accesses_that_are_given_are_kept() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.S(8, i)
                T.reads(A[0:8])
                B[vi] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.S(8, i)
                T.reads([])
                T.writes([B[vi : vi + 1], A])
                B[vi] = A[vi]

    block = block_named(f, "B")
    assert block.reads[0].region[0].extent.value == 8  # type: ignore[attr-defined]
    assert block.writes[0].region[0].extent.value == 1  # type: ignore[attr-defined]
    block = block_named(f, "C")
    assert block.reads == () and len(block.writes) == 2


def test_constants_in_a_block_are_typed_by_the_buffer() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float64")):
        A[0] = 1
        A[1] = T.max(A[0], 0)

    assert isinstance(f.body.seq[0].value, FloatImm) and f.body.seq[0].value.dtype == "float64"  # type: ignore[attr-defined]
    assert isinstance(f.body.seq[1].value, Max)  # type: ignore[attr-defined]


# -- modules ---------------------------------------------------------------------------------------
def test_module() -> None:
    n = 4

    @I.ir_module
    class Mod:
        I.module_attrs({"x": 1})

        @T.prim_func
        def main(A: T.Buffer((n,), "float32")):
            Mod.other(A.data)
            T.evaluate(Mod.value(n))

        @T.prim_func(private=True)
        def other(p: T.handle("float32")):
            T.evaluate(0)

        @T.prim_func
        def value(i: T.int32) -> T.int32:
            return i

    assert isinstance(Mod, IRModule)
    assert [gv.name_hint for gv in Mod.functions] == ["main", "other", "value"]
    assert Mod.attrs == {"x": 1}
    calls = [s.value for s in Mod["main"].body.seq]
    assert all(isinstance(c, Call) for c in calls)
    assert calls[0].op is Mod.get_global_var("other") and calls[0].dtype == "void"
    assert calls[1].op is Mod.get_global_var("value") and calls[1].dtype == "int32"
    assert "global_symbol" not in Mod["other"].attrs


def test_module_through_the_package() -> None:
    tvm = tilewright

    @tvm.script.ir_module
    class Mod:
        @T.prim_func
        def main(A: T.Buffer[8, "float32"]) -> None:
            T.func_attr({"global_symbol": "main", "tir.noalias": True})
            # with T.block("root")
            for i0 in T.serial(8):
                with T.block("B"):
                    i0_1 = T.axis.spatial(8, i0)
                    T.reads(A[i0_1])
                    T.writes(A[i0_1])
                    A[i0_1] = A[i0_1] + T.float32(1)

    assert Mod["main"].attrs == {"global_symbol": "main", "tir.noalias": True}
    assert tvm_script.tir is T


def test_two_modules_of_one_name_in_one_function() -> None:
    @I.ir_module
    class Mod:
        @T.prim_func
        def main(n: T.int32):
            T.evaluate(n + 1)

    first = Mod

    @I.ir_module
    class Mod:  # type: ignore[no-redef]
        @T.prim_func
        def main(n: T.int32):
            T.evaluate(n + 2)

    assert first.script() != Mod.script()


# -- text ------------------------------------------------------------------------------------------
def test_from_source_text() -> None:
    func = from_source(
        """
from tvm.script import tir as TT
WIDTH = 2 + 2

@TT.macro
def put(buffer, i):
    buffer[i] = 1

@TT.prim_func
def f(A: TT.Buffer((WIDTH, other), "int32")):
    put(A, (0, 1))
""",
        extra_vars={"other": 5},
    )
    assert text_of(func) == ["A[0, 1] = 1"]
    assert tvm_script.parse is tvm_script.from_source


def test_from_source_of_a_python_function() -> None:
    def plain(A: T.Buffer((SIZE,), "float32")):
        A[0] = 1.0

    func = from_source(plain)
    assert isinstance(func, PrimFunc) and func.attrs["global_symbol"] == "plain"


def test_spans_point_into_this_file() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = 1.0

    assert f.span is not None and f.body.span is not None
    assert f.body.span.source_name == __file__
    assert f.body.span.line == f.span.line + 1
    assert f.body.body.span.line == f.span.line + 2  # type: ignore[attr-defined]


def test_deep_expressions() -> None:
    func = from_source("@T.prim_func\ndef f(x: T.int32):\n    T.evaluate(" + " + ".join(["x"] * 900) + ")")
    depth, e = 0, func.body.value
    while not isinstance(e, Var):
        depth, e = depth + 1, e.a
    assert depth == 899


def test_load_values() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), B: T.Buffer((2, 8), "float32")):
        A[0:4] = T.exp(B[0, 0:4]) + B[1, 4:8:1]
        A[T.int32(1)] = B[0, A.shape[0] - 1]

    first = f.body.seq[0]  # type: ignore[attr-defined]
    assert isinstance(first.value.b, BufferLoad) and first.value.b.dtype == "float32x4"
    assert f.body.seq[1].value.indices[1].value == 7  # type: ignore[attr-defined]


def test_python_logic_is_short_circuited() -> None:
    nothing: Any = None

    @T.prim_func
    def f(p: T.bool, A: T.Buffer((8,), "bool")):
        A[0] = (nothing is not None and nothing.p) or p
        A[1] = True and p and A[0]

    first, second = f.body.seq  # type: ignore[attr-defined]
    assert first.value is f.params[0]
    assert isinstance(second.value, And) and isinstance(second.value.a, PrimExpr)


def test_condition_with_else() -> None:
    @T.prim_func
    def f(n: T.int32):
        if n > 3:
            T.evaluate(1)
        elif n > 2:
            T.evaluate(2)
        else:
            T.evaluate(3)

    assert isinstance(f.body, IfThenElse) and isinstance(f.body.else_case, IfThenElse)
    assert f.body.else_case.else_case is not None


def test_a_loop_binds_several_variables_to_one_name() -> None:
    @T.prim_func(private=True)
    def starred(A: T.Buffer((4, 8, 2), "int32"), B: T.Buffer((4, 8), "int32")):
        for at in T.grid(*A.shape):
            A[at] = 1
        for *place, k in T.grid(*A.shape):
            B[place] = A[(*place, k)]

    @T.prim_func(private=True)
    def plain(A: T.Buffer((4, 8, 2), "int32"), B: T.Buffer((4, 8), "int32")):
        for i, j, k in T.grid(4, 8, 2):
            A[i, j, k] = 1
        for i, j, k in T.grid(4, 8, 2):
            B[i, j] = A[i, j, k]

    assert_structural_equal(starred, plain)


def test_a_macro_takes_named_arguments() -> None:
    @T.macro
    def store(i, *args, **kwargs):
        kwargs["A"][i, args[0]] = kwargs["value"]

    @T.prim_func(private=True)
    def by_macro(A: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            store(i, j, A=A, value=3)

    @T.prim_func(private=True)
    def plain(A: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            A[i, j] = 3

    assert_structural_equal(by_macro, plain)
    with pytest.raises(ValueError, match="hygienic=True"):
        T.macro(True)
