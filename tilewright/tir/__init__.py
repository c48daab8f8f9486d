"""Loop programs: their nodes and functions under the classic names, schedules, passes and the interpreter."""

# ruff: noqa: F403  (the nodes of the IR are names of this package, all of them)
from __future__ import annotations

import importlib
import typing

from ..homes import home_of, lazily
from ..ir.buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from ..ir.data_layout import BijectiveLayout, Layout, bijective_layout, layout
from ..ir.dtype import DataType
from ..ir.errors import ScheduleError
from ..ir.expr import *
from ..ir.function import PrimFunc
from ..ir.op import CallEffectKind, _registry
from ..ir.ops import (
    abs,
    acos,
    acosh,
    address_of,
    all,
    any,
    asin,
    asinh,
    assume,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    call_extern,
    call_intrin,
    call_llvm_intrin,
    call_llvm_pure_intrin,
    call_packed,
    call_pure_extern,
    call_tir,
    cast,
    ceil,
    ceildiv,
    clz,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    max_value,
    min_value,
    nearbyint,
    nextafter,
    popcount,
    pow,
    power,
    reinterpret,
    ret,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trace,
    trunc,
    truncdiv,
    truncmod,
    undef,
    vscale,
)
from ..ir.stmt import *
from ..ir.stmt import seq as stmt_seq
from ..ir.tensor_type import UnknownSize as Any
from . import stmt_functor


def _elsewhere(name: str) -> typing.Any:
    if name in (
        "comm_reducer",
        "max",
        "min",
        "sum",
    ):  # reducers are of tensor expressions; this is a classic home of theirs
        return getattr(home_of("reducers"), name)
    if f"tir.{name}" in _registry:  # instructions and the like: `tir.ptx_mma`, as scripts call them
        return importlib.import_module(".script.namespace", __name__).lookup(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__getattr__ = lazily(
    __name__,
    {
        "schedule": "Schedule BlockRV LoopRV IndexMap",
        "interpret": "InterpreterError",
        "tensor_intrin": "TensorIntrin",
    },
    "analysis buffer data_layout expr function interpret ir_builder op schedule script stmt stmt_functor "
    "tensor_intrin transform",
    _elsewhere,
)
