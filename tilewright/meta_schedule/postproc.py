"""Postprocessors: changes of a schedule before it is measured."""

from __future__ import annotations

from typing import Any

from ..ir.errors import UnsupportedError
from ..tir.schedule import Schedule
from .named import Named


class Postproc(Named):
    """A change that tilewright makes when it lowers a program, under a classic name."""

    def apply(self, sch: Schedule) -> bool:
        """Change a schedule; returns whether it may be measured."""
        raise UnsupportedError(
            f"{type(self).__name__}.apply: lowering does this work for every schedule; leave it out, or write a "
            "PyPostproc of your own"
        )

    @staticmethod
    def create(kind: Any) -> list[Postproc]:
        """The postprocessors for a kind of target: none, as lowering does their work."""
        return []


class PyPostproc(Postproc):
    """A postprocessor of your own, for the schedules of a `ScheduleFn` or a `PyScheduleRule`: override `apply`."""

    def initialize_with_tune_context(self, context: Any) -> None:
        """Called once before a search."""

    _initialize_with_tune_context = initialize_with_tune_context


class DisallowAsyncStridedMemCopy(Postproc):
    """Asynchronous copies are contiguous."""


class DisallowDynamicLoop(Postproc):
    """Loops have constant extents."""


class RewriteCooperativeFetch(Postproc):
    """Threads of a block copy together."""


class RewriteLayout(Postproc):
    """Constant weights are packed at compile time."""


class RewriteParallelVectorizeUnroll(Postproc):
    """Annotations become loops."""


class RewriteReductionBlock(Postproc):
    """Reductions have their initial values set apart."""


class RewriteTensorize(Postproc):
    """Blocks become tensor intrinsics."""


class RewriteUnboundBlock(Postproc):
    """Every block of a GPU runs on threads."""


class VerifyGPUCode(Postproc):
    """Kernels are within the limits of the device."""


class VerifyVTCMLimit(Postproc):
    """Memory is within the limit of the device."""
