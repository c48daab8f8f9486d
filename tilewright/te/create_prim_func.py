"""From tensor expressions to a loop program in blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from ..ir.deep import deep_programs
from ..ir.dtype import DataType
from ..ir.expr import BufferLoad, IterVar, PrimExpr, Range, Reduce, Var, const
from ..ir.function import PrimFunc
from ..ir.functor import rewrite, substitute, undefined_vars
from ..ir.ops import cast, if_then_else, is_one
from ..ir.sharing import too_shared
from ..ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, LetStmt, Stmt, seq
from ..tir.analysis.combiner import ANY_ORDER, steps_commute
from ..tir.analysis.regions import get_block_read_write_region
from .errors import refuse, shown
from .graph import OpGraph
from .lower_expr import LowerExpr
from .regions import read_regions
from .tensor import (
    ComputeOp,
    ExternOp,
    HybridOp,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorComputeOp,
    unique_nodes,
)
from .tensor_intrin import implementation


@dataclass(slots=True)
class _Axis:
    """An iterator of an operation as the loop over it and the iterator of its block."""

    source: Var | None
    loop: Var
    block: IterVar

    @property
    def spatial(self) -> bool:
        return self.block.iter_type != IterVar.CommReduce


class PrimFuncBuilder:
    """Makes one function: a block for each operation, under one loop for each of its iterators.

    `block_names` says which block belongs to which operation. The loops around a block stand for the
    operation's `axis` and then its `reduce_axis`, in order, without its `inner_axis`, which are loops in the block.
    """

    def __init__(
        self,
        args: Sequence[Tensor | Var | Buffer],
        outputs: Sequence[Tensor] | None = None,
        binds: Mapping[Tensor, Buffer] | None = None,
        index_type: str | None = None,
        scans_in_place: bool = False,
        apart: Iterable[Tensor] = (),
        staged: Mapping[Operation, str] | None = None,
    ) -> None:
        self.args = [_checked_arg(a, i) for i, a in enumerate(args)]
        self.apart = set(apart)  # arguments that are computed in memory of their own
        self.index_type = None if index_type is None else DataType(index_type)
        self.staged = dict(staged or {})  # computed in memory of a scope first, and then copied
        self.block_names: dict[Operation, str] = {}
        self.copy_names: dict[Operation, str] = {}  # of the blocks that copy what is staged
        self.buffers: dict[Tensor, Buffer] = dict(binds or {})
        self._names: dict[str, int] = {b.name: 0 for b in self.buffers.values()}
        self._blocks: dict[str, int] = {"root": 0}
        self._sizes: dict[Var, Var] = {}  # symbolic sizes, where index_type changes their type
        tensors = [a for a in self.args if isinstance(a, Tensor)]
        roots = [*tensors, *(binds or {}), *(outputs or ())]
        self.graph = OpGraph([t.op for t in roots])
        self._check_args(tensors)
        self.caches: list[Buffer] = []  # the memory of what is staged
        self.shared: dict[Tensor, Tensor] = {}  # what a scan starts and goes on with, in the scan's memory
        self.in_place = scans_in_place
        if scans_in_place:
            self._share_scans({*tensors, *(outputs or ())})

    def _share_scans(self, kept: set[Tensor]) -> None:
        """Let the steps of scans lie in their results, where nothing else must hold them."""
        for op in self.graph.order:
            if not isinstance(op, ScanOp):
                continue
            for k in range(op.num_outputs):
                for t in (op.init[k], op.update[k]):
                    if isinstance(t.op, ComputeOp) and t not in kept and t not in self.shared:
                        self.shared[t] = op.output(k)

    # -- arguments ------------------------------------------------------------------------
    def _check_args(self, tensors: list[Tensor]) -> None:
        seen: set[Any] = set()
        for a in self.args:
            if a in seen:
                raise refuse(f"`{a.name}` is given twice as an argument", what="create_prim_func")
            seen.add(a)
        given = {t.op for t in (*tensors, *self.buffers)}
        for op in self.graph.order:
            if isinstance(op, PlaceholderOp) and op not in self.graph.states and op not in given:
                raise refuse(
                    f"te.placeholder `{op.name}` is read but is not an argument",
                    "pass it to the function",
                    what="create_prim_func",
                    span=op.span,
                )
        for op, scan in self.graph.body_of.items():
            if op in given:
                raise refuse(
                    f"`{op.name}` is an argument, but it exists only inside the steps of {scan.what}",
                    what="create_prim_func",
                    span=op.span,
                )

    def _params(self) -> tuple[list[Var], dict[Var, Buffer]]:
        params: list[Var] = []
        table: dict[Var, Buffer] = {}
        for a in self.args:
            if isinstance(a, Var):
                params.append(a)
                continue
            buffer = a if isinstance(a, Buffer) else self.buffer_of(a)
            if a in self.apart:
                buffer = decl_buffer(buffer.shape, buffer.dtype, buffer.name)
            handle = Var(f"var_{buffer.name}", "handle")
            params.append(handle)
            table[handle] = buffer
        return params, table

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor; the state of a scan shares the buffer of its result."""
        found = self.buffers.get(tensor)
        if found is not None:
            return found
        if tensor in self.shared:
            return self.buffer_of(self.shared[tensor])
        if tensor.op in self.graph.states:
            return self.buffer_of(self.graph.states[tensor.op])
        shape = [self._lower({}).index(d) for d in tensor.shape]
        made = decl_buffer(shape, tensor.dtype, _fresh(tensor.name, self._names))
        self.buffers[tensor] = made
        return made

    def _lower(self, iterators: Mapping[Var, Var]) -> LowerExpr:
        return LowerExpr({**self._sizes, **iterators}, self.buffer_of, self.index_type)

    # -- the function ---------------------------------------------------------------------
    def build(self, name: str = "main") -> PrimFunc:
        if self.index_type is not None:
            self._widen_sizes()
        params, table = self._params()
        stmts: list[Stmt] = []
        for op in self.graph.order:
            if op in self.graph.body_of or isinstance(op, PlaceholderOp):
                continue
            stmts.append(self._statement(op))
        held = set(table.values())
        temporary = [
            self.buffer_of(t)
            for op in self.graph.order
            if not isinstance(op, PlaceholderOp)
            for t in op.outputs
            if self.buffer_of(t) not in held and t not in self.shared
        ]
        temporary += self.caches
        root = Block((), (), (), "root", seq(*stmts), alloc_buffers=temporary)
        body = BlockRealize((), True, root)
        self._check_bound(params, table, body)
        attrs: dict[str, Any] = {"global_symbol": name, "tir.noalias": True}
        free = self._layout_free()
        if free:
            attrs["layout_free_buffers"] = free
        return PrimFunc(params, body, buffer_map=table, attrs=attrs)

    def _widen_sizes(self) -> None:
        """Symbolic sizes of another type than the indices' become variables of that type."""
        assert self.index_type is not None
        for op in self.graph.order:
            for n in unique_nodes(d for t in op.outputs for d in t.shape):
                if (
                    isinstance(n, Var)
                    and n.dtype is not self.index_type
                    and not any(a is n for a in self.args)
                ):
                    self._sizes.setdefault(n, n.__class__(n.name, self.index_type))

    def _check_bound(self, params: list[Var], table: dict[Var, Buffer], body: Stmt) -> None:
        """Every variable has its value from an argument: as a scalar, or as a dimension of an array."""
        bound: set[Var] = set(params)
        for b in table.values():
            bound.add(b.data)
            bound.update(d for d in (*b.shape, *b.strides, b.elem_offset) if isinstance(d, Var))
        dims = [d for b in table.values() for d in b.shape]
        free = [n for n in unique_nodes(dims) if isinstance(n, Var) and n not in bound]
        free += undefined_vars(body, bound)
        if free:
            v = free[0]
            user = self._user_of(v.name)
            raise refuse(
                f"variable `{v.name}` has no value: it is neither an argument nor a dimension of an argument",
                f"pass `{v.name}` to the function",
                what="create_prim_func" if user is None else user.what,
                span=None if user is None else user.span,
            )

    def _user_of(self, name: str) -> Operation | None:
        """The first operation in which a variable of that name occurs."""
        for op in self.graph.order:
            parts: list[Any] = [d for t in op.outputs for d in t.shape]
            if isinstance(op, ComputeOp):
                parts += op.body
            if any(isinstance(n, Var) and n.name == name for n in unique_nodes(parts)):
                return op
        return None

    def _layout_free(self) -> list[int]:
        """The parameters whose layout the compiler may choose, by `attrs` of the operations."""
        tensors = [t for op in self.graph.order for t in op.attrs.get("layout_free_placeholders", ())]
        return sorted({i for i, a in enumerate(self.args) if a in tensors})

    # -- statements -----------------------------------------------------------------------
    def _statement(self, op: Operation) -> Stmt:
        if isinstance(op, (ComputeOp, TensorComputeOp)) and op in self.staged:
            return self._staged(op)
        if isinstance(op, ComputeOp):
            return self._compute(op, None)
        if isinstance(op, TensorComputeOp):
            return self._tiles(op)
        if isinstance(op, ExternOp):
            return self._extern(op)
        assert isinstance(op, ScanOp)
        return self._scan(op)

    def _block_name(self, op: Operation) -> str:
        name = self.block_names[op] = _fresh(op.name, self._blocks)
        return name

    def _axes(self, op: ComputeOp, time: _Axis | None) -> list[_Axis]:
        lower = self._lower({})
        out: list[_Axis] = []
        for iv in (*op.axis, *op.reduce_axis[: len(op.reduce_axis) - len(op.inner_axis)]):
            if time is not None and not out:
                # Only what holds the state must be computed step by step; a part of a step fills memory of its own.
                ordered = self._holds_state(op)
                block = time.block if ordered else time.block.replace(iter_type=IterVar.DataPar)
                out.append(_Axis(iv.var, time.loop, _renewed(block)))
                continue
            dom = Range.from_min_extent(lower.index(iv.dom.min), lower.index(iv.dom.extent))
            out.append(_axis(iv.var, dom, iv.var.name, iv.iter_type))
        return out

    def _staged(self, op: ComputeOp | TensorComputeOp) -> Stmt:
        """First all outputs into memory of a scope, then one copy of all of them."""
        scope = self.staged[op]
        results = [self.buffer_of(t) for t in op.outputs]
        names = [_fresh(f"{b.name}_{scope.replace('.', '_')}", self._names) for b in results]
        caches = [decl_buffer(b.shape, b.dtype, n, scope=scope) for b, n in zip(results, names, strict=True)]
        self.caches += caches
        first = self._compute(op, None, caches) if isinstance(op, ComputeOp) else self._tiles(op, caches)
        lower = self._lower({})
        axes = [
            _axis(
                iv.var,
                Range.from_min_extent(lower.index(iv.dom.min), lower.index(iv.dom.extent)),
                iv.var.name,
                0,
            )
            for iv in op.axis
        ]
        at = [a.block.var for a in axes]
        pairs = list(zip(results, caches, strict=True))
        name = self.copy_names[op] = _fresh(f"{op.name}_copy", self._blocks)
        block = Block(
            [a.block for a in axes],
            [BufferRegion.point(c, at) for _, c in pairs],
            [BufferRegion.point(b, at) for b, _ in pairs],
            name,
            seq(*(BufferStore(b, BufferLoad(c, tuple(at)), at) for b, c in pairs)),
            span=op.span,
        )
        return seq(first, _loops(axes, BlockRealize([a.loop for a in axes], True, block, span=op.span), op))

    def _holds_state(self, op: ComputeOp) -> bool:
        """Whether a part of a scan's step writes the memory that the next step reads."""
        return not self.in_place or any(t in self.shared for t in op.outputs)

    def _compute(self, op: ComputeOp, time: _Axis | None, into: list[Buffer] | None = None) -> Stmt:
        for value in op.body:
            reason = too_shared(value)
            if reason:
                hint = "make the part that is used often a te.compute of its own"
                raise refuse(reason, hint, what=f"te.compute `{op.name}`", span=op.span)
        axes = self._axes(op, time)
        table = {a.source: a.block.var for a in axes if a.source is not None}
        inner = {
            iv.var: Var(_identifier(iv.var.name), self._lower({}).index(iv.var).dtype) for iv in op.inner_axis
        }
        lower = self._lower({**table, **inner})
        at = [a.block.var for a in axes if a.spatial]
        buffers = into or [self.buffer_of(t) for t in op.outputs]
        init: Stmt | None = None
        first = op.body[0]
        if isinstance(first, Reduce):
            init, body, values = _reduction(first, lower, buffers, at)
            for iv in reversed(op.inner_axis):
                low, extent = lower.index(iv.dom.min), lower.index(iv.dom.extent)
                body = For(inner[iv.var], low, extent, ForKind.SERIAL, body, span=op.span)
                values += [low, extent]
            if op.inner_axis and all(a.spatial for a in axes):
                init, body = None, seq(init, body)
        else:
            values = [lower.visit(v) for v in op.body]
            body = seq(*(BufferStore(b, v, at) for b, v in zip(buffers, values, strict=True)))
        return self._nest(op, axes, read_regions(values, inner.values()), buffers, at, body, init, time)

    def _nest(
        self,
        op: ComputeOp,
        axes: list[_Axis],
        reads: list[BufferRegion],
        writes: list[Buffer],
        at: list[Var],
        body: Stmt,
        init: Stmt | None,
        time: _Axis | None,
    ) -> Stmt:
        iters, values = [a.block for a in axes], [a.loop for a in axes]
        points: list[PrimExpr] = list(values)
        if not iters:
            # A block without iterators is opaque to schedules; one that has a single point is not.
            kind = self.index_type or DataType("int32")
            iters = [IterVar(Range(const(0, kind), const(1, kind)), Var("vi", kind), IterVar.DataPar)]
            points = [const(0, kind)]
        block = Block(
            iters,
            reads,
            [BufferRegion.point(b, at) for b in writes],
            self._block_name(op),
            body,
            init,
            annotations={k: v for k, v in op.attrs.items() if k != "layout_free_placeholders"},
            span=op.span,
        )
        if init is not None and not steps_commute(block):
            # A `comm_reducer` is declared to be commutative.
            block = block.replace(annotations={**block.annotations, ANY_ORDER: True})
        return _loops(axes[0 if time is None else 1 :], BlockRealize(points, True, block, span=op.span), op)

    def _tiles(self, op: TensorComputeOp, into: list[Buffer] | None = None) -> Stmt:
        """A call of the intrinsic for each tile, over views of its operands."""
        lower = self._lower({})
        outer = (*op.axis[: op.schedulable_ndim], *op.reduce_axis)
        doms = [Range.from_min_extent(lower.index(iv.dom.min), lower.index(iv.dom.extent)) for iv in outer]
        axes = [_axis(iv.var, d, iv.var.name, iv.iter_type) for iv, d in zip(outer, doms, strict=True)]
        lower = self._lower({a.source: a.block.var for a in axes if a.source is not None})

        def part(buffer: Buffer, region: Sequence[Range]) -> BufferRegion:
            ranges = [Range.from_min_extent(lower.index(r.min), lower.index(r.extent)) for r in region]
            return BufferRegion(buffer, tuple(ranges))

        reads = [part(self.buffer_of(t), r) for t, r in zip(op.inputs, op.input_regions, strict=True)]
        tile = [Range.from_min_extent(iv.var, 1) for iv in op.axis[: op.schedulable_ndim]]
        tile += [iv.dom for iv in op.axis[op.schedulable_ndim :]]
        writes = [part(b, tile) for b in into or [self.buffer_of(t) for t in op.outputs]]
        views, init, body = implementation(op)
        scalars = {v: lower.visit(e) for v, e in zip(op.intrin.scalar_params, op.scalar_inputs, strict=True)}
        block = Block(
            [a.block for a in axes],
            reads,
            writes,
            self._block_name(op),
            substitute(body, scalars),
            None if init is None else substitute(init, scalars),
            match_buffers=[MatchBufferRegion(v, r) for v, r in zip(views, (*reads, *writes), strict=True)],
            annotations=dict(op.attrs),
            span=op.span,
        )
        return _loops(axes, BlockRealize([a.loop for a in axes], True, block, span=op.span), op)

    def _extern(self, op: ExternOp) -> Stmt:
        pairs = [
            *zip(op.input_placeholders, [self.buffer_of(t) for t in op.inputs], strict=True),
            *zip(op.output_placeholders, [self.buffer_of(t) for t in op.outputs], strict=True),
        ]
        table: dict[Var, PrimExpr] = {n: cast(n.dtype, w) for n, w in self._sizes.items()}
        buffers: dict[Buffer, Buffer] = {}
        for stand_in, actual in pairs:
            buffers[stand_in] = actual
            table[stand_in.data] = actual.data
            facts = zip(
                (stand_in.elem_offset, *stand_in.shape, *stand_in.strides),
                (actual.elem_offset, *actual.shape, *actual.dense_strides()),
                strict=False,
            )
            for old, new in facts:
                if isinstance(old, Var) and old is not new:
                    table[old] = cast(old.dtype, new)
        body = substitute(op.body, table, buffers)
        name = self._block_name(op)
        if isinstance(op, HybridOp) and op.axis:
            return self._hybrid(op, body, name, {actual for _, actual in pairs})
        block = Block(
            (),
            [BufferRegion.full(b) for _, b in pairs[: len(op.inputs)]],
            [BufferRegion.full(b) for _, b in pairs[len(op.inputs) :]],
            name,
            rewrite(body, {Block: lambda b: b.replace(name_hint=_fresh(b.name_hint, self._blocks))}),
            annotations=dict(op.attrs),
            span=op.span,
        )
        return BlockRealize((), True, block, span=op.span)

    def _hybrid(self, op: HybridOp, body: Stmt, name: str, tensors: set[Buffer]) -> Stmt:
        """The loops of a script around a block of what is in them, where memory of its own may be."""
        axes: list[_Axis] = []
        for iv in op.axis:
            assert isinstance(body, For)
            axes.append(_axis(body.loop_var, body.dom, body.loop_var.name, iv.iter_type))
            body = body.body
        body = substitute(body, {a.source: a.block.var for a in axes if a.source is not None})
        block = Block([a.block for a in axes], (), (), name, body, annotations=dict(op.attrs), span=op.span)
        reads, writes = (
            [r for r in each if r.buffer in tensors] for each in get_block_read_write_region(block)
        )
        realize = BlockRealize(
            [a.loop for a in axes], True, block.replace(reads=reads, writes=writes), span=op.span
        )
        return _loops(axes, realize, op)

    def _scan(self, op: ScanOp) -> Stmt:
        """First the steps that are given, then one step after the other.

        for t, i in grid(1, n):         scan[t, i] = init[t, i]
        for t in range(1, m):
            …                           update[t, i] = …
            for i in range(n):          scan[t, i] = update[t, i]
        """
        stmts = [self._copy(op, k, t, None, "_init") for k, t in enumerate(op.init) if t not in self.shared]
        lower = self._lower({})
        dom = Range.from_min_extent(lower.index(op.scan_axis.dom.min), lower.index(op.scan_axis.dom.extent))
        time = _axis(None, dom, op.scan_axis.var.name, IterVar.Ordered)
        steps = [self._compute(body, time) for body in self.graph.body(op)]
        steps += [self._copy(op, k, t, time, "") for k, t in enumerate(op.update) if t not in self.shared]
        loop = For(time.loop, dom.min, dom.extent, ForKind.SERIAL, seq(*steps), span=op.span)
        return seq(*stmts, loop)

    def _copy(self, op: ScanOp, index: int, source: Tensor, time: _Axis | None, suffix: str) -> Stmt:
        """One state of a scan from the tensor that gives it."""
        result, given = self.buffer_of(op.output(index)), self.buffer_of(source)
        axes = [] if time is None else [_Axis(None, time.loop, _renewed(time.block))]
        for d, dim in enumerate(given.shape[len(axes) :], len(axes)):
            axes.append(_axis(None, Range(dim), f"i{d}", IterVar.DataPar))
        at = [a.block.var for a in axes]
        name = _fresh(f"{op.output(index).name}{suffix}", self._blocks)
        if not suffix:
            self.block_names.setdefault(op, name)
        block = Block(
            [a.block for a in axes],
            [BufferRegion.point(given, at)],
            [BufferRegion.point(result, at)],
            name,
            BufferStore(result, BufferLoad(given, tuple(at)), at),
            annotations=dict(op.attrs),
            span=op.span,
        )
        realize = BlockRealize([a.loop for a in axes], True, block, span=op.span)
        return _loops(axes[0 if time is None else 1 :], realize, op)


def _reduction(
    r: Reduce, lower: LowerExpr, buffers: list[Buffer], at: list[Var]
) -> tuple[Stmt, Stmt, list[PrimExpr]]:
    """The start, the step and what the step reads besides its own result.

    Where the condition does not hold, the identity takes the place of the value. All parts of a tuple are
    combined before the first is stored, since each may depend on the others.
    """
    source = [lower.visit(s) for s in r.source]
    if not is_one(r.condition):
        condition = lower.visit(r.condition)
        source = [
            if_then_else(condition, s, e) for s, e in zip(source, r.combiner.identity_element, strict=True)
        ]
    start = [lower.visit(e) for e in r.init or r.combiner.identity_element]
    init = seq(*(BufferStore(b, e, at) for b, e in zip(buffers, start, strict=True)))
    made = r.combiner([BufferLoad(b, tuple(at)) for b in buffers], source)
    known = {*r.combiner.lhs, *r.combiner.rhs}
    if any(isinstance(n, Var) and n not in known for n in unique_nodes(r.combiner.result)):
        made = tuple(lower.visit(e) for e in made)  # it depends on the point
    if len(buffers) == 1:
        return init, BufferStore(buffers[0], made[0], at), [*start, *source]
    parts = [Var(f"v_{b.name}", b.dtype) for b in buffers]
    body = seq(*(BufferStore(b, v, at) for b, v in zip(buffers, parts, strict=True)))
    for v, value in reversed(list(zip(parts, made, strict=True))):
        body = LetStmt(v, value, body)
    return init, body, [*start, *source]


def _axis(source: Var | None, dom: Range, name: str, iter_type: int) -> _Axis:
    name, kind = _identifier(name), dom.extent.dtype
    return _Axis(source, Var(name, kind), IterVar(dom, Var(f"v_{name}", kind), iter_type))


def _renewed(iv: IterVar) -> IterVar:
    """The same iterator for another block."""
    return IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.iter_type)


def _loops(axes: list[_Axis], body: Stmt, op: Operation) -> Stmt:
    for a in reversed(axes):
        body = For(a.loop, a.block.dom.min, a.block.dom.extent, ForKind.SERIAL, body, span=op.span)
    return body


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name) or "_"
    return f"_{made}" if made[0].isdigit() else made


def _fresh(name: str, taken: dict[str, int]) -> str:
    """`name`, or with a number behind it if it is taken; `taken` remembers where to go on counting."""
    base = made = _identifier(name)
    n = taken.get(base, 0)
    while made in taken:
        n += 1
        made = f"{base}_{n}"
    taken[base] = n
    taken.setdefault(made, 0)
    return made


def _checked_arg(arg: Any, position: int) -> Tensor | Var | Buffer:
    if isinstance(arg, (Tensor, Var, Buffer)):
        return arg
    raise refuse(
        f"argument {position} is {shown(arg)} and must be a tensor or a variable", what="create_prim_func"
    )


def build_prim_func(
    args: Sequence[Tensor | Var | Buffer],
    *,
    outputs: Sequence[Tensor] | None = None,
    binds: Mapping[Tensor, Buffer] | None = None,
    index_dtype_override: str | None = None,
    name: str = "main",
    scans_in_place: bool = False,
    apart: Iterable[Tensor] = (),
) -> tuple[PrimFunc, dict[Operation, str]]:
    """The function over `args` that computes them and `outputs`, and the name of each operation's block.

    The arguments in `apart` are computed in buffers of the function, and the memory of the caller is left alone.
    """
    builder = PrimFuncBuilder(args, outputs, binds, index_dtype_override, scans_in_place, apart)
    return builder.build(name), builder.block_names


def create_prim_func(
    ops: Iterable[Tensor | Var] | Tensor,
    *more: Tensor | Var | str | None,
    index_dtype_override: str | None = None,
) -> PrimFunc:
    """The loop program that computes tensor expressions. Its parameters are the given tensors and variables, in order.

    func = te.create_prim_func([A, B, C])

    `index_dtype_override` is the type of loops and indices, such as "int64"; it may stand behind the list.
    """
    first = [ops] if isinstance(ops, (Tensor, Var)) else list(ops)
    if len(more) == 1 and (more[0] is None or isinstance(more[0], str)):
        index_dtype_override, more = more[0], ()
    with deep_programs():
        return build_prim_func([*first, *more], index_dtype_override=index_dtype_override)[0]  # type: ignore[list-item]
