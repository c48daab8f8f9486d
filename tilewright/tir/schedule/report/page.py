"""`sch.to_html()`: one page that plays a schedule, step by step, with nothing to load from elsewhere."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....files import write_whole
from ....ir.buffer import Buffer
from ....ir.function import PrimFunc
from ....ir.stmt import Block, BlockRealize, For, ForKind, Stmt, stmt_list
from .drawing import encoded_run
from .ranges import Env
from .steps import Program, Step, changes, steps_of
from .timeline import Timed, depth_of, timeline
from .touches import Run, sizes_of, touches_of

if TYPE_CHECKING:
    from ..schedule import Schedule

STEPS = 4096  # the longest run that is played
_CLIP = 2048  # of a longer one, so many first steps are played one by one
_KINDS = {ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorized", ForKind.UNROLLED: "unrolled"}


def write_html(sch: Schedule, path: str | Path) -> Path:
    """Write the report of a schedule to a file."""
    here = files(__package__)
    data = json.dumps(report_data(sch), separators=(",", ":"), ensure_ascii=False)
    # Inside a script element only what begins like this could end it.
    data = data.replace("<", "\\u003c")
    page = here.joinpath("page.html").read_text(encoding="utf-8")
    for mark, text in (
        ("/*css*/", here.joinpath("page.css").read_text(encoding="utf-8")),
        ("/*js*/", here.joinpath("page.js").read_text(encoding="utf-8")),
        ("/*data*/", data),
    ):
        page = page.replace(mark, text, 1)
    path = Path(path)
    write_whole(path, page)
    return path


def report_data(sch: Schedule) -> dict[str, Any]:
    """All that the page shows, as plain data."""
    steps = steps_of(sch)
    scenes = _Scenes()
    name = sch.func_working_on.name_hint
    before: Step | None = None
    out = []
    for step in steps:
        name = _changed_function(before, step, name)
        func = step.program.functions[name]
        out.append(
            {
                "title": step.title,
                "calls": [{"text": c.text, "place": c.place, "source": c.source} for c in step.calls],
                "lines": _lines(before, step),
                "parts": scenes.of_function(func, step.program),
            }
        )
        before = step
    func = steps[0].program.functions[name]
    return {"name": str(func.attrs.get("global_symbol", name)), "steps": out, "scenes": scenes.made}


def _changed_function(before: Step | None, step: Step, name: str) -> str:
    """The function that a step is about."""
    if before is not None:
        old = before.program.functions
        changed = [n for n, f in step.program.functions.items() if n not in old or f is not old[n]]
        if changed and name not in changed:
            return changed[0]
    return name


def _lines(before: Step | None, step: Step) -> list[list[Any]]:
    """The program's lines as [sign, text, marks]; lines that went stand before what took their place."""
    old = step.program.lines if before is None else before.program.lines
    out: list[list[Any]] = []
    for c in changes(old, step.program.lines):
        if c.sign in "-~":
            out.append(["-", c.old, [list(m) for m in c.old_marks]])
        if c.sign != "-":
            out.append([c.sign, c.new, [list(m) for m in c.marks]])
    return out


class _Scenes:
    """The drawings, each made once: a step that leaves a loop nest as it was shows it as it was."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.known: dict[Stmt, int] = {}

    def of_function(self, func: PrimFunc, program: Program) -> list[dict[str, Any]]:
        """The parts of a function that can be chosen: all of it, and each loop nest."""
        env, first = sizes_of(func), list(func.buffer_map.values())
        sizes = ", ".join(f"{v.name} = {x[0]}" for v, x in env.items() if v.name and not v.dtype.is_handle)
        nests = _nests(func.body)
        chosen = [("whole program", func.body)] if len(nests) > 1 else []
        chosen += [(_title(s), s) for s in nests]
        parts = []
        for title, stmt in chosen:
            if stmt not in self.known:
                scene = _scene(stmt, env, sizes, first)
                if scene is None:
                    continue
                self.known[stmt] = len(self.made)
                self.made.append(scene)
            scene = self.made[self.known[stmt]]
            lines = [program.place.get(n, -1) for n in _shown_nodes(stmt)]
            parts.append({"title": title, "scene": self.known[stmt], "lines": lines})
        return parts


def _nests(body: Stmt) -> list[Stmt]:
    """The loop nests of a function, one after the other."""
    while isinstance(body, BlockRealize) and not body.block.iter_vars and body.block.init is None:
        body = body.block.body
    return [s for s in stmt_list(body) if any(_blocks(s)) or len(stmt_list(body)) == 1]


def _blocks(s: Stmt) -> list[Block]:
    from ....ir.functor import pre_order

    return [n for n in pre_order(s) if isinstance(n, Block)]


def _title(s: Stmt) -> str:
    inner = [b for b in _blocks(s) if not any(x is not b for x in _blocks(b))]
    return " + ".join(dict.fromkeys(b.name_hint for b in inner)) or "statements"


def _scene(stmt: Stmt, env: Env, sizes: str, first: list[Buffer]) -> dict[str, Any] | None:
    """A loop nest as runs to play: all of it, and where that is long its first steps one by one."""
    whole = timeline(stmt, env)
    views: list[tuple[Run, str, str]] = []
    if whole.duration <= STEPS:
        views.append((touches_of(stmt, env, STEPS), "Whole run", ""))
    else:
        views.append(
            (touches_of(stmt, env, STEPS, _depths(stmt, env)), "Whole run", "inner loops as one step")
        )
        run = touches_of(stmt, env, _CLIP)
        views.append((run, "First steps", f"the first {run.ticks:,} of {run.total:,} steps"))
    views = [v for v in views if v[0].touches]
    if not views:
        return None
    drawn = [f"drawn for {sizes}"] if sizes else []
    runs = []
    for run, label, note in views:
        data = encoded_run(run, label, " · ".join([*([note] if note else []), *drawn]), first)
        numbers = {n: i for i, n in enumerate(_shown_nodes(stmt))}
        runs.append({**data, "tree": _tree(run.root, numbers)})
    return {"runs": runs}


def _depths(stmt: Stmt, env: Env) -> dict[Stmt, int]:
    """How deep each loop nest is walked, so that all of it can be played."""
    nests = _nests(stmt)
    out: dict[Stmt, int] = {}
    for nest in nests:
        out[nest] = depth_of(timeline(nest, env))
        while out[nest] > 0 and timeline(nest, env, out).duration * len(nests) > STEPS:
            out[nest] -= 1
    return out


def _shown_nodes(stmt: Stmt) -> list[Stmt]:
    """The loops and blocks of a nest, in the order of the program."""
    from ....ir.functor import pre_order

    return [n for n in pre_order(stmt) if isinstance(n, (For, BlockRealize))]


def _tree(t: Timed, numbers: dict[Stmt, int]) -> dict[str, Any]:
    """The timeline as plain data: what the page needs to say where in the loops a step is."""
    out: dict[str, Any] = {"r": t.role, "d": t.duration}
    if t.stmt in numbers:
        out["at"] = numbers[t.stmt]
    if isinstance(t.stmt, For):
        s = t.stmt
        tag = s.thread_binding.thread_tag if s.thread_binding is not None else ""
        kind = tag or _KINDS.get(s.kind, "")
        out.update(v=s.loop_var.name, n=t.extent, c=t.count, w=t.workers, k=kind)
    elif isinstance(t.stmt, BlockRealize):
        out["b"] = t.stmt.block.name_hint
    parts = t.parts
    if isinstance(t.stmt, BlockRealize) and t.stmt.block.init is not None:
        parts = parts[-1:]  # where the body is says it all
    if parts:
        out["p"] = [_tree(p, numbers) for p in parts]
    return out
