"""Helpers of tests of graph programs."""

from __future__ import annotations

from typing import Any

from ...absent import attributes
from ...homes import lazily
from ...ir.errors import TVMError
from ...ir.module import IRModule
from ..expr import Call, Function
from ..transform.infer_type import infer_module, infer_type
from ..ty import TensorType, tensor_fields

__all__ = ["run_infer_type", "run_opt_pass", "te_outputs"]


def _as_module(expr: Any) -> IRModule:
    return expr if isinstance(expr, IRModule) else IRModule.from_expr(expr)


def _like(expr: Any, mod: IRModule) -> Any:
    """What a test gave, changed: a module, a function, or the body of the function around an expression."""
    if isinstance(expr, IRModule):
        return mod
    main = mod["main"] if "main" in mod else next(iter(mod.functions.values()))
    return main if isinstance(expr, Function) else main.body


def run_infer_type(expr: Any) -> Any:
    """The expression, function or module with its types known."""
    return _like(expr, infer_module(_as_module(expr)))


def run_opt_pass(expr: Any, opt_pass: Any, import_prelude: bool = False) -> Any:
    """What a pass (or several) makes of an expression, function or module, with types before and after."""
    mod = _as_module(expr)
    if import_prelude:
        mod.import_from_std("prelude.rly")
    passes = list(opt_pass) if isinstance(opt_pass, (list, tuple)) else [opt_pass]
    mod = infer_module(mod)
    for each in passes:  # a single pass runs whatever its level, with the options of the context
        mod = each(mod)
    return _like(expr, infer_module(mod))


def te_outputs(call: Call) -> list[Any]:
    """What the compute of an operator gives for a call, checked against the type that its relation says."""
    from ... import te

    typed = infer_type(call)
    op, kind = typed.op, typed.checked_type
    inputs = [
        te.placeholder(t.shape, name=f"p{i}_{j}", dtype=str(t.dtype))
        for i, a in enumerate(typed.args)
        for j, t in enumerate(tensor_fields(a.checked_type))
    ]
    made = op.compute(typed.attrs, inputs, kind)
    wanted = tensor_fields(kind)
    found = [TensorType(t.shape, t.dtype) for t in made]
    if found != wanted:
        raise TVMError(f"{op.name}: the relation says {kind} and the compute gives {found}")
    return list(made)


__getattr__ = lazily(
    __name__,
    {
        "gradients": "_np_randn_from_type check_grad count_ops gradient rand",
        "init": "create_workload",
        "nat": "count make_nat_expr make_nat_value",
        "py_converter": "run_as_python",
    },
    "dcgan densenet dqn gradients inception_v3 init layers lstm mlp mobilenet nat py_converter quantized resnet "
    "squeezenet synthetic temp_op_attr vgg",
    attributes(__name__),
)
