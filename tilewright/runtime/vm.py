"""The place of the virtual machine that runs graphs with dynamic shapes; there is none yet."""

from __future__ import annotations

from typing import Any

from .errors import TVMError

__all__ = ["Executable", "VirtualMachine"]


class _NotYet:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TVMError(
            f"runtime.vm.{type(self).__name__}: graphs do not run on a virtual machine yet; "
            "compile their functions one by one with tvm.build"
        )


class VirtualMachine(_NotYet):
    """Runs an executable."""


class Executable(_NotYet):
    """A compiled graph for the virtual machine."""
