"""Running a function on the chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...homes import home_of
from ..environment import Environment, get_env
from . import simulator


def run(run_func: Callable[[Environment, Any], Any]) -> None:
    """Call `run_func(env, session)` with the current environment and a session on the machine of the chip."""
    env = get_env()
    if env.config.target not in ("sim", "tsim"):
        raise RuntimeError(
            f"the configuration is for {env.config.target}: connect to the board with rpc.connect and pass the session "
            "yourself, or set TARGET to sim"
        )
    simulator.clear_stats()
    run_func(env, home_of("sessions").LocalSession())
