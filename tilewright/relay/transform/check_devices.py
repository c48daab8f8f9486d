"""CheckDevices: refuse annotations that place parts of a model on another device than that of the target."""

from __future__ import annotations

from ...ir.errors import BuildError
from ...ir.module import IRModule
from ...runtime.devices import device
from ...target import Target
from ..analysis.walks import post_order
from ..expr import Call, Function
from ..op.annotation import on_device_op
from .rewriting import typed_pass


def check_devices(mod: IRModule) -> IRModule:
    """The module as it is, if its values are placed on the device that it is compiled for.

        on_device(x, "cpu")      for llvm         stays
        on_device(x, "cuda")     for llvm         is refused

    A model runs on one device; what its device has no kernel for runs on the host without an annotation.
    """
    target = Target.current(allow_none=True) or Target("llvm")
    own = device(target.kind.name).device_type
    for func in mod.functions.values():
        if not isinstance(func, Function):
            continue
        for expr in post_order(func):
            if not isinstance(expr, Call) or expr.op is not on_device_op or not expr.attrs.device:
                continue
            if device(expr.attrs.device.partition("(")[0]).device_type != own:
                raise BuildError(
                    f"on_device(…, {expr.attrs.device!r}): the model is compiled for {target.kind.name}, and a model "
                    "runs on one device and its host; leave the annotation out, or build each part with relay.build "
                    "and run them one after the other"
                )
    return mod


CheckDevices = typed_pass(check_devices, name="CheckDevices", whole_module=True, needs_types=False)
