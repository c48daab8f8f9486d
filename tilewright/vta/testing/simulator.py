"""The simulator of this process: statistics since they were cleared."""

from __future__ import annotations

import json
from typing import Any, Final

from ...runtime.registry import register_func
from ..module import RUNS

DEBUG_SKIP_EXEC: Final = 1  # only cycles are counted; results are not computed
LIBS: Final = ("the simulator is part of the package",)


def enabled() -> bool:
    """Whether there is a simulator."""
    return True


def clear_stats() -> None:
    """Forget the runs so far."""
    RUNS.clear()


def stats() -> dict[str, Any]:
    """The statistics of all runs since they were cleared: bytes, operations, cycles, and what each engine did.

    All values are numbers; figures of an engine are named after it, `compute.busy` or `load.token from compute`.
    """
    out: dict[str, Any] = {}
    for key, value in RUNS.total.table().items():
        if not isinstance(value, dict):
            out[key] = value
            continue
        for engine, figure in value.items():
            if isinstance(figure, dict):
                out |= {f"{engine}.{cause}": cycles for cause, cycles in figure.items()}
            else:
                out[f"{engine}.{key}"] = figure
    return out


def debug_mode(flag: int) -> None:
    """Set the mode of the simulator: `DEBUG_SKIP_EXEC` computes nothing, 0 everything."""
    RUNS.executes = not flag & DEBUG_SKIP_EXEC


register_func("vta.simulator.profiler_clear", clear_stats, override=True)
register_func("vta.simulator.profiler_status", lambda: json.dumps(stats()), override=True)
register_func("vta.simulator.profiler_debug_mode", debug_mode, override=True)
