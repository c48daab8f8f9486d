"""Passes over modules, the context they run in, and the runner that dumps, times and checks.

Our own passes are plain functions `PrimFunc -> PrimFunc`, one in each file. `as_pass` gives such a
function its public factory, and the runner does everything around it:

    def unroll_loops(func: PrimFunc) -> PrimFunc: …

    UnrollLoop = as_pass(unroll_loops, name="tir.UnrollLoop")
    mod = UnrollLoop()(mod)                       # on its own
    mod = run_passes((unroll_loops, …), mod)      # in a pipeline

A pass that has nothing to do returns the object it was given.
"""

from __future__ import annotations

import gc
import operator
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .. import config as knobs
from ..forks import at_start_of_child, new_in_child
from .deep import deep_programs
from .errors import InternalError, TVMError, UnsupportedError
from .function import BaseFunc, PrimFunc
from .instrument import PassInstrument, program_text
from .module import IRModule
from .pass_config import PassConfigError as PassConfigError
from .pass_config import check_config, config_options
from .pass_config import register_config_option as register_config_option
from .pass_names import UnknownPassError as UnknownPassError
from .pass_names import as_named_here, check_pass_names, note_pass_name


class PassInfo:
    """Metadata of a pass: its name, its optimization level, the passes that it requires."""

    __slots__ = ("name", "opt_level", "required", "traceable")

    def __init__(
        self, opt_level: int, name: str, required: Iterable[str] | None = None, traceable: bool = False
    ) -> None:
        self.opt_level, self.name = _level(opt_level, f"pass {name!r}"), str(name)
        self.required: tuple[str, ...] = tuple(required or ())
        note_pass_name(self.name)
        self.traceable = traceable

    def __repr__(self) -> str:
        needs = f", required={list(self.required)}" if self.required else ""
        return f"PassInfo(opt_level={self.opt_level}, name={self.name!r}{needs})"


# ---------------------------------------------------------------------------- context
class PassContext:
    """The context of passes: which of them run, with which options and instruments.

    Used as `with PassContext(opt_level=3, config={…}):`; `current()` is the innermost one of this thread. An instrument
    that an enclosing context has is told once that a context is entered and left, by the outermost one.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] | None = None,
        disabled_pass: Iterable[str] | None = None,
        instruments: Iterable[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
        trace: Callable[[IRModule, PassInfo, bool], None] | None = None,
        **tuning: Any,
    ) -> None:
        for name, value in tuning.items():
            if name not in ("trace_stack", "make_traceable", "num_evals", "tuning_api"):
                raise TypeError(f"PassContext() has no argument {name!r}")
            if value:
                raise UnsupportedError(f"PassContext({name}=…): passes are not tuned; leave it out")
        self.opt_level = _level(opt_level, "PassContext(opt_level=…)")
        self.required_pass = _names(required_pass, "required_pass")
        self.disabled_pass = _names(disabled_pass, "disabled_pass")
        self.instruments: tuple[PassInstrument, ...] = _instruments(instruments)
        self.config: dict[str, Any] = check_config(config)
        self.trace = trace
        if trace is not None and not callable(trace):
            raise TypeError(f"trace must be a function (mod, info, is_before), not {trace!r}")

    # -- as a context --------------------------------------------------------------------------
    @staticmethod
    def current() -> PassContext:
        """The innermost context of this thread, or the default one."""
        stack = _contexts.stack
        return stack[-1] if stack else _DEFAULT

    def __enter__(self) -> PassContext:
        check_pass_names(self.required_pass, "required_pass")
        check_pass_names(self.disabled_pass, "disabled_pass")
        self._open(_not_active(self.instruments))
        _contexts.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if not _contexts.stack or _contexts.stack[-1] is not self:
            raise InternalError("a PassContext is left that is not the innermost one")
        _contexts.stack.pop()
        self._close(_not_active(self.instruments))

    def override_instruments(self, instruments: Iterable[PassInstrument] | None) -> None:
        """Replace the instruments inside the context."""
        new = _instruments(instruments)
        self._close(self.instruments)
        self.instruments = ()
        self._open(new)
        self.instruments = new

    def _open(self, instruments: tuple[PassInstrument, ...]) -> None:
        entered: list[PassInstrument] = []
        try:
            for one in instruments:
                one.enter_pass_ctx()
                entered.append(one)
        except BaseException:
            self.instruments = ()
            for one in entered:
                one.exit_pass_ctx()
            raise

    def _close(self, instruments: tuple[PassInstrument, ...]) -> None:
        """Close all instruments, even if one fails; the first error is raised."""
        failure: BaseException | None = None
        for one in instruments:
            try:
                one.exit_pass_ctx()
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            self.instruments = ()
            raise failure

    # -- questions -----------------------------------------------------------------------------
    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a sequence runs the pass: disabled ones never, required ones always, others by level."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def option(self, name: str) -> Any:
        """The value of an option in this context, or its default."""
        if name in self.config:
            return self.config[name]
        known = config_options().get(name)
        if known is None:
            check_config({name: None})  # raises with the known names
            raise AssertionError
        return known.default

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """The options of a context: for each its type and description."""
        return {
            o.name: {
                "type": "dict" if isinstance(o.type, Mapping) else o.type.__name__,
                "doc": o.doc,
                "default": repr(o.default),
            }
            for o in config_options().values()
        }

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={sorted(self.required_pass)}, "
            f"disabled_pass={sorted(self.disabled_pass)}, config={self.config}, "
            f"instruments={[i.name for i in self.instruments]})"
        )


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.stack: list[PassContext] = []


def _names(given: Iterable[str] | None, what: str) -> frozenset[str]:
    if given is None:
        return frozenset()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what} is a list of names of passes, not {given!r}")
    found = list(given)
    for name in found:
        if not isinstance(name, str):
            hint = f": write {name.info.name!r}" if isinstance(name, Pass) else ""
            raise TypeError(f"{what} is a list of names of passes; {name!r} is not a name{hint}")
    return frozenset(map(as_named_here, found))


def _level(given: Any, what: str) -> int:
    """A level of optimisation: a whole number from 0 on."""
    try:
        if isinstance(given, bool):
            raise TypeError
        level = operator.index(given)
    except TypeError:
        raise TypeError(f"{what}: a level is a whole number, 0 to 3, not {given!r}") from None
    if level < 0:
        raise ValueError(f"{what}: a level is a whole number, 0 to 3, not {level}")
    return level


def _not_active(instruments: tuple[PassInstrument, ...]) -> tuple[PassInstrument, ...]:
    """The instruments that no context which is entered now has."""
    active = [one for context in _contexts.stack for one in context.instruments]
    return tuple(one for one in instruments if not any(one is a for a in active))


def _instruments(given: Iterable[PassInstrument] | None) -> tuple[PassInstrument, ...]:
    if isinstance(given, PassInstrument) or not isinstance(given, Iterable | None):
        raise TypeError(f"instruments is a list of instruments, not {given!r}")
    found = tuple(given or ())
    for one in found:
        if not isinstance(one, PassInstrument):
            raise TypeError(f"{one!r} is not an instrument: decorate its class with @pass_instrument")
    return found


_contexts: Final = _Contexts()
_DEFAULT: Final = PassContext()


# ---------------------------------------------------------------------------- passes
class Pass:
    """A function from module to module, with a name. Calling it runs it under the current context."""

    info: PassInfo
    dump_name: str = ""  # the name of the file that TILEWRIGHT_DUMP writes, if not made from the pass's

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The work of the pass."""
        raise NotImplementedError(f"{type(self).__name__} does not implement transform_module")

    def __call__(self, mod: IRModule) -> IRModule:
        return _run_one(self, mod, PassContext.current())

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def opt_level(self) -> int:
        return self.info.opt_level

    def __repr__(self) -> str:
        return f"<pass {self.info.name} at level {self.info.opt_level}>"


class ModulePass(Pass):
    """A pass from a function `(mod, ctx) -> mod`."""

    def __init__(self, function: Callable[[IRModule, PassContext], IRModule], info: PassInfo) -> None:
        self._function, self.info = function, info

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self._function(mod, ctx)


class FunctionPass(Pass):
    """A pass that maps `(func, mod, ctx) -> func` over the functions of one kind."""

    kind: type = PrimFunc

    def __init__(
        self,
        function: Callable[[Any, IRModule, PassContext], Any],
        info: PassInfo,
        kind: type | None = None,
    ) -> None:
        self._function, self.info = function, info
        if kind is not None:
            self.kind = kind

    def transform_function(self, func: Any, mod: IRModule, ctx: PassContext) -> Any:
        """The work of the pass on one function."""
        return self._function(func, mod, ctx)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def on_one(func: Any) -> Any:
            if not isinstance(func, self.kind):
                return func
            made = self.transform_function(func, mod, ctx)
            if not isinstance(made, BaseFunc):
                raise TypeError(
                    f"pass {self.info.name!r} returned {_what(made)} for a function; "
                    f"it must return a {self.kind.__name__} (the same one where nothing changed)"
                )
            return made

        return mod.map_functions(on_one)


class PrimFuncPass(FunctionPass):
    """A pass over the PrimFuncs of a module."""


class Sequential(Pass):
    """Passes one after the other. Each runs if the context's level and lists let it."""

    def __init__(
        self,
        passes: Iterable[Any] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Iterable[str] | None = None,
        traceable: bool = False,
    ) -> None:
        found = tuple(passes or ())
        for p in found:
            if not callable(p):
                raise TypeError(f"Sequential holds passes, not {_what(p)}: {p!r}")
        self.passes: tuple[Any, ...] = found
        self.info = PassInfo(opt_level, name, required, traceable)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return run_passes(self.passes, mod)


class PrintIR(Pass):
    """Prints the module to the standard error stream and returns it unchanged."""

    def __init__(self, header: str = "", show_meta_data: bool = False) -> None:
        self.header = header
        self.info = PassInfo(0, "PrintIR")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        sys.stderr.write(f"PrintIR({self.header}):\n{program_text(mod)}\n")
        return mod


class ApplyPassToFunction(Pass):
    """Runs a pass on the functions whose name matches a pattern; the others stay as they are."""

    def __init__(
        self, transform: Pass, func_name_regex: str, error_if_no_function_matches_regex: bool = False
    ) -> None:
        self.transform, self.pattern = transform, re.compile(func_name_regex)
        self.must_match = error_if_no_function_matches_regex
        self.info = PassInfo(0, f"ApplyPassToFunction_{transform.info.name}")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        chosen = {gv: f for gv, f in mod.functions.items() if self.pattern.fullmatch(gv.name_hint)}
        if not chosen:
            if self.must_match:
                have = ", ".join(gv.name_hint for gv in mod.functions) or "none"
                raise ValueError(f"no function matches {self.pattern.pattern!r}; the module has: {have}")
            return mod
        made = self.transform(IRModule(chosen, mod.type_definitions, mod.attrs))
        if len(made) == len(chosen) and all(made.functions.get(gv) is f for gv, f in chosen.items()):
            return mod
        rest = {gv: f for gv, f in mod.functions.items() if gv not in chosen}
        return IRModule({**rest, **made.functions}, mod.type_definitions, mod.attrs)


def _what(value: Any) -> str:
    return "nothing (a `return` is missing)" if value is None else type(value).__name__


# ---------------------------------------------------------------------------- making passes
def _decorator(base: type[Pass], method: str, kind: type | None) -> Callable[..., Any]:
    """The decorator that makes passes of class `base` from functions, and from classes that have `method`."""

    def from_function(function: Callable[..., Any], info: PassInfo) -> Pass:
        made: Any = base(function, info) if kind is None else base(function, info, kind)  # type: ignore[call-arg]
        made.dump_name = snake(info.name)
        made.__doc__, made.__name__ = function.__doc__, getattr(function, "__name__", info.name)
        return made  # type: ignore[no-any-return]

    def from_class(cls: Any, info: PassInfo) -> type:
        if not callable(getattr(cls, method, None)):
            raise TypeError(f"class {cls.__name__} is decorated as a pass and has no method {method}")

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            self.info = info
            cls.__init__(self, *args, **kwargs)

        inner = {"__init__": __init__, "__doc__": cls.__doc__, "__module__": cls.__module__}
        if kind is not None:
            inner["kind"] = kind
        return type(cls.__name__, (cls, base), inner)

    def decorator(
        pass_func: Any = None,
        opt_level: int | None = None,
        name: str | None = None,
        required: Iterable[str] | None = None,
        traceable: bool = False,
    ) -> Any:
        if opt_level is None:
            if pass_func is not None and not callable(pass_func):
                raise TypeError("give the level by name: opt_level=…")
            opt_level = 0

        def decorate(given: Any) -> Any:
            called = name or str(getattr(given, "__name__", "pass"))
            info = PassInfo(opt_level, called, required, traceable)
            if isinstance(given, type):
                return from_class(given, info)
            if callable(given):
                return from_function(given, info)
            raise TypeError(f"a pass is made from a function or a class, not {given!r}")

        return decorate if pass_func is None else decorate(pass_func)

    return decorator


def function_pass_for(kind: type, base: type[FunctionPass] = FunctionPass) -> Callable[..., Any]:
    """The decorator for passes `(func, mod, ctx) -> func` over one kind of function."""
    return _decorator(base, "transform_function", kind)


module_pass: Final = _decorator(ModulePass, "transform_module", None)
module_pass.__doc__ = "Make a pass of a function `(mod, ctx) -> mod`, or of a class with `transform_module`."
prim_func_pass: Final = function_pass_for(PrimFunc, PrimFuncPass)
prim_func_pass.__doc__ = (
    "Make a pass of a function `(func, mod, ctx) -> func`, or a class with `transform_function`."
)

_registry: Final[dict[str, Callable[[], Pass]]] = {}


def register_pass(name: str, factory: Callable[[], Pass]) -> None:
    """Make a pass known by name, for those that list it as required."""
    _registry[name] = factory


def get_pass(name: str) -> Pass:
    """A registered pass by its name, with or without the part before the point."""
    factory = _registry.get(name)
    if factory is None:
        short = [n for n in _registry if n.rsplit(".", 1)[-1] == name]
        if len(short) == 1:
            return _registry[short[0]]()
        from .errors import near_matches

        raise TVMError(f"unknown pass {name!r}{near_matches(name, _registry)}")
    return factory()


class PassFactory:
    # The maker of a pass that is a plain function, with the signature and the docstring of that function. Arguments go
    # to the function, which `find` gives: its file may be loaded when the pass first runs.

    def __init__(
        self,
        find: Callable[[], Callable[..., PrimFunc]],
        function_name: str,
        info: PassInfo,
        options: Callable[[PassContext], Mapping[str, Any]] | None = None,
    ) -> None:
        self._find, self._function_name, self._info, self._options = find, function_name, info, options
        self.__name__ = self.__qualname__ = info.name.rsplit(".", 1)[-1]
        register_pass(info.name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Pass:
        options = self._options

        def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
            return self._find()(func, *args, **(kwargs if options is None else {**options(ctx), **kwargs}))

        made = PrimFuncPass(run, self._info)
        made.dump_name = self._function_name
        return made

    def __repr__(self) -> str:
        return f"<pass {self._info.name}>"

    @property
    def __wrapped__(self) -> Callable[..., PrimFunc]:
        return self._find()

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._find().__doc__


def as_pass(
    function: Callable[..., PrimFunc],
    *,
    name: str,
    opt_level: int = 0,
    required: Sequence[str] = (),
    options: Callable[[PassContext], Mapping[str, Any]] | None = None,
) -> PassFactory:
    """The public factory of a pass that is a plain function.

        UnrollLoop = as_pass(unroll_loops, name="tir.UnrollLoop")

    `options` finds arguments in the context in which the pass runs; those of the factory come first.
    """
    return PassFactory(lambda: function, function.__name__, PassInfo(opt_level, name, required), options)


def snake(name: str) -> str:
    """`tir.UnrollLoop` as `unroll_loop`."""
    text = re.sub(r"[^0-9A-Za-z]+", "_", name.rsplit(".", 1)[-1])
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return text.strip("_").lower()


# ---------------------------------------------------------------------------- running
class _Session(threading.local):
    """What the passes of one outermost run share: the numbering of dumps, and the times."""

    def __init__(self) -> None:
        self.depth = 0
        self.folder: Path | None = None
        self.count = 0
        self.times: dict[str, tuple[int, float]] | None = None
        self.inner = 0.0  # seconds spent in passes inside the present one


_session: Final = _Session()
_checkers: Final[list[Callable[[IRModule, str], None]]] = []
_dump_runs: Final[dict[Path, int]] = {}
_gc_lock: Final = new_in_child(threading.Lock())
_gc_holders = 0


def register_checker(check: Callable[[IRModule, str], None]) -> Callable[[IRModule, str], None]:
    """Call `check(mod, name of the pass)` after each pass under TILEWRIGHT_CHECK=1; it raises its finding."""
    if check not in _checkers:
        _checkers.append(check)
    return check


@contextmanager
def _paused_gc() -> Iterator[None]:
    """No search for cycles meanwhile: programs have none, and it costs two to three times the work itself."""
    global _gc_holders
    with _gc_lock:
        ours = _gc_holders > 0 or gc.isenabled()
        if ours:
            _gc_holders += 1
            gc.disable()
    try:
        yield
    finally:
        if ours:
            with _gc_lock:
                _gc_holders -= 1
                if _gc_holders == 0:
                    gc.enable()


@at_start_of_child
def _without_other_threads() -> None:
    """Other threads, whose programs keep the search for cycles away, are not in the child of a fork."""
    global _gc_holders
    left = min(_gc_holders, 1 if _session.depth else 0)
    if _gc_holders and not left:
        gc.enable()
    _gc_holders = left


@contextmanager
def pass_session() -> Iterator[None]:
    """Several runs of passes as one: one numbering of dumps, one table of times, one pause of the GC."""
    s = _session
    if s.depth:
        s.depth += 1
        try:
            yield
        finally:
            s.depth -= 1
        return
    folder, timed = _dump_folder(knobs.dump.value), knobs.time.value  # which may fail
    s.depth, s.count, s.inner = 1, 0, 0.0
    s.folder, s.times = folder, {} if timed else None
    start = time.perf_counter()
    try:
        with _paused_gc(), deep_programs():
            yield
    finally:
        s.depth = 0
        times, s.times, s.folder = s.times, None, None
        if times:
            sys.stderr.write(_time_table(times, time.perf_counter() - start))


def _dump_folder(base: Path | None) -> Path | None:
    """The folder itself for the first run of the process, `run2`, `run3`, … inside it for those after."""
    if base is None:
        return None
    runs = _dump_runs[base] = _dump_runs.get(base, 0) + 1
    folder = base if runs == 1 else base / f"run{runs}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_dump(folder, error) from None
    return folder


def _no_dump(folder: Path, error: OSError) -> ValueError:
    return ValueError(
        f"{knobs.dump.variable}={knobs.dump.value}: programs cannot be written to {folder}: "
        f"{error.strerror or error}; name a folder that can be written, or none"
    )


def _time_table(times: dict[str, tuple[int, float]], whole: float) -> str:
    width = max(len("outside of passes"), *(len(name) for name in times))
    rows = sorted(times.items(), key=lambda row: -row[1][1])
    lines = [f"{'pass':<{width}}  {'runs':>4}  {'ms':>9}  {'%':>5}"]
    for name, (runs, seconds) in rows:
        share = 100 * seconds / (whole or 1)
        lines.append(f"{name:<{width}}  {runs:>4}  {seconds * 1e3:>9.3f}  {share:>5.1f}")
    rest = max(0.0, whole - sum(seconds for _, seconds in times.values()))
    share = 100 * rest / (whole or 1)
    lines.append(f"{'outside of passes':<{width}}  {'':>4}  {rest * 1e3:>9.3f}  {share:>5.1f}")
    lines.append(f"{'all':<{width}}  {'':>4}  {whole * 1e3:>9.3f}  100.0")
    return "\n".join(lines) + "\n"


def _dump(name: str, mod: IRModule) -> None:
    folder = _session.folder
    if folder is not None:
        path = folder / f"{_session.count:02d}_{name}.py"
        try:
            path.write_text(program_text(mod) + "\n", encoding="utf-8")
        except OSError as error:
            raise _no_dump(folder, error) from None
        _session.count += 1


def _timed_work(p: Pass, mod: IRModule, ctx: PassContext) -> IRModule:
    s = _session
    if s.times is None:
        return p.transform_module(mod, ctx)
    outer, s.inner = s.inner, 0.0
    start = time.perf_counter()
    try:
        return p.transform_module(mod, ctx)
    finally:
        spent = time.perf_counter() - start
        if s.times is not None:
            runs, seconds = s.times.get(p.info.name, (0, 0.0))
            s.times[p.info.name] = (runs + 1, seconds + spent - s.inner)
        s.inner = outer + spent


def _check(mod: IRModule, name: str) -> None:
    for check in _checkers:
        try:
            check(mod, name)
        except Exception as error:
            raise InternalError(f"the program is not sound after pass {name!r}: {error}") from error


def _run_one(p: Pass, mod: IRModule, ctx: PassContext) -> IRModule:
    """Run one pass with everything around it: instruments, dump, times, checks."""
    if not isinstance(mod, IRModule):
        hint = "; wrap it: IRModule.from_expr(func)" if isinstance(mod, BaseFunc) else ""
        raise TypeError(f"pass {p.info.name!r} takes an IRModule, not {type(mod).__name__}{hint}")
    info = p.info
    with pass_session():
        if ctx.instruments:
            if info.name not in ctx.required_pass:
                # Each is asked, whatever those before it said: it may be counting.
                answers = [one.should_run(mod, info) for one in ctx.instruments]
                if not all(answers):
                    return mod
            for one in ctx.instruments:
                one.run_before_pass(mod, info)
        if ctx.trace is not None:
            ctx.trace(mod, info, True)
        if _session.folder is not None and _session.count == 0:
            _dump("input", mod)
        held = list(mod.functions.items()) if ctx.config.get("testing.immutable_module") else None
        try:
            made = _timed_work(p, mod, ctx)
        except Exception as error:
            if not getattr(error, "__notes__", None):
                error.add_note(f"in pass {info.name}")
            raise
        if not isinstance(made, IRModule):
            raise TypeError(f"pass {info.name!r} returned {_what(made)}; it must return an IRModule")
        if not isinstance(p, Sequential):  # its parts were dumped and checked one by one
            _dump(p.dump_name or snake(info.name), made)
            if _checkers and made is not mod and (knobs.check.value or knobs.debug.value):
                _check(made, info.name)
        if held is not None:
            _check_unchanged(p, held, mod)
        if ctx.trace is not None:
            ctx.trace(made, info, False)
        for one in ctx.instruments:
            one.run_after_pass(made, info)
        return made


def _check_unchanged(p: Pass, held: list[tuple[Any, Any]], mod: IRModule) -> None:
    """Refuse a pass that has changed the module that it was given, for `testing.immutable_module`."""
    now = mod.functions
    if len(now) != len(held) or any(now.get(gv) is not func for gv, func in held):
        raise TVMError(
            f"pass {p.info.name!r} has changed the module that it was given, which testing.immutable_module forbids: "
            "it must return another module, such as mod.map_functions(change)"
        )


_plain_passes: Final[dict[Callable[..., Any], Pass]] = {}


def _as_given(p: Any) -> Pass:
    """A pass as it is; a plain function `PrimFunc -> PrimFunc` as the pass around it."""
    if isinstance(p, Pass):
        return p
    found = _plain_passes.get(p)
    if found is None:
        name = getattr(p, "__name__", type(p).__name__)
        found = _plain_passes[p] = PrimFuncPass(lambda func, mod, ctx: p(func), PassInfo(0, name))
    return found


def run_passes(passes: Iterable[Any], mod: IRModule) -> IRModule:
    """Run passes one after the other under the current context.

    A pass is a `Pass` or a plain function `PrimFunc -> PrimFunc`. What the context disables, or has too
    low a level for, is left out; what a pass requires runs before it.
    """
    ctx = PassContext.current()
    with pass_session():
        for given in passes:
            p = _as_given(given)
            if not ctx.pass_enabled(p.info):
                continue
            for needed in p.info.required:
                mod = get_pass(needed)(mod)
            mod = _run_one(p, mod, ctx)
    return mod
