"""From blocks to plain loops."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Range, StringImm, Var, const, const_value, convert
from ...ir.function import PrimFunc
from ...ir.functor import Substitution, pre_order, statements
from ...ir.ops import add, floordiv, is_one, is_zero, likely, mul
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    stmt_list,
)
from .flatten_buffer import reach
from .inject_software_pipeline import BY_REGISTERS, ORDER, STAGE


def lower_opaque_block(func: PrimFunc, *, keep_trivial_loops: bool = False) -> PrimFunc:
    """Replace blocks: predicates become conditions, their buffers allocations, bound loops thread extents.

        for i in thread_binding(8, "threadIdx.x"):       with launch_thread("threadIdx.x", 8) as i:
            with block(""):                                  B = allocate([4])
                where(i < 5)                          ->     if i < 5:
                B = alloc_buffer((4,))                           …
                …

    Loops of one iteration without annotations are removed, unless `keep_trivial_loops`.
    Needs: blocks without iterators, init and match buffers. Gives: no blocks.
    """
    return func.updated(body=_LowerBlocks(keep_trivial_loops).visit(func.body))


class _LowerBlocks(Substitution):
    def __init__(self, keep_trivial_loops: bool) -> None:
        super().__init__({})
        self.keep_trivial_loops = keep_trivial_loops
        self.table: dict[Any, Any] = {}
        self.threads: dict[str, IterVar] = {}

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        block, predicate = n.block, self.visit(n.predicate)
        if block.iter_vars or block.init is not None:
            raise LoweringError(
                f"block `{block.name_hint}` still has {'iterators' if block.iter_vars else 'an init'}; run "
                "tir.transform.LowerInitBlock() and ConvertBlocksToOpaque() before LowerOpaqueBlock()"
            )
        body = self.visit(block.body)
        for key, value in block.annotations.items():
            if key.startswith(("pragma_", "tir.attr.")):
                body = AttrStmt(const(0), key.removeprefix("tir.attr."), _attr_value(value), body)
        for buffer in reversed(block.alloc_buffers):
            made = self.visit_buffer(buffer)
            body = DeclBuffer(made, body)
            body = Allocate(made.data, made.dtype, _extents(made), const(True, "bool"), body, {})
        if not is_one(predicate):
            body = IfThenElse(likely(predicate), body)
        return body

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        if n.kind is ForKind.THREAD_BINDING:
            return self.bound(n, low, size)
        once = is_one(size) and not self.keep_trivial_loops
        if once and not n.annotations and n.kind is not ForKind.PARALLEL:
            self.table[n.loop_var] = low
            return self.visit(n.body)
        notes = dict(n.annotations)
        body = self.visit(n.body)
        if STAGE in notes or _doubled(n):
            notes.update(_pipeline_notes(n, self))
        keep = {k: v for k, v in notes.items() if not k.startswith("pragma_")}
        made: Stmt = n
        if body is not n.body or low is not n.min or size is not n.extent or keep != n.annotations:
            made = For(n.loop_var, low, size, n.kind, body, None, keep, span=n.span)
        return _with_pragmas(n, made)

    def bound(self, n: For, low: PrimExpr, size: PrimExpr) -> Stmt:
        """A loop bound to a thread axis; a second one of the same axis is the same thread."""
        assert n.thread_binding is not None
        tag = n.thread_binding.thread_tag
        virtual = tag.startswith("vthread") or tag == "cthread"
        axis = None if virtual else self.threads.get(tag)
        if axis is not None:
            self.table[n.loop_var] = add(low, axis.var)
            return _with_pragmas(n, self.visit(n.body))
        var = n.loop_var
        if not is_zero(low):  # threads count from 0
            var = Var(var.name, var.dtype)
            self.table[n.loop_var] = add(low, var)
        axis = IterVar(Range.from_min_extent(const(0, var.dtype), size), var, IterVar.ThreadIndex, tag)
        if not virtual:
            self.threads[tag] = axis
        body = _with_pragmas(n, self.visit(n.body))
        if not virtual:
            del self.threads[tag]
        return AttrStmt(axis, "virtual_thread" if virtual else "thread_extent", size, body)


def _with_pragmas(n: For, body: Stmt) -> Stmt:
    """A statement inside the pragmas of a loop."""
    for key, value in n.annotations.items():
        if key.startswith("pragma_"):
            body = AttrStmt(const(0), key, _attr_value(value), body)
    return body


def _parts(n: For) -> list[Stmt]:
    """The statements of a loop's body, inside the block that holds its allocations.

    A named block counts as such a block if the loop's pipeline has several stages.
    """
    body = n.body
    several = len(n.annotations.get(STAGE, ())) > 1
    while isinstance(body, BlockRealize) and not body.block.iter_vars and is_one(body.predicate):
        if body.block.name_hint and not several:
            break
        body = body.block.body
    return stmt_list(body)


def _doubled(n: For) -> list[bool]:
    """The statements of a loop that fill a double-buffered buffer for other statements to read, or compute the inputs
    of such statements; empty if that is none or all of them."""
    parts = _parts(n)
    filled = [
        {
            m.writes[int(m.annotations["double_buffer_scope"])].buffer
            for m in statements(part)
            if isinstance(m, Block) and "double_buffer_scope" in m.annotations
        }
        for part in parts
    ]
    if not any(filled):
        return []
    reads: list[set[Buffer]] = [set() for _ in parts]
    writes: list[set[Buffer]] = [set() for _ in parts]
    for i, part in enumerate(parts):
        for m in pre_order(part):
            if isinstance(m, BufferLoad):
                reads[i].add(m.buffer)
            elif isinstance(m, BufferStore):
                writes[i].add(m.buffer)
    marks = [any(filled[i] & reads[j] for j in range(len(parts)) if j != i) for i in range(len(parts))]
    for i in reversed(range(len(parts))):
        if any(marks[j] and writes[i] & reads[j] for j in range(i + 1, len(parts))):
            marks[i] = True
    return marks if any(marks) and not all(marks) else []


def _pipeline_notes(n: For, walk: _LowerBlocks) -> dict[str, Any]:
    """Stages and order of the lowered statements: a block may become several."""
    parts = _parts(n)
    stages = n.annotations.get(STAGE) or [0 if mark else 1 for mark in _doubled(n)]
    orders = n.annotations.get(ORDER) or range(len(parts))
    if len(stages) > len(parts) and any(_has_pipeline(p) for p in parts):
        return {}  # they count the statements of the unrolled inner pipeline
    if n.annotations.get(BY_REGISTERS):
        return {}  # they count the halves of statements that pass registers
    if len(stages) != len(parts) or sorted(orders) != list(range(len(parts))):
        raise LoweringError(
            f"the pipeline of loop `{n.loop_var.name}` has {len(parts)} statements, stages {list(stages)} "
            f"and order {list(orders)}: there must be a stage for each, and the order must be a permutation"
        )
    counts = [len(stmt_list(walk.visit(part))) for part in parts]
    starts = {}
    total = 0
    for i in sorted(range(len(parts)), key=lambda i: orders[i]):
        starts[i] = total
        total += counts[i]
    return {
        STAGE: [int(s) for s, c in zip(stages, counts, strict=True) for _ in range(c)],
        ORDER: [starts[i] + k for i, c in enumerate(counts) for k in range(c)],
    }


def _has_pipeline(n: Stmt) -> bool:
    return any(isinstance(m, For) and STAGE in m.annotations for m in pre_order(n))


def _extents(buffer: Any) -> tuple[PrimExpr, ...]:
    """The extents to allocate: the shape, or the extents that the strides imply."""
    if not buffer.strides:
        return buffer.shape
    if not _nested(buffer):
        return (Analyzer().simplify(reach(buffer)),)
    out = [buffer.shape[0]]
    for outer, inner in zip(buffer.strides, buffer.strides[1:], strict=False):
        out.append(floordiv(outer, inner))
    out[-1] = mul(out[-1], buffer.strides[-1])  # the last dimension may have gaps too
    return tuple(out)


def _nested(buffer: Buffer) -> bool:
    """Whether each stride is a multiple of the next one and large enough for its dimension."""
    strides, shape = [const_value(s) for s in buffer.strides], [const_value(d) for d in buffer.shape]
    return all(
        a is not None and b and d is not None and a % b == 0 and a >= d * b
        for a, b, d in zip(strides, strides[1:], shape[1:], strict=False)
    )


def _attr_value(value: Any) -> PrimExpr:
    return StringImm(value) if isinstance(value, str) else convert(value)
