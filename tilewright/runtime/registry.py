"""Packed functions and the table of global ones, which compiled code calls by name."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Final, Literal, TypeVar, overload

from ..homes import home_of, homes_of


class PackedFunc:
    """A callable with a name, implemented in Python or compiled."""

    __slots__ = ("__weakref__", "_call", "name")

    def __init__(self, call: Callable[..., Any], name: str = "") -> None:
        self._call = call
        self.name = name or getattr(call, "__name__", "function")

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


_Callable = TypeVar("_Callable", bound=Callable[..., Any])
_functions: dict[str, PackedFunc] = {}
# The functions of libraries, which are loaded when the first of them is asked for.
_LIBRARIES: Final = (
    "tvm.contrib.",
    "tvm.default_trace_action",
    "runtime.config_threadpool",
    "runtime.NumThreads",
)


@overload
def register_func(func_name: str, f: _Callable, override: bool = ...) -> _Callable: ...
@overload
def register_func(
    func_name: str, f: None = ..., override: bool = ...
) -> Callable[[_Callable], _Callable]: ...
@overload
def register_func(func_name: _Callable, f: None = ..., override: bool = ...) -> _Callable: ...
def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Make a function callable from compiled code under a name.

    @register_func                 the function's own name
    @register_func("my.add")       this name
    register_func("my.add", add)   the same without a decorator
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)
    name = str(func_name)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in _functions and not override:
            raise ValueError(
                f"a global function {name!r} exists already; pass override=True to replace it, "
                "or call remove_global_func first"
            )
        if not callable(function):
            raise TypeError(f"global function {name!r} must be callable, not {type(function).__name__}")
        _functions[name] = function if isinstance(function, PackedFunc) else PackedFunc(function, name)
        return function

    return register if f is None else register(f)


@overload
def get_global_func(name: str, allow_missing: Literal[False] = ...) -> PackedFunc: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> PackedFunc | None: ...
def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """The function registered under a name; if there is none, an error, or None with `allow_missing`."""
    found = _functions.get(name)
    if found is None and name.startswith(_LIBRARIES):
        for _ in homes_of("libraries"):  # they register themselves when they are loaded
            found = _functions.get(name)
    if found is None and not allow_missing:
        raise ValueError(f"there is no global function {name!r}; register one with @register_func({name!r})")
    return found


def remove_global_func(name: str) -> None:
    """Remove a global function; an unknown name is not an error."""
    _functions.pop(name, None)


def list_global_func_names() -> list[str]:
    """The names of all global functions, sorted."""
    return sorted(_functions)


def convert(value: Any) -> Any:
    """Convert a Python value to the form that compiled code and the IR take: a number to a constant, a function to a
    packed function, and the items of a list, a tuple or a dict."""
    if isinstance(value, Real):  # NumPy's scalars are, too
        return home_of("expressions").const(value)
    if type(value) in (list, tuple):
        return type(value)(map(convert, value))
    if type(value) is dict:
        return {k: convert(v) for k, v in value.items()}
    own = (
        type(value).__module__.partition(".")[0] == __name__.partition(".")[0]
    )  # as tensors, which are called too
    if callable(value) and not own and not isinstance(value, type):
        return PackedFunc(value)
    return value
