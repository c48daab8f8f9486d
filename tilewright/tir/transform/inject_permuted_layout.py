"""Swizzled rows of shared memory: pieces of 16 bytes are permuted, so that a column is spread over all banks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.errors import LoweringError
from ...ir.expr import Call, IterVar, PrimExpr, Ramp, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, statements, substitute
from ...ir.op import Op
from ...ir.ops import add, bitwise_xor, floordiv, floormod, mul, sub
from ...ir.stmt import AttrStmt, Block, For, Stmt
from ..analysis.measure import scope_of

PERMUTED = "permuted_layout"
_PIECE = 16  # bytes that stay contiguous: one copy of a thread, or a row of ldmatrix
_LINE = 8  # pieces in a line of shared memory, which spans all banks
_ACCESS_PTR = Op.get("tir.tvm_access_ptr")


def inject_permuted_layout(func: PrimFunc) -> PrimFunc:
    """Swizzle the pieces of 16 bytes of each row in the shared memory that a marked block writes.

        with block("copy"):  # 64 elements of 16 bits in a row
            block_attr({"permuted_layout": 1})         S[i, bitwise_xor(j // 8, i % 8) * 8 + j % 8] = A[i, j]
            S[i, j] = A[i, j]                     ->
        B[i, j] = S[i, j]                              B[i, j] = S[i, bitwise_xor(j // 8, i % 8) * 8 + j % 8]

    Eight pieces of a column, which would conflict in the same banks, are then spread over all banks, without the
    padding of `storage_align`. Rows of four pieces are permuted by i // 2 % 4, and so on. Eight pieces of 32-bit
    elements are permuted by i % 4 * 2 + i // 4 % 2: then eight neighbours in each of four rows are free of conflicts as
    well. All accesses are rewritten, including those of the instructions that load matrices.
    `permuted_layout: n` is for threads that read n consecutive pieces each: pieces are permuted within lines of 128
    bytes by the index of the line, `bitwise_xor(p, p // 8 % n)`, the same in all rows. Neighbouring threads then read
    from different banks, and whole lines are still written as one.
    Needs: allocations in place and compact, no match buffers. Gives: no `permuted_layout`.
    """
    marked = [m for m in statements(func.body) if isinstance(m, Block) and PERMUTED in m.annotations]
    if not marked:
        return func
    allocated = {b for m in statements(func.body) if isinstance(m, Block) for b in m.alloc_buffers}
    forms: dict[Var, _Form] = {}
    for block in marked:
        if not int(block.annotations[PERMUTED]):
            continue
        used = (*block.writes, *block.reads)
        found = [r.buffer for r in used if scope_of(r.buffer.data).startswith("shared")]
        if not found:
            raise LoweringError(
                f"block {block.name_hint} is marked {PERMUTED}, and neither writes nor reads shared memory: mark the "
                "block that copies a tile there"
            )
        for b in found:
            if b in allocated:
                forms[b.data] = _form(b, block)
    return _Permute(forms).run(func)


@dataclass(frozen=True, slots=True)
class _Form:
    """The swizzle of a buffer: `pieces` of 16 bytes are permuted by a number that increases every `rows` rows."""

    name: str
    size: int  # elements of the buffer
    wide: int  # elements of a row
    piece: int  # elements of a piece
    pieces: int
    rows: int
    each: int = 1  # pieces that a thread reads; if more than one, the permutation is by lines, not by rows

    @property
    def period(self) -> int:
        """Elements of a permuted group."""
        return self.piece * self.pieces

    def turn(self, row: PrimExpr) -> PrimExpr:
        kind = row.dtype
        if self.piece == 4 and self.pieces == _LINE:
            two, four = const(2, kind), const(4, kind)
            return add(mul(floormod(row, four), two), floormod(floordiv(row, four), two))
        return floormod(floordiv(row, const(self.rows, kind)), const(self.pieces, kind))

    def column(self, row: PrimExpr, column: PrimExpr) -> PrimExpr:
        """The swizzled column of an element."""
        piece = const(self.piece, column.dtype)
        at = floordiv(column, piece)
        by = self.turn(row) if self.each == 1 else floormod(floordiv(at, const(_LINE, at.dtype)), self.each)
        moved = bitwise_xor(at, by)
        return add(mul(moved, piece), floormod(column, piece))

    def place(self, offset: PrimExpr) -> PrimExpr:
        """The swizzled linear index of an element."""
        wide = const(self.wide, offset.dtype)
        row = floordiv(offset, wide)
        return add(mul(row, wide), self.column(row, floormod(offset, wide)))


def _form(b: Buffer, block: Block) -> _Form:
    where = f"block {block.name_hint} is marked {PERMUTED}, and {b.name}"
    if len(b.shape) < 2:
        raise LoweringError(f"{where} has one dimension: give it two or more")
    if b.strides:
        raise LoweringError(
            f"{where} has padded strides (storage_align): use either padding or a swizzle against "
            "bank conflicts"
        )
    sizes = [const_value(d) for d in b.shape]
    wide = sizes[-1]
    if None in sizes:
        raise LoweringError(f"{where} has a size that is not constant: {', '.join(map(str, b.shape))}")
    if wide is None or wide * b.dtype.nbytes % _PIECE:
        raise LoweringError(
            f"{where} has rows of {b.shape[-1]} elements of {b.dtype.nbytes} bytes: they must be whole pieces of "
            f"{_PIECE} bytes"
        )
    count = int(wide) * b.dtype.nbytes // _PIECE
    pieces = math.gcd(count, _LINE)
    size = math.prod(int(d or 0) for d in sizes)
    each = int(block.annotations[PERMUTED])
    if each > 1 and (pieces < _LINE or _LINE % each):
        raise LoweringError(
            f"{where} has rows of {count} pieces of {_PIECE} bytes, of which threads read {each}: rows must be whole "
            f"lines of {_LINE} pieces, which {each} divides"
        )
    return _Form(b.name, size, int(wide), _PIECE // b.dtype.nbytes, pieces, _LINE // pieces, each)


class _Permute(Mutator):
    def __init__(self, forms: dict[Var, _Form]) -> None:
        self.ana = Analyzer()
        self.forms = {v: f for v, f in forms.items() if f.pieces > 1}
        self.threads: set[Var] = set()

    def visit_Block(self, n: Block) -> Block:
        made = n.map_children(self.visit)
        if PERMUTED not in n.annotations:
            return made
        return made.replace(annotations={k: v for k, v in n.annotations.items() if k != PERMUTED})

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key == "thread_extent" and isinstance(n.node, IterVar):
            self.ana.bind_loop(n.node.var, const(0, n.node.var.dtype), n.value)
            self.threads.add(n.node.var)
        return n.map_children(self.visit)

    def visit_For(self, n: For) -> Stmt:
        self.ana.bind_loop(n.loop_var, n.min, n.extent)
        if n.thread_binding is not None:
            self.threads.add(n.loop_var)
        return n.map_children(self.visit)

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        form = self.forms.get(made.buffer.data)
        if form is None:
            return made
        if any(isinstance(i, Ramp) for i in made.indices):
            raise LoweringError(
                f"{form.name} is marked {PERMUTED}, and its accesses are vectors already: mark the block before loops "
                "are vectorized"
            )
        row: PrimExpr = const(0)
        for i, d in zip(made.indices[:-1], made.buffer.shape[:-1], strict=True):
            row = add(mul(row, d), i)
        column = self.ana.simplify(form.column(row, made.indices[-1]))
        return made.replace(indices=(*made.indices[:-1], column))

    visit_BufferLoad = visit_BufferStore = access

    def visit_Call(self, n: Call) -> PrimExpr:
        name = n.op.short_name if isinstance(n.op, Op) else ""
        pointers = [a for a in n.args if self.points(a) is not None]
        if not pointers or n.op is _ACCESS_PTR:
            return n.map_children(self.visit)
        form = self.points(pointers[0])
        assert form is not None
        if name == "tvm_load_matrix_sync" and form.each == 1:
            return self.tile(n)
        if name == "ptx_ldmatrix" and form.each == 1:
            return self.lines(n)
        raise LoweringError(
            f"{form.name} is marked {PERMUTED}, and {name or n.op} takes a pointer to it: only instructions that load "
            "matrices support the swizzle (tvm_load_matrix_sync, ptx_ldmatrix)"
        )

    def points(self, e: PrimExpr) -> _Form | None:
        """The swizzle of the buffer that a pointer refers to."""
        if isinstance(e, Call) and e.op is _ACCESS_PTR:
            e = e.args[1]
        return self.forms.get(e) if isinstance(e, Var) else None

    def tile(self, n: Call) -> PrimExpr:
        """`tvm_load_matrix_sync(…, layout)`, whose threads compute their own addresses, gets a pointer to the buffer.

        Further arguments describe the tile: its first element rounded down to a permuted group (by threads, and by
        loops), its column in the group, the size of the group, and the number of rows after which the permutation
        changes.
        """
        pointer = n.args[5]
        form = self.points(pointer)
        assert form is not None and isinstance(pointer, Call)
        offset, period = pointer.args[2], const(form.period, pointer.args[2].dtype)
        row = floordiv(offset, const(form.wide, offset.dtype))
        if const_value(n.args[6]) != form.wide or not self.ana.can_prove_equal(floormod(row, _LINE), 0):
            raise LoweringError(
                f"{form.name} is marked {PERMUTED}, and a tile of it begins at element {self.ana.simplify(offset)}: "
                f"tiles that are loaded begin at rows that are multiples of {_LINE}, in rows of {form.wide} elements"
            )
        inside = self.ana.simplify(floormod(offset, period))
        start = self.ana.simplify(mul(floordiv(offset, period), period))
        size = const(form.size, offset.dtype)
        whole = pointer.replace(args=(*pointer.args[:2], const(0, offset.dtype), size, *pointer.args[4:]))
        by_loops = self.ana.simplify(substitute(start, {v: const(0, v.dtype) for v in self.threads}))
        by_threads = self.ana.simplify(sub(start, by_loops))
        told = (by_threads, by_loops, inside, const(form.pieces), const(form.rows))
        return n.replace(args=(*n.args[:5], whole, *n.args[6:], *told))

    def lines(self, n: Call) -> PrimExpr:
        """`ptx_ldmatrix(…, memory, offset)`: the row that each thread addresses."""
        pointer, offset = n.args[5], n.args[6]
        form = self.points(pointer)
        assert form is not None
        if isinstance(pointer, Call):
            offset = add(pointer.args[2], offset)
            pointer = pointer.replace(args=(*pointer.args[:2], const(0, offset.dtype), *pointer.args[3:]))
        return n.replace(args=(*n.args[:5], pointer, self.ana.simplify(form.place(offset))))
