"""One fused function as something to call: for what is computed while a model is compiled."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from ...codegen.llvm.engine import Machine, process_triple
from ...codegen.llvm.linked import LinkedModule
from ...codegen.llvm.objects import VERSION
from ...target import Target
from ..expr import Function
from .kernel import Kernel, job_of
from .te_compiler import compile_all

__all__ = ["kernel_of", "linked"]

_ready: Final[dict[str, Any]] = {}


@lru_cache(maxsize=1)
def _here() -> Machine:
    return Machine(process_triple(), "", "", 2)


def linked(kernel: Kernel) -> Any:
    """A kernel linked into this process, as a function."""
    about = {"format": 1, "producer": VERSION, "functions": list(kernel.code.functions), "entry": None}
    module = LinkedModule([kernel.code], _here(), about, native=True, name=kernel.symbol)
    return module.get_function(kernel.symbol)


def kernel_of(fn: Function) -> Any:
    """The compiled function of a typed fused function: it takes the inputs, then the results, tuples laid out flat.

    It is compiled once, unscheduled, and kept on disk like the kernels of models.
    """
    target = Target("llvm")
    job = job_of(fn, (), target, plain=True)
    found = _ready.get(job.key) if job.cached else None
    if found is None:
        found = linked(compile_all([job], target)[job.key])
        if job.cached:
            _ready[job.key] = found
    return found
