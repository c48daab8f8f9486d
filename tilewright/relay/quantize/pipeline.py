"""`relay.quantize.quantize`: the passes of quantization in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...ir.module import IRModule
from ...ir.transform import Pass, PassContext
from .. import transform as T
from ..binding import bind_params_in_module
from .annotate import QuantizeAnnotate
from .calibrate import Batch, QuantizeCalibrate
from .config import current_qconfig
from .realize import QuantizeRealize


def prerequisite_optimize(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """The module with constant weights, batch norms folded into them, and biases as additions."""
    passes = (
        T.SimplifyInference(),
        T.FoldConstant(),
        T.FoldScaleAxis(),
        T.CanonicalizeOps(),
        T.FoldConstant(),
    )
    return _run(passes, bind_params_in_module(mod, params))


def quantize(
    mod: IRModule, params: Mapping[str, Any] | None = None, dataset: Iterable[Batch] | None = None
) -> IRModule:
    """The module on 8-bit integers, as `current_qconfig()` says; or, with `do_simulation`, on floats rounded likewise.

    The modes of calibration "kl_divergence" and "percentile" read `dataset`, mappings from names of inputs to arrays.
    """
    made = prerequisite_optimize(mod, params)
    passes = [QuantizeAnnotate(), QuantizeCalibrate(dataset)]
    if not current_qconfig().do_simulation:
        passes.append(QuantizeRealize())
    return _run(passes, made)


def _run(passes: Iterable[Pass], mod: IRModule) -> IRModule:
    """The module after these passes, at any `opt_level`: quantization needs batch norms folded."""
    disabled = PassContext.current().disabled_pass
    for one in passes:
        if one.info.name not in disabled:
            mod = one(mod)
    return mod
