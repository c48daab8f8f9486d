"""Modules of kernels, and of the functions that launch them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files import write_whole, written_whole
from .devices import Device, device_api
from .errors import LoadError, TVMError
from .host_program import Launcher, host_function
from .launcher import NativeFunction
from .metadata import LibraryInfo, parse_metadata
from .module import Module
from .reports import Report
from .seal import check_seal, sealed, sealed_text, unsealed_text

_SOURCE_NAMES = {"cuda": ("cu", "cuda"), "opencl": ("cl", "opencl")}
# Keys in the description of a library: the host programs, and the kernels.
PROGRAMS, DEVICES = "programs", "devices"
_KERNELS = {
    "ptx": r"\.entry\s+(\w+)",
    "cu": r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(",
    "cl": r"__kernel\s+void\s+(\w+)\s*\(",
}


class DeviceModule(Module):
    """The source of kernels, compiled for a device when one of them is first launched there.

    The option `image` is the compiled form: PTX or machine code of CUDA. The option `ptx` is for machines without a
    compiler.
    """

    def __init__(
        self, kind: str, source: str, kernels: list[str], options: dict[str, Any] | None = None
    ) -> None:
        self.type_key = kind
        self.name = kernels[0] if kernels else kind
        self.source, self.kernels, self.options = source, kernels, dict(options or {})
        self.info = LibraryInfo("", kind, "", {}, None)
        self._imports: list[Module] = []
        self._functions = {}
        self._launchers: dict[int, Launcher] = {}

    def launcher(self, index: int) -> Launcher:
        """The launcher of the kernels on device number `index`."""
        found = self._launchers.get(index)
        if found is None:
            dev = Device(Device.STR2MASK[self.type_key], index)
            found = self._launchers[index] = device_api(dev).launcher(index, self.source, self.options)
        return found

    def __repr__(self) -> str:
        return f"Module({self.type_key}, {', '.join(self.kernels)})"

    @property
    def is_device_module(self) -> bool:
        return True

    @property
    def ahead(self) -> bool:
        """Whether the source can be compiled without a device: by NVRTC."""
        return self.type_key == "cuda"

    @property
    def format(self) -> str:
        return _SOURCE_NAMES.get(self.type_key, (self.type_key,))[0]

    def get_source(self, fmt: str = "") -> str:
        """The source (default), or `ptx` for CUDA."""
        if fmt in ("", self.type_key, *_SOURCE_NAMES.get(self.type_key, ())):
            return self.source
        if fmt == "ptx" and self.ahead:
            if "image" in self.options:
                image: bytes = self.options["image"]
                if image.startswith(b"\x7fELF"):
                    raise TVMError(f"{self.name} is machine code here, and has no PTX")
                return image.decode(errors="replace").rstrip("\0")
            if "ptx" in self.options:
                return str(self.options["ptx"].decode().rstrip("\0"))
            from .cuda_driver import compile_ptx

            return compile_ptx(self.source, self.options).decode().rstrip("\0")
        raise TVMError(f"a module of kind {self.type_key} has no source in format {fmt!r}")

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the source, or `.ptx` and `.cubin` of CUDA's."""
        path = Path(file_name)
        kind = fmt or path.suffix.lstrip(".")
        image = self.options.get("image", b"")
        if kind == "cubin" and image.startswith(b"\x7fELF"):
            write_whole(path, sealed(image))
        elif kind == "cubin" and image and not self.source:
            raise TVMError(f"{self.name} is PTX here, not machine code; save it as .ptx")
        elif kind == "cubin" and self.ahead:
            write_whole(path, sealed(self.compiled_options()["image"]))
        elif kind == "ptx":
            write_whole(path, sealed_text(self.get_source(kind)))
        else:
            write_whole(path, self.get_source(kind))

    def compiled_options(self) -> dict[str, Any]:
        """The options with machine code included, if it can be compiled ahead of time."""
        if not self.ahead:
            return dict(self.options)
        from .cuda_driver import compile_cubin

        return {**self.options, "image": compile_cubin(self.source, self.options)}

    def described(self) -> dict[str, Any]:
        """The module as a part of a library's description, with PTX if NVRTC is available."""
        out: dict[str, Any] = {"kind": self.type_key, "source": self.source, "kernels": self.kernels}
        if "arch" in self.options:
            out["arch"] = self.options["arch"]
        if self.ahead:
            with contextlib.suppress(TVMError):
                out["ptx"] = self.get_source("ptx")
                out["as_it_is"] = "image" in self.options
        return out

    @staticmethod
    def of_description(data: dict[str, Any], where: str) -> DeviceModule:
        """The module that a library carries."""
        try:
            options = {"arch": str(data["arch"])} if "arch" in data else {}
            made = DeviceModule(
                str(data["kind"]), str(data["source"]), [str(k) for k in data["kernels"]], options
            )
            if "ptx" in data:  # foreign images are kept; our own is compiled again for the device
                key = "image" if data.get("as_it_is") or not made.source else "ptx"
                made.options[key] = str(data["ptx"]).encode() + b"\0"
        except (KeyError, TypeError) as error:
            raise LoadError(f"{where}: the description of its kernels is damaged: {error!r}") from error
        return made


def load_device_module(path: str, kind: str) -> DeviceModule:
    """Kernels in a file of their own: `.ptx`, `.cubin`, `.cu` or `.cl`."""
    data = Path(path).read_bytes()
    stem = os.path.splitext(os.path.basename(path))[0]
    if kind == "cubin":
        made = DeviceModule("cuda", "", [], {"image": data[: check_seal(data, path)]})
        made.name = stem
        return made
    try:
        text = (unsealed_text(data, path) if kind == "ptx" else data).decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"{path}: not a text of kind {kind!r}: {error}") from error
    names = re.findall(_KERNELS[kind], text)
    if not names:
        raise LoadError(f"{path}: the file contains no kernel")
    if kind == "ptx":
        return DeviceModule("cuda", "", names, {"image": text.rstrip("\0").encode() + b"\0"})
    return DeviceModule("opencl" if kind == "cl" else "cuda", text, names)


def launches_of(inner: Module, launches: Any, what: str) -> HostModule:
    """The functions of a library that launch kernels, with the kernels: those of its modules, or those in it."""
    where = inner._library.name
    held = [m for m in inner.imported_modules if isinstance(m, DeviceModule)]
    if not isinstance(launches, dict) or not (held or launches.get(DEVICES)):
        raise LoadError(f"{where}: damaged: it is {what}, and has no kernels")
    made = HostModule(launches)
    for module in held or [DeviceModule.of_description(d, where) for d in launches[DEVICES]]:
        made.import_module(module)
    return made


class _Runs(dict[int, Callable[..., int]]):
    """The function of each device, created at its first call there."""

    def __init__(self, make: Callable[[int], Callable[..., int]]) -> None:
        self._make = make

    def __missing__(self, index: int) -> Callable[..., int]:
        made = self[index] = self._make(index)
        return made


class HostModule(Module):
    """Functions that launch the kernels of the imported module."""

    type_key = "host"

    def __init__(
        self, description: dict[str, Any], device: DeviceModule | None = None, path: str = ""
    ) -> None:
        self.description, self.path = description, path
        self.info = parse_metadata(description, path or "host")
        names = self.function_names
        self.name = os.path.basename(path) or (names[0] if names else "host")
        self._imports = [] if device is None else [device]
        self._functions = {}

    @staticmethod
    def of_library(description: dict[str, Any], path: str) -> HostModule:
        """The module of a loaded library, with the kernels that it carries."""
        made = HostModule(description, path=path)
        for data in description.get(DEVICES, ()):
            made.import_module(DeviceModule.of_description(data, path))
        return made

    def _device(self, name: str) -> DeviceModule:
        """The imported module that has the kernels of a function."""
        wanted = list(self.description[PROGRAMS][name]["kernels"])
        held = [m for m in self._imports if isinstance(m, DeviceModule)]
        for module in held:
            if not module.kernels or set(wanted) <= set(module.kernels):
                return module
        raise TVMError(
            f"{self.name}: the kernels of {name} ({', '.join(wanted)}) are in another file; load that one too: "
            "mod.import_module(load_module('kernels.ptx'))"
        )

    def _launcher(self, name: str) -> NativeFunction:
        info, program, device = (
            self.info.functions[name],
            self.description[PROGRAMS][name],
            self._device(name),
        )

        def run_on(index: int) -> Callable[..., int]:
            launcher = device.launcher(index)
            api = device_api(Device(Device.STR2MASK[device.type_key], index))
            return host_function(info, program, launcher, lambda: Report(api, index))

        runs = _Runs(run_on)
        return NativeFunction(info, runs, device, lambda code: TVMError(f"{name} failed with code {code}"))

    def get_source(self, fmt: str = "") -> str:
        """The host program as JSON; the kernels are in `imported_modules[0]`."""
        if fmt in ("", "json"):
            return json.dumps(self.description, indent=2)
        if fmt == "h":
            return super().get_source(fmt)
        return self._imports[0].get_source(fmt)

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the library that it was loaded from; `.json` writes the host program."""
        target = os.fspath(file_name)
        wanted = fmt or os.path.splitext(target)[1].lstrip(".")
        if wanted in ("json", "h"):
            write_whole(target, self.get_source(wanted))
        elif wanted == "so" and self.path:
            with written_whole(target) as part:
                shutil.copyfile(self.path, part)
        else:
            super().save(file_name, fmt)
