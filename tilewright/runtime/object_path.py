"""Paths to nodes inside programs: `<root>.body[0].value`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_STEP = re.compile(r"\.(?P<attr>\w+)|\[(?P<index>\d+)\]|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]")


class ObjectPath:
    """The steps from a root to a node: attributes, entries of lists, values of tables. Paths compare by their steps."""

    __slots__ = ("steps",)

    def __init__(self, steps: Iterable[tuple[str, Any]] = ()) -> None:
        self.steps: tuple[tuple[str, Any], ...] = tuple(steps)

    # -- construction ------------------------------------------------------------------------------------
    @staticmethod
    def root(root_name: str | None = None) -> ObjectPath:
        """The root path."""
        return ObjectPath([("root", root_name)] if root_name else ())

    @staticmethod
    def parse(text: str) -> ObjectPath:
        """Parse a path such as `.body[0]['key']`."""
        steps: list[tuple[str, Any]] = []
        rest = text.removeprefix("<root>")
        while rest:
            found = _STEP.match(rest)
            if found is None:
                raise ValueError(f"{text!r} is not a path: cannot read {rest!r}")
            if found["attr"] is not None:
                steps.append(("attr", found["attr"]))
            elif found["index"] is not None:
                steps.append(("index", int(found["index"])))
            else:
                steps.append(("key", found["key"]))
            rest = rest[found.end() :]
        return ObjectPath(steps)

    def _then(self, kind: str, value: Any) -> ObjectPath:
        return ObjectPath((*self.steps, (kind, value)))

    def attr(self, attr_key: str) -> ObjectPath:
        return self._then("attr", attr_key)

    def array_index(self, index: int) -> ObjectPath:
        return self._then("index", int(index))

    def map_value(self, key: Any) -> ObjectPath:
        return self._then("key", key)

    def missing_array_element(self, index: int) -> ObjectPath:
        return self._then("no index", int(index))

    def missing_map_entry(self) -> ObjectPath:
        return self._then("no key", None)

    # -- queries ------------------------------------------------------------------------------------
    @property
    def parent(self) -> ObjectPath | None:
        return ObjectPath(self.steps[:-1]) if self.steps else None

    def __len__(self) -> int:
        return len(self.steps) + 1

    def get_prefix(self, length: int) -> ObjectPath:
        """The first `length` nodes of the path, the root included."""
        if not 1 <= length <= len(self):
            raise IndexError(f"a path of {len(self)} nodes has no prefix of {length}")
        return ObjectPath(self.steps[: length - 1])

    def is_prefix_of(self, other: ObjectPath) -> bool:
        return other.steps[: len(self.steps)] == self.steps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __str__(self) -> str:
        forms = {
            "attr": ".{}",
            "index": "[{}]",
            "key": "[{!r}]",
            "no index": "[<missing element #{}>]",
            "no key": "[<missing entry>]",
        }
        name = "<root>"
        parts = []
        for kind, value in self.steps:
            if kind == "root":
                name = str(value)
            else:
                parts.append(forms[kind].format(value))
        return name + "".join(parts)

    __repr__ = __str__
