"""Modules of machine code made by LLVM: called here, saved as object, assembly or IR, or exported."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...files import is_stream, write_whole, written_whole
from ...forks import cached_property
from ...ir.errors import BuildError
from ...runtime import link
from ...runtime.cache import DiskCache, compiled_code
from ...runtime.cheader import c_header
from ...runtime.jit import JitLibrary
from ...runtime.library import Library, join
from ...runtime.metadata import parse_metadata
from ...runtime.module import Module
from ...runtime.seal import seal
from .engine import POOL_SYMBOLS, Machine, linking, pool_text, process_triple
from .module_emitter import metadata_line
from .objects import Compiled, compiled
from .polls import INTERRUPT_SYMBOLS, WATCHES

_METADATA = re.compile(r"^@__tw_metadata = .*$", re.MULTILINE)
_TAKES_MEMORY = "align 64 ptr @__tw_take("  # a call, in the text of a function
_RUNTIME_SYMBOLS = ("__tw_metadata", "__tw_packed_call", "__tw_memory", "__tw_last_error")
_FORMATS = "o, ll, bc, s (asm), h, json"


class _Pool(Library):
    """The process's own thread pool, compiled on first use and shared with libraries that are loaded later."""

    name = "thread pool"

    def address(self, symbol: str) -> int:
        if symbol not in POOL_SYMBOLS:
            return 0
        with linking:
            return self._linked.address(symbol)

    @cached_property
    def _linked(self) -> JitLibrary:
        machine = Machine(process_triple(), "", "", 2)
        text = pool_text(machine.triple)

        def optimized() -> Any:
            module = machine.parse(text)
            machine.optimize(module)
            return module

        return JitLibrary(compiled(compiled_code(), machine, (text,), optimized).code, exports=POOL_SYMBOLS)

    def metadata(self) -> Any:
        return {}


_pool = _Pool()


class Code(Library):
    """The code of one module, linked into the process at the first use of a function."""

    def __init__(self, owner: MachineModule, name: str) -> None:
        self.name, self.build, self.description = name, owner.link_here, owner.description
        self.native = owner.native
        self._linked: JitLibrary | None = None

    def address(self, symbol: str) -> int:
        if not self.native and symbol in (*_RUNTIME_SYMBOLS, *INTERRUPT_SYMBOLS, *POOL_SYMBOLS):
            return 0
        if self._linked is None:
            with linking:
                if self._linked is None:
                    self._linked = self.build()
        known = self._linked
        return known.address(symbol) if symbol in known.symbols else 0

    def metadata(self) -> Any:
        return self.description


class MachineModule(Module):
    """Machine code for one target."""

    machine: Machine
    native: bool
    description: dict[str, Any]

    @property
    def format(self) -> str:
        return "o"

    @property
    def is_runnable(self) -> bool:
        return self.native

    @property
    def is_dso_exportable(self) -> bool:
        return True

    def link_here(self) -> JitLibrary:
        """The code in this process."""
        raise NotImplementedError

    def _check_runs_here(self) -> None:
        if not self.native:
            raise BuildError(
                f"{self.name} was built for {self.machine.triple} ({self.machine.cpu or 'generic'}), and this "
                "is another machine: export_library it and run it there"
            )

    def _linked(
        self,
        code: bytes | Sequence[bytes],
        needs: Iterable[str],
        runtime: Sequence[str],
        *,
        memory: bool,
        parallel: bool,
    ) -> JitLibrary:
        """Object code that calls the C functions `needs`, linked; the functions of the module and those named in
        `runtime` can be found in it."""
        here = ctypes.CDLL(None)
        for name in needs:
            if not hasattr(here, name):
                raise BuildError(
                    f"{self.name} calls the C function {name}, which is not in this process: load the library "
                    "that has it with ctypes.CDLL(path, ctypes.RTLD_GLOBAL) first"
                )
        imports: dict[str, int] = {}
        if parallel or memory:
            join(_pool)  # for its memory too: what the system gives comes anew each time, page by page
        if parallel:
            imports["__tw_parallel_launch"] = _pool.address("__tw_parallel_launch")
        symbols = tuple(f["symbol"] for f in self.description["functions"])
        return JitLibrary(code, exports=(*runtime, *symbols), imports=imports)


def link_imported(module: Any, machine: Machine, texts: Sequence[str]) -> None:
    """Link code of `pragma import_llvm` into a module; of a function that several texts define, the last is taken."""
    known: set[str] = set()
    for text in reversed(texts):
        parsed = machine.parse(text, "the code of pragma import_llvm")
        for f in parsed.functions:
            if f.is_declaration:
                continue
            if f.name in known:
                f.linkage = "weak_any"  # gives way to the one that is there
            known.add(f.name)
        module.link_in(parsed)


class LLVMModule(MachineModule):
    """Machine code of one program in LLVM IR."""

    type_key = "llvm"

    def __init__(
        self, text: str, description: dict[str, Any], machine: Machine, *, uses_parallel: bool, native: bool
    ) -> None:
        self.text, self.description, self.machine = text, description, machine
        self.uses_parallel, self.native = uses_parallel, native
        self.imported: tuple[str, ...] = ()  # LLVM IR from outside, linked in
        self.cache: DiskCache | None = None
        names = [f["name"] for f in description["functions"]]
        super().__init__(Code(self, names[0] if names else "module"), names[0] if names else "module")

    # -- code ------------------------------------------------------------------------------------
    @cached_property
    def _optimized(self) -> Any:
        module = self.machine.parse(self.text)
        link_imported(module, self.machine, self.imported)
        self.machine.optimize(module)
        return module

    @property
    def _sources(self) -> tuple[str, ...]:
        return (self.text, *self.imported)

    def link_here(self) -> JitLibrary:
        self._check_runs_here()
        made = compiled(self.cache, self.machine, self._sources, lambda: self._optimized)
        runtime = (*_RUNTIME_SYMBOLS, *(INTERRUPT_SYMBOLS if WATCHES in self.text else ()))
        memory = _TAKES_MEMORY in self.text
        return self._linked(made.code, made.needs, runtime, memory=memory, parallel=self.uses_parallel)

    def _whole(self, others: Sequence[LLVMModule] = ()) -> Any:
        """The optimized module with other modules and the thread pool in it: self-contained."""
        functions = [f for m in (self, *others) for f in m.description["functions"]]
        merged = {**self.description, "functions": functions}
        module = self.machine.parse(_METADATA.sub(lambda _: metadata_line(merged), str(self._optimized)))
        for other in others:
            module.link_in(self.machine.parse(_METADATA.sub("", str(other._optimized))))
        if self.uses_parallel or any(m.uses_parallel for m in others):
            pool = self.machine.parse(pool_text(self.machine.triple))
            shared = [
                v.name
                for v in (*pool.functions, *pool.global_variables)
                if not v.is_declaration and v.linkage.name != "internal"
            ]
            module.link_in(pool)
            self.machine.optimize(module)
            # Object files may be linked to one library, which then has one pool: the first one's.
            for name in shared:
                held = name in POOL_SYMBOLS and name != "__tw_pool_limit"
                found = module.get_global_variable(name) if held else module.get_function(name)
                found.linkage = "weak_any"
        return module

    def _standalone(self, others: Sequence[LLVMModule] = ()) -> Compiled:
        """The self-contained object code."""
        modules = (self, *others)
        sources = [text for m in modules for text in (*m._sources, "|")]
        if any(m.uses_parallel for m in modules):
            sources.append(pool_text(self.machine.triple))
        return compiled(
            self.cache, self.machine, ["whole, with a weak pool", *sources], lambda: self._whole(others)
        )

    # -- out -------------------------------------------------------------------------------------
    def get_source(self, fmt: str = "") -> str:
        """The program as LLVM IR (`ll`, the default), assembly (`asm`), C header (`h`) or JSON."""
        if fmt in ("", "ll"):
            return str(self._optimized)
        if fmt in ("asm", "s"):
            return self.machine.assembly(self._optimized)
        if fmt in ("h", "json"):
            return super().get_source(fmt)
        raise BuildError(f"no source in format {fmt!r}; there are: ll, asm, h, json")

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the module as `.o`, `.ll`, `.bc`, `.s`, `.h` or `.json`."""
        path = Path(file_name)
        kind = fmt or path.suffix.lstrip(".")
        if kind in ("o", "obj"):
            with written_whole(path) as part:
                Path(part).write_bytes(self._standalone().code)
                seal(part)
        elif kind == "ll":
            write_whole(path, str(self._whole()))
        elif kind == "bc":
            write_whole(path, self._whole().as_bitcode())
        elif kind in ("s", "asm"):
            write_whole(path, self.machine.assembly(self._whole()))
        elif kind in ("h", "json"):
            write_whole(path, super().get_source(kind))
        else:
            raise BuildError(f"cannot save a module as {kind!r} ({path.name}); the formats are {_FORMATS}")

    def _export(self, target: str, **linking: Any) -> str:
        others = [m for m in self.imported_modules if isinstance(m, LLVMModule)]
        foreign = [m for m in self.imported_modules if not isinstance(m, LLVMModule)]
        if foreign:
            raise BuildError(f"the imported module {foreign[0]} holds no code that can be linked in")
        triple = None if self.native else self.machine.triple
        link.write_library(target, [self._standalone(others).code], triple, **linking)
        every = {
            **self.description,
            "functions": [f for m in (self, *others) for f in m.description["functions"]],
        }
        if not is_stream(target):
            header = c_header(parse_metadata(every, self.name), self.name)
            write_whole(Path(target).with_suffix(".h"), header)
        return target
