"""The classic home of devices and data types."""

from ..runtime.devices import Device
from ..runtime.dtypes import DataType

__all__ = ["DataType", "Device"]
