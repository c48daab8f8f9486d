"""Running programs in the simulator from tests: `run` calls a function with a session for the chip."""

from .utils import run

__all__ = ["run"]
