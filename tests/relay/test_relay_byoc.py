"""Code generators of others: marks, regions, functions of regions, and their modules in models."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.relay.op.annotation import compiler_begin, compiler_end

T = relay.transform
nn = relay.nn
DATA = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")


@pytest.fixture(autouse=True)
def registered() -> Iterator[list[Any]]:
    """Operators that the code generator `mine` takes, and the functions that it was given."""
    seen: list[Any] = []

    def generate(fn: Any) -> Any:
        seen.append(fn)
        name = str(fn.attrs["global_symbol"])
        return engine(name.encode())

    def engine(data: bytes) -> Any:
        call = lambda a, out: out.copyfrom(np.maximum(a.numpy(), 0))
        return tvm.runtime.ExternalModule({data.decode(): call}, "mine", data)

    for op in ("nn.relu", "abs"):
        tvm.ir.register_op_attr(op, "target.mine", lambda call: True)
    tvm.register_func("relay.ext.mine", generate, override=True)
    tvm.register_func("runtime.module.loadbinary_mine", engine, override=True)
    yield seen
    for op in ("nn.relu", "abs"):
        relay.op.get(op).reset_attr("target.mine")
    for name in ("relay.ext.mine", "runtime.module.loadbinary_mine"):
        tvm.runtime.remove_global_func(name)


def module(body: Any) -> Any:
    return T.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))


def partitioned(mod: Any, *names: str) -> Any:
    passes = [T.AnnotateTarget(list(names or ("mine",))), T.MergeCompilerRegions(), T.PartitionGraph()]
    return tvm.transform.Sequential(passes)(mod)


def x_of(*shape: Any) -> Any:
    return relay.var("x", shape=shape or (2, 3))


def example() -> Any:
    return partitioned(module(relay.exp(nn.relu(relay.negative(x_of())))))


def run_graph(lib: Any, **inputs: Any) -> Any:
    made = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    made.set_input(**inputs)
    made.run()
    return made.get_output(0).numpy()


WANTED = np.exp(np.maximum(-DATA, 0))


# ---------------------------------------------------------------------------- marks
def test_annotate_marks_what_is_taken_and_the_rest_default():
    x = x_of()
    after = T.AnnotateTarget("mine")(module(relay.exp(nn.relu(x))))
    end = compiler_end(nn.relu(compiler_begin(x, "mine")), "mine")
    wanted = compiler_end(relay.exp(compiler_begin(end, "default")), "default")
    tvm.ir.assert_structural_equal(after, module(wanted))


def test_annotate_twice_is_annotate_with_both():
    tvm.ir.register_op_attr("exp", "target.other", lambda call: True)
    try:
        before = module(relay.exp(nn.relu(x_of())))
        twice = T.AnnotateTarget("other")(T.AnnotateTarget("mine")(before))
        tvm.ir.assert_structural_equal(twice, T.AnnotateTarget(["mine", "other"])(before))
    finally:
        relay.op.get("exp").reset_attr("target.other")


def test_annotate_takes_composite_functions_by_their_name():
    from tilewright.relay.dataflow_pattern import is_op, wildcard

    table = [("mine.two", is_op("exp")(is_op("sqrt")(wildcard())))]
    after = partitioned(T.MergeComposite(table)(module(relay.exp(relay.sqrt(x_of())))))
    (fn,) = [f for f in after.functions.values() if "Compiler" in f.attrs]
    assert fn.body.op.attrs["Composite"] == "mine.two"


def test_annotate_needs_a_name():
    with pytest.raises(tvm.TVMError, match="takes the name of a code generator, or several, not ''"):
        T.AnnotateTarget("")(module(nn.relu(x_of())))


def test_register_op_attr_takes_the_operator_of_graphs():
    tvm.ir.register_op_attr("erf", "target.mine_too", 5)
    assert relay.op.get("erf").get_attr("target.mine_too") == 5
    relay.op.get("erf").reset_attr("target.mine_too")


# ---------------------------------------------------------------------------- regions
def test_regions_stay_apart_around_another_compiler():
    r = relay.abs(x_of())
    after = partitioned(module(nn.relu(r) + nn.relu(relay.exp(r))))
    # abs and the first relu are one function, and the second relu is another: exp is between them
    bodies = sorted(
        len(relay.analysis.post_order(f)) for f in after.functions.values() if "Compiler" in f.attrs
    )
    assert len(bodies) == 2


def test_region_set():
    x = x_of()
    begin = compiler_begin(x, "mine")
    body = relay.abs(begin)
    ends = [compiler_end(body, "mine"), compiler_end(nn.relu(body), "mine")]
    found = relay.analysis.AnnotatedRegionSet(
        relay.Function([x], ends[0] + ends[1]),
        relay.op.get("annotation.compiler_begin"),
        relay.op.get("annotation.compiler_end"),
    )
    (region,) = found
    assert region.target == "mine" and region.args == [begin] and region.rets == ends
    assert found.get_region(body) is region and found.get_region(x) is None


def test_an_end_without_a_begin_is_refused():
    with pytest.raises(tvm.TVMError, match="a region for 'mine' ends at an expression that is in no region"):
        T.PartitionGraph()(module(compiler_end(nn.relu(x_of()), "mine")))


def test_an_argument_without_a_begin_is_refused():
    x, y = x_of(), relay.var("y", shape=(2, 3))
    marked = compiler_end(compiler_begin(x, "mine") + y, "mine")
    with pytest.raises(
        tvm.TVMError, match=r"arguments inside and outside of a region for 'mine': put compiler_begin"
    ):
        T.PartitionGraph()(module(marked))


def test_marks_that_are_left_are_refused():
    marked = compiler_end(nn.relu(compiler_begin(x_of(), "mine")), "mine")
    with pytest.raises(tvm.TVMError, match=r"is left in the graph: run relay.transform.PartitionGraph\(\)"):
        relay.build(module(marked), "llvm")


# ---------------------------------------------------------------------------- functions
def test_partition_makes_a_function():
    mod = example()
    name = "tvmgen_default_mine_main_0"
    a = relay.var("mine_0_i0", shape=(2, 3))
    fn = relay.Function([a], nn.relu(a))
    for key, value in (("global_symbol", name), ("Primitive", 1), ("Compiler", "mine"), ("Inline", 1)):
        fn = fn.with_attr(key, value)
    x, gv = x_of(), relay.GlobalVar(name)
    main = relay.Function([x], relay.exp(gv(relay.negative(x))))
    wanted = T.InferType()(tvm.IRModule({gv: fn, relay.GlobalVar("main"): main}))
    tvm.ir.assert_structural_equal(mod, wanted)


def test_several_results_are_a_tuple():
    r = relay.abs(x_of())
    mod = partitioned(module(relay.exp(r) + relay.sqrt(nn.relu(r))))
    (fn,) = [f for f in mod.functions.values() if "Compiler" in f.attrs]
    assert isinstance(fn.body, relay.Tuple) and len(fn.params) == 1


def test_constants_are_bound_or_not():
    tvm.ir.register_op_attr("add", "target.mine", lambda call: True)
    try:
        marked = T.AnnotateTarget("mine")(module(relay.add(x_of(), relay.const(DATA))))
        for bound, count in ((True, 1), (False, 2)):
            main = T.PartitionGraph(bind_constants=bound)(marked)["main"]
            assert len(main.body.args) == count
    finally:
        relay.op.get("add").reset_attr("target.mine")


def test_names_are_those_of_the_module_and_the_function():
    mod = T.PartitionGraph("net")(T.AnnotateTarget("mine")(module(nn.relu(x_of()))))
    assert mod.get_global_var("tvmgen_net_mine_main_0")


def test_optimize_hook():
    tvm.register_func("relay.ext.mine.optimize", lambda mod: T.SimplifyExpr()(mod))
    try:
        assert "nn.relu" in str(example())
        tvm.register_func("relay.ext.mine.optimize", lambda mod: None, override=True)
        with pytest.raises(tvm.TVMError, match=r"relay\.ext\.mine\.optimize returned NoneType"):
            example()
    finally:
        tvm.runtime.remove_global_func("relay.ext.mine.optimize")


def test_outline_is_the_reverse_of_inline():
    mod = example()
    inlined = T.Inline()(mod)
    assert len(inlined.functions) == 1
    for given, count in (("mine", 2), ("", 2), ("other", 1)):
        again = T.OutlineCompilerFunctionsWithExistingGlobalSymbols(given)(inlined)
        assert len(again.functions) == count
    tvm.ir.assert_structural_equal(T.OutlineCompilerFunctionsWithExistingGlobalSymbols()(inlined), mod)


def test_functions_can_be_taken_back():
    from tilewright.relay.dataflow_pattern import is_op, wildcard

    before = module(relay.exp(relay.sqrt(x_of())))
    table = [("mine.two", is_op("exp")(is_op("sqrt")(wildcard())))]
    merged = T.MergeComposite(table)(before)
    tvm.ir.assert_structural_equal(T.InlineComposites("mine")(merged), before)
    tvm.ir.assert_structural_equal(T.InlineComposites("min")(merged), merged)
    mod = partitioned(merged)
    back = T.InlineCompilerFunctionsBoundTo(["tvmgen_default_mine_main_0"])(mod)
    tvm.ir.assert_structural_equal(back, before)
    with pytest.raises(tvm.TVMError, match="the module has no function 'f'; it has: main"):
        T.InlineCompilerFunctionsBoundTo(["f"])(mod)


def test_a_function_that_is_done_elsewhere_cannot_be_built():
    mod = T.MarkCompilerFunctionsAsExtern("mine")(example())
    assert mod["tvmgen_default_mine_main_0"].attrs == {"Extern": 1}
    with pytest.raises(tvm.ir.BuildError, match="is marked Extern: another code generator has its code"):
        relay.build(mod, "llvm")


def test_inline_keeps_the_function_whole():
    main = T.Inline()(example())["main"]
    assert isinstance(main.body.args[0].op, relay.Function)


# ---------------------------------------------------------------------------- models
@pytest.mark.parametrize("kind", ["graph", "aot"])
def test_build(kind, registered):
    lib = relay.build(example(), "llvm", executor=relay.backend.Executor(kind))
    np.testing.assert_allclose(run_graph(lib, x=DATA), WANTED, rtol=1e-5)
    assert [str(f.attrs["global_symbol"]) for f in registered] == ["tvmgen_default_mine_main_0"]
    assert [s.name for s in lib.model.steps][1] == "tvmgen_default_mine_main_0"
    assert [m.type_key for m in lib.imported_modules] == ["mine"]


def test_export_and_load(tmp_path):
    path = str(tmp_path / "net.so")
    relay.build(example(), "llvm").export_library(path)
    loaded = tvm.runtime.load_module(path)
    np.testing.assert_allclose(run_graph(loaded, x=DATA), WANTED, rtol=1e-5)
    tvm.runtime.remove_global_func("runtime.module.loadbinary_mine")
    with pytest.raises(
        tvm.runtime.LoadError, match=r"no loader: import the package that registers .*loadbinary_mine"
    ):
        tvm.runtime.load_module(path)


def test_virtual_machine(tmp_path):
    path = str(tmp_path / "net.so")
    exe = relay.vm.compile(example(), "llvm")
    exe.export_library(path)
    for each in (exe, tvm.runtime.load_module(path)):
        got = tvm.runtime.vm.VirtualMachine(each, tvm.cpu()).run(DATA)
        np.testing.assert_allclose(got.numpy(), WANTED, rtol=1e-5)


def test_sizes_that_are_known_at_run_time():
    mod = partitioned(module(relay.exp(nn.relu(relay.negative(x_of(relay.Any(), 3))))))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    for rows in (2, 1):
        np.testing.assert_allclose(machine.run(DATA[:rows]).numpy(), WANTED[:rows], rtol=1e-5)


@pytest.mark.needs("opencl")
@pytest.mark.slow
def test_the_host_runs_it_in_a_model_for_a_gpu():
    lib = relay.build(example(), "opencl")
    assert "tvmgen_default_mine_main_0: the host, between copies: mine computes it" in lib.explain()
    made = graph_executor.GraphModule(lib["default"](tvm.opencl()))
    made.set_input(x=DATA)
    made.run()
    np.testing.assert_allclose(made.get_output(0).numpy(), WANTED, rtol=1e-5)


def test_a_missing_code_generator_is_an_error():
    mod = example()
    tvm.runtime.remove_global_func("relay.ext.mine")
    for work in (relay.build, relay.vm.compile):
        with pytest.raises(tvm.ir.BuildError) as error:
            work(mod, "llvm")
        assert str(error.value) == (
            "the function 'tvmgen_default_mine_main_0' is for the code generator 'mine', and there is none: register it "
            "with @tvm.register_func('relay.ext.mine'), or do not give 'mine' to AnnotateTarget"
        )


def test_what_a_code_generator_returns_is_checked():
    mod = example()
    for made, told in (
        (None, "returned NoneType and must return a runtime.Module"),
        (tvm.runtime.ExternalModule({"f": print}), "has no function 'tvmgen_default_mine_main_0', but: f"),
    ):
        tvm.register_func("relay.ext.mine", lambda fn, made=made: made, override=True)
        with pytest.raises(tvm.ir.BuildError, match=told):
            relay.build(mod, "llvm")


def test_a_module_in_python_only_is_not_exported(tmp_path):
    mod = example()
    name = "tvmgen_default_mine_main_0"
    made = tvm.runtime.ExternalModule({name: lambda a, out: out.copyfrom(a)})
    tvm.register_func("relay.ext.mine", lambda fn: made, override=True)
    lib = relay.build(mod, "llvm")
    np.testing.assert_allclose(run_graph(lib, x=DATA), np.exp(-DATA), rtol=1e-5)
    with pytest.raises(tvm.TVMError, match=f"{name} is computed by .*, which cannot be serialized"):
        lib.export_library(str(tmp_path / "net.so"))


def test_machine_code_is_linked_into_the_model(tmp_path):
    """What tvm.build makes is called directly: nothing of Python is in the way, and C can run the model."""

    def generate(fn: Any) -> Any:
        a = te.placeholder((2, 3), name="a")
        out = te.compute((2, 3), lambda i, j: te.max(a[i, j], te.const(0, "float32")), name="out")
        return tvm.build(te.create_schedule(out.op), [a, out], "llvm", name=str(fn.attrs["global_symbol"]))

    tvm.register_func("relay.ext.mine", generate, override=True)
    lib = relay.build(example(), "llvm")
    assert not lib.externals
    np.testing.assert_allclose(run_graph(lib, x=DATA), WANTED, rtol=1e-5)
    path = str(tmp_path / "net.so")
    lib.export_library(path)
    np.testing.assert_allclose(run_graph(tvm.runtime.load_module(path), x=DATA), WANTED, rtol=1e-5)


def test_machine_code_with_other_parameters_is_refused():
    def generate(fn: Any) -> Any:
        a = te.placeholder((2, 3), "float64", name="a")
        out = te.compute((2, 3), lambda i, j: a[i, j], name="out")
        return tvm.build(te.create_schedule(out.op), [a, out], "llvm", name=str(fn.attrs["global_symbol"]))

    tvm.register_func("relay.ext.mine", generate, override=True)
    with pytest.raises(tvm.ir.BuildError, match="its function must take the inputs and then the results"):
        relay.build(example(), "llvm")


def test_constants_for_the_module(tmp_path):
    """`relay.ext.NAME.constant_updater` gives the arrays for `__init_<symbol>`, also to a loaded library."""
    held: list[Any] = []

    def engine(data: bytes) -> Any:
        name = data.decode()
        init = lambda *arrays: held.append([a.numpy() for a in arrays])
        call = lambda a, out: out.copyfrom(a.numpy() + held[-1][0])
        return tvm.runtime.ExternalModule({name: call, f"__init_{name}": init}, "mine", data)

    tvm.register_func("relay.ext.mine", lambda fn: engine(fn.attrs["global_symbol"].encode()), override=True)
    tvm.register_func("runtime.module.loadbinary_mine", engine, override=True)
    tvm.register_func("relay.ext.mine.constant_updater", lambda fn, name: {"c": tvm.nd.array(DATA)})
    path = str(tmp_path / "net.so")
    try:
        lib = relay.build(example(), "llvm")
        np.testing.assert_allclose(run_graph(lib, x=DATA), np.ones_like(DATA), rtol=1e-5)
        lib.export_library(path)
    finally:
        tvm.runtime.remove_global_func("relay.ext.mine.constant_updater")
    held.clear()
    np.testing.assert_allclose(
        run_graph(tvm.runtime.load_module(path), x=DATA), np.ones_like(DATA), rtol=1e-5
    )


def test_an_exception_of_the_engine_is_raised():
    name = "tvmgen_default_mine_main_0"

    def call(*arrays: Any) -> None:
        raise RuntimeError("the engine is hot")

    tvm.register_func("relay.ext.mine", lambda fn: tvm.runtime.ExternalModule({name: call}), override=True)
    with pytest.raises(RuntimeError, match="the engine is hot"):
        run_graph(relay.build(example(), "llvm"), x=DATA)


@pytest.mark.slow
def test_functions_are_forgotten_with_their_library():
    from tilewright.runtime.external import _users

    relay.build(example(), "llvm")["default"](
        tvm.cpu()
    )  # a first library may become the process's thread pool
    gc.collect()
    before = dict(_users)
    lib = relay.build(example(), "llvm")
    assert sum(_users.values()) == sum(before.values()) + 1
    del lib
    gc.collect()
    assert _users == before


def test_calibration_data():
    mod = example()
    found = relay.analysis.get_calibration_data(mod, {"x": DATA})
    ((gv, values),) = found.items()
    assert gv.name_hint == "tvmgen_default_mine_main_0"
    np.testing.assert_allclose(values["inputs"][0].numpy(), -DATA)
    np.testing.assert_allclose(values["outputs"][0].numpy(), np.maximum(-DATA, 0))


def test_pattern_tables():
    from tilewright.relay.op.contrib import get_pattern_table, register_pattern_table

    register_pattern_table("mine", lambda: [1])
    assert get_pattern_table("mine") == [1]
    with pytest.raises(
        tvm.TVMError, match="no table of patterns is registered for the code generator 'nobody'"
    ):
        get_pattern_table("nobody")
