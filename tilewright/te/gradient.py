"""Gradients of tensor expressions, as tensor expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..arith import Analyzer, detect_iter_map, detect_linear_equation, inverse_affine_iter_map
from ..ir import ops
from ..ir.deep import deeply
from ..ir.equal import structural_equal
from ..ir.expr import Add, PrimExpr, ProducerLoad, Range, Reduce, Var, const, const_value
from ..ir.functor import substitute, uses_var, vars_used
from .broadcast import same_size
from .derivative import Term, continuous, partials, total
from .errors import refuse, shape_text, shown
from .graph import post_order
from .operation import compute, reduce_axis
from .reducer import comm_reducer
from .reducer import sum as sum_over
from .tensor import ComputeOp, Operation, Tensor

_MANY = 1 << 40  # stands for an extent that is not known


@deeply
def gradient(output: Tensor, inputs: Tensor | Iterable[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """The gradients of `output` by each of `inputs`, in reverse mode.

        C[i] = sum(A[i, k] * B[k])      ->      dA[i, k] = head[i] * B[k],   dB[k] = sum(head[i] * A[i, k])

    `head` is the adjoint of `output`: its last dimensions are those of `output`, and a gradient has the dimensions
    in front of them and then its input's. Without it a gradient is the whole Jacobian, of shape
    `output.shape + input.shape`. An input that `output` does not depend on has the gradient 0.
    """
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for what, t in (("the output", output), *((f"inputs[{i}]", t) for i, t in enumerate(wanted))):
        _check_tensor(what, t)
    head = _identity(output) if head is None else _checked_head(head, output)
    front = head.shape[: head.ndim - output.ndim]
    order = post_order([output.op])
    moving = _depending(order, wanted)
    parts: dict[Tensor, list[Tensor]] = {output: [head]}
    for op in reversed(order):
        for t in op.outputs:
            if t not in parts or op not in moving:
                continue
            parts[t] = [_added(parts[t])]
            for source, part in _Pullback(op, t, parts[t][0]).parts(moving, wanted):
                parts.setdefault(source, []).append(part)
    return [_added(parts[t]) if t in parts else _zeros((*front, *t.shape), t) for t in wanted]


def _depending(order: list[Operation], wanted: list[Tensor]) -> set[Operation]:
    """The operations that read one of `wanted`, or read what depends on one."""
    out: set[Operation] = set()
    for op in order:
        if any(t in wanted or t.op in out for t in op.input_tensors):
            out.add(op)
    return out


class _Pullback:
    """The adjoints of what an operation reads, from the adjoint `head` of one of its outputs."""

    def __init__(self, op: Operation, output: Tensor, head: Tensor) -> None:
        if not isinstance(op, ComputeOp):
            raise refuse(
                f"{op.what} is not differentiated",
                "only te.compute has a derivative; take the gradient by the result of this operation",
                what="te.gradient",
                span=op.span,
            )
        if op.inner_axis:
            raise refuse(
                f"the range of its reduction axis `{op.inner_axis[0].var.name}` depends on the point",
                "let the axis run over the greatest range and say which points count with where=",
                what=op.what,
                span=op.span,
            )
        self.op, self.output, self.head = op, output, head
        self.front = tuple(Var(f"h{d}", s.dtype) for d, s in enumerate(head.shape[: head.ndim - output.ndim]))
        self.axes: dict[Var, Range] = {iv.var: iv.dom for iv in (*op.axis, *op.reduce_axis)}

    def parts(self, moving: set[Operation], wanted: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Tensors that are read, each with a part of its adjoint."""
        accesses: list[tuple[ProducerLoad, list[Term]]] = []

        def is_leaf(n: PrimExpr) -> bool:
            return isinstance(n, ProducerLoad) and (n.producer in wanted or n.producer.op in moving)

        for value, seed in self._values():
            for load, terms in partials(value, seed, is_leaf):
                assert isinstance(load, ProducerLoad)
                for other, found in accesses:
                    if other.producer == load.producer and _same_point(other, load):
                        found += terms
                        break
                else:
                    accesses.append((load, list(terms)))
        return [(load.producer, self._part(load, terms)) for load, terms in accesses]

    def _values(self) -> list[tuple[PrimExpr, PrimExpr]]:
        """Expressions over all axes whose derivatives are summed, each with the adjoint that it starts from."""
        op = self.op
        assert isinstance(op, ComputeOp)
        body = op.body[self.output.value_index]
        seed = self.head(*self.front, *(iv.var for iv in op.axis))
        if not isinstance(body, Reduce):
            return [(body, seed)]
        if any(const_value(e) is None for e in body.init) or (body.init and not _is_sum(body)):
            raise refuse(
                "a reduction with init= is differentiated only if it is a sum that starts from a constant",
                what=op.what,
                span=op.span,
            )
        if _is_sum(body):
            weights: list[PrimExpr | None] = [None]
        else:
            at = [iv.var for iv in op.axis] + [iv.var - iv.dom.min for iv in body.axis]
            weights = [None if w is None else w(*at) for w in _weights(op, body)]
        out = []
        for source, w in zip(body.source, weights, strict=True):
            if continuous(source.dtype):
                value = source
                if const_value(body.condition) is None:
                    value = ops.if_then_else(body.condition, source, const(0, source.dtype))
                out.append((value, seed if w is None else seed * w))
        return out

    def _part(self, load: ProducerLoad, terms: list[Term]) -> Tensor:
        """The adjoint of `load.producer` by one access to it: a sum over the points that read an element."""
        source = load.producer
        point = [Var(f"t{d}", s.dtype) for d, s in enumerate(source.shape)]
        table, conditions, rest = _points(load.indices, point, self.axes)
        over = {v: reduce_axis(dom, v.name) for v, dom in rest.items()}
        analyzer = Analyzer()
        analyzer.bind_ranges({t: Range(s) for t, s in zip(point, source.shape, strict=True)} | rest)
        table = {v: analyzer.simplify(e) for v, e in table.items()}
        solved = [
            (tuple(analyzer.simplify(substitute(c, table)) for c in where), substitute(value, table))
            for where, value in terms
        ]
        here = ops.conjunction(analyzer.simplify(c) for c in conditions)
        value = ops.if_then_else(here, total(solved), const(0, source.dtype))

        def element(*at: Var) -> Any:
            names: dict[Var, PrimExpr] = dict(zip((*self.front, *point), at, strict=True))
            names.update({v: iv.var for v, iv in over.items()})
            made = substitute(value, names)
            return sum_over(made, axis=list(over.values())) if over else made

        shape = (*self.head.shape[: len(self.front)], *source.shape)
        return compute(shape, element, name=f"{self.op.name}_{source.op.name}_grad")  # type: ignore[no-any-return]


def _points(
    indices: Sequence[PrimExpr], point: list[Var], axes: Mapping[Var, Range]
) -> tuple[dict[Var, PrimExpr], list[PrimExpr], dict[Var, Range]]:
    """The points over `axes` at which `indices` are `point`: solved axes, conditions, and the axes that are free.

    [i * 2 + k] == [t]      ->      i = (t - k) // 2,   where (t - k) % 2 == 0 and 0 <= i < n,   for all k
    """
    rest = dict(axes)
    table: dict[Var, PrimExpr] = {}
    conditions: list[PrimExpr] = []
    equations = list(zip(indices, point, strict=True))

    def give(values: Mapping[Var, PrimExpr]) -> None:
        made = {v: ops.cast(v.dtype, e) for v, e in values.items()}
        conditions[:] = [substitute(c, made) for c in conditions]
        conditions.extend(ops.in_range(e, rest.pop(v)) for v, e in made.items())
        equations[:] = [(substitute(e, made), t) for e, t in equations]
        table.update({v: substitute(e, made) for v, e in table.items()} | made)

    while (found := _linear(equations, rest)) is not None:
        n, v, factor, base = found
        distance = equations.pop(n)[1] - base
        if abs(factor) != 1:
            conditions.append(ops.equal(ops.floormod(distance, abs(factor)), 0))
        give({v: ops.floordiv(distance if factor > 0 else -distance, abs(factor))})
    give(_inverse(equations, rest))
    return table, [*conditions, *(ops.equal(e, t) for e, t in equations)], rest


def _linear(
    equations: list[tuple[PrimExpr, Var]], rest: Mapping[Var, Range]
) -> tuple[int, Var, int, PrimExpr] | None:
    """The equation to solve next, its axis, the axis' factor and what is added to it.

    An equation with one unknown is better than one with two, since nothing is left to sum over. Of two unknowns the
    longer axis is removed, and of equals one whose factor of 1 leaves no remainder to test.
    """
    best: tuple[tuple[int, int, bool], tuple[int, Var, int, PrimExpr]] | None = None
    for n, (e, _) in enumerate(equations):
        unknown = [v for v in vars_used(e) if v in rest]
        for v in sorted(unknown, key=list(rest).index):
            made = detect_linear_equation(e, [v])
            factor = const_value(made[0]) if made else None
            if not factor or uses_var(made[1], v):
                continue
            extent = const_value(rest[v].extent)
            rank = (len(unknown), -int(_MANY if extent is None else extent), abs(factor) != 1)
            if best is None or rank < best[0]:
                best = rank, (n, v, int(factor), made[1])
    return None if best is None else best[1]


def _inverse(equations: list[tuple[PrimExpr, Var]], rest: Mapping[Var, Range]) -> dict[Var, PrimExpr]:
    """The axes of equations such as `[i // 4, i % 4] == [s, t]`, which are one to one; nothing if they are not."""
    used = {v for e, _ in equations for v in vars_used(e)}
    doms = {v: dom for v, dom in rest.items() if v in used}
    if not doms or any(const_value(d.min) != 0 for d in doms.values()):
        return {}
    mapped = detect_iter_map([e for e, _ in equations], doms, require_bijective=True)
    if not mapped.indices:
        return {}
    found = inverse_affine_iter_map(mapped.indices, [t for _, t in equations])
    return found if set(found) == set(doms) else {}


def _is_sum(r: Reduce) -> bool:
    made = r.combiner.result[0]
    both = (*r.combiner.lhs, *r.combiner.rhs)
    return (
        len(r.source) == 1 and isinstance(made, Add) and made.a is not made.b and {made.a, made.b} == {*both}
    )


def _weights(op: Operation, r: Reduce) -> list[Tensor | None]:
    """The derivative of a reduction by each of its values, as a tensor over the axes of `op` and of the reduction.

    It is the same reduction over pairs of a derivative and a value, in which one derivative is 1:

        d[i, k] = reduce((l == k, source[i, l]) over l)
    """
    spatial = [iv.var for iv in op.axis]
    inner = [iv.var for iv in r.axis]
    moving = [m for m, s in enumerate(r.source) if continuous(s.dtype)]
    if r.value_index not in moving:
        return [None] * len(r.source)
    dual = comm_reducer(
        _dual(r, moving), lambda *kinds: (*_zeros_of(r, moving), *r.combiner.identity_element)
    )

    def weight(m: int) -> Tensor:
        def element(*at: Var) -> Any:
            over = [reduce_axis(iv.dom, iv.var.name) for iv in r.axis]
            table: dict[Var, PrimExpr] = dict(zip(spatial, at, strict=False))
            table.update({v: iv.var for v, iv in zip(inner, over, strict=True)})
            chosen = ops.conjunction(
                ops.equal(iv.var - iv.dom.min, a) for iv, a in zip(over, at[len(spatial) :], strict=True)
            )
            seeds = [
                ops.select(chosen, const(int(m == j), r.source[j].dtype), const(0, r.source[j].dtype))
                for j in moving
            ]
            values = [substitute(s, table) for s in r.source]
            return dual((*seeds, *values), axis=over, where=substitute(r.condition, table))

        shape = [iv.dom.extent for iv in (*op.axis, *r.axis)]
        made: Any = compute(shape, element, name=f"{op.name}_weight")
        return made[moving.index(r.value_index)]  # type: ignore[no-any-return]

    return [weight(m) if m in moving else None for m in range(len(r.source))]


def _zeros_of(r: Reduce, moving: list[int]) -> list[PrimExpr]:
    return [const(0, r.source[m].dtype) for m in moving]


def _dual(r: Reduce, moving: list[int]) -> Any:
    """The combination of (derivatives, values): its derivatives by the chain rule, its values as they were."""
    c, n = r.combiner, len(moving)
    variables = (*c.lhs, *c.rhs)

    def combine(x: Sequence[PrimExpr], y: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        slopes = {
            v: d
            for side, ds in ((c.lhs, x), (c.rhs, y))
            for v, d in zip([side[m] for m in moving], ds[:n], strict=True)
        }
        made: list[PrimExpr] = []
        for m in moving:
            result, one = c.result[m], const(1, c.result[m].dtype)
            found = [
                slopes[v] * total(terms)
                for v, terms in partials(result, one, lambda e: any(e is v for v in variables))
                if isinstance(v, Var) and v in slopes
            ]
            made.append(sum(found[1:], found[0]) if found else const(0, result.dtype))
        values = dict(zip(variables, (*x[n:], *y[n:]), strict=True))
        return (*(substitute(e, values) for e in made), *c(x[n:], y[n:]))

    return combine


# -- small tensors ------------------------------------------------------------------------
def _added(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    name = f"{parts[0].op.name}_sum"

    def element(*at: Var) -> PrimExpr:
        values = [p(*at) for p in parts]
        return sum(values[1:], values[0])

    return compute(parts[0].shape, element, name=name)  # type: ignore[no-any-return]


def _zeros(shape: Sequence[PrimExpr], like: Tensor) -> Tensor:
    return compute(shape, lambda *_: const(0, like.dtype), name=f"{like.op.name}_grad")  # type: ignore[no-any-return]


def _identity(output: Tensor) -> Tensor:
    """The adjoint of `output` by itself: 1 where both halves of the indices are equal."""

    def element(*at: Var) -> PrimExpr:
        same = ops.conjunction(
            ops.equal(a, b) for a, b in zip(at[: output.ndim], at[output.ndim :], strict=True)
        )
        return ops.select(same, const(1, output.dtype), const(0, output.dtype))

    return compute((*output.shape, *output.shape), element, name="identity")  # type: ignore[no-any-return]


def _same_point(a: ProducerLoad, b: ProducerLoad) -> bool:
    return all(structural_equal(x, y) for x, y in zip(a.indices, b.indices, strict=True))


def _check_tensor(what: str, t: Any) -> None:
    if not isinstance(t, Tensor):
        raise refuse(f"{what} is {shown(t)} and must be a tensor", what="te.gradient")
    if not continuous(t.dtype):
        raise refuse(f"{what} is `{t.name}` of type {t.dtype}, which has no derivative", what="te.gradient")


def _checked_head(head: Any, output: Tensor) -> Tensor:
    _check_tensor("head", head)
    last = head.shape[head.ndim - output.ndim :] if head.ndim >= output.ndim else ()
    if len(last) != output.ndim or not all(same_size(a, b) for a, b in zip(last, output.shape, strict=True)):
        raise refuse(
            f"head has shape {shape_text(head.shape)}, whose last dimensions must be those of "
            f"`{output.name}`, {shape_text(output.shape)}",
            what="te.gradient",
        )
    return head  # type: ignore[no-any-return]
