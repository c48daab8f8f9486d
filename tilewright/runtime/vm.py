"""Running programs of the virtual machine: `VirtualMachine(executable, device).invoke("main", x)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .devices import Device

__all__ = ["VirtualMachine"]


class VirtualMachine:
    """Calls the functions of an executable."""

    def __init__(self, exe: Any, device: Device | Sequence[Device], memory_cfg: Any = None) -> None:
        self.machine = exe.machine
        self._parameters = exe.get_function_params
        self._inputs: dict[str, list[Any]] = {}
        self._outputs: list[Any] = []

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a function for `run`."""
        names = self._parameters(func_name)
        given = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names:
                raise ValueError(
                    f"{func_name} has no parameter {name!r}; it has {', '.join(names) or 'none'}"
                )
            given[name] = value
        missing = [n for n in names if n not in given]
        if missing or len(args) > len(names):
            raise ValueError(
                f"{func_name} takes {', '.join(names)}; {', '.join(missing) or 'too many'} is wrong"
            )
        self._inputs[func_name] = [given[n] for n in names]

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        result = self.machine.run(func_name, self._inputs.get(func_name, []))
        self._outputs = (
            list(result) if isinstance(result, (tuple, list)) or hasattr(result, "tag") else [result]
        )
        return result

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call `main`."""
        return self.invoke("main", *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """The results of the last call."""
        return list(self._outputs)
