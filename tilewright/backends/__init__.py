"""Kinds of targets, one file each: what the hardware can do, how programs are lowered for it, what makes its code.

A file `backends/<kind>.py` holds one value, `BACKEND`. It is loaded when a target of its kind is first made, so that
compiling for one kind loads nothing of another. Everything else asks a target for what it can do:

    target.is_cpu, target.is_gpu            the family of hardware, which has schedules and a cost model
    target.has("aot_executor")              functions call each other in one library; models are compiled to one
    target.has("device_executor")           kernels are launched on a device; models are sequences of launches
    target.has("measurable")                candidates can be run from here
    target.has("tensor_cores")              products of small matrices by groups of threads
    target.has("warp_shuffles")             the threads of a warp read each other's registers
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.errors import BuildError, LoweringError
from ..ir.expr import PrimExpr, scalable_vectors_were_made
from ..ir.functor import pre_order
from ..ir.module import IRModule
from ..ir.transform import Pass, PassContext, run_passes
from ..target.kinds import TargetKind, kind_named, kind_names, register_kind

if TYPE_CHECKING:
    from ..target import Target
    from ..target.accelerator import Accelerator

__all__ = ["Backend", "Pipeline", "Step", "backend_of", "kinds_with", "register", "unless", "when"]

# A pass, or what gives one for a target and the current context: it may give none.
Step = Pass | Callable[["Target | None"], Pass | None]


class Pipeline(NamedTuple):
    """The passes from a schedule to what code is generated from, in order.

    The first four are the phases of `tvm.lower`, behind each of which `tir.add_lower_pass` puts more.
    """

    blocks: tuple[Step, ...]  # phase 0: blocks become loops
    storage: tuple[Step, ...]  # phase 1: storage becomes flat
    loops: tuple[Step, ...]  # phase 2: loops are transformed
    clean: tuple[Step, ...]  # phase 3: cleaning up
    barriers: tuple[Step, ...] = ()  # threads wait for each other
    instructions: tuple[Step, ...] = ()  # operators that the target has no instruction for
    kernels: tuple[Step, ...] = ()  # kernels are cut out of the functions that launch them


def when(option: str, step: Pass) -> Step:
    """A pass that runs only if the context sets an option."""
    return lambda target: step if PassContext.current().option(option) else None


def unless(option: str, step: Pass) -> Step:
    """A pass that runs unless the context sets an option."""
    return lambda target: None if PassContext.current().option(option) else step


def _refuse_scalable(mod: IRModule, target: Target) -> None:
    """Refuse vectors whose length only the hardware knows, on targets that have none."""
    if target.has_scalable_vectors or not scalable_vectors_were_made():  # no program of this process has any
        return
    for var, func in mod.functions.items():
        for n in pre_order(func.body):
            if isinstance(n, PrimExpr) and n.dtype.is_scalable:
                raise LoweringError(
                    f"function {var.name_hint} has the scalable vector `{n}` of type {n.dtype}, for which there is no "
                    f"code on {target}; use a vector of constant length, or a target with SVE, such as "
                    "`llvm -mtriple=aarch64-linux-gnu -mattr=+sve`"
                )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Backend(TargetKind):
    """A kind of target with all that is done for it.

    `generate` gets a module before and after its kernels were cut out, and makes a runtime.Module. `executor` is what
    runs a whole model: "aot", one library whose functions call each other; "device", kernels that are launched one by
    one; or nothing.
    """

    pipeline: Pipeline
    generate: Callable[[IRModule, IRModule, Target], Any] | None = None
    limits: Callable[[Target], Any] | None = None  # of a block of threads; None for those of `_gpu.limits`
    dialect: Callable[[], Any] | None = None  # the `codegen.source.dialect.Dialect` of its kernels
    executor: str = ""
    chip: Callable[[Target], Accelerator] | None = None  # of a target of the family "accelerator"
    measurable: bool = False  # candidates can be run from here: there is a driver for the device
    # The target with what this machine has, where nothing is said.
    present: Callable[[Target], Target] = lambda target: target

    def __post_init__(self) -> None:
        TargetKind.__post_init__(self)
        more = [f"{self.executor}_executor"] * bool(self.executor) + ["measurable"] * self.measurable
        object.__setattr__(self, "capabilities", self.capabilities | set(more))

    def passes(self, phase: tuple[Step, ...], target: Target | None) -> list[Pass]:
        """The passes of a phase for a target."""
        made = (step if isinstance(step, Pass) else step(target) for step in phase)
        return [p for p in made if p is not None]

    def build(self, mod: IRModule, target: Target) -> Any:
        """Generate code from a module that was lowered by the first four phases."""
        if self.generate is None:
            able = ", ".join(kinds_with(lambda b: b.generate is not None))
            raise BuildError(
                f"there is no code generator for targets of kind {self.name!r}; there are some for {able}"
            )
        _refuse_scalable(mod, target)
        ready = run_passes(self.passes(self.pipeline.barriers + self.pipeline.instructions, target), mod)
        return self.generate(ready, run_passes(self.passes(self.pipeline.kernels, target), ready), target)


def lowering_rules(target: Target | None) -> tuple[str, ...]:
    """The names under which `register_intrin_lowering` has rules for a target."""
    return ("default",) if target is None else (target.kind.name, "default")


def backend_of(target: Target) -> Backend:
    """The backend of a target."""
    assert isinstance(target.kind, Backend)
    return target.kind


def kinds_with(holds: Callable[[Backend], bool]) -> list[str]:
    """The names of the kinds whose backend is such a one."""
    return [k.name for k in map(kind_named, kind_names()) if isinstance(k, Backend) and holds(k)]


def register(backend: Backend) -> Backend:
    """Make a backend known that is described outside of the package; targets of its kind can be made then.

    Processes that measure candidates import the module that calls this.
    """
    register_kind(backend, sys._getframe(1).f_globals.get("__name__", ""))
    return backend
