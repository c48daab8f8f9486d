"""The common parts of all schedule primitives: recording, rollback, and refusals with explanations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar, overload

from ...ir.deep import deeply
from ...ir.errors import ScheduleError
from ...ir.expr import FloatImm, IntImm, Var
from ...ir.span import Span, user_span
from ...ir.stmt import Stmt
from .verify import check_step

if TYPE_CHECKING:
    from .schedule import Schedule

_F = TypeVar("_F", bound=Callable[..., Any])
# From the schedule, the block of a step and an argument to the argument in the form that a trace records.
Form = Callable[["Schedule", Any, Any], Any]


class Primitive(NamedTuple):
    """A function that is a step of schedules, and whether it gives a list."""

    function: Callable[..., Any]
    gives_list: bool


PRIMITIVES: Final[dict[str, Primitive]] = {}  # by name; `primitive` fills it


class LoopRV:
    """A loop of a schedule, known by its variable."""

    __slots__ = ("var",)

    def __init__(self, var: Var) -> None:
        self.var = var

    @property
    def name(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        return f"LoopRV({self.var.name})"


class Elsewhere(LoopRV):
    """A place to compute a block at that is not a loop: where it stands (-1), or inlined into its readers (-2)."""

    __slots__ = ("place",)

    def __init__(self, var: Var, place: int) -> None:
        super().__init__(var)
        self.place = place

    def __int__(self) -> int:
        return self.place


ExprRV = IntImm | FloatImm  # a number that a step drew; the trace knows it by its identity


class BlockRV:
    """A block of a schedule, known through rewrites by its key."""

    __slots__ = ("key", "name")

    def __init__(self, key: object, name: str) -> None:
        self.key, self.name = key, name

    def __repr__(self) -> str:
        return f"BlockRV({self.name})"


class Refusal(ScheduleError):
    """A primitive that would change the result. The text is made only when somebody reads it."""

    def __init__(self, reason: str, at: Stmt | None = None, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.at, self.hint = reason, at, hint
        self.call = ""
        self.place: Span | None = None
        self.program: Any = None

    def __str__(self) -> str:
        lines = [f"{self.call}: {self.reason}" if self.call else self.reason]
        if self.place is not None:
            lines.append(f"  at {self.place}")
        if self.program is not None:
            lines += ["", *("  | " + line for line in nest_text(self.program, self.at).splitlines())]
        if self.hint:
            lines += ["", f"  hint: {self.hint}"]
        return "\n".join(lines)


def nest_text(program: Any, at: Stmt | None) -> str:
    """The program as a script, the line of the statement in question marked."""
    from ...ir.printer import script_lines

    lines, line = script_lines(program, at)
    if line is not None:
        lines[line] += "    # <-- here"
    start = next((i for i, text in enumerate(lines) if text.startswith("def ")), 0)
    return "\n".join(lines[start:])


def refuse(reason: str, *, at: Stmt | None = None, hint: str = "") -> NoReturn:
    """Refuse the step that is under way."""
    raise Refusal(reason, at, hint)


def _shown(value: Any) -> str:
    if isinstance(value, (LoopRV, BlockRV)):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, IntImm):
        return str(value.value)
    return repr(value)


def _call_text(name: str, bound: inspect.BoundArguments, signature: inspect.Signature) -> str:
    parts = []
    for i, (key, value) in enumerate(list(bound.arguments.items())[1:]):
        kind = signature.parameters[key]
        if kind.default is not inspect.Parameter.empty and value is kind.default:
            continue
        if kind.kind is inspect.Parameter.VAR_POSITIONAL:
            parts += [_shown(v) for v in value]
        elif i == 0:
            parts.append(_shown(value))
        else:
            parts.append(f"{key}={_shown(value)}")
    return f"{name}({', '.join(parts)})"


def _found(sch: Schedule, block: Any) -> Any:
    """Blocks given by their names, as handles."""
    if isinstance(block, str):
        return sch.get_block(block)
    return [_found(sch, b) for b in block] if isinstance(block, (list, tuple)) else block


@overload
def primitive(function: _F, /) -> _F: ...


@overload
def primitive(**forms: Form) -> Callable[[_F], _F]: ...


def primitive(function: Any = None, /, **forms: Form) -> Any:
    """Make a function over a schedule a primitive: recorded in the trace, undone if it refuses.

    Where it takes a block, the name of a block will do, which is looked up by a step of its own.
    The annotation of its result says whether it gives a list, which a printed trace takes apart.
    `forms` are by the names of parameters: each brings an argument into the form that a trace records.
    """
    if function is None:
        return functools.partial(_primitive, forms=forms)
    return _primitive(function, forms)


def _primitive(function: _F, forms: Mapping[str, Form]) -> _F:
    signature = inspect.signature(function)
    blocks = {name for name, p in signature.parameters.items() if "BlockRV" in str(p.annotation)}
    places = {i - 1 for i, name in enumerate(signature.parameters) if name in blocks}
    gives_list = str(signature.return_annotation).startswith("list[")
    PRIMITIVES[function.__name__] = Primitive(function, gives_list)

    @deeply
    @functools.wraps(function)
    def run(sch: Schedule, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_found(sch, a) if i in places else a for i, a in enumerate(args))
        kwargs = {k: _found(sch, v) if k in blocks else v for k, v in kwargs.items()}
        if forms:
            given = signature.bind(sch, *args, **kwargs)
            for name in forms.keys() & given.arguments.keys():
                given.arguments[name] = forms[name](sch, given.arguments["block"], given.arguments[name])
            args, kwargs = given.args[1:], given.kwargs
        if sch.busy:  # a step of a larger step
            return function(sch, *args, **kwargs)
        before, sch.busy = sch.state.mod, True
        try:
            result = function(sch, *args, **kwargs)
        except Refusal as refusal:
            sch.state.mod = before
            if not refusal.call:
                bound = signature.bind(sch, *args, **kwargs)
                refusal.call = _call_text(function.__name__, bound, signature)
                refusal.place, refusal.program = user_span(), sch.state.func
            raise
        except BaseException:
            sch.state.mod = before
            raise
        finally:
            sch.busy = False
        bound = signature.bind(sch, *args, **kwargs)
        decision, sch.decision = sch.decision, None
        sch.trace.record(function.__name__, bound, result, user_span(), sch.state.mod, decision)
        if sch.verify_each:
            check_step(sch)
        return result

    return run  # type: ignore[return-value]
