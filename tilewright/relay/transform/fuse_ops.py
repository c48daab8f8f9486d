"""FuseOps: operators that can share a kernel become one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, Pass, PassContext, PassInfo, register_pass
from ...target import Target
from .. import op as R
from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from ..op.registry import OpPattern, RelayOp
from ..op.traits import traits_of
from ..ty import TensorType, is_dynamic
from ..visitor import in_order
from .infer_type import infer_module
from .join_results import join_results
from .rewriting import is_call
from .split_args import short_joins

_ELEMWISE, _BROADCAST, _INJECTIVE, _REDUCE, _FUSABLE, _TUPLE, _OPAQUE = map(int, OpPattern)

REARRANGEMENTS: Final = 8


def is_primitive(expr: Any) -> bool:
    """Whether an expression is a function that becomes one kernel."""
    return isinstance(expr, Function) and bool(expr.attrs.get("Primitive"))


def map_graphs(mod: IRModule, work: Callable[[Function], Function]) -> IRModule:
    """A module with its graph functions changed; kernels and functions of loops are not."""
    return mod.map_functions(lambda f: work(f) if isinstance(f, Function) and not is_primitive(f) else f)


def fuse_ops(
    func: Function, level: int = 2, max_depth: int = 256, rows: bool = False, link: bool = False
) -> Function:
    """Partition a function into functions that each become one kernel.

        %0 = nn.conv2d(%x, %w)               %f = fn (%p0, %p1, %p2, Primitive=1) {
        %1 = add(%0, %b)              ->            nn.relu(add(nn.conv2d(%p0, %p1), %p2)) }
        nn.relu(%1)                          %f(%x, %w, %b)

    A node is fused with its immediate post-dominator, and all nodes between them, where the patterns of the operators
    allow it: elementwise and injective operators are fused into elementwise, injective or reduction operators; a
    convolution takes an elementwise epilogue. Where kernels hold whole `rows`, reductions along them are fused with the
    operators on these rows (a norm). At level 0 each operator is a function of its own. Numbers are part of a function;
    with `link`, so are arrays.
    Needs: types.
    """
    func = short_joins(func)
    graph = _Graph(func)
    groups = _Groups(graph, max_depth, rows)
    if level >= 1:
        groups.join_all()
    body = _Emit(graph, groups, link).run(func.body)
    return func.updated(body=body)


class _Node:
    """An expression in the def-use graph, with its position in the post-dominator tree."""

    __slots__ = ("depth", "expr", "index", "outs", "parent", "path", "pattern")

    def __init__(self, expr: Any, index: int, pattern: int) -> None:
        self.expr, self.index, self.pattern = expr, index, pattern
        self.outs: list[tuple[_Node, int]] = []  # users, and the patterns of their reads
        self.parent: _Node | None = None  # immediate post-dominator
        self.path = _OPAQUE  # the least regular pattern on the paths to it
        self.depth = 0


def _order(root: Any) -> list[Any]:
    """Every expression once, in post-order; existing kernels are not entered."""

    def inside(e: Any) -> list[Any]:
        return [] if is_primitive(e) else [b for b in e.children() if isinstance(b, Expr)]

    return in_order(root, inside)


class _Graph:
    """The expressions of a function and their post-dominator tree."""

    def __init__(self, func: Function) -> None:
        self.nodes = [_Node(e, i, _pattern(e)) for i, e in enumerate(_order(func.body))]
        self.at: dict[Any, _Node] = {n.expr: n for n in self.nodes}
        for n in self.nodes:
            for child, way in _reads(n):
                below = self.at.get(child)
                if below is not None:
                    below.outs.append((n, way))
        self.at[func.body].outs.append((self.at[func.body], _OPAQUE))
        for n in reversed(self.nodes):
            self._dominate(n)
        self._part_long_rearrangements()

    def _part_long_rearrangements(self) -> None:
        """Limit the length of chains of index-rearranging operators in a kernel.

        The index expression of the final load composes those of all operators: it grows with each one.
        """
        since: dict[Any, int] = {}
        for n in self.nodes:
            if n.pattern > _INJECTIVE and n.pattern != _TUPLE:
                continue
            count = (
                max((since.get(child, 0) for child in n.expr.children()), default=0)
                + traits_of(n.expr).rearranges
            )
            if count >= REARRANGEMENTS:
                n.path, count = _OPAQUE, 0  # the next operators are another kernel
            since[n.expr] = count

    def _dominate(self, n: _Node) -> None:
        """Find the immediate post-dominator of `n`."""
        meet: _Node | None = None
        path = _ELEMWISE
        for i, (user, way) in enumerate(n.outs):
            if user is n:  # the result of the function
                meet, path = None, _OPAQUE
                break
            path = max(path, way)
            if i == 0:
                meet = user
                continue
            meet, extra = _meet(meet, user)
            path = max(path, extra)
            if meet is None:
                break
        if meet is None:
            n.parent, n.path, n.depth = None, _OPAQUE, 0
        else:
            n.parent, n.path, n.depth = meet, path, meet.depth + 1


def _meet(a: _Node | None, b: _Node | None) -> tuple[_Node | None, int]:
    """The lowest common ancestor of two nodes in the tree, and the least regular pattern on the paths to it."""
    way = _ELEMWISE
    while a is not b:
        if a is None or b is None:
            return None, _OPAQUE
        if a.depth >= b.depth:
            way, last = max(way, a.path), a.depth == b.depth
            a = a.parent
            if last:
                way, b = max(way, b.path), b.parent
        else:
            way, b = max(way, b.path), b.parent
    return a, way


def _pattern(expr: Any) -> int:
    if expr.__class__ is Call and isinstance(expr.op, RelayOp):
        # a kernel whose result size depends on values is compiled for these values
        by_value = expr.op.name.startswith("dyn.") and is_dynamic(expr.checked_type)
        return _OPAQUE if by_value else int(expr.op.pattern)
    if expr.__class__ is Tuple:
        tensors = all(isinstance(f._checked_type, TensorType) for f in expr.fields)
        return _TUPLE if tensors and expr.fields else _OPAQUE
    if expr.__class__ is TupleGetItem:
        return _INJECTIVE if isinstance(expr._checked_type, TensorType) else _OPAQUE
    return _OPAQUE


def _reads(n: _Node) -> Iterable[tuple[Any, int]]:
    """The operands of a node, and the pattern of each read."""
    expr = n.expr
    if is_primitive(expr):
        return
    if expr.__class__ is Tuple or expr.__class__ is TupleGetItem:
        for child in expr.children():
            yield child, min(n.pattern, _INJECTIVE) if n.pattern != _OPAQUE else _OPAQUE
        return
    once = _read_once(expr)
    for child in expr.children():
        way = n.pattern
        if any(child is e for e in once):
            way = _INJECTIVE
        elif way == _BROADCAST:
            kind, own = child._checked_type, expr._checked_type
            way = _ELEMWISE if kind == own or _same_shape(kind, own) else way
        yield child, way


def _read_once(expr: Any) -> list[Any]:
    """The operands whose elements an operator reads at most once."""
    found = traits_of(expr).reads_once
    if found is None or any(not isinstance(a._checked_type, TensorType) for a in expr.args):
        return []
    return [expr.args[i] for i in found([a._checked_type for a in expr.args], expr.attrs)]


class _Rows(NamedTuple):
    """The shape of a tensor that is reduced along its last dimensions, and that of the result with kept dimensions."""

    whole: tuple[Any, ...]
    each: tuple[Any, ...]


def _rows_of(expr: Any) -> _Rows | None:
    """The rows that a reduction covers; a row may span several last dimensions."""
    if expr.__class__ is not Call or _pattern(expr) != _REDUCE or not isinstance(expr.op, RelayOp):
        return None
    given, kind = expr.args[0]._checked_type, expr._checked_type
    if not isinstance(given, TensorType) or not isinstance(kind, TensorType) or is_dynamic(given):
        return None
    whole, each = given.shape, kind.shape
    first = next((i for i, (n, m) in enumerate(zip(whole, each, strict=False)) if n != m), len(whole))
    if len(whole) != len(each) or first == len(whole) or any(n != 1 for n in each[first:]):
        return None
    return _Rows(whole, each)


def _has_shape(expr: Any, *shapes: tuple[Any, ...]) -> bool:
    kind = expr._checked_type
    return isinstance(kind, TensorType) and kind.shape in shapes


def _is_whole(expr: Any) -> bool:
    """Whether an operand has the shape of the result, or is a scalar."""
    shapes = [c._checked_type for c in expr.children() if isinstance(c, Expr)]
    return all(isinstance(k, TensorType) and k.shape in ((), expr._checked_type.shape) for k in shapes)


def _over_rows(n: _Node, sink: _Node, rows: _Rows) -> bool:
    """Whether all operators after a reduction work on rows, or on one value per row."""
    stack, seen = [n], {n.index}
    while stack:
        for user, _ in stack.pop().outs:
            regular = user.pattern <= _BROADCAST and _has_shape(user.expr, *rows)
            if not regular and (user is sink or _rows_of(user.expr) != rows):
                return False
            if user is not sink and user.index not in seen:
                seen.add(user.index)
                stack.append(user)
    return True


def _keeps_rows(fn: Function) -> bool:
    """Whether a kernel reduces rows and returns the rows, transformed or not."""
    found = [_rows_of(e) for e in _order(fn.body)]
    return any(rows is not None and _has_shape(fn.body, rows.whole) for rows in found)


def _is_border(pad: Any, conv: Any) -> bool:
    return (
        is_call(pad, R.nn.pad)
        and pad.attrs.pad_mode == "constant"
        and isinstance(pad.args[1], Constant)
        and "kernel_layout" in conv.attrs
        and pad is conv.args[0]
        and pad is not conv.args[1]
    )


def _width(expr: Any) -> int:
    kind = expr._checked_type
    return kind.dtype.bits if isinstance(kind, TensorType) else 0


def _same_shape(a: Any, b: Any) -> bool:
    return isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape == b.shape


class _Groups:
    """The fusion groups: union-find over the nodes, the root of a group is its last node."""

    def __init__(self, graph: _Graph, max_depth: int, rows: bool) -> None:
        self.nodes, self.max_depth, self.rows = graph.nodes, max_depth, rows
        self.up = list(range(len(graph.nodes)))
        self.pattern = [n.pattern for n in graph.nodes]
        self.size = [1] * len(graph.nodes)
        self.anchored = [n.pattern == _FUSABLE for n in graph.nodes]
        self.held = [False] * len(graph.nodes)  # whether it works on whole rows

    def root(self, index: int) -> int:
        up = self.up
        while up[index] != index:
            up[index] = up[up[index]]
            index = up[index]
        return index

    def join_all(self) -> None:
        phases = (
            self.join_borders,
            self.join_anchored,
            *([self.join_rows] if self.rows else []),
            self.join_regular,
            self.join_injective,
            self.join_fields,
        )
        for phase in phases:
            for n in self.nodes:
                if n.parent is not None and n.pattern != _OPAQUE and n.path != _OPAQUE:
                    phase(n, self.root(n.index), self.root(n.parent.index))

    def join_borders(self, n: _Node, own: int, to: int) -> None:
        """Fuse the constant border of an image with the convolution that reads it, which makes such borders itself."""
        assert n.parent is not None
        conv = n.parent.expr
        if n.path == _FUSABLE and [user for user, _ in n.outs] == [n.parent] and _is_border(n.expr, conv):
            self.merge(own, to)

    def join_anchored(self, n: _Node, own: int, to: int) -> None:
        """Fuse the epilogues of convolutions and products."""
        assert n.parent is not None
        if (
            own != to
            and self.pattern[own] == _FUSABLE
            and n.path == _ELEMWISE
            and not self.is_widened_later(n)
        ):
            self.join(n, n.parent, lambda k, last: k <= _BROADCAST)

    def is_widened_later(self, n: _Node) -> bool:
        """Whether the results of a kernel are widened only for the epilogue of another product, as the second operand
        of a residual addition is: they are written in the narrow type, and widened where they are read."""
        at = n.parent
        if at is None or _width(n.expr) >= _width(at.expr):
            return False
        while at.parent is not None and at.path == _ELEMWISE and at.pattern <= _BROADCAST:
            if self.anchored[self.root(at.index)]:
                return self.root(at.index) != self.root(n.index)
            at = at.parent
        return self.anchored[self.root(at.index)] and self.root(at.index) != self.root(n.index)

    def join_rows(self, n: _Node, own: int, to: int) -> None:
        """Fuse a reduction along rows with the operators on its results, up to their use with the rows."""
        rows = _rows_of(n.expr)
        if rows is None:
            return
        sinks: list[_Node] = []
        at: _Node | None = n
        while at is not None and at.parent is not None and at.path <= _REDUCE:
            at = at.parent
            sinks.append(at)
            if not _has_shape(at.expr, rows.each):
                break
        for sink in reversed(sinks):
            if self.root(sink.index) != self.root(n.index) and _over_rows(n, sink, rows):
                self.join(n, sink, lambda k, last: k <= _BROADCAST or (k == _REDUCE and not last))
            if self.root(sink.index) == self.root(n.index):
                self.held[self.root(n.index)] = True
                return

    def join_regular(self, n: _Node, own: int, to: int) -> None:
        """Fuse elementwise operators."""
        assert n.parent is not None
        if own == to or self.pattern[to] == _TUPLE:
            return
        if self.held[own] and (n.path != _ELEMWISE or self.pattern[to] > _BROADCAST):
            return
        if self.held[to] and not _is_whole(n.expr):
            return  # values shared by several rows would be treated as one matrix
        if self.anchored[to] and n.path != _ELEMWISE:
            return  # a small tensor would be recomputed for each element that it is broadcast to
        if self.pattern[own] <= _BROADCAST and (n.path <= _INJECTIVE or n.path == _REDUCE):
            self.join(n, n.parent, lambda k, last: k <= (_FUSABLE if last else _INJECTIVE))

    def join_injective(self, n: _Node, own: int, to: int) -> None:
        """Fuse injective operators into regular consumers, and tuples into their consumers."""
        assert n.parent is not None
        if own == to or self.pattern[to] == _TUPLE or self.held[to]:
            return
        if self.pattern[own] in (_INJECTIVE, _TUPLE) and n.path <= _INJECTIVE:
            most = (
                _FUSABLE if n.parent.pattern == _FUSABLE else _INJECTIVE
            )  # only from operands that are read once
            self.join(
                n, n.parent, lambda k, last: k <= (most if last else _INJECTIVE) or (k == _TUPLE and not last)
            )

    def join_fields(self, n: _Node, own: int, to: int) -> None:
        """Fuse fields of a tuple that was fused with its consumer."""
        assert n.parent is not None
        if own == to or self.pattern[own] > _INJECTIVE or n.path > _INJECTIVE or self.held[own]:
            return
        if n.parent.pattern == _TUPLE and self.pattern[to] <= _INJECTIVE:
            self.join(n, n.parent, lambda k, last: k <= _INJECTIVE)

    def join(self, source: _Node, sink: _Node, allows: Callable[[int, bool], bool]) -> None:
        """Merge `source`, and all nodes between it and `sink`, into the group of `sink` if all may be fused."""
        between: dict[int, _Node] = {}
        roots: dict[int, int] = {}
        stack = [source]
        goal = self.root(sink.index)
        room = self.max_depth - self.size[goal]
        while stack:
            at = stack.pop()
            if at.index in between:
                continue
            own = self.root(at.index)
            if own != goal and own not in roots:
                roots[own] = self.size[own]
                room -= self.size[own]
                if room < 0:
                    return
            if at is not source and own != goal and not allows(self.pattern[own], False):
                return
            between[at.index] = at
            stack.extend(user for user, _ in at.outs if user is not sink)
        if not allows(self.pattern[goal], True):
            return
        for own in roots:
            self.merge(own, goal)

    def merge(self, child: int, parent: int) -> None:
        self.up[child] = parent
        self.size[parent] += self.size[child]
        self.held[parent] |= self.held[child]
        if self.anchored[child]:
            self.anchored[parent] = True
            self.pattern[parent] = max(self.pattern[parent], self.pattern[child])


class _Emit:
    """Rebuilds the function with one call for each group."""

    def __init__(self, graph: _Graph, groups: _Groups, link: bool) -> None:
        self.graph, self.groups, self.link = graph, groups, link
        self.members: dict[int, list[_Node]] = {}
        for n in graph.nodes:
            self.members.setdefault(groups.root(n.index), []).append(n)
        self.new: dict[Any, Any] = {}

    def run(self, body: Any) -> Any:
        for n in self.graph.nodes:
            group = self.members[self.groups.root(n.index)]
            is_root = self.groups.root(n.index) == n.index
            if traits_of(n.expr).barrier and len(group) == 1:
                (value,) = n.expr.args
                self.new[n.expr] = self.new.get(value, value)
            elif _has_operator(group):
                if is_root:
                    self.new[n.expr] = self.call(group, n.expr)
                elif n.expr.__class__ is TupleGetItem:  # may be an argument of its group: see `call`
                    self.new[n.expr] = self.plain(n.expr)
            else:
                self.new[n.expr] = self.plain(n.expr)
        return self.new[body]

    def plain(self, expr: Any) -> Any:
        if is_primitive(expr):
            return expr
        return expr.map_children(lambda c: self.new.get(c, c))

    def call(self, group: list[_Node], root: Any) -> Call:
        """The call of a group's function; its arguments are the values from outside."""
        inner: dict[Any, Any] = {}
        params: dict[Any, Var] = {}
        inside = {n.expr for n in group}

        def take(child: Any) -> Any:
            if child in inner:
                return inner[child]
            if (child.__class__ is Constant and (child.is_scalar or self.link)) or isinstance(child, Op):
                return child
            if child not in params:
                params[child] = Var(f"p{len(params)}", child.checked_type)
            return params[child]

        for n in group:
            if n.expr.__class__ is TupleGetItem and n.expr.tuple_value not in inside:
                continue  # only the field is an argument
            inner[n.expr] = n.expr.map_children(take)
        args = [self.new.get(a, a) for a in params]
        fn = Function(list(params.values()), inner[root], root.checked_type, None, {"Primitive": 1})
        return Call(fn, args, span=root.span)


def _has_operator(group: list[_Node]) -> bool:
    """Whether a group computes anything: a tuple or an element of one alone does not."""
    return any(n.expr.__class__ is Call and isinstance(n.expr.op, RelayOp) for n in group)


_INFO: Final = PassInfo(0, "FuseOps", ("InferType",))


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """The pass; `fuse_opt_level` 0 fuses nothing, and -1 means the level of the context, 0 where it is disabled."""

    def work(mod: IRModule, ctx: PassContext) -> IRModule:
        off = _INFO.name in ctx.disabled_pass  # the backend still needs functions: one for each operator
        level = fuse_opt_level if fuse_opt_level >= 0 else 0 if off else ctx.opt_level
        depth = int(ctx.option("relay.FuseOps.max_depth"))
        target = Target.current(allow_none=True)
        rows = target is not None and target.is_gpu
        link = bool(ctx.option("relay.FuseOps.link_params"))
        fused = infer_module(map_graphs(mod, lambda f: fuse_ops(f, level, depth, rows, link)))
        if not rows or level < 1:
            return fused
        return infer_module(map_graphs(fused, lambda f: join_results(f, _keeps_rows)))

    return ModulePass(work, _INFO)


register_pass("FuseOps", FuseOps)
