"""CombineParallel*: several products of the same data combined into one larger product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import op as R
from ..adt import Match
from ..analysis import post_order, use_counts
from ..analysis.walks import users_of
from ..expr import Call, Expr, Function, If, Let, Tuple
from ..op.registry import RelayOp
from ..op.traits import is_regular
from ..visitor import below
from .rewriting import Mutator, is_call, shape_of, static_shape, type_of, typed_pass


def combine_parallel_conv2d(func: Function, min_num_branches: int = 3) -> Function:
    """Convolve once where several convolutions read the same data.

        %0 = nn.conv2d(%x, %w1);            %0 = concatenate((%w1, %w2), axis=0);
        %1 = nn.conv2d(%x, %w2);     ->     %1 = nn.conv2d(%x, %0);
        (%0, %1)                            (strided_slice(%1, …), strided_slice(%1, …))

    Operators that follow on all branches (a bias, a relu) are combined as well.
    """
    return _combine(func, R.nn.conv2d, min_num_branches, _Conv2d())


def combine_parallel_dense(func: Function, min_num_branches: int = 3, to_batch: bool = True) -> Function:
    """Multiply once where several dense layers read the same data.

    With `to_batch`, layers of one size become a batch_matmul over stacked weights; otherwise the weights are
    concatenated and the result is sliced.
    """
    return _combine(func, R.nn.dense, min_num_branches, _BatchedDense() if to_batch else _Dense())


def combine_dense_of(func: Function, chosen: set[Any]) -> Function:
    """Multiply once where several of the chosen dense layers, or products, read the same data."""
    return _combine(_combine(func, R.nn.dense, 2, _Dense(chosen)), R.nn.matmul, 2, _Matmul(chosen))


def combine_parallel_batch_matmul(func: Function, min_num_branches: int = 3) -> Function:
    """Multiply once where several batches of products have the same left side."""
    return _combine(func, R.nn.batch_matmul, min_num_branches, _BatchMatmul())


# ---------------------------------------------------------------------------- kinds of branches
class _Kind:
    """The comparison, combination and separation of branches of one operator."""

    chains: bool = True

    def key(self, at: Call) -> Any:
        """The key that must be equal in combined branches; None if a call cannot be combined."""
        raise NotImplementedError

    def axis(self, at: Call) -> int:
        """The axis of the result along which branches are concatenated."""
        raise NotImplementedError

    def joined(self, branches: Sequence[Call]) -> Call:
        raise NotImplementedError


def _concat(parts: Sequence[Expr], axis: int) -> Expr:
    return R.concatenate(Tuple(parts), axis=axis)


def _by_all(branches: Sequence[Call], axis: int, **attrs: Any) -> Call:
    """One call of the data by the weights of all branches, side by side along `axis`."""
    first = branches[0]
    weight = _concat([b.args[1] for b in branches], axis)
    return Call(first.op, [first.args[0], weight], first.attrs.replace(**attrs))


class _Conv2d(_Kind):
    def key(self, at: Call) -> Any:
        a, weight = at.attrs, static_shape(at.args[1])
        if a.groups != 1 or weight is None or not (a.kernel_layout + a.data_layout + a.out_layout).isupper():
            return None
        outputs = a.kernel_layout.find("O")
        rest = tuple(d for i, d in enumerate(weight) if i != outputs)
        return (rest, type_of(at.args[1]).dtype, a.replace(channels=None, kernel_size=None))

    def axis(self, at: Call) -> int:
        return (at.attrs.out_layout or at.attrs.data_layout).find("C")

    def joined(self, branches: Sequence[Call]) -> Call:
        channels = sum(shape_of(b)[self.axis(b)] for b in branches)
        return _by_all(branches, branches[0].attrs.kernel_layout.find("O"), channels=channels)


class _Dense(_Kind):
    def __init__(self, chosen: set[Any] | None = None) -> None:
        self.chosen = chosen  # None: all

    def key(self, at: Call) -> Any:
        weight = static_shape(at.args[1])
        if weight is None or (self.chosen is not None and at not in self.chosen):
            return None
        return (weight[1], type_of(at.args[1]).dtype, at.attrs.out_dtype)

    def axis(self, at: Call) -> int:
        return len(shape_of(at)) - 1

    def joined(self, branches: Sequence[Call]) -> Call:
        return _by_all(branches, 0, units=sum(shape_of(b.args[1])[0] for b in branches))


class _Matmul(_Dense):
    """Products with a matrix of weights, transposed or not."""

    def key(self, at: Call) -> Any:
        shape = static_shape(at.args[1])
        if shape is None or (self.chosen is not None and at not in self.chosen):
            return None
        return (
            shape[0 if not at.attrs.transpose_b else 1],
            type_of(at.args[1]).dtype,
            at.attrs.replace(units=None),
        )

    def joined(self, branches: Sequence[Call]) -> Call:
        return _by_all(branches, 0 if branches[0].attrs.transpose_b else 1, units=None)


class _BatchMatmul(_Kind):
    def key(self, at: Call) -> Any:
        shape = static_shape(at.args[1])
        if shape is None:
            return None
        columns = 1 if at.attrs.transpose_b else 2
        return (tuple(d for i, d in enumerate(shape) if i != columns), type_of(at.args[1]).dtype, at.attrs)

    def axis(self, at: Call) -> int:
        return 2

    def joined(self, branches: Sequence[Call]) -> Call:
        return _by_all(branches, 1 if branches[0].attrs.transpose_b else 2)


class _BatchedDense(_Kind):
    """Dense layers of one size as a batch: the result has a new first dimension."""

    chains = False

    def key(self, at: Call) -> Any:
        data, weight = static_shape(at.args[0]), static_shape(at.args[1])
        if data is None or weight is None or len(data) != 2:
            return None
        return (weight, type_of(at.args[1]).dtype, at.attrs.out_dtype)

    def axis(self, at: Call) -> int:
        return 0

    def joined(self, branches: Sequence[Call]) -> Call:
        first = branches[0]
        data = R.stack(Tuple([b.args[0] for b in branches]), axis=0)
        weight = R.stack(Tuple([b.args[1] for b in branches]), axis=0)
        return R.nn.batch_matmul(data, weight, out_dtype=first.attrs.out_dtype, transpose_b=True)


# ---------------------------------------------------------------------------- the work
def _combine(func: Function, build: Any, least: int, kind: _Kind) -> Function:
    order = post_order(func)
    groups: dict[Any, list[Call]] = {}
    for at in order:
        if is_call(at, build):
            key = kind.key(at)
            if key is not None:
                groups.setdefault((at.args[0], key), []).append(at)
    found = [branches for branches in groups.values() if len(branches) >= max(least, 2)]
    if not found:
        return func
    users = users_of(order)
    depends = _scopes(order)
    instead: dict[Any, Callable[[Any], Any]] = {}
    counts = use_counts(func)
    for branches in found:
        if len({depends.get(b) for b in branches}) == 1 and _independent(
            branches, [b.args[1] for b in branches]
        ):
            _plan(branches, kind, users, counts, instead)
    return _Replace(instead).visit(func)


def _independent(branches: Sequence[Call], operands: Sequence[Any]) -> bool:
    """Whether no operand depends on another branch, which would make the combined call depend on itself."""
    computed = [a for a in operands if isinstance(a, Call)]
    taken = set(branches)
    return not computed or not any(at in taken for at in post_order(Tuple(computed)))


def _scopes(order: list[Any]) -> dict[Any, Any]:
    """For each call, the innermost enclosing function, branch or let, if it is not the outermost scope."""
    out: dict[Any, Any] = {}
    for at in reversed(order):
        here = out.get(at)
        parts: list[tuple[Any, Any]]
        if isinstance(at, If):
            parts = [(at.cond, here), (at.true_branch, (at, 1)), (at.false_branch, (at, 0))]
        elif isinstance(at, Match):
            parts = [(at.data, here), *((c.rhs, (at, i)) for i, c in enumerate(at.clauses))]
        elif isinstance(at, Let):
            parts = [(at.value, (at, "value")), (at.body, (at, "body"))]
        elif isinstance(at, Function):
            parts = [(at.body, at)]
        else:
            parts = [(b, here) for b in below(at)]
        for b, scope in parts:
            out.setdefault(b, scope)
    return out


def _plan(
    branches: list[Call],
    kind: _Kind,
    users: dict[Any, list[Any]],
    counts: dict[Any, int],
    instead: dict[Any, Callable[[Any], Any]],
) -> None:
    """Record the replacements of the last calls of all branches: slices of the combined result."""
    chain: list[list[Call]] = [branches]
    axis = kind.axis(branches[0])
    while kind.chains:
        level = _next_level(chain[-1], axis, users, counts)
        if level is None or not _independent(branches, [a for c in level for a in c.args[1:]]):
            break
        chain.append(level)
    made: dict[str, Any] = {}

    def whole(visit: Callable[[Any], Any]) -> Expr:
        if "whole" not in made:
            made["whole"] = _build(chain, kind, axis, visit)
        return made["whole"]

    start = 0
    for i, last in enumerate(chain[-1]):
        size = shape_of(branches[i])[axis]
        instead[last] = _part(whole, kind, i, axis, start, size)
        start += size


def _part(
    whole: Callable[..., Expr], kind: _Kind, i: int, axis: int, start: int, size: int
) -> Callable[[Any], Any]:
    def make(visit: Callable[[Any], Any]) -> Expr:
        if isinstance(kind, _BatchedDense):
            cut = R.strided_slice(whole(visit), begin=(i,), end=(i + 1,), strides=(1,), axes=(0,))
            return R.squeeze(cut, axis=(0,))
        return R.strided_slice(whole(visit), begin=(start,), end=(start + size,), strides=(1,), axes=(axis,))

    return make


def _next_level(
    now: list[Call], axis: int, users: dict[Any, list[Any]], counts: dict[Any, int]
) -> list[Call] | None:
    """The next calls, if they are the same on all branches."""
    level: list[Call] = []
    for at in now:
        if counts[at] != 1 or len(users.get(at, ())) != 1:
            return None
        level.append(users[at][0])
    first = level[0]
    biased = is_call(first, R.nn.bias_add)
    if not biased and not (
        isinstance(first, Call) and isinstance(first.op, RelayOp) and is_regular(first.op)
    ):
        return None
    if any(not isinstance(c, Call) or c.op is not first.op or c.attrs != first.attrs for c in level):
        return None
    ndim = len(shape_of(now[0]))
    for at, c in zip(now, level, strict=True):
        if c.args[0] is not at or static_shape(c) != static_shape(at):
            return None
        if biased and c.attrs.axis % ndim != axis:
            return None
        if len(c.args) > 1 and not biased and not _along(c.args[1], axis, ndim, shape_of(at)[axis]):
            return None
    return level


def _along(operand: Expr, axis: int, ndim: int, size: int) -> bool:
    """Whether an operand has full extent along the axis, and size 1 in all others."""
    shape = static_shape(operand)
    at = axis - ndim + (len(shape) if shape is not None else 0)
    return (
        shape is not None
        and 0 <= at < len(shape)
        and shape[at] == size
        and all(d == 1 for i, d in enumerate(shape) if i != at)
    )


def _build(chain: list[list[Call]], kind: _Kind, axis: int, visit: Callable[[Any], Any]) -> Expr:
    first = chain[0]
    branches = [b.over([visit(a) for a in b.args]) for b in first]
    made: Expr = kind.joined(branches)
    ndim = len(shape_of(first[0]))
    for level in chain[1:]:
        at = level[0]
        args: list[Expr] = [made]
        if len(at.args) == 2:
            others = [visit(c.args[1]) for c in level]
            place = 0 if is_call(at, R.nn.bias_add) else axis - ndim + len(shape_of(at.args[1]))
            args.append(_concat(others, place))
        made = at.over(args)
    return made


class _Replace(Mutator):
    def __init__(self, instead: dict[Any, Callable[[Any], Any]]) -> None:
        super().__init__()
        self.instead = instead

    def visit_call(self, call: Call) -> Any:
        make = self.instead.get(call)
        return super().visit_call(call) if make is None else make(self.visit)


CombineParallelConv2D = typed_pass(combine_parallel_conv2d, name="CombineParallelConv2D", opt_level=4)
CombineParallelDense = typed_pass(combine_parallel_dense, name="CombineParallelDense", opt_level=4)
CombineParallelBatchMatmul = typed_pass(
    combine_parallel_batch_matmul, name="CombineParallelBatchMatmul", opt_level=4
)
