"""Warps that fetch while others compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.dtype import DataType
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import Call, IterVar, PrimExpr, Range, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, renew_defs_in, substitute
from ...ir.op import Op
from ...ir.ops import add, equal, floordiv, floormod, greater, logical_and, mul, sub
from ...ir.stmt import (
    Allocate,
    AttrStmt,
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
from .lower_bulk_copies import LINE, access_ptr

__all__ = ["PERSISTENT", "SPECIALIZE", "specialize_warps"]

SPECIALIZE = "tilewright.specialize_warps"  # of a loop: how many of its iterations may be on their way
PERSISTENT = "tilewright.persistent_blocks"  # of the same loop: how many blocks share all tiles
SCOPE = "shared.async"  # memory that barriers of its own keep in order
_COPY, _MAP, _PRODUCT = (Op.get(f"tir.{n}") for n in ("ptx_cp_async_bulk_tensor", "tensor_map", "ptx_wgmma"))
_REGISTERS = {
    2: (40, 232),
    3: (32, 160),
}  # by the number of computing warpgroups: for who fetches, who computes


def specialize_warps(func: PrimFunc) -> PrimFunc:
    """Give the bulk copies of a loop to a warpgroup of its own, which runs ahead of those that compute.

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

    A barrier for each of the copies says that it is there, another that all have used it. With
    `persistent_blocks: p` the kernel has p blocks, and each takes every p-th tile: it fetches for the next one
    while it stores the results of the last.
    Needs: flat loops; all threads of threadIdx.x and threadIdx.y compute. Gives: no bulk copy without a barrier.
    """
    marked = [m for m in pre_order(func.body) if isinstance(m, For) and SPECIALIZE in m.annotations]
    copies = any(isinstance(m, Call) and m.op is _COPY for m in pre_order(func.body))
    if not marked:
        if copies:
            raise LoweringError(
                f"a bulk copy stands in no loop that is marked {SPECIALIZE!r}: nobody would wait for it; annotate "
                "the loop over the reduction"
            )
        return func
    kernels = _Kernels()
    made = kernels.run(func)
    body = made.body
    for value, var in kernels.maps:
        body = LetStmt(var, value, body)
    return made.replace(body=body)


class _Kernels(Mutator):
    """Finds kernels, and rebuilds those with a marked loop."""

    def __init__(self) -> None:
        self.axes: list[AttrStmt] = []
        self.maps: list[tuple[Call, Var]] = []

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
                f"a kernel has {len(marked)} loops that are marked {SPECIALIZE!r}; one can be"
            )
        return _Kernel(axes, inner, marked[0], self.maps).made()


@dataclass(slots=True)
class _Ring:
    """Memory in several versions, as one of the rounds uses them."""

    var: Var
    size: int  # elements of one version


class _Kernel:
    def __init__(self, axes: list[AttrStmt], body: Stmt, loop: For, maps: list[tuple[Call, Var]]) -> None:
        self.axes, self.body, self.loop, self.maps = axes, body, loop, maps
        self.stages = int(loop.annotations[SPECIALIZE])
        self.blocks = int(loop.annotations.get(PERSISTENT, 0))
        self.x, self.y = self.axis("threadIdx.x"), self.axis("threadIdx.y")
        groups = const_value(self.y.value)
        if groups is None or const_value(self.x.value) != 128:
            raise LoweringError(
                f"the kernel of loop `{loop.loop_var.name}` has {self.x.value} x {self.y.value} threads; warpgroups "
                "are 128 along threadIdx.x, and as many along threadIdx.y as compute"
            )
        self.groups = int(groups)
        self.ana = Analyzer()
        self.ana.bind_loop(self.thread(self.y), const(0), self.y.value)
        self.rings: dict[Var, _Ring] = {}
        self.barriers = Var("barriers", PointerType(PrimType(DataType("uint64")), SCOPE))
        self.bytes = 0
        self.copies, self.work = self.steps()
        self.around = _loops_around(body, loop)

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
        """The copies of an iteration, and the rest of it; memory in the loop becomes a ring of versions."""
        inner: Stmt = self.loop.body
        while isinstance(inner, (Allocate, DeclBuffer)):
            if isinstance(inner, Allocate):
                size = const_value(inner.extents[0])
                kind = PointerType(PrimType(inner.dtype), SCOPE)
                self.rings[inner.buffer_var] = _Ring(Var(inner.buffer_var.name, kind), int(size or 0))
            inner = inner.body
        copies, work = [], []
        for s in stmt_list(inner):
            # One thread of those that compute would do a copy; now it is one that does nothing else.
            parts = stmt_list(s.then_case) if isinstance(s, IfThenElse) and s.else_case is None else [s]
            if not all(map(_is_copy, parts)):
                work.append(s)
                continue
            copies += parts
            for part in parts:
                pointer: Any = part.value.args[0]  # type: ignore[attr-defined]
                self.bytes += int(const_value(pointer.args[3]) or 0) * pointer.args[0].dtype.nbytes
        if not copies or not work:
            raise LoweringError(
                f"loop `{self.loop.loop_var.name}` is marked {SPECIALIZE!r} and has "
                f"{'no bulk copy' if not copies else 'nothing else than copies'} in it"
            )
        return copies, work

    def turn(self) -> PrimExpr:
        """How many iterations there were before this one, over all loops around."""
        count: PrimExpr = const(0)
        for x in (*self.around, self.loop):
            count = add(mul(count, x.extent), sub(x.loop_var, x.min))
        return count

    def barrier(self, which: int, slot: PrimExpr) -> Call:
        at = add(slot, const(which * self.stages))
        return access_ptr(self.barriers, DataType("uint64"), at, 1, 3)

    def loop_with(self, body: list[Stmt]) -> For:
        keep = {k: v for k, v in self.loop.annotations.items() if not k.startswith("tilewright.")}
        return self.loop.replace(body=seq(*body), annotations=keep)

    def fetch(self) -> Stmt:
        turn = self.turn()
        slot, parity = (
            floormod(turn, const(self.stages)),
            floormod(floordiv(turn, const(self.stages)), const(2)),
        )
        full = self.barrier(0, slot)
        place = _Placed(self.rings, slot, full, self.maps, self.ana)
        return self.loop_with(
            [
                _do("ptx_wait_barrier", self.barrier(1, slot), sub(const(1), parity)),
                _do("ptx_arrive_barrier_expect_tx", full, const(self.bytes)),
                *(place.visit(s) for s in self.copies),
            ]
        )

    def compute(self) -> Stmt:
        turn = self.turn()
        slot, parity = (
            floormod(turn, const(self.stages)),
            floormod(floordiv(turn, const(self.stages)), const(2)),
        )
        place = _Placed(self.rings, slot, None, self.maps, self.ana)
        products = sum(isinstance(m, Call) and m.op is _PRODUCT for s in self.work for m in pre_order(s))
        first = equal(self.thread(self.x), const(0))
        begun = greater(self.loop.loop_var, self.loop.min)
        body = [_do("ptx_wait_barrier", self.barrier(0, slot), parity), *(place.visit(s) for s in self.work)]
        if products != 1:  # nothing of this iteration is on its way when the next one begins
            body += [_do("ptx_wgmma_wait", const(0)), IfThenElse(first, self.release(turn))]
            return self.loop_with(body)
        # The product before this one is done when only one is on its way.
        before = IfThenElse(logical_and(begun, first), self.release(sub(turn, const(1))))
        last = substitute(turn, {self.loop.loop_var: add(self.loop.min, sub(self.loop.extent, const(1)))})
        return seq(
            self.loop_with([*body, _do("ptx_wgmma_wait", const(1)), before]),
            _do("ptx_wgmma_wait", const(0)),
            IfThenElse(first, self.release(last)),
        )

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
        fetching = _only(self.body, self.loop, self.fetch())
        assert fetching is not None
        computing = _instead(self.body, self.loop, self.compute())
        parts = [IfThenElse(equal(x, const(0)), fetching), computing]
        parts = [renew_defs_in(self.in_rounds(p, rounds, tile)) for p in parts]
        few, many = _REGISTERS.get(self.groups, (0, 0))
        if many:
            parts[0] = seq(_do("ptx_set_registers", const(few), const(0)), parts[0])
            parts[1] = seq(_do("ptx_set_registers", const(many), const(1)), parts[1])
        both = IfThenElse(equal(y, const(self.groups)), parts[0], parts[1])
        body: Stmt = seq(self.begin(x, y), both)
        body = Allocate(
            self.barriers, DataType("uint64"), (const(2 * self.stages),), const(True, "bool"), body, {}
        )
        for old, ring in reversed(self.rings.items()):
            held: Any = old.type_annotation
            size = const(ring.size * self.stages)
            body = Allocate(ring.var, held.element_type.dtype, (size,), const(True, "bool"), body, {})
        for n in reversed(self.axes):
            body = self.with_axis(n, body, rounds is not None)
        return body

    def begin(self, x: Var, y: Var) -> Stmt:
        init = [
            _do("ptx_init_barrier_thread_count", self.barrier(which, const(i)), const(count))
            for which, count in ((0, 1), (1, self.groups))
            for i in range(self.stages)
        ]
        alone = logical_and(equal(x, const(0)), equal(y, const(0)))
        return seq(IfThenElse(alone, seq(*init)), _do("tvm_storage_sync", StringImm("shared")))

    def with_axis(self, n: AttrStmt, body: Stmt, persistent: bool) -> AttrStmt:
        assert isinstance(n.node, IterVar)
        size = n.value
        if n is self.y:
            size = const(self.groups + 1)
        elif persistent and n.node.thread_tag == "blockIdx.x":
            size = const(self.blocks)
        node = n.node
        if size is not n.value:
            dom = Range.from_min_extent(const(0), size)
            node = IterVar(dom, n.node.var, n.node.iter_type, n.node.thread_tag)
        return n.replace(node=node, value=size, body=body)

    def rounds(self) -> tuple[For | None, Var | None]:
        """The loop over the tiles of a block, if blocks take more than one."""
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
    """Statements over the version of their memory that it is the turn of."""

    def __init__(
        self,
        rings: dict[Var, _Ring],
        slot: PrimExpr,
        barrier: Call | None,
        maps: list[tuple[Call, Var]],
        ana: Analyzer,
    ) -> None:
        self.rings, self.slot, self.barrier, self.maps, self.ana = rings, slot, barrier, maps, ana

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _MAP:
            for held, var in self.maps:
                if structural_equal(held, n):
                    return var
            kind = PointerType(PrimType(DataType("uint64")), "tensor_map")
            self.maps.append((n, Var(f"{n.args[0].name}_map", kind)))  # type: ignore[attr-defined]
            return self.maps[-1][1]
        made = n.map_children(self.visit)
        if n.op is _PRODUCT:  # both operands, each followed by the length of its rows
            a, wide_a, b, wide_b = made.args[6:10]
            a, b = (self.turned(p, self.lines(p, wide)) for p, wide in ((a, wide_a), (b, wide_b)))
            return made.replace(args=(*made.args[:6], a, wide_a, b, wide_b))
        if n.op is _COPY and self.barrier is not None:
            to: Any = made.args[0]
            return made.replace(
                args=(self.turned(to, to.args[2]), made.args[1], self.barrier, *made.args[3:])
            )
        if isinstance(n.op, Op) and n.op.short_name == "tvm_access_ptr" and n.args[1] in self.rings:
            return made.replace(args=(made.args[0], self.rings[n.args[1]].var, *made.args[2:]))  # type: ignore[index]
        return made

    def turned(self, pointer: Any, offset: PrimExpr) -> PrimExpr:
        """A pointer into the version that it is the turn of."""
        size = next(r.size for r in self.rings.values() if r.var is pointer.args[1])
        at = add(mul(self.slot, const(size)), offset)
        return pointer.replace(args=(*pointer.args[:2], at, *pointer.args[3:]))  # type: ignore[no-any-return]

    def lines(self, pointer: Any, wide: PrimExpr) -> PrimExpr:
        """Where an element lies in a tile that was copied in pieces that are 64 elements wide."""
        offset, size = pointer.args[2], const_value(wide)
        if pointer.args[1] not in [r.var for r in self.rings.values()] or size is None or size % LINE:
            raise LoweringError(
                f"an operand of a warpgroup's product is no tile that a bulk copy left: `{pointer}`, rows of {wide}"
            )
        if size == LINE:
            return offset  # type: ignore[no-any-return]
        row, column = floordiv(offset, wide), floormod(offset, wide)
        piece = mul(floordiv(column, const(LINE)), const(LINE * LINE))
        return self.ana.simplify(add(add(piece, mul(row, const(LINE))), floormod(column, const(LINE))))

    def access(self, n: Any) -> Any:
        if n.buffer.data in self.rings:
            raise LoweringError(
                f"{n.buffer.name} is filled by bulk copies, and lies in memory as they swizzle it: only products of "
                "warpgroups can read it"
            )
        return n.map_children(self.visit)

    visit_BufferLoad = visit_BufferStore = access


def _is_copy(s: Stmt) -> bool:
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op is _COPY


def _do(name: str, *args: PrimExpr) -> Stmt:
    return Evaluate(Call("int32", f"tir.{name}", list(args)))


def _loops_around(n: Any, loop: For) -> list[For]:
    """The loops of a kernel that a loop stands in, the outermost first."""
    if n is loop:
        return []
    for c in n.children():
        if isinstance(c, Stmt) and (c is loop or any(m is loop for m in pre_order(c))):
            inner = _loops_around(c, loop)
            return [n, *inner] if isinstance(n, For) else inner
    return []


def _only(n: Stmt, loop: For, made: Stmt) -> Stmt | None:
    """What is around a loop, with `made` in its place, and nothing beside it."""
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


def _instead(n: Stmt, loop: For, made: Stmt) -> Stmt:
    return _Instead(loop, made).visit(n)  # type: ignore[no-any-return]


class _Instead(Mutator):
    def __init__(self, loop: For, made: Stmt) -> None:
        self.loop, self.made = loop, made

    def visit_For(self, n: For) -> Stmt:
        return self.made if n is self.loop else n.map_children(self.visit)
