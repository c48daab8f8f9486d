"""Functions of other engines in a compiled model: modules in Python, and how a library keeps and finds them.

    compiled code ──call_packed("f.1c9a…", inputs, outputs)──▶ registry ──▶ ExternalModule["f"](*inputs, *outputs)

An exported library holds the data of the modules. `load_module` gives it to the loader of their kind:

    @register_func("runtime.module.loadbinary_mine")
    def load(data: bytes) -> Module: …
"""

from __future__ import annotations

import ctypes
import importlib
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..forks import new_in_child
from .cache import digest
from .errors import LoadError, TVMError
from .module import Module
from .ndarray import NDArray
from .params import load_param_dict, save_param_dict
from .registry import PackedFunc, get_global_func, register_func, remove_global_func

EXTERNAL: Final = "external"  # the entry of a library's metadata
_LOADER: Final = "runtime.module.loadbinary_"
# Kinds of modules that come with the package; the module of each registers its loader.
_OWN: Final = {"dnnl_json": "dnnl", "onnxruntime": "onnxruntime_engine"}


class ExternalModule(Module):
    """Functions in Python that compiled code calls: `f(*inputs, *outputs)` fills the outputs, all of them NDArrays.

        ExternalModule({"mine_0": lambda a, b, out: out.copyfrom(a.numpy() + b.numpy())})

    A module with a `type_key` of its own and `data`, from which `runtime.module.loadbinary_<type_key>` makes it again,
    goes with the library into which a model is exported.
    """

    type_key = "external"

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        type_key: str = "external",
        data: bytes | None = None,
    ) -> None:
        for name, function in functions.items():
            if not callable(function):
                raise TypeError(f"ExternalModule: {name!r} must be a function, not {type(function).__name__}")
        self.type_key, self.data = type_key, data
        self.name = type_key
        self.functions = {n: _filling(f, n) for n, f in functions.items()}
        self._imports = []

    @property
    def function_names(self) -> list[str]:
        return list(self.functions)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        if name in self.functions:
            return True
        return query_imports and any(m.implements_function(name, True) for m in self._imports)

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        found = self.functions.get(name)
        if found is not None:
            return found
        for module in self._imports if query_imports else ():
            if module.implements_function(name, True):
                return module.get_function(name, True)
        raise AttributeError(self._no_function(name))

    def _entry(self) -> str | None:
        names = self.function_names
        return names[0] if len(names) == 1 else None

    @property
    def is_binary_serializable(self) -> bool:
        return self.data is not None

    def save_to_bytes(self) -> bytes:
        """The data from which the loader of its kind makes the module again."""
        if self.data is None:
            raise TVMError(
                f"the module of {self._listed()} lives in Python only and cannot be exported: give "
                "ExternalModule(…, type_key=, data=), and register the loader runtime.module.loadbinary_<type_key>"
            )
        return self.data

    def get_source(self, fmt: str = "") -> str:
        if self.data is None:
            return super().get_source(fmt)
        return self.data.decode(errors="replace")

    def __repr__(self) -> str:
        return f"Module({self.type_key}: {self._listed()})"


def _filling(function: Callable[..., Any], name: str) -> PackedFunc:
    """A function for its effect: compiled code takes no arrays as results."""

    def call(*args: Any) -> None:
        function(*args)

    return PackedFunc(call, name)


@dataclass(frozen=True, eq=False)
class External:
    """A function of a module that compiled code calls by the name `packed`.

    `constants` are given once to the module's function `__init_<symbol>`.
    """

    symbol: str
    module: Module
    packed: str = ""
    constants: Mapping[str, NDArray] = field(default_factory=dict)

    def named(self) -> External:
        """The function under a unique name; equal data give equal names."""
        data = _bytes_of(self.module)
        held = save_param_dict(self.constants) if self.constants else b""
        key = uuid.uuid4().hex if data is None else digest(self.module.type_key, data, held)
        return External(self.symbol, self.module, f"{self.symbol}.{key[:16]}", self.constants)


def _bytes_of(module: Module) -> bytes | None:
    return bytes(module.save_to_bytes()) if module.is_binary_serializable else None  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------- in this process
_users: Final[dict[str, int]] = {}  # libraries that call each name
_lock = new_in_child(threading.Lock())


def attach(module: Module, externals: Sequence[External]) -> None:
    """Make the functions of other modules callable for the code of a module, as long as its library lives."""
    for each in externals:
        if each.constants:
            each.module.get_function(f"__init_{each.symbol}")(*each.constants.values())
        function = each.module.get_function(each.symbol)
        with _lock:
            _users[each.packed] = _users.get(each.packed, 0) + 1
            register_func(each.packed, function, override=True)
        weakref.finalize(module._library, _release, each.packed).atexit = False
        if each.module not in module._imports:
            module.import_module(each.module)
    module.externals = (*module.externals, *externals)


def _release(name: str) -> None:
    with _lock:
        _users[name] -= 1
        if not _users[name]:
            del _users[name]
            remove_global_func(name)


# ---------------------------------------------------------------------------- in a library
def described(externals: Sequence[External]) -> tuple[Any, dict[str, Any]]:
    """The functions as an entry of a library's metadata, and the arrays of their modules' data, by symbol."""
    modules = list(dict.fromkeys(e.module for e in externals))
    arrays: dict[str, Any] = {}
    kinds = []
    for i, module in enumerate(modules):
        data = _bytes_of(module)
        if data is None:
            names = ", ".join(e.symbol for e in externals if e.module is module)
            raise TVMError(
                f"export_library: {names} is computed by {module!r}, which cannot be serialized: its code generator "
                "must return a module that is_binary_serializable, such as ExternalModule(…, type_key=, data=)"
            )
        symbol = f"tvmgen_external_{i}"
        arrays[symbol] = data or b"\0"
        kinds.append([module.type_key, symbol, len(data)])
    functions = []
    for i, e in enumerate(externals):
        symbol, size = "", 0
        if e.constants:
            data = save_param_dict({f"{k:08d}": v for k, v in enumerate(e.constants.values())})
            symbol, size = f"tvmgen_external_constants_{i}", len(data)
            arrays[symbol] = data
        functions.append([e.symbol, e.packed, modules.index(e.module), symbol, size])
    return {"modules": kinds, "functions": functions}, arrays


def attach_loaded(module: Module, data: Any) -> None:
    """Load the modules of other engines that a library holds."""
    where = module._library.name
    try:
        made = [_loaded(module, str(key), symbol, size, where) for key, symbol, size in data["modules"]]
        externals = []
        for symbol, packed, at, constants, size in data["functions"]:
            held = load_param_dict(_data(module, constants, size, where)) if constants else {}
            externals.append(External(symbol, made[at], packed, {k: held[k] for k in sorted(held)}))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise LoadError(f"{where}: damaged: its table of external modules cannot be read: {error}") from error
    attach(module, externals)


def _data(module: Module, symbol: str, size: int, where: str) -> bytes:
    address = module._library.address(symbol)
    if not address:
        raise LoadError(f"{where}: damaged: the data {symbol!r} of an external module is missing")
    return ctypes.string_at(address, size)


def _loaded(module: Module, kind: str, symbol: str, size: int, where: str) -> Module:
    load = get_global_func(_LOADER + kind, allow_missing=True)
    if load is None and kind in _OWN:
        importlib.import_module(f".{_OWN[kind]}", __package__)
        load = get_global_func(_LOADER + kind, allow_missing=True)
    if load is None:
        raise LoadError(
            f"{where}: a part of it runs in a module of kind {kind!r}, for which there is no loader: import the "
            f"package that registers the global function {_LOADER + kind!r} first"
        )
    found = load(_data(module, symbol, size, where))
    if not isinstance(found, Module):
        raise LoadError(f"{where}: {_LOADER + kind} returned {type(found).__name__}, not a Module")
    return found
