"""`te.decl_tensor_intrin`: an instruction of the hardware, by the tensor expression that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.buffer import Buffer, BufferRegion, decl_buffer
from ..ir.errors import UnsupportedError
from ..ir.expr import PrimExpr, Var
from ..ir.function import PrimFunc
from ..ir.functor import rewrite
from ..ir.stmt import Block, BlockRealize, Evaluate, For, Stmt
from .create_prim_func import build_prim_func
from .errors import refuse
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor

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
    ) -> None:
        self.name, self.op, self.inputs = name, op, op.input_tensors
        self.buffers = tuple(buffers)
        self.body, self.reduce_init, self.reduce_update = body, reduce_init, reduce_update

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"calling tensor intrinsic {self.name} inside te.compute is not supported; write the computation "
            "and use s[…].tensorize"
        )

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"

    # -- as functions ----------------------------------------------------------------------
    def forms(self) -> tuple[Declared | None, Declared | None, Declared | None]:
        """Description and implementation of the whole computation, of the init, and of one update."""
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
        return build_prim_func(tensors, binds=plain, name=self.name)[0]


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
    if scalar_params:
        raise UnsupportedError(
            "te.decl_tensor_intrin with scalar_params is not supported; bind them in fcompute"
        )
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
    result = fcompute(buffers[:count], buffers[count:])
    parts = list(result) if isinstance(result, (list, tuple)) else [result]
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"fcompute of intrinsic {name} gave {len(parts)} statements, and not one to three")
    body, init, update = (_statement(p) for p in [*parts, None, None][:3])
    if not op.reduce_axis and (init is not None or update is not None):
        raise ValueError(f"intrinsic {name} is not a reduction, so it has no reduce_init and reduce_update")
    return TensorIntrin(name, op, buffers, body, init, update)


def _statement(part: Any) -> Stmt | None:
    if part is None or isinstance(part, Stmt):
        return part
    if isinstance(part, PrimExpr):
        return Evaluate(part)
    raise TypeError(f"fcompute of a tensor intrinsic gives statements, not {part!r}")
