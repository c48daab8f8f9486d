"""Helpers for tests of compiled programs: comparison of arrays, parametrization by targets, and skips."""

# ruff: noqa: F403
import sys

from ..absent import attributes
from . import targets
from .arrays import assert_allclose, check_numerical_grads
from .calls import device_test, echo, nop
from .parameters import fixture, main, parameter, parameters
from .targets import *

__all__ = [
    "assert_allclose",
    "check_numerical_grads",
    "device_test",
    "echo",
    "fixture",
    "main",
    "nop",
    "parameter",
    "parameters",
]
__all__ += targets.__all__

utils = sys.modules[__name__]  # the classic module of these names, which programs use without importing it

__getattr__ = attributes(__name__)
