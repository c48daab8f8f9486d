"""From a fused function to instructions of the virtual machine, with symbolic sizes.

fn (%x: Tensor[(?, 4), float32]) { %k(%x) }      s0 = size of r0 along 0
                                            ->   run k0 r0 -> r1: float32 (s0, 4)
                                                 ret r1
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.errors import BuildError, TVMError
from ...ir.expr import USUAL_SIZE, PrimExpr, SizeVar
from ...ir.expr import Var as TirVar
from ...ir.module import GlobalVar
from ...runtime.shape_functions import SHAPE_FUNCTIONS
from ...runtime.vm_code import FunctionCode
from ...tune.program.facts import number
from ..adt import Constructor, Match, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from ..analysis.walks import use_counts
from ..expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    set_checked_type,
)
from ..op.attention import cache_update
from ..op.registry import RelayOp
from ..op.shapes import least, same_size
from ..op.traits import traits_of
from ..sizes import free_sizes, sizes_in
from ..transform.fuse_ops import is_primitive
from ..transform.rewriting import is_call
from ..ty import Any as AnySize
from ..ty import FuncType, TensorType, TupleType, TypeCall, substituted, tensor_fields
from ..visitor import flow_inputs
from .dims import dim_of
from .external import is_external
from .lower import inner_order
from .program import _is_view
from .vm_cases import Case, Check, Site, find_cases, replaced, solution
from .vm_data import constructor_function, form_of
from .work import nodes_of

_DEEP = 40  # most nested branches


@dataclass(eq=False, slots=True)
class Value:
    """A value in a function under construction: a register, a tuple of values, or a function that is known."""

    kind: Any
    operand: int | None = None
    fields: tuple[Value, ...] | None = None
    function: int | None = None  # the index of the function
    captured: list[Any] = field(default_factory=list)  # the values that the function captures
    own: bool = False  # whether it is the function under construction


@dataclass(eq=False, slots=True)
class PendingRun:
    """A call of a kernel that is not compiled yet."""

    case: Case
    args: list[Any]  # operands, or constants
    inputs: list[list[Any]]  # their dimensions
    outs: list[Any]
    extras: list[Any]
    name: str
    function: int = 0  # the number of the function that calls it
    nodes: list[str] = field(default_factory=list)  # of the source
    group: Any = None  # the kernels that are compiled together at the first call of one of them


@dataclass(eq=False, slots=True)
class PendingOpen:
    """A call whose kernel is compiled at run time for concrete sizes."""

    fn: Function
    args: list[Any]
    outs: list[int]
    kinds: list[Any]  # types of the arguments, nested as in the program
    spare: bool = False  # for rare relations of sizes: a program is saved without it


class _Block:
    """Instructions in order, the values that they define, and the computed sizes."""

    def __init__(self, above: _Block | None = None) -> None:
        self.above = above
        self.depth: int = 0 if above is None else above.depth + 1
        self.body: list[Any] = []
        self.values: dict[Any, Value] = {}
        self.sizes: dict[str, int] = {}
        self.registers: dict[Value, int] = {}  # registers of tuples that were built here
        # Sizes that are known to equal others.
        self.equal: dict[Any, Any] = dict(above.equal) if above is not None else {}

    def upward(self) -> Iterator[_Block]:
        """This block, and those that it is nested in."""
        at: _Block | None = self
        while at is not None:
            yield at
            at = at.above

    def find(self, expr: Any) -> Value | None:
        return next((b.values[expr] for b in self.upward() if expr in b.values), None)

    def size(self, text: str) -> int | None:
        return next((b.sizes[text] for b in self.upward() if text in b.sizes), None)


_Place = tuple[list[int], list[TensorType]]  # the registers of a call's tensors, and their types


class Emitter:
    """The functions of a module, and the constants and kernels that they share."""

    def __init__(self, mod: Any) -> None:
        self.mod = mod
        self.functions: list[FunctionCode | None] = []
        self.numbers: dict[GlobalVar, int] = {}
        self.constants: dict[Any, int] = {}  # by the array's identity
        self.arrays: list[Any] = []
        self.pending: list[PendingRun] = []
        self.groups: dict[Any, int] = {}

    def run(self) -> None:
        for gv, fn in self.mod.functions.items():
            if isinstance(fn, Function) and not is_primitive(fn):
                self.numbers[gv] = len(self.functions)
                self.functions.append(None)
        for gv, index in self.numbers.items():
            builder = FunctionBuilder(self, self.mod[gv], gv.name_hint, index)
            self.functions[index] = builder.code()

    def constant(self, data: Any) -> int:
        """The operand of a constant array."""
        found = self.constants.get(id(data))
        if found is None:
            found = self.constants[id(data)] = len(self.arrays)
            self.arrays.append(data)
        return -found - 1


class FunctionBuilder:
    """Writes the instructions of one function."""

    def __init__(
        self,
        emitter: Emitter,
        fn: Function,
        name: str,
        number: int,
        outer: tuple[FunctionBuilder, _Block] | None = None,
        own_name: Var | None = None,
    ) -> None:
        self.emitter, self.fn, self.name, self.number = emitter, fn, name, number
        self.outer, self.own_name = outer, own_name
        self.registers = 0
        self.count = 0
        self.homes: dict[Any, _Block] = {}
        self.symbols: dict[Any, Any] = {}  # symbolic sizes of the program's types and attributes
        self.captures: list[tuple[str, int]] = []
        self.taken: list[Any] = []  # the captured values in the enclosing function
        self._own_slot: int | None = None
        self._inner: dict[Any, Any] = {}  # variables here of sizes of the enclosing function
        self.often_one: list[Any] = []  # the first sizes of parameters: batch sizes
        self.top = _Block()
        self.params: list[tuple[str, int, Any]] = []

    # -- registers and sizes ---------------------------------------------------------------------
    def register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def fresh(self, block: _Block, like: Any = None) -> SizeVar:
        """A new size, which is set in a block; as likely as `like`, a size of the program."""
        likely = number(like) if isinstance(like, PrimExpr) else USUAL_SIZE
        var = SizeVar(f"s{self.count}", "int32", likely=likely)
        self.count += 1
        self.homes[var] = block
        return var

    def visible(self, size: Any, block: _Block) -> bool:
        """Whether a size is defined in a block."""
        around = {id(b) for b in block.upward()}
        return all(id(self.homes.get(s)) in around for s in sizes_in(size))

    def known(self, size: Any, block: _Block) -> Any:
        """A size with known equalities applied."""
        return replaced(size, block.equal) if block.equal and isinstance(size, PrimExpr) else size

    def dim(self, size: Any, block: _Block) -> Any:
        """A size as an operand of instructions; expressions are computed once."""
        size = self.known(size, block)
        if isinstance(size, (int, TirVar)):
            return dim_of(size)
        text = str(size)
        found = block.size(text)
        if found is None:
            made = self.fresh(block)
            found = block.sizes[text] = int(made.name[1:])
            block.body.append(["let", found, dim_of(size)])
        return f"s{found}"

    def opened(self, kind: Any, operand: int, block: _Block, bind: bool = False) -> Value:
        """A value in a register, with variables for the unknown sizes of its type.

        The type is in sizes of this function, or (with `bind`) in the program's symbolic sizes.
        """
        if isinstance(kind, TupleType):
            fields = []
            for i, f in enumerate(kind.fields):
                r = self.register()
                block.body.append(["get", r, operand, i])
                fields.append(self.opened(f, r, block, bind))
            return Value(TupleType(tuple(f.kind for f in fields)), operand, tuple(fields))
        if not isinstance(kind, TensorType):
            return Value(kind, operand)
        dims: list[Any] = []
        for axis, d in enumerate(kind.shape):
            if isinstance(d, int) or not (bind or isinstance(d, AnySize)):
                dims.append(d)
                continue
            var = self.fresh(block, d if bind else None)
            block.body.append(["size", int(var.name[1:]), operand, axis])
            dims.append(self.bound(d, var, block) if bind else var)
        return Value(TensorType(dims, kind.dtype), operand)

    def bound(self, size: Any, var: SizeVar, block: _Block) -> Any:
        """Bind a symbolic size of the program to a size of a parameter."""
        if isinstance(size, AnySize):
            return var
        if isinstance(size, TirVar) and self.symbol(size) is None:
            self.symbols[size] = var
            return var
        if all(self.symbol(s) is not None for s in sizes_in(size)):
            wanted = replaced(size, self.symbols)
            block.body.append(
                [
                    "same",
                    self.dim(wanted, block),
                    var.name,
                    f"the size {size} of the parameters of {self.name}",
                ]
            )
            return wanted
        return var

    # -- the whole -----------------------------------------------------------------------------------
    def code(self) -> FunctionCode:
        """The function."""
        rows = []
        for p in self.fn.params:
            r = self.register()
            rows.append((p, r))
            self.params.append((p.name_hint, r, type_data(p.checked_type)))
        for p, r in rows:
            made = self.top.values[p] = self.opened(p.checked_type, r, self.top, bind=True)
            is_main = self.outer is None and self.name == "main"
            if is_main and isinstance(made.kind, TensorType) and len(made.kind.shape) > 1:
                self.often_one += [d for d in made.kind.shape[:1] if isinstance(d, TirVar)]
        self.tail(self.fn.body, self.top)
        return FunctionCode(
            self.name if self.outer is None else "", self.params, self.captures, self.top.body
        )

    def tail(self, expr: Any, block: _Block) -> None:
        """Instructions for an expression in tail position."""
        while isinstance(expr, Let):
            self.let(expr, block)
            expr = expr.body
        if isinstance(expr, Match) and block.find(expr) is None:
            self.matched(expr, block, lambda branch, side: self.tail_of(branch, side))
            return
        if isinstance(expr, If) and block.find(expr) is None:
            cond = self.operand(self.value(expr.cond, block), block)
            sides = [_Block(block), _Block(block)]
            for side, branch in zip(sides, (expr.true_branch, expr.false_branch), strict=True):
                self.tail_of(branch, side)
            block.body.append(["if", cond, sides[0].body, sides[1].body])
            return
        if isinstance(expr, Call) and _is_function_call(expr) and block.find(expr) is None:
            self.call(expr, block, None)
            return
        block.body.append(["ret", self.operand(self.value(expr, block), block)])

    def tail_of(self, branch: Any, side: _Block) -> None:
        """A branch in tail position."""
        if _is_deep(side, branch):
            self.call(_as_call(branch), side, None)
        else:
            self.tail(branch, side)

    def let(self, at: Let, block: _Block) -> None:
        if isinstance(at.value, Function) and not is_primitive(at.value):
            block.values[at.var] = self.closure(at.value, block, at.var)
        else:
            block.values[at.var] = self.value(at.value, block)

    def value(self, expr: Any, block: _Block) -> Value:
        """The value of an expression; chains of calls are walked without recursion."""
        stack = [expr]
        while stack:
            at = stack[-1]
            if block.find(at) is not None:
                stack.pop()
                continue
            waiting = [b for b in flow_inputs(at) if block.find(b) is None]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            block.values[at] = self.one(at, block)
            stack.pop()
        found = block.find(expr)
        assert found is not None
        return found

    def one(self, e: Any, block: _Block) -> Value:
        """The value of an expression whose operands are evaluated."""
        if isinstance(e, Var):
            return self.captured_value(e)
        if isinstance(e, Constant):
            return Value(e.checked_type, self.emitter.constant(e.data))
        if isinstance(e, Tuple):
            fields = tuple(self.value(f, block) for f in e.fields)
            return Value(TupleType(tuple(f.kind for f in fields)), None, fields)
        if isinstance(e, TupleGetItem):
            return self.part(self.value(e.tuple_value, block), e.index, block)
        if isinstance(e, Function):
            return self.closure(e, block, None)
        if isinstance(e, GlobalVar):
            return self.global_value(e)
        if isinstance(e, Let):
            inner: Any = e
            while isinstance(inner, Let):
                self.let(inner, block)
                inner = inner.body
            return self.value(inner, block)
        if isinstance(e, If):
            return self.joined(e, block)
        if isinstance(e, Match):
            return self.matched_value(e, block)
        if isinstance(e, (RefCreate, RefRead, RefWrite)):
            return self.cell(e, block)
        if isinstance(e, Constructor):
            return self.closure(constructor_function(e), block, None)
        if isinstance(e, Call) and isinstance(e.op, Constructor):
            r = self.register()
            xs = [self.operand(self.value(a, block), block) for a in e.args]
            block.body.append(["data", r, e.op.tag, xs])
            return Value(e.checked_type, r)
        if isinstance(e, Call) and is_primitive(e.op):
            return self.kernel(e, block)
        if isinstance(e, Call) and not isinstance(e.op, RelayOp):
            r = self.register()
            kind = self.call(e, block, r)
            return self.opened(_without_sizes(kind), r, block)
        what = f"the operator {e.op.name}" if isinstance(e, Call) else f"a {type(e).__name__}"
        raise BuildError(f"the virtual machine does not support {what}")

    def global_value(self, gv: GlobalVar) -> Value:
        if gv not in self.emitter.numbers:
            raise BuildError(f"the module has no graph function {gv}")
        return Value(self.emitter.mod[gv].checked_type, None, function=self.emitter.numbers[gv])

    def part(self, value: Value, index: int, block: _Block) -> Value:
        if value.fields is not None:
            return value.fields[index]
        r = self.register()
        block.body.append(["get", r, self.operand(value, block), index])
        return self.opened(value.kind.fields[index], r, block)

    def operand(self, value: Value, block: _Block) -> int:
        """The register of a value; a tuple without a register in this block is built."""
        if value.operand is not None:
            return value.operand
        if value.own:
            return self.own_slot()
        for b in block.upward():
            if value in b.registers:
                return b.registers[value]
        r = block.registers[value] = self.register()
        if value.fields is not None:
            block.body.append(["tuple", r, [self.operand(f, block) for f in value.fields]])
        else:
            assert value.function is not None
            block.body.append(["closure", r, value.function, value.captured])
        return r

    # -- branches ------------------------------------------------------------------------------------
    def joined(self, e: If, block: _Block) -> Value:
        """The value of a branch; sizes that differ between the two sides are read from the result."""
        cond = self.operand(self.value(e.cond, block), block)
        r = self.register()
        kinds = []
        sides = [_Block(block), _Block(block)]
        for side, branch in zip(sides, (e.true_branch, e.false_branch), strict=True):
            kinds.append(self.moved(branch, side, r))
        block.body.append(["if", cond, sides[0].body, sides[1].body])
        return self.opened(self.common(kinds[0], kinds[1], block), r, block)

    def moved(self, branch: Any, side: _Block, r: int) -> Any:
        """Put the value of a branch into a register; returns its type."""
        found = self.value(_as_call(branch) if _is_deep(side, branch) else branch, side)
        side.body.append(["move", r, self.operand(found, side)])
        return found.kind

    def common(self, a: Any, b: Any, block: _Block) -> Any:
        """The join of two types. A size that is equal on both sides stays known."""
        if isinstance(a, TupleType) and isinstance(b, TupleType):
            return TupleType(tuple(self.common(x, y, block) for x, y in zip(a.fields, b.fields, strict=True)))
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            pairs = zip(a.shape, b.shape, strict=True)
            return TensorType(
                [x if same_size(x, y) and self.visible(x, block) else AnySize() for x, y in pairs], a.dtype
            )
        return a

    # -- data and references -------------------------------------------------------------------------
    def matched(self, e: Match, block: _Block, leaf: Callable[[Any, _Block], None]) -> None:
        """A chain of branches, one for each clause; `leaf` writes the value of a clause."""
        data = self.value(e.data, block)
        here = block
        for clause in e.clauses:
            form = form_of(clause.lhs)
            if form is None:
                self.bind_pattern(clause.lhs, data, here)
                leaf(clause.rhs, here)
                return
            yes, no = _Block(here), _Block(here)
            here.body.append(["if", ["is", self.operand(data, here), form], yes.body, no.body])
            self.bind_pattern(clause.lhs, data, yes)
            leaf(clause.rhs, yes)
            here = no
        place = f" at {e.span}" if e.span is not None else ""
        here.body.append(["fail", f"no clause of a `match` has the form of its value{place}"])

    def matched_value(self, e: Match, block: _Block) -> Value:
        r = self.register()
        kinds: list[Any] = []
        self.matched(e, block, lambda branch, side: kinds.append(self.moved(branch, side, r)))
        made = functools.reduce(lambda a, b: self.common(a, b, block), kinds)
        return self.opened(made if len(kinds) > 1 else _without_sizes(e.checked_type), r, block)

    def bind_pattern(self, pattern: Any, value: Value, block: _Block) -> None:
        """The values of the variables of a pattern."""
        if isinstance(pattern, PatternVar):
            block.values[pattern.var] = value
        elif isinstance(pattern, PatternTuple):
            for i, p in enumerate(pattern.patterns):
                self.bind_pattern(p, self.part(value, i, block), block)
        elif isinstance(pattern, PatternConstructor):
            made = pattern.constructor.checked_type
            args = value.kind.args if isinstance(value.kind, TypeCall) else ()
            named = dict(zip(made.type_params, args, strict=False))
            for i, (p, kind) in enumerate(zip(pattern.patterns, made.arg_types, strict=True)):
                if isinstance(p, PatternWildcard):
                    continue
                r = self.register()
                block.body.append(["field", r, self.operand(value, block), i])
                kind = p.var.checked_type if isinstance(p, PatternVar) else substituted(kind, named)
                self.bind_pattern(p, self.opened(_without_sizes(kind), r, block), block)

    def cell(self, e: Any, block: _Block) -> Value:
        xs = [self.operand(self.value(b, block), block) for b in e.children()]
        if isinstance(e, RefWrite):
            block.body.append(["write", *xs])
            return Value(TupleType(), None, ())
        r = self.register()
        block.body.append(["ref" if isinstance(e, RefCreate) else "read", r, *xs])
        if isinstance(e, RefCreate):
            return Value(e.checked_type, r)
        return self.opened(_without_sizes(e.checked_type), r, block)

    # -- functions -----------------------------------------------------------------------------------
    def closure(self, fn: Function, block: _Block, name: Var | None) -> Value:
        number = len(self.emitter.functions)
        self.emitter.functions.append(None)
        inner = FunctionBuilder(self.emitter, fn, self.name, number, (self, block), name)
        self.emitter.functions[number] = inner.code()
        return Value(fn.checked_type, None, function=number, captured=inner.taken)

    def captured_value(self, var: Var) -> Value:
        """A captured variable of the enclosing function, as a register here."""
        if var is self.own_name:
            made = Value(self.fn.checked_type, None, function=self.number, own=True)
            self.top.values[var] = made
            return made
        if self.outer is None:
            raise TVMError(f"the variable %{var.name_hint} has no value")
        above, block = self.outer
        found = above.value(var, block)
        if found.function is not None and not found.captured and not found.own and found.operand is None:
            self.top.values[var] = made = Value(found.kind, None, function=found.function)
            return made
        operand = above.operand(found, block)
        if operand < 0:
            made = Value(found.kind, operand)
        else:
            r = self.register()
            self.captures.append(("r", r))
            self.taken.append(["r", operand])
            made = self.seen_from_inside(found, r)
        self.top.values[var] = made
        return made

    def seen_from_inside(self, value: Value, r: int) -> Value:
        kind = value.kind
        if isinstance(kind, TupleType):
            return self.opened(_without_sizes(kind), r, self.top)
        if isinstance(kind, TensorType):
            return Value(TensorType([self.inner_size(d) for d in kind.shape], kind.dtype), r)
        return Value(kind, r)

    def inner_size(self, size: Any) -> Any:
        """A captured size of the enclosing function, as a variable here."""
        if isinstance(size, int):
            return size
        assert self.outer is not None
        above, block = self.outer
        text = above.dim(size, block)
        if isinstance(text, int):
            return text
        if text not in self._inner:
            var = self._inner[text] = self.fresh(self.top, size)
            self.captures.append(("s", int(var.name[1:])))
            self.taken.append(["s", text])
            if any(size is s for s in above.often_one):
                self.often_one.append(var)
        return self._inner[text]

    def symbol(self, size: Any) -> Any:
        """The value here of a symbolic size of the program, or None."""
        if size not in self.symbols and self.outer is not None:
            found = self.outer[0].symbol(size)
            if found is not None:
                self.symbols[size] = self.inner_size(found)
        return self.symbols.get(size)

    def own_slot(self) -> int:
        if self._own_slot is None:
            self._own_slot = self.register()
            self.captures.append(("r", self._own_slot))
            self.taken.append(["self"])
        return self._own_slot

    def call(self, e: Call, block: _Block, r: int | None) -> Any:
        """A call of a function, a tail call without a register; returns the type of its result."""
        callee = self.value(e.op, block)
        args = [self.value(a, block) for a in e.args]
        kind = callee.kind
        assert isinstance(kind, FuncType)
        for wanted, given in zip(kind.arg_types, args, strict=True):
            self.fit(wanted, given, block)
        xs = [self.operand(a, block) for a in args]
        if callee.own or (callee.function == self.number and self.outer is None):
            block.body.append(["again", xs] if r is None else ["recur", r, xs])
        elif callee.function is not None and ["self"] not in callee.captured:
            head = ["tail"] if r is None else ["call", r]
            block.body.append([*head, callee.function, callee.captured, xs])
        else:
            x = self.operand(callee, block)
            block.body.append(["jump", x, xs] if r is None else ["apply", r, x, xs])
        return e.checked_type

    def fit(self, wanted: Any, given: Value, block: _Block) -> None:
        """Check the sizes that a function assumes and that are not known here."""
        if isinstance(wanted, TupleType) and given.fields is not None:
            for k, f in zip(wanted.fields, given.fields, strict=True):
                self.fit(k, f, block)
        if isinstance(wanted, TensorType) and isinstance(given.kind, TensorType):
            for d, n in zip(wanted.shape, given.kind.shape, strict=True):
                if isinstance(d, int) and not isinstance(n, int):
                    block.body.append(["same", self.dim(n, block), d, "an argument of a function"])

    # -- kernels -------------------------------------------------------------------------------------
    def kernel(self, e: Call, block: _Block) -> Value:
        args = [self.value(a, block) for a in e.args]
        if self.updates_argument(e):
            return self.updated(args, block)
        kinds = [replaced(a.kind, block.equal) if block.equal else a.kind for a in args]
        leaves = [x for a in args for x in self.leaves(a, block)]
        place = leaves, [t for k in kinds for t in tensor_fields(k)]
        named = {s: self.symbol(s) for s in free_sizes(e.op)}
        external = is_external(e.op)
        often_one = [] if external else [*dict.fromkeys(replaced(d, block.equal) for d in self.often_one)]
        site = Site(e.op, kinds, {s: v for s, v in named.items() if v is not None}, often_one)
        name = str(e.op.attrs["global_symbol"]) if external else _label(e.op)
        try:
            cases = find_cases(site)
        except TVMError as error:
            if not any(map(sizes_in, kinds)) and not named:
                raise
            raise BuildError(f"{name}: {error}") from error
        if external:
            _refuse_unknown(name, cases)
        if not cases:
            return self.open(e, leaves, kinds, block)
        general = [c for c in cases if not c.special]
        one = general[0] if len(general) == 1 and not general[0].guards else None
        for check in one.checks if one is not None else ():
            self.check(check, name, block)
        if one is not None and not external and _is_view(one.fn) and len(leaves) == 1:
            return self.view(one.outs[0], leaves[0], block)
        if any(isinstance(d, AnySize) for t in general[0].outs for d in t.shape):
            return self.by_values(e, general, place, block) or self.open(e, leaves, kinds, block)
        return self.cases(e, cases, place, name, block)

    def leaves(self, value: Value, block: _Block) -> list[int]:
        """The registers of the tensors in a value."""
        if isinstance(value.kind, TupleType):
            parts = [self.part(value, i, block) for i in range(len(value.kind.fields))]
            return [x for p in parts for x in self.leaves(p, block)]
        return [self.operand(value, block)]

    def check(self, check: Check, name: str, block: _Block) -> None:
        a, b = self.known(check.a, block), self.known(check.b, block)
        if same_size(a, b):
            return
        if check.least:
            if not same_size(least(a, b), b):
                block.body.append(["least", self.dim(a, block), self.dim(b, block), f"{name}: {check.least}"])
            return
        block.body.append(["same", self.dim(a, block), self.dim(b, block), name])
        found = solution(a, b)
        if found is not None:
            x, y = found
            block.equal = {v: replaced(e, {x: y}) for v, e in block.equal.items()}
            block.equal[x] = y

    def view(self, kind: TensorType, operand: int, block: _Block) -> Value:
        r = self.register()
        block.body.append(["view", r, operand, [self.dim(d, block) for d in kind.shape]])
        return Value(kind, r)

    def updates_argument(self, e: Call) -> bool:
        """Whether a kernel only replaces rows of an argument of the program that has no other use."""
        if self.outer is not None or self.name != "main":
            return False
        calls = [c for c in inner_order(e.op) if isinstance(c, Call)]
        if len(calls) != 1 or not is_call(calls[0], cache_update) or calls[0].args != e.op.params:
            return False
        cache = e.args[0]
        return any(cache is p for p in self.fn.params) and self.uses[cache] == 1

    @functools.cached_property
    def uses(self) -> dict[Any, int]:
        return use_counts(self.fn.body)

    def updated(self, args: list[Value], block: _Block) -> Value:
        """A tensor of the caller's, into which rows are written: the last ones, or those at some positions."""
        cache, rows, *positions = args
        for a, b in zip(cache.kind.shape[1:], rows.kind.shape[1:], strict=True):
            self.check(Check(a, b), "the rows of a KV cache", block)
        r = self.register()
        operands = [self.operand(v, block) for v in args]
        block.body.append(["put" if positions else "update", r, *operands])
        return Value(cache.kind, r)

    def run(
        self, e: Call, case: Case, site: _Place, outs: list[tuple[int, TensorType]], block: _Block
    ) -> None:
        """The instruction that calls a kernel; it is completed when the kernel is compiled."""
        leaves, kinds = site
        given = [
            a if isinstance(a, Constant) else None
            for arg in e.args
            for a in ([arg] if isinstance(arg, Constant) else [None] * len(tensor_fields(arg.checked_type)))
        ]
        args = [x if c is None else c for x, c in zip(leaves, given, strict=True)]
        rows = [[r, str(t.dtype), [self.dim(d, block) for d in t.shape]] for r, t in outs]
        seen = kinds if case.inputs is None else case.inputs
        inputs = [[self.dim(d, block) for d in t.shape] for t in seen]
        extras = [self.dim(d, block) for d in case.extras]
        pending = PendingRun(case, args, inputs, rows, extras, _label(e.op), self.number, nodes_of(e.op))
        self.emitter.pending.append(pending)
        block.body.append(["run", pending])

    def cases(self, e: Call, cases: list[Case], place: _Place, name: str, block: _Block) -> Value:
        """A call of one kernel, or a switch over several by the sizes."""
        registers = [self.register() for _ in cases[0].outs]
        general = [c for c in cases if not c.special]
        if len(cases) == 1 and not cases[0].guards:
            outs = [replaced(t, block.equal) for t in cases[0].outs]
            self.run(e, cases[0], place, list(zip(registers, outs, strict=True)), block)
            return _shaped(e.checked_type, iter([Value(t, r) for t, r in zip(outs, registers, strict=True)]))
        rows = []
        for case in cases:
            side = _Block(block)
            for check in case.checks:
                self.check(check, name, side)
            self.run(e, case, place, list(zip(registers, case.outs, strict=True)), side)
            pairs = [[self.dim(a, block), self.dim(b, block)] for a, b in case.guards]
            self.emitter.pending[-1].group = (self.number, str(pairs), len(general) > 1)
            rows.append([pairs, side.body])
        more = any(c.more for c in general)
        if more:
            rest = PendingOpen(e.op, place[0], registers, [], spare=True)
            rows.append([[], [["open", rest, list(place[0]), registers]]])
        block.body.append(["switch", rows, name])
        made = []
        for i, r in enumerate(registers):
            shapes = [replaced(c.outs[i], block.equal).shape for c in general]
            dims = [
                d[0] if not more and all(same_size(d[0], x) for x in d) else AnySize()
                for d in zip(*shapes, strict=True)
            ]
            made.append(self.opened(TensorType(dims, cases[0].outs[i].dtype), r, block))
        return _shaped(e.checked_type, iter(made))

    def by_values(self, e: Call, cases: list[Case], place: _Place, block: _Block) -> Value | None:
        """A kernel whose result sizes depend on values: a shape function computes them first."""
        calls = [c for c in inner_order(e.op) if isinstance(c, Call)]
        if len(calls) != 1 or calls[0].op.name not in SHAPE_FUNCTIONS or len(cases) != 1:
            return None
        (case,), (call,) = cases, calls
        places = [_operands(a, e.op, place[0], self.emitter) for a in call.args]
        if any(p is None for p in places):
            return None
        xs = [x for p in places if p is not None for x in p]
        attrs = {
            k: v if isinstance(v, (int, float, bool)) or v is None else _plain(v)
            for k, v in call.attrs.items()
        }
        sizes: list[int] = []
        outs = []
        for t in case.outs:
            found = [self.fresh(block) for _ in t.shape]
            sizes += [int(s.name[1:]) for s in found]
            dims = [s if isinstance(d, AnySize) else d for s, d in zip(found, t.shape, strict=True)]
            outs.append(TensorType(dims, t.dtype))
        block.body.append(["shapes", sizes, call.op.name, attrs, xs])
        if traits_of(call).view:
            return self.view(outs[0], xs[0], block)
        registers = [self.register() for _ in outs]
        self.run(e, case, place, list(zip(registers, outs, strict=True)), block)
        return _shaped(e.checked_type, iter([Value(t, r) for t, r in zip(outs, registers, strict=True)]))

    def open(self, e: Call, leaves: list[int], kinds: list[Any], block: _Block) -> Value:
        """A kernel that is compiled at run time for concrete sizes."""
        outs = [self.register() for _ in tensor_fields(e.checked_type)]
        block.body.append(["open", PendingOpen(e.op, leaves, outs, kinds), list(leaves), outs])
        made = [
            self.opened(_without_sizes(t), r, block)
            for t, r in zip(tensor_fields(e.checked_type), outs, strict=True)
        ]
        return _shaped(e.checked_type, iter(made))


def _refuse_unknown(name: str, cases: list[Case]) -> None:
    """Refuse a function of another code generator whose results have sizes that only its values determine."""
    if not cases or any(isinstance(d, AnySize) for c in cases for t in c.outs for d in t.shape):
        raise BuildError(
            f"{name}: the sizes of its results depend on values, so that no memory can be given to its code generator; "
            "leave the operator that makes them out of its region"
        )


def _is_deep(block: _Block, branch: Any) -> bool:
    """Whether a branch should become a function: Python's parser allows a hundred levels."""
    return block.depth > _DEEP and not isinstance(branch, (Var, Constant))


def _as_call(branch: Any) -> Call:
    """A call of a function that returns the value of a branch."""
    fn = Function([], branch, branch.checked_type)
    set_checked_type(fn, FuncType((), branch.checked_type))
    call = Call(fn, [])
    set_checked_type(call, branch.checked_type)
    return call


def _is_function_call(e: Call) -> bool:
    return not is_primitive(e.op) and not isinstance(e.op, (RelayOp, Constructor))


def _label(fn: Function) -> str:
    return ", ".join(c.op.name for c in inner_order(fn) if isinstance(c, Call) and isinstance(c.op, RelayOp))


def _without_sizes(kind: Any) -> Any:
    """A type with its symbolic sizes unknown."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(map(_without_sizes, kind.fields)))
    if isinstance(kind, TensorType):
        return TensorType([d if isinstance(d, int) else AnySize() for d in kind.shape], kind.dtype)
    return kind


def _shaped(kind: Any, values: Iterator[Value]) -> Value:
    if isinstance(kind, TupleType):
        fields = tuple(_shaped(f, values) for f in kind.fields)
        return Value(TupleType(tuple(f.kind for f in fields)), None, fields)
    return next(values)


def _operands(arg: Any, fn: Function, leaves: Sequence[int], emitter: Emitter) -> list[int] | None:
    """The operands of an argument of the only call of a fused function."""
    if isinstance(arg, Constant):
        return [emitter.constant(arg.data)]
    at = 0
    for p in fn.params:
        count = len(tensor_fields(p.checked_type))
        if p is arg:
            return list(leaves[at : at + count])
        at += count
    return None


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else str(value)


def type_data(kind: Any) -> Any:
    """A type in the encoding of programs."""
    if isinstance(kind, TensorType):
        return ["tensor", str(kind.dtype), [int(d) if isinstance(d, int) else None for d in kind.shape]]
    if isinstance(kind, TupleType):
        return ["tuple", [type_data(f) for f in kind.fields]]
    return ["function"] if isinstance(kind, FuncType) else ["value"]
