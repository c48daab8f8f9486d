"""GroupAttention: attention (two products with a softmax between) as one kernel, if the target has one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...homes import home_of
from ...target import Target
from .. import op as R
from ..analysis import post_order
from ..analysis.walks import users_of
from ..expr import Call, Constant, Function, Var, const
from ..op.traits import traits_of
from .axis_parts import Part, View, number_of, ordered, regrouped, shown, source_of, used_as
from .combine_parallel import combine_dense_of
from .fold_constant import fold_constant
from .infer_type import infer_type
from .rewriting import Mutator, is_call, is_kept_whole, name_of, static_shape, type_of, typed_pass

_HIDDEN: Final = -1e4  # greatest value of an additive mask, or of a masked score
_LOW: Final = -1e30  # the value of masked scores in the kernel: fully masked rows get equal weights
_ROWS: Final = 16  # least number of queries for a tile
_RANK: Final = 5  # most dimensions of a TMA copy
_HALVES: Final = ("float16", "bfloat16")


def group_attention(func: Function) -> Function:
    """Put attention into a function of its own, which becomes one kernel.

        %0 = nn.batch_matmul(%q, %k);                 fn (%q, %k, %v, %mask, Primitive=1) {
        %1 = nn.softmax(%0 * 0.125f + %mask);    ->     nn.scaled_dot_product_attention(%q, %k, %v, %mask, scale=…)
        nn.batch_matmul(cast(%1, "float16"), %v)      }(%q, %k, %v, %mask)

    Scalar factors of scores, masks that are added or selected by `where`, and the transposes and slices of heads are
    included; a constant causal mask becomes a comparison. Dense layers that compute queries, keys and values from the
    same data are combined. Scores and weights are float32 inside. Only for GPUs with warpgroup products (wgmma), and
    for 16-bit floats; other attentions are unchanged.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.has("tensor_cores"):
        return func
    from ...tune.rules.gpu.attention import refusal  # GPU code is imported on demand

    if refusal(target) is not None:
        return func
    found = _Search(func, target).found
    if not found:
        return func
    joined = combine_dense_of(func, {d for g in found.values() for d in g.layers})
    if joined is not func:  # TMA can copy queries, keys and values from one tensor
        func = infer_type(fold_constant(infer_type(joined)))
        found = _Search(func, target).found
    return _Put(found).visit(func)


class _No(Exception):
    """The reason why an expression is not an attention that the kernel supports."""


class _Axes(NamedTuple):
    """The axes of the matrices: queries, keys, head dimension of the scores, width of the values."""

    row: Part
    key: Part
    deep: Part
    column: Part


@dataclass(slots=True)
class _Softmax:
    """The matched softmax: its logits, and the mask outside of which weights are set to 0."""

    of: Any
    zeros: Any = None


@dataclass(slots=True)
class _Group:
    """An attention in a graph."""

    root: Any  # the expression that it replaces
    inputs: list[Any]
    function: Function
    shape: tuple[int, ...]  # the shape of the root
    layers: list[Call]  # the dense layers of its operands


@dataclass(slots=True)
class _Logits:
    """scale * scores + masks, over rows and columns."""

    last: tuple[Part, Part]
    scale: float = 1.0
    added: list[tuple[Any, tuple[Part, ...]]] = field(default_factory=list)
    seen: tuple[Any, tuple[Part, ...]] | None = None  # a boolean mask outside of which weights are 0
    causal: bool = False
    offset: int = 0
    before: int = -1


class _Search:
    """All attentions of a function, by their roots."""

    def __init__(self, func: Function, target: Target) -> None:
        self.target = target
        order = post_order(func.body)
        self.users = users_of(order)
        self.users.setdefault(func.body, []).append(func)
        self.found: dict[Any, _Group] = {}
        self.known: dict[str, bool] = {}
        for e in order:
            if is_call(e, R.nn.batch_matmul):
                try:
                    group = _Match(self, e).group()
                except _No:
                    continue
                self.found[group.root] = group

    def accepted(self, fn: Function) -> bool:
        """Whether the function becomes one kernel."""
        from ...tune.rules.gpu.attention import refusal

        loops, key = home_of("graph_kernels").loops_and_key(fn)
        if key not in self.known:
            self.known[key] = refusal(self.target, loops) is None
        return self.known[key]


class _Match:
    """Matches one attention backwards from its last product."""

    def __init__(self, search: _Search, product: Call) -> None:
        self.search, self.product = search, product
        self.inside: dict[Any, None] = {product: None}

    # -- the whole ---------------------------------------------------------------------------
    def group(self) -> _Group:
        p = self.product
        sizes = static_shape(p)
        if sizes is None or p.attrs.transpose_a:
            raise _No("its sizes are not known, or its weights are transposed")
        soft = self.weights(p.args[0])
        scores = self.scores_below(soft.of)
        shape = static_shape(scores)
        if shape is None or shape != static_shape(p.args[0]) or shape[1] < _ROWS:
            raise _No("the sizes of its scores and weights differ, or it has few rows")
        axes = _Axes(*(Part(n) for n in (*shape[1:], self.depth(scores), sizes[2])))
        if any(x.size == 1 for x in axes):
            raise _No("one of its axes has one element")
        self.check_alone()
        why = _No("")
        for lead in self.leads(sizes[0]):
            try:
                return self.with_lead(tuple(Part(n) for n in lead if n > 1), axes, soft, scores)
            except _No as said:
                why = said
        raise why

    def with_lead(self, lead: tuple[Part, ...], axes: _Axes, soft: _Softmax, scores: Call) -> _Group:
        """The group for a division into batches and heads."""
        row, key, deep, column = axes
        logits = self.logits(soft, lead, axes)
        a, b, turned = scores.attrs.transpose_a, scores.attrs.transpose_b, self.product.attrs.transpose_b
        q = self.operand(scores.args[0], lead, (deep, row) if a else (row, deep), (row, deep))
        k = self.operand(scores.args[1], lead, (key, deep) if b else (deep, key), (key, deep))
        v = self.operand(
            self.product.args[1],
            lead,
            (column, key) if turned else (key, column),
            (key, column),
            scaled=False,
        )
        logits.scale *= q.factor * k.factor
        return self.written(q, k, v, logits, lead, axes)

    def check_alone(self) -> None:
        """Refuse if an intermediate result has other users."""
        for e in self.inside:
            if e is not self.product and any(u not in self.inside for u in self.search.users[e]):
                raise _No("an intermediate result has other users")

    def leads(self, count: int) -> list[tuple[int, ...]]:
        """The possible divisions of the batch into batches and heads, according to reshapes; the finest first."""
        products = [e for e in self.inside if is_call(e, R.nn.batch_matmul)]
        near: list[Any] = [*self.inside, *(a for e in products for a in e.args)]
        for _ in range(2):
            near += [u for e in near if e is self.product for u in self.search.users.get(e, ())]
            near += [u for e in near if is_call(e, R.cast) for u in self.search.users.get(e, ())]
            near += [e.args[0] for e in near if is_call(e, R.reshape, R.cast, R.multiply, R.divide)]
        shapes = [s for e in dict.fromkeys(near) if isinstance(e, (Call, Var)) and (s := static_shape(e))]
        told = dict.fromkeys(s[:-2] for s in shapes if math.prod(s[:-2]) == count)
        return [*sorted(told, key=lambda s: -len([n for n in s if n > 1])), (count,)]

    def depth(self, scores: Call) -> int:
        return int(type_of(scores.args[0]).shape[1 if scores.attrs.transpose_a else 2])

    # -- weights -------------------------------------------------------------------------------
    def weights(self, e: Any) -> _Softmax:
        """The softmax of the weights."""
        zeros = None
        while True:
            self.inside[e] = None
            if is_call(e, R.cast, R.reshape):
                e = e.args[0]
            elif is_call(e, R.where) and number_of(e.args[2]) == 0 and zeros is None:
                zeros, e = e.args[0], e.args[1]
            elif is_call(e, R.nn.softmax, R.nn.fast_softmax):
                rank = len(type_of(e).shape)
                if e.attrs.axis not in (-1, rank - 1):
                    raise _No("its softmax is along another axis")
                return _Softmax(e.args[0], zeros)
            elif is_call(e, R.divide):
                return _Softmax(self.written_out(e), zeros)
            else:
                raise _No("its weights are not a softmax")

    def written_out(self, e: Any) -> Any:
        """x of exp(x - max(x)) / sum(exp(x - max(x)))."""
        power, total = e.args
        if not is_call(power, R.exp, R.fast_exp) or not self.is_along(total, R.sum, power):
            raise _No("its weights are not a softmax")
        away = power.args[0]
        if not is_call(away, R.subtract) or not self.is_along(away.args[1], R.max, away.args[0]):
            raise _No("its exponents are not relative to their maximum")
        self.inside |= dict.fromkeys((power, total, away, away.args[1]))
        return away.args[0]

    def is_along(self, e: Any, build: Any, of: Any) -> bool:
        rank = len(type_of(of).shape)
        if not is_call(e, build) or e.args[0] is not of or not e.attrs.keepdims or e.attrs.exclude:
            return False
        return tuple(a % rank for a in e.attrs.axis or ()) == (rank - 1,)

    # -- logits --------------------------------------------------------------------------------
    def steps_below(self, x: Any) -> Iterable[tuple[Any, int]]:
        """The operators on the scores, the last first, with the index of the operand that leads to the scores."""
        while not is_call(x, R.nn.batch_matmul):
            self.inside[x] = None
            which = self.along(x)
            yield x, which
            x = x.args[which]
        self.inside[x] = None
        yield x, -1

    def along(self, x: Any) -> int:
        if is_call(x, R.cast, R.reshape):
            return 0
        if is_call(x, R.where):
            which = 1 if number_of(x.args[2]) is not None else 2
            if type_of(x.args[which]).shape == type_of(x).shape:
                return which
        if is_call(x, R.multiply, R.divide, R.maximum):
            for n in (0, 1) if traits_of(x).commutes else (0,):
                if number_of(x.args[1 - n]) is not None and type_of(x.args[n]).shape == type_of(x).shape:
                    return n
        if is_call(x, R.add, R.subtract):
            for n in (0, 1) if traits_of(x).commutes else (0,):
                if type_of(x.args[n]).shape == type_of(x).shape and self.has_product(x.args[n]):
                    return n
        raise _No(f"its scores go through {name_of(x) or 'something else'}")

    def has_product(self, e: Any) -> bool:
        for _ in range(32):
            if is_call(e, R.nn.batch_matmul):
                return True
            try:
                e = e.args[self.along(e)] if isinstance(e, Call) else None
            except _No:
                return False
            if e is None:
                return False
        return False

    def scores_below(self, x: Any) -> Call:
        *_, (last, _) = self.steps_below(x)
        return last

    def logits(self, soft: _Softmax, lead: tuple[Part, ...], axes: _Axes) -> _Logits:
        out = _Logits((axes.row, axes.key))
        parts = (*lead, axes.row, axes.key)
        shape = static_shape(soft.of)
        dims = None if shape is None else regrouped(parts, shape)
        if dims is None or dims[-1] != (axes.key,):
            raise _No("its scores are reshaped")
        for x, which in self.steps_below(soft.of):
            if which < 0:
                break
            if is_call(x, R.reshape):
                below_shape = static_shape(x.args[0])
                dims = None if below_shape is None else regrouped(parts, below_shape)
                if dims is None:
                    raise _No("its scores are reshaped")
            elif is_call(x, R.multiply, R.divide):
                by = number_of(x.args[1 - which]) or 0.0
                if by <= 0:
                    raise _No("the factor of its scores is not positive")
                out.scale = out.scale / by if is_call(x, R.divide) else out.scale * by
            elif is_call(x, R.maximum):
                if (number_of(x.args[1 - which]) or 0) * out.scale > _HIDDEN:
                    raise _No("its scores have a lower limit")
            elif is_call(x, R.add, R.subtract):
                self.add(
                    out, View(x.args[1 - which], _spread(x.args[1 - which], dims)), is_call(x, R.subtract)
                )
            elif is_call(x, R.where):
                self.choose(out, x, which, dims, soft)
        if soft.zeros is not None and out.seen is None and not out.causal:
            raise _No("its weights are set to 0 where its scores are not masked")
        if out.seen is not None and out.added:
            raise _No("it has masks of two kinds")
        return out

    def add(self, out: _Logits, mask: View, negative: bool) -> None:
        low = source_of(mask, scaled=False)[-1]
        by = -out.scale if negative else out.scale
        if isinstance(low.expr, Constant) and low.expr.data.shape:
            values = low.expr.numpy().astype("float64") * by
            hidden = values <= _HIDDEN
            if not values[~hidden].any() and hidden.any() and self.band(out, ~hidden, low, False):
                return
        made = low.expr if by == 1 else R.multiply(low.expr, const(by, str(type_of(low.expr).dtype)))
        out.added.append((made, low.parts))

    def choose(self, out: _Logits, x: Call, which: int, dims: Any, soft: _Softmax) -> None:
        """where(mask, scores, low): a boolean mask."""
        instead = number_of(x.args[3 - which])
        if instead is None or instead * out.scale > _HIDDEN:
            raise _No("its masked scores are not low enough to be ignored")
        mask = View(x.args[0], _spread(x.args[0], dims))
        low = source_of(mask, scaled=False)[-1]
        zeros = soft.zeros is not None
        if zeros and soft.zeros is not x.args[0]:
            raise _No("its weights are set to 0 by another mask")
        if isinstance(low.expr, Constant):
            seen = low.expr.numpy().astype(bool)
            if self.band(out, seen if which == 1 else ~seen, low, zeros):
                return
        if zeros and which == 1:
            out.seen = (low.expr, low.parts)
            return
        if zeros:
            raise _No("its weights are not 0 where its scores are masked")
        values = [const(0.0, "float32"), const(_LOW, "float32")]
        made = R.where(low.expr, *(values if which == 1 else reversed(values)))
        out.added.append((made, low.parts))

    def band(self, out: _Logits, seen: Any, mask: View, zeros: bool) -> bool:
        """Whether a constant mask is a band: each query attends to the keys in a window around its own position."""
        import numpy as np

        if mask.parts != out.last or out.causal:
            return False
        rows, keys = (p.size for p in out.last)
        seen = np.broadcast_to(seen.reshape([p.size for p in mask.parts]), (rows, keys))
        if not seen.any() or not (zeros or seen.any(axis=1).all()):
            return False
        i, j = np.arange(rows)[:, None], np.arange(keys)
        offset = int((j - i)[seen].max())
        before = int((i + offset - j)[seen].max())
        whole = bool((j >= i + offset - before).all())
        if not np.array_equal(seen, (j <= i + offset) & (j >= i + offset - before)):
            if not np.array_equal(seen, j <= i + offset):
                return False
            whole = True
        out.causal, out.offset, out.before = True, offset, -1 if whole else before
        return True

    # -- operands ------------------------------------------------------------------------------
    def operand(
        self,
        e: Any,
        lead: tuple[Part, ...],
        given: tuple[Part, Part],
        wanted: tuple[Part, Part],
        scaled: bool = True,
    ) -> View:
        """The source of an operand, as far below views as TMA copies can read it from."""
        shape = static_shape(e)
        if shape is None:
            raise _No("the sizes of an operand are not known")
        dims = regrouped(given if shape[0] == 1 else (*lead, *given), shape)
        if dims is None:
            raise _No("one of its operands is shared by some of the heads only")
        views = [
            w
            for w in source_of(View(e, dims), scaled)
            if str(type_of(w.expr).dtype) in _HALVES
            and len(w.parts) <= _RANK
            and w.parts[-1] is wanted[1]
            and wanted[0] in w.parts
        ]
        if views:
            return views[-1]
        if str(type_of(e).dtype) not in _HALVES:
            raise _No("its operands are not 16-bit floats")
        rank = len(shape)
        turned = R.transpose(e, axes=[*range(rank - 2), rank - 1, rank - 2])
        return View(turned, (*dims[:-2], dims[-1], dims[-2]))

    # -- the function --------------------------------------------------------------------------
    def written(
        self,
        q: View,
        k: View,
        v: View,
        logits: _Logits,
        lead: tuple[Part, ...],
        axes: _Axes,
    ) -> _Group:
        row, key, deep, column = axes
        inputs: dict[Any, Any] = {}
        params: dict[tuple[Any, tuple[int, ...]], Var] = {}

        def take(expr: Any, shape: tuple[int, ...]) -> Var:
            place = (expr, shape)
            if place not in params:
                made = shown(expr, shape)
                type_of(made)
                params[place] = Var(f"p{len(params)}", made.checked_type)
                inputs[params[place]] = made
            return params[place]

        def matrix(view: View, last: tuple[Part, Part]) -> Any:
            own = ordered(take(view.expr, tuple(p.size for p in view.parts)), view.parts, (*lead, *last))
            if all(p in view.parts for p in lead):
                return own
            return R.broadcast_to(own, shape=[p.size for p in (*lead, *last)])  # heads that are shared

        args = [matrix(q, (row, deep)), matrix(k, (key, deep)), matrix(v, (key, column))]
        mask = self.mask(logits, (*lead, row, key))
        if mask is not None:
            args.append(take(mask, static_shape(mask) or ()))
        facts: dict[str, Any] = {"scale": logits.scale, "is_causal": logits.causal, "offset": logits.offset}
        if logits.before >= 0:
            facts["window"] = (logits.before, -1)
        body = R.nn.scaled_dot_product_attention(*args, **facts)
        root = self.root(lead, row, column)
        body = ordered(body, (*lead, row, column), root.parts)
        fn = infer_type(Function(list(params.values()), body, None, None, {"Primitive": 1}))
        if not self.search.accepted(fn):
            raise _No("no kernel does all of it")
        layers = [d for view in (q, k, v) if (d := _layer(view.expr)) is not None]
        return _Group(root.expr, list(inputs.values()), fn, static_shape(root.expr) or (), layers)

    def mask(self, logits: _Logits, parts: tuple[Part, ...]) -> Any:
        """The combined mask over the axes of the scores."""

        def over(expr: Any, own: tuple[Part, ...]) -> Any:
            return ordered(shown(expr, [p.size for p in own]), own, parts)

        if logits.seen is not None:
            return over(*logits.seen)
        made = None
        for expr, own in logits.added:
            wide = expr if str(type_of(expr).dtype) == "float32" else R.cast(expr, dtype="float32")
            here = over(wide, own)
            made = here if made is None else R.add(made, here)
        return made

    def root(self, lead: tuple[Part, ...], row: Part, column: Part) -> View:
        """The final form of the results: converted and transposed."""
        p = self.product
        at: Any = p
        if str(type_of(at).dtype) not in _HALVES:
            at = self.only_user(at)
            if not is_call(at, R.cast) or str(type_of(at).dtype) not in _HALVES:
                raise _No("its results are not 16-bit floats")
        dims = regrouped((*lead, row, column), static_shape(at) or ())
        if dims is None:
            raise _No("its results have another shape")
        view = best = View(at, dims)
        while True:
            user = self.only_user(view.expr)
            above = used_as(view, user) if isinstance(user, Call) else None
            if above is None:
                return best
            view = above
            if view.parts[-1] is column:
                best = view

    def only_user(self, e: Any) -> Any:
        users = self.search.users.get(e, [])
        return users[0] if len(users) == 1 else None


def _spread(mask: Any, dims: Any) -> Any:
    """The axes of the dimensions of a mask, which is broadcast over the scores."""
    shape = static_shape(mask)
    if shape is None or len(shape) > len(dims):
        raise _No("a mask is larger than the scores")
    return tuple(() if n == 1 else d for n, d in zip(shape, dims[len(dims) - len(shape) :], strict=True))


def _layer(e: Any) -> Call | None:
    """The dense layer that computes a tensor, with its bias."""
    while is_call(e, R.cast, R.add, R.nn.bias_add, R.reshape):
        e = e.args[0]
    return e if is_call(e, R.nn.dense, R.nn.matmul) else None


class _Put(Mutator):
    """Replaces attentions by their functions."""

    def __init__(self, groups: dict[Any, _Group]) -> None:
        super().__init__()
        self.groups = groups

    def dispatch(self, expr: Any) -> Any:
        group = self.groups.get(expr)
        if group is None or (isinstance(expr, Function) and is_kept_whole(expr)):
            return super().dispatch(expr)
        made = Call(group.function, [self.visit(e) for e in group.inputs], span=getattr(expr, "span", None))
        return R.reshape(made, newshape=list(group.shape))


GroupAttention = typed_pass(group_attention, name="GroupAttention", opt_level=2)
