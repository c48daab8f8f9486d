"""Element by element arithmetic on a memory of the chip, as commands of its vector unit."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from ...arith import Analyzer, detect_linear_equation
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import Add, BufferLoad, Call, Cast, Max, Min, Mul, PrimExpr, Sub, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order
from ...ir.op import Op
from ...ir.ops import add, call, floordiv, floormod, max_of, min_of, mul, shift_right, sub
from ...ir.stmt import AttrStmt, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, seq
from ...target.accelerator import Accelerator, Scope, VectorUnit
from .dma_commands import command, pointer
from .inject_copy_intrin import apart, bounds_of, taken_apart

_NAMES: dict[type, str] = {Add: "add", Sub: "sub", Mul: "mul", Min: "min", Max: "max"}
_COMMUTE = frozenset({"add", "mul", "min", "max"})
_SHIFTS = {Op.get("tir.shift_right"): "shift_right", Op.get("tir.shift_left"): "shift_left"}
_MAKE = {"add": add, "sub": sub, "mul": mul, "min": min_of, "max": max_of, "shift_right": shift_right}

PRAGMAS = ("vector_unit", "alu")  # the second name is the classic one


def vector_commands(func: PrimFunc, chip: Accelerator, pragma_keys: tuple[str, ...] = PRAGMAS) -> PrimFunc:
    """Replace each nest marked by the pragma with commands of the chip's vector unit.

        # pragma_vector_unit                            # attr coproc_scope = 2
        for i, j in T.grid(64, 16):                     for i in range(64):
            C[i*16 + j]                        ->           # attr instruction = alu("shr", C[i*16], A[i*16], 8)
                = T.min(A[i*16 + j] >> 8, 127)              for lane in range(16): C[i*16 + lane] = A[i*16 + lane] >> 8
                                                        # attr coproc_scope = 2
                                                        for i in range(64):
                                                            # attr instruction = alu("min", C[i*16], C[i*16], 127)
                                                            …

    An expression of several operations becomes as many commands, which work in place on the result. Where the unit
    overwrites its first operand, that operand is copied first; placing memory removes the copy where it can. Loops that
    are contiguous for all operands become one. A loop around several statements, as the init and the update of a
    reduction, stays a loop of the host, and so do loops beyond those that an instruction runs.

    Needs: flat buffers. Gives: no such pragma.
    """
    return _Inject(chip, frozenset(f"pragma_{key.removeprefix('pragma_')}" for key in pragma_keys)).run(func)


class _Access(NamedTuple):
    """An operand: a vector of a buffer, at `base` plus strides times the loops."""

    buffer: Buffer
    strides: list[int]
    base: PrimExpr


class _Inject(Mutator):
    def __init__(self, chip: Accelerator, keys: frozenset[str]) -> None:
        self.chip, self.keys, self.ana = chip, keys, Analyzer()

    def visit_For(self, n: For) -> Stmt:
        self.ana.bind_loop(n.loop_var, n.min, n.extent)
        return self.visit_children(n)  # type: ignore[no-any-return]

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key not in self.keys:
            return self.visit_children(n)  # type: ignore[no-any-return]
        return self._each(n.body)

    def _each(self, s: Stmt) -> Stmt:
        """The commands for each nest under a mark; a loop around several of them stays a loop of the host."""
        if isinstance(s, SeqStmt):
            return seq(*[self._each(x) for x in s.seq])
        if isinstance(s, For) and _several(s):
            self.ana.bind_loop(s.loop_var, s.min, s.extent)
            return s.replace(body=self._each(s.body))
        return _Nest(self.chip, self.ana, s).statement()


def _several(s: Stmt) -> bool:
    while isinstance(s, For):
        s = s.body
    return isinstance(s, SeqStmt)


class _Nest:
    """A marked nest: its loops, and the vector operations that its value takes."""

    def __init__(self, chip: Accelerator, ana: Analyzer, nest: Stmt) -> None:
        self.chip, self.ana, self.nest = chip, ana, nest
        loops, store, conditions = taken_apart(nest)
        if store is None:
            self.refuse(
                "it is not a nest of loops around one store",
                "mark a stage that computes one value for each element",
            )
        self.store, self.loops = store, loops
        unit = chip.unit(store.buffer.scope_name)
        if unit is None:
            able = ", ".join(sorted({u.scope for u in chip.vector_units})) or "none"
            self.refuse(
                f"{chip.name} has no vector unit for {store.buffer.name}, which is in {store.buffer.scope_name}",
                f"its vector units work on: {able}; set the scope of the stage",
            )
        self.unit: VectorUnit = unit
        self.scope: Scope = chip.scope(unit.scope)  # type: ignore[assignment]
        self.computes_floats = "float" in self.scope.dtype
        variables = [x.loop_var for x in loops]
        self.around, conditions = apart(conditions, variables)
        found = bounds_of(ana, conditions, variables)
        if isinstance(found, PrimExpr):
            self.refuse(
                f"its condition `{found}` is not a bound of one of its loops", "split so that tiles are boxes"
            )
        self.firsts, self.extents = [], []
        for x, (low, high) in zip(loops, found, strict=True):
            first = x.min if low is None else max_of(x.min, low)
            stop = add(x.min, x.extent) if high is None else min_of(add(x.min, x.extent), add(high, 1))
            self.firsts.append(ana.simplify(first))
            self.extents.append(ana.simplify(sub(stop, first)))
        self.to = self.access(store)
        self.split_lanes()

    def refuse(self, why: str, hint: str) -> NoReturn:
        text = "\n".join(f"  | {s}" for s in self.nest.script().splitlines() if s and not s.startswith("#"))
        raise LoweringError(f"vector unit of {self.chip.name}: {why}\n\n{text}\n\n  hint: {hint}")

    def access(self, n: Any) -> _Access:
        """The place of a load or store along the loops."""
        b = n.buffer
        if b.scope_name != self.unit.scope:
            self.refuse(
                f"{b.name} is in {'DRAM' if b.scope_name == 'global' else b.scope_name}, not in {self.unit.scope}",
                f"copy it to a buffer in {self.unit.scope} first",
            )
        if str(b.dtype) != self.scope.dtype:
            self.refuse(f"{b.name} has type {b.dtype}", f"the vector unit computes with {self.scope.dtype}")
        found = detect_linear_equation(n.indices[0], [x.loop_var for x in self.loops])
        if not found or any(not isinstance(const_value(k), int) for k in found[:-1]):
            self.refuse(
                f"the index `{n.indices[0]}` of {b.name} is not linear in the loops", "split so that it is"
            )
        base = found[-1]
        strides = [int(const_value(k)) for k in found[:-1]]  # type: ignore[arg-type]
        for first, k in zip(self.firsts, strides, strict=True):
            base = add(base, mul(first, k))
        return _Access(b, strides, self.ana.simplify(base))

    def split_lanes(self) -> None:
        """Take the lanes of an element out of the innermost loops of the result."""
        lanes, left, stride = self.scope.lanes, self.scope.lanes, 1
        order = sorted(range(len(self.loops)), key=lambda i: self.to.strides[i])
        self.lane: list[tuple[int, int]] = []  # loops inside an element, with the part of its extent
        for i in order:
            size = const_value(self.extents[i])
            if left == 1:
                break
            if self.to.strides[i] == 0:  # it accumulates, or runs once
                continue
            if self.to.strides[i] != stride or not isinstance(size, int) or (left % size and size % left):
                self.refuse(
                    f"its innermost elements do not fill vectors of {lanes} lanes",
                    f"the last dimensions of {self.to.buffer.name} must be the {lanes} lanes of an element",
                )
            part = min(size, left)
            self.lane.append((i, part))
            left, stride = left // part, stride * part
        if left > 1:
            self.refuse(
                f"its innermost elements do not fill vectors of {lanes} lanes",
                f"the last dimensions of {self.to.buffer.name} must be the {lanes} lanes of an element",
            )

    # -- commands -------------------------------------------------------------------------------
    def statement(self) -> Stmt:
        for load in [n for n in pre_order(self.store.value) if isinstance(n, BufferLoad)]:
            if load.buffer is self.store.buffer and not self.same(self.access(load), self.to):
                self.refuse(
                    f"it reads `{load}`, another element of its result", "write to a buffer of its own"
                )
        steps = self.steps(self.store.value)
        repeats = any(
            k == 0 and const_value(n) != 1 for k, n in zip(self.to.strides, self.extents, strict=True)
        )
        if repeats and len(steps) > 1:
            self.refuse(
                f"`{self.store.value}` is accumulated over loops, and takes more than one operation",
                "compute the operand in a stage of its own",
            )
        made = seq(*steps)
        return made if self.around is None else IfThenElse(self.around, made)

    def steps(self, value: PrimExpr) -> list[Stmt]:
        """The commands that put a value into the result."""
        while isinstance(value, Cast) and str(value.dtype) == self.scope.dtype == str(value.value.dtype):
            value = value.value
        if isinstance(value, BufferLoad):
            found = self.access(value)
            return [] if self.same(found, self.to) else [self.copied(found)]
        constant = const_value(value)
        if constant is not None:
            return self.filled(constant)
        name, a, b = self.operands(value)
        if name == "add" and "multiply_add" in self.unit.operations:
            for kept, other in ((a, b), (b, a)):
                if self.accumulates(kept, other):
                    return [self.one("multiply_add", self.access(other.a), self.access(other.b))]  # type: ignore[attr-defined]
        if const_value(a) is not None and name in _COMMUTE:
            a, b = b, a
        number = self.immediate(name, b) if const_value(b) is not None else None
        if number is not None:
            name, amount = number
            if isinstance(a, BufferLoad):
                return [self.one(name, self.access(a), amount)]
            return [*self.steps(a), self.one(name, self.to, amount)]
        if not isinstance(b, BufferLoad) and isinstance(a, BufferLoad) and name in _COMMUTE:
            a, b = b, a
        if not isinstance(b, BufferLoad):
            self.refuse(
                f"`{value}` needs a second vector for `{b}`", "compute a part of it in a stage of its own"
            )
        second = self.access(b)
        if name == "sub" and "sub" not in self.unit.operations:
            return self.difference(a, second, value)
        if isinstance(a, BufferLoad) and self.unit.addresses == 3:
            return [self.one(name, self.access(a), second)]
        if b.buffer is self.store.buffer:
            if not isinstance(a, BufferLoad) or name not in _COMMUTE:
                self.no_room(value)
            return [self.one(name, self.to, self.access(a))]
        return [*self.steps(a), self.one(name, self.to, second)]

    def difference(self, a: PrimExpr, second: _Access, value: PrimExpr) -> list[Stmt]:
        """A difference for units that have none: `-b + a`, or `-(-a + b)` where `a` must be computed first."""
        if const_value(a) is not None:
            return [self.one("mul", second, -1), self.one("add", self.to, self.immediate("add", a)[1])]
        if isinstance(a, BufferLoad) and a.buffer is not self.store.buffer:
            return [self.one("mul", second, -1), self.one("add", self.to, self.access(a))]
        if second.buffer is self.store.buffer:
            self.no_room(value)
        first = [*self.steps(a), self.one("mul", self.to, -1)]
        return [*first, self.one("add", self.to, second), self.one("mul", self.to, -1)]

    def same(self, a: _Access, b: _Access) -> bool:
        return a.buffer is b.buffer and a.strides == b.strides and self.ana.can_prove_equal(a.base, b.base)

    def accumulates(self, kept: PrimExpr, other: PrimExpr) -> bool:
        """Whether a sum adds a product of two vectors to the result."""
        return (
            isinstance(kept, BufferLoad)
            and isinstance(other, Mul)
            and isinstance(other.a, BufferLoad)
            and isinstance(other.b, BufferLoad)
            and self.same(self.access(kept), self.to)
        )

    def copied(self, a: _Access) -> Stmt:
        """A copy: by an instruction of its own, or a sum with 0, which would turn a float -0 into 0."""
        if "copy" in self.unit.operations or self.computes_floats:
            return self.one("copy", a, None)
        return self.one("add", a, 0)

    def filled(self, number: float) -> list[Stmt]:
        """A constant: by an instruction of its own, or a product with 0, whatever was there before, and a sum; in two
        halves if it is long."""
        if "fill" in self.unit.operations or self.computes_floats:  # a product of 0 and infinity is not 0
            return [self.one("fill", None, self.immediate("fill", const(number, self.scope.dtype))[1])]
        number, bits = int(number), self.unit.immediate
        zero = self.one("mul", self.to, 0)
        if -(1 << bits - 1) <= number < 1 << bits - 1 or self.scope.dtype != "int32" or bits != 16:
            return (
                [zero, self.one("add", self.to, self.immediate("add", const(number))[1])]
                if number
                else [zero]
            )
        low = (number + 0x8000) % 0x10000 - 0x8000
        high = (((number - low) >> 16) + 0x8000) % 0x10000 - 0x8000
        steps = [zero, self.one("add", self.to, high), self.one("shift_right", self.to, -16)]
        return [*steps, self.one("add", self.to, low)] if low else steps

    def no_room(self, value: PrimExpr) -> NoReturn:
        self.refuse(
            f"`{value}` overwrites an operand that it still needs",
            "compute a part of it in a stage of its own",
        )

    def operands(self, value: PrimExpr) -> tuple[str, PrimExpr, PrimExpr]:
        kind = _NAMES.get(value.__class__)
        if kind is not None:
            return kind, value.a, value.b  # type: ignore[attr-defined]
        if isinstance(value, Call) and value.op in _SHIFTS:
            return _SHIFTS[value.op], value.args[0], value.args[1]
        able = ", ".join(sorted(self.unit.operations))
        self.refuse(
            f"it has no instruction for `{value}`", f"the unit computes: {able}; leave this stage to the host"
        )

    def immediate(self, name: str, b: PrimExpr) -> tuple[str, float]:
        """An operation with a constant as one of the unit's operations with an immediate operand."""
        number, bits = const_value(b), self.unit.immediate
        assert number is not None
        if name == "sub" and "sub" not in self.unit.operations:
            name, number = "add", -number
        if name == "shift_left" and "shift_left" not in self.unit.operations:
            name, number = "shift_right", -number
        if self.computes_floats:
            fits = bits >= DataType(self.scope.dtype).bits
        else:
            number = int(number)
            fits = -(1 << bits - 1) <= number < 1 << bits - 1
        if not fits:
            self.refuse(
                f"the constant {number} does not fit an immediate operand of {bits} bits",
                "keep it in a buffer, or use a smaller one",
            )
        return name, number

    def one(self, name: str, a: _Access | None, b: _Access | float | None) -> Stmt:
        """One vector operation over the loops; a copy has no second operand and a constant no first one."""
        if name not in self.unit.operations:
            able = ", ".join(sorted(self.unit.operations))
            self.refuse(f"it has no instruction for {name}", f"the unit computes: {able}")
        accesses = [x for x in (self.to, a, b) if isinstance(x, _Access)]
        for x in accesses[1:]:
            if any(x.strides[i] != self.to.strides[i] for i, _ in self.lane):
                self.refuse(
                    f"the lanes of {x.buffer.name} and {self.to.buffer.name} are in different order",
                    "operands must have the layout of the result",
                )
        loops = self.fused(accesses)
        outer = [For(Var(n.name, "int32"), 0, n.extent, ForKind.SERIAL, self.nest) for n in loops]
        lane = Var("lane", "int32")

        def start(x: _Access) -> PrimExpr:
            number, at = next(i for i, y in enumerate(accesses) if y is x), x.base
            for loop, of in zip(outer, loops, strict=True):
                at = add(at, mul(loop.loop_var, of.strides[number]))
            return self.ana.simplify(at)  # type: ignore[no-any-return]

        def load(x: _Access) -> PrimExpr:
            return BufferLoad(x.buffer, (along(x),))

        def along(x: _Access) -> PrimExpr:
            """The index of a lane: operands may repeat along the loops inside an element."""
            at, stride = start(x), 1
            for i, part in self.lane:
                digit = lane if len(self.lane) == 1 else _digit(lane, stride, part)
                at = add(at, mul(digit, x.strides[i]))
                stride *= part
            return self.ana.simplify(at)  # type: ignore[no-any-return]

        first = None if a is None else load(a)
        other = load(b) if isinstance(b, _Access) else const(b or 0, self.scope.dtype)
        kept = load(self.to) if name == "multiply_add" else None
        lanes = self.scope.lanes
        meaning: Stmt = BufferStore(self.to.buffer, _value(name, first, other, kept), [along(self.to)])
        meaning = For(lane, 0, lanes, ForKind.SERIAL, meaning) if lanes > 1 else meaning

        def operand(x: _Access | float | None) -> PrimExpr:
            if isinstance(x, _Access):
                return pointer(x.buffer, start(x), lanes, 1)
            return const(x or 0, self.scope.dtype if isinstance(x, float) else "int32")

        result = pointer(self.to.buffer, start(self.to), lanes, 2 if kept is None else 3)
        operands = [self.unit.operations[name], result, operand(a), operand(b)]
        hosts = 0 if self.unit.loops is None else max(0, len(outer) - self.unit.loops)
        made = command(self.unit.engine, self.unit.name, operands, meaning, outer[hosts:])
        for loop in reversed(outer[:hosts]):
            made = loop.replace(body=made)
        return made

    def fused(self, accesses: list[_Access]) -> list[_Loop]:
        """The loops over vectors, those that are contiguous for all operands as one."""
        inside, out = dict(self.lane), list[_Loop]()
        for i, x in enumerate(self.loops):
            part = inside.get(i, 1)
            extent = self.extents[i] if part == 1 else const(int(const_value(self.extents[i])) // part)  # type: ignore[arg-type]
            if const_value(extent) == 1:
                continue
            strides = tuple(y.strides[i] * part for y in accesses)
            before, size = out[-1] if out else None, const_value(extent)
            if (
                before is not None
                and isinstance(size, int)
                and before.strides == tuple(k * size for k in strides)
            ):
                out[-1] = _Loop(before.name, self.ana.simplify(mul(before.extent, extent)), strides)
            else:
                out.append(_Loop(x.loop_var.name, extent, strides))
        return out


class _Loop(NamedTuple):
    """A loop over vectors, with a stride for each operand."""

    name: str
    extent: PrimExpr
    strides: tuple[int, ...]


def _value(name: str, first: PrimExpr | None, other: PrimExpr, kept: PrimExpr | None) -> PrimExpr:
    """The value that an operation stores."""
    if first is None:
        return other
    if name == "copy":
        return first
    if kept is not None:
        return add(kept, mul(first, other))
    number = const_value(other) if first.dtype.is_integral else None
    if number == 0 and name in ("add", "mul"):
        return first if name == "add" else other
    if name == "shift_right" and isinstance(number, int) and number < 0:
        return call(first.dtype, "tir.shift_left", first, const(-number, first.dtype))
    return _MAKE[name](first, other)


def _digit(lane: Var, stride: int, part: int) -> PrimExpr:
    """A digit of a lane's number."""
    return floormod(floordiv(lane, stride), part)
