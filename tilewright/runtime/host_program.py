"""Host programs, which launch kernels: their description as data, and the generated Python function.

    {"kernels": {"main_kernel": ["ptr", "ptr", "int32"]},
     "body": [["launch", "main_kernel", ["A", "B", "n"], [["//", ["+", "n", 63], 64], 1, 1], [64, 1, 1], 0]],
     "checks": {"main_kernel": [["index", "take: index {} at position [{}] is out of bounds; …"]]}}

A kernel with `checks` takes two more arguments, which the launch adds: the address of the report block, and the base of
its check numbers.

A step is `launch` (kernel, arguments, grid, block, bytes of dynamic shared memory), `alloc` (name, bytes,
steps), `for` (name, start, count, steps), `if` (condition, steps, steps), `let` (name, value, steps) or
`assert` (condition, text, steps). A value is a number, a name, an operation with its operands, or a `map` of a
tensor for bulk copies (pointer, type, sizes, steps in bytes, box; the innermost dimension first).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from .errors import LoadError, TVMError
from .metadata import FunctionInfo
from .reports import Report, reporting

Launch = Callable[..., None]  # (grid x, y, z, block x, y, z, dynamic shared bytes, arguments)

_INFIX = {"+": "+", "-": "-", "*": "*", "//": "//", "%": "%", "<": "<", "<=": "<=", "==": "==", "!=": "!="}
_WORDS = {"and": "and", "or": "or", "&": "&", "|": "|", "^": "^", ">>": ">>", "<<": "<<"}
_CALLS = ("min", "max")
_STEPS = ("launch", "alloc", "for", "if", "let", "assert")
_GRID_LIMITS = (2**31 - 1, 65535, 65535)


class Launcher(Protocol):
    """The interface of a device that runs kernels."""

    def kernel(self, name: str, kinds: Sequence[str]) -> Launch:
        """The function that launches a kernel whose parameters have these types."""

    def workspace(self, slot: int, nbytes: int) -> int:
        """The address of a workspace, for data between kernels; a slot keeps its memory."""

    def tensor_map(
        self, pointer: int, kind: str, sizes: tuple[int, ...], steps: tuple[int, ...], box: tuple[int, ...]
    ) -> bytes:
        """The tensor map of a bulk copy."""

    max_threads: int


class HostError(TVMError):
    """A launch that the device does not support."""


def host_function(
    info: FunctionInfo,
    program: dict[str, Any],
    launcher: Launcher,
    new_report: Callable[[], Report] | None = None,
) -> Callable[..., int]:
    """The Python function of a host program: it takes the C arguments of `info` and returns 0.

    `new_report` creates the report block of its kernels if no executor launches them.
    """
    own: Callable[[], Report] = cache(new_report) if new_report is not None else _no_report
    kernels, checks = {}, program.get("checks", {})
    for name, kinds in program["kernels"].items():
        if name in checks:
            kernels[name] = reporting(launcher.kernel(name, [*kinds, "ptr", "int32"]), checks[name], own)
        else:
            kernels[name] = launcher.kernel(name, kinds)
    scope: dict[str, Any] = {}
    text = host_source(info, program)
    exec(compile(text, f"<host part of {info.name}>", "exec"), scope)
    checked = _Checks(info.name, launcher.max_threads)
    made: Callable[..., int] = scope["make"](
        kernels=list(kernels.values()),
        workspace=launcher.workspace,
        refuse=checked.refuse,
        fail=checked.fail,
        tensor_map=getattr(launcher, "tensor_map", None),
        most_threads=launcher.max_threads,
    )
    return made


def _no_report() -> Report:
    raise HostError("a kernel with checks was launched without a device to report to")


class _Checks:
    """The refusals of a host program."""

    def __init__(self, name: str, max_threads: int) -> None:
        self.name, self.max_threads = name, max_threads

    def refuse(self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Refuse a launch with dynamic extents that exceed the limits."""
        threads = block[0] * block[1] * block[2]
        if threads > self.max_threads:
            raise HostError(
                f"{self.name}: {kernel} would be launched with {threads} threads in a block, and the device "
                f"allows {self.max_threads}"
            )
        for axis, size, most in zip("xyz", grid, _GRID_LIMITS):
            if size > most:
                raise HostError(
                    f"{self.name}: {kernel} would be launched with {size} blocks along blockIdx.{axis}, and the "
                    f"device allows {most}"
                )

    def fail(self, message: str) -> None:
        raise HostError(f"{self.name}: {message}")


# -- the generated source --------------------------------------------------------------------------
def host_source(info: FunctionInfo, program: dict[str, Any]) -> str:
    """The text that makes the function."""
    writer = _Writer(list(program["kernels"]))
    names = [writer.define(p.name) for p in info.params] + [writer.define(s.name) for s in info.symbols]
    body = writer.steps(program["body"], "        ")
    head = ["def make(*, kernels, workspace, refuse, fail, tensor_map, most_threads):"]
    if writer.kernels:
        listed = ", ".join(f"launch{i}" for i in range(len(writer.kernels)))
        head.append(f"    {listed}{',' if len(writer.kernels) == 1 else ''} = kernels")
    return "\n".join(
        [*head, f"    def run({', '.join(names)}):", *body, "        return 0", "    return run", ""]
    )


class _Writer:
    def __init__(self, kernels: list[str]) -> None:
        self.kernels = kernels
        self.names: dict[str, str] = {}
        self.slots = 0

    def define(self, name: str) -> str:
        made = self.names[name] = f"v{len(self.names)}"
        return made

    def value(self, e: Any) -> str:
        if isinstance(e, (bool, int, float)):
            return repr(e)
        if isinstance(e, str):
            if e not in self.names:
                raise LoadError(f"the host program uses {e!r}, which is not defined")
            return self.names[e]
        op, *parts = e
        if op == "map":
            pointer, kind, *lists = parts
            told = ", ".join(f"({', '.join(map(self.value, held))},)" for held in lists)
            return f"tensor_map({self.value(pointer)}, {kind!r}, {told})"
        texts = [self.value(p) for p in parts]
        if op in _INFIX or op in _WORDS:
            return f"({texts[0]} {_INFIX.get(op) or _WORDS[op]} {texts[1]})"
        if op in _CALLS:
            return f"{op}({', '.join(texts)})"
        if op == "not":
            return f"(not {texts[0]})"
        if op == "select":
            return f"({texts[1]} if {texts[0]} else {texts[2]})"
        if op == "quot":  # rounded towards zero
            return (
                f"(abs({texts[0]}) // abs({texts[1]}) * (1 if ({texts[0]} < 0) == ({texts[1]} < 0) else -1))"
            )
        if op == "rem":
            return f"(abs({texts[0]}) % abs({texts[1]}) * (-1 if {texts[0]} < 0 else 1))"
        raise LoadError(f"the host program has the unknown operation {op!r}")

    def steps(self, steps: Sequence[Any], indent: str) -> list[str]:
        lines: list[str] = []
        for step in steps:
            if step[0] not in _STEPS:
                raise LoadError(f"the host program has the unknown step {step[0]!r}")
            lines += getattr(self, f"_{step[0]}")(indent, *step[1:])
        return lines or [f"{indent}pass"]

    def _launch(self, indent: str, kernel: str, args: Any, grid: Any, block: Any, dynamic: Any) -> list[str]:
        sizes = [self.value(e) for e in (*grid, *block)]
        values = [self.value(a) for a in args]
        listed = ", ".join(values) + ("," if len(values) == 1 else "")
        call = f"launch{self.kernels.index(kernel)}({', '.join(sizes)}, {self.value(dynamic)}, ({listed}))"
        if all(isinstance(e, int) for e in (*grid, *block)):
            return [] if 0 in (*grid, *block) else [f"{indent}{call}"]
        names = [f"e{i}" for i in range(6)]
        tested = " and ".join(n for n, e in zip(names, (*grid, *block)) if not isinstance(e, int))
        beyond = [f"e{i} > {_GRID_LIMITS[i]}" for i, e in enumerate(grid) if not isinstance(e, int)]
        if not all(isinstance(e, int) for e in block):
            beyond.append("e3 * e4 * e5 > most_threads")
        call = f"launch{self.kernels.index(kernel)}({', '.join(names)}, {self.value(dynamic)}, ({listed}))"
        return [
            f"{indent}{', '.join(names)} = {', '.join(sizes)}",
            f"{indent}if {tested}:",
            f"{indent}    if {' or '.join(beyond)}:",
            f"{indent}        refuse({kernel!r}, (e0, e1, e2), (e3, e4, e5))",
            f"{indent}    {call}",
        ]

    def _alloc(self, indent: str, name: str, nbytes: Any, steps: Any) -> list[str]:
        slot, self.slots = self.slots, self.slots + 1
        line = f"{indent}{self.define(name)} = workspace({slot}, {self.value(nbytes)})"
        return [line, *self.steps(steps, indent)]

    def _for(self, indent: str, name: str, low: Any, count: Any, steps: Any) -> list[str]:
        start, size = self.value(low), self.value(count)
        line = f"{indent}for {self.define(name)} in range({start}, {start} + {size}):"
        return [line, *self.steps(steps, indent + "    ")]

    def _if(self, indent: str, condition: Any, then: Any, other: Any) -> list[str]:
        lines = [f"{indent}if {self.value(condition)}:", *self.steps(then, indent + "    ")]
        return [*lines, f"{indent}else:", *self.steps(other, indent + "    ")] if other else lines

    def _let(self, indent: str, name: str, value: Any, steps: Any) -> list[str]:
        text = self.value(value)
        return [f"{indent}{self.define(name)} = {text}", *self.steps(steps, indent)]

    def _assert(self, indent: str, condition: Any, message: str, steps: Any) -> list[str]:
        return [
            f"{indent}if not {self.value(condition)}:",
            f"{indent}    fail({message!r})",
            *self.steps(steps, indent),
        ]
