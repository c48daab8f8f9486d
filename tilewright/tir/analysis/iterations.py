"""Conditions on loop variables that hold in exactly the given iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...ir.expr import PrimExpr, Var, const
from ...ir.ops import (
    add,
    equal,
    floormod,
    greater_equal,
    less,
    logical_and,
    logical_or,
    mul,
    not_equal,
    sub,
)

_FEW = 2  # excluded values that are written one by one


def condition_for(variables: Sequence[Var], values: Mapping[Var, Any], when: Any) -> PrimExpr | None:
    """The condition on loop variables that holds in exactly the iterations chosen by `when`; None if it always does.

        i      0  0  1  1                    i      0  0  1  1  2  2
        k      0  1  0  1                    k      0  1  0  1  0  1
        when   .  x  x  x    i*2 + k >= 1    when   .  x  .  x  .  .    i < 2 and k != 0

    `values` has the value of each variable in each iteration, `variables` are from the outermost loop in.
    """
    if when.all():
        return None
    used = [v for v in variables if np.ptp(values[v])]
    for v in used:
        made = _of_one(v, values[v], when)
        if made is not None:
            return made
    for first in range(len(used)):
        for last in range(len(used), first + 1, -1):
            made = _from_or_until(used[first:last], values, when)
            if made is not None:
                return made
    return _by_cases(used, values, when)


def _of_one(v: Var, at: Any, when: Any) -> PrimExpr | None:
    """The condition on a single variable, if it decides."""
    inside, outside = np.unique(at[when]), np.unique(at[~when])
    return None if np.intersect1d(inside, outside).size else _among(v, inside, outside)


def _among(v: Var, inside: Any, outside: Any) -> PrimExpr:
    """The condition that holds for the values `inside` of a variable and fails for those `outside`."""
    low, high = int(inside[0]), int(inside[-1])
    first, last = min(low, int(outside[0])), max(high, int(outside[-1]))
    if len(outside) <= _FEW:
        return _joined(logical_and, [not_equal(v, int(x)) for x in outside])
    if low == high:
        return equal(v, low)
    if not np.any((outside > low) & (outside < high)):
        tests = [greater_equal(v, low)] * (low > first) + [less(v, high + 1)] * (high < last)
        return _joined(logical_and, tests)
    step = int(np.gcd.reduce(np.diff(inside)))
    if step > 1 and not np.any((outside - low) % step == 0):
        return equal(floormod(v, step), low % step)
    # runs of values between those that are outside
    runs = np.split(inside, np.flatnonzero(np.diff(np.searchsorted(outside, inside))) + 1)
    return _joined(
        logical_or,
        [
            equal(v, int(r[0]))
            if r[0] == r[-1]
            else logical_and(greater_equal(v, int(r[0])), less(v, int(r[-1]) + 1))
            for r in runs
        ],
    )


def _joined(how: Callable[..., PrimExpr], tests: Sequence[PrimExpr]) -> PrimExpr:
    return reduce(how, tests)


def _from_or_until(variables: Sequence[Var], values: Mapping[Var, Any], when: Any) -> PrimExpr | None:
    """A condition that holds from an iteration of nested loops on, or up to one, or in all but one."""
    number: PrimExpr = const(0)
    at: Any = 0
    for v in variables:
        low, count = int(values[v].min()), int(np.ptp(values[v])) + 1
        number = add(mul(number, count), v if low == 0 else sub(v, low))
        at = at * count + (values[v] - low)
    inside, outside = at[when], at[~when]
    if inside.min() > outside.max():
        return greater_equal(number, int(inside.min()))
    if inside.max() < outside.min():
        return less(number, int(inside.max()) + 1)
    return None


def _by_cases(variables: Sequence[Var], values: Mapping[Var, Any], when: Any) -> PrimExpr:
    """The values of the outermost variable in groups of the same condition on the others."""
    v, *rest = variables
    groups: dict[bytes, list[int]] = {}
    for x in np.unique(values[v]):
        here = values[v] == x
        key = b"".join(np.ascontiguousarray(values[u][here], np.int64).tobytes() for u in rest)
        groups.setdefault(key + b"|" + when[here].tobytes(), []).append(int(x))
    cases: list[PrimExpr] = []
    for members in groups.values():
        here = values[v] == members[0]
        if not when[here].any():
            continue
        inner = condition_for(rest, {u: values[u][here] for u in rest}, when[here])
        others = np.setdiff1d(values[v], members)
        if not others.size:
            assert inner is not None
            return inner
        outer = _among(v, np.asarray(members), others)
        cases.append(outer if inner is None else logical_and(outer, inner))
    return _joined(logical_or, cases)
