"""Passes, their context, and what the runner does around them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from tilewright import config
from tilewright.ir import IRModule, PrimFunc, transform
from tilewright.ir.errors import InternalError, TVMError, UnsupportedError
from tilewright.ir.expr import const
from tilewright.ir.function import BaseFunc
from tilewright.ir.instrument import (
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    pass_instrument,
)
from tilewright.ir.node import node
from tilewright.ir.stmt import Evaluate
from tilewright.ir.transform import (
    ApplyPassToFunction,
    Pass,
    PassConfigError,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    UnknownPassError,
    as_pass,
    function_pass_for,
    get_pass,
    module_pass,
    pass_session,
    prim_func_pass,
    register_checker,
    register_config_option,
    run_passes,
)


def keep(func: PrimFunc) -> PrimFunc:
    """Nothing to do."""
    return func


def mark(func: PrimFunc, name: str = "marked") -> PrimFunc:
    """One more attribute."""
    return func.with_attr(name, func.attrs.get(name, 0) + 1)  # type: ignore[no-any-return]


Keep = as_pass(keep, name="test.Keep")
Mark = as_pass(mark, name="test.Mark", opt_level=1)


@node
class OtherFunc(BaseFunc):
    """A function of another kind."""

    attrs: dict[str, Any]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWRIGHT_DUMP", "TILEWRIGHT_TIME"):
        monkeypatch.delenv(name, raising=False)


def make_module() -> IRModule:
    return IRModule({"main": PrimFunc([], Evaluate(const(1))), "other": OtherFunc({})})


# -- passes -------------------------------------------------------------------------------------
def test_unchanged_is_the_same_module() -> None:
    mod = make_module()
    assert Keep()(mod) is mod
    assert run_passes([keep, Keep(), Sequential([Keep()])], mod) is mod


def test_plain_function_as_a_pass() -> None:
    mod = make_module()
    made = Mark()(mod)
    assert made["main"].attrs == {"marked": 1} and mod["main"].attrs == {}
    assert made["other"] is mod["other"], "only PrimFuncs are given to the function"
    assert made.get_global_var("main") is mod.get_global_var("main")
    assert Mark("name")(mod)["main"].attrs == {"name": 1}
    assert Mark(name="name")(mod)["main"].attrs == {"name": 1}
    assert Mark().info.name == "test.Mark" and Mark().name == "test.Mark" and Mark().opt_level == 1
    assert Mark.__name__ == "Mark" and Mark.__doc__ == "One more attribute."
    assert repr(Mark()) == "<pass test.Mark at level 1>"


def test_prim_func_pass_from_a_function() -> None:
    @prim_func_pass(opt_level=1, name="test.mine")
    def mine(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        assert isinstance(mod, IRModule) and ctx is PassContext.current()
        return mark(func)

    assert isinstance(mine, Pass) and mine.info.opt_level == 1 and mine.info.name == "test.mine"
    assert mine(make_module())["main"].attrs == {"marked": 1}


def test_prim_func_pass_from_a_class() -> None:
    @prim_func_pass(opt_level=2)
    class AddAttr:
        """Doc."""

        def __init__(self, name: str, *, value: int = 1) -> None:
            self.name_given, self.value = name, value

        def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> Any:
            return func.with_attr(self.name_given, self.value)

    made = AddAttr("a", value=5)
    assert isinstance(made, Pass) and made.value == 5 and AddAttr.__doc__ == "Doc."
    assert made.info.name == "AddAttr" and made.info.opt_level == 2
    assert made(make_module())["main"].attrs == {"a": 5}


def test_module_pass_from_both() -> None:
    @module_pass(opt_level=0)
    def rename(mod: IRModule, ctx: PassContext) -> IRModule:
        return IRModule({"renamed": mod["main"]})

    @module_pass(opt_level=0, name="cls")
    class Rename:
        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            return rename(mod)

    assert [gv.name_hint for gv in rename(make_module())] == ["renamed"]
    assert [gv.name_hint for gv in Rename()(make_module())] == ["renamed"]
    direct = module_pass(lambda mod, ctx: mod, opt_level=1, name="direct")
    mod = make_module()
    assert direct(mod) is mod and direct.info.name == "direct"


def test_function_passes_over_another_kind() -> None:
    @function_pass_for(OtherFunc)(opt_level=0)
    def on_others(func: OtherFunc, mod: IRModule, ctx: PassContext) -> OtherFunc:
        return func.with_attr("seen", True)

    made = on_others(make_module())
    assert made["other"].attrs == {"seen": True} and made["main"].attrs == {}


def test_decorator_mistakes() -> None:
    with pytest.raises(TypeError, match="has no method transform_function"):

        @prim_func_pass(opt_level=0)
        class Nothing:
            pass

    with pytest.raises(TypeError, match="from a function or a class"):
        module_pass(opt_level=0)(5)
    with pytest.raises(TypeError, match="give the level by name"):
        module_pass(0)


def test_a_pass_must_return_something() -> None:
    forgets: Any = as_pass(lambda func: None, name="test.Forgets")
    with pytest.raises(TypeError, match=r"'test.Forgets' returned nothing \(a `return` is missing\)"):
        forgets()(make_module())
    with pytest.raises(TypeError, match="it must return an IRModule"):
        module_pass(lambda mod, ctx: None, opt_level=0, name="m")(make_module())


def test_a_pass_takes_a_module() -> None:
    with pytest.raises(TypeError, match=r"takes an IRModule, not PrimFunc; wrap it: IRModule.from_expr"):
        Keep()(make_module()["main"])
    with pytest.raises(TypeError, match="takes an IRModule, not int"):
        Keep()(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Sequential holds passes, not int"):
        Sequential([5])


def test_the_failing_pass_is_named() -> None:
    def broken(func: PrimFunc) -> PrimFunc:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        Sequential([keep, broken])(make_module())
    assert caught.value.__notes__ == ["in pass broken"]


def test_apply_to_some_functions() -> None:
    main = make_module()["main"]
    mod = IRModule({"conv2d": main, "conv3d": main, "dense": main})
    made = ApplyPassToFunction(Mark(), "conv.d")(mod)
    assert {gv.name_hint: f.attrs for gv, f in made.functions.items()} == {
        "conv2d": {"marked": 1},
        "conv3d": {"marked": 1},
        "dense": {},
    }
    assert ApplyPassToFunction(Keep(), "conv.d")(mod) is mod
    assert ApplyPassToFunction(Mark(), "nothing")(mod) is mod
    with pytest.raises(ValueError, match="no function matches 'nothing'; the module has: conv2d, conv3d"):
        ApplyPassToFunction(Mark(), "nothing", error_if_no_function_matches_regex=True)(mod)


def test_print_ir(capsys: pytest.CaptureFixture[str]) -> None:
    mod = IRModule({"main": make_module()["main"]})
    assert PrintIR("here")(mod) is mod
    told = capsys.readouterr().err
    assert told.startswith("PrintIR(here):\n") and "def main" in told


def test_an_inner_context_does_not_enter_the_instruments_of_an_outer_one() -> None:
    """The compiler of a kernel derives a context from the current one, whose instruments must not start again."""
    log: list[str] = []
    one = recorder(log, "a")
    with PassContext(instruments=[one]) as outer:
        entered = list(log)
        with PassContext(instruments=outer.instruments):
            assert log == entered
        assert log == entered
        with outer:
            assert log == entered
    assert len(log) == 2 * len(entered) == 2


# -- sequences and levels -----------------------------------------------------------------------
def test_levels_required_and_disabled() -> None:
    def ran(**context: Any) -> list[str]:
        names: list[str] = []
        passes = [
            module_pass(lambda mod, ctx, n=n: names.append(n) or mod, opt_level=level, name=n)
            for n, level in (("zero", 0), ("two", 2), ("three", 3))
        ]
        with PassContext(**context):
            Sequential(passes)(make_module())
        return names

    assert ran() == ["zero", "two"]
    assert ran(opt_level=0) == ["zero"]
    assert ran(opt_level=3) == ["zero", "two", "three"]
    assert ran(opt_level=0, required_pass=["three"]) == ["zero", "three"]
    assert ran(disabled_pass=["zero"]) == ["two"]
    assert ran(required_pass=["zero"], disabled_pass=["zero"]) == ["two"], "disabled wins"


def test_what_is_called_directly_runs() -> None:
    with PassContext(opt_level=0, disabled_pass=["test.Mark"]):
        assert Mark()(make_module())["main"].attrs == {"marked": 1}
        assert Sequential([Mark()])(make_module())["main"].attrs == {}


def test_required_passes_run_before() -> None:
    needy = as_pass(
        lambda func: func.with_attr("saw", func.attrs.get("marked")), name="test.N", required=["Mark"]
    )
    assert Sequential([needy()])(make_module())["main"].attrs == {"marked": 1, "saw": 1}
    assert get_pass("test.Keep").name == "test.Keep" and get_pass("Keep").name == "test.Keep"
    with pytest.raises(TVMError, match=r"unknown pass 'test.Kepp'; did you mean test.Keep"):
        get_pass("test.Kepp")


def test_sequences_nest() -> None:
    inner = Sequential([Mark(), Mark()], name="inner")
    made = Sequential([inner, Mark()], opt_level=1, name="outer")
    assert made(make_module())["main"].attrs == {"marked": 3}
    assert made.info.name == "outer" and made.passes == (inner, made.passes[1])
    mod = make_module()
    assert Sequential()(mod) is mod


def test_info() -> None:
    info = PassInfo(3, "p", ["a"])
    assert (info.opt_level, info.name, info.required) == (3, "p", ("a",))
    assert repr(info) == "PassInfo(opt_level=3, name='p', required=['a'])"


# -- context ------------------------------------------------------------------------------------
def test_current_context() -> None:
    base = PassContext.current()
    assert base.opt_level == 2 and base.config == {}
    with PassContext(opt_level=3) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=0) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        thread.start()
        thread.join()
        assert seen == [2], "a context belongs to its thread"
    assert PassContext.current() is base


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="disabled_pass is a list of names of passes, not 'a'"):
        PassContext(disabled_pass="a")
    with pytest.raises(TypeError, match="is not an instrument: decorate its class"):
        PassContext(instruments=[object()])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="has no argument 'level'"):
        PassContext(level=3)
    with pytest.raises(UnsupportedError, match="num_evals"):
        PassContext(num_evals=3)
    with pytest.raises(TypeError, match="trace must be a function"):
        PassContext(trace=5)  # type: ignore[arg-type]
    PassContext(num_evals=0, make_traceable=None)


def test_unknown_passes_are_told() -> None:
    wrong = PassContext(disabled_pass=["NoSuchPass"])  # a context may be made before its passes are
    with pytest.raises(
        UnknownPassError, match=r"disabled_pass=\['NoSuchPass'\]\): there is no pass of that name"
    ):
        wrong.__enter__()
    assert PassContext.current() is not wrong
    with (
        pytest.raises(UnknownPassError, match=r"did you mean .*tir\.UnrollLoop"),
        PassContext(required_pass=["tir.UnrolLoop"]),
    ):
        pass

    @module_pass(opt_level=0, name="NoSuchPass")
    def mine(mod: IRModule, ctx: PassContext) -> IRModule:
        raise AssertionError("disabled")

    with wrong:
        assert run_passes([mine], IRModule({})).functions == {}
    with PassContext(disabled_pass=["tir.VectorizeLoop", "AlterOpLayout"]):
        pass


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"opt_level": "x"}, TypeError, r"opt_level=…\): a level is a whole number, 0 to 3, not 'x'"),
        ({"opt_level": 1.5}, TypeError, "not 1.5"),
        ({"opt_level": True}, TypeError, "not True"),
        ({"opt_level": None}, TypeError, "not None"),
        ({"opt_level": -1}, ValueError, "a whole number, 0 to 3, not -1"),
        ({"disabled_pass": [3]}, TypeError, "disabled_pass is a list of names of passes; 3 is not a name"),
        ({"required_pass": 3}, TypeError, "required_pass is a list of names of passes, not 3"),
        ({"instruments": 3}, TypeError, "instruments is a list of instruments, not 3"),
        ({"config": ["tir.UnrollLoop"]}, PassConfigError, "config is a dict of options, not"),
    ],
)
def test_wrong_types(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        PassContext(**given)


def test_a_folder_for_dumps_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "file" / "d"))
    with pytest.raises(ValueError, match=r"TILEWRIGHT_DUMP=\S+d: programs cannot be written to \S+d: "):
        run_passes([lambda f: f], IRModule({}))


def test_config() -> None:
    with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 16}, "tir.disable_vectorize": 1}) as ctx:
        assert ctx.config["tir.UnrollLoop"] == {
            "auto_max_step": 16,
            "auto_max_depth": 8,
            "auto_max_extent": 0,
            "explicit_unroll": True,
            "unroll_local_access": False,
        }
        assert ctx.config["tir.disable_vectorize"] is True
        assert ctx.config.get("tir.noalias") is None and ctx.option("tir.noalias") is True
        assert ctx.option("tir.UnrollLoop")["auto_max_step"] == 16
    assert PassContext.current().option("tir.UnrollLoop")["auto_max_step"] == 0
    assert PassContext(config={"tir.add_lower_pass": [(1, Keep())]}).config["tir.add_lower_pass"][0][0] == 1
    assert PassContext(config={"tir.disable_cse_tir": const(True)}).config["tir.disable_cse_tir"] is True
    assert PassContext(config={"relay.FuseOps.max_depth": const(3)}).config["relay.FuseOps.max_depth"] == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"tir.disable_vectorise": True},
            "unknown pass option 'tir.disable_vectorise'; did you mean tir.disable_vec",
        ),
        ({"tir.unrollloop": {}}, "did you mean tir.UnrollLoop"),
        (
            {"tir.UnrollLoop": {"auto_max_stop": 1}},
            "'tir.UnrollLoop' has no field 'auto_max_stop'; did you mean auto_max_step",
        ),
        (
            {"tir.UnrollLoop": {"auto_max_step": "a"}},
            "field 'auto_max_step' of option 'tir.UnrollLoop' takes int, not 'a'",
        ),
        ({"tir.UnrollLoop": 5}, "takes a dict of auto_max_step, auto_max_depth"),
        ({"tir.disable_vectorize": "yes"}, r"takes bool, not 'yes' \(str\)"),
        ({"tir.disable_vectorize": 2}, "takes bool, not 2"),
        ({"tir.add_lower_pass": 5}, "takes list, not 5"),
    ],
)
def test_wrong_config(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PassConfigError, match=said):
        PassContext(config=given)
    assert issubclass(PassConfigError, TVMError)


def test_new_options() -> None:
    with pytest.raises(PassConfigError, match=r"unknown pass option 'test\.mine'"):
        PassContext.current().option("test.mine")
    register_config_option("test.mine", int, 4, "for this test")
    try:
        assert PassContext.current().option("test.mine") == 4
        assert PassContext(config={"test.mine": 5}).option("test.mine") == 5
        listed = PassContext.list_configs()
        assert listed["test.mine"] == {"type": "int", "doc": "for this test", "default": "4"}
        assert listed["tir.UnrollLoop"]["type"] == "dict"
    finally:
        transform.config_options()  # a copy: the registry itself is private
        from tilewright.ir import pass_config

        del pass_config._options["test.mine"]


def test_trace() -> None:
    seen: list[tuple[str, bool]] = []
    with PassContext(trace=lambda mod, info, before: seen.append((info.name, before))):
        Sequential([Keep()])(make_module())
    assert seen == [("sequential", True), ("test.Keep", True), ("test.Keep", False), ("sequential", False)]


# -- instruments --------------------------------------------------------------------------------
def recorder(log: list[str], name: str = "r", allow: bool = True) -> PassInstrument:
    @pass_instrument
    class Recorder:
        """Writes down what it is told."""

        def enter_pass_ctx(self) -> None:
            log.append(f"{name} enter")

        def exit_pass_ctx(self) -> None:
            log.append(f"{name} exit")

        def should_run(self, mod: IRModule, info: PassInfo) -> bool:
            return allow or info.name == "sequential"

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            log.append(f"{name} before {info.name}")

        def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
            log.append(f"{name} after {info.name}")

    return Recorder()  # type: ignore[return-value]


def test_instruments_are_told_in_order() -> None:
    log: list[str] = []
    with PassContext(instruments=[recorder(log, "a"), recorder(log, "b")]):
        Keep()(make_module())
    assert log == [
        "a enter",
        "b enter",
        "a before test.Keep",
        "b before test.Keep",
        "a after test.Keep",
        "b after test.Keep",
        "a exit",
        "b exit",
    ]


def test_should_run() -> None:
    log: list[str] = []
    with PassContext(instruments=[recorder(log, allow=False)]):
        assert Mark()(make_module())["main"].attrs == {}
    assert log == ["r enter", "r exit"]
    with PassContext(required_pass=["test.Mark"], instruments=[recorder(log, allow=False)]):
        assert Mark()(make_module())["main"].attrs == {"marked": 1}, "what is required runs unasked"


def test_partial_instrument_and_subclass() -> None:
    @pass_instrument
    class OnlyAfter:
        """Counts."""

        def __init__(self, start: int) -> None:
            self.count = start

        def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.count += 1

    one: Any = OnlyAfter(5)
    assert one.name == "OnlyAfter" and OnlyAfter.__doc__ == "Counts." and isinstance(one, PassInstrument)
    with PassContext(instruments=[one]):
        Keep()(make_module())
    assert one.count == 6

    @pass_instrument()
    class Derived(PassInstrument):
        pass

    assert Derived.__mro__[1] is PassInstrument
    with pytest.raises(TypeError, match="decorates a class"):
        pass_instrument(5)  # type: ignore[type-var]


def test_an_instrument_that_fails_to_enter() -> None:
    log: list[str] = []

    class Broken(PassInstrument):
        def enter_pass_ctx(self) -> None:
            raise RuntimeError("no entry")

    ctx = PassContext(instruments=[recorder(log, "a"), Broken(), recorder(log, "c")])
    before = PassContext.current()
    with pytest.raises(RuntimeError, match="no entry"), ctx:
        pass
    assert log == ["a enter", "a exit"] and PassContext.current() is before and ctx.instruments == ()


def test_an_instrument_that_fails_to_leave() -> None:
    log: list[str] = []

    class Broken(PassInstrument):
        def exit_pass_ctx(self) -> None:
            raise RuntimeError("no exit")

    before = PassContext.current()
    with (
        pytest.raises(RuntimeError, match="no exit"),
        PassContext(instruments=[Broken(), recorder(log, "b")]),
    ):
        pass
    assert log == ["b enter", "b exit"], "the others are let go all the same"
    assert PassContext.current() is before


def test_override_instruments() -> None:
    log: list[str] = []
    with PassContext(instruments=[recorder(log, "a")]) as ctx:
        ctx.override_instruments([recorder(log, "b")])
        Keep()(make_module())
        ctx.override_instruments(None)
        Keep()(make_module())
    assert log == ["a enter", "a exit", "b enter", "b before test.Keep", "b after test.Keep", "b exit"]


def test_timing_instrument() -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([Keep(), Mark()])(make_module())
        inside = timing.render()
    lines = timing.render().splitlines()
    assert [line.split(":")[0] for line in lines] == ["sequential", "\ttest.Keep", "\ttest.Mark"]
    assert inside == timing.render() and "us [" in inside and "(100.00%; 100.00%)" in lines[0]
    assert timing.totals()["test.Keep"][0] == 1
    with PassContext(instruments=[timing]):
        assert timing.render() == "", "a new context starts anew"


def test_printing_instruments(capsys: pytest.CaptureFixture[str]) -> None:
    mod = IRModule({"main": make_module()["main"]})
    with PassContext(instruments=[PrintBeforeAll(), PrintAfterAll()]):
        Keep()(mod)
    out = capsys.readouterr().out
    assert "# Before Running Pass: test.Keep" in out and "# After Running Pass: test.Keep" in out
    with PassContext(instruments=[PassPrintingInstrument(["test.Mark"], ["test.Keep"])]):
        Sequential([Keep(), Mark()])(mod)
    out = capsys.readouterr().out
    assert out.count("# Print IR") == 2
    assert "# Print IR before: test.Mark" in out and "# Print IR after: test.Keep" in out


def test_dump_instrument(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "004_old.py").write_text("goes")
    with PassContext(instruments=[DumpIR(tmp_path, refresh=True)]):
        Sequential([Keep(), Mark()])(IRModule({"main": make_module()["main"]}))
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == ["000_test.Keep.py", "001_test.Mark.py", "002_sequential.py", "mine.txt"]
    assert "marked" in (tmp_path / "001_test.Mark.py").read_text()


# -- the runner ---------------------------------------------------------------------------------
def test_dump(tmp_path: Path) -> None:
    mod = IRModule({"main": make_module()["main"]})
    with config.using(dump=tmp_path / "d"):
        Sequential(
            [keep, Sequential([Mark()]), prim_func_pass(lambda f, m, c: f, opt_level=0, name="tir.CSETwice")]
        )(mod)
        with pass_session():
            Keep()(mod)
            Keep()(mod)
    names = sorted(str(p.relative_to(tmp_path / "d")) for p in (tmp_path / "d").rglob("*.py"))
    assert names == [
        "00_input.py",
        "01_keep.py",
        "02_mark.py",
        "03_cse_twice.py",
        "run2/00_input.py",
        "run2/01_keep.py",
        "run2/02_keep.py",
    ]
    assert "marked" not in (tmp_path / "d" / "01_keep.py").read_text()
    assert "marked" in (tmp_path / "d" / "02_mark.py").read_text()


def test_a_program_that_cannot_be_printed_is_dumped_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: IRModule) -> str:
        raise KeyError("x")

    monkeypatch.setattr(IRModule, "__str__", broken)
    with config.using(dump=tmp_path):
        Keep()(make_module())
    assert (tmp_path / "01_keep.py").read_text() == "# this program cannot be printed: KeyError: 'x'\n"


def test_times(capsys: pytest.CaptureFixture[str]) -> None:
    with config.using(time=True):
        Sequential([Keep(), Sequential([Mark(), Mark()])])(make_module())
    lines = capsys.readouterr().err.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[1:]}
    assert lines[0].split() == ["pass", "runs", "ms", "%"]
    assert rows["test.Mark"][1] == "2" and rows["test.Keep"][1] == "1" and rows["sequential"][1] == "2"
    parts = sum(float(line.split()[-2]) for line in lines[1:-1])
    assert abs(parts - float(rows["all"][1])) < 0.02, "own times add up to the whole"
    Keep()(make_module())
    assert capsys.readouterr().err == ""


def test_checkers() -> None:
    seen: list[str] = []

    @register_checker
    def check(mod: IRModule, name: str) -> None:
        seen.append(name)
        if "bad" in mod["main"].attrs:
            raise ValueError("bad attribute")

    try:
        with config.using(check=True):
            Sequential([Keep(), Mark()])(make_module())
            assert seen == ["test.Mark"], "only what changed is checked, and once"
            with pytest.raises(InternalError, match=r"not sound after pass 'test\.Mark': bad attribute"):
                Mark("bad")(make_module())
        with config.using(check=False):
            Mark("bad")(make_module())
    finally:
        transform._checkers.remove(check)


def test_the_collector_pauses() -> None:
    states: list[bool] = []

    def watch(func: PrimFunc) -> PrimFunc:
        states.append(gc.isenabled())
        return func

    assert gc.isenabled()
    run_passes([watch, Sequential([watch])], make_module())
    assert states == [False, False] and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        run_passes([lambda func: 1 // 0], make_module())
    assert gc.isenabled()
    gc.disable()
    try:
        run_passes([watch], make_module())
        assert not gc.isenabled(), "it stays off if it was off"
    finally:
        gc.enable()


def test_the_collector_with_threads() -> None:
    barrier = threading.Barrier(2)

    def meet(func: PrimFunc) -> PrimFunc:
        barrier.wait(120)
        assert not gc.isenabled()
        barrier.wait(120)
        return func

    threads = [threading.Thread(target=run_passes, args=([meet], make_module())) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert gc.isenabled() and not barrier.broken


def test_snake() -> None:
    names = {
        "tir.UnrollLoop": "unroll_loop",
        "tir.CommonSubexprElimTIR": "common_subexpr_elim_tir",
        "a b": "a_b",
    }
    assert {n: transform.snake(n) for n in names} == names
