"""TopHub, the classic stack's collection of ready-made records, which fit its own templates only."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ..ir.errors import UnsupportedError
from .task.dispatcher import ApplyHistoryBest, DispatchContext, FallbackContext
from .utils import EmptyContext

logger = logging.getLogger("autotvm")
_warned: set[str] = set()


def context(target: Any, extra_files: Any = None) -> Any:
    """A context with the records of `extra_files`; there are no ready-made ones, which is logged once."""
    if "hub" not in _warned:
        _warned.add("hub")
        logger.info(
            "there are no ready-made records: kernels without records are scheduled by the cost model of the machine; "
            "tune, and use autotvm.apply_history_best(file)"
        )
    best = ApplyHistoryBest([])
    for name in [extra_files] if isinstance(extra_files, (str, Path)) else extra_files or []:
        best.load(name)
    if not extra_files and not isinstance(DispatchContext.current, FallbackContext):
        return EmptyContext()
    return best


def check_backend(tophub_location: str, backend: str) -> bool:
    """Whether there are ready-made records for a kind of device: always False."""
    return False


def download_package(tophub_location: str, package_name: str) -> None:
    """Download ready-made records: always an error."""
    raise UnsupportedError(
        f"autotvm.tophub.download_package({package_name!r}): the records of the hub fit the templates of the classic "
        "stack and no others; tune, and use autotvm.apply_history_best(file)"
    )


def load_reference_log(backend: str, model: str, workload_name: str) -> list[Any]:
    """Ready-made records of a template for other workloads: always empty."""
    return []
