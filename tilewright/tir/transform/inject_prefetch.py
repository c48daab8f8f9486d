"""Software prefetching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...arith import Analyzer, detect_linear_equation, eval_set
from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, PrimExpr, Range, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, substitute, vars_used
from ...ir.ops import add, call, less, mul, sub
from ...ir.stmt import Evaluate, For, ForKind, IfThenElse, Stmt, seq

KEY = "prefetch_"
PAST = "past_"
_LINE = 64  # bytes of a cache line
_READ, _DATA = 0, 1
_FIRST, L2_CACHE = 3, 2  # locality hints of the prefetch instruction: into L1, into L2


def inject_prefetch(func: PrimFunc) -> PrimFunc:
    """Prefetch the elements of a buffer that a loop will read some iterations ahead.

        for i in range(n):                        for i in range(n):
            # prefetch_A: 2               ->          if i + 2 < n: prefetch(&A[(i + 2) * 8])
            B[i] = A[i * 8]                           B[i] = A[i * 8]

    `prefetch_past_A` continues beyond the last iteration, with the elements that follow in memory. It is for data that
    is needed much later, and prefetches into the L2 cache only.

    Needs: flat loops. Gives: no `prefetch_` annotations.
    """
    return _Prefetch().run(func)


def asked_for(buffer: Buffer, index: PrimExpr, cache: int = L2_CACHE) -> Stmt:
    """A prefetch of the cache line of an element."""
    place = call("handle", "tir.address_of", BufferLoad(buffer, (index,)))
    return Evaluate(call("void", "tir.prefetch", place, _READ, cache, _DATA))


class _Prefetch(Mutator):
    def visit_For(self, n: For) -> Stmt:
        made = n.map_children(self.visit)
        wanted = {k.removeprefix(KEY): int(v) for k, v in n.annotations.items() if k.startswith(KEY)}
        if not wanted:
            return made
        keep = {k: v for k, v in n.annotations.items() if not k.startswith(KEY)}
        asked: list[Stmt] = []
        for name, ahead in wanted.items():
            past = name.startswith(PAST)
            hints = _hints(made, name.removeprefix(PAST), ahead, L2_CACHE if past else _FIRST)
            if hints and past:
                asked += hints
            elif hints:
                later = add(made.loop_var, const(ahead, made.loop_var.dtype))
                asked.append(IfThenElse(less(later, add(made.min, made.extent)), seq(*hints)))
        return made.replace(body=seq(*asked, made.body), annotations=keep)


def _hints(loop: For, name: str, ahead: int, cache: int) -> list[Stmt]:
    """Prefetches of each cache line that the iteration `ahead` reads, for each distinct load of the program.

    Loops that step from line to line become loops of prefetches; the others read a box of adjacent lines.
    """
    inner = {m.loop_var: m for m in pre_order(loop.body) if isinstance(m, For)}
    later = add(loop.loop_var, const(ahead, loop.loop_var.dtype))
    seen: set[str] = set()
    out: list[Stmt] = []
    for m in pre_order(loop.body):
        if not isinstance(m, BufferLoad) or m.buffer.data.name != name or m.dtype.is_vector:
            continue
        far = _from_line_to_line(m, inner)
        near = {v: Range.from_min_extent(f.min, f.extent) for v, f in inner.items() if f not in far}
        box = eval_set(m.indices[0], near)
        if not box.has_lower_bound() or not box.has_upper_bound() or vars_used(box.min_value) & set(near):
            continue
        start = substitute(box.min_value, {loop.loop_var: later})
        key = str(start)
        if key not in seen:
            seen.add(key)
            span = const_value(Analyzer().simplify(sub(box.max_value, box.min_value)))
            out.append(_around(far, _lines(m, start, span, cache)))
    return out


def _from_line_to_line(load: BufferLoad, inner: Mapping[Var, For]) -> list[For]:
    """The loops around a load, outermost first, whose iterations read different cache lines."""
    used = [v for v in inner if v in vars_used(load.indices[0])]
    strides = detect_linear_equation(load.indices[0], used)
    step = max(1, _LINE // load.buffer.dtype.nbytes)
    out = []
    for v, stride in zip(used, strides):
        k, known = const_value(stride), vars_used(inner[v].min) | vars_used(inner[v].extent)
        if k is not None and abs(k) >= step and known.isdisjoint(inner):
            out.append(inner[v])
    return out


def _around(loops: Sequence[For], hint: Stmt) -> Stmt:
    for loop in reversed(loops):
        var = Var(loop.loop_var.name, loop.loop_var.dtype)
        kind = loop.kind if loop.kind is ForKind.UNROLLED else ForKind.SERIAL
        hint = For(var, loop.min, loop.extent, kind, substitute(hint, {loop.loop_var: var}))
    return hint


def _lines(load: BufferLoad, start: PrimExpr, span: int | float | None, cache: int) -> Stmt:
    """Prefetches of the lines from `start` on; of the first only if the span is not known."""
    step = max(1, _LINE // load.buffer.dtype.nbytes)
    count = 1 if span is None else int(span) // step + 1
    if count == 1:
        return asked_for(load.buffer, start, cache)
    var = Var("line", start.dtype)
    body = asked_for(load.buffer, add(start, mul(var, const(step, start.dtype))), cache)
    return For(var, const(0, start.dtype), const(count, start.dtype), ForKind.SERIAL, body)
