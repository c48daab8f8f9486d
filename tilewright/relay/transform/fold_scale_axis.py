"""FoldScaleAxis: per-channel factors are folded into the weights of an adjacent convolution or product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...ir.transform import ModulePass, Pass, PassContext, PassInfo, register_pass
from .. import op as R
from ..analysis import use_counts
from ..expr import Call, Constant, Expr, Function
from ..op.expansions import along_axis
from ..op.traits import traits_of
from .fold_constant import FoldConstant
from .rewriting import Mutator, is_call, static_shape, tensor_type, type_of, typed_pass
from .scaled_ops import channels_of, weight_axes

# How far a factor is followed; without a limit, long chains would be walked again for each factor.
REACH: Final = 64


def backward_fold_scale_axis(func: Function) -> Function:
    """Fold a per-channel factor of a result into the weights of its product.

        %0 = nn.conv2d(%x, %w);                          %0 = nn.conv2d(%x, multiply(%w, %s'));
        %1 = nn.relu(add(%0, %b));             ->        nn.relu(add(%0, multiply(%b, %s)))
        multiply(%1, %s)      # s > 0 for the relu

    The factor moves back through sums, pooling and relu, if the values between have no other users.
    """
    return _Backward(func).visit(func)


def forward_fold_scale_axis(func: Function) -> Function:
    """Fold a per-channel factor of an operand into the weights of the product.

    nn.conv2d(nn.relu(multiply(%x, %s)), %w)     ->     nn.conv2d(nn.relu(%x), multiply(%w, %s'))
    """
    return _Forward(func).visit(func)


# ---------------------------------------------------------------------------- factors
class Factor:
    """A factor along one axis: a vector, and if known, whether it is positive or non-zero."""

    def __init__(self, vector: Expr, axis: int) -> None:
        self.vector, self.axis = vector, axis
        values = vector.numpy() if isinstance(vector, Constant) else None
        self.positive = values is not None and bool((values > 0).all())
        self.nonzero = values is not None and bool((values != 0).all())

    def shaped(self, axis: int, ndim: int) -> Expr:
        """The factor in a shape that broadcasts along an axis of another tensor."""
        return along_axis(self.vector, axis, ndim)

    def on(self, tensor: Expr, axis: int) -> Expr:
        """A tensor times the factor along one of its axes."""
        return R.multiply(tensor, self.shaped(axis, len(type_of(tensor).shape)))


def factor_of(at: Any) -> tuple[Expr, Factor] | None:
    """The scaled operand and the factor, if this is a product with a vector along one axis."""
    if not is_call(at, R.multiply):
        return None
    out = static_shape(at)
    if out is None:
        return None
    for data, scale in (at.args, at.args[::-1]):
        shape, full = static_shape(scale), static_shape(data)
        if shape is None or full != out or len(shape) > len(out):
            continue
        wide = [d for d, s in enumerate(shape) if s != 1]
        if len(wide) != 1 or not _independent(scale):
            continue
        axis = wide[0] + len(out) - len(shape)
        if shape[wide[0]] == out[axis]:
            return data, Factor(_vector(scale, wide[0]), axis)
    return None


def _independent(scale: Expr) -> bool:
    """Whether a factor is a constant, a parameter, or a reshape of one."""
    while traits_of(scale).view:
        scale = scale.args[0]  # type: ignore[attr-defined]
    return not isinstance(scale, Call) or all(not isinstance(a, Call) for a in scale.args)


def _vector(scale: Expr, axis: int) -> Expr:
    shape = static_shape(scale)
    assert shape is not None
    if len(shape) == 1:
        return scale
    if isinstance(scale, Constant):
        return Constant(scale.numpy().reshape(-1))
    if is_call(scale, R.expand_dims) and static_shape(scale.args[0]) == (shape[axis],):
        return scale.args[0]
    return R.squeeze(scale, axis=tuple(d for d in range(len(shape)) if d != axis))


def _small(operand: Expr, axis: int, ndim: int) -> bool:
    """Whether an operand of a sum has extent only along the axis, so that scaling it is cheap."""
    shape = static_shape(operand)
    if shape is None:
        return False
    return isinstance(operand, Constant) or all(
        s == 1 or d + ndim - len(shape) == axis for d, s in enumerate(shape)
    )


class _Uses(Mutator):
    """A walk that knows how many users each new expression will have."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.old_uses = use_counts(func)
        self.uses: dict[Any, int] = {}

    def visit_call(self, call: Call) -> Any:
        made = self.rewritten(super().visit_call(call))
        self.uses[made] = self.uses.get(made, 0) + self.old_uses[call]
        return made

    def rewritten(self, at: Call) -> Expr:
        raise NotImplementedError

    def alone(self, at: Any) -> bool:
        """Whether a call has one user; one made here has the one it was made for."""
        return isinstance(at, Call) and self.uses.get(at, 1) == 1


# ---------------------------------------------------------------------------- backward
class _Backward(_Uses):
    def rewritten(self, at: Call) -> Expr:
        found = factor_of(at)
        if found is None:
            return at
        data, factor = found
        plan: list[tuple[Any, str]] = []
        if not self.plan(data, factor, plan) or not any(how == "weight" for _, how in plan):
            return at
        return self.apply(data, factor, dict(plan))

    def plan(self, data: Expr, factor: Factor, out: list[tuple[Any, str]]) -> bool:
        """Plan the rewrite of each expression on the path; False if the factor cannot be moved."""
        axis = factor.axis
        stack: list[Any] = [data]
        ndim = len(type_of(data).shape)
        while stack:
            at = stack.pop()
            if len(out) > REACH or not self.alone(at):
                return False
            if _scales_output(at, axis):
                out.append((at, "weight"))
            elif is_call(at, R.nn.bias_add):
                if at.attrs.axis % ndim != axis:
                    return False
                out.append((at, "bias"))
                stack.append(at.args[0])
            elif is_call(at, R.add, R.subtract):
                if static_shape(at) is None:
                    return False
                out.append((at, "sum"))
                stack += [a for a in at.args if not _small(a, axis, ndim)]
            elif _lets_through(at, axis, factor):
                out.append((at, "through"))
                stack.append(at.args[0])
            else:
                return False
        return True

    def apply(self, data: Expr, factor: Factor, plan: dict[Any, str]) -> Expr:
        """The data with the factor in its weights; `plan` has users before operands."""
        done: dict[Any, Expr] = {}
        ndim = len(type_of(data).shape)
        for at in reversed(plan):
            how = plan[at]
            if how == "weight":
                axes = weight_axes(at)
                assert axes is not None
                outputs = axes[1]
                args = [at.args[0], factor.on(at.args[1], outputs), *at.args[2:]]
            elif how == "bias":
                args = [done[at.args[0]], R.multiply(at.args[1], factor.vector)]
            elif how == "sum":
                args = [done[a] if a in done else self.small(a, factor, ndim) for a in at.args]
            else:
                args = [done[at.args[0]], *at.args[1:]]
            done[at] = at.over(args)
        return done[data]

    def small(self, operand: Expr, factor: Factor, ndim: int) -> Expr:
        return R.multiply(operand, factor.shaped(factor.axis, ndim))


def _scales_output(at: Call, axis: int) -> bool:
    channels = channels_of(at)
    found = None if channels is None else weight_axes(at)
    return (
        channels is not None and found is not None and found[1] is not None and channels.out_axis(at) == axis
    )


def _lets_through(at: Call, axis: int, factor: Factor) -> bool:
    """Whether f(x * s) is f(x) * s for a factor of the channels."""
    kind = traits_of(at).scale
    if kind:
        layout = at.attrs.get("layout")  # of a pool
        here = layout is None or (layout.isupper() and layout.find("C") == axis)
        return here and (factor.positive or kind == "linear")
    if is_call(at, R.nn.pad):
        zero = len(at.args) < 2 or (isinstance(at.args[1], Constant) and not at.args[1].numpy().any())
        return bool(zero and at.attrs.pad_mode == "constant" and tuple(at.attrs.pad_width[axis]) == (0, 0))
    return False


# ---------------------------------------------------------------------------- forward
class _Forward(_Uses):
    def rewritten(self, at: Call) -> Expr:
        channels = channels_of(at)
        axes = None if channels is None else weight_axes(at)
        if channels is None or axes is None or axes[0] is None:
            return at
        found = self.pulled(at.args[0], channels.in_axis(at))
        if found is None:
            return at
        data, factor = found
        weight = factor.on(at.args[1], axes[0])
        return at.over([data, weight, *at.args[2:]])

    def pulled(self, data: Expr, axis: int) -> tuple[Expr, Factor] | None:
        """The operand without a factor of its channels, and the factor."""
        way: list[tuple[Any, int]] = []
        at: Any = data
        found = None
        while len(way) <= REACH and self.alone(at):
            found = factor_of(at)
            if found is not None:
                break
            side = _followed(at, axis)
            if side is None:
                return None
            way.append((at, side))
            at = at.args[side]
        if found is None:
            return None
        bare, factor = found
        if factor.axis != axis or tensor_type(bare) is None:
            return None
        for at, side in reversed(way):
            made = _without(at, side, bare, factor)
            if made is None:
                return None
            bare = made
        return bare, factor


def _followed(at: Call, axis: int) -> int | None:
    """The operand that a factor may come from."""
    if traits_of(at).scale or is_call(at, R.nn.pad):
        return 0
    if is_call(at, R.add, R.subtract):
        ndim = len(type_of(at).shape)
        small = [_small(a, axis, ndim) for a in at.args]
        if small == [False, True]:
            return 0
        if small == [True, False]:
            return 1
    return None


def _without(at: Call, side: int, bare: Expr, factor: Factor) -> Expr | None:
    """The call of the operand without the factor, if the factor commutes with it."""
    if is_call(at, R.add, R.subtract):
        if not factor.nonzero:
            return None
        ndim = len(type_of(at).shape)
        other = R.divide(at.args[1 - side], factor.shaped(factor.axis, ndim))
        args = [bare, other] if side == 0 else [other, bare]
    elif _lets_through(at, factor.axis, factor):
        args = [bare, *at.args[1:]]
    else:
        return None
    return at.over(args)


BackwardFoldScaleAxis = typed_pass(backward_fold_scale_axis, name="BackwardFoldScaleAxis", opt_level=3)
ForwardFoldScaleAxis = typed_pass(forward_fold_scale_axis, name="ForwardFoldScaleAxis", opt_level=3)
_INFO: Final = PassInfo(3, "FoldScaleAxis")


def FoldScaleAxis() -> Pass:
    """The pass that folds factors of channels into weights, backward and then forward, and computes weights that are
    constants."""
    parts: tuple[Callable[[], Pass], ...] = (BackwardFoldScaleAxis, ForwardFoldScaleAxis, FoldConstant)

    def work(mod: Any, ctx: PassContext) -> Any:
        for part in parts:
            if part().info.name not in ctx.disabled_pass:
                mod = part()(mod)
        return mod

    return ModulePass(work, _INFO)


register_pass("FoldScaleAxis", FoldScaleAxis)
