"""Memory of a warp distributed over the registers of its threads."""

from __future__ import annotations

from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, statements, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import add, floordiv, floormod, mul, sub
from ...ir.stmt import Allocate, BufferStore, Stmt
from ..analysis.measure import scope_of
from .thread_registers import ThreadRegisters

_WARP = 32
_SHUFFLE = Op.get("tir.tvm_warp_shuffle")
# Where instructions take pointers to memory of a warp, each followed by an offset.
_POINTERS = {"ptx_mma": (6, 8, 10), "ptx_ldmatrix": (3,), "mma_fill": (1,), "mma_store": (3,)}
_WHOLE = ("mma_fill", "mma_store")  # they take a tile, not the registers of a thread


def lower_warp_memory(func: PrimFunc) -> PrimFunc:
    """Give each thread of a warp its part of the memory that the warp shares.

        A = allocate([64], "float32", "warp")           A = allocate([2], "float32", "local")
        A[tx * 2 + i] = …                         ->    A[i] = …
        … = A[tx * 2]                                   … = A[0]
        … = A[(tx + 1) % 32 * 2]                        … = shuffle(A[0], (tx + 1) % 32)

    The number of contiguous elements of a thread is the stride of the index in threadIdx.x. Elements of another thread
    can be read by a shuffle, if the register is the same in both threads; they cannot be written.
    Needs: flat buffers. Gives: no memory of the scope `warp`.
    """
    if not any(isinstance(m, Allocate) and scope_of(m.buffer_var) == "warp" for m in statements(func.body)):
        return func
    return _Lower().run(func)


class _Lower(ThreadRegisters):
    def __init__(self) -> None:
        super().__init__()
        self.each: dict[Var, int] = {}  # the elements of a thread in a tile

    @property
    def lane(self) -> PrimExpr:
        """The lane: the thread's index in its warp."""
        assert self.thread is not None
        return self.ana.simplify(floormod(self.thread, const(_WARP)))

    def visit_Allocate(self, n: Allocate) -> Stmt:
        if scope_of(n.buffer_var) != "warp":
            return n.map_children(self.visit)
        name, size = n.buffer_var.name, 1
        for e in n.extents:
            known = const_value(e)
            if known is None:
                raise LoweringError(f"{name}: memory of a warp has a constant size, not {e}")
            size *= int(known)
        each = self.elements_of_a_thread(n)
        if size % (each * _WARP):
            raise LoweringError(
                f"{name}: {size} elements in memory of a warp cannot be distributed over {_WARP} threads, "
                f"{each} to each"
            )
        self.each[n.buffer_var] = each
        return self.in_registers(n, n.dtype, size // _WARP)

    def elements_of_a_thread(self, n: Allocate) -> int:
        """The stride of the accesses in the thread index; all must agree."""
        if self.thread is None:
            raise LoweringError(
                f"{n.buffer_var.name} is memory of a warp, and nothing is bound to threadIdx.x"
            )
        found: set[int] = set()
        inside = _Steps(n.buffer_var, self.thread)
        inside.visit(n.body)
        for step in inside.steps:
            value = const_value(self.ana.simplify(step))
            if value:
                found.add(abs(int(value)))
        if len(found) != 1:
            strides = ", ".join(map(str, sorted(found))) or "nothing"
            raise LoweringError(
                f"{n.buffer_var.name} is memory of a warp, and its accesses have strides of {strides} elements from "
                "one thread "
                "of threadIdx.x to the next: all must have the same stride, the number of elements of a thread"
            )
        return found.pop()

    # -- uses ------------------------------------------------------------------------------
    def part(self, index: PrimExpr, each: int) -> tuple[PrimExpr, PrimExpr]:
        """The register of an element, and the thread of the warp that holds it."""
        tile = floordiv(index, const(each * _WARP))
        local = add(mul(tile, const(each)), floormod(index, const(each)))
        owner = floormod(floordiv(index, const(each)), const(_WARP))
        return self.ana.simplify(local), self.ana.simplify(owner)

    def visit_Call(self, n: Call) -> PrimExpr:
        places = _POINTERS.get(n.op.short_name, ()) if isinstance(n.op, Op) else ()
        args = list(n.args)
        for i in places:
            pointer = args[i]
            each = self.each.get(pointer) if isinstance(pointer, Var) else None
            if each is None:
                continue
            local, owner = self.part(args[i + 1], each)
            if n.op.short_name not in _WHOLE and not self.ana.can_prove_equal(owner, self.lane):
                raise LoweringError(
                    f"{n.op.short_name} gets the registers of thread {owner} of a warp, and not those of the thread "
                    f"that runs it: the offset {args[i + 1]} must name {each} elements for each of {_WARP} threads"
                )
            args[i + 1] = local
        made = n.replace(args=tuple(args)) if places else n
        return made.map_children(self.visit)

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        made = n.map_children(self.visit)
        if n.buffer.data not in self.each:
            return made
        local, owner = self.part(made.indices[-1], self.each[n.buffer.data])
        load = BufferLoad(self.registers(n.buffer), (local,))
        if self.ana.can_prove_equal(owner, self.lane):
            return load
        if self.thread in vars_used(local):
            raise LoweringError(
                f"{n.buffer.name}[{made.indices[-1]}] is in register {local} of thread {owner} of the warp: which "
                "register it is must not depend on the thread that reads it"
            )
        mask = const((1 << _WARP) - 1, "uint32")
        return Call(n.dtype, _SHUFFLE, [mask, load, owner, const(_WARP), const(_WARP)])

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        made = n.map_children(self.visit)
        if n.buffer.data not in self.each:
            return made
        local, owner = self.part(made.indices[-1], self.each[n.buffer.data])
        if not self.ana.can_prove_equal(owner, self.lane):
            raise LoweringError(
                f"{n.buffer.name}[{made.indices[-1]}] is written by a thread of a warp, and thread {owner} holds it: a "
                "thread can only write its own elements"
            )
        return made.replace(buffer=self.registers(n.buffer), indices=(local,))


class _Steps(Mutator):
    """The strides of the accesses of an allocation from one thread to the next."""

    def __init__(self, pointer: Var, thread: Var) -> None:
        self.pointer, self.thread = pointer, thread
        self.steps: list[PrimExpr] = []

    def step(self, index: PrimExpr) -> None:
        first, second = (substitute(index, {self.thread: const(i, self.thread.dtype)}) for i in (0, 1))
        self.steps.append(sub(second, first))

    def access(self, n: Any) -> Any:
        if n.buffer.data is self.pointer:
            self.step(n.indices[-1])
        return n.map_children(self.visit)

    visit_BufferLoad = visit_BufferStore = access

    def visit_Call(self, n: Call) -> PrimExpr:
        for i in _POINTERS.get(n.op.short_name, ()) if isinstance(n.op, Op) else ():
            if n.args[i] is self.pointer:
                self.step(n.args[i + 1])
        return n.map_children(self.visit)
