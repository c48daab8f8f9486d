"""Queries about the installed LLVM and the features of its targets."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ..ir.errors import TargetError
from .machine import cpu_features
from .target import Target


def llvm_version_major(allow_none: bool = False) -> int | None:
    """The major version of LLVM; None if it is missing and that is allowed."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        if allow_none:
            return None
        raise
    return int(llvm.llvm_version_info[0])


def _cpu_target(target: Any) -> Target:
    if target is None:
        target = Target.current() or "llvm"
    made = target if isinstance(target, Target) else Target(target)
    if not made.is_cpu:
        raise TargetError(f"target {made} is not compiled by LLVM for a processor")
    return made


def target_has_features(cpu_features_asked: str | list[str], target: Any = None) -> bool:
    """Whether the target (else the current one, else this machine) has all these processor features."""
    names = cpu_features_asked.split(",") if isinstance(cpu_features_asked, str) else cpu_features_asked
    have = cpu_features(_cpu_target(target))
    return all(name.strip().lstrip("+") in have for name in names)


def llvm_get_vector_width(target: Any = None) -> int:
    """Bits of the widest vector register of the target."""
    return _cpu_target(target).vector_bits


def llvm_get_system_cpu() -> str:
    """This machine's processor, as LLVM names it."""
    from .host import host_cpu_name

    return host_cpu_name()


def llvm_get_system_triple() -> str:
    """This machine's triple."""
    from .host import host_triple

    return host_triple()


# LLVM's own numbers are not part of its Python binding, so names are numbered as they are asked for.
_names: list[str] = [""]
_numbers: dict[str, int] = {}


@cache
def _is_intrinsic(name: str) -> bool:
    """Whether LLVM knows the name: its printer marks the declarations of those that it does not."""
    import llvmlite.binding as llvm

    if not re.fullmatch(r"[A-Za-z0-9_.]+", name):
        return False
    return "Unknown intrinsic" not in str(llvm.parse_assembly(f"declare void @{name}()\n"))


def llvm_lookup_intrinsic_id(name: str) -> int:
    """A number for an LLVM intrinsic, 0 if there is none of that name. It holds for this process."""
    if name in _numbers:
        return _numbers[name]
    if not name.startswith("llvm.") or not _is_intrinsic(name):
        return 0
    _names.append(name)
    _numbers[name] = len(_names) - 1
    return _numbers[name]


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """The name behind a number of `llvm_lookup_intrinsic_id`."""
    if not 0 < intrin_id < len(_names):
        raise ValueError(f"{intrin_id} is the number of no LLVM intrinsic that was looked up")
    return _names[intrin_id]
