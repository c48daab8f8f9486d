"""Copies of whole tiles into shared memory by TMA, the copy engine of the GPU (sm_90 and later)."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import Call, PrimExpr, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, statements, substitute, vars_used
from ...ir.ops import add, bitwise_xor, floordiv, floormod, mul, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, Evaluate, For, IfThenElse, SeqStmt, Stmt, seq
from ..annotations import BULK_COPY
from .bulk_views import VIEW, View, Windows, guarded_load, line_of, only_ends, view_of

__all__ = ["BULK_COPY", "TF32", "THREADS", "VIEW", "WINDOWS", "line_of", "lower_bulk_copies"]

WINDOWS = "windows"  # comes before the offsets of an im2col copy, in the arguments of the call
# Values of `tilewright.bulk_copy`. TF32: TMA rounds float32 to the 10 bits of mantissa that tensor cores take. THREADS:
# threads read the tile, which is stored line by line at its full width.
TF32 = "tf32"
THREADS = "threads"


def lower_bulk_copies(func: PrimFunc) -> PrimFunc:
    """Lower the blocks that are marked `tilewright.bulk_copy` to TMA copies.

        with block("A_shared_o"):
            block_attr({"tilewright.bulk_copy": 1})
            for i, k in grid(128, 64):                      ->    cp_async_bulk_tensor(A_shared[0, 0], tensor_map(A, …),
                A_shared[i, k] = A[128 * x + i, 64 * y + k]                            64 * y, 128 * x)

    TMA fills elements out of bounds with 0, so a condition that is just a bounds check is dropped. A tile that is 128
    bytes wide (64 elements of 16 bits, 32 of float32) is stored in shared memory line by line; a wider one in pieces of
    that width, one after the other. TMA swizzles pieces of 16 bytes within each eight lines, as `wgmma` expects.
    A block marked `tilewright.view` is not stored: TMA reads its source instead, in its im2col mode if the view is the
    windows of an image. With `tilewright.bulk_copy: "tf32"` TMA rounds float32 to the nearest while it copies.
    With `tilewright.bulk_copy: "threads"` the tile is for threads that read its elements: it is stored line by line, up
    to 256 elements wide. Only lines of 64 or 128 bytes are swizzled then, and the loads of the tile follow suit.
    Needs: opaque blocks with compact buffers. Gives: no block with one of the marks.
    """
    marks = [
        m for m in statements(func.body) if isinstance(m, Block) and {BULK_COPY, VIEW} & set(m.annotations)
    ]
    if not marks:
        return func
    views = _views(func) if any(VIEW in m.annotations for m in marks) else {}
    plain = [m for m in marks if m.annotations.get(BULK_COPY) == THREADS]
    return _Copies(views, {m.writes[0].buffer for m in plain}).run(func)


def _views(func: PrimFunc) -> dict[Buffer, View]:
    """The views of a function, by the buffers that they fill."""
    out: dict[Buffer, View] = {}
    loops: list[For] = []

    def walk(n: Any) -> None:
        if isinstance(n, Block) and VIEW in n.annotations:
            view = view_of(n, [(x.loop_var, x.dom) for x in loops])
            out[view.buffer] = view
            return
        if isinstance(n, For):
            loops.append(n)
        for c in n.children():
            if isinstance(c, (Stmt, Block)):
                walk(c)
        if isinstance(n, For):
            loops.pop()

    walk(func.body)
    return out


class _Copies(Mutator):
    def __init__(self, views: dict[Buffer, View], plain: set[Buffer]) -> None:
        self.views, self.plain = views, plain  # `plain`: copied tiles that threads read

    def visit_Block(self, n: Block) -> Block:
        if BULK_COPY in n.annotations:
            keep = {k: v for k, v in n.annotations.items() if k != BULK_COPY}
            return n.replace(body=_Copy(n, self.views).calls(), annotations=keep)
        made: Block = n.map_children(self.visit)
        if any(b in self.views for b in made.alloc_buffers):
            made = made.replace(alloc_buffers=tuple(b for b in made.alloc_buffers if b not in self.views))
        return made

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        left = [s for s in n.seq if not self.is_view(s)]
        return seq(*(self.visit(s) for s in left))

    def is_view(self, n: Any) -> bool:
        while isinstance(n, For):
            n = n.body
        return isinstance(n, BlockRealize) and VIEW in n.block.annotations

    def visit_BufferLoad(self, n: Any) -> Any:
        if n.buffer in self.views:
            raise LoweringError(
                f"{n.buffer.name} is a view, which is not stored: only bulk copies can read it from its "
                f"source; remove {VIEW!r} from the block that defines it"
            )
        made = n.map_children(self.visit)
        return made.replace(indices=_swizzled(n.buffer, made.indices)) if n.buffer in self.plain else made


def _swizzled(b: Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """The swizzled index of an element: the index of its piece of 16 bytes, xor the index of the line modulo 8 for
    lines of 128 bytes, or that of the pair of lines modulo 4 for lines of 64 bytes."""
    wide, piece = int(const_value(b.shape[-1]) or 0), 16 // b.dtype.nbytes
    pieces = wide // piece
    if wide % piece or pieces not in (4, 8):
        return indices
    *outer, column = indices
    row: PrimExpr = const(0, column.dtype)
    for at, size in zip(outer, b.shape[:-1], strict=True):
        row = add(mul(row, size), at)
    by = floormod(floordiv(row, const(8 // pieces, row.dtype)), const(pieces, row.dtype))
    few = const(piece, column.dtype)
    moved = bitwise_xor(floordiv(column, few), by)
    return (*outer, add(mul(moved, few), floormod(column, few)))


class _Copy:
    """One block that copies a tile."""

    def __init__(self, block: Block, views: dict[Buffer, View]) -> None:
        self.name = block.name_hint
        self.rounds = block.annotations[BULK_COPY] == TF32
        self.plain = block.annotations[BULK_COPY] == THREADS
        self.ana = Analyzer()
        self.loops: list[For] = []
        store = self.inside(block.body)
        loaded = guarded_load(store.value)
        if isinstance(loaded, str):
            raise self.refuse(loaded)
        load, self.conditions = loaded
        view = views.get(load.buffer)
        self.windows: Windows | None = None if view is None else view.windows
        self.target: Buffer = store.buffer
        self.source: Buffer = load.buffer if view is None else view.source if view.windows else view.same
        self.to = store.indices
        self.places = [self.ana.simplify(e) for e in load.indices]
        if view is None:
            self.join()
        kind = self.source.dtype
        if kind is not self.target.dtype or not (kind.bits == 16 or kind == "float32"):
            raise self.refuse("its elements have 16 bits, or are float32")
        if self.rounds and kind != "float32":
            raise self.refuse(f"elements that it rounds to {TF32} are float32, not {kind}")
        self.line = line_of(kind)
        shape = self.source.shape if view is None else load.buffer.shape
        beyond = only_ends(self.ana, self.conditions, self.places, shape)
        if beyond is not None:
            raise self.refuse(f"the condition `{beyond}` is only a bounds check of the tensor")

    def refuse(self, must: str) -> LoweringError:
        return LoweringError(
            f"block {self.name} cannot be a bulk copy, which requires that {must}; remove "
            f"{BULK_COPY!r} from it"
        )

    def inside(self, n: Any) -> BufferStore:
        """The store inside the loops, which are collected in `loops`."""
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
                raise self.refuse("it is a loop nest around one copy")
        return n

    def start(self, e: PrimExpr) -> PrimExpr:
        """The value of an index at the first element of the tile."""
        return self.ana.simplify(substitute(e, {x.loop_var: x.min for x in self.loops}))

    def driven(self, e: PrimExpr) -> For | None:
        """The loop that an index follows in steps of 1; None if it is constant in the tile. Others are refused."""
        mine = [x for x in self.loops if x.loop_var in vars_used(e)]
        if not mine:
            return None
        (loop, *others) = mine
        count = sub(loop.loop_var, loop.min)
        if others or not self.ana.can_prove_equal(e, add(self.start(e), count)):
            raise self.refuse(f"the index `{e}` uses at most one loop, with a stride of 1")
        return loop

    def join(self) -> None:
        """Merge neighbouring dimensions of the tensor where one loop runs through both."""
        while not self.source.strides:
            apart = [i for i, e in enumerate(self.places) if not self.counts(e)]
            last = len(self.places) - 1
            if last and const_value(self.source.shape[last]) == 1:
                apart.append(last)  # the dimension before it is contiguous
            if not apart or apart[-1] == 0:
                return
            at = apart[-1]
            places, shape = self.places, [*self.source.shape]
            places[at - 1 : at + 1] = [self.ana.simplify(add(mul(places[at - 1], shape[at]), places[at]))]
            shape[at - 1 : at + 1] = [mul(shape[at - 1], shape[at])]
            self.source = self.source.replace(shape=tuple(shape))

    def counts(self, e: PrimExpr) -> bool:
        """Whether an index follows one loop in steps of 1, or none."""
        try:
            self.driven(e)
        except LoweringError:
            return False
        return True

    def calls(self) -> Stmt:
        moved = [self.driven(e) for e in self.places]
        sizes = [1 if x is None else int(const_value(x.extent) or 0) for x in moved]
        if [x for x in map(self.driven, self.to) if x is not None] != [x for x in moved if x is not None]:
            raise self.refuse("the loops traverse the tile and the tensor in the same order")
        if self.windows is not None and self.plain:
            raise self.refuse("windows are copied for warpgroup products (wgmma) only")
        if self.windows is not None:
            return self.walk(self.windows, sizes)
        wide, rows = sizes[-1], 1
        for s in sizes[:-1]:
            rows *= s
        line = wide if self.plain else self.line
        pieces = wide // line
        if self.plain and (wide > 256 or wide * self.source.dtype.nbytes % 16 or max(sizes) > 256):
            raise self.refuse(
                f"a tile of {rows} x {wide} has at most 256 elements in each dimension, and rows of whole pieces of "
                "16 bytes"
            )
        if wide % line or (pieces > 1 and rows % 8) or max(sizes[:-1], default=1) > 256:
            raise self.refuse(
                f"a tile of {rows} x {wide} is made of pieces of n x {line}, n up to 256 and a multiple of 8 if "
                "there "
                "are several"
            )
        tensor = self.tensor_map([*sizes[:-1], line])
        base = self.target.offset_at([self.start(e) for e in self.to])
        places = [self.start(e) for e in self.places]
        out = []
        for p in range(pieces):
            at = add(base, const(p * rows * line, base.dtype))
            inner = add(places[-1], const(p * line, places[-1].dtype))
            pointer = access_ptr(self.target.data, self.target.dtype, at, rows * line, 2)
            coordinates = [inner, *reversed(places[:-1])]
            out.append(
                Evaluate(Call("int32", "tir.ptx_cp_async_bulk_tensor", [pointer, tensor, 0, *coordinates]))
            )
        return seq(*out)

    def walk(self, w: Windows, sizes: list[int]) -> Stmt:
        """An im2col copy: `rows` pixels by a line of channels, at one offset within the windows."""
        rows, wide = sizes
        if wide != self.line or rows > 1024:
            raise self.refuse(f"a tile of {rows} x {wide} pixels and channels is n x {self.line}")
        m, k = self.places
        offsets = [self.ana.simplify(substitute(e, {w.k: k})) for e in w.offsets]
        channel = self.ana.simplify(substitute(w.channel, {w.k: k}))
        beyond = only_ends(self.ana, self.conditions, [m, channel], [w.pixels, self.source.shape[-1]])
        if beyond is not None:
            raise self.refuse(f"the condition `{beyond}` is only a bounds check of images and channels")
        if any(self.driven(e) is not None for e in offsets) or self.driven(channel) is not self.driven(k):
            raise self.refuse("each line of it belongs to one offset within the windows")
        low, high = w.corners([int(const_value(d) or 0) for d in self.source.shape[1:-1]])
        numbers = [wide, rows, *reversed(low), *reversed(high), *reversed(w.steps)]
        tensor = self.tensor_map(list(reversed(numbers)))
        base = self.target.offset_at([self.start(e) for e in self.to])
        pointer = access_ptr(self.target.data, self.target.dtype, base, rows * wide, 2)
        image, *spatial = w.first(self.ana, self.start(m))
        given = [self.start(channel), *reversed(spatial), image, StringImm(WINDOWS), *reversed(offsets)]
        return Evaluate(Call("int32", "tir.ptx_cp_async_bulk_tensor", [pointer, tensor, 0, *given]))

    def tensor_map(self, box: list[int]) -> Call:
        """The tensor map: address, sizes in elements, strides in bytes and the box to copy, all innermost first.

        In im2col mode, instead of a box: channels and pixels, then both corners and the strides of the windows.
        """
        b = self.source
        sizes = list(reversed(b.shape))
        steps = [mul(s, const(b.dtype.nbytes, s.dtype)) for s in reversed(b.dense_strides()[:-1])]
        listed = [const(len(sizes)), *sizes, *steps, *(const(n) for n in reversed(box))]
        kind = TF32 if self.rounds else f"{b.dtype} {THREADS}" if self.plain else str(b.dtype)
        return Call("handle", "tir.tensor_map", [b.data, StringImm(kind), *listed])


def access_ptr(data: Var, kind: DataType, offset: PrimExpr, extent: int, mask: int) -> Call:
    held = Call(kind, "tir.type_annotation", [])
    return Call("handle", "tir.tvm_access_ptr", [held, data, offset, const(extent), const(mask)])
