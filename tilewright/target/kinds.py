"""The kinds of targets and the options that each takes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from ..homes import home_of
from ..ir.errors import TargetError, near_matches


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kind: the type of its values, the allowed values, and its meaning.

    `idle` is the reason why a classic option has no effect here; a program that sets it is warned once.
    """

    type: str  # "text", "list", "int", "bool"
    doc: str = ""
    low: int | None = None
    choices: tuple[str, ...] = ()
    idle: str = ""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of target: its name, the device it runs on, the family of hardware, what it can do, its keys and options.

    `tilewright.backends` has one for each kind, which also says how its code is generated.
    """

    name: str
    device_type: int  # as DLPack numbers devices
    family: str  # "cpu", "gpu" or "accelerator"
    options: Mapping[str, Option] = field(default_factory=dict, repr=False, hash=False, compare=False)
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False, compare=False)
    capabilities: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {**_COMMON, **self.options})

    @property
    def default_keys(self) -> tuple[str, ...]:
        """Names that operator strategies are looked up by."""
        return {"cpu": ("cpu",), "gpu": (self.name, "gpu")}.get(self.family, ())

    @property
    def default_device_type(self) -> int:
        return self.device_type

    def __str__(self) -> str:
        return self.name


def count(doc: str) -> Option:
    """An option that counts something: an integer greater than 0."""
    return Option("int", doc, low=1)


_COMMON: Final[dict[str, Option]] = {
    "keys": Option("list", "names that operator strategies are looked up by"),
    "device": Option("text", "one more key, put first"),
    "model": Option("text", "the name of the hardware, for tuning records"),
    "libs": Option(
        "list",
        "libraries that may stand in for generated code",
        idle="operators are compiled, not looked up in libraries; call contrib.cblas from a te program, or partition "
        "the model (relay.op.contrib)",
    ),
    "tag": Option("text", "the tag that the target was made from"),
    "from_device": Option("int", "the number of the device to ask for its figures", low=0),
}

CPU_CODE: Final[dict[str, Option]] = {
    "mcpu": Option("text", "the processor; `native` is this machine's"),
    "mattr": Option("list", "processor features to switch on (+avx2) or off (-avx2)"),
    "mtriple": Option("text", "architecture, vendor and system, as LLVM names them"),
    "mabi": Option("text", "the calling convention"),
    "mfloat-abi": Option(
        "text",
        "how floats are passed",
        choices=("soft", "softfp", "hard"),
        idle="the triple says how floats are passed, as in -mtriple=armv7l-linux-gnueabihf",
    ),
    "num-cores": count("how many cores a program may use"),
    "vector-width": count("bits of a vector register"),
    "machine": Option("text", "figures of the processor, as clock:3.7,fma_ports:2"),
    "system-lib": Option("bool", "functions register themselves when the library is loaded"),
    "link-params": Option("bool", "parameters become part of the library"),
    "runtime": Option("text", "which runtime the code is for", choices=("c", "c++", "cpp", "crt")),
    "executor": Option(
        "text",
        "what runs the graph",
        choices=("graph", "aot", "vm"),
        idle='it is no property of hardware; pass relay.build executor=relay.backend.Executor("aot")',
    ),
    "unpacked-api": Option("bool", "functions take their arguments one by one"),
    "interface-api": Option("text", "how the library is called", choices=("c", "packed")),
    "constants-byte-alignment": count("bytes that constants are aligned to"),
    "workspace-byte-alignment": count("bytes that workspaces are aligned to"),
}

GPU: Final[dict[str, Option]] = {
    "max_num_threads": count("threads of a block that schedules use"),
    "max_threads_per_block": count("threads of a block that the hardware allows"),
    "max_shared_memory_per_block": count("bytes of shared memory of a block"),
    "max_dynamic_shared_memory_per_block": count("the same, asked for when the kernel is launched"),
    "thread_warp_size": count("threads that run in step"),
    "registers_per_block": count("32-bit registers of a block"),
    "max_function_args": count("arguments of a kernel"),
    "max_local_memory_per_block": count("bytes of private memory"),
    "vector_unit_bytes": count("bytes of the widest load"),
    "l2_cache_size_bytes": count("bytes of the cache that all blocks share"),
    "multi_processor_count": count("SMs, which run thread blocks"),
    "memory_bandwidth": count("GB/s of the main memory"),
    "machine": Option("text", "figures of the GPU, as clock:1.9,mma.latency:1200"),
}
_OLD_NAMES: Final = {"shared_memory_per_block": "max_shared_memory_per_block"}


# Other names of the same things.
_ALIASES: Final = {"hip": "rocm", "nvidia": "cuda", "cpu": "llvm", "vta": "ext_dev"}
OPTION_ALIASES: Final = {
    "target": "mtriple",
    "system_lib": "system-lib",
    "num_cores": "num-cores",
    **_OLD_NAMES,
}
_registered: Final[dict[str, TargetKind]] = {}
_modules: Final[
    dict[str, str]
] = {}  # kinds that are described outside of the package: the module that registers each


def register_kind(kind: TargetKind, module: str) -> None:
    """Add a kind of target that is described outside of the package; importing `module` does so in other processes."""
    _registered[kind.name], _modules[kind.name] = kind, module


def module_of_kind(name: str) -> str:
    """The module that another process must import before it knows a kind; empty for the kinds of the package."""
    return _modules.get(name, "")


def import_kind(name: str, module: str) -> None:
    """Import the module that registers a kind, if this process does not know the kind yet."""
    if not module or name in _registered:
        return
    importlib.import_module(module)
    if name not in _registered:
        raise TargetError(
            f"the target kind {name!r} was registered by a call in {module}, and importing {module} does not register "
            "it in another process; call `register` at the top level of the module"
        )


@cache
def _files() -> frozenset[str]:
    """The kinds that have a file of their own."""
    return frozenset(
        m.name for m in pkgutil.iter_modules(home_of("kinds").__path__) if not m.name.startswith("_")
    )


def kind_names() -> list[str]:
    """The names of all kinds."""
    return sorted({*_files(), *_registered})


def kind_named(name: str) -> TargetKind:
    """The kind of that name, or an error that lists all kinds."""
    name = _ALIASES.get(name, name)
    found = _registered.get(name)
    if found is None and name in _files():
        found = _registered[name] = importlib.import_module(f"{home_of('kinds').__name__}.{name}").BACKEND
    if found is None:
        raise TargetError(f"unknown target kind {name!r}{near_matches(name, [*kind_names(), 'hip', 'vta'])}")
    return found
