"""The record of what was done to a program."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from ...ir.expr import IntImm, IterVar
from .primitive import BlockRV, LoopRV

__all__ = ["Instruction", "Trace"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step: the primitive's name, its arguments in order, and the handles that it gave."""

    kind: str
    arguments: tuple[tuple[str, Any], ...]
    outputs: tuple[Any, ...]


class Trace:
    """The steps of a schedule, from the first. It prints as Python that does them again."""

    def __init__(self) -> None:
        self.insts: list[Instruction] = []

    def record(self, kind: str, bound: inspect.BoundArguments, result: Any) -> None:
        outputs = tuple(result) if isinstance(result, (list, tuple)) else () if result is None else (result,)
        items: list[tuple[str, Any]] = []
        for (name, value), param in zip(
            list(bound.arguments.items())[1:], list(bound.signature.parameters.values())[1:], strict=False
        ):
            param = bound.signature.parameters[name]
            if param.kind is inspect.Parameter.VAR_POSITIONAL:
                items += [("", v) for v in value]
            else:
                items.append((name, value))
        self.insts.append(Instruction(kind, tuple(items), outputs))

    def as_python(self) -> list[str]:
        """The steps as lines of Python over a schedule named `sch`."""
        names: dict[int, str] = {}
        by_identity: dict[Any, str] = {}

        def name_of(value: Any) -> str:
            key = value.var if isinstance(value, LoopRV) else value.key
            return by_identity.get(key, value.name)

        def text(value: Any) -> str:
            if isinstance(value, (LoopRV, BlockRV)):
                return name_of(value)
            if isinstance(value, (list, tuple)):
                return f"[{', '.join(map(text, value))}]"
            if isinstance(value, IntImm):
                return str(value.value)
            if isinstance(value, IterVar):
                return repr(value.thread_tag)
            return repr(value)

        lines = []
        loops = blocks = 0
        for inst in self.insts:
            args = [text(v) if not k else f"{k}={text(v)}" for k, v in inst.arguments if v is not None]
            call = f"sch.{inst.kind}({', '.join(args)})"
            made = []
            for out in inst.outputs:
                key = out.var if isinstance(out, LoopRV) else out.key if isinstance(out, BlockRV) else out
                if isinstance(out, LoopRV):
                    loops += 1
                    by_identity[key] = f"l{loops - 1}"
                elif isinstance(out, BlockRV):
                    blocks += 1
                    by_identity[key] = f"b{blocks - 1}"
                made.append(by_identity.get(key, f"v{len(names)}"))
            many = len(made) > 1 or inst.kind in ("split", "get_loops", "get_child_blocks")
            lines.append(
                f"{', '.join(made)}{',' if many and len(made) == 1 else ''} = {call}" if made else call
            )
        return lines

    def __str__(self) -> str:
        body = "\n".join(f"  {line}" for line in self.as_python()) or "  pass"
        return "# from tilewright import tir\ndef apply_trace(sch: tir.Schedule) -> None:\n" + body

    def show(self) -> None:
        """Print the steps."""
        print(self)

    def __len__(self) -> int:
        return len(self.insts)
