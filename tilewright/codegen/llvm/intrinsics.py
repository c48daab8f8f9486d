"""LLVM code for calls of operators, in a table keyed by the operator's short name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.dtype import FLOAT32, INT64, DataType
from ...ir.errors import LoweringError
from ...ir.expr import Call, IntImm, Ramp, StringImm, const_value
from ...ir.llvm_names import elementwise
from ...ir.op import Op
from .checks import checked, failed
from .half import from_float, to_float
from .types import constant, is_small_float, mem_type, reg_type, vector_suffix, vector_type

if TYPE_CHECKING:
    from .emit import FunctionEmitter

Handler = Callable[["FunctionEmitter", Call], str]
INTRINSICS: dict[str, Handler] = {}


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register(f: Handler) -> Handler:
        for n in names:
            INTRINSICS[n] = f
        return f

    return register


def suffix(kind: DataType) -> str:
    """How LLVM mangles a type into an intrinsic's name."""
    one = f"f{kind.bits}" if kind.is_float else f"i{kind.bits}"
    return vector_suffix(one, kind.lanes)


def intrinsic(f: FunctionEmitter, name: str, kind: DataType, *args: str, flags: str = "") -> str:
    """A call of `llvm.<name>` where the result and all arguments have one type."""
    text = reg_type(kind)
    full = f"llvm.{name}.{suffix(kind)}"
    f.module.declare(f"declare {text} @{full}({', '.join([text] * len(args))})")
    return f.tmp(f"call {flags} {text} @{full}({', '.join(f'{text} {a}' for a in args)})")


def refuse_by_lane(kind: DataType, what: str, e: Any) -> None:
    """Refuse what is done lane by lane for a vector whose number of lanes only the hardware knows."""
    if kind.is_scalable:
        raise LoweringError(
            f"`{e}` needs {what}, which the scalable vector type {kind} does not have: leave this statement out of "
            "the vectorized loop, or split the loop by a constant factor"
        )


_FLOAT_INTRINSICS = {
    "sqrt": "sqrt",
    "fabs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "nearbyint": "roundeven",
    "fma": "fma",
    "copysign": "copysign",
    "exp": "exp",
    "exp2": "exp2",
    "exp10": "exp10",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "pow": "pow",
    "atan2": "atan2",
}
# Those that are instructions on vectors of any length; LLVM calls libm for the lanes of the others.
_VECTOR_INSTRUCTIONS = frozenset(("sqrt", "fabs", "floor", "ceil", "trunc", "roundeven", "fma", "copysign"))
# Functions without an LLVM intrinsic come from libm.
_LIBM = ("log1p", "asinh", "acosh", "atanh", "erf", "fmod", "hypot", "nextafter")


@_handles(*_FLOAT_INTRINSICS, *_LIBM)
def _math(f: FunctionEmitter, e: Call) -> str:
    name, kind = e.op.short_name, e.dtype
    if _FLOAT_INTRINSICS.get(name) not in _VECTOR_INSTRUCTIONS:
        refuse_by_lane(kind, f"a call of {name} for each lane", e)
    args = [f.expr(a) for a in e.args]
    if is_small_float(kind):
        wide = FLOAT32.with_lanes(kind.lanes)
        made = _math_on(f, name, wide, [to_float(f, kind, a) for a in args])
        return from_float(f, kind, made)
    return _math_on(f, name, kind, args)


def _math_on(f: FunctionEmitter, name: str, kind: DataType, args: list[str]) -> str:
    if name in _FLOAT_INTRINSICS:
        return intrinsic(f, _FLOAT_INTRINSICS[name], kind, *args)
    return libm(f, name, kind, args)


def libm(f: FunctionEmitter, name: str, kind: DataType, args: list[str]) -> str:
    """A call of libm for each lane."""
    one = kind.element
    symbol = name + ("f" if one.bits == 32 else "")
    text = reg_type(one)
    f.module.declare(f"declare {text} @{symbol}({', '.join([text] * len(args))}) memory(none)")
    if kind.lanes == 1:
        return f.tmp(f"call {text} @{symbol}({', '.join(f'{text} {a}' for a in args)})")
    lanes = []
    for i in range(kind.lanes):
        picks = [f.tmp(f"extractelement {reg_type(kind)} {a}, i64 {i}") for a in args]
        lanes.append(f.tmp(f"call {text} @{symbol}({', '.join(f'{text} {p}' for p in picks)})"))
    return f.gathered(lanes, kind)


@_handles("rsqrt")
def _rsqrt(f: FunctionEmitter, e: Call) -> str:
    kind = e.dtype
    value = f.expr(e.args[0])
    if is_small_float(kind):
        wide = FLOAT32.with_lanes(kind.lanes)
        root = intrinsic(f, "sqrt", wide, to_float(f, kind, value))
        return from_float(f, kind, f.tmp(f"fdiv {reg_type(wide)} {constant(wide, 1.0)}, {root}"))
    root = intrinsic(f, "sqrt", kind, value)
    return f.tmp(f"fdiv {reg_type(kind)} {constant(kind, 1.0)}, {root}")


@_handles("sigmoid")
def _sigmoid(f: FunctionEmitter, e: Call) -> str:
    kind = e.dtype
    refuse_by_lane(kind, "a call of exp for each lane", e)
    value = f.expr(e.args[0])
    small = is_small_float(kind)
    wide = FLOAT32.with_lanes(kind.lanes) if small else kind
    value = to_float(f, kind, value) if small else value
    text, one = reg_type(wide), constant(wide, 1.0)
    power = intrinsic(f, "exp", wide, f.tmp(f"fneg {text} {value}"))
    made = f.tmp(f"fdiv {text} {one}, {f.tmp(f'fadd {text} {one}, {power}')}")
    return from_float(f, kind, made) if small else made


@_handles("ldexp")
def _ldexp(f: FunctionEmitter, e: Call) -> str:
    kind, power = e.dtype, e.args[1].dtype
    refuse_by_lane(kind, "a call of ldexp for each lane", e)
    value, exponent = f.expr(e.args[0]), f.expr(e.args[1])
    full = f"llvm.ldexp.{suffix(kind)}.{suffix(power)}"
    f.module.declare(f"declare {reg_type(kind)} @{full}({reg_type(kind)}, {reg_type(power)})")
    return f.tmp(f"call {reg_type(kind)} @{full}({reg_type(kind)} {value}, {reg_type(power)} {exponent})")


@_handles("popcount")
def _popcount(f: FunctionEmitter, e: Call) -> str:
    return intrinsic(f, "ctpop", e.dtype, f.expr(e.args[0]))


@_handles("clz")
def _clz(f: FunctionEmitter, e: Call) -> str:
    kind = e.args[0].dtype
    text = reg_type(kind)
    full = f"llvm.ctlz.{suffix(kind)}"
    f.module.declare(f"declare {text} @{full}({text}, i1)")
    made = f.tmp(f"call {text} @{full}({text} {f.expr(e.args[0])}, i1 false)")
    unsigned = DataType(f"uint{kind.bits}").with_lanes(kind.lanes)
    return f.convert(made, unsigned, e.dtype)


@_handles("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(f: FunctionEmitter, e: Call) -> str:
    name = e.op.short_name.removeprefix("bitwise_")
    return f.tmp(f"{name} {reg_type(e.dtype)} {f.expr(e.args[0])}, {f.expr(e.args[1])}")


@_handles("bitwise_not")
def _bitwise_not(f: FunctionEmitter, e: Call) -> str:
    return f.tmp(f"xor {reg_type(e.dtype)} {f.expr(e.args[0])}, {constant(e.dtype, -1)}")


@_handles("shift_left", "shift_right")
def _shift(f: FunctionEmitter, e: Call) -> str:
    how = "shl" if e.op.short_name == "shift_left" else "ashr" if e.dtype.is_int else "lshr"
    return f.tmp(f"{how} {reg_type(e.dtype)} {f.expr(e.args[0])}, {f.expr(e.args[1])}")


@_handles("reinterpret")
def _reinterpret(f: FunctionEmitter, e: Call) -> str:
    value, old = f.expr(e.args[0]), e.args[0].dtype
    a, b = reg_type(old), reg_type(e.dtype)
    if a == b:
        return value
    if "ptr" in (a, b):
        return f.tmp(f"{'ptrtoint' if a == 'ptr' else 'inttoptr'} {a} {value} to {b}")
    return f.tmp(f"bitcast {a} {value} to {b}")


@_handles("isnan", "isinf", "isfinite")
def _classify(f: FunctionEmitter, e: Call) -> str:
    value, kind = f.expr(e.args[0]), e.args[0].dtype
    if is_small_float(kind):
        value, kind = to_float(f, kind, value), FLOAT32.with_lanes(kind.lanes)
    text = reg_type(kind)
    if e.op.short_name == "isnan":
        return f.tmp(f"fcmp uno {text} {value}, {value}")
    size = intrinsic(f, "fabs", kind, value)
    order = "oeq" if e.op.short_name == "isinf" else "olt"
    return f.tmp(f"fcmp {order} {text} {size}, {constant(kind, float('inf'))}")


@_handles("if_then_else")
def _if_then_else(f: FunctionEmitter, e: Call) -> str:
    condition = f.expr(e.args[0])
    if e.args[0].dtype.is_vector:
        text = reg_type(e.dtype)
        a, b = f.expr(e.args[1]), f.expr(e.args[2])
        return f.tmp(f"select {reg_type(e.args[0].dtype)} {condition}, {text} {a}, {text} {b}")
    return f.choice(condition, lambda: f.expr(e.args[1]), e.args[2], reg_type(e.dtype), "")


@_handles("likely")
def _likely(f: FunctionEmitter, e: Call) -> str:
    value = f.expr(e.args[0])
    if e.dtype.is_vector:
        return value
    f.module.declare("declare i1 @llvm.expect.i1(i1, i1)")
    return f.effect(f"call i1 @llvm.expect.i1(i1 {value}, i1 true)")


@_handles("vscale")
def _vscale(f: FunctionEmitter, e: Call) -> str:
    if not f.module.scalable:
        raise LoweringError(
            f"`{e}` is the length factor of scalable vectors, and the target for {f.module.triple} has none: name one "
            "with SVE, such as `llvm -mtriple=aarch64-linux-gnu -mattr=+sve`"
        )
    return intrinsic(f, "vscale", e.dtype)


@_handles("get_active_lane_mask")
def _active_lanes(f: FunctionEmitter, e: Call) -> str:
    """The lanes in which `base + lane < limit`: LLVM compares them as unsigned numbers, so they are counted from 0."""
    base, limit = f.index64(e.args[0]), f.index64(e.args[1])
    left = intrinsic(f, "smax", INT64, f.tmp(f"sub nsw i64 {limit}, {base}"), "0")
    text, name = reg_type(e.dtype), f"llvm.get.active.lane.mask.{vector_suffix('i1', e.dtype.lanes)}.i64"
    f.module.declare(f"declare {text} @{name}(i64, i64)")
    return f.tmp(f"call {text} @{name}(i64 0, i64 {left})")


@_handles("assume")
def _assume(f: FunctionEmitter, e: Call) -> str:
    f.module.declare("declare void @llvm.assume(i1)")
    f.emit(f"call void @llvm.assume(i1 {f.expr(e.args[0])})")
    return "true"


@_handles("undef")
def _undef(f: FunctionEmitter, e: Call) -> str:
    return "poison" if not e.dtype.is_integral else "0"


@_handles("ret")
def _ret(f: FunctionEmitter, e: Call) -> str:
    value = f.expr(e.args[0])
    if f.ret_pointer is not None:
        kind = e.args[0].dtype
        if kind.is_bool:
            value = f.tmp(f"zext i1 {value} to i8")
        f.emit(f"store {mem_type(kind)} {value}, ptr {f.ret_pointer}")
    f.ret("0")
    f.start(f.label("after"))
    return "0"


_handles("fail")(failed)
_handles("checked")(checked)


# ---------------------------------------------------------------------------- memory
@_handles("address_of")
def _address_of(f: FunctionEmitter, e: Call) -> str:
    load: Any = e.args[0]
    index = f.flat(load.buffer, load.indices)
    if isinstance(index, Ramp):
        index = index.base
    return f.address(load.buffer, index)


@_handles("tvm_access_ptr")
def _access_ptr(f: FunctionEmitter, e: Call) -> str:
    kind, data, offset = e.args[0].dtype, e.args[1], e.args[2]
    return f.tmp(f"getelementptr inbounds {mem_type(kind)}, ptr {f.expr(data)}, i64 {f.index64(offset)}")


@_handles("isnullptr")
def _isnullptr(f: FunctionEmitter, e: Call) -> str:
    return f.tmp(f"icmp eq ptr {f.expr(e.args[0])}, null")


@_handles("prefetch")
def _prefetch(f: FunctionEmitter, e: Call) -> str:
    numbers = [int(const_value(a) or 0) for a in e.args[1:4]] + [0, 3, 1][len(e.args[1:4]) :]
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    text = ", ".join(f"i32 {n}" for n in numbers[:3])
    f.emit(f"call void @llvm.prefetch.p0(ptr {f.expr(e.args[0])}, {text})")
    return "0"


@_handles("atomic_add")
def _atomic_add(f: FunctionEmitter, e: Call) -> str:
    kind = e.args[1].dtype
    how = "fadd" if kind.is_float else "add"
    pointer, value = f.expr(e.args[0]), f.expr(e.args[1])
    return f.effect(f"atomicrmw {how} ptr {pointer}, {reg_type(kind)} {value} seq_cst")


# ---------------------------------------------------------------------------- calls
@_handles("call_extern", "call_pure_extern")
def _extern(f: FunctionEmitter, e: Call) -> str:
    name = e.args[0]
    if not isinstance(name, StringImm):
        raise LoweringError(f"call_extern takes the function's name first, not `{name}`")
    kinds, text = [a.dtype for a in e.args[1:]], "void" if e.dtype.code == "void" else reg_type(e.dtype)
    args = [f.expr(a) for a in e.args[1:]]
    if e.op.short_name == "call_pure_extern" and any(k.is_vector for k in kinds):
        return _lane_calls(f, e, name.value, kinds, args)
    f.module.declare_extern(name.value, text, [reg_type(k) for k in kinds])
    listed = ", ".join(f"{reg_type(k)} {a}" for k, a in zip(kinds, args, strict=True))
    call = f"call {text} @{name.value}({listed})"
    if text == "void":
        f.emit(call)
        return "0"
    return f.effect(call)


def _lane_calls(f: FunctionEmitter, e: Call, name: str, kinds: list[DataType], args: list[str]) -> str:
    """A pure function applied lane by lane."""
    out = e.dtype
    refuse_by_lane(out, f"a call of {name} for each lane", e)
    one, lanes = reg_type(out.element), []
    f.module.declare_extern(name, one, [reg_type(k.element) for k in kinds])
    for i in range(out.lanes):
        picks = [
            a if k.lanes == 1 else f.tmp(f"extractelement {reg_type(k)} {a}, i64 {i}")
            for k, a in zip(kinds, args, strict=True)
        ]
        text = ", ".join(f"{reg_type(k.element)} {p}" for k, p in zip(kinds, picks, strict=True))
        lanes.append(f.effect(f"call {one} @{name}({text})"))
    return f.gathered(lanes, out)


@_handles("call_llvm_intrin", "call_llvm_pure_intrin")
def _llvm_intrin(f: FunctionEmitter, e: Call) -> str:
    name, rest = e.args[0], e.args[1:]
    if not isinstance(name, StringImm):
        raise LoweringError(
            f"call_llvm_intrin takes the intrinsic's name as text (say llvm.x86.avx2.pmadd.wd), not `{name}`"
        )
    # The classic form gives the number of arguments that take part in overloading first.
    if rest and isinstance(rest[0], IntImm) and rest[0].dtype == "uint32":
        rest = rest[1:]
    known = elementwise(name.value)
    # Floats of 16 bits are integers in our registers, and floats in the signatures of instructions.
    type_of = _float_type if known is None else reg_type
    kinds = [type_of(a.dtype) for a in rest]
    text = "void" if e.dtype.code == "void" else type_of(e.dtype)
    symbol = name.value if known is None else f"{known[0]}.{suffix(e.dtype)}"
    f.module.declare_extern(symbol, text, kinds)
    values = [_as_type(f, f.expr(a), reg_type(a.dtype), k) for k, a in zip(kinds, rest, strict=True)]
    args = ", ".join(f"{k} {v}" for k, v in zip(kinds, values, strict=True))
    if text == "void":
        f.emit(f"call void @{symbol}({args})")
        return "0"
    return _as_type(f, f.effect(f"call {text} @{symbol}({args})"), text, reg_type(e.dtype))


def _float_type(kind: DataType) -> str:
    """The type of a value, a float of 16 bits as a float."""
    if not is_small_float(kind.element):
        return reg_type(kind)
    return vector_type("bfloat" if kind.code == "bfloat" else "half", kind.lanes)


def _as_type(f: FunctionEmitter, value: str, have: str, want: str) -> str:
    return value if have == want else f.tmp(f"bitcast {have} {value} to {want}")


# DLPack's and the classic packed call's codes for argument types.
_CODE_INT, _CODE_FLOAT, _CODE_HANDLE, _CODE_NULL, _CODE_TENSOR, _CODE_STR = 0, 2, 3, 4, 7, 11
_DLTENSOR = "{ ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }"


@_handles("call_packed", "tvm_call_packed", "tvm_call_cpacked", "call_cpacked")
def _packed(f: FunctionEmitter, e: Call) -> str:
    """Call a function of the global registry through the pointer that the runtime put in place."""
    name, rest = e.args[0], e.args[1:]
    if not isinstance(name, StringImm):
        raise LoweringError(f"call_packed takes the function's name first, not `{name}`")
    count = len(rest)
    values, codes = f.alloca("i64", count + 1, 16), f.alloca("i32", count + 1, 16)
    for i, arg in enumerate(rest):
        slot = f.tmp(f"getelementptr inbounds i64, ptr {values}, i64 {i}")
        kind = _pack(f, arg, slot)
        f.emit(f"store i32 {kind}, ptr {f.tmp(f'getelementptr inbounds i32, ptr {codes}, i64 {i}')}")
    result = f.tmp(f"getelementptr inbounds i64, ptr {values}, i64 {count}")
    result_code = f.tmp(f"getelementptr inbounds i32, ptr {codes}, i64 {count}")
    f.emit(f"store i64 0, ptr {result}")
    function = f.effect("load ptr, ptr @__tw_packed_call")
    good, bad = f.label("hooked"), f.label("unhooked")
    f.branch_if(f.tmp(f"icmp ne ptr {function}, null"), good, bad, ", !prof !1")
    f.start(bad)
    f.fail(3, f"packed function {name.value} was called, but no runtime is attached to this library")
    f.start(good)
    text = f.module.string(name.value)
    code = f.tmp(
        f"call i32 {function}(ptr {text}, ptr {values}, ptr {codes}, i32 {count}, "
        f"ptr {result}, ptr {result_code})"
    )
    f.propagate(code)
    if e.dtype.code == "void":
        return "0"
    if e.dtype.is_float:
        wide = f.effect(f"load double, ptr {result}")
        return f.convert(wide, DataType("float64"), e.dtype)
    if e.dtype.is_handle:
        return f.effect(f"load ptr, ptr {result}")
    wide = f.effect(f"load i64, ptr {result}")
    return f.convert(wide, DataType("int64"), e.dtype)


def _pack(f: FunctionEmitter, arg: Any, slot: str) -> int:
    kind = arg.dtype
    if isinstance(arg, StringImm):
        f.emit(f"store ptr {f.module.string(arg.value)}, ptr {slot}")
        return _CODE_STR
    if isinstance(arg, Call) and isinstance(arg.op, Op) and arg.op.short_name == "tvm_stack_make_array":
        f.emit(f"store ptr {_stack_array(f, arg)}, ptr {slot}")
        return _CODE_TENSOR
    if kind.is_handle:
        f.emit(f"store ptr {f.expr(arg)}, ptr {slot}")
        return _CODE_HANDLE
    if kind.is_float:
        f.emit(f"store double {f.convert(f.expr(arg), kind, DataType('float64'))}, ptr {slot}")
        return _CODE_FLOAT
    wide = f.expr(arg) if kind.bits == 64 else f.convert(f.expr(arg), kind, DataType("int64"))
    f.emit(f"store i64 {wide}, ptr {slot}")
    return _CODE_INT


def _stack_array(f: FunctionEmitter, e: Call) -> str:
    """A DLTensor on the stack: data, shape, strides, rank, type, offset in elements."""
    data, shape, strides, _, annotation, offset = e.args
    kind = annotation.dtype
    rank = len(shape.args) if isinstance(shape, Call) else 0
    tensor = f.alloca(_DLTENSOR, 1, 16)

    def put(field: int, text: str) -> None:
        slot = f.tmp(f"getelementptr inbounds {_DLTENSOR}, ptr {tensor}, i32 0, i32 {field}")
        f.emit(f"store {text}, ptr {slot}")

    put(0, f"ptr {f.expr(data)}")
    put(1, "i32 1")  # the CPU
    put(2, "i32 0")
    put(3, f"i32 {rank}")
    code = 6 if kind.is_bool else kind.type_code
    put(4, f"i8 {code}")
    put(5, f"i8 {8 if kind.is_bool else kind.bits}")
    put(6, f"i16 {kind.lanes}")
    put(7, f"ptr {_int64_array(f, shape)}")
    put(8, f"ptr {_int64_array(f, strides)}")
    start = f.tmp(f"mul i64 {f.index64(offset)}, {kind.nbytes}")
    put(9, f"i64 {start}")
    return tensor


def _int64_array(f: FunctionEmitter, e: Any) -> str:
    if not (isinstance(e, Call) and e.args):
        return "null"
    array = f.alloca("i64", len(e.args), 16)
    for i, value in enumerate(e.args):
        slot = f.tmp(f"getelementptr inbounds i64, ptr {array}, i64 {i}")
        f.emit(f"store i64 {f.index64(value)}, ptr {slot}")
    return array
