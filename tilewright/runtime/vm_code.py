"""Programs of the virtual machine: instructions over registers, checked when they are read, run as Python text.

A function has registers for values (`r`) and for sizes (`s`). An operand is the number of a register, or of a constant
below zero (-1 is the first). A dimension is an integer or an expression over sizes, as in a library's metadata.

    ["size", s, r, axis]                 the size of a tensor along an axis
    ["let", s, dim]                      a size that is computed
    ["same", dim, dim, text]             sizes that must be the same; the text says where
    ["least", dim, dim, text]            the first must be as large as the second or larger; the text says why
    ["run", kernel, args, outs, symbols] a kernel: operands, ["o", i] and ["n", dim]; outs are [r, dtype, dims]
    ["shapes", [s, …], name, attrs, xs]  sizes that depend on values, from a shape function
    ["switch", [[pairs, block], …], text] the first block whose pairs of dimensions are equal
    ["view", r, x, dims]                 the same memory under another shape
    ["tuple", r, xs]  ["get", r, x, i]  ["move", r, x]  ["kill", [r, …]]
    ["closure", r, f, [["r", x] | ["s", dim] | ["self"], …]]
    ["call", r, f, captured, xs]  ["apply", r, x, xs]  ["recur", r, xs]      a function, a closure, itself
    ["tail", f, captured, xs]     ["jump", x, xs]      ["again", xs]         the same as the last thing done
    ["if", x, block, block]  ["ret", x]
    ["open", number, xs, [r, …]]         a kernel that is compiled when its sizes are known: not in saved programs
    ["missing", number, [r, …]]          kernels that are not compiled yet: neither
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .dtypes import ELEMENTS
from .errors import LoadError
from .metadata import Dim, FunctionInfo, dim_text, names_in
from .metadata import _dim as parse_dim
from .shape_functions import SHAPE_FUNCTIONS

__all__ = ["FunctionCode", "Program", "ValueType", "parse_program", "program_source"]

FORMAT = 1

ValueType = Any  # ["tensor", dtype, [int | None, …]], ["tuple", [type, …]] or ["function"]


@dataclass(slots=True)
class FunctionCode:
    """A function: its parameters, what it takes from around it, and its instructions."""

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
class Program:
    """Functions over kernels (by symbol) and constants (type and shape)."""

    functions: list[FunctionCode]
    kernels: list[str]
    constants: list[tuple[str, tuple[int, ...]]]

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "functions": [f.data() for f in self.functions],
            "kernels": self.kernels,
            "constants": [[d, list(s)] for d, s in self.constants],
        }

    def named(self, name: str) -> FunctionCode:
        for f in self.functions:
            if f.name == name:
                return f
        known = ", ".join(f.name for f in self.functions if not f.captures and f.name)
        raise ValueError(f"the program has no function {name!r}; it has: {known}")


def parse_program(data: Any, where: str, kernels: dict[str, FunctionInfo]) -> Program:
    """Check a program that was read from a file: every register is set before it is used, every number fits."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise LoadError(
            f"{where}: the program has format {found!r}, this runtime reads {FORMAT}; compile it again"
        )
    try:
        program = Program(
            [
                FunctionCode(
                    _text(f["name"]),
                    [(_text(n), _number(r), _type(t)) for n, r, t in f["params"]],
                    [(_one_of(k, ("r", "s")), _number(r)) for k, r in f["captures"]],
                    _list(f["body"]),
                )
                for f in data["functions"]
            ],
            [_one_of(k, kernels) for k in data["kernels"]],
            [(_one_of(d, ELEMENTS), tuple(map(_number, s))) for d, s in data["constants"]],
        )
        for f in program.functions:
            _Check(program, f, kernels).run()
    except (KeyError, TypeError, ValueError, IndexError, LoadError) as error:
        raise LoadError(f"{where}: the program is damaged: {error}") from error
    return program


def _number(value: Any) -> int:
    if value.__class__ is not int or value < 0:
        raise ValueError(f"{value!r} is no number of a register or a size")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no list")
    return value


def _one_of(value: Any, known: Any) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{value!r} is unknown")
    return value


def _type(value: Any) -> ValueType:
    kind = value[0]
    if kind == "tensor":
        dims = [None if d is None else _number(d) for d in _list(value[2])]
        return ["tensor", _one_of(value[1], ELEMENTS), dims]
    if kind == "tuple":
        return ["tuple", [_type(f) for f in value[1]]]
    return [_one_of(kind, ("function",))]


class _Check:
    """One walk over a function's instructions, with the registers that are set on every way to each."""

    def __init__(self, program: Program, code: FunctionCode, kernels: dict[str, FunctionInfo]) -> None:
        self.program, self.code, self.kernels = program, code, kernels

    def run(self) -> None:
        known = {("r", r) for _, r, _ in self.code.params} | set(self.code.captures)
        if self.block(self.code.body, known) is not None:
            raise ValueError(f"function {self.code.name!r} ends without a result")

    def block(self, body: list[Any], known: set[tuple[str, int]]) -> set[tuple[str, int]] | None:
        """The registers that are set after a block; None where it does not come to its end."""
        for i, instr in enumerate(_list(body)):
            work = getattr(self, f"on_{instr[0]}", None) if isinstance(instr[0], str) else None
            if work is None:
                raise ValueError(f"there is no instruction {instr[0]!r}")
            if work(known, *instr[1:]) is False:
                if i + 1 != len(body):
                    raise ValueError(f"instructions follow {instr[0]!r}, which is the last")
                return None
        return known

    def use(self, known: set[tuple[str, int]], *operands: Any) -> None:
        for x in operands:
            if x.__class__ is not int:
                raise ValueError(f"{x!r} is no operand")
            if x >= 0 and ("r", x) not in known:
                raise ValueError(f"register {x} is read and has no value")
            if x < 0 and -x > len(self.program.constants):
                raise ValueError(f"there is no constant {-x - 1}")

    def dim(self, known: set[tuple[str, int]], *dims: Any) -> None:
        for d in dims:
            for name in names_in(parse_dim(d, "a dimension")):
                if not name[:1] == "s" or not name[1:].isdigit() or ("s", int(name[1:])) not in known:
                    raise ValueError(f"size {name!r} is read and has no value")

    def callee(self, known: set[tuple[str, int]], f: Any, captured: Any, xs: Any) -> None:
        code = self.program.functions[_number(f)]
        if len(code.captures) != len(captured) or len(code.params) != len(xs):
            raise ValueError(f"function {f} is called with another number of arguments")
        self.captured(known, captured)
        self.use(known, *xs)

    def captured(self, known: set[tuple[str, int]], captured: Any) -> None:
        for c in captured:
            if c[0] == "r":
                self.use(known, c[1])
            elif c[0] == "s":
                self.dim(known, c[1])
            elif c[0] != "self":
                raise ValueError(f"{c!r} is nothing to capture")

    def on_size(self, known: Any, s: Any, x: Any, axis: Any) -> None:
        self.use(known, x)
        _number(axis)
        known.add(("s", _number(s)))

    def on_let(self, known: Any, s: Any, dim: Any) -> None:
        self.dim(known, dim)
        known.add(("s", _number(s)))

    def on_same(self, known: Any, a: Any, b: Any, text: Any) -> None:
        self.dim(known, a, b)
        _text(text)

    on_least = on_same

    def on_run(self, known: Any, kernel: Any, args: Any, outs: Any, symbols: Any) -> None:
        info = self.kernels[self.program.kernels[_number(kernel)]]
        if len(args) != len(info.params) or len(symbols) != len(info.symbols):
            raise ValueError(f"kernel {info.name} is called with another number of arguments")
        for a in args:
            if isinstance(a, list) and a[0] == "o":
                outs[_number(a[1])]
            elif isinstance(a, list) and a[0] == "n":
                self.dim(known, a[1])
            else:
                self.use(known, a)
        self.dim(known, *symbols)
        for r, dtype, dims in outs:
            _one_of(dtype, ELEMENTS)
            self.dim(known, *dims)
            known.add(("r", _number(r)))

    def on_shapes(self, known: Any, sizes: Any, name: Any, attrs: Any, xs: Any) -> None:
        _one_of(name, SHAPE_FUNCTIONS)
        if not isinstance(attrs, dict):
            raise ValueError(f"the attributes of {name} are {attrs!r}")
        self.use(known, *xs)
        known.update(("s", _number(s)) for s in sizes)

    def on_switch(self, known: Any, cases: Any, text: Any) -> None:
        _text(text)
        after: set[tuple[str, int]] | None = None
        for pairs, body in _list(cases):
            for a, b in pairs:
                self.dim(known, a, b)
            left = self.block(body, set(known))
            if left is not None:
                after = left if after is None else after & left
        known.update(after or ())

    def on_view(self, known: Any, r: Any, x: Any, dims: Any) -> None:
        self.use(known, x)
        self.dim(known, *dims)
        known.add(("r", _number(r)))

    def on_tuple(self, known: Any, r: Any, xs: Any) -> None:
        self.use(known, *_list(xs))
        known.add(("r", _number(r)))

    def on_get(self, known: Any, r: Any, x: Any, i: Any) -> None:
        self.use(known, x)
        _number(i)
        known.add(("r", _number(r)))

    def on_move(self, known: Any, r: Any, x: Any) -> None:
        self.use(known, x)
        known.add(("r", _number(r)))

    def on_kill(self, known: Any, registers: Any) -> None:
        known.difference_update(("r", _number(r)) for r in registers)

    def on_closure(self, known: Any, r: Any, f: Any, captured: Any) -> None:
        if len(self.program.functions[_number(f)].captures) != len(captured):
            raise ValueError(f"function {f} captures another number of values")
        self.captured(known, captured)
        known.add(("r", _number(r)))

    def on_call(self, known: Any, r: Any, f: Any, captured: Any, xs: Any) -> None:
        self.callee(known, f, captured, xs)
        known.add(("r", _number(r)))

    def on_apply(self, known: Any, r: Any, x: Any, xs: Any) -> None:
        self.use(known, x, *xs)
        known.add(("r", _number(r)))

    def on_recur(self, known: Any, r: Any, xs: Any) -> None:
        self.on_again(known, xs)
        known.add(("r", _number(r)))

    def on_tail(self, known: Any, f: Any, captured: Any, xs: Any) -> bool:
        self.callee(known, f, captured, xs)
        return False

    def on_jump(self, known: Any, x: Any, xs: Any) -> bool:
        self.use(known, x, *xs)
        return False

    def on_again(self, known: Any, xs: Any) -> bool:
        if len(xs) != len(self.code.params):
            raise ValueError("a function calls itself with another number of arguments")
        self.use(known, *xs)
        return False

    def on_if(self, known: Any, x: Any, yes: Any, no: Any) -> bool | None:
        self.use(known, x)
        ways = [self.block(side, set(known)) for side in (yes, no)]
        left = [w for w in ways if w is not None]
        if not left:
            return False
        known.clear()
        known.update(set.intersection(*left))
        return None

    def on_ret(self, known: Any, x: Any) -> bool:
        self.use(known, x)
        return False


# ---------------------------------------------------------------------------- as Python
def program_source(program: Program, kernels: dict[str, FunctionInfo], timed: bool = False) -> str:
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

    With `timed`, `took` is told of every call of a kernel.
    """
    return "\n".join(_Text(program, i, kernels, timed).function() for i in range(len(program.functions)))


class _Text:
    def __init__(self, program: Program, index: int, kernels: dict[str, FunctionInfo], timed: bool) -> None:
        self.program, self.code, self.kernels = program, program.functions[index], kernels
        self.index, self.timed = index, timed
        self.lines: list[str] = []

    def function(self) -> str:
        names = [f"{k}{r}" for k, r in self.code.captures] + [f"r{r}" for _, r, _ in self.code.params]
        head = f"def f{self.index}({', '.join(names)}):"
        loops = _has_again(self.code.body)
        if loops:
            self.lines.append(" while True:")
        self.block(self.code.body, 2 if loops else 1)
        return "\n".join([head, *self.lines, ""])

    def block(self, body: Sequence[Any], depth: int) -> None:
        if not body:
            self.put(depth, "pass")
        for instr in body:
            getattr(self, f"on_{instr[0]}")(depth, *instr[1:])

    def put(self, depth: int, line: str) -> None:
        self.lines.append(" " * depth + line)

    @staticmethod
    def operand(x: int) -> str:
        return f"r{x}" if x >= 0 else f"c{-x - 1}"

    def all(self, xs: Sequence[int]) -> str:
        return ", ".join(map(self.operand, xs))

    @staticmethod
    def dim(d: Any) -> str:
        return dim_text(_dims(d), str, True)

    def shape(self, dims: Sequence[Any]) -> str:
        return f"({''.join(f'{self.dim(d)}, ' for d in dims)})"

    def bytes(self, dtype: str, dims: Sequence[Any]) -> str:
        known = ELEMENTS[dtype].itemsize
        names = []
        for d in dims:
            if isinstance(d, int):
                known *= d
            else:
                names.append(self.dim(d))
        return " * ".join([*names, str(known)])

    def on_size(self, depth: int, s: int, x: int, axis: int) -> None:
        self.put(depth, f"s{s} = {self.operand(x)}[1][{axis}]")

    def on_let(self, depth: int, s: int, d: Any) -> None:
        self.put(depth, f"s{s} = {dim_text(_dims(d))}")
        if "-" in str(d):
            self.put(depth, f"if s{s} < 0: negative(s{s})")

    def on_same(self, depth: int, a: Any, b: Any, text: str) -> None:
        left, right = self.dim(a), self.dim(b)
        self.put(depth, f"if {left} != {right}: differ({left}, {right}, {text!r})")

    def on_least(self, depth: int, a: Any, b: Any, text: str) -> None:
        left, right = self.dim(a), self.dim(b)
        self.put(depth, f"if {left} < {right}: small({left}, {right}, {text!r})")

    def on_run(self, depth: int, kernel: int, args: Any, outs: Any, symbols: Any) -> None:
        for r, dtype, dims in outs:
            self.put(depth, f"r{r} = take({self.bytes(dtype, dims)})")
            self.put(depth, f"r{r} = (r{r}.address, {self.shape(dims)}, {dtype!r}, r{r})")
        given = []
        for a in args:
            if not isinstance(a, list):
                given.append(f"{self.operand(a)}[0]")
            elif a[0] == "o":
                given.append(f"r{outs[a[1]][0]}[0]")
            else:
                given.append(self.dim(a[1]))
        given += [self.dim(s) for s in symbols]
        if self.timed:
            self.put(depth, "t = clock()")
        self.put(depth, f"e = k{kernel}({', '.join(given)})")
        if self.timed:
            results = "".join(f"r{r}, " for r, _, _ in outs)
            self.put(depth, f"took({kernel}, clock() - t, ({results}))")
        self.put(depth, f"if e: fail({kernel}, e)")

    def on_shapes(self, depth: int, sizes: Any, name: str, attrs: Any, xs: Any) -> None:
        made = "".join(f"s{s}, " for s in sizes)
        self.put(
            depth, f"({made}) = shapes({name!r}, {attrs!r}, ({''.join(f'{self.operand(x)}, ' for x in xs)}))"
        )

    def on_switch(self, depth: int, cases: Any, text: str) -> None:
        shown: dict[str, None] = {}
        for i, (pairs, body) in enumerate(cases):
            tests = [f"{self.dim(a)} == {self.dim(b)}" for a, b in pairs]
            shown.update((self.dim(d), None) for pair in pairs for d in pair if not isinstance(d, int))
            self.put(depth, f"{'elif' if i else 'if'} {' and '.join(tests) or 'True'}:")
            self.block(body, depth + 1)
        self.put(depth, "else:")
        self.put(depth + 1, f"no_case({text!r}, ({''.join(f'{d}, ' for d in shown)}))")

    def on_view(self, depth: int, r: int, x: int, dims: Any) -> None:
        name = self.operand(x)
        self.put(depth, f"r{r} = ({name}[0], {self.shape(dims)}, {name}[2], {name}[3])")

    def on_tuple(self, depth: int, r: int, xs: Any) -> None:
        self.put(depth, f"r{r} = [{self.all(xs)}]")

    def on_get(self, depth: int, r: int, x: int, i: int) -> None:
        self.put(depth, f"r{r} = {self.operand(x)}[{i}]")

    def on_move(self, depth: int, r: int, x: int) -> None:
        self.put(depth, f"r{r} = {self.operand(x)}")

    def on_kill(self, depth: int, registers: Any) -> None:
        if registers:
            self.put(depth, " = ".join([*(f"r{r}" for r in registers), "None"]))

    def captured(self, captured: Any, own: str = "") -> str:
        made = []
        for c in captured:
            made.append(own if c[0] == "self" else self.operand(c[1]) if c[0] == "r" else self.dim(c[1]))
        return "".join(f"{m}, " for m in made)

    def on_closure(self, depth: int, r: int, f: int, captured: Any) -> None:
        self.put(depth, f"r{r} = Closure(f{f})")
        self.put(depth, f"r{r}.captured = ({self.captured(captured, f'r{r}')})")

    def own(self) -> str:
        return "".join(f"{k}{r}, " for k, r in self.code.captures)

    def on_call(self, depth: int, r: int, f: int, captured: Any, xs: Any) -> None:
        self.put(depth, f"r{r} = called(f{f}({self.captured(captured)}{self.all(xs)}))")

    def on_apply(self, depth: int, r: int, x: int, xs: Any) -> None:
        name = self.operand(x)
        self.put(depth, f"r{r} = called({name}.function(*{name}.captured, {self.all(xs)}))")

    def on_recur(self, depth: int, r: int, xs: Any) -> None:
        self.put(depth, f"r{r} = called(f{self.index}({self.own()}{self.all(xs)}))")

    def on_tail(self, depth: int, f: int, captured: Any, xs: Any) -> None:
        self.put(
            depth,
            f"return Tail(f{f}, ({self.captured(captured)}{''.join(f'{self.operand(x)}, ' for x in xs)}))",
        )

    def on_jump(self, depth: int, x: int, xs: Any) -> None:
        name = self.operand(x)
        self.put(depth, f"return Tail({name}.function, (*{name}.captured, {self.all(xs)}))")

    def on_again(self, depth: int, xs: Any) -> None:
        targets = [f"r{r}" for _, r, _ in self.code.params]
        pairs = [(t, self.operand(x)) for t, x in zip(targets, xs, strict=True) if t != self.operand(x)]
        if pairs:
            self.put(depth, f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}")
        self.put(depth, "continue")

    def on_if(self, depth: int, x: int, yes: Any, no: Any) -> None:
        self.put(depth, f"if truth({self.operand(x)}[0]).value:")
        self.block(yes, depth + 1)
        if _ends(yes):  # a chain of branches stays flat: Python takes a hundred levels
            self.block(no, depth)
        elif no:
            self.put(depth, "else:")
            self.block(no, depth + 1)

    def on_ret(self, depth: int, x: int) -> None:
        self.put(depth, f"return {self.operand(x)}")

    def on_open(self, depth: int, number: int, xs: Any, outs: Any) -> None:
        made = "".join(f"r{r}, " for r in outs)
        self.put(depth, f"({made}) = open_kernel({number}, ({''.join(f'{self.operand(x)}, ' for x in xs)}))")

    def on_missing(self, depth: int, number: int, outs: Any) -> None:
        self.put(depth, f"missing({number})")


def _dims(d: Any) -> Dim:
    return (d[0], _dims(d[1]), _dims(d[2])) if isinstance(d, (list, tuple)) else d


def _ends(body: Sequence[Any]) -> bool:
    """Whether a block never comes to its end."""
    last = body[-1] if body else [""]
    if last[0] == "if":
        return _ends(last[2]) and _ends(last[3])
    return last[0] in ("ret", "again", "tail", "jump")


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
