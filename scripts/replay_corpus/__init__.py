"""The programs whose schedules `scripts/replay.py` records: one function for each place that they come from."""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from replay import TARGETS

__all__ = ["Program", "sources"]

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 20  # random programs of each kind
CPUS = tuple(name for name, text in TARGETS.items() if text.startswith("llvm"))
CUDA = tuple(name for name, text in TARGETS.items() if text.startswith("cuda"))


@dataclass(frozen=True)
class Program:
    """One program: `make` gives its tensors, its function or its module; `constants` names parameters.

    `targets` are those for which it is worth compiling, by name.
    """

    name: str
    make: Callable[[], Any]
    constants: tuple[str, ...] = ()
    targets: tuple[str, ...] = tuple(TARGETS)


Source = Callable[[], Iterator[Program]]


def sources() -> dict[str, Source]:
    """All sources by the beginning of their programs' names."""
    names = ("resnet50", "mobilenetv2", "squeezenet", "bert", "gpt2", "unet", "vit", "ocr")
    # In float32, without tensor cores, two GPUs stand for all of them; in float16 each has kernels of its own.
    single = ("sm_80", "opencl")
    return {
        "bench": workloads,
        "topi": operators,
        "attention": attentions,
        "seeds": seeds,
        "random": random_programs,
        **{f"{m} cpu": partial(model, m, CPUS) for m in names},
        **{f"{m} gpu": partial(model, m, single) for m in ("resnet50", "mobilenetv2", "unet", "ocr")},
        **{f"{m} gpu f16": partial(model, m, CUDA, half=True) for m in ("resnet50", "bert", "unet", "vit")},
    }


def workloads() -> Iterator[Program]:
    """The workloads of the CPU benchmark."""
    _import_from("bench")
    import programs
    from workloads import ALL

    for name, w in ALL.items():
        yield Program(name, partial(programs.program, w), w.constants)


def operators() -> Iterator[Program]:
    """The operators of topi, each at two sizes."""
    from .operators import cases

    for case in cases():
        for name, make, constants in case.programs():
            yield Program(name, make, constants)


def attentions() -> Iterator[Program]:
    """Attention in the words of several exporters, as it is fused for a GPU."""
    _import_from("tests/gpu")
    from attention_models import FORMS, sample

    for name, form in FORMS.items():
        yield from _tasks(name, sample(form).mod, None, CUDA)


def model(name: str, targets: tuple[str, ...], half: bool = False) -> Iterator[Program]:
    """The fused functions of a neural network, as it is compiled for processors or GPUs."""
    from tilewright.relay.build_module import bind_params_by_name

    from .models import MODELS, halved

    mod, params = MODELS[name]()
    if half:
        mod["main"] = bind_params_by_name(mod["main"], params)
        mod = halved(mod)
    yield from _tasks("", mod, params, targets)


def seeds() -> Iterator[Program]:
    """The tensor programs of the seed documents: the tests that run them show them to `call`."""
    _import_from("tests/seeds")
    import test_te_programs

    for name, test in inspect.getmembers(test_te_programs, inspect.isfunction):
        if name.startswith("test_") and "call" in inspect.signature(test).parameters:
            for number, tensors in enumerate(_shown(test)):
                yield Program(f"{name[5:]} {number}", partial(list, tensors))


def random_programs() -> Iterator[Program]:
    """Programs that tests and fuzzers make, from fixed seeds."""
    _import_from("tests", "tests/tir/schedule", "tests/tune")
    import random_schedules
    import tune_programs
    from fuzz import odd_programs

    from tilewright.script import from_source

    def chain(seed: int) -> Any:
        return random_schedules.program_of(random_schedules.recipe_of(seed))

    def odd(seed: int) -> Any:
        return from_source(odd_programs.source_of(random.Random(seed)))

    for seed in range(SEEDS):
        yield Program(f"chain {seed}", partial(chain, seed))
        yield Program(f"odd {seed}", partial(odd, seed))
    for number, drawn in enumerate(_drawn(tune_programs.programs(), SEEDS)):
        yield Program(f"stages {number}", drawn.func)


# ---------------------------------------------------------------------------- helpers
def _import_from(*folders: str) -> None:
    """Let modules of folders of this repository be imported: of this one, whichever tree is recorded."""
    for folder in folders:
        path = str(ROOT / folder)
        if path not in sys.path:
            sys.path.append(path)


def _tasks(name: str, mod: Any, params: Any, targets: tuple[str, ...]) -> Iterator[Program]:
    """What is scheduled when a model is compiled for processors or for GPUs; what has one name is numbered."""
    from tilewright import auto_scheduler

    target = "znver4" if targets == CPUS else "sm_90a"
    found, _ = auto_scheduler.extract_tasks(mod, params, TARGETS[target], include_simple_tasks=True)
    count: dict[str, int] = {}
    for t in found:
        label = f"{name} {t.desc.removeprefix('fused_')}".strip()
        count[label] = count.get(label, 0) + 1
        func = t.task.func
        yield Program(f"{label} {count[label]}", partial(_same, func), t.task.constants, targets)


def _same(func: Any) -> Any:
    return func


class _Seen(Exception):
    """Thrown out of a test when it has shown its program."""


def _shown(test: Callable[..., Any]) -> list[list[Any]]:
    """The arguments of the first program that a test calls."""
    shown: list[list[Any]] = []

    def call(tensors: list[Any], *values: Any) -> Any:
        shown.append(tensors)
        raise _Seen

    with contextlib.suppress(_Seen):
        test(call)
    return shown


def _drawn(strategy: Any, count: int) -> list[Any]:
    """Examples of a hypothesis strategy, the same each time."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    found: list[Any] = []

    @seed(0)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(example: Any) -> None:
        found.append(example)

    keep()
    return found
