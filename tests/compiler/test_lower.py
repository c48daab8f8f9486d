"""Lowering: what goes in, the phases, passes of one's own in them, options, dumps."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import phases
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import LoweringError, ScheduleError
from tilewright.ir.functor import pre_order
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.stmt import Allocate, Block, BlockRealize, BufferStore, For, ForKind
from tilewright.ir.transform import PassConfigError
from tilewright.script import ir as I
from tilewright.script import tir as T


def elementwise(n=128, m=8):
    a = te.placeholder((n, m), name="a")
    b = te.placeholder((n, m), name="b")
    c = te.compute((n, m), lambda i, j: a[i, j] + b[i, j], name="c")
    return a, b, c


def matmul():
    A = te.placeholder((10, 12), name="A")
    B = te.placeholder((12, 9), name="B")
    k = te.reduce_axis((0, 12), "k")
    C = te.compute((10, 9), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 4)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].parallel(xo)
    s[C].vectorize(yi)
    s[C].unroll(ki)
    return s, [A, B, C]


# ---------------------------------------------------------------------------- what goes in
def test_a_te_schedule(expect):
    a, b, c = elementwise(4, 8)
    s = te.create_schedule(c.op)
    expect(
        tvm.lower(s, [a, b, c], simple_mode=True),
        """
        @I.ir_module
        class Module:
            @T.prim_func
            def main(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
                T.func_attr({"tir.noalias": T.bool(True)})
                a_1 = T.decl_buffer((32,), data=a.data)
                b_1 = T.decl_buffer((32,), data=b.data)
                c_1 = T.decl_buffer((32,), data=c.data)
                for i, j in T.grid(4, 8):
                    c_1[i * 8 + j] = a_1[i * 8 + j] + b_1[i * 8 + j]
        """,
    )


def test_names():
    a, b, c = elementwise()
    s = te.create_schedule(c.op)
    mod = tvm.lower(s, [a, b, c], name="add")
    assert [gv.name_hint for gv in mod.functions] == ["add"]
    assert mod["add"].attrs["global_symbol"] == "add"


def test_everything_that_is_a_program_lowers_to_the_same():
    a, b, c = elementwise()
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    want = tvm.lower(te.create_schedule(c.op), [a, b, c])
    for given in (func, tvm.IRModule({"main": func}), tir.Schedule(func), [a, b, c]):
        assert_structural_equal(tvm.lower(given), want)


def test_a_function_keeps_its_name_unless_one_is_given():
    @T.prim_func
    def mine(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i

    assert "mine" in tvm.lower(mine)
    assert "other" in tvm.lower(mine, name="other")
    assert tvm.lower(mine, name="other")["other"].attrs["global_symbol"] == "other"

    @T.prim_func(private=True)
    def nameless(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i

    assert "main" in tvm.lower(nameless)


def test_all_functions_of_a_module_are_lowered():
    @I.ir_module
    class Both:
        @T.prim_func
        def one(A: T.Buffer((2, 2), "int32")):
            A[1, 1] = 1

        @T.prim_func
        def two(A: T.Buffer((2, 3), "int32")):
            A[1, 1] = 2

    mod = tvm.lower(Both)
    assert [
        len(m.indices) for f in ("one", "two") for m in pre_order(mod[f].body) if isinstance(m, BufferStore)
    ] == [
        1,
        1,
    ]


def test_what_is_no_program():
    a, b, c = elementwise()
    s = te.create_schedule(c.op)
    with pytest.raises(ValueError, match="lowering a te schedule needs args"):
        tvm.lower(s)
    with pytest.raises(
        TypeError, match=r"expected a te.Schedule, a PrimFunc, an IRModule or a tir.Schedule, not int"
    ):
        tvm.lower(3)
    func = te.create_prim_func([a, b, c])
    with pytest.raises(ValueError, match=r"args has 1 tensors, and the function takes 3: .*; leave args out"):
        tvm.lower(tvm.IRModule({"main": func}), [a])
    with pytest.raises(ValueError, match="args are those of one function, and the module has 2"):
        tvm.lower(tvm.IRModule({"main": func, "other": func}), [a, b, c])
    wrong = te.placeholder(a.shape, "int8", name="wrong")
    with pytest.raises(
        ValueError, match=r"args has `wrong` of type int8 where the function takes `.*` of type"
    ):
        tvm.lower(func, [wrong, b, c])


def test_args_of_a_lowered_schedule_may_be_given_again():
    a, b, c = elementwise()
    lowered = tvm.lower(te.create_schedule(c.op), [a, b, c])
    assert tvm.lower(lowered, [a, b, c])["main"].params == lowered["main"].params
    assert tvm.build(lowered, [a, b, c], target="llvm")["main"] is not None


def test_schedule_to_module_is_not_lowered():
    a, b, c = elementwise()
    mod = tvm.driver.build_module.schedule_to_module(te.create_schedule(c.op), [a, b, c])
    assert any(isinstance(m, Block) for m in pre_order(mod["main"].body))


def test_lowered_programs_lower_to_themselves():
    s, args = matmul()
    once = tvm.lower(s, args)
    assert_structural_equal(tvm.lower(once), once)


# ---------------------------------------------------------------------------- the phases
def kinds_of(mod):
    func = mod["main"] if "main" in mod else next(iter(mod.functions.values()))
    nodes = list(pre_order(func.body))
    return {
        "blocks": any(isinstance(m, (Block, BlockRealize)) for m in nodes),
        "flat": all(len(m.indices) == 1 for m in nodes if isinstance(m, BufferStore)),
        "vectorized": any(isinstance(m, For) and m.kind is ForKind.VECTORIZED for m in nodes),
        "unrolled": any(isinstance(m, For) and m.kind is ForKind.UNROLLED for m in nodes),
        "vectors": any(isinstance(m, BufferStore) and m.value.dtype.lanes > 1 for m in nodes),
    }


def test_a_pass_in_each_phase_sees_the_program_of_that_phase():
    seen = {}

    def look(phase):
        @tir.transform.prim_func_pass(opt_level=0, name=f"look{phase}")
        def see(func, mod, ctx):
            seen[phase] = kinds_of(mod)
            return func

        return see

    s, args = matmul()
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(p, look(p)) for p in range(4)]}):
        made = tvm.lower(s, args)
    assert seen[0] == {"blocks": False, "flat": False, "vectorized": True, "unrolled": True, "vectors": False}
    assert seen[1] == {"blocks": False, "flat": True, "vectorized": True, "unrolled": True, "vectors": False}
    assert seen[2] == {"blocks": False, "flat": True, "vectorized": False, "unrolled": False, "vectors": True}
    assert seen[3] == kinds_of(made)


def test_the_passes_of_one_phase_run_in_the_order_they_were_given():
    order = []

    def note(name):
        return tir.transform.prim_func_pass(lambda f, m, c: order.append(name) or f, opt_level=0, name=name)

    a, b, c = elementwise()
    added = [(2, note("c")), (1, note("a")), (1, note("b")), (3, note("d"))]
    with tvm.transform.PassContext(config={"tir.add_lower_pass": added}):
        tvm.lower(te.create_schedule(c.op), [a, b, c])
    assert order == ["a", "b", "c", "d"]


def test_a_pass_of_ones_own(expect):
    """Seed document 003: a custom vectorisation behind phase 1."""
    loops = []

    def find_width8(op):
        if isinstance(op, tir.For) and isinstance(op.extent, tir.IntImm) and op.extent.value % 8 == 0:
            loops.append(op)

    def vectorize8(op):
        if op in loops:
            extent, name, old = op.extent.value, op.loop_var.name, op.loop_var
            outer, inner = tir.Var(name + ".outer", "int32"), tir.Var(name + ".inner", "int32")
            body = tir.stmt_functor.substitute(op.body, {old: outer * 8 + inner})
            body = tir.For(inner, 0, 8, tir.ForKind.VECTORIZED, body)
            return tir.For(outer, 0, extent // 8, tir.ForKind.SERIAL, body)
        return None

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def vectorize(f, mod, ctx):
        tir.stmt_functor.post_order_visit(f.body, find_width8)
        return f.with_body(tir.stmt_functor.ir_transform(f.body, None, vectorize8, ["tir.For"]))

    a = te.placeholder((128,), name="a")
    b = te.placeholder((128,), name="b")
    c = te.compute((128,), lambda i: a[i] + b[i], name="c")
    sch = te.create_schedule(c.op)
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, vectorize)]}):
        made = tvm.lower(sch, [a, b, c])
        run = tvm.build(sch, [a, b, c], target="llvm")
    expect(
        made,
        """
        @I.ir_module
        class Module:
            @T.prim_func
            def main(a: T.Buffer((128,), "float32"), b: T.Buffer((128,), "float32"), c: T.Buffer((128,), "float32")):
                T.func_attr({"tir.noalias": T.bool(True)})
                for i_outer in range(16):
                    c[i_outer * 8:i_outer * 8 + 8] = a[i_outer * 8:i_outer * 8 + 8] + b[i_outer * 8:i_outer * 8 + 8]
        """,
    )
    x, y, z = (np.arange(128, dtype="float32") for _ in range(3))
    run(x, y, z)
    np.testing.assert_array_equal(z, x + y)


def test_a_phase_that_does_not_exist():
    a, b, c = elementwise()
    nothing = tir.transform.prim_func_pass(lambda f, m, c: f, opt_level=0)
    with (
        tvm.transform.PassContext(config={"tir.add_lower_pass": [(4, nothing)]}),
        pytest.raises(LoweringError, match="phase 4 does not exist; there are 0, 1, 2 and 3"),
    ):
        tvm.lower(te.create_schedule(c.op), [a, b, c])


@pytest.mark.parametrize("entry", [5, (1,), ("a", None), (1, 3)])
def test_entries_that_are_no_pairs_of_phase_and_pass(entry):
    a, b, c = elementwise()
    with (
        tvm.transform.PassContext(config={"tir.add_lower_pass": [entry]}),
        pytest.raises((LoweringError, PassConfigError), match=r"tir\.add_lower_pass"),
    ):
        tvm.lower(te.create_schedule(c.op), [a, b, c])


def test_each_pass_of_the_pipeline_can_be_run_alone():
    s, args = matmul()
    mod = tvm.driver.build_module.schedule_to_module(s, args)
    for phase in phases():
        for step in phase:
            factory = getattr(tir.transform, step.info.name.removeprefix("tir."))
            assert factory.__doc__
            mod = factory()(mod)
    assert_structural_equal(mod, tvm.lower(s, args))


@pytest.mark.slow
def test_each_pass_keeps_the_meaning(agree):
    s, args = matmul()
    mod = tvm.driver.build_module.schedule_to_module(s, args)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-5, 5, [int(d) for d in t.shape]).astype("float32") for t in args]
    for phase in phases():
        for step in phase:
            made = step(mod)
            agree(mod["main"], made["main"], *arrays)
            mod = made


# ---------------------------------------------------------------------------- options
def test_vectorisation_switched_off():
    s, args = matmul()
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        made = tvm.lower(s, args)
        run = tvm.build(s, args, target="llvm")
    assert not kinds_of(made)["vectors"]
    a, b, c = np.ones((10, 12), "float32"), np.ones((12, 9), "float32"), np.zeros((10, 9), "float32")
    run(a, b, c)
    assert (c == 12).all()


def unrolled_by(options, annotate=False):
    @T.prim_func
    def before(A: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(n):
            for j in range(4):
                A[i * 4 + j] = j
        for k in T.unroll(3):
            A[k] = k

    with tvm.transform.PassContext(config={"tir.UnrollLoop": options}):
        made = tvm.lower(before)
    return {m.loop_var.name: m.kind for m in pre_order(made["before"].body) if isinstance(m, For)}


def test_unrolling_options():
    assert set(unrolled_by({})) == {"i", "j"}
    assert set(unrolled_by({"auto_max_step": 16})) == {"i"}
    assert set(unrolled_by({"auto_max_extent": 4})) == {"i"}
    assert set(unrolled_by({"auto_max_step": 2})) == {"i", "j"}
    assert unrolled_by({"explicit_unroll": False})["k"] is ForKind.UNROLLED
    with pytest.raises(PassConfigError, match="has no field 'auto_max_steps'"):
        unrolled_by({"auto_max_steps": 4})


def test_pragmas_reach_the_unroller():
    a, b, c = elementwise(4, 4)
    s = te.create_schedule(c.op)
    s[c].pragma(c.op.axis[0], "auto_unroll_max_step", 16)
    s[c].pragma(c.op.axis[0], "unroll_explicit", True)
    made = tvm.lower(s, [a, b, c])
    assert not [m for m in pre_order(made["main"].body) if isinstance(m, For)]


def test_common_subexpressions_switched_off():
    s, args = matmul()
    with tvm.transform.PassContext(config={"tir.disable_cse_tir": True}):
        plain = tvm.lower(s, args)
    assert "cse_var" in tvm.lower(s, args).script() and "cse_var" not in plain.script()


def test_storage_rewrite_switched_off():
    A = te.placeholder((8, 8), name="A")
    x = A
    for i in range(4):
        x = te.compute((8, 8), lambda a, b, x=x: x[a, b] + 1, name=f"S{i}")
    s = te.create_schedule(x.op)
    with tvm.transform.PassContext(config={"tir.disable_storage_rewrite": True}):
        plain = tvm.lower(s, [A, x])
    counts = [
        sum(isinstance(n, Allocate) for n in pre_order(m["main"].body)) for m in (plain, tvm.lower(s, [A, x]))
    ]
    assert counts == [3, 2]


def test_disabled_passes():
    s, args = matmul()
    with tvm.transform.PassContext(disabled_pass=["tir.UnrollLoop", "tir.VectorizeLoop"]):
        made = kinds_of(tvm.lower(s, args))
    assert made["unrolled"] and made["vectorized"]


def test_instruments_see_every_pass():
    class Watch(PassInstrument):
        def __init__(self):
            self.before, self.after = [], []

        def run_before_pass(self, mod, info):
            self.before.append(info.name)

        def run_after_pass(self, mod, info):
            self.after.append(info.name)

    watch = Watch()
    s, args = matmul()
    with tvm.transform.PassContext(instruments=[watch]):
        tvm.lower(s, args)
    assert watch.before == watch.after == [p.info.name for phase in phases() for p in phase]


def test_an_instrument_can_keep_a_pass_from_running():
    class NoVectors(PassInstrument):
        def should_run(self, mod, info):
            return info.name != "tir.VectorizeLoop"

    s, args = matmul()
    with tvm.transform.PassContext(instruments=[NoVectors()]):
        assert kinds_of(tvm.lower(s, args))["vectorized"]


def test_the_level_leaves_passes_of_ones_own_out():
    ran = []
    high = tir.transform.prim_func_pass(lambda f, m, c: ran.append(1) or f, opt_level=3, name="high")
    a, b, c = elementwise()
    for level, count in ((2, 0), (3, 1)):
        with tvm.transform.PassContext(opt_level=level, config={"tir.add_lower_pass": [(1, high)]}):
            tvm.lower(te.create_schedule(c.op), [a, b, c])
        assert len(ran) == count


def test_failures_name_the_pass():
    @tir.transform.prim_func_pass(opt_level=0, name="broken")
    def broken(func, mod, ctx):
        raise ValueError("it broke")

    a, b, c = elementwise()
    with (
        tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, broken)]}),
        pytest.raises(ValueError, match="it broke") as caught,
    ):
        tvm.lower(te.create_schedule(c.op), [a, b, c])
    assert caught.value.__notes__ == ["in pass broken"]


def test_dumps(tmp_path, monkeypatch):
    folder = tmp_path / "dump"
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(folder))
    s, args = matmul()
    made = tvm.lower(s, args)
    files = sorted(folder.iterdir())
    names = [f.name for f in files]
    assert names[0] == "00_input.py"
    assert names[1] == "01_lower_init_block.py"
    assert len(names) == 1 + sum(len(p) for p in phases())
    assert "with T.block" in files[0].read_text()
    assert files[-1].read_text().strip() == made.script().strip()
    back = tvm.script.from_source(files[-1].read_text())
    assert_structural_equal(back, made)


def test_binds_give_tensors_the_buffers_of_the_user():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    buffer = tir.decl_buffer((8,), "float32", "mine", data_alignment=128)
    made = tvm.lower(s, [A, B], binds={A: buffer})["main"]
    held = made.buffer_map[made.params[0]]
    assert (held.name, held.data_alignment) == ("mine", 128)


def test_several_functions_at_once():
    A = te.placeholder((4,), name="A")
    made = []
    for name, step in (("one", 1), ("two", 2)):
        B = te.compute((4,), lambda i, step=step: A[i] + step, name="B")
        made.append(tvm.lower(te.create_schedule(B.op), [A, B], name=name))
    lib = tvm.build(made, "llvm")
    a, b = tvm.nd.array(np.arange(4, dtype="float32")), tvm.nd.empty((4,))
    for name, step in (("one", 1), ("two", 2)):
        lib[name](a, b)
        np.testing.assert_array_equal(b.numpy(), a.numpy() + step)
    with pytest.raises(ValueError, match="two of the functions are called 'one'"):
        tvm.build([made[0], made[0]], "llvm")


def test_simple_mode_shows_a_schedule_that_is_not_finished():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    cache = s.cache_read(a, "shared", [b])
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))  # and the cache is not computed there yet
    with pytest.raises(
        LoweringError, match="A_shared is in shared memory, which is private to a thread block"
    ):
        tvm.lower(s, [a, b])
    with pytest.warns(
        UserWarning, match=r"shown before tir.PlaceThreadMemory, which refuses it: A_shared is in"
    ):
        shown = tvm.lower(s, [a, b], simple_mode=True)
    assert "A_shared" in shown.script()
    with pytest.raises(LoweringError, match="A_shared is in shared memory"):
        tvm.build(shown, target="opencl")
    s[cache].compute_at(s[b], b.op.axis[0])
    assert "decl_buffer((1,)" in tvm.lower(s, [a, b], simple_mode=True).script()


def test_simple_mode_shows_a_schedule_without_the_steps_that_are_refused():
    a = te.placeholder((64,), name="A")
    k = te.reduce_axis((0, 64), name="k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(k, factor=8)
    s[b].parallel(outer)
    with pytest.raises(ScheduleError, match="parallel"):
        tvm.lower(s, [a, b])
    with pytest.warns(UserWarning, match="the schedule is shown without a step that is refused: parallel"):
        shown = tvm.lower(s, [a, b], simple_mode=True)
    assert "for k_outer, k_inner in T.grid(8, 8)" in shown.script()
    with pytest.raises(ScheduleError, match="parallel"):
        tvm.build(s, [a, b], "llvm")
