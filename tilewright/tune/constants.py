"""Constant folding of functions: what depends on constants alone is computed once, at compile time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir.buffer import Buffer
from ..ir.errors import BuildError
from ..ir.expr import BufferLoad, IntImm, Var
from ..ir.function import PrimFunc
from ..ir.functor import pre_order, statements, undefined_vars
from ..ir.module import IRModule
from ..ir.stmt import BlockRealize, BufferStore, Stmt, seq, stmt_list

__all__ = ["bind_constants", "split_constants"]


def split_constants(func: PrimFunc, names: frozenset[str]) -> tuple[PrimFunc | None, PrimFunc, list[str]]:
    """Split a function into the part that depends on constants alone, and the rest.

        main(x, w, y):  p = pack(w); y = f(x, p)     ->     before(w, p): p = pack(w)      main(x, y, p): y = f(x, p)

    The rest takes the results of the first part, and the constants that it reads itself, after its own parameters; the
    list has their names.
    """
    root = func.body
    assert isinstance(root, BlockRealize)
    mine = root.block.alloc_buffers
    still = [v for v in func.params if v in func.buffer_map and _named(func, v) in names]
    known = {func.buffer_map[v] for v in still}
    early, late = _parted(stmt_list(root.block.body), known, set(mine))
    made = list(dict.fromkeys(b for b in mine for s in early if b in _written(s) and _is_read(b, late)))
    hidden = {b: Var(b.name, "handle") for b in made}
    used = {b.data for s in late for b in _read(s) | _written(s)}  # views share the memory of a parameter
    kept = [v for v in still if func.buffer_map[v].data in used]
    mapped = {**func.buffer_map, **{v: b for b, v in hidden.items()}}

    def part(params: list[Var], parts: list[Stmt], buffers: list[Buffer]) -> PrimFunc:
        own = {v: mapped[v] for v in params if v in mapped}
        return func.replace(params=tuple(params), buffer_map=own, body=_rooted(root, parts, buffers))

    packed = list(hidden.values())
    rest = part(
        [*(v for v in func.params if v not in still), *kept, *packed],
        late,
        [b for b in mine if b not in made],
    )
    labels = [_named(func, v) for v in kept] + [b.name for b in made]
    if not made:
        return None, rest, labels
    needed = {b for s in early for b in _read(s) | _written(s)}
    first = [v for v in still if func.buffer_map[v] in needed]
    before = part([*first, *packed], early, [b for b in mine if b in needed and b not in made])
    return before.with_attr("global_symbol", "before"), rest, labels


def _parted(parts: list[Stmt], known: set[Buffer], own: set[Buffer]) -> tuple[list[Stmt], list[Stmt]]:
    """The statements that only compute buffers of the function (`own`) from known ones, and the others.

    A buffer that another statement writes as well is not known, whichever comes first; nor is one that a dynamic size
    shapes or limits, which only a call knows.
    """
    early: list[Stmt] = []
    late = list(parts)
    fixed = {s for s in parts if not _sizes(s)}
    reads, writes = {s: _read(s) for s in parts}, {s: _written(s) for s in parts}
    found = True
    while found:
        found = False
        sure = known | {b for s in early for b in writes[s]}
        for s in late:
            together = [t for t in late if writes[t] & writes[s]]
            wrote = {b for t in together for b in writes[t]}
            if wrote <= own and wrote and all(t in fixed and reads[t] <= sure | wrote for t in together):
                early = [t for t in parts if t in early or t in together]
                late = [t for t in late if t not in together]
                found = True
                break
    return early, late


def _sizes(s: Stmt) -> set[Var]:
    """The dynamic sizes that a statement depends on."""
    buffers = _read(s) | _written(s)
    shapes = [d for b in buffers for d in (*b.shape, *b.strides) if not isinstance(d, int)]
    found = [v for e in (s, *shapes) for v in undefined_vars(e)]
    return set(found) - {b.data for b in buffers}


def _is_read(b: Buffer, parts: list[Stmt]) -> bool:
    """Whether some statement reads the memory of a buffer, even as a view of another shape."""
    return any(r.data is b.data for s in parts for r in _read(s))


def _named(func: PrimFunc, v: Var) -> str:
    return func.buffer_map[v].name if v in func.buffer_map else v.name


def _rooted(root: BlockRealize, parts: list[Stmt], buffers: list[Buffer]) -> Stmt:
    block = root.block.replace(body=seq(*parts), alloc_buffers=tuple(buffers), reads=(), writes=())
    return root.replace(block=block)


def _read(s: Stmt) -> set[Buffer]:
    return {m.buffer for m in pre_order(s) if isinstance(m, BufferLoad)}


def _written(s: Stmt) -> set[Buffer]:
    return {m.buffer for m in statements(s) if isinstance(m, BufferStore)}


def bind_constants(mod: IRModule, constants: Mapping[str, Any], build: Callable[[IRModule], Any]) -> Any:
    """Compile a module of one function, with the values of the parameters in `constants` known."""
    functions = [(gv, f) for gv, f in mod.functions.items() if isinstance(f, PrimFunc)]
    if len(functions) != 1:
        raise BuildError(f"constants are bound in modules of one function; this one has {len(functions)}")
    ((gv, func),) = functions
    from ..runtime import ndarray as nd
    from ..runtime.bound import BoundModule

    before, rest, labels = split_constants(func, frozenset(constants))
    arrays = {name: nd.array(value) for name, value in constants.items()}
    if before is not None:
        outs = [before.buffer_map[v] for v in before.params]
        room = [
            arrays[b.name] if b.name in arrays else nd.empty([_size(d) for d in b.shape], str(b.dtype))
            for b in outs
        ]
        build(IRModule({"before": before}))(*room)
        arrays.update({b.name: a for b, a in zip(outs, room, strict=True)})
    made = build(IRModule({gv.name_hint: rest}))
    return BoundModule(made, gv.name_hint, [arrays[name] for name in labels])


def _size(dim: Any) -> int:
    if not isinstance(dim, IntImm):
        raise BuildError(f"a packed constant has the size `{dim}`, which is not known when it is compiled")
    return int(dim.value)
