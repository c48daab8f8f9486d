"""C source for another compiler."""

from __future__ import annotations

from typing import Any, Final

from ..ir.module import IRModule
from ..target import Target
from ..target.kinds import CPU_CODE, Option
from ..tir import transform as T
from . import Backend, lowering_rules
from ._cpu import LOWERING


def _generate(mod: IRModule, same: IRModule, target: Target) -> Any:
    from ..codegen.source import build_c

    return build_c(mod, target)


BACKEND: Final = Backend(
    name="c",
    device_type=1,
    family="cpu",
    options={**CPU_CODE, "march": Option("text", "the architecture, for the C compiler")},
    pipeline=LOWERING._replace(
        instructions=(lambda target: T.LowerIntrin(library=True, rules=lowering_rules(target)),)
    ),
    generate=_generate,
)
