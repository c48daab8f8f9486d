"""`te.decl_tensor_intrin`: an instruction of the hardware, by the tensor expression that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..ir.buffer import Buffer, BufferRegion, decl_buffer
from ..ir.errors import UnsupportedError
from ..ir.expr import IterVar, PrimExpr, ProducerLoad, Range, Var, convert
from ..ir.function import PrimFunc
from ..ir.functor import renew_defs, rewrite
from ..ir.stmt import Block, BlockRealize, Evaluate, For, Stmt
from .errors import refuse
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor, TensorSlice

Declared = tuple[PrimFunc, PrimFunc]


class TensorIntrin:
    """A hardware instruction: its computation (`op`, over `buffers`) and the statements that call it.

    `body` computes all of it. For a reduction, `reduce_init` sets the result to its start and
    `reduce_update` adds one more part to it.
    """

    def __init__(
        self,
        name: str,
        op: ComputeOp,
        buffers: Sequence[Buffer],
        body: Stmt | None,
        reduce_init: Stmt | None,
        reduce_update: Stmt | None,
        scalar_params: Sequence[Var] = (),
    ) -> None:
        self.name, self.op, self.inputs = name, op, op.input_tensors
        self.buffers = tuple(buffers)
        self.body, self.reduce_init, self.reduce_update = body, reduce_init, reduce_update
        self.scalar_params = tuple(scalar_params)

    def __call__(self, *args: Any, reduce_axis: Any = None) -> TensorIntrinCall:
        """A call inside of te.compute, of parts of tensors (`A[i, 0:16]`) and of values for the scalar parameters.

        te.compute((64, 16), lambda i: vadd(A[i, 0:16], B[i, 0:16]))
        """
        what = f"tensor intrinsic {self.name}"
        parts = [a for a in args if isinstance(a, (TensorSlice, ProducerLoad))]
        scalars = [convert(a) for a in args if not isinstance(a, (TensorSlice, ProducerLoad))]
        if len(parts) != len(self.inputs) or len(scalars) != len(self.scalar_params):
            raise refuse(
                f"it takes {len(self.inputs)} tensors and {len(self.scalar_params)} scalars, and is called with "
                f"{len(parts)} and {len(scalars)}",
                what=what,
            )
        axes = [] if reduce_axis is None else reduce_axis
        axes = [axes] if isinstance(axes, IterVar) else list(axes)
        if axes and (self.reduce_init is None or self.reduce_update is None):
            raise refuse(
                "it is called with reduce_axis= and has no reduce_init and reduce_update",
                "let its function return (body, reduce_init, reduce_update)",
                what=what,
            )
        tensors = [p.tensor if isinstance(p, TensorSlice) else p.producer for p in parts]
        return TensorIntrinCall(self, tensors, [_region(p) for p in parts], axes, scalars)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"

    # -- as functions ----------------------------------------------------------------------
    def forms(self) -> tuple[Declared | None, Declared | None, Declared | None]:
        """Description and implementation of the whole computation, of the init, and of one update."""
        if self.scalar_params:
            raise UnsupportedError(
                f"tensor intrinsic {self.name} has scalar parameters, which tensorize does not find; call it inside of "
                "te.compute"
            )
        desc = self._describe()
        count = len(self.inputs)
        ins, outs = self.buffers[:count], self.buffers[count:]
        whole = reset = update = None
        if self.body is not None:
            whole = desc, _function(ins, outs, ins, self.body)
        if self.reduce_init is not None:
            reset = _start_of(desc, count), _function((), outs, (), self.reduce_init)
        if self.reduce_update is not None:
            step = rewrite(desc.body, {Block: lambda b: b if b.init is None else b.replace(init=None)})
            update = desc.replace(body=step), _function(ins, outs, self.buffers, self.reduce_update)
        return whole, reset, update

    def _describe(self) -> PrimFunc:
        tensors = [*self.inputs, *self.op.outputs]
        plain = {
            t: decl_buffer(b.shape, b.dtype, b.name, scope=b.scope())
            for t, b in zip(tensors, self.buffers, strict=True)
        }
        from .create_prim_func import build_prim_func  # which asks this module what calls do

        return build_prim_func(tensors, binds=plain, name=self.name)[0]


class TensorIntrinCall(NamedTuple):
    """A call of a tensor intrinsic, which `te.compute` makes an operation of."""

    intrin: TensorIntrin
    tensors: list[Tensor]
    regions: list[list[Range]]
    reduce_axis: list[IterVar]
    scalar_inputs: list[PrimExpr]


def _region(part: TensorSlice | ProducerLoad) -> list[Range]:
    tensor = part.tensor if isinstance(part, TensorSlice) else part.producer
    at = [*part.indices, *[slice(None)] * (len(tensor.shape) - len(part.indices))]
    ranges = []
    for index, dim in zip(at, tensor.shape, strict=True):
        if not isinstance(index, slice):
            ranges.append(Range.from_min_extent(convert(index), 1))
            continue
        if index.step not in (None, 1):
            raise refuse(f"a part of `{tensor.name}` has the step {index.step}, and must be dense")
        ranges.append(
            Range(0 if index.start is None else index.start, dim if index.stop is None else index.stop)
        )
    return ranges


def implementation(call: Any) -> tuple[tuple[Buffer, ...], Stmt | None, Stmt]:
    """Buffers of its own for a call of an intrinsic, and what it does with them first, and at each step."""
    intrin = call.intrin
    count = len(intrin.inputs)
    ins, outs = intrin.buffers[:count], intrin.buffers[count:]
    body, init = intrin.body, None
    if call.reduce_axis:
        body, init = intrin.reduce_update, intrin.reduce_init
    if body is None:
        raise refuse("its function gave no body", what=f"tensor intrinsic {intrin.name}")
    func = _function(ins, outs, intrin.buffers, body)
    assert isinstance(func.body, BlockRealize)
    if init is not None:
        func = func.replace(body=func.body.replace(block=func.body.block.replace(init=init)))
    made = renew_defs(func)
    assert isinstance(made.body, BlockRealize)
    return tuple(made.buffer_map[p] for p in made.params), made.body.block.init, made.body.block.body


def _function(ins: Sequence[Buffer], outs: Sequence[Buffer], reads: Sequence[Buffer], body: Stmt) -> PrimFunc:
    buffers = (*ins, *outs)
    params = [Var(f"var_{b.name}", "handle") for b in buffers]
    block = Block(
        (), [BufferRegion.full(b) for b in reads], [BufferRegion.full(b) for b in outs], "root", body
    )
    return PrimFunc(params, BlockRealize((), True, block), buffer_map=dict(zip(params, buffers, strict=True)))


def _start_of(desc: PrimFunc, inputs: int) -> PrimFunc:
    """The description of what a reduction does first: its init over the spatial loops."""
    assert isinstance(desc.body, BlockRealize)
    loops: list[For] = []
    at: Stmt = desc.body.block.body
    while isinstance(at, For):
        loops.append(at)
        at = at.body
    assert isinstance(at, BlockRealize) and at.block.init is not None
    kept = [(iv, v) for iv, v in at.bindings if not iv.is_reduction]
    block = Block([iv for iv, _ in kept], (), at.block.writes, f"{at.block.name_hint}_init", at.block.init)
    made: Stmt = BlockRealize([v for _, v in kept], True, block)
    for x in reversed(loops):
        if any(x.loop_var is v for _, v in kept):
            made = x.replace(body=made)
    params = desc.params[inputs:]
    held = {p: desc.buffer_map[p] for p in params}
    root = desc.body.block.replace(body=made, key=object())
    return PrimFunc(params, BlockRealize((), True, root), buffer_map=held)


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: Any = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """Declare an instruction that computes `op` on its inputs.

    def call(ins, outs):                        # buffers; may also give (body, reduce_init, reduce_update)
        return tir.call_extern("int32", "gemv", outs[0].access_ptr("w"), ins[0].access_ptr("r"))
    gemv = te.decl_tensor_intrin(c.op, call, binds={b: tir.decl_buffer(…, strides=[te.var("s"), 1])})
    """
    if not isinstance(op, ComputeOp):
        raise TypeError(f"te.decl_tensor_intrin takes the operation of a te.compute, not {op!r}")
    for t in op.input_tensors:
        if not isinstance(t.op, PlaceholderOp):
            raise refuse(
                f"it reads {t.op.name}, which is computed; an intrinsic is one operation on placeholders",
                what=f"te.decl_tensor_intrin({name})",
                span=op.span,
            )
    given, more = dict(binds or {}), dict(default_buffer_params or {})
    buffers = [
        given[t] if t in given else decl_buffer(t.shape, t.dtype, t.op.name, **more)
        for t in (*op.input_tensors, *op.outputs)
    ]
    count = len(op.input_tensors)
    scalars = list(scalar_params or ())
    result = fcompute(buffers[:count], buffers[count:], *([scalars] if scalars else []))
    parts = list(result) if isinstance(result, (list, tuple)) else [result]
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"fcompute of intrinsic {name} gave {len(parts)} statements, and not one to three")
    body, init, update = (_statement(p) for p in [*parts, None, None][:3])
    if not op.reduce_axis and (init is not None or update is not None):
        raise ValueError(f"intrinsic {name} is not a reduction, so it has no reduce_init and reduce_update")
    return TensorIntrin(name, op, buffers, body, init, update, scalars)


def _statement(part: Any) -> Stmt | None:
    if part is None or isinstance(part, Stmt):
        return part
    if isinstance(part, PrimExpr):
        return Evaluate(part)
    raise TypeError(f"fcompute of a tensor intrinsic gives statements, not {part!r}")
