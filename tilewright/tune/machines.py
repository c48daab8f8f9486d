"""Which machine this is, as records name it: what changes the speed or the code of a candidate."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import lru_cache
from typing import Any

from ..codegen.llvm.engine import llvm_version
from ..codegen.llvm.objects import VERSION
from ..target.host import host_cache_sizes, host_cores, host_cpu_name, host_features

__all__ = ["describe_machine", "differences", "fingerprint", "machine_of"]


@lru_cache(maxsize=1)
def _fixed() -> dict[str, Any]:
    caches = host_cache_sizes()
    llvmlite, llvm = llvm_version()
    return {
        "cpu": _model(),
        "llvm_cpu": host_cpu_name(),
        "features": sorted(host_features()),
        "caches": list(caches) if caches is not None else [],
        "system": platform.system(),
        "versions": {"tilewright": VERSION.rpartition(" ")[2], "llvmlite": llvmlite, "llvm": llvm},
    }


def _model() -> str:
    """The processor as it calls itself."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.lower().startswith(("model name", "hardware")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_machine() -> dict[str, Any]:
    """This machine: model, features, caches, cores, and the versions that make code on it."""
    return {**_fixed(), "cores": host_cores()}


def fingerprint(machine: dict[str, Any] | None = None) -> str:
    """A short name of a machine; that of this one without an argument."""
    text = json.dumps(describe_machine() if machine is None else machine, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def machine_of(measurer: object) -> dict[str, Any]:
    """The machine that a measurer measures on: what it says of itself, else this one."""
    return getattr(measurer, "machine", None) or describe_machine()


def differences(machine: dict[str, Any], other: dict[str, Any]) -> str:
    """In which respects two machines are not the same."""
    out = []
    for key in ("cpu", "cores", "caches", "system"):
        if machine.get(key) != other.get(key):
            out.append(f"{key} {machine.get(key)} instead of {other.get(key)}")
    mine, theirs = set(machine.get("features", [])), set(other.get("features", []))
    if mine != theirs:
        signs = [f"+{f}" for f in sorted(mine - theirs)] + [f"-{f}" for f in sorted(theirs - mine)]
        out.append("features " + " ".join(signs[:8]) + (" …" if len(signs) > 8 else ""))
    if machine.get("versions") != other.get("versions"):
        told = [" ".join(f"{k} {v}" for k, v in m.get("versions", {}).items()) for m in (machine, other)]
        out.append(f"made with {told[0]} instead of {told[1]}")
    return "; ".join(out)
