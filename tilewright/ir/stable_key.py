"""A stable key of a program, equal in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from .buffer import Buffer
from .deep import deep_programs
from .expr import IntImm, Var
from .function import PrimFunc
from .module import GlobalVar, IRModule
from .node import Node
from .op import Op

_NAMES = {"name", "name_hint", "span", "key"}  # fields that do not matter for equality


def stable_key(n: Any) -> str:
    """A digest that is the same for structurally equal programs, in every process and on every machine.

    `structural_hash` answers the same question faster, for one process.
    """
    with deep_programs():
        walk = _Text()
        walk.go(n)
    return hashlib.sha256("\n".join(walk.out).encode()).hexdigest()


@cache
def _fields_of(kind: type) -> tuple[str, ...] | None:
    """The fields that distinguish nodes of a class; None for classes that `_Text` handles itself."""
    if not issubclass(kind, Node) or issubclass(kind, (Var, Buffer, PrimFunc, IRModule, IntImm)):
        return None
    return tuple(name for name in kind._fields if name not in _NAMES)


class _Text:
    """A program as lines without names: variables and buffers are numbered in order of appearance."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.seen: dict[Any, int] = {}

    def go(self, a: Any) -> None:
        fields = _fields_of(a.__class__)
        if fields is not None:
            self.out.append(f"({a.__class__.__name__}")
            for name in fields:
                self.go(getattr(a, name))
            self.out.append(")")
        elif isinstance(a, str):
            self.out.append(f"{a!r}")
        elif isinstance(a, Var):
            self.out.append(f"v{self.seen.setdefault(a, len(self.seen))} {a.dtype}")
        elif isinstance(a, Buffer) and a in self.seen:
            self.out.append(f"b{self.seen[a]}")
        elif isinstance(a, PrimFunc):
            self.out.append("func")
            self.go(a.params)
            self.go([a.buffer_map[v] for v in a.params if v in a.buffer_map])
            self.go(a.attrs)
            self.go(a.body)
        elif isinstance(a, IRModule):
            self.go({gv.name_hint: f for gv, f in a.functions.items()})
        elif isinstance(a, (IntImm, int)):
            self.out.append(str(int(a.value if isinstance(a, IntImm) else a)))  # an IntImm equals an int
        elif isinstance(a, Buffer):
            self.seen[a] = len(self.seen)
            self.out.append("(Buffer")
            for name in a._fields:
                if name not in _NAMES:
                    self.go(getattr(a, name))
            self.out.append(")")
        elif isinstance(a, (Op, GlobalVar)):
            self.out.append(a.name if isinstance(a, Op) else a.name_hint)
        elif isinstance(a, Mapping):
            self.out.append(f"{{{len(a)}")
            for key, value in sorted(a.items(), key=lambda item: str(item[0])):
                self.out.append(str(key))
                self.go(value)
        elif isinstance(a, Sequence) and not isinstance(a, (str, bytes)):
            self.out.append(f"[{len(a)}")
            for x in a:
                self.go(x)
        elif hasattr(a, "tobytes"):
            self.out.append(f"{a.shape} {hashlib.sha256(a.tobytes()).hexdigest()}")
        else:
            self.out.append(f"{a!r}" if isinstance(a, (str, float, bytes)) or a is None else str(a))
