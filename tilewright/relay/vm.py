"""The classic way to the virtual machine: `relay.vm.compile(mod, target)` and `runtime.vm.VirtualMachine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.module import IRModule
from ..runtime.devices import cpu
from .backend.vm import Machine
from .binding import bind_params_in_module
from .expr import Expr

__all__ = ["Executable", "VMCompiler", "compile"]


class Executable:
    """A compiled program of the virtual machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters."""
        return [p.name_hint for p in self.machine.mod[func_name].params]


class VMCompiler:
    """Compiles modules for the virtual machine."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self._made: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        self.params.update(params)

    def lower(self, mod: IRModule, target: Any = None, target_host: Any = None) -> None:
        """Compile a module."""
        bound = bind_params_in_module(mod, self.params)
        self._made = Executable(Machine(bound, target or "llvm", cpu(0)))

    def codegen(self) -> None:
        """Done in `lower`."""

    def get_exec(self) -> Executable:
        if self._made is None:
            raise ValueError("VMCompiler: call lower(mod, target) first")
        return self._made


def compile(
    mod: Any, target: Any = None, target_host: Any = None, params: Mapping[str, Any] | None = None
) -> Executable:
    """A module compiled for the virtual machine."""
    compiler = VMCompiler()
    compiler.set_params(params or {})
    compiler.lower(IRModule.from_expr(mod) if isinstance(mod, Expr) else mod, target, target_host)
    return compiler.get_exec()
