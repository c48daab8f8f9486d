"""The classic way to the virtual machine: `relay.vm.compile(mod, target)` and `runtime.vm.VirtualMachine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.module import IRModule
from ..runtime.vm import Executable, VirtualMachine
from .backend.vm import compile_program, optimized
from .binding import bind_params_in_module
from .expr import Expr

__all__ = ["Executable", "VMCompiler", "VirtualMachine", "compile"]


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
        self._made = compile_program(bound, target)

    def optimize(
        self,
        mod: IRModule,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, Any]]:
        """The module after all passes, with functions for kernels, and the parameters that are not bound: none."""
        bound = bind_params_in_module(mod, {**self.params, **(params or {})})
        return optimized(bound, target), {}

    def get_params(self) -> dict[str, Any]:
        """The parameters that were bound."""
        return dict(self.params)

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
