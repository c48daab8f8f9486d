"""The half of `scripts/replay.py` that compiles: a process of its own, which imports the tree to be recorded.

    PYTHONPATH=TREE python scripts/replay_record.py FILE '{"targets": [...], "only": "*", "sample": 0, "workers": 2}'

Its environment is that of `replay.isolated`, so that nothing of the machine or of its user shows in a recording.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import hashlib
import json
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from replay import FORMAT, TARGETS, sampled
from replay_corpus import Program, sources


# ---------------------------------------------------------------------------- one program
def record(program: dict[str, Any], targets: Iterable[str]) -> tuple[dict[str, Any], dict[str, float]]:
    """What becomes of a program on each target, and the seconds that scheduling took."""
    from tilewright.ir.serialize import load_json

    found: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    mod = load_json(program["json"]) if program["json"] else None
    for name in [t for t in targets if t in program["targets"]]:
        if mod is None:
            found[name] = {"error": program["error"]}
        else:
            found[name], seconds[name] = _record(mod, program["constants"], TARGETS[name])
    kept = {k: program[k] for k in ("name", "input", "constants")}
    return {**kept, "targets": found}, seconds


def _record(mod: Any, constants: list[str], text: str) -> tuple[dict[str, Any], float]:
    import tilewright as tvm

    target, made, lowered = tvm.target.Target(text), dict[str, Any](), list[str]()
    start = time.process_time()
    with _noted(made, "schedule"):
        sch = tvm.auto_schedule(mod, target, constants=constants)
        made["trace"] = str(sch.trace)
        made["explain"] = json.loads(sch.explanation.to_json())
        made["program"] = digest(str(sch.mod))
    seconds = time.process_time() - start
    if "program" not in made:
        return made, seconds
    with _noted(made, "predict"):
        made["us"] = predicted_us(mod, target, constants, made["explain"])
    # A pass that is added at the end of lowering sees what `build` generates code for.
    added = {"tir.add_lower_pass": [(3, _keeper(lowered))]}
    with _noted(made, "build"), tvm.transform.PassContext(opt_level=3, config=added):
        made["source"] = digest(source_of(tvm.build(sch.mod, target=target)))
    if lowered:
        made["lowered"] = digest(*lowered)
    return made, seconds


@contextlib.contextmanager
def _noted(made: dict[str, Any], step: str) -> Iterator[None]:
    """Whatever is thrown is part of the recording."""
    try:
        yield
    except Exception as error:
        made["error"] = "; ".join([*filter(None, [made.get("error")]), told(step, error)])


def told(step: str, error: Exception) -> str:
    """An error in a line, without what differs from process to process."""
    said = (str(error).splitlines() or [""])[0]
    return f"{step}: {type(error).__name__}: {re.sub('0x[0-9a-f]{6,}', '0x…', said)}"


def _keeper(kept: list[str]) -> Any:
    """A pass that changes nothing, and keeps the text of each function that it is given."""
    import tilewright as tvm

    @tvm.tir.transform.prim_func_pass(opt_level=0, name="replay.Keep")
    def keep(func: Any, mod: Any, ctx: Any) -> Any:
        kept.append(str(func))
        return func

    return keep


def predicted_us(mod: Any, target: Any, constants: list[str], explained: dict[str, Any]) -> float | None:
    """What the model of the machine expects of the schedule without trials, in microseconds.

    The tuner's tables have a figure for every stage. Where a tree has none, the sum of what `explain()` predicts.
    """
    try:
        from tilewright.tune.space import Sketches
        from tilewright.tune.workload import task_of
    except ImportError:
        known = [s["predicted_us"] for s in explained["stages"] if "predicted_us" in s]
        return rounded(sum(known)) if known else None
    space = Sketches(task_of(mod, target, constants)).space
    return rounded(space.expected * 1e6) if space.stages else None


def rounded(value: float) -> float:
    """To six digits: the last ones may differ between processors."""
    return float(f"{value:.6g}")


def source_of(built: Any) -> str:
    """The text that was generated: of kernels, or LLVM IR before LLVM has optimised it."""
    if built.imported_modules:
        return str(built.imported_modules[0].get_source())
    return str(built.text)


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------- all programs
def gather(source: str, only: str) -> list[dict[str, Any]]:
    """The programs of a source whose names match a pattern, as data.

    What cannot be made, because the tree is older than the corpus or because it is broken, is so recorded.
    """
    found: list[dict[str, Any]] = []
    try:
        for p in sources()[source]():
            name = f"{source}/{p.name}"
            if fnmatch.fnmatch(name, only):
                found.append({"name": name, **_as_data(p)})
    except Exception as error:
        whole = Program("", list)
        found.append({"name": f"{source}/", **_unmade(whole, error)})
    return found


def _as_data(program: Program) -> dict[str, Any]:
    import tilewright as tvm
    from tilewright import te
    from tilewright.ir.serialize import save_json

    constants = list(program.constants)
    try:
        made = program.make()
        func = te.create_prim_func(made) if isinstance(made, list) else made
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        key, text = digest(str(mod), *constants), save_json(mod)
    except Exception as error:
        return _unmade(program, error)
    return {"targets": program.targets, "constants": constants, "input": key, "json": text}


def _unmade(program: Program, error: Exception) -> dict[str, Any]:
    said = told("make", error)
    return {
        "targets": program.targets,
        "constants": list(program.constants),
        "input": digest(program.name, said),
        "json": "",
        "error": said,
    }


def may_match(source: str, only: str) -> bool:
    """Whether a source can have a name of a pattern: its beginning up to the first joker agrees."""
    start = re.split(r"[*?\[]", only)[0]
    return f"{source}/".startswith(start) or start.startswith(f"{source}/")


def selected(programs: list[dict[str, Any]], sample: int) -> list[dict[str, Any]]:
    """Each program once, in the order of names; of these `sample` ones, if that is not 0."""
    known: dict[Any, dict[str, Any]] = {}
    for p in sorted(programs, key=lambda p: p["name"]):
        first = known.setdefault(p["input"], p)
        known[p["input"]] = {**first, "targets": {*first["targets"], *p["targets"]}}
    by_name = {p["name"]: p for p in known.values()}
    return [by_name[name] for name in sampled(by_name, sample)]


def record_all(options: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[tuple[str, str], float]]:
    """The recordings of the programs that are asked for, in the order of their names, and the seconds that each took
    to be scheduled for each target."""
    only, targets, found = options["only"], options["targets"], []
    wanted = [s for s in sources() if may_match(s, only)]
    with workers(options["workers"]) as each:
        programs = [p for made in each("programs", gather, [(s, only) for s in wanted]) for p in made]
        chosen = selected(programs, options["sample"])
        found = list(each(f"{len(targets)} targets", record, [(p, targets) for p in chosen]))
    times = {(made["name"], t): s for made, seconds in found for t, s in seconds.items()}
    return sorted((made for made, _ in found), key=lambda p: p["name"]), times


@contextlib.contextmanager
def workers(count: int) -> Iterator[Any]:
    """`each(title, f, items)` gives f(*item) of all items as they are done, by so many processes; one is this one."""
    with contextlib.ExitStack() as stack:
        pool = None
        if count > 1:
            pool = stack.enter_context(ProcessPoolExecutor(count, mp_context=get_context("fork")))

        def each(title: str, f: Any, items: list[Any]) -> Iterator[Any]:
            with progress(title, len(items)) as step:
                if pool is None:
                    made = (f(*item) for item in items)
                else:
                    made = (done.result() for done in as_completed([pool.submit(f, *item) for item in items]))
                for one in made:
                    step()
                    yield one

        yield each


@contextlib.contextmanager
def progress(what: str, count: int) -> Iterator[Any]:
    """A bar that goes a step on at each call; where there is no terminal, a line for each tenth."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=count)

        def step() -> None:
            bar.advance(task)
            done = int(bar.tasks[0].completed)
            if not console.is_terminal and done * 10 // count > (done - 1) * 10 // count:
                print(f"{what}: {done} of {count}", file=sys.stderr, flush=True)

        yield step


def write(path: Path, options: dict[str, Any]) -> None:
    """Record what options ask for: a line for the options, then one for each program, compressed."""
    programs, times = record_all(options)
    head = {"format": FORMAT, **{k: options[k] for k in ("commit", "targets", "only", "sample")}}
    lines = [json.dumps(x, sort_keys=True, ensure_ascii=False) for x in (head, *programs)]
    path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))
    slowest = sorted(times.items(), key=lambda item: -item[1])[: options["slowest"]]
    for (name, target), seconds in slowest:
        print(f"{seconds:7.2f} s to schedule {name} for {target}", file=sys.stderr)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write(Path(sys.argv[1]), json.loads(sys.argv[2]))
