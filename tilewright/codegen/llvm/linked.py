"""Modules of several object files: kernels that were compiled separately, linked late."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...files import is_stream, write_whole
from ...forks import cached_property
from ...ir.errors import BuildError
from ...runtime import link
from ...runtime.cheader import c_header
from ...runtime.jit import JitLibrary
from ...runtime.metadata import LibraryInfo, parse_metadata
from .engine import Machine, pool_text
from .module import _METADATA, Code, LLVMModule, MachineModule, link_imported
from .module_emitter import metadata_line
from .objects import compiled, made_by_llvm
from .polls import INTERRUPT_SYMBOLS, WATCHES

_RUNTIME_SYMBOLS = ("__tw_packed_call", "__tw_memory", "__tw_last_error")


@dataclass(frozen=True, slots=True)
class Unit:
    """An object file, with the symbols that it defines and needs."""

    code: bytes
    functions: tuple[Any, ...]  # descriptions, as they go into a library's metadata
    needs: tuple[str, ...]  # C functions that are not in it
    uses_parallel: bool
    watches: bool = False  # whether it polls for interrupts

    def head(self) -> dict[str, Any]:
        """Everything except the code, for JSON."""
        return {
            "bytes": len(self.code),
            "functions": self.functions,
            "needs": self.needs,
            "uses_parallel": self.uses_parallel,
            "watches": self.watches,
        }

    @staticmethod
    def of(head: Mapping[str, Any], code: bytes) -> Unit:
        """From `head` and the code."""
        uses, watches = bool(head["uses_parallel"]), bool(head["watches"])
        return Unit(code, tuple(head["functions"]), tuple(head["needs"]), uses, watches)


def unit_of(module: LLVMModule) -> Unit:
    """The code of a module without its description, to be linked with others."""
    text = _METADATA.sub("", module.text)

    def optimized() -> Any:
        parsed = module.machine.parse(text)
        link_imported(parsed, module.machine, module.imported)
        module.machine.optimize(parsed)
        return parsed

    made = made_by_llvm(module.machine, (text, *module.imported), optimized)
    functions = tuple(module.description["functions"])
    return Unit(made.code, functions, made.needs, module.uses_parallel, WATCHES in text)


def _array_object(machine: Machine, symbol: str, values: Any, folder: str) -> str:
    """An object file in a folder that has an array under a symbol."""
    raw = os.path.join(folder, f"{symbol}.bin")
    with open(raw, "wb") as file:
        file.write(memoryview(values).cast("B"))
    return data_object(machine, symbol, raw, folder)


def _description_object(machine: Machine, description: Mapping[str, Any]) -> bytes:
    """An object file with a library's metadata."""
    text = f'target triple = "{machine.triple}"\n{metadata_line(dict(description))}\n'
    return machine.object_code(machine.parse(text))


def data_object(machine: Machine, symbol: str, path: str, folder: str) -> str:
    """A linker input that embeds the bytes of a file in the library, under a symbol."""
    lines = [
        '.section .rodata,"a",@progbits',
        ".balign 64",
        f".globl {symbol}",
        f".type {symbol},@object",
        f"{symbol}:",
        f'.incbin "{path}"',
        f".size {symbol}, {os.path.getsize(path)}",
    ]
    if "apple" in machine.triple or "windows" in machine.triple or "wasm" in machine.triple:
        raise BuildError(f"weights cannot be put into a library for {machine.triple}: pass weights=False")
    if machine.triple.split("-")[0] == platform.machine():
        escaped = [line.replace("\\", "\\5C").replace('"', "\\22") for line in lines]
        text = "\n".join([f'target triple = "{machine.triple}"', *(f'module asm "{e}"' for e in escaped)])
        made = os.path.join(folder, f"{symbol}.o")
        Path(made).write_bytes(machine.object_code(machine.parse(text)))
        return made
    made = os.path.join(folder, f"{symbol}.S")  # the cross compiler assembles it
    Path(made).write_text("\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""]))
    return made


class LinkedModule(MachineModule):
    """Machine code from several object files, called here or exported as one library."""

    type_key = "llvm"

    def __init__(
        self,
        units: Sequence[Unit],
        machine: Machine,
        description: Mapping[str, Any],
        *,
        native: bool,
        name: str = "model",
    ) -> None:
        self.units, self.machine, self.native = tuple(units), machine, native
        self.description = dict(description)
        self.texts: Callable[[str], str] | None = None  # its functions as `ll` or `asm`
        super().__init__(Code(self, name), name)

    @property
    def uses_parallel(self) -> bool:
        return any(u.uses_parallel for u in self.units)

    def link_here(self) -> JitLibrary:
        self._check_runs_here()
        own = {f["symbol"] for u in self.units for f in u.functions}
        needs = dict.fromkeys(n for u in self.units for n in u.needs if n not in own)
        runtime = (*_RUNTIME_SYMBOLS, *(INTERRUPT_SYMBOLS if any(u.watches for u in self.units) else ()))
        codes = [u.code for u in self.units]
        return self._linked(codes, needs, runtime, memory=True, parallel=self.uses_parallel)

    @cached_property
    def _pool_code(self) -> bytes:
        text = pool_text(self.machine.triple)

        def optimized() -> Any:
            module = self.machine.parse(text)
            self.machine.optimize(module)
            return module

        return compiled(None, self.machine, (text,), optimized).code

    def get_source(self, fmt: str = "") -> str:
        """The C header (`h`), the description (`json`), or the kernels as LLVM IR (`ll`) or assembly (`asm`).

        The default is LLVM IR, or the header of a module that knows only its object code.
        """
        if fmt == "json":
            return json.dumps(self.description, indent=2)
        if self.texts is not None and fmt in ("", "ll", "asm", "s"):
            return self.texts(fmt or "ll")
        return super().get_source(fmt or "h")

    def header(self, extra: Callable[[LibraryInfo], str] | None = None) -> str:
        """The C header of the exported functions."""
        info = parse_metadata(self.description, self.name)
        shown = replace(info, functions={info.entry: info.functions[info.entry]}) if info.entry else info
        return c_header(shown, self.name) if extra is None else extra(shown)

    def _export(self, target: str, **linking: Any) -> str:
        return self.export_with((), target, **linking)

    def export_with(
        self,
        units: Sequence[Unit],
        target: str,
        description: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        header: Callable[[LibraryInfo], str] | None = None,
        **linking: Any,
    ) -> str:
        """Export with more object files, and arrays (`data`, by symbol) in the library."""
        if self.externals:
            from ...runtime.external import EXTERNAL, described

            table, arrays = described(self.externals)
            description = {**(description or self.description), EXTERNAL: table}
            data = {**(data or {}), **arrays}
        parts: list[bytes | Callable[[str], str]] = [u.code for u in (*self.units, *units)]
        parts.append(_description_object(self.machine, dict(description or self.description)))
        if self.uses_parallel:
            parts.append(self._pool_code)
        parts += [partial(_array_object, self.machine, symbol, a) for symbol, a in (data or {}).items()]
        link.write_library(target, parts, None if self.native else self.machine.triple, **linking)
        text = self.header(header)
        if text and not is_stream(target):  # a model for a GPU has no function that C could call
            write_whole(Path(target).with_suffix(".h"), text)
        return target
