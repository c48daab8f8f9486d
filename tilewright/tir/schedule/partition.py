"""Primitives that cut a loop into pieces that follow each other, and join such: loop_partition, merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr, Var, const, convert
from ...ir.functor import Mutator, pre_order, renew_defs_in, substitute, vars_used
from ...ir.ops import add, is_one, is_zero, less_equal, sub
from ...ir.printer_names import free_name
from ...ir.stmt import Block, For, ForKind, SeqStmt, Stmt, seq
from ..analysis.carried import Use, uses_under
from .blocks import enclosing_block, reduction_vars
from .dependence import _disjoint, recheck
from .flow import runs_concurrently
from .loops import _check_factors, _plain, _size
from .primitive import LoopRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule


@primitive
def loop_partition(
    sch: Schedule, loop: LoopRV, factors: Sequence[Any], preserve_unit_iters: bool = True
) -> list[LoopRV]:
    """Partition a loop into consecutive loops.

    for i in range(128):                for i0 in range(2):
        B(i)                                B_i0(i0)
                                ->      for i1 in range(2, 66):             # factors=[2, 64]
                                            B_i1(i1)
                                        for i2 in range(66, 128):
                                            B_i2(i2)

    `factors` are the extents of the parts; the last part takes the remaining iterations. Parts of one iteration are
    loops too; without `preserve_unit_iters` the bindings of blocks name their position instead of their variable.
    """
    n = _plain(sch, loop, "loop_partition")
    _check_copies(sch, n)
    sizes = _sizes(sch, n, factors)
    taken = {r.block.name_hint for r in sch.state.index.order}
    parts: list[Stmt] = []
    made: list[LoopRV] = []
    start = n.min
    ana = sch.state.analyzer_at(n)
    for i, size in enumerate(sizes):
        named = _Rename(f"_{n.loop_var.name}{i}", taken)
        copy = named.visit(renew_defs_in(n.replace(min=start, extent=size)))
        var = Var(f"{n.loop_var.name}{i}", n.loop_var.dtype)
        unit = is_one(size) and not preserve_unit_iters
        body = substitute(copy.body, {copy.loop_var: start if unit else var})
        parts.append(copy.replace(loop_var=var, body=body))
        made.append(LoopRV(var))
        start = ana.simplify(add(start, size))
    step = f"loop_partition({n.loop_var.name}, …)"
    for m in pre_order(n):
        if isinstance(m, For):
            sch.forget(m.loop_var, step)
        elif isinstance(m, Block):
            sch.forget(m.key, step)
    parent = sch.state.index.parents[n]
    if isinstance(parent, SeqStmt):
        flat = [p for s in parent.seq for p in (parts if s is n else [s])]
        sch.state.replace(parent, SeqStmt(tuple(flat)))
    else:
        sch.state.replace(n, seq(*parts))
    # Memory that was one iteration's own is shared by the pieces now.
    recheck(
        sch, [m.loop_var for p in parts for m in pre_order(p) if isinstance(m, For) and runs_concurrently(m)]
    )
    return made


class _Rename(Mutator):
    """Blocks with a suffix to their names."""

    def __init__(self, suffix: str, taken: set[str]) -> None:
        self.suffix, self.taken = suffix, taken

    def visit_Block(self, n: Block) -> Block:
        name = free_name(n.name_hint + self.suffix, self.taken)
        self.taken.add(name)
        made: Block = n.map_children(self.visit)
        return made.replace(name_hint=name)


def _check_copies(sch: Schedule, n: For) -> None:
    for r in sch.state.index.blocks_under(n):
        reducing = reduction_vars(r.block)
        pairs = r.bindings
        carried = any(iv.var in reducing and n.loop_var in vars_used(value) for iv, value in pairs)
        if carried and r.block.init is not None:
            refuse(
                f"loop `{n.loop_var.name}` carries the reduction of block {r.block.name_hint}, "
                "and each piece would start it anew",
                at=n,
                hint="decompose_reduction first",
            )


def _sizes(sch: Schedule, n: For, factors: Sequence[Any]) -> list[PrimExpr]:
    """The number of iterations of each piece, what is left over the last."""
    given = [None if f is None else convert(f.var if isinstance(f, LoopRV) else f) for f in factors]
    _check_factors(n, given)
    ana = sch.state.analyzer_at(n)
    kind = n.loop_var.dtype
    total: PrimExpr = const(0, kind)
    for f in given:
        if f is not None:
            total = add(total, _size(f, None, kind))
    if not ana.can_prove(less_equal(total, n.extent)):
        refuse(
            f"the pieces have {total} iterations and loop `{n.loop_var.name}` has {n.extent}",
            at=n,
            hint="choose smaller pieces",
        )
    rest = ana.simplify(sub(n.extent, total))
    if None in given and is_zero(rest):
        refuse(
            f"nothing of loop `{n.loop_var.name}` is left for the piece that is None",
            at=n,
            hint="omit the None, or choose smaller pieces",
        )
    sizes = [_size(f, rest, kind) for f in given]
    return sizes if None in given or is_zero(rest) else [*sizes, rest]


# ---------------------------------------------------------------------------- merge
@primitive
def merge(sch: Schedule, *loops: LoopRV) -> LoopRV:
    """Merge consecutive loops, and the loops around them, into one nest that runs their bodies in turn.

    for i, j in grid(n, m):                   for i_m, j_m in grid(n, m):
        B[i, j] = A[i, j] * 2         ->          B[i_m, j_m] = A[i_m, j_m] * 2
    for i, j in grid(n, m):                       C[i_m, j_m] = B[i_m, j_m] + 1
        C[i, j] = B[i, j] + 1
    """
    if len(loops) < 2:
        refuse("it takes at least two loops to merge")
    chosen = [_plain(sch, loop, "merge") for loop in loops]
    if len(set(chosen)) != len(chosen):
        refuse(f"loop `{chosen[0].loop_var.name}` is named twice", at=chosen[0])
    around, chains = _chains(sch, chosen)
    _check_chains(chains)
    variables = [Var(f"{x.loop_var.name}_m", x.loop_var.dtype) for x in chains[0]]
    bodies = [
        substitute(c[-1].body, dict(zip((x.loop_var for x in c), variables, strict=True))) for c in chains
    ]
    made: Stmt = seq(*bodies)
    for var, x in reversed(list(zip(variables, chains[0], strict=True))):
        made = For(var, x.min, x.extent, ForKind.SERIAL, made, span=x.span)
    assert isinstance(made, For)
    _check_merged(sch, around, made, len(chains[0]), bodies)
    first = next(i for i, s in enumerate(around.seq) if s is chains[0][0])
    kept = [
        made if i == first else s for i, s in enumerate(around.seq) if i == first or s not in _tops(chains)
    ]
    sch.state.replace(around, seq(*kept))
    for c in chains:
        for x in c:
            sch.forget(x.loop_var, f"merge({', '.join(x.loop_var.name for x in chosen)})")
    return LoopRV(variables[-1])


def _tops(chains: list[list[For]]) -> set[Stmt]:
    return {c[0] for c in chains}


def _chains(sch: Schedule, chosen: list[For]) -> tuple[SeqStmt, list[list[For]]]:
    """The sequence that holds all the loops, and for each the loops from there down to it."""
    index = sch.state.index
    if len({enclosing_block(sch, x) for x in chosen}) > 1:
        refuse("the loops are not in the same block", at=chosen[1], hint="merge loops of one block")
    for x in chosen:
        inside = next((y for y in chosen if x in index.ancestors(y)), None)
        if inside is not None:
            refuse(
                f"loop `{inside.loop_var.name}` is inside loop `{x.loop_var.name}`",
                at=inside,
                hint="fuse makes one loop of a nest",
            )
    shared = [a for a in index.ancestors(chosen[0]) if all(a in index.ancestors(x) for x in chosen[1:])]
    around = shared[0] if shared else None
    if not isinstance(around, SeqStmt):
        refuse(
            "the loops do not follow each other",
            at=chosen[1],
            hint="merge consecutive loops",
        )
    chains = []
    for x in chosen:
        chain = [x]
        while index.parents[chain[0]] is not around:
            up = index.parents[chain[0]]
            if not isinstance(up, For):
                refuse(f"there is more than loops around loop `{x.loop_var.name}`", at=x)
            chain.insert(0, up)
        chains.append(chain)
    places = [next(i for i, s in enumerate(around.seq) if s is c[0]) for c in chains]
    if places != list(range(places[0], places[0] + len(places))):
        refuse(
            "the loops must follow each other directly, in the order given",
            at=chosen[1],
            hint="name them as they stand, and move what is between away with compute_at or reverse_compute_at",
        )
    return around, chains


def _check_chains(chains: list[list[For]]) -> None:
    ana = Analyzer()
    first = chains[0]
    for c in chains[1:]:
        if len(c) != len(first):
            refuse(
                f"loop `{c[-1].loop_var.name}` is {len(c)} loops deep and "
                f"`{first[-1].loop_var.name}` {len(first)}",
                at=c[-1],
                hint="choose loops of the same depth, or make it the same with add_unit_loop",
            )
        for x, y in zip(first, c, strict=True):
            for z in (x, y):
                if not is_zero(z.min):
                    refuse(f"loop `{z.loop_var.name}` does not start at 0", at=z)
                if z.kind is not ForKind.SERIAL or z.annotations:
                    refuse(
                        f"loop `{z.loop_var.name}` is marked or annotated, which would be lost",
                        at=z,
                        hint="merge first, then mark or annotate",
                    )
            if not ana.can_prove_equal(x.extent, y.extent):
                refuse(
                    f"loop `{x.loop_var.name}` has {x.extent} iterations and `{y.loop_var.name}` {y.extent}",
                    at=y,
                    hint="merge loops with the same number of iterations; loop_partition cuts one into such pieces",
                )


def _check_merged(sch: Schedule, around: Stmt, made: For, depth: int, bodies: list[Stmt]) -> None:
    """Refuse if a body uses results of another body from a different iteration."""
    ana = sch.state.analyzer_at(around)
    nest = [made]
    while len(nest) < depth:
        inner = nest[-1].body
        assert isinstance(inner, For)
        nest.append(inner)
    owner = _owners(bodies)
    for x in nest:
        for buffer, uses in uses_under(x).items():
            if uses is None:
                refuse(
                    f"{buffer.name} is used outside of blocks, so it is not known what depends on what",
                    at=around,
                    hint="put the statement into a block",
                )
            if _crossing(uses, owner) and not _disjoint(sch, x, uses, ana):
                names = list(dict.fromkeys(u.block.name_hint for u in uses))
                refuse(
                    f"an iteration may use elements of {buffer.name} that a later one of another loop makes "
                    f"(blocks {' and '.join(names)})",
                    at=around,
                    hint="compute_at or reverse_compute_at computes what an iteration needs inside it",
                )
        ana.bind_loop(x.loop_var, x.min, x.extent)


def _owners(bodies: list[Stmt]) -> dict[object, int]:
    """Which of the bodies each block comes from."""
    return {n.key: i for i, b in enumerate(bodies) for n in pre_order(b) if isinstance(n, Block)}


def _crossing(uses: list[Use], owner: dict[object, int]) -> bool:
    """Whether one body writes what another one uses."""
    writers = {owner[u.block.key] for u in uses if u.write}
    return any(owner[u.block.key] != w for w in writers for u in uses)
