"""The record of what was done to a program: printed as Python, kept as JSON, done again elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...ir.errors import ScheduleError
from ...ir.expr import FloatImm, IntImm, IterVar, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.serialize import read_json
from ...ir.span import Span
from .from_files import UntrustedStep, check_steps, interface
from .primitive import PRIMITIVES, BlockRV, LoopRV

if TYPE_CHECKING:
    from .schedule import Schedule

FORMAT = "tilewright-trace-1"


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One step: the primitive, its arguments, what it gave, and the program after it.

    `arguments` are pairs of name and value; the name is empty for those of `*args`. `decision` is what a
    sampling step chose.
    """

    kind: str
    arguments: tuple[tuple[str, Any], ...]
    outputs: tuple[Any, ...]
    decision: Any = None
    span: Span | None = None
    after: IRModule | None = None


class Decisions(dict[int, Any]):
    """Decisions by the number of the step, or by the step itself: `trace.decisions[trace.insts[3]]`."""

    def __init__(self, insts: Sequence[Instruction]) -> None:
        super().__init__((i, x.decision) for i, x in enumerate(insts) if x.decision is not None)
        self._numbers = {x: i for i, x in enumerate(insts)}

    def __missing__(self, step: Any) -> Any:
        if isinstance(step, Instruction) and self._numbers.get(step) in self:
            return self[self._numbers[step]]
        raise KeyError(step)


class Trace:
    """The steps of a schedule, from the first."""

    def __init__(self, insts: Sequence[Instruction] = ()) -> None:
        self.insts: list[Instruction] = list(insts)

    # -- recording -----------------------------------------------------------------------------
    def record(
        self,
        kind: str,
        bound: inspect.BoundArguments,
        result: Any,
        span: Span | None,
        after: IRModule,
        decision: Any = None,
    ) -> None:
        outputs = tuple(result) if isinstance(result, (list, tuple)) else () if result is None else (result,)
        items: list[tuple[str, Any]] = []
        for name, value in list(bound.arguments.items())[1:]:
            param = bound.signature.parameters[name]
            if param.kind is inspect.Parameter.VAR_POSITIONAL:
                items += [("", v) for v in value]
            elif name == "decision":
                continue  # what was drawn counts, be it told or not
            elif param.default is inspect.Parameter.empty or value is not param.default:
                items.append((name, value))
        self.insts.append(Instruction(kind, tuple(items), outputs, decision, span, after))

    @property
    def decisions(self) -> Decisions:
        """The decisions of the sampling steps, by the number of the step."""
        return Decisions(self.insts)

    def with_decision(self, step: int, decision: Any) -> Trace:
        """The trace with another choice at one step."""
        if not 0 <= step < len(self.insts) or not self.insts[step].kind.startswith("sample_"):
            raise ScheduleError(f"step {step} is not a sampling step, so it has no decision to change")
        insts = list(self.insts)
        insts[step] = replace(insts[step], decision=decision)
        return Trace(insts)

    # -- doing it again ------------------------------------------------------------------------
    def apply_to_schedule(
        self,
        sch: Schedule,
        remove_postproc: bool = False,
        decision_provider: Callable[..., Any] | None = None,
    ) -> None:
        """Do the steps on another schedule of a program of the same structure."""
        known: dict[Any, Any] = {}
        for number, inst in enumerate(self.insts):
            args = [_mapped(v, known) for k, v in inst.arguments if not k]
            kwargs = {k: _mapped(v, known) for k, v in inst.arguments if k}
            if inst.decision is not None:
                chosen = inst.decision
                if decision_provider is not None:
                    chosen = decision_provider(inst, args, kwargs, chosen)
                kwargs["decision"] = chosen
            result = getattr(sch, inst.kind)(*args, **kwargs)
            made = tuple(result) if isinstance(result, (list, tuple)) else () if result is None else (result,)
            if len(made) != len(inst.outputs):
                raise ScheduleError(
                    f"step {number} ({inst.kind}) gave {len(made)} results here and {len(inst.outputs)} "
                    "when it was recorded: the program has another structure"
                )
            for old, new in zip(inst.outputs, made, strict=True):
                known[_identity(old)] = new

    # -- text ----------------------------------------------------------------------------------
    def as_python(self, unused_names: Any = None) -> list[str]:
        """The steps as lines of Python over a schedule named `sch`."""
        names = _Names()
        lines = []
        for inst in self.insts:
            args = [names.text(v) if not k else f"{k}={names.text(v)}" for k, v in inst.arguments]
            if inst.decision is not None:
                args.append(f"decision={inst.decision!r}")
            call = f"sch.{inst.kind}({', '.join(args)})"
            made = [names.define(out) for out in inst.outputs]
            if not made:
                lines.append(call)
            elif PRIMITIVES[inst.kind].gives_list:
                lines.append(f"{', '.join(made)}{',' if len(made) == 1 else ''} = {call}")
            else:
                lines.append(f"{made[0]} = {call}")
        return lines

    def as_json(self) -> Any:
        """The steps as plain data, for files."""
        names = _Names()
        steps = []
        for inst in self.insts:
            step: dict[str, Any] = {"step": inst.kind}
            positional = [names.data(v) for k, v in inst.arguments if not k]
            named = {k: names.data(v) for k, v in inst.arguments if k}
            if positional:
                step["args"] = positional
            if named:
                step["kwargs"] = named
            if inst.outputs:
                step["outputs"] = [names.define(out) for out in inst.outputs]
            if inst.decision is not None:
                step["decision"] = inst.decision
            steps.append(step)
        return {"format": FORMAT, "steps": steps}

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Schedule, trusted: bool = False) -> None:
        """Do the steps of `as_json` (data or text) on a schedule.

        Unless the trace is `trusted`, it has only the steps that the search writes (`from_files.STEPS`), and the
        parameters of functions stay what they are.
        """
        data = json_obj
        if isinstance(json_obj, (str, bytes)):
            data = read_json(json_obj, "the trace", ScheduleError)
        known_format = isinstance(data, Mapping) and data.get("format") == FORMAT
        if not known_format or not isinstance(data.get("steps"), list):
            raise ScheduleError(f"this is not a trace: the format must be {FORMAT!r}")
        if not trusted:
            check_steps(data["steps"], "apply it with trusted=True")
        known: dict[str, Any] = {}
        with sch.all_or_nothing():
            before, trusting = interface(sch.mod), sch.trusting
            try:
                sch.trusting = trusted
                for number, step in enumerate(data["steps"]):
                    _do_step(sch, number, step, known)
            finally:
                sch.trusting = trusting
            if not trusted and interface(sch.mod) != before:
                raise UntrustedStep(
                    "the trace changes the parameters of a function, so a caller would hand over the wrong memory; "
                    "if you trust whoever made it, apply it with trusted=True"
                )

    def __str__(self) -> str:
        body = "\n".join(f"  {line}" for line in self.as_python()) or "  pass"
        return "# from tilewright import tir\ndef apply_trace(sch: tir.Schedule) -> None:\n" + body

    __repr__ = __str__

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the steps."""
        print(self)

    def __len__(self) -> int:
        return len(self.insts)


def _do_step(sch: Schedule, number: int, step: Any, known: dict[str, Any]) -> None:
    """Do one step as it stands in a file, and remember what it gave."""
    kind = step.get("step") if isinstance(step, Mapping) else None
    if not isinstance(kind, str) or kind not in PRIMITIVES or not hasattr(type(sch), kind):
        raise ScheduleError(f"step {number} of the trace is {kind!r}, which is not a primitive")
    try:
        args = [_from_data(v, known) for v in step.get("args", [])]
        kwargs = {k: _from_data(v, known) for k, v in step.get("kwargs", {}).items()}
        names = [*step.get("outputs", [])]
        if "decision" in step:
            kwargs["decision"] = step["decision"]
        result = getattr(sch, kind)(*args, **kwargs)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, ScheduleError):
            raise
        raise ScheduleError(f"step {number} of the trace ({kind}) has wrong arguments: {error}") from error
    made = tuple(result) if isinstance(result, (list, tuple)) else () if result is None else (result,)
    if len(made) != len(names):
        raise ScheduleError(
            f"step {number} ({kind}) gave {len(made)} results, and the trace has {len(names)}"
        )
    known.update((str(name), value) for name, value in zip(names, made, strict=True))


def _identity(value: Any) -> Any:
    return value.var if isinstance(value, LoopRV) else value.key if isinstance(value, BlockRV) else value


def _mapped(value: Any, known: Mapping[Any, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, known) for v in value)
    if isinstance(value, (LoopRV, BlockRV, Var, IntImm, FloatImm)):
        found = known.get(_identity(value))
        if found is None and isinstance(value, (LoopRV, BlockRV)):
            raise ScheduleError(f"the trace uses `{value.name}`, which none of its steps gave")
        return value if found is None else found
    return value


class _Names:
    """Names for what steps gave: b0, l0, v0."""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}
        self.count = {"b": 0, "l": 0, "v": 0}

    def define(self, value: Any) -> str:
        kind = "l" if isinstance(value, LoopRV) else "b" if isinstance(value, BlockRV) else "v"
        name = f"{kind}{self.count[kind]}"
        self.count[kind] += 1
        self.known[_identity(value)] = name
        return name

    def drawn(self, value: Any) -> bool:
        """Whether a value is one that an earlier step gave, not one that was written down."""
        return isinstance(value, (Var, IntImm, FloatImm)) and value in self.known

    def text(self, value: Any) -> str:
        if isinstance(value, (LoopRV, BlockRV)):
            return self.known.get(_identity(value), value.name)
        if self.drawn(value):
            return self.known[value]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, IterVar):
            return repr(value.thread_tag)
        if isinstance(value, (IntImm, FloatImm)):
            return str(value.value)
        python = getattr(value, "as_python", None)
        return python() if python is not None else repr(value)

    def data(self, value: Any) -> Any:
        if isinstance(value, (LoopRV, BlockRV)):
            return {"ref": self.known.get(_identity(value), value.name)}
        if self.drawn(value):
            return {"ref": self.known[value]}
        if isinstance(value, (list, tuple)):
            return [self.data(v) for v in value]
        if isinstance(value, Mapping):
            return {"map": {k: self.data(v) for k, v in value.items()}}
        if isinstance(value, IterVar):
            return value.thread_tag
        if isinstance(value, (IntImm, FloatImm)):
            return value.value
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        python = getattr(value, "as_python", None)
        if python is not None:
            return {"index_map": python()}
        if isinstance(value, PrimExpr):
            raise ScheduleError(f"`{value}` cannot be written to a file: it is an expression of this program")
        raise ScheduleError(f"{value!r} cannot be written to a file")


def _from_data(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_from_data(v, known) for v in value]
    if isinstance(value, Mapping):
        if "ref" in value:
            if str(value["ref"]) not in known:
                raise ScheduleError(f"the trace uses {value['ref']!r}, which none of its steps gave")
            return known[str(value["ref"])]
        if "map" in value:
            return {k: _from_data(v, known) for k, v in value["map"].items()}
        if "index_map" in value:
            from .index_map import IndexMap

            return IndexMap.from_python(str(value["index_map"]))
        raise ScheduleError(f"the trace holds {dict(value)!r}, which is nothing known")
    return value
