"""The text form, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import relay, te
from tilewright.ir import GlobalVar, IRModule, assert_structural_equal, load_json, save_json
from tilewright.relay.parser import ParseError
from tilewright.relay.testing import run_infer_type


def round_trip(expr: Any) -> None:
    """print -> parse -> the same program."""
    if isinstance(expr, IRModule):
        assert_structural_equal(relay.parse(expr.astext()), expr)
        return
    again = relay.fromtext(expr.astext())
    assert_structural_equal(again, expr, map_free_vars=True)


def test_the_form_of_a_module() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    c = relay.nn.conv2d(x, w, strides=(2, 2), padding=1)
    mod = run_infer_type(IRModule.from_expr(relay.Function([x, w], relay.nn.relu(c) + relay.const(1.5))))
    assert mod.astext() == (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32])"
        " -> Tensor[(1, 4, 4, 4), float32] {\n"
        "  %0 = nn.conv2d(%x, %w, strides=[2, 2], padding=[1, 1, 1, 1]) /* ty=Tensor[(1, 4, 4, 4), float32] */;\n"
        "  %1 = nn.relu(%0) /* ty=Tensor[(1, 4, 4, 4), float32] */;\n"
        "  add(%1, 1.5f /* ty=float32 */) /* ty=Tensor[(1, 4, 4, 4), float32] */\n"
        "}\n"
    )
    round_trip(mod)


def test_scopes_lets_and_sharing() -> None:
    x, c, v = relay.var("x", shape=(2,)), relay.var("c", "bool"), relay.var("v")
    shared = relay.exp(x)
    inner = relay.var("x", shape=(2,))
    f = relay.Function(
        [x, c],
        relay.Let(
            v,
            relay.Tuple([shared, x]),
            relay.If(c, shared + relay.TupleGetItem(v, 0), relay.Function([inner], inner + shared)(x)),
        ),
    )
    assert f.astext() == (
        '#[version = "0.0.5"]\n'
        "fn (%x: Tensor[(2), float32], %c: bool) {\n"
        "  %0 = exp(%x);\n"
        "  let %v = (%0, %x);\n"
        "  if (%c) {\n"
        "    add(%0, %v.0)\n"
        "  } else {\n"
        "    %1 = fn (%x_1: Tensor[(2), float32]) {\n"
        "      add(%x_1, %0)\n"
        "    };\n"
        "    %1(%x)\n"
        "  }\n"
        "}"
    )
    round_trip(f)
    round_trip(run_infer_type(f))


def test_a_let_in_the_middle_has_braces() -> None:
    x, v = relay.var("x", shape=(2,)), relay.var("v")
    round_trip(relay.Function([x], relay.exp(relay.Let(v, x + x, v * v))))


def test_constants_and_metadata() -> None:
    x = relay.var("x", shape=(2,))
    big = relay.const(np.arange(6, dtype="float32").reshape(2, 3))
    for scalar in (
        relay.const(1),
        relay.const(-3, "int64"),
        relay.const(0.1),
        relay.const(-2.5, "float64"),
        relay.const(1e-30),
        relay.const(True),
        relay.const(7, "uint8"),
        relay.const(float("inf")),
        relay.const(float("nan")),
        relay.const(-0.0),
        relay.const(1.5, "bfloat16"),
    ):
        round_trip(relay.Function([x], relay.Tuple([scalar, x])))
    f = relay.Function([x], relay.Tuple([big, big]))
    assert "meta[relay.Constant][0] /* ty=Tensor[(2, 3), float32] */" in str(f)
    assert "#[metadata]" not in str(f)
    round_trip(f)


def test_names_that_need_quotes() -> None:
    x, y = relay.var("layer.0/weight:0", shape=(2,)), relay.var("7", shape=(2,))
    f = relay.Function([x, y, relay.var("bn.gamma", shape=(2,))], x + y)
    assert '%"layer.0/weight:0": Tensor' in str(f) and "%bn.gamma" in str(f)
    round_trip(f)
    assert relay.fromtext(f.astext()).params[0].name_hint == "layer.0/weight:0"


def test_types_of_all_kinds() -> None:
    n = te.size_var("n")
    m = te.size_var("m", "int64")
    t = relay.TypeVar("t")
    kinds = [
        relay.TensorType((n, n * 2 + 1, relay.Any(), (n + 1) // 2), "int8"),
        relay.TensorType((m,)),
        relay.TupleType([]),
        relay.TupleType([relay.TensorType((1,)), relay.TupleType([relay.scalar_type("bool")])]),
        relay.FuncType([relay.TensorType((1,))], relay.TensorType(())),
        relay.RefType(relay.TensorType(())),
    ]
    params = [relay.Var(f"p{i}", k) for i, k in enumerate(kinds)]
    f = relay.Function(params, params[0])
    assert "Tensor[(n, (n * 2) + 1, ?, floordiv(n + 1, 2)), int8]" in str(f)
    again = relay.fromtext(f.astext())
    assert again.astext() == f.astext()
    p = relay.Var("p", t)
    round_trip(relay.Function([p], p, t, [t]))


def test_functions_of_a_module_and_attributes() -> None:
    f = GlobalVar("f")
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    attrs = {"Primitive": 1, "Compiler": "dnnl", "rate": 0.5, "sizes": (1, (2, 3)), "on": True}
    mod = IRModule({f: relay.Function([x], relay.exp(x), attrs=attrs)})
    mod["main"] = relay.Function([y], f(y))
    round_trip(mod)
    assert relay.parse(mod.astext())["f"].attrs == attrs


def test_json_keeps_programs() -> None:
    f = GlobalVar("f")
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    mod = IRModule({f: relay.Function([x], x + relay.const([1.0, 2.0]))}, attrs={"level": 3})
    mod["main"] = relay.Function([y], f(y))
    again = load_json(save_json(mod))
    assert_structural_equal(again, mod)
    assert again["main"].body.op is again.get_global_var("f")
    assert_structural_equal(load_json(save_json(relay.exp(y))), relay.exp(y), map_free_vars=True)


def test_the_classic_grammar() -> None:
    e = relay.parse_expr(
        "free_var %x: Tensor[(3), float32]; free_var %c: bool; if (%c) { %x + 1f * 2f } else { -%x }"
    )
    assert isinstance(e, relay.If) and e.true_branch.args[1].op.name == "multiply"
    assert relay.testing.run_infer_type(e).checked_type == relay.TensorType((3,))
    mod = relay.fromtext(
        """
        #[version = "0.0.5"]
        def @id(%x: int32) -> int32 { %x }   // a comment
        def @main(%x: int32) { let %y: int32 = @id(%x); (%y, 1, (%y,).0) }
        """
    )
    assert mod["main"].body.value.op.name_hint == "id"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nn.reluu(1f)", "no operator is named 'nn.reluu'; did you mean nn.relu"),
        ("free_var %x: Tensor[(3), float32]; exp(%y)", "variable %y is not defined"),
        ("exp(1f", "')' was expected"),
        ("%3", "%3 is not defined here"),
        ("clip(1f, a_mim=0f)", "has no attribute 'a_mim'"),
        ("fn (%x: Tensor[(3), floatt]) { %x }", "'floatt' is not a type of elements"),
        ("meta[relay.Constant][0]", "no metadata"),
        ("exp(1f) exp", "nothing was expected after"),
        ("def @f() { 1 } def @f() { 2 }", "two functions @f"),
        ("def @f() { @g() }", "@g is called and not defined"),
        ("$", "begins nothing known"),
    ],
)
def test_errors_show_the_place(source: str, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        relay.fromtext(source)
    assert reason in str(caught.value) and "at from_string:1:" in str(caught.value)


@pytest.mark.slow
def test_a_long_chain_is_printed_and_read() -> None:
    x = relay.var("x", shape=(2,))
    e: Any = x
    for _ in range(5_000):
        e = relay.Call(relay.op.get("nn.relu"), [e])
    round_trip(relay.Function([x], e))


@pytest.mark.slow
def test_functions_inside_functions() -> None:
    x = relay.var("x", shape=(2,))
    f = relay.Function([x], x)
    for _ in range(1000):
        p = relay.var("p", shape=(2,))
        f = relay.Function([p], f(p))
    typed = relay.infer_type(f)
    assert typed.ret_type == x.checked_type
    round_trip(typed)


@st.composite
def programs(draw: Any) -> relay.Function:
    """Functions with sharing, tuples, lets, branches and closures over tensors of one shape."""
    x, y = relay.var("x", shape=(2,)), relay.var("x", shape=(2,))
    pool: list[Any] = [x, y, relay.const([0.5, -1.0]), relay.const([1.0, 2.0])]
    lets: list[tuple[relay.Var, Any]] = []
    pick = st.integers(0, 10**6)
    for i in range(draw(st.integers(1, 12))):
        a, b = pool[draw(pick) % len(pool)], pool[draw(pick) % len(pool)]
        kind = draw(st.sampled_from(["unary", "binary", "tuple", "let", "if", "fn", "clip"]))
        if kind == "unary":
            pool.append(relay.exp(a))
        elif kind == "binary":
            pool.append(a + b * relay.const(1.5))
        elif kind == "clip":
            pool.append(relay.clip(a, draw(st.floats(-4, 0)), draw(st.floats(0, 4))))
        elif kind == "tuple":
            pool.append(relay.TupleGetItem(relay.Tuple([a, b]), draw(st.integers(0, 1))))
        elif kind == "let":
            v = relay.var(f"v{i}")
            lets.append((v, a))
            pool = [*pool, v]
        elif kind == "if":
            pool.append(relay.If(relay.const(draw(st.booleans())), a, relay.exp(b)))
        else:
            p = relay.var("p", shape=(2,))
            pool.append(relay.Function([p], p + a)(b))
    body: Any = relay.Tuple([pool[-1], pool[draw(pick) % len(pool)]])
    for v, value in reversed(lets):
        body = relay.Let(v, value, body)
    return relay.Function([x, y], body)


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(programs())
def test_any_program_comes_back(f: relay.Function) -> None:
    round_trip(f)
    if relay.analysis.well_formed(f):
        typed = run_infer_type(f)
        round_trip(typed)
