"""Frames of modules."""

from __future__ import annotations

from typing import Any

from ...ir import GlobalVar, IRModule
from .base import IRBuilder, IRBuilderFrame

__all__ = ["decl_function", "def_function", "ir_module", "module_attrs", "module_get_attrs"]


class ModuleFrame(IRBuilderFrame):
    """`with I.ir_module():`: the functions that are built inside make up the module."""

    def __init__(self) -> None:
        super().__init__(lambda: self, lambda body: self.module())
        self.functions: dict[GlobalVar, Any] = {}
        self.attrs: dict[str, Any] = {}

    def module(self) -> IRModule:
        _open_modules.remove(self)
        return IRModule(self.functions, attrs=self.attrs)

    def global_var(self, name: str) -> GlobalVar:
        """The name of a function, declared now if it is not yet."""
        known = [gv for gv in self.functions if gv.name_hint == name]
        return known[0] if known else GlobalVar(name)

    def __enter__(self) -> ModuleFrame:
        super().__enter__()
        _open_modules.append(self)
        return self


_open_modules: list[ModuleFrame] = []


def ir_module() -> ModuleFrame:
    """`with I.ir_module():`."""
    IRBuilder.current()
    return ModuleFrame()


def open_module(what: str = "") -> ModuleFrame | None:
    """The module that is being built; with `what`, there must be one."""
    if _open_modules:
        return _open_modules[-1]
    if what:
        raise ValueError(f"{what} stands outside of a module: write `with I.ir_module():` around it")
    return None


def module_attrs(attrs: Any) -> None:
    """Attributes of the module."""
    frame = open_module("I.module_attrs")
    assert frame is not None
    frame.attrs.update(attrs)


def module_get_attrs() -> dict[str, Any]:
    """The attributes of the module so far."""
    frame = open_module("I.module_get_attrs")
    assert frame is not None
    return dict(frame.attrs)


def decl_function(func_name: str, func_signature: Any) -> GlobalVar:
    """Declare a function of the module, to be called before it is defined."""
    frame = open_module("I.decl_function")
    assert frame is not None
    made = frame.global_var(func_name)
    frame.functions[made] = func_signature
    return made


def def_function(func_name: str, func: Any) -> None:
    """Define a function of the module."""
    frame = open_module("I.def_function")
    assert frame is not None
    frame.functions[frame.global_var(func_name)] = func
