"""The executor and runtime options of `relay.build(executor=…, runtime=…)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...ir.errors import BuildError

_WORDS = {bool: "IntImm", int: "IntImm", str: "runtime.String"}


class _Choice:
    """A name from a list, with the options that it has."""

    # The options of each name: their types, and defaults.
    kinds: ClassVar[dict[str, dict[str, tuple[type, Any]]]] = {}

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        known = self._options_of(name)
        for key, value in (options or {}).items():
            if key not in known:
                raise BuildError(
                    f'Attribute "{key}" is not available on this {type(self).__name__}; '
                    f"{name} has {', '.join(known) or 'none'}"
                )
            if _WORDS.get(type(value)) != _WORDS[known[key][0]]:
                found = _WORDS.get(type(value), type(value).__name__)
                raise BuildError(
                    f'Attribute "{key}" should have type "{_WORDS[known[key][0]]}" but instead found "{found}"'
                )
        self.name, self.options = name, dict(options or {})

    @classmethod
    def _options_of(cls, name: str) -> dict[str, tuple[type, Any]]:
        if name not in cls.kinds:
            raise BuildError(f'{cls.__name__} "{name}" is not defined; there are {", ".join(cls.kinds)}')
        return cls.kinds[name]

    def __getitem__(self, name: str) -> Any:
        return self.options.get(name, self.kinds[self.name][name][1])

    def __contains__(self, name: object) -> bool:
        return name in self.options

    @property
    def attrs(self) -> dict[str, Any]:
        return self.options

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.options})"

    @classmethod
    def list_registered(cls) -> list[str]:
        return list(cls.kinds)

    @classmethod
    def list_registered_options(cls, choice: Any) -> dict[str, str]:
        """The options of a name, and the words for their types."""
        return {key: _WORDS[kind] for key, (kind, _) in cls._options_of(str(choice)).items()}


class Executor(_Choice):
    """The executor of the steps: `graph` and `aot` are the same here. Parameters are always in the library, which has
    a C interface and needs no packed arguments; alignments are those of the target."""

    kinds = {
        "graph": {"link-params": (bool, False)},
        "aot": {
            "link-params": (bool, True),
            "unpacked-api": (bool, False),
            "interface-api": (str, "packed"),
            "workspace-byte-alignment": (int, 16),
            "constant-byte-alignment": (int, 16),
        },
    }


class Runtime(_Choice):
    """The runtime of the code; it needs none, so all names are equivalent here.

    `runtime.system_lib()` finds the functions of every library, so that `system-lib` has nothing to add.
    """

    kinds = {"cpp": {"system-lib": (bool, False)}, "crt": {"system-lib": (bool, False)}}
