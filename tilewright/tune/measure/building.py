"""Building candidates, in a process of its own: from decisions or steps to object code."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable
from typing import Any

from ...codegen.llvm.linked import Unit, unit_of
from ...codegen.llvm.nests import Nests
from ...compiler.build import build
from ...ir.errors import ScheduleError
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...ir.serialize import load_json
from ...ir.transform import PassContext
from ...tir.schedule import Schedule
from ..constants import split_constants
from ..space import Sketches
from ..workload import Task, apply_trace, stable_key
from .artifact import Array, Artifact, told
from .checking import plain_program
from .chip_code import chip_unit
from .device_code import device_unit

DEFAULT_BUILD = f"{build.__module__}:{build.__name__}"  # by name: another process finds it
TASKS = 32  # the most tasks that a process keeps
_SWEEP = 64  # builds between two garbage collections


def named_function(name: str) -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"a function is named as package.module:function, not {name!r}")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


def schedule_of(
    task: Task, kind: str, what: Any, sketches: Sketches | None = None, trusted: bool = False
) -> Schedule:
    """A candidate as a schedule: by the decisions of sketches, by the steps of a trace, or given as a program.

    A trace that is not `trusted` may have only the steps that the search writes.
    """
    if kind == "decisions":
        return (sketches or Sketches(task)).apply(what)
    if kind == "trace":
        sch = Schedule(task.mod)
        apply_trace(task, what, sch, trusted)
        return sch
    if kind == "program":
        return Schedule(load_json(what) if isinstance(what, str) else what)
    if kind == "plain":
        return Schedule(plain_program(task))
    raise ScheduleError(f"a candidate is decisions, a trace or a program, not {kind!r}")


class Known:
    """Code of earlier candidates, for reuse: many pack constants in the same way, and candidates with several loop
    nests often differ in only one of them."""

    def __init__(self) -> None:
        self.before: dict[str, Unit] = {}
        self.nests = Nests()


def build_artifact(
    task: Task, mod: IRModule, build: Callable[..., Any], known: Known | None = None
) -> Artifact:
    """The object code of a scheduled program, and of the function that computes its arguments from constants."""
    (gv, func), *_ = [(g, f) for g, f in mod.functions.items() if isinstance(f, PrimFunc)]
    known = known or Known()
    with PassContext(config={"codegen.cache": False}):
        if not task.target.is_cpu:
            names, made = tuple(_name(func, v) for v in func.params), build(mod, target=task.target)
            return Artifact(device_unit(made) if task.target.is_gpu else chip_unit(made), names)
        before, rest, labels = None, func, list[str]()
        if task.constants:
            before, rest, labels = split_constants(func, frozenset(task.constants))
        names = (*(_name(rest, v) for v in rest.params[: len(rest.params) - len(labels)]), *labels)
        with known.nests:
            main = unit_of(build(IRModule({gv.name_hint: rest}), target=task.target))
        parts = known.nests.parts
        if before is None:
            return Artifact(main, names, parts=parts)
        key = f"{task.target} {stable_key(before)}"
        if key not in known.before:
            known.before[key] = unit_of(build(IRModule({"before": before}), target=task.target))
    arrays = [
        Array(b.name, task.shape(b), str(b.dtype)) for b in (before.buffer_map[v] for v in before.params)
    ]
    return Artifact(main, names, known.before[key], tuple(arrays), parts)


def _name(func: PrimFunc, v: Any) -> str:
    return func.buffer_map[v].name if v in func.buffer_map else str(v.name)


class Builder:
    """Answers requests to build. An error of a candidate is an answer too."""

    def __init__(self) -> None:
        self.tasks: dict[str, tuple[Task, Sketches, Callable[..., Any]]] = {}
        self.known = Known()
        self.count = 0
        # Garbage collections during a build cost more than they free.
        gc.freeze()
        gc.disable()

    def requests(self) -> dict[str, Callable[[Any], Any]]:
        return {"task": self.task, "build": self.build}

    def task(self, value: tuple[str, Task, str]) -> bool:
        key, task, build = value
        self.tasks.pop(key, None)
        while len(self.tasks) >= TASKS:
            del self.tasks[next(iter(self.tasks))]
        self.tasks[key] = (task, Sketches(task), named_function(build))
        return True

    def build(self, value: tuple[str, str, Any]) -> dict[str, Any]:
        key, kind, what = value
        begin = time.perf_counter()
        answer: dict[str, Any] = {"status": "ok", "error": "", "trace": None, "artifact": None}
        try:
            task, sketches, build = self.tasks[key]
            try:
                # trusted: files are checked where they are read
                sch = schedule_of(task, kind, what, sketches, trusted=True)
            except ScheduleError as error:
                answer |= {"status": "refused", "error": told(error)}
            else:
                answer["trace"] = sch.trace.as_json() if kind == "decisions" else None
                answer["artifact"] = build_artifact(task, sch.mod, build, self.known)
        except MemoryError:
            answer |= {"status": "build memory", "error": "building wanted more memory than it may have"}
        except Exception as error:
            answer |= {"status": "build error", "error": told(error)}
        self.count += 1
        if self.count % _SWEEP == 0:
            self.known.before.clear()
            gc.collect()
        return {**answer, "build_seconds": time.perf_counter() - begin}
