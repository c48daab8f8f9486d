"""The executor and runtime options of `relay.build(executor=…, runtime=…)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.errors import BuildError


class _Choice:
    """A name from a list, with options."""

    kinds: tuple[str, ...] = ()
    what = ""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        if name not in self.kinds:
            raise BuildError(f"there is no {self.what} {name!r}; there are {', '.join(self.kinds)}")
        self.name, self.options = name, dict(options or {})

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def __contains__(self, name: object) -> bool:
        return name in self.options

    @property
    def attrs(self) -> dict[str, Any]:
        return self.options

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.options})"

    @classmethod
    def list_registered(cls) -> list[str]:
        return list(cls.kinds)


class Executor(_Choice):
    """The executor of the steps: `graph` and `aot` are the same here."""

    kinds, what = ("graph", "aot"), "executor"


class Runtime(_Choice):
    """The runtime of the code; it needs none, so all names are equivalent here."""

    kinds, what = ("cpp", "crt"), "runtime"
