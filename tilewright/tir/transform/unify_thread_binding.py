"""The thread axes of a kernel, opened once around all of it."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer, BufferRegion
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, IterVar, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Substitution, pre_order, statements, vars_used
from ...ir.ops import add, equal, is_zero, less, logical_and
from ...ir.stmt import Block, BlockRealize, BufferStore, Evaluate, For, ForKind, LetStmt, Stmt
from ..analysis.carried import reads_are_covered, uses_under
from ..analysis.threads import AXES, is_hardware_loop, is_shared_by_warp


def unify_thread_binding(func: PrimFunc) -> PrimFunc:
    """Bind each thread axis of a kernel once, around all of it, with predicates for the threads that run a block.

        for i in thread_binding(8, "blockIdx.x"):        for i in thread_binding(8, "blockIdx.x"):
            for j in thread_binding(4, "threadIdx.x"):       for j in thread_binding(6, "threadIdx.x"):
                with block("S"): …                               with block("S"): where(j < 4); …
            for k in thread_binding(6, "threadIdx.x"):  ->       with block("T"): … j …
                with block("T"): … k …                           with block("U"): where(j == 0); …
            with block("U"): …

    A block that does not use an axis is run by the first thread of the axis, unless it writes memory that is private to
    a thread. Allocations of blocks around thread loops move around the kernel, for `plan_buffer_allocation`.
    Needs: block form. Gives: kernels that are thread loops around everything else.
    """
    nodes = list(statements(func.body))
    if not any(isinstance(m, BlockRealize) for m in nodes) or not any(map(is_hardware_loop, nodes)):
        return func
    return _Unify(func).run(func)


def _tag(n: For) -> str:
    assert n.thread_binding is not None
    return n.thread_binding.thread_tag


class _Axis:
    """An axis of a kernel: its variable, its extent, and the annotations of its loops."""

    def __init__(self, var: Var, extent: PrimExpr, notes: dict[str, Any]) -> None:
        self.var, self.extent, self.notes = var, extent, notes


class _Unify(Substitution):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__({})
        self.table: dict[Any, Any] = {}
        self.counts = _accesses(func.body)
        self.params = set(func.buffer_map.values())
        self.own: set[Buffer] = set()  # buffers that only this kernel uses
        self.ana = Analyzer()
        self.axes: dict[str, _Axis] = {}
        self.covered: dict[str, PrimExpr] = {}  # the axes of enclosing loops, with their extents
        self.uses: dict[Var, frozenset[str]] = {}  # the axes that a variable depends on
        self.in_leaf = False  # in a block without thread loops inside
        self.memory: list[Buffer] = []  # allocations of blocks around thread loops

    def visit_For(self, n: For) -> Stmt:
        if not is_hardware_loop(n):
            self.uses[n.loop_var] = self.axes_of(n.min, n.extent)
            return n.map_children(self.visit)
        if not self.axes:
            return self.kernel(n)
        tag = _tag(n)
        self.uses[n.loop_var] = frozenset((tag,))
        axis, held = self.axes[tag], self.covered.get(tag)
        if axis.var is not n.loop_var:
            self.table[n.loop_var] = axis.var if is_zero(n.min) else add(n.min, axis.var)
        self.covered[tag] = n.extent if held is None else held
        body: Stmt = self.visit(n.body)
        if held is None:
            del self.covered[tag]
        return body

    def kernel(self, n: For) -> Stmt:
        """The statement as one kernel."""
        loops = [m for m in pre_order(n) if is_hardware_loop(m)]
        tags = sorted({_tag(m): None for m in loops}, key=lambda t: AXES.index(t.partition(".")[0]))
        inside = _defined(n)
        mine_only = {b for b, c in _accesses(n).items() if c == self.counts[b]}
        self.own = mine_only - self.params
        for tag in tags:
            mine = [m for m in loops if _tag(m) == tag]
            var = mine[0].loop_var
            notes = {key: value for m in mine for key, value in m.annotations.items()}
            self.axes[tag] = _Axis(Var(var.name, var.dtype), _widest(tag, mine, inside), notes)
        plain = self.is_plain(n, tags)
        if plain:
            for tag, x in zip(tags, _nest(n)):
                self.axes[tag].var = x.loop_var
        body = self.visit_For(n)
        if plain and body is _nest(n)[len(tags) - 1].body:
            self.axes.clear()
            return n
        for tag in reversed(tags):
            axis = self.axes[tag]
            bound = IterVar(None, tag, IterVar.ThreadIndex, tag)
            zero = const(0, axis.var.dtype)
            body = For(axis.var, zero, axis.extent, ForKind.THREAD_BINDING, body, bound, axis.notes)
            if tag.startswith("blockIdx") and not self.stood_there(n, tag, loops):
                self.check_blocks(body, tag)
        self.axes.clear()
        memory, self.memory = self.memory, []
        return BlockRealize([], True, Block([], [], [], "", body, alloc_buffers=memory)) if memory else body

    def stood_there(self, n: For, tag: str, loops: list[For]) -> bool:
        """Whether an axis was bound once, around the whole kernel."""
        mine = [m for m in loops if _tag(m) == tag]
        return len(mine) == 1 and any(x is mine[0] for x in _nest(n))

    def check_blocks(self, loop: For, tag: str) -> None:
        """Refuse if a thread loop that moved outwards has a loop-carried dependence."""
        for buffer, uses in uses_under(loop).items():
            if buffer in self.own and uses and not reads_are_covered(loop, uses, Analyzer()):
                raise LoweringError(
                    f"{buffer.name} carries data from one thread block of {tag} to another inside a "
                    f"kernel (loop `{loop.loop_var.name}`), where they cannot wait for each other; let each "
                    "block compute what it reads (compute_at), or use two kernels"
                )

    def axes_of(self, *parts: PrimExpr) -> frozenset[str]:
        """The thread axes that values depend on."""
        return frozenset(t for e in parts for v in vars_used(e) for t in self.uses.get(v, ()))

    def is_plain(self, n: For, tags: list[str]) -> bool:
        """Whether the kernel has this form already."""
        here: Any = n
        for tag in tags:
            if not is_hardware_loop(here) or _tag(here) != tag:
                return False
            if not is_zero(here.min) or here.extent is not self.axes[tag].extent:
                return False
            here = here.body
        return not any(is_hardware_loop(m) for m in pre_order(here))

    def visit_BlockRealize(self, n: BlockRealize) -> BlockRealize:
        for iv, value in n.bindings:
            self.uses[iv.var] = self.axes_of(value)
        if not self.axes or self.in_leaf or any(is_hardware_loop(m) for m in pre_order(n.block)):
            made = n.map_children(self.visit)
            if self.axes and not self.in_leaf:
                # A buffer that all threads of an inner loop share belongs around the loop, and the regions that the
                # block declares are not those of one thread.
                self.memory += made.block.alloc_buffers
                kept = [_of_warps(r, n.block) for r in (made.block.reads, made.block.writes)]
                made = made.replace(block=made.block.replace(alloc_buffers=(), reads=kept[0], writes=kept[1]))
            return made
        used = {t for m in pre_order(n) if isinstance(m, Var) for t in self.uses.get(m, ())}
        self.in_leaf = True
        made = n.map_children(self.visit)
        self.in_leaf = False
        predicate = made.predicate
        for tag, axis in self.axes.items():
            size = self.covered.get(tag)
            if size is not None and not self.ana.can_prove_equal(size, axis.extent):
                predicate = logical_and(predicate, less(axis.var, size))
            if tag not in used and const_value(axis.extent) != 1 and self.is_once(n, tag):
                predicate = logical_and(predicate, equal(axis.var, const(0, axis.var.dtype)))
        return made.updated(predicate=predicate)

    def is_once(self, n: BlockRealize, tag: str) -> bool:
        """Whether threads that all run a block would write the same element of shared memory.

        A buffer that only this kernel uses is private to each thread block. Instructions are left to all threads: those
        of the hardware that fill memory are run by whole warps.
        """
        if any(isinstance(m, Evaluate) and isinstance(m.value, Call) for m in pre_order(n.block)):
            return False
        if tag.startswith(("blockIdx", "clusterCtaIdx")):
            return any(w.buffer.scope() == "global" and w.buffer not in self.own for w in n.block.writes)
        return any(w.buffer.scope().startswith(("global", "shared")) for w in n.block.writes)


def _of_warps(regions: tuple[BufferRegion, ...], block: Block) -> tuple[BufferRegion, ...]:
    """The uses of memory that the threads of a warp share, widened over those threads."""
    if any(is_hardware_loop(m) and _tag(m) != "threadIdx.x" for m in pre_order(block)):
        return ()
    return tuple(r for r in regions if is_shared_by_warp(r.buffer.scope()))


def _nest(n: For) -> list[For]:
    """The loops from `n` on that hold nothing but the next one."""
    out = [n]
    while isinstance(out[-1].body, For):
        out.append(out[-1].body)
    return out


def _accesses(n: Stmt) -> dict[Buffer, int]:
    """How often each buffer is mentioned."""
    out: dict[Buffer, int] = {}
    for m in pre_order(n):
        if isinstance(m, (BufferLoad, BufferStore, BufferRegion)):
            out[m.buffer] = out.get(m.buffer, 0) + 1
    return out


def _defined(n: Stmt) -> set[Var]:
    """The variables that a statement defines, thread axes aside."""
    out: set[Var] = set()
    for m in pre_order(n):
        if isinstance(m, For):
            out.add(m.loop_var)
        elif isinstance(m, LetStmt):
            out.add(m.var)
        elif isinstance(m, BlockRealize):
            out.update(iv.var for iv in m.block.iter_vars)
    return out


def _widest(tag: str, loops: list[For], inside: set[Var]) -> PrimExpr:
    """The extent of an axis: the greatest of all loops that are bound to it."""
    ana = Analyzer()
    widest = loops[0].extent
    for m in loops:
        if vars_used(m.extent) & inside:
            raise LoweringError(
                f"loop `{m.loop_var.name}` is bound to {tag} and has {m.extent} iterations, which changes "
                "inside the kernel: the number of threads is fixed when it is launched; split off a loop of "
                "constant extent, and bind that"
            )
        known, size = const_value(widest), const_value(m.extent)
        if known is not None and size is not None:
            widest = m.extent if size > known else widest
        elif not ana.can_prove_equal(widest, m.extent):
            raise LoweringError(
                f"{tag} has {widest} threads in loop `{loops[0].loop_var.name}` and {m.extent} in loop "
                f"`{m.loop_var.name}` of one kernel; bind loops of one extent, or of constant ones"
            )
    return widest
