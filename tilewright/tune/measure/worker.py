"""The other end of the pipe: a process that builds candidates, or one that runs them.

    python -m tilewright.tune.measure.worker FD PARENT build|run MEMORY-MiB [CORES [KIND [MODULE]]]

It answers requests until the pipe closes or its parent is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def _tie_to_parent(parent: int) -> None:
    """Make this process end with its parent, however that ends: a candidate may never return to reading the pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has already ended
            sys.exit(0)


def _limit(mebibytes: int) -> None:
    """Limit the address space to `mebibytes` more than now, and write no core files."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if mebibytes <= 0:
        return
    used = 0
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    most = used + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _on_device(kind: str, module: str = "") -> Any:
    """What runs candidates on the first GPU of a kind, or on a chip, whose kind `module` may have to register."""
    from ...target.kinds import import_kind, kind_named

    import_kind(kind, module)
    if kind_named(kind).family == "accelerator":
        from .chip_running import ChipRunner

        return ChipRunner(kind)
    from ...runtime.devices import Device
    from .device_running import DeviceRunner

    return DeviceRunner(Device(kind_named(kind).device_type, 0))


def main(arguments: list[str]) -> None:
    """Serve requests: each is a name and a value, each answer a value."""
    number, parent, role, memory, *cores = arguments
    _tie_to_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(c) for c in cores[0].split(",")])
    handlers: dict[str, Callable[[Any], Any]]
    if role == "build":
        from .building import Builder

        handlers = Builder().requests()
    elif cores[1:]:
        handlers = _on_device(*cores[1:]).requests()
    else:
        from .running import Runner

        handlers = Runner().requests()
    _limit(int(memory))
    pipe = Connection(int(number))
    pipe.send("ready")
    while True:
        try:
            name, value = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(handlers[name](value))


if __name__ == "__main__":
    main(sys.argv[1:])
