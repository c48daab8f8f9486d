"""The classic registration of operators: each function sets a property of the operator's one declaration.

    relay.op.register("mine.scale", "Each element times a factor.")
    op = relay.op.get("mine.scale")
    op.set_num_inputs(1)
    op.add_argument("data", "Tensor", "What is scaled.")
    op.add_type_rel("mine.Scale", lambda types, attrs: types[0])
    relay.op.register_compute("mine.scale", lambda attrs, ins, out: [topi.multiply(ins[0], attrs.factor)])
    relay.op.register_pattern("mine.scale", relay.op.OpPattern.ELEMWISE)

    y = relay.Call(op, [x], {"factor": 3.0})

`registry.py` says how an operator is declared at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.errors import TVMError
from .implementation import (
    OpImplementation,
    OpSpecialization,
    OpStrategy,
    Schedule,
    SpecializedCondition,
    Strategy,
    plain_implementation,
)
from .registry import OpPattern, RelayOp, RelayTypeError, get, list_names, register, register_op_attr
from .shape_function import set_shape_function

__all__ = [
    "OpImplementation",
    "OpPattern",
    "OpSpecialization",
    "OpStrategy",
    "RelayOp",
    "RelayTypeError",
    "SpecializedCondition",
    "get",
    "list_names",
    "register",
    "register_alter_op_layout",
    "register_broadcast_schedule",
    "register_compute",
    "register_convert_op_layout",
    "register_fake_quantization_to_integer",
    "register_gradient",
    "register_infer_correct_layout",
    "register_injective_schedule",
    "register_legalize",
    "register_mixed_precision_conversion",
    "register_op_attr",
    "register_optional_fake_quantization_to_integer",
    "register_pattern",
    "register_reduce_schedule",
    "register_schedule",
    "register_shape_func",
    "register_stateful",
    "register_strategy",
]


def register_pattern(op_name: str, pattern: int, level: int = 10) -> Any:
    """Set the fusion pattern of an operator."""
    return register_op_attr(op_name, "TOpPattern", pattern, level)


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> None:
    """Set whether calls of an operator have effects: then none is removed, repeated or moved."""
    get(op_name).set_attr("TOpIsStateful", bool(stateful), level)


def register_compute(op_name: str, compute: Any = None, level: int = 10) -> Any:
    """Set the compute of an operator, `compute(attrs, inputs, out_type)`; also as a decorator."""
    return register_op_attr(op_name, "FTVMCompute", compute, level)


def register_gradient(op_name: str, fgradient: Any = None, level: int = 10) -> Any:
    """Set the gradient of an operator: `fgradient(call, grad)` returns one for each argument; also as a decorator."""
    return register_op_attr(op_name, "FPrimalGradient", fgradient, level)


def register_shape_func(
    op_name: str, data_dependent: bool | list[bool], shape_func: Any = None, level: int = 10
) -> Any:
    """Set the tensor expressions of the sizes of results, `shape_func(attrs, inputs, out_ndims)`; also as a decorator.

    `data_dependent` says of all arguments, or of each, whether the sizes depend on its values: then it is itself an
    input, and otherwise its shape is.
    """

    def take(given: Any) -> Any:
        op = get(op_name)
        flags = data_dependent if isinstance(data_dependent, list) else [data_dependent]
        op.set_attr("TShapeDataDependent", flags, level)
        op.set_attr("FShapeFunc", given, level)
        if op.get_attr("FShapeFunc") is given:
            set_shape_function(op, flags, given)
        return given

    return take if shape_func is None else take(shape_func)


# ---------------------------------------------------------------------------- implementations
def register_strategy(op_name: str, fstrategy: Any = None, level: int = 10) -> Any:
    """Set the strategy of an operator, `fstrategy(attrs, inputs, out_type, target)`; also as a decorator."""

    def take(given: Any) -> Any:
        get(op_name).set_attr("FTVMStrategy", getattr(given, "generic_func_node", given), level)
        return given

    return take if fstrategy is None else take(fstrategy)


def register_schedule(op_name: str, schedule: Schedule, level: int = 10) -> Any:
    """Set the schedule of an operator, `schedule(attrs, outs, target)`, for its own compute."""
    name = getattr(schedule, "__name__", "schedule").partition("_")[2] or op_name
    register_strategy(op_name, _with_schedule(get(op_name), schedule, f"{name}.generic"), level)
    return schedule


def _with_schedule(op: RelayOp, schedule: Schedule | None, name: str) -> Strategy:
    if op.compute is None:
        raise TVMError(
            f"{op.name} has no compute to schedule; register one first with relay.op.register_compute({op.name!r}, …)"
        )

    def strategy(attrs: Any, inputs: list[Any], out_type: Any, target: Any) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(plain_implementation(op).fcompute, schedule, name)
        return made

    return strategy


def _register_automatic(kind: str) -> Callable[..., None]:
    def work(op_name: str, level: int = 10) -> None:
        get(op_name).set_attr("FTVMStrategy", _with_schedule(get(op_name), None, f"{kind}.generic"), level)

    work.__name__ = work.__qualname__ = f"register_{kind}_schedule"
    work.__doc__ = "Schedule an operator automatically, as all operators without a schedule of their own are."
    return work


register_injective_schedule = _register_automatic("injective")
register_broadcast_schedule = _register_automatic("broadcast")
register_reduce_schedule = _register_automatic("reduce")


# ---------------------------------------------------------------------------- rules of passes
def register_alter_op_layout(op_name: str, alter_layout: Any = None, level: int = 10) -> Any:
    """Set the rule of AlterOpLayout, `alter_layout(attrs, inputs, types, out_type)`; also as a decorator."""
    return register_op_attr(op_name, "FTVMAlterOpLayout", alter_layout, level)


def register_convert_op_layout(op_name: str, convert_layout: Any = None, level: int = 10) -> Any:
    """Set the rule of ConvertLayout, `convert_layout(attrs, inputs, types, desired_layouts)`; also as a decorator."""
    return register_op_attr(op_name, "FTVMConvertOpLayout", convert_layout, level)


def register_infer_correct_layout(op_name: str, infer_layout: Any = None, level: int = 10) -> Any:
    """Set the rule by which an operator follows its arguments into other layouts; also as a decorator.

    `infer_layout(attrs, new_layouts, old_layouts, types)` returns an InferCorrectLayoutOutput. Layouts are names such
    as "NHWC", "" where none is known; the first time it is asked about the program as it is, with no new layouts.
    """
    return register_op_attr(op_name, "FInferCorrectLayout", infer_layout, level)


def register_legalize(op_name: str, legal_op: Any = None, level: int = 10) -> Any:
    """Set the rule of Legalize, `legal_op(attrs, inputs, types)`; also as a decorator."""
    return register_op_attr(op_name, "FTVMLegalize", legal_op, level)


def register_fake_quantization_to_integer(op_name: str, func: Any = None, level: int = 10) -> Any:
    """Set the rule of FakeQuantizationToInteger, `func(call, types)`; also as a decorator.

    `types[expr]` is the TensorAffineType of an argument, which is integers here; the rule returns the integer
    expression and its type.
    """
    return register_op_attr(op_name, "FTVMFakeQuantizationToInteger", func, level)


def register_optional_fake_quantization_to_integer(op_name: str, func: Any = None, level: int = 10) -> Any:
    """As register_fake_quantization_to_integer, for operators that the pass is asked for by name."""
    return register_op_attr(op_name, "FTVMOptionalFakeQuantizationToInteger", func, level)


def register_mixed_precision_conversion(op_name: str, func: Any = None, level: int = 10) -> Any:
    """Set the rule of ToMixedPrecision, `func(call, dtype)`; also as a decorator.

    It returns [0 always | 1 follow | 2 never, type of the accumulator, type of the result].
    """
    return register_op_attr(op_name, "FTVMMixedPrecisionConversionType", func, level)
