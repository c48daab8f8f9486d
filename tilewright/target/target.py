"""A target: the hardware that code is generated for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, overload

from ..ir.errors import TargetError, UnsupportedError
from .accelerator import Accelerator
from .capabilities import capabilities_of
from .gpu_machine import checked_gpu_figures
from .gpus import model_of
from .host import CacheSizes
from .kinds import TargetKind, kind_named, kind_names
from .machine import (
    CpuMachine,
    GpuMachine,
    LlvmSettings,
    checked_figures,
    cpu_features,
    figures_of_text,
    gpu_figures_of_text,
    llvm_settings,
    machine_of,
    text_of_figures,
)
from .parse import parse_target

__all__ = ["Target", "TargetFeatures", "TargetKind", "create", "register_device_lookup"]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.targets: list[Target] = []


_stack: Final = _Stack()


class Target:
    """A kind of hardware with its options, and optionally the host that drives it.

    Written as text (`"llvm -mcpu=znver4 -num-cores=4"`), as a dict, as JSON, or as a tag
    (`"nvidia/geforce-rtx-3090"`). Two targets that say the same are equal. `with target:` makes it the
    current one.
    """

    __slots__ = ("_machine", "_text", "attrs", "host", "keys", "kind", "tag")

    kind: TargetKind
    keys: tuple[str, ...]
    attrs: Mapping[str, Any]
    host: Target | None
    tag: str

    def __init__(self, target: str | Mapping[str, Any] | Target, host: Any = None) -> None:
        self._text, self.host = "", None
        self._machine: CpuMachine | GpuMachine | None = None
        if isinstance(target, Target):
            self.kind, self.keys, self.attrs, self.tag = target.kind, target.keys, target.attrs, target.tag
            own = target.host
        elif isinstance(target, (str, Mapping)):
            parsed = parse_target(target)
            self.kind, self.keys, self.tag = parsed.kind, parsed.keys, parsed.tag
            self.attrs = MappingProxyType(parsed.attrs)
            own = None if parsed.host is None else _as_host(parsed.host)
        else:
            raise TypeError(f"a target is text, a dict or a Target, not {target!r} ({type(target).__name__})")
        given = None if host is None else _as_host(host)
        if own is not None and given is not None and own != given and not self.tag:
            raise TargetError(f"target {self} has the host {own} already; it cannot have {given} too")
        self.host = own if given is None else given
        if self.is_gpu and "machine" in self.attrs:
            self._machine = machine_of(self)  # wrong figures are refused here, and not when they are needed

    # -- context -------------------------------------------------------------------------------
    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target of this thread's `with` statements."""
        if _stack.targets:
            return _stack.targets[-1]
        if allow_none:
            return None
        raise TargetError('there is no current target; write `with tvm.target.Target("llvm"):`')

    def __enter__(self) -> Target:
        _stack.targets.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.targets.pop()

    # -- text ----------------------------------------------------------------------------------
    def __str__(self) -> str:
        if not self._text:
            words = [self.kind.name]
            if self.keys:
                words.append("-keys=" + ",".join(self.keys))
            for name in sorted(self.attrs):
                words.append(f"-{name}={_written(self.attrs[name])}")
            self._text = " ".join(words)
        return self._text

    __repr__ = __str__

    def export(self) -> dict[str, Any]:
        """The target as plain data: `Target(t.export()) == t`."""
        out: dict[str, Any] = {"kind": self.kind.name, "tag": self.tag, "keys": list(self.keys)}
        for name, value in self.attrs.items():
            out[name] = list(value) if isinstance(value, tuple) else value
        if self.host is not None:
            out["host"] = self.host.export()
        return out

    def to_json(self) -> str:
        """The target as JSON text."""
        return json.dumps(self.export(), sort_keys=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return str(self) == str(other) and self.host == other.host

    def __hash__(self) -> int:
        return hash((str(self), self.host))

    def __copy__(self) -> Target:
        return self

    def __deepcopy__(self, memo: Any) -> Target:
        return self

    def __reduce__(self) -> Any:
        return (Target, (self.export(),))

    def same_as(self, other: object) -> bool:
        return self is other

    # -- parts ---------------------------------------------------------------------------------
    def with_host(self, host: Any) -> Target:
        """This target driven by another host."""
        made = Target(self)
        made.host = None if host is None else _as_host(host)
        return made

    def without_host(self) -> Target:
        """This target alone."""
        return self if self.host is None else self.with_host(None)

    def with_attr(self, name: str, value: Any) -> Target:
        """This target with one option changed; None removes it."""
        data = self.export()
        data.pop("tag")
        data[name] = value
        return Target(data)

    def with_machine(self, figures: CpuMachine | Mapping[str, int | float] | None) -> Target:
        """This target with other figures of its machine; None restores the figures of its name.

            Target("llvm").with_machine(tilewright.target.measure())
            Target("llvm -mcpu=znver4").with_machine({"clock": 3.1, "memory_bandwidth": 18})
            Target("cuda -arch=sm_80").with_machine({"bandwidth": 2039, "mma.latency": 1200})

        They become the option `-machine`, so that they are part of the target's text, of its equality and
        of every key that is made from it. A machine keeps the target's own `-num-cores` and `-vector-width`.
        """
        if figures is None:
            return self.with_attr("machine", None)
        if self.is_gpu:
            return self._with_gpu_figures(figures)
        if not self.is_cpu:
            raise TargetError(f"target {self} has no machine figures; only CPU and GPU targets have them")
        if isinstance(figures, CpuMachine):
            if figures.arch != self.cpu.arch:
                raise TargetError(
                    f"the figures are those of {figures.cpu} ({figures.arch}), but target {self} is for "
                    f"{self.cpu.arch}"
                )
            given: Mapping[str, int | float] = figures.figures()
            said = {"num-cores": "num_cores", "vector-width": "preferred_vector_bits"}
            drop = [figure for option, figure in said.items() if option in self.attrs]
            if figures.preferred_vector_bits > self.vector_bits:
                drop.append("preferred_vector_bits")
            given = {name: value for name, value in given.items() if name not in drop}
        else:
            given = {**self._given_figures(), **checked_figures(figures, f"target {self}")}
        return self.with_attr("machine", text_of_figures(given) or None)

    def _with_gpu_figures(self, figures: object) -> Target:
        if not isinstance(figures, Mapping):
            raise TargetError(f"target {self} takes figures by name, not a {type(figures).__name__}")
        text = self.attrs.get("machine")
        before = {} if text is None else gpu_figures_of_text(self.gpu, text, f"target {self}")
        both = {**before, **checked_gpu_figures(self.gpu, figures, f"target {self}")}
        return self.with_attr("machine", ",".join(f"{k}:{v}" for k, v in sorted(both.items())) or None)

    def _given_figures(self) -> dict[str, int | float]:
        text = self.attrs.get("machine")
        return {} if text is None else figures_of_text(text, f"target {self}")

    def get_kind_attr(self, name: str) -> Any:
        """An attribute of the target's kind."""
        return getattr(self.kind, name, None)

    def get_target_device_type(self) -> int:
        """The number that DLPack gives to the device."""
        return self.kind.device_type

    @property
    def is_cpu(self) -> bool:
        return self.kind.family == "cpu"

    @property
    def is_gpu(self) -> bool:
        return self.kind.family == "gpu"

    @property
    def is_accelerator(self) -> bool:
        return self.kind.family == "accelerator"

    @property
    def accelerator(self) -> Accelerator:
        """The description of the chip of an accelerator target."""
        describe = getattr(self.kind, "chip", None)
        if describe is None:
            raise TargetError(f"target {self} is not an accelerator with a description")
        found: Accelerator = describe(self)
        return found

    @property
    def model(self) -> str:
        return str(self.attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        return str(self.attrs.get("device", ""))

    @property
    def mcpu(self) -> str:
        """The processor as it was given; empty means this machine's."""
        return str(self.attrs.get("mcpu", ""))

    @property
    def mattr(self) -> list[str]:
        return list(self.attrs.get("mattr", ()))

    @property
    def mtriple(self) -> str:
        return str(self.attrs.get("mtriple", ""))

    @property
    def libs(self) -> list[str]:
        return list(self.attrs.get("libs", ()))

    @property
    def arch(self) -> str:
        """`sm_80` of a GPU, `x86_64` of a processor."""
        return str(self.attrs["arch"]) if "arch" in self.attrs else self.machine.arch

    def _limit(self, name: str) -> int:
        value = self.attrs.get(name)
        if value is None:
            raise TargetError(f"target {self} does not set -{name}")
        return int(value)

    @property
    def max_num_threads(self) -> int:
        return self._limit("max_num_threads")

    @property
    def thread_warp_size(self) -> int:
        return self._limit("thread_warp_size")

    @property
    def max_shared_memory_per_block(self) -> int:
        return self._limit("max_shared_memory_per_block")

    @property
    def max_function_args(self) -> int:
        return int(self.attrs.get("max_function_args", -1))

    @property
    def l2_cache_size_bytes(self) -> int:
        return int(self.attrs.get("l2_cache_size_bytes", 0))

    @property
    def supports_integer_dot_product(self) -> bool:
        if "supports_integer_dot_product" in self.attrs:
            return bool(self.attrs["supports_integer_dot_product"])
        return self.has("dp4a")

    def has(self, capability: str) -> bool:
        """Whether the target has a capability.

        A capability is one of its kind (`aot_executor`, `tensor_cores`: see `backends`), a feature of its processor
        (`avx2`), or one of its GPU (`tma`, `mma.f16`: see `target.capabilities`).
        """
        return capability in self.kind.capabilities or capability in capabilities_of(self)

    # -- figures -------------------------------------------------------------------------------
    @property
    def machine(self) -> CpuMachine | GpuMachine:
        """The figures of the target's machine."""
        if self._machine is None:
            self._machine = machine_of(self)
        return self._machine

    @property
    def cpu(self) -> CpuMachine:
        """The figures of a CPU target."""
        found = self.machine
        if not isinstance(found, CpuMachine):
            raise TargetError(f"target {self} is not a CPU target")
        return found

    @property
    def gpu(self) -> GpuMachine:
        """The figures of a GPU target."""
        found = self.machine
        if not isinstance(found, GpuMachine):
            raise TargetError(f"target {self} is not a GPU target")
        return found

    @property
    def num_cores(self) -> int:
        """The cores that a program may use: `-num-cores`, or those of this machine."""
        return self.cpu.num_cores

    @property
    def vector_bits(self) -> int:
        """Bits of the widest vector register."""
        return self.cpu.vector_bits

    @property
    def preferred_vector_bits(self) -> int:
        """Bits of the vectors that run fastest on the CPU."""
        return self.cpu.preferred_vector_bits

    @property
    def vector_registers(self) -> int:
        return self.cpu.vector_registers

    @property
    def cache_sizes(self) -> CacheSizes:
        return self.cpu.cache_sizes

    @property
    def llvm(self) -> LlvmSettings:
        """Triple, processor and features for LLVM."""
        if not self.is_cpu:
            raise TargetError(f"target {self} is not compiled by LLVM for a processor")
        return llvm_settings(self)

    @property
    def features(self) -> TargetFeatures:
        """The processor features that code may use."""
        if not self.is_cpu:
            return TargetFeatures(frozenset(), "")
        return TargetFeatures(cpu_features(self), self.arch)

    @property
    def has_scalable_vectors(self) -> bool:
        """Whether there is code for vectors whose length only the hardware knows: SVE of ARM, and V of RISC-V."""
        if not self.is_cpu or "scalable_vectors" not in self.kind.capabilities:
            return False
        feature = {"aarch64": "sve", "riscv64": "v"}.get(self.arch)
        return feature is not None and feature in self.features

    # -- other ways to a target ----------------------------------------------------------------
    @staticmethod
    def list_kinds() -> list[str]:
        """The names of all kinds."""
        return kind_names()

    @staticmethod
    def target_or_current(target: Any) -> Target:
        """The given target, else the current one."""
        if target is not None:
            return target if isinstance(target, Target) else Target(target)
        found = Target.current(allow_none=False)
        assert found is not None
        return found

    @staticmethod
    def from_device(device: Any) -> Target:
        """The target of an existing device, with the figures that the device reports."""
        return _from_device(device)

    @staticmethod
    def canon_target(target: Any) -> Target | None:
        """The Target for anything that describes one (text, dict, Target), or None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(target: Any, target_host: Any = None) -> tuple[Target | None, Target | None]:
        """A target and its host as targets, each knowing of the other."""
        if target is None:
            if target_host is not None:
                raise TargetError("a host was given without a target")
            return None, None
        made = Target(target, target_host)
        return made, made.host

    # Its name before TVM 0.9, which had a third argument for targets in a dict.
    check_and_update_host_consist = canon_target_and_host

    @staticmethod
    def canon_multi_target(multi_targets: Any) -> list[Target]:
        """One target, several in a list, or a dict from devices to targets, as a list."""
        if multi_targets is None:
            return []
        if isinstance(multi_targets, Mapping) and "kind" not in multi_targets and "tag" not in multi_targets:
            multi_targets = list(multi_targets.values())
        if isinstance(multi_targets, (str, Mapping, Target)):
            multi_targets = [multi_targets]
        return [Target(t) for t in multi_targets]

    @staticmethod
    def canon_multi_target_and_host(target: Any, target_host: Any = None) -> list[Target]:
        """The same, each with the host."""
        if target is None:
            raise TargetError("at least one target must be given")
        return [Target(t, target_host) for t in Target.canon_multi_target(target)]

    @overload
    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, Any], target_host: Any = None
    ) -> tuple[dict[Target, Any], Target | None]: ...
    @overload
    @staticmethod
    def canon_target_map_and_host(target_map: None, target_host: Any = None) -> tuple[None, None]: ...
    @staticmethod
    def canon_target_map_and_host(target_map: Any, target_host: Any = None) -> Any:
        """A dict from targets to modules, its keys as targets with the host."""
        if target_map is None:
            return None, None
        host = None if target_host is None else _as_host(target_host)
        made: dict[Target, Any] = {}
        for key, value in target_map.items():
            one = Target(key, host)
            made[one] = value
            host = host or one.host
        return made, host


def _as_host(given: Any) -> Target:
    return given if isinstance(given, Target) else Target(given)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"'{text}'" if " " in text else text


class TargetFeatures:
    """Processor features: `"avx2" in target.features`, `target.features.has_dotprod`."""

    __slots__ = ("_arch", "_names")

    _CLASSIC: Final = {
        "has_asimd": "neon",
        "has_matmul_i8": "i8mm",
        "has_fp16_simd": "fullfp16",
        "has_mve": "mve",
    }

    def __init__(self, names: frozenset[str], arch: str) -> None:
        self._names, self._arch = names, arch

    def __contains__(self, name: str) -> bool:
        return name.lstrip("+") in self._names

    def __iter__(self) -> Any:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __bool__(self) -> bool:
        """A target always has a description of its features, be it empty."""
        return True

    def __getattr__(self, name: str) -> bool:
        if name.startswith("is_"):
            return self._arch == name[3:]
        if not name.startswith("has_"):
            raise AttributeError(f"features are asked for as has_avx2, not {name}")
        return self._CLASSIC.get(name, name[4:].replace("_", "-")) in self._names or name[4:] in self._names


# -- devices ------------------------------------------------------------------------------------
_device_lookup: Callable[[str], Any] | None = None


def register_device_lookup(lookup: Callable[[str], Any]) -> None:
    """Give the function that finds a device by its text (`"cuda:0"`); the runtime does."""
    global _device_lookup
    _device_lookup = lookup


_ASKED: Final = {
    "max_threads_per_block": "max_threads_per_block",
    "max_shared_memory_per_block": "max_shared_memory_per_block",
    "max_dynamic_shared_memory_per_block": "max_dynamic_shared_memory_per_block",
    "registers_per_block": "registers_per_block",
    "thread_warp_size": "warp_size",
    "multi_processor_count": "multi_processor_count",
    "l2_cache_size_bytes": "l2_cache_size_bytes",
    "memory_bandwidth": "memory_bandwidth",
}


def _from_device(device: Any) -> Target:
    if isinstance(device, str):
        if device.split(":", 1)[0] in ("cpu", "llvm"):
            return Target("llvm")
        if _device_lookup is None:
            raise UnsupportedError(f"Target.from_device({device!r}): give the device itself, tvm.device(…)")
        device = _device_lookup(device)
    number = int(device.device_type)
    if number == 1:
        return Target("llvm")
    known = {kind.device_type: kind for kind in map(kind_named, kind_names())}.get(number)
    if known is None:
        raise TargetError(f"no target kind runs on {device}")
    if not device.exist:
        raise TargetError(f"device {device} is not there")
    data: dict[str, Any] = {"kind": known.name}
    for option, attribute in _ASKED.items():
        value = getattr(device, attribute, None)
        if value and option in known.options:
            data[option] = int(value)
    version = getattr(device, "compute_version", None)
    if version and "arch" in known.options:
        # from Hopper on there are instructions that only code for this very architecture may use
        data["arch"] = f"sm_{str(version).replace('.', '')}{'a' if float(version) >= 9 else ''}"
        data["max_num_threads"] = data.get("max_threads_per_block", 1024)
    if known.name == "cuda" and (model := model_of(str(getattr(device, "device_name", "") or ""))):
        data["model"] = model
    return Target(data)


def create(target: Any) -> Target:
    """A target from its text or dict."""
    return target if isinstance(target, Target) else Target(target)
