"""The classic home of devices and data types."""

from ..runtime.devices import Device
from ..runtime.dtypes import DataType, DataTypeCode

__all__ = ["DataType", "DataTypeCode", "Device"]
