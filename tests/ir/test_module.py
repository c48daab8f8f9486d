"""Modules and functions: names, access, change, attributes."""

from __future__ import annotations

import pytest

from tilewright.ir import GlobalVar, IRModule, PrimFunc
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.expr import StringImm, Var, const
from tilewright.ir.stmt import BufferStore, Evaluate, For, ForKind
from tilewright.ir.types import PrimType, TupleType


def func(value: int = 0, **attrs: object) -> PrimFunc:
    return PrimFunc([], Evaluate(const(value)), attrs=attrs)


# -- modules ------------------------------------------------------------------------------------
def test_access_by_name_and_by_var() -> None:
    f, g = func(1), func(2)
    mod = IRModule({"f": f, GlobalVar("g"): g})
    assert mod["f"] is f and mod[mod.get_global_var("g")] is g and len(mod) == 2
    assert [gv.name_hint for gv in mod] == ["f", "g"] and mod.get_global_vars() == list(mod.functions)
    assert "f" in mod and "h" not in mod and mod.get_global_var("f") in mod and GlobalVar("f") not in mod
    assert [fn for _, fn in mod.functions_items()] == [f, g]
    assert mod.functions.items()[1][1] is g and dict(mod.functions.items()) == mod.functions


def test_unknown_names() -> None:
    mod = IRModule({"f": func(), "g": func()})
    with pytest.raises(ValueError, match="the module has no function 'h'; it has: f, g"):
        mod["h"]
    with pytest.raises(ValueError, match="the module has no function 'h'"):
        mod[GlobalVar("h")]
    with pytest.raises(ValueError, match="@f is not the GlobalVar that this module has under that name"):
        mod[GlobalVar("f")]
    with pytest.raises(ValueError, match="it has: none"):
        IRModule()["f"]


def test_names_are_unique() -> None:
    mod = IRModule({"f": func(1)})
    with pytest.raises(ValueError, match="the module has another function 'f'; names are unique"):
        mod[GlobalVar("f")] = func(2)
    with pytest.raises(ValueError, match="names are unique"):
        IRModule({GlobalVar("f"): func(1), GlobalVar("f"): func(2)})
    mod["f"] = func(3)
    assert len(mod) == 1 and mod["f"].body.value.value == 3
    mod.update_func(mod.get_global_var("f"), func(4))
    assert mod["f"].body.value.value == 4


def test_only_functions() -> None:
    with pytest.raises(TypeError, match="a module holds functions, not int: f"):
        IRModule({"f": 5})


def test_update_and_remove() -> None:
    mod = IRModule({"f": func(1)})
    kept = mod.get_global_var("f")
    mod.update(IRModule({"f": func(2), "g": func(3)})).update({"h": func(4)})
    assert [gv.name_hint for gv in mod] == ["f", "g", "h"] and mod.get_global_var("f") is kept
    assert mod["f"].body.value.value == 2
    mod.remove("g")
    mod.remove(mod.get_global_var("h"))
    assert list(mod) == [kept]
    with pytest.raises(ValueError, match="no function 'g'"):
        mod.remove("g")


def test_map_functions() -> None:
    mod = IRModule({"f": func(1), "g": func(2)}, attrs={"a": 1})
    assert mod.map_functions(lambda f: f) is mod
    made = mod.map_functions(lambda f: f.with_attr("x", 1) if f is mod["f"] else f)
    assert made["f"].attrs == {"x": 1} and made["g"] is mod["g"] and made.attrs == {"a": 1}
    assert made.get_global_var("f") is mod.get_global_var("f") and mod["f"].attrs == {}


def test_clones_are_independent() -> None:
    mod = IRModule({"f": func(1)}, attrs={"a": 1})
    other = mod.clone()
    other["g"] = func(2)
    assert "g" not in mod and other.attrs == {"a": 1}


def test_attributes() -> None:
    mod = IRModule({"f": func()})
    assert mod.get_attr("a") is None
    made = mod.with_attr("a", 1).with_attrs({"b": 2, "a": 3})
    assert made.attrs == {"a": 3, "b": 2} and mod.attrs == {} and made["f"] is mod["f"]


def test_from_expr() -> None:
    assert [gv.name_hint for gv in IRModule.from_expr(func())] == ["main"]
    named = func(global_symbol="conv")
    assert IRModule.from_expr(named)["conv"] is named
    assert "conv" in IRModule.from_expr(func(global_symbol=StringImm("conv")))
    assert len(IRModule.from_expr(func(), {"other": func()})) == 2


def test_global_vars() -> None:
    gv = GlobalVar("f", "type")
    assert gv.name == "f" and gv.checked_type == "type" and repr(gv) == "@f" and gv.same_as(gv)
    made = gv(const(1), 2)
    assert made.op is gv and len(made.args) == 2 and made.dtype == "void"


def test_text() -> None:
    mod = IRModule({"f": func()})
    assert "def f" in mod.script() and str(mod) == repr(mod) == mod.astext() == mod.script()


# -- functions ----------------------------------------------------------------------------------
def test_buffers_as_parameters() -> None:
    buffer, n = decl_buffer((4,), "int32", "A"), Var("n")
    made = PrimFunc([buffer, n], BufferStore(buffer, n, [0]))
    assert made.params[0].dtype == "handle" and made.params[0].name == "A" and made.params[1] is n
    assert made.buffer_map == {made.params[0]: buffer} and made.buffer_params() == [buffer]
    assert made.ret_type == TupleType()


def test_wrong_parameters_and_bodies() -> None:
    with pytest.raises(TypeError, match="a parameter must be a variable or a buffer, not `1`"):
        PrimFunc([1], Evaluate(const(0)))
    with pytest.raises(TypeError, match="the body of a function must be a statement, not int"):
        PrimFunc([], 5)
    assert PrimFunc([], const(1)).body.__class__ is Evaluate


def test_function_attributes() -> None:
    f = func(a=1)
    assert f.with_attr("b", 2).attrs == {"a": 1, "b": 2} and f.attrs == {"a": 1}
    assert f.with_attr({"b": 2, "c": 3}).attrs == {"a": 1, "b": 2, "c": 3}
    assert f.without_attr("a").attrs == {} and f.without_attr("z") is f


def test_with_body_keeps_the_rest() -> None:
    n = Var("n")
    f = PrimFunc([n], Evaluate(n), PrimType("int32"), {}, {"a": 1})
    made = f.with_body(For(Var("i"), 0, n, ForKind.SERIAL, Evaluate(n)))
    assert made.params == (n,) and made.attrs == {"a": 1} and made.ret_type == PrimType("int32")
    assert f.map_children(lambda s: s) is f and f.children() == [f.body]


def test_update_keeps_the_names_that_functions_call() -> None:
    from tilewright import relay

    callee, x = relay.GlobalVar("callee"), relay.var("x", shape=(3,))
    other = IRModule(
        {callee: relay.Function([x], x + x), relay.GlobalVar("caller"): relay.Function([x], callee(x))}
    )
    mod = IRModule({"main": relay.Function([x], x)})
    mod.update(other)
    assert mod.get_global_var("callee") is callee
    relay.transform.InferType()(mod)  # finds what `caller` calls
    mod.update({relay.GlobalVar("main"): relay.Function([x], x * x)})
    assert len(mod.functions) == 3 and mod["main"].body.op.name == "multiply"
