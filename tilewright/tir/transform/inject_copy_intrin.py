"""Copies as instructions: a marked loop nest that copies becomes a DMA transfer with strides and padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, NoReturn

from ...arith import Analyzer, detect_clip_bound, detect_linear_equation
from ...ir.buffer import Buffer, decl_buffer
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, Cast, PrimExpr, Select, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, vars_used
from ...ir.op import Op
from ...ir.ops import add, conjuncts, is_zero, logical_and, max_of, min_of, mul, sub
from ...ir.stmt import AttrStmt, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, seq

_IF, _LIKELY = Op.get("tir.if_then_else"), Op.get("tir.likely")
Bounds = tuple[PrimExpr | None, PrimExpr | None]
CopyIntrin = Callable[[Buffer, Buffer, list[PrimExpr], list[PrimExpr], Any], Stmt]


def inject_copy_intrin(func: PrimFunc, pragma_key: str, fintrin: CopyIntrin) -> PrimFunc:
    """Replace each nest marked by the pragma `pragma_key` with the statement that `fintrin` makes for it.

        # pragma_dma_copy
        for i, j in T.grid(9, 16):                                    # a 2-D transfer: 8 rows of 16, one row of
            dst[i*16 + j] = T.if_then_else(1 <= i,         ->         # zeros before them
                                           src[i*64 + j - 64], 0)     fintrin(src, dst, [1, 0], [0, 0], 0)

    `src` and `dst` are buffers with the shape, strides and offset of the copied region; the padding of each dimension
    is between them. A loop around the mark that holds nothing else belongs to the nest. A condition around the store
    makes the region smaller. A condition that does not depend on the loops of the nest stays around the statement;
    where it says that there is only padding, a statement pads all of the region.

    Needs: flat buffers. Gives: no pragma of that key.
    """
    return replace_copies(func, pragma_key, lambda copy: fintrin(*copy.regions()))


def replace_copies(func: PrimFunc, pragma_key: str, make: Callable[[Copy], Stmt]) -> PrimFunc:
    """Replace each nest marked by a pragma with the statement that `make` gives for the copy."""
    return _Inject(pragma_key if pragma_key.startswith("pragma_") else f"pragma_{pragma_key}", make).run(func)


class Dimension(NamedTuple):
    """A loop of a copy: elements from `first` up to `first + extent`, of which `before` and `after` are padding."""

    var: Var
    first: PrimExpr
    extent: PrimExpr
    before: PrimExpr
    after: PrimExpr
    source: PrimExpr  # strides
    target: PrimExpr


class Copy(NamedTuple):
    """A copy: `store` with an element of `load`, over dimensions; padding is the number `pad`.

    `source` and `target` are the flat indices of the first element that is read and of the first that is written.
    """

    store: BufferStore
    load: BufferLoad
    dims: tuple[Dimension, ...]
    source: PrimExpr
    target: PrimExpr
    pad: Any

    def blank(self) -> Copy:
        """The copy with padding in place of all its elements."""
        one, none = const(1), const(0)
        first, *rest = self.dims or [Dimension(Var("one"), none, one, none, none, none, none)]
        whole = first._replace(before=first.extent, after=const(0, first.extent.dtype))
        return self._replace(dims=(whole, *rest), source=const(0, self.source.dtype))

    @property
    def is_blank(self) -> bool:
        """Whether all its elements are padding."""
        return any(structural_equal(d.before, d.extent) for d in self.dims)

    def regions(self) -> tuple[Buffer, Buffer, list[PrimExpr], list[PrimExpr], Any]:
        """The two regions as buffers with strides, and the padding between them."""
        dims, simple = self.dims, Analyzer().simplify
        sizes = [simple(sub(sub(d.extent, d.before), d.after)) for d in dims]
        source = _region(self.load.buffer, sizes, [d.source for d in dims], self.source)
        target = _region(self.store.buffer, [d.extent for d in dims], [d.target for d in dims], self.target)
        return source, target, [d.before for d in dims], [d.after for d in dims], self.pad


def _region(b: Buffer, shape: list[PrimExpr], strides: list[PrimExpr], start: PrimExpr) -> Buffer:
    return decl_buffer(
        shape, str(b.dtype), b.name, data=b.data, strides=strides, elem_offset=start, scope=b.scope_name
    )


class _Inject(Mutator):
    def __init__(self, key: str, make: Callable[[Copy], Stmt]) -> None:
        self.key, self.make, self.ana = key, make, Analyzer()

    def visit_For(self, n: For) -> Stmt:
        inside, loops = n, [n]
        while isinstance(inside.body, For):
            inside = inside.body
            loops.append(inside)
        mark = inside.body
        if isinstance(mark, AttrStmt) and mark.attr_key == self.key:
            taken = self._around(loops, mark.body)
            if taken < len(loops):
                nest = mark.body
                for x in reversed(loops[taken:]):
                    nest = x.replace(body=nest)
                made = self._each(nest)
                for x in reversed(loops[:taken]):
                    made = x.replace(body=made)
                return made
        with self.ana.constraint_scope(True):
            self.ana.bind_loop(n.loop_var, n.min, n.extent)
            return self.visit_children(n)  # type: ignore[no-any-return]

    def _around(self, loops: list[For], nest: Stmt) -> int:
        """The number of outer loops that do not belong to the copy.

        Its accesses are linear in those that do, which write different elements, and its conditions are bounds of
        single ones.
        """
        inner, store, conditions = taken_apart(nest)
        if store is None:
            return len(loops)
        accesses = [store.indices[0], *(x.indices[0] for x in _loads(store.value))]
        conditions = conditions + _padded(store.value)[1]
        for taken in range(len(loops)):
            chosen = loops[taken:]
            own = [x.loop_var for x in (*chosen, *inner)]
            plain = all(x.kind is ForKind.SERIAL and not x.annotations for x in chosen)
            found = [detect_linear_equation(e, own) for e in accesses]
            if (
                plain
                and all(c and all(isinstance(const_value(k), int) for k in c[:-1]) for c in found)
                and not any(is_zero(k) for k in found[0][: len(chosen)])
            ):
                bounds = bounds_of(self.ana, apart(conditions, own)[1], own)
                if not isinstance(bounds, PrimExpr):
                    return taken
        return len(loops)

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key != self.key:
            return self.visit_children(n)  # type: ignore[no-any-return]
        return self._each(n.body)

    def _each(self, s: Stmt) -> Stmt:
        """The statement for each copy under a mark."""
        if isinstance(s, SeqStmt):
            return seq(*[self._each(x) for x in s.seq])
        return self._copy(s)

    def _copy(self, nest: Stmt) -> Stmt:
        loops, store, condition = taken_apart(nest)
        if store is None:
            self._refuse(nest, "it is not a nest of loops around one store", "mark a stage that only copies")
        value, bounds, pad = _padded(store.value)
        if not isinstance(value, BufferLoad):
            self._refuse(
                nest,
                f"it stores `{store.value}`, not an element of a buffer",
                "mark a stage that only copies",
            )
        if pad is not None and const_value(pad) is None:
            self._refuse(nest, f"its padding is `{pad}`, not a constant", "pad with a number")
        variables = [x.loop_var for x in loops]
        around, condition = apart(condition, variables)
        present, bounds = apart(bounds, variables)
        to, source = self._strides(nest, store, variables), self._strides(nest, value, variables)
        clip, inner = (self._bounds(nest, parts, variables) for parts in (condition, bounds))
        dims = []
        for n, x in enumerate(loops):
            low, high = clip[n]
            first = x.min if low is None else self._simple(max_of(x.min, low))
            stop = add(x.min, x.extent) if high is None else min_of(add(x.min, x.extent), add(high, 1))
            extent = self._simple(sub(stop, first))
            below, above = inner[n]
            zero = const(0, extent.dtype)
            before = zero if below is None else self._within(sub(below, first), extent)
            after = zero if above is None else self._within(sub(add(first, extent), add(above, 1)), extent)
            dims.append(Dimension(x.loop_var, first, extent, before, after, source[n], to[n]))
        first, start = source[-1], to[-1]
        for d in dims:
            first = add(first, mul(add(d.first, d.before), d.source))
            start = add(start, mul(d.first, d.target))
        dims = [d._replace(source=d.target) if self._is_single(d) else d for d in dims]
        copy = Copy(store, value, tuple(dims), self._simple(first), self._simple(start), pad)
        made = self.make(copy)
        if present is not None:
            made = IfThenElse(present, made, self.make(copy.blank()))
        return made if around is None else IfThenElse(around, made)

    def _is_single(self, d: Dimension) -> bool:
        """Whether a dimension has one element and padding: its index in the source is constant, any stride is right."""
        padded = not (is_zero(d.before) and is_zero(d.after))
        if not padded or not is_zero(d.source):
            return False
        return bool(self.ana.can_prove(sub(sub(d.extent, d.before), d.after) <= 1))

    def _simple(self, e: PrimExpr) -> PrimExpr:
        return self.ana.simplify(e)  # type: ignore[no-any-return]

    def _within(self, e: PrimExpr, extent: PrimExpr) -> PrimExpr:
        """A number of padded elements, between 0 and all."""
        return self._simple(max_of(min_of(e, extent), const(0, extent.dtype)))

    def _strides(self, nest: Stmt, access: Any, variables: list[Var]) -> list[PrimExpr]:
        found = detect_linear_equation(access.indices[0], variables) if len(access.indices) == 1 else []
        if not found or any(not isinstance(const_value(k), int) for k in found[:-1]):
            self._refuse(
                nest,
                f"`{access.buffer.name}[{', '.join(map(str, access.indices))}]` is not at constant strides along its "
                "loops",
                "a transfer takes rows and columns at strides; copy such elements by another stage",
            )
        return found

    def _bounds(self, nest: Stmt, parts: list[PrimExpr], variables: list[Var]) -> list[Bounds]:
        found = bounds_of(self.ana, parts, variables)
        if isinstance(found, PrimExpr):
            self._refuse(
                nest,
                f"its condition `{found}` is not a bound of one of its loops",
                "split so that tiles are boxes",
            )
        return found

    def _refuse(self, nest: Stmt, why: str, hint: str) -> NoReturn:
        name = self.key.removeprefix("pragma_")
        text = "\n".join(
            f"  | {line}" for line in nest.script().splitlines() if not line.startswith("#") and line
        )
        raise LoweringError(
            f"{name}: the marked nest is not a copy that a transfer can make: {why}\n\n{text}\n\n  hint: {hint}"
        )


def apart(parts: list[PrimExpr], variables: list[Var]) -> tuple[PrimExpr | None, list[PrimExpr]]:
    """The conditions that hold for a whole nest or not at all, as one, and those on its loops."""
    own, plain = set(variables), _plain(parts)
    whole = [p for p in plain if not own & vars_used(p)]
    around = reduce(logical_and, whole) if whole else None
    return around, [p for p in plain if own & vars_used(p)]


def _plain(parts: list[PrimExpr]) -> list[PrimExpr]:
    """The conditions of which all must hold, one by one."""
    bare = [p.args[0] if isinstance(p, Call) and p.op is _LIKELY else p for p in parts]
    return [q for p in bare for q in conjuncts(p)]


def bounds_of(ana: Analyzer, parts: list[PrimExpr], variables: list[Var]) -> list[Bounds] | PrimExpr:
    """The least and the greatest value that conditions allow each variable, or a condition that is not such a bound."""
    found: list[PrimExpr | None] = [None] * (2 * len(variables))
    for c in _plain(parts):
        if ana.can_prove(c):
            continue
        one = detect_clip_bound(c, variables)
        if not one:
            return c
        for i, b in enumerate(one):
            if b is not None:
                held = found[i]
                pick = max_of if i % 2 == 0 else min_of
                found[i] = b if held is None else pick(held, b)
    return list(zip(found[::2], found[1::2], strict=True))


def taken_apart(nest: Stmt) -> tuple[list[For], BufferStore | None, list[PrimExpr]]:
    """The loops of a nest, its only store, and the conditions around the store."""
    loops: list[For] = []
    conditions: list[PrimExpr] = []
    at = nest
    while not isinstance(at, BufferStore):
        if isinstance(at, For) and at.kind in (ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED):
            loops.append(at)
            at = at.body
        elif isinstance(at, IfThenElse) and at.else_case is None:
            conditions += conjuncts(at.condition)
            at = at.then_case
        else:
            return loops, None, conditions
    return loops, at, conditions


def _padded(value: PrimExpr) -> tuple[PrimExpr, list[PrimExpr], Any]:
    """The value that is copied, the conditions under which it is, and the padding in its place."""
    while isinstance(value, Cast):
        value = value.value
    bounds: list[PrimExpr] = []
    pad: Any = None
    if isinstance(value, Select):
        bounds, pad = conjuncts(value.condition), value.false_value
        value = value.true_value
    elif isinstance(value, Call) and value.op is _IF:
        bounds, pad = conjuncts(value.args[0]), value.args[2]
        value = value.args[1]
    while isinstance(value, Cast):
        value = value.value
    return value, bounds, pad


def _loads(e: Any) -> list[BufferLoad]:
    return [x for x in pre_order(e) if isinstance(x, BufferLoad)]
