"""Ready-made records of the classic stack's hub, which fit its templates and no others."""

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
    """A context of no ready-made records; of those in `extra_files` if there are any. It says so once."""
    if "hub" not in _warned:
        _warned.add("hub")
        logger.info(
            "there is no hub of ready-made records: what has none is scheduled by the model of the machine; tune, and "
            "use autotvm.apply_history_best(file)"
        )
    best = ApplyHistoryBest([])
    for name in [extra_files] if isinstance(extra_files, (str, Path)) else extra_files or []:
        best.load(name)
    if not extra_files and not isinstance(DispatchContext.current, FallbackContext):
        return EmptyContext()
    return best


def check_backend(tophub_location: str, backend: str) -> bool:
    """Whether there are ready-made records for a kind of device: there are none."""
    return False


def download_package(tophub_location: str, package_name: str) -> None:
    """Fetch ready-made records, which there are none of."""
    raise UnsupportedError(
        f"autotvm.tophub.download_package({package_name!r}): the records of the hub fit the templates of the classic "
        "stack and no others; tune, and use autotvm.apply_history_best(file)"
    )


def load_reference_log(backend: str, model: str, workload_name: str) -> list[Any]:
    """Ready-made records of a template for other workloads: there are none."""
    return []
