"""Warp specialization: one warpgroup starts TMA copies while the others compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer, decl_buffer
from ...ir.dtype import DataType
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, IterVar, PrimExpr, Range, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, renew_defs_in, statements, substitute
from ...ir.op import Op
from ...ir.ops import add, equal, floordiv, floormod, greater, greater_equal, logical_and, mul, sub
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
    stmt_list,
)
from ...ir.types import PointerType, PrimType
from ..analysis.measure import scope_of
from .lower_bulk_copies import BULK_COPY, THREADS, access_ptr, line_of
from .warpgroup_products import PRODUCTS, apart, in_order, is_product, written_out

# Annotations of the loop over the reduction:
SPECIALIZE = "tilewright.specialize_warps"  # the stages of its pipeline: iterations that may be in flight
PERSISTENT = "tilewright.persistent_blocks"  # the number of thread blocks that share all tiles
OVERLAP = "tilewright.overlap_products"  # its last products start after the first ones of the next iteration
EARLY = "tilewright.early_versions"  # for how many tiles there is memory for the copies before the loop
# An annotation of the kernel, and a scope:
MIN_BLOCKS = "pragma_min_blocks"  # how many thread blocks an SM should have room for
SCOPE = "shared.async"  # shared memory that mbarriers of its own keep in order
_COPY, _MAP = (Op.get(f"tir.{n}") for n in ("ptx_cp_async_bulk_tensor", "tensor_map"))
# The registers of a thread that copies and of one that computes, by the number of warpgroups that compute and of thread
# blocks of an SM; 0 if none move between them.
Registers = Callable[[int, int], tuple[int, int]]


def specialize_warps(func: PrimFunc, *, registers: Registers | None = None) -> PrimFunc:
    """Give the TMA copies of a loop to a warpgroup of its own, which runs ahead of those that compute.

        for k in range(n):                                  if threadIdx.y == 2:
            # specialize_warps: 4                               if threadIdx.x == 0:
            A = allocate(size)                                      for k in range(n):
            bulk_copy(A, k)                                             wait(empty[k % 4]); expect(full[k % 4], bytes)
            product(C, A)                          ->                   bulk_copy(A[k % 4], k)
                                                            else:
                                                                for k in range(n):
                                                                    wait(full[k % 4])
                                                                    product(C, A[k % 4])
                                                                    arrive(empty[(k - 1) % 4])

    Each stage of the pipeline has two mbarriers: `full` says that its copies have arrived, `empty` that all have used
    them. Copies before the loop have mbarriers of their own. A statement that uses the accumulators of a product waits
    for it. With `persistent_blocks: p` the kernel has p thread blocks, and each takes every p-th tile: it copies the
    operands of the next tile while it stores the results of the last. With `overlap_products` the products that end an
    iteration start after those that begin the next one, and the statements between them run meanwhile. `registers` says
    how the warpgroups of a GPU share the registers of an SM; without it all threads have the same number.
    Needs: flat loops; all threads of threadIdx.x and threadIdx.y compute. Gives: no TMA copy without an mbarrier.
    """
    marked = [m for m in statements(func.body) if isinstance(m, For) and SPECIALIZE in m.annotations]
    copies = any(isinstance(m, Call) and m.op is _COPY for m in pre_order(func.body))
    if not marked:
        if copies:
            raise LoweringError(
                f"a bulk copy is in no loop that is marked {SPECIALIZE!r}: no thread would wait for it; annotate "
                "the loop over the reduction"
            )
        return func
    return _Kernels(registers).run(func)


class _Kernels(Mutator):
    """Finds kernels, and rebuilds those with a marked loop."""

    def __init__(self, registers: Registers | None) -> None:
        self.registers = registers
        self.axes: list[AttrStmt] = []

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key != "thread_extent":
            return n.map_children(self.visit)
        self.axes.append(n)
        inner = n.body
        while isinstance(inner, AttrStmt) and inner.attr_key == "thread_extent":
            self.axes.append(inner)
            inner = inner.body
        axes, self.axes = self.axes, []
        marked = [m for m in pre_order(inner) if isinstance(m, For) and SPECIALIZE in m.annotations]
        if not marked:
            return n
        if len(marked) > 1:
            raise LoweringError(
                f"a kernel has {len(marked)} loops that are marked {SPECIALIZE!r}; only one is supported"
            )
        maps: list[tuple[Call, Var]] = []  # tensor maps of TMA: the host makes them, it knows the tensors
        made = _Kernel(axes, inner, marked[0], maps, self.registers).made()
        for value, var in maps:
            made = LetStmt(var, value, made)
        return made


@dataclass(slots=True)
class _Ring:
    """Shared memory in several versions: a ring that consecutive iterations go around."""

    var: Var
    size: int  # elements of one version
    versions: int
    early: bool  # whether it is filled before the loop
    plain: bool = False  # whether threads read it: rows of a tile are whole, not in pieces as for `wgmma`


class _Kernel:
    def __init__(
        self,
        axes: list[AttrStmt],
        body: Stmt,
        loop: For,
        maps: list[tuple[Call, Var]],
        registers: Registers | None,
    ) -> None:
        self.split = registers
        self.axes, self.body, self.loop, self.maps = axes, body, loop, maps
        self.stages = int(loop.annotations[SPECIALIZE])
        self.blocks = int(loop.annotations.get(PERSISTENT, 0))
        self.versions = int(loop.annotations.get(EARLY, 1))  # of the memory of copies before the loop
        self.x, self.y = self.axis("threadIdx.x"), self.axis("threadIdx.y")
        groups, lanes = const_value(self.y.value), const_value(self.x.value)
        # The kernel is organized by warps if threads read the copies, by warpgroups if `wgmma` does.
        self.warps = lanes == 32 and not any(
            isinstance(m, Call) and m.op in PRODUCTS for m in pre_order(body)
        )
        if groups is None or not (lanes == 128 or self.warps):
            raise LoweringError(
                f"the kernel of loop `{loop.loop_var.name}` has {self.x.value} x {self.y.value} threads; warpgroups "
                "are 128 along threadIdx.x, warps 32, and as many along threadIdx.y as compute"
            )
        self.groups = int(groups)
        # Registers move between whole warpgroups, so four warps are added where that is possible.
        self.fetching = 4 if self.warps and self.groups % 4 == 0 else 1
        self.users = self.groups * (32 if self.warps else 1)  # arrivals that release a stage for new copies
        self.ana = Analyzer()
        self.ana.bind_loop(self.thread(self.y), const(0), self.y.value)
        self.rings: dict[Var, _Ring] = {}
        self.locals: list[Allocate | DeclBuffer] = []  # declarations in the loop that are not rings
        self.barriers = Var("barriers", PointerType(PrimType(DataType("uint64")), SCOPE))
        self.copies, self.work = self.steps()
        for s in self.copies:
            to, told = s.value.args[:2]  # type: ignore[attr-defined]
            self.rings[to.args[1]].plain = THREADS in told.args[1].value
        self.bytes = _bytes(self.copies)
        self.early = [s for s in _outside(body, loop) if _copies_of(s)]
        self.around = _loops_around(body, loop)
        self.counter: Buffer | None = None
        self.begun = Var("begun", "int32")

    def axis(self, tag: str) -> AttrStmt:
        for n in self.axes:
            if isinstance(n.node, IterVar) and n.node.thread_tag == tag:
                return n
        raise LoweringError(
            f"the kernel of loop `{self.loop.loop_var.name}` has no {tag}; warpgroups compute along threadIdx.y, and "
            "their threads are those of threadIdx.x"
        )

    # -- the loop ----------------------------------------------------------------------------
    def steps(self) -> tuple[list[Stmt], list[Stmt]]:
        """The copies of an iteration, and its other statements; shared memory in the loop becomes rings."""
        inner: Stmt = self.loop.body
        while isinstance(inner, (Allocate, DeclBuffer)):
            self.take(inner)
            inner = inner.body
        copies, work = [], []
        for s in stmt_list(inner):
            found = _copies_of(s)
            copies += found
            work += [] if found else [s]
        if not copies or not work:
            raise LoweringError(
                f"loop `{self.loop.loop_var.name}` is marked {SPECIALIZE!r} and has "
                f"{'no bulk copy' if not copies else 'only copies'} in it"
            )
        return copies, written_out(work)

    def take(self, n: Allocate | DeclBuffer, early: bool = False) -> None:
        """Make an allocation of shared memory a ring; keep the other declarations of the loop."""
        var = n.buffer_var if isinstance(n, Allocate) else n.buffer.data
        if not scope_of(var).startswith("shared"):
            self.locals.append(n)
        elif isinstance(n, Allocate):
            kind = PointerType(PrimType(n.dtype), SCOPE)
            size = int(const_value(n.extents[0]) or 0)
            self.rings[var] = _Ring(Var(var.name, kind), size, self.versions if early else self.stages, early)

    @staticmethod
    def count(loops: list[For]) -> PrimExpr:
        """The number of iterations of a nest before this one."""
        count: PrimExpr = const(0)
        for x in loops:
            count = add(mul(count, x.extent), sub(x.loop_var, x.min))
        return count

    def turn(self) -> PrimExpr:
        """The number of iterations of the loop before this one, including those for other tiles."""
        if self.counter is None:
            return self.count([*self.around, self.loop])
        return add(self.begun, sub(self.loop.loop_var, self.loop.min))

    def counted(self, body: Stmt) -> Stmt:
        """Count the iterations of a loop whose extent differs from tile to tile."""
        if self.counter is None:
            return body
        zero = const(0)
        last = BufferStore(self.counter, add(self.begun, self.loop.extent), (zero,))
        return LetStmt(self.begun, BufferLoad(self.counter, (zero,)), seq(body, last))

    def placed(self, slot: PrimExpr, barrier: Call | None = None) -> _Placed:
        """A mutator that redirects statements to version `slot` of their rings."""
        slots: dict[Var, tuple[_Ring, PrimExpr]] = {}
        for old, ring in self.rings.items():
            slots[old] = (ring, self.round()[0] if ring.early else slot)
        return _Placed(slots, barrier, self.maps, self.ana)

    def at(self, turn: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The version of the rings that an iteration uses, and the phase (0 or 1) of its mbarriers."""
        size = const(self.stages)
        return floormod(turn, size), floormod(floordiv(turn, size), const(2))

    def barrier(self, which: int, slot: PrimExpr) -> Call:
        at = add(slot, const(which * self.stages))
        return access_ptr(self.barriers, DataType("uint64"), at, 1, 3)

    def loop_with(self, body: list[Stmt], start: PrimExpr | None = None) -> For:
        keep = {k: v for k, v in self.loop.annotations.items() if not k.startswith("tilewright.")}
        loop = self.loop
        if start is not None:
            loop = loop.replace(min=start, extent=sub(add(loop.min, loop.extent), start))
        return loop.replace(body=seq(*body), annotations=keep)

    def fetch(self) -> Stmt:
        slot, parity = self.at(self.turn())
        full = self.barrier(0, slot)
        place = self.placed(slot, full)
        loop = self.loop_with(
            [
                _do("ptx_wait_barrier", self.barrier(1, slot), sub(const(1), parity)),
                _do("ptx_arrive_barrier_expect_tx", full, const(self.bytes)),
                *(place.visit(s) for s in self.copies),
            ]
        )
        if not self.early:
            return self.counted(loop)
        copies = [c for s in self.early for c in _copies_of(s)]
        which, parity = self.round()
        there = self.early_barrier(0, which)
        place = self.placed(which, there)
        free = _do("ptx_wait_barrier", self.early_barrier(1, which), sub(const(1), parity))
        return seq(
            *([free] if self.around else []),
            _do("ptx_arrive_barrier_expect_tx", there, const(_bytes(copies))),
            *(place.visit(s) for s in copies),
            self.counted(loop),
        )

    def round(self) -> tuple[PrimExpr, PrimExpr]:
        """The version of the copies before the loop that a tile uses, and the phase (0 or 1) of its mbarriers."""
        count, size = self.count(self.around), const(self.versions)
        return floormod(count, size), floormod(floordiv(count, size), const(2))

    def early_barrier(self, which: int, slot: PrimExpr) -> Call:
        at = add(slot, const(2 * self.stages + which * self.versions))
        return access_ptr(self.barriers, DataType("uint64"), at, 1, 3)

    def compute(self) -> Stmt:
        products = sum(isinstance(m, Call) and m.op in PRODUCTS for s in self.work for m in pre_order(s))
        before, _, after = apart(self.work)
        if products == 1 and is_product(self.work[-1]) and const_value(self.loop.extent):
            body = self.one_behind()
        elif self.loop.annotations.get(OVERLAP) and before and after:
            body = self.overlapping()
        else:
            body = self.one_by_one()
        if self.early:
            which, parity = self.round()
            body = seq(_do("ptx_wait_barrier", self.early_barrier(0, which), parity), body)
        body = self.counted(body)
        for n in reversed(self.locals):
            body = n.replace(body=body)
        return body

    def one_behind(self) -> Stmt:
        """Wait for each product only after the next one has started; the last product is peeled off the loop.

        The accumulators are read after that one: NVIDIA's assembler may move a read before the wait for a product that
        is still in flight when the loop ends.
        """
        turn, v = self.turn(), self.loop.loop_var
        slot, parity = self.at(turn)
        place = self.placed(slot)
        first = equal(self.thread(self.x), const(0))
        body = [_do("ptx_wait_barrier", self.barrier(0, slot), parity), *(place.visit(s) for s in self.work)]
        count = int(const_value(self.loop.extent) or 0)
        end = {v: add(self.loop.min, const(count - 1))}
        last = [renew_defs_in(substitute(s, end)) for s in body]
        ended = [self.release(substitute(turn, end))]
        if count == 1:
            return seq(*last, _do("ptx_wgmma_wait", const(0)), IfThenElse(first, seq(*ended)), *self.used())
        begun = greater(v, self.loop.min)
        before = IfThenElse(logical_and(begun, first), self.release(sub(turn, const(1))))
        loop = self.loop_with([*body, _do("ptx_wgmma_wait", const(1)), before])
        ended.insert(0, substitute(self.release(sub(turn, const(1))), end))
        return seq(
            loop.replace(extent=const(count - 1, v.dtype)),
            *last,
            _do("ptx_wgmma_wait", const(0)),
            IfThenElse(first, seq(*ended)),
            *self.used(),
        )

    def used(self) -> list[Stmt]:
        """Release the memory of the copies before the loop."""
        if not self.early or not self.around:
            return []
        done = _do("ptx_arrive_barrier", self.early_barrier(1, self.round()[0]))
        return [done if self.warps else IfThenElse(equal(self.thread(self.x), const(0)), done)]

    def one_by_one(self) -> Stmt:
        """The loop without overlap: no product is in flight when the next iteration begins."""
        turn = self.turn()
        first = equal(self.thread(self.x), const(0))
        body = in_order(self.using(self.work, turn), {})
        # Threads that read a stage themselves each release it: those of a warp need not be at the same instruction.
        done = self.release(turn) if self.warps else IfThenElse(first, self.release(turn))
        loop = self.loop_with([self.arrived(turn), *body, done])
        return seq(loop, *self.used())

    def overlapping(self) -> Stmt:
        """The loop with `overlap_products`: the last products of an iteration run beside the first products of the next
        one and the statements that follow those."""
        before, between, after = apart(self.work)
        v, begin = self.loop.loop_var, self.loop.min
        first, turn = equal(self.thread(self.x), const(0)), self.turn()
        end = add(begin, sub(self.loop.extent, const(1)))
        earlier = {v: sub(v, const(1))}
        early = {old for old, ring in self.rings.items() if ring.early}
        free = not any(m in early for s in after for m in pre_order(s) if isinstance(m, Var))

        def late(table: dict[Var, PrimExpr]) -> list[Stmt]:
            return [substitute(s, table) for s in self.using(after, turn)]

        def done(table: dict[Var, PrimExpr]) -> Stmt:
            return IfThenElse(first, substitute(self.release(turn), table))

        start = in_order(self.using([*before, *between], turn), {})
        start = [substitute(s, {v: begin}) for s in (self.arrived(turn), *start)]
        steps = [*self.using(before, turn), *late(earlier), *self.using(between, turn)]
        last = len(before) + len(after) - 1
        body = in_order(steps, {last: done(earlier)})
        return seq(
            *map(renew_defs_in, start),
            self.loop_with([self.arrived(turn), *body], add(begin, const(1))),
            *(self.used() if free else []),
            *in_order(late({v: end}), {len(after) - 1: done({v: end})}),
            *([] if free else self.used()),
        )

    def using(self, steps: list[Stmt], turn: PrimExpr) -> list[Stmt]:
        place = self.placed(self.at(turn)[0])
        return [place.visit(s) for s in steps]

    def arrived(self, turn: PrimExpr) -> Stmt:
        slot, parity = self.at(turn)
        return _do("ptx_wait_barrier", self.barrier(0, slot), parity)

    def release(self, turn: PrimExpr) -> Stmt:
        return _do("ptx_arrive_barrier", self.barrier(1, floormod(turn, const(self.stages))))

    @staticmethod
    def thread(axis: AttrStmt) -> Var:
        assert isinstance(axis.node, IterVar)
        return axis.node.var

    # -- the kernel --------------------------------------------------------------------------
    def made(self) -> Stmt:
        x, y = self.thread(self.x), self.thread(self.y)
        rounds, tile = self.rounds()
        if rounds is not None:
            self.around.insert(0, rounds)
        if self.around and const_value(self.loop.extent) is None:
            self.counter = decl_buffer((1,), "int32", "turns", scope="local")
        for n in pre_order(self.body) if self.early else ():
            if isinstance(n, Allocate) and scope_of(n.buffer_var).startswith("shared"):
                if n.buffer_var not in self.rings:
                    self.take(n, early=True)
        fetching = _only(self.body, self.loop, self.fetch())
        assert fetching is not None
        computing = _Computing(self.loop, self.compute(), self.early, self.rings).visit(self.body)
        alone = equal(x, const(0))
        if self.fetching > 1:
            alone = logical_and(alone, equal(y, const(self.groups)))
        parts = [IfThenElse(alone, fetching), computing]
        parts = [renew_defs_in(self.in_rounds(p, rounds, tile)) for p in parts]
        if self.counter is not None:
            parts = [seq(BufferStore(self.counter, const(0), (const(0),)), p) for p in parts]
        few, many = self.registers()
        if many:
            parts[0] = seq(_do("ptx_set_registers", const(few), const(0)), parts[0])
            parts[1] = seq(_do("ptx_set_registers", const(many), const(1)), parts[1])
        others = (greater_equal if self.fetching > 1 else equal)(y, const(self.groups))
        both = IfThenElse(others, parts[0], parts[1])
        body: Stmt = seq(self.begin(x, y), both)
        if self.counter is not None:
            turns = self.counter
            body = DeclBuffer(turns, body)
            body = Allocate(turns.data, turns.dtype, turns.shape, const(True, "bool"), body, {})
        count = const(2 * self.stages + (2 * self.versions if self.early else 0))
        body = Allocate(self.barriers, DataType("uint64"), (count,), const(True, "bool"), body, {})
        for old, ring in reversed(self.rings.items()):
            held: Any = old.type_annotation
            size = const(ring.size * ring.versions)
            body = Allocate(ring.var, held.element_type.dtype, (size,), const(True, "bool"), body, {})
        for n in reversed(self.axes):
            body = self.with_axis(n, body, rounds is not None)
        return body

    def registers(self) -> tuple[int, int]:
        """The registers of a thread that copies and of one that computes; 0 if the kernel moves none."""
        if self.split is None or (self.warps and self.fetching == 1):
            return 0, 0
        told = [m.value for m in pre_order(self.body) if isinstance(m, AttrStmt) and m.attr_key == MIN_BLOCKS]
        blocks = int(const_value(told[0]) or 1) if told else 1
        return self.split(self.groups // self.fetching, blocks)

    def begin(self, x: Var, y: Var) -> Stmt:
        init = [
            _do("ptx_init_barrier_thread_count", self.barrier(which, const(i)), const(count))
            for which, count in ((0, 1), (1, self.users))
            for i in range(self.stages)
        ]
        if self.early:
            init += [
                _do("ptx_init_barrier_thread_count", self.early_barrier(which, const(i)), const(count))
                for which, count in ((0, 1), (1, self.users))
                for i in range(self.versions)
            ]
        alone = logical_and(equal(x, const(0)), equal(y, const(0)))
        return seq(IfThenElse(alone, seq(*init)), _do("tvm_storage_sync", StringImm("shared")))

    def with_axis(self, n: AttrStmt, body: Stmt, persistent: bool) -> AttrStmt:
        assert isinstance(n.node, IterVar)
        size = n.value
        if n is self.y:
            size = const(self.groups + self.fetching)
        elif persistent and n.node.thread_tag == "blockIdx.x":
            size = const(self.blocks)
        node = n.node
        if size is not n.value:
            dom = Range.from_min_extent(const(0), size)
            node = IterVar(dom, n.node.var, n.node.iter_type, n.node.thread_tag)
        return n.replace(node=node, value=size, body=body)

    def rounds(self) -> tuple[For | None, Var | None]:
        """The loop over the tiles of a persistent thread block, and the block's index; None if each has one tile."""
        if not self.blocks:
            return None, None
        grid = self.axis("blockIdx.x")
        tiles, block = const_value(grid.value), self.thread(grid)
        if tiles is None or tiles <= self.blocks:
            return None, None
        left = sub(const(int(tiles) + self.blocks - 1), block)
        v = Var("round", block.dtype)
        return For(v, const(0), floordiv(left, const(self.blocks)), ForKind.SERIAL, Evaluate(const(0))), block

    def in_rounds(self, body: Stmt, rounds: For | None, block: Var | None) -> Stmt:
        if rounds is None or block is None:
            return body
        tile = add(mul(rounds.loop_var, const(self.blocks)), block)
        return rounds.replace(body=substitute(body, {block: tile}))


class _Placed(Mutator):
    """Redirects statements to one version of each ring."""

    def __init__(
        self,
        rings: dict[Var, tuple[_Ring, PrimExpr]],
        barrier: Call | None,
        maps: list[tuple[Call, Var]],
        ana: Analyzer,
    ) -> None:
        self.rings, self.barrier, self.maps, self.ana = rings, barrier, maps, ana
        self.made = {ring.var: (ring, slot) for ring, slot in rings.values()}
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _MAP:
            for held, var in self.maps:
                if structural_equal(held, n):
                    return var
            kind = PointerType(PrimType(DataType("uint64")), "tensor_map")
            self.maps.append((n, Var(f"{n.args[0].name}_map", kind)))  # type: ignore[attr-defined]
            return self.maps[-1][1]
        made = n.map_children(self.visit)
        if n.op in PRODUCTS:  # each operand in shared memory is followed by the length of its rows
            args = [*made.args]
            for i in (i for i, p in enumerate(args) if _is_pointer(p)):
                args[i], args[i + 1] = (
                    self.in_ring(args[i], self.lines(args[i], args[i + 1])),
                    self.high(args[i], args[i + 1]),
                )
            return made.replace(args=tuple(args))
        if n.op is _COPY and self.barrier is not None:
            to: Any = made.args[0]
            return made.replace(
                args=(self.in_ring(to, to.args[2]), made.args[1], self.barrier, *made.args[3:])
            )
        if _is_pointer(n) and n.args[1] in self.rings:
            return made.replace(args=(made.args[0], self.rings[n.args[1]][0].var, *made.args[2:]))  # type: ignore[index]
        return made

    def in_ring(self, pointer: Any, offset: PrimExpr) -> PrimExpr:
        """A pointer into the current version of its ring."""
        ring, slot = self.made[pointer.args[1]]
        at = add(mul(slot, const(ring.size)), offset)
        return pointer.replace(args=(*pointer.args[:2], at, *pointer.args[3:]))  # type: ignore[no-any-return]

    def high(self, pointer: Any, wide: PrimExpr) -> PrimExpr:
        """The rows of a tile, whose rows are `wide` elements."""
        return const(self.made[pointer.args[1]][0].size // int(const_value(wide) or 1))

    def lines(self, pointer: Any, wide: PrimExpr) -> PrimExpr:
        """The offset of an element in a tile that TMA copied in pieces, each as wide as a swizzled row."""
        offset, size, line = pointer.args[2], const_value(wide), line_of(pointer.args[0].dtype)
        if pointer.args[1] not in self.made or size is None or size % line:
            raise LoweringError(
                f"an operand of a warpgroup's product is not a tile that a bulk copy filled: `{pointer}`, rows of "
                f"{wide}"
            )
        if size == line:
            return offset  # type: ignore[no-any-return]
        row, column = floordiv(offset, wide), floormod(offset, wide)
        piece = mul(mul(floordiv(column, const(line)), const(line)), self.high(pointer, wide))
        return self.ana.simplify(add(add(piece, mul(row, const(line))), floormod(column, const(line))))

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        made = n.map_children(self.visit)
        held = self.rings.get(n.buffer.data)
        if held is None:
            return made
        ring, slot = held
        if not ring.plain:
            raise LoweringError(
                f"{n.buffer.name} is filled by bulk copies, which swizzle it: only products of "
                f"warpgroups can read it; set {BULK_COPY!r} to {THREADS!r} if threads read it"
            )
        buffer = self.buffers.setdefault(
            n.buffer, n.buffer.replace(data=ring.var, shape=(const(ring.size * ring.versions),))
        )
        return made.replace(buffer=buffer, indices=(add(mul(slot, const(ring.size)), made.indices[0]),))

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        if n.buffer.data in self.rings:
            raise LoweringError(
                f"{n.buffer.name} is filled by bulk copies, and another statement writes to it: only bulk copies may"
            )
        return n.map_children(self.visit)


def _is_copy(s: Stmt) -> bool:
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op is _COPY


def _copies_of(s: Stmt) -> list[Stmt]:
    """The TMA copies of a statement, if it does nothing else. The condition for one thread around them is dropped: the
    warpgroup that copies has its own."""
    parts = stmt_list(s.then_case) if isinstance(s, IfThenElse) and s.else_case is None else [s]
    return parts if all(map(_is_copy, parts)) else []


def _bytes(copies: list[Stmt]) -> int:
    pointers: list[Any] = [s.value.args[0] for s in copies]  # type: ignore[attr-defined]
    return sum(int(const_value(p.args[3]) or 0) * p.args[0].dtype.nbytes for p in pointers)


def _is_pointer(e: Any) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.short_name == "tvm_access_ptr"


def _outside(n: Any, loop: For) -> list[Stmt]:
    """The statements of a kernel outside a loop; those that only copy are kept whole."""
    if n is loop:
        return []
    if isinstance(n, Stmt) and _copies_of(n):
        return [n]
    return [s for c in n.children() if isinstance(c, Stmt) for s in _outside(c, loop)]


def _do(name: str, *args: PrimExpr) -> Stmt:
    return Evaluate(Call("int32", f"tir.{name}", list(args)))


def _loops_around(n: Any, loop: For) -> list[For]:
    """The loops around a loop in a kernel, the outermost first."""
    if n is loop:
        return []
    for c in n.children():
        if isinstance(c, Stmt) and (c is loop or any(m is loop for m in pre_order(c))):
            inner = _loops_around(c, loop)
            return [n, *inner] if isinstance(n, For) else inner
    return []


def _only(n: Stmt, loop: For, made: Stmt) -> Stmt | None:
    """The statements around a loop with `made` in its place, without those beside it; None if the loop is not there."""
    if n is loop:
        return made
    if isinstance(n, SeqStmt):
        return next((x for x in (_only(s, loop, made) for s in n.seq) if x is not None), None)
    if isinstance(n, IfThenElse):
        then = _only(n.then_case, loop, made)
        if then is not None:
            return n.replace(then_case=then, else_case=None)
        return None
    body = getattr(n, "body", None)
    inner = _only(body, loop, made) if isinstance(body, Stmt) else None
    if inner is None or isinstance(n, (Allocate, DeclBuffer)):
        return inner
    return n.replace(body=inner)


class _Computing(Mutator):
    """The kernel of the warpgroups that compute: without copies and rings, and with `made` in place of the loop."""

    def __init__(self, loop: For, made: Stmt, early: list[Stmt], rings: dict[Var, _Ring]) -> None:
        self.loop, self.made, self.early, self.rings = loop, made, early, rings

    def visit_For(self, n: For) -> Stmt:
        return self.made if n is self.loop else n.map_children(self.visit)

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        return seq(*(self.visit(s) for s in n.seq if not any(s is e for e in self.early)))

    def visit_Allocate(self, n: Allocate) -> Stmt:
        return self.visit(n.body) if n.buffer_var in self.rings else n.map_children(self.visit)  # type: ignore[no-any-return]

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        return self.visit(n.body) if n.buffer.data in self.rings else n.map_children(self.visit)  # type: ignore[no-any-return]
