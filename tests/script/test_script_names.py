"""Functions whose names Python has no word for, and bodies with a root block of another shape than usual."""

from __future__ import annotations

import ast

import pytest
import script_programs as programs

import tilewright as tvm
from tilewright.ir import GlobalVar, IRModule, PrimFunc, assert_structural_equal, decl_buffer
from tilewright.ir.errors import ScriptError
from tilewright.ir.expr import Call, Var, const
from tilewright.ir.stmt import AttrStmt, Block, BlockRealize, BufferStore, DeclBuffer, Evaluate, For, ForKind
from tilewright.script import from_source
from tilewright.script import ir as I
from tilewright.script import tir as T

NAMES = [
    "main",
    "a b",
    "a_b",
    "my-func",
    "é",
    "e\u0301",  # Python composes the two
    "ﬁ",  # and takes this for fi
    "",
    "func",
    "1x",
    "class",
    "None",
    "match",
    "T",
    "I",
    "Module",
    "cls",
    "__x",
    "range",
    'say "it"',
    "two\nlines",
    "\ud800",
]


def calls(name: str, callee: GlobalVar, private: bool = False) -> PrimFunc:
    x = Var("x", "int32")
    attrs = {} if private else {"global_symbol": name}
    return PrimFunc([x], Evaluate(Call("void", callee, (x,))), attrs=attrs)


@pytest.mark.parametrize("private", [False, True])
def test_functions_of_any_name_call_each_other(private: bool) -> None:
    ring = [GlobalVar(n) for n in NAMES]
    mod = IRModule(
        {gv: calls(gv.name_hint, ring[i - 1], private) for i, gv in enumerate(ring)}, attrs={"n": 1}
    )
    text = mod.script()
    ast.parse(text)
    again = from_source(text)
    assert_structural_equal(mod, again)
    assert {gv.name_hint for gv in again.functions} == set(NAMES)
    assert again.script() == text
    assert_structural_equal(mod, from_source(mod.script(tir_prefix="P", ir_prefix="M"), {"P": T, "M": I}))


@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_any_name_alone(name: str) -> None:
    func = calls(name, GlobalVar("elsewhere"))
    again = from_source(func.script())
    assert_structural_equal(func, again)
    assert again.attrs["global_symbol"] == name


def test_text_of_names(expect) -> None:
    main, odd = GlobalVar("main"), GlobalVar("a b")
    mod = IRModule({main: calls("main", odd), odd: calls("a b", GlobalVar("not here"))})
    expect(
        mod,
        """
        @I.ir_module
        class Module:
            @T.prim_func(name="a b")
            def a_b(x: T.int32):
                I.GlobalVar("not here")(x)

            @T.prim_func
            def main(x: T.int32):
                Module.a_b(x)
        """,
    )


def test_a_symbol_that_is_not_the_name() -> None:
    mod = IRModule({GlobalVar("a b"): calls("c d", GlobalVar("a b"))})
    assert_structural_equal(mod, from_source(mod.script()))


def test_decorators_take_a_name() -> None:
    @T.prim_func(name="my func")
    def mine(x: T.int32):
        T.evaluate(x)

    assert mine.attrs["global_symbol"] == "my func"

    @I.ir_module
    class Module:
        @T.prim_func(name="my func")
        def mine(x: T.int32):
            Module.mine(x)

    assert [gv.name_hint for gv in Module.functions] == ["my func"]
    assert Module["my func"].body.value.op is Module.get_global_var("my func")


def test_one_name_twice() -> None:
    head = "@I.ir_module\nclass M:\n"
    one = "    @T.prim_func(name='f')\n    def {}():\n        pass\n"
    with pytest.raises(ScriptError, match="the module defines f twice"):
        from_source(head + one.format("a") + one.format("b"))


# -- the root block ------------------------------------------------------------------------------
A = decl_buffer((8,), "int32", "A")


def loop_with_block() -> For:
    i = Var("i")
    return For(i, 0, 8, ForKind.SERIAL, realized("b", BufferStore(A, i, [i])))


def realized(name: str, body: object) -> BlockRealize:
    return BlockRealize((), const(True), Block((), (), (), name, body))


VIEW = decl_buffer((8,), "int32", "view", data=A.data)
BODIES = {
    "no root": loop_with_block(),
    "usual": realized("root", loop_with_block()),
    "behind a definition": DeclBuffer(VIEW, realized("root", loop_with_block())),
    "behind an attribute": AttrStmt(None, "key", const(1), realized("root", loop_with_block())),
    "another block behind a definition": DeclBuffer(VIEW, realized("other", loop_with_block())),
    "a root in a root": realized("root", realized("root", loop_with_block())),
    "a definition in a root": realized("root", DeclBuffer(VIEW, realized("root", loop_with_block()))),
    "a definition of a block in a root": realized(
        "root", DeclBuffer(VIEW, realized("x", Evaluate(const(0))))
    ),
    "an empty root": realized("root", Evaluate(const(0))),
    "another name": realized("other", loop_with_block()),
}


@pytest.mark.parametrize("sugar", [True, False], ids=["sugar", "plain"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_root_block_is_where_it_was(body: object, sugar: bool) -> None:
    func = PrimFunc([A], body, attrs={"global_symbol": "f"})
    assert_structural_equal(func, from_source(func.script(syntax_sugar=sugar)))


@pytest.mark.parametrize("program", programs.FUNCTIONS, ids=lambda p: str(p.attrs.get("global_symbol")))
def test_flattening_alone(program: PrimFunc) -> None:
    """Blocks over flat buffers: the declarations of these stand outside the root block."""
    from tilewright.tir.transform import FlattenBuffer

    mod = FlattenBuffer()(IRModule.from_expr(program))
    assert_structural_equal(mod, from_source(mod.script()))


def test_a_buffer_outside_of_a_script() -> None:
    """`T.Buffer` elsewhere makes a buffer, and a parameter can be declared to be like one."""
    made = T.Buffer((4, 8), "float16", scope="shared")
    assert isinstance(made, tvm.tir.Buffer)
    assert ([int(d) for d in made.shape], made.dtype, made.scope()) == ([4, 8], "float16", "shared")
    row = T.Buffer((8,), "float32")

    @T.prim_func
    def twice(A: row, B: row, C: T.Buffer((8,), "float32")):
        for i in range(8):
            C[i] = A[i] + B[i]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            C[i] = A[i] + B[i]

    assert_structural_equal(twice, expected.with_attr("global_symbol", "twice"))
    assert [b.name for b in twice.buffer_params()] == ["A", "B", "C"]

    def view(*args, **kwargs):
        return T.Buffer(*args, **kwargs)

    @T.prim_func
    def through_a_function(A: view((8,), "float32")):
        flat = view((4,), "float32", data=A.data)
        flat[0] = T.float32(1)

    assert "flat = T.Buffer((4,), data=A.data)" in through_a_function.script()


def test_llvm_intrinsics_by_number_and_calls_of_functions() -> None:
    """`llvm_lookup_intrinsic_id` names an intrinsic in a script and outside, and `tir.call_tir` calls a function."""
    x = tvm.tir.Var("x", "float32")
    number = tvm.target.codegen.llvm_lookup_intrinsic_id("llvm.sqrt")
    by_number = tvm.tir.call_llvm_pure_intrin("float32", number, tvm.tir.const(1, "uint32"), x)
    assert str(by_number) == 'T.call_llvm_pure_intrin("float32", "llvm.sqrt", T.uint32(1), x)'
    with pytest.raises(ValueError, match="0 is the number of no LLVM intrinsic"):
        tvm.tir.call_llvm_pure_intrin("float32", 0, x)

    @T.prim_func
    def root(A: T.Buffer((1,), "float32")):
        A[0] = T.call_llvm_pure_intrin("float32", T.llvm_lookup_intrinsic_id("llvm.sqrt"), T.uint32(1), A[0])

    assert '"llvm.sqrt", T.uint32(1), A[0]' in root.script()
    called = tvm.ir.GlobalVar("other")
    assert tvm.tir.call_tir(called, x).op is called
