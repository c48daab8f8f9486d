"""PlanDevices: the calls of a model for a GPU that are placed on the CPU become functions for the host."""

from __future__ import annotations

from typing import Any, Final

from ...ir.errors import BuildError
from ...runtime.devices import device
from ...target import Target
from ..expr import Call, Expr, Function, Tuple, Var
from ..op.annotation import on_device_op
from ..op.registry import RelayOp
from ..visitor import ExprMutator, flow_inputs, in_order
from .rewriting import type_of, typed_pass

ON_HOST: Final = "OnHost"  # the attribute of a function that the host of a device runs


def is_on_host(fn: Function) -> bool:
    """Whether a function of a model for a device is placed on its host."""
    return bool(fn.attrs.get(ON_HOST))


def plan_devices(func: Function) -> Function:
    """For a GPU, put calls that are placed on the CPU into functions for the host; copies come with the execution.

        %0 = exp(%x)                             %f = fn (%p0, Primitive=1, OnHost=1) { exp(%p0) }
        %1 = on_device(%0, "cpu")         ->     %1 = on_device(%f(%x), "cpu")
        nn.relu(%1)                              nn.relu(%1)

    What only such calls use is placed there, too, unless it is placed elsewhere. A value that is placed on a device
    that is neither the target's nor its host is refused.
    Needs: types, no lets or branches. Gives: functions for the host, with the attributes Primitive and OnHost.
    """
    marks = [e for e in in_order(func.body, flow_inputs) if _is_mark(e)]
    target = Target.current(allow_none=True) or Target("llvm")
    host = {mark for mark in marks if _is_for_host(mark, target)}
    return _Placed(_only_for(func, host)).visit(func) if host else func


def _is_mark(e: Any) -> bool:
    return e.__class__ is Call and e.op is on_device_op and bool(e.attrs.device)


def _is_for_host(mark: Call, target: Target) -> bool:
    """Whether a mark places its value on the host of a device; a device that the model does not have is refused."""
    wanted = device(mark.attrs.device.partition("(")[0]).device_type
    if wanted == device(target.kind.name).device_type:
        return False
    if target.is_gpu and wanted == device("cpu").device_type:
        return True
    raise BuildError(
        f"on_device(…, {mark.attrs.device!r}): the model is compiled for {target.kind.name}, and a model runs on one "
        "device and its host; leave the annotation out, or build each part with relay.build and run them one after "
        "the other"
    )


def _only_for(func: Function, host: set[Call]) -> set[Call]:
    """The calls of operators that only serve the marks of the host."""
    order = in_order(func.body, flow_inputs)
    users: dict[Any, list[Any]] = {}
    for e in order:
        for x in flow_inputs(e):
            users.setdefault(x, []).append(e)
    there: set[Any] = set(host)
    for e in reversed(order):
        inner = isinstance(e, Tuple) or (
            e.__class__ is Call and isinstance(e.op, RelayOp) and not _is_mark(e)
        )
        if inner and e is not func.body and all(u in there for u in users[e]):
            there.add(e)
    return {e for e in there - host if e.__class__ is Call}


class _Placed(ExprMutator):
    def __init__(self, calls: set[Call]) -> None:
        super().__init__()
        self.calls = calls

    def visit_call(self, call: Call) -> Any:
        made = super().visit_call(call)
        if call not in self.calls:
            return made
        params: list[Var] = []
        given: list[Expr] = []

        def inside(new: Any, old: Any) -> Any:
            if isinstance(new, Tuple):
                return Tuple([inside(n, o) for n, o in zip(new.fields, old.fields, strict=True)])
            params.append(Var(f"p{len(params)}", type_of(old)))
            given.append(new)
            return params[-1]

        body = made.over([inside(n, o) for n, o in zip(made.args, call.args, strict=True)])
        return Call(Function(params, body, type_of(call), attrs={"Primitive": 1, ON_HOST: 1}), given)


PlanDevices = typed_pass(plan_devices, name="PlanDevices")
