"""Tasks of the tuner: a program and a target, with a key that is the same in every process and on every machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..arith import Analyzer
from ..backends import backend_of
from ..forks import cached_property
from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError
from ..ir.expr import Var, const, const_value
from ..ir.function import PrimFunc
from ..ir.functor import substitute, vars_used
from ..ir.module import IRModule
from ..ir.serialize import load_json, save_json
from ..ir.stable_key import stable_key
from ..ir.transform import PassContext
from ..target import Target
from ..target.kinds import import_kind, module_of_kind
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from ..tir.schedule import Schedule
from ..tir.schedule.from_files import check_rounding
from ..tir.schedule.trace import Trace
from .program.facts import likely

__all__ = ["Task", "apply_trace", "present", "stable_key", "task_of"]


@dataclass(frozen=True)
class Task:
    """A program to be tuned for a target, and the data that candidates run on.

    `constants` names the parameters whose values are known at compile time, `inputs` gives parameters values instead
    of random ones, `reference(**inputs)` computes the outputs with NumPy instead of plain loops, and `sizes` gives the
    values of dynamic sizes.
    """

    mod: IRModule
    target: Target
    constants: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    # In a model: the node of each call of the program, and all names by which it can be found.
    nodes: tuple[str, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)

    def __reduce__(self) -> Any:
        # For another process, which reads the data from files: programs are sent as JSON.
        kind = self.target.kind.name
        return _received, (
            save_json(self.mod), str(self.target), self.constants, dict(self.sizes), kind, module_of_kind(kind),
        )  # fmt: skip

    @cached_property
    def func(self) -> PrimFunc:
        (func,) = self.mod.functions.values()
        assert isinstance(func, PrimFunc)
        return func

    @property
    def name(self) -> str:
        """The name of the function."""
        (gv,) = self.mod.functions
        return gv.name_hint

    @property
    def title(self) -> str:
        """The name with the node of the model that the program comes from: tasks of one model may share a name."""
        more = f" +{len(self.nodes) - 1}" if len(self.nodes) > 1 else ""
        return f"{self.name} ({self.nodes[0]}{more})" if self.nodes else self.name

    @property
    def shapes(self) -> str:
        """The types and shapes of the parameters."""
        return ", ".join(
            f"{b.dtype}[{', '.join(str(d).replace('T.', '') for d in b.shape)}]" for _, b in self.buffers
        )

    def is_called(self, name: str) -> bool:
        """Whether it has this name in its model: of a node, a step of the profile, a kernel, or its key's beginning."""
        return name in (self.name, *self.names) or (len(name) >= 6 and self.workload.startswith(name))

    @cached_property
    def workload(self) -> str:
        """The key of the program: the same for structurally equal programs, in every process."""
        parts = [stable_key(self.func.with_attr("global_symbol", "main")), *sorted(self.constants)]
        parts += [f"{name}={size}" for name, size in sorted(self.sizes.items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    @cached_property
    def buffers(self) -> list[tuple[Var, Buffer]]:
        """The parameters that are buffers, in order."""
        return [(v, self.func.buffer_map[v]) for v in self.func.params if v in self.func.buffer_map]

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The shape of a buffer as numbers."""
        return tuple(self.size(d) for d in buffer.shape)

    def size(self, extent: Any) -> int:
        """An extent as a number."""
        known = const_value(extent)
        if known is None:
            values = {v: const(self.sizes.get(v.name, likely(v)), v.dtype) for v in vars_used(extent)}
            known = const_value(Analyzer().simplify(substitute(extent, values)))
        if known is None:
            raise ScheduleError(
                f"tuning {self.name}: the size `{extent}` is not known; give its symbols in sizes={{…}}"
            )
        return int(known)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all parameters."""
        return sum(math.prod(self.shape(b)) * max(1, b.dtype.nbytes) for _, b in self.buffers)


def _received(
    program: str, target: str, constants: tuple[str, ...], sizes: dict[str, int], kind: str, module: str
) -> Task:
    import_kind(kind, module)
    return Task(load_json(program), Target(target), constants, sizes=sizes)


def apply_trace(task: Task, trace: Any, sch: Schedule, trusted: bool) -> None:
    """Apply the steps of a trace to a schedule of a task's program, if their rounding is what its target promises."""
    if task.target.is_accelerator:
        _ = task.target.accelerator  # the description of a chip makes the tensor intrinsics that steps name
    if not task.target.attrs.get("tf32") and isinstance(trace, Mapping):
        check_rounding(trace.get("steps"))
    Trace.apply_json_to_schedule(trace, sch, trusted)


def present(target: Target) -> Target:
    """The target on this machine: the present GPU if the target does not say which, and with `-tf32` if the
    PassContext allows that."""
    target = backend_of(target).present(target)
    if "tf32" in target.kind.options and PassContext.current().option("tilewright.tf32"):
        target = target.with_attr("tf32", True)
    return target


def task_of(
    func_or_tensors: Any,
    target: Any = None,
    constants: Collection[str] = (),
    inputs: Mapping[str, Any] | None = None,
    reference: Callable[..., Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Task:
    """The task of tensors, a PrimFunc, or a module of one function, as `auto_schedule` takes them."""
    if isinstance(func_or_tensors, Task):
        return func_or_tensors
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    chosen = Target("llvm") if chosen is None else chosen
    mod = _module_of(func_or_tensors)
    functions = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    if len(functions) != 1 or len(mod.functions) != 1:
        raise ScheduleError(
            f"a task is one function, and this module has {len(mod.functions)}: tune them one by one"
        )
    known = {b.name for b in functions[0].buffer_map.values()}
    for name in (*constants, *(inputs or ())):
        if name not in known:
            raise ScheduleError(f"tuning: {name!r} is not a parameter; there are {', '.join(sorted(known))}")
    return Task(mod, present(chosen), tuple(constants), dict(inputs or {}), reference, dict(sizes or {}))


def _module_of(given: Any) -> IRModule:
    if isinstance(given, IRModule):
        return given
    if isinstance(given, Tensor):
        given = [given]
    if isinstance(given, Sequence):
        given = create_prim_func(list(given))
    if isinstance(given, PrimFunc):
        return IRModule({str(given.attrs.get("global_symbol", "main")): given})
    raise TypeError(f"a task is made of tensors, a PrimFunc or an IRModule, not {type(given).__name__}")
