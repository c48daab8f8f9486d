"""Long sums of floating-point numbers, added up in blocks, so that chains of additions stay short and accurate.

for k in range(100000):            for k0 in range(200):
    C[tile] += A[k] * B[k]             for k1 in range(500):
                              ->           C_part[tile] += A[k0 * 500 + k1] * B[k0 * 500 + k1]
                                       C[tile] += C_part[tile]

Each addition rounds, so the error of a sum grows with the length of its chain (about as its square root, for random
numbers). This step comes last and applies to whatever the others have made: register tiles, vectors of partial sums,
lines that are added up, unscheduled loops.
"""

from __future__ import annotations

import math

from ...ir.errors import ScheduleError
from ...ir.expr import Add, const_value
from ...ir.stmt import Block, BlockRealize, For, ForKind
from ...tir.analysis.combiner import NotACombination, combination_of, guarded_step
from ...tir.analysis.reductions import reduction_loops
from ...tir.schedule import Schedule
from ...tir.schedule.primitive import LoopRV
from ...tir.transform.vectorize_loop import LANES

__all__ = ["bound_chains"]

# The most additions of a chain that is not cut: the longest sums of common networks (3 x 3 x 512).
LONGEST = 4608
# The most additions in a block, and the most blocks that are added up before their sum is added to the next level.
# Adding a tile of products to the result then costs less than a hundredth of computing it. Sums of single elements are
# memory-bound, so that shorter blocks cost nothing.
_PRODUCTS, _ELEMENTS = (512, 512), (64, 32)
_RESULTS = 1 << 14  # the most sums computed at once: more would be evicted between two additions


def bound_chains(sch: Schedule) -> dict[str, int]:
    """Cut the chains of all long sums of the function. Returns for each sum that was cut, by the name of its TensorIR
    block, how many additions are in one chain."""
    found = {}
    for realize in sch.state.index.order:
        if _is_sum(realize.block):
            found[realize.block.name_hint] = _cut(sch, realize)
    return {name: size for name, size in found.items() if size}


def _is_sum(block: Block) -> bool:
    """Whether a block adds up floating-point numbers, one at a time."""
    if block.init is None or len(block.writes) != 1 or not block.writes[0].buffer.dtype.is_float:
        return False
    try:
        found = combination_of(block.replace(body=guarded_step(block)[1]))
    except NotACombination:
        return False
    return isinstance(found.reducer.result[0], Add)


def _cut(sch: Schedule, realize: BlockRealize) -> int:
    """Cut a sum into blocks. Returns how many additions a block has; 0 if the sum is short or cannot be cut."""
    nest = sch.state.index.loops_of(realize)
    loops = [x for x in reduction_loops(realize, nest) if x.kind is not ForKind.VECTORIZED]
    turns = [(LoopRV(x.loop_var), _turns(x)) for x in loops if LANES not in x.annotations]
    if math.prod(n for _, n in turns) <= LONGEST:
        return 0
    own = nest[nest.index(loops[0]) :]
    if math.prod(_turns(x) for x in own if x not in loops) > _RESULTS:
        return 0
    read = {r.buffer for r in realize.block.reads} - {w.buffer for w in realize.block.writes}

    def cut() -> int:
        cuts, size = _levels(sch, turns, *(_PRODUCTS if len(read) > 1 else _ELEMENTS))
        for loop in cuts:
            sch.set_scope(sch.cascade_reduction(loop), 0, "local")
        return size

    made = sch.attempt(cut)
    return 0 if isinstance(made, ScheduleError) else made


def _turns(loop: For) -> float:
    """The iterations of a loop; infinite if the extent is dynamic."""
    size = const_value(loop.extent)
    return math.inf if size is None else int(size)


def _levels(
    sch: Schedule, loops: list[tuple[LoopRV, float]], most: int, blocks: int
) -> tuple[list[LoopRV], int]:
    """Split the loops. Returns those to cascade, from the outside in, and how many additions a block then has: at most
    `most`. At most `blocks` blocks are added up before their sum is added to the next level."""
    cuts: list[LoopRV] = []
    inside, first = 1, 0
    for loop, turns in reversed(loops):
        if inside * turns <= most:
            inside *= int(turns)
            continue
        sizes = [_even(turns, most // inside)]
        left = turns / sizes[0]
        while blocks < left < math.inf:
            sizes.append(_even(math.ceil(left), blocks))
            left = math.ceil(left) / sizes[-1]
        first = first or inside * sizes[0]
        whole = sizes[0] == 1  # each iteration is a block
        sizes = [n for n in sizes if n > 1]
        parts = sch.split(loop, [None, *reversed(sizes)]) if sizes else [loop]
        cuts = [*(parts if whole else parts[:-1]), *cuts]
        inside, most = math.ceil(left) if math.isfinite(left) else 1, blocks
    return cuts, first


def _even(turns: float, most: int) -> int:
    """The iterations of a block: a divisor of all of them above half of `most`, so that no block is partial; `most` if
    there is none."""
    if math.isfinite(turns):
        for size in range(most, most // 2, -1):
            if turns % size == 0:
                return size
    return most
