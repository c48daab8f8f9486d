"""Programs of the virtual machine: instructions over registers, verified (`vm_verify.py`), run as Python text.

A function has registers for values (`r`) and for sizes (`s`). An operand is the number of a register, or of a constant
below zero (-1 is the first). A dimension is an integer or a size, `s0`; for `let` an expression over sizes, as in a
library's metadata.

    ["size", s, r, axis]                 the size of a tensor along an axis
    ["let", s, dim]                      a size that is computed
    ["same", dim, dim, text]             sizes that must be the same; the text says where
    ["least", dim, dim, text]            the first must be as large as the second or larger; the text says why
    ["run", kernel, args, outs, symbols] a kernel: operands, ["o", i] and ["n", dim]; outs are [r, dtype, dims]
    ["shapes", [s, …], name, attrs, xs]  sizes that depend on values, from a shape function
    ["switch", [[pairs, block], …], text] the first block whose pairs of dimensions are equal
    ["view", r, x, dims]                 the same memory under another shape
    ["update", r, x, y]                  an argument of the caller's whose last elements are overwritten by those of y
    ["put", r, x, y, z]                  the same with the rows whose numbers are in z
    ["tuple", r, xs]  ["get", r, x, i]  ["move", r, x]  ["kill", [r, …]]
    ["closure", r, f, [["r", x] | ["s", dim] | ["self"], …]]
    ["call", r, f, captured, xs]  ["apply", r, x, xs]  ["recur", r, xs]      a function, a closure, itself
    ["tail", f, captured, xs]     ["jump", x, xs]      ["again", xs]         the same as the last thing done
    ["if", x, block, block]  ["ret", x]
    ["if", ["is", x, form], …]           whether a value has a form: null is any, [tag, form, …] that of a constructor
                                         and its fields, ["t", form, …] that of a tuple
    ["data", r, tag, xs]  ["field", r, x, i]            a value of a constructor, and its fields
    ["ref", r, x]  ["read", r, x]  ["write", x, x]      a cell, its value, a new value for it
    ["fail", text]                       the end of a program that has no value to return
    ["open", number, xs, [r, …]]         a kernel that is compiled when its sizes are known: not in saved programs
    ["missing", number, [r, …]]          kernels that are not compiled yet: neither
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .dtypes import ELEMENTS
from .metadata import Dim, FunctionInfo, dim_text
from .model import TensorSpec
from .profiling import Roof, roof_data

FORMAT = 1

Interface = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]  # tensors that go in, and that come out
ValueType = Any  # ["tensor", dtype, [int | None, …]], ["tuple", [type, …]], ["function"] or ["value"]


@dataclass(slots=True)
class FunctionCode:
    """A function: its parameters, its captured variables, and its instructions."""

    name: str
    params: list[tuple[str, int, ValueType]]  # name, register, type
    captures: list[tuple[str, int]]  # "r" or "s", and the register
    body: list[Any]

    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "params": [list(p) for p in self.params],
            "captures": [list(c) for c in self.captures],
            "body": self.body,
        }


@dataclass(slots=True)
class Tests:
    """Checks as lines of Python: at the start of a function, by its number, and before an instruction, by its id."""

    entry: dict[int, list[str]]
    before: dict[int, list[str]]


@dataclass(slots=True)
class Program:
    """Functions over kernels (by symbol) and constants (type and shape)."""

    functions: list[FunctionCode]
    kernels: list[str]
    constants: list[tuple[str, tuple[int, ...]]]
    interface: Interface = ((), ())  # of `main`
    device: str = "cpu"  # the kind of device that it runs on
    # For profiles: the source nodes of calls by `site_of`, the work of each kernel, the peak of the machine.
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    work: Sequence[tuple[Dim, Dim] | None] = ()
    roof: Roof | None = None
    tests: Tests | None = None  # conditions that were not proved; None before the program is verified

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "device": self.device,
            "interface": [[[t.name, t.dtype, list(t.shape)] for t in side] for side in self.interface],
            "functions": [f.data() for f in self.functions],
            "kernels": self.kernels,
            "constants": [[d, list(s)] for d, s in self.constants],
            "nodes": {site: list(nodes) for site, nodes in self.nodes.items()},
            "work": [None if each is None else list(each) for each in self.work],
            "roof": None if self.roof is None else roof_data(self.roof),
        }

    def named(self, name: str) -> FunctionCode:
        for f in self.functions:
            if f.name == name:
                return f
        known = ", ".join(f.name for f in self.functions if not f.captures and f.name)
        raise ValueError(f"the program has no function {name!r}; it has: {known}")


def site_of(function: int, outs: Sequence[Any]) -> str:
    """The name of a call of a kernel: the function that it is in, and its first result."""
    return f"{function}:{outs[0][0]}" if outs else f"{function}:"


# ---------------------------------------------------------------------------- as Python
def program_source(
    program: Program,
    kernels: dict[str, FunctionInfo],
    timed: bool = False,
    writer: type[FunctionText] | None = None,
) -> str:
    """The functions as Python text.

    A tensor is (address, shape, dtype, owner of the memory), a tuple a list, `k3` the C function of kernel 3, `c5` the
    fifth constant, `take` what gives memory.

        def f0(r0):
            s0 = r0[1][0]
            r1 = take(s0 * 16)
            r1 = (r1.address, (s0, 4,), 'float32', r1)
            e = k0(r0[0], r1[0], s0)
            if e: fail(0, e)
            return r1

    With `timed`, `took` is called after every kernel.
    """
    text = writer or FunctionText
    return "\n".join(text(program, i, kernels, timed).function() for i in range(len(program.functions)))


class FunctionText:
    """A function as Python text."""

    def __init__(self, program: Program, index: int, kernels: dict[str, FunctionInfo], timed: bool) -> None:
        self.program, self.code, self.kernels = program, program.functions[index], kernels
        self.index, self.timed = index, timed
        self.tests = program.tests or Tests({}, {})
        self.lines: list[str] = []

    def function(self) -> str:
        names = [f"{k}{r}" for k, r in self.code.captures] + [f"r{r}" for _, r, _ in self.code.params]
        head = f"def f{self.index}({', '.join(names)}):"
        for line in self.tests.entry.get(self.index, ()):
            self.put(1, line)
        loops = _has_again(self.code.body)
        if loops:
            self.lines.append(" while True:")
        self.block(self.code.body, 2 if loops else 1)
        return "\n".join([head, *self.lines, ""])

    def block(self, body: Sequence[Any], depth: int) -> None:
        if not body:
            self.put(depth, "pass")
        for instr in body:
            for line in self.tests.before.get(id(instr), ()):
                self.put(depth, line)
            line_of = _LINES.get(instr[0])
            if line_of is not None:
                self.put(depth, line_of(*instr[1:]))
            else:
                getattr(self, f"on_{instr[0]}")(depth, *instr[1:])

    def put(self, depth: int, line: str) -> None:
        self.lines.append(" " * depth + line)

    def shape(self, dims: Sequence[Any]) -> str:
        return f"({''.join(f'{size_text(d)}, ' for d in dims)})"

    def bytes(self, dtype: str, dims: Sequence[Any]) -> str:
        known = ELEMENTS[dtype].itemsize
        names = []
        for d in dims:
            if isinstance(d, int):
                known *= d
            else:
                names.append(size_text(d))
        return " * ".join([*names, str(known)])

    def on_let(self, depth: int, s: int, d: Any) -> None:
        self.put(depth, f"s{s} = {dim_text(_dims(d))}")
        if _multiplies(d):
            self.put(depth, f"if not 0 <= s{s} < {1 << 63}: negative(s{s})")
        elif "-" in str(d):
            self.put(depth, f"if s{s} < 0: negative(s{s})")

    def on_same(self, depth: int, a: Any, b: Any, text: str) -> None:
        left, right = size_text(a), size_text(b)
        self.put(depth, f"if {left} != {right}: differ({left}, {right}, {text!r})")

    def on_least(self, depth: int, a: Any, b: Any, text: str) -> None:
        left, right = size_text(a), size_text(b)
        self.put(depth, f"if {left} < {right}: small({left}, {right}, {text!r})")

    def on_run(self, depth: int, kernel: int, args: Any, outs: Any, symbols: Any) -> None:
        for r, dtype, dims in outs:
            self.put(depth, f"r{r} = take({self.bytes(dtype, dims)})")
            self.put(depth, f"r{r} = (r{r}.address, {self.shape(dims)}, {dtype!r}, r{r})")
        given = []
        for a in args:
            if not isinstance(a, list):
                given.append(f"{operand_text(a)}[0]")
            elif a[0] == "o":
                given.append(f"r{outs[a[1]][0]}[0]")
            else:
                given.append(size_text(a[1]))
        given += [size_text(s) for s in symbols]
        if self.timed:
            self.put(depth, "t = clock()")
        self.put(depth, f"e = k{kernel}({', '.join(given)})")
        if self.timed:
            self.took(depth, kernel, args, outs, symbols)
        self.put(depth, f"if e: fail({kernel}, e)")

    def took(self, depth: int, kernel: int, args: Any, outs: Any, symbols: Any) -> None:
        """Record the time of a kernel."""
        inputs = "".join(f"{operand_text(a)}, " for a in args if not isinstance(a, list))
        results = "".join(f"r{r}, " for r, _, _ in outs)
        sizes = "".join(f"{size_text(s)}, " for s in symbols)
        site = site_of(self.index, outs)
        self.put(depth, f"took({kernel}, {site!r}, clock() - t, ({inputs}), ({results}), ({sizes}))")

    def on_shapes(self, depth: int, sizes: Any, name: str, attrs: Any, xs: Any) -> None:
        made = "".join(f"s{s}, " for s in sizes)
        given = "".join(f"{operand_text(x)}, " for x in xs)
        self.put(depth, f"({made}) = shapes({name!r}, {attrs!r}, ({given}), {len(sizes)})")

    def on_switch(self, depth: int, cases: Any, text: str) -> None:
        shown: dict[str, None] = {}
        for i, (pairs, body) in enumerate(cases):
            tests = [f"{size_text(a)} == {size_text(b)}" for a, b in pairs]
            shown.update((size_text(d), None) for pair in pairs for d in pair if not isinstance(d, int))
            self.put(depth, f"{'elif' if i else 'if'} {' and '.join(tests) or 'True'}:")
            self.block(body, depth + 1)
        self.put(depth, "else:")
        self.put(depth + 1, f"no_case({text!r}, ({''.join(f'{d}, ' for d in shown)}))")

    def on_view(self, depth: int, r: int, x: int, dims: Any) -> None:
        name = operand_text(x)
        self.put(depth, f"r{r} = ({name}[0], {self.shape(dims)}, {name}[2], {name}[3])")

    def on_update(self, depth: int, r: int, x: int, y: int) -> None:
        self.put(depth, f"update({operand_text(x)}, {operand_text(y)})")
        self.put(depth, f"r{r} = {operand_text(x)}")

    def on_put(self, depth: int, r: int, x: int, y: int, z: int) -> None:
        self.put(depth, f"put({operand_text(x)}, {operand_text(y)}, {operand_text(z)})")
        self.put(depth, f"r{r} = {operand_text(x)}")

    def on_kill(self, depth: int, registers: Any) -> None:
        if registers:
            self.put(depth, " = ".join([*(f"r{r}" for r in registers), "None"]))

    def captured(self, captured: Any, own: str = "") -> str:
        made = []
        for c in captured:
            made.append(own if c[0] == "self" else operand_text(c[1]) if c[0] == "r" else size_text(c[1]))
        return "".join(f"{m}, " for m in made)

    def on_closure(self, depth: int, r: int, f: int, captured: Any) -> None:
        self.put(depth, f"r{r} = Closure(f{f}, {len(self.program.functions[f].params)})")
        self.put(depth, f"r{r}.captured = ({self.captured(captured, f'r{r}')})")

    def own(self) -> str:
        return "".join(f"{k}{r}, " for k, r in self.code.captures)

    def on_call(self, depth: int, r: int, f: int, captured: Any, xs: Any) -> None:
        self.put(depth, f"r{r} = called(f{f}({self.captured(captured)}{operands_text(xs)}))")

    def on_apply(self, depth: int, r: int, x: int, xs: Any) -> None:
        name = operand_text(x)
        self.put(depth, f"r{r} = called({name}.function(*{name}.captured, {operands_text(xs)}))")

    def on_recur(self, depth: int, r: int, xs: Any) -> None:
        self.put(depth, f"r{r} = called(f{self.index}({self.own()}{operands_text(xs)}))")

    def on_tail(self, depth: int, f: int, captured: Any, xs: Any) -> None:
        self.put(
            depth,
            f"return Tail(f{f}, ({self.captured(captured)}{''.join(f'{operand_text(x)}, ' for x in xs)}))",
        )

    def on_jump(self, depth: int, x: int, xs: Any) -> None:
        name = operand_text(x)
        self.put(depth, f"return Tail({name}.function, (*{name}.captured, {operands_text(xs)}))")

    def on_again(self, depth: int, xs: Any) -> None:
        targets = [f"r{r}" for _, r, _ in self.code.params]
        pairs = [(t, operand_text(x)) for t, x in zip(targets, xs, strict=True) if t != operand_text(x)]
        if pairs:
            self.put(depth, f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}")
        self.put(depth, "continue")

    def on_if(self, depth: int, x: Any, yes: Any, no: Any) -> None:
        if isinstance(x, (list, tuple)):
            self.put(depth, f"if {' and '.join(_form_tests(operand_text(x[1]), x[2])) or 'True'}:")
        else:
            self.put(depth, f"if {self.truth(operand_text(x))}:")
        self.block(yes, depth + 1)
        if block_ends(yes):  # a chain of branches stays flat: Python takes a hundred levels
            self.block(no, depth)
        elif no:
            self.put(depth, "else:")
            self.block(no, depth + 1)

    def truth(self, x: str) -> str:
        """The value of a condition."""
        return f"truth({x}[0]).value"

    def on_open(self, depth: int, number: int, xs: Any, outs: Any) -> None:
        made = "".join(f"r{r}, " for r in outs)
        self.put(depth, f"({made}) = open_kernel({number}, ({''.join(f'{operand_text(x)}, ' for x in xs)}))")


def _dims(d: Any) -> Dim:
    return (d[0], _dims(d[1]), _dims(d[2])) if isinstance(d, (list, tuple)) else d


def _form_tests(name: str, form: Any) -> list[str]:
    """The tests of whether a value has a form, each safe where those before it hold."""
    if form is None:
        return []
    inner = form[1:]
    if form[0] == "t":
        out = [f"{name}.__class__ is list", f"len({name}) == {len(inner)}"]
    else:
        out = [
            f"{name}.__class__ is Data",
            f"{name}.tag == {int(form[0])}",
            f"len({name}.fields) == {len(inner)}",
        ]
        name = f"{name}.fields"
    return out + [test for i, f in enumerate(inner) for test in _form_tests(f"{name}[{i}]", f)]


def operand_text(x: int) -> str:
    """An operand as Python text."""
    return f"r{x}" if x >= 0 else f"c{-x - 1}"


def operands_text(xs: Sequence[int]) -> str:
    """Operands as Python text, with commas between them."""
    return ", ".join(map(operand_text, xs))


def size_text(d: Any) -> str:
    """A dimension as Python text."""
    return dim_text(_dims(d), str, True)


# Instructions that are a single line of Python: the line of their fields.
_LINES: Final[dict[str, Callable[..., str]]] = {
    "size": lambda s, x, axis: f"s{s} = {operand_text(x)}[1][{axis}]",
    "tuple": lambda r, xs: f"r{r} = [{operands_text(xs)}]",
    "get": lambda r, x, i: f"r{r} = {operand_text(x)}[{i}]",
    "move": lambda r, x: f"r{r} = {operand_text(x)}",
    "data": lambda r, tag, xs: f"r{r} = Data({tag}, [{operands_text(xs)}])",
    "field": lambda r, x, i: f"r{r} = {operand_text(x)}.fields[{i}]",
    "ref": lambda r, x: f"r{r} = Cell({operand_text(x)})",
    "read": lambda r, x: f"r{r} = {operand_text(x)}.value",
    "write": lambda x, value: f"{operand_text(x)}.value = {operand_text(value)}",
    "fail": lambda text: f"no_clause({text!r})",
    "ret": lambda x: f"return {operand_text(x)}",
    "missing": lambda number, outs: f"missing({number})",
}


def _multiplies(d: Any) -> bool:
    """Whether sizes are multiplied with each other: the product may be too large."""
    if not isinstance(d, (list, tuple)):
        return False
    both = d[0] == "*" and not isinstance(d[1], int) and not isinstance(d[2], int)
    return both or _multiplies(d[1]) or _multiplies(d[2])


def block_ends(body: Sequence[Any]) -> bool:
    """Whether a block never falls through its end."""
    last = body[-1] if body else [""]
    if last[0] == "if":
        return block_ends(last[2]) and block_ends(last[3])
    return last[0] in ("ret", "again", "tail", "jump", "fail")


def _has_again(body: Sequence[Any]) -> bool:
    return any(
        i[0] == "again"
        or (i[0] == "if" and (_has_again(i[2]) or _has_again(i[3])))
        or (i[0] == "switch" and any(_has_again(b) for _, b in i[1]))
        for i in body
    )


def instructions(body: Sequence[Any], visit: Callable[[Any], None]) -> None:
    """Every instruction of a block and of the blocks in it."""
    for i in body:
        visit(i)
        for inner in (i[2], i[3]) if i[0] == "if" else [b for _, b in i[1]] if i[0] == "switch" else ():
            instructions(inner, visit)
