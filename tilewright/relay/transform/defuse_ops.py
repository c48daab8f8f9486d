"""DefuseOps: the inverse of FuseOps."""

from __future__ import annotations

from typing import Any, Final

from ...ir.transform import ModulePass, Pass, PassInfo, register_pass
from ..binding import bind
from ..expr import Call, Function
from ..visitor import ExprMutator
from .fuse_ops import is_primitive, map_graphs
from .infer_type import infer_module


class _Defuse(ExprMutator):
    def visit_call(self, call: Call) -> Any:
        if not is_primitive(call.op):
            return super().visit_call(call)
        args = [self.visit(a) for a in call.args]
        return bind(call.op.body, dict(zip(call.op.params, args, strict=True)))


def defuse_ops(func: Function) -> Function:
    """Inline the operators of fused functions at their calls.

    %f = fn (%p0, Primitive=1) { nn.relu(exp(%p0)) }      ->      nn.relu(exp(%x))
    %f(%x)
    """
    body = _Defuse().visit(func.body)
    return func.updated(body=body)


_INFO: Final = PassInfo(0, "DefuseOps", ("InferType",))


def DefuseOps() -> Pass:
    """The pass."""
    return ModulePass(lambda mod, ctx: infer_module(map_graphs(mod, defuse_ops)), _INFO)


register_pass("DefuseOps", DefuseOps)
