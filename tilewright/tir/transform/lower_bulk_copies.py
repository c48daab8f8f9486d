"""Copies of whole tiles by the copy engine of the GPU."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import GE, GT, LE, LT, BufferLoad, Call, PrimExpr, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import add, conjuncts, mul, sub
from ...ir.stmt import Block, BufferStore, Evaluate, For, IfThenElse, Stmt, seq

__all__ = ["BULK_COPY", "lower_bulk_copies"]

BULK_COPY = "tilewright.bulk_copy"
LINE = 64  # elements of 16 bits in a line of 128 bytes, across which bulk copies swizzle


def lower_bulk_copies(func: PrimFunc) -> PrimFunc:
    """Let the copy engine do the blocks that are marked `tilewright.bulk_copy`.

        with block("A_shared_o"):
            block_attr({"tilewright.bulk_copy": 1})
            for i, k in grid(128, 64):                      ->    cp_async_bulk_tensor(A_shared[0, 0], tensor_map(A, …),
                A_shared[i, k] = A[128 * x + i, 64 * y + k]                            64 * y, 128 * x)

    What lies beyond the tensor is 0, so that a condition that says just this is dropped. A tile that is 64
    elements of 16 bits wide lies in shared memory line by line; a wider one has 64 rows, and lies there in pieces
    of 64 x 64. Within each eight lines the engine swizzles 16 bytes, as products of warpgroups expect.
    Needs: opaque blocks with compact buffers. Gives: no block with that mark.
    """
    if not any(isinstance(m, Block) and BULK_COPY in m.annotations for m in pre_order(func.body)):
        return func
    return _Copies().run(func)


class _Copies(Mutator):
    def visit_Block(self, n: Block) -> Block:
        if BULK_COPY not in n.annotations:
            return n.map_children(self.visit)
        keep = {k: v for k, v in n.annotations.items() if k != BULK_COPY}
        return n.replace(body=_Copy(n).calls(), annotations=keep)


class _Copy:
    """One block that copies a tile."""

    def __init__(self, block: Block) -> None:
        self.name = block.name_hint
        self.ana = Analyzer()
        self.loops: list[For] = []
        self.conditions: list[PrimExpr] = []
        store = self.inside(block.body)
        value = store.value
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.short_name == "if_then_else":
            if const_value(value.args[2]) != 0:
                raise self.refuse("what lies beyond the tensor is 0")
            self.conditions += conjuncts(value.args[0])
            value = value.args[1]
        if not isinstance(value, BufferLoad):
            raise self.refuse("it copies elements as they are")
        self.target: Buffer = store.buffer
        self.source: Buffer = value.buffer
        self.to, self.places = store.indices, value.indices
        if self.source.dtype is not self.target.dtype or self.source.dtype.bits != 16:
            raise self.refuse("its elements have 16 bits")
        self.check_conditions()

    def refuse(self, must: str) -> LoweringError:
        return LoweringError(
            f"block {self.name} cannot be a bulk copy: {must}; leave out {BULK_COPY!r} there"
        )

    def inside(self, n: Any) -> BufferStore:
        """The statement in the loops, whose variables are put in the place of blocks' own."""
        while not isinstance(n, BufferStore):
            if isinstance(n, For):
                self.loops.append(n)
                self.ana.bind_loop(n.loop_var, n.min, n.extent)
                n = n.body
            elif isinstance(n, IfThenElse) and n.else_case is None:
                raise self.refuse("every element of its tile is written")
            elif n.__class__.__name__ == "BlockRealize":
                if const_value(n.predicate) != 1:
                    raise self.refuse("every element of its tile is written")
                n = n.block.body
            else:
                raise self.refuse("it is loops around one copy")
        return n

    def check_conditions(self) -> None:
        """Refuse conditions that do more than keep indices inside of the tensor."""
        ends: list[PrimExpr] = []
        for place, dim in zip(self.places, self.source.shape, strict=True):
            ends += [place, sub(sub(dim, const(1, dim.dtype)), place)]  # neither is negative inside
        for c in self.conditions:
            room = _room(c)
            if room is None or not any(self.ana.can_prove_equal(room, end) for end in ends):
                raise self.refuse(f"the condition `{c}` says more than where the tensor ends")

    def start(self, e: PrimExpr) -> PrimExpr:
        """An index at the first element."""
        return self.ana.simplify(substitute(e, {x.loop_var: x.min for x in self.loops}))

    def driven(self, e: PrimExpr) -> For | None:
        """The loop that an index counts one by one, if one does."""
        mine = [x for x in self.loops if x.loop_var in vars_used(e)]
        if not mine:
            return None
        (loop, *others) = mine
        count = sub(loop.loop_var, loop.min)
        if others or not self.ana.can_prove_equal(e, add(self.start(e), count)):
            raise self.refuse(f"the index `{e}` counts more than one loop, or not one by one")
        return loop

    def calls(self) -> Stmt:
        moved = [self.driven(e) for e in self.places]
        sizes = [1 if x is None else int(const_value(x.extent) or 0) for x in moved]
        if [x for x in map(self.driven, self.to) if x is not None] != [x for x in moved if x is not None]:
            raise self.refuse("the loops go through the tile as they go through the tensor")
        wide, rows = sizes[-1], 1
        for s in sizes[:-1]:
            rows *= s
        pieces = wide // LINE
        if wide % LINE or (pieces > 1 and rows != LINE) or max(sizes[:-1], default=1) > 256:
            raise self.refuse(f"a tile of {rows} x {wide} is none of n x 64 and 64 x n")
        tensor = _tensor_map(self.source, [*sizes[:-1], LINE])
        base = self.target.offset_of([self.start(e) for e in self.to])[0]
        places = [self.start(e) for e in self.places]
        out = []
        for p in range(pieces):
            at = add(base, const(p * LINE * LINE, base.dtype))
            inner = add(places[-1], const(p * LINE, places[-1].dtype))
            pointer = access_ptr(self.target.data, self.target.dtype, at, rows * LINE, 2)
            coordinates = [inner, *reversed(places[:-1])]
            out.append(
                Evaluate(Call("int32", "tir.ptx_cp_async_bulk_tensor", [pointer, tensor, 0, *coordinates]))
            )
        return seq(*out)


def access_ptr(data: Var, kind: DataType, offset: PrimExpr, extent: int, mask: int) -> Call:
    held = Call(kind, "tir.type_annotation", [])
    return Call("handle", "tir.tvm_access_ptr", [held, data, offset, const(extent), const(mask)])


def _tensor_map(b: Buffer, box: list[int]) -> Call:
    """Where a tensor lies and in which boxes it is copied: sizes and steps in bytes, the innermost first."""
    nbytes = b.dtype.nbytes
    sizes = list(reversed(b.shape))
    steps = [mul(s, const(nbytes, s.dtype)) for s in reversed(b.dense_strides()[:-1])]
    listed = [const(len(sizes)), *sizes, *steps, *(const(n) for n in reversed(box))]
    return Call("handle", "tir.tensor_map", [b.data, StringImm(str(b.dtype)), *listed])


def _room(c: PrimExpr) -> PrimExpr | None:
    """What a comparison asks not to be negative."""
    one = const(1, c.a.dtype) if isinstance(c, (LT, LE, GT, GE)) else None
    if isinstance(c, (LT, GT)):
        low, high = (c.a, c.b) if isinstance(c, LT) else (c.b, c.a)
        return sub(sub(high, low), one)
    if isinstance(c, (LE, GE)):
        low, high = (c.a, c.b) if isinstance(c, LE) else (c.b, c.a)
        return sub(high, low)
    return None
