"""Algebraic data types: definitions, patterns, types, text, equality, and runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.backend.interpreter import ConstructorValue
from tilewright.relay.prelude import Prelude

TEXT = """#[version = "0.0.5"]
type List[A] {
  Cons(A, List[A]),
  Nil,
}

def @main(%xs: List[Tensor[(2), float32]]) -> Tensor[(2), float32] {
  match? (%xs) {
    Cons(%x, Cons(%y, _)) => { add(%x, %y) },
    Cons(%x, Nil) => { %x },
  }
}
"""


@pytest.fixture
def prelude() -> Prelude:
    return Prelude(tvm.IRModule())


def numbers(p: Prelude, *values: float) -> Any:
    _, cons, nil = p.mod.get_type("List")
    made = nil()
    for v in reversed(values):
        made = cons(relay.const(v), made)
    return made


def as_list(value: Any) -> list[Any]:
    out = []
    while len(value):
        out.append(value[0].numpy().item())
        value = value[1]
    return out


def run(p: Prelude, expr: Any, kind: str = "vm") -> Any:
    return relay.create_executor(kind, mod=p.mod).evaluate(expr)


def test_text_is_read_typed_and_written_back() -> None:
    mod = relay.transform.InferType()(relay.parse(TEXT))
    again = relay.transform.InferType()(relay.parse(mod.astext()))
    tvm.ir.assert_structural_equal(mod, again)
    assert "Cons(%x: Tensor[(2), float32], Cons(%y: Tensor[(2), float32], _)) => {" in mod.astext()
    assert tvm.ir.structural_hash(mod) == tvm.ir.structural_hash(again)


def test_matches_with_other_clauses_are_not_equal() -> None:
    other = relay.parse(TEXT.replace("add(%x, %y)", "add(%y, %x)"))
    assert not tvm.ir.structural_equal(relay.parse(TEXT), other)
    fewer = relay.parse(TEXT.replace("Cons(%x, Nil) =>", "Cons(%x, _) =>"))
    assert not tvm.ir.structural_equal(relay.parse(TEXT), fewer)


def test_types_of_parameters_follow_from_patterns() -> None:
    box, tv = relay.GlobalTypeVar("Box"), relay.TypeVar("T")
    put = relay.Constructor("Put", [tv], box)
    relay.TypeData(box, [tv], [put])
    kind = relay.TensorType((2, 2))
    x, inside = relay.var("x"), relay.var("inside", kind)
    clause = relay.Clause(relay.PatternConstructor(put, [relay.PatternVar(inside)]), relay.Tuple([]))
    f = relay.infer_type(relay.Function([x], relay.Match(put(x), [clause])))
    assert f.checked_type == relay.FuncType([kind], relay.TupleType([]))
    with pytest.raises(relay.RelayTypeError, match="Put has 0 fields, its constructor 1"):
        wrong = relay.Clause(relay.PatternConstructor(put), relay.Tuple([]))
        relay.infer_type(relay.Match(put(relay.const(1)), [wrong]))


def test_an_undefined_constructor_is_refused() -> None:
    lonely = relay.Constructor("Lonely", [], relay.GlobalTypeVar("T"))
    with pytest.raises(relay.RelayTypeError, match=r"Lonely belongs to no relay\.TypeData"):
        relay.infer_type(lonely())


@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.slow
def test_functions_of_the_prelude(prelude: Prelude, kind: str) -> None:
    p, xs = prelude, numbers(prelude, 1, 2, 3)
    x = relay.var("x", "int32")
    twice = relay.Function([x], x + x)
    assert as_list(run(p, p.map(twice, xs), kind)) == [2, 4, 6]
    assert as_list(run(p, p.rev(xs), kind)) == [3, 2, 1]
    assert as_list(run(p, p.concat(xs, numbers(p, 9)), kind)) == [1, 2, 3, 9]
    assert run(p, p.sum(xs), kind).numpy() == 6
    assert run(p, p.length(xs), kind).numpy() == 3
    assert run(p, p.nth(xs, relay.const(1)), kind).numpy() == 2
    assert as_list(run(p, p.update(xs, relay.const(1), relay.const(7)), kind)) == [1, 7, 3]
    y = relay.var("y", "int32")
    assert as_list(run(p, p.filter(relay.Function([y], y > relay.const(1)), xs), kind)) == [2, 3]
    a, b = relay.var("a", "int32"), relay.var("b", "int32")
    minus = relay.Function([a, b], a - b)
    assert run(p, p.foldl(minus, relay.const(0), xs), kind).numpy() == -6
    assert run(p, p.foldr(minus, relay.const(0), xs), kind).numpy() == 2
    assert run(p, p.foldr1(minus, xs), kind).numpy() == 2


def test_trees_and_options(prelude: Prelude) -> None:
    p = prelude
    _, rose = p.mod.get_type("Tree")
    _, cons, nil = p.mod.get_type("List")
    _, some, none = p.mod.get_type("Option")
    tree = rose(relay.const(1), cons(rose(relay.const(2), nil()), cons(rose(relay.const(3), nil()), nil())))
    assert run(p, p.size(tree)).numpy() == 3
    n = relay.var("n", "int32")
    next_one = relay.If(
        relay.equal(n, relay.const(3)), none(), some(relay.Tuple([n + relay.const(1), n * n]))
    )
    counted = p.unfoldr(relay.Function([n], next_one), relay.const(0))
    assert as_list(run(p, counted)) == [0, 1, 4]


def test_a_constructor_is_a_function_too(prelude: Prelude) -> None:
    p = prelude
    _, some, _ = p.mod.get_type("Option")
    found = run(p, p.map(some, numbers(p, 4, 5)), "debug")
    assert isinstance(found, ConstructorValue)
    assert found[0].constructor.name_hint == "Some" and found[0].fields[0].numpy() == 4


def test_data_is_an_argument_and_a_result(prelude: Prelude) -> None:
    p = prelude
    made = run(p, numbers(p, 1, 2))
    xs = relay.var("xs", p.mod.get_global_type_var("List")(relay.scalar_type("int32")))
    f = relay.Function([xs], p.rev(xs))
    assert as_list(relay.create_executor("vm", mod=p.mod).evaluate(f)(made)) == [2, 1]


def test_a_value_without_a_clause_is_an_error(prelude: Prelude) -> None:
    with pytest.raises(tvm.TVMError, match="no clause of a `match`"):
        run(prelude, prelude.sum(prelude.tl(numbers(prelude))))


def test_a_saved_program_with_data_runs(prelude: Prelude) -> None:
    p = prelude
    x = relay.var("x", shape=(2,))
    _, cons, nil = p.mod.get_type("List")
    p.mod["main"] = relay.Function([x], p.hd(p.map(relay.Function([x], x * x), cons(x, nil()))))
    code, lib = relay.vm.compile(p.mod, "llvm").save()
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.Executable.load_exec(code, lib), tvm.cpu())
    np.testing.assert_array_equal(machine.invoke("main", np.array([2, 3], "float32")).numpy(), [4, 9])


def test_a_long_list(prelude: Prelude) -> None:
    n = relay.var("n", "int32")
    _, some, none = prelude.mod.get_type("Option")
    step = relay.If(n < relay.const(3000), some(relay.Tuple([n + relay.const(1), n])), none())
    counted = prelude.unfoldr(relay.Function([n], step), relay.const(0))
    assert run(prelude, prelude.length(counted)).numpy() == 3000


def test_the_library_is_imported_once(prelude: Prelude) -> None:
    before = dict(prelude.mod.functions)
    prelude.mod.import_from_std("prelude.rly")
    assert prelude.mod.functions == before
    prelude.mod.import_from_std("nat.rly")
    assert relay.transform.InferType()(prelude.mod)["nat_double"].ret_type.func.name_hint == "nat"
    with pytest.raises(tvm.TVMError, match=r"no such file in the library; it has core.rly, gradient.rly"):
        prelude.mod.import_from_std("none.rly")
