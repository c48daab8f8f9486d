"""Accelerators that programs bring along: their code is that of the host, which drives them."""

from __future__ import annotations

from typing import Final

from ..target.kinds import Option
from . import Backend
from ._cpu import LOWERING

BACKEND: Final = Backend(
    name="ext_dev",
    device_type=12,
    family="accelerator",
    options={"system-lib": Option("bool")},
    pipeline=LOWERING,
)
