"""Scripts that reproduce a wrong result anywhere: the program, the steps of the candidate, the inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...ir.serialize import load_json, read_json, save_json
from ...runtime.devices import Device
from ...runtime.ndarray import NDArray, array
from ...target import Target
from ...target.kinds import import_kind, module_of_kind
from ..workload import Task
from .building import DEFAULT_BUILD, named_function, schedule_of
from .checking import make_inputs, plain_program, tolerance_of
from .compare import compare

_SCRIPT = """# {title}
#
{error}
#
# Run it to see whether that is still so: it ends with 1 if it is.

import sys

from tilewright.tune.measure.reproduce import reproduce

sys.exit(reproduce(__file__.removesuffix(".py") + ".json"))
"""


def write_reproducer(
    folder: Path, task: Task, token: str, trace: Any, what: Any, seed: int, error: str
) -> str:
    """Write the script and its data. Returns the path of the script."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"wrong_{token}"
    program = {"trace": trace} if trace is not None else {"program": save_json(what)}
    data = {
        "format": "tilewright-reproducer-1",
        "program": save_json(task.mod),
        "target": str(task.target),
        "kind": [task.target.kind.name, module_of_kind(task.target.kind.name)],
        "constants": list(task.constants),
        "sizes": dict(task.sizes),
        "seed": seed,
        "candidate": program,
        "inputs": None,
    }
    if task.inputs:
        arrays: dict[str, Any] = {k: np.asarray(v) for k, v in task.inputs.items()}
        np.savez(f"{stem}.npz", **arrays)
        data["inputs"] = f"{stem.name}.npz"
    Path(f"{stem}.json").write_text(json.dumps(data))
    title = _line(f"A schedule of {task.name} for {task.target} that computed something else.")
    said = "\n".join(f"# {_line(line)}".rstrip() for line in error.splitlines())
    Path(f"{stem}.py").write_text(_SCRIPT.format(title=title, error=said), encoding="utf-8")
    return f"{stem}.py"


def _line(text: str) -> str:
    """Text for a comment: whatever it contains, it stays on one line, and the file stays valid UTF-8."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _run(program: IRModule, target: Target, arguments: list[Any]) -> list[Any]:
    """The results of a program for arguments: on this CPU, on the first GPU of the target's kind, or on its chip."""
    func = named_function(DEFAULT_BUILD)(program, target=target)
    if not target.is_gpu:  # a chip's module copies the arrays itself
        func(*arguments)
        return arguments
    device = Device(Device.STR2MASK[target.kind.name], 0)
    there = [array(x, device) if isinstance(x, np.ndarray) else x for x in arguments]
    func(*there)
    return [x.numpy() if isinstance(x, NDArray) else x for x in there]


def reproduce(path: str) -> int:
    """Build and run a candidate and the plain program in this process. Prints how they differ; 1 if they do."""
    data = read_json(Path(path).read_bytes(), path)
    given: dict[str, Any] = {}
    if data["inputs"]:
        with np.load(Path(path).parent / data["inputs"], allow_pickle=False) as arrays:
            given = dict(arrays)
    mod = load_json(data["program"])
    assert isinstance(mod, IRModule)
    import_kind(*data["kind"])
    task = Task(mod, Target(data["target"]), tuple(data["constants"]), given, None, data["sizes"])
    candidate = data["candidate"]
    if "trace" in candidate:
        made = schedule_of(task, "trace", candidate["trace"], trusted=True).mod  # its script runs here, too
    else:
        made = load_json(candidate["program"])
    results = [
        _run(program, target, make_inputs(task, data["seed"]))
        for program, target in (
            (made, task.target),
            (plain_program(task), task.target if task.target.is_cpu else Target("llvm")),
        )
    ]
    (func,) = (f for f in mod.functions.values() if isinstance(f, PrimFunc))
    names = [func.buffer_map[v].name if v in func.buffer_map else v.name for v in func.params]
    for name, got, want in zip(names, *results, strict=True):
        wrong = compare(got, want, tolerance_of(func, task.target)) if isinstance(got, np.ndarray) else ""
        if wrong:
            print(f"{name}: {wrong}")
            return 1
    print("both compute the same")
    return 0
