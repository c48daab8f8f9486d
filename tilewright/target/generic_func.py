"""Functions that do something else for each target: the key of the current target chooses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from .target import Target

_Function = Callable[..., Any]


class GenericFunc:
    """A function with other forms for some keys of targets ("cuda", "gpu", "arm_cpu", …).

    The keys of the current target are tried in order; without a target, or where none of its keys has a form, the
    default runs.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._default: _Function | None = None
        self._forms: dict[str, _Function] = {}

    def set_default(self, func: _Function, allow_override: bool = False) -> None:
        """Set the function for targets that have no form of their own."""
        if self._default is not None and not allow_override:
            raise ValueError(
                f"generic function {self.name!r} has a default already; pass allow_override=True"
            )
        self._default = func

    def register(self, func: _Function, key_list: str | Sequence[str], allow_override: bool = False) -> None:
        """Set the function for targets with one of these keys."""
        for key in [key_list] if isinstance(key_list, str) else key_list:
            if key in self._forms and not allow_override:
                raise ValueError(
                    f"generic function {self.name!r} has a form for {key!r} already; pass allow_override=True"
                )
            self._forms[key] = func

    def get_packed_func(self) -> _Function:
        """The function for the current target."""
        target = Target.current(allow_none=True)
        for key in () if target is None else target.keys:
            if key in self._forms:
                return self._forms[key]
        if self._default is None:
            known = ", ".join(self._forms) or "none"
            raise ValueError(
                f"generic function {self.name!r} has no default, and no form for the keys of target {target} "
                f"(it has forms for: {known})"
            )
        return self._default

    def __call__(self, *args: Any) -> Any:
        return self.get_packed_func()(*args)


_named: Final[dict[str, GenericFunc]] = {}


def get_native_generic_func(name: str) -> GenericFunc:
    """The generic function of that name, made if there is none yet."""
    return _named.setdefault(name, GenericFunc(name))


def _wrapped(node: GenericFunc, fdefault: _Function, override_forms: bool) -> Any:
    """`fdefault` as the face of a generic function, with the `register` that adds forms to it."""

    @functools.wraps(fdefault)
    def dispatched(*args: Any, **kwargs: Any) -> Any:
        return node.get_packed_func()(*args, **kwargs)

    def register(
        key: str | Sequence[str], func: _Function | None = None, override: bool = override_forms
    ) -> Any:
        """Register `func`, or the function that it decorates, for targets with one of these keys."""

        def add(f: _Function) -> _Function:
            node.register(f, key, override)
            return f

        return add if func is None else add(func)

    made: Any = dispatched
    made.fdefault, made.register = fdefault, register
    made.generic_func_node, made.get_packed_func = node, node.get_packed_func
    return made


def override_native_generic_func(func_name: str) -> Callable[[_Function], Any]:
    """A decorator: the function becomes the default of the generic function of that name."""

    def decorate(fdefault: _Function) -> Any:
        node = get_native_generic_func(func_name)
        node.set_default(fdefault, allow_override=True)
        return _wrapped(node, fdefault, override_forms=True)

    return decorate


def generic_func(fdefault: _Function) -> Any:
    """A decorator: a function whose form the current target chooses.

    @tvm.target.generic_func
    def lanes(dtype): return 4

    @lanes.register(["cuda", "gpu"])
    def _(dtype): return 32
    """
    node = GenericFunc(getattr(fdefault, "__name__", ""))
    node.set_default(fdefault)
    return _wrapped(node, fdefault, override_forms=False)
