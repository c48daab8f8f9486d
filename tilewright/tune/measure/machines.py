"""The identity of a machine in records: everything that changes the speed or the code of a candidate."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from ...codegen.llvm.engine import llvm_version
from ...codegen.llvm.objects import VERSION
from ...runtime.devices import Device, device_api
from ...target import Target
from ...target.host import host_cache_sizes, host_cpu_name, host_features
from ...target.kinds import kind_named, kind_names
from ...target.machine import is_host_cpu

_HOSTS = ("cpu", "llvm", "c", "stackvm", "hexagon")


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
    """The name of the processor, as the system reports it."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.lower().startswith(("model name", "hardware")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_machine(target: Any = None) -> dict[str, Any]:
    """This machine: model, features, caches, cores, and the versions of what generates its code. For a GPU target (or
    its text), the first GPU of that kind alone, since its host does not change its times; for an accelerator, the chip.

    All cores count: how many of them a process may use is a property of targets.
    """
    if _is_chip(target):
        return _chip(Target(target))
    kind = _device_kind(target)
    return dict(_device(kind)) if kind else {**_fixed(), "cores": os.cpu_count() or 1}


def _is_chip(target: Any) -> bool:
    name = str(target).split()[0] if target is not None and str(target) else ""
    return name in kind_names() and kind_named(name).family == "accelerator"


def _chip(target: Target) -> dict[str, Any]:
    """A chip by its figures: the simulator of the same figures counts the same cycles on every machine."""
    chip = target.accelerator
    every = asdict(replace(chip, tokens=frozenset())) | {"tokens": sorted(chip.tokens)}
    text = json.dumps(every, sort_keys=True, default=str)
    return {
        "kind": target.kind.name,
        "chip": chip.name,
        "memories": {s.memory: s.nbytes for s in chip.scopes},
        "port": asdict(chip.port),
        "clock": chip.clock,
        "figures": hashlib.sha256(text.encode()).hexdigest()[:16],
        "versions": {"tilewright": VERSION.rpartition(" ")[2]},
    }


def _device_kind(target: Any) -> str:
    """The kind of GPU that a target is for; empty if it is for a CPU."""
    if target is None:
        return ""
    kind = str(target).split()[0] if str(target) else ""
    return kind if kind in Device.STR2MASK and kind not in _HOSTS else ""


@lru_cache(maxsize=8)
def _device(kind: str) -> dict[str, Any]:
    device = Device(Device.STR2MASK[kind], 0)
    versions = {"tilewright": VERSION.rpartition(" ")[2]}
    if not device.exist:
        return {"kind": kind, "gpu": "none", "versions": versions}
    versions |= device_api(device).compilers()
    return {
        "kind": kind,
        "gpu": device.device_name,
        "arch": device.compute_version,
        "driver": device.driver_version,
        "processors": device.multi_processor_count,
        "versions": versions,
    }


def cache_flush_bytes() -> int:
    """How many bytes must be written to evict everything else from the caches of this machine."""
    return 2 * max((1 << 25, *(host_cache_sizes() or ())))


def fingerprint(machine: dict[str, Any] | None = None, target: Any = None) -> str:
    """A short name of `machine`; by default that of this one, or of its GPU for a GPU target."""
    text = json.dumps(describe_machine(target) if machine is None else machine, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------- keys of records
_THREADS = re.compile(r" -num-cores=\d+")


def record_target(target: Any) -> str:
    """A target as records name it: with its number of threads, even if it leaves that to the process.

    llvm    ->    llvm -num-cores=2         in a process that may use two cores
    """
    made = Target(target)
    if not made.is_cpu or "num-cores" in made.attrs or not is_host_cpu(made):
        return str(made)
    return _threaded(str(made), made.num_cores)


@lru_cache(maxsize=64)
def _threaded(text: str, threads: int) -> str:
    return str(Target(f"{text} -num-cores={threads}"))


def record_keys(target: Any, machine: str) -> tuple[tuple[str, str], ...]:
    """The keys (target and machine) of the records for a target on a machine.

    Old records have no number of threads in the target: they are of a machine with as many cores.
    """
    made, here = Target(target), describe_machine(target)
    before = machine
    if made.is_cpu and machine == fingerprint(here):
        before = fingerprint({**here, "cores": made.num_cores})
    return tuple(dict.fromkeys([(record_target(made), machine), (str(made), before)]))


def alike(text: str, target: Any) -> bool:
    """Whether the target of a record is `target`, with any number of threads if `target` does not say how many."""
    wanted = str(Target(target))
    return wanted in (text, _THREADS.sub("", text))


def machine_of(measurer: object, target: Any = None) -> dict[str, Any]:
    """The machine that a measurer measures on: as it reports, else this one, or its GPU for a GPU target."""
    return getattr(measurer, "machine", None) or describe_machine(target)


_COMPARED = (
    "cpu", "cores", "caches", "system", "gpu", "arch", "driver", "processors", "chip", "memories", "port", "clock",
    "figures",
)  # fmt: skip


def differences(machine: dict[str, Any], other: dict[str, Any]) -> str:
    """The differences of two machines, as text."""
    out = []
    for key in _COMPARED:
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
