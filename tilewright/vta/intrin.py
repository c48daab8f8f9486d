"""The tensor intrinsic of the matrix unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .. import te
from ..ir.buffer import Buffer, decl_buffer
from ..ir.expr import BufferLoad, Var, const
from ..ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, Stmt, seq
from ..te.tensor_intrin import TensorIntrin
from ..tir.tensor_intrin.intrin import TensorIntrin as Registered
from ..tir.transform.dma_commands import command
from ..tir.transform.fold_uop_loop import UOP
from .config import Config
from .isa import COMPUTE_ENGINE

if TYPE_CHECKING:
    from .environment import Environment


INP: Final = "local.inp_buffer"
WGT: Final = "local.wgt_buffer"
ACC: Final = "local.acc_buffer"


def gemm(env: Environment, mock: bool = False) -> TensorIntrin:
    """The intrinsic of an environment, for `s[…].tensorize`."""
    return declare_gemm(env.config, mock)


def register_gemm(config: Config) -> tuple[str, str]:
    """Register the intrinsics of a configuration for `sch.tensorize`; returns the names of update and reset."""
    sizes = f"{config.batch}x{config.block_out}x{config.block_in}_{config.inp_dtype}_{config.acc_dtype}"
    update, reset = f"vta.gemm_{sizes}", f"vta.gemm_reset_{sizes}"
    _, start, step = declare_gemm(config).forms()
    assert start is not None and step is not None
    Registered.register(update, *step, override=True)
    Registered.register(reset, *start, override=True)
    return update, reset


def declare_gemm(config: Config, mock: bool = False) -> TensorIntrin:
    """The product of an element of inp and one of wgt, transposed, added to an element of acc.

    for i, j, k in T.grid(BATCH, BLOCK_OUT, BLOCK_IN):
        acc[i, j] += inp[i, k] * wgt[j, k]                ->    a micro-op of a GEMM instruction

    With `mock` it does nothing.
    """
    inp = te.placeholder((config.batch, config.block_in), config.inp_dtype, "inp")
    wgt = te.placeholder((config.block_out, config.block_in), config.wgt_dtype, "wgt")
    k = te.reduce_axis((0, config.block_in), "k")
    kind = config.acc_dtype
    acc = te.compute(
        (config.batch, config.block_out),
        lambda i, j: te.sum(inp[i, k].astype(kind) * wgt[j, k].astype(kind), axis=[k]),
        name="acc",
    )

    def element(t: Any, scope: str) -> Buffer:
        lanes = int(t.shape[0]) * int(t.shape[1])
        return decl_buffer(t.shape, t.dtype, t.op.name, scope=scope, offset_factor=lanes)

    def statements(ins: Any, outs: Any) -> tuple[Stmt, Stmt, Stmt]:
        if mock:
            nothing = Evaluate(const(0))
            return nothing, nothing, nothing
        reset, update = _micro_op(outs[0]), _micro_op(outs[0], *ins)
        return seq(reset, update), reset, update

    binds = {
        inp: element(inp, INP),
        wgt: element(wgt, WGT),
        acc: element(acc, ACC),
    }
    return te.decl_tensor_intrin(acc.op, statements, name="GEMM", binds=binds)


def _micro_op(acc: Buffer, inp: Buffer | None = None, wgt: Buffer | None = None) -> Stmt:
    """A GEMM micro-op: an update, or without operands a reset."""
    i, j, k = (Var(name, "int32") for name in "ijk")
    if inp is None or wgt is None:
        meaning: Stmt = BufferStore(acc, const(0, acc.dtype), (i, j))
        operands: list[Any] = [const(1), acc.access_ptr("w"), const(0), const(0)]
    else:
        product = BufferLoad(inp, (i, k)).astype(acc.dtype) * BufferLoad(wgt, (j, k)).astype(acc.dtype)
        meaning = BufferStore(acc, BufferLoad(acc, (i, j)) + product, (i, j))
        meaning = For(k, 0, inp.shape[1], ForKind.SERIAL, meaning)
        operands = [const(0), acc.access_ptr("rw"), inp.access_ptr("r"), wgt.access_ptr("r")]
    meaning = For(i, 0, acc.shape[0], ForKind.SERIAL, For(j, 0, acc.shape[1], ForKind.SERIAL, meaning))
    made: Any = command(COMPUTE_ENGINE, "gemm", operands, meaning)
    return made.replace(body=AttrStmt(const(0), UOP, const(1), made.body))  # type: ignore[no-any-return]
