"""Memory of threads: the position of its allocation, and whether it is visible to the threads that share it."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...ir.buffer import Buffer
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, PrimExpr, Range, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, statements, substitute, vars_used
from ...ir.stmt import Block, BlockRealize, BufferStore, For, Stmt
from ..analysis.carried import Use, is_disjoint, reads_are_covered, uses_under
from ..analysis.threads import is_hardware_loop, is_shared_by_warp


def place_thread_memory(func: PrimFunc) -> PrimFunc:
    """Allocate shared memory in the kernel that uses it; refuse memory that is not visible to all threads that use it.

        C = alloc_buffer((32,), scope="shared")        for tx in thread_binding(32, "threadIdx.x"):
        for tx in thread_binding(32, "threadIdx.x"):       with block(""):
            C[tx] = …                               ->         C = alloc_buffer((32,), scope="shared")
            … = C[31 - tx]                                     C[tx] = …
                                                               … = C[31 - tx]

    Local memory belongs to a thread: it must be allocated inside all thread axes already, where
    `plan_buffer_allocation` puts buffers that only the writing thread reads.
    Global memory that threads of one kernel write is for later kernels.
    Needs: block form, thread axes around everything, allocations in place. Gives: each allocation where the
    threads that share it are.
    """
    if not any(is_hardware_loop(m) for m in statements(func.body)):
        return func
    uses = _Uses()
    uses.walk(func.body, ())
    for kernel, nest in uses.kernels.items():
        _check_global(kernel, nest)
    moved = {b: _home(b, uses) for b in uses.at if uses.misplaced(b)}
    return _Move(moved).run(func) if moved else func


class _Uses:
    """For each allocated buffer: the loops around the allocation, and those around each of its accesses."""

    def __init__(self) -> None:
        self.at: dict[Buffer, tuple[For, ...]] = {}
        self.used: dict[Buffer, dict[tuple[For, ...], None]] = {}
        self.kernels: dict[For, list[For]] = {}  # by the outermost thread loop

    def walk(self, n: Any, around: tuple[For, ...]) -> None:
        if isinstance(n, For):
            if is_hardware_loop(n):
                outer = next((x for x in around if is_hardware_loop(x)), n)
                self.kernels.setdefault(outer, []).append(n)
            around = (*around, n)
        elif isinstance(n, Block):
            self.at.update(dict.fromkeys(n.alloc_buffers, around))
        elif isinstance(n, (BufferLoad, BufferStore)):
            self.used.setdefault(n.buffer, {})[around] = None
        for child in n.children():
            if isinstance(child, (Stmt, PrimExpr)):
                self.walk(child, around)

    def missing(self, b: Buffer) -> list[For]:
        """The thread axes between the allocation of the buffer and its uses."""
        depth = len(self.at[b])
        found = {x: None for path in self.used.get(b, {}) for x in path[depth:] if is_hardware_loop(x)}
        return list(found)

    def misplaced(self, b: Buffer) -> bool:
        """Whether the allocation is not in the scope of the threads that share it."""
        missing = self.missing(b)
        outside = not any(is_hardware_loop(x) for x in self.at[b])
        if b.scope().startswith("shared") and not outside:
            return any(_tag(x).startswith(_blocks(b)) for x in missing)
        return bool(missing) and not (b.scope() == "global" and outside)


def _tag(n: For) -> str:
    assert n.thread_binding is not None
    return n.thread_binding.thread_tag


def _blocks(b: Buffer) -> tuple[str, ...]:
    """The axes whose blocks have a copy each of a buffer in shared memory; the blocks of a cluster may share it."""
    return ("blockIdx",) if b.scope() == "shared.cluster" else ("blockIdx", "clusterCtaIdx")


def _home(b: Buffer, uses: _Uses) -> For:
    """The innermost thread axis of the kernel that a buffer of shared memory belongs to."""
    missing = uses.missing(b)
    tags = [_tag(x) for x in missing]
    scope, depth = b.scope(), len(uses.at[b])
    if scope == "global":
        around = [x.loop_var.name for x in uses.at[b] if is_hardware_loop(x)]
        raise LoweringError(
            f"{b.name} is in global memory and belongs to one iteration of loop `{around[-1]}`, whose threads "
            f"share it; set_scope({b.name}, 'shared')"
        )
    if not scope.startswith("shared") and not is_shared_by_warp(
        scope
    ):  # the threads of a warp share a fragment
        raise LoweringError(
            f"{b.name} is in {scope} memory, which is private to a thread, and a thread of {tags[0]} reads "
            f"elements that another one wrote; set_scope({b.name}, 'shared'), or 'global' if it is in another block"
        )
    paths = list(uses.used[b])
    kernels = {next((i for i, x in enumerate(p) if is_hardware_loop(x)), -1) for p in paths}
    first = min(kernels)
    if any(t.startswith(_blocks(b)) for t in tags):
        alone = False
    else:
        alone = first == depth and len({p[first] for p in paths if len(p) > first}) == 1
    if not alone:
        raise LoweringError(
            f"{b.name} is in shared memory, which is private to a thread block, and carries data "
            "from one block to another, or out of its kernel; compute it under the loop that is bound to "
            "blockIdx (compute_at), or set_scope global and use two kernels"
        )
    return [x for x in paths[0] if is_hardware_loop(x)][-1]


class _Move(Mutator):
    def __init__(self, homes: dict[Buffer, For]) -> None:
        self.homes = homes
        self.inside: dict[For, list[Buffer]] = {}
        for b, x in homes.items():
            self.inside.setdefault(x, []).append(b)

    def visit_Block(self, n: Block) -> Block:
        kept = tuple(b for b in n.alloc_buffers if b not in self.homes)
        made = n.map_children(self.visit)
        return made if len(kept) == len(n.alloc_buffers) else made.replace(alloc_buffers=kept)

    def visit_For(self, n: For) -> Stmt:
        made = n.map_children(self.visit)
        held = self.inside.get(n)
        if not held:
            return made
        body = Block([], [], [], "", made.body, alloc_buffers=held)
        return made.replace(body=BlockRealize([], True, body))


# ---------------------------------------------------------------------------- global memory
def _check_global(kernel: For, nest: list[For]) -> None:
    """Refuse a kernel in which a thread may access elements that another one wrote to global memory: thread blocks
    cannot synchronize."""
    ana = Analyzer()
    ana.bind_ranges({x.loop_var: x.dom for x in nest[:-1]})
    found = uses_under(nest[-1])
    for buffer, uses in found.items():
        if not uses or buffer.scope() != "global" or not any(u.write for u in uses):
            continue
        if not _is_conflict_free(nest, uses, buffer, ana):
            raise LoweringError(
                f"{buffer.name} is written by a thread and used by another one of the kernel of loop "
                f"`{kernel.loop_var.name}`, and thread blocks cannot wait for each other; compute it in a "
                "kernel of its own, or keep it in shared memory (set_scope or cache_write with 'shared', and "
                "compute_at under the loop that is bound to blockIdx)"
            )


def _is_conflict_free(nest: list[For], uses: list[Use], buffer: Buffer, ana: Analyzer) -> bool:
    """Whether no thread accesses an element that another one writes."""
    if all(u.same_place(uses[0]) and _same_conditions(u, uses[0]) for u in uses):
        return True  # a block writes each element once
    writers = {u.block.key for u in uses if u.write}
    if reads_are_covered(nest[-1], uses, ana) and len(writers) == 1:
        return True
    for x in nest:
        if const_value(x.extent) == 1 or _identifies_thread(x, nest, uses):
            continue
        inside = uses_under(x).get(buffer)
        if not inside or not is_disjoint(x, inside, ana):
            return False
    return True


def _identifies_thread(x: For, nest: list[For], uses: list[Use]) -> bool:
    """Whether indices that all uses share identify the thread of an axis, as `i * 32 + tx` does for 32 threads, or
    `t // 8` and `t % 8` together. Loops inside the threads count as equal, though each use has its own."""
    around = {y.loop_var: Range.from_min_extent(y.min, y.extent) for y in nest}
    stand_ins: list[tuple[Var, Range]] = []
    tables: list[dict[Var, Var]] = [{} for _ in uses]
    shared: list[PrimExpr] = []
    for ranges in zip(*[u.ranges for u in uses], strict=True):
        if any(const_value(size) != 1 for _, size in ranges):
            continue
        rows = zip(ranges, uses, tables, strict=True)
        places = [_placed(low, use, table, stand_ins) for (low, _), use, table in rows]
        low = places[0]
        if low is not None and all(p is not None and structural_equal(low, p) for p in places):
            shared.append(low)
    known = {**around, **dict(stand_ins)}
    for indices in (*([low] for low in shared), shared):
        used = {v for low in indices for v in vars_used(low)}
        doms = {v: known[v] for v in used if v in known}
        if (
            x.loop_var in used
            and not detect_iter_map(indices, doms, const(True, "bool"), IterMapLevel.Bijective, True).errors
        ):
            return True
    return False


def _placed(
    low: PrimExpr, use: Use, table: dict[Var, Var], stand_ins: list[tuple[Var, Range]]
) -> PrimExpr | None:
    """An index with the loops inside the threads replaced by placeholders in order of appearance; None if their ranges
    differ from those of the placeholders."""
    for v in pre_order(low):
        if not isinstance(v, Var) or v in table or v not in use.inner:
            continue
        own, number = use.inner[v], len(table)
        if number == len(stand_ins):
            stand_ins.append((Var(v.name, v.dtype), own))
        holder, held = stand_ins[number]
        alike = structural_equal(own.min, held.min) and structural_equal(own.extent, held.extent)
        if holder.dtype is not v.dtype or not alike:
            return None
        table[v] = holder
    return substitute(low, table) if table else low


def _same_conditions(a: Use, b: Use) -> bool:
    return len(a.conditions) == len(b.conditions) and all(map(structural_equal, a.conditions, b.conditions))
