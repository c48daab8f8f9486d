"""Calls, which are inlined, and scan, while and cond: unrolled or chosen at import where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...expr import Constant, Expr, If, Tuple, TupleGetItem, Var
from ..common.build import R, cast, constant, converted, literal, rank, reshape, typed
from ..common.loops import MOST, MOST_WRITTEN, Turn, as_variable, run_time_loop
from .table import Refusal
from .values import Value

if TYPE_CHECKING:
    from .importer import _Importer

# Calls, and the parameter that has the jaxpr.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_closed_call": "call_jaxpr",
    "call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
}


def inner_of(eqn: Any) -> Any:
    """The closed jaxpr that an equation calls; None for other equations."""
    name = _CALLS.get(eqn.primitive.name)
    found = None if name is None else eqn.params.get(name)
    if found is None or hasattr(found, "consts"):
        return found
    import jax.extend.core

    return jax.extend.core.ClosedJaxpr(found, ())


def jaxprs_in(eqn: Any) -> Iterator[Any]:
    """The jaxprs that an equation calls, loops over or chooses from."""
    whole = inner_of(eqn)
    if whole is not None:
        yield whole.jaxpr
        return
    for value in eqn.params.values():
        for v in value if isinstance(value, (tuple, list)) else [value]:
            if hasattr(v, "jaxpr") and hasattr(v, "consts"):
                yield v.jaxpr


def equations_of(jaxpr: Any) -> int:
    """The number of equations of a jaxpr, with those of the jaxprs within them."""
    return sum(max(1, sum(map(equations_of, jaxprs_in(eqn)))) for eqn in jaxpr.eqns)


# ---------------------------------------------------------------------------- scan
def _scan(importer: _Importer, values: list[Value], params: Mapping[str, Any]) -> list[Value]:
    body, length = params["jaxpr"], importer.symbols.size(params["length"])
    consts = values[: params["num_consts"]]
    split = params["num_consts"] + params["num_carry"]
    carry, rows = values[params["num_consts"] : split], values[split:]
    reverse = bool(params["reverse"])
    if isinstance(length, int) and length <= MOST and length * equations_of(body.jaxpr) <= MOST_WRITTEN:
        return _unrolled_scan(importer, body, consts, carry, rows, length, reverse)
    return _looped_scan(importer, body, consts, carry, rows, length, reverse)


def _unrolled_scan(
    importer: _Importer,
    body: Any,
    consts: list[Value],
    carry: list[Value],
    rows: list[Value],
    length: int,
    reverse: bool,
) -> list[Value]:
    states = len(carry)
    outs: list[list[Value]] = [[] for _ in body.jaxpr.outvars[states:]]
    for t in reversed(range(length)) if reverse else range(length):
        made = importer.walk(body, [*consts, *carry, *(_row(x, t) for x in rows)])
        carry = made[:states]
        for out, value in zip(outs, made[states:], strict=True):
            out.append(value)
    kinds = [importer.kind(v.aval) for v in body.jaxpr.outvars[states:]]
    return [*carry, *(_stacked(out, kind, reverse) for out, kind in zip(outs, kinds, strict=True))]


def _row(x: Value, t: int) -> Value:
    if x.known is not None:
        return Value(known=x.known[t])
    return Value(R.squeeze(R.strided_slice(x.expr, [t], [t + 1], axes=[0]), [0]))


def _stacked(rows: list[Value], kind: Any, reverse: bool) -> Value:
    if not rows:
        return Value(known=np.zeros((0, *kind.shape), str(kind.dtype)))
    ordered = rows[::-1] if reverse else rows
    if all(v.known is not None for v in ordered):
        return Value(known=np.stack([v.known for v in ordered]))
    return Value(R.stack([v.expr for v in ordered], 0))


def _looped_scan(
    importer: _Importer,
    body: Any,
    consts: list[Value],
    carry: list[Value],
    rows: list[Value],
    length: Any,
    reverse: bool,
) -> list[Value]:
    """A scan over a long or a dynamic length."""
    states = len(carry)
    if isinstance(length, int):
        count: Expr = constant(np.int64(length))
    elif rows:
        count = R.take(R.shape_of(rows[0].expr, "int64"), constant(np.int64(0)), 0)
    else:
        raise Refusal("a scan of a dynamic length over no arrays is not supported")
    outside: dict[Var, Expr] = {}
    fixed = [_from_outside(v, "const", outside) for v in consts]
    tables = [_from_outside(Value(v.expr), "xs", outside) for v in rows]

    def turn(number: Expr, given: list[Expr]) -> Turn:
        at = number
        if reverse:
            at = R.subtract(R.subtract(count, constant(np.int64(1))), number)
        parts = [Value(R.take(x.expr, at, 0)) for x in tables]
        made = [v.expr for v in importer.walk(body, [*fixed, *map(Value, given), *parts])]
        return Turn(None, made[:states], made[states:])

    begin = [_state(importer, v, a) for v, a in zip(carry, body.jaxpr.invars[len(consts) :])]
    found = run_time_loop(begin, constant(np.asarray(True)), count, turn, outside)
    out = [Value(e) for e in found[:states]]
    for e, var in zip(found[states:], body.jaxpr.outvars[states:], strict=True):
        whole = reshape(e, (length, *importer.kind(var.aval).shape))
        out.append(Value(R.reverse(whole, 0) if reverse else whole))
    return out


def _from_outside(value: Value, name: str, outside: dict[Var, Expr]) -> Value:
    """A value that every iteration reads: a variable, so that it is computed once."""
    if value.known is not None or isinstance(value.expr, (Var, Constant)):
        return value
    var = as_variable(f"{name}_{len(outside)}", value.expr)
    outside[var] = value.expr
    return Value(var)


def _state(importer: _Importer, value: Value, var: Any) -> Expr:
    return converted(value.expr, str(importer.kind(var.aval).dtype))


# ---------------------------------------------------------------------------- while
def _while(importer: _Importer, values: list[Value], params: Mapping[str, Any]) -> list[Value]:
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    ahead = params["cond_nconsts"] + params["body_nconsts"]
    of_test, of_body = values[: params["cond_nconsts"]], values[params["cond_nconsts"] : ahead]
    first = values[ahead:]
    going = importer.walk(test, [*of_test, *first])[0]
    if going.known is not None:
        made = _unrolled_while(importer, test, body, of_test, of_body, first)
        if made is not None:
            return made
    outside: dict[Var, Expr] = {}
    of_test = [_from_outside(v, "const", outside) for v in of_test]
    of_body = [_from_outside(v, "const", outside) for v in of_body]

    def turn(number: Expr, given: list[Expr]) -> Turn:
        made = importer.walk(body, [*of_body, *map(Value, given)])
        states = [Value(v.expr) for v in made]
        return Turn(_flag(importer.walk(test, [*of_test, *states])[0]), [v.expr for v in states], [])

    begin = [_state(importer, v, a) for v, a in zip(first, body.jaxpr.invars[len(of_body) :])]
    return [Value(e) for e in run_time_loop(begin, _flag(going), None, turn, outside)]


def _flag(value: Value) -> Expr:
    return value.expr if not rank(value.expr) else reshape(value.expr, ())


def _unrolled_while(
    importer: _Importer, test: Any, body: Any, of_test: list[Value], of_body: list[Value], states: list[Value]
) -> list[Value] | None:
    """The unrolled iterations; None if the condition depends on data, or if there are too many."""
    each = equations_of(body.jaxpr)
    for at in range(MOST + 1):
        going = importer.walk(test, [*of_test, *states])[0].known
        if going is None or at * each > MOST_WRITTEN:
            return None
        if not bool(going):
            return states
        states = importer.walk(body, [*of_body, *states])
    return None


# ---------------------------------------------------------------------------- cond
def _cond(importer: _Importer, values: list[Value], params: Mapping[str, Any]) -> list[Value]:
    which, operands, branches = values[0], values[1:], params["branches"]
    if which.known is not None:
        at = min(max(int(which.known), 0), len(branches) - 1)
        return importer.walk(branches[at], operands)
    sides = [[v.expr for v in importer.walk(b, operands)] for b in branches]
    if not sides[0]:
        return []
    return [Value(e) for e in _chosen(which.expr, sides, 0)]


def _chosen(which: Expr, sides: Sequence[list[Expr]], at: int) -> list[Expr]:
    """The results of branch `at` if it is chosen, else those of the following branches."""
    if at == len(sides) - 1:
        return sides[at]
    other = _chosen(which, sides, at + 1)
    index = cast(which, "int32")
    here = R.less_equal(index, literal(at, "int32"))
    if len(other) == 1:
        return [typed(If(here, sides[at][0], other[0]))]
    whole = typed(If(here, Tuple(sides[at]), Tuple(other)))
    return [TupleGetItem(whole, i) for i in range(len(other))]


def _platform_index(importer: _Importer, values: list[Value], params: Mapping[str, Any]) -> list[Value]:
    """Which branch of `lax.platform_dependent` is taken: that for CPUs, or the default, the last."""
    platforms = params["platforms"]
    at = next((i for i, names in enumerate(platforms) if names is None or "cpu" in names), len(platforms) - 1)
    return [Value(known=np.asarray(at, np.int32))]


CONTROL: dict[str, Callable[..., list[Value]]] = {
    "platform_index": _platform_index,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
