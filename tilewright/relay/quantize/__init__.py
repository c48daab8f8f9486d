"""Quantization of float models: 8-bit weights and activations, 32-bit sums, power-of-two scales.

    with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
        mod = relay.quantize.quantize(mod, params)

Three passes do it, one file each. `annotate` marks the tensors that are rounded, `calibrate` chooses their scales, and
`realize` replaces rounded floats by integers; `forms.py` says how operators work on integers.
"""

from __future__ import annotations

from ...absent import attributes
from .annotate import QuantizeAnnotate as annotate
from .calibrate import QuantizeCalibrate as calibrate
from .config import QAnnotateKind, QConfig, current_qconfig, qconfig
from .pipeline import prerequisite_optimize, quantize
from .realize import QuantizeRealize as realize

__all__ = [
    "QAnnotateKind",
    "QConfig",
    "annotate",
    "calibrate",
    "current_qconfig",
    "prerequisite_optimize",
    "qconfig",
    "quantize",
    "realize",
]

__getattr__ = attributes(__name__)
