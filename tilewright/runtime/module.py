"""Modules: compiled functions that belong together."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..files import written_whole
from ..homes import home_of
from . import elf, link
from .cheader import c_header
from .devices import Device
from .errors import LoadError, TVMError
from .json_reader import as_table
from .launcher import NativeFunction
from .library import Library, SharedLibrary, error_of, join, libraries_of_process
from .metadata import LibraryInfo, parse_metadata
from .registry import PackedFunc
from .timing import BenchmarkResult, time_evaluator

if TYPE_CHECKING:
    from .jit import ObjectLibrary

__all__ = ["BenchmarkResult", "LibraryModule", "Module", "enabled", "load_module", "system_lib"]

_ENTRY_NAMES = ("__tvm_main__", "main", "default")
_LOADABLE = (
    ".so (a shared library), .o (an object file), .tar (object files), .ll and .bc (LLVM), .ptx, .cubin, .cu and .cl "
    "(kernels)"
)
_DEVICE_CODE = ("ptx", "cubin", "cu", "cl")
CHIP_PROGRAM = b"\x89TWVTA\r\n"  # the first bytes of a program for an accelerator


class Module:
    """Compiled functions in one library, with the modules they need.

    A code generator subclasses this for code that it has in memory, and gives it `get_source` and `save`.
    """

    type_key = "library"
    entry_name = "__tvm_main__"
    beside: tuple[
        Module, ...
    ] = ()  # modules of other targets, built together with this one: their functions are found here too
    externals: tuple[Any, ...] = ()  # functions of other engines that its code calls: see external.py

    def __init__(self, library: Library, name: str = "") -> None:
        self._library = library
        self.name = name or library.name
        self.info: LibraryInfo = parse_metadata(library.metadata(), library.name)
        self._imports: list[Module] = []
        self._functions: dict[str, PackedFunc] = {}

    # -- functions -------------------------------------------------------------------------
    def _declared(self) -> Mapping[str, Any]:
        """The functions by name, with what is known of each."""
        return self.info.functions

    @property
    def function_names(self) -> list[str]:
        """The names of the functions, in the order of the library."""
        return list(self._declared())

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of this name."""
        if name in self._declared() or (name == self.entry_name and self._entry() is not None):
            return True
        return query_imports and any(module.implements_function(name, True) for module in self._imports)

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """The function of this name, here or (with `query_imports`) in the imported modules."""
        if name == self.entry_name and name not in self._declared():
            name = self._entry() or name
        if name in self._declared():
            found = self._functions.get(name)
            if found is None:
                found = self._functions[name] = self._launcher(name)
            return found
        if query_imports:
            for module in self._imports:
                if module.implements_function(name, True):
                    return module.get_function(name, True)
        raise AttributeError(self._no_function(name))

    def _launcher(self, name: str) -> PackedFunc:
        info, library = self.info.functions[name], self._library
        join(library)  # not earlier: a code generator may link late, or hold code for another machine
        address = library.address(info.symbol)
        if not address:
            raise LoadError(
                f"{library.name}: function {name!r} is declared, but symbol {info.symbol!r} is missing"
            )
        return NativeFunction(info, address, library, lambda code: error_of(library, name, code))

    def _no_function(self, name: str) -> str:
        text = f"module {self.name!r} has no function {name!r}; it has: {self._listed()}"
        for module in self._imports:
            if module.implements_function(name, True):
                text += f"\nhint: the imported module {module.name!r} has it: "
                text += f"get_function({name!r}, query_imports=True)"
        return text

    def _listed(self) -> str:
        return ", ".join(self.function_names) or "none"

    def _entry(self) -> str | None:
        """The name of the entry function."""
        names, marked = self.function_names, self._marked_entry()
        if marked is not None:
            return marked
        if len(names) == 1:
            return names[0]
        return next((name for name in _ENTRY_NAMES if name in names), None)

    def _marked_entry(self) -> str | None:
        """The name of the function that the library marks as its entry."""
        return self.info.entry

    @property
    def entry_func(self) -> PackedFunc:
        """The entry function, which calling the module calls: the only one, the one marked so, or `main`."""
        name = self._entry()
        if name is None:
            raise TypeError(
                f"module {self.name!r} has no entry function, only: {self._listed()}; "
                'call one of them by name: mod["name"](…)'
            )
        return self.get_function(name)

    def __getitem__(self, name: str) -> PackedFunc:
        if not isinstance(name, str):
            raise TypeError(f"a function is named by a string, not by {type(name).__name__}")
        return next((m for m in (self, *self.beside) if m.implements_function(name)), self).get_function(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.implements_function(name)

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    def __repr__(self) -> str:
        functions = ", ".join(info.signature for info in self.info.functions.values())
        return f"Module({self.type_key}, {self.name}: {functions})"

    # -- other modules -----------------------------------------------------------------------
    @property
    def imported_modules(self) -> list[Module]:
        return list(self._imports)

    def import_module(self, module: Module) -> None:
        """Add a module whose functions belong to this one."""
        if not isinstance(module, Module):
            raise TypeError(f"import_module takes a Module, not {type(module).__name__}")
        if module is self or module._reaches(self):
            raise ValueError(f"importing module {module.name!r} into {self.name!r} would make a cycle")
        self._imports.append(module)

    def _reaches(self, other: Module) -> bool:
        return any(module is other or module._reaches(other) for module in self._imports)

    # -- formats and export --------------------------------------------------------------------
    @property
    def format(self) -> str:
        """The preferred file format."""
        return "so"

    @property
    def is_runnable(self) -> bool:
        return True

    @property
    def is_device_module(self) -> bool:
        return False

    @property
    def is_binary_serializable(self) -> bool:
        return False

    @property
    def is_dso_exportable(self) -> bool:
        return False

    def get_source(self, fmt: str = "") -> str:
        """The program as text: `h` is a C header, `json` the description of the functions."""
        if fmt == "h":
            return c_header(self.info, self.name)
        if fmt == "json":
            data = self._library.metadata()
            return json.dumps(as_table(data, self.name), indent=2)
        raise TVMError(
            f"module {self.name!r} ({self.type_key}) has no source in format {fmt!r}, only 'h' and 'json'"
        )

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the module to a file."""
        raise TVMError(f"a module of kind {self.type_key} cannot be saved as {os.fspath(file_name)!r}")

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: Callable[..., Any] | bool | None = None,
        addons: list[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Write a self-contained shared library (or a `.tar` of object files), and next to it the C header.

        `fcompile(output, objects, **kwargs)` links; without it the system's compiler or ziglang does. `addons` are
        more object files for it, and `workspace_dir` is where temporary files go.
        """
        return self._export(
            os.fspath(file_name), fcompile=fcompile, addons=addons, workspace_dir=workspace_dir, **kwargs
        )

    def _export(self, target: str, **linking: Any) -> str:
        """The work of `export_library`, whose other arguments are for `link.write_library`."""
        raise TVMError(f"a module of kind {self.type_key} cannot be exported as {target!r}")

    # -- time ------------------------------------------------------------------------------------
    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that measures one of this module's: see `timing.time_evaluator`."""
        return time_evaluator(
            self.get_function(func_name, query_imports=True), dev, number, repeat, min_repeat_ms,
            limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown, cache_flush_bytes, f_preproc,
        )  # fmt: skip


class LibraryModule(Module):
    """A module in a shared library or in object files on disk."""

    def __init__(self, library: SharedLibrary | ObjectLibrary, name: str = "") -> None:
        super().__init__(library, name)
        self.path = library.path

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        target = os.fspath(file_name)
        own = os.path.splitext(self.path)[1].lstrip(".") or "so"
        wanted = fmt or os.path.splitext(target)[1].lstrip(".")
        if wanted != own:
            raise TVMError(
                f"{self.path} holds machine code only; it can be saved as .{own}, not as {wanted!r}"
            )
        if not os.path.exists(target) or not os.path.samefile(self.path, target):
            with written_whole(target) as part:
                shutil.copyfile(self.path, part)

    def _export(self, target: str, **linking: Any) -> str:
        self.save(target)
        return target


def load_module(path: str | os.PathLike[str], fmt: str = "") -> Module:
    """Load a compiled library; object files are linked first."""
    file = os.fspath(path)
    if not os.path.exists(file):
        raise FileNotFoundError(f"{file}: there is no such file")
    kind = fmt or os.path.splitext(file)[1].lstrip(".").lower()
    if _starts_with(file, CHIP_PROGRAM):  # a program for an accelerator, under any name
        loaded: Module = home_of("programs_of_chips").load_program(file)
        return loaded
    if kind in ("o", "obj", "tar", "ll", "bc"):
        return _load_objects(file, kind)
    if kind in _DEVICE_CODE:
        from .device_module import load_device_module

        return load_device_module(file, kind)
    if kind not in ("so", "dll", "dylib") and elf.file_kind(file) != "shared":
        raise LoadError(
            f"{file}: a file of kind {kind or 'unknown'!r} cannot be loaded; loadable are {_LOADABLE}"
        )
    return _as_model(LibraryModule(SharedLibrary(file)))


def system_lib(symbol_prefix: str = "") -> Module:
    """The functions of all libraries made by tilewright that were loaded into this process, for example by
    `ctypes.CDLL(path)`, or because the program is linked with them."""
    if symbol_prefix:
        raise TVMError(
            f"system_lib({symbol_prefix!r}): functions have no prefix; system_lib()[name] finds a function by its name"
        )
    found = [LibraryModule(SharedLibrary(path)) for path in libraries_of_process()]
    if not found:
        raise TVMError(
            "no library made by tilewright is loaded in this process: ctypes.CDLL(path) loads one, and "
            "runtime.load_module(path) does without this function"
        )
    found[0].beside = tuple(found[1:])
    return found[0]


def _starts_with(file: str, mark: bytes) -> bool:
    """Whether a file begins with some bytes."""
    if not os.path.isfile(file):
        return False
    with open(file, "rb") as start:
        return start.read(len(mark)) == mark


def _as_model(module: LibraryModule) -> Module:
    """The module as a model or a launcher of kernels, if it is one."""
    from .executor import model_or

    data = module._library.metadata()
    if b'"external"' in data if isinstance(data, bytes) else "external" in data:
        from .external import EXTERNAL, attach_loaded

        found = as_table(data, module.path).get(EXTERNAL)
        if found is not None:
            attach_loaded(module, found)
    if b'"programs"' in data if isinstance(data, bytes) else "programs" in data:
        from .device_module import PROGRAMS, HostModule

        described = as_table(data, module.path)
        if PROGRAMS in described:
            return HostModule.of_library(described, module.path)
    return model_or(module)


def _load_objects(file: str, kind: str) -> Module:
    """Object files, linked into this process by LLVM."""
    import tempfile

    from .jit import ObjectLibrary, object_of_llvm

    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        objects = link.unpack_objects(file, folder) if kind == "tar" else [file]
        if kind in ("ll", "bc"):
            objects = [os.path.join(folder, "code.o")]
            object_of_llvm(file, objects[0])
        try:
            for name in objects:
                if elf.file_kind(name) != "object":
                    what = "empty" if os.path.getsize(name) == 0 else "not an object file, or it is damaged"
                    raise LoadError(
                        f"{file}: {os.path.basename(name)} is {what}; give a file that `save` wrote, or export it again"
                    )
                elf.check_object(name)
            module = LibraryModule(ObjectLibrary(file, objects))
        except LoadError as error:  # it names the temporary file
            if str(error).startswith(f"{file}: "):
                raise
            told = str(error).replace(folder + os.sep, "")
            raise LoadError(
                f"{file}: its object code is damaged, or not made by tilewright: {told}"
            ) from error
    return _as_model(module)


def enabled(target: str) -> bool:
    """Whether code for a target can be generated or run in this installation."""
    kind = target.split()[0] if target.split() else ""
    if kind in ("cpu", "c", "stackvm", "rpc"):  # remote calls are a part of the package
        return True
    if kind == "llvm":
        return importlib.util.find_spec("llvmlite") is not None
    mask = Device.STR2MASK.get(kind)
    return mask is not None and Device(mask, 0).exist
