"""Constants: what depends on them alone is computed once, when the program is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir.buffer import Buffer
from ..ir.errors import BuildError
from ..ir.expr import BufferLoad, IntImm, Var
from ..ir.function import PrimFunc
from ..ir.functor import pre_order
from ..ir.module import IRModule
from ..ir.stmt import BlockRealize, BufferStore, Stmt, seq, stmt_list

__all__ = ["bind_constants", "split_constants"]


def split_constants(func: PrimFunc, names: frozenset[str]) -> tuple[PrimFunc | None, PrimFunc, list[str]]:
    """Cut a function into what depends on constants alone, and the rest.

        main(x, w, y):  p = pack(w); y = f(x, p)     ->     before(w, p): p = pack(w)      main(x, y, p): y = f(x, p)

    The rest takes the results of the first part, and those constants that it reads itself, after its own
    parameters; their names are the list.
    """
    root = func.body
    assert isinstance(root, BlockRealize)
    block = root.block
    known = {func.buffer_map[v] for v in func.params if v in func.buffer_map and _named(func, v) in names}
    given = {b.data for b in func.buffer_map.values()}
    early: list[Stmt] = []
    late: list[Stmt] = []
    made: list[Buffer] = []
    parts = stmt_list(block.body)
    writers: dict[Buffer, int] = {}
    for s in parts:
        for b in _written(s):
            writers[b] = writers.get(b, 0) + 1
    for s in parts:
        reads, writes = _read(s), _written(s)
        ours = writes and all(b in block.alloc_buffers for b in writes)
        if ours and reads <= known | set(made) | set(writes) and not any(_written(t) & writes for t in late):
            early.append(s)
            made += [b for b in writes if b not in made]
        else:
            late.append(s)
    made = [b for b in made if any(b in _read(s) for s in late)]
    still = [v for v in func.params if v in func.buffer_map and func.buffer_map[v] in known]
    used = {b.data for s in late for b in _read(s) | _written(s)}  # a view of a parameter has its memory
    kept = [v for v in still if func.buffer_map[v].data in used]
    hidden = {b: Var(b.name, "handle") for b in made}
    params = [v for v in func.params if v not in still] + kept + [hidden[b] for b in made]
    buffer_map = {v: func.buffer_map[v] for v in func.params if v in func.buffer_map and v in params}
    buffer_map.update({v: b for b, v in hidden.items()})
    rest = func.replace(
        params=tuple(params),
        buffer_map=buffer_map,
        body=_rooted(root, late, [b for b in block.alloc_buffers if b not in made]),
    )
    labels = [_named(func, v) for v in kept] + [b.name for b in made]
    if not made:
        return None, rest, labels
    needed = {b for s in early for b in _read(s) | _written(s)}
    own = [v for v in still if func.buffer_map[v] in needed]
    first_params = [*own, *[hidden[b] for b in made]]
    first_map = {v: func.buffer_map[v] for v in own}
    first_map.update({v: b for b, v in hidden.items()})
    inner = [b for b in block.alloc_buffers if b in needed and b not in made]
    before = func.replace(params=tuple(first_params), buffer_map=first_map, body=_rooted(root, early, inner))
    assert given is not None
    return before.with_attr("global_symbol", "before"), rest, labels


def _named(func: PrimFunc, v: Var) -> str:
    return func.buffer_map[v].name if v in func.buffer_map else v.name


def _rooted(root: BlockRealize, parts: list[Stmt], buffers: list[Buffer]) -> Stmt:
    block = root.block.replace(body=seq(*parts), alloc_buffers=tuple(buffers), reads=(), writes=())
    return root.replace(block=block)


def _read(s: Stmt) -> set[Buffer]:
    return {m.buffer for m in pre_order(s) if isinstance(m, BufferLoad)}


def _written(s: Stmt) -> set[Buffer]:
    return {m.buffer for m in pre_order(s) if isinstance(m, BufferStore)}


def bind_constants(mod: IRModule, constants: Mapping[str, Any], build: Callable[[IRModule], Any]) -> Any:
    """Compile a module of one function whose parameters `constants` are known."""
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
