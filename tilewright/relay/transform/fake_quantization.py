"""FakeQuantizationToInteger: real arithmetic between dequantize and quantize, done on the integers themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...ir.errors import TVMError
from ..expr import Call, Constant, Expr, Function, Tuple, const
from ..op import layouts as names
from ..visitor import flow_inputs
from .canonicalize_ops import along_axis
from .rewriting import Mutator, call, name_of, ndim_of, static_shape, type_of, typed_pass

__all__ = ["FakeQuantizationToInteger", "fake_quantization_to_integer"]


def fake_quantization_to_integer(
    func: Function, hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Any = None
) -> Function:
    """Compute on integers what a program computes on real numbers between two quantisations.

        %0 = qnn.dequantize(%q, s, z);
        %1 = nn.conv2d(%0, qnn.dequantize(%w, t, 0));     ->     %0 = qnn.conv2d(%q, %w, z, 0, s, t);
        qnn.quantize(nn.relu(%1), u, y)                          qnn.requantize(maximum(%0, 0), s·t, 0, u, y)

    What has an operator without integer form between stays as it is; with `hard_fail` that is an error.
    """
    return _ToInteger(hard_fail).visit(func)  # type: ignore[no-any-return]


@dataclass
class Affine:
    """Integers that stand for real numbers: (q - zero) · scale, along an axis where there are several scales."""

    expr: Expr
    scale: Expr
    zero: Expr
    axis: int

    @property
    def single(self) -> bool:
        return all((static_shape(p) or ()) in ((), (1,)) for p in (self.scale, self.zero))


class _Refused(Exception):
    pass


class _ToInteger(Mutator):
    def __init__(self, hard_fail: bool) -> None:
        super().__init__()
        self.hard_fail = hard_fail

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if name_of(new) != "qnn.quantize" or not isinstance(new.args[0], Call):
            return new
        if name_of(new.args[0]) == "qnn.dequantize":
            return new
        try:
            region = _region(new.args[0])
            done: dict[Any, Affine] = {}
            for at in region:
                done[at] = _RULES[name_of(at)](at, done, new if at is new.args[0] else None)
            return _finished(done[new.args[0]], new)
        except _Refused as reason:
            if self.hard_fail:
                raise TVMError(f"FakeQuantizationToInteger: {reason}") from None
            return new


def _region(root: Expr) -> list[Call]:
    """The calls between a quantisation and the dequantisations above it, operands before users."""
    out: list[Call] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    found = False
    while stack:
        at, ready = stack.pop()
        if ready:
            out.append(at)
            continue
        if at in seen or isinstance(at, (Constant, Tuple)):
            if isinstance(at, Tuple):
                stack.extend((f, False) for f in at.fields)
            continue
        seen.add(at)
        if name_of(at) not in _RULES:
            raise _Refused(f"{name_of(at) or type(at).__name__} has no form on integers")
        stack.append((at, True))
        if name_of(at) == "qnn.dequantize":
            found = True
        else:
            stack.extend((b, False) for b in flow_inputs(at))
    if not found:
        raise _Refused("nothing above the quantisation is quantised")
    return out


def _same(a: Expr, b: Expr) -> bool:
    if a is b:
        return True
    return isinstance(a, Constant) and isinstance(b, Constant) and a.numpy().tolist() == b.numpy().tolist()


def _finished(made: Affine, quantize: Call) -> Expr:
    """Integers of one scale in that of the quantisation."""
    _, scale, zero = quantize.args
    kind = quantize.attrs.out_dtype
    if _same(made.scale, scale) and _same(made.zero, zero) and type_of(made.expr).dtype == kind:
        return made.expr
    if not made.single and not all((static_shape(p) or ()) in ((), (1,)) for p in (scale, zero)):
        if made.axis % ndim_of(made.expr) != quantize.attrs.axis % ndim_of(made.expr):
            raise _Refused("the scales before and after lie along different axes")
    axis = quantize.attrs.axis if made.single else made.axis
    return call(
        "qnn.requantize",
        made.expr,
        made.scale,
        made.zero,
        scale,
        zero,
        axis=axis,
        rounding="TONEAREST_EVEN",
        out_dtype=kind,
    )


Rule = Callable[[Call, dict[Any, Affine], Call | None], Affine]


def _operand(at: Call, i: int, done: dict[Any, Affine]) -> Affine:
    found = done.get(at.args[i])
    if found is None:
        raise _Refused(f"operand {i} of {name_of(at)} is not quantised")
    return found


# ---------------------------------------------------------------------------- rules
def _dequantize(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    return Affine(at.args[0], at.args[1], at.args[2], at.attrs.axis)


def _moved(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """Operators that only move elements, or choose among them."""
    x = _operand(at, 0, done)
    if not x.single:
        raise _Refused(f"{name_of(at)} of several scales")
    return Affine(
        Call(at.op, [x.expr, *at.args[1:]], at.attrs, at.type_args, at.span), x.scale, x.zero, x.axis
    )


def _zero_as(x: Affine) -> Expr:
    """The zero point as elements of the tensor."""
    zero = x.zero
    if not x.single:
        zero = along_axis(zero, x.axis, ndim_of(x.expr))
    elif static_shape(zero) == (1,):
        zero = call("reshape", zero, newshape=())
    return call("cast", zero, dtype=type_of(x.expr).dtype)


def _relu(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    return Affine(call("maximum", x.expr, _zero_as(x)), x.scale, x.zero, x.axis)


def _clip(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    if not x.single or not isinstance(x.scale, Constant) or not isinstance(x.zero, Constant):
        raise _Refused("clip with scales that are not numbers")
    scale, zero = float(x.scale.numpy().reshape(-1)[0]), int(x.zero.numpy().reshape(-1)[0])
    low, high = (round(v / scale) + zero for v in (at.attrs.a_min, at.attrs.a_max))
    kind = type_of(x.expr).dtype
    least, most = (
        (0, (1 << kind.bits) - 1) if kind.is_uint else (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1)
    )
    made = call("clip", x.expr, a_min=float(max(low, least)), a_max=float(min(high, most)))
    return Affine(made, x.scale, x.zero, x.axis)


def _weight_axis(at: Call) -> int:
    """The axis of the weight along which its outputs lie."""
    if "kernel_layout" in at.attrs:
        return [v for v, _ in names.axes(at.attrs.kernel_layout)].index("O")
    return 0


def _product(name: str) -> Rule:
    def rule(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
        x, w = _operand(at, 0, done), _operand(at, 1, done)
        if not x.single:
            raise _Refused(f"{name_of(at)} of data with several scales")
        if not w.single and w.axis % ndim_of(w.expr) != _weight_axis(at):
            raise _Refused(f"{name_of(at)} with scales along another axis than the outputs")
        attrs = {
            k: v for k, v in at.attrs.items() if k not in ("auto_scheduler_rewritten_layout", "transpose_a")
        }
        if name == "qnn.batch_matmul":
            if at.attrs.transpose_a or not at.attrs.transpose_b or not w.single:
                raise _Refused("batch_matmul in another order than x · yᵀ")
            attrs = {}
        attrs["out_dtype"] = "int32"
        made = call(name, x.expr, w.expr, x.zero, w.zero, x.scale, w.scale, **attrs)
        out = at.attrs.data_layout.find("C") if "data_layout" in at.attrs else ndim_of(at) - 1
        return Affine(made, _times(x.scale, w.scale), const(0, "int32"), out)

    return rule


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Constant) and isinstance(b, Constant):
        product: Any = a.numpy() * b.numpy()
        return const(product, "float32")
    return call("multiply", a, b)


def _bias(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """A sum with something in the scale of the data: the bias after a product."""
    x = _operand(at, 0, done)
    if type_of(x.expr).dtype != "int32":
        raise _Refused(f"{name_of(at)} to integers of 8 bits")
    return Affine(
        Call(at.op, [x.expr, _as_bias(at, x, done)], at.attrs, at.type_args, at.span), x.scale, x.zero, x.axis
    )


def _as_bias(at: Call, x: Affine, done: dict[Any, Affine]) -> Expr:
    """The second operand as int32 in the scale of the first."""
    other = at.args[1]
    found = done.get(other)
    if found is not None and _same(found.zero, x.zero) and _same(found.scale, x.scale):
        return call("cast", found.expr, dtype="int32") if type_of(found.expr).dtype != "int32" else found.expr
    bias = found.expr if found is not None else other
    shape = static_shape(other)
    wide = [] if shape is None else [d for d, s in enumerate(shape) if s != 1]
    if shape is None or len(wide) > 1 or (not wide and not x.single):
        raise _Refused(f"{name_of(at)} of a tensor in another scale")
    axis = (wide[0] - len(shape)) if wide else -1
    if found is not None:
        return call(
            "qnn.requantize", bias, found.scale, found.zero, x.scale, x.zero, axis=axis, out_dtype="int32"
        )
    return call("qnn.quantize", bias, x.scale, x.zero, axis=axis, out_dtype="int32")


def _binary(name: str) -> Rule:
    def rule(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
        x = done.get(at.args[0])
        if name == "qnn.add" and x is not None and type_of(x.expr).dtype == "int32":
            return _bias(at, done, last)
        if last is None:
            raise _Refused(f"{name_of(at)} of integers of 8 bits, which is not quantised at once")
        lhs, rhs = _operand(at, 0, done), _operand(at, 1, done)
        kind = last.attrs.out_dtype
        if type_of(lhs.expr).dtype != kind or type_of(rhs.expr).dtype != kind:
            raise _Refused(f"{name_of(at)} of integers of different types")
        if not lhs.single or not rhs.single:
            raise _Refused(f"{name_of(at)} of several scales")
        scale, zero = last.args[1], last.args[2]
        made = call(name, lhs.expr, rhs.expr, lhs.scale, lhs.zero, rhs.scale, rhs.zero, scale, zero)
        return Affine(made, scale, zero, last.attrs.axis)

    return rule


def _unary(name: str) -> Rule:
    def rule(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
        x = _operand(at, 0, done)
        if last is None or not x.single or type_of(x.expr).dtype != last.attrs.out_dtype:
            raise _Refused(f"{name_of(at)} that is not quantised at once, to the type that it had")
        attrs = {k: v for k, v in at.attrs.items() if k != "out_layout"}
        made = call(name, x.expr, x.scale, x.zero, last.args[1], last.args[2], **attrs)
        return Affine(made, last.args[1], last.args[2], last.attrs.axis)

    return rule


def _concatenate(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    parts = at.args[0]
    if not isinstance(parts, Tuple) or any(f not in done for f in parts.fields):
        raise _Refused("concatenate of what is not quantised")
    rows = [done[f] for f in parts.fields]
    if not all(r.single for r in rows):
        raise _Refused("concatenate of several scales")
    first = rows[0]
    scale, zero = (first.scale, first.zero) if last is None else (last.args[1], last.args[2])
    made = call(
        "qnn.concatenate",
        Tuple([r.expr for r in rows]),
        Tuple([r.scale for r in rows]),
        Tuple([r.zero for r in rows]),
        scale,
        zero,
        axis=at.attrs.axis,
    )
    return Affine(made, scale, zero, -1)


_MOVES: Final = (
    "reshape", "transpose", "squeeze", "expand_dims", "strided_slice", "layout_transform", "nn.batch_flatten",
    "nn.max_pool2d", "nn.global_max_pool2d", "broadcast_to", "tile", "repeat", "reverse", "max", "min",
    "nn.depth_to_space", "nn.space_to_depth",
)  # fmt: skip
_RULES: Final[dict[str, Rule]] = {
    "qnn.dequantize": _dequantize,
    **dict.fromkeys(_MOVES, _moved),
    "nn.relu": _relu,
    "clip": _clip,
    "nn.conv2d": _product("qnn.conv2d"),
    "nn.conv2d_transpose": _product("qnn.conv2d_transpose"),
    "nn.dense": _product("qnn.dense"),
    "nn.batch_matmul": _product("qnn.batch_matmul"),
    "nn.bias_add": _bias,
    "add": _binary("qnn.add"),
    "subtract": _binary("qnn.subtract"),
    "multiply": _binary("qnn.mul"),
    **{n: _unary(f"qnn.{n}") for n in ("sigmoid", "tanh", "exp", "sqrt", "rsqrt", "erf", "log", "abs")},
    "nn.leaky_relu": _unary("qnn.leaky_relu"),
    "nn.softmax": _unary("qnn.softmax"),
    "nn.avg_pool2d": _unary("qnn.avg_pool2d"),
    "concatenate": _concatenate,
}

FakeQuantizationToInteger = typed_pass(
    fake_quantization_to_integer, name="FakeQuantizationToInteger", opt_level=0
)
