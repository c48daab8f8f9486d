"""Kernels of fused functions for GPUs: source, host program, and workspaces between launches."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...backends import backend_of
from ...codegen.source.build import KernelModule
from ...codegen.source.kernel import Kernel as SourceKernel
from ...codegen.source.kernel import Program
from ...compiler.build import build
from ...ir.errors import LoweringError, ScheduleError
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...runtime.device_module import PROGRAMS, DeviceModule
from ...target import Target
from ...tir.schedule import Schedule
from ...tune import auto_schedule
from ...tune.auto import unasked
from ...tune.explain import Explanation
from ...tune.plan import plan_of
from .lower import device_loops, scheduled_by_user

_CONSTANT: Final = re.compile(r"\btw_constant_(\d+)\b")


def device_code(
    fn: Any, constants: Sequence[int], target: Target, symbol: str, record: Any, planned: bool
) -> tuple[dict[str, Any], Any, tuple[str, ...], tuple[str, ...], tuple[tuple[str, int], ...]]:
    """A fused function for a GPU: its code as data, the packer of its constants, the labels of the packed constants,
    their names, and its workspaces, if its caller has planned memory for them.

    Raises an error with the reason if no GPU kernel can be generated.
    """
    own = scheduled_by_user(fn, constants, target, symbol)
    if own is not None:
        (func, before, labels, names, _), about = own[0], f"the schedule of {own[1]}"
        module = _kernels(func, symbol, target)
    else:
        before, func, labels, names = device_loops(fn, constants, target)
        sch, module = _built(func.with_attr("global_symbol", symbol), symbol, target, record)
        about = str(sch.explanation)
    (described,) = module.description["functions"]
    program = module.description[PROGRAMS][symbol]
    scratch: list[tuple[str, int]] = []
    body = _without_memory(program["body"], scratch) if planned else program["body"]
    room = [_memory(name, size, target.kind.name) for name, size in scratch]
    written = module.program
    code = {
        "function": {**described, "params": [*described["params"], *room]},
        "program": {**program, "body": body},
        "kinds": sorted(written.kinds),
        "helpers": list(written.helpers),
        "imported": list(written.imported),
        "constants": [_own(text, symbol) for text in written.constants],
        "kernels": [[k.name, _own(k.text, symbol)] for k in written.kernels],
        "schedule": about,
    }
    return code, before, labels, names, tuple(scratch)


def _built(func: PrimFunc, symbol: str, target: Target, record: Any) -> tuple[Schedule, KernelModule]:
    """The scheduled function and its kernels; if its tiles exceed the limits of the device, one thread per result."""
    with unasked():
        sch = auto_schedule(func, target, record=record)
    _refuse_serial(sch.explanation)
    try:
        module = _kernels(sch.mod[symbol], symbol, target)
    except LoweringError:
        if not any(o.shared_memory for o in sch.explanation.outcomes):
            raise
        sch = plan_of(func, target, lacking=("shared_memory",)).sch
        _refuse_serial(sch.explanation)
        module = _kernels(sch.mod[symbol], symbol, target)
    return sch, module


def _kernels(func: PrimFunc, symbol: str, target: Target) -> KernelModule:
    module = build(IRModule({symbol: func}), target=target)
    assert isinstance(module, KernelModule)
    return module


def _refuse_serial(notes: Explanation) -> None:
    """Refuse serial stages: one thread of a GPU is far slower than one of the host."""
    for outcome in notes.outcomes:
        if outcome.threads == 1 and outcome.refused:
            raise ScheduleError(f"{outcome.stage} would be computed by one thread: {outcome.refused}")


def _own(text: str, symbol: str) -> str:
    """Arrays of constants renamed to be unique in the program."""
    return _CONSTANT.sub(lambda m: f"tw_constant_{symbol[-12:]}_{m[1]}", text)


def _memory(name: str, size: int, kind: str) -> dict[str, Any]:
    return {
        "kind": "buffer", "name": name, "dtype": "uint8", "shape": [size], "strides": None, "align": 64,
        "access": "rw", "device": kind, "scope": "global",
    }  # fmt: skip


def _without_memory(steps: Sequence[Any], found: list[tuple[str, int]]) -> list[Any]:
    """The steps of a host program whose workspaces of constant size are passed by the caller.

    alloc(t, 8192): launch(a, x, t); launch(b, t, y)      ->      launch(a, x, t); launch(b, t, y)      t: 8192
    """
    out: list[Any] = []
    for step in steps:
        if step[0] == "alloc":
            size = _known(step[2])
            if size is not None:
                found.append((step[1], max(1, size)))
                out += _without_memory(step[3], found)
                continue
        out.append([*step[:-1], _without_memory(step[-1], found)] if step[0] in ("let", "assert") else step)
    return out


def _known(value: Any) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, list) and value[0] == "*":
        parts = [_known(v) for v in value[1:]]
        return None if None in parts else math.prod(p for p in parts if p is not None)
    return None


def merged(codes: Sequence[Mapping[str, Any]], target: Target) -> DeviceModule:
    """All kernels of a model as one program, with common helpers once."""
    dialect = backend_of(target).dialect
    assert dialect is not None
    program = Program(dialect())
    for code in codes:
        program.kinds |= set(code["kinds"])
        program.helpers.update(dict.fromkeys(code["helpers"]))
        program.imported.update(dict.fromkeys(code["imported"]))
        program.constants += code["constants"]
        program.kernels += [SourceKernel(name, text, {}) for name, text in code["kernels"]]
    options = {"arch": str(target.attrs["arch"])} if "arch" in target.attrs else {}
    return DeviceModule(target.kind.name, program.text(), [k.name for k in program.kernels], options)
