"""The configuration of quantization, given by a `with` statement."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final

from ...ir.errors import TVMError, near_matches
from ...ir.say_once import say_once
from ..op.registry import get


class QAnnotateKind(IntEnum):
    """The role of a rounded tensor: IDENTITY ends the integers, ACTIVATION is an operand of a 32-bit sum."""

    IDENTITY = 0
    INPUT = 1
    WEIGHT = 2
    ACTIVATION = 3


@dataclass(frozen=True, kw_only=True)
class QConfig:
    """The options of quantization, in force inside `with`."""

    nbit_input: int = 8  # bits of activations, at most those of the type
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"  # the largest activation: one number, or found with a dataset
    global_scale: float = 8.0
    weight_scale: str = "power2"  # the largest weight: rounded up to a power of two, or exact ("max")
    skip_dense_layer: bool = True
    skip_conv_layers: tuple[int, ...] | None = (0,)  # indices of convolutions that stay float
    do_simulation: bool = False  # rounded floats in place of integers
    round_for_shift: bool = True  # add half a unit before a shift to the right, which rounds down otherwise
    store_lowbit_output: bool = True  # other sums and float operators read 8 bits of a convolution, not 32
    debug_enabled_ops: tuple[str, ...] | None = None  # the operators that are quantized; None for all
    rounding: str = "UPWARD"  # of halves, where a scale is not a power of two
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"

    def __post_init__(self) -> None:
        for name in ("skip_conv_layers", "debug_enabled_ops"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                listed = " or ".join(map(repr, choices))
                raise TVMError(
                    f"qconfig({name}={getattr(self, name)!r}): it must be {listed}{_WHY.get(name, '')}"
                )
        if not self.global_scale > 0:
            raise TVMError(f"qconfig(global_scale={self.global_scale!r}): it must be a positive number")
        for name in self.debug_enabled_ops or ():
            get(name)  # an unknown operator is an error
        if self.calibrate_chunk_by != -1:
            say_once(
                "qconfig(calibrate_chunk_by=…) has no effect: calibration keeps histograms, and one run over the "
                "dataset serves all tensors"
            )

    def __enter__(self) -> QConfig:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _entered.set(_entered.get()[:-1])


_BITS: Final = tuple(range(2, 9))
_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "nbit_input": _BITS,
    "nbit_weight": _BITS,
    "nbit_activation": (32,),
    "dtype_input": ("int8",),
    "dtype_weight": ("int8",),
    "dtype_activation": ("int32",),
    "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
    "weight_scale": ("power2", "max"),
    "rounding": ("UPWARD", "TONEAREST"),
    "partition_conversions": ("disabled",),
}
_WHY: Final = {"partition_conversions": "; the quantized module is one function, with its conversions"}
_entered: ContextVar[tuple[QConfig, ...]] = ContextVar("tilewright_qconfig", default=())


def qconfig(**kwargs: Any) -> QConfig:
    """A configuration with these options and defaults for the others, to be entered by `with`."""
    known = [f.name for f in fields(QConfig)]
    for name in kwargs:
        if name not in known:
            raise TVMError(f"qconfig({name}=…): there is no such option{near_matches(name, known)}")
    return QConfig(**kwargs)


def current_qconfig() -> QConfig:
    """The innermost configuration that was entered, or the default one."""
    entered = _entered.get()
    return entered[-1] if entered else QConfig()
