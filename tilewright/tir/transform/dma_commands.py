"""A copy between DRAM and a memory of the chip, as DMA commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, NoReturn

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, PrimExpr, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.ops import add, call, cast, if_then_else, is_zero, less, less_equal, logical_and, mul, sub
from ...ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, Stmt
from ...target.accelerator import DRAM, Accelerator, Scope, Transfer
from ..analysis.commands import ENGINE, INSTRUCTION
from .inject_copy_intrin import Copy, replace_copies


def command(
    engine: int, name: str, operands: list[Any], meaning: Stmt, loops: list[For] | None = None
) -> Stmt:
    """An instruction of an engine: how it is encoded, beside the statements that it means.

    # attr coproc_scope = engine
    for …:                                  the loops that the instruction runs itself
        # attr instruction = name(operands)
        meaning
    """
    text = [StringImm(x) if isinstance(x, str) else x for x in (name, *operands)]
    made: Stmt = AttrStmt(const(0), INSTRUCTION, call("int32", "tir.call_extern", *text), meaning)
    for x in reversed(loops or []):
        made = x.replace(body=made)
    return AttrStmt(const(0), ENGINE, const(engine), made)


def pointer(b: Buffer, start: PrimExpr, extent: PrimExpr | int, mask: int) -> PrimExpr:
    """The address of an element of a buffer; the mask is 1 for reading, 2 for writing."""
    kind = call(b.dtype, "tir.type_annotation")
    return call("handle", "tir.tvm_access_ptr", kind, b.data, start, extent, mask)


@dataclass
class _Dim:
    extent: PrimExpr  # with its padding
    before: PrimExpr
    after: PrimExpr
    chip: int  # strides
    dram: int

    @property
    def size(self) -> int | None:
        value = const_value(self.extent)
        return value if isinstance(value, int) else None

    @property
    def padded(self) -> bool:
        return not (is_zero(self.before) and is_zero(self.after))


def dma_commands(func: PrimFunc, chip: Accelerator, pragma_key: str = "dma_copy") -> PrimFunc:
    """Replace each copy marked by the pragma with DMA commands of a chip.

        # pragma_dma_copy                              for dma_0 in range(4):
        for c, y, x in T.grid(4, 8, 16):                   # attr coproc_scope = 1
            A_buf[c*128 + y*16 + x]             ->         # attr instruction = load("inp", A_buf[dma_0*128],
                = A[c*1024 + y*64 + x]                     #     A[dma_0*1024], rows 8, columns 1, stride 4, …)
                                                           for y, lane in T.grid(8, 16):
                                                               A_buf[dma_0*128 + y*16 + lane] = A[…]

    From the innermost one on, dimensions become the lanes of an element of the chip's memory, the columns and the rows
    of a transfer; others become loops around it. The statements that a command means stay in it.

    Needs: flat buffers. Gives: no such pragma.
    """
    return replace_copies(func, pragma_key, lambda copy: _Commands(chip, copy).statement())


class _Commands:
    def __init__(self, chip: Accelerator, copy: Copy) -> None:
        self.chip, self.copy, self.ana = chip, copy, Analyzer()
        self.source, self.target = source, target = copy.load.buffer, copy.store.buffer
        found = chip.transfer(source.scope_name, target.scope_name)
        if found is None:
            able = ", ".join(f"{_plain(t.source)} to {_plain(t.target)}" for t in chip.transfers)
            self.refuse(
                f"{chip.name} has no transfer from {_plain(source.scope_name)} to {_plain(target.scope_name)}",
                f"it has transfers from {able}; set the scopes of the two buffers accordingly",
            )
        self.transfer: Transfer = found
        self.loads = found.source == DRAM
        self.inner, self.dram = (target, source) if self.loads else (source, target)
        self.chip_start, self.dram_start = (
            (copy.target, copy.source) if self.loads else (copy.source, copy.target)
        )
        self.scope: Scope = chip.scope(self.inner.scope_name)  # type: ignore[assignment]
        self.check_types()
        self.dims = []
        for d in copy.dims:
            to, origin = int(const_value(d.target)), int(const_value(d.source))  # type: ignore[arg-type]
            chip_stride, dram = (to, origin) if self.loads else (origin, to)
            if copy.is_blank:  # nothing is read: the source has the strides of the target
                self.dims.append(_Dim(d.extent, const(0), const(0), chip_stride, chip_stride))
            else:
                self.dims.append(_Dim(d.extent, d.before, d.after, chip_stride, dram))

    def refuse(self, why: str, hint: str) -> NoReturn:
        raise LoweringError(f"copy of {self.source.name} to {self.target.name}: {why}\n  hint: {hint}")

    def check_types(self) -> None:
        held, outside, scope = str(self.inner.dtype), str(self.dram.dtype), self.scope
        if held != scope.dtype:
            self.refuse(
                f"{self.inner.name} has type {held}, but the elements of {scope.name} are {scope.dtype}",
                f"compute it as {scope.dtype}",
            )
        able = self.transfer.widens if self.loads else self.transfer.narrows
        if outside != held and outside not in able:
            kinds = " or ".join([held, *able])
            self.refuse(
                f"the instruction {self.transfer.name} cannot convert {self.source.dtype} to {self.target.dtype}",
                f"the array in DRAM must be {kinds}",
            )
        if self.copy.pad is not None and not is_zero(self.copy.pad):
            self.refuse(f"its padding is {self.copy.pad}", "transfers pad with zeros")

    # -- dimensions -------------------------------------------------------------------------
    def statement(self) -> Stmt:
        lanes = self.scope.lanes
        dims = [d for d in self.dims if d.size != 1 or d.padded]
        dims.sort(key=lambda d: -abs(d.chip))  # as they lie in the chip's memory
        dims = self.in_elements(dims, lanes)
        self.check_aligned(lanes)
        dims = _fused(dims)
        columns = dims.pop() if dims and dims[-1].chip == dims[-1].dram == 1 else _unit()
        rows = dims.pop() if dims and self.is_row(dims[-1], columns) else _unit(columns)
        if self.copy.is_blank:
            columns = replace(columns, before=columns.extent)
        if any(d.padded for d in (rows, columns)) and not self.transfer.pads:
            self.refuse(f"the instruction {self.transfer.name} does not pad", "pad in a stage of its own")
        for d in dims:
            if d.padded:
                self.refuse(
                    "more than two of its dimensions are padded, or their elements are not next to each other",
                    "a transfer pads rows and columns of elements; copy the other dimensions one by one",
                )
        outer = [
            For(Var(f"dma_{n}", "int32"), 0, d.extent, ForKind.SERIAL, _NOTHING) for n, d in enumerate(dims)
        ]
        chip, dram = self.chip_start, self.dram_start
        for x, d in zip(outer, dims, strict=True):
            chip, dram = (add(a, mul(x.loop_var, k * lanes)) for a, k in ((chip, d.chip), (dram, d.dram)))
        made = self.transfer_of(rows, columns, self.ana.simplify(chip), self.ana.simplify(dram))
        for x in reversed(outer):
            made = x.replace(body=made)
        return made

    def in_elements(self, dims: list[_Dim], lanes: int) -> list[_Dim]:
        """The dimensions around the lanes of an element, with strides that count elements."""
        left = lanes
        dims = list(dims)
        stride = 1
        while left > 1:
            d = dims.pop() if dims else None
            if d is None or d.padded or d.size is None or (d.chip, d.dram) != (stride, stride):
                self.refuse(
                    f"it does not copy whole elements of {self.scope.name}, which are {lanes} x {self.scope.dtype} and "
                    "contiguous on both sides",
                    f"pack the array so that its last dimensions are the {lanes} lanes of an element",
                )
            if d.size % left == 0:
                if d.size > left:
                    dims.append(_Dim(const(d.size // left), const(0), const(0), stride * left, stride * left))
                left = 1
            elif left % d.size == 0:
                left, stride = left // d.size, stride * d.size
            else:
                self.refuse(
                    f"{d.size} contiguous scalars do not fill elements of {lanes}",
                    f"make the tile a multiple of {lanes} wide",
                )
        out = []
        for d in dims:
            for k, where in ((d.chip, self.inner.name), (d.dram, self.dram.name)):
                if k % lanes:
                    self.refuse(
                        f"the stride {k} of {where} is not a multiple of the {lanes} lanes of an element",
                        f"pack the array in elements of {lanes}",
                    )
            out.append(_Dim(d.extent, d.before, d.after, d.chip // lanes, d.dram // lanes))
        return out

    def check_aligned(self, lanes: int) -> None:
        for b, start in ((self.inner, self.chip_start), (self.dram, self.dram_start)):
            known = self.ana.modular_set(start)
            if known.coeff % lanes or known.base % lanes:
                self.refuse(
                    f"it starts at element `{start}` of {b.name}, which is not at a multiple of {lanes} lanes",
                    f"tile {b.name} so that tiles start at whole elements of {lanes}",
                )

    def is_row(self, d: _Dim, columns: _Dim) -> bool:
        """Whether a dimension can be the rows of a transfer: in the chip's memory they follow each other."""
        wide = columns.size
        if d.chip != wide:
            return False
        return self.transfer.strided or d.dram == wide

    # -- the command -------------------------------------------------------------------------
    def transfer_of(self, rows: _Dim, columns: _Dim, chip: PrimExpr, dram: PrimExpr) -> Stmt:
        lanes = self.scope.lanes
        simple = self.ana.simplify
        down, across = (simple(sub(sub(d.extent, d.before), d.after)) for d in (rows, columns))
        padding = (rows.before, rows.after, columns.before, columns.after)
        if self.loads:
            inside = pointer(self.inner, chip, simple(mul(mul(rows.extent, columns.extent), lanes)), 2)
            outside = pointer(self.dram, dram, mul(down, rows.dram * lanes), 1)
        else:
            inside = pointer(self.inner, chip, simple(mul(mul(rows.extent, columns.extent), lanes)), 1)
            outside = pointer(self.dram, dram, mul(down, rows.dram * lanes), 2)
        operands = [
            self.scope.memory,
            str(self.dram.dtype),
            inside,
            outside,
            down,
            across,
            const(rows.dram),
            *padding,
        ]
        return command(
            self.transfer.engine, self.transfer.name, operands, self.meaning(rows, columns, chip, dram)
        )

    def meaning(self, rows: _Dim, columns: _Dim, chip: PrimExpr, dram: PrimExpr) -> Stmt:
        lanes = self.scope.lanes
        loops = [("y", rows.extent), ("x", columns.extent), ("lane", const(lanes))]
        y, x, lane = (const(0) if const_value(n) == 1 else Var(name, "int32") for name, n in loops)
        r, c = sub(y, rows.before), sub(x, columns.before)
        wide = columns.size if columns.size is not None else columns.extent
        at = add(chip, add(mul(add(mul(y, wide), x), lanes), lane))
        there = add(dram, add(mul(add(mul(r, rows.dram), c), lanes), lane))
        source, target = (there, at) if self.loads else (at, there)
        read, write = self.source, self.target
        value: PrimExpr = BufferLoad(read, (self.ana.simplify(source),))
        if self.source.dtype is not self.target.dtype:
            value = cast(self.target.dtype, value)
        tests = []
        for i, d in ((r, rows), (c, columns)):
            if not is_zero(d.before):
                tests.append(less_equal(const(0), i))
            if not is_zero(d.after):
                tests.append(less(i, sub(sub(d.extent, d.before), d.after)))
        if tests:
            value = if_then_else(reduce(logical_and, tests), value, const(0, self.target.dtype))
        made: Stmt = BufferStore(write, value, [self.ana.simplify(target)])
        for v, (_, extent) in zip((lane, x, y), reversed(loops), strict=True):
            if isinstance(v, Var):
                made = For(v, 0, extent, ForKind.SERIAL, made)
        return made


_NOTHING: Final = Evaluate(const(0))  # a body that is replaced


def _plain(scope: str) -> str:
    return "DRAM" if scope == DRAM else scope


def _unit(columns: _Dim | None = None) -> _Dim:
    """A dimension of one element: rows of a transfer of one row."""
    wide = 1 if columns is None else columns.size or 1
    return _Dim(const(1), const(0), const(0), wide, wide)


def _fused(dims: list[_Dim]) -> list[_Dim]:
    """Neighbouring dimensions that are contiguous on both sides as one."""
    out: list[_Dim] = []
    for d in dims:
        o = out[-1] if out else None
        size = d.size
        if (
            o is not None
            and size is not None
            and not (o.padded or d.padded)
            and (o.chip, o.dram) == (d.chip * size, d.dram * size)
        ):
            out[-1] = _Dim(mul(o.extent, size), const(0), const(0), d.chip, d.dram)
        else:
            out.append(d)
    return out
