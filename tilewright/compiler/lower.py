"""Lowering: the pipeline of phases 0 to 3, from a schedule or function to flat loops."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain
from typing import Any

from ..backends import backend_of
from ..homes import home_of
from ..ir.deep import deep_programs
from ..ir.errors import LoweringError, ScheduleError
from ..ir.expr import IntImm
from ..ir.function import PrimFunc
from ..ir.functor import statements
from ..ir.module import GlobalVar, IRModule
from ..ir.say_once import say_once
from ..ir.sharing import check_written_out
from ..ir.transform import Pass, PassContext, run_passes
from ..target import Target
from ..te.create_prim_func import create_prim_func
from ..te.schedule import AUTOMATIC
from ..te.schedule import Schedule as TeSchedule
from ..te.tensor import Tensor
from ..tir.analysis.inplace import with_inplace_pairs
from ..tir.analysis.threads import is_hardware_loop
from ..tir.transform.lower_custom_datatypes import lower_custom_datatypes
from ..tir.transform.outline_nests import outline_nests
from ..tir.transform.plan_allocations import plan_buffer_allocation


def phases(target: Target | None = None, mod: IRModule | None = None) -> list[list[Pass]]:
    """The passes of the four phases for a target (else the current one) under the current context.

    A module whose loops are bound to threads is lowered for a GPU, whatever the target is: code generators for CPUs
    refuse it. Without a target, any other module is lowered for a CPU.
    """
    target = target or Target.current(allow_none=True)
    kernels = mod is not None and (target is None or not target.is_gpu) and _binds_threads(mod)
    backend = backend_of(Target(_GPU) if kernels else target or Target(_CPU))
    return [backend.passes(phase, target) for phase in backend.pipeline[:4]]


_CPU, _GPU = "llvm", "opencl"  # the kinds whose passes lower a program for no target in particular


def _binds_threads(mod: IRModule) -> bool:
    """Whether a function is a kernel, or has one."""
    bodies = (f.body for f in mod.functions.values() if isinstance(f, PrimFunc))
    return any(map(is_hardware_loop, chain.from_iterable(map(statements, bodies))))


def lower(
    inp: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """Lower a schedule, a PrimFunc or a module to flat loops.

    `args` are the parameters of a te schedule, `name` and `binds` the name of its function and the buffers of its
    tensors. `simple_mode` is for a look at a schedule that is not finished: steps that are refused are left out, and a
    program that a pass refuses comes as it was before that pass, with a warning that says why it cannot be built.
    """
    try:
        mod = _checked_module(inp, args, name, binds)
    except ScheduleError:
        if not (simple_mode and isinstance(inp, TeSchedule)):
            raise
        mod = _checked_module(inp.shown(args or (), name, binds), None, name, None)
    pipeline = _pipeline(mod)
    try:
        return run_passes(pipeline, mod)
    except LoweringError:
        if not simple_mode:
            raise
    return _until_refused(pipeline, mod)


def _until_refused(pipeline: Sequence[Any], mod: IRModule) -> IRModule:
    """The program in front of the pass that refuses it."""
    for step in pipeline:
        try:
            mod = run_passes([step], mod)
        except LoweringError as error:
            name = step.info.name if isinstance(step, Pass) else getattr(step, "__name__", str(step))
            say_once(f"the program is shown before {name}, which refuses it: {error}", UserWarning)
            break
    return mod


def lower_to_build(
    inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Any, Any] | None
) -> IRModule:
    """As `lower`; each function also records which arguments of a call may alias."""
    mod = _noted(_checked_module(inp, args, name, binds))
    return run_passes(_pipeline(mod), mod)


def _noted(mod: IRModule) -> IRModule:
    return mod.map_functions(lambda f: with_inplace_pairs(f) if isinstance(f, PrimFunc) else f)


def lower_in_parts(
    inp: Any,
    args: Sequence[Any] | None,
    name: str,
    binds: Mapping[Any, Any] | None,
    named: Callable[[PrimFunc], str],
    known: Container[str],
) -> tuple[IRModule, dict[str, IRModule | None]]:
    """As `lower`, with each parallel loop that runs once in a module of its own, under the name that `named` gives it;
    None for names in `known`.

    Loops are separated when no remaining pass looks at more than one of them.
    """
    mod = _noted(_checked_module(inp, args, name, binds))
    pipeline = _pipeline(mod)
    names = [p.info.name for p in pipeline if isinstance(p, Pass)]
    if len(names) < len(pipeline) or "tir.StorageRewrite" not in names:
        return run_passes(pipeline, mod), {}
    cut = names.index("tir.StorageRewrite") + 1
    mod = run_passes(pipeline[:cut], mod)
    functions: dict[GlobalVar, Any] = {}
    nests: dict[str, PrimFunc] = {}
    for gv, func in mod.functions.items():
        functions[gv] = func
        if isinstance(func, PrimFunc):
            functions[gv], made = outline_nests(func, named)
            nests |= made
    rest = pipeline[cut:]
    lowered = {n: None if n in known else run_passes(rest, IRModule({n: nest})) for n, nest in nests.items()}
    return run_passes(rest, IRModule(functions)), lowered


def _checked_module(
    inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Any, Any] | None
) -> IRModule:
    """The input of lowering, as a module in block form."""
    with deep_programs():
        mod = as_module(inp, args, name, binds)
        mod = mod.map_functions(lambda f: lower_custom_datatypes(f) if isinstance(f, PrimFunc) else f)
        mod = _scheduled(mod)
        if not PassContext.current().option("tir.noalias"):
            mod = mod.map_functions(_may_alias)
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            check_written_out(func, f"lowering {gv.name_hint!r}")
    return mod


def _may_alias(func: Any) -> Any:
    """A function without the promise that its buffers do not overlap."""
    known = isinstance(func, PrimFunc) and func.attrs.get("tir.noalias")
    return func.with_attr("tir.noalias", False) if known else func


def _pipeline(mod: IRModule) -> list[Any]:
    """The passes of this context for a module, including passes that the context adds."""
    ctx = PassContext.current()
    added: list[list[Any]] = [[], [], [], []]
    for entry in ctx.config.get("tir.add_lower_pass") or ():
        phase, extra = _added(entry)
        added[phase].append(extra)
    pipeline: list[Any] = []
    for passes, extra in zip(phases(mod=mod), added, strict=True):
        pipeline += [*passes, *extra]
    return pipeline


def _scheduled(mod: IRModule) -> IRModule:
    """A module whose unscheduled functions are scheduled for the current target: those of automatic schedules, and on
    CPUs all of them if the context asks for it.
    """
    target = Target.current(allow_none=True) or Target(_CPU)
    every = target.is_cpu and PassContext.current().option(AUTOMATIC)
    wanted = {
        gv: f.without_attr(AUTOMATIC)
        for gv, f in mod.functions.items()
        if isinstance(f, PrimFunc) and (every or AUTOMATIC in f.attrs)
    }
    if not wanted:
        return mod
    made: IRModule = home_of("scheduler").schedule_unscheduled(IRModule(wanted), target)
    return IRModule({**mod.functions, **made.functions}, mod.type_definitions, mod.attrs)


def lower_kernels(mod: IRModule) -> IRModule:
    """Lower a module for a GPU with all barriers, before kernels are separated from their host functions."""
    target = Target.current(allow_none=True)
    target = target if target is not None and target.is_gpu else Target(_GPU)
    backend = backend_of(target)
    return run_passes(backend.passes(backend.pipeline.barriers, target), lower(mod))


def with_planned_memory(func: PrimFunc) -> PrimFunc:
    """A function in block form with each buffer allocated where lowering will put it."""
    return plan_buffer_allocation(func)


def _added(entry: Any) -> tuple[int, Any]:
    """A pair of phase and pass of `tir.add_lower_pass`, checked."""
    pair = tuple(entry) if isinstance(entry, (tuple, list)) else ()
    if len(pair) != 2 or not isinstance(pair[0], (int, IntImm)) or not callable(pair[1]):
        raise LoweringError(
            "tir.add_lower_pass takes pairs of a phase (0 to 3) and a pass, such as (1, vectorize), "
            f"not {entry!r}"
        )
    phase = int(pair[0])
    if phase not in range(4):
        raise LoweringError(f"tir.add_lower_pass: phase {phase} does not exist; there are 0, 1, 2 and 3")
    return phase, pair[1]


def _check_args(mod: IRModule, args: Sequence[Any] | None) -> None:
    """Refuse `args` that are not the parameters of a module's function, which says itself what it takes."""
    if args is None or not len(args):
        return
    funcs = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    remedy = "leave args out: functions say themselves what they take"
    if len(funcs) != 1:
        raise ValueError(f"args are those of one function, and the module has {len(funcs)}; {remedy}")
    params = [funcs[0].buffer_map.get(p, p) for p in funcs[0].params]
    if len(args) != len(params):
        raise ValueError(
            f"args has {len(args)} tensors, and the function takes {len(params)}: "
            f"{', '.join(p.name for p in params)}; {remedy}"
        )
    for arg, param in zip(args, params, strict=True):
        if isinstance(arg, Tensor) and str(arg.dtype) != str(param.dtype):
            raise ValueError(
                f"args has `{arg.op.name}` of type {arg.dtype} where the function takes `{param.name}` of type "
                f"{param.dtype}; {remedy}"
            )


def _merged(modules: Sequence[IRModule]) -> IRModule:
    """One module of the functions of several."""
    functions: dict[str, Any] = {}
    for mod in modules:
        for gv, func in mod.functions.items():
            if gv.name_hint in functions:
                raise ValueError(
                    f"two of the functions are called {gv.name_hint!r}; lower them with name= to tell them apart"
                )
            functions[gv.name_hint] = func
    return IRModule(functions)


def as_module(inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Any, Any] | None) -> IRModule:
    """The argument of `lower` or `build`, as a module in block form."""
    if isinstance(inp, IRModule):
        _check_args(inp, args)
        return inp
    if isinstance(inp, PrimFunc):
        _check_args(IRModule({name: inp}), args)
        symbol = inp.attrs.get("global_symbol")
        if symbol is None or (name != "main" and symbol != name):
            inp = inp.with_attr("global_symbol", name)
        return IRModule({str(inp.attrs["global_symbol"]): inp})
    to_func = getattr(inp, "to_prim_func", None)
    if to_func is not None:
        if args is None:
            raise ValueError(
                "lowering a te schedule needs args: the tensors that the function takes, in order"
            )
        return IRModule({name: to_func(args, name=name, binds=binds)})
    if isinstance(inp, (list, tuple)) and inp and all(isinstance(f, (IRModule, PrimFunc)) for f in inp):
        return _merged([as_module(f, None, name, None) for f in inp])
    if isinstance(inp, (list, tuple)) and all(isinstance(t, Tensor) for t in inp):
        return IRModule({name: create_prim_func(list(inp)).with_attr("global_symbol", name)})
    if hasattr(inp, "mod") and isinstance(inp.mod, IRModule):  # a tir.Schedule
        if args is None or len(inp.mod.functions) != 1:
            return inp.mod
        (func,) = inp.mod.functions.values()  # with args, as the tuners give it: named as a te schedule is
        return IRModule({name: func.with_attr("global_symbol", name)})
    raise TypeError(
        f"expected a te.Schedule, a PrimFunc, an IRModule or a tir.Schedule, not {type(inp).__name__}"
    )
