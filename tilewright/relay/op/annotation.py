"""Marks in a graph: values pass through them unchanged, or rounded as quantization will round them."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ...ir.errors import BuildError
from ...runtime.devices import device as runtime_device
from ..expr import Call
from ..ty import Type, tensor_fields
from .attributes import flag, text
from .computes import te, topi
from .gradients.parts import unchanged
from .registry import OpPattern, RelayOp, Tensor, operator, refuse, register
from .shapes import need_dtype
from .traits import Traits

__all__ = [
    "checkpoint",
    "compiler_begin",
    "compiler_end",
    "on_device",
    "simulated_quantize",
    "stop_fusion",
]


def _same(types: list[Any], attrs: Any) -> Type:
    try:
        tensor_fields(types[0])
    except TypeError:
        raise refuse(f"must be a tensor or a tuple of them and is {types[0]}", "data") from None
    return types[0]


def _mark(name: str, pattern: OpPattern, attrs: Any = None) -> RelayOp:
    return register(
        name,
        inputs=None,
        attrs=attrs,
        rel=_same,
        compute=lambda attrs, ins, out: [topi.identity(t) for t in ins],
        pattern=pattern,
        traits=Traits(barrier=True, gradient=unchanged),
    )


_stop_fusion = _mark("annotation.stop_fusion", OpPattern.OPAQUE)
_checkpoint = _mark("annotation.checkpoint", OpPattern.OPAQUE)
on_device_op = _mark(
    "on_device",
    OpPattern.OPAQUE,
    {"device": text(""), "constrain_result": flag(False), "constrain_body": flag(True)},
)


def _left_over(name: str) -> Any:
    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        raise BuildError(
            f"{name}(…, compiler={attrs.compiler!r}) is left in the graph: run relay.transform.PartitionGraph() before "
            "the model is built"
        )

    return compute


def _border(name: str) -> RelayOp:
    return register(
        name, inputs=None, attrs={"compiler": text("")}, rel=_same, compute=_left_over(name),
        pattern=OpPattern.OPAQUE,
    )  # fmt: skip


_compiler_begin = _border("annotation.compiler_begin")
_compiler_end = _border("annotation.compiler_end")


def compiler_begin(data: Any, compiler: str) -> Call:
    """The value, as an input of a region for a code generator; `PartitionGraph` makes a function of the region."""
    return _compiler_begin(data, compiler=compiler)


def compiler_end(data: Any, compiler: str) -> Call:
    """The value, as a result of a region for a code generator; `PartitionGraph` makes a function of the region."""
    return _compiler_end(data, compiler=compiler)


compiler_begin.op, compiler_end.op = _compiler_begin, _compiler_end  # type: ignore[attr-defined]


def stop_fusion(data: Any) -> Call:
    """The value, as a fusion barrier: no kernel spans both sides."""
    return _stop_fusion(data)


def checkpoint(data: Any) -> Call:
    """The value, as a checkpoint for recomputation in gradients."""
    return _checkpoint(data)


def on_device(
    body: Any, device: Any = None, constrain_result: bool = False, constrain_body: bool = True
) -> Call:
    """The value, placed on the device of the target or on its host; building for another device is refused."""
    name = "" if device is None else str(device)
    if isinstance(device, str) and device:
        runtime_device(device.partition("(")[0])  # refuses a name that is no device's
    return on_device_op(body, device=name, constrain_result=constrain_result, constrain_body=constrain_body)


def device_copy(data: Any, src_device: Any, dst_device: Any) -> Call:
    """The value, computed on one device and used on another: two places, between which the execution copies it."""
    return on_device(on_device(data, src_device), dst_device)


def _rounded_rel(types: list[Any], attrs: Any) -> Type:
    need_dtype(types[0], DataType("float32"), "data")
    if attrs.rounding not in ("round", "floor"):
        raise refuse(f"is {attrs.rounding!r} and may be 'round' or 'floor'", "rounding")
    return types[0]  # type: ignore[no-any-return]


def _rounded_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    (data,) = ins
    if not attrs.scale:
        return [topi.identity(data)]
    scale, limit = te.const(attrs.scale, data.dtype), float((1 << attrs.bits - 1) - 1)
    steps = topi.divide(data, scale)
    if attrs.rounding == "round":
        steps = topi.add(steps, te.const(0.5, data.dtype))
    return [topi.multiply(topi.clip(topi.floor(steps), -limit, limit), scale)]


@operator(
    "annotation.simulated_quantize",
    rel=_rounded_rel,
    compute=_rounded_compute,
    pattern=OpPattern.ELEMWISE,
)
def simulated_quantize(
    data: Tensor, kind: int, bits: int = 8, scale: float = 0.0, rounding: str = "round"
) -> Call:
    """The nearest multiple of the scale (halves up, or the next one below) that signed integers of so many bits reach.

    Without a scale, the value itself. `relay.quantize` replaces the call by integers; `kind` is a `QAnnotateKind`.
    """
