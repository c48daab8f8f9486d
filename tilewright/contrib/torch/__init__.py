"""Programs and models as PyTorch modules: `as_torch`, `optimize_torch`."""

from ...absent import attributes
from .as_torch import OperatorModuleWrapper, as_torch
from .optimize_torch import GraphExecutorFactoryWrapper, optimize_torch

__all__ = ["GraphExecutorFactoryWrapper", "OperatorModuleWrapper", "as_torch", "optimize_torch"]

__getattr__ = attributes(__name__)
