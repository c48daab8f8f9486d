"""Addresses in the memories of a chip: allocations with disjoint live ranges share them, and all must fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import detect_linear_equation
from ...ir.buffer import Buffer, decl_buffer
from ...ir.dtype import DataType
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order
from ...ir.op import Op
from ...ir.ops import add
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ...target.accelerator import Accelerator, Scope
from ..analysis.commands import engine_of, instruction_of
from ..analysis.measure import bytes_of

_ACCESS_PTR = Op.get("tir.tvm_access_ptr")
_NOTHING = Evaluate(const(0))


def place_scopes(func: PrimFunc, chip: Accelerator) -> PrimFunc:
    """Give each allocation in a memory of the chip its address, and check that all of them fit.

        A = allocate(512, scope="acc")              acc = allocate(512, scope="acc")
        B = allocate(512, scope="acc")              gemm(acc[0], …)
        gemm(A, …)                          ->      alu(acc[0], acc[0])
        alu(B, A)                                   store(acc[0])
        store(B)

    Each memory becomes one allocation, and an index in it is an address. Live ranges follow the order of the commands;
    memory that is allocated outside a loop and used inside is live in the whole loop. A result takes the place of an
    operand that dies in the same command, where each element depends only on the same element of the operand; a copy of
    a buffer to itself is removed.

    Needs: flat buffers, virtual threads injected. Gives: one allocation for each memory of the chip that is used.
    """
    scan = _Scan(chip)
    scan.walk(func.body)
    if not scan.memories:
        return func
    places: dict[Var, tuple[Buffer, int]] = {}
    arenas: list[tuple[Var, Scope, int]] = []
    for scope in chip.scopes:
        held = [m for m in scan.memories.values() if m.scope is scope]
        if not held:
            continue
        size = _assign(held, scope, chip)
        arena = Var(scope.memory, decl_buffer((1,), scope.dtype, scope=scope.name).data.type_annotation)
        arenas.append((arena, scope, size))
        for m in held:
            places[m.stmt.buffer_var] = (arena, m.address)  # type: ignore[assignment]
    return _Rewrite(places, arenas, chip).run(func)


@dataclass(eq=False)
class _Memory:
    """An allocation, its live range in time, and its address."""

    stmt: Allocate
    scope: Scope
    depth: int  # loops around it
    number: int
    nbytes: int = 0
    first: int = -1
    last: int = -1
    over: _Memory | None = None  # an operand that dies where this one begins
    address: int = 0

    def touch(self, time: int) -> None:
        if self.first < 0:
            self.first = time
        self.last = max(self.last, time)


class _Scan:
    """One walk in program order: each command advances the time."""

    def __init__(self, chip: Accelerator) -> None:
        self.chip, self.time = chip, 0
        self.memories: dict[Var, _Memory] = {}
        self.loops: list[dict[_Memory, None]] = []

    def touch(self, v: Var) -> None:
        m = self.memories.get(v)
        if m is None:
            return
        m.touch(self.time)
        for loop in self.loops[m.depth :]:
            loop[m] = None

    def walk(self, s: Any) -> None:
        if isinstance(s, Allocate):
            scope = self.chip.scope(getattr(s.buffer_var.type_annotation, "storage_scope", ""))
            if scope is not None:
                m = _Memory(s, scope, len(self.loops), len(self.memories))
                size = bytes_of(s.dtype, s.extents)
                if size is None:
                    raise LoweringError(
                        f"{s.buffer_var.name} in {scope.name}: its size is not a constant\n"
                        "  hint: memories of the chip hold tiles of constant size; split the loops"
                    )
                m.nbytes = -(-size // scope.element_bytes) * scope.element_bytes
                self.memories[s.buffer_var] = m
            self.walk(s.body)
        elif _is_command(s):
            self.command(s)
        elif isinstance(s, (For, While)):
            begin = self.time
            self.loops.append({})
            self.walk(s.body)
            self.time += 1
            for m in self.loops.pop():
                m.touch(begin)
                m.first = min(m.first, begin)
                m.touch(self.time)
                m.over = None
                for loop in self.loops[m.depth :]:
                    loop[m] = None
        elif isinstance(s, SeqStmt):
            for one in s.seq:
                self.walk(one)
        elif isinstance(s, IfThenElse):
            self.walk(s.then_case)
            if s.else_case is not None:
                self.walk(s.else_case)
        elif isinstance(s, (AttrStmt, DeclBuffer, LetStmt)):
            self.walk(s.body)
        else:
            self.command(s)

    def command(self, s: Stmt) -> None:
        self.time += 1
        stores = [n for n in pre_order(s) if isinstance(n, BufferStore)]
        used = {n.buffer.data: None for n in pre_order(s) if isinstance(n, (BufferLoad, BufferStore))}
        if len(stores) == 1:  # another store may still read the operand
            (store,) = stores
            m = self.memories.get(store.buffer.data)
            if m is not None and m.first < 0 and m.depth == len(self.loops) and _once_each(s, store):
                m.over = self._operand(store, m)
        for v in used:
            self.touch(v)

    def _operand(self, store: BufferStore, m: _Memory) -> _Memory | None:
        """The operand whose elements the store replaces one by one: all its loads are at the index of the store."""
        loads = [n for n in pre_order(store.value) if isinstance(n, BufferLoad)]
        for load in loads:
            other = self.memories.get(load.buffer.data)
            same = [x for x in loads if x.buffer.data is load.buffer.data]
            if (
                other is not None
                and other is not m
                and other.scope is m.scope
                and other.nbytes == m.nbytes
                and load.buffer.dtype is store.buffer.dtype
                and all(structural_equal(x.indices[0], store.indices[0]) for x in same)
            ):
                return other
        return None


def _is_command(s: Any) -> bool:
    """Whether a statement is a command, or loops around one."""
    while isinstance(s, For):
        s = s.body
    return engine_of(s) is not None


def _once_each(s: Stmt, store: BufferStore) -> bool:
    """Whether the loops of a command store to each element once: their strides do not overlap."""
    loops = [n for n in pre_order(s) if isinstance(n, For)]
    found = detect_linear_equation(store.indices[0], [x.loop_var for x in loops])
    reach = 1
    for k, extent in sorted(
        ((const_value(k), const_value(x.extent)) for k, x in zip(found, loops)), key=lambda p: p[0] or 0
    ):
        if not isinstance(k, int) or not isinstance(extent, int) or k < reach:
            return False
        reach = k * extent
    return bool(found)


def _assign(held: list[_Memory], scope: Scope, chip: Accelerator) -> int:
    """Set the addresses in a memory; returns the bytes that are used."""
    placed: list[_Memory] = []
    top = 0
    for m in sorted(held, key=lambda m: (m.first, m.number)):
        if m.over is not None and m.over.last == m.first and m.over in placed:
            m.address = m.over.address
        else:
            m.address = _gap(m, [p for p in placed if p.last >= m.first and p.first <= m.last])
        placed.append(m)
        top = max(top, m.address + m.nbytes)
    if top > scope.nbytes:
        _refuse(held, scope, top, chip)
    return top


def _gap(m: _Memory, others: list[_Memory]) -> int:
    """The lowest address at which nothing else is live."""
    at = 0
    for p in sorted(others, key=lambda p: p.address):
        if p.address - at >= m.nbytes:
            break
        at = max(at, p.address + p.nbytes)
    return at


def _refuse(held: list[_Memory], scope: Scope, needed: int, chip: Accelerator) -> None:
    crowded = max(
        ([p for p in held if p.first <= m.first <= p.last] for m in held),
        key=lambda group: sum(p.nbytes for p in group),
    )
    # one that takes the place of its operand needs no memory of its own
    crowded = [p for p in crowded if p.over not in crowded or p.over is None or p.address != p.over.address]
    wide = max(len(p.stmt.buffer_var.name) for p in crowded)
    lines = []
    for p in sorted(crowded, key=lambda p: -p.nbytes):
        shape = " x ".join(map(str, p.stmt.extents))
        lines.append(f"  | {p.stmt.buffer_var.name:<{wide}}  {p.nbytes:>9} bytes  {shape} {p.stmt.dtype}")
    raise LoweringError(
        f"memory {scope.name} of {chip.name} has {scope.nbytes} bytes, and the buffers that are live at once need "
        f"{needed}:\n\n"
        + "\n".join(lines)
        + "\n\n  hint: use smaller tiles, fewer virtual threads, or compute a stage in the tile of its consumer"
    )


class _Rewrite(Mutator):
    """Puts the buffers of each memory into one, at their addresses."""

    def __init__(
        self, places: dict[Var, Any], arenas: list[tuple[Var, Scope, int]], chip: Accelerator
    ) -> None:
        self.places, self.arenas = places, arenas
        self.views: dict[tuple[Var, Any], Buffer] = {}
        self.sizes = {arena: (scope, size) for arena, scope, size in arenas}

    def run(self, func: PrimFunc) -> PrimFunc:
        body = self.visit(func.body)
        for (arena, kind), view in reversed(list(self.views.items())):
            del arena, kind
            body = DeclBuffer(view, body)
        for arena, scope, size in reversed(self.arenas):
            count = size // (scope.element_bytes // scope.lanes)
            body = Allocate(arena, DataType(scope.dtype), (const(count),), const(True, "bool"), body, {})
        return func.replace(body=body)

    def view(self, arena: Var, dtype: Any) -> Buffer:
        made = self.views.get((arena, dtype))
        if made is None:
            scope, size = self.sizes[arena]
            made = decl_buffer((size // dtype.nbytes,), str(dtype), arena.name, data=arena, scope=scope.name)
            self.views[arena, dtype] = made
        return made

    def visit_Allocate(self, n: Allocate) -> Stmt:
        return self.visit(n.body) if n.buffer_var in self.places else self.visit_children(n)  # type: ignore[no-any-return]

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        return self.visit(n.body) if n.buffer.data in self.places else self.visit_children(n)  # type: ignore[no-any-return]

    def _access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        place = self.places.get(n.buffer.data)
        if place is None:
            return made
        arena, address = place
        index = add(made.indices[0], const(address // n.buffer.dtype.nbytes, made.indices[0].dtype))
        return made.replace(buffer=self.view(arena, n.buffer.dtype), indices=(index,))

    visit_BufferLoad = visit_BufferStore = _access

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        if n.op is not _ACCESS_PTR or n.args[1] not in self.places:
            return made
        kind, data, offset, *rest = made.args
        assert isinstance(data, Var)
        arena, address = self.places[data]
        self.view(arena, kind.dtype)
        at = add(offset, const(address // kind.dtype.nbytes, offset.dtype))
        return made.replace(args=(kind, arena, at, *rest))

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        made: Any = self.visit_children(n)
        if engine_of(made) is not None and _copies_itself(made):
            return _NOTHING
        return made  # type: ignore[no-any-return]

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        made = [self.visit(s) for s in n.seq]
        return (
            seq(*[s for s in made if s is not _NOTHING]) if any(s is not _NOTHING for s in made) else _NOTHING
        )

    def visit_For(self, n: For) -> Stmt:
        made: Any = self.visit_children(n)
        return _NOTHING if made.body is _NOTHING else made


def _copies_itself(s: Stmt) -> bool:
    """Whether a command only stores elements where they already are."""
    at: Any = s
    while isinstance(at, (AttrStmt, For)):
        if instruction_of(at) is not None:
            at = at.body
            continue
        at = at.body
    return (
        isinstance(at, BufferStore)
        and isinstance(at.value, BufferLoad)
        and at.value.buffer is at.buffer
        and structural_equal(at.value.indices[0], at.indices[0])
    )
