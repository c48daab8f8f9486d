"""The errors of the example accelerator. Each names the thing, the place, the reason and the remedy."""

from __future__ import annotations

from ..runtime.errors import TVMError


class ConfigError(TVMError, ValueError):
    """A configuration that contradicts itself, or is not one."""


class InstructionError(TVMError, ValueError):
    """A field, an instruction or a command that cannot be encoded or decoded."""


class AssemblyError(TVMError, ValueError):
    """A line that the assembler cannot read."""


class SimulatorError(TVMError):
    """An instruction that the chip cannot execute."""
