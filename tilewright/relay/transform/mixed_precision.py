"""ToMixedPrecision: expensive operators in a smaller float type, numerically sensitive ones in float32."""

from __future__ import annotations

import warnings
from typing import Any, Final

from ...ir.errors import TVMError
from ...ir.transform import PassContext
from .. import op as R
from ..adt import Match
from ..expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem
from ..op import traits
from ..op.registry import OpPattern
from ..op.traits import traits_of
from ..ty import TensorType, TupleType
from .rewriting import Mutator, is_call, name_of, rebuilt_lets, type_of, typed_pass

MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = 0, 1, 2
_TYPES: Final = ("float16", "bfloat16", "float64")
_KEEP: Final = "relay.ToMixedPrecision.keep_orig_output_dtype"


def to_mixed_precision(
    func: Function, mixed_precision_type: str = "float16", missing_op_mode: int = 1
) -> Function:
    """Compute products and convolutions in another float type: a smaller one, with float32 accumulators, or float64.

        %0 = nn.conv2d(%x, %w);             %0 = nn.conv2d(cast(%x, f16), cast(%w, f16), out_dtype=f32);
        %1 = nn.relu(%0);            ->     %1 = nn.relu(cast(%0, f16));
        nn.softmax(%1)                      nn.softmax(cast(%1, f32))

    An operator is converted always, never, or if its operands are. Its attribute `FTVMMixedPrecisionConversionType` may
    decide: a function of (call, type) that returns [0 always | 1 follow | 2 never, type of the accumulator, type of the
    result]; else its trait `precision` does. An operator with neither is unchanged; with `missing_op_mode` 0 that is an
    error, with 1 a warning.
    """
    if mixed_precision_type not in _TYPES:
        raise TVMError(
            f"ToMixedPrecision: the type is float16, bfloat16 or float64, not {mixed_precision_type!r}"
        )
    keep = bool(PassContext.current().option(_KEEP))
    walk = _Mixed(mixed_precision_type, missing_op_mode)
    body = walk.visit(func.body)
    if keep:
        body = walk.as_before(func.body)
    return func.with_body(body)


class _Mixed(Mutator):
    def __init__(self, small: str, missing: int) -> None:
        super().__init__()
        self.small, self.missing = small, missing
        self.casts: dict[tuple[Any, str], Expr] = {}

    # -- casts -------------------------------------------------------------------------------
    def cast(self, expr: Any, dtype: str) -> Any:
        """The expression cast to another element type, once; a cast back and forth cancels."""
        if type_of(expr).dtype == dtype:
            return expr
        if is_call(expr, R.cast) and type_of(expr.args[0]).dtype == dtype == self.small:
            return expr.args[0]
        key = (expr, dtype)
        if key not in self.casts:
            self.casts[key] = R.cast(expr, dtype=dtype)
        return self.casts[key]

    def floats(self, expr: Any, dtype: str) -> Any:
        """The float tensors of an operand, which may be a tuple, in one element type."""
        kind = type_of(expr)
        if isinstance(kind, TupleType):
            if not isinstance(expr, Tuple):
                return expr
            return expr.map_children(lambda f: self.floats(f, dtype))
        return self.cast(expr, dtype) if self.is_ours(kind) else expr

    def is_ours(self, kind: Any) -> bool:
        return isinstance(kind, TensorType) and str(kind.dtype) in ("float32", self.small)

    def as_before(self, old: Any) -> Any:
        """A new expression in its original type."""
        return self.restored(self.visit(old), type_of(old))

    def restored(self, new: Any, kind: Any) -> Any:
        if isinstance(kind, TensorType):
            return self.cast(new, str(kind.dtype)) if type_of(new) != kind else new
        if isinstance(kind, TupleType) and type_of(new) != kind:
            parts = (
                new.fields
                if isinstance(new, Tuple)
                else [TupleGetItem(new, i) for i in range(len(kind.fields))]
            )
            return Tuple([self.restored(p, k) for p, k in zip(parts, kind.fields, strict=True)])
        return new

    # -- operators ---------------------------------------------------------------------------
    def kind_of(self, at: Call) -> tuple[int, str, str]:
        """Always, follow or never; the types of accumulators and of the result."""
        asked: Any = at.op.get_attr("FTVMMixedPrecisionConversionType")
        if asked is not None:
            kind, *types = asked(at, self.small)
            return int(kind), str(types[0] if types else self.small), str(types[-1] if types else self.small)
        name, said = name_of(at), traits_of(at).precision
        if not said and at.op.pattern in (OpPattern.INJECTIVE, OpPattern.BROADCAST):
            said = traits.FOLLOW
        if said == traits.SMALL:
            return MIXED_PRECISION_ALWAYS, "float64" if self.small == "float64" else "float32", self.small
        if said == traits.FULL:
            return MIXED_PRECISION_NEVER, "float32", "float32"
        if said == traits.FOLLOW:
            return MIXED_PRECISION_FOLLOW, self.small, self.small
        if self.missing == 0:
            raise TVMError(
                f"ToMixedPrecision: {name} has no conversion rule; missing_op_mode=1 leaves it unchanged"
            )
        if self.missing == 1:
            warnings.warn(
                f"ToMixedPrecision: {name} is left in float32: it has no conversion rule", stacklevel=2
            )
        return MIXED_PRECISION_NEVER, "float32", "float32"

    def visit_call(self, at: Call) -> Any:
        if not name_of(at):
            return at.over([self.as_before(a) for a in at.args], op=self.visit(at.op))
        args = [self.visit(a) for a in at.args]
        if is_call(at, R.cast):
            return at if args[0] is at.args[0] else self.cast(args[0], str(at.attrs.dtype))
        kind, sums, result = self.kind_of(at)
        if kind == MIXED_PRECISION_FOLLOW:
            kind = MIXED_PRECISION_ALWAYS if self.may_follow(args) else MIXED_PRECISION_NEVER
            sums = result = self.small
        elif kind == MIXED_PRECISION_ALWAYS and not any(self.has_float32(a) for a in at.args):
            kind = MIXED_PRECISION_NEVER
        if kind == MIXED_PRECISION_NEVER:
            return at.over([self.restored(n, type_of(o)) for n, o in zip(args, at.args, strict=True)])
        attrs = at.attrs.replace(out_dtype=sums) if "out_dtype" in at.attrs else at.attrs
        made = at.over([self.floats(a, self.small) for a in args], attrs)
        found = type_of(made)
        if isinstance(found, TensorType) and found.dtype.is_float and str(found.dtype) != result:
            return self.cast(made, result)
        return made

    def has_float32(self, expr: Any) -> bool:
        kind = type_of(expr)
        if isinstance(kind, TupleType):
            return any(str(f.dtype) == "float32" for f in kind.fields if isinstance(f, TensorType))
        return isinstance(kind, TensorType) and str(kind.dtype) == "float32"

    def may_follow(self, args: list[Any]) -> bool:
        """Whether one operand is in the smaller type, and the others are or can be converted at no cost."""
        small = False
        for a in args:
            for part in a.fields if isinstance(a, Tuple) else [a]:
                kind = type_of(part)
                if isinstance(kind, TupleType):
                    if any(
                        self.is_ours(f) and str(getattr(f, "dtype", "")) != self.small for f in kind.fields
                    ):
                        return False
                    small = small or any(str(getattr(f, "dtype", "")) == self.small for f in kind.fields)
                elif self.is_ours(kind):
                    if str(kind.dtype) == self.small:
                        small = True
                    elif isinstance(part, Call) or not isinstance(part, Expr):
                        return False
        return small

    # -- where types are promised --------------------------------------------------------------
    def visit_function(self, fn: Function) -> Any:
        self.visit(fn.body)
        body = self.as_before(fn.body)
        return fn if body is fn.body else fn.with_body(body)

    def visit_if(self, if_: If) -> Any:
        return if_.map_children(self.as_before)

    def visit_match(self, m: Match) -> Any:
        return m.map_children(self.as_before)

    def visit_ref_create(self, r: Any) -> Any:
        return r.map_children(self.as_before)

    visit_ref_read = visit_ref_write = visit_ref_create

    def visit_let(self, let: Let) -> Any:
        rows = []
        at: Any = let
        while isinstance(at, Let):
            rows.append((at, self.as_before(at.value)))
            at = at.body
        return rebuilt_lets(rows, self.as_before(at))


ToMixedPrecision = typed_pass(to_mixed_precision, name="ToMixedPrecision", opt_level=0)
