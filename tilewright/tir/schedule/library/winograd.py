"""A convolution by Winograd's minimal filtering: `winograd`.

Tiles of m by m results need m + r - 1 by m + r - 1 products for a kernel of r by r, in place of m² r². What is
multiplied is transformed before and after, by sums with small constant factors:

    U = G g Gᵀ          the kernel, once for all; known when it is compiled if the kernel is
    V = Bᵀ d B          a tile of the data
    M = Σ over channels of U * V       a matrix product for each of the (m + r - 1)² points
    y = Aᵀ M A          a tile of the result
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ....arith.minimal_filtering import LARGEST, Matrix, filter_matrices
from ....ir.buffer import Buffer, BufferRegion, decl_buffer
from ....ir.expr import Add, BufferLoad, IterVar, Mul, PrimExpr, Range, Var, const, const_value
from ....ir.functor import pre_order, vars_used
from ....ir.ops import add, equal, if_then_else, less, logical_and, mul, select, sub
from ....ir.stmt import Block, BlockRealize, BufferStore, Stmt
from ...analysis.combiner import NotACombination, combination_of
from ..blocks import check_dominant, enclosing_block, insert_beside
from ..nests import loop_nest
from ..primitive import BlockRV, primitive, refuse

if TYPE_CHECKING:
    from ..schedule import Schedule

# The annotation of the stages that transform: how many of their last iterators are to be unrolled.
KEY = "winograd.small"


@primitive
def winograd(sch: Schedule, block: BlockRV | str, tile_size: int = 2) -> list[BlockRV]:
    """Compute a convolution with stride 1 in tiles of `tile_size`, with fewer multiplications (Winograd).

    for n, co, h, w, ci, r, s:                      U[point, ci, co]     from the kernel, rows and then columns
        C[n, co, h, w] +=                    ->     V[point, tile, ci]   from tiles of the data
            D[n, ci, h + r, w + s] *                M[point, tile, co] += V[point, tile, ci] * U[point, ci, co]
            K[co, ci, r, s]                         C                    from tiles of M

    Dimensions may be in any order, and groups are supported. Returns the blocks: transforms of the kernel's rows and
    columns, of the data, the products, transforms of the result. Rounding differs: little for tiles of 2, by about one
    decimal digit for tiles of 4.
    """
    me = sch.realize(block)
    nest = sch.state.index.loops_of(me)
    check_dominant(sch, me)
    found = convolution_of(me)
    if isinstance(found, str):
        refuse(f"block {me.block.name_hint} {found}", at=me, hint="it must be a convolution with stride 1")
    plain = [x.loop_var for x in nest] == list(me.iter_values)
    if not plain or any(a.body is not b for a, b in zip(nest, [*nest[1:], me], strict=True)):
        refuse(
            f"block {me.block.name_hint} is scheduled already",
            at=me,
            hint="take winograd before its loops are split, fused or shared",
        )
    if tile_size < 2 or tile_size + found.kernel > LARGEST:
        refuse(f"tiles of {tile_size} with a kernel of {found.kernel}", at=me, hint="take 2 or 4")
    made = _Stages(found, tile_size, me.block).made()
    old = nest[0]
    for nested, _ in made[:-1]:
        insert_beside(sch, old, nested, before=True)
    sch.state.replace(old, made[-1][0])
    scope = enclosing_block(sch, made[-1][0])
    assert scope is not None
    buffers = tuple(b for _, b in made if b is not None)
    sch.state.replace(scope, scope.replace(alloc_buffers=(*scope.alloc_buffers, *buffers)))
    for x in nest:
        sch.forget(x.loop_var, f"winograd({me.block.name_hint})")
    blocks = [next(m for m in pre_order(nested) if isinstance(m, Block)) for nested, _ in made]
    return [BlockRV(b.key, b.name_hint) for b in blocks]


# ---------------------------------------------------------------------------- what a convolution is
@dataclass(frozen=True, slots=True)
class Convolution:
    """C[…, h, w] += D[…, h + r, w + s] * K[…, r, s], by the iterators of its block."""

    block: Block
    out: BufferStore
    data: BufferLoad
    weight: BufferLoad
    places: tuple[Var, Var]  # h, w
    window: tuple[Var, Var]  # r, s
    at: tuple[int, int]  # the dimensions of the data that h and w move along
    kernel: int

    def extent(self, v: Var) -> int:
        size = const_value(next(iv for iv in self.block.iter_vars if iv.var is v).dom.extent)
        assert size is not None
        return int(size)

    @property
    def others(self) -> list[Var]:
        """Iterators of the data alone, and of results: the batch and groups."""
        used = {v for i in self.data.indices for v in vars_used(i)}
        return [v for v in self._spatial if v in used and v not in self.places]

    @property
    def outputs(self) -> list[Var]:
        """Iterators of the kernel and of results that the data does not have."""
        used = {v for i in self.data.indices for v in vars_used(i)}
        return [v for v in self._spatial if v not in used]

    @property
    def inputs(self) -> list[Var]:
        """The reduction iterators outside the window."""
        return [iv.var for iv in self.block.iter_vars if iv.is_reduction and iv.var not in self.window]

    @property
    def weight_vars(self) -> set[Var]:
        return {v for i in self.weight.indices for v in vars_used(i)}

    @property
    def _spatial(self) -> list[Var]:
        return [iv.var for iv in self.block.iter_vars if not iv.is_reduction]


def convolution_of(me: BlockRealize) -> Convolution | str:
    """The convolution with stride 1 that a block is, or why it is none."""
    block = me.block
    try:
        held = combination_of(block)
    except NotACombination as why:
        return str(why)
    value = held.values[0]
    out = block.body
    floats = isinstance(out, BufferStore) and out.buffer.dtype.is_float
    if len(held.values) != 1 or not isinstance(held.reducer.result[0], Add) or not floats:
        return "is not a sum of floats"
    if not (isinstance(value, Mul) and isinstance(value.a, BufferLoad) and isinstance(value.b, BufferLoad)):
        return "does not multiply two elements"
    assert isinstance(out, BufferStore)
    if any(const_value(iv.dom.extent) is None or const_value(iv.dom.min) != 0 for iv in block.iter_vars):
        return "has sizes that are not known"
    if any(not isinstance(i, Var) and const_value(i) is None for i in held.indices):
        return "does not write where its iterators say"
    for data, weight in ((value.a, value.b), (value.b, value.a)):
        found = _windows(block, data, weight)
        if found is None:
            continue
        places, window, at = found
        sizes = {const_value(iv.dom.extent) for iv in block.iter_vars if iv.var in window}
        plain = all(isinstance(i, Var) or const_value(i) is not None for i in weight.indices)
        rest = [i for d, i in enumerate(data.indices) if d not in at]
        simple = all(isinstance(i, Var) or const_value(i) is not None for i in rest)
        if len(sizes) == 1 and plain and simple and data.dtype is weight.dtype is out.buffer.dtype:
            (size,) = sizes
            assert size is not None
            if int(size) > 1:
                return Convolution(block, out, data, weight, places, window, at, int(size))
    return "has no window of two dimensions that slides by 1"


def _windows(
    block: Block, data: BufferLoad, weight: BufferLoad
) -> tuple[tuple[Var, Var], tuple[Var, Var], tuple[int, int]] | None:
    """The pairs h + r and w + s by which the data is read."""
    reduces = {iv.var for iv in block.iter_vars if iv.is_reduction}
    mine = {v for i in weight.indices for v in vars_used(i)}
    found: list[tuple[Var, Var, int]] = []
    for d, index in enumerate(data.indices):
        if not isinstance(index, Add) or not isinstance(index.a, Var) or not isinstance(index.b, Var):
            continue
        h, r = (index.b, index.a) if index.a in reduces else (index.a, index.b)
        others = {v for e, i in enumerate(data.indices) if e != d for v in vars_used(i)}
        if r in reduces and h not in reduces and r in mine and h not in mine and not others & {h, r}:
            found.append((h, r, d))
    if len(found) != 2:
        return None
    (h, r, d), (w, s, e) = found
    return (h, w), (r, s), (d, e)


# ---------------------------------------------------------------------------- the stages
Made = tuple[Stmt, Buffer | None]


class _Stages:
    """Writes the stages of one convolution."""

    def __init__(self, conv: Convolution, m: int, block: Block) -> None:
        self.c, self.m, self.block = conv, m, block
        self.dtype = conv.out.buffer.dtype
        self.alpha = m + conv.kernel - 1
        self.A, self.B, self.G = filter_matrices(m, conv.kernel)
        self.sizes = [conv.extent(v) for v in conv.places]
        self.tiles = [-(-n // m) for n in self.sizes]
        self.others, self.inputs, self.outputs = (
            [(v, conv.extent(v)) for v in group] for group in (conv.others, conv.inputs, conv.outputs)
        )

        self.shared = [x for x in self.others if x[0] in conv.weight_vars]  # groups
        self.batch = [x for x in self.others if x[0] not in conv.weight_vars]
        self.count = math.prod([*self._sizes(self.batch), *self.tiles])

    @staticmethod
    def _sizes(axes: Sequence[tuple[Var, int]]) -> list[int]:
        return [n for _, n in axes]

    def _point(self, small: Sequence[PrimExpr]) -> PrimExpr:
        """The number of a point of a tile."""
        i, j = small
        return add(mul(i, self._int(self.alpha)), j)

    def _tile_place(self, point: PrimExpr, at: Sequence[PrimExpr], last: int) -> list[PrimExpr]:
        """The indices of an element of a tile: its point, groups, the number of the tile, channels."""
        others, (y, x), rest = at[: len(self.others)], at[len(self.others) : -last], at[len(at) - last :]
        named = dict(zip([v for v, _ in self.others], others, strict=True))
        tile: PrimExpr = self._int(0)
        for v, size in self.batch:
            tile = add(mul(tile, self._int(size)), named[v])
        for place, size in zip((y, x), self.tiles, strict=True):
            tile = add(mul(tile, self._int(size)), place)
        return [point, *[named[v] for v, _ in self.shared], tile, *rest]

    def made(self) -> list[Made]:
        kernel, U = self._kernel()
        data, V = self._data()
        product, M = self._product(U, V)
        return [*kernel, *data, product, *self._result(M)]

    def _buffer(self, name: str, sizes: Sequence[int]) -> Buffer:
        return decl_buffer(tuple(sizes), self.dtype, f"{self.block.name_hint}_{name}")

    # -- the kernel ----------------------------------------------------------------------------
    def _kernel(self) -> tuple[list[Made], Buffer]:
        axes = [*self.shared, *self.inputs, *self.outputs]
        sizes, r = [n for _, n in axes], self.c.kernel
        half = self._buffer("kernel_rows", [*sizes[:-1], self.alpha, r, sizes[-1]])
        whole = self._buffer("kernel", [self.alpha * self.alpha, *sizes])
        names = [v for v, _ in axes]

        def rows(at: dict[Var, PrimExpr], small: list[Var]) -> PrimExpr:
            a, s = small

            def tap(k: int) -> PrimExpr:
                window = {self.c.window[0]: self._int(k), self.c.window[1]: s}
                return self._read(self.c.weight, {**at, **window})

            return self._chosen(a, self.G, tap)

        columns = self._columns(names, half, self.G)

        taps = self.c.weight.indices.index(self.c.window[0])

        def weights(at: dict[Var, PrimExpr], small: list[Var]) -> BufferRegion:
            window: dict[Var, PrimExpr] = {self.c.window[0]: self._int(0), self.c.window[1]: small[1]}
            return self._along(self._read(self.c.weight, {**at, **window}), taps, r)

        first = self._stage("kernel_rows", axes, [self.alpha, r], rows, half, _before_last, weights)
        second = self._stage(
            "kernel",
            axes,
            [self.alpha] * 2,
            columns,
            whole,
            lambda p, s: [self._point(s), *p],
            lambda at, small: self._half_row(half, [at[v] for v in names], small[0], r),
        )
        return [(first, half), (second, whole)], whole

    def _columns(
        self, names: Sequence[Var], half: Buffer, matrix: Matrix
    ) -> Callable[[dict[Var, PrimExpr], list[Var]], PrimExpr]:
        """The second transform of a tile, along its columns, from the result `half` of the first."""

        def columns(at: dict[Var, PrimExpr], small: list[Var]) -> PrimExpr:
            row, column = small
            here = [at[v] for v in names]
            return self._chosen(
                column, matrix, lambda k: BufferLoad(half, (*here[:-1], row, self._int(k), here[-1]))
            )

        return columns

    # -- the data ------------------------------------------------------------------------------
    def _data(self) -> tuple[list[Made], Buffer]:
        y, x = (Var(n, "int32") for n in "yx")
        axes = [*self.others, (y, self.tiles[0]), (x, self.tiles[1]), *self.inputs]
        sizes = [n for _, n in axes]
        half = self._buffer("data_rows", [*sizes[:-1], self.alpha, self.alpha, sizes[-1]])
        channels = self._sizes(self.inputs)
        whole = self._buffer("data", [self.alpha**2, *self._sizes(self.shared), self.count, *channels])
        names = [v for v, _ in axes]

        def rows(at: dict[Var, PrimExpr], small: list[Var]) -> PrimExpr:
            a, j = small
            return self._chosen(
                a, _transposed(self.B), lambda k: self._element(at, at[y], at[x], self._int(k), j)
            )

        columns = self._columns(names, half, _transposed(self.B))

        def window(at: dict[Var, PrimExpr], small: list[Var]) -> BufferRegion:
            load = self._load(at, at[y], at[x], self._int(0), small[1])
            return self._along(load, self.c.at[0], self.alpha)

        first = self._stage("data_rows", axes, [self.alpha] * 2, rows, half, _before_last, window)
        second = self._stage(
            "data",
            axes,
            [self.alpha] * 2,
            columns,
            whole,
            lambda p, s: self._tile_place(self._point(s), p, len(self.inputs)),
            lambda at, small: self._half_row(half, [at[v] for v in names], small[0], self.alpha),
        )
        return [(first, half), (second, whole)], whole

    def _load(
        self, at: dict[Var, PrimExpr], y: PrimExpr, x: PrimExpr, i: PrimExpr, j: PrimExpr
    ) -> BufferLoad:
        """The data at place (i, j) of a tile."""
        h, w = (add(mul(t, self._int(self.m)), k) for t, k in ((y, i), (x, j)))
        places = dict(zip(self.c.at, (h, w), strict=True))
        indices = [places[d] if d in places else _put(e, at) for d, e in enumerate(self.c.data.indices)]
        return BufferLoad(self.c.data.buffer, tuple(indices))

    def _element(
        self, at: dict[Var, PrimExpr], y: PrimExpr, x: PrimExpr, i: PrimExpr, j: PrimExpr
    ) -> PrimExpr:
        """The data at place (i, j) of a tile; nothing beyond the end of the last tile."""
        value = self._load(at, y, x, i, j)
        h, w = (value.indices[d] for d in self.c.at)
        inside: PrimExpr | None = None
        for e, size, tiles in zip((h, w), self.sizes, self.tiles, strict=True):
            if tiles * self.m != size:
                here = less(e, self._int(size + self.c.kernel - 1))
                inside = here if inside is None else logical_and(inside, here)
        return value if inside is None else if_then_else(inside, value, const(0.0, self.dtype))

    # -- the products --------------------------------------------------------------------------
    def _product(self, U: Buffer, V: Buffer) -> tuple[Made, Buffer]:
        point, tile = Var("point", "int32"), Var("tile", "int32")
        axes = [(point, self.alpha * self.alpha), *self.shared, (tile, self.count)]
        spatial = [*axes, *self.outputs]
        M = self._buffer("product", [n for _, n in spatial])
        iters, values, loops, table = self._iters(spatial, self.inputs)
        place = tuple(table[v] for v, _ in spatial)
        left = BufferLoad(V, tuple(table[v] for v, _ in (*axes, *self.inputs)))
        names = [point, *[v for v, _ in (*self.shared, *self.inputs, *self.outputs)]]
        right = BufferLoad(U, tuple(table[v] for v in names))
        update = BufferStore(M, add(BufferLoad(M, place), mul(left, right)), place)
        init = BufferStore(M, const(0.0, self.dtype), place)
        reads = tuple(BufferRegion.point(x.buffer, x.indices) for x in (left, right))
        name = f"{self.block.name_hint}_product"
        return (_nest(Block(iters, reads, (_stored(update),), name, update, init), values, loops), M), M

    # -- the result ----------------------------------------------------------------------------
    def _result(self, M: Buffer) -> list[Made]:
        y, x = (Var(n, "int32") for n in "yx")
        axes = [*self.others, (y, self.tiles[0]), (x, self.tiles[1]), *self.outputs]
        names = [v for v, _ in axes]
        sizes = [n for _, n in axes]
        half = self._buffer("result_rows", [*sizes[:-1], self.m, self.alpha, sizes[-1]])

        def rows(at: dict[Var, PrimExpr], small: list[Var]) -> PrimExpr:
            p, b = small
            here = [at[v] for v in names]

            def value(k: int) -> PrimExpr:
                point = self._point([self._int(k), b])
                return BufferLoad(M, tuple(self._tile_place(point, here, len(self.outputs))))

            return self._chosen(p, _transposed(self.A), value)

        columns = self._columns(names, half, _transposed(self.A))

        def points(at: dict[Var, PrimExpr], small: list[Var]) -> BufferRegion:
            here = [at[v] for v in names]
            load = BufferLoad(M, tuple(self._tile_place(small[1], here, len(self.outputs))))
            return self._along(load, 0, (self.alpha - 1) * self.alpha + 1)

        first = self._stage("result_rows", axes, [self.m, self.alpha], rows, half, _before_last, points)
        out = self.c.out

        def stored(at: dict[Var, PrimExpr], small: list[Var]) -> tuple[PrimExpr, ...]:
            table = dict(at)
            for v, t, k in zip(self.c.places, (y, x), small, strict=True):
                table[v] = add(mul(at[t], self._int(self.m)), k)
            return tuple(_put(i, table) for i in out.indices)

        iters, values, loops, table = self._iters([*axes, *self._small([self.m] * 2)], [])
        small = [iv.var for iv in iters[-2:]]
        at = {v: table[v] for v in names}
        body = BufferStore(out.buffer, columns(at, small), stored(at, small))
        predicate: PrimExpr = const(True, "bool")
        for t, k, size, tiles in zip(
            values[len(self.others) :], values[-2:], self.sizes, self.tiles, strict=False
        ):
            if tiles * self.m != size:
                predicate = logical_and(predicate, less(add(mul(t, self._int(self.m)), k), self._int(size)))
        row = self._half_row(half, [at[v] for v in names], small[0], self.alpha)
        block = Block(
            iters, (row,), (_stored(body),), self.block.name_hint, body,
            annotations={**self.block.annotations, KEY: 2}, key=self.block.key,
        )  # fmt: skip
        return [(first, half), (_nest(block, values, loops, predicate), None)]

    # -- pieces --------------------------------------------------------------------------------
    def _int(self, k: int) -> PrimExpr:
        return const(k, "int32")

    def _read(self, load: BufferLoad, table: dict[Var, PrimExpr]) -> BufferLoad:
        return BufferLoad(load.buffer, tuple(_put(i, table) for i in load.indices))

    def _small(self, extents: Sequence[int]) -> list[tuple[Var, int]]:
        return [(Var(n, "int32"), size) for n, size in zip("ij", extents, strict=True)]

    def _iters(
        self, spatial: Sequence[tuple[Var, int]], reduces: Sequence[tuple[Var, int]]
    ) -> tuple[list[IterVar], list[PrimExpr], list[tuple[Var, int]], dict[Var, PrimExpr]]:
        """Fresh iterators and loops for some of the convolution's, and how to name them."""
        iters: list[IterVar] = []
        values: list[PrimExpr] = []
        loops: list[tuple[Var, int]] = []
        table: dict[Var, PrimExpr] = {}
        for kind, group in ((IterVar.DataPar, spatial), (IterVar.CommReduce, reduces)):
            for v, size in group:
                plain = v.name.removeprefix("v_")
                own, loop = Var(f"v_{plain}", "int32"), Var(plain, "int32")
                iters.append(IterVar(Range.from_min_extent(self._int(0), self._int(size)), own, kind))
                values.append(loop)
                loops.append((loop, size))
                table[v] = own
        return iters, values, loops, table

    def _stage(
        self,
        name: str,
        axes: Sequence[tuple[Var, int]],
        small: Sequence[int],
        value: Callable[[dict[Var, PrimExpr], list[Var]], PrimExpr],
        buffer: Buffer,
        place: Callable[[list[PrimExpr], list[PrimExpr]], list[PrimExpr]],
        reads: Callable[[dict[Var, PrimExpr], list[Var]], BufferRegion],
    ) -> Stmt:
        """A nest that transforms: `small` iterators are to be unrolled."""
        iters, values, loops, table = self._iters([*axes, *self._small(small)], [])
        inner = [iv.var for iv in iters[len(axes) :]]
        at = {v: table[v] for v, _ in axes}
        body = BufferStore(buffer, value(at, inner), tuple(place([at[v] for v, _ in axes], [*inner])))
        block = Block(
            iters, (reads(at, inner),), (_stored(body),), f"{self.block.name_hint}_{name}", body,
            annotations={KEY: len(small)},
        )  # fmt: skip
        return _nest(block, values, loops)

    def _along(self, load: BufferLoad, dim: int, extent: int) -> BufferRegion:
        """The elements from one on, along a dimension."""
        one = self._int(1)
        sizes = [self._int(extent) if d == dim else one for d in range(len(load.indices))]
        return BufferRegion(
            load.buffer,
            tuple(Range.from_min_extent(i, n) for i, n in zip(load.indices, sizes, strict=True)),
        )

    def _half_row(self, half: Buffer, at: list[PrimExpr], row: PrimExpr, extent: int) -> BufferRegion:
        """A row of the intermediate result between the two halves of a transform."""
        load = BufferLoad(half, (*at[:-1], row, self._int(0), at[-1]))
        return self._along(load, len(load.indices) - 2, extent)

    def _chosen(self, row: PrimExpr, matrix: Matrix, value: Callable[[int], PrimExpr]) -> PrimExpr:
        """The sum that a row of a matrix stands for, for whichever row it is: when the row is known it is just that."""
        sums = [self._sum(factors, value) for factors in matrix]
        out = sums[-1]
        for k in range(len(sums) - 2, -1, -1):
            out = select(equal(row, self._int(k)), sums[k], out)
        return out

    def _sum(self, factors: Sequence[Fraction], value: Callable[[int], PrimExpr]) -> PrimExpr:
        out: PrimExpr | None = None
        for k, factor in sorted(enumerate(factors), key=lambda x: x[1] < 0):
            if not factor:
                continue
            size, v = abs(factor), value(k)
            term = v if size == 1 else mul(v, const(float(size), self.dtype))
            if out is None:
                out = term if factor > 0 else sub(const(0.0, self.dtype), term)
            else:
                out = add(out, term) if factor > 0 else sub(out, term)
        return const(0.0, self.dtype) if out is None else out


def _stored(store: BufferStore) -> BufferRegion:
    return BufferRegion.point(store.buffer, store.indices)


def _before_last(axes: list[PrimExpr], small: list[PrimExpr]) -> list[PrimExpr]:
    return [*axes[:-1], *small, axes[-1]]


def _transposed(matrix: Matrix) -> Matrix:
    return [list(row) for row in zip(*matrix, strict=True)]


def _put(e: PrimExpr, table: dict[Var, PrimExpr]) -> PrimExpr:
    return table.get(e, e) if isinstance(e, Var) else e


def _nest(
    block: Block,
    values: Sequence[PrimExpr],
    loops: Sequence[tuple[Var, int]],
    predicate: PrimExpr | bool = True,
) -> Stmt:
    return loop_nest([v for v, _ in loops], [n for _, n in loops], BlockRealize(values, predicate, block))
