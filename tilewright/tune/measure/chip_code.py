"""Programs of candidates for a chip as plain data: one process builds them and another one runs them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from ...ir.errors import BuildError
from ...runtime.accelerator_module import AcceleratorModule

__all__ = ["ChipUnit", "chip_unit"]


@dataclass(frozen=True, slots=True)
class ChipUnit:
    """A module of an accelerator, pickled: only the process that runs it needs the package of the chip."""

    data: bytes

    def module(self) -> AcceleratorModule:
        """The module in this process."""
        made = pickle.loads(self.data)
        assert isinstance(made, AcceleratorModule)
        return made


def chip_unit(module: object) -> ChipUnit:
    """The result of `build` for an accelerator."""
    if not isinstance(module, AcceleratorModule):
        raise BuildError(
            f"the code generator of the chip makes a {type(module).__name__}, which does not report the time of "
            "the chip; to be tuned, it must make a runtime.accelerator_module.AcceleratorModule"
        )
    try:
        return ChipUnit(pickle.dumps(module))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BuildError(
            f"the module {module.name!r} of the chip cannot be sent to the process that runs it: {error}; let its "
            "`run` be a function of a module, or define `__reduce__`"
        ) from None
