"""Fragments of tensor cores as the registers of threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import Call, PrimExpr, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import renew_defs_in, statements, vars_used
from ...ir.op import Op
from ...ir.ops import add, floordiv, floormod, mul
from ...ir.stmt import Allocate, BufferStore, For, IfThenElse, Stmt
from ..analysis.measure import scope_of
from ..analysis.threads import is_fragment
from .thread_registers import ThreadRegisters

_CHOICE = Op.get("tir.if_then_else")
_HELD = ("accumulator", "rows", "lanes")  # fragments whose elements threads can access


def lower_fragments(func: PrimFunc) -> PrimFunc:
    """Give each thread its part of the fragments.

        C = allocate([32, 32], "float32", "wmma.accumulator")        C = allocate([32], "float32", "local")
        mma_sync(C, index, A, …)                           ->        mma_sync(C, index, A, …, "float16", "float32")
        D[8 + tx // 4, tx % 4 * 2] = C[8 + tx // 4, tx % 4 * 2]      D[…] = C[2]

    An accumulator tile of 16 x 16 is eight registers in each thread of a warp; the instructions define which thread
    holds which element. Elements of accumulators can be used by the thread that holds them; operands only by the
    instructions, which get the original type as an argument.
    Needs: no blocks. Gives: no memory of the scopes `wmma.*` and `wgmma.*`.
    """
    if not any(
        isinstance(m, Allocate) and is_fragment(scope_of(m.buffer_var)) for m in statements(func.body)
    ):
        return func
    return _Fragments().run(func)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The tiles of a buffer of fragments, and the threads that hold one."""

    rows: int
    columns: int
    threads: int
    wide: int  # tiles in a row

    @property
    def registers(self) -> int:
        return self.rows * self.columns // self.threads


class _Fragments(ThreadRegisters):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[Var, DataType] = {}  # types of the elements
        self.shapes: dict[Var, _Shape] = {}
        self.choices: set[Stmt] = set()

    def visit_For(self, n: For) -> Stmt:
        made = super().visit_For(n)
        assert isinstance(made, For)
        body = made.body
        if body not in self.choices or n.loop_var in vars_used(body.condition):  # type: ignore[attr-defined]
            return made
        assert isinstance(body, IfThenElse) and body.else_case is not None
        yes, no = (made.replace(body=s) for s in (body.then_case, body.else_case))
        return self.choice(body.condition, yes, renew_defs_in(no))

    def choice(self, condition: PrimExpr, yes: Stmt, no: Stmt) -> Stmt:
        """A condition hoisted out of the loops that it does not depend on."""
        made = IfThenElse(condition, yes, no)
        self.choices.add(made)
        return made

    def visit_Allocate(self, n: Allocate) -> Stmt:
        scope = scope_of(n.buffer_var)
        if not is_fragment(scope):
            return n.map_children(self.visit)
        sizes = [const_value(e) for e in n.extents]
        name = n.buffer_var.name
        if None in sizes or len(sizes) < 2:
            raise LoweringError(f"{name}: fragments have two dimensions or more, and constant sizes")
        rows, wide = 1, int(sizes[-1] or 0)
        for s in sizes[:-1]:
            rows *= int(s or 0)
        shape = _Shape(16, 16, 32, wide // 16)
        if scope.startswith("wgmma"):
            shape = _Shape(64, wide, 128, 1)
        elif scope == "wmma.rows":
            shape = _Shape(16, wide, 32, 1)
        kind, count = n.dtype, rows * wide // shape.threads
        if scope.split(".")[1] not in _HELD:  # the instructions take them as words of 32 bits
            kind, count = DataType("uint32"), count * n.dtype.bits // 32
            if scope.startswith("wmma"):  # tiles of operands span the k dimension of the instruction
                shape = replace(shape, rows=min(rows, 16), columns=min(wide, 16))
        if not count or rows % shape.rows or wide % shape.columns:
            raise LoweringError(
                f"{name}: {rows} x {wide} elements in {scope} are not a whole number of tiles of {shape.rows} x "
                f"{shape.columns}"
            )
        self.shapes[n.buffer_var], self.kinds[n.buffer_var] = shape, n.dtype
        return self.in_registers(n, kind, count)

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        first = n.args[0] if n.args else None
        if not isinstance(n.op, Op) or not isinstance(first, Var) or first not in self.kinds:
            return made
        told: list[str] = []
        if n.op.short_name == "tvm_mma_sync":
            told = [str(self.kinds[v]) for v in (n.args[2], first) if isinstance(v, Var)]
        elif n.op.short_name == "tvm_load_matrix_sync":
            told = [scope_of(first).split(".")[1]]
        return made.replace(args=(*made.args, *map(StringImm, told))) if told else made

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        shape = self.shapes.get(n.buffer.data)
        if shape is None:
            return made
        form = scope_of(n.buffer.data).split(".")[1]
        index, owner = _register(n.buffer, made.indices, shape, form)
        if form not in _HELD:
            raise LoweringError(
                f"{n.buffer.name}: the elements of an operand in {scope_of(n.buffer.data)} can be used by instructions "
                "of tensor cores alone; tensorize the block that reads or writes them"
            )
        if self.thread is None or not self.ana.can_prove_equal(owner, self.thread):
            raise LoweringError(
                f"{n.buffer.name}: `{n.buffer.name}[{', '.join(map(str, n.indices))}]` is in a register of thread "
                f"{self.ana.simplify(owner)} of threadIdx.x, and not always of the one that uses it; tensorize the "
                "block by a store, or bind its loops to the threads that hold their elements"
            )
        return made.replace(buffer=self.registers(n.buffer), indices=(self.ana.simplify(index),))

    visit_BufferLoad = access

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        """A selection of two values becomes a condition, which can be hoisted out of loops over elements."""
        made: BufferStore = self.access(n)
        value = made.value
        if n.buffer.data not in self.shapes or not isinstance(value, Call) or value.op is not _CHOICE:
            return made
        condition, yes, no = value.args
        return self.choice(self.ana.simplify(condition), made.replace(value=yes), made.replace(value=no))


def _register(b: Buffer, indices: tuple[PrimExpr, ...], s: _Shape, form: str) -> tuple[PrimExpr, PrimExpr]:
    """The register that holds an element of an accumulator, and its thread.

        row g of a group of 8, columns 2t and 2t + 1 of a group of 8:  thread 4g + t;
        rows 8 to 15 are the next two registers, the next 8 columns the next four

    A warpgroup has a warp for each 16 of its 64 rows. In `rows`, thread 4g + t has columns 8t to 8t + 7 of each 32;
    of 32 bits it has four, those from 8 (t % 2) + 4 (t // 2) on of each 16. In `lanes`, which has four columns, it has
    column t: a value per row, replicated in each thread of the row.
    """
    row: PrimExpr = const(0)
    for i, d in zip(indices[:-1], b.shape[:-1], strict=True):
        row = add(mul(row, d), i)
    column = indices[-1]

    def n(value: int) -> PrimExpr:
        return const(value, column.dtype)

    tile = add(mul(floordiv(row, n(s.rows)), n(s.wide)), floordiv(column, n(s.columns)))
    r, c = floormod(row, n(s.rows)), floormod(column, n(s.columns))
    inside = add(
        add(mul(floordiv(c, n(8)), n(4)), mul(floordiv(floormod(r, n(16)), n(8)), n(2))), floormod(c, n(2))
    )
    owner = add(mul(floormod(r, n(8)), n(4)), floordiv(floormod(c, n(8)), n(2)))
    half = floordiv(floormod(r, n(16)), n(8))
    if form == "lanes":
        inside, owner = half, add(mul(floormod(r, n(8)), n(4)), c)
    elif form == "rows" and b.dtype.bits == 32:
        inside = add(add(mul(floordiv(c, n(16)), n(8)), mul(half, n(4))), floormod(c, n(4)))
        lane = add(mul(floordiv(floormod(c, n(8)), n(4)), n(2)), floordiv(floormod(c, n(16)), n(8)))
        owner = add(mul(floormod(r, n(8)), n(4)), lane)
    elif form == "rows":
        inside = add(add(mul(floordiv(c, n(32)), n(16)), mul(half, n(8))), floormod(c, n(8)))
        owner = add(mul(floormod(r, n(8)), n(4)), floordiv(floormod(c, n(32)), n(8)))
    if s.rows > 16:
        owner = add(mul(floordiv(r, n(16)), n(32)), owner)
    return add(mul(tile, n(s.registers)), inside), owner
