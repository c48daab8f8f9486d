"""Scans by the threads of a GPU: a row by a warp or a thread block, a column by a thread; long ones in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import ops
from ...ir.buffer import Buffer, decl_buffer
from ...ir.expr import Call, IterVar, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import rewrite, statements
from ...ir.op import Op
from ...ir.scans import Scan, scan_of
from ...ir.stmt import Block, For, ForKind, Stmt, seq
from ..annotations import SCAN_THREADS
from ..ir_builder import BufferVar, IRBuilder

_WARP = 32
_ROWS = 4  # that share a thread block, with a warp each


def lower_scans(func: PrimFunc) -> PrimFunc:
    """Replace each block that declares a scan, and has `scan_threads`, by kernels that compute it.

    with block("S"):                         for b in thread_binding(rows, "blockIdx.x"):
        block_attr("scan_threads":    ->         for w, t in thread_binding(groups, 32, "threadIdx"):
            [groups, each, lanes, parts])            a chunk: `each` vectors of `lanes` elements for each thread;
        (loops over the elements)                    thread, warp and block combine them, and add the chunks before

    Rows of contiguous elements have `groups` warps each, or with 1 a warp each. Without `lanes`, each row or column has
    a thread, a thread block `groups` warps, and a thread `each` elements in flight. With several `parts`, a first
    kernel combines each part of a line, and the second begins with the combination of the parts before its own.

    Needs: blocks, and warp shuffles where rows are contiguous. Gives: no block with `scan_threads`.
    """
    if not any(isinstance(m, Block) and SCAN_THREADS in m.annotations for m in statements(func.body)):
        return func
    return rewrite(func, {Block: _lowered})


def _lowered(block: Block) -> Block:
    scan = scan_of(block)
    if scan is None or SCAN_THREADS not in block.annotations:
        return block
    groups, each, lanes, parts = (int(const_value(x) or 0) for x in block.annotations[SCAN_THREADS])
    kind = _Rows if lanes else _Columns
    made = kind(scan, groups, each, lanes, parts)
    memory = () if made.sums is None else (made.sums,)
    said = {k: v for k, v in block.annotations.items() if not k.startswith("scan")}
    return block.replace(body=made.kernels(), alloc_buffers=(*block.alloc_buffers, *memory), annotations=said)


class _Kernels:
    """The kernels of a scan: one, or two for several parts."""

    def __init__(self, scan: Scan, groups: int, each: int, lanes: int, parts: int) -> None:
        self.scan, self.groups, self.each, self.lanes, self.parts = scan, groups, each, lanes, parts
        self.index = scan.n.dtype
        self.sums: Buffer | None = None
        if parts > 1:
            self.sums = decl_buffer((scan.outer, parts, scan.inner), scan.held, f"{scan.target.name}_parts")
        unit = self.unit
        self.length: PrimExpr = scan.n
        if parts > 1:
            whole = ops.floordiv(ops.add(scan.n, parts * unit - 1), parts * unit)
            self.length = ops.mul(whole, unit)

    @property
    def unit(self) -> int:
        """The elements that a part is a multiple of."""
        return 1

    def kernels(self) -> Stmt:
        return seq(*(self._kernel(last) for last in ((False, True) if self.parts > 1 else (True,))))

    def _kernel(self, last: bool) -> Stmt:
        ib = IRBuilder()
        self.kernel(ib, last)
        return ib.get()

    def kernel(self, ib: IRBuilder, last: bool) -> None:
        raise NotImplementedError

    # -- pieces ------------------------------------------------------------------------------------
    def thread(self, ib: IRBuilder, tag: str, extent: Any) -> Var:
        """The index of the thread or of the thread block; what follows is run by each of them."""
        var, held = Var(tag.replace(".", "_"), self.index), ops.cast(self.index, extent)
        axis = IterVar(None, tag, IterVar.ThreadIndex, tag)
        zero = const(0, self.index)
        ib.emit(lambda body: For(var, zero, held, ForKind.THREAD_BINDING, body, axis))
        return var

    @property
    def identity(self) -> PrimExpr:
        return const(self.scan.operator.identity, self.scan.held)

    def combine(self, a: Any, b: Any) -> PrimExpr:
        return self.scan.operator.combine(a, b)

    def local(self, ib: IRBuilder, name: str, size: int) -> BufferVar:
        return ib.allocate(self.scan.held, (size,), name, scope="local")

    def range_of(self, ib: IRBuilder, part: Any) -> tuple[Any, Any]:
        """The first element of a part, and the end of it."""
        if self.parts == 1:
            return const(0, self.index), self.scan.n
        first = ib.let("first", ops.mul(part, self.length))
        return first, ib.let("end", ops.min_of(self.scan.n, ops.add(first, self.length)))

    def view(self, ib: IRBuilder, buffer: Buffer) -> BufferVar:
        s = self.scan
        return ib.buffer_ptr(buffer, (s.outer, s.n, s.inner))


class _Columns(_Kernels):
    """A thread for each column, or for each part of one: neighbouring threads have neighbouring columns."""

    def kernel(self, ib: IRBuilder, last: bool) -> None:
        s, threads = self.scan, self.groups * _WARP
        jobs = ops.mul(ops.mul(s.outer, self.parts), s.inner)
        block = self.thread(ib, "blockIdx.x", ops.floordiv(ops.add(jobs, threads - 1), threads))
        t = self.thread(ib, "threadIdx.x", threads)
        job = ib.let("job", ops.add(ops.mul(block, threads), t))
        with ib.if_scope(ops.less(job, jobs)):
            j, rest = ib.let("j", ops.floormod(job, s.inner)), ib.let("rest", ops.floordiv(job, s.inner))
            part = ib.let("part", ops.floormod(rest, self.parts))
            self._column(ib, last, ib.let("row", ops.floordiv(rest, self.parts)), part, j)

    def _column(self, ib: IRBuilder, last: bool, row: Any, part: Any, j: Any) -> None:
        s, held = self.scan, self.local(ib, "held", 1)
        held[0] = self.identity
        source, target = self.view(ib, s.source), self.view(ib, s.target)
        sums = ib.buffer_ptr(self.sums) if self.sums is not None else None
        if sums is not None and last:
            self._fold(ib, held, lambda k: sums[row, k, j], (const(0, self.index), part), None)

        def store(k: Any) -> None:
            target[row, k, j] = ops.cast(s.target.dtype, held[0])

        own = self.range_of(ib, part)
        self._fold(ib, held, lambda k: ops.cast(s.held, source[row, k, j]), own, store if last else None)
        if sums is not None and not last:
            sums[row, part, j] = held[0]

    def _fold(
        self,
        ib: IRBuilder,
        held: BufferVar,
        load: Callable[[Any], Any],
        of: tuple[Any, Any],
        store: Callable[[Any], None] | None,
    ) -> None:
        """Combine the elements of a range one by one; `each` of them are loaded at the same time."""
        (first, end), each, exclusive = of, self.each, self.scan.exclusive
        chunks = ops.floordiv(ops.add(ops.sub(end, first), each - 1), each)
        with ib.for_range(const(0, self.index), chunks, "chunk") as chunk:
            some, base = self.local(ib, "some", each), ib.let("base", ops.add(first, ops.mul(chunk, each)))
            with ib.for_range(0, each, "e", kind="unroll") as e:
                some[e] = self.identity
                with ib.if_scope(ops.less(ops.add(base, e), end)):
                    some[e] = load(ops.add(base, e))
            with ib.for_range(0, each, "e", kind="unroll") as e:
                if not exclusive or store is None:
                    held[0] = self.combine(held[0], some[e])
                if store is not None:
                    with ib.if_scope(ops.less(ops.add(base, e), end)):
                        store(ops.add(base, e))
                if exclusive and store is not None:
                    held[0] = self.combine(held[0], some[e])


class _Rows(_Kernels):
    """A warp for each row of contiguous elements, or several, or several for each part of one.

    Of a chunk, a warp has the elements of `each` vectors of each of its lanes, and a load of a warp is contiguous.
    """

    @property
    def unit(self) -> int:
        return self.chunk

    @property
    def segment(self) -> int:
        """The elements of a chunk that a warp has."""
        return _WARP * self.lanes * self.each

    @property
    def chunk(self) -> int:
        return self.segment * self.groups

    def kernel(self, ib: IRBuilder, last: bool) -> None:
        s, rows = self.scan, _ROWS if self.groups == 1 else 1
        jobs = ops.mul(s.outer, self.parts)
        block = self.thread(ib, "blockIdx.x", ops.floordiv(ops.add(jobs, rows - 1), rows))
        warp = self.thread(ib, "threadIdx.y", max(rows, self.groups))
        lane = self.thread(ib, "threadIdx.x", _WARP)
        if rows == 1:
            self._row(ib, last, block, warp, lane)
            return
        job = ib.let("job", ops.add(ops.mul(block, rows), warp))
        with ib.if_scope(ops.less(job, jobs)):
            self._row(ib, last, job, const(0, self.index), lane)

    def _row(self, ib: IRBuilder, last: bool, job: Any, warp: Any, lane: Any) -> None:
        """The work of a warp for a row, or a part of one."""
        s = self.scan
        part, row = (
            ib.let("part", ops.floormod(job, self.parts)),
            ib.let("row", ops.floordiv(job, self.parts)),
        )
        held = self.local(ib, "held", 1)
        held[0] = self.identity
        sums = ib.buffer_ptr(self.sums) if self.sums is not None else None
        if sums is not None and last:
            self._before(ib, held, sums, row, part, lane)
        first, end = self.range_of(ib, part)
        shared = ib.allocate(s.held, (2, _WARP), "of_warps", scope="shared") if self.groups > 1 else None
        chunks = ops.floordiv(ops.add(ops.sub(end, first), self.chunk - 1), self.chunk)
        with ib.for_range(const(0, self.index), chunks, "chunk") as chunk:
            base = ib.let(
                "base",
                ops.add(
                    ops.add(first, ops.mul(chunk, self.chunk)),
                    ops.add(ops.mul(warp, self.segment), ops.mul(lane, self.lanes)),
                ),
            )
            some = self._load(ib, row, base, end)
            if last:
                self._scan(ib, held, some, shared, chunk, warp, lane)
                self._store(ib, some, row, base, end)
            else:
                with ib.for_range(0, self.each * self.lanes, "e", kind="unroll") as e:
                    held[0] = self.combine(held[0], some[e])
        if sums is not None and not last:
            self._total(ib, held, shared, warp, lane)
            with ib.if_scope(ops.equal(ops.add(warp, lane), 0)):
                sums[row, part, 0] = held[0]

    # -- memory ------------------------------------------------------------------------------------
    def _load(self, ib: IRBuilder, row: Any, base: Any, end: Any) -> BufferVar:
        """The elements of a chunk that a thread has; the identity beyond the end."""
        source, lanes, held = self.view(ib, self.scan.source), self.lanes, self.scan.held
        some = self.local(ib, "some", self.each * lanes)
        with ib.for_range(0, self.each, "e", kind="unroll") as e:
            at = ops.add(base, ops.mul(e, _WARP * lanes))
            with ib.for_range(0, lanes, "l", kind="vectorize") as x:
                some[ops.add(ops.mul(e, lanes), x)] = self.identity
            with ib.if_scope(ops.less(at, end)), ib.for_range(0, lanes, "l", kind="vectorize") as x:
                some[ops.add(ops.mul(e, lanes), x)] = ops.cast(held, source[row, ops.add(at, x), 0])
        return some

    def _store(self, ib: IRBuilder, some: BufferVar, row: Any, base: Any, end: Any) -> None:
        target, lanes, kind = self.view(ib, self.scan.target), self.lanes, self.scan.target.dtype
        with ib.for_range(0, self.each, "e", kind="unroll") as e:
            at = ops.add(base, ops.mul(e, _WARP * lanes))
            with ib.if_scope(ops.less(at, end)), ib.for_range(0, lanes, "l", kind="vectorize") as x:
                target[row, ops.add(at, x), 0] = ops.cast(kind, some[ops.add(ops.mul(e, lanes), x)])

    # -- combining ---------------------------------------------------------------------------------
    def _shuffled(self, value: PrimExpr, how: str, by: Any) -> PrimExpr:
        mask = const(0xFFFFFFFF, "uint32")
        name = Op.get(f"tir.tvm_warp_shuffle{how}")
        return Call(
            value.dtype,
            name,
            [
                mask,
                value,
                const(by, "int32") if isinstance(by, int) else ops.cast("int32", by),
                const(_WARP),
                const(_WARP),
            ],
        )

    def _in_warp(self, ib: IRBuilder, values: BufferVar, count: int, lane: Any) -> None:
        """Combine each value with those of the lanes before."""
        step = 1
        while step < _WARP:
            other = self.local(ib, "other", count)
            with ib.for_range(0, count, "e", kind="unroll") as e:
                other[e] = self._shuffled(values[e], "_up", step)
            with ib.for_range(0, count, "e", kind="unroll") as e:
                joined = self.combine(other[e], values[e])
                values[e] = ops.select(ops.less(lane, step), values[e], joined)
            step *= 2

    def _scan(
        self,
        ib: IRBuilder,
        held: BufferVar,
        some: BufferVar,
        shared: BufferVar | None,
        chunk: Any,
        warp: Any,
        lane: Any,
    ) -> None:
        """Scan a chunk in registers; `held` is what comes before it, and then with it."""
        each, lanes = self.each, self.lanes
        upto, before = self.local(ib, "upto", each), self.local(ib, "before", each)
        with ib.for_range(0, each, "e", kind="unroll") as e:
            upto[e] = some[ops.mul(e, lanes)]
            if lanes > 1:
                with ib.for_range(1, lanes, "l", kind="unroll") as x:
                    upto[e] = self.combine(upto[e], some[ops.add(ops.mul(e, lanes), x)])
        self._in_warp(ib, upto, each, lane)
        own = self.local(ib, "own", 1)
        own[0] = self.identity
        with ib.for_range(0, each, "e", kind="unroll") as e:
            before[e] = own[0]
            own[0] = self.combine(own[0], self._shuffled(upto[e], "", _WARP - 1))
        if shared is None:
            start = ib.let("start", held[0])
            held[0] = self.combine(held[0], own[0])
        else:
            others, total = self._of_warps(ib, own, shared, ops.floormod(chunk, 2), warp, lane)
            start = ib.let("start", self.combine(held[0], others))
            held[0] = self.combine(held[0], total)
        # All lanes take part in a shuffle: it is no operand of a select, of which they evaluate one side.
        left = self.local(ib, "left", each)
        with ib.for_range(0, each, "e", kind="unroll") as e:
            left[e] = self._shuffled(upto[e], "_up", 1)
        with ib.for_range(0, each, "e", kind="unroll") as e:
            own[0] = self.combine(
                self.combine(start, before[e]), ops.select(ops.equal(lane, 0), self.identity, left[e])
            )
            with ib.for_range(0, lanes, "l", kind="unroll") as x:
                value = ib.let("value", some[ops.add(ops.mul(e, lanes), x)])
                if self.scan.exclusive:
                    some[ops.add(ops.mul(e, lanes), x)] = own[0]
                own[0] = self.combine(own[0], value)
                if not self.scan.exclusive:
                    some[ops.add(ops.mul(e, lanes), x)] = own[0]

    def _of_warps(
        self, ib: IRBuilder, own: BufferVar, shared: BufferVar, turn: Any, warp: Any, lane: Any
    ) -> tuple[Any, Any]:
        """The combination of the values of the warps before, and of all warps."""
        with ib.if_scope(ops.equal(lane, 0)):
            shared[turn, warp] = own[0]
        of = self.local(ib, "of", 1)
        of[0] = self.identity
        with ib.if_scope(ops.less(lane, self.groups)):
            of[0] = shared[turn, lane]
        self._in_warp(ib, of, 1, lane)
        left, total = self.local(ib, "left", 1), self.local(ib, "total", 1)
        left[0] = self._shuffled(of[0], "", ops.max_of(warp, 1) - 1)
        total[0] = self._shuffled(of[0], "", self.groups - 1)
        return ops.select(ops.equal(warp, 0), self.identity, left[0]), total[0]

    def _total(self, ib: IRBuilder, held: BufferVar, shared: BufferVar | None, warp: Any, lane: Any) -> None:
        """Combine the values of all threads; the threads of all warps have the result."""
        self._in_warp(ib, held, 1, lane)
        last = ib.let("last", self._shuffled(held[0], "", _WARP - 1))
        held[0] = last
        if shared is not None:
            _, total = self._of_warps(ib, held, shared, const(0, self.index), warp, lane)
            held[0] = total

    def _before(
        self, ib: IRBuilder, held: BufferVar, sums: BufferVar, row: Any, part: Any, lane: Any
    ) -> None:
        """The combination of the parts before; each warp reads all of them."""
        with ib.for_range(
            const(0, self.index), ops.floordiv(ops.add(part, _WARP - 1), _WARP), "some"
        ) as some:
            at = ib.let("at", ops.add(ops.mul(some, _WARP), lane))
            with ib.if_scope(ops.less(at, part)):
                held[0] = self.combine(held[0], sums[row, at, 0])
        self._in_warp(ib, held, 1, lane)
        last = ib.let("last", self._shuffled(held[0], "", _WARP - 1))
        held[0] = last
