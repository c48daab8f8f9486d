"""Functions of the runtime that give their arguments back, for tests of what calls pass on."""

from __future__ import annotations

from typing import Any

from ..runtime.devices import Device
from ..runtime.registry import PackedFunc


def _nothing(*args: Any) -> None:
    """A call without an effect."""


def _same_device(dev: Device, device_type: int, device_id: int) -> Device:
    if (dev.device_type, dev.device_id) != (device_type, device_id):
        raise ValueError(f"{dev} is not device {device_id} of type {device_type}")
    return dev


echo = PackedFunc(lambda x: x, "testing.echo")
nop = PackedFunc(_nothing, "testing.nop")
device_test = PackedFunc(_same_device, "testing.device_test")
