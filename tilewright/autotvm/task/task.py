"""Tasks: a template with arguments and a target, whose configurations are measured.

@autotvm.template("tutorial/matmul")
def matmul(N, L, M, dtype):
    …
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)        # a knob
    yo, yi = cfg["tile_y"].apply(s, C, y)               # its value
    return s, [A, B, C]

task = autotvm.task.create("tutorial/matmul", args=(512, 512, 512, "float32"), target="llvm")
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...ir.errors import TVMError, near_matches
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...target import Target
from ...te.create_prim_func import create_prim_func
from ...te.tensor import Operation, PlaceholderOp, Tensor
from ...tune.arguments import deserialize_args, serialize_args
from ...tune.search.search import flop_of
from ...tune.workload import Task as EngineTask
from ...tune.workload import task_of
from .args import args_to_workload
from .dispatcher import ApplyConfig, DispatchContext
from .flop import FlopCalculationError, compute_flop
from .space import ConfigSpace, InstantiationError

logger = logging.getLogger("autotvm")
TASK_TABLE: dict[str, TaskTemplate] = {}
_FIRST = 64  # the first configurations, of which the template must accept one


class TaskTemplate:
    """The functions of a template: one, or a compute and a schedule function as in topi."""

    def __init__(self) -> None:
        self.fcompute: Callable[..., Any] | None = None
        self.fschedule: Callable[..., Any] | None = None
        self.fcustomized: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        given = deserialize_args(args)
        if self.fcustomized is not None:
            made = self.fcustomized(*given, **kwargs)
        else:
            made = self._composed(*given, **kwargs)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(f"a template returns a schedule and its tensors, (s, [A, B, C]); not {made!r}")
        return made[0], list(made[1])

    def _composed(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        if self.fcompute is None or self.fschedule is None:
            missing = "compute" if self.fcompute is None else "schedule"
            raise TVMError(f"the template has no {missing} function: register_topi_{missing}(name)")
        outs = self.fcompute(*args, **kwargs)
        listed = list(outs) if isinstance(outs, (tuple, list)) else [outs]
        return self.fschedule(listed), [*listed, *_inputs(listed)]


def _inputs(outs: Sequence[Tensor]) -> list[Tensor]:
    """The placeholders that tensors are computed from, in order."""
    found: dict[Operation, Tensor] = {}
    waiting, seen = [*outs], set()
    while waiting:
        t = waiting.pop()
        if t.op in seen:
            continue
        seen.add(t.op)
        if isinstance(t.op, PlaceholderOp):
            found.setdefault(t.op, t)
        waiting += reversed(t.op.input_tensors)
    return list(found.values())


class Task:
    """A template with arguments: the unit of tuning.

    `config_space` is the space of configurations, `flop` the operations of a run, `weight` the number of runs in a
    model.
    """

    weight: int = 1

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name = name
        self.args = serialize_args(args)
        self.kwargs: dict[str, Any] = {}
        self.config_space: Any = None
        self.target: Any = None
        self.target_host: Any = None
        self.flop: float | None = None
        self._engine: EngineTask | None = None

    @property
    def func(self) -> TaskTemplate:
        """The template."""
        if self.name not in TASK_TABLE:
            raise TVMError(
                f"there is no template {self.name!r}{near_matches(self.name, TASK_TABLE)}{_of_operator(self.name)}"
            )
        return TASK_TABLE[self.name]

    @property
    def workload(self) -> tuple[Any, ...]:
        """The key: the template's name and its arguments."""
        return args_to_workload(self.args, self.name)

    def instantiate(self, config: Any) -> tuple[Any, list[Any]]:
        """The schedule of a configuration, and its tensors. Refusals of the template are added to `config.errors`."""
        config.flop, config.errors = 0, []
        with ApplyConfig(config):
            sch, args = self.func(*self.args, **self.kwargs)
        if not self.flop:
            self.flop = config.flop or _flop_of(sch, args)
        return sch, args

    # -- for the engine ----------------------------------------------------------------------------
    @property
    def engine_task(self) -> EngineTask:
        """The unscheduled program, with which all configurations are compared: that of the first configuration which
        the template accepts."""
        if self._engine is None:
            self._engine = task_of(create_prim_func(self._first_args()), self.target)
        return self._engine

    def give_inputs(self, arrays: Sequence[Any]) -> None:
        """Run configurations on these arrays, one for each parameter in order, instead of random numbers."""
        engine = self.engine_task
        names = [buffer.name for _, buffer in engine.buffers]
        if len(arrays) != len(names):
            raise ValueError(
                f"{self.name} takes {len(names)} arrays ({', '.join(names)}), and {len(arrays)} were given as inputs"
            )
        plain = [a.numpy() if hasattr(a, "numpy") else a for a in arrays]
        self._engine = replace(engine, inputs=dict(zip(names, plain, strict=True)))

    def _first_args(self) -> list[Any]:
        why: Exception | None = None
        for index in range(min(_FIRST, self.config_space.range_length or 1)):
            config = self.config_space.get(index)
            try:
                with self.target:
                    return self.instantiate(config)[1]
            except Exception as error:
                why = why or error
        raise InstantiationError(
            f"the template {self.name} accepts none of its first {_FIRST} configurations: {why}"
        ) from why

    def candidate(self, config: Any) -> Any:
        """The program of a configuration, which has the parameters of the unscheduled program."""
        with self.target:
            sch, args = self.instantiate(config)
            if not config.valid():
                raise InstantiationError("; ".join(config.errors))
            mod = program_of(sch, args)
        self._check_parameters(mod)
        return mod

    def _check_parameters(self, mod: IRModule) -> None:
        (func,) = (f for f in mod.functions.values() if isinstance(f, PrimFunc))
        mine, its = _parameters(self.engine_task.func), _parameters(func)
        if mine != its:
            raise InstantiationError(
                f"the configuration takes ({', '.join(its)}), and the first one ({', '.join(mine)}): they cannot be "
                "compared"
            )

    def __repr__(self) -> str:
        return (
            f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"
        )


def _parameters(func: PrimFunc) -> list[str]:
    """The parameters of a function, as in `A[8, 8]:float32`."""
    buffers = [(v, func.buffer_map.get(v)) for v in func.params]
    return [v.name if b is None else f"{b.name}{list(b.shape)}:{b.dtype}" for v, b in buffers]


def program_of(sch: Any, args: Sequence[Any]) -> IRModule:
    """The result of a template, a schedule and its tensors, as a module with one function of blocks."""
    mod = getattr(sch, "mod", None)
    if isinstance(mod, IRModule):  # a tir.Schedule
        func, *more = mod.functions.values()
        if more or not isinstance(func, PrimFunc):
            raise TVMError(
                f"the schedule of a template has one function, and this one has {len(mod.functions)}"
            )
        return IRModule({"main": func.with_attr("global_symbol", "main")})
    return IRModule({"main": sch.to_prim_func(list(args), name="main")})


def _flop_of(sch: Any, args: Sequence[Any]) -> float:
    """The operations of a schedule, by its expressions; by the points of its loops where they cannot be counted."""
    try:
        return float(compute_flop(sch))
    except (FlopCalculationError, AttributeError):
        pass
    try:
        return float(flop_of(task_of(create_prim_func(list(args)), "llvm"))) or 1.0
    except TVMError:
        return 1.0


# ---------------------------------------------------------------------------- templates
def get_config() -> Any:
    """The configuration of the template that is being called, which defines knobs and has their values."""
    return DispatchContext.current.query(Target.current(allow_none=True), None)


def register_template(name: str, part: str, func: Callable[..., Any], override: bool = False) -> None:
    """Register a function of a template: `part` is fcompute, fschedule or fcustomized."""
    made = TASK_TABLE.setdefault(name, TaskTemplate())
    known = getattr(made, part)
    if known is not None and not override and not _same_source(known, func):
        raise ValueError(
            f"there is another template {name!r} already: {known.__module__}.{known.__qualname__}"
        )
    setattr(made, part, func)


def _same_source(one: Any, other: Any) -> bool:
    """Whether one function is another one defined again, as in a notebook."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def template(task_name: Any, func: Callable[..., Any] | None = None) -> Any:
    """Make a function a template. A call uses the configuration of the innermost context, such as the best record."""
    if callable(task_name):
        return template(task_name.__name__, task_name)

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        register_template(task_name, "fcustomized", f)

        @functools.wraps(f)
        def dispatched(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise TypeError(f"the template {task_name} takes its arguments by position only")
            cfg = DispatchContext.current.query(
                Target.current(allow_none=True), args_to_workload(args, task_name)
            )
            with ApplyConfig(cfg):
                return f(*args)

        return dispatched

    return decorate if func is None else decorate(func)


def _of_operator(name: str) -> str:
    """The remedy for a missing template of an operator, such as `conv2d_nchw.cuda`."""
    if not name.startswith("fused_") and not re.fullmatch(r"\w+\.\w+", name):
        return ""
    return ". Operators have no templates: their tasks come from autotvm.task.extract_from_program, ready to be tuned"


def create(task_name: Any, args: Sequence[Any], target: Any = None, target_host: Any = None) -> Task:
    """The task of a template, given by its name or its function; a first call collects its space."""
    name = getattr(task_name, "__name__", None) if callable(task_name) else task_name
    if name not in TASK_TABLE and callable(task_name):
        wrapped = getattr(task_name, "__wrapped__", task_name)
        name = next((n for n, t in TASK_TABLE.items() if t.fcustomized is wrapped), name)
    chosen = Target.current(allow_none=True) if target is None else Target(target, host=target_host)
    task = Task(str(name), args)
    task.target = chosen or Target("llvm")
    task.target_host = target_host
    task.config_space = ConfigSpace()
    with ApplyConfig(task.config_space), task.target:
        sch, bufs = task.func(*task.args)
    task.config_space.code_hash = getattr(sch, "code_hash", None)
    task.flop = task.config_space.flop or _flop_of(sch, bufs)
    return task
