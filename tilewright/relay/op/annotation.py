"""Marks in a graph: values pass through them unchanged."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..ty import Type, tensor_fields
from .computes import topi
from .registry import OpPattern, RelayOp, flag, refuse, register, text

__all__ = ["checkpoint", "on_device", "stop_fusion"]


def _same(types: list[Any], attrs: Any) -> Type:
    try:
        tensor_fields(types[0])
    except TypeError:
        raise refuse(f"must be a tensor or a tuple of them and is {types[0]}", "data") from None
    return types[0]  # type: ignore[no-any-return]


def _mark(name: str, pattern: OpPattern, attrs: Any = None) -> RelayOp:
    return register(
        name,
        inputs=None,
        attrs=attrs,
        rel=_same,
        compute=lambda attrs, ins, out: [topi.identity(t) for t in ins],
        pattern=pattern,
    )


_stop_fusion = _mark("annotation.stop_fusion", OpPattern.OPAQUE)
_checkpoint = _mark("annotation.checkpoint", OpPattern.OPAQUE)
_on_device = _mark(
    "on_device",
    OpPattern.OPAQUE,
    {"device": text(""), "constrain_result": flag(False), "constrain_body": flag(True)},
)


def stop_fusion(data: Any) -> Call:
    """The value, as a fusion barrier: no kernel spans both sides."""
    return _stop_fusion(data)


def checkpoint(data: Any) -> Call:
    """The value, as a checkpoint for recomputation in gradients."""
    return _checkpoint(data)


def on_device(
    body: Any, device: Any = None, constrain_result: bool = False, constrain_body: bool = True
) -> Call:
    """The value, annotated with a device; a program runs on one device, so this has no effect."""
    name = "" if device is None else str(device)
    return _on_device(body, device=name, constrain_result=constrain_result, constrain_body=constrain_body)
