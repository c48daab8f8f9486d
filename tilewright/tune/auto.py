"""Schedules by analysis alone: `auto_schedule` derives the structure, the cost model picks the sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..backends import kinds_with
from ..compiler.build import build
from ..ir.deep import deeply
from ..ir.errors import ScheduleError
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..ir.stmt import BlockRealize
from ..target import Target
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from ..tir.schedule import Schedule
from ..tir.schedule.state import Index
from .constants import bind_constants
from .explain import Explanation
from .plan import Plan
from .program.facts import is_plain
from .program.stages import Stages
from .workload import present

__all__ = [
    "asked",
    "auto_schedule",
    "compile",
    "is_unscheduled",
    "schedule_unscheduled",
    "unasked",
]


# The histories (tune/records/history.py) that are asked for records before anything is decided, the innermost last.
asked: ContextVar[tuple[Any, ...]] = ContextVar("tilewright_histories", default=())


@deeply
def auto_schedule(
    func_or_tensors: Any,
    target: Any = None,
    trials: int = 0,
    constants: Collection[str] = (),
    database: Any = None,
    seed: int = 0,
    record: Any = None,
) -> Schedule:
    """A good schedule of a program: tensors, a PrimFunc or a module.

    `constants` names the parameters whose values are known at compile time. Without trials nothing is run: the same
    program and target give the same schedule, and `explain()` of the result says why it was chosen. With trials, that
    many candidates are measured and kept in `database` (a file), and the fastest correct one is taken, which is never
    slower; `seed` is that of the search. A `record` of a measured candidate, given here or found by an enclosing
    `history.History`, is applied instead.
    """
    if trials:
        from .search.search import tune_task

        return tune_task(func_or_tensors, target, trials, database, seed, constants=constants)
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    chosen = Target("llvm") if chosen is None else present(chosen)
    if not (chosen.is_cpu or chosen.is_gpu or chosen.is_accelerator):
        able = ", ".join(kinds_with(lambda b: b.family in ("cpu", "gpu", "accelerator")))
        raise ScheduleError(
            f"auto_schedule: there are no rules for targets of kind {chosen.kind.name!r}; there are some for {able}"
        )
    mod = _module(func_or_tensors)
    sch = Schedule(mod)
    notes = Explanation(str(chosen))
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc) and not func.attrs.get("tir.is_scheduled"):
            sch.work_on(gv.name_hint)
            if not _by_record(sch, func, chosen, constants, notes, record):
                _schedule(sch, func, chosen, notes, frozenset(constants))
    sch.explanation = notes
    return sch


def compile(
    func_or_tensors: Any, target: Any = None, constants: Mapping[str, Any] | None = None, trials: int = 0
) -> Any:
    """Schedule a program automatically and compile it.

    `constants` gives the values of parameters by name: they are packed once, here, and the compiled function
    does not take them.
    """
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    chosen = Target("llvm") if chosen is None else chosen
    sch = auto_schedule(func_or_tensors, chosen, trials, tuple(constants or ()))
    if not constants:
        return build(sch.mod, target=chosen)
    return bind_constants(sch.mod, constants, lambda mod: build(mod, target=chosen))


@contextmanager
def unasked() -> Iterator[None]:
    """A context in which no history is asked: it was asked before."""
    before = asked.set(())
    try:
        yield
    finally:
        asked.reset(before)


def _by_record(
    sch: Schedule, func: PrimFunc, target: Target, constants: Collection[str], notes: Explanation, record: Any
) -> bool:
    """Apply the record of a function. Returns whether there was one and it could be applied."""
    if record is None and not asked.get():
        return False
    from .records.history import scheduled_by_record

    return scheduled_by_record(sch, func, target, constants, notes, record)


def _schedule(
    sch: Schedule, func: PrimFunc, target: Target, notes: Explanation, constants: frozenset[str]
) -> None:
    """Schedule the function that `sch` works on, without trials."""
    Plan(Stages(sch, func, target, notes, constants)).run()


def is_unscheduled(func: PrimFunc) -> bool:
    """Whether each block of a function has one loop for each iterator, as `create_prim_func` makes them."""
    root = func.body
    if func.attrs.get("tir.is_scheduled") or not isinstance(root, BlockRealize) or root.block.iter_vars:
        return False
    index = Index(func)
    blocks = index.blocks_under(root.block.body)
    return bool(blocks) and all(is_plain(r, index.loops_of(r)) for r in blocks)


def schedule_unscheduled(mod: IRModule, target: Target) -> IRModule:
    """Schedule the functions of a module that are unscheduled; the others stay as they are."""
    plain = {gv: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc) and is_unscheduled(f)}
    if not plain:
        return mod
    made = auto_schedule(IRModule(plain), target).mod
    return IRModule({**mod.functions, **made.functions}, mod.type_definitions, mod.attrs)


def _module(given: Any) -> IRModule:
    if isinstance(given, IRModule):
        return given
    if isinstance(given, Tensor):
        given = [given]
    if isinstance(given, (list, tuple)):
        given = create_prim_func(list(given))
    if isinstance(given, PrimFunc):
        name = str(given.attrs.get("global_symbol", "main"))
        return IRModule({name: given})
    raise TypeError(f"auto_schedule takes tensors, a PrimFunc or an IRModule, not {type(given).__name__}")
