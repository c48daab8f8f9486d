"""Types of the user's own ("bring your own datatypes"): their numbers are bits, and C functions compute with them.

    from tilewright.target import datatype

    ctypes.CDLL("libposit.so", ctypes.RTLD_GLOBAL)
    datatype.register("posit", 131)                                  # custom[posit]8 … custom[posit]64
    datatype.register_op(datatype.create_lower_func({(32, 32): "FloatToPosit32"}), "Cast", "llvm", "float", "posit")
    datatype.register_op(datatype.create_lower_func({32: "Posit32Add"}), "Add", "llvm", "posit")

When a program is lowered, `tir.transform.LowerCustomDatatypes` replaces each operation on such numbers by what the
registered function makes of it, and the numbers by unsigned integers of the same width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..homes import home_of
from ..ir import ops
from ..ir.dtype import DataType, custom_types, register_custom
from ..ir.errors import TVMError
from ..ir.expr import BinaryOp, Call, Cast, CmpOp, FloatImm, PrimExpr


def register(type_name: str, type_code: int) -> None:
    """Make a type known, by a name and by a code above 128 that no other type has."""
    register_custom(type_name, int(type_code))
    home_of("elements").register_custom(type_name, int(type_code))


def get_type_name(type_code: int) -> str:
    """The name of the type with this code."""
    found = next((name for name, code in custom_types().items() if code == type_code), None)
    if found is None:
        raise ValueError(f"no data type is registered with the code {type_code}")
    return found


def get_type_code(type_name: str) -> int:
    """The code of the type with this name."""
    found = custom_types().get(type_name)
    if found is None:
        raise ValueError(
            f"no data type {type_name!r} is registered; known are {', '.join(custom_types()) or 'none'}"
        )
    return found


def get_type_registered(type_code: int) -> bool:
    """Whether a type has this code."""
    return type_code in custom_types().values()


def register_op(
    lower_func: Callable[[Any], PrimExpr],
    op_name: str,
    target: str,
    src_type_name: str,
    dest_type_name: str | None = None,
    intrinsic_name: str | None = None,
) -> None:
    """Register what an operation on a type becomes: a function of the operation that returns an expression.

    `op_name` is the class of the operation: Add, Sub, Mul, Div, Max, Min, EQ, …, FloatImm, Cast with a
    `dest_type_name`, or Call with an `intrinsic_name` such as "tir.sqrt". `target` is the name of a kind of target.
    """
    if op_name == "Cast":
        if dest_type_name is None:
            raise ValueError('register_op(…, "Cast", …): the type of the result is missing: dest_type_name=…')
        path = f"Cast.{dest_type_name}.{src_type_name}"
    elif op_name == "Call" and intrinsic_name is not None:
        path = f"Call.intrin.{intrinsic_name}.{src_type_name}"
    else:
        path = f"{op_name}.{src_type_name}"
    home_of("functions").register_func(f"tvm.datatype.lower.{target}.{path}", lower_func, override=True)


def register_min_func(func: Callable[[int], PrimExpr], type_name: str) -> None:
    """Register the least finite value of a type: a function of the number of bits that returns an expression."""
    home_of("functions").register_func(f"tvm.datatype.min.{type_name}", func, override=True)


def create_min_lower_func(extern_func_map: Mapping[int, str], type_name: str) -> Callable[[int], PrimExpr]:
    """A function for `register_min_func` that calls the C function for a number of bits."""

    def lower(num_bits: int) -> PrimExpr:
        if num_bits not in extern_func_map:
            raise TVMError(f"there is no function for the least value of custom[{type_name}]{num_bits}")
        return ops.call_pure_extern(f"custom[{type_name}]{num_bits}", extern_func_map[num_bits])

    return lower


def create_lower_func(extern_func_map: Mapping[Any, str]) -> Callable[[Any], PrimExpr]:
    """A function for `register_op` that calls a C function: by the number of bits, or those of both types of a cast."""

    def lower(op: Any) -> PrimExpr:
        kind = op.a.dtype if isinstance(op, CmpOp) else op.dtype
        key: Any = (op.value.dtype.bits, kind.bits) if isinstance(op, Cast) else kind.bits
        if key not in extern_func_map:
            known = ", ".join(map(str, extern_func_map))
            raise TVMError(
                f"there is no C function for {op} with the widths {key}; there are some for {known}"
            )
        if isinstance(op, (Cast, FloatImm)):
            args = [op.value]
        elif isinstance(op, Call):
            args = list(op.args)
        elif isinstance(op, (BinaryOp, CmpOp)):
            args = [op.a, op.b]
        else:
            raise TVMError(f"{op} ({type(op).__name__}) does not become the call of a C function")
        return ops.call_pure_extern(_bits_of(op.dtype), extern_func_map[key], *args)

    return lower


def lower_ite(ite_op: Call) -> PrimExpr:
    """if_then_else of numbers of the type, on their bits."""
    return ops.call_intrin(_bits_of(ite_op.dtype), "tir.if_then_else", *ite_op.args)


def lower_call_pure_extern(op: Call) -> PrimExpr:
    """The call of a C function that gives a number of the type, which gives its bits."""
    return ops.call_intrin(_bits_of(op.dtype), "tir.call_pure_extern", *op.args)


def _bits_of(kind: DataType) -> DataType:
    """The type of the bits of a number."""
    return DataType(f"uint{kind.bits}").with_lanes(kind.lanes) if kind.is_custom else kind
