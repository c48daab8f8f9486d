"""Lines of TVM's own Ansor logs, version 0.6: a task, the steps of a state, and its measurement.

{"i": [[key, target, [figures of the hardware], host, layout rewrite, [names of inputs]], [[], [steps]]],
 "r": [[seconds], error, seconds in all, when], "v": "v0.6"}

["SP", 2, 0, 512, [4, 8], 1]                stage 2: split loop 0 of extent 512 by 4 and 8, from the inside
["CA", 1, 2, 3]                             stage 1: computed at loop 3 of stage 2
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..ir.expr import const_value
from ..ir.serialize import read_json
from ..tune.errors import RecordError
from .loop_state import State, Step

VERSION: Final = "v0.6"
_KNOWN: Final = ("v0.2", "v0.3", "v0.4", "v0.5", "v0.6")
_MARKS: Final = {number: name for name, number in State.ANNOTATION_TRANS_TABLE.items()}
_PRAGMAS: Final = ("auto_unroll_max_step", "unroll_explicit", "debug_skip_region")


@dataclass(frozen=True)
class ClassicRecord:
    """A line: the fields of the task, the steps, and the measurement."""

    workload_key: str
    target: str
    hardware: tuple[int, ...]
    host: str
    layout_rewrite: int
    input_names: tuple[str, ...]
    steps: tuple[Step, ...]
    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float


def is_classic_line(line: str) -> bool:
    """Whether a line is one of Ansor's logs."""
    return line.lstrip().startswith('{"i":') or (
        line.lstrip().startswith("{") and '"i":' in line and '"r":' in line
    )


# -- in -----------------------------------------------------------------------------------------------
def read_classic(line: str) -> ClassicRecord:
    """The record of a line."""
    try:
        data = read_json(line, "the line", ValueError)
        version = str(data.get("v", VERSION))
        if version not in _KNOWN:
            raise ValueError(f"its version is {version!r}, and those up to {VERSION} are known")
        (task, (_, steps)), result = data["i"], data["r"]
        key, target, hardware, host, layout, names = _task(task)
        costs, error_no, all_cost, when = result
        return ClassicRecord(
            str(key), str(target), tuple(map(int, hardware)), str(host), int(layout), tuple(map(str, names)),
            tuple(map(_step, steps)), tuple(map(float, costs)), int(error_no), float(all_cost), float(when),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RecordError(f"this is not a line of Ansor's logs: {type(error).__name__}: {error}") from None


def _task(data: Sequence[Any]) -> list[Any]:
    """The fields of a task; older versions have fewer of them."""
    return [*data, *((), "", 0, ())[len(data) - 2 :]]


def read_task_line(text: str) -> ClassicRecord:
    """A task without a state, as `SearchTask` is sent to other processes."""
    return read_classic(json.dumps({"i": [json.loads(text), [[], []]], "r": [[], 0, 0, 0], "v": VERSION}))


def _step(data: Sequence[Any]) -> Step:
    kind, stage, *rest = data
    if kind not in _READ:
        raise ValueError(f"there is no step {kind!r}; there are {', '.join(_READ)}")
    return _READ[kind](int(stage), *rest)


def _annotation(stage: int, loop: int, mark: int) -> Step:
    name = _MARKS.get(int(mark), "")
    if name in ("parallel", "vectorize", "unroll"):
        return Step(name, stage, (int(loop),))
    if name == "vthread" or "Idx." in name:
        return Step("bind", stage, (int(loop),), (name,))
    raise ValueError(f"the annotation {mark} of a loop cannot be applied")


def _pragma(stage: int, loop: int, text: str) -> Step:
    if text.partition("$")[0] not in _PRAGMAS:
        raise ValueError(f"the pragma {text!r} is not one that a search writes")
    return Step("pragma", stage, (int(loop),), (text,))


_READ: Final[Mapping[str, Callable[..., Step]]] = {
    "AN": _annotation,
    "FU": lambda s, loops: Step("fuse", s, tuple(map(int, loops))),
    "PR": _pragma,
    "RE": lambda s, loops: Step("reorder", s, tuple(map(int, loops))),
    "SP": lambda s, i, extent, sizes, inside: Step(
        "split", s, (int(i),), (tuple(None if x is None else int(x) for x in sizes), bool(inside))
    ),
    "FSP": lambda s, i, source, count: Step("follow_split", s, (int(i),), (int(source), int(count))),
    "FFSP": lambda s, i, sources, level, factor: Step(
        "follow_fused_split", s, (int(i),), (tuple(map(int, sources)), int(level), bool(factor))
    ),
    "SA": lambda s, i, factor, offset: Step("storage_align", s, (int(i),), (int(factor), int(offset))),
    "CA": lambda s, at, i: Step("compute_at", s, (), (int(at), int(i))),
    "CI": lambda s: Step("compute_inline", s),
    "CR": lambda s: Step("compute_root", s),
    "CHR": lambda s, scope, readers: Step("cache_read", s, (), (str(scope), tuple(map(int, readers)))),
    "CHW": lambda s, scope: Step("cache_write", s, (), (str(scope),)),
    "RF": lambda s, i, axis: Step("rfactor", s, (int(i),), (int(axis),)),
}


# -- out ----------------------------------------------------------------------------------------------
def can_be_written(state: State) -> bool:
    """Whether Ansor's logs have all steps of a state."""
    return state.by_hand and all(s.kind != "tensorize" for s in state.transform_steps)


def steps_as_json(state: State) -> list[list[Any]]:
    """The steps of a state that was made by hand."""
    before = State.begin(state.compute_dag)
    out = []
    for step in state.transform_steps:
        out.append(_written(step, before))
        before._do(step)
    return out


def _written(step: Step, before: State) -> list[Any]:
    loops, more = list(step.iters), step.more
    if step.kind in ("parallel", "vectorize", "unroll"):
        return ["AN", step.stage, *loops, State.ANNOTATION_TRANS_TABLE[step.kind]]
    if step.kind == "bind":
        return ["AN", step.stage, *loops, State.ANNOTATION_TRANS_TABLE[more[0]]]
    if step.kind == "split":
        kept = before[step.stage].iters[loops[0]].range
        extent = None if kept is None else const_value(kept.extent)
        return ["SP", step.stage, *loops, int(extent or 0), list(more[0]), int(more[1])]
    if step.kind in ("fuse", "reorder"):
        return [{"fuse": "FU", "reorder": "RE"}[step.kind], step.stage, loops]
    name = _NAMES[step.kind]
    return [
        name,
        step.stage,
        *loops,
        *(list(m) if isinstance(m, tuple) else int(m) if isinstance(m, bool) else m for m in more),
    ]


_NAMES: Final = {
    "pragma": "PR", "follow_split": "FSP", "follow_fused_split": "FFSP", "storage_align": "SA", "compute_at": "CA",
    "compute_inline": "CI", "compute_root": "CR", "cache_read": "CHR", "cache_write": "CHW", "rfactor": "RF",
}  # fmt: skip


def task_as_json(task: Any) -> list[Any]:
    """The task of a line."""
    host = "" if task.target_host is None else str(task.target_host)
    return [
        task.workload_key,
        str(task.target),
        list(vars(task.hardware_params).values()),
        host,
        int(task.layout_rewrite_option),
        list(task.task_input_names),
    ]


def write_classic(task: Any, state: State, result: Any) -> str:
    """The line of a state that was made by hand, and of its measurement."""
    costs = [float(c) for c in result.costs]
    data = {
        "i": [task_as_json(task), [[], steps_as_json(state)]],
        "r": [costs, int(result.error_no), float(result.all_cost), int(result.timestamp)],
        "v": VERSION,
    }
    return json.dumps(data) + "\n"
