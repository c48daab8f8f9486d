"""One fused function as a callable, for evaluation at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ...codegen.llvm.engine import Machine, process_triple
from ...codegen.llvm.linked import LinkedModule
from ...codegen.llvm.objects import VERSION
from ...ir.errors import ScheduleError
from ...ir.function import PrimFunc
from ...runtime.ndarray import NDArray
from ...target import Target
from ...te.evaluate import Evaluation, NotEvaluated
from ..expr import Function
from ..op.implementation import has_strategy
from .kernel import Kernel, description, job_of, operators
from .lower import loops_of, te_of
from .te_compiler import compile_all

_ready: Final[dict[str, Any]] = {}
_evaluated: Final[dict[str, Any]] = {}  # by description: the function over NumPy, or None


def forget() -> None:
    """Forget the functions that were compiled so far."""
    _ready.clear()
    _evaluated.clear()


@lru_cache(maxsize=1)
def _here() -> Machine:
    return Machine(process_triple(), "", "", 2)


def linked(kernel: Kernel) -> Any:
    """A kernel linked into this process, as a function."""
    about = {"format": 1, "producer": VERSION, "functions": list(kernel.code.functions), "entry": None}
    module = LinkedModule([kernel.code], _here(), about, native=True, name=kernel.symbol)
    return module.get_function(kernel.symbol)


def kernels_of(functions: Sequence[Function]) -> dict[Function, Any]:
    """Typed fused functions as callables: each takes the inputs, then the results, with tuples flattened.

    Where NumPy gives the values of compiled loops, it evaluates them. The others are compiled once, unscheduled, and
    cached on disk like the kernels of models; new ones in parallel.
    """
    target = Target("llvm")
    with target:
        texts = {fn: description(fn) for fn in functions}
        for fn, text in texts.items():
            if text not in _evaluated:
                _evaluated[text] = _by_numpy(fn)
    evaluated = {fn: _evaluated[text] for fn, text in texts.items() if _evaluated[text] is not None}
    if len(evaluated) == len(functions):
        return evaluated
    jobs = {fn: job_of(fn, (), target, plain=True) for fn in functions if fn not in evaluated}
    wanted = {job.key: job for job in jobs.values() if job.key not in _ready or not job.cached}
    compiled = compile_all(list(wanted.values()), target) if wanted else {}
    made = {key: linked(kernel) for key, kernel in compiled.items()}
    _ready.update((key, made[key]) for key, job in wanted.items() if job.cached)
    compiled_ones = {fn: made[job.key] if job.key in made else _ready[job.key] for fn, job in jobs.items()}
    return {**evaluated, **compiled_ones}


def _by_numpy(fn: Function) -> Any:
    """A fused function evaluated by NumPy; None if its values may differ from those of compiled loops."""
    if any(op.compute is None or has_strategy(op) for op in operators(fn)):
        return None
    try:
        inputs, outputs = te_of(fn)
        evaluation = Evaluation(inputs, outputs)
    except NotEvaluated:
        return None
    if not evaluation.is_exact:
        return None

    def run(*arrays: NDArray) -> None:
        held = [np.asarray(a) for a in arrays]
        for place, value in zip(held[len(inputs) :], evaluation(held[: len(inputs)]), strict=True):
            place[...] = value

    return run


def why_not_on_chip(fn: Function, target: Target) -> str:
    """Why a typed fused function has no schedule for the chip of a target; empty if it has one."""
    from .accelerator_kernel import chip_schedule

    try:
        chip_schedule(loops_of(fn, ())[0], target)
    except ScheduleError as error:
        return str(error).splitlines()[0]
    return ""


def loops_and_key(fn: Function) -> tuple[PrimFunc, str]:
    """A fused function as loops, and its cache key."""
    return loops_of(fn, ())[0], description(fn)
