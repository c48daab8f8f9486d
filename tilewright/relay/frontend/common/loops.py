"""A loop of the program: a recursive function.

    let %loop = fn (%i, %going, %state, %rows) {
      if (%going) { …the body…; %loop(%i + 1, %goes_on, %next_state, %rows with one more) }
      else { (%state, %rows) }
    };
    %loop(0, 0 < %count and %condition, %first, nothing)

The virtual machine runs it as a loop. Values from outside that the body reads are invariant parameters, so that they
are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.expr import SizeVar
from ...analysis import free_vars
from ...expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, set_checked_type
from ...sizes import sizes_in
from ...transform.infer_type import join
from ...ty import Any as AnySize
from ...ty import FuncType, TensorType, TupleType
from .build import R, Refusal, constant, rank, typed

MOST = 4096  # most unrolled iterations
MOST_WRITTEN = 8192  # most nodes of an unrolled loop that the virtual machine could run: compile time

# Rows are collected in a small tensor that is copied in each iteration, and moved to a large one at this many rows.
_ROWS = 64


@dataclass(slots=True)
class Turn:
    """The results of one iteration: whether to continue, the state, the collected rows."""

    going: Expr | None
    states: list[Expr]
    rows: list[Expr]


Body = Callable[[Expr, list[Expr]], Turn]  # of the number of the iteration and the state


def run_time_loop(
    begin: Sequence[Expr], going: Expr, count: Expr | None, body: Body, outside: Mapping[Var, Expr]
) -> list[Any]:
    """The last state and the collected rows of a loop that runs while `going`, at most `count` times.

    `outside` has the variables that stand for values from outside in the body, and these values.
    """
    work = _Writer(_Fixed(list(begin), body), count, outside)
    return work.results(work.call(going, list(begin)))


def as_variable(name: str, value: Expr) -> Var:
    """A variable of the type of a value, which the body of a loop reads instead of it."""
    return Var(name, _named(typed(value).checked_type, name))


class _Fixed:
    """The body over variables for its state, with the sizes that every iteration keeps; others are dynamic.

    x: (0, 3) -> concat(x, row): (1, 3)         so the state is (?, 3), and (m, 3) within a turn
    """

    def __init__(self, begin: list[Expr], body: Body) -> None:
        self.number = Var("i", TensorType((), "int64"))
        self.kinds: list[Any] = [typed(e).checked_type for e in begin]
        while True:
            self.states = [Var(f"state_{k}", _named(kind, f"state_{k}")) for k, kind in enumerate(self.kinds)]
            self.step = body(self.number, list(self.states))
            if len(self.step.states) != len(begin):
                raise Refusal(f"it has {len(begin)} states, and its body gives {len(self.step.states)}")
            found = [self.joined(k, v) for k, v in enumerate(self.step.states)]
            if _open_sizes(found) == _open_sizes(self.kinds):
                break
            self.kinds = found

    def joined(self, k: int, given: Expr) -> Any:
        kind = typed(given).checked_type
        made = join(self.kinds[k], kind)
        if made is None:
            raise Refusal(f"its state {k} is {self.kinds[k]} before an iteration and {kind} after it")
        return made


class _Writer:
    """The function of a loop, and its call."""

    def __init__(self, body: _Fixed, count: Expr | None, outside: Mapping[Var, Expr]) -> None:
        self.body, self.number, self.count = body, body.number, count
        step = body.step
        given = [*step.states, *step.rows, *([] if step.going is None else [step.going])]
        read = set(free_vars(Tuple(given)))
        self.same = [
            (v, e) for v, e in outside.items() if v in read
        ]  # invariant parameters, and their values
        fixed = [typed(e).checked_type for _, e in self.same]
        own = {s for v in (*body.states, *(v for v, _ in self.same)) for s in sizes_in(v.checked_type)}
        local = own - {s for t in (*body.kinds, *fixed) for s in sizes_in(t)}
        self.rows = [_Rows(k, typed(e), local) for k, e in enumerate(step.rows)]
        self.kept = [*body.states, *(p for r in self.rows for p in r.params)]
        self.result = TupleType((*body.kinds, *(r.kind for r in self.rows for _ in r.params)))
        going = Var("going", TensorType((), "bool"))
        self.params = [self.number, going, *self.kept, *(v for v, _ in self.same)]
        kinds = (*(p.checked_type for p in self.params[:2]), *self.result.fields, *fixed)
        self.name = Var("loop", FuncType(kinds, self.result))
        following = R.add(self.number, const(1, "int64"))
        on = None if step.going is None or _is_true(step.going) else step.going
        if count is None and on is None:
            raise Refusal("the loop never ends: it has no count, and its condition stays true")
        again = [
            following,
            self.goes_on(on, following),
            *step.states,
            *self.grown(),
            *(v for v, _ in self.same),
        ]
        call = _typed(Call(self.name, again), self.result)
        turn = _typed(If(going, call, typed(Tuple(self.kept))), self.result)
        self.function = Function(self.params, turn, self.result)
        set_checked_type(self.function, FuncType(tuple(p.checked_type for p in self.params), self.result))

    def goes_on(self, going: Expr | None, at: Expr) -> Any:
        """Whether iteration `at` runs; None is a condition that always holds."""
        more = None if self.count is None else typed(R.less(at, self.count))
        if going is None:
            return constant(np.asarray(True)) if more is None else more
        mine = typed(going if not rank(going) else R.reshape(going, ()))
        return mine if more is None else typed(R.logical_and(mine, more))

    def grown(self) -> list[Any]:
        """The collected rows with those of this iteration."""
        if not self.rows:
            return []
        now, later = [], []
        for r in self.rows:
            kept, moved = r.grown(self.number)
            now += kept
            later += moved
        if all(a is b for a, b in zip(now, later, strict=True)):
            return now
        last = R.equal(R.mod(self.number, const(_ROWS, "int64")), const(_ROWS - 1, "int64"))
        kind = TupleType(self.result.fields[-len(now) :])
        both = _typed(If(typed(last), typed(Tuple(later)), typed(Tuple(now))), kind)
        return [typed(TupleGetItem(both, i)) for i in range(len(now))]

    def call(self, going: Expr, begin: list[Expr]) -> Any:
        zero = const(0, "int64")
        start = self.goes_on(None if _is_true(going) else going, zero)
        nothing = [e for r in self.rows for e in r.nothing()]
        first = [zero, start, *begin, *nothing, *(e for _, e in self.same)]
        call = _typed(Call(self.name, first), self.result)
        return _let(self.name, self.function, call)

    def results(self, whole: Any) -> list[Any]:
        states = len(self.body.states)
        parts = [typed(TupleGetItem(whole, i)) for i in range(len(self.result.fields))]
        out, at = parts[:states], states
        for r in self.rows:
            out.append(typed(r.whole(parts[at : at + len(r.params)])))
            at += len(r.params)
        return out


class _Rows:
    """The rows that one output of the body collects, as parameters of the loop.

    Sizes that are known before the loop give an initial tensor without rows. Others are known in the first iteration.
    """

    def __init__(self, k: int, row: Any, local: set[Any]) -> None:
        self.row, kind = row, row.checked_type
        self.plain = not any(
            isinstance(d, AnySize) or any(s in local for s in sizes_in(d)) for d in kind.shape
        )
        self.shape = list(kind.shape) if self.plain else [AnySize() for _ in kind.shape]
        self.dtype = kind.dtype
        self.kind = TensorType([AnySize(), *self.shape], kind.dtype)
        names = (f"rows_{k}", f"more_{k}") if self.plain else (f"rows_{k}",)
        self.params = [Var(name, _named(self.kind, name)) for name in names]

    def nothing(self) -> list[Any]:
        sizes = [0, *(self.shape if self.plain else [0] * len(self.shape))]
        empty = typed(R.zeros(sizes, str(self.dtype)))
        return [empty] * len(self.params)

    def grown(self, number: Var) -> tuple[list[Any], list[Any]]:
        """The parameters after this iteration, and those after one that moves the small tensor to the large one."""
        one = R.expand_dims(self.row, 0)
        if not self.plain:
            begins = typed(R.equal(number, const(0, "int64")))
            more = typed(R.concatenate([self.params[0], one], 0))
            kept = _typed(If(begins, typed(one), more), self.kind)
            return [kept], [kept]
        large, small = self.params
        grown = typed(R.concatenate([small, one], 0))
        return [large, grown], [typed(R.concatenate([large, grown], 0)), self.nothing()[0]]

    def whole(self, parts: list[Any]) -> Any:
        return R.concatenate(parts, 0) if len(parts) > 1 else parts[0]


def _is_true(e: Expr) -> bool:
    return isinstance(e, Constant) and e.data.size == 1 and bool(e.data.numpy().item())


def _typed(e: Any, kind: Any) -> Any:
    set_checked_type(e, kind)
    return e


def _let(var: Var, value: Any, body: Any) -> Any:
    return _typed(Let(var, value, body), body.checked_type)


def _open_sizes(kinds: Sequence[Any]) -> int:
    return sum(isinstance(d, AnySize) for k in kinds for d in k.shape)


def _named(kind: TensorType, name: str) -> TensorType:
    """A symbolic variable for each unknown size, so that shape arithmetic can be tracked within an iteration."""
    return TensorType(
        [SizeVar(f"{name}_{i}", "int32") if isinstance(d, AnySize) else d for i, d in enumerate(kind.shape)],
        kind.dtype,
    )
