"""QuantizeCalibrate: chooses the scales of rounded tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, log2
from typing import Any

import numpy as np

from ...ir.errors import TVMError
from ...ir.module import IRModule
from ...ir.say_once import say_once
from ..analysis import post_order
from ..expr import Call, Constant, Expr, Function, Tuple
from ..op.annotation import simulated_quantize
from ..transform.rewriting import Mutator, is_call, typed_pass
from .config import QAnnotateKind, QConfig, current_qconfig
from .forms import form_of, operands, over, result_scale
from .histogram import Histogram

Batch = Mapping[str, Any]


def quantize_calibrate(func: Function, dataset: Iterable[Batch] | None = None) -> Function:
    """Set the scales of the `simulated_quantize` of a function.

        simulated_quantize(%x, kind=INPUT)    ->    simulated_quantize(%x, kind=INPUT, scale=0.0625)

    A weight has the scale of its largest element. An activation has that of `global_scale`, or of the threshold that
    suits the values over the dataset, a sequence of mappings from the names of inputs to arrays.
    """
    config = current_qconfig()
    inputs = [
        e for e in post_order(func) if is_call(e, simulated_quantize) and e.attrs.kind == QAnnotateKind.INPUT
    ]
    if config.calibrate_mode == "global_scale":
        if dataset is not None:
            say_once(
                "quantize(dataset=…) has no effect with calibrate_mode='global_scale'; the modes 'kl_divergence' and "
                "'percentile' read it"
            )
        thresholds = dict.fromkeys(inputs, config.global_scale)
    elif dataset is None:
        raise TVMError(
            f"quantize: calibrate_mode={config.calibrate_mode!r} needs values to choose scales by; pass "
            "dataset=[{name of an input: array}, …]"
        )
    else:
        thresholds = _observed(func, inputs, dataset, config)
    return _SetScales(config, thresholds).visit(func)  # type: ignore[no-any-return]


def _observed(
    func: Function, inputs: list[Call], dataset: Iterable[Batch], config: QConfig
) -> dict[Call, float]:
    """The threshold of each rounded tensor, from its values in a run of the float program over the dataset."""
    from ..build_module import create_executor

    if not inputs:
        return {}
    # Without a scale, `simulated_quantize` is the identity.
    every = Function(func.params, Tuple([q.args[0] for q in inputs]))
    run = create_executor("graph", IRModule.from_expr(every)).evaluate()
    seen = [Histogram() for _ in inputs]
    empty = True
    for batch in dataset:
        empty = False
        for histogram, values in zip(seen, run(**batch), strict=True):
            histogram.add(values.numpy())
    if empty:
        raise TVMError("quantize: the dataset is empty; give at least one mapping of inputs to arrays")
    if config.calibrate_mode == "percentile":
        return {q: h.percentile() for q, h in zip(inputs, seen, strict=True)}
    return {q: h.least_divergence(1 << q.attrs.bits - 1) for q, h in zip(inputs, seen, strict=True)}


class _SetScales(Mutator):
    def __init__(self, config: QConfig, thresholds: Mapping[Any, float]) -> None:
        super().__init__()
        self.config, self.thresholds = config, thresholds
        self.scale: dict[Expr, float] = {}

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if is_call(call, simulated_quantize):
            if call.attrs.kind == QAnnotateKind.INPUT:
                return self.scaled(new, float(np.float32(self.thresholds[call] / (1 << call.attrs.bits - 1))))
            if call.attrs.kind == QAnnotateKind.WEIGHT:
                return self.scaled(new, _weight_scale(new, self.config.weight_scale))
            return new
        form = form_of(call)
        parts = () if form is None else operands(new, form)
        scales = [self.scale[p] for p in parts if p in self.scale]
        unset = [p for p in parts if p not in self.scale]
        if form is None or not scales or not all(map(_is_summand, unset)):
            return new
        result = result_scale(form, scales)
        if unset:
            new = over(new, [self.scaled(p, result) if p in unset else p for p in parts])
        self.scale[new] = result
        return new

    def scaled(self, quantize: Any, scale: float) -> Call:
        made = Call(quantize.op, quantize.args, {**quantize.attrs, "scale": scale}, (), quantize.span)
        self.scale[made] = scale
        return made


def _is_summand(expr: Any) -> bool:
    return is_call(expr, simulated_quantize) and expr.attrs.kind == QAnnotateKind.ACTIVATION


def _weight_scale(quantize: Call, how: str) -> float:
    weight = quantize.args[0]
    assert isinstance(weight, Constant)
    largest = float(np.abs(weight.numpy()).max(initial=0.0))
    if not np.isfinite(largest):
        raise TVMError(
            "quantize: a weight contains an infinity or NaN, which has no integer form; repair the weights"
        )
    levels = 1 << quantize.attrs.bits - 1
    if largest == 0.0:
        return 1.0
    scale = 2.0 ** ceil(log2(largest)) / levels if how == "power2" else largest / (levels - 1)
    return float(np.float32(scale)) or 1.0  # weights too small for a scale are zeros


QuantizeCalibrate = typed_pass(quantize_calibrate, name="QuantizeCalibrate")
