"""Classic names that are doors: copies with fields changed, names of C code, options of executors, kinds of types."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.supply import GlobalVarSupply, NameSupply
from tilewright.relay.backend import Executor, Runtime
from tilewright.relay.backend.name_transforms import (
    prefix_generated_name,
    to_c_constant_style,
    to_c_function_style,
)
from tilewright.relay.backend.utils import mangle_module_name
from tilewright.runtime.name_transforms import sanitize_name


def test_copies_with_fields_changed() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    pair = relay.Tuple([x, y])
    assert relay.TupleWithFields(pair, [x, y]).fields == (x, y)
    assert relay.expr.TupleWithFields(pair) is pair
    call = relay.CallWithFields(relay.add(x, x), args=[x, y])
    assert call.args == (x, y) and call.op.name == "add"
    f = relay.FunctionWithFields(relay.Function([x], x), attrs={"Primitive": 1})
    assert f.attrs["Primitive"] == 1 and f.params == (x,)
    with pytest.raises(TypeError, match=r"LetWithFields takes a relay\.Let, not Tuple"):
        relay.LetWithFields(pair)
    with pytest.raises(TypeError, match="Tuple has no field 'nonsense'"):
        relay.TupleWithFields(pair, nonsense=1)


def test_options_of_executors_and_runtimes() -> None:
    assert Executor("aot", {"interface-api": "c"})["interface-api"] == "c"
    assert Executor("graph")["link-params"] is False and str(Runtime("crt")) == "crt"
    assert Executor.list_registered_options("aot")["unpacked-api"] == "IntImm"
    with pytest.raises(tvm.TVMError, match='Executor "woof" is not defined; there are graph, aot'):
        Executor("woof")
    with pytest.raises(tvm.TVMError, match='"woof" is not available on this Runtime; crt has system-lib'):
        Runtime("crt", {"woof": True})
    with pytest.raises(tvm.TVMError, match=r'should have type "IntImm" but instead found "runtime.String"'):
        Runtime("crt", {"system-lib": "yes"})


def test_names() -> None:
    assert to_c_function_style(prefix_generated_name(["model", "Run"])) == "TVMGenModelRun"
    assert to_c_constant_style("TVM_woof") == "TVM_WOOF"
    with pytest.raises(tvm.TVMError, match="Function not TVM prefixed"):
        to_c_function_style("woof")
    assert sanitize_name("woof:1") == "woof_1" and mangle_module_name("net") == "tvmgen_net"
    supply = NameSupply("p")
    assert [supply.fresh_name("f"), supply.fresh_name("f")] == ["p_f", "p_f_1"]
    names = GlobalVarSupply(tvm.IRModule({"f": relay.Function([], relay.const(1))}))
    assert names.fresh_global("f").name_hint == "f_1"


def test_kinds_of_types() -> None:
    kind, check = relay.TypeKind, relay.analysis.check_kind
    assert check(relay.TypeVar("s", kind.ShapeVar)) == kind.ShapeVar
    assert check(relay.RefType(relay.scalar_type("int32"))) == kind.Type
    with pytest.raises(tvm.TVMError, match="s is a ShapeVar, and a Type is needed"):
        check(relay.TupleType([relay.TypeVar("s", kind.ShapeVar)]))
    mod = tvm.IRModule()
    relay.prelude.Prelude(mod)
    name = mod.get_global_type_var("List")
    assert check(name(relay.TupleType([])), mod) == kind.Type
    with pytest.raises(tvm.TVMError, match="List has 1 parameters"):
        check(name(), mod)


def test_unmatched_cases() -> None:
    mod = tvm.IRModule()
    relay.prelude.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    v, any_, of = relay.var("v"), relay.PatternWildcard(), relay.PatternConstructor
    clauses = [relay.Clause(of(cons, [any_, of(nil)]), v), relay.Clause(of(nil), v)]
    (left,) = relay.analysis.unmatched_cases(relay.Match(v, clauses), mod)
    assert left.constructor is cons and left.patterns[1].constructor is cons
    complete = relay.Match(v, [*clauses, relay.Clause(any_, v)])
    assert relay.analysis.unmatched_cases(complete, mod) == []


@pytest.mark.parametrize("name", ["dqn", "dcgan"])
def test_networks(name: str) -> None:
    mod, params = getattr(relay.testing, name).get_workload(batch_size=1)
    assert set(params) == {p.name_hint for p in mod["main"].params} - {"data"}


@pytest.mark.slow
def test_the_network_of_lstm_cells_runs() -> None:
    mod, params = relay.testing.lstm.get_workload(2, 3)
    assert [p.name_hint for p in mod["main"].params if p.name_hint not in params] == ["data", "data1"]
    steps = {"data": np.ones((1, 3), "float32"), "data1": np.zeros((1, 3), "float32")}
    run = [relay.create_executor(k, mod, params=params).evaluate() for k in ("graph", "vm")]
    got = [f(**steps).numpy() for f in run]
    np.testing.assert_allclose(got[0], got[1], rtol=1e-5)
    assert np.abs(run[0](steps["data1"], steps["data"]).numpy() - got[0]).max() > 1e-3


def test_a_fusion_barrier_leaves_no_kernel() -> None:
    x = relay.var("x", shape=(2, 3))
    f = relay.Function([x], relay.exp(relay.annotation.stop_fusion(x + x)))
    mod = relay.transform.FuseOps(2)(relay.transform.InferType()(tvm.IRModule.from_expr(f)))
    assert mod.astext().count("Primitive=1") == 2 and "stop_fusion" not in mod.astext()
    got = relay.create_executor("graph").evaluate(f)(np.ones((2, 3), "float32"))
    np.testing.assert_allclose(got.numpy(), np.full((2, 3), np.exp(2.0)), rtol=1e-5)


def test_operators_that_take_a_shape_from_another_tensor() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(6,))
    f = relay.Function([x, y], relay.reshape_like(y, x) + relay.zeros_like(x) * relay.ones_like(x))
    text = relay.transform.SimplifyExpr()(tvm.IRModule.from_expr(f)).astext()
    assert "_like" not in text


def test_one_input_of_a_program_at_a_time() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    exe = relay.vm.compile(tvm.IRModule.from_expr(relay.Function([x, y], x - y)), "llvm")
    machine = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu())
    machine.set_one_input("main", "y", np.array([1, 1], "float32"))
    machine.set_one_input("main", x=np.array([3, 4], "float32"))
    np.testing.assert_array_equal(machine.run().numpy(), [2, 3])
    assert machine.get_input_index("y") == 1 and machine.get_input_index("z") == -1
    out = tvm.nd.empty((2,), "float32")
    machine.invoke_with_outputs("main", {"x": np.zeros(2, "float32"), "y": np.ones(2, "float32")}, [out])
    np.testing.assert_array_equal(out.numpy(), [-1, -1])


def test_a_model_ahead_of_time_has_its_classic_name() -> None:
    x = relay.var("x", shape=(2,))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], x + x)), "llvm", executor=Executor("aot"))
    module = tvm.runtime.executor.AotModule(lib["default"](tvm.cpu()))
    module.set_input("x", np.array([1, 2], "float32"))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), [2, 4])
    assert module.get_input_name(0) == "x"
