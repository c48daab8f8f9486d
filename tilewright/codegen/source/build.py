"""From lowered functions with kernels to a module that launches them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...files import write_whole, written_whole
from ...forks import cached_property
from ...ir.errors import BuildError
from ...ir.expr import IntImm
from ...ir.function import CallingConv, PrimFunc
from ...ir.functor import substitute
from ...ir.module import IRModule
from ...runtime import link
from ...runtime.device_module import DEVICES, DeviceModule, HostModule
from ...runtime.library import METADATA, SharedLibrary
from ...runtime.metadata import parse_metadata
from ...runtime.module import Module
from ...runtime.registry import get_global_func
from ...runtime.seal import seal
from ...version import VERSION
from ..llvm.signature import Signature, signature_of
from .c import C
from .dialect import Dialect
from .host import host_program
from .kernel import Program


class KernelModule(HostModule):
    """Built functions that launch kernels: they can be saved and exported."""

    program: Program  # the kernels as they were written

    def _object(self, description: dict[str, Any]) -> bytes:
        """An object file that holds the description."""
        from ..llvm.engine import Machine, process_triple
        from ..llvm.module_emitter import metadata_line

        machine = Machine(process_triple(), "", "", 0)
        text = f'target triple = "{machine.triple}"\n{metadata_line(description)}\n'
        return machine.object_code(machine.parse(text))

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the host program as `.o` or `.json`; the kernels are saved by `imported_modules[0]`."""
        path = Path(file_name)
        if (fmt or path.suffix.lstrip(".")) in ("o", "obj"):
            with written_whole(path) as part:
                Path(part).write_bytes(self._object(self.description))
                seal(part)
        else:
            super().save(file_name, fmt)

    def _export(self, target: str, **linking: Any) -> str:
        """A shared library with the kernels in it."""
        devices = [m.described() for m in self.imported_modules if isinstance(m, DeviceModule)]
        link.write_library(target, [self._object({**self.description, DEVICES: devices})], **linking)
        return target

    @property
    def is_dso_exportable(self) -> bool:
        return True


def build_source(whole: IRModule, split: IRModule, target: Any, dialect: Dialect) -> KernelModule:
    """The module of functions (lowered in `whole`) whose kernels were separated in `split`."""
    kind = target.kind.name
    kernels = {gv.name_hint: f for gv, f in split.functions.items() if is_kernel(f)}
    program = Program(dialect)
    written = {name: program.add(func, name) for name, func in kernels.items()}
    described, programs = [], {}
    for gv, func in split.functions.items():
        if not isinstance(func, PrimFunc) or is_kernel(func):
            continue
        name = str(func.attrs.get("global_symbol", gv.name_hint))
        signature = signature_of(whole[gv], name)
        func = (
            substitute(func, {v: IntImm(v.dtype, 0) for v in signature.offsets})
            if signature.offsets
            else func
        )
        align: dict[Any, int] = {}
        for kernel in written.values():
            for var, size in kernel.alignment.items():
                align[var] = max(align.get(var, 1), size)
        described.append(_on_device(signature, kind, align))
        programs[name] = host_program(func, kernels, _arguments(signature))
        checks = {k: written[k].checks for k in programs[name]["kernels"] if written[k].checks}
        if checks:
            programs[name]["checks"] = {k: [list(c) for c in held] for k, held in checks.items()}
    if not programs:
        raise BuildError("there is no PrimFunc in the module, so there is nothing to build")
    description = {
        "format": 1,
        "producer": VERSION,
        "target": str(target),
        "functions": described,
        "entry": described[0]["name"] if len(described) == 1 else None,
        "programs": programs,
    }
    options: dict[str, Any] = {}
    if "arch" in target.attrs:
        options["arch"] = str(target.attrs["arch"])
    text = _called_back(f"tvm_callback_{kind}_postproc", program.text(), target)
    image = _called_back(f"tvm_callback_{kind}_compile", "", target, text)
    if image:
        options["image"] = image if isinstance(image, bytes) else str(image).encode() + b"\0"
    made = KernelModule(description, DeviceModule(kind, text, list(kernels), options))
    made.program = program
    return made


def _called_back(name: str, otherwise: str, target: Any, source: str | None = None) -> Any:
    """The source after the user's registered callback (`tvm_callback_cuda_postproc`)."""
    found = get_global_func(name, allow_missing=True)
    return otherwise if found is None else found(otherwise if source is None else source, target)


class SourceModule(Module):
    """Functions as C source; `h` is the header they are called with. The first call compiles them for this machine."""

    type_key = "c"

    def __init__(self, source: str, description: dict[str, Any], attrs: Mapping[str, Any]) -> None:
        self.source, self.description = source, description
        self._attrs = attrs  # attributes of the target
        names = [f["name"] for f in description["functions"]]
        self.name = names[0] if names else "c"
        self.info = parse_metadata(description, self.name)
        self._imports, self._functions = [], {}

    @cached_property
    def _library(self) -> SharedLibrary:  # type: ignore[override]
        """The library that a C compiler makes from the source."""
        if "mtriple" in self._attrs:
            raise BuildError(
                f"{self.name} is C source for {self._attrs['mtriple']}: save it (mod.save('{self.name}.c')), compile "
                "it there and link it with your program, or leave out -mtriple to call it here"
            )
        flags = [f"-march={self._attrs['march']}"] if "march" in self._attrs else []
        about = json.dumps(json.dumps(self.description))  # its quotes and backslashes are those of C
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            text, made = os.path.join(folder, "program.c"), os.path.join(folder, f"{self.name}.so")
            Path(text).write_text(f"{self.source}\nconst char {METADATA}[] = {about};\n", encoding="utf-8")
            link.run_cc(["-O2", "-shared", "-fPIC", *flags, text, "-lm"], made)
            return SharedLibrary(made)

    @property
    def format(self) -> str:
        return "c"

    @property
    def is_runnable(self) -> bool:
        return "mtriple" not in self._attrs and link.find_cc() is not None

    def get_source(self, fmt: str = "") -> str:
        """The program as C (`c`, the default), or its header (`h`)."""
        if fmt in ("", "c", "cc"):
            return self.source
        if fmt == "json":
            return json.dumps(self.description, indent=2)
        return super().get_source(fmt)

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        path = Path(file_name)
        write_whole(path, self.get_source(fmt or path.suffix.lstrip(".")))


def build_c(mod: IRModule, target: Any) -> SourceModule:
    """The functions of a lowered module as C source."""
    program, described = Program(C()), []
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            signature = signature_of(func, str(func.attrs.get("global_symbol", gv.name_hint)))
            if signature.offsets:
                func = substitute(func, {v: IntImm(v.dtype, 0) for v in signature.offsets})
            flat = PrimFunc([a.var for a in signature.arguments], func.body, attrs=func.attrs)
            program.add(flat, signature.symbol)
            described.append(signature.description)
    if not described:
        raise BuildError("there is no PrimFunc in the module, so there is nothing to build")
    entry = described[0]["name"] if len(described) == 1 else None
    description = {
        "format": 1,
        "producer": VERSION,
        "target": str(target),
        "functions": described,
        "entry": entry,
    }
    return SourceModule(program.text(), description, target.attrs)


def is_kernel(func: Any) -> bool:
    return isinstance(func, PrimFunc) and func.attrs.get("calling_conv") == CallingConv.DEVICE_KERNEL_LAUNCH


def _on_device(signature: Signature, kind: str, align: dict[Any, int]) -> dict[str, Any]:
    """The description of a function whose arrays are on a device."""
    params = []
    for argument, param in zip(signature.arguments, signature.description["params"], strict=False):
        if param["kind"] == "buffer":
            param = {**param, "device": kind, "align": max(param["align"], align.get(argument.var, 1))}
        params.append(param)
    return {**signature.description, "params": params}


def _arguments(signature: Signature) -> list[tuple[Any, str]]:
    """The C arguments with the names that the description gives them."""
    described = signature.description
    names = [p["name"] for p in described["params"]] + [s["name"] for s in described["symbols"]]
    return [(a.var, name) for a, name in zip(signature.arguments, names, strict=True)]
