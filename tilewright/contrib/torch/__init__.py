"""Loop programs as PyTorch modules: `as_torch`."""

from ...absent import attributes
from .as_torch import OperatorModuleWrapper, as_torch

__all__ = ["OperatorModuleWrapper", "as_torch"]

__getattr__ = attributes(__name__)
