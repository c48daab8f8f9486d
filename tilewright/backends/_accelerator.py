"""What accelerators with engines have in common: how programs are lowered for them, and the commands of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from ..arith import detect_linear_equation
from ..ir.errors import BuildError
from ..ir.expr import BufferLoad, Call, FloatImm, PrimExpr, StringImm, Var, const_value
from ..ir.function import PrimFunc
from ..ir.functor import pre_order
from ..ir.op import Op
from ..ir.stmt import BufferStore, For, Stmt
from ..ir.transform import Pass
from ..runtime.accelerator import Address, Argument, Command
from ..target.accelerator import DRAM, Accelerator, Scope
from ..tir import transform as T
from ..tir.analysis.commands import Site, Token, engine_of, instruction_of, sites, token_of
from . import Pipeline, Step
from ._cpu import LOWERING

_ACCESS_PTR = Op.get("tir.tvm_access_ptr")


def _for_chip(make: Callable[..., Pass]) -> Step:
    """A pass that reads the description of the chip."""
    return lambda target: make(target.accelerator) if target is not None else None


PIPELINE: Final = Pipeline(
    blocks=LOWERING.blocks,
    storage=(T.FlattenBuffer(), T.Simplify()),
    loops=(
        T.RemoveNoOp(),
        T.VersionBuffers(),
        _for_chip(T.DMACommands),
        _for_chip(T.VectorCommands),
        T.FoldUopLoop(),
        T.InjectVirtualThread(),
        _for_chip(T.PlaceScopes),
        T.Simplify(),
        _for_chip(T.CoProcSync),
    ),
    clean=(),
)


# ---------------------------------------------------------------------------- the commands of a lowered function
class Place(NamedTuple):
    """An operand in memory: an element of a memory of the chip, or an address in DRAM.

    `strides` are the distances along the loops of the command, in the same units.
    """

    scope: str
    at: Any  # the number of an element, or an Address
    strides: tuple[int, ...]


class Issued(NamedTuple):
    """A command before the chip gives it its fields: operands in the order of the instruction, and its loops."""

    engine: int
    name: str
    operands: tuple[Any, ...]
    extents: tuple[int, ...]
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


def commands_of(
    func: PrimFunc, chip: Accelerator, encode: Callable[[Issued], tuple[str, dict[str, Any]]]
) -> list[Command]:
    """All commands that a lowered function issues, in program order; `encode` gives the name and fields of one.

    A command named `nop` has no fields: its engine only passes tokens on.
    """
    found = sites(func.body)
    arguments = arguments_by_pointer(func)
    events: list[tuple[int, Any]] = []
    for s in found:
        token = token_of(s.statement)
        if token is not None:
            events += [(int(n), token) for n in s.order]
        else:
            events += zip((int(n) for n in s.order), _issued(s, chip, arguments), strict=True)
    events.sort(key=lambda e: e[0])
    return with_tokens([e for _, e in events], encode)


def arguments_of(func: PrimFunc, chip: Accelerator) -> list[Argument]:
    """The arrays that a lowered function takes, with their directions."""
    read, written = set(), set()
    for n in pre_order(func.body):
        if isinstance(n, BufferLoad):
            read.add(n.buffer.data)
        elif isinstance(n, BufferStore):
            written.add(n.buffer.data)
    out = []
    for p in func.params:
        b = func.buffer_map.get(p)
        if b is None:
            raise BuildError(
                f"{chip.name}: parameter {p.name} is not an array; the commands of a program are fixed"
            )
        shape = tuple(const_value(n) for n in b.shape)
        if any(not isinstance(n, int) for n in shape):
            raise BuildError(
                f"{chip.name}: the shape of {b.name} is not constant; the commands of a program are fixed"
            )
        direction = "inout" if b.data in read & written else "out" if b.data in written else "in"
        out.append(Argument(b.name, str(b.dtype), shape, direction))  # type: ignore[arg-type]
    return out


def with_tokens(
    events: list[Issued | Token], encode: Callable[[Issued], tuple[str, dict[str, Any]]]
) -> list[Command]:
    """The commands with the tokens before and behind them.

    An engine that pops a token and pushes one without a command in between gets the command `nop`.
    """
    out: list[Command] = []
    pending: dict[int, list[int]] = {}
    last: dict[int, int] = {}

    def issue(engine: int, name: str, fields: dict[str, Any]) -> None:
        out.append(Command(engine, name, fields, tuple(pending.pop(engine, ())), ()))
        last[engine] = len(out) - 1

    for e in events:
        if isinstance(e, Issued):
            issue(e.engine, *encode(e))
        elif e.pushes:
            if e.source in pending:  # it passes a token on
                issue(e.source, "nop", {})
            at = last[e.source]
            out[at] = out[at]._replace(pushes=(*out[at].pushes, e.target))
        else:
            pending.setdefault(e.target, []).append(e.source)
    return out


class Pointer(NamedTuple):
    """An operand in memory as an expression of the loops around its command: the index of a scalar.

    `unit` is the number of scalars of an element, or of bytes of a scalar in DRAM; `strides` are those of a `Place`.
    """

    scope: Scope | None  # None for DRAM
    argument: int  # of an array in DRAM
    at: PrimExpr
    unit: int
    strides: tuple[int, ...]


class Form(NamedTuple):
    """A command with expressions in it: its operands are text, numbers and pointers, and `loops` are its own."""

    engine: int
    name: str
    operands: tuple[str | PrimExpr | Pointer, ...]
    loops: tuple[For, ...]


def arguments_by_pointer(func: PrimFunc) -> dict[Var, int]:
    """The numbers of the arrays that a function takes."""
    return {func.buffer_map[p].data: i for i, p in enumerate(func.params) if p in func.buffer_map}


def form_of(s: Stmt, chip: Accelerator, arguments: dict[Var, int]) -> Form:
    """The instruction of a command, its operands and its loops."""
    loops: list[For] = []
    at: Any = s.body  # type: ignore[attr-defined]
    while isinstance(at, For):
        loops.append(at)
        at = at.body
    found, number = instruction_of(at), engine_of(s)
    assert number is not None
    if found is None:
        line = s.script().splitlines()[-1].strip()
        raise BuildError(
            f"{chip.name}: a command of engine {chip.engine(number).name} has no instruction\n  | {line}\n"
            "  hint: tensorize it with an intrinsic of the chip, or mark it for its DMA or vector unit"
        )
    operands = tuple(_operand(a, loops, chip, arguments) for a in found.operands)
    return Form(number, found.name, operands, tuple(loops))


def _operand(
    e: PrimExpr, loops: list[For], chip: Accelerator, arguments: dict[Var, int]
) -> str | PrimExpr | Pointer:
    if isinstance(e, StringImm):
        return e.value
    if not (isinstance(e, Call) and e.op is _ACCESS_PTR):
        return e
    kind, data, offset = e.args[:3]
    assert isinstance(data, Var)
    linear = detect_linear_equation(offset, [x.loop_var for x in loops])
    if not linear or any(not isinstance(const_value(k), int) for k in linear[:-1]):
        raise BuildError(f"{chip.name}: the address `{offset}` is not linear in the loops of its command")
    strides = [int(const_value(k)) for k in linear[:-1]]  # type: ignore[arg-type]
    scope = chip.scope(getattr(data.type_annotation, "storage_scope", "") or DRAM)
    if scope is None:
        size = kind.dtype.nbytes
        return Pointer(None, arguments[data], linear[-1], size, tuple(k * size for k in strides))
    if any(k % scope.lanes for k in strides):
        _refuse_parts(chip, scope, linear[-1], strides)
    return Pointer(scope, -1, linear[-1], scope.lanes, tuple(k // scope.lanes for k in strides))


def _refuse_parts(chip: Accelerator, scope: Scope, at: Any, strides: Sequence[int]) -> NoReturn:
    raise BuildError(
        f"{chip.name}: an operand in {scope.name} does not start at an element of {scope.lanes} lanes: offset "
        f"{at}, strides {list(strides)}\n  hint: the intrinsic takes whole elements; tile so that tiles are"
    )


def _issued(s: Site, chip: Accelerator, arguments: dict[Var, int]) -> list[Issued]:
    """A command for each time that a site is reached."""
    form = form_of(s.statement, chip, arguments)
    extents = zip(*(s.evaluate(x.extent) for x in form.loops)) if form.loops else [()] * s.times
    columns = [_values(x, s, chip) for x in form.operands]
    return [
        Issued(form.engine, form.name, tuple(c[t] for c in columns), tuple(map(int, sizes)), (), ())
        for t, sizes in enumerate(extents)
    ]


def _values(e: str | PrimExpr | Pointer, s: Site, chip: Accelerator) -> list[Any]:
    """The value of an operand each time."""
    if isinstance(e, str):
        return [e] * s.times
    if isinstance(e, FloatImm):
        return [e.value] * s.times
    if not isinstance(e, Pointer):
        return [int(x) for x in s.evaluate(e)]
    base = s.evaluate(e.at)
    if e.scope is None:
        return [Place(DRAM, Address(e.argument, int(x) * e.unit), e.strides) for x in base]
    if np.any(base % e.unit):
        _refuse_parts(chip, e.scope, int(base[0]), [k * e.unit for k in e.strides])
    return [Place(e.scope.name, int(x) // e.unit, e.strides) for x in base]
