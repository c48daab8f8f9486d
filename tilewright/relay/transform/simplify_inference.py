"""SimplifyInference: training-only operators are removed, and normalizations become arithmetic that fuses."""

from __future__ import annotations

from ...target import Target
from ...target.dot_products import multiplies_bytes
from .. import op as R
from ..expr import Call, Function
from ..op import expansions
from .rewriting import CallRewriter, typed_pass


def simplify_inference(func: Function) -> Function:
    """Expand normalizations into arithmetic and remove dropout.

    nn.batch_norm(%x, %gamma, %beta, %mean, %var).0
        ->   %s = gamma / sqrt(var + eps);  add(multiply(%x, %s), beta - mean * %s)
    nn.dropout(%x).0    ->   %x
    nn.layer_norm, nn.instance_norm, nn.group_norm   ->   (x - mean) / sqrt(variance + eps) * gamma + beta
    nn.l2_normalize     ->   x / sqrt(max(sum(x * x), eps))

    On targets whose kernels do not unpack weights of few bits, products with them become products with floats. Where
    no instruction multiplies bytes, the data of such products is not rounded to bytes.
    """
    target = Target.current(allow_none=True)
    if target is None:
        return CallRewriter(_RULES).visit(func)
    if target.is_gpu or target.is_accelerator:
        return CallRewriter({**_RULES, **_WEIGHTS}).visit(func)
    rounds = target.has("dot_products") and multiplies_bytes(target.cpu.features)
    return CallRewriter(_RULES if rounds else {**_RULES, **_DATA}).visit(func)


def _without_rounding(at: Call) -> Call | None:
    return Call(at.op, at.args, at.attrs.replace(data_bits=0)) if at.attrs.data_bits else None


_WEIGHTS = {R.nn.blockwise_dense: expansions.blockwise_dense}
_DATA = {R.nn.blockwise_dense: _without_rounding}
_RULES = {
    R.nn.batch_norm: expansions.batch_norm,
    R.nn.dropout_raw: expansions.dropout,
    R.nn.layer_norm: expansions.layer_norm,
    R.nn.instance_norm: expansions.instance_norm,
    R.nn.group_norm: expansions.group_norm,
    R.nn.l2_normalize: expansions.l2_normalize,
}

SimplifyInference = typed_pass(simplify_inference, name="SimplifyInference", opt_level=0)
