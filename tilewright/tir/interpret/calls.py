"""Calls to Python source: one small function for each operator, found by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dtype import DataType
from ...ir.expr import BufferLoad, Call, PrimExpr, StringImm, const_value
from ...ir.op import Op
from ...ir.words import element_of_word
from . import scalars
from .expressions import ExprTranslator
from .source import Code

Handler = Callable[[ExprTranslator, Call, "str | None"], Code]
_CALLS: dict[str, Handler] = {}


def translate_call(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    """The source of a call."""
    if not isinstance(e.op, Op):
        return _function(t, e, lane)
    name = e.op.short_name
    handler = _CALLS.get(name)
    if handler is not None:
        return handler(t, e, lane)
    if name in scalars.FUNCTIONS:
        return _mathematics(t, name, e.dtype, list(e.args), lane)
    raise t.refuse(f"the interpreter has no meaning for {e.op.name}: `{e}`")


def _on(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for n in names:
            _CALLS[n] = handler
        return handler

    return register


def _depth(*codes: Code) -> int:
    return 1 + max((c.depth for c in codes), default=0)


def _mathematics(
    t: ExprTranslator, name: str, kind: DataType, args: list[PrimExpr], lane: str | None
) -> Code:
    """A function of floats, evaluated on doubles and rounded to the type."""
    codes = [t.lane(a, lane) for a in args]
    if not args[0].dtype.is_float:
        if name in ("floor", "ceil", "trunc", "round", "nearbyint"):
            return codes[0]
        raise t.refuse(f"{name} of {args[0].dtype}: it takes a float")
    return t.rounded(kind, f"F_{name}({', '.join(c.text for c in codes)})", _depth(*codes))


# ---------------------------------------------------------------------------- element by element
@_on("fabs", "abs")
def _abs(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a = t.lane(e.args[0], lane)
    if e.dtype.is_float:
        return t.rounded(e.dtype, f"F_fabs({a.text})", _depth(a))
    assert a.lo is not None and a.hi is not None
    most = max(abs(a.lo), abs(a.hi))
    return t.fit(e.dtype.element, f"abs({a.text})", 0, most, _depth(a))


@_on("popcount")
def _popcount(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, bits = t.lane(e.args[0], lane), e.args[0].dtype.bits
    return Code(f"({a.text} & {(1 << bits) - 1}).bit_count()", 0, bits, _depth(a))


@_on("clz")
def _clz(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, bits = t.lane(e.args[0], lane), e.args[0].dtype.bits
    return Code(f"count_leading_zeros({a.text}, {bits})", 0, bits, _depth(a))


@_on("isnan", "isinf", "isfinite")
def _is(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    name = e.op.short_name
    if not e.args[0].dtype.is_float:
        return Code("True" if name == "isfinite" else "False")
    a = t.lane(e.args[0], lane)
    return Code(f"math_{name}(float({a.text}))", depth=_depth(a))


@_on("nextafter")
def _next(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, b = t.lane(e.args[0], lane), t.lane(e.args[1], lane)
    kind = t.constant(e.dtype.element, ("type", e.dtype.element))
    return Code(f"next_after({kind}, {a.text}, {b.text})", depth=_depth(a, b))


@_on("fma")
def _fma(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, b, c = (t.lane(x, lane) for x in e.args)
    if e.dtype.is_float:
        kind = t.constant(e.dtype.element, ("type", e.dtype.element))
        return Code(f"fused({kind}, {a.text}, {b.text}, {c.text})", depth=_depth(a, b, c))
    kind_of = e.dtype.element
    return t.full(kind_of, scalars.wrapped(kind_of, f"{a.text} * {b.text} + {c.text}"), _depth(a, b, c))


@_on("bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, b = t.lane(e.args[0], lane), t.lane(e.args[1], lane)
    sign = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}[e.op.short_name]
    made = t.full(e.dtype.element, f"({a.text} {sign} {b.text})", _depth(a, b))
    natural = [c.hi for c in (a, b) if c.lo is not None and c.lo >= 0]
    if sign == "&" and natural and made.hi is not None:
        return made._replace(lo=0, hi=min(h for h in natural if h is not None))
    return made


@_on("bitwise_not")
def _bit_not(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, kind = t.lane(e.args[0], lane), e.dtype.element
    if kind.is_bool:
        return Code(f"(not {a.text})", depth=_depth(a))
    text = f"(~{a.text})" if kind.is_int else f"({a.text} ^ {kind.high})"
    return t.full(kind, text, _depth(a))


@_on("shift_left", "shift_right")
def _shift(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a, b, kind = t.lane(e.args[0], lane), t.lane(e.args[1], lane), e.dtype.element
    left = e.op.short_name == "shift_left"
    if b.lo is not None and b.hi is not None and b.lo >= 0 and b.hi < kind.bits:
        text = f"({a.text} {'<<' if left else '>>'} {b.text})"
    else:
        text = f"{e.op.short_name}({a.text}, {b.text}, {kind.bits})"
    if left:
        text = scalars.wrapped(kind, text)
    return t.full(kind, text, _depth(a, b))


@_on("reinterpret")
def _reinterpret(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    source, target = e.args[0].dtype, e.dtype
    one, other = (t.constant(k.element, ("type", k.element)) for k in (source, target))
    if source.lanes == target.lanes:
        a = t.lane(e.args[0], lane)
        text = f"reinterpret(({a.text},), {one}, {other})[0]"
    else:
        a = t.value(e.args[0])
        values = a.text if source.lanes > 1 else f"({a.text},)"
        text = f"reinterpret({values}, {one}, {other})[{lane or 0}]"
    return t.full(target.element, text, _depth(a))


@_on("if_then_else")
def _if(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    return t.choice(e.args[0], e.args[1], e.args[2], lane)


@_on("likely", "tvm_thread_invariant", "assume_pure")
def _same(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    return t.lane(e.args[0], lane)


@_on("large_uint_imm")
def _large(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    low, high = (int(const_value(a) or 0) for a in e.args)
    value = high << 32 | low
    return Code(str(value), value, value)


@_on("q_multiply_shift")
def _fixed(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    x, y, q, s = (t.lane(a, lane) for a in e.args)
    shift = f"max({s.text}, 0), max(-{s.text}, 0)"
    return t.full(e.dtype.element, f"fixed_point({x.text}, {y.text}, {q.text}, {shift})", _depth(x, y, q, s))


@_on("q_multiply_shift_per_axis")
def _fixed_per_axis(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    x, y, left, right, q, goes_left, goes_right = (t.lane(a, lane) for a in e.args)
    shifts = f"{left.text} if {goes_left.text} else 0, {right.text} if {goes_right.text} else 0"
    depth = _depth(x, y, left, right, q)
    return t.full(e.dtype.element, f"fixed_point({x.text}, {y.text}, {q.text}, {shifts})", depth)


@_on("dp4a", "dp2a")
def _dot(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    """Products of the elements of words, and their sum with the accumulator."""
    c, parts = t.lane(e.args[2], lane), []
    for arg in e.args[:2]:
        if arg.dtype.bits == 8:
            parts.append(t.value(arg).text)
            continue
        one, other = arg.dtype.element, element_of_word(e, arg)
        kinds = t.constant(one, ("type", one)), t.constant(other, ("type", other))
        parts.append(f"reinterpret(({t.lane(arg, lane).text},), {kinds[0]}, {kinds[1]})")
    kind = e.dtype.element
    total = f"sum(products({parts[0]}, {parts[1]}), {c.text})"
    return t.full(
        kind, total if kind.is_float else scalars.wrapped(kind, total), _depth(*(t.value(a) for a in e.args))
    )


@_on("pack_word")
def _word(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    args = [t.lane(a, lane) for a in e.args]
    one, other = e.args[0].dtype.element, e.dtype.element
    kinds = t.constant(one, ("type", one)), t.constant(other, ("type", other))
    text = f"reinterpret(({', '.join(a.text for a in args)},), {kinds[0]}, {kinds[1]})[0]"
    return t.full(e.dtype.element, text, _depth(*args))


# ---------------------------------------------------------------------------- vectors
@_on("vectorlow", "vectorhigh", "vectorcombine", "get_active_lane_mask")
def _vectors(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    name, lanes = e.op.short_name, e.dtype.lanes
    if name == "get_active_lane_mask":
        base, limit = t.value(e.args[0]), t.value(e.args[1])
        return Code(f"({base.text} + {lane or 0} < {limit.text})", depth=_depth(base, limit))
    parts = [a for a in e.args if not isinstance(a, StringImm) and a.dtype.lanes > 1]
    whole = " + ".join(t.value(a).text for a in parts)
    start = lanes if name == "vectorhigh" else 0
    return t.full(e.dtype.element, f"({whole})[{start} + {lane or 0}]", 3)


# ---------------------------------------------------------------------------- pointers
@_on("type_annotation")
def _annotation(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    return Code(t.constant(e.dtype, ("type", e.dtype)))


@_on("undef")
def _undef(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    return t.converted(Code("0", 0, 0), DataType("int32"), e.dtype.element)


@_on("tvm_access_ptr")
def _access_ptr(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    kind = t.constant(e.args[0].dtype, ("type", e.args[0].dtype))
    pointer, offset = t.value(e.args[1]), t.value(e.args[2])
    return Code(f"{pointer.text}.moved({offset.text}, {kind})", depth=_depth(pointer, offset))


@_on("address_of")
def _address(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    load = e.args[0]
    if not isinstance(load, BufferLoad):
        raise t.refuse(f"`{e}`: only an element of a buffer has an address")
    b = load.buffer
    view = t.view_of(b)
    flat = str(view.offset)
    codes = [t.value(i) for i in load.indices]
    for code, stride in zip(codes, view.strides):
        flat += f" + ({code.text}) * ({stride})"
    kind = t.constant(b.dtype, ("type", b.dtype))
    return Code(f"{view.pointer}.moved({flat}, {kind})", depth=_depth(*codes))


@_on("isnullptr")
def _null(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    a = t.value(e.args[0])
    return Code(f"({a.text} is None)", depth=_depth(a))


@_on("tvm_stack_make_shape", "tvm_tuple")
def _tuple(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    codes = [t.value(a) for a in e.args]
    return Code(f"({''.join(c.text + ', ' for c in codes)})", depth=_depth(*codes))


@_on("tvm_stack_make_array")
def _array(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    data, shape, strides, kind, offset = (t.value(e.args[i]) for i in (0, 1, 2, 4, 5))
    annotation = e.args[4]
    name = (
        kind.text
        if isinstance(annotation, Call)
        else t.constant(annotation.dtype, ("type", annotation.dtype))
    )
    how = strides.text if strides.text.startswith("(") and strides.text != "()" else "None"
    text = f"{data.text}.moved({offset.text}, {name}).array({name}, {shape.text}, {how})"
    return Code(text, depth=_depth(data, shape))


@_on("atomic_add")
def _atomic(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    pointer, value = t.value(e.args[0]), t.value(e.args[1])
    kind = e.args[1].dtype
    old = f"rt.atomic_add({pointer.text}, {value.text}, {t.constant(kind, ('type', kind))}, {t.site()})"
    return t.full(kind, old, _depth(pointer, value))


@_on("ptx_cp_async")
def _copy_async(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    to, to_offset, source, source_offset, size = (t.value(a).text for a in e.args[:5])
    kind = t.constant(e.dtype, ("type", e.dtype))
    target = f"{to}.moved({to_offset}, {kind})"
    zeros = f"rt.clear({target}, {size}, {t.site()})"  # where the predicate does not hold
    holds = f" if {t.value(e.args[5]).text} else {zeros}" if len(e.args) > 5 else ""
    places = f"{target}, {source}.moved({source_offset}, {kind})"
    return Code(f"(rt.copy({places}, {size}, {t.site()}){holds})", depth=3)


@_on(
    "tvm_fill_fragment",
    "tvm_load_matrix_sync",
    "tvm_mma_sync",
    "tvm_store_matrix_sync",
    "ptx_wgmma",
    "ptx_turn_fragment",
    "ptx_wgmma_registers",
    "ptx_reduce_rows",
    "ptx_narrow_fragment",
)
def _fragments(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    if t.in_kernel:
        raise t.refuse(
            f"`{e.op.name}` in a kernel: a warp executes it together, and the interpreter runs threads one by one"
        )
    args = [t.value(a).text for a in e.args]
    return Code(f"run_fragments({', '.join([repr(e.op.short_name), *args])})", depth=3)


@_on("prefetch", "ptx_commit_group", "ptx_wait_group", "start_profile_intrinsic", "end_profile_intrinsic")
def _nothing(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    return Code("None")


# ---------------------------------------------------------------------------- threads
def _waits(t: ExprTranslator, e: Call, request: str, depth: int) -> Code:
    if t.lanes:
        raise t.refuse(f"`{e}` inside a vector: threads cannot wait for each other lane by lane")
    if not t.in_kernel:
        raise t.refuse(f"`{e}` outside a kernel: there are no threads to wait for")
    t.frame.generator = True
    return Code(f"(yield Request({request}))", depth=depth)


@_on("tvm_storage_sync")
def _sync(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    scope = e.args[0]
    name = scope.value if isinstance(scope, StringImm) else str(scope)
    if not t.in_kernel:
        return Code("None")  # sequential: no thread to wait for
    if name == "global":
        raise t.refuse("a barrier over all blocks of a launch: blocks cannot synchronize; use two kernels")
    kind = {"warp": "warp-sync", "shared.cluster": "cluster-sync"}.get(name, "sync")
    return _waits(t, e, f"{kind!r}, {t.site()}", 2)


@_on("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down")
def _warp_shuffle(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    value, by, width = (t.value(a) for a in e.args[1:4])
    how = {"tvm_warp_shuffle": "idx", "tvm_warp_shuffle_up": "up", "tvm_warp_shuffle_down": "down"}
    data = f"({how[e.op.short_name]!r}, {value.text}, {by.text}, {width.text})"
    code = _waits(t, e, f"'shuffle', {t.site()}, {data}", _depth(value, by))
    return t.full(e.dtype.element, code.text, code.depth)


@_on("tvm_warp_activemask")
def _mask(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    return t.full(e.dtype.element, str(scalars.wrap_to(e.dtype, 0xFFFFFFFF)))


# ---------------------------------------------------------------------------- functions
@_on("ret")
def _ret(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    value = t.value(e.args[0]) if e.args else Code("None")
    return Code(f"leave({value.text})", depth=_depth(value))


@_on("fail")
def _fail(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    kind, message = (a.value for a in e.args[:2] if isinstance(a, StringImm))
    args, depth = _arguments(t, e.args[2:])
    return Code(f"bad_data({kind!r}, {message!r}{args})", depth=depth)


@_on("checked")
def _checked(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    value, good = t.lane(e.args[0], lane), t.lane(e.args[1], lane)
    numbers = [t.lane(v, lane) for v in e.args[4:]]
    texts = "".join(f", {n.text}" for n in numbers)
    kind, message = (a.value for a in e.args[2:4] if isinstance(a, StringImm))
    failure = f"bad_data({kind!r}, {message!r}{texts})"
    return value._replace(
        text=f"({value.text} if {good.text} else {failure})", depth=_depth(value, good, *numbers)
    )


@_on("assume")
def _assume(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    holds = t.value(e.args[0])
    return Code(f"({holds.text} or broken_promise({str(e.args[0])!r}))", depth=_depth(holds))


def _arguments(t: ExprTranslator, args: Any) -> tuple[str, int]:
    codes = [t.value(a) for a in args]
    return "".join(f", {c.text}" for c in codes), _depth(*codes)


def _result(t: ExprTranslator, e: Call, text: str, depth: int) -> Code:
    """The result of a Python function, converted to the type that the program expects."""
    kind = e.dtype.element
    if kind.code in ("void", "handle"):
        return Code(text, depth=depth)
    return t.full(kind, f"as_type({t.constant(kind, ('type', kind))}, {text})", depth)


def _function(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    """A function of the module."""
    args, depth = _arguments(t, e.args)
    return _result(t, e, f"rt.call_module({e.op.name_hint!r}{args})", depth)


@_on("call_packed", "tvm_call_packed", "tvm_call_cpacked", "call_cpacked")
def _packed(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    args, depth = _arguments(t, e.args)
    return _result(t, e, f"rt.call_packed({args[2:]})", depth)


@_on("call_extern", "call_pure_extern")
def _extern(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    name = e.args[0].value if isinstance(e.args[0], StringImm) else str(e.args[0])
    plain = name if name in scalars.FUNCTIONS else name.removesuffix("f")
    floats = e.dtype.is_float and len(e.args) > 1 and e.args[1].dtype.is_float
    if plain in scalars.FUNCTIONS and floats:
        return _mathematics(t, plain, e.dtype, list(e.args[1:]), lane)
    args, depth = _arguments(t, e.args[1:])
    return _result(t, e, f"rt.call_extern({name!r}{args})", depth)


@_on("call_llvm_intrin", "call_llvm_pure_intrin")
def _llvm(t: ExprTranslator, e: Call, lane: str | None) -> Code:
    """LLVM's intrinsics of mathematics: `llvm.exp.f32`, the name followed by the number of arguments."""
    name = e.args[0].value if isinstance(e.args[0], StringImm) else ""
    parts = name.split(".")
    plain = parts[1] if len(parts) > 1 and parts[0] == "llvm" else name
    args = list(e.args[1:])
    if plain == "prefetch":
        return Code("None")
    if plain in ("fma", "fmuladd"):
        return _fma(t, Call(e.dtype, "tir.fma", tuple(args[-3:])), lane)
    count = 2 if plain in ("pow", "copysign") else 1
    if plain in scalars.FUNCTIONS and len(args) >= count:
        return _mathematics(t, plain, e.dtype, args[-count:], lane)
    if plain in ("ctpop", "ctlz"):
        op = "tir.popcount" if plain == "ctpop" else "tir.clz"
        code = translate_call(t, Call(e.dtype, op, (args[1] if len(args) > 1 else args[0],)), lane)
        return code
    raise t.refuse(f"the interpreter has no meaning for the LLVM intrinsic {name or e.args[0]}")
