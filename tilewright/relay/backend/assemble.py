"""Assembly of a compiled model: kernels, weights and the function that runs it, as one module."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...codegen.llvm.linked import LinkedModule, Unit, unit_of
from ...codegen.llvm.objects import VERSION, cache_of_this_build
from ...compiler.build import build
from ...ir.errors import BuildError
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.cache import digest
from ...runtime.device_module import PROGRAMS
from ...runtime.external import attach
from ...runtime.model import LAUNCHES, MODEL, PROGRAMS_OF_CHIP, PlaceInfo, StepInfo, TensorInfo
from ...target import Target
from .aot import aot_function
from .fetch_ahead import plan_fetches
from .kernel import Kernel
from .program import Program, Step, Value
from .scratch import fresh_name
from .weights import Packers, Weights
from .work import roof_of

_MOST = 1000  # most arguments of a call from Python, minus weights and workspace


def assemble(
    program: Program,
    kernels: Mapping[int, Kernel],
    target: Target,
    name: str,
    weights: Weights | None = None,
) -> tuple[LinkedModule, Any]:
    """The module of a program, whose step `i` calls `kernels[i]`, and its weights; in `weights` if they are given."""
    unique = {k.symbol: k for k in kernels.values()}
    if weights is None:
        weights = Weights(Packers(unique), program.alignment)
    steps = _steps(program, kernels, weights, target)
    inputs, outputs = _interface(program)
    room, arena = weights.room, max(64, program.arena)
    entry = f"tvmgen_{name}_run"
    model: dict[str, Any] = {
        "format": 1,
        "name": name,
        "entry": entry,
        "inputs": [[t.name, t.dtype, t.shape] for t in inputs],
        "outputs": [
            [n, v.dtype, v.shape] for n, v in zip(program.output_names, program.outputs, strict=True)
        ],
        "params": [[p.name, p.dtype, p.shape, p.offset] for p in weights.params],
        "weights": room,
        "arena": arena,
        "inside": max((k.inside for k in unique.values()), default=0),
        "steps": [
            [s.name, s.kernel, [[a.space, a.at, a.dtype, a.shape] for a in s.args], s.outputs, s.ahead]
            for s in steps
        ],
        "work": [[s.nodes, kernels[i].work if i in kernels else None] for i, s in enumerate(program.steps)],
        "roof": roof_of(target),
    }
    externals = [k.external for k in unique.values() if k.external is not None]
    if not target.has("aot_executor"):
        made = _for_device(model, unique, target)
        attach(made, externals)
        return made, weights.whole()
    unit = _entry_unit(entry, inputs, outputs, room, arena, steps, target)
    units = [unit, *(k.code for k in unique.values())]
    about = {**about_units(units, target), "entry": entry, MODEL: model}
    made = LinkedModule(units, machine_of(target), about, native=target.llvm.is_host, name=name)
    attach(made, externals)
    return made, weights.whole()


def _for_device(model: dict[str, Any], kernels: Mapping[str, Kernel], target: Target) -> LinkedModule:
    """A model whose kernels run on a device: the steps are its program, and the host code is for steps without a device
    kernel."""
    codes = [k.device for k in kernels.values() if k.device is not None]
    units = [k.code for k in kernels.values() if k.device is None]
    model["entry"] = ""
    model["device"] = target.kind.name
    model["on_host"] = {k.symbol: k.on_host for k in kernels.values() if k.device is None}
    host = Target("llvm")
    about = {**about_units(units, target, host), "entry": None, MODEL: model}
    if target.is_accelerator:
        about[PROGRAMS_OF_CHIP] = {c["function"]["name"]: c["program"] for c in codes}
        return LinkedModule(units, machine_of(host), about, native=True, name=model["name"])
    from .device_kernel import merged  # GPU code is imported on demand

    about = {**about, LAUNCHES: launches(codes, target)}
    made = LinkedModule(units, machine_of(host), about, native=True, name=model["name"])
    made.import_module(merged(codes, target))
    return made


def launches(codes: Sequence[Mapping[str, Any]], target: Target) -> dict[str, Any]:
    """The description of the functions that launch kernels for a GPU."""
    return {
        "format": 1,
        "target": str(target),
        "functions": [c["function"] for c in codes],
        "entry": None,
        PROGRAMS: {c["function"]["name"]: c["program"] for c in codes},
    }


def about_units(units: Sequence[Unit], target: Target, host: Target | None = None) -> dict[str, Any]:
    """The description of a library for a target; its code is for the host."""
    return {
        "format": 1,
        "producer": VERSION,
        "target": str(target),
        "triple": (host or target).llvm.triple,
        "functions": [f for u in units for f in u.functions],
    }


def _interface(program: Program) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """The arguments of the function that runs a model: each has a name of its own, even if a result is an input."""
    inputs = [TensorInfo(n, v.dtype, v.shape) for n, v in program.inputs]
    taken = {t.name for t in inputs}
    outputs = [
        TensorInfo(fresh_name(n, taken), v.dtype, v.shape)
        for n, v in zip(program.output_names, program.outputs, strict=True)
    ]
    if len(inputs) + len(outputs) > _MOST:
        raise BuildError(
            f"the model has {len(inputs)} inputs and {len(outputs)} results; a function takes {_MOST} at most: "
            "bind the parameters with relay.build(…, params=…), or use relay.vm.compile, which takes any number"
        )
    return inputs, outputs


def machine_of(target: Target) -> Any:
    """The code generator of a target."""
    from ...codegen.llvm.engine import Machine

    settings = target.llvm
    return Machine(settings.triple, settings.cpu, settings.features, 2, settings.abi)


def _steps(
    program: Program, kernels: Mapping[int, Kernel], weights: Weights, target: Target
) -> list[StepInfo]:
    """All steps, each with its prefetches of the weights of later steps."""
    steps: list[StepInfo] = []
    needs: list[tuple[int, int]] = []
    for i, s in enumerate(program.steps):
        low = weights.size
        steps.append(_step(s, kernels.get(i), weights))
        needs.append((low, weights.size))
    slots = [kernels[i].slots if i in kernels else 0 for i in range(len(steps))]
    if not any(slots):
        return steps
    plan = plan_fetches(needs, slots, target.cpu.cache_sizes.l3 // 8)
    return [replace(s, ahead=p) if n else s for s, p, n in zip(steps, plan, slots, strict=True)]


def _step(step: Step, kernel: Kernel | None, weights: Weights) -> StepInfo:
    """A step with the offsets of its arguments, in the order of the kernel's parameters."""
    if kernel is None:
        (source,), (target,) = step.inputs, step.outputs
        return StepInfo(step.name, "", (_place(source, weights), _place(target, weights)), (1,))
    given = [v for v in step.inputs if v.storage.kind != "constant" or kernel.compiler]
    constants = [v.storage.constant for v in step.inputs if v.storage.constant is not None and v not in given]
    args = [_place(v, weights) for v in (*given, *step.outputs)]
    shapes = {p["name"]: p for p in kernel.about["params"]}
    for label, at in zip(kernel.labels, weights.places(kernel, constants), strict=True):
        about = shapes[label]
        args.append(PlaceInfo("weights", at, about["dtype"], tuple(about["shape"])))
    for (label, _), storage in zip(kernel.scratch, step.scratch, strict=True):
        about = shapes[label]
        args.append(PlaceInfo("scratch", storage.offset, about["dtype"], tuple(about["shape"])))
    outputs = tuple(range(len(given), len(given) + len(step.outputs)))
    return StepInfo(step.name, kernel.symbol, tuple(args), outputs)


def _place(value: Value, weights: Weights) -> PlaceInfo:
    storage = value.storage
    if storage.kind == "constant":
        assert storage.constant is not None
        return PlaceInfo("weights", weights.place(storage.constant), value.dtype, value.shape)
    at = storage.offset if storage.kind == "arena" else storage.index
    return PlaceInfo(storage.kind, at, value.dtype, value.shape)


def _entry_unit(
    entry: str, inputs: Any, outputs: Any, room: int, arena: int, steps: list[StepInfo], target: Target
) -> Unit:
    """The code of the function that runs the model, from the cache if possible."""
    from .kernel import producer

    cache = cache_of_this_build()
    key = digest("entry", *producer(), str(target), entry, repr((inputs, outputs, room, arena, steps)))
    found = cache.get(key) if cache is not None else None
    if found is not None:
        head, _, code = found.partition(b"\n")
        return Unit.of(json.loads(head), code)
    func = aot_function(entry, inputs, outputs, room, arena, steps)
    with PassContext(opt_level=0):  # nothing to optimize
        unit = unit_of(build(IRModule({entry: func}), target=target))
    if cache is not None:
        cache.put(key, json.dumps(unit.head()).encode() + b"\n" + unit.code)
    return unit
