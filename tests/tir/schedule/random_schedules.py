"""Random programs and random schedules of them, written as recipes: lists of words with numbers.

A number picks among what there is at that point (a block, a loop, a factor), so every recipe means something,
and a recipe with a line taken out does too: a failure can be made small by leaving things out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright import te, tir
from tilewright.ir.expr import const_value
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import BlockRealize
from tilewright.tir.analysis.reductions import reduction_loops
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule
from tilewright.tir.schedule.primitive import Refusal

Line = tuple[str, tuple[int, ...]]
NUMBERS = 5  # how many numbers go with a word
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)
LARGEST = 600  # elements of a tensor
MOST_RUNS = 20_000  # of a block: splits by more than there is make many iterations that do nothing


@dataclass(frozen=True)
class Recipe:
    """A program as the stages it is made of, and the steps of a schedule of it."""

    stages: tuple[Line, ...]
    steps: tuple[Line, ...]
    dtype: str = "float32"


def recipes(least: int = 10, most: int = 30, gpu: bool = False) -> Any:
    """The hypothesis strategy: recipes of two to six stages and some steps."""
    numbers = st.tuples(*[st.integers(0, 1 << 12)] * NUMBERS)
    return st.builds(
        Recipe,
        st.lists(st.tuples(st.sampled_from(sorted(STAGES)), numbers), min_size=2, max_size=6).map(tuple),
        st.lists(st.tuples(st.sampled_from(words(gpu)), numbers), min_size=least, max_size=most).map(tuple),
        st.sampled_from(["float32", "int32"]),
    )


def recipe_of(seed: int, gpu: bool = False) -> Recipe:
    """The recipe of a number."""
    rng = random.Random(seed)

    def line(names: list[str]) -> Line:
        return rng.choice(names), tuple(rng.randrange(1 << 12) for _ in range(NUMBERS))

    return Recipe(
        tuple(line(sorted(STAGES)) for _ in range(rng.randint(1, 5))),
        tuple(line(words(gpu)) for _ in range(rng.randint(10, 30))),
        rng.choice(["float32", "int32"]),
    )


def smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with something left out, larger parts first."""
    for part in ("steps", "stages"):
        lines = getattr(recipe, part)
        size = len(lines)
        while size >= 1:
            for at in range(0, len(lines) - size + 1, size):
                yield replace(recipe, **{part: lines[:at] + lines[at + size :]})
            size //= 2
    for part in ("steps", "stages"):
        lines = getattr(recipe, part)
        for at, (word, numbers) in enumerate(lines):
            for i, n in enumerate(numbers):
                for less in {0, n % 2, n % 12} - {n}:
                    if less < n:
                        changed = (word, (*numbers[:i], less, *numbers[i + 1 :]))
                        yield replace(recipe, **{part: (*lines[:at], changed, *lines[at + 1 :])})


# ---------------------------------------------------------------------------- programs
class Draft:
    """Tensors made so far."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.inputs: list[Any] = []
        self.made: list[Any] = []

    def source(self, n: int, accept: Callable[[Any], bool] = lambda t: True) -> Any:
        """A tensor to read: one made before, else an input; None if none fits."""
        fitting = [t for t in (*self.made, *self.inputs) if accept(t) and t.dtype == self.dtype]
        if not fitting:
            return None
        # The last one made is the likeliest, so that programs have depth.
        recent = fitting[: len(self.made)][-2:]
        return recent[n % len(recent)] if recent and n % 8 < 5 else fitting[n % len(fitting)]

    def fresh(self, shape: tuple[Any, ...], dtype: str | None = None) -> Any:
        made = te.placeholder(shape, dtype or self.dtype, name=f"X{len(self.inputs)}")
        self.inputs.append(made)
        return made

    def compute(self, shape: Any, body: Any) -> None:
        if int(np.prod([int(d) for d in shape])) <= LARGEST:
            self.made.append(te.compute(shape, body, name=f"S{len(self.made)}"))


def _dims(x: Any) -> list[int]:
    return [int(d) for d in x.shape]


def _scale(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    c = tir.const(n[1] % 5 - 2, d.dtype)
    d.compute(x.shape, lambda *v: x(*v) * c + x(*v))


def _both(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    y = d.source(n[1], lambda t: _dims(t) == _dims(x))
    how = (lambda a, b: a + b, lambda a, b: a - b, tir.max, tir.min)[n[2] % 4]
    d.compute(x.shape, lambda *v: how(x(*v), y(*v)))


def _fresh_operand(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    y = d.fresh(tuple(x.shape))
    d.compute(x.shape, lambda *v: x(*v) * y(*v))


def _row(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis = n[1] % len(x.shape)
    y = d.source(n[2], lambda t: len(t.shape) == 1 and _dims(t)[0] == _dims(x)[axis])
    y = y if y is not None else d.fresh((x.shape[axis],))
    d.compute(x.shape, lambda *v: x(*v) + y(v[axis]))


def _transposed(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    order = list(range(len(x.shape)))
    random.Random(n[1]).shuffle(order)
    d.compute([x.shape[a] for a in order], lambda *v: x(*[v[order.index(a)] for a in range(len(order))]))


def _stencil(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis, width = n[1] % len(x.shape), 1 + n[2] % 3
    shape = _dims(x)
    if shape[axis] <= width:
        return
    shape[axis] -= width

    def body(*v: Any) -> Any:
        return x(*v) + x(*v[:axis], v[axis] + width, *v[axis + 1 :])

    d.compute(shape, body)


def _guarded(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis = n[1] % len(x.shape)

    def body(*v: Any) -> Any:
        before = x(*v[:axis], v[axis] - 1, *v[axis + 1 :])
        return te.if_then_else(v[axis] >= 1, before, tir.const(3, d.dtype)) + x(*v)

    d.compute(x.shape, body)


def _padded(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis, low, high = n[1] % len(x.shape), n[2] % 3, n[3] % 3
    shape = _dims(x)
    size = shape[axis]
    shape[axis] += low + high

    def body(*v: Any) -> Any:
        inside = tir.all(v[axis] >= low, v[axis] < low + size)
        return te.if_then_else(inside, x(*v[:axis], v[axis] - low, *v[axis + 1 :]), tir.const(1, d.dtype))

    d.compute(shape, body)


def _reduced(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis = n[1] % len(x.shape)
    k = te.reduce_axis((0, x.shape[axis]), "k")
    how = (te.sum, te.max, te.min, te.sum)[n[2] % 4]
    shape = [s for a, s in enumerate(x.shape) if a != axis] or [1]
    keep = len(x.shape) > 1

    def body(*v: Any) -> Any:
        at = v if keep else ()
        return how(x(*at[:axis], k, *at[axis:]), axis=k)

    d.compute(shape, body)


def _reduced_twice(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0], lambda t: len(t.shape) >= 2)
    if x is None:
        return
    k0, k1 = te.reduce_axis((0, x.shape[0]), "k0"), te.reduce_axis((0, x.shape[1]), "k1")
    rest = list(x.shape[2:]) or [1]
    keep = len(x.shape) > 2
    d.compute(rest, lambda *v: te.sum(x(k0, k1, *(v if keep else ())), axis=[k0, k1]))


def _multiplied(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0], lambda t: len(t.shape) == 2)
    if x is None:
        return
    inner = _dims(x)[1]
    y = d.source(n[1], lambda t: len(t.shape) == 2 and _dims(t)[0] == inner)
    y = y if y is not None else d.fresh((inner, SIZES[n[2] % len(SIZES)]))
    k = te.reduce_axis((0, inner), "k")
    d.compute((x.shape[0], y.shape[1]), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k))


def _convolved(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis, width = n[1] % len(x.shape), 2 + n[2] % 2
    shape = _dims(x)
    if shape[axis] < width:
        return
    shape[axis] += 1 - width
    w = d.fresh((width,))
    k = te.reduce_axis((0, width), "k")
    d.compute(shape, lambda *v: te.sum(x(*v[:axis], v[axis] + k, *v[axis + 1 :]) * w[k], axis=k))


def _gathered(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0], lambda t: _dims(t)[0] >= 3)
    if x is None:
        return
    index = d.fresh((1 + n[1] % 6,), "int8")
    d.compute((index.shape[0], *x.shape[1:]), lambda *v: x(index[v[0]].astype("int32"), *v[1:]))


def _strided(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis, step = n[1] % len(x.shape), 2 + n[2] % 2
    shape = _dims(x)
    if shape[axis] < step:
        return
    shape[axis] //= step
    d.compute(shape, lambda *v: x(*v[:axis], v[axis] * step + n[3] % step, *v[axis + 1 :]))


def _reversed(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis = n[1] % len(x.shape)
    last = _dims(x)[axis] - 1
    d.compute(x.shape, lambda *v: x(*v[:axis], last - v[axis], *v[axis + 1 :]))


def _reshaped(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0], lambda t: len(t.shape) == 2)
    if x is None:
        return
    a, b = _dims(x)
    d.compute((a * b,), lambda i: x(te.indexdiv(i, b), te.indexmod(i, b)))


def _chosen(d: Draft, n: tuple[int, ...]) -> None:
    x = d.source(n[0])
    axis = n[1] % len(x.shape)
    d.compute(x.shape, lambda *v: tir.Select(v[axis] % 2 == 0, x(*v), -x(*v)))


STAGES: dict[str, Callable[[Draft, tuple[int, ...]], None]] = {
    "scale": _scale,
    "both": _both,
    "fresh": _fresh_operand,
    "row": _row,
    "transpose": _transposed,
    "stencil": _stencil,
    "guard": _guarded,
    "pad": _padded,
    "reduce": _reduced,
    "reduce2": _reduced_twice,
    "matmul": _multiplied,
    "conv": _convolved,
    "gather": _gathered,
    "stride": _strided,
    "reverse": _reversed,
    "reshape": _reshaped,
    "select": _chosen,
}


def program_of(recipe: Recipe) -> Any:
    """The program of a recipe: its outputs are the tensors that nobody reads."""
    d = Draft(recipe.dtype)
    first = recipe.stages[0][1] if recipe.stages else (0,) * NUMBERS
    rank = 1 + first[4] % 3
    sizes = [SIZES[(first[4] >> (3 * i + 2)) % len(SIZES)] for i in range(rank)]
    d.fresh(tuple(sizes[: rank - 1] if np.prod(sizes) > LARGEST else sizes))
    for word, numbers in recipe.stages:
        STAGES[word](d, numbers)
    if not d.made:
        _scale(d, (0,) * NUMBERS)
    read = {x for t in d.made for x in t.op.input_tensors}
    outputs = [t for t in d.made if t not in read]
    return te.create_prim_func([*d.inputs, *outputs])


def arrays_of(func: Any, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, so that sums are exact in any order; indices where the elements are int8."""
    rng = np.random.default_rng(seed)
    out = []
    for b in func.buffer_params():
        shape = [int(d) for d in b.shape]
        low, high = (0, 3) if b.dtype == "int8" else (-2, 3)
        out.append(rng.integers(low, high, shape).astype(str(b.dtype)))
    return out


# ---------------------------------------------------------------------------- steps
class Chooser:
    """What the numbers of a step pick."""

    def __init__(self, sch: Schedule) -> None:
        self.sch = sch
        self.blocks: list[BlockRV] = []
        waiting = sch.get_child_blocks(sch.get_block("root"))
        while waiting:
            first = waiting.pop(0)
            self.blocks.append(first)
            if any(isinstance(m, BlockRealize) for m in pre_order(sch.get(first).body)):
                waiting = [*sch.get_child_blocks(first), *waiting]

    def block(self, n: int) -> BlockRV:
        return self.blocks[n % len(self.blocks)]

    def loops(self, n: int) -> list[LoopRV]:
        return self.sch.get_loops(self.block(n))

    def runs(self, n: int) -> int:
        """How many times a block is come to, as far as that is a number."""
        return int(np.prod([const_value(self.sch.get(x).extent) or 1 for x in self.loops(n)]))

    def reduction(self, n: int) -> BlockRV:
        """A block that reduces, if there is one."""
        found = [b for b in self.blocks if self.sch.get(b).init is not None]
        return found[n % len(found)] if found else self.block(n)

    def reduction_loop(self, n: int, m: int) -> LoopRV:
        """A loop of a reduction, as a rule one that carries it."""
        me = self.reduction(n)
        loops = self.sch.get_loops(me)
        if not loops:
            return self.sch.add_unit_loop(me)
        realize = self.sch.realize(me)
        driving = {x.loop_var for x in reduction_loops(realize, self.sch.state.index.loops_of(realize))}
        carrying = [x for x in loops if x.var in driving]
        return carrying[m % len(carrying)] if carrying and m % 8 else loops[m % len(loops)]

    def loop(self, n: int, m: int) -> LoopRV:
        found = self.loops(n)
        return found[m % len(found)] if found else self.sch.add_unit_loop(self.block(n))


def _split(c: Chooser, n: tuple[int, ...]) -> None:
    factors: list[Any] = [2, 3, 4, 5, 8, 16, 1]
    count = 1 + n[2] % 2
    parts = [factors[(n[3] >> (3 * i)) % 7] for i in range(count)]
    loop, size = c.loop(n[0], n[1]), int(np.prod(parts))
    extent = const_value(c.sch.get(loop).extent)
    if extent is not None and c.runs(n[0]) // extent * (-(-extent // size) * size) > MOST_RUNS:
        return
    parts.insert(n[4] % (count + 1), None)
    c.sch.split(loop, parts)


def _fuse(c: Chooser, n: tuple[int, ...]) -> None:
    loops = c.loops(n[0])
    at = n[1] % max(1, len(loops) - 1)
    c.sch.fuse(*loops[at : at + 2 + n[2] % 2])


def _reorder(c: Chooser, n: tuple[int, ...]) -> None:
    loops = c.loops(n[0])
    picked = random.Random(n[1]).sample(loops, min(len(loops), 2 + n[2] % 3))
    c.sch.reorder(*picked)


def _bind(c: Chooser, n: tuple[int, ...]) -> None:
    axes = ["blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y", "vthread", "vthread.y"]
    c.sch.bind(c.loop(n[0], n[1]), axes[n[2] % len(axes)])


def _two(c: Chooser, n: tuple[int, ...], forward: bool) -> tuple[BlockRV, LoopRV]:
    """A block, and a loop of one of its consumers or producers, else of any."""
    fitting = [b for b in c.blocks if (c.sch.get_consumers(b) if forward else c.sch.get_producers(b))]
    me = fitting[n[0] % len(fitting)] if fitting and n[0] % 16 else c.block(n[0])
    near = c.sch.get_consumers(me) if forward else c.sch.get_producers(me)
    other = near[n[1] % len(near)] if near and n[1] % 8 else c.block(n[1])
    loops = c.sch.get_loops(other)
    return me, loops[n[2] % len(loops)] if loops else c.sch.add_unit_loop(other)


def _compute_at(c: Chooser, n: tuple[int, ...]) -> None:
    me, loop = _two(c, n, True)
    c.sch.compute_at(me, loop, preserve_unit_loops=n[3] % 2 == 0, index=(-1, -2, -1, 0)[n[4] % 4])


def _reverse_compute_at(c: Chooser, n: tuple[int, ...]) -> None:
    me, loop = _two(c, n, False)
    c.sch.reverse_compute_at(me, loop, preserve_unit_loops=n[3] % 2 == 0, index=(-1, -2, -1, 0)[n[4] % 4])


def _cache_read(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    count = max(1, len(c.sch.get(me).reads))
    readers = None if n[3] % 3 else [me, c.block(n[4])]
    c.sch.cache_read(me, n[1] % count, SCOPES[n[2] % 3], readers)


def _cache_write(c: Chooser, n: tuple[int, ...]) -> None:
    readers = None if n[3] % 3 else [c.block(n[4])]
    c.sch.cache_write(c.block(n[0]), 0, SCOPES[n[2] % 3], readers)


def _decompose(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.reduction(n[0])
    loops = c.sch.get_loops(me)
    c.sch.decompose_reduction(me, loops[n[1] % len(loops)] if loops else c.sch.add_unit_loop(me))


SCOPES = ("global", "local", "shared")


def _sampled_split(c: Chooser, n: tuple[int, ...]) -> None:
    loop = c.loop(n[0], n[1])
    c.sch.split(loop, c.sch.sample_perfect_tile(loop, 2 + n[2] % 2, -1))


def _sampled_place(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    c.sch.compute_at(me, c.sch.sample_compute_location(me))


def _layout(c: Chooser, n: tuple[int, ...]) -> None:
    """Another layout for a buffer between two stages; parameters keep theirs."""
    inside = {b for r in c.sch.state.index.order for b in r.block.alloc_buffers}
    made = {b: [w.buffer for w in c.sch.get(b).writes] for b in c.blocks}
    fitting = [b for b, buffers in made.items() if buffers and inside.issuperset(buffers)]
    if fitting:
        me = fitting[n[0] % len(fitting)]
        rank = len(c.sch.get(me).writes[0].buffer.shape)
        if 1 <= rank <= 3:
            how = MAPS[rank - 1][n[1] % len(MAPS[rank - 1])]
            c.sch.transform_layout(me, ("write", 0), how, (None, 0)[n[2] % 2])


MAPS: tuple[tuple[Any, ...], ...] = (
    (lambda i: (i // 4, i % 4), lambda i: (i % 2, i // 2), lambda i: (11 - i,)),
    (
        lambda i, j: (j, i),
        lambda i, j: (i, j // 4, j % 4),
        lambda i, j: (i * 12 + j,),
        lambda i, j: (j // 2, i, j % 2),
    ),
    (lambda i, j, k: (k, i, j), lambda i, j, k: (i, k // 4, j, k % 4), lambda i, j, k: (i * 12 + j, k)),
)


def _block_layout(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    rank = len(c.sch.get(me).iter_vars)
    if 1 <= rank <= 3:
        c.sch.transform_block_layout(me, MAPS[rank - 1][n[1] % len(MAPS[rank - 1])])


def _block_iters(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    order = list(range(len(c.sch.get(me).iter_vars)))
    random.Random(n[1]).shuffle(order)
    c.sch.reorder_block_iter_var(me, order)


def _merge(c: Chooser, n: tuple[int, ...]) -> None:
    c.sch.merge(c.loop(n[0], n[1]), c.loop(n[2], n[3]))


def _pad_einsum(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.reduction(n[0])
    c.sch.pad_einsum(me, [(1, 4, 5)[(n[1] >> i) % 3] for i in range(len(c.sch.get(me).iter_vars))])


def _reindexed(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    regions = c.sch.get(me).reads if n[1] % 2 else c.sch.get(me).writes
    c.sch.reindex(me, ("read" if n[1] % 2 else "write", n[2] % max(1, len(regions))))


def _cache_inplace(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    c.sch.cache_inplace(me, n[1] % max(1, len(c.sch.get(me).reads)), SCOPES[n[2] % 3])


def _reindexed_cache(c: Chooser, n: tuple[int, ...]) -> None:
    me = c.block(n[0])
    rank = len(c.sch.get(me).iter_vars)
    if 1 <= rank <= 3:
        how = MAPS[rank - 1][n[1] % len(MAPS[rank - 1])]
        if n[2] % 2:
            c.sch.reindex_cache_read(me, n[3] % max(1, len(c.sch.get(me).reads)), SCOPES[n[4] % 3], how)
        else:
            c.sch.reindex_cache_write(me, 0, SCOPES[n[4] % 3], how)


def _annotate(c: Chooser, n: tuple[int, ...]) -> None:
    key, value = (("pragma_auto_unroll_max_step", 8), ("note", "x"), ("pragma_unroll_explicit", 0))[n[2] % 3]
    c.sch.annotate(c.loop(n[0], n[1]) if n[3] % 2 else c.block(n[0]), key, value)


STEPS: dict[str, Callable[[Chooser, tuple[int, ...]], Any]] = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "parallel": lambda c, n: c.sch.parallel(c.loop(n[0], n[1])),
    "vectorize": lambda c, n: c.sch.vectorize(c.loop(n[0], n[1])),
    "unroll": lambda c, n: c.sch.unroll(c.loop(n[0], n[1])),
    "bind": _bind,
    "compute_at": _compute_at,
    "reverse_compute_at": _reverse_compute_at,
    "compute_inline": lambda c, n: c.sch.compute_inline(c.block(n[0])),
    "reverse_compute_inline": lambda c, n: c.sch.reverse_compute_inline(c.block(n[0])),
    "cache_read": _cache_read,
    "cache_write": _cache_write,
    "decompose_reduction": _decompose,
    "rfactor": lambda c, n: c.sch.rfactor(c.reduction_loop(n[0], n[1]), (0, -1, 1)[n[2] % 3]),
    "cascade_reduction": lambda c, n: c.sch.cascade_reduction(c.reduction_loop(n[0], n[1])),
    "set_scope": lambda c, n: c.sch.set_scope(c.block(n[0]), 0, SCOPES[n[1] % 3]),
    "storage_align": lambda c, n: c.sch.storage_align(c.block(n[0]), 0, -2, 1 + n[1] % 8, n[2] % 3),
    "add_unit_loop": lambda c, n: c.sch.add_unit_loop(c.loop(n[0], n[1]) if n[2] % 2 else c.block(n[0])),
    "annotate": _annotate,
    "sampled_split": _sampled_split,
    "sampled_place": _sampled_place,
    "transform_layout": _layout,
    "transform_block_layout": _block_layout,
    "reorder_block_iter_var": _block_iters,
    "merge": _merge,
    "loop_partition": lambda c, n: c.sch.loop_partition(c.loop(n[0], n[1]), [1 + n[2] % 5, None]),
    "pad_einsum": _pad_einsum,
    "decompose_padding": lambda c, n: c.sch.decompose_padding(c.block(n[0]), c.loop(n[0], n[1])),
    "rolling_buffer": lambda c, n: c.sch.rolling_buffer(c.block(n[0]), 0),
    "reindex": _reindexed,
    "reindex_cache": _reindexed_cache,
    "cache_inplace": _cache_inplace,
    "blockize": lambda c, n: c.sch.blockize(c.loop(n[0], n[1])),
}

# How often a step is taken; those that shape the nest come often, the rest seldom.
_WEIGHTS = {"split": 4, "fuse": 2, "reorder": 3, "compute_at": 4, "reverse_compute_at": 4, "cache_read": 2}
_WEIGHTS |= {
    "sampled_split": 2,
    "transform_layout": 2,
    "cache_write": 2,
    "rfactor": 2,
    "decompose_reduction": 2,
    "bind": 4,
    "parallel": 2,
    "vectorize": 2,
}


_WORDS = tuple(STEPS)  # others may add steps of their own


def words(gpu: bool) -> list[str]:
    """The steps, the frequent ones several times: for processors without thread axes, for GPUs with them."""
    left_out = "parallel" if gpu else "bind"
    return [w for w in _WORDS if w != left_out for _ in range(_WEIGHTS.get(w, 1))]


def scheduled(recipe: Recipe) -> tuple[Schedule, list[str]]:
    """The schedule of a recipe, and what became of each step: `done` or the reason of its refusal."""
    sch = Schedule(program_of(recipe), seed=0)
    told = []
    for word, numbers in recipe.steps:
        told.append(f"{word}: {step(sch, word, numbers)}")
    return sch, told


def step(sch: Schedule, word: str, numbers: tuple[int, ...]) -> str:
    """Take one step; a refusal must leave the program as it was."""
    chooser = Chooser(sch)
    try:
        STEPS[word](chooser, numbers)
    except Refusal as refusal:
        first = f"{refusal.call}: {refusal.reason}"  # the whole text takes longer than most steps
        assert sch.mod is sch.trace.insts[-1].after, f"{word} refused ({first}) and changed the program"
        return first
    return "done"
