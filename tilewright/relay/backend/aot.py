"""The ahead-of-time program: one function that calls all kernels of a model in order, over its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.buffer import Buffer, decl_buffer
from ...ir.expr import Call as TirCall
from ...ir.expr import PrimExpr, const
from ...ir.function import PrimFunc
from ...ir.module import GlobalVar
from ...ir.ops import call_extern
from ...ir.stmt import Evaluate, Stmt, seq
from ...runtime.model import PlaceInfo, StepInfo, TensorInfo


def aot_function(
    name: str,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    weights: int,
    arena: int,
    steps: Sequence[StepInfo],
) -> PrimFunc:
    """The function that runs a model.

    run(x, y, weights, arena):
        conv2d_relu(x, &arena[0], &weights[0], &arena[512])     # the last is the workspace of the kernel
        dense(&arena[0], y, &weights[4096])
    """
    rooms: dict[str, list[Buffer]] = {
        "input": [_buffer(t.name, t.shape, t.dtype) for t in inputs],
        "output": [_buffer(t.name, t.shape, t.dtype) for t in outputs],
        "weights": [_buffer("weights", (weights,), "uint8")],
        "arena": [_buffer("workspace", (arena,), "uint8")],
    }
    called: dict[str, GlobalVar] = {}
    body: list[Stmt] = []
    for step in steps:
        pointers = [_pointer(rooms, a, i in step.outputs) for i, a in enumerate(step.args)]
        if step.kernel:
            gv = called.setdefault(step.kernel, GlobalVar(step.kernel))
            if step.ahead:
                at, stride = (const(n, "int64") for n in step.ahead)
                pointers += [rooms["weights"][0].access_ptr("r", offset=at), stride]
            body.append(Evaluate(TirCall("int32", gv, pointers)))
        else:
            size = const(step.args[0].nbytes, "int64")
            body.append(Evaluate(call_extern("handle", "memcpy", pointers[1], pointers[0], size)))
    buffers = [b for group in rooms.values() for b in group]
    return PrimFunc(
        buffers,
        seq(*body) if body else Evaluate(const(0, "int32")),
        attrs={"global_symbol": name, "tir.noalias": True, "tir.is_scheduled": True},
    )


def _buffer(name: str, shape: Sequence[int], dtype: str) -> Buffer:
    return decl_buffer(tuple(shape), dtype, name=name)


def _pointer(rooms: dict[str, list[Buffer]], place: PlaceInfo, written: bool) -> PrimExpr:
    by_number = place.space in ("input", "output")
    space = "arena" if place.space == "scratch" else place.space
    buffer = rooms[space][place.at if by_number else 0]
    offset: Any = 0 if by_number else const(place.at, "int64")
    return buffer.access_ptr("w" if written else "rw" if place.space == "scratch" else "r", offset=offset)
