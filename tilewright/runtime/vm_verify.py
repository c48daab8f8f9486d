"""The verifier of programs of the virtual machine: no instruction can access memory out of bounds, even in an untrusted
program.

Every register has a kind on every path to an instruction: a tensor (type of elements, sizes as polynomials), a tuple, a
function, or unknown. Conditions that the kinds prove cost nothing at run time; those that they refute are errors; the
others are checked at run time, by lines before the instruction:

    view r1 = r0 as (s1, 4)              r0: float32 (s0, 8), nothing known of s1
        ->   if prod(r0[1]) < s1 * 4: misfit(…)

What holds then: a size is at least 0; a tensor's memory holds its shape; kernels get arguments of the type and of at
least the size that their signatures name, and sizes that fit their integers, and write only to memory that was taken
for their results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .devices import Device
from .dtypes import ELEMENTS
from .errors import LoadError
from .metadata import BufferParam, Dim, FunctionInfo, dim_text, parse_dim
from .model import TensorSpec
from .ndarray import ALIGNMENT
from .profiling import parse_roof
from .shape_functions import SHAPE_FUNCTIONS
from .vm_code import FORMAT, FunctionCode, Program, Tests, ValueType, block_ends, operand_text, size_text
from .vm_sizes import LARGEST, Poly, Sizes, constant, known

_DEEPEST_BLOCK: Final = 90  # Python's parser takes a hundred levels of indentation
_DEEPEST_SIZE: Final = 150  # and two hundred of parentheses
_RANK: Final = 32


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor; None is an unknown size."""

    dtype: str
    dims: tuple[Poly | None, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    fields: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """A function as a value."""


@dataclass(frozen=True, slots=True)
class Never:
    """An unreachable value so far: the result of a function that has not returned."""


Kind = Tensor | Tuple | Closed | Never | None  # None: unknown


@dataclass(slots=True)
class State:
    """The state before an instruction: the kinds of registers, the sizes, and facts about these."""

    kinds: dict[int, Kind] = field(default_factory=dict)
    sizes: dict[int, Poly] = field(default_factory=dict)
    equal: dict[int, Poly] = field(default_factory=dict)  # atoms that a test found to be others
    small: set[tuple[Poly, int]] = field(default_factory=set)  # sizes that are below a limit

    def copy(self) -> State:
        return State(dict(self.kinds), dict(self.sizes), dict(self.equal), set(self.small))


def parse_program(data: Any, where: str, kernels: dict[str, FunctionInfo]) -> Program:
    """A program that was read from a file, verified; one that is not sound is a LoadError."""
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
            tuple(tuple(_spec(*t) for t in side) for side in data.get("interface", ((), ()))),  # type: ignore[arg-type]
            _one_of(data.get("device", "cpu"), Device.STR2MASK),
            {_text(site): tuple(map(_text, nodes)) for site, nodes in data.get("nodes", {}).items()},
            [None if w is None else parse_work(w, where) for w in data.get("work", ())],
            parse_roof(data.get("roof")),
        )
        if len(program.interface) != 2:
            raise ValueError("the interface is not a pair of inputs and results")
        program.tests = verify(program, kernels)
    except RecursionError:
        raise LoadError(f"{where}: the program is damaged: it nests too deeply") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, LoadError) as error:
        raise LoadError(f"{where}: the program is damaged: {error}") from error
    return program


def parse_work(data: Any, where: str) -> tuple[Dim, Dim]:
    """The operations and bytes of a kernel."""
    flops, nbytes = (parse_dim(each, where) for each in data)
    return flops, nbytes


def _number(value: Any) -> int:
    if value.__class__ is not int or not 0 <= value < LARGEST:
        raise ValueError(f"{value!r} is not the number of a register or a size")
    return int(value)


def _spec(name: Any, dtype: Any, shape: Any) -> TensorSpec:
    sizes = tuple(d if d is None or isinstance(d, str) else _number(d) for d in _list(shape))
    return TensorSpec(_text(name), _one_of(dtype, ELEMENTS), sizes)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r} is not a list")
    return value  # type: ignore[return-value]


def _one_of(value: Any, allowed: Any) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{value!r} is unknown")
    return value


def _type(value: Any) -> ValueType:
    kind = value[0]
    if kind == "tensor":
        dims = [None if d is None else _number(d) for d in _list(value[2])]
        if len(dims) > _RANK:
            raise ValueError(f"a tensor has {len(dims)} dimensions, and {_RANK} are the most")
        return ["tensor", _one_of(value[1], ELEMENTS), dims]
    if kind == "tuple":
        return ["tuple", [_type(f) for f in value[1]]]
    return [_one_of(kind, ("function", "value"))]


def _declared(kind: ValueType) -> Kind:
    """The kind of a parameter's type; unknown for a function."""
    if kind[0] == "tensor":
        return Tensor(kind[1], tuple(None if d is None else constant(d) for d in kind[2]))
    return Tuple(tuple(map(_declared, kind[1]))) if kind[0] == "tuple" else None


def verify(program: Program, kernels: dict[str, FunctionInfo], saved: bool = True) -> Tests:
    """The tests that a program needs at run time; a program that cannot be sound is a ValueError.

    Kinds of results and of captured values are computed by a fixed point over the functions.
    """
    world = _World(program, kernels, saved)
    while True:
        tests = Tests({}, {})
        world.changed = False
        for number in range(len(program.functions)):
            _Check(world, number, tests).run()
        if not world.changed:
            return tests


class _World:
    """The facts that functions share."""

    def __init__(self, program: Program, kernels: dict[str, FunctionInfo], saved: bool) -> None:
        self.program, self.kernels, self.saved = program, kernels, saved
        for d, shape in program.constants:
            if len(shape) > _RANK:
                raise ValueError(f"a constant of {d} has {len(shape)} dimensions, and {_RANK} are the most")
        self.constants = [Tensor(d, tuple(map(constant, shape))) for d, shape in program.constants]
        self.results: dict[int, Kind] = {}
        self.captured: dict[tuple[int, int], Kind] = {}
        self.closed: set[int] = set()  # functions that are values: they may be called from anywhere
        self.changed = False

    def learn(self, table: dict[Any, Kind], key: Any, kind: Kind) -> None:
        """Join a kind into an entry of a table."""
        before = table.get(key, Never())
        table[key] = made = _joined(before, _outside(kind))
        self.changed |= made != before

    def close(self, number: int) -> None:
        self.changed |= number not in self.closed
        self.closed.add(number)


def _outside(kind: Kind) -> Kind:
    """A kind without the sizes of this function, for other functions."""
    if isinstance(kind, Tensor):
        dims = tuple(d if d is not None and known(d) is not None else None for d in kind.dims)
        return Tensor(kind.dtype, dims)
    return Tuple(tuple(map(_outside, kind.fields))) if isinstance(kind, Tuple) else kind


def _joined(a: Kind, b: Kind) -> Kind:
    """The join of two kinds."""
    if a == b or isinstance(b, Never):
        return a
    if isinstance(a, Never):
        return b
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype and len(a.dims) == len(b.dims):
        return Tensor(a.dtype, tuple(x if x == y else None for x, y in zip(a.dims, b.dims, strict=True)))
    if isinstance(a, Tuple) and isinstance(b, Tuple) and len(a.fields) == len(b.fields):
        return Tuple(tuple(_joined(x, y) for x, y in zip(a.fields, b.fields, strict=True)))
    return None


class _Check:
    """One walk over a function's instructions."""

    def __init__(self, world: _World, number: int, tests: Tests) -> None:
        self.world, self.number, self.tests = world, number, tests
        self.program, self.code = world.program, world.program.functions[number]
        self.sizes = Sizes()
        self.lines: list[str] = []  # the tests of the current instruction
        self.depth = 2

    def run(self) -> None:
        code, state = self.code, State()
        names = [*code.captures, *(("r", r) for _, r, _ in code.params)]
        if len(set(names)) != len(names):
            raise ValueError(f"function {code.name!r} has one register for two values")
        for i, (kind, r) in enumerate(code.captures):
            if kind == "s":
                state.sizes[r] = self.sizes.fresh()
            else:
                state.kinds[r] = self.inside(self.world.captured.get((self.number, i), Never()))
        for _, r, declared in code.params:
            if self.number in self.world.closed and declared[0] not in ("function", "value"):
                self.tests.entry.setdefault(self.number, []).append(f"fits(r{r}, {declared!r})")
            state.kinds[r] = self.inside(_declared(declared))
        if self.block(code.body, state) is not None:
            raise ValueError(f"function {code.name!r} ends without a result")

    def inside(self, kind: Kind) -> Kind:
        """A kind from outside, with new sizes of this function for unknown ones."""
        if isinstance(kind, Tensor):
            return Tensor(kind.dtype, tuple(self.sizes.fresh() if d is None else d for d in kind.dims))
        return Tuple(tuple(map(self.inside, kind.fields))) if isinstance(kind, Tuple) else kind

    # -- blocks ------------------------------------------------------------------------------------
    def block(self, body: Any, state: State) -> State | None:
        """The state after a block; None if its end is unreachable."""
        if self.depth > _DEEPEST_BLOCK:
            raise ValueError(f"blocks nest deeper than {_DEEPEST_BLOCK}")
        for i, instr in enumerate(_list(body)):
            name = instr[0]
            work = getattr(self, f"on_{name}", None) if isinstance(name, str) else None
            if work is None:
                raise ValueError(f"there is no instruction {name!r}")
            lines: list[str] = []
            self.lines = lines
            left = work(state, *instr[1:])
            if lines:
                self.tests.before[id(instr)] = lines
            if left is False:
                if i + 1 != len(body):
                    raise ValueError(f"instructions follow {name!r}, which is the last")
                return None
        return state

    def inner(self, body: Any, state: State, deeper: bool = True) -> State | None:
        lines, self.depth = self.lines, self.depth + deeper
        try:
            return self.block(body, state)
        finally:
            self.lines, self.depth = lines, self.depth - deeper

    def merge(self, state: State, ways: Sequence[State]) -> None:
        """Merge the states of several paths into one."""
        kinds = {r for r in ways[0].kinds if all(r in w.kinds for w in ways)}
        sizes = {s for s in ways[0].sizes if all(s in w.sizes for w in ways)}
        state.kinds = {r: self.common([w.kinds[r] for w in ways], ways) for r in kinds}
        state.sizes = {s: self.agreed([w.sizes[s] for w in ways], ways) for s in sizes}

    def common(self, kinds: Sequence[Kind], ways: Sequence[State]) -> Kind:
        """The kind of a register after all paths."""
        made = kinds[0]
        for k in kinds[1:]:
            made = _joined(made, k)
        if isinstance(made, Tensor):
            rows = [k.dims for k in kinds if isinstance(k, Tensor)]
            if len(rows) == len(ways):
                return Tensor(made.dtype, tuple(self.agreed(d, ways) for d in zip(*rows, strict=True)))
        return self.inside(made)

    def agreed(self, found: Sequence[Poly | None], ways: Sequence[State]) -> Poly:
        """A size that all paths agree on: (1, 4) where n is 1, and (n, 4) where it is not, are both (n, 4)."""
        for p in dict.fromkeys(found):
            if p is not None and all(
                d is not None and self.sizes.replaced(p, w.equal) == self.sizes.replaced(d, w.equal)
                for d, w in zip(found, ways, strict=True)
            ):
                return p
        return self.sizes.fresh()

    # -- operands ------------------------------------------------------------------------------------
    def kind(self, state: State, x: Any) -> Kind:
        if x.__class__ is not int:
            raise ValueError(f"{x!r} is not an operand")
        if x < 0:
            if -x > len(self.world.constants):
                raise ValueError(f"there is no constant {-x - 1}")
            return self.world.constants[-x - 1]
        if x not in state.kinds:
            raise ValueError(f"register {x} is read and has no value")
        return state.kinds[x]

    def tensor(self, state: State, x: Any, dtype: str | None = None) -> Tensor | None:
        """The tensor of an operand; None if its kind must be checked at run time."""
        kind = self.kind(state, x)
        if kind is None or isinstance(kind, Never):
            name = operand_text(x)
            other = f" or {name}[2] != {dtype!r}" if dtype else ""
            wanted = f"a tensor of {dtype}" if dtype else "a tensor"
            self.lines.append(f"if {name}.__class__ is not tuple{other}: misfit({x}, {wanted!r})")
        elif not isinstance(kind, Tensor):
            raise ValueError(f"register {x} holds a {type(kind).__name__.lower()}, and a tensor is needed")
        return kind if isinstance(kind, Tensor) else None

    def size(self, state: State, d: Any) -> Poly:
        """A dimension: a number, or a size that was computed."""
        if d.__class__ is int:
            return constant(_number(d))
        number = d[1:] if isinstance(d, str) and d[:1] == "s" else ""
        if not number.isdecimal() or not number.isascii() or str(int(number)) != number:
            raise ValueError(f"{d!r} is not a size that was computed before")
        if int(number) not in state.sizes:
            raise ValueError(f"size {d!r} is read and has no value")
        return self.sizes.replaced(state.sizes[int(number)], state.equal)

    def shape(self, state: State, dims: Any) -> list[Poly]:
        if len(_list(dims)) > _RANK:
            raise ValueError(f"a tensor has {len(dims)} dimensions, and {_RANK} are the most")
        return [self.size(state, d) for d in dims]

    def put(self, state: State, r: Any, kind: Kind) -> None:
        state.kinds[_number(r)] = kind

    def dims(self, state: State, kind: Tensor) -> list[Poly]:
        return [self.sizes.replaced(d, state.equal) for d in kind.dims if d is not None]

    # -- sizes ---------------------------------------------------------------------------------------
    def on_size(self, state: State, s: Any, x: Any, axis: Any) -> None:
        kind = self.tensor(state, x)
        if _number(axis) >= (_RANK if kind is None else len(kind.dims)):
            raise ValueError(f"register {x} has no dimension {axis}")
        if kind is None:
            self.lines.append(f"if len({operand_text(x)}[1]) <= {axis}: misfit({x}, 'dimension {axis}')")
        found = None if kind is None else kind.dims[axis]
        state.sizes[_number(s)] = self.sizes.fresh() if found is None else found

    def on_let(self, state: State, s: Any, dim: Any) -> None:
        found = self.computed(state, parse_dim(dim, "a size"), 0)
        if not 0 <= (known(found) or 0) < LARGEST:
            raise ValueError(f"a size is {known(found)}")
        state.sizes[_number(s)] = found  # whether it is below 0, or too large, is tested when it is computed

    def computed(self, state: State, dim: Any, depth: int) -> Poly:
        if depth > _DEEPEST_SIZE:
            raise ValueError(f"a size nests deeper than {_DEEPEST_SIZE}")
        if dim.__class__ is int:
            if abs(dim) >= LARGEST:
                raise ValueError(f"{dim} is not a size")
            return constant(dim)
        if isinstance(dim, str):
            return self.size(state, dim)
        op, a, b = dim
        left, right = self.computed(state, a, depth + 1), self.computed(state, b, depth + 1)
        if op in ("//", "%"):
            divisor = known(right)
            if divisor is None:
                self.lines.append(f"if {size_text(b)} == 0: misfit(-1, 'a divisor other than 0')")
            elif divisor == 0:
                raise ValueError("a size is divided by 0")
        return self.sizes.apply(op, left, right)

    def on_same(self, state: State, a: Any, b: Any, text: Any) -> None:
        _text(text)
        self.learn_equal(state, self.size(state, a), self.size(state, b))

    def on_least(self, state: State, a: Any, b: Any, text: Any) -> None:
        _text(text)
        self.size(state, a)
        self.size(state, b)

    def learn_equal(self, state: State, a: Poly, b: Poly) -> None:
        """Record that two sizes are equal, if one of them is an atom."""
        for x, y in ((a, b), (b, a)):
            if len(x) == 1 and len(x[0][0]) == 1 and x[0][1] == 1:
                (atom,) = x[0][0]
                if all(atom not in m for m, _ in y):
                    one = {atom: y}
                    state.equal = {k: self.sizes.replaced(v, one) for k, v in state.equal.items()}
                    state.equal[atom] = y
                    return

    def on_shapes(self, state: State, made: Any, name: Any, attrs: Any, xs: Any) -> None:
        _one_of(name, SHAPE_FUNCTIONS)
        if not isinstance(attrs, dict) or not _is_plain(attrs):
            raise ValueError(f"the attributes of {name} are {attrs!r}")
        for x in _list(xs):
            self.tensor(state, x)
        for s in _list(made):
            state.sizes[_number(s)] = self.sizes.fresh()

    # -- kernels -------------------------------------------------------------------------------------
    def on_run(self, state: State, kernel: Any, args: Any, outs: Any, symbols: Any) -> None:
        info = self.world.kernels[self.program.kernels[_number(kernel)]]
        args, outs, symbols = _list(args), _list(outs), _list(symbols)
        if len(args) != len(info.params) or len(symbols) != len(info.symbols):
            raise ValueError(f"kernel {info.name} is called with another number of arguments")
        if info.ret is not None or info.device not in ("cpu", self.program.device):
            raise ValueError(f"{info.name} is not a kernel of the virtual machine")
        made = [Tensor(_one_of(d, ELEMENTS), tuple(self.shape(state, dims))) for _, d, dims in outs]
        targets = [_number(r) for r, _, _ in outs]
        read = {a for a in args if a.__class__ is int}
        if len(set(targets)) != len(targets) or read & set(targets):
            raise ValueError(f"a result of {info.name} overwrites another value of the call")
        names: dict[str, tuple[Poly, str]] = {}
        for given, wanted in (
            *zip(symbols, info.symbols, strict=True),
            *((a[1], p) for a, p in zip(args, info.params, strict=True) if _is(a, "n")),
        ):
            names[wanted.name] = self.fitting(state, given, wanted.dtype, info.name), size_text(given)
        for a, p in zip(args, info.params, strict=True):
            if isinstance(p, BufferParam):
                self.buffer(state, info.name, p, a, (outs, made), names)
            elif not _is(a, "n"):
                raise ValueError(f"{p.name} of {info.name} is a number, and {a!r} is not")
        written = [a[1] for a in args if _is(a, "o")]
        if sorted(written) != list(range(len(made))):
            raise ValueError(f"kernel {info.name} does not write each of its results once")
        for r, kind in zip(targets, made, strict=True):
            self.put(state, r, kind)

    def fitting(self, state: State, given: Any, dtype: str, name: str) -> Poly:
        """A number for a kernel, which must fit its type."""
        if dtype not in ELEMENTS:
            raise ValueError(f"kernel {name} takes an address where it is given a number")
        found = self.size(state, given)
        limit = 1 << ELEMENTS[dtype].bits - dtype.startswith("int") if "int" in dtype else LARGEST
        value = known(found)
        if value is not None and value >= limit:
            raise ValueError(f"kernel {name} is given {value} for a number of {dtype}")
        if value is None and limit < LARGEST and (found, limit) not in state.small:
            self.lines.append(f"if {size_text(given)} >= {limit}: too_large({size_text(given)}, {name!r})")
            state.small.add((found, limit))
        return found

    def buffer(
        self,
        state: State,
        name: str,
        p: BufferParam,
        a: Any,
        results: Any,
        names: dict[str, tuple[Poly, str]],
    ) -> None:
        """Check an array for a kernel: its type, and that its memory is as large as the kernel assumes."""
        if p.strides is not None or p.align > ALIGNMENT:
            raise ValueError(f"{p.name} of {name} has strides or an alignment of its own")
        polys = {n: poly for n, (poly, _) in names.items()}
        needed = self.sizes.product(self.sizes.of(d, polys) for d in p.shape)
        text = " * ".join(["1", *(dim_text(d, lambda n: names[n][1], True) for d in p.shape)])
        if _is(a, "o"):
            if p.access == "r" and known(needed) != 0:  # an empty one is not accessed
                raise ValueError(f"{p.name} of {name} is read before it is written")
            outs, made = results
            found, have = made[_number(a[1])], " * ".join(["1", *map(size_text, outs[a[1]][2])])
        else:
            if p.access != "r":
                raise ValueError(f"{p.name} of {name} is written, and only results may be")
            found, have = self.tensor(state, a, p.dtype), f"prod({operand_text(a)}[1])"
            if a >= 0 and p.align > ELEMENTS[p.dtype].itemsize:
                self.lines.append(f"if {operand_text(a)}[0] % {p.align}: misfit({a}, 'aligned memory')")
        if found is not None and found.dtype != p.dtype:
            raise ValueError(f"{p.name} of {name} is of {p.dtype}, and is given {found.dtype}")
        self.holds(
            state, found, needed, f"if {have} < {text}: misfit({-1 if _is(a, 'o') else a}, 'enough memory')"
        )

    def holds(self, state: State, have: Tensor | None, needed: Poly, test: str) -> None:
        """Refuse a tensor that has fewer elements than are needed; add a run-time check if that is not known."""
        if have is not None:
            more = self.sizes.add(self.sizes.product(self.dims(state, have)), needed, -1)
            found = known(more)
            if found is not None and found >= 0:
                return
            if found is not None:
                raise ValueError(f"a tensor has {-found} elements fewer than its use needs")
        self.lines.append(test)

    def on_open(self, state: State, number: Any, xs: Any, outs: Any) -> None:
        if self.world.saved:
            raise ValueError("a saved program cannot compile kernels")
        for r in outs:
            self.put(state, r, None)

    def on_missing(self, state: State, number: Any, outs: Any) -> None:
        self.on_open(state, number, (), outs)

    # -- values --------------------------------------------------------------------------------------
    def on_view(self, state: State, r: Any, x: Any, dims: Any) -> None:
        kind, shape = self.tensor(state, x), self.shape(state, dims)
        needed = " * ".join(["1", *map(size_text, dims)])
        test = f"if prod({operand_text(x)}[1]) < {needed}: misfit({x}, 'enough memory')"
        self.holds(state, kind, self.sizes.product(shape), test)
        self.put(state, r, self.kind(state, x) if kind is None else Tensor(kind.dtype, tuple(shape)))

    def on_update(self, state: State, r: Any, x: Any, y: Any) -> None:
        self.tensor(state, y)  # types and sizes, and whose memory it is, are checked at run time
        self.tensor(state, x)
        self.put(state, r, self.kind(state, x))

    def on_put(self, state: State, r: Any, x: Any, y: Any, z: Any) -> None:
        self.tensor(state, z)
        self.on_update(state, r, x, y)

    def on_tuple(self, state: State, r: Any, xs: Any) -> None:
        self.put(state, r, Tuple(tuple(self.kind(state, x) for x in _list(xs))))

    def on_get(self, state: State, r: Any, x: Any, i: Any) -> None:
        kind = self.kind(state, x)
        _number(i)
        if kind is None or isinstance(kind, Never):
            name = operand_text(x)
            self.lines.append(
                f"if {name}.__class__ is not list or len({name}) <= {i}: misfit({x}, 'a tuple with field {i}')"
            )
            self.put(state, r, kind)
            return
        if not isinstance(kind, Tuple) or i >= len(kind.fields):
            raise ValueError(f"register {x} is not a tuple with a field {i}")
        self.put(state, r, kind.fields[i])

    def on_move(self, state: State, r: Any, x: Any) -> None:
        self.put(state, r, self.kind(state, x))

    def on_kill(self, state: State, registers: Any) -> None:
        for r in _list(registers):
            state.kinds.pop(_number(r), None)

    # -- functions -----------------------------------------------------------------------------------
    def callee(self, state: State, f: Any, captured: Any, own: bool) -> FunctionCode:
        """A function with values that it captures, which `own` lets be the function itself."""
        code = self.program.functions[_number(f)]
        if len(code.captures) != len(_list(captured)):
            raise ValueError(f"function {f} captures another number of values")
        for i, (c, (kind, _)) in enumerate(zip(captured, code.captures, strict=True)):
            if c[0] == "s" and kind == "s":
                self.size(state, c[1])
            elif kind == "r" and (c[0] == "r" or (c[0] == "self" and own)):
                value = Closed() if c[0] == "self" else self.kind(state, c[1])
                self.world.learn(self.world.captured, (f, i), value)
            else:
                raise ValueError(f"{c!r} cannot be captured by function {f}")
        return code

    def own(self, state: State) -> None:
        """A function continues with its own captured values."""
        for i, (kind, r) in enumerate(self.code.captures):
            if kind == "s":
                self.size(state, f"s{r}")
            else:
                self.world.learn(self.world.captured, (self.number, i), self.kind(state, r))

    def pass_on(self, state: State, code: FunctionCode, xs: Any) -> None:
        """Check arguments against the types of parameters."""
        if len(_list(xs)) != len(code.params):
            raise ValueError(f"function {code.name!r} is called with another number of arguments")
        for x, (name, _, declared) in zip(xs, code.params, strict=True):
            proven = self.suits(state, self.kind(state, x), _declared(declared))
            if proven is None:
                self.lines.append(f"fits({operand_text(x)}, {declared!r})")
            elif not proven:
                raise ValueError(f"{name!r} of function {code.name!r} is given a value of another type")

    def suits(self, state: State, given: Kind, wanted: Kind) -> bool | None:
        """Whether a value is of a kind; None if it must be checked at run time."""
        if wanted is None:
            return True
        if given is None or isinstance(given, Never):
            return None
        if isinstance(wanted, Tuple) and isinstance(given, Tuple) and len(given.fields) == len(wanted.fields):
            pairs = zip(given.fields, wanted.fields, strict=True)
            parts = [self.suits(state, g, w) for g, w in pairs]
            return False if False in parts else None if None in parts else True
        if not isinstance(wanted, Tensor) or not isinstance(given, Tensor) or given.dtype != wanted.dtype:
            return False
        if len(given.dims) != len(wanted.dims):
            return False
        proven: bool | None = True
        for g, w in zip(self.dims(state, given), wanted.dims, strict=True):
            if w is not None and g != w:
                if known(g) is not None:
                    return False
                proven = None
        return proven

    def on_closure(self, state: State, r: Any, f: Any, captured: Any) -> None:
        self.callee(state, f, captured, own=True)
        if any(c[0] == "r" and c[1] == r for c in captured):
            raise ValueError(f"a function in register {r} captures the value that it overwrites")
        self.world.close(f)
        self.put(state, r, Closed())

    def on_call(self, state: State, r: Any, f: Any, captured: Any, xs: Any) -> None:
        self.pass_on(state, self.callee(state, f, captured, own=False), xs)
        self.put(state, r, self.inside(self.world.results.get(f, Never())))

    def on_tail(self, state: State, f: Any, captured: Any, xs: Any) -> bool:
        self.pass_on(state, self.callee(state, f, captured, own=False), xs)
        self.world.learn(self.world.results, self.number, self.world.results.get(f, Never()))
        return False

    def on_recur(self, state: State, r: Any, xs: Any) -> None:
        self.own(state)
        self.pass_on(state, self.code, xs)
        self.put(state, r, self.inside(self.world.results.get(self.number, Never())))

    def on_again(self, state: State, xs: Any) -> bool:
        self.own(state)
        self.pass_on(state, self.code, xs)
        return False

    def function(self, state: State, x: Any, xs: Any) -> None:
        """Check a call of a function that is a value: it knows how many arguments it takes, and tests them."""
        kind = self.kind(state, x)
        if kind is not None and not isinstance(kind, (Closed, Never)):
            raise ValueError(f"register {x} does not hold a function")
        for a in _list(xs):
            self.kind(state, a)
        name = operand_text(x)
        self.lines.append(
            f"if {name}.__class__ is not Closure or {name}.arity != {len(xs)}: "
            f"misfit({x}, 'a function of {len(xs)} arguments')"
        )

    def on_apply(self, state: State, r: Any, x: Any, xs: Any) -> None:
        self.function(state, x, xs)
        self.put(state, r, None)

    def on_jump(self, state: State, x: Any, xs: Any) -> bool:
        self.function(state, x, xs)
        self.world.learn(self.world.results, self.number, None)
        return False

    # -- branches ------------------------------------------------------------------------------------
    def on_data(self, state: State, r: Any, tag: Any, xs: Any) -> None:
        _number(tag)
        for x in _list(xs):
            self.kind(state, x)
        self.put(state, r, None)

    def held(self, state: State, x: Any, what: str, test: str) -> None:
        """Check at run time that an operand is data or a cell, of which nothing is known before."""
        kind = self.kind(state, x)
        if kind is not None and not isinstance(kind, Never):
            raise ValueError(f"register {x} does not hold {what}")
        self.lines.append(f"if {test}: misfit({x}, {what!r})")

    def on_field(self, state: State, r: Any, x: Any, i: Any) -> None:
        name = operand_text(x) if x.__class__ is int else ""
        test = f"{name}.__class__ is not Data or len({name}.fields) <= {_number(i)}"
        self.held(state, x, f"data with field {i}", test)
        self.put(state, r, None)

    def on_ref(self, state: State, r: Any, x: Any) -> None:
        self.kind(state, x)
        self.put(state, r, None)

    def on_read(self, state: State, r: Any, x: Any) -> None:
        self.held(state, x, "a reference", f"{operand_text(x)}.__class__ is not Cell")
        self.put(state, r, None)

    def on_write(self, state: State, x: Any, value: Any) -> None:
        self.kind(state, value)
        self.held(state, x, "a reference", f"{operand_text(x)}.__class__ is not Cell")

    def on_fail(self, state: State, text: Any) -> bool:
        _text(text)
        return False

    def form(self, form: Any) -> None:
        """Check the form of a value, as a branch has it."""
        if form is None:
            return
        if _list(form)[0] != "t":
            _number(form[0])
        for inner in form[1:]:
            self.form(inner)

    def on_if(self, state: State, x: Any, yes: Any, no: Any) -> bool | None:
        if isinstance(x, (list, tuple)):
            kind, operand, form = x
            _one_of(kind, ("is",))
            self.kind(state, operand)
            self.form(form)
        else:
            test = f"if prod({operand_text(x)}[1]) < 1: misfit({x}, 'a value')"
            self.holds(state, self.tensor(state, x), constant(1), test)
        ways = [self.inner(yes, state.copy()), self.inner(no, state.copy(), not block_ends(_list(yes)))]
        left = [w for w in ways if w is not None]
        if left:
            self.merge(state, left)
        return None if left else False

    def on_switch(self, state: State, cases: Any, text: Any) -> None:
        _text(text)
        left = []
        for pairs, body in _list(cases):
            case = state.copy()
            for a, b in _list(pairs):
                self.learn_equal(case, self.size(case, a), self.size(case, b))
            after = self.inner(body, case)
            if after is not None:
                left.append(after)
        if not _list(cases):
            raise ValueError("a switch has no cases")
        if left:
            self.merge(state, left)

    def on_ret(self, state: State, x: Any) -> bool:
        self.world.learn(self.world.results, self.number, self.kind(state, x))
        return False


def _is(a: Any, kind: str) -> bool:
    return isinstance(a, (list, tuple)) and len(a) == 2 and a[0] == kind


def _is_plain(value: Any) -> bool:
    """Whether a value can be written as a Python literal."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return (
        value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
    )
