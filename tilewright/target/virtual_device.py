"""The place of a value: a device, the target of its code, and a memory scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .target import Target


@dataclass(frozen=True, slots=True, init=False)
class VirtualDevice:
    """A device (by its numbers), a target and a memory scope; each of them may be unspecified."""

    device_type: int
    virtual_device_id: int
    target: Target | None
    memory_scope: str

    def __init__(self, device: Any = None, target: Any = None, memory_scope: str = "") -> None:
        made = None if target is None else Target.canon_target(target)
        kind = int(device.device_type) if device is not None else made.kind.device_type if made else 0
        number = int(device.device_id) if device is not None else -1
        object.__setattr__(self, "device_type", kind)
        object.__setattr__(self, "virtual_device_id", number)
        object.__setattr__(self, "target", made)
        object.__setattr__(self, "memory_scope", memory_scope)

    @property
    def device_type_int(self) -> int:
        return self.device_type

    @property
    def is_fully_unconstrained(self) -> bool:
        """Whether nothing is specified."""
        return not (self.device_type or self.target or self.memory_scope) and self.virtual_device_id < 0
