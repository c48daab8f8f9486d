"""Compilation of an imported model, and the package that it is saved as."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..codegen.llvm.objects import VERSION
from ..ir.errors import BuildError
from ..ir.module import IRModule
from ..ir.transform import PassContext
from ..relay import vm
from ..relay.analysis import count_calls
from ..relay.backend.evaluate import _needs_machine as needs_machine
from ..relay.backend.tasks import extract
from ..relay.build_module import build, optimize
from ..relay.interface import words_of
from ..relay.transform.infer_type import infer_module
from ..relay.ty import is_dynamic
from ..runtime.compiled import LIBRARIES, CompiledModel, Form, device_of
from ..runtime.devices import cpu
from ..runtime.errors import ArgumentValueError
from ..runtime.link import find_cc
from ..runtime.package import write_package
from ..runtime.vm import VirtualMachine
from ..target import Target
from ..target.machine import cpu_features
from ..tune.auto import auto_schedule, unasked


def compiled(
    mod: IRModule,
    params: Mapping[str, Any],
    name: str,
    target: Target,
    form: Form | None = None,
    early: int | None = 0,
) -> CompiledModel:
    """Compile a model: ahead of time if all sizes are known and it does not branch, else for the virtual machine.

    The first `early` calls (None: any number) may be answered before all kernels are compiled.
    """
    machine = wants_machine(mod, target, params)
    words = words_of(mod["main"])
    more = {} if words is None else {"strings": words.data()}

    def explain() -> str:
        return explained(mod, params, target, machine)

    if machine:
        program = vm.compile(mod, target, params=params)

        def save_program(path: Path) -> None:
            save(path, program, {**about_program(program, name, target), **more})

        runner = VirtualMachine(program)
        return CompiledModel(runner, name, str(target), form, save_program, explain, words=words)
    context = PassContext.current()
    with PassContext(context.opt_level, config={**context.config, "relay.backend.tiers": early != 0}):
        lib = build(mod, target, params=params)

    def save_model(path: Path) -> None:
        about = {**about_model(lib, name, target), "link_params": True, **more}
        save(path, lib, about, lib.get_graph_json())

    executor = lib.create(cpu(0) if target.is_cpu else device_of(lib))
    return CompiledModel(executor, name, str(target), form, save_model, explain, early, words=words)


def save(path: Path, code: Any, about: Mapping[str, Any], graph: str | None = None) -> None:
    """Write a package with the library of a model, its weights included; as object files if there is no C compiler.
    A path such as `net.so` asks for the library alone."""
    if path.suffix in LIBRARIES:
        if "strings" in about:
            raise ArgumentValueError(
                f"{path}: a library has no strings, as this model has them; save it as a .tar"
            )
        code.export_library(str(path))
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-package-") as folder:
        library = Path(folder) / ("mod.so" if find_cc() else "mod.tar")
        code.export_library(str(library))
        write_package(path, library, about, graph, {})


def wants_machine(mod: IRModule, target: Any, params: Mapping[str, Any]) -> bool:
    """Whether the model still has branches, loops or dynamic shapes after the passes, or writes into its arguments."""
    typed = infer_module(mod)
    main = typed["main"]
    inputs = [p for p in main.params if p.name_hint not in params]
    if any(is_dynamic(p.checked_type) for p in inputs) or count_calls(main, "nn.cache_update"):
        return True
    if not needs_machine(typed, main):
        return False
    try:
        ready, _ = optimize(mod, target, params)
    except BuildError:  # a function that calls itself
        return True
    return needs_machine(ready, ready["main"])


def explained(mod: IRModule, params: Mapping[str, Any], target: Target, machine: bool) -> str:
    """The explanation of the schedule of each kernel of a model, with how often the model calls it."""
    parts = []
    for task, count in extract(mod, params, target, vm=machine):
        with unasked():
            sch = auto_schedule(task.mod, task.target, constants=task.constants)
        times = "" if count == 1 else f", {count} times"
        parts.append(f"{task.name}{times}\n{sch.explanation}")
    return "\n\n".join(parts)


# ---------------------------------------------------------------------------- metadata
def about_model(lib: Any, name: str, target: Target) -> dict[str, Any]:
    """The metadata of a package. It contains no time, so that equal models give equal packages."""
    info, memory = lib.model, lib.memory_report()
    return {
        **_about(name, target, "graph", info.inputs, info.outputs),
        "steps": len(info.steps),
        "memory": {
            "weights": memory.weights,
            "arena": memory.arena,
            "inputs": memory.inputs,
            "outputs": memory.outputs,
            "peak": memory.peak,
        },
    }


def about_program(exe: Any, name: str, target: Target) -> dict[str, Any]:
    """The metadata of a program for the virtual machine; dynamic sizes are given by name."""
    return {
        **_about(name, target, "vm", *exe.program.interface),
        "steps": len(exe.primitive_ops),
        "memory": {"weights": sum(c.nbytes for c in exe.constants)},
    }


def _about(name: str, target: Target, executor: str, inputs: Any, outputs: Any) -> dict[str, Any]:
    return {
        "producer": VERSION,
        "name": name,
        "target": str(target),
        "features": _features(target),
        "executor": executor,
        "inputs": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in inputs],
        "outputs": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in outputs],
    }


# The CPU features that generated code uses, of the hundred that a CPU has.
_IN_CODE: Final = re.compile(
    "(avx|amx|sse|ssse|fma|f16c|bmi|popcnt|lzcnt|movbe|gfni|neon|sve|dotprod|i8mm|bf16|fullfp16|lse|v$|[mafdc]$)"
)


def _features(target: Target) -> list[str]:
    """The CPU features that the code needs."""
    here = target if target.is_cpu else Target("llvm")  # of the host, for a GPU
    return sorted(f for f in cpu_features(here) if _IN_CODE.match(f))
