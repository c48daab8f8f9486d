"""Every option of a PassContext does what it says, or says once that it does nothing."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import auto_scheduler, relay, te, tir, topi
from tilewright.ir import say_once
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.pass_config import OPTIONS, Option
from tilewright.ir.pass_names import UnknownPassError
from tilewright.ir.say_once import IgnoredWarning
from tilewright.ir.transform import PassContext, PassInfo
from tilewright.script import tir as T

IDLE = [o for o in OPTIONS if isinstance(o.idle, str) and o.idle]
FIELDS = [(o, field) for o in OPTIONS if isinstance(o.idle, Mapping) for field in o.idle]


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(say_once, "_said", set())


def another(value: Any) -> Any:
    """A value of the same type that is not the given one."""
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}!"


def lowered(func: Any, *args: Any, **config: Any) -> str:
    with PassContext(config={key.replace("__", "."): value for key, value in config.items()}):
        return str(tvm.lower(func, *args))


# ---------------------------------------------------------------------------- those that do nothing
@pytest.mark.parametrize("option", IDLE, ids=lambda o: o.name)
def test_an_idle_option_says_so_once(option: Option) -> None:
    value: Any = (
        {next(iter(option.type)): another(next(iter(option.default.values())))}
        if isinstance(option.type, Mapping)
        else another(option.default)
    )
    with pytest.warns(IgnoredWarning) as caught:
        PassContext(config={option.name: value})
        PassContext(config={option.name: value})
    (one,) = caught
    assert str(one.message) == f"pass option {option.name!r} does nothing here: {option.idle}"
    assert one.filename == __file__


@pytest.mark.parametrize(("option", "field"), FIELDS, ids=lambda x: getattr(x, "name", x))
def test_an_idle_field_says_so_once(option: Option, field: str) -> None:
    assert isinstance(option.idle, Mapping)
    value = {field: another(option.default[field])}
    with pytest.warns(
        IgnoredWarning, match=f"^field '{field}' of pass option '{option.name}' does nothing here: "
    ):
        PassContext(config={option.name: value})


def test_asking_for_what_is_so_anyway_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for option in OPTIONS:
            PassContext(config={} if option.default is None else {option.name: option.default})


# ---------------------------------------------------------------------------- those that work
A = te.placeholder((6,), name="A")
B = te.compute((6,), lambda i: A[i] * 2.0, name="B")


@T.prim_func
def guarded(a: T.Buffer((30,), "float32")):
    for i, j in T.grid(8, 4):
        if i * 4 + j < 30:
            a[i * 4 + j] = T.float32(0)


@T.prim_func
def asserted(a: T.Buffer((4,), "float32"), n: T.int32):
    assert n < 4, "too large"
    a[n] = T.float32(1)


@T.prim_func
def alternating(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), n: T.int32):
    for i in range(8):
        a[i] = T.exp(b[i] + T.Cast("float32", n)) + T.exp(T.Cast("float32", n) + b[i])


@T.prim_func
def threads(a: T.Buffer((8,), "float32"), n: T.int32):
    for t in T.thread_binding(8, thread="threadIdx.x"):
        for _ in range(4):
            if t < n:
                a[t] = a[t] + T.float32(1)


@T.prim_func
def fetched(a: T.Buffer((512,), "float32"), c: T.Buffer((512,), "float32")):
    s = T.decl_buffer((64,))
    for k in range(8):
        with T.attr(s.data, "double_buffer_scope", 1):
            for i in range(64):
                s[i] = a[k * 64 + i]
        for i in range(64):
            c[k * 64 + i] = s[i]


@T.prim_func
def outside(a: T.Buffer((8,), "float32"), ids: T.Buffer((4,), "int32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        b[i] = T.if_then_else(ids[i] >= 0, a[ids[i]], T.float32(0))


def doubled() -> tuple[Any, list[Any]]:
    n = te.size_var("n")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].vectorize(s[y].split(y.op.axis[0], 4)[1])
    return s, [x, y]


def unrolled() -> None:
    s = te.create_schedule(B.op)
    assert "for " in lowered(s, [A, B])
    assert "for " not in lowered(s, [A, B], tir__UnrollLoop={"auto_max_step": 16})
    mod = tvm.IRModule({"main": te.create_prim_func([A, B])})
    flat = tir.transform.LowerOpaqueBlock()(tir.transform.ConvertBlocksToOpaque()(mod))
    with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 16}}):  # the pass by itself reads it too
        assert "for " not in str(tir.transform.UnrollLoop()(flat))


def partitioned() -> None:
    assert "if " not in lowered(guarded)
    assert "if " in lowered(guarded, tir__LoopPartition={"partition_const_loop": False})


def hoisted_conditions() -> None:
    with tvm.target.Target("cuda -arch=sm_80"):
        kept = lowered(threads)
        moved = lowered(threads, tir__HoistIfThenElse={"support_block_scope_hosting": True})
    assert kept.index("for ") < kept.index("if ") and moved.index("if ") < moved.index("for ")


def hoisted_bindings() -> None:
    @T.prim_func
    def bound(a: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            x: T.int32 = n * n
            if n < 4:
                a[i] = x + x

    mod = tvm.IRModule({"main": bound})
    flags = tir.transform.HoistedLetBindings
    with PassContext(config={"tir.HoistExpression": {"hoisted_let_bindings": int(flags.Never)}}):
        kept = str(tir.transform.HoistExpression()(mod))
    moved = str(tir.transform.HoistExpression()(mod))
    assert kept.index("for i") < kept.index("n * n") and moved.index("n * n") < moved.index("for i")
    none = int(tir.transform.HoistedConditionals.Never)
    with PassContext(config={"tir.HoistExpression": {"hoisted_conditionals": none}}):
        kept = str(tir.transform.HoistExpression()(mod))
    assert kept.index("for i") < kept.index("if ") and moved.index("if ") < moved.index("for i")


def known_contents() -> None:
    @T.prim_func
    def twice(a: T.Buffer((8,), "int32"), b: T.Buffer((8,), "bool")):
        a[0] = 1
        b[0] = b[1] or (b[2] and b[3])
        if a[0] == 1:
            a[1] = a[0] + 1

    kept = lowered(twice)
    assert "if " in kept and "b[1] or b[2] and b[3]" in kept and "a[1] = a[0] + 1" in kept
    assert "if " not in lowered(twice, tir__Simplify={"propagate_knowns_to_prove_conditional": True})
    replaced = lowered(twice, tir__Simplify={"propagate_knowns_to_simplify_expressions": True})
    assert "a[1] = 2" in replaced
    converted = lowered(twice, tir__Simplify={"convert_boolean_to_and_of_ors": True})
    assert "(b[1] or b[2]) and (b[1] or b[3])" in converted


def double_buffered() -> None:
    once = tir.transform.InjectDoubleBuffer()(tvm.IRModule({"main": fetched}))
    for turns in (2, 3):
        with PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": turns}}):
            split = tir.transform.InjectDoubleBuffer()(tvm.IRModule({"main": fetched}))
        assert "T.unroll" not in str(once) and f"T.unroll({turns})" in str(split)
        x, got = np.arange(512, dtype="float32"), np.zeros(512, "float32")
        tir.interpret(split["main"], x, got)
        np.testing.assert_array_equal(x, got)


def added() -> None:
    seen: list[str] = []

    def look(func: Any) -> Any:
        seen.append("here")
        return func

    lowered(guarded, tir__add_lower_pass=[(1, look)])
    assert seen == ["here"]


def vectorized() -> None:
    assert ":i" in lowered(*doubled()) and ":i" not in lowered(*doubled(), tir__disable_vectorize=True)


def predicated() -> None:
    @T.prim_func
    def tail(A: T.Buffer((16,), "float32")) -> None:
        for i in range(4):
            for j in T.vectorized(4):
                if i * 4 + j < 14:
                    A[i * 4 + j] = T.float32(2)

    texts = []
    for config in (
        {},
        {"tir.enable_buffer_level_predication": True},
        {"tir.enable_buffer_level_predication": False},
    ):
        with PassContext(config=config):
            texts.append(tir.transform.VectorizeLoop()(tvm.IRModule({"tail": tail})).script())
    own, masks, loops = texts
    assert "predicate=" in own and "get_active_lane_mask" not in own
    assert 'predicate=T.get_active_lane_mask("boolx4", i * 4, 14)' in masks, masks
    assert "predicate=" not in loops and "for i, j in T.grid(4, 4)" in loops, loops


def with_assertions() -> None:
    assert "assert n" in lowered(asserted) and "assert n" not in lowered(asserted, tir__disable_assert=True)
    assert "assert n" not in str(tir.transform.SkipAssert()(tvm.IRModule({"main": asserted})))


def shared_storage() -> None:
    @T.prim_func
    def two(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        x = T.alloc_buffer((64,))
        y = T.alloc_buffer((64,))
        z = T.alloc_buffer((64,))
        for i in range(64):
            with T.block("x"):
                vi = T.axis.spatial(64, i)
                x[vi] = a[63 - vi]
        for i in range(64):
            with T.block("y"):
                vi = T.axis.spatial(64, i)
                y[vi] = x[63 - vi] + T.float32(1)
        for i in range(64):
            with T.block("z"):
                vi = T.axis.spatial(64, i)
                z[vi] = y[63 - vi] + T.float32(1)
        for i in range(64):
            with T.block("b"):
                vi = T.axis.spatial(64, i)
                b[vi] = z[63 - vi]

    own = lowered(two, tir__disable_storage_rewrite=True)
    assert lowered(two) != own and all(f"{n} = T.decl_buffer((64,))" in own for n in "xyz")


def common_terms() -> None:
    plain = lowered(alternating)
    assert "cse" not in lowered(alternating, tir__disable_cse_tir=True)
    assert lowered(alternating, tir__enable_equiv_terms_in_cse_tir=True) != plain


def apart() -> None:
    func = te.create_prim_func([A, B])
    assert '"tir.noalias": T.bool(True)' in lowered(func)
    assert '"tir.noalias": T.bool(True)' not in lowered(func, tir__noalias=False)
    assert "noalias" in tvm.build(func).get_source("ll")
    with PassContext(config={"tir.noalias": False}):
        library = tvm.build(func)
    assert "noalias" not in library.get_source("ll").partition("define")[2].partition("{")[0]
    x = tvm.nd.array(np.arange(6, dtype="float32"))
    library(x, x)
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(6))


def trivial_loops() -> None:
    one = te.compute((1, 6), lambda i, j: A[j], name="C")
    func = te.create_prim_func([A, one])
    assert "range(1)" not in lowered(func) and "T.grid(1, 6)" in lowered(
        func, tir__debug_keep_trivial_loop=True
    )


def checked_indices() -> None:
    with PassContext(config={"tir.instrument_bound_checkers": True}):
        library = tvm.build(outside)
        parallel = tir.Schedule(te.create_prim_func([A, B]))
        parallel.parallel(parallel.get_loops("B")[0])
        assert "assert" not in str(tvm.lower(parallel.mod)), "what is proved is not checked"
    a, b = tvm.nd.array(np.arange(8, dtype="float32")), tvm.nd.empty((4,))
    library(a, tvm.nd.array(np.array([7, -1, 0, -9], "int32")), b)
    np.testing.assert_array_equal(b.numpy(), [7, 0, 0, 0])
    with pytest.raises(
        tvm.TVMError,
        match=r"a\[ids\[i\]\]: the index of dimension 0 is out of bounds, it must be from 0 to below 8",
    ):
        library(a, tvm.nd.array(np.array([7, -1, 8, 0], "int32")), b)
    with tvm.target.Target("cuda -arch=sm_80"), pytest.warns(IgnoredWarning, match="kernels of a GPU"):
        lowered(threads, tir__instrument_bound_checkers=True)


def cached() -> None:
    from tilewright.codegen.llvm.objects import cache_of_this_build

    with tvm.config.using(cache=True):
        assert cache_of_this_build() is not None
        with PassContext(config={"codegen.cache": False}):
            assert cache_of_this_build() is None


def immutable() -> None:
    @tvm.transform.module_pass(opt_level=0, name="test.Careless")
    def careless(mod: Any, ctx: Any) -> Any:
        mod["other"] = mod["main"]
        return mod

    mod = tvm.IRModule({"main": guarded})
    careless(mod)
    with (
        PassContext(config={"testing.immutable_module": True}),
        pytest.raises(tvm.TVMError, match=r"pass 'test\.Careless' has changed the module"),
    ):
        careless(tvm.IRModule({"main": guarded}))


def scheduled() -> None:
    n = 64
    x, y, k = te.placeholder((n, n), name="x"), te.placeholder((n, n), name="y"), te.reduce_axis((0, n))
    c = te.compute((n, n), lambda i, j: te.sum(x[i, k] * y[k, j], k), name="c")
    func = te.create_prim_func([x, y, c])
    with tvm.target.Target("llvm -mcpu=haswell"):
        assert lowered(func, tilewright__auto_schedule=True) != lowered(func)


def fused() -> None:
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(relay.tanh(relay.nn.relu(x)))))
    whole = relay.transform.FuseOps()(relay.transform.InferType()(mod))
    with PassContext(config={"relay.FuseOps.max_depth": 1}):
        parts = relay.transform.FuseOps()(relay.transform.InferType()(mod))
    assert str(whole).count("Primitive=1") == 1 and str(parts).count("Primitive=1") == 3


def fused_with_constants() -> None:
    x, w = relay.var("x", shape=(4,)), relay.const(np.arange(4, dtype="float32"))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x + w))))
    apart = relay.transform.FuseOps()(mod)
    with PassContext(config={"relay.FuseOps.link_params": True}):
        inside = relay.transform.FuseOps()(mod)
    assert [len(m["main"].body.args) for m in (apart, inside)] == [2, 1]


def mixed() -> None:
    x, w = relay.var("x", shape=(4, 8)), relay.var("w", shape=(4, 8))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w))))
    with PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        kept = relay.transform.InferType()(relay.transform.ToMixedPrecision()(mod))
    changed = relay.transform.InferType()(relay.transform.ToMixedPrecision()(mod))
    assert kept["main"].ret_type.dtype == "float32" and changed["main"].ret_type.dtype == "float16"


def tiers() -> None:
    from tilewright.relay.backend.tiers import TieredModule

    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    with PassContext(config={"relay.backend.tiers": True, "codegen.cache": False}):
        lib = relay.build(mod, "llvm")
    assert isinstance(lib, TieredModule) and not isinstance(relay.build(mod, "llvm"), TieredModule)
    lib.wait()


def auto_scheduler_asked() -> None:
    assert not auto_scheduler.is_auto_scheduler_enabled()
    with PassContext(config={"relay.backend.use_auto_scheduler": True}):
        assert auto_scheduler.is_auto_scheduler_enabled()


def meta_schedule_asked() -> None:
    from tilewright.meta_schedule.relay_integration import is_meta_schedule_enabled

    assert not is_meta_schedule_enabled()
    with PassContext(config={"relay.backend.use_meta_schedule": True}):
        assert is_meta_schedule_enabled()


def tf32() -> None:
    from tilewright.tune.workload import present

    target = tvm.target.Target("cuda -arch=sm_80")
    assert not present(target).attrs.get("tf32")
    with PassContext(config={"tilewright.tf32": True}):
        assert present(target).attrs["tf32"]


def winograd() -> None:
    x, w = te.placeholder((1, 64, 56, 56), name="x"), te.placeholder((64, 64, 3, 3), name="w")
    func = te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, 1, 1, 1)])

    def tiles(largest: int) -> list[Any]:
        with PassContext(config={"tilewright.winograd": largest}):
            sch = tvm.tune.auto_schedule(func, "llvm -mcpu=znver4 -num-cores=1", constants=["w"])
        return [r["tiles"] for r in sch.explanation.records if r["sketch"] == "winograd"]

    assert tiles(0) == [] and tiles(2) and tiles(4) != tiles(2)


def fetched_ahead() -> None:
    from tilewright.relay.backend.fetch_ahead import wants_fetches

    target = tvm.target.Target("llvm -mcpu=znver4")
    weights = 2 * target.cpu.cache_sizes.l2
    assert wants_fetches(weights, target)
    with PassContext(config={"tilewright.fetch_ahead": False}):
        assert not wants_fetches(weights, target)


def checked_data() -> None:
    x, i = relay.var("x", shape=(4,)), relay.var("i", shape=(2,), dtype="int32")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, i], relay.gather(x, 0, i))))
    found = []
    for value in ("check", "clamp"):
        with PassContext(config={"tilewright.data_check": value}):
            found.append("check_" in str(relay.transform.CheckData()(mod)))
    assert found == [True, False]


def dumped() -> None:
    A = te.placeholder((2, 1, 16), "int32", "A")
    B = te.compute(A.shape, lambda *i: A(*i), "B")
    C = te.compute(A.shape, lambda *i: B(*i), "C")
    s = te.create_schedule(C.op)
    s[B].set_scope("local.acc_buffer")
    for stage in (B, C):
        s[stage].pragma(s[stage].op.axis[0], "dma_copy")
    said = []
    for flag in (0, 2):
        with contextlib.redirect_stdout(io.StringIO()) as out, PassContext(config={"vta.debug_flag": flag}):
            tvm.build(s, [A, C], "ext_dev")
        said.append(out.getvalue())
    assert said[0] == "" and "store.acc" in said[1] and "finish" in said[1]


WORKING: dict[str, Callable[[], None]] = {
    "tir.UnrollLoop": unrolled,
    "tir.LoopPartition": partitioned,
    "tir.HoistIfThenElse": hoisted_conditions,
    "tir.HoistExpression": hoisted_bindings,
    "tir.InjectDoubleBuffer": double_buffered,
    "tir.Simplify": known_contents,
    "tir.add_lower_pass": added,
    "tir.disable_vectorize": vectorized,
    "tir.enable_buffer_level_predication": predicated,
    "tir.disable_assert": with_assertions,
    "tir.disable_storage_rewrite": shared_storage,
    "tir.disable_cse_tir": common_terms,
    "tir.enable_equiv_terms_in_cse_tir": common_terms,
    "tir.noalias": apart,
    "tir.debug_keep_trivial_loop": trivial_loops,
    "tir.instrument_bound_checkers": checked_indices,
    "vta.debug_flag": dumped,
    "codegen.cache": cached,
    "testing.immutable_module": immutable,
    "tilewright.auto_schedule": scheduled,
    "tilewright.tf32": tf32,
    "tilewright.winograd": winograd,
    "tilewright.fetch_ahead": fetched_ahead,
    "tilewright.data_check": checked_data,
    "relay.FuseOps.link_params": fused_with_constants,
    "relay.FuseOps.max_depth": fused,
    "relay.ToMixedPrecision.keep_orig_output_dtype": mixed,
    "relay.backend.tiers": tiers,
    "relay.backend.use_auto_scheduler": auto_scheduler_asked,
    "relay.backend.use_meta_schedule": meta_schedule_asked,
}


def test_every_option_works_or_says_that_it_does_nothing() -> None:
    assert sorted([*WORKING, *(o.name for o in IDLE)]) == sorted(o.name for o in OPTIONS)


@pytest.mark.parametrize("name", WORKING)
def test_an_option_does_what_it_says(name: str) -> None:
    WORKING[name]()


def test_the_page_lists_the_options() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lowering.md").read_text()
    rows = [
        f"| `{o.name}` | {'nothing: ' + o.idle if isinstance(o.idle, str) and o.idle else o.doc} |"
        for o in OPTIONS
    ]
    missing = [row for row in rows if row not in page]
    assert not missing, "the table of options in docs/lowering.md lacks:\n" + "\n".join(missing)


# ---------------------------------------------------------------------------- names of passes
def test_disabling_a_pass_that_is_absent_says_so() -> None:
    with pytest.warns(IgnoredWarning) as caught:
        for _ in range(2):
            with PassContext(disabled_pass=["tir.LowerThreadAllreduce"]):
                pass
    (one,) = caught
    assert str(one.message) == (
        "PassContext(disabled_pass=['tir.LowerThreadAllreduce']) does nothing: tir.transform.LowerThreadAllreduce is not "
        "part of tilewright: reductions across threads are lowered from blocks; use "
        "tir.transform.LowerCrossThreadReduction"
    )
    assert one.filename == __file__


@pytest.mark.parametrize("name", ["MemoryPlan", "tir.BF16Promote"])
def test_passes_that_programs_disable(name: str) -> None:
    with pytest.warns(IgnoredWarning, match="does nothing"), PassContext(disabled_pass=[name]):
        pass


def test_requiring_a_pass_that_is_absent_is_refused() -> None:
    with (
        pytest.raises(
            UnsupportedError, match=r"required_pass=\['ToCPS'\]\): relay\.transform\.ToCPS is not part"
        ),
        PassContext(required_pass=["ToCPS"]),
    ):
        pass


def test_passes_by_the_names_that_the_classic_api_has_for_them() -> None:
    ctx = PassContext(disabled_pass=["CombineParallelConv2d", "InlineGlobals", "qnn.Canonicalize"])
    assert ctx.disabled_pass == {"CombineParallelConv2D", "Inline", "qnn.CanonicalizeOps"}
    with ctx:
        assert not ctx.pass_enabled(PassInfo(0, "CombineParallelConv2D"))
    with (
        pytest.raises(UnknownPassError, match="CombineParallelConvD"),
        PassContext(disabled_pass=["CombineParallelConvD"]),
    ):
        pass


def test_passes_are_known_before_their_room_is_loaded() -> None:
    code = (
        "import sys, tilewright as tvm\n"
        "assert not any(n.startswith(('tilewright.tir.transform', 'tilewright.relay')) for n in sys.modules)\n"
        "with tvm.transform.PassContext(disabled_pass=['tir.UnrollLoop', 'AlterOpLayout', 'qnn.CanonicalizeOps']): pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
