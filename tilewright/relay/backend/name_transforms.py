"""Names of generated C code from names of models and parameters."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import TVMError


def _checked(name: str, what: str) -> str:
    if not name:
        raise TVMError(f"{what} name is empty")
    if not name.startswith("TVM"):
        raise TVMError(f"{what} not TVM prefixed: {name!r}; use prefix_name or prefix_generated_name first")
    return name


def to_c_function_style(original_name: str) -> str:
    """TVM_woof_woof -> TVMWoofWoof"""
    words = _checked(original_name, "Function").split("_")
    return "".join(w[:1].upper() + w[1:] for w in words)


def to_c_variable_style(original_name: str) -> str:
    """TVM_woof_Woof -> tvm_woof_woof"""
    return _checked(original_name, "Variable").lower()


def to_c_constant_style(original_name: str) -> str:
    """TVM_woof_Woof -> TVM_WOOF_WOOF"""
    return _checked(original_name, "Constant").upper()


def _prefixed(prefix: str, names: str | Sequence[str]) -> str:
    if isinstance(names, str):
        if not names:
            raise TVMError("Name is empty")
        names = [names]
    if not names:
        raise TVMError("Name segments empty")
    if not all(names):
        raise TVMError("Name segment is empty")
    return "_".join([prefix, *names])


def prefix_name(names: str | Sequence[str]) -> str:
    """["woof", "moo"] -> TVM_woof_moo"""
    return _prefixed("TVM", names)


def prefix_generated_name(names: str | Sequence[str]) -> str:
    """["woof", "moo"] -> TVMGen_woof_moo"""
    return _prefixed("TVMGen", names)
